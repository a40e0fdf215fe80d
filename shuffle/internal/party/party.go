package party

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/internal/body"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/shuffle/onion"
)

// Failpoints, beside those of the disk's log.
const (
	failBeforeSpool   = "shuffle.before-spool"
	failAfterSpool    = "shuffle.after-spool-before-answer"
	failAfterKey      = "shuffle.after-key-before-state"
	failBeforeWork    = "shuffle.before-work"
	failBeforeOut     = "shuffle.after-opening-before-output"
	failAfterOut      = "shuffle.after-output-before-manifest"
	failAfterManifest = "shuffle.after-manifest-before-destroy"
	failAfterDestroy  = "shuffle.after-destroy-before-handover"
	failAfterBefore   = "shuffle.after-announcement-before-answer"
	failAfterPiece    = "shuffle.after-piece-before-answer"
	failAfterTaken    = "shuffle.after-batch-before-receipt"
	failAfterReceipt  = "shuffle.after-receipt-before-end"
	failAfterTally    = "shuffle.after-tally-before-result"
	failAfterResult   = "shuffle.after-result-before-end"
	failAfterEnd      = "shuffle.after-end-before-remove"
)

// Failpoints lists the places where a test may kill a party of a role.
func Failpoints(role onion.Role) []string {
	all := []string{failAfterKey, failBeforeWork, failAfterEnd}
	o := Options{Role: role}
	if o.gathers() {
		all = append(all, failBeforeSpool, failAfterSpool)
	} else {
		all = append(all, failAfterBefore, failAfterPiece, failAfterTaken)
	}
	if o.tallies() {
		return append(all, failAfterTally, failAfterResult)
	}
	return append(all, failBeforeOut, failAfterOut, failAfterManifest, failAfterDestroy, failAfterReceipt)
}

// digest is what a record is known by: it is sealed, so that another with the same is the
// same.
type digest [16]byte

func digestOf(record []byte) digest {
	sum := sha256.Sum256(record)
	return digest(sum[:16])
}

// A Party is a hop or an analyzer. It is an [http.Handler] and safe for concurrent use;
// [Party.Run] must run.
type Party struct {
	o       Options
	budget  *body.Budget
	places  chan struct{} // for requests
	wake    chan struct{}
	done    chan sent
	fresh   chan struct{} // there are keys to be logged
	sending sync.WaitGroup

	mu       sync.Mutex            // the last of all locks: nobody who has it takes another
	shuffles map[[32]byte]*shuffle // the map does not change
	failure  error                 // of the disk; guarded by mu
}

// A shuffle is one of a party's.
type shuffle struct {
	Shuffle
	fs disk.FS

	// The rest is guarded by Party.mu; rounds and state are changed by Run alone.
	rounds map[uint64]*round
	state  *state
	counts map[string]uint64 // of requests, since the start
}

// A round is one that has a key, or a batch to hand on.
type round struct {
	shuffle *shuffle
	number  uint64
	fs      disk.FS
	key     *sealed.KeyPair // nil once it is destroyed

	// gate is held by those who bring something, and alone by who works on the round.
	gate   sync.RWMutex
	closed bool      // nothing more is taken; guarded by gate
	log    *segments // nil once it is destroyed; guarded by gate
	mu     sync.Mutex
	seen   map[digest]struct{} // of contributions that are durable; guarded by mu
	input  atomic.Int64        // bytes that came in, until they are destroyed
	coming int                 // contributions on their way to the disk; guarded by mu
	inbox  inbox               // guarded by mu

	// Of Run alone, but for reading: under mu, and key too under Party.mu.
	out      *onion.Manifest // of the batch to hand on
	manifest []byte          // the same, signed
	sending  bool
	batched  bool          // what both hops signed of the batch stands in the log
	again    time.Time     // not to be tried before
	wait     time.Duration // that again came after
	trouble  string        // guarded by Party.mu
	logged   bool          // the key stands in the log; guarded by Party.mu
	unlogged string        // why it does not; guarded by Party.mu
}

// New opens a party's directory. It fails with *[StateError] where that is damaged.
func New(o Options) (*Party, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	p := &Party{o: o, budget: body.NewBudget(o.Limits.InFlight), places: make(chan struct{}, o.Limits.Requests), wake: make(chan struct{}, 1),
		done: make(chan sent), fresh: make(chan struct{}, 1), shuffles: make(map[[32]byte]*shuffle)}
	for _, s := range o.Shuffles {
		if err := p.openShuffle(s); err != nil {
			return nil, errors.Join(fmt.Errorf("shuffle: %w", err), p.Close())
		}
	}
	now := o.Clock.Now()
	for _, x := range p.shuffles { // so that there are keys before anybody asks
		if err := p.makeKeys(x, now); err != nil {
			return nil, errors.Join(fmt.Errorf("shuffle: %w", err), p.Close())
		}
	}
	return p, nil
}

