package amplify

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/binomial"
)

// The tests of this file compute what is bounded from its definition, by going through
// all outcomes.

// within fails unless bound is at least exact and exceeds it by at most a relative 1e-9
// and an absolute 1e-30.
func within(t *testing.T, name string, bound, exact float64) {
	t.Helper()
	if !(bound >= exact*(1-1e-11) && bound <= exact*(1+1e-9)+1e-30) {
		t.Errorf("%s: bound %.15g, exact %.15g", name, bound, exact)
	}
}

func choose(n, k int) float64 {
	f, _ := new(big.Float).SetInt(new(big.Int).Binomial(int64(n), int64(k))).Float64()
	return f
}

func bin(n, k int, p float64) float64 {
	if k < 0 || k > n {
		return 0
	}
	return choose(n, k) * math.Pow(p, float64(k)) * math.Pow(1-p, float64(n-k))
}

// cloneDelta is E (f_P - e^epsilon f_Q)_+ over all numbers of clones of either kind.
func cloneDelta(e0, p0, p float64, m int, epsilon float64) float64 {
	al := math.Exp(e0) / (1 + math.Exp(e0))
	k := p0 * 2 / (float64(m) * p)
	d := 0.0
	for c := 0; c <= m; c++ {
		for a := 0; a <= c; a++ {
			x, y := float64(a), float64(c-a)
			fp, fq := 1-p0+k*(al*x+(1-al)*y), 1-p0+k*((1-al)*x+al*y)
			d += bin(m, c, p) * bin(c, a, .5) * max(0, fp-math.Exp(epsilon)*fq)
		}
	}
	return d
}

func TestCloneSumAgainstAllOutcomes(t *testing.T) {
	for _, e0 := range []float64{0.01, 0.5, 1, 3, 6} {
		for _, m := range []int{1, 2, 3, 10, 60} {
			for _, p0 := range []float64{1, 0.5, 0.01} {
				for _, r := range []float64{0, 0.1, 0.5, 0.9} {
					eps := r * sampledPure(e0, p0)
					p := clones(e0)
					s := newCloneSum(e0, float64(m), p, p0)
					within(t, fmt.Sprint("clones ", e0, m, p0, eps), s.upper(eps), cloneDelta(e0, p0, p, m, eps))
				}
			}
		}
	}
}

// The blocks of a large sum may cost little.
func TestCloneBlocksAreTight(t *testing.T) {
	s := newCloneSum(1, 2e7, clones(1), 0.3)
	blocks := s.near()
	if len(blocks) > maxBlocks || blocks[0].to == blocks[0].from {
		t.Fatalf("%d blocks, the first %+v", len(blocks), blocks[0])
	}
	var single []cloneBlock
	for _, b := range blocks {
		g, _ := binomial.PMF(b.from, s.m, s.p, 1-s.p)
		for c := b.from; c <= b.to; c++ {
			single = append(single, cloneBlock{c, c, g})
			g *= (s.m - c) / (c + 1) * s.p / (1 - s.p)
		}
	}
	eps := 3e-4
	coarse, fine := s.over(blocks, nearMiss, eps), s.over(single, nearMiss, eps)
	if !(coarse >= fine && coarse <= fine*(1+1e-4)) || fine < 1e-12 || fine > 1e-3 {
		t.Errorf("in blocks %g, term by term %g", coarse, fine)
	}
}

func allocationDelta(e0, p0 float64, n int, epsilon float64) float64 {
	f := 1 / (1 + math.Exp(e0))
	remove, add := 0.0, 0.0
	for x := 0; x <= n; x++ {
		s := 1 - p0 + p0*(float64(x)*math.Exp(e0)+float64(n-x)*math.Exp(-e0))/float64(n)
		remove += bin(n, x, f) * max(0, s-math.Exp(epsilon))
		add += bin(n, x, f) * max(0, 1-math.Exp(epsilon)*s)
	}
	return max(remove, add)
}

