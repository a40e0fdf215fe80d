// Package credentials is a device's side of being counted: it enrols at the attester, visits
// it once for each key epoch, and keeps what it was given until it shows it
// (client.Options.Credentials and Admission): one credential of each issuer, and where recipes
// ask for admission one token of the gateway for each round of each of them.
//
// A visit is at an instant drawn evenly from the time before the epoch begins, drawn anew for
// each and kept, and again at fixed distances until there is an answer: nothing that the
// device does or is asked moves it. Everything is on the disk before it is sent, so that the
// same visit comes again after any failure, byte for byte; another one would be refused.
//
// Credentials of an epoch are shown only once both issuers and the attester have said for
// how many devices there are some, and these are enough (arc.Cohort): else whoever gave
// credentials to one device alone would know what it sends. A device that was off in the
// time of visits, or had no answer, sits the epoch out.
package credentials

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/visit"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/wire"
	"github.com/starling-agg/starling/signed"
)

// Options make a [Wallet].
type Options struct {
	// Attester is the base URL of the recipe's. Required.
	Attester string
	// Deployment is that of the recipes. Required.
	Deployment [32]byte
	// Hops says that the deployment is of the shuffled path, whose issuers stand beside hop 1
	// and hop 2.
	Hops bool
	// FS keeps the wallet, and no one else uses it. Required, but for a laboratory: nil keeps
	// it in memory, and a device that restarts is another.
	FS disk.FS
	// HTTP sends requests to the attester, which knows the device; nil is a client with a
	// timeout of 30 s that follows no redirects.
	HTTP client.Doer
	// Now is the device's clock; nil is time.Now.
	Now func() time.Time
}

const (
	file    = "wallet"
	magic   = "starling wallet v1"
	maxFile = 2 << 20 // maxEpochs times visit.MaxTokens, and what is said of them
	// maxEpochs bounds what is kept: an epoch is until the one after the next begins, and
	// manifests may be there for some that come.
	maxEpochs = 8
	// asItself stands in the place of a proof that is made anew each time, and not kept.
	asItself = "as itself"
	// margin is how much of the time of visits is left for a second try, at most.
	margin = 10 * time.Minute
)

// Errors to branch on with errors.Is.
var (
	// ErrState: what the device kept is damaged, or of another deployment.
	ErrState = errors.New("credentials: what was kept cannot be used")
	// ErrNotEnrolled: the attester does not know the device.
	ErrNotEnrolled = errors.New("credentials: the device has not enrolled")
	// ErrTooLate: the epoch has begun; the device sits it out.
	ErrTooLate = errors.New("credentials: the epoch has begun")
	// ErrFull: the device has as many epochs as it keeps; this one's turn comes when one of
	// them is over.
	ErrFull = errors.New("credentials: as many epochs as are kept")
	// ErrIssuers: the manifest names no issuers, or those of another deployment.
	ErrIssuers = errors.New("credentials: no issuers that are this device's")
	// ErrAnswer: an answer that does not hold under the manifest's keys.
	ErrAnswer = errors.New("credentials: the answer holds under no key of the manifest")
)

// A RefusedError is a word of the attester's.
type RefusedError struct {
	Status int
	Word   string // of the attester's closed set
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("credentials: the attester refuses (%d): %s", e.Status, e.Word)
}

// A Wallet has what the device was given. Safe for concurrent use, by one process.
type Wallet struct {
	o    Options
	base *url.URL

	// asking has a place for the one who asks the attester, and mu is not held meanwhile: a slow
	// attester keeps nobody from what the device has. It is taken before mu.
	asking chan struct{}
	mu     sync.Mutex
	kept   kept
	broken error // a write whose outcome is not known
}

// kept is what is on the disk.
type kept struct {
	deployment [32]byte
	known      bool // the attester has answered the enrolment
	enrolment  visit.Enrolment
	epochs     []*epoch
}

