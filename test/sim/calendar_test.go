package sim

import (
	"crypto/sha256"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/internal/disk"
)

// In worlds with cfg.units the task has a calendar. Beside an honest collector there is
// one that asks for parts of rounds, for straddles and for more than one where each is
// released alone, and devices that say when in its round they answered. In most of them
// the servers' clocks differ.

const (
	grace = 10 * time.Minute
	apart = time.Minute // each clock from the true time: well within the skew
)

// clock is a node's.
type clock struct {
	ahead time.Duration
	set   *atomic.Int64 // by somebody, so far ahead of that; nil where nobody sets it
}

// Now implements [disk.Clock].
func (c clock) Now() time.Time {
	now := time.Now().Add(c.ahead)
	if c.set != nil {
		now = now.Add(time.Duration(c.set.Load()))
	}
	return now
}

// NewTimer implements [disk.Clock].
func (clock) NewTimer(d time.Duration) disk.Timer { return disk.SystemClock.NewTimer(d) }

// calendar is the task's, or nil.
func (w *world) calendar() *aggregator.Calendar {
	if w.cfg.units == 0 {
		return nil
	}
	c := &aggregator.Calendar{Units: w.cfg.units, Alone: w.cfg.alone, Grace: grace}
	if w.cfg.views {
		c.Views = &aggregator.Views{Wider: []aggregator.View{{Rounds: 2, Noise: noise.Zero{}}}, Keep: 8}
	}
	return c
}

// wide is the span of the wider view that a round is in.
func (w *world) wide(round dap.Interval) dap.Interval {
	units := dap.Time(2 * w.cfg.units)
	return dap.Interval{Start: round.Start - round.Start%units, Duration: dap.Duration(units)}
}

// round is how long one takes.
func (w *world) round() time.Duration {
	return time.Duration(max(1, w.cfg.units)) * precision * time.Second
}

// inside says whether no honest report carries that time.
func (w *world) inside(t dap.Time) bool { return w.cfg.units > 0 && uint64(t)%w.cfg.units != 0 }

// firstOf is the first unit of the round of an instant.
func (w *world) firstOf(at time.Time) dap.Time {
	t := must(dap.TimePrecision(precision).At(at))
	return t - t%dap.Time(w.cfg.units)
}

// due is when a server with a true clock may release an interval.
func (w *world) due(iv dap.Interval) time.Time {
	return w.unit(iv.Start + dap.Time(iv.Duration)).Add(grace + aggregator.Limits{}.WithDefaults().ClockSkew)
}

// roundEnd is when the n-th round of the world may be released.
func (w *world) roundEnd(n uint64) time.Time {
	return w.due(dap.Interval{Start: w.firstOf(w.start) + dap.Time(n*w.cfg.units), Duration: dap.Duration(w.cfg.units)})
}

// untilDue fills and asks for the round that is under way, and lets time pass until
// everything that was reported or asked for may be released. Both servers look again and
// again while the one may release it and the other may not.
func (w *world) untilDue() {
	if w.cfg.units == 0 {
		return
	}
	var reports []*report
	for n := uint64(len(w.oracle.reports)); n < length-spare/2 && uint64(len(reports)) < w.cfg.min; n++ {
		if r := w.make(good, 0); r != nil {
			reports = append(reports, r)
		}
	}
	if r := w.make(inside, 0); r != nil {
		reports = append(reports, r)
	}
	w.upload(reports)
	w.opOdd()
	now := dap.Interval{Start: w.firstOf(time.Now()), Duration: dap.Duration(w.cfg.units)}
	w.ask(w.newJob(dap.Query{Mode: dap.TimeInterval, Interval: now}))
	// Reports may be of the next round, and somebody may have asked for it.
	last := w.due(now).Add(w.round())
	if w.cfg.views {
		w.ask(w.newJob(dap.Query{Mode: dap.TimeInterval, Interval: w.wide(now)}))
		last = last.Add(w.round())
	}
	for end := w.due(now); !end.After(last) && !w.failed(); end = end.Add(w.round()) {
		for at := end.Add(-grace - 2*apart); !at.After(end.Add(2 * apart)); at = at.Add(apart / 2) {
			if at.Before(end.Add(-3*apart/2)) && at.After(end.Add(-grace)) {
				continue // a few looks at the beginning of the grace, and all around its end
			}
			time.Sleep(time.Until(at))
			for _, n := range w.nodes() {
				n.settle(w.rng)
				n.step()
			}
			w.bury()
			for _, j := range w.jobs {
				if !j.done {
					w.poll(j)
				}
			}
		}
	}
	time.Sleep(grace) // which a leader waits for that was just started
}

// opRounds asks for whole rounds, often before they are over.
func (w *world) opRounds() {
	first, now := w.firstOf(w.start), w.firstOf(time.Now())
	iv := dap.Interval{Start: first + dap.Time(w.cfg.units*w.rng.Uint64N(uint64(now-first)/w.cfg.units+1)), Duration: dap.Duration(w.cfg.units)}
	if !w.cfg.alone && w.rng.IntN(3) == 0 {
		iv.Duration *= 2
	}
	if w.cfg.views && w.rng.IntN(2) == 0 {
		iv = w.wide(iv)
	}
	if time.Now().Before(w.due(iv)) {
		w.oracle.ahead++
	}
	w.ask(w.newJob(dap.Query{Mode: dap.TimeInterval, Interval: iv}))
}

