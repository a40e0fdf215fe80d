package issuer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/visit"
	"github.com/starling-agg/starling/internal/body"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/signed"
)

// Terms are what the manifest of an epoch says of its issuers.
type Terms struct {
	// Key is the issuer's public key, as package arc encodes it.
	Key [arc.PublicKeySize]byte
	// Attester is the root key of who vouches for devices.
	Attester signed.PublicKey
	// Cap is how many requests are answered at most.
	Cap uint64
	// Begin is when devices may first show what they were given: from then on nothing is
	// issued.
	Begin time.Time
}

// Options make an issuer.
type Options struct {
	// Role is that of the aggregator beside it. Required.
	Role signed.Role
	// Deployment is whose issuer it is. Required.
	Deployment [32]byte
	// Epoch is the length of an epoch. Required.
	Epoch time.Duration
	// Terms are those of an epoch, false where no manifest of it is known. Required, and
	// safe for concurrent use.
	Terms func(epoch uint32) (Terms, bool)
	// Keys is the directory of the keys, and Register that of what was answered; both for one
	// process at a time. Required.
	Keys, Register disk.FS
	// Keep is how long after the last round of an epoch can have ended its key stays, for
	// reports that come late; default 48 h.
	Keep time.Duration
	// Requests are worked on at one time; default 64.
	Requests int
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Log is told of what goes wrong; default none.
	Log *slog.Logger
	// Failpoints is nil in production.
	Failpoints *disk.Failpoints
}

const (
	defaultKeep     = 48 * time.Hour
	defaultRequests = 64
	bodyTime        = 15 * time.Second
	registerSuffix  = ".answered"
)

// Failpoints of an issuer: before and after a request is in its register.
const (
	failBeforeEnter  = "issuer.before-enter"
	failBeforeAnswer = "issuer.after-enter-before-answer"
)

// Failpoints lists the failpoints of an issuer, without those of its logs.
func Failpoints() []string { return []string{failBeforeEnter, failBeforeAnswer} }

func (o *Options) validate() error {
	switch {
	case o.Role != signed.Leader && o.Role != signed.Helper:
		return fmt.Errorf("issuer: the %v has none", o.Role)
	case o.Epoch < time.Second || o.Epoch%time.Second != 0:
		return errors.New("issuer: Epoch: whole seconds, 1 or more")
	case o.Terms == nil || o.Keys == nil || o.Register == nil:
		return errors.New("issuer: no terms, or no directory")
	case o.Keep < 0 || o.Requests < 0:
		return errors.New("issuer: negative")
	}
	if o.Keep == 0 {
		o.Keep = defaultKeep
	}
	if o.Requests == 0 {
		o.Requests = defaultRequests
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// An Issuer answers requests for credentials. It is an [http.Handler] and safe for
// concurrent use.
type Issuer struct {
	o      Options
	budget *body.Budget
	places chan struct{}

	mu        sync.Mutex
	registers map[uint32]*register
	verifiers map[uint32]*verifier
	counts    map[string]uint64 // by outcome
	closed    bool
}

type verifier struct {
	verifier *arc.Verifier
	key      arc.KeyID
}

// register is what was answered in an epoch: SHA-256 of each request.
type register struct {
	log *disk.Log

	mu      sync.Mutex
	seen    map[[32]byte]struct{}
	pending uint64 // that are being entered
}

// New makes an issuer. Registers and keys are opened when they are first asked for.
func New(o Options) (*Issuer, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	return &Issuer{o: o, budget: body.NewBudget(int64(4 * o.Requests * visit.OrderSize)), places: make(chan struct{}, o.Requests),
		registers: make(map[uint32]*register), verifiers: make(map[uint32]*verifier), counts: make(map[string]uint64)}, nil
}

// Deployment is whose issuer it is.
func (x *Issuer) Deployment() [32]byte { return x.o.Deployment }

// Close closes the registers. No request may be under way.
func (x *Issuer) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	var errs []error
	for _, r := range x.registers {
		errs = append(errs, r.log.Close())
	}
	return errors.Join(errs...)
}

// Outcomes of a request, for counting; a closed set.
const (
	issued    = "issued"
	again     = "again" // the same one as before
	malformed = "malformed"
	forbidden = "not-ordered" // by the attester, or not of this issuer
	unknown   = "unknown-epoch"
	begun     = "begun" // the epoch has
	full      = "full"  // as many as the manifest says
	busy      = "busy"
	failed    = "failed"
)

// Outcomes lists what becomes of requests.
func Outcomes() []string {
	return []string{issued, again, malformed, forbidden, unknown, begun, full, busy, failed}
}

// Outcome counts the requests that ended so since the start.
func (x *Issuer) Outcome(word string) uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.counts[word]
}

