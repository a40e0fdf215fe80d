package sqlite_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/sqlite"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/vdaf"
)

// spreadID is the id of report n of a great many, spread like those that devices draw.
func spreadID(n int) (id dap.ReportID) {
	binary.BigEndian.PutUint64(id[:], uint64(n)*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
}

// many commits reports first to last, the times of which are as at says, to one batch;
// its share is that of nothing.
func many(tb testing.TB, st store.Engine, task *store.Task, batch store.Batch, first, last int, at func(n int) dap.Time) (kept int) {
	tb.Helper()
	ctx := context.Background()
	c := &store.Commit{Task: task.ID, Batches: []store.Batch{batch}}
	for n := first; n <= last; n++ {
		c.Candidates = append(c.Candidates, store.Candidate{ID: spreadID(n), Time: at(n)})
	}
	c.Fold = func([]dap.ReportError) ([]*vdaf.AggShare, error) {
		return []*vdaf.AggShare{task.VDAF.NewAggShare()}, nil
	}
	r, _, err := st.Create(ctx, store.KindAggregation, task.ID, "", fmt.Append(nil, first, last), false, nil, storetest.Epoch)
	if err != nil {
		tb.Fatal(err)
	}
	_, err = st.CommitJob(ctx, r, c, func(verdict []dap.ReportError) ([]byte, error) {
		kept = bytes.Count(fmt.Append(nil, verdict), []byte("0"))
		return []byte("done"), nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return kept
}

// TestCommitsGoSideBySide: a commit is whole while another of the same batch, of other
// reports, folds its shares.
func TestCommitsGoSideBySide(t *testing.T) {
	ctx := t.Context()
	st := newHarness(1).Open(t)
	defer st.Close()
	task := storetest.Task(t, dap.TimeInterval, 1)
	if err := st.PutTask(ctx, task); err != nil {
		t.Fatal(err)
	}
	r, _, err := st.Create(ctx, store.KindAggregation, task.ID, "", []byte("a"), false, nil, storetest.Epoch)
	if err != nil {
		t.Fatal(err)
	}
	batch := store.Batch{Start: 10}
	at := func(int) dap.Time { return 10 }
	c := &store.Commit{Task: task.ID, Batches: []store.Batch{batch}, Candidates: []store.Candidate{{ID: spreadID(1), Time: 10}}}
	c.Fold = func([]dap.ReportError) ([]*vdaf.AggShare, error) {
		if kept := many(t, st, task, batch, 2, 9, at); kept != 8 {
			t.Errorf("%d reports were kept, want 8", kept)
		}
		return []*vdaf.AggShare{task.VDAF.NewAggShare()}, nil
	}
	if _, err := st.CommitJob(ctx, r, c, func([]dap.ReportError) ([]byte, error) { return []byte("done"), nil }); err != nil {
		t.Fatal(err)
	}
	if counts, err := st.Counts(ctx, task.ID); err != nil || counts.Aggregated != 9 {
		t.Errorf("counts are %+v, %v", counts, err)
	}
}

// TestFilesOfAMonth: a task of 5-second buckets over a month keeps a handful of files and
// rows, not one for each.
func TestFilesOfAMonth(t *testing.T) {
	const month = 30 * 24 * 3600 / 5
	mem := disktest.NewMem(1)
	o := options(mem, nil)
	o.RangeIDs = 1 << 17
	st, err := sqlite.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	counts := func() (files, rows int) {
		t.Helper()
		entries, err := mem.ReadDir("runs")
		if err != nil {
			t.Fatal(err)
		}
		live, err := st.LiveFiles(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(entries), len(live)
	}
	// One report in each bucket of the month, by the job.
	task := storetest.Task(t, dap.LeaderSelected, 1)
	if err := st.PutTask(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	const job = 4096
	most := 0
	for first := 0; first < month; first += job {
		last := min(first+job, month) - 1
		kept := many(t, st, task, store.Batch{ID: dap.BatchID{1}}, first, last, func(n int) dap.Time { return dap.Time(n) })
		if kept != last-first+1 {
			t.Fatalf("%d of the reports %d to %d are new", kept, first, last)
		}
		files, _ := counts()
		most = max(most, files)
	}
	// With seven ranges there would be 15 of each at the most.
	files, rows := counts()
	if files != rows || most > 40 {
		t.Errorf("%d buckets have %d files and %d rows, %d files at most", month, files, rows, most)
	}
	t.Logf("%d buckets of one report: %d files at the end, %d at most", month, files, most)
	// The same ids a month later are none of the new.
	for _, first := range []int{0, 100_000, month - job} {
		kept := many(t, st, task, store.Batch{ID: dap.BatchID{1}}, first, first+job-1-1, func(n int) dap.Time { return dap.Time(n + month) })
		if kept != 0 {
			t.Errorf("%d reports from %d on count again", kept, first)
		}
	}
	// A job for each bucket.
	each := storetest.Task(t, dap.TimeInterval, 2)
	if err := st.PutTask(t.Context(), each); err != nil {
		t.Fatal(err)
	}
	const buckets = 400
	for n := range buckets {
		many(t, st, each, store.Batch{Start: dap.Time(n)}, n, n, func(n int) dap.Time { return dap.Time(n) })
	}
	more, rows := counts()
	if more -= files; more > segment.MaxReads || rows != files+more {
		t.Errorf("%d buckets with a job each have %d files, %d rows in all", buckets, more, rows)
	}
	if problems, err := st.Audit(t.Context()); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}
