package amplify

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/binomial"
	"github.com/starling-agg/starling/internal/outward"
)

func relationError(what string, n release.Neighbours) error {
	return fmt.Errorf("%w: %s under %v neighbours", release.ErrUnsupported, what, n)
}

// A binomialShift is Bin(n, q) against Bin(n, q) + 1.
type binomialShift struct{ n, q float64 }

// oneWay bounds sum over x of (P(x) - e^epsilon P(x-1))_+ from above, P = Bin(n, q).
// P(x-1)/P(x) = x(1-q)/((n-x+1) q) rises with x, so the terms are those below some x, all
// positive, summed from the largest down.
func oneWay(n, q, r, epsilon float64) float64 {
	e := math.Exp(epsilon)
	xi := q * (n + 1) / (q + e*r)
	first := min(n, math.Ceil(outward.Up(xi)))
	mode := min(first, math.Floor((n+1)*q))
	g0, rel := binomial.PMF(mode, n, q, r)
	term := func(x, g float64) float64 {
		return g * (max(0, 1-e*x*r/((n-x+1)*q)) + 1e-15*(1+e*x*r/((n-x+1)*q)))
	}
	var total binomial.Sum
	steps, g := 0.0, g0
	for x := mode; x < first; steps++ {
		g *= (n - x) / (x + 1) * q / r
		x++
		total.Add(term(x, g))
	}
	g = g0
	for x := mode; ; steps++ {
		total.Add(term(x, g))
		if x == 0 {
			break
		}
		if left := g * x; x < n*q && left < 1e-16*total.Rough() || g == 0 {
			// the probabilities fall below here, and each term is at most its probability
			total.Add(left + 1e-300)
			break
		}
		g *= x / (n - x + 1) * r / q
		x--
	}
	return outward.Widened(total.Value(), rel+outward.Summed(steps))
}

func (b binomialShift) upper(epsilon float64) float64 {
	e := min(epsilon, 700)
	return max(oneWay(b.n, b.q, 1-b.q, e), oneWay(b.n, 1-b.q, b.q, e))
}

const dummyTheorem = "exact binomial mechanism on the number of reports (docs/proofs/participants.md)"

// DummyReports is the curve of the number of reports received when each of n honest
// devices that were not selected sends, with probability q, a report of the value zero:
// one device's being selected or not moves the number by one. The relation is AddRemove.
func DummyReports(n uint64, q float64) (*Curve, error) {
	if err := checkCount("number of devices", n); err != nil {
		return nil, err
	}
	if !(q > 0 && q < 1) {
		return nil, parameter("dummy probability", q, "between 0 and 1, both excluded")
	}
	return &Curve{
		neighbours: release.AddRemove,
		theorem:    dummyTheorem,
		upper:      binomialShift{float64(n), q}.upper,
		end:        math.Inf(1),
	}, nil
}

// DummyProbability returns the least q, rounded up by less than one part in 10^9, at
// which DummyReports is (epsilon, delta)-DP, or release.ErrNoGuarantee if none up to 1/2
// is.
func DummyProbability(n uint64, epsilon, delta float64) (float64, release.Guarantee, error) {
	if err := checkCount("number of devices", n); err != nil {
		return 0, release.Guarantee{}, err
	}
	if !(epsilon > 0 && epsilon <= release.MaxEpsilon) {
		return 0, release.Guarantee{}, parameter("epsilon", epsilon, "above 0 and at most 10^6")
	}
	if err := checkDelta("delta", delta); err != nil {
		return 0, release.Guarantee{}, err
	}
	holds := func(q float64) bool { return binomialShift{float64(n), q}.upper(epsilon) <= delta }
	hi := 0.5
	if !holds(hi) {
		return 0, release.Guarantee{}, release.ErrNoGuarantee
	}
	lo := hi / 2
	for ; holds(lo); lo /= 2 {
		if hi = lo; lo < 1e-15 {
			break
		}
	}
	for hi-lo > 1e-10*hi {
		if m := lo + (hi-lo)/2; holds(m) {
			hi = m
		} else {
			lo = m
		}
	}
	return hi, release.Guarantee{Epsilon: epsilon, Delta: delta, Neighbours: release.AddRemove,
		Method: "closed-form", Theorem: dummyTheorem}, nil
}

// MinimumBatch returns the largest B for which a Poisson sample of k devices at rate q
// has fewer than B reports with probability at most delta, by the exact binomial
// distribution.
func MinimumBatch(k uint64, q, delta float64) (uint64, error) {
	if err := checkBatch(k, q, delta); err != nil {
		return 0, err
	}
	return binomial.Fewest(k, q, delta), nil
}

// MinimumBatchChernoff is the Chernoff bound q k - sqrt(2 q k ln(1/delta)) on
// MinimumBatch, rounded down, and 0 where that is negative.
func MinimumBatchChernoff(k uint64, q, delta float64) (float64, error) {
	if err := checkBatch(k, q, delta); err != nil {
		return 0, err
	}
	mean := q * float64(k)
	return max(0, outward.Down(mean)-outward.Up(math.Sqrt(2*mean*math.Log(1/delta)))), nil
}

func checkBatch(k uint64, q, delta float64) error {
	if err := checkCount("number of devices", k); err != nil {
		return err
	}
	if !(q > 0 && q < 1) {
		return parameter("sampling rate", q, "between 0 and 1, both excluded")
	}
	return checkDelta("delta", delta)
}

// donation is e1 sqrt(2 m ln(1/d)) + m e1^2/2, e1 = ln(1 + (e^epsilon-1)/m).
func donation(epsilon, m, delta float64) float64 {
	e1 := math.Log1p(math.Expm1(epsilon) / m)
	return e1*math.Sqrt(2*m*math.Log(1/delta)) + m*e1*e1/2
}

// DonationTime is the bound of paper 000, appendix A, for one donation at a random time
// of m rounds to rounds that are (epsilon, delta)-DP each, epsilon bounding the person's
// presence: at most epsilon, and ((m+1) delta) otherwise. Allocation is tighter for pure
// rounds, and the accountant's allocation for Gaussian ones. The relation is AddRemove.
func DonationTime(round release.Presence, m uint64, delta float64) (release.Guarantee, error) {
	epsilon, err := round.Epsilon()
	if err != nil {
		return release.Guarantee{}, err
	}
	if err := checkCount("number of rounds", m); err != nil {
		return release.Guarantee{}, err
	}
	if err := checkDelta("delta", delta); err != nil {
		return release.Guarantee{}, err
	}
	g := closedForm(donation(epsilon, float64(m), delta), release.Premise{Epsilon0: epsilon, Neighbours: release.AddRemove}, outward.Up((float64(m)+1)*delta),
		"randomized donation time (paper 000, appendix A)")
	if g.Epsilon == epsilon {
		g.Delta = delta // whichever round it is
	} else if g.Delta >= 1 {
		return release.Guarantee{}, release.ErrNoGuarantee
	}
	return g, nil
}
