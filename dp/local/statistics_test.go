package local

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/starling-agg/starling/dp/local/internal/twin"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/dp/noise/noisetest"
)

// limit is how many standard errors a statistic of this file may be off. Each is a mean
// of thousands of terms; a normal one is off by more with probability 2*10^-9, and there
// are fewer than 200: their false-reject rate together, with room for how far from normal
// they are, is below 10^-6. The seeds are fixed.
const limit = 6.0

func seeded[R any](r R, seed byte) R { return twin.WithSource(r, rand.NewChaCha8([32]byte{seed})).(R) }

// fit returns by how many standard errors, at worst, shares of n draws are off.
func fit(ones []float64, n float64, want []float64) float64 {
	worst := 0.0
	for i, p := range want {
		worst = max(worst, math.Abs(ones[i]-n*p)/math.Sqrt(n*p*(1-p)))
	}
	return worst
}

// n = 2^19 answers for one value: each has its stated probability, and a probability of
// lying (of flipping, of being outside) that is 2 % off is seen.
func TestAnswersFit(t *testing.T) {
	const n = 1 << 19
	wrong := func(p probability) probability { return p + p/50 }
	check := func(name string, want []float64, right, off func(i int, ones []float64)) {
		t.Helper()
		for _, c := range []struct {
			what string
			draw func(i int, ones []float64)
			good bool
		}{{"right", right, true}, {"2 % off", off, false}} {
			ones := make([]float64, len(want))
			for i := range n {
				c.draw(i, ones)
			}
			if z := fit(ones, n, want); (z <= limit) != c.good {
				t.Errorf("%s, %s: %.1f standard errors", name, c.what, z)
			}
		}
	}

	r := seeded(must(NewResponse(4, 1))(t), 1)
	bad := seeded(r, 2)
	bad.lie = wrong(bad.lie)
	respond := func(r *Response) func(int, []float64) {
		return func(_ int, ones []float64) { ones[must(r.Randomize(2))(t)]++ }
	}
	hit, miss, _ := r.rates()
	check("response", []float64{miss, miss, hit, miss}, respond(r), respond(bad))

	for i, form := range []Form{Symmetric, Optimised} {
		b := seeded(must(NewRAPPOR(3, .5, Deletion, form))(t), byte(3+2*i))
		bad := seeded(b, byte(4+2*i))
		bad.miss = wrong(bad.miss)
		dst := make([]bool, 3)
		unary := func(b *RAPPOR) func(int, []float64) {
			return func(_ int, ones []float64) {
				if err := b.Randomize(dst, 1); err != nil {
					t.Fatal(err)
				}
				for j, bit := range dst {
					if bit {
						ones[j]++
					}
				}
			}
		}
		check("RAPPOR", []float64{b.miss.float(), b.hit.float(), b.miss.float()}, unary(b), unary(bad))
	}

	p := seeded(must(NewProjectiveOver(10, .5, 3, 3))(t), 7)
	off := seeded(p, 8)
	off.outside = wrong(off.outside)
	in, out := p.rates()
	want := make([]float64, p.points)
	v, w := make([]uint64, 3), make([]uint64, 3)
	p.vector(v, 5)
	for y := range want {
		p.vector(w, uint64(y))
		if want[y] = out; (v[0]*w[0]+v[1]*w[1]+v[2]*w[2])%3 == 0 {
			want[y] = in
		}
	}
	point := func(p *Projective) func(int, []float64) {
		return func(_ int, ones []float64) { ones[must(p.Randomize(5))(t)]++ }
	}
	check("projective", want, point(p), point(off))
}

// An errorSum adds up, over collections, how far estimates are from the truth.
type errorSum struct{ n, first, second, variance float64 }

func (e *errorSum) add(got, truth, variance float64) {
	e.n++
	e.first += got - truth
	e.second += (got - truth) * (got - truth)
	e.variance += variance
}

