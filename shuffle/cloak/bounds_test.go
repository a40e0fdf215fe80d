package cloak

import (
	"math"
	"math/big"
	"testing"

	"github.com/starling-agg/starling/internal/outward"
)

// each calls f with every vector of a length of residues below q.
func each(length, q int, f func(v []int)) {
	v := make([]int, length)
	for {
		f(v)
		i := 0
		for ; i < length; i++ {
			if v[i]++; v[i] < q {
				break
			}
			v[i] = 0
		}
		if i == length {
			return
		}
	}
}

// key is what a shuffler leaves of messages: how often each residue is there.
func key(counts []int) int {
	k := 0
	for _, c := range counts {
		k = k*32 + c
	}
	return k
}

// A group is a small one whose elements are numbers below its order.
type group struct {
	order     int
	plus, neg func(a, b int) int // a+b, and a-b
}

func residues(q int) group {
	return group{q, func(a, b int) int { return (a + b) % q }, func(a, b int) int { return (a + q - b) % q }}
}

// pairs are those of residues modulo q.
func pairs(q int) group {
	one := residues(q)
	each := func(do func(a, b int) int) func(a, b int) int {
		return func(a, b int) int { return do(a/q, b/q)*q + do(a%q, b%q) }
	}
	return group{q * q, each(one.plus), each(one.neg)}
}

// farthest is the largest statistical distance, over all inputs, between the shuffled
// messages of n users, m each, and random ones of the same sum in a group.
func farthest(n, m int, g group) (most float64) {
	q := g.order
	ideal := make([]map[int]float64, q) // by sum
	for i := range ideal {
		ideal[i] = map[int]float64{}
	}
	factorial := new(big.Int).MulRange(1, int64(n*m))
	each(q-1, n*m+1, func(v []int) {
		counts, rest, sum := append([]int{}, v...), n*m, 0
		weight := new(big.Int).Set(factorial)
		for residue, c := range counts {
			rest -= c
			for range c {
				sum = g.plus(sum, residue+1)
			}
		}
		if rest < 0 {
			return
		}
		counts = append([]int{rest}, counts...)
		for _, c := range counts {
			weight.Quo(weight, new(big.Int).MulRange(1, int64(c)))
		}
		w, _ := new(big.Float).SetInt(weight).Float64()
		ideal[sum][key(counts)] += w / math.Pow(float64(q), float64(n*m-1))
	})
	each(n, q, func(x []int) {
		for i := 1; i < n; i++ {
			if x[i] < x[i-1] {
				return // the order of users makes no difference
			}
		}
		seen, total := map[int]float64{}, 0
		share := math.Pow(float64(q), -float64(n*(m-1)))
		each(n*(m-1), q, func(v []int) {
			counts := make([]int, q)
			for user, last := range x {
				for _, y := range v[user*(m-1) : (user+1)*(m-1)] {
					counts[y]++
					last = g.neg(last, y)
				}
				counts[last]++
			}
			seen[key(counts)] += share
		})
		for _, x := range x {
			total = g.plus(total, x)
		}
		distance := 0.0
		for k, p := range ideal[total] {
			distance += max(0, p-seen[k])
		}
		most = max(most, distance)
	})
	return most
}

// Theorem 2 of docs/proofs/cloak.md holds where all inputs and all splits can be tried.
func TestDistanceHolds(t *testing.T) {
	for _, c := range []struct {
		n, m int
		g    group
	}{
		{2, 4, residues(3)}, {2, 5, residues(3)}, {3, 3, residues(3)}, {4, 3, residues(3)}, {3, 4, residues(3)}, {2, 4, residues(5)}, {3, 3, residues(5)},
		{2, 4, pairs(2)}, {3, 3, pairs(2)}, {2, 5, pairs(2)},
	} {
		bound, got := math.Exp(distance(uint64(c.n), c.m, math.Log(float64(c.g.order)), math.Inf(1))), farthest(c.n, c.m, c.g)
		if !(got > 0 && got <= bound) {
			t.Errorf("%d users, %d messages of a group of %d: distance %v, bound %v", c.n, c.m, c.g.order, got, bound)
		}
	}
}

// components is the mean of q^(c-1) over all ways to give the messages of n users, m each,
// to the users again.
func components(n, m, q int) float64 {
	sum, all := 0.0, 0.0
	each(n*m, n, func(v []int) {
		got, part := make([]int, n), make([]int, n)
		for user := range part {
			part[user] = user
		}
		find := func(user int) int {
			for part[user] != user {
				user = part[user]
			}
			return user
		}
		for message, user := range v {
			got[user]++
			part[find(user)] = find(message / m)
		}
		parts := 0
		for user := range n {
			if got[user] != m {
				return
			}
			if part[user] == user {
				parts++
			}
		}
		all++
		sum += math.Pow(float64(q), float64(parts-1))
	})
	return sum / all
}