// An epoch is what the device has of one.
type epoch struct {
	number      uint32
	at          time.Time // of the visit
	begin       time.Time
	until       time.Time // of the last round of it, at the latest
	keys        [2]arc.KeyID
	pending     [2][arc.PendingSize]byte
	held        bool
	credentials [2][arc.CredentialSize]byte
	tokens      []*tokens // in the order of the manifest; none before the first visit
	counted     bool
	cohort      arc.Cohort
	read        *client.Held
}

func (k *kept) code(c *wire.Coder) {
	c.Const(magic, "not a wallet of version 1")
	c.Fixed(k.deployment[:], "deployment")
	c.Bool(&k.known, "known")
	c.Fixed(k.enrolment.Secret[:], "secret")
	c.Vec16(&k.enrolment.Proof, 0, "proof")
	c.Nested32("epochs", func() {
		wire.Items(c, &k.epochs, func(_ int, p **epoch) {
			if *p == nil {
				*p = new(epoch)
			}
			e := *p
			c.Uint32(&e.number, "epoch")
			c.Seconds(&e.at, "at")
			c.Seconds(&e.begin, "begin")
			c.Seconds(&e.until, "until")
			c.Bool(&e.held, "held")
			for i := range e.keys {
				c.Fixed(e.keys[i][:], "key")
				c.Fixed(e.pending[i][:], "pending")
				c.Fixed(e.credentials[i][:], "credential")
			}
			c.Bool(&e.counted, "counted")
			for _, n := range []*uint64{&e.cohort.Leader, &e.cohort.Helper, &e.cohort.Attested} {
				c.Uint64(n, "devices")
			}
			c.Nested24("tokens", func() {
				wire.Items(c, &e.tokens, func(_ int, t **tokens) {
					if *t == nil {
						*t = new(tokens)
					}
					(*t).code(c)
				})
			})
		})
	})
}

