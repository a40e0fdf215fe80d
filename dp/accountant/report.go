package accountant

import (
	"fmt"
	"math"
)

// Where a theorem lets another person's input, or a dummy's, stand in place of a
// person's, its premise is about replacing an input: two of [-C, C] are 2C apart, though
// taking part or not moves a sum by C only. So such theorems take a [Report], others a
// [Presence], and no number: a mechanism is turned into either by a constructor that asks
// it for the right distance.

// A Message is what each person sends one of, and a shuffler hides the origin of: a
// [Report] or [Columns].
type Message interface {
	// Premise returns what is proved of the message by itself.
	Premise() (Premise, error)
	message()
}

// A Premise says that a message is Epsilon0-DP with respect to Neighbours, and of which
// randomizer it is.
type Premise struct {
	Randomizer Randomizer
	Epsilon0   float64
	K          uint64 // answers of KaryResponse and BinaryResponse
	Neighbours Neighbours
}

// A Report is a message about one input, and how hard it is to tell any two inputs apart
// by it. Make one with AnyReport, ApproxReport or ReportOf; the zero value is refused.
type Report struct {
	event   Event // whose pair for ReplaceOne is the report's
	premise Premise
	delta   float64
	err     error
}

// AnyReport is the report of any randomizer that is epsilon0-DP for replacing its input.
func AnyReport(epsilon0 float64) Report { return ApproxReport(epsilon0, 0) }

// ApproxReport is the report of any randomizer that is (epsilon0, delta0)-DP for
// replacing its input.
func ApproxReport(epsilon0, delta0 float64) Report {
	r := Report{event: ApproxDP{epsilon0, delta0}, premise: Premise{AnyRandomizer, epsilon0, 0, ReplaceOne}, delta: delta0}
	switch {
	case !(epsilon0 > 0 && epsilon0 <= maxEpsilon):
		r.err = parameter("local epsilon", epsilon0, "above 0 and at most 10^6")
	case !(delta0 >= 0 && delta0 < 1):
		r.err = parameter("local delta", delta0, "0 or more and below 1")
	}
	return r
}

// ReportOf is the report of a mechanism that is run on one person's input:
// RandomizedResponse, RAPPOR (with its rows whole), the Laplaces, and the Gaussians,
// which are not pure. For others, which say of no relation what they are, see
// ApproxReport.
func ReportOf(e Event) Report {
	r := Report{event: e, premise: Premise{AnyRandomizer, math.Inf(1), 0, ReplaceOne}}
	switch e := e.(type) {
	case RandomizedResponse:
		r.err = e.check()
		r.premise = Premise{KaryResponse, e.Epsilon0, e.K, ReplaceOne}
		if e.K == 2 {
			r.premise.Randomizer = BinaryResponse
		}
	case RAPPOR:
		r.err = e.check()
		r.premise.Epsilon0 = 2 * e.Epsilon0
	case Laplace, LaplaceSum, DiscreteLaplace, DiscreteLaplaceSum:
		if r.premise.Epsilon0 = ceilingOf(e, ReplaceOne); math.IsInf(r.premise.Epsilon0, 1) {
			r.err = fmt.Errorf("%w: the scale or the contribution of %+v", ErrParameter, e)
		}
	case Gaussian, DiscreteGaussian:
	default:
		r.err = fmt.Errorf("%w: %T as a report about one input", ErrUnsupported, e)
	}
	if r.err == nil && !(r.premise.Epsilon0 > 0) {
		r.err = parameter("local epsilon", r.premise.Epsilon0, "above 0")
	}
	return r
}

// Any is the report without what is known of its randomizer beyond its epsilon.
func (r Report) Any() Report {
	if _, _, err := r.Approx(); err != nil {
		return r
	}
	return ApproxReport(r.premise.Epsilon0, r.delta)
}

// Premise returns ErrUnsupported for reports that are not pure.
func (r Report) Premise() (Premise, error) {
	p, delta, err := r.Approx()
	if err == nil && delta > 0 {
		err = fmt.Errorf("%w: reports that are not pure", ErrUnsupported)
	}
	return p, err
}

