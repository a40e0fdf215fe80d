package accountant

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

// A view is what leader, helper and collector see of one round, as a law: the pair (count, sum), with dummies in the count and
// discrete Gaussian noise in the sum. attackView computes it from the protocol, not from any dominating pair: n people hold
// -C = -1 each and one more, the victim, holds +1 (or is absent, or holds something else); each is kept with probability rate,
// or a uniform kept of all of them if kept > 0.
type view map[[2]int]float64

type protocol struct {
	others    int     // people who hold -1
	rate      float64 // of keeping each, independently
	kept      int     // if positive: this many of all are kept instead
	dummies   int     // senders of dummies beside
	dummyRate float64
	variance  float64 // of the noise in the sum
}

// run returns the view when the victim holds value; absent leaves him out.
func (p protocol) run(value int, absent bool) view {
	type state struct{ count, sum, kept int }
	law := map[state]float64{{}: 1}
	step := func(rate float64, count, sum int) {
		next := map[state]float64{}
		for s, w := range law {
			next[s] += w * (1 - rate)
			next[state{s.count + count, s.sum + sum, s.kept + 1}] += w * rate
		}
		law = next
	}
	rate := p.rate
	if p.kept > 0 {
		rate = .5 // conditioned on how many, below: any rate gives the uniform subset
	}
	for range p.others {
		step(rate, 1, -1)
	}
	if !absent {
		step(rate, 1, value)
	}
	if p.kept > 0 {
		total := 0.0
		for s, w := range law {
			if s.kept != p.kept {
				delete(law, s)
			} else {
				total += w
			}
		}
		for s := range law {
			law[s] /= total
		}
	}
	for range p.dummies {
		step(p.dummyRate, 1, 0)
	}
	noise := gaussianPMF(p.variance)
	out := view{}
	for s, w := range law {
		for i, n := range noise {
			if n > 1e-18 {
				out[[2]int{s.count, s.sum + i - len(noise)/2}] += w * n
			}
		}
	}
	return out
}

// advantage returns the hockey-stick divergence of a from b: what the best attack on the
// pair (count, sum) reaches.
func advantage(a, b view, epsilon float64) float64 {
	d := 0.0
	for o, w := range a {
		d += max(0, w-math.Exp(epsilon)*b[o])
	}
	return d
}

// isolate is the attack by hand: it looks at sum + count alone, to which whoever holds -1
// contributes nothing.
func isolate(v view) view {
	out := view{}
	for o, w := range v {
		out[[2]int{0, o[0] + o[1]}] += w
	}
	return out
}

