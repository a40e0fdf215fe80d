package accountant

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/release"
)

func (laplaceSum) event()         {}
func (discreteLaplaceSum) event() {}

// laplaceSum is the release of one number with the noise of two servers, both honest: two
// independent draws of Laplace noise of scale Scale each.
type laplaceSum struct {
	Scale        float64
	Contribution release.Contribution
}

// discreteLaplaceSum is [discreteLaplace] with the noise of two servers, both honest,
// each of scale Scale.
type discreteLaplaceSum struct {
	Scale        release.Rational
	Contribution release.Contribution
}

const laplaceSumTheorem = "exact distribution of two servers' Laplace noise (docs/proofs/laplace-sums.md)"

func (l laplaceSum) dominating(n release.Neighbours) (dominance, error) {
	mu, err := laplace(l).mu(n)
	if err != nil {
		return dominance{}, err
	}
	if s, _ := l.Contribution.Sensitivity(n); s.Coordinates > 1 {
		return dominance{}, fmt.Errorf("%w: continuous Laplace noise on several coordinates; use DiscreteLaplaceSum", release.ErrUnsupported)
	}
	return dominance{pair: laplaceSumPair{mu}, symmetric: true, attained: true, theorem: laplaceSumTheorem}, nil
}

// laplaceSumPair is the distribution of density (1+|x|) e^-|x| / 4, that of the sum of
// two Laplace variables of scale 1, at mu against the one at 0. The density is
// log-concave, so the loss rises with x, from -mu to mu.
type laplaceSumPair struct{ mu float64 }

// outcome inverts the loss.
func (g laplaceSumPair) outcome(l float64) float64 {
	switch {
	case l < 0:
		return g.mu - g.outcome(-l)
	case l >= g.mu:
		return math.Inf(1)
	case l >= g.mu-math.Log1p(g.mu): // beyond mu: l = mu + ln(1 - mu/(1+x))
		return -g.mu/math.Expm1(l-g.mu) - 1
	}
	low, high := g.mu/2, g.mu
	for range 64 {
		x := (low + high) / 2
		if math.Log1p(g.mu-x)-math.Log1p(x)+2*x-g.mu < l {
			low = x
		} else {
			high = x
		}
	}
	return low
}

// laplaceSumInterval is the probability of (a, b].
func laplaceSumInterval(a, b float64) float64 {
	switch {
	case !(a < b):
		return 0
	case b <= 0:
		return laplaceSumInterval(-b, -a)
	case a < 0:
		return laplaceSumInterval(0, -a) + laplaceSumInterval(0, b)
	case math.IsInf(b, 1):
		return (2 + a) * math.Exp(-a) / 4
	}
	w := b - a
	return math.Exp(-a) * (-(2+a)*math.Expm1(-w) - w*math.Exp(-w)) / 4
}

func (g laplaceSumPair) masses(edges, p, q []float64) {
	x := make([]float64, len(edges))
	for i, l := range edges {
		x[i] = g.outcome(l)
	}
	for i := range p {
		p[i], q[i] = laplaceSumInterval(x[i]-g.mu, x[i+1]-g.mu), laplaceSumInterval(x[i], x[i+1])
	}
}

func (laplaceSumPair) points(func(loss, p, q float64)) {}

func (laplaceSumPair) infinite() (p, q float64) { return 0, 0 }

func (g laplaceSumPair) reach(float64) (lo, hi float64) { return -g.mu, g.mu }

func (laplaceSumPair) anchors() (a, b float64) { return 0, 0 }

func (d discreteLaplaceSum) dominating(n release.Neighbours) (dominance, error) {
	rate, s, err := laplaceRate(d.Scale, d.Contribution, n)
	if err != nil {
		return dominance{}, err
	}
	if d.Contribution.Anywhere() || s.Coordinates > 1<<20 || 2*discreteLaplaceReach/rate+s.Max > maxAtoms {
		return dominance{}, fmt.Errorf("%w: no privacy loss distribution for this use of the sum of discrete Laplace noise", release.ErrUnsupported)
	}
	one := discreteLaplaceSumPair(rate, s.Max)
	if s.Coordinates == 1 {
		return dominance{pair: one, below: one.known(0, 0), symmetric: true, attained: true, theorem: laplaceSumTheorem}, nil
	}
	// All coordinates at once, each moved as far.
	all, err := one.power(s.Coordinates)
	if err != nil {
		return dominance{}, err
	}
	return dominance{pair: all, theorem: laplaceSumTheorem}, nil
}

// discreteLaplaceReach is how many scales away outcomes are taken for ones that give the
// person away: they have a probability of less than 10^-30.
const discreteLaplaceReach = 76

// discreteLaplaceSumPair shifts the sum of two discrete Laplace variables of rate 1/scale
// by d. With a = e^-rate, z has probability ((1-a)/(1+a))^2 a^|z| (|z| +
// (1+a^2)/(1-a^2)).
func discreteLaplaceSumPair(rate, d float64) *atoms {
	th := math.Tanh(rate / 2) // (1-a)/(1+a)
	c := 1 / math.Tanh(rate)  // (1+a^2)/(1-a^2)
	weight := func(z float64) float64 { return th * th * math.Exp(-rate*math.Abs(z)) * (math.Abs(z) + c) }
	far := math.Ceil(discreteLaplaceReach/rate) + d
	a := &atoms{pInf: 1e-30, qInf: 1e-30}
	for z := -far; z <= far+d; z++ {
		// P is the distribution at d.
		y := math.Abs(z - d)
		loss := rate*(math.Abs(z)-y) + math.Log1p((y-math.Abs(z))/(math.Abs(z)+c))
		a.loss, a.p, a.q = append(a.loss, loss), append(a.p, weight(z-d)), append(a.q, weight(z))
	}
	return a
}

// power returns a pair above that of k independent outcomes of a.
func (a *atoms) power(k uint64) (out *atoms, err error) {
	for ; ; a, err = mixed(a, a) {
		if err != nil {
			return nil, err
		}
		if k&1 == 1 {
			if out == nil {
				out = a
			} else if out, err = mixed(out, a); err != nil {
				return nil, err
			}
		}
		if k >>= 1; k == 0 {
			return out, nil
		}
	}
}

// summedPair is one coordinate's pair with the noise of several servers, where it is too
// narrow to be taken for a discrete Gaussian of the sum of the variances: by convolution.
func summedPair(s2 float64, servers int, d float64) *atoms {
	one := gaussianPMF(s2)
	summed := convolvePower(one, servers, len(one)*servers)
	out := &atoms{}
	const least = 1e-280 // what is less is not known to the last digits
	n := len(summed)
	for i, p := range summed { // P is the distribution at d
		j := i + int(d)
		q := 0.0
		if j < n {
			q = summed[j]
		}
		switch {
		case p >= least && q >= least:
			out.loss, out.p, out.q = append(out.loss, math.Log(p/q)), append(out.p, p), append(out.q, q)
		default:
			out.pInf, out.qInf = out.pInf+p, out.qInf+q
		}
	}
	for i := 0; i < min(int(d), n); i++ { // where P never is
		out.qInf += summed[i]
	}
	out.sort()
	return out
}
