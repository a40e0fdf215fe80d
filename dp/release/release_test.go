package release

import (
	"errors"
	"math"
	"testing"
)

// TestSensitivity: how far apart neighbours are, by shape and relation.
func TestSensitivity(t *testing.T) {
	for _, c := range []struct {
		of             Contribution
		n              Neighbours
		coords         uint64
		each, l1, root float64
	}{
		{OneHot(), AddRemove, 1, 1, 1, 1},
		{OneHot(), ReplaceOne, 2, 1, 2, math.Sqrt2},
		{MultiHot(3), ReplaceOne, 6, 1, 6, math.Sqrt(6)},
		{MultiHot(3), ZeroOut, 3, 1, 3, math.Sqrt(3)},
		{MultiHotOf(5, 3), ReplaceOne, 5, 1, 5, math.Sqrt(5)},
		{MultiHotOf(5, 3), AddRemove, 3, 1, 3, math.Sqrt(3)},
		{MultiHotOf(9, 3), ReplaceOne, 6, 1, 6, math.Sqrt(6)},
		{MultiHotOf(2, 3), ZeroOut, 2, 1, 2, math.Sqrt2},
		{Interval(5), ReplaceOne, 1, 5, 5, 5},
		{Signed(5), ReplaceOne, 1, 10, 10, 10},
		{Signed(5), AddRemove, 1, 5, 5, 5},
		{Vector(4, 3), ReplaceOne, 4, 3, 12, 6},
		{Ball(9, 2), AddRemove, 9, 2, 6, 2},
		{Ball(9, 2), ReplaceOne, 9, 4, 12, 4},
		{Simplex(9, 7), AddRemove, 9, 7, 7, 7},
		{Simplex(9, 7), ReplaceOne, 9, 7, 14, 7 * math.Sqrt2},
		{Simplex(1, 7), ReplaceOne, 1, 7, 7, 7},
	} {
		s, err := c.of.Sensitivity(c.n)
		above := func(got, want float64) bool { return got >= want && got <= want*(1+1e-11) }
		if err != nil || s.Coordinates != c.coords || s.Max != c.each || !above(s.L1, c.l1) || !above(s.L2, c.root) {
			t.Errorf("%+v, %v: %+v, %v", c.of, c.n, s, err)
		}
	}
	for _, c := range []Contribution{{}, {Shape: 9, Coordinates: 1, Max: 1}, Interval(0), Interval(math.Inf(1)), Interval(math.NaN()), MultiHot(0), MultiHot(1 << 50)} {
		if s, err := c.Sensitivity(AddRemove); !errors.Is(err, ErrParameter) {
			t.Errorf("%+v: %+v, %v", c, s, err)
		}
	}
	if s, err := OneHot().Sensitivity(4); !errors.Is(err, ErrParameter) {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestRational: one fraction for a value, and floats on the side that is said.
func TestRational(t *testing.T) {
	r, err := NewRational(26, 10)
	if err != nil || r != (Rational{13, 5}) || !r.Valid() || r.String() != "13/5" || r.Float() != 2.6 || r.FloatDown() > 2.6 {
		t.Errorf("%v, %v", r, err)
	}
	if x := (Rational{1, 3}); x.FloatDown() != 1./3 || (Rational{1, 10}).FloatDown() >= 0.1 {
		t.Errorf("a third and a tenth are %v and %v", x.FloatDown(), (Rational{1, 10}).FloatDown())
	}
	if _, err := NewRational(0, 1); !errors.Is(err, ErrParameter) {
		t.Error(err)
	}
	if _, err := NewRational(1, 0); !errors.Is(err, ErrParameter) {
		t.Error(err)
	}
	for _, bad := range []Rational{{}, {2, 4}, {1, 0}, {0, 1}} {
		if bad.Valid() {
			t.Errorf("%v is valid", bad)
		}
	}
}

// TestMessages: what is not stated, or out of range, is the premise of nothing.
func TestMessages(t *testing.T) {
	for name, c := range map[string]struct {
		m    Message
		want Premise
		err  error
	}{
		"any":       {AnyReport(1), Premise{1, 0, ReplaceOne}, nil},
		"response":  {ResponseReport(2, 5), Premise{2, 5, ReplaceOne}, nil},
		"forgotten": {ResponseReport(2, 5).Any(), Premise{2, 0, ReplaceOne}, nil},
		"columns":   {ColumnsOf(3), Premise{3, 2, ZeroOut}, nil},
		"zero":      {Report{}, Premise{}, ErrParameter},
		"negative":  {AnyReport(-1), Premise{}, ErrParameter},
		"NaN":       {AnyReport(math.NaN()), Premise{}, ErrParameter},
		"approx":    {ApproxReport(1, 1e-9), Premise{}, ErrUnsupported},
		"of none":   {NoReport(ErrUnsupported).Any(), Premise{}, ErrUnsupported},
		"one":       {ResponseReport(1, 1), Premise{}, ErrParameter},
		"no column": {ColumnsOf(0), Premise{}, ErrParameter},
	} {
		p, err := c.m.Premise()
		if !errors.Is(err, c.err) || err == nil && p != c.want {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	if _, delta, err := ApproxReport(1, 1e-9).Approx(); err != nil || delta != 1e-9 {
		t.Errorf("%v, %v", delta, err)
	}
	if e, err := AnyPresence(1).Epsilon(); err != nil || e != 1 {
		t.Errorf("%v, %v", e, err)
	}
	for _, p := range []Presence{{}, AnyPresence(0), AnyPresence(math.Inf(1))} {
		if e, err := p.Epsilon(); !errors.Is(err, ErrParameter) {
			t.Errorf("%v, %v", e, err)
		}
	}
}