// Close closes files. Nobody may use the party any more.
func (p *Party) Close() error {
	var all []error
	for _, x := range p.shuffles {
		for _, r := range x.rounds {
			if r.log != nil {
				all = append(all, r.log.close())
			}
		}
	}
	return errors.Join(all...)
}

// fail ends all taking: the disk is not to be trusted.
func (p *Party) fail(err error) {
	p.mu.Lock()
	if p.failure == nil {
		p.failure = err
		p.o.Log.Error("the disk failed: nothing is taken until a start", slog.Any("error", err))
	}
	p.mu.Unlock()
	p.rouse()
}

// Err is why nothing is taken any more, or nil.
func (p *Party) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failure
}

// rouse has Run look again.
func (p *Party) rouse() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run makes keys, works on rounds when their time has come, and hands batches on, until ctx
// ends. It fails where the disk does; the party must be opened anew then. It runs once.
func (p *Party) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer func() { cancel(); p.sending.Wait() }()
	if p.o.Publish != nil {
		p.sending.Go(func() { p.keepLogged(ctx) })
	}
	for {
		next, err := p.step(ctx)
		if err != nil {
			p.fail(err)
		}
		if err := p.Err(); err != nil {
			return err
		}
		timer := p.o.Clock.NewTimer(max(next.Sub(p.o.Clock.Now()), 0))
		select {
		case s := <-p.done:
			if err := p.sent(s); err != nil {
				p.fail(err)
			}
		case <-timer.C():
		case <-p.wake:
		case <-ctx.Done():
			timer.Stop()
			return p.Err()
		}
		timer.Stop()
	}
}

// sent is how handing over a round ended.
type sent struct {
	*round
	taken bool
	err   error // of the disk
}

// sent ends a round that the next party has.
func (p *Party) sent(s sent) error {
	if s.sending = false; s.err != nil || !s.taken {
		return s.err
	}
	m := s.out
	return p.end(s.round, Delivered, Totals{Contributions: m.Contributions, Messages: m.Records(), Refused: refused(m), Dropped: lost(m), Doubled: m.Doubled})
}

// refused and lost are what the Dropped of a manifest counts.
func refused(m *onion.Manifest) uint64 {
	if m.Role == onion.First {
		return m.Dropped
	}
	return 0
}

func lost(m *onion.Manifest) uint64 { return m.Dropped - refused(m) }

// idle is how long Run sleeps at most: a clock may have been set.
const idle = time.Minute

// firstRetry is after how long a round is tried again that could not be worked on, and
// longestRetry the most that this grows to: each time opens all of the round anew, and one
// device that lies may bring about that no time is the last.
const (
	firstRetry   = 30 * time.Second
	longestRetry = time.Hour
)

// step does all that is due, and says when something will be.
func (p *Party) step(ctx context.Context) (next time.Time, err error) {
	now := p.o.Clock.Now()
	next = now.Add(idle)
	soon := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	for _, x := range p.shuffles {
		if err := p.makeKeys(x, now); err != nil {
			return next, err
		}
		soon(x.Begin(x.Round(now) + 1))
		for _, n := range slices.Sorted(maps.Keys(x.rounds)) {
			if ctx.Err() != nil || p.Err() != nil {
				return next, nil
			}
			if err := p.advance(ctx, x.rounds[n], now, soon); err != nil {
				return next, err
			}
		}
	}
	return next, nil
}

// advance does what is due of a round.
func (p *Party) advance(ctx context.Context, r *round, now time.Time, soon func(time.Time)) error {
	x := r.shuffle
	flush := x.Flush(r.number)
	over := flush.Add(p.o.Hold)
	if now.Before(flush) {
		soon(flush)
		return nil
	}
	if now.Before(r.again) {
		soon(r.again)
		return nil
	}
	if r.out == nil && (p.o.gathers() || r.whole()) && now.Before(over) {
		ended, err := p.work(ctx, r)
		if later := new(laterError); errors.As(err, &later) {
			p.troubled(r, later)
			r.wait = min(max(2*r.wait, firstRetry), longestRetry)
			r.again = p.o.Clock.Now().Add(r.wait)
			soon(r.again)
			return nil
		}
		if err != nil || ended {
			return err
		}
		p.troubled(r, nil)
	}
	if r.sending {
		return nil // it has a last word, also where the time is over
	}
	if !now.Before(over) {
		switch {
		case r.out != nil:
			return p.end(r, Expired, Totals{LeftOver: r.out.Records()})
		case r.whole() || p.o.gathers():
			return p.end(r, Expired, Totals{LeftOver: r.have()})
		}
		return p.end(r, None, Totals{LeftOver: r.have()})
	}
	soon(over)
	if r.out != nil {
		r.sending = true
		p.sending.Go(func() { p.handOver(ctx, r, over) })
	}
	return nil
}

