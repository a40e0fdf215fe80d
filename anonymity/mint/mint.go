package mint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/starling-agg/starling/anonymity/admission"
	"github.com/starling-agg/starling/anonymity/internal/orders"
	"github.com/starling-agg/starling/anonymity/visit"
	"github.com/starling-agg/starling/anonymity/voprf"
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
	o         Options
	desk      *orders.Desk
	registers *orders.Registers // the digest of each order
}

// New makes a mint. Registers are opened when they are first asked for.
func New(o Options) (*Mint, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	return &Mint{o: o, desk: orders.NewDesk(o.Requests, int64(2*o.Requests*visit.MaxTokenOrder), o.Log),
		registers: orders.NewRegisters(o.Register, registerSuffix, o.Failpoints)}, nil
}

// Close closes the registers. No request may be under way.
func (x *Mint) Close() error { return x.registers.Close() }

// Outcomes lists what becomes of orders.
func Outcomes() []string { return orders.Outcomes() }

// Outcome counts the orders that ended so since the start.
func (x *Mint) Outcome(word string) uint64 { return x.desk.Outcome(word) }

// ErrKeys: the gateway does not have the keys that the manifest of an epoch names.
var ErrKeys = errors.New("mint: the manifest names keys that are not here")

// ServeHTTP answers POST of an order, and GET of an epoch's public keys, ?epoch=N.
func (x *Mint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		answer, err := x.askedKeys(r)
		x.desk.Write(w, visit.KeysMedia, answer, err)
		return
	}
	x.desk.Serve(w, r, orders.Kind{Media: visit.TokenOrderMedia, Answer: visit.TokensMedia, Most: visit.MaxTokenOrder,
		Do: func(ctx context.Context, b []byte) (answer []byte, repeated bool, err error) {
			o, err := visit.ReadTokenOrder(b)
			if err != nil {
				return nil, false, &orders.Refusal{Outcome: orders.Malformed, Err: err}
			}
			return x.Issue(ctx, &o)
		}})
}

func (x *Mint) askedKeys(r *http.Request) ([]byte, error) {
	epoch, err := strconv.ParseUint(r.URL.Query().Get("epoch"), 10, 32)
	if err != nil {
		return nil, &orders.Refusal{Outcome: orders.Malformed, Err: err}
	}
	k, err := x.Keys(uint32(epoch))
	if err != nil {
		return nil, err
	}
	return k.Append(nil)
}

// terms are those of an epoch.
func (x *Mint) terms(epoch uint32) (Terms, error) {
	terms, ok := x.o.Terms(epoch)
	if !ok {
		return terms, &orders.Refusal{Outcome: orders.Unknown, Err: fmt.Errorf("no manifest of epoch %d is known", epoch)}
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

// Keys are the public keys of an epoch, the same for everybody. It fails with
// *[orders.Refusal] and [ErrKeys].
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

// Issue answers an order, and says whether it was answered before. It fails with
// *[orders.Refusal], with [ErrKeys], or where the register cannot be used.
func (x *Mint) Issue(ctx context.Context, o *visit.TokenOrder) (answer []byte, repeated bool, err error) {
	refuse := func(word string, err error) ([]byte, bool, error) {
		return nil, false, &orders.Refusal{Outcome: word, Err: err}
	}
	now := x.o.Now()
	terms, err := x.terms(o.Epoch)
	if err != nil {
		return nil, false, err
	}
	if err := o.Verify(terms.Attester, x.o.Deployment, now); err != nil {
		return refuse(orders.Forbidden, err)
	}
	if !now.Before(terms.Begin) {
		return refuse(orders.Begun, fmt.Errorf("epoch %d began at %s", o.Epoch, terms.Begin.Format(time.RFC3339)))
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
		return refuse(orders.Malformed, fmt.Errorf("requests of %d bytes for %d tokens", len(o.Asks), len(keys)))
	}
	asks := make([]*voprf.Request, len(keys))
	for i := range asks {
		if asks[i], err = voprf.ReadRequest(o.Asks[i*visit.AskSize : (i+1)*visit.AskSize]); err != nil {
			return refuse(orders.Malformed, fmt.Errorf("token %d: %w", i, err))
		}
	}
	if err := x.o.Failpoints.Hit(failBeforeEnter); err != nil {
		return nil, false, err
	}
	repeated, entered, err := x.registers.Enter(ctx, o.Epoch, o.Digest(), terms.Cap)
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("mint: %w", err)
	case !entered:
		return refuse(orders.Full, fmt.Errorf("%d orders of epoch %d are answered", terms.Cap, o.Epoch))
	}
	answer = make([]byte, 0, len(keys)*visit.TokenSize)
	for i, k := range keys {
		if err := ctx.Err(); err != nil { // nobody waits, and it may come again
			return nil, false, err
		}
		e, err := k.Issue(asks[i])
		if err != nil {
			return refuse(orders.Malformed, fmt.Errorf("token %d: %w", i, err))
		}
		answer = e.Append(answer)
	}
	if err := x.o.Failpoints.Hit(failBeforeAnswer); err != nil {
		return nil, false, err
	}
	return answer, repeated, nil
}

// Devices is for how many devices there are tokens of an epoch.
func (x *Mint) Devices(epoch uint32) (uint64, error) {
	n, _, err := x.registers.Count(epoch)
	return n, err
}

// Forget drops the registers of epochs up to one that are over.
func (x *Mint) Forget(last uint32) error { return x.registers.Forget(last) }
