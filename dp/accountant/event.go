package accountant

import (
	"fmt"
	"math"
	"reflect"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

// An Event describes what is released about the data. The events of this package are the only ones.
type Event interface{ event() }

// A closed event has bounds on delta(epsilon) of count releases by a formula.
type closed interface {
	Event
	exact(n release.Neighbours, count float64) (curve, string, error)
}

// A dominated event has a pair of laws that no neighbours exceed.
type dominated interface {
	Event
	dominating(n release.Neighbours) (dominance, error)
}

// A dominance is the pair for the direction in which a record is removed (or the one way in which it is replaced).
type dominance struct {
	pair pair
	// below is a pair that the event exceeds; nil if pair itself is exact.
	below pair
	// symmetric: the other direction has the same curve; else it has the pair swapped.
	symmetric bool
	// attained: some neighbours reach the pair, so lower bounds on its curve are lower bounds for the event.
	attained bool
	// slop is ln of the factor by which the computed laws may be off, each way, if more
	// than massError.
	slop    float64
	theorem string
}

// ApproxDP is any release known to be (Epsilon, Delta)-DP for the relation asked about; pure DP has Delta = 0.
type ApproxDP struct{ Epsilon, Delta float64 }

// SelfCompose is Count releases of Event, each with noise of its own, each chosen knowing the results before it.
type SelfCompose struct {
	Event Event
	Count uint64
}

// Compose is all of its events, each chosen knowing the results before it.
type Compose []Event

func (Gaussian) event()         {}
func (DiscreteGaussian) event() {}
func (DiscreteLaplace) event()  {}
func (ZCDP) event()             {}
func (ApproxDP) event()         {}
func (SelfCompose) event()      {}
func (Compose) event()          {}

// A leaf is count releases of an event that is no composition.
type leaf struct {
	event Event
	count uint64
}

// flatten appends the leaves of count releases of e, adding up equal ones.
func flatten(leaves []leaf, e Event, count uint64) ([]leaf, error) {
	switch e := e.(type) {
	case nil:
		return nil, fmt.Errorf("%w: no event", release.ErrParameter)
	case SelfCompose:
		if e.Count == 0 || e.Count > maxCount || float64(e.Count)*float64(count) > maxCount {
			return nil, parameter("number of releases", float64(e.Count)*float64(count), "1 to 2*10^12")
		}
		return flatten(leaves, e.Event, count*e.Count)
	case Sampled:
		if e.Rate == 1 { // everybody takes part, and the count says nothing
			return flatten(leaves, e.Event, count)
		}
	case Allocated:
		switch {
		case e.Picks == e.Steps && e.Steps > 1: // everybody takes part in all
			return flatten(leaves, SelfCompose{e.Event, e.Picks}, count)
		case e.Picks > maxPicked && e.Picks < e.Steps:
			long, short, longs, shorts := e.blocks()
			if longs > 0 {
				var err error
				if leaves, err = flatten(leaves, SelfCompose{long, longs}, count); err != nil {
					return nil, err
				}
			}
			return flatten(leaves, SelfCompose{short, shorts}, count)
		}
	case Compose:
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

func (a ApproxDP) exact(_ release.Neighbours, count float64) (curve, string, error) {
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

// PoissonSampledApproxDP returns what (epsilon, delta)-DP becomes when each record is kept with probability q,
// secretly: (ln(1 + q (e^epsilon - 1)), q delta), rounded up, for AddRemove neighbours (Li, Qardaji and Su 2012;
// Balle, Barthe and Gaboardi 2018, theorem 8).
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
