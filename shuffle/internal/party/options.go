package party

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/endpoint"
	"github.com/starling-agg/starling/shuffle/internal/derand"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

// A Next is the party that a hop hands batches to.
type Next struct {
	// URL is its base URL. Required.
	URL string
	// Token is the bearer token that it knows the hop by. Required.
	Token string
}

// A Shuffle is one that a party serves.
type Shuffle struct {
	onion.Shuffle
	// Next is whom a hop hands batches to; an analyzer has none.
	Next Next
	// Tokens says which tokens hold that the hop is shown. Required where it is shown any,
	// and for no other.
	Tokens Tokens
}

// Tokens say which tokens hold. Safe for concurrent use.
type Tokens interface {
	// Verify says what it knows of each of some tokens of a round, in their order, with aad
	// and what stands behind each. It fails where nothing can be said now; it is asked again.
	Verify(ctx context.Context, round uint64, aad []byte, shown []onion.Opened) ([]onion.Verdict, error)
}

// A Batch is what an analyzer tallies: each message once, in no order that means anything, but
// that on the direct path those of one contribution stand together.
type Batch struct {
	Recipe [32]byte
	Round  uint64
	Counts onion.Counts
	// Messages may be gone through more than once. A message is valid until the next.
	Messages iter.Seq[[]byte]
}

// Limits bound what others can make a party hold or do. Zero fields take the defaults.
type Limits struct {
	// Body is the largest request, in bytes; default 8 MiB, at least an envelope.
	Body int64
	// InFlight bounds the bytes of all request bodies held at one time; default 64 MiB.
	InFlight int64
	// Requests are worked on at one time; default 256.
	Requests int
	// Contributions is how many a round takes; default 1,048,576, and never more than a
	// batch may have messages. Those above that are dropped and counted: to come
	// again would be in vain, and keep others waiting that come in the same request.
	Contributions int
	// MinFree is how many bytes are to be left free on the disk, beside what it takes to flush
	// the largest round: below it nobody brings anything. Default 256 MiB; negative: no bound.
	MinFree int64
	// BodyTimeout is how long a sender may take over a request's body; default 30 s.
	BodyTimeout time.Duration
	// AnswerTimeout is how long the next party may take over one request; default 1 min.
	AnswerTimeout time.Duration
	// Piece is how many bytes of records go to the next party in one request; default
	// 2 MiB, at most its Body.
	Piece int
	// Workers open records at one time; default GOMAXPROCS.
	Workers int
}

// WithDefaults fills in the zero fields.
func (l Limits) WithDefaults() Limits {
	def(&l.Body, 8<<20)
	def(&l.InFlight, 64<<20)
	def(&l.Requests, 256)
	def(&l.Contributions, 1<<20)
	def(&l.MinFree, 256<<20)
	def(&l.BodyTimeout, 30*time.Second)
	def(&l.AnswerTimeout, time.Minute)
	def(&l.Piece, 2<<20)
	def(&l.Workers, runtime.GOMAXPROCS(0))
	return l
}

func def[T comparable](v *T, d T) {
	if *v == *new(T) {
		*v = d
	}
}

// Validate refuses limits by which nothing could come.
func (l Limits) Validate() error {
	d := l.WithDefaults()
	switch {
	case d.Body < 0 || d.InFlight < 0 || d.Requests < 0 || d.Contributions < 0 || d.BodyTimeout < 0 || d.AnswerTimeout < 0 || d.Piece < 0 || d.Workers < 0:
		return errors.New("shuffle: limits: negative")
	case d.Body < onion.MaxEnvelope || d.Body > maxRecord || d.InFlight < d.Body:
		return fmt.Errorf("shuffle: limits: Body: from %d to %d bytes, and InFlight as many", onion.MaxEnvelope, maxRecord)
	case int64(d.Piece) > d.Body:
		return errors.New("shuffle: limits: Piece is above Body")
	}
	return nil
}

