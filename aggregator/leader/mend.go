package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/lease"
	"github.com/starling-agg/starling/aggregator/internal/mend"
	"github.com/starling-agg/starling/aggregator/internal/peer"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// mending is when to put replay protection right, here and at the helpers; see package
// mend.
type mending struct {
	mu     sync.Mutex
	looked uint64 // the place of the last open task that was looked at
	tasks  map[dap.TaskID]*mendTask
}

// mendTask is what is known of one task.
type mendTask struct {
	own, helper tries
	suspect     bool // the helper failed a job since it was asked what it lacks
}

type tries struct {
	n    int
	next time.Time
	why  string
}

// of is the task's; mu is held.
func (m *mending) of(id dap.TaskID) *mendTask {
	if m.tasks == nil {
		m.tasks = make(map[dap.TaskID]*mendTask)
	}
	if m.tasks[id] == nil {
		m.tasks[id] = new(mendTask)
	}
	return m.tasks[id]
}

// forget lets go of a task of which nothing is known.
func (m *mending) forget(id dap.TaskID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.tasks[id]; t != nil && *t == (mendTask{}) {
		delete(m.tasks, id)
	}
}

// suspect has the helper asked whether it lacks replay protection: it failed a job of the
// task.
func (m *mending) suspect(id dap.TaskID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(id).suspect = true
}

