package accountant

import (
	"errors"
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

// TestPremisesKnowTheirDistance: a report is about replacing an input, a presence about
// taking part, and the same noise is worth half as much for the one where inputs have
// signs.
func TestPremisesKnowTheirDistance(t *testing.T) {
	for name, tc := range map[string]struct {
		e                 event
		replace, presence float64
	}{
		"signed":       {laplace{2, release.Signed(3)}, 3, 1.5},
		"interval":     {laplace{2, release.Interval(3)}, 1.5, 1.5},
		"whole":        {discreteLaplace{release.Rational{Num: 2, Den: 1}, release.Signed(3)}, 3, 1.5},
		"one-hot":      {discreteLaplace{release.Rational{Num: 1, Den: 1}, release.OneHot()}, 2, 1},
		"two answers":  {randomizedResponse{1.5, 2}, 1.5, 1.5},
		"nine answers": {randomizedResponse{1.5, 9}, 1.5, 1.5},
		"bits":         {rappor{1.5}, 3, 1.5},
	} {
		p, err := reportOf(tc.e).Premise()
		if err != nil || math.Abs(p.Epsilon0-tc.replace) > 1e-9 || p.Neighbours != release.ReplaceOne {
			t.Errorf("%s: a report is %+v (%v), want epsilon %v", name, p, err, tc.replace)
		}
		if e := ceilingOf(tc.e, release.AddRemove); math.Abs(e-tc.presence) > 1e-9 {
			t.Errorf("%s: presence is %v, want %v", name, e, tc.presence)
		}
		// The pairs' largest losses say the same.
		for n, want := range map[release.Neighbours]float64{release.ReplaceOne: tc.replace, release.AddRemove: tc.presence} {
			d, err := tc.e.(dominated).dominating(n)
			if errors.Is(err, release.ErrUnsupported) && name == "one-hot" {
				continue
			}
			if err != nil {
				t.Fatal(name, err)
			}
			if _, most := d.pair.reach(1e-300); math.Abs(most-want) > 1e-9 {
				t.Errorf("%s: %v loses up to %v, want %v", name, n, most, want)
			}
		}
	}
	for name, m := range map[string]release.Message{
		"nothing":    release.Report{},
		"gaussian":   reportOf(gaussian{1, release.Signed(1)}),
		"of what":    reportOf(approxDP{1, 0}),
		"of nothing": reportOf(nil),
		"approx":     release.ApproxReport(1, 1e-9),
		"negative":   release.AnyReport(-1),
		"columns":    release.ColumnsOf(0),
		"no scale":   reportOf(laplace{0, release.Signed(1)}),
		"any of bad": reportOf(randomizedResponse{1, 1}).Any(),
	} {
		if p, err := m.Premise(); !errors.Is(err, release.ErrParameter) && !errors.Is(err, release.ErrUnsupported) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

// TestCheckedIn: the event refuses what it has no theorem for, agrees with the exact
// sums, and has certificates.
func TestCheckedIn(t *testing.T) {
	response := reportOf(randomizedResponse{1, 2})
	near(t, "row 41", byPLD(t, checkedIn{response, 1000, 1}, 1e-6, release.ZeroOut).Epsilon, .1266145, 2e-5)
	near(t, "row 41, seldom", byPLD(t, checkedIn{response, 1000, .1}, 1e-6, release.AddRemove).Epsilon, .0102265, 2e-5)
	near(t, "row 42", byPLD(t, checkedIn{response, 1000, 1}, 1e-6, release.ReplaceOne).Epsilon, .1824123, 1e-4)
	for _, tc := range []struct {
		c    checkedIn
		n    release.Neighbours
		want error
	}{
		{checkedIn{response, 0, 1}, release.AddRemove, release.ErrParameter},
		{checkedIn{response, 1 << 31, 1}, release.AddRemove, release.ErrParameter},
		{checkedIn{response, 10, 0}, release.AddRemove, release.ErrParameter},
		{checkedIn{response, 10, math.NaN()}, release.AddRemove, release.ErrParameter},
		{checkedIn{response, 10, .5}, release.ReplaceOne, release.ErrUnsupported},
		{checkedIn{release.Report{}, 10, 1}, release.AddRemove, release.ErrParameter},
		{checkedIn{reportOf(gaussian{1, release.Signed(1)}), 10, 1}, release.ReplaceOne, release.ErrUnsupported},
		{checkedIn{reportOf(gaussian{0, release.Signed(1)}), 10, 1}, release.AddRemove, release.ErrParameter},
	} {
		if g, err := (Options{Method: PLD}).epsilon(tc.c, 1e-6, tc.n); !errors.Is(err, tc.want) {
			t.Errorf("%+v, %v: %v, %v, want %v", tc.c, tc.n, g, err, tc.want)
		}
	}
	for _, n := range []release.Neighbours{release.AddRemove, release.ReplaceOne} {
		slots := release.Release{Mechanism: response.Mechanism(), Sampling: release.CheckIns{Slots: 1000, Rate: 1}, Count: 1}
		c, err := Certify([]release.Release{slots}, 1e-6, n)
		if err != nil {
			t.Errorf("%v: %v", n, err)
			continue
		}
		if err := c.Check(); err != nil {
			t.Errorf("%v: %v", n, err)
		}
	}
}
