package question

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/collector/collectortest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/releases"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// heard is what a run told.
type heard struct{ said []string }

func (h *heard) Resumed()                                { h.said = append(h.said, "resumed") }
func (h *heard) Waits(time.Duration, collector.Progress) {}
func (h *heard) Waited()                                 {}
func (h *heard) LeftOut(end time.Time)                   { h.said = append(h.said, "left out "+stamp(end)) }
func (h *heard) Widened(end, later time.Time) {
	h.said = append(h.said, stamp(end)+" to "+stamp(later))
}
func (h *heard) Notice(words string) { h.said = append(h.said, words) }

// noon is when it is asked, a little after.
var noon = time.Date(2026, 1, 31, 12, 20, 0, 0, time.UTC)

// hour is a time so many hours from noon, and hours a span of them.
func hour(n int) time.Time    { return noon.Truncate(time.Hour).Add(time.Duration(n) * time.Hour) }
func hours(from, to int) Span { return Span{hour(from), hour(to)} }

// hourly is a run of a recipe with rounds of an hour, of which devices are in so many.
func hourly(t *testing.T, leader *collectortest.Leader, rounds uint32, about Span) (*Run, *heard) {
	t.Helper()
	addresses, err := deploy.Loopback()
	if err != nil {
		t.Fatal(err)
	}
	addresses.Close()
	epsilon, err := recipe.ParseDecimal("1")
	if err != nil {
		t.Fatal(err)
	}
	r, err := account.New(account.Options{
		Name: "hourly", Query: recipe.Count{}, Leader: addresses.LeaderURL(), Helper: addresses.HelperURL(), MinBatch: 20,
		Epsilon: epsilon, Rounds: rounds,
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "d")
	if err := deploy.Create(dir, r, addresses); err != nil {
		t.Fatal(err)
	}
	config, err := deploy.LoadCollector(filepath.Join(dir, deploy.CollectorFile))
	if err != nil {
		t.Fatal(err)
	}
	h := new(heard)
	run, err := Open(config, collector.Options{HTTP: leader, Poll: time.Millisecond, MaxPoll: time.Millisecond},
		Options{Timeout: 10 * time.Second, Now: func() time.Time { return noon }, Listener: h})
	if err != nil {
		t.Fatal(err)
	}
	run.About(about)
	task, err := r.Task()
	if err != nil {
		t.Fatal(err)
	}
	leader.Task = task.TaskID()
	return run, h
}

// asks asks what there is to ask; no result ever comes.
func (r *Run) asks(t *testing.T) error {
	t.Helper()
	spans, err := r.Questions()
	if err == nil {
		err = r.Ask(t.Context(), spans, func(*collector.Result) error { return errors.New("a result") })
	}
	if err == nil {
		t.Error("it ended without an error")
	}
	return err
}

// TestNeverFills: a question whose time is over with too few reports is ended at once,
// does not stay in the way of later ones, and comes with one that can be answered.
func TestNeverFills(t *testing.T) {
	for name, c := range map[string]struct {
		rounds uint32
		about  Span
		alone  bool
		wider  Span
	}{
		"several rounds together": {1, hours(-5, -3), false, hours(-5, 1)},
		"each round alone":        {2, hours(-5, -4), true, Span{}},
	} {
		leader := &collectortest.Leader{Waits: releases.ForReports}
		r, _ := hourly(t, leader, c.rounds, c.about)
		err, few := r.asks(t), new(TooFewError)
		if !errors.As(err, &few) || few.Threshold != 20 || few.Asked != c.about || few.Alone != c.alone || few.Wider != c.wider {
			t.Errorf("%s: %+v, %v", name, few, err)
		}
		if leader.Asked != 1 || r.session.Pending() {
			t.Errorf("%s: asked %d times, pending %v", name, leader.Asked, r.session.Pending())
		}
	}
}

// TestSkip: a round that is released alone and never fills is passed over, and the run
// goes on behind it.
func TestSkip(t *testing.T) {
	leader := &collectortest.Leader{Waits: releases.ForReports}
	r, h := hourly(t, leader, 2, hours(-5, -3))
	r.o.Skip = true
	if err := r.asks(t); !errors.Is(err, ErrNoneReady) || leader.Asked != 2 || r.session.Pending() {
		t.Errorf("%v; asked %d times, pending %v", err, leader.Asked, r.session.Pending())
	}
	if want := []string{"left out " + stamp(hour(-4)), "left out " + stamp(hour(-3))}; !slices.Equal(h.said, want) {
		t.Errorf("said %q, want %q", h.said, want)
	}
}

// TestTooEarlyBefore: a question that was asked before there were enough reports does not
// pin what a later one gets: that is asked for all that has come since.
func TestTooEarlyBefore(t *testing.T) {
	leader := &collectortest.Leader{}
	r, h := hourly(t, leader, 1, Span{})
	now := hour(-3).Add(20 * time.Minute)
	r.o.Now, r.o.Timeout = func() time.Time { return now }, 50*time.Millisecond
	unit := dap.Time(noon.Unix() / 3600)
	r.recipe().Window = recipe.Between{Start: unit - 5, End: unit + 24}
	asked := new(AskError)
	if err := r.asks(t); !errors.As(err, &asked) || !errors.Is(err, context.DeadlineExceeded) || !asked.Pending {
		t.Fatalf("%+v, %v", asked, err)
	}
	now, leader.Waits, r.o.Timeout = noon, releases.ForReports, 10*time.Second
	err := r.asks(t)
	if !errors.As(err, new(*TooFewError)) || leader.Asked != 2 || r.session.Pending() {
		t.Errorf("%v; asked %d times, pending %v", err, leader.Asked, r.session.Pending())
	}
	if want := fmt.Sprintf("%s to %s", stamp(hour(-3)), stamp(hour(0))); !slices.Equal(h.said, []string{"resumed", want}) {
		t.Errorf("said %q, want %s", h.said, want)
	}
}

// TestGivesNothingUp: a question that waits for something else, or that has its answer
// when it is to be withdrawn, stays.
func TestGivesNothingUp(t *testing.T) {
	leader := &collectortest.Leader{}
	r, _ := hourly(t, leader, 1, hours(-5, -3))
	r.o.Timeout = 50 * time.Millisecond
	asked := new(AskError)
	if err := r.asks(t); !errors.As(err, &asked) || !asked.Pending || asked.Waits == collector.ForReports || !r.session.Pending() {
		t.Errorf("at work: %+v, %v", asked, err)
	}
	leader.Waits, leader.Kept = releases.ForReports, true
	if gone, err := r.session.Withdraw(t.Context()); gone || err != nil || !r.session.Pending() {
		t.Errorf("withdrawn with its answer: %v, %v", gone, err)
	}
	r.About(hours(-5, -2))
	if err := r.asks(t); !errors.Is(err, deploy.ErrPending) {
		t.Errorf("another question beside it: %v", err)
	}
}

// TestUnasked: what cannot be answered in time is not asked, and so keeps nothing waiting.
func TestUnasked(t *testing.T) {
	half := Span{hour(-4).Add(30 * time.Minute), hour(-2)}
	for name, c := range map[string]struct {
		about  Span
		window bool // of the three hours before noon
		says   string
		want   func(error) bool
	}{
		"the round that runs": {hours(0, 1), false, "nothing was asked", func(err error) bool {
			early := new(EarlyError)
			return errors.As(err, &early) && early.Asked == hours(0, 1) && early.Due.Equal(hour(1)) && early.Wait == 40*time.Minute
		}},
		"the far future": {hours(24*365, 24*366), false, "has not begun", func(err error) bool {
			future := new(FutureError)
			return errors.As(err, &future) && future.Lately == hours(-24, 0)
		}},
		"outside of the window": {hours(-6, -4), true, "and none of " + stamp(hour(-6)), func(err error) bool { return errors.As(err, new(*WindowError)) }},
		"no multiple of an hour": {half, false, "not a multiple of 3600 seconds", func(err error) bool {
			span := new(SpanError)
			return errors.As(err, &span) && span.Around == hours(-4, -2)
		}},
		"nothing": {hours(-2, -2), false, "empty", func(err error) bool {
			span := new(SpanError)
			return errors.As(err, &span) && span.Around.IsZero()
		}},
		"no window": {Span{}, false, "has no window", func(err error) bool {
			span := new(SpanError)
			return errors.As(err, &span) && span.Around == hours(-24, 0)
		}},
	} {
		leader := &collectortest.Leader{}
		r, _ := hourly(t, leader, 1, c.about)
		if c.window {
			unit := dap.Time(noon.Unix() / 3600)
			r.recipe().Window = recipe.Between{Start: unit - 3, End: unit}
		}
		if err := r.asks(t); !c.want(err) || !strings.Contains(err.Error(), c.says) || leader.Asked != 0 || r.session.Pending() {
			t.Errorf("%s: asked %d times; %v", name, leader.Asked, err)
		}
	}
}