// opOdd asks the leader for what is no batch, past every check of a collector's.
func (w *world) opOdd() {
	units := w.cfg.units
	odd := []dap.Interval{{Duration: 1}, {Start: 1, Duration: 1}, {Start: 1, Duration: dap.Duration(units)}, {Duration: dap.Duration(units + 1)},
		{Start: 1, Duration: dap.Duration(2*units - 1)}}
	from := w.firstOf(w.start)
	if w.cfg.alone {
		odd = append(odd, dap.Interval{Duration: dap.Duration(2 * units)})
	}
	if w.cfg.views { // two rounds, and not from an even one on; or more
		from -= from % dap.Time(2*units)
		odd[len(odd)-1].Start = dap.Time(units)
		odd = append(odd, dap.Interval{Duration: dap.Duration(3 * units)}, dap.Interval{Duration: dap.Duration(4 * units)})
	}
	iv := odd[w.rng.IntN(len(odd))]
	iv.Start += from
	req := dap.CollectionJobReq{Query: dap.Query{Mode: dap.TimeInterval, Interval: iv}}
	body := must(req.Append(nil))
	id := w.cfg.framing.ChooseID(w.taskID, dap.CollectionJobsResource, body, nil)
	u := must(url.Parse(leaderURL + "/" + dap.CreationPathOf(w.taskID, dap.CollectionJobsResource, id)))
	a, err := w.net.deliver(&message{to: w.leader, method: w.cfg.framing.CreationMethod(), url: u, body: body, header: http.Header{
		"Authorization": {"Bearer " + collectorToken}, "Content-Type": {dap.ContentType(dap.MediaCollectionJobReq)},
	}})
	if err != nil {
		return
	}
	w.logf("collect %v, which is no batch: status %d", iv, a.status)
	switch {
	case a.status < 300:
		w.oracle.violate("the leader took a collection of %v, which is no batch", iv)
	case a.status < 500:
		w.oracle.odd++
	}
}

// released is one answer with a share, or with both.
type released struct {
	interval dap.Interval
	answer   [32]byte
}

// sawRelease judges what a server gave out: only batches of the calendar, when its own
// clock allows it, and no unit of time in two answers, but of two views.
func (o *oracle) sawRelease(kind dap.Collection, m *message, a *answer) {
	if kind != dap.CollectionJobsResource && kind != dap.AggregateSharesResource {
		return
	}
	iv, ok := o.intervalOf(kind, m, a)
	if !ok || len(a.body) == 0 {
		return
	}
	if c := o.w.calendar(); c != nil {
		if err := c.Check(iv); err != nil {
			o.violate("%s released %v, which is no batch: %v", m.to.name, iv, err)
		}
		if early := o.w.due(iv).Sub(m.to.clock.Now()); early > 0 {
			o.violate("%s released %v, %v too early", m.to.name, iv, early)
		}
	}
	answer := sha256.Sum256(a.body)
	o.mu.Lock()
	var twice *released
	known := false
	for i, r := range o.released[m.to] {
		switch {
		case r.interval == iv && r.answer == answer:
			known = true
		case o.w.cfg.views && r.interval.Duration != iv.Duration:
		case r.interval.Start < iv.Start+dap.Time(iv.Duration) && iv.Start < r.interval.Start+dap.Time(r.interval.Duration):
			twice = &o.released[m.to][i]
		}
	}
	if !known {
		o.released[m.to] = append(o.released[m.to], released{iv, answer})
	}
	o.mu.Unlock()
	if twice != nil && !known {
		o.violate("%s released %v, and %v before", m.to.name, iv, twice.interval)
	}
}

// early says whether a message asks for a share that is not due by the clock of whoever
// is asked.
func (o *oracle) early(m *message) bool {
	if o.w.cfg.units == 0 || !o.w.creates(m) || !strings.Contains(m.url.Path, "/"+string(dap.AggregateSharesResource)) {
		return false
	}
	req, err := dap.ReadAggregateShareReq(m.body)
	return err == nil && m.to.clock.Now().Before(o.w.due(req.BatchSelector.Interval))
}

// intervalOf is the interval of a collection or a share, from the message that made it.
func (o *oracle) intervalOf(kind dap.Collection, m *message, a *answer) (iv dap.Interval, ok bool) {
	if !o.w.creates(m) {
		o.mu.Lock()
		defer o.mu.Unlock()
		iv, ok = o.asked[string(kind)+" "+path.Base(m.url.Path)]
		return iv, ok
	}
	if kind == dap.CollectionJobsResource {
		req, err := dap.ReadCollectionJobReq(m.body)
		if err != nil {
			return iv, false
		}
		iv = req.Query.Interval
	} else {
		req, err := dap.ReadAggregateShareReq(m.body)
		if err != nil {
			return iv, false
		}
		iv = req.BatchSelector.Interval
	}
	id, err := dap.LocationID(a.header.Get("Location"), o.w.taskID, kind)
	if err != nil {
		id = path.Base(m.url.Path)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked[string(kind)+" "+id] = iv
	return iv, true
}
