package mint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/admission"
	"github.com/starling-agg/starling/anonymity/visit"
	"github.com/starling-agg/starling/anonymity/voprf"
	"github.com/starling-agg/starling/internal/body"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/signed"
)

// A List names the keys of a recipe's rounds in an epoch, as the manifest does.
type List struct {
	Recipe, Digest [32]byte // of voprf.RoundKeys
}

// Terms are what the manifest of an epoch says of tokens.
type Terms struct {
	// Attester is the root key of who vouches for devices.
	Attester signed.PublicKey
	// Cap is for how many devices there are tokens at most.
	Cap uint64
	// Begin is when the first round of the epoch may begin: from then on nothing is given out.
	Begin time.Time
	// Lists are in the order of the manifest.
	Lists []List
}

// Options make a mint.
type Options struct {
	// Deployment is whose gateway's it is. Required.
	Deployment [32]byte
	// Terms are those of an epoch, false where no manifest of it is known. Required, and safe
	// for concurrent use.
	Terms func(epoch uint32) (Terms, bool)
	// Keys are the lists that the gateway admits by, in any order. Required, and safe for
	// concurrent use.
	Keys func() []*admission.Keys
	// Register is the directory of what was answered, for one process at a time. Required.
	Register disk.FS
	// Requests are worked on at one time; default 64, as many as an attester has under way. One
	// takes 0.25 ms of a processor for each token.
	Requests int
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Log is told of what goes wrong; default none.
	Log *slog.Logger
	// Failpoints is nil in production.
	Failpoints *disk.Failpoints
}

const (
	defaultRequests = 64
	bodyTime        = 15 * time.Second
	registerSuffix  = ".ordered"
)

// Failpoints of a mint: before and after an order is in its register.
const (
	failBeforeEnter  = "mint.before-enter"
	failBeforeAnswer = "mint.after-enter-before-answer"
)

// Failpoints lists the failpoints of a mint, without those of its logs.
func Failpoints() []string { return []string{failBeforeEnter, failBeforeAnswer} }

func (o *Options) validate() error {
	switch {
	case o.Terms == nil || o.Keys == nil || o.Register == nil:
		return errors.New("mint: no terms, keys or directory")
	case o.Requests < 0:
		return errors.New("mint: negative")
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

// A Mint answers orders for tokens. It is an [http.Handler] and safe for concurrent use.
type Mint struct {
	o      Options
	budget *body.Budget
	places chan struct{}

	mu        sync.Mutex
	registers map[uint32]*register
	counts    map[string]uint64 // by outcome
	closed    bool
}

// register is what was answered in an epoch: the digest of each order.
type register struct {
	log *disk.Log

	mu      sync.Mutex
	seen    map[[32]byte]struct{}
	pending uint64 // that are being entered
}

// New makes a mint. Registers are opened when they are first asked for.
func New(o Options) (*Mint, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	return &Mint{o: o, budget: body.NewBudget(int64(2 * o.Requests * visit.MaxTokenOrder)), places: make(chan struct{}, o.Requests),
		registers: make(map[uint32]*register), counts: make(map[string]uint64)}, nil
}

// Close closes the registers. No request may be under way.
func (x *Mint) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	var errs []error
	for _, r := range x.registers {
		errs = append(errs, r.log.Close())
	}
	return errors.Join(errs...)
}

// Outcomes of an order, for counting; a closed set.
const (
	issued    = "issued"
	again     = "again" // the same one as before
	malformed = "malformed"
	forbidden = "not-ordered" // by the attester, or not of this deployment
	unknown   = "unknown-epoch"
	begun     = "begun" // the epoch has
	full      = "full"  // as many as the manifest says
	busy      = "busy"
	failed    = "failed"
)

// Outcomes lists what becomes of orders.
func Outcomes() []string {
	return []string{issued, again, malformed, forbidden, unknown, begun, full, busy, failed}
}

// Outcome counts the orders that ended so since the start.
func (x *Mint) Outcome(word string) uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.counts[word]
}

// A Refusal is why an order was not answered.
type Refusal struct {
	Outcome string // of [Outcomes]
	Err     error
}

func (e *Refusal) Error() string { return fmt.Sprintf("mint: %s: %v", e.Outcome, e.Err) }
func (e *Refusal) Unwrap() error { return e.Err }

// ErrKeys: the gateway does not have the keys that the manifest of an epoch names.
var ErrKeys = errors.New("mint: the manifest names keys that are not here")

// statuses are those of the answers.
var statuses = map[string]int{
	malformed: http.StatusBadRequest, forbidden: http.StatusForbidden, unknown: http.StatusNotFound, begun: http.StatusGone,
	full: http.StatusConflict, busy: http.StatusServiceUnavailable, failed: http.StatusServiceUnavailable,
}

