package local

import (
	"errors"
	"math"
	"testing"
)

func near(t *testing.T, name string, got, want, tol float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tol) {
		t.Errorf("%s: got %.10g, want %.10g within %.1g", name, got, want, tol)
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestReferenceProjective(t *testing.T) {
	p := must(NewProjectiveOver(156, math.Log(4), 5, 4))(t)
	if p.points != 156 || p.meet != 31 || p.both != 6 || p.Answers() != 156 {
		t.Errorf("row 62: K %d, %d, %d", p.points, p.meet, p.both)
	}
	near(t, "row 62, p", p.outside.float()/float64(p.points-p.meet), .0040160643, 1e-9)
	alpha, beta, other, _ := p.weights()
	near(t, "row 62, alpha", alpha, 3.32, 1e-7)
	near(t, "row 62, beta", beta, -.6533333, 1e-7)
	near(t, "row 62, variance", other, 1.7422222, 1e-7)
	near(t, "row 62, method", p.Variance(0), 1.7422222, 1e-7)
}

// What is drawn never exceeds what is stated, and is hardly less.
func TestProbabilitiesAreRoundedToTheSafeSide(t *testing.T) {
	for _, e := range []float64{MinEpsilon, .001, .1, math.Ln2, 1, 2, 5, 11, MaxEpsilon} {
		tight := func(name string, hit, miss float64, want float64) {
			t.Helper()
			got := math.Log(hit / miss)
			if !(got <= want*(1+4e-16)+4e-16 && got >= want-1e-5*max(1, want)) {
				t.Errorf("%s at %v: draws epsilon %.17g", name, want, got)
			}
		}
		for _, k := range []int{2, 3, 1000, MaxValues} {
			if e < .001 && k > 1000 {
				continue
			}
			r := must(NewResponse(k, e))(t)
			hit, miss := (-r.lie).float(), r.lie.float()/float64(k-1)
			tight("response", hit, miss, e)
			if got := r.Epsilon(Replacement); got != e {
				t.Errorf("k=%d: epsilon %v, want %v", k, got, e)
			}
		}
		for _, form := range []Form{Symmetric, Optimised} {
			d := must(NewRAPPOR(4, e, Deletion, form))(t)
			one, zero := d.FlipProbability()
			ratio := max((-d.hit).float(), 0)
			worst := math.Max((1-one)/zero, (1-zero)/max(ratio, 1e-300))
			if got := math.Log(worst); got > e*(1+1e-12)+1e-15 || got < e*(1-1e-5)-1e-9 {
				t.Errorf("deletion, form %d: draws epsilon %v, want %v", form, got, e)
			}
			r := must(NewRAPPOR(4, e, Replacement, form))(t)
			one, zero = r.FlipProbability()
			if got := math.Log((1 - one) * (1 - zero) / (one * zero)); got > e*(1+1e-12)+1e-15 || got < e*(1-1e-5)-1e-9 {
				t.Errorf("replacement, form %d: draws epsilon %v, want %v", form, got, e)
			}
		}
	}
	// Deletion's flip is replacement's at twice epsilon.
	a, _ := must(NewRAPPOR(4, 2, Deletion, Symmetric))(t).FlipProbability()
	b, _ := must(NewRAPPOR(4, 4, Replacement, Symmetric))(t).FlipProbability()
	near(t, "flips", a, b, 1e-18)
	near(t, "flip", a, 1/(math.Exp(2)+1), 1e-15)
	near(t, "variance", must(NewRAPPOR(4, 2, Deletion, Symmetric))(t).Variance(.3), a*(1-a)/((1-2*a)*(1-2*a)), 1e-12)
}

// All values, all answers of small geometries: the probabilities are as stated,
// hyperplanes meet as they should, and the transform counts what it should.
func TestProjectiveGeometry(t *testing.T) {
	for _, g := range []struct{ q, t uint64 }{{2, 2}, {2, 5}, {3, 3}, {5, 3}, {7, 2}, {13, 3}} {
		p := must(NewProjectiveOver(2, 1, g.q, g.t))(t)
		p.k = int(p.points)
		v, w := make([]uint64, g.t), make([]uint64, g.t)
		orthogonal := func(x, y uint64) bool {
			p.vector(v, x)
			p.vector(w, y)
			dot := uint64(0)
			for i := range v {
				dot += v[i] * w[i]
			}
			return dot%g.q == 0
		}
		counts := make([]uint64, p.points)
		for y := range counts {
			counts[y] = uint64(y*y)%11 + uint64(y)%3
			p.vector(v, uint64(y))
			for m := range g.q - 1 {
				for i := range v {
					w[i] = v[i] * (m + 1) % g.q
				}
				if p.point(w) != uint64(y) {
					t.Fatalf("point %d is %v, read as %d", y, w, p.point(w))
				}
			}
		}
		estimates := must(p.Estimate(counts))(t)
		alpha, beta, _, _ := p.weights()
		for x := range p.points {
			meet, common, n, in := uint64(0), uint64(0), 0.0, uint64(0)
			for y := range p.points {
				n += float64(counts[y])
				if orthogonal(x, y) {
					meet++
					in += counts[y]
					if x != 0 && orthogonal(0, y) {
						common++
					}
				}
			}
			if meet != p.meet || (x != 0 && common != p.both) {
				t.Fatalf("q=%d t=%d: a hyperplane has %d points and %d in common", g.q, g.t, meet, common)
			}
			near(t, "estimate", estimates[x].Value, alpha*float64(in)+beta*n, 1e-9*n)
		}
	}
}

func TestRefusals(t *testing.T) {
	var errs []error
	add := func(_ any, err error) { errs = append(errs, err) }
	for _, e := range []float64{math.NaN(), math.Inf(1), 0, -1, 1e-7, 33} {
		add(NewResponse(2, e))
		add(NewRAPPOR(2, e, Deletion, Symmetric))
		add(NewProjective(10, e))
		add(QuestionLie(1, e))
	}
	for _, l := range []float64{math.NaN(), -.1, .5, 1, 2} {
		add(NewResponseLying(2, l))
		add(NewQuestionLying(2, 1, l))
		if l != .5 {
			add(NewRandomGroup(2, 1, l, .1))
		}
		add(NewRandomGroup(2, 1, .1, l))
		add(QuestionEpsilon([][]float64{{.5, .5}, {.5, .5}}, l))
	}
	for _, k := range []int{-1, 0, 1, MaxValues + 1} {
		add(NewResponse(k, 1))
		add(NewProjective(k, 1))
		if k != 1 {
			add(NewRAPPOR(k, 1, Deletion, Symmetric))
		}
	}
	add(NewRAPPOR(2, 1, 0, Symmetric))
	add(NewRAPPOR(2, 1, Deletion, 3))
	add(NewProjectiveOver(2, 1, 4, 3))
	add(NewProjectiveOver(100, 1, 2, 3))
	add(NewProjectiveOver(2, 1, 4093, 3))
	add(NewProjective(MaxValues, 8))
	r := must(NewResponse(3, 1))(t)
	add(r.Randomize(3))
	add(r.Randomize(-2))
	add(r.Estimate(make([]uint64, 2)))
	for _, d := range []Estimate{{-1, 0}, {math.NaN(), 0}, {math.Inf(1), 0}, {1, -1}, {1, math.NaN()}, {1, math.Inf(1)}} {
		add(r.EstimateWithDummies(make([]uint64, 3), d))
	}
	for _, k := range []int{-1, 0, MaxValues} {
		add(NewOptionalResponse(k, 1))
	}
	add(NewOptionalResponse(3, math.NaN()))
	o := must(NewOptionalResponse(3, 1))(t)
	add(o.EstimateWithDummies(make([]uint64, 4), Estimate{}))
	add(o.Estimate(make([]uint64, 3)))
	add(o.Randomize(3))
	b := must(NewRAPPOR(3, 1, Deletion, Symmetric))(t)
	add(nil, b.Randomize(make([]bool, 3), 3))
	add(nil, b.Randomize(make([]bool, 3), -2))
	add(nil, b.Randomize(make([]bool, 2), 1))
	add(b.Estimate(make([]uint64, 2), 1))
	add(b.Estimate([]uint64{0, 0, 2}, 1))
	p := must(NewProjective(10, 1))(t)
	add(p.Randomize(10))
	add(p.Estimate(make([]uint64, 10)))
	for _, laws := range [][][]float64{{{.5, .6}, {.5, .5}}, {{.5, .5}}, {{1}, {1}}, {{.5, .5}, {1}}, nil,
		{{math.NaN(), 1}, {.5, .5}}, {{1.5, -.5}, {.5, .5}}} {
		add(QuestionEpsilon(laws, .1))
		add(QuestionLieFor(laws, 1))
		add(RandomGroupEpsilon(laws, .1, .1))
	}
	add(RandomGroupEpsilon([][]float64{{.5, .5}, {.5, .5}}, 1, .1))
	good := GaussianOptions{Length: 2, ClipNorm: 1, Units: 100, Sigma2Num: 100, Sigma2Den: 1}
	for _, change := range []func(*GaussianOptions){
		func(o *GaussianOptions) { o.Length = 0 },
		func(o *GaussianOptions) { o.Projected = 3 },
		func(o *GaussianOptions) { o.ClipNorm = math.NaN() },
		func(o *GaussianOptions) { o.Units = math.Inf(1) },
		func(o *GaussianOptions) { o.Units = 1e10 },
		func(o *GaussianOptions) { o.Units = -1 },
		func(o *GaussianOptions) { o.ClipNorm = 1e-9 },
	} {
		o := good
		change(&o)
		add(nil, o.Validate())
	}
	n := must(NewGaussian(good))(t)
	add(n.Randomize([]float64{1, math.NaN()}))
	add(n.Randomize([]float64{1, math.Inf(-1)}))
	add(n.Randomize([]float64{1}))
	add(n.Estimate([]int64{1}, 1))
	for i, err := range errs {
		if !errors.Is(err, ErrParameter) {
			t.Errorf("refusal %d: got %v", i, err)
		}
	}
	good.Sigma2Den = 0
	if good.Validate() == nil {
		t.Error("no noise was accepted")
	}
}
