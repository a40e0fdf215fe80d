package sender

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/credentials"
	"github.com/starling-agg/starling/client/logbook"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/recipe"
)

// LogDir is the directory, beside a device's credentials, of what it has seen of the log.
const LogDir = "log"

// visitDir is that of the lock of the process that visits the attester.
const visitDir = "visit"

// A Purse is the directory in which a device keeps its credentials for the recipes of one
// deployment, and what it has seen of their log; one process at a time.
type Purse struct {
	// Dir is made where there is none. Required.
	Dir string
	// Recipe counts devices, or names a log. Required.
	Recipe *recipe.Recipe
	// HTTP sends requests to the attester; nil is as in credentials.Options.
	HTTP client.Doer
}

// An OpenPurse has the directory to itself.
type OpenPurse struct {
	// Wallet has the credentials; nil where the recipe counts no devices.
	Wallet *credentials.Wallet

	recipe *recipe.Recipe
	fsys   *disk.OSFS
}

// Open locks the directory and reads what is kept in it. It fails with *[DirError],
// *[BusyError], [recipe.ErrNoServerKeys] and as [credentials.Open].
func (p *Purse) Open() (*OpenPurse, error) {
	deployment, err := p.Recipe.Deployment()
	if err != nil {
		return nil, err
	}
	fsys, err := disk.OS(p.Dir)
	if err != nil {
		return nil, &DirError{err}
	}
	if err := fsys.Lock(); err != nil {
		return nil, errors.Join(&BusyError{p.Dir, err}, fsys.Close())
	}
	x := &OpenPurse{recipe: p.Recipe, fsys: fsys}
	if t := p.Recipe.Tokens; t != nil {
		if x.Wallet, err = credentials.Open(credentials.Options{Attester: t.Attester, Deployment: deployment, Hops: !p.Recipe.Path.Proofs(), FS: fsys, HTTP: p.HTTP}); err != nil {
			return nil, errors.Join(err, fsys.Close())
		}
	}
	return x, nil
}

// Logbook opens what the device has seen of the recipe's log; the options' Recipe and FS are
// set here. It fails as [logbook.Open].
func (x *OpenPurse) Logbook(o logbook.Options) (*logbook.Logbook, error) {
	if err := disk.MakeDirs(x.fsys, LogDir); err != nil {
		return nil, &DirError{err}
	}
	o.Recipe, o.FS = x.recipe, disk.Sub(x.fsys, LogDir)
	return logbook.Open(o)
}

// Close leaves the directory to others. Wallet and logbook then give what they have read, and
// write nothing more.
func (x *OpenPurse) Close() error { return x.fsys.Close() }

// with does something with the wallet, and leaves the directory to others.
func (p *Purse) with(do func(*credentials.Wallet) error) error {
	x, err := p.Open()
	if err != nil {
		return err
	}
	return errors.Join(do(x.Wallet), x.Close())
}

// Visit visits the attester for the epoch of a manifest. While the attester is asked, the
// directory is left to others, who send; another visit is refused then (*[BusyError]). It
// fails as [Purse.Open] and [credentials.Wallet.Visit].
func (p *Purse) Visit(ctx context.Context, m *ohttp.Manifest) (err error) {
	dir := filepath.Join(p.Dir, visitDir)
	alone, err := disk.OS(dir)
	if err != nil {
		return &DirError{err}
	}
	defer func() { err = errors.Join(err, alone.Close()) }()
	if err := alone.Lock(); err != nil {
		return &BusyError{dir, err}
	}
	var a *credentials.Asking
	if err := p.with(func(w *credentials.Wallet) (err error) { a, err = w.Ask(m); return err }); a == nil || err != nil {
		return err
	}
	if err := a.FetchKeys(ctx); err != nil {
		return err
	}
	if err := p.waitWith(ctx, func(w *credentials.Wallet) error { return w.Draw(a) }); err != nil {
		return err
	}
	sent := a.Send(ctx)
	err = p.waitWith(ctx, func(w *credentials.Wallet) error { return w.Keep(a) })
	if errors.As(err, new(*BusyError)) {
		return cmp.Or(sent, err) // the same visit is answered again
	}
	return cmp.Or(err, sent)
}

// waitWith is [Purse.with] once nobody else has the directory, as who sends has it for a
// moment.
func (p *Purse) waitWith(ctx context.Context, do func(*credentials.Wallet) error) error {
	for {
		err := p.with(do)
		if !errors.As(err, new(*BusyError)) || sleepUntil(ctx, time.Now().Add(again)) != nil {
			return err
		}
	}
}

// again is after how long a directory that another process has is tried again.
const again = 100 * time.Millisecond

// VisitInTime waits for the instant that was drawn for the epoch of a manifest, visits
// then, and again at fixed distances until there is an answer or the epoch begins. While
// it waits, the directory is left to others. It waits for nothing where the device has
// its credentials. The recipe counts devices. It fails with *[WaitError] where it was
// ended early, and as [Purse.Open] and [credentials.Wallet.Visit].
func (p *Purse) VisitInTime(ctx context.Context, m *ohttp.Manifest) error {
	var at time.Time
	held := false
	err := p.with(func(w *credentials.Wallet) (err error) {
		if !w.Enrolled() {
			return credentials.ErrNotEnrolled
		}
		held = slices.ContainsFunc(w.Epochs(), func(e credentials.Epoch) bool { return e.Number == m.Epoch && e.Held })
		if !held {
			at, err = w.Plan(m)
		}
		return err
	})
	if held || err != nil {
		return err
	}
	distance := apart(at, m.NotBefore)
	for {
		if err := sleepUntil(ctx, at); err != nil {
			return err
		}
		err := p.Visit(ctx, m)
		if err == nil || answered(err) {
			return err
		}
		// A computer whose lid was closed keeps to the instants that it would have had.
		for now := time.Now(); !at.After(now); at = at.Add(distance) {
		}
		if !at.Before(m.NotBefore) {
			return err
		}
	}
}

// apart is the distance of visits that get no answer: fixed by what was drawn alone.
func apart(at, begin time.Time) time.Duration {
	return max(time.Second, min(time.Hour, begin.Sub(at)/4)).Truncate(time.Second)
}

// answered says whether another visit would come to the same, so that none follows. An
// attester that does not know the epoch may be given its manifest later.
func answered(err error) bool {
	if refused := new(credentials.RefusedError); errors.As(err, &refused) {
		return refused.Status != http.StatusNotFound
	}
	return slices.ContainsFunc([]error{credentials.ErrState, credentials.ErrNotEnrolled, credentials.ErrTooLate, credentials.ErrIssuers},
		func(is error) bool { return errors.Is(err, is) })
}
