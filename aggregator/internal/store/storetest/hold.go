package storetest

import (
	"context"
	"strings"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

// single uploads n new reports of a task and claims them, which must be one job; nil
// where they cannot be claimed.
func (w *World) single(task *store.Task, bucket dap.Time, from, n int) *store.Job {
	w.t.Helper()
	w.Upload(task, bucket, from, from+n-1)
	w.Sort()
	jobs := w.Claim(2)
	if len(jobs) > 1 {
		w.t.Fatalf("%d jobs", len(jobs))
	}
	if len(jobs) == 0 {
		return nil
	}
	return jobs[0]
}

// answered commits a job that the peer has answered. What its verdicts are is another
// matter than whose fault they are, so that all are refused, which needs no share.
func (w *World) answered(task *store.Task, j *store.Job, refused uint64) {
	w.t.Helper()
	c := Commit(w.t, task, []store.Batch{j.Batch}, nil, make([][]int, 1))
	c.Rejected = map[dap.ReportError]uint64{dap.VDAFVerifyError: uint64(j.Reports())}
	c.Conduct = &store.Conduct{Asked: uint64(j.Reports()), Refused: refused, Now: w.Now}
	w.ok(w.Store.FinishJob(context.Background(), j, c))
}

// held is what holds the only task that may be held, or nil.
func (w *World) held(task *store.Task) *store.Hold {
	w.t.Helper()
	holds, err := w.Store.Holds(context.Background())
	w.ok(err)
	switch {
	case len(holds) == 0:
		return nil
	case len(holds) > 1 || holds[0].Task != task.ID || holds[0].Why == "":
		w.t.Fatalf("holds are %+v", holds)
	}
	return &holds[0]
}

// testHoldAfterRefusedJobs: a peer that refuses each of the first jobs as a whole holds the
// task, and one that has answered before does after more of them in a row, whatever lies
// between two starts; another task is none of its business.
func testHoldAfterRefusedJobs(t *testing.T, h Harness) {
	ctx := context.Background()
	task, other := Task(t, dap.TimeInterval, 1), Task(t, dap.TimeInterval, 2)
	w := NewWorld(t, h, task, other)
	at := 0
	refuse := func(n int) {
		t.Helper()
		for i := range n {
			if w.held(task) != nil {
				t.Fatalf("held after %d of %d refused jobs", i, n)
			}
			w.ok(w.Store.ParkJob(ctx, w.single(task, 10, at, 2), "a definite refusal", w.Now))
			at += 2
			w.Reopen(t)
		}
		if held := w.held(task); held == nil || held.Person || !held.Since.Equal(w.Now) || !strings.Contains(held.Why, "a definite refusal") {
			t.Fatalf("after %d refused jobs: %+v", n, held)
		}
	}
	refuse(store.FirstTurned)
	if j := w.single(task, 10, at, 1); j != nil {
		t.Fatal("claimed a job of a held task")
	}
	at++
	if j := w.single(other, 10, 0, 3); j == nil || j.Task != other.ID {
		t.Fatal("another task is held too")
	} else {
		w.answered(other, j, 0)
	}
	// Letting the other go on is not this one's business.
	if n, err := w.Store.Resume(ctx, []dap.TaskID{other.ID}, false); n != 0 || err != nil || w.held(task) == nil {
		t.Fatalf("resumed %d, %v; %+v", n, err, w.held(task))
	}
	if n, err := w.Store.Resume(ctx, []dap.TaskID{task.ID}, false); n != 6 || err != nil || w.held(task) != nil {
		t.Fatalf("resumed %d, %v; %+v", n, err, w.held(task))
	}
	if done := w.Work(task); done != store.FirstTurned+1 {
		t.Fatalf("%d jobs", done)
	}
	// One answer, and it takes more refusals in a row.
	w.answered(task, w.single(task, 10, at, 2), 0)
	at += 2
	for range store.RowTurned - 1 {
		w.ok(w.Store.ParkJob(ctx, w.single(task, 10, at, 2), "a definite refusal", w.Now))
		at += 2
	}
	w.answered(task, w.single(task, 10, at, 2), 0) // which breaks the row
	at += 2
	refuse(store.RowTurned)
	w.Audit()
}

// testHoldAfterRefusedReports: over half of a window, refused for the peer's own reasons,
// holds the task; half does not, and a window that is over hides nothing of the next.
func testHoldAfterRefusedReports(t *testing.T, h Harness) {
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	at := 0
	job := func(refused uint64) { // of 5 reports
		t.Helper()
		w.answered(task, w.single(task, 10, at, 5), refused)
		at += 5
	}
	// jobs of which these numbers are refused, and the others whole
	window := func(refused ...uint64) {
		t.Helper()
		for i := range uint64(store.WindowReports / 5) {
			if w.held(task) != nil {
				t.Fatalf("held after %d jobs of a window", i)
			}
			if i < uint64(len(refused)) {
				job(refused[i])
			} else {
				job(0)
			}
		}
	}
	window(5, 5, 5, 5, 5, 5, 5, 5, 5, 5) // the first 50 of 100, which are too few to tell
	if w.held(task) != nil {
		t.Fatal("held after half of a window")
	}
	window()
	w.Reopen(t)
	window(5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 1)
	if held := w.held(task); held == nil || held.Person || !strings.Contains(held.Why, "51 of the last 100") {
		t.Fatalf("after 51 of 100: %+v", held)
	}
	if j := w.single(task, 10, at, 1); j != nil {
		t.Fatal("claimed a job of a held task")
	}
	w.Audit()
}

// testHoldByPerson: a person's hold needs no fault, stays over restarts and replaces the
// peer's.
func testHoldByPerson(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.LeaderSelected, 1)
	w := NewWorld(t, h, task)
	w.ok(w.Store.HoldTask(ctx, task.ID, "we move", w.Now))
	w.Reopen(t)
	if held := w.held(task); held == nil || !held.Person || held.Why != "we move" || !held.Since.Equal(w.Now) {
		t.Fatalf("held: %+v", held)
	}
	if j := w.single(task, 10, 0, 4); j != nil {
		t.Fatal("claimed a job of a held task")
	}
	if err := w.Store.HoldTask(ctx, task.ID, "", w.Now); err == nil {
		t.Fatal("held without a reason")
	}
	w.is(w.Store.HoldTask(ctx, dap.TaskID{9}, "nobody's", w.Now), store.ErrNotFound)
	w.is(second(w.Store.Resume(ctx, []dap.TaskID{{9}}, false)), store.ErrNotFound)
	w.ok(second(w.Store.Resume(ctx, []dap.TaskID{task.ID}, false)))
	if w.held(task) != nil || w.Work(task) != 1 {
		t.Fatal("still held")
	}
	w.Audit()
}

func second(_ uint64, err error) error { return err }
