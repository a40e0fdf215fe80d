package storetest

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/vdaf"
)

func init() {
	tests["CorrelatedNoise"] = testCorrelatedNoise
	tests["CorrelatedNoiseIsKept"] = testCorrelatedNoiseIsKept
	tests["CorrelatedNoiseIsSwept"] = testCorrelatedNoiseIsSwept
	tests["CorrelatedNoiseOfBatchIDs"] = testCorrelatedNoiseOfBatchIDs
}

// series has three bands over rounds of two buckets, for devices that stay away four
// rounds.
func (w *World) series(rounds uint64) *store.Series {
	w.t.Helper()
	strategy, err := correlated.SquareRoot(3, 4)
	w.ok(err)
	return &store.Series{Rule: correlated.Series{Strategy: strategy, Separation: 4, Rounds: rounds}, Units: 2}
}

// drawn is a draw for each element.
func drawn(factor int64) []int64 {
	z := make([]int64, Elements)
	for i := range z {
		z[i] = factor * int64(i-100)
	}
	return z
}

// correlate releases the five reports from first on, in the last of the buckets, as a
// helper does; made is the noise that Build saw.
func (w *World) correlate(task *store.Task, buckets *store.Selection, first int, s *store.Series, factor int64) (made []int64, response string, err error) {
	w.t.Helper()
	ctx := context.Background()
	at := buckets.Interval.Start + dap.Time(buckets.Interval.Duration) - 1
	body := fmt.Appendf(nil, "job %d", first)
	r, _, err := w.Store.Create(ctx, store.KindAggregation, task.ID, "", body, false, nil, w.Now)
	w.ok(err)
	numbers := []int{first, first + 1, first + 2, first + 3, first + 4}
	_, err = w.Store.CommitJob(ctx, r, Commit(w.t, task, []store.Batch{{Start: at}}, []dap.Time{at}, [][]int{numbers}),
		func([]dap.ReportError) ([]byte, error) { return []byte("done"), nil })
	w.ok(err)
	share, _, err := w.Store.Create(ctx, store.KindShare, task.ID, "", fmt.Appendf(nil, "share %d", first), false, buckets, w.Now)
	w.ok(err)
	out, err := w.Store.Release(ctx, &store.Release{
		Resource: share.ID, Task: task.ID, Kind: store.KindShare, Selection: *buckets, Count: 5, Checksum: checksum(first, first+4),
		Debit: "none", Series: s,
		Draw: func(*vdaf.AggShare, store.Frozen) ([]int64, error) { return drawn(factor), nil },
		Build: func(_ *vdaf.AggShare, _ store.Frozen, noise []int64) ([]byte, *store.Kept, error) {
			if w.building != nil {
				w.building()
			}
			made = slices.Clone(noise)
			return fmt.Appendf(nil, "noise %d", made[0]), nil, nil
		},
	})
	return made, string(out), err
}

// noiseFiles are the live ones.
func (w *World) noiseFiles() (names []string) {
	w.t.Helper()
	all, err := w.Store.LiveFiles(context.Background())
	w.ok(err)
	for _, name := range all {
		if path.Ext(name) == ".noise" {
			names = append(names, name)
		}
	}
	return names
}

// noise demands how many releases have noise that is kept.
func (w *World) noise(want int) {
	w.t.Helper()
	if got := w.h.Noise(w.t.(*testing.T)); got != want {
		w.t.Errorf("the noise of %d releases is kept, want %d", got, want)
	}
}

// testCorrelatedNoise: each release leans on the last two before it that no device can be
// in too; never out of order, never longer than a device stays away, never more often
// than the series is long; and the state outlives the process.
func testCorrelatedNoise(t *testing.T, h Harness) {
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	var past [][]int64
	step := func(buckets *store.Selection, first int, draw int64, lean int) {
		t.Helper()
		s := w.series(5)
		want, err := s.Rule.Strategy.Next(past[:lean], drawn(draw))
		w.ok(err)
		w.ok(w.Store.Order(context.Background(), task.ID, s, *buckets))
		made, _, err := w.correlate(task, buckets, first, s, draw)
		w.ok(err)
		if !slices.Equal(made, want) {
			t.Fatalf("%+v: noise %v..., want %v...", buckets, made[:4], want[:4])
		}
		past = slices.Insert(past, 0, made)
		w.Audit()
		w.Reopen(t)
	}
	refused := func(buckets *store.Selection, first int, want correlated.OrderError) {
		t.Helper()
		made, _, err := w.correlate(task, buckets, first, w.series(5), 1)
		if asked := w.Store.Order(context.Background(), task.ID, w.series(5), *buckets); asked == nil {
			t.Fatalf("%+v is in order", buckets)
		}
		var order *correlated.OrderError
		if !errors.As(err, &order) || *order != want || made != nil {
			t.Fatalf("%+v: %v, want %v", buckets, err, &want)
		}
		w.Audit()
	}
	step(Interval(20, 2), 0, 7, 0)  // round 10
	step(Interval(22, 2), 10, 5, 1) // round 11
	step(Interval(26, 2), 20, 3, 2) // round 13; 10 to 13 is below the separation
	refused(Interval(24, 2), 30, correlated.OrderError{Asked: correlated.Span{First: 12, Last: 12}, Last: 13, Late: true})
	refused(Interval(28, 10), 40, correlated.OrderError{Asked: correlated.Span{First: 14, Last: 18}, Separation: 4})
	step(Interval(28, 6), 50, 2, 1) // rounds 14 to 16; 13 to 16 is near, 11 to 16 is not
	w.noise(2)
	step(Interval(90, 1), 60, 9, 0) // the last one
	w.noise(0)
	refused(Interval(92, 1), 70, correlated.OrderError{Asked: correlated.Span{First: 46, Last: 46}, Rounds: 5})
}

