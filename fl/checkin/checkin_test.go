package checkin

import (
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

func play(t *testing.T, o Options) *Result {
	t.Helper()
	r, err := Play(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestDummies: empty slots are as many as propositions 3.4 and 4.4 expect, of which a slot of
// a fixed window is empty with probability (1-p0/m)^n and one of a sliding run with
// (1-1/m)^m. The number of empty slots has at most the variance of as many coins, so five
// deviations around the mean are left with probability 10^-6 at most; the seed is fixed.
func TestDummies(t *testing.T) {
	base := Options{Schedule: release.FixedWindow, Clients: 3000, Slots: 3000, Rate: 1, Dimension: 1, Lean: 0.5, Seed: 7}
	for name, c := range map[string]struct {
		change func(*Options)
		slots  int
		empty  float64
	}{
		"a client a slot":    {func(*Options) {}, 3000, math.Pow(1-1./3000, 3000)},
		"half of them":       {func(o *Options) { o.Rate = 0.5 }, 3000, math.Pow(1-0.5/3000, 3000)},
		"ten times as many":  {func(o *Options) { o.Clients = 30000 }, 3000, math.Pow(1-1./3000, 30000)},
		"averages":           {func(o *Options) { o.Schedule = release.AveragedWindow }, 3000, math.Pow(1-1./3000, 3000)},
		"sliding, long":      {func(o *Options) { o.Schedule, o.Slots = release.SlidingWindow, 500 }, 2501, math.Pow(1-1./500, 500)},
		"sliding, two slots": {func(o *Options) { o.Schedule, o.Slots = release.SlidingWindow, 2 }, 2999, 0.25},
	} {
		o := base
		c.change(&o)
		r := play(t, o)
		want := float64(c.slots) * c.empty
		if math.Abs(float64(r.Dummies)-want) > 5*math.Sqrt(want+1) {
			t.Errorf("%s: %d dummies, want about %.1f", name, r.Dummies, want)
		}
		updates := c.slots
		if o.Schedule == release.AveragedWindow {
			updates -= r.Dummies // nobody, no update
			if r.Used != r.Came {
				t.Errorf("%s: %d used of %d", name, r.Used, r.Came)
			}
		} else if r.Used != c.slots-r.Dummies {
			t.Errorf("%s: %d used in %d slots", name, r.Used, c.slots-r.Dummies)
		}
		if r.Updates != updates {
			t.Errorf("%s: %d updates, want %d", name, r.Updates, updates)
		}
		if o.Schedule != release.SlidingWindow {
			came := float64(o.Clients) * o.Rate
			if math.Abs(float64(r.Came)-came) > 5*math.Sqrt(came*(1-o.Rate)) {
				t.Errorf("%s: %d came, want about %.0f", name, r.Came, came)
			}
		}
	}
}

// TestRepeatedRuns: by corollary 3.3 n/m runs at p0 = m/n make n updates, a part 1/e of
// which is by dummies, and each client is used about once at most.
func TestRepeatedRuns(t *testing.T) {
	o := Options{Schedule: release.FixedWindow, Clients: 2000, Slots: 100, Rate: 0.05, Dimension: 1, Lean: 0.5, Runs: 20, Seed: 3}
	r := play(t, o)
	want := 2000 * math.Pow(1-0.05/100, 2000)
	if r.Updates != 2000 || math.Abs(float64(r.Dummies)-want) > 5*math.Sqrt(want) {
		t.Errorf("%d updates, %d by dummies, want 2000 and about %.0f", r.Updates, r.Dummies, want)
	}
}

// TestRiskFalls: with the theorems' step sizes the measured excess risk stays below their
// rates, without the constants and logarithms that these leave out, and falls with the
// number of updates as they do: sixteen times as many leave at most half.
func TestRiskFalls(t *testing.T) {
	risk := func(s release.Schedule, m int) (measured, stated float64) {
		o := Options{Schedule: s, Clients: 4 * m, Slots: m, Rate: 1, Dimension: 10, Lean: 0.3, Sigma: 0.5}
		if s == release.AveragedWindow {
			o.Clients = 16 * m
		}
		for seed := range uint64(6) {
			o.Seed = seed
			measured += play(t, o).Excess / 6
		}
		stated, ok := o.Theorem()
		if !ok {
			t.Fatal("the theorem says nothing")
		}
		return measured, stated
	}
	for _, s := range []release.Schedule{release.FixedWindow, release.AveragedWindow} {
		few, bound := risk(s, 60)
		many, below := risk(s, 960)
		if few > bound || many > below || many > few/2 || many < 0 {
			t.Errorf("%v: excess %.4f of %.4f, and %.4f of %.4f", s, few, bound, many, below)
		}
	}
	// With as few clients as slots more than half of which are dummies nothing is stated.
	thin := Options{Schedule: release.FixedWindow, Clients: 100, Slots: 200, Rate: 1, Dimension: 10, Lean: 0.3, Sigma: 0.5}
	if _, ok := thin.Theorem(); ok {
		t.Error("a rate where 1 - 2 exp(-n p0/m) is below 0")
	}
}

// TestSeeds: a run is its seed's, and another seed's is another.
func TestSeeds(t *testing.T) {
	o := Options{Schedule: release.SlidingWindow, Clients: 200, Slots: 20, Rate: 1, Dimension: 5, Lean: 0.5, Sigma: 1, Seed: 1}
	a, b := play(t, o), play(t, o)
	if o.Seed = 2; *a != *b || *a == *play(t, o) {
		t.Error("the seed does not say what comes")
	}
	for i, change := range []func(*Options){
		func(o *Options) { o.Rate = 0.5 }, func(o *Options) { o.Slots = 201 }, func(o *Options) { o.Lean = 2 }, func(o *Options) { o.Dimension = 0 },
		func(o *Options) { o.Schedule = 9 }, func(o *Options) { o.Sigma = -1 },
	} {
		bad := o
		if change(&bad); bad.Validate() == nil {
			t.Errorf("%d is taken", i)
		}
	}
}