// laterError is a failure that is not the disk's: the round stays as it was.
type laterError struct{ err error }

func (e *laterError) Error() string { return e.err.Error() }
func (e *laterError) Unwrap() error { return e.err }

// troubled notes why a round does not go on.
func (p *Party) troubled(r *round, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
		if r.trouble == "" {
			p.o.Log.Warn("a round waits", slog.Uint64("round", r.number), slog.Any("error", err))
		}
	}
	r.trouble = text
}

// makeKeys makes keys for the rounds to come: each is on the disk before it is in a list.
func (p *Party) makeKeys(x *shuffle, now time.Time) error {
	current := x.Round(now)
	last := current + uint64(max(p.o.Ahead, x.Ahead))
	if x.Last > 0 {
		last = min(last, x.Last)
	}
	for n := current; n <= last; n++ {
		if x.state.had(n) {
			continue
		}
		if err := disk.MakeDirs(x.fs, roundDir(n)); err != nil {
			return err
		}
		r := &round{shuffle: x, number: n, fs: disk.Sub(x.fs, roundDir(n))}
		key, err := sealed.Generate(0, onion.Suite)
		if err != nil {
			return err
		}
		file, err := key.Marshal()
		if err != nil {
			return err
		}
		err = disk.WriteFile(r.fs, keyFile, file)
		clear(file)
		if err == nil {
			err = p.o.Failpoints.Hit(failAfterKey)
		}
		if err != nil {
			return err
		}
		if r.key = key; p.o.gathers() {
			r.seen = make(map[digest]struct{})
		}
		if r.log, err = openSegments(r.fs, disk.LogOptions{Failpoints: p.o.Failpoints}, func([]byte) error { return &StateError{"a new round has records"} }); err != nil {
			return err
		}
		next := x.state.clone()
		next.mark(n)
		if err := next.save(x.fs); err != nil {
			return errors.Join(err, r.log.close())
		}
		p.mu.Lock()
		x.state, x.rounds[n] = next, r
		p.mu.Unlock()
		select {
		case p.fresh <- struct{}{}:
		default:
		}
	}
	return nil
}

// end ends a round: what it comes to is durable, and then all that there was of it goes.
func (p *Party) end(r *round, outcome string, t Totals) error {
	x := r.shuffle
	r.gate.Lock()
	r.closed = true
	if r.log != nil {
		r.log.close() // what counts in it is durable
		r.log = nil
	}
	r.gate.Unlock()
	next := x.state.clone()
	next.ending = append(next.ending, r.number)
	next.totals.Rounds[outcome]++
	for _, f := range []struct {
		to *uint64
		n  uint64
	}{{&next.totals.Contributions, t.Contributions}, {&next.totals.Messages, t.Messages}, {&next.totals.Refused, t.Refused},
		{&next.totals.LeftOver, t.LeftOver}, {&next.totals.Dropped, t.Dropped}, {&next.totals.Doubled, t.Doubled}} {
		*f.to += f.n
	}
	if sum, ok := r.took(); ok {
		next.taken = append(next.taken, taken{r.number, sum})
		next.taken = next.taken[max(0, len(next.taken)-maxTaken):]
	}
	if err := next.save(x.fs); err != nil {
		return err
	}
	p.mu.Lock()
	x.state = next
	delete(x.rounds, r.number)
	p.mu.Unlock()
	p.o.Log.Info("a round has ended", slog.String("recipe", shortID(x.Recipe)), slog.String("round", strconv.FormatUint(r.number, 10)), slog.String("outcome", outcome))
	if err := p.o.Failpoints.Hit(failAfterEnd); err != nil {
		return err
	}
	if err := removeRound(x.fs, r.number); err != nil {
		return err
	}
	gone := next.clone()
	gone.ending = nil
	if err := gone.save(x.fs); err != nil {
		return err
	}
	p.mu.Lock()
	x.state = gone
	p.mu.Unlock()
	return nil
}

func shortID(id [32]byte) string { return fmt.Sprintf("%x", id[:4]) }

// grain is how many things a worker takes at a time.
const grain = 32

// run works on n things at once.
func (p *Party) run(n int, f func(int)) {
	var all sync.WaitGroup
	var next atomic.Int64
	for range min(p.o.Limits.Workers, n/grain+1) {
		all.Go(func() {
			for {
				from := int(next.Add(grain)) - grain
				if from >= n {
					return
				}
				for i := from; i < min(from+grain, n); i++ {
					f(i)
				}
			}
		})
	}
	all.Wait()
}
