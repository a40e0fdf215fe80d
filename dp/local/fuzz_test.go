package local

import (
	"errors"
	"math"
	"testing"
)

// edges are epsilons at and beyond every border.
var edges = []float64{0, MinEpsilon, math.Nextafter(MinEpsilon, 0), 1e-300, 5e-324, .5, 1, MaxEpsilon,
	math.Nextafter(MaxEpsilon, 33), 1e308, math.Inf(1), math.Inf(-1), math.NaN(), -1}

// Whatever the parameters, there is a typed error, or a randomizer whose answers are in
// range, whose statements are numbers and no larger than asked for.
func FuzzParameters(f *testing.F) {
	for _, e := range edges {
		for _, k := range []int{-1, 0, 1, 2, 3, 1000, MaxValues, MaxValues + 1} {
			f.Add(k, e, .3, 0, uint8(1), uint8(1))
			f.Add(2, .5, e, k, uint8(k), uint8(2))
		}
	}
	f.Fuzz(func(t *testing.T, k int, e, lambda float64, x int, about, form uint8) {
		typed := func(err error) bool {
			t.Helper()
			if err != nil && !errors.Is(err, ErrParameter) {
				t.Fatalf("untyped error %v", err)
			}
			return err == nil
		}
		sane := func(name string, epsilon float64) {
			t.Helper()
			if !(epsilon > 0) {
				t.Fatalf("%s: states epsilon %v", name, epsilon)
			}
		}
		variance := func(name string, v float64) {
			t.Helper()
			if !(v >= 0) || math.IsInf(v, 0) {
				t.Fatalf("%s: states variance %v", name, v)
			}
		}
		for _, build := range []func() (*Response, error){
			func() (*Response, error) { return NewResponse(k, e) },
			func() (*Response, error) { return NewOptionalResponse(k, e) },
			func() (*Response, error) { return NewResponseLying(k, lambda) },
		} {
			r, err := build()
			if !typed(err) {
				continue
			}
			sane("response", r.Epsilon(Replacement))
			sane("response", r.Epsilon(Deletion))
			variance("response", r.Variance(0))
			variance("response", r.Variance(1))
			if a, err := r.Randomize(x); typed(err) && (a < 0 || a >= r.Answers()) {
				t.Fatalf("answer %d of %d", a, r.Answers())
			}
		}
		if r, err := NewRAPPOR(k, e, Relation(about), Form(form)); typed(err) {
			if b := r.Bounded(); b.MaxWeight() < 1 || b.MaxWeight() > k || !(b.RedrawProbability() <= 0x1p-40) {
				t.Fatalf("weight %d, exceeded with %v", b.MaxWeight(), b.RedrawProbability())
			}
			sane("RAPPOR", r.Epsilon(Replacement))
			sane("RAPPOR", r.Epsilon(Deletion))
			if r.Epsilon(Replacement) < r.Epsilon(Deletion) || r.Epsilon(Replacement) > 2*r.Epsilon(Deletion)*(1+1e-6)+1e-14 {
				t.Fatalf("%v for replacement, %v for deletion", r.Epsilon(Replacement), r.Epsilon(Deletion))
			}
			variance("RAPPOR", r.Variance(.5))
			if k <= 1000 {
				typed(r.Randomize(make([]bool, k), x))
			}
		}
		if k <= 1000 {
			if p, err := NewProjective(k, e); typed(err) {
				sane("projective", p.Epsilon(Deletion))
				variance("projective", p.Variance(.5))
				if a, err := p.Randomize(x); typed(err) && (a < 0 || a >= p.Answers()) {
					t.Fatalf("answer %d of %d", a, p.Answers())
				}
			}
			if q, err := NewQuestionLying(k, int(form), lambda); typed(err) && k*int(form) < 1000 {
				sane("question", q.Epsilon(Replacement))
				variance("question", q.Variance(.5, 1))
				if a, err := q.Randomize(Query{}, x, int(about)); typed(err) && (a < 0 || a >= 2*int(form)) {
					t.Fatalf("column %d", a)
				}
			}
			if g, err := NewRandomGroup(k, int(form), lambda, lambda/2); typed(err) {
				sane("randomized group", g.Epsilon(Replacement))
				variance("randomized group", g.Variance(.5, 1))
				_, _, err := g.Randomize(x, int(about))
				typed(err)
			}
		}
		if plans, err := PlanGroups(GroupOptions{Groups: k, Largest: int(form), Epsilon: e, Most: lambda}); typed(err) {
			for _, p := range plans {
				variance(p.Scheme.String(), p.Alpha)
			}
		}
		if l, err := QuestionLie(k, e); typed(err) && !(l > 0 && l < 1) {
			t.Fatalf("lie %v", l)
		}
	})
}

// Whatever the vector and the options, an answer comes or a typed error.
func FuzzGaussian(f *testing.F) {
	for _, e := range append(edges, 1e100, 1e-9, 1<<30) {
		f.Add(e, 1., 1., 1000.)
		f.Add(1., e, 1., 1000.)
		f.Add(1., 1., e, 1000.)
		f.Add(1., 1., 1., e)
	}
	f.Fuzz(func(t *testing.T, a, b, clip, units float64) {
		for _, projected := range []int{0, 2} {
			g, err := NewGaussian(GaussianOptions{Length: 3, Projected: projected, ClipNorm: clip, Units: units,
				Sigma2Num: 1, Sigma2Den: 4})
			if err == nil {
				var answer []int64
				if answer, err = g.Randomize([]float64{a, b, -a}); err == nil {
					_, err = g.Estimate(answer, 1)
				}
				for _, v := range answer {
					if math.Abs(float64(v)) > clip*units+20 { // sigma is 1/2
						t.Fatalf("answer %v beyond %v", v, clip*units)
					}
				}
			}
			if err != nil && !errors.Is(err, ErrParameter) {
				t.Fatalf("untyped error %v", err)
			}
		}
	})
}
