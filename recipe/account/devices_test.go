package account

import (
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/recipe"
)

func decimal(n uint64) recipe.Decimal { return recipe.Decimal{Coefficient: n} }

// hockey is delta(epsilon) between two laws on the same outcomes, in both directions.
func hockey(p, q []float64, epsilon float64) float64 {
	a, b := 0.0, 0.0
	for i := range p {
		a += max(0, p[i]-math.Exp(epsilon)*q[i])
		b += max(0, q[i]-math.Exp(epsilon)*p[i])
	}
	return max(a, b)
}

// RAPPOR's redraws are paid for: with weights so low that they are common, the exact
// curve of the columns' sums stays below what a batch is said to give. The weights are
// lower than any valid recipe's.
func TestRAPPORRedraws(t *testing.T) {
	const length = 3
	for _, c := range []struct {
		batch, weight uint64
		epsilon0      recipe.Decimal
	}{{4, 2, decimal(2)}, {6, 2, decimal(1)}, {3, 1, decimal(3)}, {5, 2, decimal(3)}} {
		r := subject{&recipe.Recipe{
			Query: recipe.Multihot{Length: length, MaxWeight: c.weight, Chunk: 2}, Randomizer: recipe.RAPPOR{Epsilon0: c.epsilon0}, MinBatch: c.batch,
		}}
		flip := 1 / (math.Exp(c.epsilon0.FloatDown()) + 1)
		size := int(c.batch) + 1
		device := func(x int) []float64 { // over the answers, as sums in base size
			law, total := make([]float64, size*size*size), 0.0
			for bits := range 1 << length {
				p, ones, at, unit := 1.0, uint64(0), 0, 1
				for j := range length {
					one := bits>>j&1 == 1
					if one {
						ones++
						at += unit
					}
					if one == (j == x) {
						p *= 1 - flip
					} else {
						p *= flip
					}
					unit *= size
				}
				if ones <= c.weight {
					law[at] = p
					total += p
				}
			}
			for i := range law {
				law[i] /= total
			}
			return law
		}
		batch := func(x int) []float64 {
			law, other := device(x), device(1)
			for range c.batch - 1 {
				next := make([]float64, len(law))
				for i, p := range law {
					for j, q := range other {
						if p*q > 0 {
							next[i+j] += p * q // sums stay below size, so no digit carries
						}
					}
				}
				law = next
			}
			return law
		}
		with, without := batch(0), batch(-1)
		told, err := r.Disclosure(recipe.Situation{Servers: 1}, recipe.Decimal{}, 1)
		if err != nil {
			t.Fatal(err)
		}
		m := told.Releases[0].Mechanism.(release.Shuffled)
		for _, delta := range []float64{0.2, 0.05, 0.01} {
			said, err := r.shuffled(m, delta)
			if err != nil {
				continue // so many redraws that nothing is left
			}
			if said.Delta <= delta {
				t.Errorf("%+v: redraws cost nothing", c)
			}
			if got := hockey(with, without, said.Epsilon); got > said.Delta {
				t.Errorf("%+v: delta %v at %+v", c, got, said)
			}
		}
	}
}

// Redraws of several rounds add ln 1/(1-odds) each to epsilon, and no more than a hundredth
// above it.
func TestRedraws(t *testing.T) {
	z := recipe.Gaussian{Variance: recipe.Rational{Num: 100, Den: 1}, Clip: 1000}
	q := recipe.Vector{Dimension: 1000, FracBits: 10}
	var err error
	if q.Bound, err = z.NoisyBound(q.Dimension, 12); err != nil {
		t.Fatal(err)
	}
	odds, err := z.Redraws(q)
	if err != nil {
		t.Fatal(err)
	}
	told, _, err := (&recipe.Recipe{Query: q, Randomizer: z}).ReportDisclosure(recipe.Decimal{Coefficient: 1, Scale: 1})
	if err != nil {
		t.Fatal(err)
	}
	own := -math.Log1p(-odds)
	if got := told.More(3); got < 3*own || got > 3*own*1.01 {
		t.Errorf("redraws of three rounds cost %v of epsilon, want %v", got, 3*own)
	}
}
