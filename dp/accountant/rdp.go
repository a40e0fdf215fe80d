package accountant

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

// A renyi event has a bound on its Renyi divergence.
type renyi interface {
	event
	// divergence returns a function that bounds D_a(P||Q) for neighbours P and Q, either
	// way round, a > 1.
	divergence(n release.Neighbours) (func(a float64) float64, error)
}

const (
	rdpTheorem     = "Renyi DP (Mironov 2017) and its conversion (Canonne, Kamath and Steinke 2020, proposition 12)"
	sampledTheorem = "Renyi divergence of the sampled Gaussian mechanism (Mironov, Talwar and Zhang 2019, theorems 4 and 5)"
)

// DefaultOrders are the orders that are tried: 1.1 to 10.9 in tenths, 11 to 256, 512 and
// 1024.
func DefaultOrders() []float64 {
	var orders []float64
	for i := 11; i < 110; i++ {
		orders = append(orders, float64(i)/10)
	}
	for i := 11; i <= 256; i++ {
		orders = append(orders, float64(i))
	}
	return append(orders, 512, 1024)
}

// IntegerOrders are the whole ones among the default orders, 2 to 256, 512 and 1024:
// those that published accountants try.
func IntegerOrders() []float64 {
	var orders []float64
	for _, a := range DefaultOrders() {
		if a == math.Trunc(a) {
			orders = append(orders, a)
		}
	}
	return orders
}

func (g gaussian) divergence(n release.Neighbours) (func(float64) float64, error) {
	mu, err := g.mu(n, 1)
	return func(a float64) float64 { return a * mu * mu / 2 }, err
}

func (z zcdp) divergence(release.Neighbours) (func(float64) float64, error) {
	if !(z.Rho >= 0) || math.IsInf(z.Rho, 1) {
		return nil, parameter("rho", z.Rho, "a number >= 0")
	}
	return func(a float64) float64 { return a * z.Rho }, nil
}

func (g discreteGaussian) divergence(n release.Neighbours) (func(float64) float64, error) {
	rho, err := g.rho(n)
	return func(a float64) float64 { return a * rho }, err
}

func (l laplace) divergence(n release.Neighbours) (func(float64) float64, error) {
	d, err := l.dominating(n) // for its checks
	if err != nil {
		return nil, err
	}
	mu := d.pair.(laplacePair).mu
	return func(a float64) float64 { // Mironov 2017, proposition 6
		x := math.Log(a/(2*a-1)) + (a-1)*mu
		y := math.Log((a-1)/(2*a-1)) - a*mu
		return logAdd(x, y) / (a - 1)
	}, nil
}

func (r randomizedResponse) divergence(n release.Neighbours) (func(float64) float64, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	return responseDivergence(r.Epsilon0, float64(r.answers(n))), nil
}

// responseDivergence of k-ary randomized response: answers with probabilities e^e0/z,
// 1/z, ..., 1/z.
func responseDivergence(e0, k float64) func(float64) float64 {
	lnz := e0 + math.Log1p((k-1)*math.Exp(-e0))
	return func(a float64) float64 {
		s := logAdd(a*e0, -(a-1)*e0)
		if k > 2 {
			s = logAdd(s, math.Log(k-2))
		}
		return (s - lnz) / (a - 1)
	}
}

func (a approxDP) divergence(release.Neighbours) (func(float64) float64, error) {
	if !(a.Epsilon >= 0 && a.Epsilon <= release.MaxLoss) {
		return nil, parameter("epsilon", a.Epsilon, "0 to 500")
	}
	if a.Delta != 0 {
		return nil, fmt.Errorf("%w: Renyi divergence of approximate DP", release.ErrUnsupported)
	}
	return responseDivergence(a.Epsilon, 2), nil
}

func (s poissonSample) divergence(n release.Neighbours) (func(float64) float64, error) {
	g, ok := s.Event.(gaussian)
	if !ok || n == release.ReplaceOne {
		return nil, fmt.Errorf("%w: Renyi divergence of a sampled %s for %v neighbours", release.ErrUnsupported, nameOf(s.Event), n)
	}
	if _, err := s.dominating(n); err != nil {
		return nil, err
	}
	mu, err := g.mu(n, 1)
	if err != nil {
		return nil, err
	}
	return func(a float64) float64 {
		// Beyond any use the sums grow long; there sampling is said to gain nothing.
		if mu > 50 || a > 1e5 || a*mu > 1e6 {
			return a * mu * mu / 2
		}
		if a == math.Trunc(a) {
			return sampledDivergence(mu, s.Rate, a)
		}
		return sampledDivergenceReal(mu, s.Rate, a)
	}, nil
}