func TestAllocationAgainstAllOutcomes(t *testing.T) {
	for _, e0 := range []float64{0.01, 0.5, 1, 3, 6} {
		for _, m := range []int{1, 2, 3, 10, 60} {
			for _, p0 := range []float64{1, 0.5, 0.01} {
				for _, r := range []float64{0.01, 0.1, 0.5, 0.9} {
					eps := r * sampledPure(e0, p0)
					c := must(Allocation(release.AnyPresence(e0), uint64(m), p0))(t)
					g := must(c.Delta(eps))(t)
					want := allocationDelta(e0, p0, m, eps)
					if !(g.DeltaLower <= want+1e-14 && g.Delta >= want-1e-14 && g.Delta-g.DeltaLower <= 1e-9*want+1e-15) {
						t.Errorf("e0=%v t=%v p0=%v eps=%v: [%g, %g], exact %g", e0, m, p0, eps, g.DeltaLower, g.Delta, want)
					}
				}
			}
		}
	}
}

// karyDelta is the blanket by its definition: E over the blanket messages of (sum of L)_+
// / (g n).
func karyDelta(e0 float64, k, n int, epsilon float64) float64 {
	p := 1 / (math.Exp(e0) + float64(k) - 1)
	g := float64(k) * p
	d := 0.0
	for m := 0; m <= n; m++ {
		for a := 0; a <= m; a++ {
			for b := 0; a+b <= m; b++ {
				w := bin(n, m, g) * bin(m, a+b, 2/float64(k)) * bin(a+b, a, .5)
				l := g * (math.Expm1(e0)*(float64(a)-math.Exp(epsilon)*float64(b)) - float64(m)*math.Expm1(epsilon))
				d += w * max(0, l)
			}
		}
	}
	return d / (g * float64(n))
}

func TestKaryBlanketAgainstAllOutcomes(t *testing.T) {
	for _, e0 := range []float64{0.3, 1, 3, 9} {
		for _, n := range []int{1, 2, 5, 40} {
			for _, k := range []int{2, 3, 7, 40} {
				for _, r := range []float64{0, 0.1, 0.5} {
					c := must(Shuffle(kary(uint64(k))(e0), uint64(n)))(t)
					got, want := c.upper(r*e0), karyDelta(e0, k, n, r*e0)
					// R is kept exactly at these sizes, up to the rounding of its weights.
					if !(got >= want*(1-1e-11) && got <= want*(1+1e-8)+1e-18) {
						t.Errorf("e0=%v n=%d k=%d eps=%v: %g, want %g", e0, n, k, r*e0, got, want)
					}
				}
			}
		}
	}
}

// hockey is the larger of the two hockey-stick divergences of laws on the same keys.
func hockey(p, q map[string]float64, epsilon float64) float64 {
	e := math.Exp(epsilon)
	var a, b float64
	for k := range p {
		a += max(0, p[k]-e*q[k])
	}
	for k := range q {
		b += max(0, q[k]-e*p[k])
	}
	return max(a, b)
}

// shuffled is the law of the histogram of one message from each row of laws over the same
// values.
func shuffled(rows [][]float64) map[string]float64 {
	law := map[string]float64{}
	counts := make([]int, len(rows[0]))
	var walk func(i int, p float64)
	walk = func(i int, p float64) {
		if i == len(rows) {
			law[fmt.Sprint(counts)] += p
			return
		}
		for v, w := range rows[i] {
			counts[v]++
			walk(i+1, p*w)
			counts[v]--
		}
	}
	walk(0, 1)
	return law
}

