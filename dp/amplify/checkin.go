package amplify

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

// CheckIn is random check-ins, with what is proved of them. The server is trusted with who
// came when; what it publishes is every model. Slots, m, is 1 to MaxCount. Rate, p0, is
// above 0 and at most 1, and 1 for AveragedWindow. People, n, the number of honest clients,
// is needed by Curve and Theorem for AveragedWindow, and by DummyUpdates for the others.
type CheckIn release.CheckIns

// Validate returns an error that matches release.ErrParameter if a field is out of its
// range.
func (c CheckIn) Validate() error {
	if c.Schedule < release.FixedWindow || c.Schedule > release.SlidingWindow {
		return parameter("schedule", float64(c.Schedule), "FixedWindow, AveragedWindow or SlidingWindow")
	}
	if err := checkCount("number of slots", c.Slots); err != nil {
		return err
	}
	if err := checkRate("check-in probability", c.Rate); err != nil {
		return err
	}
	if c.Schedule == release.AveragedWindow {
		if c.Rate != 1 {
			return parameter("check-in probability", c.Rate, "1 for an averaged window")
		}
		return checkCount("number of users", c.People)
	}
	if c.People > MaxCount {
		return parameter("number of users", float64(c.People), "at most 10^12")
	}
	return nil
}

const (
	checkInTheorem   = "clone bound on the slots of a check-in, summed exactly (docs/proofs/check-ins.md, theorem 2)"
	averageTheorem   = "averaged check-ins as an adaptive shuffle of all users (docs/proofs/check-ins.md, theorem 3)"
	zeroCheckTheorem = "exact check-in of an e0-LDP step (docs/proofs/check-ins.md, theorem 1)"

	shufflingTheorem = "amplification by shuffling (Balle et al. 2020, theorem 5.1)"
)

// Curve is the tightest bound known here for one run with updates of which each is such a
// report: another client's input, or a dummy's, stands in a client's place, so that it is
// a report's distance for replacing its input that counts, under every relation.
//
// ReplaceOne: a client's data change. AddRemove and ZeroOut: the client never checks in;
// this is not offered for AveragedWindow, where an empty place shows. Fixed windows are
// bounded exactly under AddRemove and ZeroOut.
func (c CheckIn) Curve(r release.Report, n release.Neighbours) (*Curve, error) {
	is, err := r.Premise()
	if err != nil {
		return nil, err
	}
	epsilon0 := is.Epsilon0
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if n < release.AddRemove || n > release.ZeroOut {
		return nil, parameter("neighbours", float64(n), "AddRemove, ReplaceOne or ZeroOut")
	}
	if c.Schedule == release.AveragedWindow {
		if n != release.ReplaceOne {
			return nil, fmt.Errorf("%w: an averaged window under %v", release.ErrUnsupported, n)
		}
		out, err := Shuffle(r.Any(), c.People)
		if err != nil {
			return nil, err
		}
		out.theorem = averageTheorem
		out.lower = nil
		return out, nil
	}
	exact := allocationSum{epsilon0, float64(c.Slots), c.Rate}
	out := &Curve{neighbours: n, end: sampledPure(epsilon0, c.Rate)}
	out.term = release.Term{Family: release.FamilyCheckedIn, Local: epsilon0, Reports: c.Slots, Chance: c.Rate}
	if c.Schedule == release.FixedWindow {
		// A lone client of randomized response, and for ReplaceOne one of whose values is
		// the dummy's, attains it.
		out.lower = exact.lower
	}
	if n != release.ReplaceOne {
		out.theorem = zeroCheckTheorem
		out.upper = exact.upper
		return out, nil
	}
	out.theorem = checkInTheorem
	out.term.Family = release.FamilyShuffled
	out.upper = newCloneSum(epsilon0, exact.t, clones(epsilon0), c.Rate).upper
	if epsilon0 > largeEpsilon {
		out.upper = func(float64) float64 { return 1 }
	}
	return out, nil
}

// LocalDP is a report that may be (epsilon0, delta0)-LDP. If delta0 > 0 the theorems of
// paper 004 pay Slack (delta_1 there) for replacing it by a pure one of 8 epsilon0, and
// need delta0 <= MaxLocalDelta(epsilon0, Slack).
type LocalDP struct {
	Report release.Report
	Slack  float64
}

// MaxLocalDelta returns the largest delta_0 that the theorems of paper 004 allow for
// their delta_1 = slack, rounded down: (1-e^-e0) d1/(4 e^e0 (2 +
// ln(2/d1)/ln(1/(1-e^-5e0)))).
func MaxLocalDelta(epsilon0, slack float64) (float64, error) {
	if err := checkLocal(epsilon0); err != nil {
		return 0, err
	}
	if err := checkDelta("slack", slack); err != nil {
		return 0, err
	}
	return outward.Down(-math.Expm1(-epsilon0) * slack /
		(4 * math.Exp(epsilon0) * (2 + math.Log(2/slack)/-math.Log1p(-math.Exp(-5*epsilon0))))), nil
}

