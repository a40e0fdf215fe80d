package recipe_test

import (
	"testing"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// With coins too, the noise of two honest servers counts: half shares for the claim,
// Laplace noise for the second guarantee.
func TestTwoServersAndCoins(t *testing.T) {
	make := func(n Noise, servers uint8) *Recipe {
		r := targeted()
		r.Targeting, r.Noise = nil, n
		claim := r.Claim.(ApproxDP)
		claim.HonestServers, claim.Epsilon = servers, Decimal{10, 0}
		r.Claim = claim
		return r
	}
	guarantee := func(r *Recipe) *Guarantee {
		t.Helper()
		g, err := account.Guarantee(r)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	// Two draws of variance 9 are one of 18, as nearly as the accountant computes.
	whole, half := guarantee(make(DiscreteGaussian{Rational{Num: 18, Den: 1}, DrawsAll}, 1)), guarantee(make(DiscreteGaussian{Rational{Num: 18, Den: 1}, DrawsHalf}, 2))
	if d := half.Epsilon/whole.Epsilon - 1; d > 1e-3 || d < -1e-3 {
		t.Errorf("half shares give %v, one whole share %v", half.Epsilon, whole.Epsilon)
	}
	if f, ok := half.Fallback(OneServerFails); !ok || !(f.Loss.Epsilon > half.Epsilon*1.2) {
		t.Errorf("if one server fails: %v, with both %v", f.Loss, half.Loss)
	}
	// Narrow halves are no discrete Gaussian together.
	narrow := guarantee(make(DiscreteGaussian{Rational{Num: 2, Den: 1}, DrawsHalf}, 2))
	if alone := guarantee(make(DiscreteGaussian{Rational{Num: 1, Den: 1}, DrawsAll}, 1)); !(narrow.Epsilon < alone.Epsilon) {
		t.Errorf("two narrow halves give %v, one of them %v", narrow.Epsilon, alone.Epsilon)
	}
	for _, r := range []*Recipe{make(DiscreteLaplace{Rational{Num: 4, Den: 1}}, 1), make(DiscreteGaussian{Rational{Num: 16, Den: 1}, DrawsAll}, 1)} {
		one := guarantee(r)
		both, ok := account.BothHonest(r)
		if !ok || !(both.Epsilon < one.Epsilon*0.9 && both.Epsilon > one.Epsilon*0.4) {
			t.Errorf("%v: %v with both servers honest, %v with one", r.Noise, both, one.Loss)
		}
	}
}

// TestTwoHonestServersAreNoWorse: what is said of two honest servers is below what is said
// of one, or it is not said: of the sum of two Laplace draws less is known than of one.
func TestTwoHonestServersAreNoWorse(t *testing.T) {
	said := 0
	for _, q := range []Query{Count{}, Sum{Max: 5}, Histogram{Length: 4}, SumVec{Length: 2, Max: 3}, Quantiles{Max: 9, Width: 1, Branching: 3}, GroupSums{Min: -3, Max: 7, Groups: 2}, tree(t, "a(b,c),d"), L1BoundSum{Length: 4, Max: 10}, L1BoundSum{Length: 1, Max: 10}} {
		for _, rounds := range []uint32{1, 3} {
			r, err := account.New(account.Options{Name: "Two", Query: q, Leader: "https://leader.example/", Helper: "https://helper.example/", MinBatch: 100,
				Kind: account.LaplaceNoise, Epsilon: Decimal{1, 0}, Rounds: rounds})
			if err != nil {
				t.Fatal(err)
			}
			g, err := account.Guarantee(r)
			if err != nil {
				t.Fatal(err)
			}
			both, ok := account.BothHonest(r)
			if ok && !(both.Epsilon < g.Epsilon) {
				t.Errorf("%v, %d rounds: %v with one honest server, %v with two", q, rounds, g.Loss, both)
			}
			if ok {
				said++
			}
		}
	}
	if said < 4 {
		t.Errorf("two honest servers are better %d times only", said)
	}
}
