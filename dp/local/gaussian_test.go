package local

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
)

// What is sent before noise never leaves the ball, whatever the vector: fill decides in
// integers, and Randomize ends.
func TestGaussianClips(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		length := 1 + rng.IntN(40)
		o := GaussianOptions{Length: length, ClipNorm: math.Ldexp(1+rng.Float64(), rng.IntN(20)-10), Sigma2Num: 1, Sigma2Den: 4}
		o.Units = math.Ldexp(1, rng.IntN(30)) / o.ClipNorm * (1 + rng.Float64()) / 2
		if o.ClipNorm*o.Units < 1 || o.ClipNorm*o.Units > 1<<30 {
			continue
		}
		g := must(NewGaussian(o))(t)
		x := make([]float64, length)
		for i := range x {
			x[i] = rng.NormFloat64() * math.Ldexp(1, rng.IntN(60)-20)
		}
		if rng.IntN(4) == 0 {
			x[0] = math.Ldexp(1, 300)
		}
		answer := must(g.Randomize(x))(t)
		// Noise of sigma 1/2 is beyond 10 with probability below 10^-80.
		norm2, slack := 0.0, 10*math.Sqrt(float64(length))
		for _, e := range answer {
			norm2 += float64(e) * float64(e)
		}
		if norm := math.Sqrt(norm2); norm > o.ClipNorm*o.Units+slack {
			t.Errorf("norm %v for a bound of %v steps", norm, o.ClipNorm*o.Units)
		}
	}
	// The old trap: 1.9 steps hold (1, 1).
	g := must(NewGaussian(GaussianOptions{Length: 2, ClipNorm: 1.9, Units: 1, Sigma2Num: 1, Sigma2Den: 4}))(t)
	must(g.Randomize([]float64{1.3, 1.3}))(t)
	out := make([]int64, 2)
	if !g.fill(out, []float64{1.3, 1.3}, 1) || out[0] != 1 || out[1] != 1 {
		t.Errorf("(1.3, 1.3) becomes %v", out)
	}
	if g.fill(out, []float64{2, 0}, 1) || g.fill(out, []float64{1, 2}, 1) || g.fill(out, []float64{1 << 30, 1 << 30}, 1) {
		t.Error("a vector outside the ball passes")
	}
}

// A vector within the ball is sent as it is; one outside keeps its direction.
func TestGaussianKeepsData(t *testing.T) {
	o := GaussianOptions{Length: 3, ClipNorm: 5, Units: 1 << 20, Sigma2Num: 1, Sigma2Den: 4}
	g := must(NewGaussian(o))(t)
	for _, c := range []struct{ in, out []float64 }{
		{[]float64{3, -4, 0}, []float64{3, -4, 0}},
		{[]float64{.25, 1, -2}, []float64{.25, 1, -2}},
		{[]float64{30, -40, 0}, []float64{3, -4, 0}},
		{[]float64{3e90, -4e90, 0}, []float64{3, -4, 0}},
		{[]float64{0, 0, 0}, []float64{0, 0, 0}},
	} {
		for i, e := range must(g.Randomize(c.in))(t) {
			near(t, "element", float64(e), c.out[i]*(1<<20), 12)
		}
	}
}

// guarantee is that of a report whose law the accountant is told.
func guarantee(g *Gaussian, about release.Neighbours) (release.Guarantee, error) {
	num, den, radius := g.Law()
	contribution := release.Ball(uint64(g.Length()), radius)
	if g.Length() == 1 {
		contribution = release.Signed(radius) // a whole number: the exact curve applies
	}
	return accountant.Epsilon([]release.Release{release.One(release.DiscreteGaussian{Variance: release.Rational{Num: num, Den: den}, Contribution: contribution})}, 1e-6, about)
}

// Reference rows 28 of the accounting: the local guarantee is that of the discrete
// Gaussian at the right distance.
func TestGaussianGuarantee(t *testing.T) {
	one := must(NewGaussian(GaussianOptions{Length: 1, ClipNorm: 1, Units: 1, Sigma2Num: 100, Sigma2Den: 1}))(t)
	near(t, "row 28a", must(guarantee(one, release.ZeroOut))(t).Epsilon, .3967901, 1e-6)
	five := must(NewGaussian(GaussianOptions{Length: 1, ClipNorm: 5, Units: 1, Sigma2Num: 400, Sigma2Den: 1}))(t)
	near(t, "row 28d", must(guarantee(five, release.ReplaceOne))(t).Epsilon, 2.2539608, 1e-6)
	// A radius that is not whole is rounded up to the square root of what fill allows.
	odd := must(NewGaussian(GaussianOptions{Length: 2, ClipNorm: 1.9, Units: 1, Sigma2Num: 100, Sigma2Den: 1}))(t)
	if _, _, radius := odd.Law(); odd.radius2 != 3 || radius < math.Sqrt(3) || radius > math.Sqrt(3)*(1+1e-12) {
		t.Errorf("radius %v for a squared radius of %d", radius, odd.radius2)
	}
}
