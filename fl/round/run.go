package round

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/fl/optimizer"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/recipe"
)

// next is the round that would be announced now, and how long that has to wait; false where
// there is none.
func (c *Controller) next() (round uint64, wait time.Duration, ok bool) {
	r, now := c.o.Recipe, c.o.Clock.Now()
	unit, err := r.TimePrecision.At(now)
	if err != nil {
		return 0, 0, false
	}
	round = session.Round(r, unit)
	if begun, err := c.time(round); err != nil || now.Sub(begun) > c.o.Late {
		round++
	}
	round = max(round, c.o.Session.Terms.FirstRound)
	c.mu.Lock()
	last := c.book.last()
	c.mu.Unlock()
	if last != nil {
		round = max(round, last.Round+1)
		// Devices are shown one announcement, so it stays while its round lasts.
		if end, err := c.time(last.Round + 1); err == nil {
			wait = max(0, end.Sub(now))
		}
	}
	if w, bounded := r.Window.(recipe.Between); bounded {
		round = max(round, session.Round(r, w.Start))
		if (round+1)*r.BatchUnits() > uint64(w.End) {
			return 0, 0, false
		}
	}
	return round, wait, true
}

// announce begins a round where one is due, and says how long to wait for the next.
func (c *Controller) announce(ctx context.Context) (time.Duration, error) {
	c.mu.Lock()
	full, open, ended := uint32(len(c.book.rounds)) >= c.o.Session.Terms.Rounds, c.book.open(), c.ended
	if full {
		c.ended = "all rounds were announced"
	}
	c.mu.Unlock()
	if full || ended != "" || open >= c.o.Ahead {
		return never, nil
	}
	round, wait, ok := c.next()
	if !ok {
		c.mu.Lock()
		c.ended = "the recipe's time is over"
		c.mu.Unlock()
		return 0, nil
	}
	if c.o.Manual {
		return never, nil
	}
	if wait > 0 {
		return wait, nil
	}
	if err := c.check(ctx); errors.Is(err, ErrUnasked) && ctx.Err() == nil {
		c.o.Log.Warn("no round is announced", "error", err)
		return c.o.Retry, nil
	} else if err != nil {
		return 0, err
	}
	return 0, c.sign(ctx, round)
}

// sign makes the model of a round durable, then its announcement, and publishes both.
func (c *Controller) sign(ctx context.Context, round uint64) error {
	t, err := c.training(ctx)
	if err != nil {
		return err
	}
	m := session.Model{Session: c.hash, Round: round, Clip: t.clip, Parameters: make([]float32, len(t.parameters))}
	for i, x := range t.parameters {
		m.Parameters[i] = float32(x)
	}
	blob, err := m.Append(nil)
	if err != nil {
		return err
	}
	if err := c.o.Failpoints.Hit(failModel); err != nil {
		return err
	}
	hash, err := c.keep(ctx, modelsDir, blob)
	if err != nil {
		return err
	}
	if err := c.o.Failpoints.Hit(failAnnounce); err != nil {
		return err
	}
	a := session.Announcement{Session: c.hash, Round: round, Model: hash}
	c.mu.Lock()
	a.Index = uint32(len(c.book.rounds))
	if last := c.book.last(); last != nil {
		a.Previous = last.Hash()
	}
	c.mu.Unlock()
	a.Sign(c.o.Key)
	if err := c.write(ctx, &event{kind: announced, announced: a}); err != nil {
		return err
	}
	if err := c.o.Failpoints.Hit(failRecord); err != nil {
		return err
	}
	c.o.Log.Info("a round is announced", "index", a.Index, "round", a.Round)
	return c.show(&a, blob)
}

// due is the round that is to be collected next, and how long until it may be; nil for
// none.
func (c *Controller) due() (*record, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.book.waiting()
	if r == nil {
		return nil, 0
	}
	copied := *r
	return &copied, c.closed(r).Sub(c.o.Clock.Now())
}

// closed is when nothing of a round can come any more.
func (c *Controller) closed(r *record) time.Time {
	end, err := c.time(r.Round + 1)
	if err != nil {
		return c.o.Clock.Now()
	}
	return end.Add(c.o.Recipe.Grace())
}

// collect asks for the sum of a round until it is there, cannot come, or nobody waits for
// it any more.
func (c *Controller) collect(ctx context.Context, r *record) error {
	units := c.o.Recipe.BatchUnits()
	batch := dap.Interval{Start: dap.Time(r.Round * units), Duration: dap.Duration(units)}
	until := c.closed(r).Add(c.o.Patience)
	for wait := c.o.Retry; ; wait = min(2*wait, time.Minute) {
		patience, cancel := context.WithCancel(ctx)
		stop := c.after(patience, until.Sub(c.o.Clock.Now()), cancel)
		sum, err := c.o.Source.Collect(patience, batch)
		stop()
		cancel()
		if err == nil {
			err = c.fits(sum)
		}
		few := new(TooFewError)
		switch {
		case err == nil:
			return c.collected(ctx, r, sum)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &few):
			return c.skip(ctx, r, TooFew, few.Reports)
		}
		c.o.Log.Warn("a round was not collected", "index", r.Index, "round", r.Round, "error", err)
		if !c.o.Clock.Now().Before(until) {
			if gone, err := c.o.Source.GiveUp(ctx, batch); err != nil || gone {
				// Where nobody answers, a sum that is released later is asked for by nobody.
				return c.skip(ctx, r, Unavailable, 0)
			}
			continue
		}
		timer := c.o.Clock.NewTimer(min(wait, until.Sub(c.o.Clock.Now())))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C():
		}
	}
}

