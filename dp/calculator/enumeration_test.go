package calculator

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
)

// A law is the probabilities of all outcomes of a release, in the same order for the laws
// that are compared.
type law []float64

// around is discrete noise about x, on -reach..reach and all beyond as one outcome.
func around(weight func(z float64) float64, x, reach int) law {
	total := 0.0
	for z := -400; z <= 400; z++ {
		total += weight(float64(z))
	}
	out := make(law, 0, 2*reach+2)
	rest := 1.0
	for y := -reach; y <= reach; y++ {
		w := weight(float64(y-x)) / total
		out = append(out, w)
		rest -= w
	}
	return append(out, max(0, rest))
}

// response is randomized response about x of k.
func response(epsilon0 float64, k, x int) law {
	z := math.Exp(epsilon0) + float64(k) - 1
	out := make(law, k)
	for j := range out {
		out[j] = 1 / z
	}
	out[x] = math.Exp(epsilon0) / z
	return out
}

// mix is a with probability w, else b.
func mix(w float64, a, b law) law {
	out := make(law, len(a))
	for i := range a {
		out[i] = w*a[i] + (1-w)*b[i]
	}
	return out
}

// times is the law of independent outcomes.
func times(laws ...law) law {
	out := law{1}
	for _, l := range laws {
		next := make(law, 0, len(out)*len(l))
		for _, p := range out {
			for _, q := range l {
				next = append(next, p*q)
			}
		}
		out = next
	}
	return out
}

// rounds is the law of n independent rounds.
func rounds(l law, n uint64) law {
	out := law{1}
	for range n {
		out = times(out, l)
	}
	return out
}

// someOf is t releases, of which a uniform set of k have the law here and the others away.
func someOf(here, away law, t, k int) law {
	var sum law
	sets := 0.0
	for set := range 1 << t {
		ones, parts := 0, make([]law, t)
		for i := range t {
			if parts[i] = away; set>>i&1 == 1 {
				parts[i] = here
				ones++
			}
		}
		if ones != k {
			continue
		}
		sets++
		one := times(parts...)
		if sum == nil {
			sum = make(law, len(one))
		}
		for i := range one {
			sum[i] += one[i]
		}
	}
	for i := range sum {
		sum[i] /= sets
	}
	return sum
}

// twoServers is the noise of both servers about x.
func twoServers(weight func(z float64) float64, x int) law {
	const wide, reach = 100, 60
	one := around(weight, 0, wide)
	out, rest := make(law, 0, 2*reach+2), 1.0
	for y := -reach; y <= reach; y++ {
		w := 0.0
		for z := max(-wide, y-x-wide); z <= min(wide, y-x+wide); z++ {
			w += one[z+wide] * one[y-x-z+wide]
		}
		out = append(out, w)
		rest -= w
	}
	return append(out, max(0, rest))
}

// counts is how many of several independent answers, of at most three kinds, are of each
// kind.
func counts(answers ...law) law {
	hist := map[[3]int]float64{{}: 1}
	for _, l := range answers {
		next := map[[3]int]float64{}
		for h, w := range hist {
			for j, p := range l {
				g := h
				g[j]++
				next[g] += w * p
			}
		}
		hist = next
	}
	n := len(answers) + 1
	out := make(law, 0, n*n*n)
	for i := range n * n * n {
		out = append(out, hist[[3]int{i / n / n, i / n % n, i % n}])
	}
	return out
}

// unordered is two outcomes without which is whose.
func unordered(x, y law) law {
	var out law
	for i := range x {
		for j := range i {
			out = append(out, x[i]*y[j]+x[j]*y[i])
		}
		out = append(out, x[i]*y[i])
	}
	return out
}

// divergence is delta(epsilon) in the direction, or the larger of both.
func divergence(p, q law, epsilon float64, d release.Direction) float64 {
	remove, add, e := 0.0, 0.0, math.Exp(epsilon)
	for i := range p {
		remove += max(0, p[i]-e*q[i])
		add += max(0, q[i]-e*p[i])
	}
	switch d {
	case release.Remove:
		return remove
	case release.Add:
		return add
	}
	return max(remove, add)
}

// An enumeration compares answers with protocols of which all outcomes are known.
type enumeration struct {
	*testing.T
	delta float64
	rows  int
}

