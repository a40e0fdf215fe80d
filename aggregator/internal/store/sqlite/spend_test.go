package sqlite_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/record"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/sqlite"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// shown are marks of a round, from first to before last, each of a report of its own.
func shown(round uint64, first, last, shift int) (list []store.Spend) {
	for n := first; n < last; n++ {
		mark := spreadID(n + 1)
		list = append(list, store.Spend{Round: round, Mark: store.Mark(mark), Report: storetest.ReportID(n + shift)})
	}
	return list
}

// TestMarksOfManyJobs: the marks of a round lie in few files, however many jobs brought
// them and however their ranges were divided, and each keeps its report.
func TestMarksOfManyJobs(t *testing.T) {
	ctx := t.Context()
	mem := disktest.NewMem(1)
	task := storetest.Task(t, dap.TimeInterval, 1)
	open := func() *sqlite.Store {
		o := options(mem, nil)
		o.RangeIDs = 200
		st, err := sqlite.Open(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.PutTask(ctx, task); err != nil {
			t.Fatal(err)
		}
		return st
	}
	st := open()
	const jobs, each = 250, 5
	for n := range jobs {
		if spent, err := st.Spend(ctx, task.ID, shown(1, n*each, (n+1)*each, 1)); err != nil || slices.Contains(spent, true) {
			t.Fatal(spent, err)
		}
	}
	if live, err := st.LiveFiles(ctx); err != nil || len(live) < 3 || len(live) > 60 {
		t.Errorf("%d jobs left %d files, %v", jobs, len(live), err)
	}
	for range 2 {
		for _, shift := range []int{1, 2} { // the same reports, and others
			spent, err := st.Spend(ctx, task.ID, shown(1, 0, jobs*each, shift))
			if err != nil || slices.Contains(spent, shift == 1) {
				t.Errorf("reports moved by %d: %v", shift-1, err)
			}
		}
		if got, err := st.Spent(ctx, task.ID, 1, 1); err != nil || len(got) != 1 || got[0].Marks != jobs*each {
			t.Errorf("%v, %v", got, err)
		}
		if problems, err := st.Audit(ctx); err != nil || len(problems) > 0 {
			t.Error(problems, err)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		st = open()
	}
	for more, err := true, error(nil); more; {
		if more, err = st.ForgetRound(ctx, task.ID, 1, 3); err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := mem.ReadDir("runs"); err != nil || len(entries) > 0 {
		t.Errorf("a round that was ended left %d files, %v", len(entries), err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestMarkFilesDamaged: where a file of the marks of a round is not what was written, or is
// gone, nothing is spent in the round until it is back, and other rounds go on.
func TestMarkFilesDamaged(t *testing.T) {
	ctx := t.Context()
	mem := disktest.NewMem(1)
	task := storetest.Task(t, dap.TimeInterval, 1)
	st, err := sqlite.Open(ctx, options(mem, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { st.Close() }()
	if err := st.PutTask(ctx, task); err != nil {
		t.Fatal(err)
	}
	spend := func(round uint64, first, last, shift int) ([]bool, error) {
		return st.Spend(ctx, task.ID, shown(round, first, last, shift))
	}
	if _, err := spend(1, 0, 500, 0); err != nil {
		t.Fatal(err)
	}
	files, err := st.LiveFiles(ctx)
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	whole, err := disk.ReadFile(mem, files[0], 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{"turned": nil, "cut": whole[:len(whole)-40], "gone": {}} {
		if name == "turned" { // the report of a mark
			bad = slices.Clone(whole)
			bad[24+16+3] ^= 1
		}
		beside := st.Beside() // which has not read it before
		if len(bad) == 0 {
			err = mem.Remove(files[0])
		} else {
			err = disk.WriteFile(mem, files[0], bad)
		}
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if spent, err := beside.Spend(ctx, task.ID, shown(1, 490, 510, 0)); !errors.Is(err, store.ErrMarks) || spent != nil {
				t.Errorf("%s: %v, %v", name, spent, err)
			}
		}
		if _, err := beside.Spend(ctx, task.ID, shown(2, 490, 510, 0)); err != nil {
			t.Errorf("%s: another round: %v", name, err)
		}
		if problems, err := st.Audit(ctx); err != nil || !strings.Contains(strings.Join(problems, "\n"), "of round 1") {
			t.Errorf("%s: the audit says %q, %v", name, problems, err)
		}
		if err := disk.WriteFile(mem, files[0], whole); err != nil {
			t.Fatal(err)
		}
		if spent, err := beside.Spend(ctx, task.ID, shown(1, 0, 500, 0)); err != nil || slices.Contains(spent, true) {
			t.Errorf("%s, and back: %v", name, err)
		}
		if err := beside.Close(); err != nil {
			t.Error(err)
		}
	}
	// Found out as well by a handle that has it open.
	st.Close()
	if st, err = sqlite.Open(ctx, options(mem, nil)); err != nil {
		t.Fatal(err)
	}
	if err := st.PutTask(ctx, task); err != nil {
		t.Fatal(err)
	}
	if spent, err := spend(1, 0, 500, 0); err != nil || slices.Contains(spent, true) {
		t.Fatal(err)
	}
	bad := slices.Clone(whole)
	bad[24+16+3] ^= 1
	f, err := mem.OpenWrite(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(bad); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if spent, err := spend(1, 0, 500, 0); !errors.Is(err, store.ErrMarks) {
		t.Errorf("an open file that was turned: %v, %v", len(spent), err)
	}
}

// TestRoundEndsMeanwhile: a round that ends between the look at its marks and the commit
// takes none of them, and their file goes; another of the list does.
func TestRoundEndsMeanwhile(t *testing.T) {
	ctx := t.Context()
	h := newHarness(1)
	st := h.Open(t)
	defer st.Close()
	task := storetest.Task(t, dap.TimeInterval, 1)
	if err := st.PutTask(ctx, task); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Spend(ctx, task.ID, shown(1, 0, 3, 0)); err != nil {
		t.Fatal(err)
	}
	ended := false
	h.fail.Arm(segment.FailRunAfterWrite, 0, func() error {
		if ended {
			return nil
		}
		ended = true
		_, err := st.ForgetRound(ctx, task.ID, 1, 9)
		return err
	})
	list := append(shown(1, 2, 5, 0), shown(2, 0, 3, 0)...)
	spent, err := st.Spend(ctx, task.ID, list)
	h.fail.Disarm(segment.FailRunAfterWrite)
	if want := []bool{true, true, true, false, false, false}; err != nil || !ended || !slices.Equal(spent, want) {
		t.Errorf("%v, %v; want %v", spent, err, want)
	}
	for round, want := range map[uint64]uint64{1: 3, 2: 3} {
		if got, err := st.Spent(ctx, task.ID, round, round); err != nil || len(got) != 1 || got[0].Marks != want {
			t.Errorf("round %d has %v, %v", round, got, err)
		}
	}
	live, err := st.(*sqlite.Store).LiveFiles(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := h.mem.ReadDir("runs"); err != nil || len(entries) != len(live) || len(live) != 1 {
		t.Errorf("%d files, of which %d are named, %v", len(entries), len(live), err)
	}
	if problems, err := st.Audit(ctx); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

// TestMarksAreClaimed: while the marks of a list are on their way to the disk another that
// has one of them waits, and one that has others does not.
func TestMarksAreClaimed(t *testing.T) {
	h := newHarness(1)
	st := h.Open(t)
	defer st.Close()
	task := storetest.Task(t, dap.TimeInterval, 1)
	if err := st.PutTask(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	asked := false
	h.fail.Arm(segment.FailRunAfterWrite, 0, func() error {
		if asked {
			return nil
		}
		asked = true
		for _, e := range []store.Engine{st, st.(*sqlite.Store).Beside()} {
			// It never comes to an end before this list does, however long it may wait.
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			if spent, err := e.Spend(ctx, task.ID, shown(1, 2, 3, 50)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("of a mark that is on its way: %v, %v", spent, err)
			}
			cancel()
		}
		spent, err := st.Spend(t.Context(), task.ID, shown(1, 5, 8, 0))
		if err != nil || slices.Contains(spent, true) {
			t.Errorf("of other marks: %v, %v", spent, err)
		}
		return nil
	})
	if spent, err := st.Spend(t.Context(), task.ID, shown(1, 0, 5, 0)); err != nil || !asked || slices.Contains(spent, true) {
		t.Errorf("%v, %v", spent, err)
	}
	h.fail.Disarm(segment.FailRunAfterWrite)
}

// TestMarksAfterRestore: a backup has no files of marks, so a restore ends their rounds:
// nothing is new in them, and nothing is said to be damaged.
func TestMarksAfterRestore(t *testing.T) {
	ctx := t.Context()
	mem := disktest.NewMem(1)
	task := storetest.Task(t, dap.TimeInterval, 1)
	open := func(restoring *sqlite.Restoring) *sqlite.Store {
		o := options(mem, nil)
		o.Restoring = restoring
		st, err := sqlite.Open(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.PutTask(ctx, task); err != nil {
			t.Fatal(err)
		}
		return st
	}
	st := open(nil)
	if _, err := st.Spend(ctx, task.ID, shown(1, 0, 9, 0)); err != nil {
		t.Fatal(err)
	}
	files, err := st.LiveFiles(ctx)
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if err := mem.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	rec, err := record.Open(disk.Sub(mem, "record"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(rec.Raise(), rec.Close()); err != nil {
		t.Fatal(err)
	}
	st = open(&sqlite.Restoring{})
	for range 2 {
		spent, err := st.Spend(ctx, task.ID, shown(1, 7, 12, 0))
		if err != nil || slices.Contains(spent, false) {
			t.Errorf("after a restore: %v, %v", spent, err)
		}
		if got, err := st.Spent(ctx, task.ID, 1, 1); err != nil || len(got) != 1 || got[0].Marks != 9 {
			t.Errorf("%v, %v", got, err)
		}
		if problems, err := st.Audit(ctx); err != nil || len(problems) > 0 {
			t.Error(problems, err)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		st = open(nil)
	}
	st.Close()
}