// off returns by how many standard errors the mean and the variance are off. An error is
// a sum over some tens of devices, so its fourth moment is that of a normal one to within
// a quarter.
func (e *errorSum) off() (mean, variance float64) {
	return e.first / math.Sqrt(e.variance), (e.second - e.variance) / (e.variance / e.n) / math.Sqrt(2.25*e.n)
}

// collect runs collections and returns the worst statistic of any estimated number.
func collect(collections int, run func(c int, sums []errorSum), size int) float64 {
	sums := make([]errorSum, size)
	for c := range collections {
		run(c, sums)
	}
	worst := 0.0
	for i := range sums {
		m, v := sums[i].off()
		worst = max(worst, math.Abs(m), math.Abs(v))
	}
	return worst
}

// checkErrors fails unless estimates have the true mean and the stated variance, and those
// of a randomizer that is off have not.
func checkErrors(t *testing.T, name string, collections, size int, right, off func(int, []errorSum)) {
	t.Helper()
	if z := collect(collections, right, size); z > limit {
		t.Errorf("%s: %.1f standard errors off", name, z)
	}
	if z := collect(collections, off, size); z <= limit {
		t.Errorf("%s: 20 %% off passes, with %.1f standard errors", name, z)
	}
}

// 2,000 collections of 60 devices for each randomizer: the estimates have the true mean
// and the stated variance, and a randomizer whose probability is 20 % off from the one
// that the estimate supposes is seen.
func TestEstimates(t *testing.T) {
	const collections, devices = 2000, 60
	check := func(name string, size int, right, off func(int, []errorSum)) {
		t.Helper()
		checkErrors(t, name, collections, size, right, off)
	}
	wrong := func(p probability) probability { return p - p/5 }
	// Half of the devices hold value 0, the others 1, 2, 0, ... but for every sixth,
	// which holds none.
	value := func(i int) int {
		switch {
		case i%6 == 5:
			return NoValue
		case i%2 == 0:
			return 0
		}
		return i / 2 % 3
	}
	truth := make([]float64, 3)
	dummies := 0.0
	for i := range devices {
		if v := value(i); v >= 0 {
			truth[v]++
		} else {
			dummies++
		}
	}

	for i, optional := range []bool{false, true} {
		r := must(NewResponse(3, 1.5))(t)
		if optional {
			r = must(NewOptionalResponse(3, 1.5))(t)
		}
		run := func(draws *Response) func(int, []errorSum) {
			return func(_ int, sums []errorSum) {
				counts := make([]uint64, r.Answers())
				for i := range devices {
					counts[must(draws.Randomize(value(i)))(t)]++
				}
				estimates, err := r.Estimate(counts)
				if !optional {
					estimates, err = r.EstimateWithDummies(counts, Estimate{dummies, 0})
				}
				for v, e := range must(estimates, err)(t) {
					others, extra := float64(devices), 0.0
					if !optional {
						_, _, gap := r.rates()
						others, extra = devices-dummies, dummies*2/9/gap/gap
					}
					sums[v].add(e.Value, truth[v], others*r.Variance(truth[v]/others)+extra)
				}
			}
		}
		right, off := seeded(r, byte(10+2*i)), seeded(r, byte(11+2*i))
		off.lie = wrong(off.lie)
		check(fmt.Sprintf("response, optional %v", optional), 3, run(right), run(off))
	}

	for i, form := range []Form{Symmetric, Optimised} {
		for j, bounded := range []bool{false, true} {
			r := must(NewRAPPOR(3, 1.5, Deletion, form))(t)
			if bounded {
				r = r.Bounded()
			}
			dst := make([]bool, 3)
			run := func(draws *RAPPOR) func(int, []errorSum) {
				return func(_ int, sums []errorSum) {
					ones := make([]uint64, 3)
					for i := range devices {
						if err := draws.Randomize(dst, value(i)); err != nil {
							t.Fatal(err)
						}
						for j, bit := range dst {
							if bit {
								ones[j]++
							}
						}
					}
					for v, e := range must(r.Estimate(ones, devices))(t) {
						sums[v].add(e.Value, truth[v], devices*r.Variance(truth[v]/devices))
					}
				}
			}
			right, off := seeded(r, byte(20+4*i+2*j)), seeded(r, byte(21+4*i+2*j))
			off.miss = wrong(off.miss)
			check(fmt.Sprintf("RAPPOR, form %d", form), 3, run(right), run(off))
		}
	}

	p := must(NewProjectiveOver(7, 1.5, 3, 3))(t)
	project := func(draws *Projective) func(int, []errorSum) {
		return func(_ int, sums []errorSum) {
			counts := make([]uint64, p.Answers())
			for i := range devices {
				counts[must(draws.Randomize(max(0, value(i))))(t)]++
			}
			for v, e := range must(p.Estimate(counts))(t) {
				held := 0.0
				if v < 3 {
					held = truth[v]
				}
				if v == 0 {
					held += dummies
				}
				sums[v].add(e.Value, held, devices*p.Variance(held/devices))
			}
		}
	}
	right, off := seeded(p, 30), seeded(p, 31)
	off.outside = wrong(off.outside)
	check("projective", 7, project(right), project(off))
}

