package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

func init() {
	tests["Views"] = testViews
	tests["ViewsFromTheWidest"] = testViewsFromTheWidest
	tests["ViewsEnd"] = testViewsEnd
	tests["ViewsRetire"] = testViewsRetire
	tests["ViewsAreOfTheTask"] = testViewsAreOfTheTask
}

// week is the first bucket of a week, and of a fortnight, of the suite.
const week = 14 * 50

// sums seal by hand.
type sums struct{}

func (sums) SealSum(bucket dap.Time, aad, sum []byte) (uint64, []byte, error) {
	return 4, append(fmt.Appendf(nil, "box %d %x ", bucket, aad), sum...), nil
}

func (sums) OpenSum(key uint64, aad, box []byte) ([]byte, error) {
	at := bytes.LastIndex(box[:min(len(box), 16+2*len(aad))], fmt.Appendf(nil, "%x ", aad))
	if key != 4 || at < 0 {
		return nil, errors.New("the box is another's")
	}
	return box[at+2*len(aad)+1:], nil
}

// Sums seal by hand under a data key that the store gets.
func Sums(t testing.TB, s store.Engine) store.Sums {
	err := s.NoteDataKey(context.Background(), datakey.SetID{1}, datakey.Record{Serial: 4, From: Epoch, Until: Epoch.Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	return sums{}
}

// viewing is a world with a task of days, weeks and fortnights.
func viewing(t *testing.T, h Harness) (*World, *store.Task) {
	task := Task(t, dap.TimeInterval, 1)
	task.Views = []uint64{1, 7, 14}
	w := NewWorld(t, h, task)
	Sums(t, w.Store)
	for day, numbers := range [][2]int{{0, 4}, {5, 9}, {10, 11}} {
		w.Upload(task, week+dap.Time(day), numbers[0], numbers[1])
	}
	w.Upload(task, week+8, 12, 17)
	w.Sort()
	w.Work(task)
	return w, task
}

// draw releases a span to a collection of its own, and demands of it reports first to last.
func (w *World) draw(task *store.Task, start dap.Time, n dap.Duration, first, last int) *store.Resource {
	w.t.Helper()
	var got []int64
	r := w.Ask(task, fmt.Sprintf("%d from %d", n, start), Interval(start, n))
	rel := w.ReleaseOf(task, r, w.Hold(r), &got)
	rel.Sums = sums{}
	_, err := w.Store.Release(context.Background(), rel)
	w.ok(err)
	w.Once(got, first, last)
	w.Audit()
	return r
}

// refused demands of a question that it finds what was released.
func (w *World) refused(task *store.Task, start dap.Time, n dap.Duration, want error) {
	w.t.Helper()
	for _, kind := range []store.Kind{store.KindCollection, store.KindShare} {
		_, _, err := w.Store.Create(context.Background(), kind, task.ID, "", fmt.Appendf(nil, "again %d %d", start, n), true, Interval(start, n), w.Now)
		if !errors.Is(err, want) {
			w.t.Errorf("%d buckets from %d: %v, want %v", n, start, err, want)
		}
	}
}

// shut demands that a batch bucket without reports takes none.
func (w *World) shut(task *store.Task, bucket dap.Time) {
	w.t.Helper()
	ctx := context.Background()
	if state, err := w.Store.BatchState(ctx, task.ID, store.Batch{Start: bucket}); err != nil || state != store.Closed {
		w.t.Errorf("a bucket without reports is %v, %v", state, err)
	}
	r, _, err := w.Store.Create(ctx, store.KindAggregation, task.ID, "", fmt.Appendf(nil, "shut %d", bucket), false, nil, w.Now)
	w.ok(err)
	_, err = w.Store.CommitJob(ctx, r, Commit(w.t, task, []store.Batch{{Start: bucket}}, []dap.Time{bucket}, [][]int{{99}}),
		func(verdict []dap.ReportError) ([]byte, error) {
			if verdict[0] != dap.BatchCollected {
				w.t.Errorf("the verdict about a report of a bucket that is shut is %v", verdict[0])
			}
			return []byte("done"), nil
		})
	w.ok(err)
}

// kept demands how many sums are kept.
func (w *World) kept(want int) {
	w.t.Helper()
	if n := w.h.Sums(w.t.(*testing.T)); n != want {
		w.t.Errorf("%d sums are kept, want %d", n, want)
	}
}

// testViews: each span of each view is released once, with the reports that were there when
// its buckets were first released, and nothing else is.
func testViews(t *testing.T, h Harness) {
	ctx := context.Background()
	w, task := viewing(t, h)
	day := w.draw(task, week, 1, 0, 4)
	w.CountsAre(task, store.Counts{Acknowledged: 18, Aggregated: 18, Collected: 5})
	batches, err := w.Store.Batches(ctx, task.ID, 9)
	w.ok(err)
	for _, b := range batches {
		if first := b.Batch.Start == week; b.Kept != first || (b.State == store.Closed) != first || first && b.Verified != 5 {
			t.Errorf("%+v", b)
		}
	}
	w.Reopen(t)
	w.Audit()
	w.refused(task, week, 1, store.ErrOverlap)
	for _, odd := range [][2]int{{0, 2}, {1, 7}, {-1, 7}, {0, 8}, {0, 21}, {7, 14}} { // of no view
		w.refused(task, week+dap.Time(odd[0]), dap.Duration(odd[1]), store.ErrOverlap)
	}
	// A bucket that one view has takes no report any more, from a log or by a job.
	if state, err := w.Store.BatchState(ctx, task.ID, store.Batch{Start: week}); err != nil || state != store.Closed {
		t.Errorf("the bucket is %v, %v", state, err)
	}
	w.Upload(task, week, 20, 21)
	w.Sort()
	w.CountsAre(task, store.Counts{Acknowledged: 20, Aggregated: 18, Collected: 5, Rejected: map[dap.ReportError]uint64{dap.BatchCollected: 2}})
	r, _, err := w.Store.Create(ctx, store.KindAggregation, task.ID, "", []byte("late"), false, nil, w.Now)
	w.ok(err)
	_, err = w.Store.CommitJob(ctx, r, Commit(t, task, []store.Batch{{Start: week}, {Start: week + 3}}, []dap.Time{week, week + 3}, [][]int{{22}, {23}}),
		func(verdict []dap.ReportError) ([]byte, error) {
			if verdict[0] != dap.BatchCollected || verdict[1] != 0 {
				t.Errorf("verdicts %v", verdict)
			}
			return []byte("done"), nil
		})
	w.ok(err)
	// The week has the day's reports too, and those of days with too few.
	var got []int64
	ask := w.Ask(task, "the week", Interval(week, 7))
	rel := w.ReleaseOf(task, ask, w.Hold(ask), &got)
	rel.Sums = sums{}
	response, err := w.Store.Release(ctx, rel)
	w.ok(err)
	if got[23] != 1 {
		t.Error("a report that came in time is not in the week")
	}
	got[23] = 0
	w.Once(got, 0, 11)
	w.shut(task, week+5)
	w.Reopen(t)
	w.Audit()
	if again, err := w.Store.Release(ctx, rel); err != nil || !bytes.Equal(again, response) {
		t.Errorf("the same request got %q, %v", again, err)
	}
	w.refused(task, week, 7, store.ErrOverlap)
	w.refused(task, week, 1, store.ErrOverlap)
	w.shut(task, week+5)
	w.draw(task, week+1, 1, 5, 9)
	few := w.Ask(task, "too few", Interval(week+2, 1))
	if _, _, err := w.Store.Drain(ctx, few); !errors.Is(err, store.ErrTooSmall) {
		t.Errorf("a day of two: %v", err)
	}
	w.draw(task, week+8, 1, 12, 17)
	w.draw(task, week+7, 7, 12, 17)
	ask = w.Ask(task, "the fortnight", Interval(week, 14))
	rel = w.ReleaseOf(task, ask, w.Hold(ask), &got)
	rel.Sums = sums{}
	_, err = w.Store.Release(ctx, rel)
	w.ok(err)
	got[23] = 0
	w.Once(got, 0, 17)
	w.Audit()
	w.CountsAre(task, store.Counts{Acknowledged: 23, Aggregated: 19, Collected: 19, Rejected: map[dap.ReportError]uint64{dap.BatchCollected: 4}})
	list, err := w.Store.ReleasesAfter(ctx, task.ID, 0, 99)
	w.ok(err)
	if len(list) != 6 {
		t.Errorf("the ledger has %d releases, want 6", len(list))
	}
	// The days with too few are not drawn, and their sums wait.
	w.kept(2)
	w.ok(w.Store.EndViews(ctx, task.ID, week+14))
	w.kept(0)
	w.Audit()
	if res, err := w.Store.Resource(ctx, store.KindCollection, task.ID, day.ID); err != nil || string(res.Response) != "the response" {
		t.Errorf("the day's answer is %q, %v", res.Response, err)
	}
}

// testViewsFromTheWidest: the order in which views are drawn is the collector's, and a sum is
// gone when the last of its views has it.
func testViewsFromTheWidest(t *testing.T, h Harness) {
	w, task := viewing(t, h)
	w.draw(task, week, 14, 0, 17)
	w.kept(4)
	w.Reopen(t)
	w.draw(task, week, 1, 0, 4)
	w.kept(4)
	w.draw(task, week, 7, 0, 11)
	w.kept(3) // the first day's is gone
	w.draw(task, week+1, 1, 5, 9)
	w.draw(task, week+8, 1, 12, 17)
	w.kept(2)
	w.draw(task, week+7, 7, 12, 17)
	w.kept(1)
	w.Reopen(t)
	w.Audit()
	w.CountsAre(task, store.Counts{Acknowledged: 18, Aggregated: 18, Collected: 18})
}

// testViewsEnd: what is over takes nothing, releases nothing and keeps no sum; what comes
// after it goes on.
func testViewsEnd(t *testing.T, h Harness) {
	ctx := context.Background()
	w, task := viewing(t, h)
	w.draw(task, week, 1, 0, 4)
	w.kept(1)
	held := w.Ask(task, "held", Interval(week+1, 1))
	w.Hold(held)
	w.is(w.Store.EndViews(ctx, task.ID, week+7), store.ErrBusy)
	w.kept(1)
	w.ok(w.Store.Fail(ctx, held, &dap.Problem{Type: dap.ProblemBatchInvalid, Status: 400}))
	w.Upload(task, week+3, 30, 32)
	w.Sort()
	w.ok(w.Store.EndViews(ctx, task.ID, week+7))
	w.ok(w.Store.EndViews(ctx, task.ID, week))
	w.kept(0)
	for range 2 {
		w.Audit()
		w.CountsAre(task, store.Counts{Acknowledged: 21, Aggregated: 18, Collected: 5, Rejected: map[dap.ReportError]uint64{dap.BatchCollected: 3}})
		for _, over := range [][2]int{{0, 1}, {1, 1}, {0, 7}, {0, 14}} {
			w.refused(task, week+dap.Time(over[0]), dap.Duration(over[1]), store.ErrOver)
		}
		if state, err := w.Store.BatchState(ctx, task.ID, store.Batch{Start: week + 6}); err != nil || state != store.Closed {
			t.Errorf("a bucket that is over is %v, %v", state, err)
		}
		w.Reopen(t)
	}
	w.Upload(task, week+4, 33, 34)
	w.Sort()
	w.CountsAre(task, store.Counts{Acknowledged: 23, Aggregated: 18, Collected: 5, Rejected: map[dap.ReportError]uint64{dap.BatchCollected: 5}})
	w.draw(task, week+7, 7, 12, 17)
	w.draw(task, week+8, 1, 12, 17)
	other := Task(t, dap.TimeInterval, 2)
	w.ok(w.Store.PutTask(ctx, other))
	if err := w.Store.EndViews(ctx, other.ID, week); err == nil {
		t.Error("views of a task without any were ended")
	}
}

// testViewsRetire: sums go with their task.
func testViewsRetire(t *testing.T, h Harness) {
	ctx := context.Background()
	w, task := viewing(t, h)
	task.End = Epoch.Add(24 * time.Hour)
	w.ok(w.Store.PutTask(ctx, task))
	w.draw(task, week, 1, 0, 4)
	w.draw(task, week, 7, 0, 11)
	w.kept(3)
	w.Now = task.End
	w.ok(w.Store.Retire(ctx, task.ID, w.Now))
	for more := true; more; {
		var err error
		more, err = w.Store.Sweep(ctx, task.ID, 2)
		w.ok(err)
		w.Audit()
	}
	w.kept(0)
	w.CountsAre(task, store.Counts{Acknowledged: 18, Aggregated: 18, Collected: 12})
	w.is(w.Store.EndViews(ctx, task.ID, week+14), store.ErrNotFound)
	if list, err := w.Store.Viewed(ctx); err != nil || len(list) != 0 {
		t.Errorf("%v have views, %v", list, err)
	}
}

// testViewsAreOfTheTask: a task has the views that it came with, and none that make no sense.
func testViewsAreOfTheTask(t *testing.T, h Harness) {
	ctx := context.Background()
	w, task := viewing(t, h)
	w.Reopen(t)
	if list, err := w.Store.Viewed(ctx); err != nil || len(list) != 1 || list[0] != task.ID {
		t.Errorf("%v have views, %v", list, err)
	}
	for _, views := range [][]uint64{nil, {1, 7}, {1, 7, 28}} {
		other := *task
		other.Views = views
		w.is(w.Store.PutTask(ctx, &other), store.ErrDifferent)
	}
	for _, views := range [][]uint64{{0}, {7, 7}, {7, 10}, {7, 1}, {1 << 63}} {
		other := Task(t, dap.TimeInterval, 3)
		other.Views = views
		if err := w.Store.PutTask(ctx, other); err == nil {
			t.Errorf("views of %v were taken", views)
		}
	}
	selected := Task(t, dap.LeaderSelected, 4)
	selected.Views = []uint64{1, 7}
	if err := w.Store.PutTask(ctx, selected); err == nil {
		t.Error("a leader-selected task has views")
	}
}
