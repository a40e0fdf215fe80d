package accountant

import (
	"fmt"
	"math"
)

// An Event describes what is released about the data. The events of this package are the only ones.
type Event interface {
	// exact returns the bounds on delta(epsilon) of count independent (or adaptive) releases by a closed form, and the
	// theorem behind it.
	exact(n Neighbours, count float64) (curve, string, error)
}

// ApproxDP is any release known to be (Epsilon, Delta)-DP for the relation asked about; pure DP has Delta = 0.
type ApproxDP struct{ Epsilon, Delta float64 }

// SelfCompose is Count releases of Event, each with noise of its own, each chosen knowing the results before it.
type SelfCompose struct {
	Event Event
	Count uint64
}

func (s SelfCompose) exact(n Neighbours, count float64) (curve, string, error) {
	if s.Event == nil {
		return nil, "", fmt.Errorf("%w: a composition of nothing", ErrParameter)
	}
	if s.Count == 0 || s.Count > maxCount || float64(s.Count)*count > maxCount {
		return nil, "", parameter("number of releases", float64(s.Count)*count, "1 to 2*10^12")
	}
	return s.Event.exact(n, count*float64(s.Count))
}

const kovTheorem = "optimal composition of (epsilon, delta)-DP (Kairouz, Oh and Viswanath 2015, theorem 3.3)"

func (a ApproxDP) exact(_ Neighbours, count float64) (curve, string, error) {
	if err := checkEpsilon(a.Epsilon); err != nil {
		return nil, "", err
	}
	if !(a.Delta >= 0 && a.Delta < 1) {
		return nil, "", parameter("delta", a.Delta, "0 or more and below 1")
	}
	rr, err := newResponses(a.Epsilon, count)
	if err != nil {
		return nil, "", err
	}
	none := up(-math.Expm1(count * math.Log1p(-a.Delta))) // one of count failures
	return func(e float64) (float64, float64) {
		_, hi := rr.delta(e)
		return 0, min(1, up(none+hi*(1-down(none))))
	}, kovTheorem, nil
}

// Epsilon returns the least epsilon that is proved for the event at delta.
func Epsilon(e Event, delta float64, n Neighbours) (Guarantee, error) {
	c, theorem, err := answer(e, n)
	if err != nil {
		return Guarantee{}, err
	}
	lo, hi, err := c.epsilon(delta)
	if err != nil {
		return Guarantee{}, err
	}
	return Guarantee{Epsilon: hi, EpsilonLower: lo, Delta: delta, Neighbours: n, Method: method(theorem), Theorem: theorem}, nil
}

// Delta returns the least delta that is proved for the event at epsilon.
func Delta(e Event, epsilon float64, n Neighbours) (Guarantee, error) {
	if err := checkEpsilon(epsilon); err != nil {
		return Guarantee{}, err
	}
	c, theorem, err := answer(e, n)
	if err != nil {
		return Guarantee{}, err
	}
	lo, hi := c(epsilon)
	return Guarantee{Epsilon: epsilon, EpsilonLower: 0, Delta: hi, DeltaLower: lo, Neighbours: n,
		Method: method(theorem), Theorem: theorem}, nil
}

func answer(e Event, n Neighbours) (curve, string, error) {
	if e == nil {
		return nil, "", fmt.Errorf("%w: no event", ErrParameter)
	}
	if n < AddRemove || n > ZeroOut {
		return nil, "", parameter("neighbours", float64(n), "AddRemove, ReplaceOne or ZeroOut")
	}
	return e.exact(n, 1)
}

func method(theorem string) string {
	if theorem == zcdpTheorem {
		return "zcdp"
	}
	return "closed-form"
}

// PoissonSampledApproxDP returns what (epsilon, delta)-DP becomes when each record is kept with probability q,
// secretly: (ln(1 + q (e^epsilon - 1)), q delta), rounded up, for AddRemove neighbours (Li, Qardaji and Su 2012;
// Balle, Barthe and Gaboardi 2018, theorem 8).
func PoissonSampledApproxDP(epsilon, delta, q float64) (Guarantee, error) {
	if err := checkEpsilon(epsilon); err != nil {
		return Guarantee{}, err
	}
	if !(delta >= 0 && delta < 1) {
		return Guarantee{}, parameter("delta", delta, "0 or more and below 1")
	}
	if !(q > 0 && q <= 1) {
		return Guarantee{}, parameter("sampling rate", q, "above 0 and at most 1")
	}
	e := math.Log1p(q * math.Expm1(epsilon))
	if epsilon > 700 {
		e = epsilon + math.Log(q) + 1e-300
	}
	return Guarantee{Epsilon: min(up(max(e, 0)), epsilon), Delta: up(q * delta), Neighbours: AddRemove, Method: "closed-form",
		Theorem: "amplification by Poisson sampling (Balle, Barthe and Gaboardi 2018, theorem 8)"}, nil
}
