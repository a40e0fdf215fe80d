package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

func init() {
	tests["RetiredTaskIsSwept"] = func(t *testing.T, h Harness) { testRetiredTaskIsSwept(t, h, dap.TimeInterval) }
	tests["RetiredLeaderSelectedTaskIsSwept"] = func(t *testing.T, h Harness) { testRetiredTaskIsSwept(t, h, dap.LeaderSelected) }
	tests["RetiredTaskTakesNothing"] = testRetiredTaskTakesNothing
	tests["NoEarlyRetirement"] = testNoEarlyRetirement
}

// retiring is a world with a task that has a bit of everything, ended, and another that
// has an open bucket.
func retiring(t *testing.T, h Harness, mode dap.BatchMode) (w *World, task, other *store.Task) {
	ctx := context.Background()
	task, other = Task(t, mode, 1), Task(t, dap.TimeInterval, 2)
	task.End = Epoch.Add(24 * time.Hour)
	w = NewWorld(t, h, task, other)
	w.Upload(other, 10, 40, 45)
	w.Sort()
	w.Work(other)
	w.Upload(task, 10, 0, 5)
	w.Upload(task, 20, 6, 11)
	w.Sort()
	w.Work(task)
	var sel *store.Selection
	if mode == dap.TimeInterval {
		sel = Interval(10, 1)
	}
	r := w.Ask(task, "ten", sel)
	_, err := w.Store.Release(ctx, w.ReleaseOf(task, r, w.Hold(r), new([]int64)))
	w.ok(err)
	gone := w.Ask(task, "another", Interval(50, 1))
	w.ok(w.Store.Delete(ctx, store.KindCollection, task.ID, gone.ID))
	if mode == dap.TimeInterval {
		_, _, err := w.Store.Drain(ctx, w.Ask(task, "twenty", Interval(20, 1)))
		w.ok(err)
	}
	w.Upload(task, 30, 12, 13)
	w.Upload(task, 31, 14, 16)
	w.Upload(other, 10, 46, 47)
	w.Sort()
	for _, j := range w.Claim(9) {
		if j.Slices[0].Bucket == 30 {
			w.ok(w.Store.QuarantineJob(ctx, j, dap.InvalidMessage, "cannot be read"))
		}
	}
	w.Now = task.End
	return w, task, other
}

// testRetiredTaskIsSwept: everything of the task goes, whatever the size of the steps,
// but its counts; others keep theirs.
func testRetiredTaskIsSwept(t *testing.T, h Harness, mode dap.BatchMode) {
	ctx := context.Background()
	w, task, other := retiring(t, h, mode)
	if _, err := w.Store.Sweep(ctx, task.ID, 100); err == nil {
		t.Fatal("swept what is not retired")
	}
	before, err := w.Store.Counts(ctx, task.ID)
	w.ok(err)
	w.ok(w.Store.Retire(ctx, task.ID, w.Now))
	w.ok(w.Store.Retire(ctx, task.ID, w.Now.Add(time.Hour)))
	w.Audit()
	w.Upload(task, 40, 17, 18) // acknowledged just before
	w.Sort()
	if n := len(w.unnamed()); n != 1 {
		t.Fatalf("%d files without a row, want the late one", n)
	}
	steps := 0
	for more := true; more; steps++ {
		more, err = w.Store.Sweep(ctx, task.ID, 2)
		w.ok(err)
		w.Audit()
		if steps == 0 { // what it would clear away is swept later
			w.Reopen(t)
			if !w.retired(task.ID) || w.retired(other.ID) {
				t.Fatal("the mark is lost, or on another task")
			}
		}
	}
	if names := w.unnamed(); steps < 3 || len(names) != 0 {
		t.Errorf("%d steps of two rows, %q are left", steps, names)
	}
	if more, err := w.Store.Sweep(ctx, task.ID, 2); more || err != nil {
		t.Errorf("there is more to sweep: %v %v", more, err)
	}
	w.CountsAre(task, store.Counts{
		Acknowledged: before.Acknowledged + 2, Aggregated: 12, Collected: before.Collected,
		Rejected: map[dap.ReportError]uint64{dap.InvalidMessage: 2, dap.ReportDropped: 5},
	})
	w.CountsAre(other, store.Counts{Acknowledged: 8, Aggregated: 6, Waiting: 2})
	if live, err := w.Store.LiveFiles(ctx); err != nil || len(live) != 2 { // the other's run and log
		t.Errorf("%d files are named, %v", len(live), err)
	}
	entries, err := h.FS().ReadDir("runs")
	w.ok(err)
	if len(entries) != 1 {
		t.Errorf("%d runs on the disk, want the other task's", len(entries))
	}
	w.Now = w.Now.Add(time.Hour)
	w.Work(other)
	w.Audit()
}