// stepMend puts right what is damaged and due. Tasks that were opened since the last step
// are looked at; of the others those are that are known to be damaged, here or there.
func (l *Leader) stepMend(ctx context.Context) (bool, error) {
	m := &l.mending
	m.mu.Lock()
	fresh := l.tasks.Since(m.looked)
	var suspects []dap.TaskID
	for id, t := range m.tasks {
		if t.suspect {
			suspects = append(suspects, id)
		}
	}
	m.mu.Unlock()
	for place, t := range fresh {
		if err := l.mendTask(ctx, t, true, false); err != nil {
			return false, err
		}
		m.mu.Lock()
		m.looked = place
		m.mu.Unlock()
	}
	damaged, err := l.store.DamagedTasks(ctx)
	if err != nil {
		return false, err
	}
	for _, id := range slices.Concat(damaged, suspects) {
		if t := l.tasks.Get(id); t != nil {
			if err := l.mendTask(ctx, t, false, false); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// Repair looks at the replay protection of all tasks, here and at the helpers, and puts
// right what can be put right now. The status tells which damage remains.
func (l *Leader) Repair(ctx context.Context) error {
	for _, id := range l.party.TaskIDs() {
		if t := l.tasks.Get(id); t != nil {
			if err := l.mendTask(ctx, t, true, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// mendTask puts one task right: looking at all of it, or where it is known to be damaged;
// now, or when it is its turn.
func (l *Leader) mendTask(ctx context.Context, t *task.Task, all, now bool) error {
	if gone, err := l.party.Retired(ctx, t.ID); gone || err != nil {
		return err
	}
	damaged, err := l.store.Damaged(ctx, t.ID)
	if err != nil {
		return err
	}
	if all || len(damaged) > 0 {
		if err := l.mendOwn(ctx, t, all, now); err != nil {
			return err
		}
	}
	return l.mendHelper(ctx, t, now)
}

// due begins an attempt, if it is time.
func (l *Leader) due(id dap.TaskID, of func(*mendTask) *tries, now bool) bool {
	l.mending.mu.Lock()
	defer l.mending.mu.Unlock()
	x := of(l.mending.of(id))
	return now || !l.opt.Clock.Now().Before(x.next)
}

// tried ends one.
func (l *Leader) tried(id dap.TaskID, of func(*mendTask) *tries, err error) {
	l.mending.mu.Lock()
	defer l.mending.mu.Unlock()
	x := of(l.mending.of(id))
	if err == nil {
		*x = tries{}
		return
	}
	x.n++
	x.why = err.Error()
	wait := lease.Backoff(x.n, l.opt.BackOff, l.opt.MaxBackOff)
	var retry *peer.Retry
	if errors.As(err, &retry) {
		wait = max(wait, retry.After)
	}
	x.next = l.opt.Clock.Now().Add(wait)
}

func ownTries(t *mendTask) *tries    { return &t.own }
func helperTries(t *mendTask) *tries { return &t.helper }

// mendOwn puts our own files right from the helper's ids.
func (l *Leader) mendOwn(ctx context.Context, t *task.Task, check, now bool) error {
	if !l.due(t.ID, ownTries, now || check) {
		return nil
	}
	before, err := l.store.Damaged(ctx, t.ID)
	if err != nil {
		return err
	}
	damaged, err := l.store.CheckReplay(ctx, t.ID)
	if err != nil {
		return err
	}
	if len(damaged) > len(before) {
		l.opt.Log.Error("replay protection is damaged", "task", t.ID, "files", len(damaged), "why", damaged[0].Why)
	}
	var failed error
	for _, d := range damaged {
		err := l.fetch(ctx, t, d)
		if errors.Is(err, store.ErrUnknown) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			l.opt.Log.Warn("replay protection cannot be mended yet", slog.Any("task", t.ID), slog.String("why", err.Error()))
			failed = err
			continue
		}
		l.opt.Log.Info("replay protection is mended", "task", t.ID, "ids", d.IDs)
		l.wakeJobs()
	}
	l.tried(t.ID, ownTries, failed)
	return nil
}

// fetch makes one run from the helper's ids.
func (l *Leader) fetch(ctx context.Context, t *task.Task, d store.Damaged) error {
	run := mend.NewRun(l.store, t.ID, d)
	for {
		answer, err := l.helper.Replay(ctx, t, "ids", mend.AppendAsk(nil, run.Next(), run.High()))
		if err != nil {
			return err
		}
		page, err := mend.ReadPage(answer)
		if err != nil {
			return mend.ErrOrder
		}
		whole, err := run.Take(ctx, page, func(ctx context.Context, ids []dap.ReportID) ([]bool, error) {
			sent, err := l.sentIDs(ctx, t)
			if err != nil {
				return nil, err
			}
			out := make([]bool, len(ids))
			for i, id := range ids {
				_, out[i] = slices.BinarySearchFunc(sent, id, compareIDs)
			}
			return out, nil
		})
		if whole || err != nil {
			return err
		}
	}
}

func compareIDs(a, b dap.ReportID) int { return slices.Compare(a[:], b[:]) }

// sentIDs are the reports that were sent and are not committed, ascending.
func (l *Leader) sentIDs(ctx context.Context, t *task.Task) (ids []dap.ReportID, err error) {
	l.moving.RLock() // the files stay where they are meanwhile
	defer l.moving.RUnlock()
	flights, err := l.store.Sent(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	for _, f := range flights {
		reports, err := segment.OpenSlices(ctx, l.intake.files(), f.Slices)
		if err != nil {
			return nil, fmt.Errorf("a job that was sent: %w", err)
		}
		for i := range reports.Len() {
			if bit(f.Accepted, i) {
				ids = append(ids, dap.ReportID(reports.ReportID(i)))
			}
		}
		reports.Close()
	}
	slices.SortFunc(ids, compareIDs)
	return slices.Compact(ids), nil
}

// mendHelper asks a helper that failed a job what it lacks, and gives it that.
func (l *Leader) mendHelper(ctx context.Context, t *task.Task, now bool) error {
	l.mending.mu.Lock()
	suspect := l.mending.of(t.ID).suspect
	l.mending.mu.Unlock()
	if !now && !suspect || !l.due(t.ID, helperTries, now) {
		return nil
	}
	err := l.giveNeeds(ctx, t)
	if errors.Is(err, store.ErrUnknown) || ctx.Err() != nil {
		return err
	}
	if errors.Is(err, peer.ErrNoReplay) {
		err = nil
	}
	if err != nil {
		l.opt.Log.Warn("the helper's replay protection cannot be mended yet", slog.Any("task", t.ID), slog.String("why", err.Error()))
	} else {
		l.mending.mu.Lock()
		l.mending.of(t.ID).suspect = false
		l.mending.mu.Unlock()
	}
	l.tried(t.ID, helperTries, err)
	return nil
}

func (l *Leader) giveNeeds(ctx context.Context, t *task.Task) error {
	answer, err := l.helper.Replay(ctx, t, "", nil)
	if err != nil {
		return err
	}
	needs, err := mend.ReadNeeds(answer)
	if err != nil {
		return err
	}
	for _, n := range needs {
		if err := l.give(ctx, t, n); err != nil {
			return err
		}
	}
	if len(needs) == 0 {
		return nil
	}
	l.wakeJobs()
	return l.store.Hurry(ctx, t.ID)
}

// give brings the helper the ids of one run. It may begin anew, as after a restart of the
// helper; whoever asks for what it had over and over is left alone until the next
// attempt.
func (l *Leader) give(ctx context.Context, t *task.Task, n mend.Need) error {
	next, begun := n.Next, 0
	for {
		sent, err := l.sentIDs(ctx, t)
		if err != nil {
			return err
		}
		page, err := mend.Page(ctx, l.store, t.ID, next, n.High, sent, func(dap.ReportID) bool { return false })
		if err != nil {
			return err
		}
		gift := mend.Gift{Sum: n.Sum, From: next, Page: page}
		answer, err := l.helper.Replay(ctx, t, "give", gift.Append(nil))
		if err != nil {
			return err
		}
		outcome, wanted, err := mend.ReadOutcome(answer)
		switch {
		case err != nil:
			return err
		case outcome == mend.Mended:
			return nil
		case outcome == mend.Unlike:
			return errors.New("the helper says that our report ids are not those of its file")
		}
		if slices.Compare(wanted[:], next[:]) <= 0 {
			if begun++; begun > 3 {
				return errors.New("the helper asks for the same report ids again and again")
			}
		}
		next = wanted
	}
}

// damaged is what is told of a task's replay protection.
func (l *Leader) damaged(ctx context.Context, id dap.TaskID) (out []status.Damaged, helper string, err error) {
	damaged, err := l.store.Damaged(ctx, id)
	if err != nil {
		return nil, "", err
	}
	l.mending.mu.Lock()
	defer l.mending.mu.Unlock()
	m := l.mending.of(id)
	for _, d := range damaged {
		tried := m.own.why
		if tried == "" {
			tried = "it is mended from the helper's report ids by itself"
		}
		out = append(out, status.Damaged{IDs: uint64(d.IDs), Why: d.Why, Tried: tried})
	}
	return out, m.helper.why, nil
}
