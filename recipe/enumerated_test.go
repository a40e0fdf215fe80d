package recipe_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
	. "github.com/starling-agg/starling/recipe"
)

// cube calls f with each vector of length numbers from low to high; f must not keep it.
func cube(length, low, high int, f func([]int)) {
	x := make([]int, length)
	var fill func(i int)
	fill = func(i int) {
		if i == length {
			f(x)
			return
		}
		for x[i] = low; x[i] <= high; x[i]++ {
			fill(i + 1)
		}
	}
	fill(0)
}

// answersOf are the sums of one answer each, found by trying all numbers up to the largest.
func answersOf(q Query) (list [][]int) {
	if h, ok := q.(Histogram); ok {
		for i := range h.Length {
			x := make([]int, h.Length)
			x[i] = 1
			list = append(list, x)
		}
		return list
	}
	if numbers, ok := q.(Quantiles); ok {
		for n := range numbers.Max + 2 {
			x := make([]int, q.Aggregates())
			for i, mark := range numbers.Marks([]uint64{n}) {
				if mark {
					x[i] = 1
				}
			}
			list = append(list, x)
		}
		return list
	}
	if sums, ok := q.(GroupSums); ok {
		for n := range uint64(sums.Max - sums.Min + 1) {
			for group := range uint64(sums.Groups) {
				x := make([]int, q.Aggregates())
				for i, v := range sums.Encode([]uint64{uint64(sums.Min) + n, group}) {
					x[i] = int(v)
				}
				list = append(list, x)
			}
		}
		return list
	}
	if places, ok := q.(Hierarchy); ok {
		for leaf := uint64(0); q.Holds([]uint64{leaf}); leaf++ {
			x := make([]int, q.Aggregates())
			for i, mark := range places.Marks([]uint64{leaf}) {
				if mark {
					x[i] = 1
				}
			}
			list = append(list, x)
		}
		return list
	}
	cube(q.Aggregates(), 0, int(q.Largest()), func(x []int) {
		numbers := make([]uint64, len(x))
		for i, v := range x {
			numbers[i] = uint64(v)
		}
		if q.Holds(numbers) {
			list = append(list, append([]int(nil), x...))
		}
	})
	return list
}

// TestEnumeratedPureLoss: of each query on few places, for all answers and all results
// next to them, one answer in place of another makes a result at most e^epsilon times as
// likely under Laplace noise, and some pair makes one as much: the terms that a
// certificate must have say epsilon itself, for wide multi-hot queries too.
func TestEnumeratedPureLoss(t *testing.T) {
	queries := []Query{Count{}, Sum{Max: 5}, Mean{Max: 3}}
	for _, q := range []Quantiles{{Max: 1, Width: 1, Branching: 2}, {Max: 2, Width: 1, Branching: 2}, {Min: 2, Max: 9, Width: 2, Branching: 2}, {Max: 3, Width: 1, Branching: 3}, {Max: 3, Width: 1, Branching: 4}} {
		queries = append(queries, q)
	}
	for _, q := range []GroupSums{{Min: 0, Max: 1, Groups: 2}, {Min: -1, Max: 1, Groups: 2}} {
		queries = append(queries, q)
	}
	queries = append(queries, tree(t, "a,b"), tree(t, "a,*b"), tree(t, "a(b,c),d(e,f)"))
	for n := uint32(1); n <= 4; n++ {
		queries = append(queries, Histogram{Length: n})
		for k := uint64(1); k <= uint64(n); k++ {
			queries = append(queries, Multihot{Length: n, MaxWeight: k})
		}
		if n <= 3 {
			queries = append(queries, SumVec{Length: n, Max: 2}, L1BoundSum{Length: n, Max: 2})
		}
	}
	for _, q := range queries {
		r := doctor()
		r.Query = q
		r.Noise = DiscreteLaplace{Rational{Num: 7, Den: 3}}
		r.Claim = ApproxDP{Epsilon: Decimal{100, 0}, Neighbours: r.Neighbours(), HonestServers: 1, Rounds: 3}
		statements, err := r.Statements()
		if err != nil {
			t.Fatal(q, err)
		}
		stated := new(big.Rat)
		for _, term := range statements[0].Terms {
			loss, ok := term.Loss()
			if !ok {
				t.Fatalf("%v: no loss of %v", q, term)
			}
			stated.Add(stated, loss.Mul(loss, new(big.Rat).SetUint64(term.Count)))
		}
		most := 0
		answers := answersOf(q)
		cube(q.Aggregates(), -1, int(q.Largest())+1, func(y []int) {
			least, largest := math.MaxInt, 0
			for _, x := range answers {
				away := 0
				for i := range y {
					away += max(y[i]-x[i], x[i]-y[i])
				}
				least, largest = min(least, away), max(largest, away)
			}
			most = max(most, largest-least)
		})
		// Losses of a bounded total are stated as float64s.
		want := big.NewRat(3*int64(most)*3, 7)
		over, _ := new(big.Rat).Sub(stated, want).Float64()
		if len(answers) > 1 && (over < 0 || over > 1e-14) || len(answers) == 1 && most != 0 {
			t.Errorf("%v: %v is stated, and all results lose up to %v", q, stated, want)
		}
	}
}