// testRetiredTaskTakesNothing: neither work under way nor anything new enters, in this
// life or the next.
func testRetiredTaskTakesNothing(t *testing.T, h Harness) {
	ctx := context.Background()
	w, task, _ := retiring(t, h, dap.TimeInterval)
	w.Now = w.Now.Add(time.Hour) // past the leases
	var job *store.Job
	for _, j := range w.Claim(9) {
		if j.Task == task.ID {
			job = j
		}
	}
	helpers, _, err := w.Store.Create(ctx, store.KindAggregation, task.ID, "", []byte("a job under way"), false, nil, w.Now)
	w.ok(err)
	w.ok(w.Store.Retire(ctx, task.ID, w.Now))
	c := w.CommitOf(task, job)
	reply := func([]dap.ReportError) ([]byte, error) { return nil, nil }
	for range 2 {
		w.is(w.Store.FinishJob(ctx, job, c), store.ErrNotFound)
		_, err = w.Store.CommitJob(ctx, helpers, c, reply)
		w.is(err, store.ErrNotFound)
		_, err = w.Store.Advance(ctx, helpers, 1, [32]byte{}, nil, reply)
		w.is(err, store.ErrNotFound)
		_, _, err = w.Store.Create(ctx, store.KindCollection, task.ID, "", []byte("a new one"), true, Interval(20, 1), w.Now)
		w.is(err, store.ErrNotFound)
		_, err = w.Store.Resource(ctx, store.KindAggregation, task.ID, helpers.ID)
		w.is(err, store.ErrNotFound)
		for _, kind := range []store.Kind{store.KindAggregation, store.KindCollection} {
			if rs, err := w.Store.PendingResources(ctx, kind, 9); err != nil || len(rs) != 0 {
				t.Errorf("%d resources wait, %v", len(rs), err)
			}
		}
		w.Now = w.Now.Add(time.Hour)
		for _, j := range w.Claim(9) {
			if j.Task == task.ID {
				t.Error("claimed a job of a retired task")
			}
		}
		more, err := w.Store.Sweep(ctx, task.ID, 1000)
		w.ok(err)
		if more {
			t.Error("there is more to sweep")
		}
		w.Reopen(t)
		w.Audit()
	}
}

// testNoEarlyRetirement: not before the end, and never without one.
func testNoEarlyRetirement(t *testing.T, h Harness) {
	ctx := context.Background()
	w, task, other := retiring(t, h, dap.TimeInterval)
	w.is(w.Store.Retire(ctx, task.ID, task.End.Add(-1)), store.ErrBusy)
	w.is(w.Store.Retire(ctx, other.ID, task.End.Add(1000*time.Hour)), store.ErrBusy)
	w.is(w.Store.Retire(ctx, dap.TaskID{9}, w.Now), store.ErrNotFound)
	if w.retired(task.ID) || w.retired(other.ID) {
		t.Error("retired all the same")
	}
	_, err := w.Store.TaskState(ctx, dap.TaskID{9})
	w.is(err, store.ErrNotFound)
	w.Audit()
}

func (w *World) retired(id dap.TaskID) bool {
	w.t.Helper()
	state, err := w.Store.TaskState(context.Background(), id)
	w.ok(err)
	return state.Retired
}
