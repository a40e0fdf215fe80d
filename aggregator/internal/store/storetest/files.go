package storetest

import (
	"context"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

func init() {
	tests["FilesWaitForTheirRows"] = testFilesWaitForTheirRows
	tests["FewFilesForManyBuckets"] = testFewFilesForManyBuckets
}

// testFilesWaitForTheirRows: files go that have a tombstone, and those alone, also while
// the transaction is still to come that names what was just written: a copy of slices, and the
// noise of a release, which a later one leans on.
func testFilesWaitForTheirRows(t *testing.T, h Harness) {
	ctx := context.Background()
	task, series := Task(t, dap.TimeInterval, 1), Task(t, dap.TimeInterval, 2)
	w := NewWorld(t, h, task, series)
	w.Upload(task, 10, 0, 5)
	w.Sort()
	for _, j := range w.Claim(4) {
		w.ok(w.Store.FinishJob(ctx, j, w.CommitOf(task, j)))
	}
	w.dead(1)
	bury := func() { w.ok(w.Store.Bury(ctx)) }
	w.Upload(task, 10, 6, 11)
	w.Reopen(t) // what another life has left is copied
	w.through(&via{do: func(method string, call func(store.Engine) error) error {
		if method == "CommitLog" {
			bury()
			if names := w.unnamed(); len(names) != 1 {
				t.Errorf("files without a row: %q, want the one that was just written", names)
			}
		}
		return call(w.Store)
	}}, w.Sort)
	w.dead(0)
	w.Work(task)
	w.CountsAre(task, store.Counts{Acknowledged: 12, Aggregated: 12})

	w.building = bury
	for round, lean := range []int{0, 1, 2} {
		s := w.series(9)
		made, _, err := w.correlate(series, Interval(dap.Time(20+2*round), 2), 10*round, s, int64(round+1))
		if w.ok(err); made == nil || len(w.noiseFiles()) != min(lean+1, 2) {
			t.Errorf("round %d: %d files are kept", round, len(w.noiseFiles()))
		}
	}
	w.Audit()
}

// testFewFilesForManyBuckets: what the replay protection keeps grows with the reports and
// not with the buckets that they are of.
func testFewFilesForManyBuckets(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	const jobs, reports = 50, 5
	for n := range jobs {
		var batches []store.Batch
		var times []dap.Time
		var numbers [][]int
		for i := range reports {
			at := dap.Time(1000*n + i)
			batches, times, numbers = append(batches, store.Batch{Start: at}), append(times, at), append(numbers, []int{reports*n + i})
		}
		_, err := w.Store.CommitJob(ctx, w.job(task, string(rune('a'+n))), Commit(t, task, batches, times, numbers), reply)
		w.ok(err)
	}
	files, err := w.Store.LiveFiles(ctx)
	if w.ok(err); len(files) > 10 {
		t.Errorf("%d buckets have %d files", jobs*reports, len(files))
	}
	w.CountsAre(task, store.Counts{Acknowledged: jobs * reports, Aggregated: jobs * reports})
	w.Audit()
}
