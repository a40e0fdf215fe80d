package helper

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/edge"
	"github.com/starling-agg/starling/aggregator/internal/mend"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// mendEvery is how often damaged files are looked at again, and how long a stored job
// with report ids in them waits; mendLater is what a leader is told to wait, which knows
// by itself when it has mended them.
const (
	mendEvery = 30 * time.Second
	mendLater = 5 * time.Minute
)

// mending is the helper's part in putting damaged replay protection right; see package
// mend. One run is made at a time, for its ids are in memory; a leader that stops in the
// middle loses its place to the next.
type mending struct {
	mu     sync.Mutex
	run    *mend.Run // nil: none is being made
	task   dap.TaskID
	last   time.Time             // a page was taken
	why    map[dap.TaskID]string // what became of the last attempt
	waits  map[string]time.Time  // deferred jobs that wait for it, by id: until when
	due    time.Time             // the next look at what is damaged
	looked uint64                // the place of the last open task that was looked at
}

// mendPatience is how long a leader may be silent between two pages.
const mendPatience = time.Minute

// checkReplay looks at tasks that were opened since it last did, and at those that are known
// to be damaged.
func (h *Helper) checkReplay(ctx context.Context) (bool, error) {
	m := &h.mending
	now := h.opt.Clock.Now()
	m.mu.Lock()
	fresh := h.tasks.Since(m.looked)
	due := !now.Before(m.due)
	if due {
		m.due = now.Add(mendEvery)
	}
	m.mu.Unlock()
	for place, t := range fresh {
		if err := h.checkTask(ctx, t.ID); err != nil {
			return false, err
		}
		m.mu.Lock()
		m.looked = place
		m.mu.Unlock()
	}
	if !due {
		return false, nil
	}
	damaged, err := h.store.DamagedTasks(ctx)
	if err != nil {
		return false, err
	}
	for _, id := range damaged {
		if err := h.checkTask(ctx, id); err != nil {
			return false, err
		}
	}
	return false, nil
}

func (h *Helper) checkTask(ctx context.Context, id dap.TaskID) error {
	before, err := h.store.Damaged(ctx, id)
	if err != nil {
		return err
	}
	now, err := h.store.CheckReplay(ctx, id)
	if err != nil {
		return err
	}
	if len(now) > len(before) {
		h.opt.Log.Error("replay protection is damaged", "task", id, "files", len(now), "why", now[0].Why)
	}
	return nil
}