// The excess is bounded, and not by far.
func TestExcess(t *testing.T) {
	for _, c := range []struct{ n, m, q int }{{2, 2, 3}, {2, 3, 7}, {3, 2, 3}, {3, 3, 3}, {4, 2, 2}, {3, 2, 101}} {
		w := &ways{m: float64(c.m), q: math.Log(float64(c.q))}
		w.extend(c.n)
		bound, want := math.Exp(w.excess[c.n]), components(c.n, c.m, c.q)-1
		if !(bound >= want && bound <= 6*want) { // it counts ties twice, and q for q-1
			t.Errorf("%+v: excess %v, bound %v", c, want, bound)
		}
	}
}

// For many users the bound is that of the table, or hardly more.
func TestFarIsNear(t *testing.T) {
	for _, c := range []struct{ m, q float64 }{{7, 35}, {10, 35}, {4, 8}} {
		w := &ways{m: c.m, q: c.q * math.Ln2}
		if !w.settled(minTable) {
			t.Fatalf("%+v: not settled", c)
		}
		for _, n := range []int{minTable, 300, 2 * minTable, 1000} {
			w.extend(n)
			far := w.far(float64(n), minTable)
			if slack := far - w.excess[n]; !(slack >= -1e-9 && slack < 0.75 && (n <= 2*minTable || slack < 0.01)) {
				t.Errorf("%+v: ln excess of %d users is %v, bound %v", c, n, w.excess[n], far)
			}
			if n > minTable && w.excess[n] > w.excess[n-1] {
				t.Errorf("%+v: %d users are worse than one less", c, n)
			}
		}
	}
	if w := (&ways{m: 2, q: 60}); w.settled(minTable) {
		t.Error("a bound of nothing is settled")
	}
}

// smooth says whether all sums of m of the 2m messages are within gamma of equally likely.
func smooth(messages []int, m, q int, gamma float64) bool {
	var counts [16][8]float64 // of subsets, by size and sum
	counts[0][0] = 1
	for _, y := range messages {
		for size := m; size > 0; size-- {
			for sum := range q {
				counts[size][(sum+y)%q] += counts[size-1][sum]
			}
		}
	}
	all := 0.0
	for _, c := range counts[m][:q] {
		all += c
	}
	for _, c := range counts[m][:q] {
		if c < all*(1-gamma)/float64(q) || c > all*(1+gamma)/float64(q) {
			return false
		}
	}
	return true
}

// Lemma 1's bound on messages that are not smooth, with all of them tried: 3^10 for each
// pair of inputs.
func TestSmoothness(t *testing.T) {
	const m, q = 6, 3
	for _, x := range [][2]int{{0, 0}, {0, 1}, {2, 2}} {
		gammas := []float64{0.35, 0.5, 0.8}
		failed := make([]float64, len(gammas))
		each(2*(m-1), q, func(v []int) {
			messages := make([]int, 0, 2*m)
			for user := range 2 {
				last := x[user]
				for _, y := range v[user*(m-1) : (user+1)*(m-1)] {
					messages = append(messages, y)
					last += q - y
				}
				messages = append(messages, last%q)
			}
			for i, gamma := range gammas {
				if !smooth(messages, m, q, gamma) {
					failed[i] += math.Pow(q, -2*(m-1))
				}
			}
		})
		for i, gamma := range gammas {
			if bound := rough(q, m, gamma); !(failed[i] <= bound && bound < 1) || i == 0 && failed[i] == 0 {
				t.Errorf("inputs %v: not %v-smooth with probability %v, bound %v", x, gamma, failed[i], bound)
			}
		}
	}
}

// The subsets of which lemma 1 says that their sums are independent in pairs are not where
// they are complements; its bound holds for all that (docs/proofs/cloak.md, theorem 4): the
// variance that it takes is twice as large for one sum, and C(2m,m) is above 4^m/(2 root m)
// by as much.
func TestComplements(t *testing.T) {
	for m := 3.0; m <= maxMessages; m++ {
		chebyshev := math.Log(9*17*18) - (factorial(2*m) - 2*factorial(m)) + outward.Off(factorial(2*m))
		if lemma := math.Log(rough(17, m, 1)); chebyshev > lemma {
			t.Errorf("m = %v: %v above %v", m, chebyshev, lemma)
		}
	}
}

func TestScales(t *testing.T) {
	for _, o := range []Options{
		{Users: 2, Precision: 1, Epsilon: 20, Delta: 0.1}, {Users: 2, Precision: 1 << 32, Epsilon: 1, Delta: 0.1},
		{Users: 2, Precision: 1000, Entries: 7, Epsilon: math.Pi, Delta: 0.1},
	} {
		o.setDefaults()
		s, u, err := o.scale(1, o.Moved)
		want := new(big.Rat).Quo(big.NewRat(int64(o.Precision)*int64(o.Entries), 1), new(big.Rat).SetFloat64(o.Epsilon))
		got := new(big.Rat).SetFrac(new(big.Int).SetUint64(s), new(big.Int).SetUint64(u))
		if f, _ := new(big.Rat).Quo(got, want).Float64(); err != nil || got.Cmp(want) < 0 || f > 1+1e-7 {
			t.Errorf("%+v: scale %v, want %v, %v", o, got, want, err)
		}
	}
	if _, _, err := (&Options{Epsilon: 1e-9}).scale(1, 1<<52); err == nil {
		t.Error("a scale without bound")
	}
}