// Approx returns the premise of a report that is (Epsilon0, delta)-DP, delta perhaps 0.
func (r Report) Approx() (p Premise, delta float64, err error) {
	switch {
	case r.err != nil:
		return Premise{}, 0, r.err
	case r.event == nil:
		return Premise{}, 0, fmt.Errorf("%w: the report is not stated", ErrParameter)
	case math.IsInf(r.premise.Epsilon0, 1):
		return Premise{}, 0, fmt.Errorf("%w: reports of %T, which have no pure local privacy", ErrUnsupported, r.event)
	}
	return r.premise, r.delta, nil
}

// replacing returns the pair of any two inputs.
func (r Report) replacing() (dominance, error) {
	if r.err != nil {
		return dominance{}, r.err
	}
	d, ok := r.event.(dominated)
	if !ok {
		return dominance{}, fmt.Errorf("%w: the report is not stated", ErrParameter)
	}
	return d.dominating(ReplaceOne)
}

func (Report) message()  {}
func (Columns) message() {}

// Columns are one-hot vectors by RAPPOR of which only the sums of the columns are
// released, or each column shuffled by itself. A person who says nothing changes one bit,
// so they are for ZeroOut neighbours.
type Columns struct{ rappor RAPPOR }

// ColumnsOf is the columns of r's vectors.
func ColumnsOf(r RAPPOR) Columns { return Columns{r} }

// Premise is that of one column.
func (c Columns) Premise() (Premise, error) {
	return Premise{DeletionRAPPOR, c.rappor.Epsilon0, 2, ZeroOut}, c.rappor.check()
}

// A Presence bounds what tells a person's taking part from not taking part, by a pure
// epsilon. Make one with AnyPresence or PresenceOf; the zero value is refused.
type Presence struct {
	epsilon float64
	err     error
}

// AnyPresence is that of any release that is epsilon-DP for AddRemove neighbours.
func AnyPresence(epsilon float64) Presence {
	if !(epsilon > 0 && epsilon <= maxEpsilon) {
		return Presence{err: parameter("local epsilon", epsilon, "above 0 and at most 10^6")}
	}
	return Presence{epsilon: epsilon}
}

// PresenceOf is that of a mechanism that is pure, at the distance of AddRemove neighbours.
func PresenceOf(e Event) Presence {
	x := ceilingOf(e, AddRemove)
	if math.IsInf(x, 1) {
		return Presence{err: fmt.Errorf("%w: the pure epsilon of %T", ErrUnsupported, e)}
	}
	return AnyPresence(x)
}

// Epsilon returns the bound.
func (p Presence) Epsilon() (float64, error) {
	if p.err == nil && p.epsilon == 0 {
		return 0, fmt.Errorf("%w: the release is not stated", ErrParameter)
	}
	return p.epsilon, p.err
}

// RAPPOR is the release of a vector of bits, one of which is set, each flipped with
// probability 1/(e^Epsilon0 + 1). Saying nothing is the vector in which none is set: one
// bit away. Saying another thing is two bits away.
type RAPPOR struct{ Epsilon0 float64 }

func (RAPPOR) event() {}

func (r RAPPOR) check() error { return RandomizedResponse{r.Epsilon0, 2}.check() }

// bits is how many of them differ.
func (RAPPOR) bits(n Neighbours) uint64 {
	if n == ReplaceOne {
		return 2
	}
	return 1
}

func (r RAPPOR) exact(n Neighbours, count float64) (curve, string, error) {
	return RandomizedResponse{r.Epsilon0, 2}.exact(n, count*float64(r.bits(n)))
}

func (r RAPPOR) dominating(n Neighbours) (dominance, error) {
	if err := r.check(); err != nil {
		return dominance{}, err
	}
	bit := responsePair(r.Epsilon0, 2)
	if n != ReplaceOne {
		return dominance{pair: bit, symmetric: true, attained: true}, nil
	}
	both := bit.times(bit)
	both.a, both.b = -2*r.Epsilon0, 0
	return dominance{pair: both, symmetric: true, attained: true}, nil
}

func (r RAPPOR) divergence(n Neighbours) (func(float64) float64, error) {
	f, err := RandomizedResponse{r.Epsilon0, 2}.divergence(n)
	return func(a float64) float64 { return float64(r.bits(n)) * f(a) }, err
}
