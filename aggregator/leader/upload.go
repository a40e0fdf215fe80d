package leader

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/edge"
	"github.com/starling-agg/starling/aggregator/internal/permit"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/buffer"
	"github.com/starling-agg/starling/internal/releases"
)

// postReports takes an upload request (DAP-18 section 4.4.3). It opens nothing: size,
// encoding, time, extensions, the id of the key and the state of the batch bucket are all
// that it looks at. The answer comes after the reports are durable, and names only those
// that were refused, in the order of the request.
//
// Step 7 of one report: from an upload of sealed shares, to an acknowledged entry in the
// log, or in an object that replicas share.
func (l *Leader) postReports(r *edge.Request) error {
	if r.Task.Upload.Set() && !r.Task.Upload.Bears(r.Request) {
		return edge.Unauthorized()
	}
	if wait := l.party.Quota.Early(); wait > 0 {
		l.opt.Observe.Turned(aggregator.ShedReports)
		return edge.TooMany(wait)
	}
	if err := l.roomFor(); err != nil {
		return err
	}
	state, err := l.party.States.TaskState(r.Context(), r.Task.ID)
	if err != nil {
		return err
	}
	if state.ClosedIn != 0 {
		return edge.Refuse(releases.ProblemClosed, closedDetail)
	}
	if err := l.permits.May(r.Task.ID, permit.Take); err != nil && !state.Retired && state.Closed.IsZero() {
		return edge.Stopped(err, "the servers of this task take no reports at the moment")
	}
	body, done, err := r.Body(dap.MediaUploadReq, l.opt.Limits.UploadBody)
	defer done()
	if err != nil {
		if edge.IsOverload(err) {
			l.opt.Observe.Turned(aggregator.ShedMemory)
		}
		return err
	}
	defer buffer.Put(body) // the intake has written what it keeps
	limits := dap.DefaultLimits()
	limits.MaxReports = l.opt.Limits.UploadReports
	reports, err := dap.Collect(dap.Reports(body, limits))
	if err != nil {
		return edge.Malformed(err)
	}
	l.party.Quota.Came(len(reports))
	keys := l.keys.Accepting()
	defer keys.Release()
	leave := sync.OnceFunc(l.uploads.enter())
	defer leave()
	check := uploadCheck{l: l, t: r.Task, keys: keys, retired: state.Retired || !state.Closed.IsZero(), collected: make(map[dap.Time]bool)}
	codes := make([]dap.ReportError, len(reports))
	entries, at := make([]segment.Entry, 0, len(reports)), make([]int, 0, len(reports))
	for i := range reports {
		m := &reports[i].Metadata
		if codes[i], err = check.report(r, &reports[i]); err != nil {
			return err
		}
		if codes[i] != 0 {
			continue
		}
		at = append(at, i)
		entries = append(entries, segment.Entry{
			TaskID: r.Task.ID, Bucket: uint64(m.Time), ReportID: m.ID, Report: reports[i].Bytes(), Life: keys.Life(),
		})
	}
	if err := l.opt.Failpoints.Hit(FailBeforeLog); err != nil {
		return err
	}
	late, err := l.intake.put(r.Context(), entries)
	leave() // now, and not when the client has read the answer
	if err != nil {
		switch {
		case errors.Is(err, segment.ErrBusy):
			l.opt.Observe.Turned(aggregator.ShedMemory)
			return edge.Overloaded(http.StatusServiceUnavailable)
		case l.intake.broken() != nil:
			return edge.Down(err)
		case errors.Is(err, store.ErrUnknown):
			return edge.Later("it is not known whether the reports are kept: send them again", l.opt.Poll)
		}
		return err
	}
	kept := int64(0)
	for i := range entries {
		kept += int64(len(entries[i].Report))
	}
	l.party.Quota.Acknowledged(kept)
	for k, why := range late {
		codes[at[k]] = dap.ReportError(why)
	}
	var refused []dap.ReportUploadStatus
	for i, code := range codes {
		if code != 0 {
			refused = append(refused, dap.ReportUploadStatus{ID: reports[i].Metadata.ID, Error: r.Task.Dialect.Said(code)})
		}
	}
	if len(refused) == 0 {
		return r.Empty(http.StatusOK, 0)
	}
	l.refused.add(r.Task.ID, refused)
	answer, err := r.Task.Dialect.AppendUploadErrors(nil, refused)
	if err != nil {
		return err
	}
	return r.Reply(http.StatusOK, dap.MediaUploadErrors, answer)
}