// A Refusal is why a request was not answered.
type Refusal struct {
	Outcome string // of [Outcomes]
	Err     error
}

func (e *Refusal) Error() string { return fmt.Sprintf("issuer: %s: %v", e.Outcome, e.Err) }
func (e *Refusal) Unwrap() error { return e.Err }

// statuses are those of the answers.
var statuses = map[string]int{
	malformed: http.StatusBadRequest, forbidden: http.StatusForbidden, unknown: http.StatusNotFound, begun: http.StatusGone,
	full: http.StatusConflict, busy: http.StatusServiceUnavailable, failed: http.StatusServiceUnavailable,
}

// ServeHTTP answers POST of an order.
func (x *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, word, err := x.serve(w, r)
	x.mu.Lock()
	x.counts[word]++
	x.mu.Unlock()
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		if word == failed {
			x.o.Log.Error("a request for a credential was not answered", "error", err)
		}
		http.Error(w, word, statuses[word])
		return
	}
	w.Header().Set("Content-Type", visit.ResponseMedia)
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	w.Write(answer)
}

func (x *Issuer) serve(w http.ResponseWriter, r *http.Request) (answer []byte, word string, err error) {
	if r.Method != http.MethodPost || r.Header.Get("Content-Type") != visit.OrderMedia {
		return nil, malformed, visit.ErrMalformed
	}
	select {
	case x.places <- struct{}{}:
		defer func() { <-x.places }()
	default:
		return nil, busy, errors.New("as many requests are worked on as may be")
	}
	b, release, err := x.budget.Read(w, r, int64(visit.OrderSize), bodyTime)
	defer release()
	switch {
	case errors.Is(err, body.ErrFull):
		return nil, busy, err
	case err != nil:
		return nil, malformed, err
	}
	o, err := visit.ReadOrder(b)
	if err != nil {
		return nil, malformed, err
	}
	response, repeated, err := x.Issue(r.Context(), &o)
	refusal := new(Refusal)
	switch {
	case errors.As(err, &refusal):
		return nil, refusal.Outcome, err
	case err != nil:
		return nil, failed, err
	case repeated:
		return response, again, nil
	}
	return response, issued, nil
}

