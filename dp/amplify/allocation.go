package amplify

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/binomial"
	"github.com/starling-agg/starling/internal/outward"
)

// An allocationSum is the exact pair of one of t slots, uniform and hidden, in which a
// binary randomized response at e0 answers for the person, with probability p0; all other
// slots answer 0. Under Q, where the person is absent, the number of ones is X ~ Bin(t,
// f), f = 1/(1+e^e0), and
//
//	dP/dQ = S = 1 - p0 + (p0/t) (X e^e0 + (t-X) e^-e0).
type allocationSum struct{ e0, t, p0 float64 }

// delta brackets max(E (S - e^epsilon)_+, E (1 - e^epsilon S)_+).
func (a allocationSum) delta(epsilon float64) (lower, upper float64) {
	f := 1 / (1 + math.Exp(a.e0))
	g := 1 / (1 + math.Exp(-a.e0))
	step := 2 * math.Sinh(a.e0) / a.t * a.p0
	// The ratio passes e^epsilon at x = xi, and e^-epsilon at x = below.
	base := -math.Expm1(-a.e0)
	unit := a.t / (2 * math.Sinh(a.e0))
	rise, fall := math.Expm1(epsilon)/a.p0, -math.Expm1(-epsilon)/a.p0
	xi, below := unit*(base+rise), unit*(base-fall)
	lo, hi := binomial.Excess(xi, a.t, f, g, outward.Off(unit*(base+rise)))
	lo, hi = outward.Down(lo*step), outward.Up(hi*step)
	if below+outward.Off(unit*(base+fall)) > 0 {
		l, h := binomial.Excess(a.t-below, a.t, g, f, outward.Off(unit*(base+fall))+2e-16*a.t)
		e := math.Exp(epsilon) * step
		lo, hi = max(lo, outward.Down(l*e)), max(hi, outward.Up(h*e))
	}
	return lo, min(1, hi)
}

func (a allocationSum) lower(epsilon float64) float64 {
	if a.e0 > largeEpsilon {
		return 0
	}
	lo, _ := a.delta(epsilon)
	return lo
}

func (a allocationSum) upper(epsilon float64) float64 {
	if a.e0 > largeEpsilon {
		return 1
	}
	_, hi := a.delta(epsilon)
	return hi
}

// sampledPure is the epsilon that e0-DP becomes when it happens with probability p0,
// rounded up: ln(1 + p0(e^e0 - 1)).
func sampledPure(e0, p0 float64) float64 {
	if p0 == 1 || e0 > 700 {
		return e0
	}
	return min(e0, outward.Up(math.Log1p(p0*math.Expm1(e0))))
}

const allocationTheorem = "exact 1-of-%d allocation of an e0-LDP step (docs/proofs/check-ins.md, theorem 1)"

// Allocation is the curve of one step, secret and uniform among t, of which the person's
// presence is so bounded, taken with probability p0 (1 for always). Steps may depend on
// the results of those before. It is exact for randomized response, and dominates every
// schedule whose slot probabilities are at most p0/t each, as are donation times (paper
// 000, appendix A). The relation is AddRemove; what the person does not send must not
// show in a count.
func Allocation(step release.Presence, t uint64, p0 float64) (*Curve, error) {
	epsilon0, err := step.Epsilon()
	if err != nil {
		return nil, err
	}
	if err := checkCount("number of steps", t); err != nil {
		return nil, err
	}
	if err := checkRate("probability of taking part", p0); err != nil {
		return nil, err
	}
	a := allocationSum{epsilon0, float64(t), p0}
	return &Curve{
		neighbours: release.AddRemove,
		theorem:    fmt.Sprintf(allocationTheorem, t),
		upper:      a.upper,
		lower:      a.lower,
		end:        sampledPure(epsilon0, p0),
		term:       release.Term{Family: release.FamilyCheckedIn, Local: epsilon0, Reports: t, Chance: p0},
	}, nil
}