// TestEnumeratedWideSample: one who comes to a secret sample or goes moves the places that
// they mark, and a number that dummies hide. All results of few places, few dummies and
// Gaussian noise stay within what the accountant says of the recipe's release, and within a
// certificate, and come close to both for who marks as much as they may.
func TestEnumeratedWideSample(t *testing.T) {
	const rate, dummies, dummyRate, variance = 0.3, 12, 0.5, 2
	for _, c := range []struct {
		places, weight int
		reach          int // of noise that is looked at
	}{{1, 1, 12}, {2, 1, 12}, {2, 2, 12}, {3, 2, 10}, {3, 3, 10}, {4, 3, 6}} {
		r := needles()
		r.Query = Multihot{Length: uint32(c.places), MaxWeight: uint64(c.weight)}
		r.Participation, r.Cover, r.Noise = Bernoulli{Rational{Num: 3, Den: 10}}, nil, EachDraws(Rational{Num: variance, Den: 1})
		x, err := r.Disclosure(Situation{Servers: 1, Hidden: true, Free: true}, Decimal{1, 6}, 1)
		if err != nil {
			t.Fatal(err)
		}
		list := []release.Release{x.Releases[0].Sampled(release.Poisson{Rate: rate, Dummies: dummies, DummyRate: dummyRate})}
		if got, ok := x.Releases[0].Sampling.(release.Poisson); !ok || math.Abs(got.Rate-rate) > 1e-15 {
			t.Fatalf("sampled as %v", x.Releases[0].Sampling)
		}
		gauss, total := make([]float64, 2*c.reach+3), 0.0
		for z := -40; z <= 40; z++ {
			total += math.Exp(-float64(z*z) / (2 * variance))
		}
		for i := range gauss {
			z := float64(i - c.reach - 1)
			gauss[i] = math.Exp(-z*z/(2*variance)) / total
		}
		law := make([]float64, dummies+2) // of the number of reports of others
		for n := range dummies + 1 {
			law[n] = math.Exp(lchoose(dummies, n)) * math.Pow(dummyRate, float64(n)) * math.Pow(1-dummyRate, float64(dummies-n))
		}
		for _, delta := range []float64{1e-1, 1e-2, 1e-3} {
			g, err := accountant.Epsilon(list, delta, r.Neighbours())
			if err != nil {
				t.Fatal(err)
			}
			cert, err := accountant.Certify(list, delta, r.Neighbours())
			if err != nil || cert.Check() != nil {
				t.Fatalf("%+v: %v", c, err)
			}
			worst := 0.0
			for weight := 0; weight <= c.weight; weight++ {
				come, gone := 0.0, 0.0 // delta of either direction
				cube(c.places, -c.reach, c.reach, func(y []int) {
					without, with := 1.0, 1.0
					for i, v := range y {
						without *= gauss[v+c.reach+1]
						if i < weight {
							v--
						}
						with *= gauss[v+c.reach+1]
					}
					for n := range law {
						q, p := law[n]*without, 0.0
						if n > 0 {
							p = law[n-1] * with
						}
						p = rate*p + (1-rate)*q
						come += max(0, p-math.Exp(g.Epsilon)*q)
						gone += max(0, q-math.Exp(g.Epsilon)*p)
					}
				})
				worst = max(worst, come, gone)
			}
			if worst > delta*(1+1e-9) || worst < 0.97*delta {
				t.Errorf("%+v: delta %v is reached at epsilon %v, of %v", c, worst, g.Epsilon, delta)
			}
			if cert.Epsilon < g.EpsilonLower || cert.Epsilon > 1.02*g.Epsilon {
				t.Errorf("%+v: certified %v, computed %v", c, cert.Epsilon, g.Epsilon)
			}
		}
	}
}

func lchoose(n, k int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}
