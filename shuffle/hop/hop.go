package hop

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/shuffle/internal/derand"
	"github.com/starling-agg/starling/shuffle/internal/party"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

// A Shuffle is one that a hop serves, and whom it hands batches to.
type Shuffle = party.Shuffle

// A Next is the party that a hop hands batches to: hop 2, or the analyzer.
type Next = party.Next

// A Publication is what is put into a transparency log.
type Publication = party.Publication

// Tokens say which tokens hold that contributions show hop 1, and messages hop 2, in the mode
// tokens. Package hop knows no credential: its caller does.
type Tokens = party.Tokens

// Limits bound what others can make a hop hold or do.
type Limits = party.Limits

// Status is what the operator may know.
type Status = party.Status

// A ShuffleStatus is of one recipe.
type ShuffleStatus = party.ShuffleStatus

// A RoundStatus is of one round.
type RoundStatus = party.RoundStatus

// Totals are those of all rounds that have ended, over all starts.
type Totals = party.Totals

// DefaultHold is for how long a round waits for the other party, where nothing else is said.
const DefaultHold = party.DefaultHold

// A StateError: what is on the disk is not whole, and no loss of power leaves it so.
type StateError = party.StateError

// A RefusedError is the next party's refusal: it stands in the status as a round's trouble.
type RefusedError = party.RefusedError

// Errors by which a hop refuses what the one before sends, beside those of packages onion and
// signed.
var (
	ErrConflict = party.ErrConflict
	ErrNotYet   = party.ErrNotYet
	ErrRound    = party.ErrRound
	ErrOffset   = party.ErrOffset
)

// Options make a hop.
type Options struct {
	// Number is 1 or 2. Required.
	Number int
	// Signer signs key lists, manifests and receipts, with an online key of the owner
	// whose root stands in each shuffle. Required.
	Signer *signed.Signer
	// Shuffles are those that it serves. Required, at least one.
	Shuffles []Shuffle
	// FS holds rounds, and nothing else. Required, and used by one process at a time.
	FS disk.FS
	// Tokens are bearer tokens of who may bring contributions (hop 1; none lets anybody), or
	// batches (hop 2; required).
	Tokens []string
	// Ahead is for how many rounds after the present one there are keys; default 2.
	Ahead int
	// Hold is for how long after its flush a round waits for the other party; default 24 h,
	// at most 30 days.
	Hold time.Duration
	// Limits bound what can be sent.
	Limits Limits
	// Publish has the key of each round logged, or finds it logged: nil once the log has it
	// for ever. It gives up by itself after a while, and is asked again; it must be safe for
	// concurrent use. Required for recipes that name a log.
	Publish func(context.Context, *Publication) error
	// Transport carries batches to the next party; default one of its own.
	Transport http.RoundTripper
	// Clock is the time by which rounds end; default the system's.
	Clock disk.Clock
	// Failpoints is nil in production.
	Failpoints *disk.Failpoints
	// Log is told what goes wrong and which rounds have ended, never of a contribution;
	// default none.
	Log *slog.Logger
}

// A Hop is hop 1 or hop 2. It is an [http.Handler] and safe for concurrent use; [Hop.Run]
// must run.
type Hop struct{ p *party.Party }

var errNumber = errors.New("hop: Number is 1 or 2")

func (o Options) role() onion.Role {
	if o.Number == 2 {
		return onion.Second
	}
	return onion.First
}

func (o Options) party(random derand.Rand) party.Options {
	return party.Options{Role: o.role(), Signer: o.Signer, Shuffles: o.Shuffles, FS: o.FS, Tokens: o.Tokens, Ahead: o.Ahead, Hold: o.Hold,
		Limits: o.Limits, Publish: o.Publish, Transport: o.Transport, Clock: o.Clock, Failpoints: o.Failpoints, Log: o.Log, Random: random}
}

// Validate says what is missing or cannot be.
func (o Options) Validate() error {
	if o.Number != 1 && o.Number != 2 {
		return errNumber
	}
	inner := o.party(derand.Rand{})
	return inner.Validate()
}

// New opens a hop's directory. It fails with *[StateError] where that is damaged.
func New(o Options) (*Hop, error) { return NewDerandomized(o, derand.Rand{}) }

// NewDerandomized is [New] with the randomness of orders that a test chooses.
func NewDerandomized(o Options, random derand.Rand) (*Hop, error) {
	if o.Number != 1 && o.Number != 2 {
		return nil, errNumber
	}
	p, err := party.New(o.party(random))
	if err != nil {
		return nil, err
	}
	return &Hop{p}, nil
}

// ServeHTTP implements [http.Handler]; resources are below the hop's base URL.
func (h *Hop) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.p.ServeHTTP(w, r) }

// Run makes keys, flushes rounds and hands them on until ctx ends. It fails where the disk
// does. It runs once.
func (h *Hop) Run(ctx context.Context) error { return h.p.Run(ctx) }

// Close closes files, after Run has ended.
func (h *Hop) Close() error { return h.p.Close() }

// Status says how the hop stands.
func (h *Hop) Status() *Status { return h.p.Status() }

// Err is why nothing is taken any more: the disk failed. nil otherwise.
func (h *Hop) Err() error { return h.p.Err() }

// Failpoints lists the places where a test may kill a hop, beside disk.LogFailpoints.
func Failpoints(number int) []string { return party.Failpoints(Options{Number: number}.role()) }

// Outcomes are the words for how rounds end, and Words those for what arrives.
func Outcomes() []string { return party.Outcomes() }

// Words are the words by which what arrives is counted.
func Words() []string { return party.Words() }