// answer is the guarantee by a formula.
func (l LocalDP) answer(formula func(e0 float64) float64, delta, steps float64, theorem string) (release.Guarantee, error) {
	is, delta0, err := l.Report.Approx()
	if err != nil {
		return release.Guarantee{}, err
	}
	if delta0 == 0 {
		return closedForm(outward.Up(formula(is.Epsilon0)), is, delta, theorem), nil
	}
	most, err := MaxLocalDelta(is.Epsilon0, l.Slack)
	if err != nil {
		return release.Guarantee{}, err
	}
	if !(delta0 <= most) {
		return release.Guarantee{}, parameter("local delta", delta0, fmt.Sprintf("0 to %v for this slack", most))
	}
	eps := outward.Up(formula(8 * is.Epsilon0))
	delta = outward.Up(delta + steps*(math.Exp(eps)+1)*l.Slack)
	if !(delta < 1) || math.IsInf(eps, 0) {
		return release.Guarantee{}, release.ErrNoGuarantee
	}
	return release.Guarantee{Epsilon: eps, Delta: delta, Neighbours: release.ReplaceOne, Method: "closed-form",
		Theorem: theorem + ", approximate-DP version"}, nil
}

// fixedFormula is theorem 3.2, and with p0 = 1 theorem 4.3.
func fixedFormula(e0, m, p0, delta float64) float64 {
	x := math.Expm1(e0)
	return p0*x*math.Sqrt(2*math.Exp(e0)*math.Log(1/delta)/m) + p0*p0*math.Exp(e0)*x*x/(2*m)
}

// averagedE1 is e1 of theorem 4.1.
func averagedE1(n, m, delta2 float64) float64 {
	return math.Sqrt(1/n+1/m) + math.Sqrt(math.Log(1/delta2)/n)
}

// Theorem is the bound that paper 004 states: theorem 3.2 for fixed, 4.1 for averaged and
// 4.3 for sliding windows, which is for a Rate of 1. delta2 is spent on the sizes of the
// slots of an averaged window and ignored by the others. Curve is tighter for pure local
// DP. The theorems are about ReplaceOne.
func (c CheckIn) Theorem(l LocalDP, delta, delta2 float64) (release.Guarantee, error) {
	if err := c.Validate(); err != nil {
		return release.Guarantee{}, err
	}
	if err := checkDelta("delta", delta); err != nil {
		return release.Guarantee{}, err
	}
	m := float64(c.Slots)
	switch c.Schedule {
	case release.AveragedWindow:
		if err := checkDelta("delta2", delta2); err != nil {
			return release.Guarantee{}, err
		}
		return l.answer(func(e0 float64) float64 {
			e1, x := averagedE1(float64(c.People), m, delta2), math.Expm1(e0)
			return math.Exp(4*e0)*x*x*e1*e1/2 + math.Exp(2*e0)*x*e1*math.Sqrt(2*math.Log(1/delta))
		}, delta+delta2, m, "averaged random check-ins (Balle et al. 2020, theorem 4.1)")
	case release.SlidingWindow:
		if c.Rate != 1 {
			return release.Guarantee{}, parameter("check-in probability", c.Rate, "1 for theorem 4.3")
		}
		return l.answer(func(e0 float64) float64 { return fixedFormula(e0, m, 1, delta) }, delta, m,
			"sliding random check-ins (Balle et al. 2020, theorem 4.3)")
	}
	return l.answer(func(e0 float64) float64 { return fixedFormula(e0, m, c.Rate, delta) }, delta, m,
		"fixed random check-ins (Balle et al. 2020, theorem 3.2)")
}

// ShuffleBKMTT is the bound of paper 004, theorem 5.1, for the adaptive shuffling of n
// users.
func ShuffleBKMTT(l LocalDP, n uint64, delta float64) (release.Guarantee, error) {
	if err := checkCount("number of users", n); err != nil {
		return release.Guarantee{}, err
	}
	if err := checkDelta("delta", delta); err != nil {
		return release.Guarantee{}, err
	}
	users := float64(n)
	return l.answer(func(e0 float64) float64 {
		x := math.Expm1(e0)
		return math.Exp(3*e0)*x*x/(2*users) + math.Exp(1.5*e0)*x*math.Sqrt(2*math.Log(1/delta)/users)
	}, delta, users, shufflingTheorem)
}

// DummyUpdates returns the expected number of slots without a client, rounded up: m
// (1-p0/m)^n for a fixed window (proposition 3.4), and (n-m+1)(1-p0/m)^m for the n-m+1
// slots of a sliding one (proposition 4.4). An averaged window has none.
func (c CheckIn) DummyUpdates() (float64, error) {
	if err := c.Validate(); err != nil {
		return 0, err
	}
	if err := checkCount("number of users", c.People); err != nil {
		return 0, err
	}
	m, n := float64(c.Slots), float64(c.People)
	switch c.Schedule {
	case release.AveragedWindow:
		return 0, nil
	case release.SlidingWindow:
		if c.People < c.Slots {
			return 0, parameter("number of users", n, "at least the length of the window")
		}
		return outward.Up((n - m + 1) * math.Exp(m*math.Log1p(-c.Rate/m))), nil
	}
	return outward.Up(m * math.Exp(n*math.Log1p(-c.Rate/m))), nil
}
