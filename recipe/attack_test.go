package recipe_test

import (
	"math"
	"testing"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"

	"github.com/starling-agg/starling/dp/release"
)

// countAttack is delta(epsilon) of one person's answer x against none, for an adversary
// who sees the exact number of reports and the noisy sum, where all of n others hold the
// answer 1, report it with probability s, and otherwise send a dummy with probability d.
// Then the number less the sum is the number of dummies and noise, and the person's own
// report if x is 0.
func countAttack(n int, s, d, sigma2 float64, x int, epsilon float64) float64 {
	const reach = 20
	gauss, total := make([]float64, 2*reach+1), 0.0
	for i := range gauss {
		gauss[i] = math.Exp(-float64((i-reach)*(i-reach)) / (2 * sigma2))
		total += gauss[i]
	}
	size := n + 2
	law := make([]float64, size*size) // of the others: their sum, the number of their reports
	law[0] = 1
	for range n {
		for sum := size - 1; sum >= 0; sum-- {
			for count := size - 1; count >= 0; count-- {
				p := law[sum*size+count] * (1 - s) * (1 - d)
				if count > 0 {
					p += law[sum*size+count-1] * (1 - s) * d
					if sum > 0 {
						p += law[(sum-1)*size+count-1] * s
					}
				}
				law[sum*size+count] = p
			}
		}
	}
	view := func(report, dummy float64) []float64 {
		out := make([]float64, (size+1+2*reach)*size)
		for sum := range size {
			for count := range size {
				put := func(p float64, sum, count int) {
					if count < size && p > 0 {
						for z, g := range gauss {
							out[(sum+z)*size+count] += p * g / total
						}
					}
				}
				p := law[sum*size+count]
				put(p*(1-report-dummy), sum, count)
				put(p*report, sum+x, count+1)
				put(p*dummy, sum, count+1)
			}
		}
		return out
	}
	return hockey(view(s, (1-s)*d), view(0, d), epsilon)
}

// The attack on the public count: with dummies it stays within what the recipe claims;
// without them it breaks what sampling alone would claim, and the recipe is refused.
func TestCountAttack(t *testing.T) {
	const n, sigma2 = 60, 4
	r := needles()
	r.Query, r.Participation, r.Cover = Count{}, Bernoulli{Rational{Num: 1, Den: 5}}, nil
	r.Noise = DiscreteGaussian{Rational{Num: sigma2, Den: 1}, DrawsAll}
	for _, dummies := range []Rational{{Num: 1, Den: 2}, {Num: 1, Den: 3}} {
		r.Dummies = &Dummies{Rate: dummies, Senders: n + 1}
		for _, delta := range []Decimal{{1, 1}, {3, 2}, {1, 2}} {
			l, _, err := account.LossIn(r, Situation{Servers: 1, Hidden: true}, delta, 1, release.AddRemove)
			if err != nil {
				t.Fatal(err)
			}
			for x := range 2 {
				if got := countAttack(n, 0.2, dummies.Float(), sigma2, x, l.Epsilon); got > delta.Float() {
					t.Errorf("dummies %s, answer %d: the attack reaches delta %v at %v", dummies, x, got, l)
				}
			}
		}
	}
	naive, _, err := account.LossIn(r, Situation{Servers: 1, Hidden: true, Free: true}, Decimal{3, 2}, 1, release.AddRemove)
	if err != nil {
		t.Fatal(err)
	}
	if got := countAttack(n, 0.2, 0, sigma2, 0, naive.Epsilon); got < 0.036 {
		t.Errorf("without dummies the attack reaches delta %v at %v: it should have won", got, naive)
	}
	r = needles()
	r.Dummies = nil
	if err := account.Validate(r); !invalidAt(err, "dummies") {
		t.Errorf("a recipe without dummies: %v", err)
	}
}
