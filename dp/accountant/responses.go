package accountant

import (
	"math"

	"github.com/starling-agg/starling/internal/outward"
)

// responses is count answers of binary randomized response at e0: answer yes against no
// in count independent coins of bias e^e0/(1+e^e0). It is the worst pair of all e0-DP
// mechanisms (Kairouz, Oh and Viswanath 2015), and exactly the discrete Laplace mechanism
// of scale 1/e0 at distance 1.
type responses struct {
	e0    float64
	count int
	first int       // weight[i] belongs to first+i yes-coins
	w     []float64 // probabilities
	miss  float64   // bounds the probability outside
	rel   float64   // bounds the relative error of w
}

const maxResponses = 50_000_000

func newResponses(e0, count float64) (*responses, error) {
	if count > maxResponses {
		return nil, parameter("number of compositions", count, "at most 5*10^7 for this theorem")
	}
	t := int(count)
	r := &responses{e0: e0, count: t, rel: outward.Summed(count)}
	// Weights outside mean +- width have total probability below 2 exp(-2 width^2/t) <=
	// 1e-260 (Hoeffding).
	p := 1 / (1 + math.Exp(-e0))
	width := math.Sqrt(300 * count)
	r.first = max(0, int(p*count-width)-1)
	last := min(t, int(p*count+width)+1)
	if r.first > 0 || last < t {
		r.miss = 1e-250
	}
	r.w = make([]float64, last-r.first+1)
	// From the mode outwards: w[j+1]/w[j] = (t-j)/(j+1) e^e0. Underflow to zero only
	// loses what miss covers.
	mode := min(max(int(p*(count+1)), r.first), last)
	ratio := math.Exp(-e0)
	r.w[mode-r.first] = 1
	sum := 1.0
	for j := mode; j < last; j++ {
		v := r.w[j-r.first] * float64(t-j) / float64(j+1) / ratio
		if ratio == 0 {
			v = 0
		}
		r.w[j+1-r.first] = v
		sum += v
	}
	for j := mode; j > r.first; j-- {
		v := r.w[j-r.first] * float64(j) / float64(t-j+1) * ratio
		r.w[j-1-r.first] = v
		sum += v
	}
	for i := range r.w {
		r.w[i] /= sum
	}
	return r, nil
}

// delta sums, over the yes-counts j whose loss (2j - count) e0 exceeds epsilon, w_j (1 -
// e^(epsilon - loss)): terms that are all positive.
func (r *responses) delta(epsilon float64) (lower, upper float64) {
	if epsilon >= outward.Above(float64(r.count)*r.e0) {
		return 0, 0
	}
	s := 0.0
	for i := len(r.w) - 1; i >= 0; i-- {
		loss := float64(2*(r.first+i)-r.count) * r.e0
		if loss <= epsilon {
			break
		}
		s -= r.w[i] * math.Expm1(epsilon-loss)
	}
	// e0 may be above what was meant: that moves the losses, and so 1 - e^-x, by as much,
	// and the weights by a factor.
	return outward.Padded(s, r.rel, 3*outward.Off(1, float64(r.count)*r.e0)*r.tail(epsilon)+r.miss)
}

// tail is the weight whose loss is at least epsilon, give or take one.
func (r *responses) tail(epsilon float64) float64 {
	if r.e0 == 0 {
		return 0
	}
	from := int(min((epsilon/r.e0+float64(r.count))/2, float64(r.count))) - 1 - r.first
	s := 0.0
	for i := max(0, from); i < len(r.w); i++ {
		s += r.w[i]
	}
	return s
}
