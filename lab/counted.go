package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/logserver"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/anonymity/voprf"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/credentials"
	"github.com/starling-agg/starling/client/logbook"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/logged"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/signed"
)

const (
	// enrolling is the step that a lab has more whose recipe counts devices, before reports
	// are made.
	enrolling = "enrol"
	// visiting is how many devices are at the attester at one time: fewer than it works on.
	visiting = 48
	// An epoch of a lab lasts from an hour to two days, so that one begins when the lab wants
	// it to: epochs are counted from 1970.
	shortEpoch, longEpoch = 3600, 2 * 86400
	// logPeriod is how soon devices hear of what is logged.
	logPeriod = time.Second
	bookDir   = "device-log"
)

// A counting is what a lab has more whose recipe counts devices: an attester, an issuer
// beside each aggregator, tokens of the gateway, a log with its witnesses, and what a
// device follows of it.
type counting struct {
	devices  int
	begin    time.Time // of the epoch that devices visit for
	length   time.Duration
	attester deploy.Listeners
	watched  *deploy.Watched
	codes    []string
	remote   logged.Remote
	book     *logbook.Logbook
	closing  func() error // the book's directory
	manifest *ohttp.Manifest
	recipe   recipe.ID
	cohort   arc.Cohort
	wallets  []*credentials.Wallet
	visited  time.Duration // what enrolments and visits took
	steady   time.Duration // what each took, many at a time, once as many as that were done
	// author is whose word the recipe stands in the log by, and counters who say how many
	// devices there are.
	author   signed.Role
	counters []counter
}

// A counter is a party that counts devices.
type counter struct {
	role  signed.Role
	local string // where its operator asks
}

// newCounting finds free ports, and when the epoch is to begin: after a time.
func newCounting(devices int, after, precision time.Duration) (c *counting, err error) {
	c = &counting{devices: devices}
	if c.attester, err = deploy.LoopbackParty(); err != nil {
		return nil, err
	}
	if c.watched, err = deploy.LoopbackLog(); err != nil {
		c.attester.Close()
		return nil, err
	}
	c.begin, c.length = epochFrom(time.Now().Add(after), precision)
	return c, nil
}

// close closes the listeners.
func (c *counting) close() error {
	c.attester.Close()
	c.watched.Close()
	if c.closing != nil {
		return c.closing()
	}
	return nil
}

// epochFrom is the first start of an epoch from a time on, and the length of epochs that
// makes it one. Both are multiples of the precision, so that rounds begin with the epoch.
func epochFrom(wanted time.Time, precision time.Duration) (begin time.Time, length time.Duration) {
	step := int64(precision / time.Second)
	for at := (wanted.Unix()/step + 1) * step; ; at += step {
		for length := (shortEpoch/step + 1) * step; length <= longEpoch; length += step {
			if at%length == 0 {
				return time.Unix(at, 0).UTC(), time.Duration(length) * time.Second
			}
		}
	}
}

// pose has the recipe count devices, and stand in the log.
func (c *counting) pose(r *recipe.Recipe, owners *deploy.Owners) {
	r.ServerKeys.EpochLength = uint32(c.length / time.Second)
	r.Log = &recipe.Log{Origin: c.watched.Origin()}
	r.Tokens = &recipe.Tokens{Attester: c.attester.URL(), Key: owners.Attester.Public(), Attestation: recipe.Codes, MinCohort: uint64(c.devices), Admission: true}
}

// create adds attester and log to the files of a deployment.
func (c *counting) create(dir string) (err error) {
	if c.codes, err = deploy.CreateAttester(dir, c.attester, c.devices); err != nil {
		return err
	}
	return deploy.CreateLog(dir, c.watched, logPeriod)
}