func twinned(g *Gaussian, seed byte) *Gaussian {
	return twin.WithNoise(g, func(n *noise.DiscreteGaussian) *noise.DiscreteGaussian {
		return noisetest.DiscreteGaussian(n, [32]byte{seed})
	}).(*Gaussian)
}

// 4,000 collections of 20 devices; the vectors are whole steps, so that rounding loses
// nothing. With a projection each collection has one of its own. Noise that is 10 % off
// in sigma is seen (package noise sees 2 %).
func TestGaussianEstimates(t *testing.T) {
	const collections, devices = 4000, 20
	x := func(i int) []float64 { return []float64{.5, -.25, float64(i%3) / 4, 0, .125, -.5} }
	truth, norm2 := make([]float64, 6), 0.0
	for i := range devices {
		for j, e := range x(i) {
			truth[j] += e
		}
	}
	for _, e := range truth {
		norm2 += e * e
	}
	stated := GaussianOptions{Length: 6, ClipNorm: 3, Units: 1 << 20, Sigma2Num: 100 << 32, Sigma2Den: 1}
	run := func(seed byte, projected int, sigma2 uint64) (worst, said float64) {
		o := stated
		o.Sigma2Num = sigma2
		draws := twinned(must(NewGaussian(o))(t), seed).noise
		worst = collect(collections, func(c int, sums []errorSum) {
			o := stated
			o.Projected = projected
			binary.LittleEndian.PutUint64(o.Projection[:], uint64(c))
			g := must(NewGaussian(o))(t)
			device := *g
			device.noise = draws
			total := make([]int64, g.Length())
			for i := range devices {
				for j, e := range must(device.Randomize(x(i)))(t) {
					total[j] += e
				}
			}
			for j, e := range must(g.Estimate(total, devices))(t) {
				sums[j].add(e.Value, truth[j], g.Variance(devices, norm2, truth[j]*truth[j]))
				said += e.Variance / 6 / collections / g.Variance(devices, norm2, 0)
			}
		}, 6)
		return worst, said
	}
	for _, projected := range []int{0, 4} {
		z, said := run(40, projected, 100<<32)
		if z > limit {
			t.Errorf("projected to %d: %.1f standard errors off", projected, z)
		}
		// The variances that estimates state have the right mean: six standard errors of
		// it are 6 %.
		if math.Abs(said-1) > .06 {
			t.Errorf("projected to %d: the stated variance is %v of the true one", projected, said)
		}
	}
	if z, _ := run(41, 0, 121<<32); z <= limit {
		t.Errorf("sigma 10 %% off passes, with %.1f standard errors", z)
	}
}
