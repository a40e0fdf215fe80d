package leader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/lost"
	"github.com/starling-agg/starling/aggregator/internal/peer"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/internal/watch"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// askPeer bounds how long a question is worth waiting for that nothing depends on: a
// status, a deletion.
const askPeer = 3 * time.Second

// Status is where the leader stands, and how far each task's helper says it is. It is an
// error where uploads fail until a restart.
func (l *Leader) Status(ctx context.Context) (*status.Status, error) {
	if err := l.intake.broken(); err != nil {
		return nil, fmt.Errorf("leader: uploads fail until a restart: %w", err)
	}
	if err := l.count(ctx); err != nil {
		return nil, err
	}
	now := l.opt.Clock.Now()
	s, err := l.Standing(ctx)
	if err != nil {
		return nil, err
	}
	s.RefusedRequests = l.srv.Refused()
	s.UnopenedTasks = l.tasks.Len() - len(l.tasks.Opened())
	waits, err := l.waits(ctx)
	if err != nil {
		return nil, err
	}
	silent := "" // why the helper does not answer: it is asked once, and not for each task
	for _, t := range l.party.OpenTasks() {
		id := t.ID
		st, err := l.taskStatus(ctx, t, now)
		if err != nil {
			return nil, err
		}
		if st.Closed, err = l.party.Closing(ctx, id); err != nil {
			return nil, err
		}
		st.Collections, st.Held, st.Rate = waits[id].waits, waits[id].held, l.compared.Last(id)
		st.Agreement, st.Stops = l.book.Status(id), l.permits.Status(id)
		st.ReportsPerSec = l.rates.of(id, now)
		if left := st.Total - min(st.Done, st.Total); left > 0 && st.ReportsPerSec > 0 {
			st.SecondsLeft = float64(left) / st.ReportsPerSec
		}
		var giving string
		if st.Damaged, giving, err = l.damaged(ctx, id); err != nil {
			return nil, err
		}
		if st.PeerUnreadable = silent; silent != "" {
			s.Tasks = append(s.Tasks, *st)
			continue
		}
		ask, cancel := context.WithTimeout(ctx, askPeer)
		var p status.Peer
		switch err := l.helper.Progress(ask, t, &p); {
		case err == nil:
			if p.Damaged > 0 {
				p.Giving = giving
			}
			st.Peer = &p
		case errors.Is(err, peer.ErrNoProgress):
			st.PeerSilent = true
		default:
			st.PeerUnreadable = err.Error()
			if errors.As(err, new(*peer.Retry)) {
				silent = st.PeerUnreadable
			}
		}
		cancel()
		s.Tasks = append(s.Tasks, *st)
	}
	return s, l.party.Replicas(ctx, s, l.replica())
}

// Standing is [Leader.Status] without its tasks.
func (l *Leader) Standing(ctx context.Context) (*status.Status, error) {
	damages, err := l.store.Damages(ctx)
	if err != nil {
		return nil, err
	}
	damaged := make([]status.Damage, len(damages))
	for i, d := range damages {
		damaged[i] = status.Damage(d)
	}
	set, err := lost.Status(l.opt.FS)
	if err != nil {
		return nil, fmt.Errorf("leader: %w", err)
	}
	room := ""
	if err := l.room.Take(l.waiting()); err != nil {
		room = err.Error()
	}
	if err := l.party.ReadQuota(ctx, l.unsorted); err != nil {
		return nil, err
	}
	noise, err := watch.DataKeys(ctx, l.data, l.store, l.tasks, l.party.Ends)
	if err != nil {
		return nil, err
	}
	return &status.Status{Role: "leader", NoRoom: room, Now: l.opt.Clock.Now().UTC(), Keys: l.Keys(), Damaged: damaged, Lost: set, Clock: l.steady.Held(),
		DataKeys: l.data.Missing(), NoiseKeys: noise, NoMarks: l.party.Unmarked(), Quotas: l.party.Quotas(), Published: l.compared.Published()}, nil
}