// ServeHTTP answers POST of an order, and GET of an epoch's public keys, ?epoch=N.
func (x *Mint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer []byte
	var word, media string
	var err error
	if r.Method == http.MethodGet {
		media = visit.KeysMedia
		answer, word, err = x.serveKeys(r)
	} else {
		media = visit.TokensMedia
		answer, word, err = x.serve(w, r)
		x.mu.Lock()
		x.counts[word]++
		x.mu.Unlock()
	}
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		if word == failed {
			x.o.Log.Error("a request for tokens was not answered", "error", err)
		}
		http.Error(w, word, statuses[word])
		return
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	w.Write(answer)
}

func (x *Mint) serveKeys(r *http.Request) (answer []byte, word string, err error) {
	epoch, err := strconv.ParseUint(r.URL.Query().Get("epoch"), 10, 32)
	if err != nil {
		return nil, malformed, err
	}
	k, err := x.Keys(uint32(epoch))
	if err == nil {
		answer, err = k.Append(nil)
	}
	return answer, wordOf("", err), err
}

// wordOf is the outcome of what went well, or of its error.
func wordOf(well string, err error) string {
	refusal := new(Refusal)
	switch {
	case errors.As(err, &refusal):
		return refusal.Outcome
	case err != nil:
		return failed
	}
	return well
}

func (x *Mint) serve(w http.ResponseWriter, r *http.Request) (answer []byte, word string, err error) {
	if r.Method != http.MethodPost || r.Header.Get("Content-Type") != visit.TokenOrderMedia {
		return nil, malformed, visit.ErrMalformed
	}
	select {
	case x.places <- struct{}{}:
		defer func() { <-x.places }()
	default:
		return nil, busy, errors.New("as many requests are worked on as may be")
	}
	b, release, err := x.budget.Read(w, r, int64(visit.MaxTokenOrder), bodyTime)
	defer release()
	switch {
	case errors.Is(err, body.ErrFull):
		return nil, busy, err
	case err != nil:
		return nil, malformed, err
	}
	o, err := visit.ReadTokenOrder(b)
	if err != nil {
		return nil, malformed, err
	}
	answer, repeated, err := x.Issue(r.Context(), &o)
	if word = issued; repeated {
		word = again
	}
	return answer, wordOf(word, err), err
}

// terms are those of an epoch.
func (x *Mint) terms(epoch uint32) (Terms, error) {
	terms, ok := x.o.Terms(epoch)
	if !ok {
		return terms, &Refusal{unknown, fmt.Errorf("no manifest of epoch %d is known", epoch)}
	}
	return terms, nil
}

// lists are the keys that the manifest names, in its order. It fails with [ErrKeys].
func (x *Mint) lists(terms *Terms) (all []*admission.Keys, err error) {
	have := x.o.Keys()
	tokens := 0
	for _, want := range terms.Lists {
		i := slices.IndexFunc(have, func(k *admission.Keys) bool {
			return k.Deployment == x.o.Deployment && k.Recipe == want.Recipe && k.Public().Digest() == want.Digest
		})
		if i < 0 {
			return nil, fmt.Errorf("%w: those of recipe %x", ErrKeys, want.Recipe[:4])
		}
		all = append(all, have[i])
		tokens += len(have[i].Keys)
	}
	if tokens > visit.MaxTokens {
		return nil, fmt.Errorf("%w: %d tokens for each device, at most %d are given out", ErrKeys, tokens, visit.MaxTokens)
	}
	return all, nil
}

// Keys are the public keys of an epoch, the same for everybody. It fails with *[Refusal] and
// [ErrKeys].
func (x *Mint) Keys(epoch uint32) (*visit.Keys, error) {
	terms, err := x.terms(epoch)
	if err != nil {
		return nil, err
	}
	lists, err := x.lists(&terms)
	if err != nil {
		return nil, err
	}
	k := &visit.Keys{Deployment: x.o.Deployment, Epoch: epoch}
	for _, l := range lists {
		k.Lists = append(k.Lists, l.Public().Append(nil))
	}
	return k, nil
}

