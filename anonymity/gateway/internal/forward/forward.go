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
// random; Retry-After is not read. What is not taken [Options.Hold] after its batch's
// last round closed is given up and counted.
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
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/gateway/internal/journal"
	"github.com/starling-agg/starling/anonymity/internal/shuffle"
	"github.com/starling-agg/starling/disk"
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
	// Count is told what became of uploads, by a word of Outcomes or of the protocol's reasons.
	Count func(outcome string, n uint64)
	// Fail is told that nothing can go on.
	Fail func(error)
}

// What becomes of uploads: a closed set.
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
	FailBeforeCut   = "forward.before-cut"
	FailAfterCut    = "forward.after-cut"
	FailAfterAnswer = "forward.after-answer-before-settle"
	FailAfterSettle = "forward.after-settle"
)

// Failpoints lists them.
func Failpoints() []string {
	return []string{FailBeforeCut, FailAfterCut, FailAfterAnswer, FailAfterSettle}
}

// maxBatches is how many batches of one route are under way at one time: one that its
// target chokes on does not hold up the others, and a target that is away for long finds
// few large batches.
const maxBatches = 8

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

// queue is the groups of one route, in the order of their rounds.
type queue struct {
	held    []held
	batches []*batch // cut and not credited, in order
	active  int      // of these, how many are not done
	unknown bool     // the target has said last that it knows nothing of the route
}

// requests is how many a queue holds, covers counted.
func (q *queue) requests() (n int) {
	for _, h := range q.held {
		n += int(h.round.Groups[h.group].Requests)
	}
	for _, b := range q.batches {
		for _, c := range b.credits {
			if b.gone {
				break
			}
			n += int(c.Round.Groups[c.Group].Requests)
		}
	}
	return n
}

// held is a group that waits.
type held struct {
	round *journal.Round
	group int
	items []int
}

// batch is one under way, or done and waiting for those before it.
type batch struct {
	*journal.Batch
	rounds  map[uint64]*journal.Round // of its members
	credits []Credit                  // what is done with when it is
	ends    time.Duration             // of the forwarder's passed, when it is given up
	done    bool                      // under the forwarder's mu, as are the next two
	// all that is left of it is dropped: no target ever knew its route
	gone  bool
	items int // that are not settled
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

func (b *batch) add(m journal.Member, r *journal.Round, hold time.Duration) {
	if b.rounds == nil {
		b.rounds = make(map[uint64]*journal.Round)
	}
	b.rounds[r.Number] = r
	b.credits = append(b.credits, Credit{r, m.Group})
	b.ends = max(b.ends, r.Passed+hold)
}

// Stop ends all requests and returns when nothing runs any more. What is not done is in
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

func (f *Forwarder) queue(r journal.Route) *queue {
	q := f.queues[r]
	if q == nil {
		q = &queue{}
		f.queues[r] = q
	}
	return q
}

// Hold takes a round that was logged and answered.
func (f *Forwarder) Hold(r *journal.Round) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hold(r, func(int) bool { return true })
}

func (f *Forwarder) hold(r *journal.Round, wanted func(group int) bool) {
	items := make([][]int, len(r.Groups))
	for i := range r.Items {
		g := r.Items[i].Group
		items[g] = append(items[g], i)
	}
	for g := range r.Groups {
		if wanted(g) {
			q := f.queue(r.Groups[g].Route)
			q.held = append(q.held, held{r, g, items[g]})
		}
	}
}

// Tick gives up what is too old and cuts batches where a multiple of Mix has come since
// the last call.
func (f *Forwarder) Tick(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	mixes := !now.Truncate(f.o.Mix).Equal(f.last.Truncate(f.o.Mix))
	f.see(now)
	for _, begin := range f.resume {
		begin()
	}
	f.resume = nil
	for route, q := range f.queues {
		f.expire(route, q)
		requests := uint64(0)
		for _, h := range q.held {
			requests += uint64(h.round.Groups[h.group].Requests)
		}
		if mixes && len(q.held) > 0 && q.active < maxBatches && requests >= uint64(f.o.MinRound) {
			f.cut(route, q)
		}
		f.credit(q)
		if len(q.held)+len(q.batches) == 0 {
			delete(f.queues, route)
		}
	}
}