// taskStatus is the store's, with what is acknowledged and not named yet.
func (l *Leader) taskStatus(ctx context.Context, t *task.Task, now time.Time) (*status.Task, error) {
	retires, err := l.party.RetiresAt(ctx, t)
	if err != nil {
		return nil, err
	}
	for range 3 { // unless a log is sorted at this moment
		before := l.intake.unnamedOf(t.ID)
		st, err := watch.Task(ctx, l.store, t, now, retires)
		if err != nil {
			return nil, err
		}
		if st.Counts.Unsorted = l.intake.unnamedOf(t.ID); st.Counts.Unsorted == before {
			st.Counts.Acknowledged += before
			st.Counts.Waiting += before
			st.Total += before
			return st, nil
		}
	}
	return watch.Task(ctx, l.store, t, now, retires)
}

// pendings are the collections of one task that are not ready, and the batches among
// theirs that are held.
type pendings struct {
	waits []status.Wait
	held  []status.Held
}

// waits lists what is not ready, by task.
func (l *Leader) waits(ctx context.Context) (map[dap.TaskID]pendings, error) {
	pending, err := l.pending(ctx)
	if err != nil {
		return nil, err
	}
	m := make(map[dap.TaskID]pendings)
	for _, res := range pending {
		n := l.notes.get(res.ID)
		w := status.Wait{Frozen: res.Frozen != nil, Why: n.why, Next: n.next}
		if w.Why == "" {
			w.Why = "not looked at yet"
		}
		if req, err := dap.ReadCollectionJobReq(res.Body); err == nil {
			w.Start, w.Duration = uint64(req.Query.Interval.Start), uint64(req.Query.Interval.Duration)
		}
		p := m[res.Task]
		p.waits = append(p.waits, w)
		if n.held != nil {
			p.held = append(p.held, *n.held)
		}
		m[res.Task] = p
	}
	return m, nil
}

// rates remember how many reports were finished lately, by task. Safe for concurrent use.
type rates struct {
	mu sync.Mutex
	m  map[dap.TaskID]*window
}

// window is two spans of time: the one before, whole, and the one that runs.
type window struct {
	start       time.Time
	last, count uint64
}

const rateSpan = 10 * time.Second

func (r *rates) add(t dap.TaskID, n uint64, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m == nil {
		r.m = make(map[dap.TaskID]*window)
	}
	w := r.m[t]
	if w == nil {
		w = &window{start: now}
		r.m[t] = w
	}
	w.turn(now)
	w.count += n
}

func (r *rates) forget(t dap.TaskID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.m, t)
}

// turn begins a new span if the running one is over.
func (w *window) turn(now time.Time) {
	switch age := now.Sub(w.start); {
	case age >= 2*rateSpan:
		*w = window{start: now}
	case age >= rateSpan:
		*w = window{start: w.start.Add(rateSpan), last: w.count}
	}
}

// all are the rates that are not zero, by the tasks' ids as a status has them.
func (r *rates) all(now time.Time) map[string]float64 {
	r.mu.Lock()
	tasks := slices.Collect(maps.Keys(r.m))
	r.mu.Unlock()
	list := make(map[string]float64)
	for _, t := range tasks {
		if rate := r.of(t, now); rate > 0 {
			list[t.Base64()] = rate
		}
	}
	return list
}

// of is the rate in reports per second.
func (r *rates) of(t dap.TaskID, now time.Time) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.m[t]
	if w == nil {
		return 0
	}
	w.turn(now)
	age := now.Sub(w.start)
	// The span before counts as far as it still lies within one span from now.
	share := 1 - age.Seconds()/rateSpan.Seconds()
	if w.last == 0 {
		return float64(w.count) / max(age.Seconds(), 1)
	}
	return (float64(w.last)*share + float64(w.count)) / rateSpan.Seconds()
}