// Repair reads the replay protection of all tasks and says what is damaged of it: the
// leader brings what is lost.
func (h *Helper) Repair(ctx context.Context) error {
	for _, id := range h.party.TaskIDs() {
		if err := h.checkTask(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// blocked turns damaged replay protection into an answer: the leader comes again.
func blocked(err error) error {
	if errors.Is(err, store.ErrMarks) {
		return edge.Later("what credentials have shown in the round of these reports is damaged", mendLater)
	}
	if errors.Is(err, store.ErrDamaged) {
		return edge.Later("the replay protection of these reports is damaged and waits to be mended", mendLater)
	}
	if errors.Is(err, store.ErrCutOff) {
		return edge.Overloaded(http.StatusServiceUnavailable)
	}
	return err
}

// postpone leaves a deferred job whose ids may be in a damaged file.
func (h *Helper) postpone(res *store.Resource) {
	m := &h.mending
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waits == nil {
		m.waits = make(map[string]time.Time)
	}
	m.waits[res.ID] = h.opt.Clock.Now().Add(mendEvery)
}

// postponed says whether a job has to wait yet.
func (h *Helper) postponed(ctx context.Context, res *store.Resource) bool {
	m := &h.mending
	m.mu.Lock()
	defer m.mu.Unlock()
	until, ok := m.waits[res.ID]
	if !ok {
		return false
	}
	if h.opt.Clock.Now().Before(until) {
		if damaged, err := h.store.Damaged(ctx, res.Task); err != nil || len(damaged) > 0 {
			return true
		}
	}
	delete(m.waits, res.ID)
	return false
}

// needs tells the leader what is damaged.
func (h *Helper) needs(r *edge.Request) error {
	damaged, err := h.store.Damaged(r.Context(), r.Task.ID)
	if err != nil {
		return err
	}
	m := &h.mending
	m.mu.Lock()
	defer m.mu.Unlock()
	var needs []mend.Need
	for _, d := range damaged {
		n := mend.Need{Sum: d.Sum, Next: d.Low, High: d.High, IDs: uint64(d.IDs)}
		if m.run != nil && m.task == r.Task.ID && m.run.Sum() == d.Sum {
			n.Next = m.run.Next()
		}
		needs = append(needs, n)
	}
	return r.ReplyPrivate(mend.Media, mend.AppendNeeds(nil, needs))
}

// ids gives the leader those of a range that are aggregated here. Those in answers that
// it has not deleted it may not have committed.
func (h *Helper) ids(r *edge.Request) error {
	body, done, err := r.Private(mend.Media, mend.MaxMessage)
	defer done()
	if err != nil {
		return err
	}
	low, high, err := mend.ReadAsk(body)
	if err != nil {
		return edge.Malformed(err)
	}
	finished, err := h.finished(r.Context(), r.Task)
	if err != nil {
		return err
	}
	page, err := mend.Page(r.Context(), h.store, r.Task.ID, low, high, nil, func(id dap.ReportID) bool { return finished[id] })
	if err != nil {
		return err
	}
	return r.ReplyPrivate(mend.Media, mend.AppendPage(nil, page))
}

// finished are the reports of a task that were aggregated by jobs which nobody has
// deleted yet.
func (h *Helper) finished(ctx context.Context, t *task.Task) (map[dap.ReportID]bool, error) {
	finished := make(map[dap.ReportID]bool)
	limits := dap.DefaultLimits()
	limits.MaxReports = h.opt.Limits.JobReports
	err := h.store.Answers(ctx, t.ID, func(response []byte) error {
		if h.engine.Rounds() > 1 {
			requests, answer, err := splitRounds(response)
			if err != nil || len(requests) > 0 { // more rounds follow: nothing is aggregated yet
				return err
			}
			response = answer
		}
		for resp, err := range t.Dialect.VerifyResps(response, limits) {
			if err != nil {
				return err
			}
			if resp.Type != dap.Reject {
				finished[resp.ID] = true
			}
		}
		return nil
	})
	return finished, err
}

// give takes ids for a damaged run from the leader.
func (h *Helper) give(r *edge.Request) error {
	body, done, err := r.Private(mend.Media, mend.MaxMessage)
	defer done()
	if err != nil {
		return err
	}
	gift, err := mend.ReadGift(body)
	if err != nil {
		return edge.Malformed(err)
	}
	m := &h.mending
	m.mu.Lock()
	defer m.mu.Unlock()
	answer := func(o mend.Outcome, next dap.ReportID) error {
		return r.ReplyPrivate(mend.Media, mend.AppendOutcome(nil, o, next))
	}
	now := h.opt.Clock.Now()
	if m.run == nil || m.task != r.Task.ID || m.run.Sum() != gift.Sum {
		damaged, err := h.store.Damaged(r.Context(), r.Task.ID)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(damaged, func(d store.Damaged) bool { return d.Sum == gift.Sum })
		if i < 0 {
			return answer(mend.Mended, dap.ReportID{})
		}
		if m.run != nil && now.Sub(m.last) < mendPatience {
			return edge.Later("another file is being mended", mendPatience)
		}
		m.run, m.task = mend.NewRun(h.store, r.Task.ID, damaged[i]), r.Task.ID
	}
	m.last = now
	if gift.From != m.run.Next() {
		return answer(mend.Go, m.run.Next())
	}
	whole, err := m.run.Take(r.Context(), gift.Page, func(ctx context.Context, ids []dap.ReportID) ([]bool, error) {
		finished, err := h.finished(ctx, r.Task)
		out := make([]bool, len(ids))
		for i, id := range ids {
			out[i] = !finished[id]
		}
		return out, err
	})
	switch {
	case errors.Is(err, mend.ErrOrder), errors.Is(err, mend.ErrMany), errors.Is(err, mend.ErrFew), errors.Is(err, mend.ErrProof), errors.Is(err, mend.ErrLarge):
		m.say(r.Task.ID, err.Error())
		h.opt.Log.Error("replay protection cannot be mended", slog.Any("task", r.Task.ID), slog.String("why", err.Error()))
		m.run = nil
		return answer(mend.Unlike, dap.ReportID{})
	case err != nil:
		return err
	case !whole:
		return answer(mend.Go, m.run.Next())
	}
	m.run = nil
	m.say(r.Task.ID, "")
	h.opt.Log.Info("replay protection is mended", "task", r.Task.ID)
	h.wakeUp()
	return answer(mend.Mended, dap.ReportID{})
}

// say remembers what became of an attempt.
func (m *mending) say(task dap.TaskID, why string) {
	if m.why == nil {
		m.why = make(map[dap.TaskID]string)
	}
	m.why[task] = why
}

// damaged is what is told of a task's replay protection.
func (h *Helper) damaged(ctx context.Context, id dap.TaskID) (out []status.Damaged, err error) {
	damaged, err := h.store.Damaged(ctx, id)
	if err != nil {
		return nil, err
	}
	h.mending.mu.Lock()
	defer h.mending.mu.Unlock()
	for _, d := range damaged {
		tried := h.mending.why[id]
		if tried == "" {
			tried = "the leader brings the report ids by itself"
		}
		out = append(out, status.Damaged{IDs: uint64(d.IDs), Why: d.Why, Tried: tried})
	}
	return out, nil
}