// around puts log and witnesses, as they start from their files, before the parts of a lab,
// and the attester behind them: it asks the issuers, and so stops before them.
func (c *counting) around(lab []service.Part, dir string, log *slog.Logger) ([]service.Part, error) {
	attester, err := deploy.LoadAttester(filepath.Join(dir, deploy.AttesterFile))
	if err != nil {
		return nil, err
	}
	transparency, err := deploy.LoadLog(filepath.Join(dir, deploy.LogFile))
	if err != nil {
		return nil, err
	}
	var parts []service.Part
	for i, at := range c.watched.Witnesses {
		w, err := deploy.LoadWitness(filepath.Join(dir, deploy.WitnessFile(i+1)))
		if err != nil {
			return nil, err
		}
		parts = append(parts, w.Parts(log, at)...)
	}
	parts = append(parts, transparency.Parts(log, c.watched.Log)...)
	return slices.Concat(parts, lab, attester.Parts(log, c.attester)), nil
}

// follow has the recipe and the epoch's manifest logged, and waits until devices have both
// from the log.
func (f *frame) follow(ctx context.Context) error {
	c := f.counting
	policy, err := deploy.ReadPolicy(filepath.Join(f.dir, deploy.PolicyFile))
	if err != nil {
		return err
	}
	fsys, err := disk.OS(filepath.Join(f.dir, bookDir))
	if err != nil {
		return err
	}
	c.closing = fsys.Close
	c.remote = logged.Remote{URL: c.watched.LogURL(), Client: f.http}
	through := logged.Remote{URL: f.front.RelayURL(), Client: f.http}
	if c.book, err = logbook.Open(logbook.Options{Recipe: f.recipe, Anchors: f.anchors, Policy: policy, FS: fsys, Fetch: through.Bundle, Tiles: c.remote.Files}); err != nil {
		return err
	}
	author, err := f.signer(c.author)
	if err != nil {
		return err
	}
	deployment, err := f.recipe.Deployment()
	if err != nil {
		return err
	}
	stated, err := tlog.State(tlog.KindRecipe, deployment, f.file, author, time.Now())
	if err != nil {
		return err
	}
	manifest, err := os.ReadFile(filepath.Join(f.dir, deploy.ManifestFile))
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	kind := tlog.KindManifest
	if !f.recipe.Path.Proofs() {
		kind = tlog.KindFrontManifest
	}
	for _, e := range []tlog.Entry{stated, {Kind: kind, Body: manifest}} {
		if err := c.add(ctx, e); err != nil {
			return err
		}
	}
	id, err := f.recipe.ID()
	if err != nil {
		return err
	}
	c.recipe = id
	return c.heard(ctx, func() error {
		if err := c.book.Holds(id); err != nil {
			return err
		}
		coming, err := c.book.Coming()
		if err == nil && len(coming) == 0 {
			err = errors.New("the log holds no manifest of an epoch that has not begun")
		}
		if err != nil && !time.Now().Before(c.begin) {
			err = &lateError{cause: err}
		}
		if err == nil {
			c.manifest = coming[0]
		}
		return err
	})
}

func (f *frame) signer(role signed.Role) (*signed.Signer, error) {
	online := filepath.Join(f.dir, "secrets", strings.ReplaceAll(role.String(), " ", "-")+".online")
	return deploy.ReadSigner(service.Secret(online), online+".delegation")
}

// add has an entry logged.
func (c *counting) add(ctx context.Context, e tlog.Entry) error {
	b, err := e.Append(nil)
	if err == nil {
		_, _, err = c.remote.Add(ctx, logserver.EntryMedia, b)
	}
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	return nil
}

// heard fetches the bundle until devices have what they wait for: a lab's do not wait for the
// times that real ones keep to.
func (c *counting) heard(ctx context.Context, have func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	t := time.NewTicker(logPeriod / 4)
	defer t.Stop()
	for {
		err := c.book.Refresh(ctx)
		if err == nil {
			err = have()
		}
		if late := new(lateError); err == nil || errors.As(err, &late) {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("what devices wait for does not come by the log: %w", errors.Join(err, context.Cause(ctx)))
		}
	}
}

// enrol has every device visit, and waits until it is known how many did.
func (f *frame) enrol(ctx context.Context) error {
	if err := f.visits(ctx); err != nil {
		return err
	}
	return f.opened(ctx)
}

