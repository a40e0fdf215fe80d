package accountant

import (
	"fmt"
	"math"
	"reflect"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

// An Event describes what is released about the data. The events of this package are the
// only ones.
type event interface{ event() }

// A closed event has bounds on delta(epsilon) of count releases by a formula.
type closed interface {
	event
	exact(n release.Neighbours, count float64) (curve, string, error)
}

// A dominated event has a dominating pair of distributions, which no neighbours exceed.
type dominated interface {
	event
	dominating(n release.Neighbours) (dominance, error)
}

// A dominance is the pair for the direction in which a record is removed (or the one way
// in which it is replaced).
type dominance struct {
	pair pair
	// below is a pair that the event exceeds; nil if pair itself is exact.
	below pair
	// symmetric: the other direction has the same curve; else it has the pair swapped.
	symmetric bool
	// attained: some neighbours reach the pair, so lower bounds on its curve are lower
	// bounds for the event.
	attained bool
	// slop is ln of the factor by which the computed distributions may be off, each way,
	// if more than massError.
	slop    float64
	theorem string
}

// approxDP is any release known to be (Epsilon, Delta)-DP for the relation asked about;
// pure DP has Delta = 0.
type approxDP struct{ Epsilon, Delta float64 }

// selfCompose is Count releases of Event, each with noise of its own, each chosen knowing
// the results before it.
type selfCompose struct {
	Event event
	Count uint64
}

// composition is all of its events, each chosen knowing the results before it.
type composition []event

func (gaussian) event()         {}
func (discreteGaussian) event() {}
func (discreteLaplace) event()  {}
func (zcdp) event()             {}
func (approxDP) event()         {}
func (selfCompose) event()      {}
func (composition) event()      {}

// nameOf says what an event is, for errors.
func nameOf(e event) string {
	switch e.(type) {
	case gaussian:
		return "Gaussian noise"
	case discreteGaussian:
		return "discrete Gaussian noise"
	case correlated:
		return "correlated noise"
	case laplace, laplaceSum:
		return "Laplace noise"
	case discreteLaplace, discreteLaplaceSum:
		return "discrete Laplace noise"
	case randomizedResponse:
		return "randomized response"
	case rappor:
		return "RAPPOR"
	case approxDP:
		return "approximate DP"
	case zcdp:
		return "zCDP"
	case poissonSample:
		return "a Poisson sample"
	case fixedSample:
		return "a sample of fixed size"
	case allocation:
		return "random allocation"
	case shuffled:
		return "shuffled reports"
	case checkedIn:
		return "check-ins"
	case dummyCount:
		return "a count of dummies"
	}
	return "a composition"
}

// A leaf is count releases of an event that is no composition.
type leaf struct {
	event event
	count uint64
}

// flatten appends the leaves of count releases of e, adding up equal ones.
func flatten(leaves []leaf, e event, count uint64) ([]leaf, error) {
	switch e := e.(type) {
	case nil:
		return nil, fmt.Errorf("%w: no event", release.ErrParameter)
	case selfCompose:
		if e.Count == 0 || e.Count > maxCount || float64(e.Count)*float64(count) > maxCount {
			return nil, parameter("number of releases", float64(e.Count)*float64(count), "1 to 2*10^12")
		}
		return flatten(leaves, e.Event, count*e.Count)
	case poissonSample:
		if e.Rate == 1 { // everybody takes part, and the count says nothing
			return flatten(leaves, e.Event, count)
		}
	case allocation:
		switch {
		case e.Picks == e.Steps && e.Steps > 1: // everybody takes part in all
			return flatten(leaves, selfCompose{e.Event, e.Picks}, count)
		case e.Picks > maxPicked && e.Picks < e.Steps:
			long, short, longs, shorts := e.blocks()
			if longs > 0 {
				var err error
				if leaves, err = flatten(leaves, selfCompose{long, longs}, count); err != nil {
					return nil, err
				}
			}
			return flatten(leaves, selfCompose{short, shorts}, count)
		}
	case composition:
		if len(e) == 0 {
			return nil, fmt.Errorf("%w: a composition of nothing", release.ErrParameter)
		}
		for _, x := range e {
			var err error
			if leaves, err = flatten(leaves, x, count); err != nil {
				return nil, err
			}
		}
		return leaves, nil
	}
	for i := range leaves {
		if reflect.DeepEqual(leaves[i].event, e) {
			leaves[i].count += count
			return leaves, nil
		}
	}
	return append(leaves, leaf{e, count}), nil
}

const kovTheorem = "optimal composition of (epsilon, delta)-DP (Kairouz, Oh and Viswanath 2015, theorem 3.3)"

func (a approxDP) exact(_ release.Neighbours, count float64) (curve, string, error) {
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
	none := outward.Up(-math.Expm1(count * math.Log1p(-a.Delta))) // one of count failures
	return func(e float64) (float64, float64) {
		if count == 1 && e >= a.Epsilon { // what it says of itself, to the last bit
			return 0, a.Delta
		}
		_, hi := rr.delta(e)
		return 0, min(1, outward.Up(none+hi*(1-outward.Down(none))))
	}, kovTheorem, nil
}

// PoissonSampledApproxDP returns what (epsilon, delta)-DP becomes when each record is
// kept with probability q, secretly: (ln(1 + q (e^epsilon - 1)), q delta), rounded up,
// for AddRemove neighbours (Li, Qardaji and Su 2012; Balle, Barthe and Gaboardi 2018,
// theorem 8).
func PoissonSampledApproxDP(epsilon, delta, q float64) (release.Guarantee, error) {
	if err := checkEpsilon(epsilon); err != nil {
		return release.Guarantee{}, err
	}
	if !(delta >= 0 && delta < 1) {
		return release.Guarantee{}, parameter("delta", delta, "0 or more and below 1")
	}
	if err := checkSampling(q); err != nil {
		return release.Guarantee{}, err
	}
	e := sampledLoss(epsilon, q)
	if epsilon > maxExp { // and may cancel against ln q
		e += outward.Off(epsilon, math.Log(q))
	}
	return release.Guarantee{Epsilon: min(outward.Up(e)+outward.Underflow, epsilon), Delta: outward.Up(q * delta), Neighbours: release.AddRemove, Method: "closed-form",
		Theorem: "amplification by Poisson sampling (Balle, Barthe and Gaboardi 2018, theorem 8)"}, nil
}