// Issue answers an order, and says whether it was answered before. It fails with *[Refusal],
// with [ErrKeys], or where the register cannot be used.
func (x *Mint) Issue(ctx context.Context, o *visit.TokenOrder) (answer []byte, repeated bool, err error) {
	refuse := func(word string, err error) ([]byte, bool, error) { return nil, false, &Refusal{word, err} }
	now := x.o.Now()
	terms, err := x.terms(o.Epoch)
	if err != nil {
		return nil, false, err
	}
	if err := o.Verify(terms.Attester, x.o.Deployment, now); err != nil {
		return refuse(forbidden, err)
	}
	if !now.Before(terms.Begin) {
		return refuse(begun, fmt.Errorf("epoch %d began at %s", o.Epoch, terms.Begin.Format(time.RFC3339)))
	}
	lists, err := x.lists(&terms)
	if err != nil {
		return nil, false, err
	}
	var keys []*voprf.Key
	for _, l := range lists {
		keys = append(keys, l.Keys...)
	}
	if len(keys) == 0 || len(o.Asks) != len(keys)*visit.AskSize {
		return refuse(malformed, fmt.Errorf("requests of %d bytes for %d tokens", len(o.Asks), len(keys)))
	}
	asks := make([]*voprf.Request, len(keys))
	for i := range asks {
		if asks[i], err = voprf.ReadRequest(o.Asks[i*visit.AskSize : (i+1)*visit.AskSize]); err != nil {
			return refuse(malformed, fmt.Errorf("token %d: %w", i, err))
		}
	}
	r, err := x.register(o.Epoch)
	if err != nil {
		return nil, false, err
	}
	if err := x.o.Failpoints.Hit(failBeforeEnter); err != nil {
		return nil, false, err
	}
	repeated, entered, err := r.enter(ctx, o.Digest(), terms.Cap)
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("mint: register of epoch %d: %w", o.Epoch, err)
	case !entered:
		return refuse(full, fmt.Errorf("%d orders of epoch %d are answered", terms.Cap, o.Epoch))
	}
	answer = make([]byte, 0, len(keys)*visit.TokenSize)
	for i, k := range keys {
		if err := ctx.Err(); err != nil { // nobody waits, and it may come again
			return nil, false, err
		}
		e, err := k.Issue(asks[i])
		if err != nil {
			return refuse(malformed, fmt.Errorf("token %d: %w", i, err))
		}
		answer = e.Append(answer)
	}
	if err := x.o.Failpoints.Hit(failBeforeAnswer); err != nil {
		return nil, false, err
	}
	return answer, repeated, nil
}

// enter enters an order, durably, unless it is there or as many are as may be.
func (r *register) enter(ctx context.Context, order [32]byte, most uint64) (repeated, entered bool, err error) {
	r.mu.Lock()
	_, repeated = r.seen[order]
	if repeated || uint64(len(r.seen))+r.pending >= most {
		r.mu.Unlock()
		return repeated, repeated, nil
	}
	r.pending++
	r.mu.Unlock()
	err = r.log.Append(ctx, order[:])
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending--
	// Of one whose outcome is unknown it is counted that it is there; the log takes no other.
	r.seen[order] = struct{}{}
	return false, err == nil, err
}

// register opens that of an epoch.
func (x *Mint) register(epoch uint32) (*register, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, errors.New("mint: closed")
	}
	if r := x.registers[epoch]; r != nil {
		return r, nil
	}
	r := &register{seen: make(map[[32]byte]struct{})}
	log, _, err := disk.OpenLog(x.o.Register, registerName(epoch), disk.LogOptions{MaxRecord: 32, Failpoints: x.o.Failpoints}, func(b []byte) error {
		if len(b) != 32 {
			return fmt.Errorf("a record of %d bytes", len(b))
		}
		r.seen[[32]byte(b)] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("mint: register of epoch %d: %w", epoch, err)
	}
	r.log = log
	x.registers[epoch] = r
	return r, nil
}

func registerName(epoch uint32) string {
	return strconv.FormatUint(uint64(epoch), 10) + registerSuffix
}

// Devices is for how many devices there are tokens of an epoch.
func (x *Mint) Devices(epoch uint32) (uint64, error) {
	r, err := x.register(epoch)
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return uint64(len(r.seen)), nil
}

// Forget drops the registers of epochs up to one that are over.
func (x *Mint) Forget(last uint32) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for entry, err := range disk.Files(x.o.Register, ".") {
		if err != nil {
			return fmt.Errorf("mint: %w", err)
		}
		digits, ok := strings.CutSuffix(entry.Name, registerSuffix)
		n, err := strconv.ParseUint(digits, 10, 32)
		if !ok || err != nil || uint32(n) > last {
			continue
		}
		if r := x.registers[uint32(n)]; r != nil {
			delete(x.registers, uint32(n))
			if err := r.log.Close(); err != nil {
				return fmt.Errorf("mint: register of epoch %d: %w", n, err)
			}
		}
		if err := disk.Remove(x.o.Register, entry.Name); err != nil {
			return fmt.Errorf("mint: register of epoch %d: %w", n, err)
		}
	}
	return nil
}
