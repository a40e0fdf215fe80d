package release

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// TestDescribe: the ledger's words are exact, so that an auditor can compute from them.
func TestDescribe(t *testing.T) {
	g, err := noise.NewDiscreteGaussian(50, 4)
	if err != nil {
		t.Fatal(err)
	}
	l, err := noise.NewDiscreteLaplace(7, 2)
	if err != nil {
		t.Fatal(err)
	}
	for want, n := range map[string]noise.Sampler{
		"discrete gaussian, sigma^2 = 25/2": g, "discrete laplace, scale = 7/2": l, "no noise": noise.Zero{},
	} {
		if got := Describe(n); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	s, err := correlated.New(3, []int32{4, -2})
	if err != nil {
		t.Fatal(err)
	}
	series := &task.Task{Noise: g, Series: &aggregator.Series{Series: correlated.Series{Strategy: s, Separation: 7, Rounds: 9}, Units: 1}}
	const want = "discrete gaussian, sigma^2 = 25/2 in units of 2^-3; correlated over releases, c = [4 -2], separation 7"
	if got := Mechanism(series, store.Selection{}); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestNoiseInputs: what the noise of a sum depends on, one by one, and nothing else of a
// release. Five draws of deviation 2^20 are equal by chance once in 10^30.
func TestNoiseInputs(t *testing.T) {
	ctx := context.Background()
	keys, err := datakey.Open(ctx, datakey.Options{FS: disktest.NewMem(1), Book: noBook{}})
	if err != nil {
		t.Fatal(err)
	}
	key, err := keys.At(ctx, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	next, err := keys.At(ctx, time.Now().Add(datakey.DefaultPeriod))
	if err != nil {
		t.Fatal(err)
	}
	v, err := prio3.NewHistogram(2, 5, 2)
	if err != nil {
		t.Fatal(err)
	}
	of := func(first int64) *vdaf.AggShare {
		share := v.NewAggShare()
		if err := share.AddSigned([]int64{first, 2, 3, 4, 5}); err != nil {
			t.Fatal(err)
		}
		return share
	}
	wide, err := noise.NewDiscreteGaussian(1<<40, 1)
	if err != nil {
		t.Fatal(err)
	}
	wider, err := noise.NewDiscreteGaussian(1<<40+1, 1)
	if err != nil {
		t.Fatal(err)
	}
	a := &task.Task{ID: dap.TaskID{1}, Noise: wide}
	frozen := store.Frozen{Count: 12, Span: dap.Interval{Start: 7, Duration: 2}}
	draw := func(key *datakey.Key, t *task.Task, sum *vdaf.AggShare, f store.Frozen) []int64 {
		z := make([]int64, 5)
		sample(key, t, sum, &f, z)
		return z
	}
	want := draw(key, a, of(1), frozen)
	named := frozen
	named.Selection = store.Selection{ID: dap.BatchID{9}, Interval: dap.Interval{Start: 0, Duration: 100}}
	named.Checksum = dap.Checksum{1}
	if !slices.Equal(draw(key, a, of(1), named), want) {
		t.Error("the noise depends on a batch's name")
	}
	count, start, duration := frozen, frozen, frozen
	count.Count, start.Span.Start, duration.Span.Duration = 13, 8, 1
	seen := map[string]bool{fmt.Sprint(want): true}
	for what, got := range map[string][]int64{
		"key":       draw(next, a, of(1), frozen),
		"task":      draw(key, &task.Task{ID: dap.TaskID{2}, Noise: wide}, of(1), frozen),
		"mechanism": draw(key, &task.Task{ID: dap.TaskID{1}, Noise: wider}, of(1), frozen),
		"share":     draw(key, a, of(2), frozen),
		"count":     draw(key, a, of(1), count),
		"start":     draw(key, a, of(1), start),
		"duration":  draw(key, a, of(1), duration),
	} {
		if seen[fmt.Sprint(got)] {
			t.Errorf("the noise does not depend on the %s", what)
		}
		seen[fmt.Sprint(got)] = true
	}
	// A week in which one day has reports has its sum, and noise of its own.
	a.Calendar = &aggregator.Calendar{Units: 1, Alone: true, Views: &aggregator.Views{Wider: []aggregator.View{{Rounds: 7, Noise: wide}}, Keep: 1}}
	day, week := frozen, frozen
	day.Selection.Interval, week.Selection.Interval = dap.Interval{Start: 7, Duration: 1}, dap.Interval{Start: 7, Duration: 7}
	if !slices.Equal(draw(key, a, of(1), day), want) {
		t.Error("the noise of a round depends on whether there are views")
	}
	if slices.Equal(draw(key, a, of(1), week), want) {
		t.Error("two views of one sum have one draw of noise")
	}
}

// noBook remembers nothing.
type noBook struct{}

func (noBook) DataKeys(context.Context) (set datakey.SetID, keys []datakey.Record, err error) {
	return set, nil, nil
}
func (noBook) NoteDataKey(context.Context, datakey.SetID, datakey.Record) error { return nil }
func (noBook) EndDataKey(context.Context, uint64) error                         { return nil }

// TestDrawAsksNoStore: the functions that a release hands to the store run under its locks.
// They write nothing there, also where a data key has come due since the last step.
func TestDrawAsksNoStore(t *testing.T) {
	ctx := t.Context()
	book, clock := new(strictBook), &setClock{Clock: disk.SystemClock, now: time.Unix(1_700_000_000, 0)}
	keys, err := datakey.Open(ctx, datakey.Options{FS: disktest.NewMem(1), Book: book, Clock: clock, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	made := book.notes
	clock.now = clock.now.Add(3 * datakey.DefaultPeriod)
	v, err := prio3.NewHistogram(2, 5, 2)
	if err != nil {
		t.Fatal(err)
	}
	sampler, err := noise.NewDiscreteGaussian(1<<40, 1)
	if err != nil {
		t.Fatal(err)
	}
	of := &task.Task{VDAF: v, Noise: sampler, Config: &dap.TaskConfiguration{BatchMode: dap.LeaderSelected, TimePrecision: 3600}}
	s := &drawing{book: book, task: of, span: dap.Interval{Start: dap.Time(clock.now.Unix() / 3600), Duration: 1}}
	if _, err := Once(ctx, s, &Request{Task: of, Keys: keys, Now: clock.now}); err != nil {
		t.Fatal(err)
	}
	if book.notes == made || len(s.noise) != 5 {
		t.Errorf("%d keys were made, %d elements of noise drawn", book.notes-made, len(s.noise))
	}
	if book.broken {
		t.Error("a data key was noted inside the callback of a release")
	}
}

type setClock struct {
	disk.Clock
	now time.Time
}

func (c *setClock) Now() time.Time { return c.now }

// strictBook takes no note while a callback runs.
type strictBook struct {
	noBook
	notes          int
	inside, broken bool
}

func (b *strictBook) NoteDataKey(context.Context, datakey.SetID, datakey.Record) error {
	b.notes++
	b.broken = b.broken || b.inside
	return nil
}

// drawing is a store as far as Draw.
type drawing struct {
	store.Releases
	book  *strictBook
	task  *task.Task
	span  dap.Interval
	noise []int64
}

func (d *drawing) Release(_ context.Context, rel *store.Release) (_ []byte, err error) {
	d.book.inside = true
	defer func() { d.book.inside = false }()
	d.noise, err = rel.Draw(d.task.VDAF.NewAggShare(), store.Frozen{Count: 5, Span: d.span})
	return nil, err
}