// testCorrelatedNoiseIsKept: the same request has the same answer; what fails leaves no
// noise; a file that changed is not leaned on.
func testCorrelatedNoiseIsKept(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	made, first, err := w.correlate(task, Interval(20, 2), 0, w.series(9), 7)
	w.ok(err)
	again, second, err := w.correlate(task, Interval(20, 2), 0, w.series(9), 8)
	w.ok(err)
	if again != nil || first != second || made == nil {
		t.Fatalf("answered %q, then %q", first, second)
	}
	files := w.noiseFiles()
	boom := errors.New("boom")
	for _, at := range []string{"store.noise.after-write", "store.release.before-commit"} {
		h.Failpoints().Arm(at, 0, func() error { return boom })
		_, _, err := w.correlate(task, Interval(22, 2), 10, w.series(9), 1)
		h.Failpoints().Disarm(at)
		w.is(err, boom)
		if now := w.noiseFiles(); !slices.Equal(now, files) {
			t.Fatalf("after a failure noise files are %q, were %q", now, files)
		}
		entries, err := h.FS().ReadDir("runs")
		w.ok(err)
		n := 0
		for _, e := range entries {
			if path.Ext(e.Name) == ".noise" {
				n++
			}
		}
		if n != 1 {
			t.Fatalf("%s: %d noise files on the disk, want 1", at, n)
		}
	}
	content, err := disk.ReadFile(h.FS(), files[0], 1<<20)
	w.ok(err)
	content[len(content)-1] ^= 1
	w.ok(disk.WriteFile(h.FS(), files[0], content))
	if _, _, err = w.correlate(task, Interval(22, 2), 10, w.series(9), 1); err == nil {
		t.Fatal("leaned on a file that changed")
	}
	content[len(content)-1] ^= 1
	w.ok(disk.WriteFile(h.FS(), files[0], content))
	_, _, err = w.correlate(task, Interval(22, 2), 10, w.series(9), 1)
	w.ok(err)
	w.ok(h.FS().Remove(files[0]))
	problems, err := w.Store.Audit(ctx)
	w.ok(err)
	if len(problems) != 1 {
		t.Errorf("the audit says %q about a missing noise file", problems)
	}
}

// testCorrelatedNoiseIsSwept: with a retired task goes what its next releases would have
// leaned on; another's stays.
func testCorrelatedNoiseIsSwept(t *testing.T, h Harness) {
	ctx := context.Background()
	task, other := Task(t, dap.TimeInterval, 1), Task(t, dap.TimeInterval, 2)
	task.End = Epoch.Add(24 * time.Hour)
	w := NewWorld(t, h, task, other)
	for i, of := range []*store.Task{task, other, task} {
		_, _, err := w.correlate(of, Interval(dap.Time(20+2*i), 2), 10*i, w.series(9), 7)
		w.ok(err)
	}
	w.noise(3)
	w.Now = task.End
	w.ok(w.Store.Retire(ctx, task.ID, w.Now))
	w.Audit()
	for more := true; more; {
		var err error
		more, err = w.Store.Sweep(ctx, task.ID, 1)
		w.ok(err)
		w.Audit()
	}
	w.noise(1) // the other task's
}

func testCorrelatedNoiseOfBatchIDs(t *testing.T, h Harness) {
	task := Task(t, dap.LeaderSelected, 1)
	w := NewWorld(t, h, task)
	err := w.Store.Order(context.Background(), task.ID, w.series(5), store.Selection{ID: dap.BatchID{1}})
	if err == nil || errors.Is(err, store.ErrNotFound) {
		t.Errorf("correlated noise for a leader-selected batch: %v", err)
	}
}
