package local

import (
	"math"

	"github.com/starling-agg/starling/internal/outward"
)

// maxRedraw is the probability with which a weight may be above the bound of
// [RAPPOR.Bounded].
const maxRedraw = 0x1p-40

// tailError bounds the relative error of tailAbove's probabilities: five times that of
// their logarithm, which is correct to 1e-6.
const tailError = 5e-6

// WeightBound returns the least w >= 1 that the weight of an answer, for any value or
// none, exceeds with probability at most odds, before anything is drawn again; k for odds
// of 0. The probability is rounded up, so w may be one too large where it would all but
// touch the odds.
func (r *RAPPOR) WeightBound(odds float64) int {
	w, _ := weightBound(r.k, r.hit, r.miss, odds)
	return w
}

// WeightOdds bounds the probability that the weight of an answer exceeds w before
// anything is drawn again.
func (r *RAPPOR) WeightOdds(w int) float64 {
	if w >= r.k {
		return 0
	}
	return weightOdds(r.k, r.hit, r.miss, w)
}

// weightOdds bounds the probability that the weight of k bits exceeds w, if one of them
// is sent as one with probability hit and the others with probability miss. Without the
// hit the weight is stochastically smaller.
func weightOdds(k int, hit, miss probability, w int) float64 {
	others := float64(k - 1)
	return hit.float()*tailAbove(others, miss, float64(w-1)) + hit.not()*tailAbove(others, miss, float64(w))
}

// weightBound returns the least w >= 1 whose weightOdds are at most odds, and those.
func weightBound(k int, hit, miss probability, odds float64) (w int, above float64) {
	exceeds := func(w int) float64 { return weightOdds(k, hit, miss, w) }
	low, high := 0, k // exceeds(high) is at most the odds, exceeds(low) is not or low is 0
	for high-low > 1 {
		mid := low + (high-low)/2
		if exceeds(mid) <= odds {
			high = mid
		} else {
			low = mid
		}
	}
	return high, exceeds(high)
}

// tailAbove returns at least P(X > w), and at most 1 + 10^-5 times that if it is small,
// for X ~ Bin(n, p), n < 2^24 and p > 0.
//
// ln P(X = j) is a sum of a few numbers below 3*10^8 and correct to 1e-6: n ln p and
// three logarithms of factorials, of relative errors below 4e-16. The rest is a sum of
// positive terms.
func tailAbove(n float64, p probability, w float64) float64 {
	j := w + 1
	if j > n {
		return 0
	}
	odds := p.float() / p.not()
	if ratio := (n - j) / (j + 1) * odds; ratio >= 1 {
		return 1 // on this side of the mode no tail is small
	}
	factorial := func(x float64) float64 { l, _ := math.Lgamma(x + 1); return l }
	start := factorial(n) - factorial(j) - factorial(n-j) + j*math.Log(p.float()) + (n-j)*math.Log(p.not())
	term, sum := 1.0, 0.0
	for ; ; j++ {
		sum += term
		ratio := (n - j) / (j + 1) * odds
		// The ratios fall, so what is left is below a geometric series.
		if rest := term * ratio / (1 - ratio); rest <= 1e-9*sum {
			sum += rest
			break
		}
		term *= ratio
	}
	// never 0 because it is too small to write
	return min(1, outward.Widened(math.Exp(start)*sum, tailError)+outward.Underflow)
}
