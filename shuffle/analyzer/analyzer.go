package analyzer

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/shuffle/internal/party"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

// A Batch is what is tallied: each message once, in no order that means anything, but
// that on the direct path those of one contribution stand together.
type Batch = party.Batch

// A Publication is what is put into a transparency log.
type Publication = party.Publication

// Limits bound what others can make an analyzer hold or do.
type Limits = party.Limits

// Status is what the operator may know.
type Status = party.Status

// A ShuffleStatus is of one recipe.
type ShuffleStatus = party.ShuffleStatus

// A RoundStatus is of one round.
type RoundStatus = party.RoundStatus

// Totals are those of all rounds that have ended, over all starts.
type Totals = party.Totals

// A StateError: what is on the disk is not whole, and no loss of power leaves it so.
type StateError = party.StateError

// Options make an analyzer.
type Options struct {
	// Direct says that devices' envelopes come, and no hops' batches.
	Direct bool
	// Signer signs key lists, receipts and results, with an online key of the owner whose root
	// stands in each shuffle. Required.
	Signer *signed.Signer
	// Shuffles are those that it serves, all of one path. Required, at least one.
	Shuffles []onion.Shuffle
	// FS holds rounds and results, and nothing else. Required, and used by one process at a
	// time.
	FS disk.FS
	// Tokens are bearer tokens of who may bring contributions (none lets anybody), or batches
	// (required).
	Tokens []string
	// Readers are bearer tokens of who may have results: collectors. Required.
	Readers []string
	// Tally makes a round's result, of at most [onion.MaxTally] bytes. It must say the same
	// each time, for after a crash it is asked again. Where it fails the round waits, and it
	// is asked again, ever more rarely, until Hold is over. Required.
	Tally func(ctx context.Context, b *Batch) ([]byte, error)
	// Publish has the key of each round logged, and what both hops signed of a batch before
	// it is tallied, or finds them logged: nil once the log has it for ever. It gives up by
	// itself after a while, and is asked again; it must be safe for concurrent use. Required
	// for recipes that name a log.
	Publish func(context.Context, *Publication) error
	// Ahead is for how many rounds after the present one there are keys; default 2.
	Ahead int
	// Hold is for how long after its flush a round waits; default 24 h, at most 30 days.
	Hold time.Duration
	// Limits bound what can be sent.
	Limits Limits
	// Clock is the time by which rounds end; default the system's.
	Clock disk.Clock
	// Failpoints is nil in production.
	Failpoints *disk.Failpoints
	// Log is told what goes wrong and which rounds have ended, never of a message; default
	// none.
	Log *slog.Logger
}

func (o Options) role() onion.Role {
	if o.Direct {
		return onion.Direct
	}
	return onion.Analyzer
}

func (o Options) party() party.Options {
	shuffles := make([]party.Shuffle, len(o.Shuffles))
	for i, s := range o.Shuffles {
		shuffles[i].Shuffle = s
	}
	return party.Options{Role: o.role(), Signer: o.Signer, Shuffles: shuffles, FS: o.FS, Tokens: o.Tokens, Readers: o.Readers, Tally: o.Tally, Publish: o.Publish,
		Ahead: o.Ahead, Hold: o.Hold, Limits: o.Limits, Clock: o.Clock, Failpoints: o.Failpoints, Log: o.Log}
}

// Validate says what is missing or cannot be.
func (o Options) Validate() error {
	inner := o.party()
	return inner.Validate()
}

// An Analyzer is an [http.Handler] and safe for concurrent use; [Analyzer.Run] must run.
type Analyzer struct{ p *party.Party }

// New opens an analyzer's directory. It fails with *[StateError] where that is damaged.
func New(o Options) (*Analyzer, error) {
	p, err := party.New(o.party())
	if err != nil {
		return nil, err
	}
	return &Analyzer{p}, nil
}

// ServeHTTP implements [http.Handler]; resources are below the analyzer's base URL.
func (a *Analyzer) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.p.ServeHTTP(w, r) }

// Run makes keys and tallies rounds until ctx ends. It fails where the disk does. It runs
// once.
func (a *Analyzer) Run(ctx context.Context) error { return a.p.Run(ctx) }

// Close closes files, after Run has ended.
func (a *Analyzer) Close() error { return a.p.Close() }

// Status says how the analyzer stands.
func (a *Analyzer) Status() *Status { return a.p.Status() }

// Err is why nothing is taken any more: the disk failed. nil otherwise.
func (a *Analyzer) Err() error { return a.p.Err() }

// Failpoints lists the places where a test may kill an analyzer, beside disk.LogFailpoints.
func Failpoints(direct bool) []string { return party.Failpoints(Options{Direct: direct}.role()) }