// sampledDivergence is exact for whole orders: ln of the sum of C(a,k) (1-q)^(a-k) q^k
// e^(k(k-1) mu^2/2), over a-1. The other direction is smaller (Mironov, Talwar and Zhang
// 2019, theorem 5). The binomial weights sum to one, so e^x - 1 in place of e^x leaves
// the sum above one, without cancellation.
func sampledDivergence(mu, q, a float64) float64 {
	s := math.Inf(-1)
	lnChoose := math.Log(a) + math.Log((a-1)/2)
	for k := 2.0; k <= a; k++ {
		x := k * (k - 1) * mu * mu / 2
		if x < 30 {
			x = math.Log(math.Expm1(x))
		}
		s = logAdd(s, lnChoose+(a-k)*math.Log1p(-q)+k*math.Log(q)+x)
		lnChoose += math.Log((a - k) / (k + 1))
	}
	return logAdd(0, s) / (a - 1)
}

// sampledDivergenceReal integrates E (1 - q + q e^(mu x - mu^2/2))^a over x ~ N(0,1) by
// the trapezoid rule, which converges exponentially here: the integrand is analytic in
// the strip |Im x| < pi/mu.
func sampledDivergenceReal(mu, q, a float64) float64 {
	h := min(0.05, 0.3/mu)
	lnf := func(x float64) float64 {
		t := mu*x - mu*mu/2
		return a*sampledLoss(t, q) - x*x/2
	}
	// The integral is 1 + E[(1 + q(e^t - 1))^a - 1 - a q (e^t - 1)], the last term having
	// mean 0. For small values summing the difference keeps the digits.
	top := a*mu + 14
	peak := 0.0
	for x := 0.0; x <= top; x += h {
		peak = max(peak, lnf(x))
	}
	if peak > 1 {
		s := 0.0
		for i := math.Floor(-14 / h); i*h <= top; i++ {
			s += math.Exp(lnf(i*h) - peak)
		}
		return (math.Log(s*h/math.Sqrt(2*math.Pi)) + peak) / (a - 1)
	}
	s := 0.0
	for i := math.Floor(-14 / h); i*h <= top; i++ {
		x := i * h
		u := q * math.Expm1(mu*x-mu*mu/2)
		var v float64
		if math.Abs(u) < 1e-4 {
			v = a * (a - 1) / 2 * u * u * (1 + (a-2)/3*u*(1+(a-3)/4*u))
		} else {
			v = math.Expm1(a*math.Log1p(u)) - a*u
		}
		s += v * math.Exp(-x*x/2)
	}
	return math.Log1p(s*h/math.Sqrt(2*math.Pi)) / (a - 1)
}

// logAdd returns ln(e^x + e^y).
func logAdd(x, y float64) float64 {
	if x < y {
		x, y = y, x
	}
	if math.IsInf(x, -1) {
		return x
	}
	if x == 0 {
		return math.Log1p(math.Exp(y))
	}
	return x + math.Log1p(math.Exp(y-x))
}

// renyiDivergence bounds the Renyi divergence of the given order > 1 between the releases
// on neighbours, rounded up.
func renyiDivergence(e event, order float64, n release.Neighbours) (float64, error) {
	if !(order > 1 && order <= 1e6) {
		return 0, parameter("order", order, "above 1 and at most 10^6")
	}
	leaves, err := flatten(nil, e, 1)
	if err != nil {
		return 0, err
	}
	sum, _, err := divergences(leaves, []float64{order}, n)
	if err != nil {
		return 0, err
	}
	return sum[0], nil
}

// divergences adds the leaves up, order by order.
func divergences(leaves []leaf, orders []float64, n release.Neighbours) (sums []float64, theorem string, err error) {
	if n < release.AddRemove || n > release.ZeroOut {
		return nil, "", parameter("neighbours", float64(n), "AddRemove, ReplaceOne or ZeroOut")
	}
	theorem = rdpTheorem
	sums = make([]float64, len(orders))
	for _, l := range leaves {
		r, ok := l.event.(renyi)
		if !ok {
			return nil, "", fmt.Errorf("%w: no Renyi divergence for %s", release.ErrUnsupported, nameOf(l.event))
		}
		f, err := r.divergence(n)
		if err != nil {
			return nil, "", err
		}
		if _, ok := l.event.(poissonSample); ok {
			theorem = sampledTheorem + "; " + rdpTheorem
		}
		for i, a := range orders {
			if !(a > 1 && a <= 1e6) {
				return nil, "", parameter("order", a, "above 1 and at most 10^6")
			}
			v := f(a)
			if math.IsNaN(v) {
				v = math.Inf(1)
			}
			// The sum behind v, and the logarithm of it near zero.
			sums[i] += float64(l.count) * (outward.Up(max(0, v))*(1+10*outward.Formula) + outward.Off(1)/(a-1))
		}
	}
	return sums, theorem, nil
}