// A passage lets a collection wait for the uploads that were judged before it stopped
// them: until each is in the log, or refused, sorting the log does not bring every report
// that was, or will be, acknowledged for the batch. Uploads never wait for one another,
// nor for a collection. Safe for concurrent use.
type passage struct {
	wake func() // called when the last upload of a crossing is through

	mu   sync.Mutex
	now  *crossing // that new uploads join
	last *crossing // that was closed
}

// A crossing is the uploads that began between two calls of [passage.close], and those
// before them that are still under way.
type crossing struct {
	passage *passage
	before  *crossing
	under   int           // way
	closed  bool          // nobody joins any more
	through chan struct{} // closed once all that began since the crossing before are
}

// enter is called before an upload's batch is looked at, what it returns once the upload
// is in the log or refused.
func (p *passage) enter() (leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now == nil {
		p.now = &crossing{passage: p, through: make(chan struct{})}
	}
	c := p.now
	c.under++
	return func() {
		p.mu.Lock()
		c.under--
		last := c.closed && c.under == 0
		p.mu.Unlock()
		if last {
			close(c.through)
			p.wake()
		}
	}
}

// close returns the uploads that are under way.
func (p *passage) close() *crossing {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.now
	if c == nil {
		c = &crossing{passage: p, through: make(chan struct{})}
	}
	for p.last != nil && p.last.under == 0 {
		p.last = p.last.before
	}
	c.before, c.closed, p.now, p.last = p.last, true, nil, c
	if c.under == 0 {
		close(c.through)
	}
	return c
}

// left is how many of them are.
func (c *crossing) left() (n int) {
	c.passage.mu.Lock()
	defer c.passage.mu.Unlock()
	for ; c != nil; c = c.before {
		n += c.under
	}
	return n
}

// wait returns when none is left.
func (c *crossing) wait(ctx context.Context) error {
	for ; c != nil; c = c.before {
		select {
		case <-c.through:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// uploadCheck judges the reports of one request.
type uploadCheck struct {
	l         *Leader
	t         *task.Task
	retired   bool         // or closed: it takes nothing any more
	keys      *keyset.Hold // until the reports are durable
	asked     bool         // whether the keys are those of a life that goes on
	collected map[dap.Time]bool
}

// current fails where others offer keys that this process may not have.
func (c *uploadCheck) current(r *edge.Request) error {
	if c.asked {
		return nil
	}
	err := c.l.intake.lives(r.Context(), c.keys.Life())
	if errors.Is(err, store.ErrCutOff) {
		return edge.Overloaded(http.StatusServiceUnavailable)
	}
	c.asked = err == nil
	return err
}

// report returns zero or the reason why a report is refused before it is acknowledged.
func (c *uploadCheck) report(r *edge.Request, rep *dap.Report) (dap.ReportError, error) {
	m := &rep.Metadata
	interval, bounded := c.t.Interval()
	switch {
	case c.retired:
		return dap.ReportDropped, nil
	case !c.keys.Has(rep.Leader.ConfigID):
		return dap.OutdatedConfig, c.current(r)
	case bounded && !interval.Contains(m.Time):
		return dap.ReportDropped, nil
	case c.t.TooEarly(m.Time, c.l.steady.Latest(), c.l.opt.Limits.ClockSkew):
		return dap.ReportTooEarly, nil
	case c.t.TooOld(m.Time, c.l.steady.Now(), c.l.opt.Limits.MaxAge):
		return dap.ReportDropped, nil
	case !c.t.Stamped(m.Time), !m.PublicExtensions.Increasing(): // no count is to be had of a part of a round
		return dap.InvalidMessage, nil
	case m.PublicExtensions.Unknown() != nil:
		return dap.UnsupportedExtension, nil
	case c.t.Mode() != dap.TimeInterval:
		return 0, nil
	}
	if at, err := c.t.Precision().Begin(m.Time); err == nil && c.l.data.Over(at) {
		return dap.ReportDropped, nil // it would never be released
	}
	collected, known := c.collected[m.Time]
	if !known {
		state, err := c.l.intake.state(r.Context(), c.t.ID, m.Time)
		if err != nil {
			return 0, err
		}
		collected = state != store.Open
		c.collected[m.Time] = collected
	}
	if collected {
		return dap.BatchCollected, nil
	}
	return 0, nil
}