// Issue answers an order, and says whether its request was answered before. It fails with
// *[Refusal], or where the register or the key cannot be used.
func (x *Issuer) Issue(ctx context.Context, o *visit.Order) (response []byte, repeated bool, err error) {
	refuse := func(word string, err error) ([]byte, bool, error) { return nil, false, &Refusal{word, err} }
	now := x.o.Now()
	terms, ok := x.o.Terms(o.Epoch)
	if !ok {
		return refuse(unknown, fmt.Errorf("no manifest of epoch %d is known", o.Epoch))
	}
	if err := o.Verify(terms.Attester, x.o.Role, x.o.Deployment, now); err != nil {
		return refuse(forbidden, err)
	}
	if !now.Before(terms.Begin) {
		return refuse(begun, fmt.Errorf("epoch %d began at %s", o.Epoch, terms.Begin.Format(time.RFC3339)))
	}
	q, err := arc.ReadCredentialRequest(o.Request[:])
	if err != nil {
		return refuse(malformed, err)
	}
	k, err := readKey(x.o.Keys, x.o.Role, x.o.Deployment, o.Epoch)
	if err != nil {
		return nil, false, err
	}
	if [arc.PublicKeySize]byte(k.PublicKey().Append(nil)) != terms.Key {
		return nil, false, fmt.Errorf("%w: the manifest of epoch %d names another", ErrKey, o.Epoch)
	}
	made, err := k.Respond(q)
	if err != nil {
		return refuse(malformed, err)
	}
	r, err := x.register(o.Epoch)
	if err != nil {
		return nil, false, err
	}
	if err := x.o.Failpoints.Hit(failBeforeEnter); err != nil {
		return nil, false, err
	}
	repeated, entered, err := r.enter(ctx, sha256.Sum256(o.Request[:]), terms.Cap)
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("issuer: register of epoch %d: %w", o.Epoch, err)
	case !entered:
		return refuse(full, fmt.Errorf("%d requests of epoch %d are answered", terms.Cap, o.Epoch))
	}
	if err := x.o.Failpoints.Hit(failBeforeAnswer); err != nil {
		return nil, false, err
	}
	return made.Append(nil), repeated, nil
}

// enter enters a request, durably, unless it is there or as many are as may be.
func (r *register) enter(ctx context.Context, request [32]byte, most uint64) (repeated, entered bool, err error) {
	r.mu.Lock()
	_, repeated = r.seen[request]
	if repeated || uint64(len(r.seen))+r.pending >= most {
		r.mu.Unlock()
		return repeated, repeated, nil
	}
	r.pending++
	r.mu.Unlock()
	err = r.log.Append(ctx, request[:])
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending--
	// Of one whose outcome is unknown it is counted that it is there; the log takes no other.
	r.seen[request] = struct{}{}
	return false, err == nil, err
}

// register opens that of an epoch.
func (x *Issuer) register(epoch uint32) (*register, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, errors.New("issuer: closed")
	}
	if r := x.registers[epoch]; r != nil {
		return r, nil
	}
	r := &register{seen: make(map[[32]byte]struct{})}
	name := strconv.FormatUint(uint64(epoch), 10) + registerSuffix
	log, _, err := disk.OpenLog(x.o.Register, name, disk.LogOptions{MaxRecord: 32, Failpoints: x.o.Failpoints}, func(b []byte) error {
		if len(b) != 32 {
			return fmt.Errorf("a record of %d bytes", len(b))
		}
		r.seen[[32]byte(b)] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("issuer: register of epoch %d: %w", epoch, err)
	}
	r.log = log
	x.registers[epoch] = r
	return r, nil
}

// ErrNotBegun: the epoch has not begun, and until it has its number is nobody's business.
var ErrNotBegun = errors.New("issuer: the epoch has not begun")

// Count is how many requests of an epoch were answered, once it has begun and nothing is
// issued any more; it is kept when the epoch's key is destroyed. It fails with
// [ErrNotBegun], and where no manifest of the epoch is known.
func (x *Issuer) Count(epoch uint32) (uint64, error) {
	n, kept, err := readCount(x.o.Register, epoch)
	if kept || err != nil {
		return n, err
	}
	if last, any, err := lastGone(x.o.Keys); err != nil || any && epoch <= last {
		return 0, errors.Join(fmt.Errorf("issuer: how many there were of epoch %d is not known", epoch), err)
	}
	terms, ok := x.o.Terms(epoch)
	if !ok || x.o.Now().Before(terms.Begin) {
		return 0, fmt.Errorf("%w: %d", ErrNotBegun, epoch)
	}
	r, err := x.register(epoch)
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending > 0 { // one that began to be entered before the epoch did
		return 0, fmt.Errorf("%w: a request is being answered", ErrNotBegun)
	}
	return uint64(len(r.seen)), nil
}