// after calls a function after a time, unless it is stopped.
func (c *Controller) after(ctx context.Context, d time.Duration, call func()) (stop func()) {
	timer, done := c.o.Clock.NewTimer(max(0, d)), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-ctx.Done():
		case <-timer.C():
			call()
		}
	}()
	return func() { call(); timer.Stop(); <-done }
}

// ErrSum is wrapped by what is wrong with a sum.
var ErrSum = errors.New("round: a sum that is none")

// fits refuses a sum that no round of the recipe has.
func (c *Controller) fits(s *Sum) error {
	if want := c.o.Session.Terms.Entries(); len(s.Values) != want {
		return fmt.Errorf("%w: of %d numbers, want %d", ErrSum, len(s.Values), want)
	}
	for i, x := range s.Values {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Errorf("%w: entry %d is not finite", ErrSum, i)
		}
	}
	return nil
}

func (c *Controller) collected(ctx context.Context, r *record, s *Sum) error {
	if err := c.o.Failpoints.Hit(failSum); err != nil {
		return err
	}
	hash, err := c.keepSum(ctx, r, appendSum(s.Values))
	if err != nil {
		return err
	}
	if err := c.o.Failpoints.Hit(failCollect); err != nil {
		return err
	}
	c.o.Log.Info("a round is collected", "index", r.Index, "round", r.Round, "reports", s.Reports)
	return c.write(ctx, &event{kind: collected, index: r.Index, reports: s.Reports, sum: hash})
}

func (c *Controller) skip(ctx context.Context, r *record, why Reason, reports uint64) error {
	if err := c.o.Failpoints.Hit(failCollect); err != nil {
		return err
	}
	c.o.Log.Warn("a round is skipped, and the model stays", "index", r.Index, "round", r.Round, "reason", why.String())
	return c.write(ctx, &event{kind: skipped, index: r.Index, reports: reports, why: uint8(why)})
}

// step moves the model on by the rounds of a step, where all of them are collected.
func (c *Controller) step(ctx context.Context) (moved bool, err error) {
	c.mu.Lock()
	rounds := append([]record(nil), c.book.ready(c.all())...)
	c.mu.Unlock()
	if len(rounds) == 0 {
		return false, nil
	}
	t, err := c.training(ctx)
	if err != nil {
		return false, err
	}
	if err := c.move(ctx, t, rounds); err != nil {
		return false, err
	}
	if err := c.o.Failpoints.Hit(failState); err != nil {
		return false, err
	}
	state, err := c.keep(ctx, statesDir, t.append(nil))
	if err != nil {
		return false, err
	}
	if err := c.o.Failpoints.Hit(failStep); err != nil {
		return false, err
	}
	first, last := rounds[0].Index, rounds[len(rounds)-1].Index
	if err := c.write(ctx, &event{kind: stepped, index: first, last: last, state: state}); err != nil {
		return false, err
	}
	if err := c.o.Failpoints.Hit(failSweep); err != nil {
		return false, err
	}
	return true, c.sweep(ctx)
}

// all is how many rounds there will be, as far as is known.
func (c *Controller) all() uint32 {
	if c.ended != "" {
		return uint32(len(c.book.rounds))
	}
	return c.o.Session.Terms.Rounds
}

// move adds the sums of a step's rounds, each scaled back by the clipping norm that its
// devices had, and steps the parameters with their mean over the planned cohort.
func (c *Controller) move(ctx context.Context, t *training, rounds []record) error {
	terms := &c.o.Session.Terms
	total, one := make([]float64, len(t.parameters)), make([]float64, len(t.parameters))
	below, used := 0.0, 0.0
	for i := range rounds {
		if rounds[i].State != Collected {
			continue
		}
		b, err := c.mean(ctx, one, &rounds[i])
		if err != nil {
			return err
		}
		for j, x := range one {
			total[j] += x
		}
		below += b
		used++
	}
	if used == 0 {
		return nil
	}
	for j := range total {
		total[j] /= used
	}
	by := optimizer.New(c.o.Optimizer, len(t.parameters))
	if err := by.Restore(t.optimizer); err != nil {
		return fmt.Errorf("%w: %w", ErrJournal, err)
	}
	by.Step(t.parameters, total)
	for _, x := range t.parameters {
		if y := float64(float32(x)); math.IsNaN(y) || math.IsInf(y, 0) {
			return &DivergedError{rounds[len(rounds)-1].Index}
		}
	}
	t.optimizer, t.clip = by.State(), terms.Clipping.NextClip(t.clip, below/used)
	if float64(rounds[len(rounds)-1].Index) >= float64(terms.Rounds)*(1-c.o.Average) {
		if t.averaged++; len(t.mean) == 0 {
			t.mean = make([]float64, len(t.parameters))
		}
		for i, x := range t.parameters {
			t.mean[i] += (x - t.mean[i]) / float64(t.averaged)
		}
	}
	return nil
}

// mean overwrites dst with the mean update of a round that was collected.
func (c *Controller) mean(ctx context.Context, dst []float64, r *record) (below float64, err error) {
	sum, err := c.sumOf(ctx, r)
	if err != nil {
		return 0, err
	}
	blob, err := c.read(ctx, modelsDir, r.Model)
	if err != nil {
		return 0, err
	}
	m, err := c.o.Session.ReadModel(&r.Announcement, blob)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrJournal, err)
	}
	q, _ := c.o.Recipe.Vector()
	return c.o.Session.Terms.Mean(dst, sum, m.Clip, q.Norm(), c.o.Cohort)
}