// check asks the question, whose neighbours lead to the laws p and q. If they are the
// worst there are, the lower bound must be below what they need.
func (t *enumeration) check(what string, question Ask, p, q law, worst bool) {
	t.Helper()
	question.Delta = t.delta
	a, err := question.Answer()
	if err != nil {
		t.Errorf("%s, %+v: %v", what, question.Line, err)
		return
	}
	t.rows++
	const rounding, beyond = 1e-6, 1e-13 // of sums, and of what around puts into one outcome
	if d := divergence(p, q, a.Epsilon, question.Direction); d > t.delta*(1+rounding)+beyond {
		t.Errorf("%s, %+v: epsilon %v is claimed at %v, and delta is %v there: %s", what, question.Line, a.Epsilon, t.delta, d, a.Theorem)
	}
	if !worst || a.EpsilonLower == 0 {
		return
	}
	if d := divergence(p, q, a.EpsilonLower, question.Direction); d < t.delta*(1-rounding)-beyond {
		t.Errorf("%s, %+v: nothing below %v is said to hold at %v, and delta is %v there: %s", what, question.Line, a.EpsilonLower, t.delta, d, a.Theorem)
	}
}

// patient says whether tests ask all that they have to ask, as CI does, or a part that
// takes seconds.
func patient() bool { return os.Getenv("CI") == "true" }

// TestAnswersAgainstEnumeration: no epsilon is below, and no lower bound above, what
// random protocols of a few people need, of which every outcome is enumerated: noise,
// coins, allocations with coins, check-ins, samples of public size, shuffled samples, one
// direction alone, and mixtures. The seed is fixed. Ten protocols of each kind are asked
// where CI=true, elsewhere the first two.
func TestAnswersAgainstEnumeration(t *testing.T) {
	rng := rand.New(rand.NewPCG(2026, 11))
	e := &enumeration{T: t}
	protocols := 2
	if patient() {
		protocols = 10
	}
	for range protocols {
		e.delta = math.Exp(math.Log(1e-8) + rng.Float64()*math.Log(1e7))
		e.noise(rng)
		e.reports(rng)
	}
	if e.rows < 30*protocols {
		t.Errorf("only %d settings were compared", e.rows)
	}
}

var bothWays = []release.Direction{release.BothDirections, release.Remove, release.Add}

// noise draws a mechanism with noise of the servers, and ways of taking part.
func (t *enumeration) noise(rng *rand.Rand) {
	const wide, small = 60, 8
	scale := math.Round((0.5+2*rng.Float64())*64) / 64
	r := Line{Mechanism: release.NameDiscreteLaplace, Scale: scale, Sensitivity: float64(1 + rng.IntN(2))}
	weight := func(z float64) float64 { return math.Exp(-math.Abs(z) / scale) }
	if rng.IntN(2) == 0 {
		r.Mechanism, r.Sigma, r.Scale = release.NameDiscreteGaussian, scale, 0
		weight = func(z float64) float64 { return math.Exp(-z * z / (2 * scale * scale)) }
	}
	c, rate := int(r.Sensitivity), 0.05+0.9*rng.Float64()
	here, away, opposite := around(weight, c, wide), around(weight, 0, wide), around(weight, -c, wide)

	coins := r
	coins.Sampling, coins.Steps = rate, 2
	sampled := rounds(mix(rate, here, away), 2)
	for _, d := range bothWays {
		t.check("coins twice", Ask{Line: coins, Direction: d}, sampled, rounds(away, 2), true)
	}
	coins.Steps = 1 + uint64(rng.IntN(2))
	t.check("coins, replaced", Ask{Line: coins, Neighbours: release.ReplaceOne},
		rounds(mix(rate, here, away), coins.Steps), rounds(mix(rate, opposite, away), coins.Steps), false)
	u, v := twoServers(weight, c), twoServers(weight, 0)
	t.check("coins, two servers", Ask{Line: coins, Honest: 2}, rounds(mix(rate, u, v), coins.Steps), rounds(v, coins.Steps), true)

	// The count is public and all others hold -C: the noise is around -C for each who was
	// kept, which is known.
	coins.Steps = 1
	t.check("public sample", Ask{Line: coins, Count: CountPublic}, mix(rate, here, opposite), opposite, false)
	n := 20 + rng.IntN(20)
	var p, q law
	chance := math.Pow(1-rate, float64(n)) // of a sample of x
	for x := 0; x <= n; x++ {
		with := mix(float64(x)/float64(n), here, opposite)
		for i := range with {
			p, q = append(p, chance*with[i]), append(q, chance*opposite[i])
		}
		chance *= float64(n-x) / float64(x+1) * rate / (1 - rate)
	}
	t.check(fmt.Sprintf("coins of %d people", n), Ask{Line: coins, Count: CountPublic, Population: uint64(n)}, p, q, false)

	// Longer products of outcomes: fewer of them.
	here, away, opposite = around(weight, c, small), around(weight, 0, small), around(weight, -c, small)
	steps := 2 + rng.IntN(2)
	picks := 1 + rng.IntN(steps)
	some := r
	some.Picks, some.Of = uint64(picks), uint64(steps)
	p, q = someOf(here, away, steps, picks), someOf(here, away, steps, 0)
	t.check("allocation", Ask{Line: some}, p, q, false)
	some.Sampling = rate
	for _, d := range bothWays {
		t.check("allocation by a coin", Ask{Line: some, Direction: d}, mix(rate, p, q), q, false)
	}
	p, q = someOf(here, opposite, 2, 1), someOf(here, opposite, 2, 0)
	for _, d := range bothWays {
		t.check("check-ins", Ask{Line: r, CheckIn: release.SlidingWindow, Window: 2, P0: rate, Direction: d}, mix(rate, p, q), q, false)
	}
	if r.Mechanism == release.NameDiscreteLaplace {
		another := around(weight, []int{-c, 0, c}[rng.IntN(3)], small)
		t.check("shuffled noise", Ask{Line: r, ShuffleN: 2}, unordered(here, another), unordered(opposite, another), false)
	}
}

