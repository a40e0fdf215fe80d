package release

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// Held is a batch that has too many reports to be honest, or not of enough devices: it is
// not released.
type Held struct {
	status.Held
	Rate *status.Rate // that it is held by; nil where the task has an expectation alone
}

func (h *Held) Error() string { return h.Why() }

// Uncounted is why it is not known at the moment how many credentials were given out.
type Uncounted struct{ Err error }

func (e *Uncounted) Error() string {
	return "how many credentials were given out is not known: " + e.Err.Error()
}

func (e *Uncounted) Unwrap() error { return e.Err }

// Rates compare what came of batches with what their recipes, and the issuer beside the
// aggregator, predict. Safe for concurrent use.
type Rates struct {
	Issuer  aggregator.Issuer  // nil where no task's reports show credentials
	Cohorts aggregator.Cohorts // nil where no log is followed
	Marks   store.Spending
	Observe *aggregator.Observer

	mu   sync.Mutex
	last map[dap.TaskID]*status.Rate
}

// Vouched is what is known of the devices of a batch, whatever its reports.
type Vouched struct {
	// Devices have credentials of the epoch of a batch that is one round; nil where nobody
	// counts them, or it is not.
	Devices *uint64
	forged  *status.Held
}

// Devices is [Vouched.Devices] of what is selected. It fails with a *[Uncounted].
func (x *Rates) Devices(ctx context.Context, t *task.Task, sel store.Selection) (*uint64, error) {
	if t.Credentials == nil || t.Rate == nil { // else a batch is a round, or a slot of one
		return nil, nil
	}
	n, _, err := x.issued(ctx, t, uint64(sel.Interval.Start)/t.Credentials.Units)
	return &n, err
}

// issued is how many devices have credentials of a round: no more than the issuer has given
// out, nor than any owner says in the log, and who says so where that is fewer. No owner is
// waited for.
func (x *Rates) issued(ctx context.Context, t *task.Task, round uint64) (n uint64, says string, err error) {
	c := t.Credentials
	if round > math.MaxUint64/c.Units {
		return 0, "", &Uncounted{fmt.Errorf("round %d is after the end of time", round)}
	}
	_, epoch, err := c.Round(dap.Time(round*c.Units), t.Precision())
	if err == nil {
		n, err = x.Issuer.Issued(ctx, c.Deployment, epoch)
	}
	if err != nil {
		return 0, "", &Uncounted{err}
	}
	if x.Cohorts != nil {
		said := x.Cohorts.Cohort(c.Deployment, epoch)
		said.Issued = &n
		if least, whose, _ := said.Devices(); least < n {
			return least, whose, nil
		}
	}
	return n, "", nil
}

// Vouched asks issuer and store: how many devices there are, and whether in one of the
// batch's rounds credentials of more were shown. It fails with a *[Uncounted] where the
// issuer does not say, and with the store's errors.
func (x *Rates) Vouched(ctx context.Context, t *task.Task, sel store.Selection) (v Vouched, err error) {
	c := t.Credentials
	if c == nil {
		return v, nil
	}
	if v.Devices, err = x.Devices(ctx, t, sel); err != nil {
		return v, err
	}
	first, last := uint64(0), uint64(store.LastRound) // reports of a leader-selected batch may be of any
	if t.Mode() == dap.TimeInterval {
		end, ok := sel.Interval.End()
		if !ok || sel.Interval.Duration == 0 {
			return v, store.ErrTooSmall // no report is of it
		}
		first, last = uint64(sel.Interval.Start)/c.Units, uint64(end-1)/c.Units
	}
	spent, err := x.Marks.Spent(ctx, t.ID, first, last)
	if err != nil {
		return v, err
	}
	for _, s := range spent {
		n, says, err := x.issued(ctx, t, s.Round)
		if err != nil {
			return v, err
		}
		if s.Marks > n {
			v.forged = &status.Held{Verdict: status.Forged, Start: s.Round * c.Units, Duration: c.Units, Reports: s.Marks, Devices: &n, Says: says}
			break
		}
	}
	return v, nil
}

// Compare says how the reports of a batch stand to what was to come: nil where there is
// nothing to compare them with. A batch that is held is not to be released.
func Compare(t *task.Task, f *store.Frozen, v Vouched) (*status.Rate, *Held) {
	rate := &status.Rate{Start: uint64(f.Span.Start), Duration: uint64(f.Span.Duration), Reports: f.Count, Devices: v.Devices, Verdict: status.AsExpected}
	if t.Rate != nil {
		rate.Senders = t.Rate.Senders
	}
	held := judge(t, f, v, rate)
	if held != nil {
		rate.Verdict = held.Verdict
	}
	if t.Rate == nil && t.Credentials == nil {
		rate = nil
	}
	if held == nil {
		return rate, nil
	}
	return rate, &Held{*held, rate}
}

func judge(t *task.Task, f *store.Frozen, v Vouched, rate *status.Rate) *status.Held {
	if v.forged != nil {
		return v.forged
	}
	e, r := t.Expected, t.Rate
	held := status.Held{
		Verdict: status.TooMany, Start: rate.Start, Duration: rate.Duration, Reports: f.Count, Expected: e.Of(f.Span),
		Epsilon: e.HalfHonestEpsilon, Delta: e.HalfHonestDelta,
	}
	switch {
	case e.Holds(f.Count, f.Span):
		return &held
	case e.HoldsRound(f.Fullest):
		held.Reports, held.Expected, held.OneRound = f.Fullest, e.Reports, true
		return &held
	case r == nil:
		return nil
	case v.Devices != nil && *v.Devices < r.Senders || r.Few(f.Count):
		return &status.Held{
			Verdict: status.TooFew, Start: rate.Start, Duration: rate.Duration, Reports: f.Count, Senders: r.Senders, Devices: v.Devices,
		}
	case v.Devices == nil || !r.Many(f.Count, *v.Devices):
		return nil
	}
	rate.Verdict = status.TooMany
	if !r.Flood(f.Count, *v.Devices) {
		return nil
	}
	held.Expected, held.Devices = uint64(math.Ceil(float64(*v.Devices)*r.Most)), v.Devices
	return &held
}

// Note keeps a comparison as a task's last one, and tells the observer.
func (x *Rates) Note(id dap.TaskID, rate *status.Rate) {
	x.mu.Lock()
	if x.last == nil {
		x.last = make(map[dap.TaskID]*status.Rate)
	}
	x.last[id] = rate
	x.mu.Unlock()
	x.Observe.Judged(rate.Verdict)
}

// Published is what the log says of credentials; nil where none is followed.
func (x *Rates) Published() *status.Published {
	if x.Cohorts == nil {
		return nil
	}
	return x.Cohorts.Published()
}

// Measure sets what levels say of the log.
func (x *Rates) Measure(l *aggregator.Levels) {
	if p := x.Published(); p != nil {
		l.CohortAlarms = p.Alarms()
		if p.Failing != "" {
			l.LogFailing = 1
		}
	}
}

// Last is the last batch of a task that was compared in this life; nil if there was none.
func (x *Rates) Last(id dap.TaskID) *status.Rate {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.last[id]
}
