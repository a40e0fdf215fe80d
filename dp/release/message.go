package release

import (
	"fmt"
)

// Where a theorem lets another person's input, or a dummy's, stand in place of a
// person's, its premise is about replacing an input: two of [-C, C] are 2C apart, though
// taking part or not moves a sum by C only. So such theorems take a [Report], others a
// [Presence], and no number: who makes one says which of the two a number bounds.

// A Premise says that a message is Epsilon0-DP with respect to Neighbours, and of which
// randomizer it is.
type Premise struct {
	Epsilon0 float64
	// Answers is 0 for any Epsilon0-DP randomizer, each chosen knowing the reports before
	// it, and else the number of answers of randomized response, 2 also for one column of
	// RAPPOR. Only for these is more than the general bound of shuffling proved: the proof
	// of the stronger clone theorem (Feldman, McMillan and Talwar 2023, theorem 3.2) has an
	// erratum, and fails for outputs less likely than 1/(e^Epsilon0 + 1).
	Answers    uint64
	Neighbours Neighbours
}

// A Message is what each person sends one of, and a shuffler hides the origin of: a
// [Report] or [Columns].
type Message interface {
	// Premise returns what is proved of the message by itself.
	Premise() (Premise, error)
}

// A Report is a message about one input, and how hard it is to tell any two inputs apart
// by it. Make one with AnyReport, ApproxReport, ResponseReport or ReportOf; the zero value
// is refused.
type Report struct {
	premise Premise
	delta   float64
	of      Mechanism // nil for the zero value
	err     error
}

// AnyReport is the report of any randomizer that is epsilon0-DP for replacing its input.
func AnyReport(epsilon0 float64) Report { return ApproxReport(epsilon0, 0) }

// ApproxReport is the report of any randomizer that is (epsilon0, delta0)-DP for
// replacing its input.
func ApproxReport(epsilon0, delta0 float64) Report {
	r := Report{premise: Premise{Epsilon0: epsilon0, Neighbours: ReplaceOne}, delta: delta0, of: LocalDP{epsilon0, delta0}}
	switch {
	case !(epsilon0 > 0 && epsilon0 <= MaxEpsilon):
		r.err = &ParameterError{"local epsilon", epsilon0, "above 0 and at most 10^6"}
	case !(delta0 >= 0 && delta0 < 1):
		r.err = &ParameterError{"local delta", delta0, "0 or more and below 1"}
	}
	return r
}

// ResponseReport is one of the answers that randomized response chooses among, the true
// one e^epsilon0 times as likely as each other.
func ResponseReport(epsilon0 float64, answers uint64) Report {
	return Report{premise: Premise{epsilon0, answers, ReplaceOne}, of: Response{epsilon0, answers}, err: checkResponse(epsilon0, answers)}
}

// Check returns an error for parameters of no randomized response.
func (m Response) Check() error { return checkResponse(m.Epsilon0, m.Answers) }

func checkResponse(epsilon0 float64, answers uint64) error {
	if !(epsilon0 > 0 && epsilon0 <= MaxLoss) {
		return &ParameterError{"epsilon0", epsilon0, "above 0 and at most 500"}
	}
	if answers < 2 || answers > MaxAnswers {
		return &ParameterError{"number of answers", float64(answers), "2 to 2^32"}
	}
	return nil
}

// NoReport is a report that nothing can be said of, for the reason given.
func NoReport(err error) Report { return Report{err: err} }

// ReportOf is the report of a mechanism that is run on one person's input: how hard any
// two inputs are to tell apart by it. RAPPOR's rows are whole.
func ReportOf(m Mechanism) Report {
	r := reportOf(m)
	switch m.(type) {
	case Gaussian, DiscreteGaussian: // not pure, and yet known
		r.of = m
	default:
		if r.err == nil {
			r.of = m
		}
	}
	return r
}

func reportOf(m Mechanism) Report {
	pure := func(scale float64, c Contribution) Report {
		s, err := c.Sensitivity(ReplaceOne)
		if err == nil {
			err = positive("scale", scale)
		}
		if err != nil {
			return NoReport(err)
		}
		return AnyReport(up(s.L1 / scale))
	}
	switch m := m.(type) {
	case Response:
		return ResponseReport(m.Epsilon0, m.Answers)
	case RAPPOR:
		if err := checkResponse(m.Epsilon0, 2); err != nil {
			return NoReport(err)
		}
		return AnyReport(2 * m.Epsilon0)
	case LocalDP:
		return ApproxReport(m.Epsilon0, m.Delta0)
	case Laplace: // more noise on top of one draw is post-processing
		return pure(m.Scale, m.Contribution)
	case DiscreteLaplace:
		return pure(m.Scale.Float(), m.Contribution)
	case Gaussian, DiscreteGaussian:
		return NoReport(fmt.Errorf("%w: reports of %T, which have no pure local privacy", ErrUnsupported, m))
	}
	return NoReport(fmt.Errorf("%w: %T as a report about one input", ErrUnsupported, m))
}

// Mechanism returns what the report is of, for accounting that knows more of it than its
// epsilon; nil for the zero value and where nothing can be said.
func (r Report) Mechanism() Mechanism { return r.of }

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
	case r.premise == Premise{}:
		return Premise{}, 0, fmt.Errorf("%w: the report is not stated", ErrParameter)
	}
	return r.premise, r.delta, nil
}

// Columns are one-hot vectors by RAPPOR, which flips each bit with probability
// 1/(e^epsilon0 + 1), of which only the sums of the columns are released, or each column
// shuffled by itself. A person who says nothing changes one bit, so they are for ZeroOut
// neighbours.
type Columns struct{ epsilon0 float64 }

// ColumnsOf is the columns of RAPPOR at epsilon0.
func ColumnsOf(epsilon0 float64) Columns { return Columns{epsilon0} }

// Premise is that of one column.
func (c Columns) Premise() (Premise, error) {
	return Premise{c.epsilon0, 2, ZeroOut}, checkResponse(c.epsilon0, 2)
}

// A Presence bounds what tells a person's taking part from not taking part, by a pure
// epsilon. Make one with AnyPresence; the zero value is refused.
type Presence struct {
	epsilon float64
	err     error
}

// AnyPresence is that of any release that is epsilon-DP for AddRemove neighbours.
func AnyPresence(epsilon float64) Presence {
	if !(epsilon > 0 && epsilon <= MaxEpsilon) {
		return Presence{err: &ParameterError{"local epsilon", epsilon, "above 0 and at most 10^6"}}
	}
	return Presence{epsilon: epsilon}
}

// Epsilon returns the bound.
func (p Presence) Epsilon() (float64, error) {
	if p.err == nil && p.epsilon == 0 {
		return 0, fmt.Errorf("%w: the release is not stated", ErrParameter)
	}
	return p.epsilon, p.err
}