// reports draws reports of devices, and ways of taking part.
func (t *enumeration) reports(rng *rand.Rand) {
	r := Line{Mechanism: release.NameResponse, Epsilon0: 0.3 + 3*rng.Float64(), K: 2 + uint64(rng.IntN(2))}
	k := int(r.K)
	about := func(x int) law { return response(r.Epsilon0, k, x) }
	one, other := about(0), about(1)
	noise := around(func(z float64) float64 { return math.Exp(-math.Abs(z) / 2) }, 1, 60)
	away := around(func(z float64) float64 { return math.Exp(-math.Abs(z) / 2) }, -1, 60)
	t.check("mixed", Ask{Lines: []Line{r, {Mechanism: release.NameDiscreteLaplace, Scale: 2}}, Neighbours: release.ReplaceOne}, times(one, noise), times(other, away), true)

	n := 2 + rng.IntN(2)
	total := n + rng.IntN(4)
	rate := float64(n) / float64(total)
	rest := about(rng.IntN(k))
	for x := range 2 {
		members := []law{mix(rate, about(x), rest), rest, rest}[:n]
		replaced := []law{mix(rate, about(1-x), rest), rest, rest}[:n]
		p, q := counts(members...), counts(replaced...)
		for _, m := range []accountant.Method{accountant.Auto, accountant.PLD, Clones} {
			for _, r.Steps = range []uint64{1, 2} {
				r.Sampling = rate
				t.check(fmt.Sprintf("shuffled sample of %d in %d by %q", n, total, m), Ask{Line: r, ShuffleN: uint64(n), Count: CountPublic, Method: m},
					rounds(p, r.Steps), rounds(q, r.Steps), false)
			}
		}
	}

	// By a coin that nobody sees; who is not there is as another answer.
	r.Steps, r.Sampling = 1, rate
	t.check("answers by a coin", Ask{Line: r, Neighbours: release.ReplaceOne}, mix(rate, one, rest), mix(rate, other, rest), false)
	bits := Line{Mechanism: release.NameRAPPOR, Epsilon0: r.Epsilon0, Sampling: rate}
	on, off := response(r.Epsilon0, 2, 0), response(r.Epsilon0, 2, 1)
	first, second, none := times(on, off), times(off, on), times(off, off)
	t.check("bits by a coin", Ask{Line: bits, Neighbours: release.ReplaceOne}, mix(rate, first, none), mix(rate, second, none), false)
	bits.Sampling, bits.Steps = 0, 2
	t.check("bits", Ask{Line: bits, Neighbours: release.ReplaceOne}, rounds(first, 2), rounds(second, 2), true)
	bits.Steps = 1
	t.check("check-ins of bits", Ask{Line: bits, CheckIn: release.FixedWindow, Window: 2, P0: rate, Neighbours: release.ZeroOut},
		mix(rate, someOf(first, second, 2, 1), someOf(first, second, 2, 0)), someOf(first, second, 2, 0), false)

	r.Sampling, r.Steps = 0, 2
	m := 2 + rng.IntN(2)
	p, q := someOf(one, other, m, 1), someOf(one, other, m, 0)
	t.check("check-ins twice", Ask{Line: r, CheckIn: release.FixedWindow, Window: uint64(m), P0: rate, Neighbours: release.AddRemove},
		rounds(mix(rate, p, q), 2), rounds(q, 2), true)
}