// Open reads what the device has kept. It fails with [ErrState].
func Open(o Options) (*Wallet, error) {
	base, err := url.Parse(o.Attester)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("credentials: attester %q: not an absolute URL", o.Attester)
	}
	if o.HTTP == nil {
		o.HTTP = &http.Client{Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	w := &Wallet{o: o, base: base, asking: make(chan struct{}, 1)}
	var b []byte
	if err = fs.ErrNotExist; o.FS != nil {
		b, err = disk.ReadFile(o.FS, file, maxFile)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.kept.deployment = o.Deployment
		return w, nil
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	if err := wire.Read(b, ErrState, w.kept.code); err != nil {
		return nil, err
	}
	for _, e := range w.kept.epochs {
		for _, t := range e.tokens {
			t.secrets = bytes.Clone(t.secrets)
		}
	}
	if w.kept.deployment != o.Deployment {
		return nil, fmt.Errorf("%w: it is for deployment %x", ErrState, w.kept.deployment[:4])
	}
	w.kept.enrolment.Proof = bytes.Clone(w.kept.enrolment.Proof)
	for _, e := range w.kept.epochs {
		if err := e.open(); err != nil {
			return nil, fmt.Errorf("%w: epoch %d: %w", ErrState, e.number, err)
		}
	}
	return w, nil
}

// open reads the credentials of an epoch.
func (e *epoch) open() (err error) {
	if !e.held {
		return nil
	}
	x := &client.Held{LeaderKey: e.keys[0], HelperKey: e.keys[1]}
	if x.Leader, err = arc.ReadCredential(e.credentials[0][:]); err != nil {
		return err
	}
	if x.Helper, err = arc.ReadCredential(e.credentials[1][:]); err != nil {
		return err
	}
	e.read = x
	return nil
}

// save writes all of it down, and uses nothing that it could not write.
func (w *Wallet) save(change func(*kept)) error {
	if w.broken != nil {
		return w.broken
	}
	next := w.kept
	next.epochs = slices.Clone(w.kept.epochs)
	change(&next)
	b, err := wire.Append(nil, ErrState, next.code)
	if err == nil && w.o.FS != nil {
		err = disk.WriteFile(w.o.FS, file, b)
	}
	clear(b)
	if err != nil {
		w.broken = fmt.Errorf("%w: %w", ErrState, err)
		return w.broken
	}
	w.kept = next
	return nil
}

// turn waits until nobody else asks the attester.
func (w *Wallet) turn(ctx context.Context) error {
	select {
	case w.asking <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("credentials: %w", ctx.Err())
	}
}

// An attester is one that is asked over HTTP.
type attester struct {
	http client.Doer
	base *url.URL
}

// Plan says when to visit for the epoch of a manifest that the device takes: at an instant
// that is drawn when it first hears of it, and kept. It fails with [ErrIssuers], [ErrFull] and
// [ErrTooLate].
func (w *Wallet) Plan(m *ohttp.Manifest) (time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, err := w.plan(m)
	if err != nil {
		return time.Time{}, err
	}
	return e.at, nil
}

func (w *Wallet) find(number uint32) *epoch {
	for _, e := range w.kept.epochs {
		if e.number == number {
			return e
		}
	}
	return nil
}

func (w *Wallet) plan(m *ohttp.Manifest) (*epoch, error) {
	if m.Issuers == nil || m.Deployment != w.o.Deployment {
		return nil, ErrIssuers
	}
	if e := w.find(m.Epoch); e != nil {
		return e, nil
	}
	now := w.o.Now()
	if !now.Before(m.NotBefore) {
		return nil, fmt.Errorf("%w: %d", ErrTooLate, m.Epoch)
	}
	left := m.NotBefore.Sub(now)
	span := left - min(margin, left/4)
	offset, err := rand.Int(rand.Reader, big.NewInt(max(1, int64(span))))
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	e := &epoch{number: m.Epoch, at: now.Add(time.Duration(offset.Int64())).UTC().Truncate(time.Second), begin: m.NotBefore,
		until: time.Unix(int64(m.Epoch+2)*int64(m.Length/time.Second), 0).UTC()}
	roles := visit.Issuers(w.o.Hops)
	for i, of := range []struct {
		role signed.Role
		key  []byte
	}{{roles[0], m.Issuers.Leader[:]}, {roles[1], m.Issuers.Helper[:]}} {
		k, err := arc.ReadPublicKey(of.key)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrIssuers, err)
		}
		e.keys[i] = k.ID()
		p := arc.NewPending(arc.NewRequestContext(arc.Role(of.role), m.Deployment, uint64(m.Epoch), e.keys[i]))
		copy(e.pending[i][:], p.Append(nil))
	}
	// An epoch that is planned or held is never given up for another: its visit could not be
	// made again, and its credentials not shown.
	live := slices.DeleteFunc(slices.Clone(w.kept.epochs), func(e *epoch) bool { return !now.Before(e.until) })
	if len(live) >= maxEpochs {
		return nil, fmt.Errorf("%w: epoch %d", ErrFull, m.Epoch)
	}
	return e, w.save(func(k *kept) { k.epochs = append(live, e) })
}

// Told takes down what the owners of both issuers and of the attester say of the epoch of
// a manifest, as the log has it. The first word on it holds. A manifest that names other
// issuers than the visit was for says nothing of what the device holds ([ErrIssuers]):
// who gave one device alone credentials of a key, and the next revision's to all others,
// could count these and know that one.
func (w *Wallet) Told(m *ohttp.Manifest, c arc.Cohort) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.find(m.Epoch)
	if e == nil || e.counted {
		return nil
	}
	if m.Issuers == nil || m.Deployment != w.o.Deployment {
		return ErrIssuers
	}
	for i, of := range [][]byte{m.Issuers.Leader[:], m.Issuers.Helper[:]} {
		k, err := arc.ReadPublicKey(of)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrIssuers, err)
		}
		if k.ID() != e.keys[i] {
			return fmt.Errorf("%w: the manifest of epoch %d names another key than when the visit was planned", ErrIssuers, m.Epoch)
		}
	}
	next := *e
	next.counted, next.cohort = true, c
	return w.save(func(k *kept) { k.epochs[slices.Index(k.epochs, e)] = &next })
}