// Every bound must cover the mechanism itself: all data sets of four users, all neighbours.
func TestShuffleCoversTheMechanism(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, e0 := range []float64{0.5, 1, 2.5} {
		response := func(k int) [][]float64 {
			r := make([][]float64, k)
			for x := range r {
				for y := range k {
					w := 1 / (math.Exp(e0) + float64(k) - 1)
					if x == y {
						w *= math.Exp(e0)
					}
					r[x] = append(r[x], w)
				}
			}
			return r
		}
		// Any randomizer: rows whose ratios lie within e^e0, here with weights 1 or e^e0
		// of a random base, levelled.
		odd := func() [][]float64 {
			base := []float64{rng.Float64() + .1, rng.Float64() + .1, rng.Float64() + .1, rng.Float64() + .1}
			r := make([][]float64, 3)
			for x := range r {
				total := 0.0
				for y := range base {
					w := base[y]
					if (x+y)%2 == 0 || rng.IntN(2) == 0 {
						w *= math.Exp(e0 / 2)
					}
					r[x] = append(r[x], w)
					total += w
				}
				for y := range r[x] {
					r[x][y] /= total // the normalisers differ by at most e^(e0/2)
				}
			}
			return r
		}
		for _, tc := range []struct {
			class class
			r     [][]float64
		}{{kary(2), response(2)}, {kary(3), response(3)}, {anyReport, response(2)}, {anyReport, odd()}, {anyReport, odd()}} {
			const n = 4
			c := must(Shuffle(tc.class(e0), n))(t)
			for _, eps := range []float64{0, e0 / 4, e0 / 2, e0 * .9} {
				worst := 0.0
				k := len(tc.r)
				for others := range k * k * k {
					rest := [][]float64{tc.r[others%k], tc.r[others/k%k], tc.r[others/k/k]}
					for x := range k {
						for y := range x {
							p, q := shuffled(append(rest, tc.r[x])), shuffled(append(rest, tc.r[y]))
							worst = max(worst, hockey(p, q, eps))
						}
					}
				}
				g := must(c.Delta(eps))(t)
				if worst > g.Delta*(1+1e-12) {
					t.Errorf("%s: e0=%v eps=%v: the mechanism has delta %g, the bound is %g", c.Theorem(), e0, eps, worst, g.Delta)
				}
				if c.Theorem() == strongTheorem && g.DeltaLower > worst*(1+1e-12)+1e-15 {
					t.Errorf("e0=%v eps=%v: lower bound %g above %g", e0, eps, g.DeltaLower, worst)
				}
				if worst == 0 && eps == 0 {
					t.Error("nothing was compared")
				}
			}
		}
	}
}

// checkInLaw is the law of the slots' answers when client 0 holds x (absent if x < 0),
// the others hold zeros or ones, each client is in slot s with probability w[client][s],
// each slot answers by randomized response for a random one of its clients, and for 0 if
// there is none.
func checkInLaw(e0 float64, slots int, values []int, w [][]float64) map[string]float64 {
	law := map[string]float64{}
	place := make([]int, len(values)) // slot, or slots for none
	flip := 1 / (1 + math.Exp(e0))
	var answers func(s int, p float64, out string)
	answers = func(s int, p float64, out string) {
		if s == slots {
			law[out] += p
			return
		}
		ones, here := 0, 0
		for c, at := range place {
			if at == s && values[c] >= 0 {
				here++
				ones += values[c]
			}
		}
		one := flip
		if here > 0 {
			one = (float64(ones)*(1-flip) + float64(here-ones)*flip) / float64(here)
		}
		answers(s+1, p*one, out+"1")
		answers(s+1, p*(1-one), out+"0")
	}
	var walk func(c int, p float64)
	walk = func(c int, p float64) {
		if c == len(values) {
			answers(0, p, "")
			return
		}
		left := 1.0
		for s, v := range w[c] {
			if left -= v; v > 0 {
				place[c] = s
				walk(c+1, p*v)
			}
		}
		place[c] = slots
		walk(c+1, p*left)
	}
	walk(0, 1)
	return law
}

// docs/proofs/check-ins.md, theorems 1 and 2: the protocol itself, with the server's
// choices, thinning and truncation.
func TestCheckInsCoverTheProtocol(t *testing.T) {
	const slots = 3
	for _, e0 := range []float64{0.5, 1, 2.5} {
		for _, p0 := range []float64{1, 0.4} {
			even := []float64{p0 / slots, p0 / slots, p0 / slots}
			late := []float64{0, p0 / slots, p0 / slots} // a window that has begun before the run
			for _, tc := range []struct {
				schedule release.Schedule
				w        [][]float64
			}{{release.FixedWindow, [][]float64{even}}, {release.FixedWindow, [][]float64{even, even, even}}, {release.SlidingWindow, [][]float64{late, even, late}}} {
				c := CheckIn{Schedule: tc.schedule, Slots: slots, Rate: p0}
				for _, eps := range []float64{0.02, 0.2, 0.5} {
					eps *= e0
					zero, replace := 0.0, 0.0
					for others := range 1 << (len(tc.w) - 1) {
						values := []int{0, others & 1, others >> 1}[:len(tc.w)]
						law := func(x int) map[string]float64 {
							values[0] = x
							return checkInLaw(e0, slots, values, tc.w)
						}
						absent, held0, held1 := law(-1), law(0), law(1)
						zero = max(zero, hockey(held1, absent, eps), hockey(held0, absent, eps))
						replace = max(replace, hockey(held0, held1, eps))
					}
					z := must(must(c.Curve(release.AnyReport(e0), release.ZeroOut))(t).Delta(eps))(t)
					r := must(must(c.Curve(release.AnyReport(e0), release.ReplaceOne))(t).Delta(eps))(t)
					if zero > z.Delta+1e-15 || replace > r.Delta+1e-15 || zero == 0 && eps < e0/10 {
						t.Errorf("%v p0=%v e0=%v eps=%v: protocol (%g, %g), bounds (%g, %g)",
							tc.schedule, p0, e0, eps, zero, replace, z.Delta, r.Delta)
					}
					if len(tc.w) == 1 && (math.Abs(zero-z.Delta) > 2e-12 || r.DeltaLower > replace+1e-12) {
						t.Errorf("a lone client: %g, exact %g; replace %g, lower %g", zero, z.Delta, replace, r.DeltaLower)
					}
				}
			}
		}
	}
}

