package lab

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/client/credentials"
	"github.com/starling-agg/starling/lab/internal/randhie"
	"github.com/starling-agg/starling/recipe"
)

// TestEpochTooEarly: where the machine is slower than was thought an epoch begins before
// all devices have visited. Nobody is counted in it; the lab begins anew with a later
// one, in which every device is, and says so. One that stays too slow ends with that.
func TestEpochTooEarly(t *testing.T) {
	t.Parallel()
	visits, err := randhie.Visits()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Population: 400, Sampling: recipe.Rational{Num: 4, Den: 5}, Credentials: true,
		Frame: Frame{Epsilon: decimal("4"), Keep: filepath.Join(t.TempDir(), "kept"), Out: t.TempDir()}}.WithDefaults()
	h := &histogram{o: o, found: &Report{}, query: visitsRecipe}
	h.ask(resample(visits, o.Population))
	s := &population{histogram: h}
	f := newFrame(o.Frame)
	begun := 0 // visits of all devices
	all := acts(f, s)
	all[0].do = func(ctx context.Context) error {
		if begun++; begun == 1 {
			f.counting.begin = time.Now() // devices go by the manifest, in which it is later
			return &lateError{done: 100, in: time.Second, cause: credentials.ErrTooLate}
		}
		return f.enrol(ctx)
	}
	f.tempo = tempo{start: 2 * time.Second, visit: 5 * time.Millisecond, slack: slack}
	if err := f.inTime(t.Context(), s.pose, all...); err != nil {
		t.Fatal(err)
	}
	r := s.report(f)
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	if c := r.Counted; f.again < 1 || c == nil || c.TooEarly != f.again || c.Leader != 400 || c.Attested != 400 || r.Accepted != r.Sent {
		t.Errorf("again %d: %+v", f.again, r.Counted)
	}
	if f.tempo.visit < 10*time.Millisecond || f.tempo.slack <= slack {
		t.Errorf("the later epoch is by the tempo %+v", f.tempo)
	}
	var text strings.Builder
	if err := r.WriteText(&text, 100, true); err != nil || !strings.Contains(strings.Join(strings.Fields(text.String()), " "), times(f.again)+" an epoch began before all had visited") {
		t.Errorf("the report does not say it: %v", err)
	}

	// Its first epoch is over before anybody can have visited, and so are the later ones, of
	// which one may be over before all parties have started.
	o.Keep = ""
	f = newFrame(o.Frame)
	err = f.inTime(t.Context(), s.pose, act{enrolling, func(ctx context.Context) error {
		f.tempo = tempo{start: 2 * time.Second}
		return &lateError{cause: credentials.ErrTooLate}
	}})
	late := new(lateError)
	if !errors.As(err, &late) || f.again != restarts || !strings.Contains(err.Error(), "fewer devices") {
		t.Errorf("again %d times: %v", f.again, err)
	}
}

// TestVisitsTooLate: devices that find the epoch begun are refused, and nothing is opened for
// those that were not.
func TestVisitsTooLate(t *testing.T) {
	t.Parallel()
	o := Options{Population: 400, Sampling: recipe.Rational{Num: 4, Den: 5}, Credentials: true,
		Frame: Frame{Epsilon: decimal("4"), Out: t.TempDir()}}.WithDefaults()
	late := new(lateError)
	for start := 10 * time.Second; ; start *= 2 {
		s := &population{histogram: &histogram{o: o, found: &Report{}, query: visitsRecipe}}
		f := newFrame(o.Frame)
		f.tempo = tempo{start: start, slack: 1}
		began := false
		err := f.run(t.Context(), s.pose, act{enrolling, func(ctx context.Context) error {
			began = true
			select {
			case <-time.After(time.Until(f.counting.begin)):
			case <-ctx.Done():
				return ctx.Err()
			}
			return f.enrol(ctx)
		}})
		if !errors.As(err, &late) || began && !errors.Is(err, credentials.ErrTooLate) || late.done != 0 || start > time.Minute {
			t.Fatalf("%v", err)
		}
		if began {
			return
		}
		t.Logf("%v; again", err) // the machine was too busy to start all parties before
	}
}

// TestTempo: an epoch is as late as start and visits want, and later where these took longer.
func TestTempo(t *testing.T) {
	p := tempo{start: 2 * time.Second, visit: 10 * time.Millisecond, slack: 1.5}
	if got, want := p.until(1000), spare+18*time.Second; got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if q := p.longer(time.Second, 100, 4*time.Second); q != (tempo{2 * time.Second, 40 * time.Millisecond, 2.25}) {
		t.Errorf("%+v", q)
	}
	if q := p.longer(3*time.Second, 0, 0); q != (tempo{3 * time.Second, 10 * time.Millisecond, 2.25}) {
		t.Errorf("%+v", q)
	}
}