// Forget destroys what is kept of epochs whose last round is over, and says of how many, and
// tokens of rounds that are.
func (w *Wallet) Forget() (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.o.Now()
	over := func(e *epoch) bool { return !now.Before(e.until) }
	for _, e := range w.kept.epochs {
		if over(e) {
			n++
		}
	}
	if n == 0 && !slices.ContainsFunc(w.kept.epochs, func(e *epoch) bool { return e.spent(now) }) {
		return 0, nil
	}
	return n, w.save(func(k *kept) {
		k.epochs = slices.DeleteFunc(k.epochs, over)
		for i, e := range k.epochs {
			if e.held && e.spent(now) {
				k.epochs[i] = e.forgotten(now)
			}
		}
	})
}

// For are the credentials for a recipe, whose issuers must have given them to so many devices
// (recipe.Tokens.MinCohort).
func (w *Wallet) For(cohort uint64) client.Credentials { return shown{w, cohort} }

type shown struct {
	w   *Wallet
	min uint64
}

// Held implements [client.Credentials].
func (s shown) Held(number uint64) (*client.Held, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	no := func(why Reason, format string, args ...any) (*client.Held, error) {
		return nil, &NoneError{number, why, fmt.Sprintf(format, args...)}
	}
	e := s.w.find(uint32(number))
	switch now := s.w.o.Now(); {
	case !s.w.kept.known:
		return no(ReasonNotEnrolled, "the device has not enrolled")
	case e == nil || uint64(e.number) != number || e.read == nil:
		return no(ReasonNone, "the device has none")
	case now.Before(e.begin):
		return no(ReasonNotBegun, "it begins at %s", e.begin.Format(time.RFC3339))
	case !now.Before(e.until):
		return no(ReasonOver, "it is over")
	case !e.counted:
		return no(ReasonUncounted, "nobody has said for how many devices there are some")
	case !e.cohort.Open(s.min):
		return no(ReasonFew, "%d and %d devices have some, of %d that asked: want %d that have both", e.cohort.Leader, e.cohort.Helper, e.cohort.Attested, s.min)
	}
	return e.read, nil
}

// Reason is why a device shows no credentials; a closed set.
type Reason string

const (
	ReasonNotEnrolled Reason = "not-enrolled" // the attester does not know the device
	ReasonNone        Reason = "none"         // it did not visit in time, or got no answer
	ReasonNotBegun    Reason = "not-begun"
	ReasonOver        Reason = "over"
	ReasonUncounted   Reason = "uncounted" // nobody has said how many devices have some
	ReasonFew         Reason = "few"       // too few have, for the recipe
	ReasonNoToken     Reason = "no-token"  // of the round, for the gateway
)

// A NoneError is why the device shows no credentials of an epoch: it sits that out. It is a
// [client.ErrNoCredentials].
type NoneError struct {
	Epoch  uint64
	Reason Reason
	detail string
}

func (e *NoneError) Error() string {
	if e.Reason == ReasonNoToken {
		return fmt.Sprintf("%v: %s", client.ErrNoCredentials, e.detail)
	}
	return fmt.Sprintf("%v: epoch %d: %s", client.ErrNoCredentials, e.Epoch, e.detail)
}

// Unwrap is [client.ErrNoCredentials].
func (e *NoneError) Unwrap() error { return client.ErrNoCredentials }

// Enrolled says whether the attester has answered that it knows the device.
func (w *Wallet) Enrolled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kept.known
}

// An Epoch is what the device has of one.
type Epoch struct {
	Number uint32
	// Visit is the instant that was drawn for the visit, before Begin; Until is when the last
	// round is over in which its credentials may be shown.
	Visit, Begin, Until time.Time
	// Held: the device has its credentials.
	Held bool
	// Counted: the owners of issuers and attester have said for how many devices there are
	// some, and Cohort is that.
	Counted bool
	Cohort  arc.Cohort
}

// Epochs are those that the wallet has something of, in the order in which it heard of them.
func (w *Wallet) Epochs() []Epoch {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []Epoch
	for _, e := range w.kept.epochs {
		list = append(list, Epoch{e.number, e.at, e.begin, e.until, e.held, e.counted, e.cohort})
	}
	return list
}