// expire gives up groups that were never cut: as a batch of which nothing is sent.
func (f *Forwarder) expire(route journal.Route, q *queue) {
	requests := uint64(0)
	for _, h := range q.held {
		requests += uint64(h.round.Groups[h.group].Requests)
	}
	outcome := Expired
	if requests < uint64(f.o.MinRound) {
		outcome = Few
	}
	b := &batch{Batch: &journal.Batch{Number: f.next, Route: route, GivenUp: true}}
	for len(q.held) > 0 && f.passed >= q.held[0].round.Passed+f.o.Hold {
		h := q.held[0]
		q.held = q.held[1:]
		m := journal.Member{Round: h.round.Number, Group: h.group}
		b.Members = append(b.Members, m)
		b.add(m, h.round, f.o.Hold)
		b.items += len(h.items)
	}
	if len(b.Members) == 0 {
		return
	}
	f.next++
	q.batches = append(q.batches, b)
	q.active++
	f.running.Go(func() {
		ends := map[string]uint64{outcome: uint64(b.items)}
		if err := f.o.Journal.GiveUp(context.WithoutCancel(f.ctx), b.Batch, journal.CountsAt(f.o.Clock.Now(), ends)); err != nil {
			f.o.Fail(err)
			return
		}
		f.count(ends)
		f.mu.Lock()
		defer f.mu.Unlock()
		b.items = 0
		f.over(q, b)
	})
}

// over has a batch be done. f.mu must be held.
func (f *Forwarder) over(q *queue, b *batch) {
	b.done = true
	q.active--
}

// count tells of what is written down.
func (f *Forwarder) count(ends map[string]uint64) {
	for outcome, n := range ends {
		if n > 0 {
			f.o.Count(outcome, n)
		}
	}
}

// credit releases the batches at the head of a queue that are done: in the order of
// rounds, so that a target cannot choose which of two is released first.
func (f *Forwarder) credit(q *queue) {
	for len(q.batches) > 0 && q.batches[0].done {
		b := q.batches[0]
		q.batches = q.batches[1:]
		f.credits = append(f.credits, b.credits...)
	}
}

// Credits returns the groups that were done with since the last call.
func (f *Forwarder) Credits() []Credit {
	f.mu.Lock()
	defer f.mu.Unlock()
	credits := f.credits
	f.credits = nil
	return credits
}

// cut makes one batch of all that a queue holds.
func (f *Forwarder) cut(route journal.Route, q *queue) {
	b := &batch{Batch: &journal.Batch{Number: f.next, Route: route}}
	f.next++
	var refs []journal.Ref
	var sizes []int64
	for _, h := range q.held {
		m := journal.Member{Round: h.round.Number, Group: h.group}
		b.Members = append(b.Members, m)
		b.add(m, h.round, f.o.Hold)
		for _, i := range h.items {
			refs, sizes = append(refs, journal.Ref{Round: h.round.Number, Item: i}), append(sizes, h.round.Items[i].Size())
		}
	}
	q.held = nil
	shuffle.Uniform(len(refs), func(i, j int) {
		refs[i], refs[j] = refs[j], refs[i]
		sizes[i], sizes[j] = sizes[j], sizes[i]
	})
	begin, size := 0, int64(0)
	for i := range refs {
		if i > begin && (i-begin >= f.o.Joined || size+sizes[i] > int64(f.o.JoinedBytes)) {
			b.Pieces = append(b.Pieces, refs[begin:i:i])
			begin, size = i, 0
		}
		size += sizes[i]
	}
	if begin < len(refs) {
		b.Pieces = append(b.Pieces, refs[begin:])
	}
	b.items = len(refs)
	q.batches = append(q.batches, b)
	q.active++
	f.start(q, b, func() error {
		if err := f.o.Failpoints.Hit(FailBeforeCut); err != nil {
			return err
		}
		// Nothing of the batch leaves before it is written down; one without an upload
		// has nothing to repeat.
		if len(refs) > 0 {
			if err := f.o.Journal.Cut(context.WithoutCancel(f.ctx), b.Batch); err != nil {
				return err
			}
		}
		return f.o.Failpoints.Hit(FailAfterCut)
	})
}