// Verifier is that of what devices show in an epoch of the deployment, with the name of its
// key. It fails with [ErrNoKey] where there never was such a key, or it was destroyed: then
// nothing that is shown can hold. A key that is missing between others, or cannot be read, is
// another error, of now.
func (x *Issuer) Verifier(deployment [32]byte, epoch uint64) (*arc.Verifier, arc.KeyID, error) {
	e := uint32(epoch)
	if deployment != x.o.Deployment || uint64(e) != epoch {
		return nil, arc.KeyID{}, fmt.Errorf("%w: %d of deployment %x", ErrNoKey, epoch, deployment[:4])
	}
	x.mu.Lock()
	known := x.verifiers[e]
	x.mu.Unlock()
	if known != nil {
		return known.verifier, known.key, nil
	}
	k, err := readKey(x.o.Keys, x.o.Role, x.o.Deployment, e)
	if errors.Is(err, ErrNoKey) {
		return nil, arc.KeyID{}, x.missing(e)
	}
	if err != nil {
		return nil, arc.KeyID{}, err
	}
	id := k.PublicKey().ID()
	v := &verifier{k.Verifier(arc.NewRequestContext(arc.Role(x.o.Role), x.o.Deployment, epoch, id)), id}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.verifiers[e] = v
	return v.verifier, v.key, nil
}

// missing says of an epoch without a key whether it never had one, or has it no more.
func (x *Issuer) missing(epoch uint32) error {
	last, any, err := lastGone(x.o.Keys)
	if err != nil {
		return err
	}
	list, err := epochs(x.o.Keys, keySuffix)
	if err != nil {
		return err
	}
	if any && epoch <= last || len(list) > 0 && epoch < slices.Min(list) {
		return fmt.Errorf("%w: %d", ErrNoKey, epoch)
	}
	return fmt.Errorf("issuer: the key of epoch %d is not in its directory", epoch)
}

// Retire destroys the keys of epochs whose last round is long over, and what else is kept of
// them, and says which was the last of these, if there was any.
func (x *Issuer) Retire() (last uint32, any bool, err error) {
	// A round may begin with the last second of its epoch and be as long as one.
	over := x.o.Now().Add(-x.o.Keep).Unix()/int64(x.o.Epoch/time.Second) - 2
	list, err := epochs(x.o.Keys, keySuffix)
	if err != nil || over < 0 {
		return 0, false, err
	}
	for _, epoch := range list {
		if int64(epoch) <= over && (!any || epoch > last) {
			last, any = epoch, true
		}
	}
	if !any {
		return 0, false, nil
	}
	for _, epoch := range list {
		if epoch > last {
			continue
		}
		if err := x.keepCount(epoch); err != nil {
			return 0, false, err
		}
	}
	if err := destroy(x.o.Keys, last); err != nil {
		return 0, false, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.verifiers, func(epoch uint32, _ *verifier) bool { return epoch <= last })
	old, err := epochs(x.o.Register, registerSuffix)
	if err != nil {
		return last, true, err
	}
	for _, epoch := range old {
		if epoch > last {
			continue
		}
		if r := x.registers[epoch]; r != nil {
			delete(x.registers, epoch)
			if err := r.log.Close(); err != nil {
				return last, true, fmt.Errorf("issuer: register of epoch %d: %w", epoch, err)
			}
		}
		if err := disk.Remove(x.o.Register, strconv.FormatUint(uint64(epoch), 10)+registerSuffix); err != nil {
			return last, true, fmt.Errorf("issuer: register of epoch %d: %w", epoch, err)
		}
	}
	return last, true, nil
}

// keepCount writes down how many there were of an epoch, before its register goes.
func (x *Issuer) keepCount(epoch uint32) error {
	if _, kept, err := readCount(x.o.Register, epoch); kept || err != nil {
		return err
	}
	r, err := x.register(epoch)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return writeCount(x.o.Register, epoch, uint64(len(r.seen)))
}