// Options make a [Party].
type Options struct {
	Role     onion.Role
	Signer   *signed.Signer
	Shuffles []Shuffle
	FS       disk.FS
	// Tokens are the bearer tokens of those who bring contributions or batches. None lets
	// anybody bring contributions.
	Tokens []string
	// Readers are the bearer tokens of those who may have results.
	Readers []string
	// Ahead is for how many rounds after the present one there are keys; default 2.
	Ahead int
	// Hold is how long after its flush a round waits for the other party; default 24 h.
	Hold time.Duration
	// Tally is the analyzer's. It says the same each time, for a crash may ask it again.
	Tally func(context.Context, *Batch) ([]byte, error)
	// Publish puts something into the transparency log, or finds it there: nil once the log
	// has it for ever. It gives up by itself after a while, and is asked again. Required
	// where a shuffle is logged.
	Publish    func(context.Context, *Publication) error
	Limits     Limits
	Transport  http.RoundTripper
	Clock      disk.Clock
	Failpoints *disk.Failpoints
	Log        *slog.Logger
	Random     derand.Rand
}

// Bounds of options.
const (
	MinToken    = 16 // bytes of a bearer token
	DefaultHold = 24 * time.Hour
	MaxHold     = 30 * 24 * time.Hour
	MaxAhead    = 128
)

// Validate fills in defaults and says what is missing or cannot be.
func (o *Options) Validate() error {
	def(&o.Ahead, 2)
	def(&o.Hold, DefaultHold)
	switch {
	case o.Signer == nil || o.FS == nil || len(o.Shuffles) == 0:
		return errors.New("shuffle: no signer, directory or shuffle")
	case o.Ahead < 0 || o.Ahead > MaxAhead:
		return fmt.Errorf("shuffle: Ahead: from 1 to %d rounds", MaxAhead)
	case o.Hold < 0 || o.Hold > MaxHold:
		return fmt.Errorf("shuffle: Hold: from 0 to %v", MaxHold)
	case !o.gathers() && len(o.Tokens) == 0:
		return errors.New("shuffle: no token of the party that brings batches")
	case o.tallies() && (o.Tally == nil || len(o.Readers) == 0):
		return errors.New("shuffle: an analyzer without a tally, or a token of who may have results")
	}
	for _, t := range append(append([]string(nil), o.Tokens...), o.Readers...) {
		if len(t) < MinToken {
			return fmt.Errorf("shuffle: a token of less than %d bytes", MinToken)
		}
	}
	seen := make(map[[32]byte]bool)
	for _, s := range o.Shuffles {
		if err := o.validate(&s); err != nil {
			return fmt.Errorf("shuffle: %x: %w", s.Recipe[:4], err)
		}
		if seen[s.Recipe] {
			return fmt.Errorf("shuffle: %x stands twice", s.Recipe[:4])
		}
		seen[s.Recipe] = true
	}
	if err := o.Limits.Validate(); err != nil {
		return err
	}
	o.Limits = o.Limits.WithDefaults()
	if o.Transport == nil {
		o.Transport = &http.Transport{TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second, ForceAttemptHTTP2: true, DisableCompression: true}
	}
	if o.Clock == nil {
		o.Clock = disk.SystemClock
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

func (o *Options) validate(s *Shuffle) error {
	if err := s.Validate(); err != nil {
		return err
	}
	shown := map[onion.Role]int{onion.First: s.EnvelopeToken, onion.Second: s.MessageToken, onion.Direct: s.EnvelopeToken}[o.Role]
	if (shown > 0) != (s.Tokens != nil) {
		return errors.New("tokens are shown here, and nobody checks them, or the other way round")
	}
	if s.Logged && o.Publish == nil {
		return errors.New("its keys stand in a log, and there is no way to one")
	}
	if s.Direct() != (o.Role == onion.Direct) {
		return errors.New("it goes another way")
	}
	root := map[onion.Role]signed.PublicKey{onion.First: s.First, onion.Second: s.Second, onion.Analyzer: s.Analyzer, onion.Direct: s.Analyzer}[o.Role]
	if o.Signer.Root() != root {
		return fmt.Errorf("it names another owner for %v", o.Role)
	}
	if o.tallies() {
		return nil
	}
	if err := endpoint.CheckPeer(s.Next.URL); err != nil {
		return fmt.Errorf("next: %w", err)
	}
	if len(s.Next.Token) < MinToken {
		return fmt.Errorf("next: a token of less than %d bytes", MinToken)
	}
	return nil
}

// gathers says whether devices' contributions come to the party, and not batches.
func (o *Options) gathers() bool { return o.Role == onion.First || o.Role == onion.Direct }

// tallies says whether the party makes results, and hands nothing on.
func (o *Options) tallies() bool { return o.Role == onion.Analyzer || o.Role == onion.Direct }

// before and after are the neighbours of a party on the path.
func before(r onion.Role) onion.Role { return r - 1 }
func after(r onion.Role) onion.Role  { return r + 1 }
