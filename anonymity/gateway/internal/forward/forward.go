// Package forward passes rounds on that a gateway has acknowledged, until their targets
// have taken them. It is handed rounds of a [journal.Journal] and gives back one thing,
// [Forwarder.Credits]: that groups are done with. It holds no request, no key and no
// answer of a device, and cannot import the packages that do, so that whatever a target
// does reaches no device (a test of the module's root holds that).
//
// # Batches
//
// Groups of one route wait until, at a multiple of [Options.Mix], those held have
// [Options.MinRound] requests together, covers counted. Then they are one batch: their
// uploads are shuffled, cut into pieces that are one request each, and the cut is written
// down before any piece leaves. An id is in one batch only, and a piece is the same bytes
// every time, also after a crash. A batch without an upload sends one request without a
// body in its place: else a round of covers would be done with while its target is away,
// and one with a report would not.
//
// # Until taken
//
// A piece is done with when its target answers with success and a body that the
// [Protocol] can read as an answer to it. One that the target refuses for good is halved,
// down to single uploads, and what is refused alone is dropped and counted: that tells a
// target nothing, for the answers to devices are out, and it saw each upload in the whole
// piece anyway. Everything else is repeated after 1 s, doubling to 60 s, half of it
// random; Retry-After is not read. An upload that is not taken [Options.Hold] after its
// batch's last round closed is given up and counted.
//
// # Unknown routes
//
// A target that says that it knows nothing of a route ([Protocol.Unknown]) may be wrong:
// started without a task that it had. So that is repeated as everything else. But
// anybody can send to routes that nobody ever knew, so those by which a target has never
// taken anything hold [Options.Unknown] requests together at most; what is above that is
// dropped.
//
// # Time
//
// Hold is counted in time that a running forwarder has seen pass, from tick to tick and
// longestStep at most at each, over all of its lives: neither a clock that is set nor a
// machine that sleeps or is off gives up what was acknowledged. After a long stop all is
// offered, for its target may well be there; whether it then comes too late is for the
// target to say.
package forward

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/gateway/internal/journal"
	"github.com/starling-agg/starling/internal/disk"
)

// A Protocol is what a forwarder must know of uploads.
type Protocol interface {
	// Join makes one upload of many: its body in pieces, which may be those bodies. None
	// make an empty body.
	Join(bodies [][]byte) [][]byte
	// Refusals reads the body of an answer of success to what Join made, and counts the
	// uploads that it refuses by reason, a word of Reasons. It fails where that is no
	// answer to these uploads.
	Refusals(bodies [][]byte, answer []byte) (map[string]uint64, error)
	// Final says whether an error answer is a target's last word about what it was sent,
	// not about its own state.
	Final(status int, answer []byte) bool
	// Unknown says whether an error answer says that the target knows nothing of the
	// route: no such task.
	Unknown(status int, answer []byte) bool
	// Reasons are the words that Refusals counts by, a closed set.
	Reasons() []string
}

// A Target is whom uploads go to.
type Target struct {
	Via   string // base URL under which it is reached
	Token string // bearer token, or empty
}

// Options make a [Forwarder]. All are required; the caller has filled in defaults.
type Options struct {
	Journal  *journal.Journal
	Protocol Protocol
	Targets  map[string]Target // by the URL in routes
	// Transport carries requests to targets. It must add nothing to them.
	Transport http.RoundTripper
	// Mix is the time at whose multiples batches are cut, MinRound the least number of
	// requests in one, and Hold how long a round is kept.
	Mix      time.Duration
	MinRound int
	Hold     time.Duration
	// Unknown is how many requests of routes that no target ever knew are kept.
	Unknown int
	// Timeout bounds one request, Answer the body of its answer in bytes, Senders
	// requests at one time, Joined and JoinedBytes the uploads in one.
	Timeout     time.Duration
	Answer      int64
	Senders     int
	Joined      int
	JoinedBytes int
	Clock       disk.Clock
	Failpoints  *disk.Failpoints
	Log         *slog.Logger
	// Count is told what became of uploads, by a word of Outcomes or of the protocol's
	// reasons.
	Count func(outcome string, n uint64)
	// Fail is told that nothing can go on.
	Fail func(error)
}

// Outcomes of uploads: a closed set.
const (
	Taken   = "taken"   // the target has it
	Refused = "refused" // the target refused it in its answer, for a reason that is counted too
	Dropped = "dropped" // the target refused a request of it alone, or never knew its route
	Expired = "expired" // not taken within Hold
	Few     = "few"     // too few others came within Hold
	Damaged = "damaged" // a round of it could not be read after a start; counted in rounds
)

