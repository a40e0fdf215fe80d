package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/vdaf"
)

func init() {
	tests["MinimumHolds"] = testMinimumHolds
	tests["DrainFreezeRelease"] = testDrainFreezeRelease
	tests["FreezeWaits"] = testFreezeWaits
	tests["HoldsAreLifted"] = testHoldsAreLifted
	tests["FrozenIsNotDeleted"] = testFrozenIsNotDeleted
	tests["OverlapIsRefused"] = testOverlapIsRefused
	tests["DeletedBodies"] = testDeletedBodies
	tests["ForgoneIDs"] = testForgoneIDs
	tests["ReleaseOnce"] = testReleaseOnce
	tests["HugeInterval"] = testHugeInterval
	tests["LeaderSelectedHolds"] = testLeaderSelectedHolds
}

func (w *World) stateIs(task *store.Task, bucket dap.Time, want store.BatchState) {
	w.t.Helper()
	state, err := w.Store.BatchState(context.Background(), task.ID, store.Batch{Start: bucket})
	w.ok(err)
	if state != want {
		w.t.Fatalf("bucket %d is in state %d, want %d", bucket, state, want)
	}
}

// add takes reports of one bucket the whole way into their batch.
func (w *World) add(task *store.Task, bucket dap.Time, first, last int) {
	w.t.Helper()
	w.Upload(task, bucket, first, last)
	w.Sort()
	w.Work(task)
}

func testMinimumHolds(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.add(task, 10, 0, 3)
	r := w.Ask(task, "ask", Interval(10, 2))
	_, _, err := w.Store.Drain(ctx, r)
	w.is(err, store.ErrTooSmall)
	w.stateIs(task, 10, store.Open)
	_, err = w.Store.Freeze(ctx, r, *Interval(10, 2))
	w.is(err, store.ErrTooSmall)
	rel := w.ReleaseOf(task, r, &store.Frozen{Selection: *Interval(10, 2), Count: 4, Checksum: checksum(0, 3)}, new([]int64))
	if _, err := w.Store.Release(ctx, rel); err == nil {
		t.Fatal("released without freezing")
	}
	w.add(task, 11, 4, 4)
	_, _, err = w.Store.Drain(ctx, r)
	w.ok(err)
	w.stateIs(task, 10, store.Draining)
	w.stateIs(task, 12, store.Open)
	w.Audit()
}

func testDrainFreezeRelease(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.add(task, 10, 0, 5)
	r := w.Ask(task, "ask", Interval(10, 1))
	w.Upload(task, 10, 6, 7) // acknowledged before the drain
	sel, waiting, err := w.Store.Drain(ctx, r)
	w.ok(err)
	if sel != *Interval(10, 1) || waiting != 0 {
		t.Fatalf("drained %+v, %d wait", sel, waiting)
	}
	has := func(of dap.Interval, want string) {
		t.Helper()
		verified, waiting, err := w.Store.Verified(ctx, task.ID, of)
		if got := fmt.Sprint(verified, waiting); err != nil || got != want {
			t.Fatalf("%v has %s, %v; want %s verified and waiting", of, got, err, want)
		}
	}
	w.Sort()
	has(dap.Interval{Start: 9, Duration: 2}, "6 2")
	has(dap.Interval{Start: 11, Duration: 5}, "0 0")
	_, _, err = w.Store.Verified(ctx, dap.TaskID{9}, dap.Interval{Start: 9, Duration: 2})
	w.is(err, store.ErrNotFound)
	if _, waiting, err = w.Store.Drain(ctx, r); err != nil || waiting != 2 {
		t.Fatalf("%d wait, want 2 (%v)", waiting, err)
	}
	_, err = w.Store.Freeze(ctx, r, sel)
	w.is(err, store.ErrBusy)
	w.Reopen(t)
	w.stateIs(task, 10, store.Draining)
	w.Work(task)
	f := w.Hold(r)
	if f.Count != 8 {
		t.Fatalf("frozen at %d, want 8", f.Count)
	}

	// An upload that raced with the drain comes late: nobody may send it to the helper.
	w.Upload(task, 10, 8, 9)
	w.Sort()
	if jobs := w.Claim(4); len(jobs) != 0 {
		t.Fatal("a slice of a frozen bucket was claimed")
	}
	w.dead(0)
	w.Reopen(t)
	again, err := w.Store.Freeze(ctx, r, sel)
	w.ok(err)
	if *again != *f {
		t.Fatalf("frozen is %+v, was %+v", *again, *f)
	}
	pending, err := w.Store.PendingResources(ctx, store.KindCollection, 5)
	w.ok(err)
	if len(pending) != 1 || pending[0].Frozen == nil || *pending[0].Frozen != *f || string(pending[0].Body) != "ask" {
		t.Fatalf("pending is %+v", pending)
	}
	w.Audit()
	var got []int64
	_, err = w.Store.Release(ctx, w.ReleaseOf(task, r, f, &got))
	w.ok(err)
	w.Once(got, 0, 7)
	if jobs := w.Claim(4); len(jobs) != 0 {
		t.Fatal("a slice of a closed bucket was claimed")
	}
	w.dead(1)
	w.Upload(task, 10, 10, 12) // later still
	w.Upload(task, 11, 13, 13) // of another bucket, in the same log
	w.Sort()
	w.dead(0)
	w.Work(task)
	if jobs := w.Claim(4); len(jobs) != 0 {
		t.Fatal("a slice of a closed bucket was claimed")
	}
	w.CountsAre(task, store.Counts{
		Acknowledged: 14, Aggregated: 9, Collected: 8, Rejected: map[dap.ReportError]uint64{dap.BatchCollected: 5},
	})
	w.Audit()
}

