package cloak

import (
	"math"
	"slices"

	"github.com/starling-agg/starling/internal/outward"
)

// PublishedMessages is the number of messages that a user sends by the bound of Balle,
// Bell, Gascón and Nissim ("Private Summation in the Multi-Message Shuffle Model", CCS
// 2020): ceil(2 + (2 sigma + bits)/(lb n - lb e)), where bits is the logarithm of the
// modulus to base 2, 2^-sigma the statistical distance between the messages of inputs with
// the same sum, and n >= 19 the number of honest users. It is here to compare with:
// [Modern] rests on a bound of its own.
func PublishedMessages(honest uint64, bits, sigma float64) int {
	return int(outward.Whole(2 + (2*sigma+bits)/(math.Log2(float64(honest))-math.Log2E)))
}

// Sizes of tables in which excess is computed for one number of users after the other.
const (
	minTable = 256
	maxTable = 4096
)

// distance bounds ln of the statistical distance between the shuffled messages of honest
// users, m >= 3 each, and uniformly random ones of the same sum, in a group of which order
// is ln of the number of elements: N to the power of a block's entries. It is +Inf where
// theorem 2 of docs/proofs/cloak.md proves nothing, and where the bound is seen to be
// above limit.
func distance(honest uint64, m int, order, limit float64) float64 {
	w := &ways{m: float64(m - 1), q: order}
	n := float64(honest)
	half := func(excess float64) float64 { return excess/2 - math.Ln2 }
	// The first term of the sum is the largest by far, and quick.
	if half(w.q+w.closed(n, 1)) > limit {
		return math.Inf(1)
	}
	if honest > 2*minTable {
		for size := minTable; size <= maxTable && size <= int(honest); size *= 2 {
			if w.settled(size) {
				return half(w.far(n, float64(size)))
			}
		}
	}
	if honest > maxTable {
		return math.Inf(1)
	}
	w.extend(int(honest))
	return half(w.excess[honest])
}

// ways are of splitting m messages of each of a number of users among the users. Two
// independent ways have components: sets of users who got the same messages in both. Its
// methods bound the excess, the mean of N^(c-1) less 1, with c the number of components.
type ways struct {
	m float64
	q float64 // ln of the order of the group, N

	// By a number of users: ln of the factorials of it and of m times it, ln of the
	// excess, and of 1 and the excess.
	users, messages, excess, whole []float64
}

func factorial(n float64) float64 {
	v, _ := math.Lgamma(n + 1)
	return v
}

// closed bounds ln of C(n,s)/C(mn,ms), the mean number of sets of s among n users that are
// closed: that got the same messages in both ways.
func (w *ways) closed(n, s float64) float64 {
	return quotient(factorial(n), factorial(s), factorial(n-s), factorial(w.m*n), factorial(w.m*s), factorial(w.m*(n-s)))
}

// quotient bounds ln of the quotient of two binomial coefficients, of ln of the factorials
// that they are made of.
func quotient(n, s, rest, n2, s2, rest2 float64) float64 {
	return (n - s - rest) - (n2 - s2 - rest2) + outward.Off(n, s, rest, n2, s2, rest2)
}

// anyClosed bounds ln of the mean number of closed sets of at most half of n >= 6 users.
// It falls as n grows.
func (w *ways) anyClosed(n float64) float64 {
	three := outward.Down(n * (n - 1) * (n - 2) / 6)
	return added([]float64{w.closed(n, 1), w.closed(n, 2), math.Log(n/2) - (w.m-1)*math.Log(three)})
}

// extend computes the excess of each number of users up to n.
func (w *ways) extend(n int) {
	terms := make([]float64, 0, n/2)
	for i := len(w.excess); i <= n; i++ {
		w.users = append(w.users, factorial(float64(i)))
		w.messages = append(w.messages, factorial(w.m*float64(i)))
		terms = terms[:0]
		for s := 1; s <= i/2; s++ {
			r := i - s
			terms = append(terms, w.whole[r]+quotient(w.users[i], w.users[s], w.users[r], w.messages[i], w.messages[s], w.messages[r]))
		}
		x := math.Inf(-1)
		if i >= 2 {
			x = outward.Above(w.q + added(terms))
		}
		w.excess = append(w.excess, x)
		w.whole = append(w.whole, outward.Above(added([]float64{0, x})))
	}
}

// settled says whether the excess is at most 1 for every number of users from size/2 on.
func (w *ways) settled(size int) bool {
	w.extend(size)
	for _, x := range w.excess[size/2 : size+1] {
		if x > 0 {
			return false
		}
	}
	return math.Ln2+w.q+w.anyClosed(float64(size)) <= 0
}

// far bounds ln of the excess of n users, for a size that is settled.
func (w *ways) far(n, size float64) float64 {
	rest := math.Ln2
	if half := math.Floor(n / 2); half > size {
		rest = added([]float64{0, math.Ln2 + w.q + w.anyClosed(half)})
	}
	return outward.Above(w.q + w.anyClosed(n) + rest)
}

// added bounds ln of the sum of numbers of which the logarithms are given.
func added(logs []float64) float64 {
	most := slices.Max(logs)
	sum := 0.0
	for _, x := range logs {
		sum += math.Exp(x - most)
	}
	return most + math.Log(sum) + outward.Summed(float64(len(logs)))
}