// Whatever is claimed about sampling, for a hidden or a public count, no attack on the
// pair (count, sum) beats it, computed by enumerating the protocol on few people. A claim
// of Poisson amplification without dummies would be beaten, and is not made.
func TestCountAndSumAttack(t *testing.T) {
	const variance = 4.0
	inner := discrete(4, 1, release.Interval(1)) // distance 1 for the sum alone, as if the count said nothing
	hidden := func(p protocol) event {
		return poissonSample{composition{dummyCount{uint64(p.dummies), p.dummyRate}, inner}, p.rate}
	}
	held, tight := 0, false
	claimed := map[string]release.Guarantee{} // what is claimed does not depend on what the others hold
	check := func(name string, claim event, n release.Neighbours, p, q view) {
		t.Helper()
		for _, epsilon := range []float64{.1, .3, 1} {
			key := fmt.Sprintf("%+v %v %v", claim, epsilon, n)
			g, ok := claimed[key]
			if !ok {
				var err error
				if g, err = deltaOf(claim, epsilon, n); err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				claimed[key] = g
			}
			held++
			for _, pair := range [][2]view{{p, q}, {q, p}} {
				full, byHand := advantage(pair[0], pair[1], epsilon), advantage(isolate(pair[0]), isolate(pair[1]), epsilon)
				if byHand > full+1e-12 {
					t.Fatalf("%s: the attack by hand reaches %v, more than any, %v", name, byHand, full)
				}
				if full > g.Delta+1e-12 {
					t.Errorf("%s at epsilon %v: the attack reaches %v, claimed %v", name, epsilon, full, g.Delta)
				}
				tight = tight || full > g.Delta*.5
			}
		}
	}
	for _, rate := range []float64{.1, .5} {
		for _, others := range []int{0, 3, 9} {
			// Dummies hide the count: one person is there or not.
			p := protocol{others: others, rate: rate, dummies: 12, dummyRate: .5, variance: variance}
			name := fmt.Sprintf("dummies, rate %v, %d others", rate, others)
			check(name, hidden(p), release.AddRemove, p.run(1, false), p.run(1, true))
			// What hides only that a person's value is zero needs no dummies for the
			// count, which does not change; but the amplification does: without them the
			// victim's being kept shows.
			check(name+", zero-out", hidden(p), release.ZeroOut, p.run(1, false), p.run(0, false))
			// Everyone takes part, and the count is public.
			all := protocol{others: others, rate: 1, variance: variance}
			check("everyone, zero-out", inner, release.ZeroOut, all.run(1, false), all.run(0, false))
			check("everyone, replace", discreteGaussian{Sigma2: release.Rational{Num: 4, Den: 1}, Contribution: release.Interval(2)}, release.ReplaceOne,
				all.run(1, false), all.run(-1, false))
		}
	}
	// A public count: a uniform subset of public size, replace-one at the distance 2C.
	for _, others := range []int{1, 3, 9} {
		total := others + 1
		for kept := 1; kept < total; kept += 2 {
			p := protocol{others: others, kept: kept, variance: variance}
			claim := fixedSample{discrete(4, 1, release.Interval(2)), float64(kept) / float64(total)}
			check(fmt.Sprintf("%d of %d", kept, total), claim, release.ReplaceOne, p.run(1, false), p.run(-1, false))
		}
	}
	if held < 50 || !tight {
		t.Errorf("%d claims held; some attack within a factor of 2 of a claim: %v", held, tight)
	}
}

// Without dummies the attack wins against what Poisson sampling would have claimed for
// the sum alone; so the test above can fail, and no such claim is to be had.
func TestUnhiddenCountWouldBeBroken(t *testing.T) {
	inner := discrete(4, 1, release.Interval(1))
	broken := 0
	for _, rate := range []float64{.02, .1, .5} {
		p := protocol{others: 12, rate: rate, variance: 4}
		with, without := p.run(1, false), p.run(1, true)
		for _, epsilon := range []float64{.1, .3, 1} {
			naive, err := deltaOf(poissonSample{inner, rate}, epsilon, release.AddRemove)
			if err != nil {
				t.Fatal(err)
			}
			if a := max(advantage(with, without, epsilon), advantage(without, with, epsilon)); a > 1.5*naive.Delta {
				broken++
			} else {
				t.Errorf("rate %v, epsilon %v: the attack reaches only %v against %v", rate, epsilon, a, naive.Delta)
			}
			// Zero-out changes no count, and yet: sum + count is the victim's alone.
			zero := p.run(0, false)
			byHand := max(advantage(isolate(with), isolate(zero), epsilon), advantage(isolate(zero), isolate(with), epsilon))
			if full := max(advantage(with, zero, epsilon), advantage(zero, with, epsilon)); byHand > full+1e-12 {
				t.Errorf("by hand %v, at best %v", byHand, full)
			}
			for _, n := range []release.Neighbours{release.AddRemove, release.ZeroOut, release.ReplaceOne} {
				counted := release.One(release.Gaussian{Sigma: 2, Contribution: release.Signed(1)}).Sampled(release.CountedPoisson{Rate: rate, People: 100})
				if g, err := Delta([]release.Release{counted}, epsilon, n); !errors.Is(err, release.ErrUnsupported) {
					t.Errorf("%v, %v: claimed %v, %v", counted, n, g, err)
				}
			}
		}
	}
	if broken != 9 {
		t.Errorf("%d claims broken, want 9", broken)
	}
}