// dead demands that so many files of reports lost their rows since the last call, and that
// they are buried.
func (w *World) dead(want int) {
	w.t.Helper()
	if names := w.unnamed(); len(names) != want {
		w.t.Fatalf("files without a row: %q, want %d", names, want)
	}
	w.ok(w.Store.Bury(context.Background()))
	if names := w.unnamed(); len(names) != 0 {
		w.t.Fatalf("not buried: %q", names)
	}
	live, err := w.Store.LiveFiles(context.Background())
	w.ok(err)
	for _, name := range live {
		if _, err := w.h.FS().Stat(name); err != nil {
			w.t.Fatalf("a file that is named was buried: %v", err)
		}
	}
}

func testFreezeWaits(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.add(task, 10, 0, 5)
	w.Upload(task, 10, 6, 7)
	w.Sort()
	job := w.Claim(1)[0]
	r := w.Ask(task, "ask", Interval(10, 1))
	sel, waiting, err := w.Store.Drain(ctx, r)
	if err != nil || waiting != 2 {
		t.Fatalf("%d wait, want the 2 under way (%v)", waiting, err)
	}
	_, err = w.Store.Freeze(ctx, r, sel)
	w.is(err, store.ErrBusy)
	w.ok(w.Store.FinishJob(ctx, job, w.CommitOf(task, job)))
	if f := w.Hold(r); f.Count != 8 {
		t.Fatalf("frozen at %d, want 8", f.Count)
	}
}

func testHoldsAreLifted(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.add(task, 10, 0, 5)
	a := w.Ask(task, "a", Interval(10, 1))
	w.Hold(a)
	b := w.Ask(task, "b", Interval(9, 3))
	_, _, err := w.Store.Drain(ctx, b)
	w.is(err, store.ErrBusy)
	p := &dap.Problem{Type: dap.ProblemBatchMismatch, TaskID: &task.ID, Detail: "no"}
	w.ok(w.Store.Fail(ctx, a, p))
	w.ok(w.Store.Fail(ctx, a, p))
	failed, err := w.Store.Resource(ctx, store.KindCollection, task.ID, a.ID)
	w.ok(err)
	if failed.State != store.Failed || failed.Problem.Type != p.Type || failed.Problem.Detail != "no" || failed.Frozen != nil {
		t.Fatalf("failed is %+v", failed)
	}
	_, _, err = w.Store.Drain(ctx, a)
	w.is(err, p)
	w.stateIs(task, 10, store.Open)
	_, _, err = w.Store.Drain(ctx, b)
	w.ok(err)
	w.stateIs(task, 9, store.Draining)
	w.ok(w.Store.Withdraw(ctx, task.ID, b.ID))
	w.stateIs(task, 9, store.Open)
	w.add(task, 10, 6, 6) // open for commits, too
	w.CountsAre(task, store.Counts{Acknowledged: 7, Aggregated: 7})
	w.is(w.Store.Delete(ctx, store.KindCollection, task.ID, b.ID), store.ErrNotFound)
	w.is(w.Store.Fail(ctx, b, p), store.ErrNotFound)
	w.Audit()
}