// start sends a batch, after what is to be done first.
func (f *Forwarder) start(q *queue, b *batch, first func() error) {
	f.running.Go(func() {
		if first != nil {
			if err := first(); err != nil {
				f.o.Fail(err)
				return
			}
		}
		open, all := f.o.Journal.Pieces(b.Batch)
		var pieces sync.WaitGroup
		var mu sync.Mutex
		var errs []error
		run := func(work func() error) {
			pieces.Go(func() {
				err := work()
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
		}
		if all == 0 {
			run(func() error { return f.probe(q, b) })
		}
		for _, i := range open {
			run(func() error { return f.piece(q, b, i) })
		}
		pieces.Wait()
		if err := errors.Join(errs...); err != nil {
			if f.ctx.Err() == nil {
				f.o.Fail(err)
			}
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.over(q, b)
	})
}

// piece sends a piece until it is done with.
func (f *Forwarder) piece(q *queue, b *batch, n int) error {
	durably := context.WithoutCancel(f.ctx)
	refs := f.o.Journal.Piece(b.Batch, n)
	settle := func(outcome string, refused map[string]uint64) error {
		if err := f.o.Failpoints.Hit(FailAfterAnswer); err != nil {
			return err
		}
		ends := map[string]uint64{outcome: uint64(len(refs))}
		for reason, n := range refused {
			ends[reason] += n
			ends[Refused] += n
			ends[outcome] -= n
		}
		if err := f.o.Journal.Settle(durably, b.Batch, n, journal.CountsAt(f.o.Clock.Now(), ends)); err != nil {
			return err
		}
		f.mu.Lock()
		b.items -= len(refs)
		f.mu.Unlock()
		f.count(ends)
		return f.o.Failpoints.Hit(FailAfterSettle)
	}
	verdict, refused, err := f.deliver(q, b, refs)
	switch {
	case err != nil:
		return err
	case verdict == giveUp:
		return settle(Expired, nil)
	case verdict == done:
		return settle(Taken, refused)
	case verdict == stranger, len(refs) == 1:
		return settle(Dropped, nil)
	}
	// Something in there is not to the target's liking. Nobody else is to suffer for it.
	second, err := f.o.Journal.Split(durably, b.Batch, n)
	if err != nil {
		return err
	}
	if err := f.piece(q, b, n); err != nil {
		return err
	}
	return f.piece(q, b, second)
}

// probe asks a target with an empty upload until it is there.
func (f *Forwarder) probe(q *queue, b *batch) error {
	_, _, err := f.deliver(q, b, nil)
	return err
}

// verdict is how it ended.
type verdict int

const (
	done     verdict = iota + 1 // the target has taken it
	final                       // the target will never take it
	giveUp                      // its time is over
	unknown                     // the target knows nothing of its route
	stranger                    // and never did, and too much else is of that kind
)

// Waits between two attempts.
const (
	firstWait   = time.Second
	longestWait = time.Minute
)

// deliver sends uploads until the target has said its last word, or their time is over.
// It fails where the journal does, and when the forwarder stops.
func (f *Forwarder) deliver(q *queue, b *batch, refs []journal.Ref) (verdict, map[string]uint64, error) {
	failed := false
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		if f.Passed() >= b.ends {
			return giveUp, nil, nil
		}
		select {
		case f.senders <- struct{}{}:
		case <-f.ctx.Done():
			return 0, nil, f.ctx.Err()
		}
		bodies, err := f.bodies(b, refs)
		if err != nil {
			<-f.senders
			return 0, nil, err
		}
		v, refused, err := f.ask(b.Route, bodies)
		<-f.senders
		if err == nil {
			keep, fault := f.heard(q, b, v)
			switch {
			case fault != nil:
				return 0, nil, fault
			case !keep:
				return stranger, nil, nil
			case v != unknown:
				return v, refused, nil
			}
			err = errUnknown
		}
		if f.ctx.Err() != nil {
			return 0, nil, f.ctx.Err()
		}
		if !failed { // once for each piece, not for each attempt
			f.o.Log.Warn("a target did not take uploads; they are sent again until it does", slog.Any("error", err))
			failed = true
		}
		pause := min(wait/2+shuffle.UpTo(wait/2), b.ends-f.Passed())
		timer := f.o.Clock.NewTimer(max(pause, 0))
		select {
		case <-timer.C():
		case <-f.ctx.Done():
			timer.Stop()
			return 0, nil, f.ctx.Err()
		}
	}
}

// errUnknown is an answer that may be wrong, or be right for good.
var errUnknown = errors.New("it says that it knows no such task")

// maxKnown bounds the routes that are remembered for a target has taken something by
// them; it knows far fewer tasks.
const maxKnown = 1 << 12

// heard notes what a target has said of a batch's route; keep is false where the batch is
// to be dropped: no target ever knew the route, and as much as may be is held of that
// kind. It fails where the journal does.
func (f *Forwarder) heard(q *queue, b *batch, v verdict) (keep bool, err error) {
	f.mu.Lock()
	q.unknown = v == unknown
	fresh := v == done && !f.known[b.Route] && len(f.known) < maxKnown
	if fresh {
		f.known[b.Route] = true
	}
	if v == unknown && !f.known[b.Route] && f.strangers() > f.o.Unknown {
		b.gone = true
	}
	keep = v != unknown || !b.gone
	f.mu.Unlock()
	if fresh {
		err = f.o.Journal.Know(context.WithoutCancel(f.ctx), b.Route)
	}
	return keep, err
}

// strangers is how many requests are held of routes that no target ever knew. f.mu must
// be held.
func (f *Forwarder) strangers() (n int) {
	for route, q := range f.queues {
		if q.unknown && !f.known[route] {
			n += q.requests()
		}
	}
	return n
}

// bodies reads what refs refer to, in their order.
func (f *Forwarder) bodies(b *batch, refs []journal.Ref) ([][]byte, error) {
	items, places := make(map[uint64][]int), make(map[uint64][]int)
	for i, ref := range refs {
		items[ref.Round], places[ref.Round] = append(items[ref.Round], ref.Item), append(places[ref.Round], i)
	}
	bodies := make([][]byte, len(refs))
	for number, list := range items {
		read, err := f.o.Journal.Bodies(b.rounds[number], list)
		if err != nil {
			return nil, err
		}
		for i, at := range places[number] {
			bodies[at] = read[i]
		}
	}
	return bodies, nil
}

// Status is how far a forwarder is.
type Status struct {
	Held     int       // uploads that are not done with
	Waiting  uint64    // requests that wait for others to come, covers counted
	Requests uint64    // answered by targets since the start
	Oldest   time.Time // when the oldest round that is not done with was closed; zero if there is none
	// Age is for how long that is held, in time that was seen to pass.
	Age time.Duration
	// Unknown are requests of routes of which their target says that it knows nothing.
	Unknown int
}

// Status says how far it is.
func (f *Forwarder) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{Requests: f.requests}
	see := func(r *journal.Round) {
		if age := f.passed - r.Passed; s.Oldest.IsZero() || age > s.Age {
			s.Oldest, s.Age = r.Closed, age
		}
	}
	for _, q := range f.queues {
		if q.unknown {
			s.Unknown += q.requests()
		}
		for _, h := range q.held {
			s.Held += len(h.items)
			s.Waiting += uint64(h.round.Groups[h.group].Requests)
			see(h.round)
		}
		for _, b := range q.batches {
			s.Held += b.items
			for _, r := range b.rounds {
				if !b.done {
					see(r)
				}
			}
		}
	}
	return s
}

// errStatus is an answer that is none.
type errStatus int

func (e errStatus) Error() string { return fmt.Sprintf("status %d", int(e)) }