// Outcomes lists them.
var Outcomes = []string{Taken, Refused, Dropped, Expired, Few, Damaged}

// Failpoints of the way to a target.
const (
	failBeforeCut   = "forward.before-cut"
	failAfterCut    = "forward.after-cut"
	failAfterAnswer = "forward.after-answer-before-settle"
	failAfterSettle = "forward.after-settle"
)

// Failpoints lists them.
func Failpoints() []string {
	return []string{failBeforeCut, failAfterCut, failAfterAnswer, failAfterSettle}
}

// Bounds of the count of time: a step from one tick to the next counts as longestStep at
// most, and a 48th of Hold, within bounds, may pass before it is written down again.
const (
	longestStep  = time.Minute
	shortestNote = time.Second
	longestNote  = 10 * time.Minute
)

// A Credit is a group that is done with.
type Credit struct {
	Round *journal.Round
	Group int
}

// A Forwarder passes rounds on. Its methods may be called concurrently.
type Forwarder struct {
	o       Options
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	senders chan struct{}

	mu       sync.Mutex // guards the rest
	queues   map[journal.Route]*queue
	next     uint64 // number of the next batch
	credits  []Credit
	last     time.Time     // of the last Tick, or of the last round before the start
	ticked   bool          // in this life
	passed   time.Duration // time seen, in all lives
	noted    time.Duration // of passed, what the journal has or is being given
	noting   bool
	known    map[journal.Route]bool // by which a target has taken something, in any life
	resume   []func()               // what the first Tick begins
	requests uint64
}

// New takes up what a journal had under way. Nothing is sent before the first
// [Forwarder.Tick].
func New(o Options, found *journal.Recovered) *Forwarder {
	f := &Forwarder{o: o, senders: make(chan struct{}, o.Senders), queues: make(map[journal.Route]*queue),
		passed: found.Passed, noted: found.Passed, known: make(map[journal.Route]bool)}
	for _, route := range found.Known {
		f.known[route] = true
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	rounds := make(map[uint64]*journal.Round)
	for _, r := range found.Rounds {
		rounds[r.Number] = r
		if r.Closed.After(f.last) {
			f.last = r.Closed // a start is no multiple of Mix
		}
	}
	cut := make(map[journal.Member]bool)
	for _, b := range found.Batches {
		f.next = max(f.next, b.Number+1)
		resumed := &batch{Batch: b}
		for _, m := range b.Members {
			cut[m] = true
			if r := rounds[m.Round]; r != nil {
				resumed.add(m, r, o.Hold)
			}
		}
		for _, p := range b.Pieces {
			resumed.items += len(p)
		}
		q := f.queue(b.Route)
		q.batches = append(q.batches, resumed)
		q.active++
		if b.GivenUp {
			f.over(q, resumed)
			continue
		}
		f.resume = append(f.resume, func() { f.start(q, resumed, nil) })
	}
	for _, r := range found.Rounds {
		f.hold(r, func(group int) bool { return !cut[journal.Member{Round: r.Number, Group: group}] })
	}
	return f
}

// Stop ends all requests and returns when nothing runs any more. Unfinished work stays in
// the journal.
func (f *Forwarder) Stop() {
	f.cancel()
	f.running.Wait()
	f.mu.Lock()
	passed, more := f.passed, f.passed > f.noted && len(f.queues) > 0
	f.noted = f.passed
	f.mu.Unlock()
	if more {
		if err := f.o.Journal.Passed(context.Background(), passed); err != nil {
			f.o.Log.Warn("the time since the last note will be counted again", slog.Any("error", err))
		}
	}
}

// Passed is how much time it has seen pass, in all of its lives.
func (f *Forwarder) Passed() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.passed
}

// see counts the time since the last tick.
func (f *Forwarder) see(now time.Time) {
	step := now.Sub(f.last)
	if f.ticked {
		if step > longestStep || step < -longestStep {
			f.o.Log.Warn("the clock jumped, or this machine slept: what is held is kept for longer", slog.Duration("by", step))
		}
		f.passed += min(max(step, 0), longestStep)
	}
	f.last, f.ticked = now, true
	if every := min(max(f.o.Hold/48, shortestNote), longestNote); f.noting || len(f.queues) == 0 || f.passed-f.noted < every {
		return
	}
	passed := f.passed
	f.noting, f.noted = true, passed
	f.running.Go(func() {
		err := f.o.Journal.Passed(context.WithoutCancel(f.ctx), passed)
		f.mu.Lock()
		f.noting = false
		f.mu.Unlock()
		if err != nil {
			f.o.Fail(err)
		}
	})
}