// testFrozenIsNotDeleted: the helper may have closed the batch of a frozen collection, so
// its hold must not go.
func testFrozenIsNotDeleted(t *testing.T, h Harness) {
	ctx := context.Background()
	for _, mode := range []dap.BatchMode{dap.TimeInterval, dap.LeaderSelected} {
		task := Task(t, mode, byte(mode))
		w := NewWorld(t, h, task)
		var sel *store.Selection
		if mode == dap.TimeInterval {
			sel = Interval(10, 1)
		}
		w.add(task, 10, 0, 5)
		r := w.Ask(task, "ask", sel)
		f := w.Hold(r)
		for range 2 {
			w.is(w.Store.Delete(ctx, store.KindCollection, task.ID, r.ID), store.ErrBusy)
			again, err := w.Store.Resource(ctx, store.KindCollection, task.ID, r.ID)
			w.ok(err)
			if again.Frozen == nil || *again.Frozen != *f {
				t.Fatalf("frozen is %+v, was %+v", again.Frozen, f)
			}
			state, err := w.Store.BatchState(ctx, task.ID, store.Batch{Start: 10, ID: f.Selection.ID})
			w.ok(err)
			if state != store.Draining {
				t.Fatalf("the batch is in state %d", state)
			}
			w.Reopen(t)
		}
		_, err := w.Store.Release(ctx, w.ReleaseOf(task, r, f, new([]int64)))
		w.ok(err)
		w.ok(w.Store.Delete(ctx, store.KindCollection, task.ID, r.ID))
		w.Audit()
		w.close()
	}
}

func testOverlapIsRefused(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.add(task, 10, 0, 5)
	early := w.Ask(task, "early", Interval(8, 3))
	r := w.Ask(task, "ask", Interval(10, 5))
	_, err := w.Store.Release(ctx, w.ReleaseOf(task, r, w.Hold(r), new([]int64)))
	w.ok(err)
	for _, sel := range []*store.Selection{Interval(10, 5), Interval(12, 1), Interval(0, 11), Interval(14, 100), Interval(0, math.MaxUint64)} {
		for _, kind := range []store.Kind{store.KindCollection, store.KindShare} {
			_, _, err := w.Store.Create(ctx, kind, task.ID, "", []byte("other"), true, sel, w.Now)
			w.is(err, store.ErrOverlap)
		}
	}
	_, _, err = w.Store.Drain(ctx, early) // asked before, but too late all the same
	w.is(err, store.ErrOverlap)
	w.Ask(task, "before", Interval(0, 10))
	w.Ask(task, "after", Interval(15, 100))
	if same := w.Ask(task, "ask", Interval(10, 5)); same.ID != r.ID || same.State != store.Ready {
		t.Fatalf("the same body again: %+v", same)
	}
	w.Audit()
}

func testDeletedBodies(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.add(task, 10, 0, 5)
	ids := make(map[string]bool)
	var r *store.Resource
	for range 3 {
		r = w.Ask(task, "ask", Interval(10, 1))
		if ids[r.ID] {
			t.Fatal("the id of a deleted resource came back")
		}
		ids[r.ID] = true
		w.Reopen(t)
		if same := w.Ask(task, "ask", Interval(10, 1)); same.ID != r.ID {
			t.Fatal("the same body made another resource")
		}
		w.ok(w.Store.Delete(ctx, store.KindCollection, task.ID, r.ID))
	}
	r = w.Ask(task, "ask", Interval(10, 1))
	_, err := w.Store.Release(ctx, w.ReleaseOf(task, r, w.Hold(r), new([]int64)))
	w.ok(err)
	w.ok(w.Store.Delete(ctx, store.KindCollection, task.ID, r.ID))
	_, _, err = w.Store.Create(ctx, store.KindCollection, task.ID, "", []byte("ask"), true, Interval(10, 1), w.Now)
	w.is(err, store.ErrOverlap)
	other := Task(t, dap.TimeInterval, 7)
	w.ok(w.Store.PutTask(ctx, other))
	x := w.Ask(other, "ask", Interval(10, 1))
	if ids[x.ID] || x.ID == r.ID {
		t.Fatal("two tasks share a resource id")
	}
	if err := dap.CheckResourceID(x.ID); err != nil {
		t.Fatal(err)
	}
	w.Audit()
}

// testForgoneIDs: what was given up before it came never comes, under whatever body, and
// nothing else is in its way.
func testForgoneIDs(t *testing.T, h Harness) {
	ctx := context.Background()
	task, other := Task(t, dap.TimeInterval, 1), Task(t, dap.TimeInterval, 7)
	w := NewWorld(t, h, task, other)
	create := func(task *store.Task, id, body string) error {
		_, _, err := w.Store.Create(ctx, store.KindCollection, task.ID, id, []byte(body), true, Interval(10, 1), w.Now)
		return err
	}
	w.ok(w.Store.Forgo(ctx, task.ID, "given up"))
	w.Reopen(t)
	w.ok(w.Store.Forgo(ctx, task.ID, "given up"))
	for _, body := range []string{"ask", "ask otherwise"} {
		w.is(create(task, "given up", body), store.ErrDeleted)
	}
	w.ok(create(other, "given up", "ask"))
	w.ok(create(task, "wanted", "ask"))
	w.is(w.Store.Forgo(ctx, task.ID, "wanted"), store.ErrTaken)
	w.ok(create(task, "wanted", "ask")) // finds it
	w.ok(w.Store.Delete(ctx, store.KindCollection, task.ID, "wanted"))
	w.is(create(task, "wanted", "ask"), store.ErrDeleted)
	w.Audit()
}