// visits has every device enrol with its code and visit for its credentials. They must be done
// before the epoch begins; it fails with *[lateError].
func (f *frame) visits(ctx context.Context) error {
	c := f.counting
	c.wallets = make([]*credentials.Wallet, c.devices)
	var done, warm atomic.Uint64 // visits, and how long the first ones took, in nanoseconds
	begin := time.Now()
	stop := f.tick(enrolling, uint64(c.devices), &done)
	defer stop()
	err := crowd(ctx, c.devices, visiting, func(ctx context.Context, i int) error {
		w, err := credentials.Open(credentials.Options{Attester: c.attester.URL(), Deployment: c.manifest.Deployment, Hops: !f.recipe.Path.Proofs(), HTTP: f.http})
		if err == nil {
			err = w.Enrol(ctx, []byte(c.codes[i]))
		}
		if err == nil {
			err = w.Visit(ctx, c.manifest)
		}
		if err != nil {
			return fmt.Errorf("device %d: %w", i, err)
		}
		c.wallets[i] = w
		if done.Add(1) == visiting {
			warm.Store(uint64(time.Since(begin)))
		}
		return nil
	})
	c.visited = time.Since(begin)
	if n := c.devices; n >= 2*visiting {
		c.steady = (c.visited - time.Duration(warm.Load())) / time.Duration(n-visiting)
	} else {
		c.steady = c.visited / time.Duration(max(1, n))
	}
	if err != nil && ctx.Err() == nil && !time.Now().Before(c.begin) {
		err = &lateError{done.Load(), c.visited, err}
	}
	return err
}

// opened waits until the epoch has begun and everybody knows of how many devices it is.
func (f *frame) opened(ctx context.Context) error {
	c := f.counting
	select {
	case <-time.After(time.Until(f.asked.Add(f.o.Precision))): // the end of the last round
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, party := range append(c.counters, counter{signed.Attester, c.attester.Local.Addr().String()}) {
		if err := f.count(ctx, party.role, party.local); err != nil {
			return fmt.Errorf("%v: %w", party.role, err)
		}
	}
	err := c.heard(ctx, func() error {
		var ok bool
		var err error
		if c.cohort, ok, err = c.book.Cohort(c.manifest); err == nil && !ok {
			err = errors.New("not all three have said how many devices have credentials")
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, w := range c.wallets {
		if err := w.Told(c.manifest, c.cohort); err != nil {
			return err
		}
	}
	return nil
}

// count has the owner of a party state in the log how many devices it has counted.
func (f *frame) count(ctx context.Context, role signed.Role, local string) error {
	c := f.counting
	var said deploy.Cohort
	if err := f.operate(ctx, fmt.Sprintf("http://%s%s?epoch=%d", local, deploy.CohortPath, c.manifest.Epoch), &said); err != nil {
		return err
	}
	content, err := (&tlog.Cohort{Role: role, Epoch: said.Epoch, Devices: said.Devices}).Append(nil)
	if err != nil {
		return err
	}
	s, err := f.signer(role)
	if err != nil {
		return err
	}
	e, err := tlog.State(tlog.KindCohort, c.manifest.Deployment, content, s, time.Now())
	if err != nil {
		return err
	}
	return c.add(ctx, e)
}

// first are the credentials of the first device, for what the lab asks of one client.
type first struct{ c *counting }

// Held implements [client.Credentials].
func (x first) Held(epoch uint64) (*client.Held, error) {
	if len(x.c.wallets) == 0 {
		return nil, client.ErrNoCredentials
	}
	return x.c.wallets[0].For(uint64(x.c.devices)).Held(epoch)
}

// Admission gives the tokens of the same device.
func (x first) Admission(round uint64) (voprf.Token, error) {
	if len(x.c.wallets) == 0 {
		return voprf.Token{}, client.ErrNoCredentials
	}
	return x.c.wallets[0].Admission(x.c.recipe)(round)
}

// clientOf is the client of one device, which shows its own credentials and tokens.
func (f *frame) clientOf(ctx context.Context, i int) (*client.Client, error) {
	o := f.clientOptions()
	w := f.counting.wallets[i]
	o.Credentials, o.Admission = w.For(uint64(f.counting.devices)), w.Admission(f.counting.recipe)
	x, err := client.New(o)
	if err == nil {
		err = x.Refresh(ctx)
	}
	return x, err
}