// rdp answers by Renyi divergences at the given orders.
func (o Options) rdp(leaves []leaf, g release.Guarantee, wantEpsilon bool) (release.Guarantee, error) {
	orders := o.Orders
	if len(orders) == 0 {
		orders = DefaultOrders()
	}
	sums, theorem, err := divergences(leaves, orders, g.Neighbours)
	if err != nil {
		return release.Guarantee{}, err
	}
	g.Method, g.Theorem = string(RDP), theorem
	best := math.Inf(1)
	for i, a := range orders {
		// (a, r) gives delta = e^((a-1)(r-epsilon)) (1-1/a)^(a-1)/a.
		c := (a-1)*math.Log1p(-1/a) - math.Log(a)
		if wantEpsilon {
			best = min(best, outward.Up(max(0, sums[i]+(c-math.Log(g.Delta))/(a-1)))+3*outward.Off(1))
		} else {
			best = min(best, (a-1)*(sums[i]-g.Epsilon)+c+25*outward.Off((a-1)*(sums[i]+g.Epsilon+1)))
		}
	}
	if wantEpsilon {
		if g.Epsilon = best; !(best <= release.MaxEpsilon) {
			return release.Guarantee{}, release.ErrNoGuarantee
		}
		return g, nil
	}
	g.Delta = min(1, math.Exp(best))
	return g, nil
}

// concentrated answers by the sum of the zCDP parameters, converted as the method says.
func concentrated(leaves []leaf, g release.Guarantee, wantEpsilon bool, m Method) (release.Guarantee, error) {
	rho := 0.0
	for _, l := range leaves {
		var r float64
		var err error
		switch e := l.event.(type) {
		case zcdp:
			r = e.Rho
			if !(r >= 0) || math.IsInf(r, 1) {
				err = parameter("rho", r, "a number >= 0")
			}
		case gaussian:
			var mu float64
			mu, err = e.mu(g.Neighbours, 1)
			r = mu * mu / 2
		case discreteGaussian:
			r, err = e.rho(g.Neighbours)
		case correlated:
			r, err = e.rho(g.Neighbours)
		case approxDP:
			if r = e.Epsilon * e.Epsilon / 2; e.Delta != 0 {
				err = fmt.Errorf("%w: zCDP of approximate DP", release.ErrUnsupported)
			} else {
				err = checkEpsilon(e.Epsilon)
			}
		default:
			err = fmt.Errorf("%w: no zCDP parameter for %s", release.ErrUnsupported, nameOf(l.event))
		}
		if err != nil {
			return release.Guarantee{}, err
		}
		rho += float64(l.count) * outward.Up(r)
	}
	g.Method, g.Theorem = string(m), zcdpTheorem
	if m == SimpleZCDP {
		g.Theorem = simpleTheorem
		return simpleZCDP(outward.Up(rho), g, wantEpsilon)
	}
	f, _, err := zcdp{outward.Up(rho)}.exact(g.Neighbours, 1)
	if err != nil {
		return release.Guarantee{}, err
	}
	if !wantEpsilon {
		_, g.Delta = f(g.Epsilon)
		return g, nil
	}
	_, g.Epsilon, err = f.epsilon(g.Delta)
	return g, err
}

// AdvancedComposition returns the textbook bound for count (epsilon, delta)-DP releases
// (Dwork, Rothblum and Vadhan 2010): (epsilon sqrt(2 count ln(1/slack)) + count epsilon
// (e^epsilon - 1), count delta + slack), rounded up. Epsilon of
// selfCompose{approxDP{epsilon, delta}, count} is optimal and never larger at the same
// delta.
func AdvancedComposition(epsilon, delta float64, count uint64, slack float64, n release.Neighbours) (release.Guarantee, error) {
	if err := checkEpsilon(epsilon); err != nil {
		return release.Guarantee{}, err
	}
	if err := checkDelta(slack); err != nil {
		return release.Guarantee{}, err
	}
	if !(delta >= 0 && delta < 1) {
		return release.Guarantee{}, parameter("delta", delta, "0 or more and below 1")
	}
	if count == 0 || count > maxCount {
		return release.Guarantee{}, parameter("number of releases", float64(count), "1 to 2*10^12")
	}
	t := float64(count)
	e := outward.Up(epsilon*math.Sqrt(2*t*math.Log(1/slack)) + t*epsilon*math.Expm1(epsilon))
	if !(e <= release.MaxEpsilon) {
		return release.Guarantee{}, release.ErrNoGuarantee
	}
	return release.Guarantee{Epsilon: e, Delta: min(1, outward.Up(t*delta+slack)), Neighbours: n, Method: string(ClosedForm),
		Theorem: "advanced composition (Dwork, Rothblum and Vadhan 2010, theorem III.3)"}, nil
}