func testReleaseOnce(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.add(task, 10, 0, 5)
	r := w.Ask(task, "ask", Interval(10, 1))
	f := w.Hold(r)
	var got []int64
	rel := w.ReleaseOf(task, r, f, &got)

	wrong := *rel
	wrong.Count++
	_, err := w.Store.Release(ctx, &wrong)
	w.is(err, store.ErrMismatch)
	wrong = *rel
	wrong.Checksum[0] ^= 1
	_, err = w.Store.Release(ctx, &wrong)
	w.is(err, store.ErrMismatch)
	wrong = *rel
	wrong.Selection = *Interval(10, 2)
	if _, err = w.Store.Release(ctx, &wrong); err == nil {
		t.Fatal("released what was not frozen")
	}
	boom := errors.New("boom")
	wrong = *rel
	wrong.Build = func(*vdaf.AggShare, store.Frozen, []int64) ([]byte, *store.Kept, error) { return nil, nil, boom }
	_, err = w.Store.Release(ctx, &wrong)
	w.is(err, boom)
	if got != nil {
		t.Fatal("Build was called for a release that is refused")
	}
	w.stateIs(task, 10, store.Draining)
	w.Audit()

	calls := 0
	build := rel.Build
	rel.Build = func(sum *vdaf.AggShare, f store.Frozen, noise []int64) ([]byte, *store.Kept, error) {
		calls++
		return build(sum, f, noise)
	}
	first, err := w.Store.Release(ctx, rel)
	w.ok(err)
	w.Reopen(t)
	second, err := w.Store.Release(ctx, rel)
	w.ok(err)
	if calls != 1 || string(first) != string(second) {
		t.Fatalf("Build was called %d times", calls)
	}
	w.Once(got, 0, 5)
	if err := w.Store.Fail(ctx, r, &dap.Problem{Type: dap.ProblemBatchMismatch}); err == nil {
		t.Fatal("a collection that was answered failed")
	}
	w.Audit()
}

func testHugeInterval(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.add(task, 0, 0, 0)
	w.add(task, math.MaxInt64-1, 1, 7)
	r := w.Ask(task, "all", Interval(0, math.MaxUint64))
	f := w.Hold(r)
	if f.Selection != *Interval(0, math.MaxUint64) || f.Span != (dap.Interval{Start: 0, Duration: math.MaxInt64}) {
		t.Fatalf("frozen is %+v", *f)
	}
	var got []int64
	_, err := w.Store.Release(ctx, w.ReleaseOf(task, r, f, &got))
	w.ok(err)
	w.Once(got, 0, 7)
	w.stateIs(task, 1<<40, store.Closed)
	w.stateIs(task, math.MaxUint64-1, store.Closed)
	w.Reopen(t)
	w.stateIs(task, 1<<40, store.Closed)
	if _, _, err := w.Store.Create(ctx, store.KindCollection, task.ID, "", []byte("empty"), true, Interval(3, 0), w.Now); err == nil {
		t.Fatal("an empty interval passed")
	}
	w.Audit()
}

func testLeaderSelectedHolds(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.LeaderSelected, 1)
	w := NewWorld(t, h, task)
	w.add(task, 10, 0, 5)
	w.add(task, 10, 6, 11)
	a, b, c := w.Ask(task, "a", nil), w.Ask(task, "b", nil), w.Ask(task, "c", nil)
	fa, fb := w.Hold(a), w.Hold(b)
	if fa.Selection == fb.Selection {
		t.Fatal("two collections hold one batch")
	}
	_, _, err := w.Store.Drain(ctx, c)
	w.is(err, store.ErrTooSmall)
	// A batch that is held takes no further jobs.
	w.add(task, 10, 12, 14)
	batches, err := w.Store.Batches(ctx, task.ID, 9)
	w.ok(err)
	if len(batches) != 3 || batches[0].Verified != 3 || batches[0].State != store.Open || batches[1].State != store.Draining {
		t.Fatalf("batches are %+v", batches)
	}
	w.ok(w.Store.Fail(ctx, a, &dap.Problem{Type: dap.ProblemBatchMismatch}))
	if fc := w.Hold(c); fc.Selection != fa.Selection || fc.Count != fa.Count || fc.Checksum != fa.Checksum {
		t.Fatalf("the batch given back is %+v, was %+v", fc, fa)
	}
	var got []int64
	_, err = w.Store.Release(ctx, w.ReleaseOf(task, b, fb, &got))
	w.ok(err)
	w.Once(got, 6, 11)
	w.Audit()
}