// docs/proofs/check-ins.md, theorem 3: three clients in two slots, each slot releasing
// the multiset of its answers.
func TestAveragedCheckInsCoverTheProtocol(t *testing.T) {
	const n, slots = 3, 2
	for _, e0 := range []float64{0.5, 1, 2.5} {
		flip := 1 / (1 + math.Exp(e0))
		law := func(values [n]int) map[string]float64 {
			out := map[string]float64{}
			for places := range 1 << n {
				for answers := range 1 << n {
					p := math.Pow(1./slots, n)
					var count [slots][2]int
					for c := range n {
						if count[places>>c&1][answers>>c&1]++; answers>>c&1 == values[c] {
							p *= 1 - flip
						} else {
							p *= flip
						}
					}
					out[fmt.Sprint(count)] += p
				}
			}
			return out
		}
		c := must(CheckIn{release.AveragedWindow, slots, 1, n}.Curve(release.AnyReport(e0), release.ReplaceOne))(t)
		for _, r := range []float64{0.05, 0.3, 0.8} {
			worst := 0.0
			for others := range 4 {
				worst = max(worst, hockey(law([n]int{0, others & 1, others >> 1}), law([n]int{1, others & 1, others >> 1}), r*e0))
			}
			if g := must(c.Delta(r * e0))(t); worst > g.Delta || worst == 0 {
				t.Errorf("e0=%v eps=%v: protocol %g, bound %g", e0, r*e0, worst, g.Delta)
			}
		}
	}
}

func TestDummyReportsAgainstAllOutcomes(t *testing.T) {
	for _, n := range []int{1, 2, 20, 150} {
		for _, q := range []float64{0.01, 0.2, 0.5, 0.9} {
			for _, eps := range []float64{0, 0.3, 1, 4} {
				e := math.Exp(eps)
				a, b := 0.0, 0.0
				for x := 0; x <= n+1; x++ {
					a += max(0, bin(n, x, q)-e*bin(n, x-1, q))
					b += max(0, bin(n, x-1, q)-e*bin(n, x, q))
				}
				g := must(must(DummyReports(uint64(n), q))(t).Delta(eps))(t)
				if want := max(a, b); !(g.Delta >= want*(1-1e-12) && g.Delta <= want*(1+1e-10)+1e-13) {
					t.Errorf("n=%d q=%v eps=%v: %g, want %g", n, q, eps, g.Delta, want)
				}
			}
		}
	}
}

// docs/proofs/shuffling.md: the bound for sums of RAPPOR's columns does not hold for its
// rows. All others hold one value, the person another or none; the attack counts the rows
// with the person's bit set and the others' bit clear.
func TestRAPPORRowsBreakTheColumnBound(t *testing.T) {
	const e0, n, eps = 4., 10000, 0.65
	f := 1 / (1 + math.Exp(e0))
	attack := 0.0
	for x := 0.0; x < 200; x++ {
		g := func(x float64) float64 { v, _ := binomial.PMF(x, n-1, f*f, 1-f*f); return v }
		with, without := (1-f)*(1-f), f*(1-f)
		attack += max(0, with*g(x-1)+(1-with)*g(x)-math.Exp(eps)*(without*g(x-1)+(1-without)*g(x)))
	}
	columns := must(must(Shuffle(columns(e0), n))(t).Delta(eps))(t)
	rows := must(must(Shuffle(release.AnyReport(2*e0), n))(t).Delta(eps))(t)
	if !(attack > 0.01 && columns.Delta < 1e-9 && rows.Delta >= attack) {
		t.Errorf("attack %g, column bound %g, row bound %g", attack, columns.Delta, rows.Delta)
	}
}
