package accountant

import (
	"fmt"
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

// simplexRecords are all vectors of length 3 that add up to at most c.
func simplexRecords(c int) (out [][3]int) {
	for i := 0; i <= c; i++ {
		for j := 0; i+j <= c; j++ {
			for k := 0; i+j+k <= c; k++ {
				out = append(out, [3]int{i, j, k})
			}
		}
	}
	return out
}

// shifted is the exact delta of noise with the given masses, at 0 far away, moved by u in
// three places: all outcomes are added up.
func shifted(mass func(int) float64, reach int, u [3]int, epsilon float64) float64 {
	law := func(d int) (p, q []float64) {
		for z := -reach; z <= reach+d; z++ {
			p, q = append(p, mass(z-d)), append(q, mass(z))
		}
		return p, q
	}
	p, q := []float64{1}, []float64{1}
	for _, d := range u {
		if d < 0 {
			d = -d // noise is the same on both sides
		}
		if d == 0 {
			continue
		}
		a, b := law(d)
		var np, nq []float64
		for i := range p {
			for j := range a {
				np, nq = append(np, p[i]*a[j]), append(nq, q[i]*b[j])
			}
		}
		p, q = np, nq
	}
	sum := 0.0
	for i := range p {
		sum += max(0, p[i]-math.Exp(epsilon)*q[i])
	}
	return sum
}

// TestSimplex: of all pairs of small records, none is further apart than the sensitivity
// says, and none loses more under discrete Laplace or Gaussian noise than what is proved;
// the worst for the norms is among them.
func TestSimplex(t *testing.T) {
	laplace, variance := release.Rational{Num: 3, Den: 2}, release.Rational{Num: 9, Den: 1}
	lap := func(z int) float64 {
		a := math.Exp(-1 / laplace.Float())
		return (1 - a) / (1 + a) * math.Exp(-math.Abs(float64(z))/laplace.Float())
	}
	theta := 0.0
	gauss := func(z int) float64 { return math.Exp(-float64(z*z)/(2*variance.Float())) / theta }
	sum := 0.0
	for z := -60; z <= 60; z++ {
		sum += math.Exp(-float64(z*z) / (2 * variance.Float()))
	}
	theta = sum
	for c := 1; c <= 3; c++ {
		for _, n := range []release.Neighbours{release.AddRemove, release.ZeroOut, release.ReplaceOne} {
			k := release.Simplex(3, float64(c))
			s, err := k.Sensitivity(n)
			if err != nil {
				t.Fatal(err)
			}
			var l1, l2 float64
			worst := map[string]map[float64]float64{"laplace": {}, "gauss": {}}
			seen := map[string]bool{}
			for _, x := range simplexRecords(c) {
				others := simplexRecords(c)
				if n != release.ReplaceOne {
					others = [][3]int{{}}
				}
				for _, y := range others {
					u := [3]int{x[0] - y[0], x[1] - y[1], x[2] - y[2]}
					one, two := 0.0, 0.0
					for _, d := range u {
						one += math.Abs(float64(d))
						two += float64(d * d)
					}
					l1, l2 = max(l1, one), max(l2, math.Sqrt(two))
					if key := fmt.Sprint(u); c > 2 && n == release.ReplaceOne || seen[key] {
						continue // three places at once are many outcomes
					} else {
						seen[key] = true
					}
					for _, e := range []float64{0, 0.3, 1, 2} {
						worst["laplace"][e] = max(worst["laplace"][e], shifted(lap, 24, u, e))
						worst["gauss"][e] = max(worst["gauss"][e], shifted(gauss, 18, u, e))
					}
				}
			}
			if l1 > s.L1 || l1 < s.L1*(1-1e-11) || l2 > s.L2 || l2 < s.L2*(1-1e-11) || s.Max != float64(c) {
				t.Errorf("bound %d, %v: norms %v and %v, the sensitivity says %+v", c, n, l1, l2, s)
			}
			for name, event := range map[string]event{
				"laplace": discreteLaplace{Scale: laplace, Contribution: k}, "gauss": discreteGaussian{Sigma2: variance, Contribution: k},
			} {
				for e, delta := range worst[name] {
					g, err := deltaOf(event, e, n)
					if err != nil {
						t.Fatal(err)
					}
					if g.Delta < delta-1e-6 { // what lies beyond reach
						t.Errorf("%s, bound %d, %v, epsilon %v: delta %v is proved, the truth is at least %v", name, c, n, e, g.Delta, delta)
					}
					if c == 1 && name == "laplace" && g.Delta > delta+1e-6 {
						t.Errorf("bound 1, %v, epsilon %v: delta %v, but randomized response is exact: %v", n, e, g.Delta, delta)
					}
				}
			}
		}
	}
}

// TestSimplexInUse: calibrated, sampled and certified, vectors that add up to a bound are
// taken at sqrt(2) C, C, and two responses of C scales, and one entry is an interval.
func TestSimplexInUse(t *testing.T) {
	const c, delta = 10, 1e-6
	k := release.Simplex(50, c)
	v, g, err := CalibrateDiscreteGaussian(1, delta, k, release.ReplaceOne, 1)
	if err != nil {
		t.Fatal(err)
	}
	ball, _, err := CalibrateDiscreteGaussian(1, delta, release.Ball(50, c/math.Sqrt2), release.ReplaceOne, 1) // 2 C/sqrt(2) apart
	if err != nil || math.Abs(v.Float()/ball.Float()-1) > 1e-5 || g.Epsilon > 1 {
		t.Errorf("variance %v, a ball of the same distance needs %v; %v", v.Float(), ball.Float(), err)
	}
	lap := discreteLaplace{Scale: release.Rational{Num: 20, Den: 1}, Contribution: k}
	for n, want := range map[release.Neighbours]float64{release.ReplaceOne: 1, release.AddRemove: 0.5, release.ZeroOut: 0.5} {
		g, err := epsilonOf(lap, 1e-300, n)
		if err != nil || g.Epsilon < want || g.Epsilon > want*(1+1e-9) {
			t.Errorf("%v: epsilon %v, %v; want %v", n, g.Epsilon, err, want)
		}
		one, err := epsilonOf(discreteLaplace{Scale: release.Rational{Num: 20, Den: 1}, Contribution: release.Simplex(1, c)}, 1e-300, n)
		if err != nil || one.Epsilon > 0.5*(1+1e-9) {
			t.Errorf("one entry, %v: epsilon %v, %v; want 0.5", n, one.Epsilon, err)
		}
	}
	// Secret samples, and certificates of all.
	gaussian := release.DiscreteGaussian{Variance: release.Rational{Num: 400, Den: 1}, Contribution: k}
	laplace := release.DiscreteLaplace{Scale: lap.Scale, Contribution: lap.Contribution}
	for name, r := range map[string]release.Release{
		"gaussian": release.Times(4, gaussian), "laplace": release.Times(4, laplace),
		"sampled gaussian": {Mechanism: gaussian, Sampling: coin(0.1, 0, 0), Count: 4},
		"sampled laplace":  {Mechanism: laplace, Sampling: coin(0.1, 0, 0), Count: 4},
	} {
		for _, n := range []release.Neighbours{release.AddRemove, release.ReplaceOne} {
			if r.Sampling != nil && n == release.ReplaceOne {
				continue
			}
			g, err := Epsilon([]release.Release{r}, delta, n)
			if err != nil {
				t.Errorf("%s, %v: %v", name, n, err)
				continue
			}
			b, err := Certify([]release.Release{r}, delta, n)
			if err != nil {
				t.Errorf("%s, %v: %v", name, n, err)
				continue
			}
			if err := b.Check(); err != nil || b.Neighbours != n || b.Epsilon < g.EpsilonLower || b.Epsilon > g.Epsilon*1.05+1e-9 {
				t.Errorf("%s, %v: certificate of %v, %v; the accountant says %v", name, n, b.Epsilon, err, g.Epsilon)
			}
		}
	}
}
