package local

import "fmt"

// A GroupScheme is a way to ask for sums by group.
type GroupScheme uint8

const (
	// ByQuestion is question & answer, a [Question].
	ByQuestion GroupScheme = iota + 1
	// ByRandomGroup is the randomized group, a [RandomGroup].
	ByRandomGroup
)

func (s GroupScheme) String() string {
	switch s {
	case ByQuestion:
		return "question & answer"
	case ByRandomGroup:
		return "randomized group"
	}
	return fmt.Sprintf("GroupScheme(%d)", uint8(s))
}

// GroupOptions say what is asked of the devices.
type GroupOptions struct {
	// Groups is k, 2 to 65536, and Largest is m, 1 to 65536; their product is at most
	// 2^24. Required.
	Groups, Largest int
	// Epsilon is to which the group is hidden. Required.
	Epsilon float64
	// Least and Most bound the probability of each value in every group. Epsilon then
	// holds on that condition. Both 0 if nothing is known, which is 0 and 1.
	Least, Most float64
	// MeanSquare is E v^2 over all devices, as far as known, 1 to m^2; 0 for that of
	// uniform values, (m+1)(2m+1)/6.
	MeanSquare float64
	// ByBits compares for a given number of bits from all devices together, as paper 002
	// does, in place of a given number of devices.
	ByBits bool
}

// A GroupPlan is a scheme with the least lies that hide the group.
type GroupPlan struct {
	Scheme GroupScheme
	// Lie is the probability of a lie about the value: lambda, or omega.
	Lie float64
	// Stray is the probability gamma of another group; 0 for question & answer.
	Stray float64
	// Alpha by the number of devices is the normalised mean square error.
	Alpha float64
	// Bits is the length of an answer.
	Bits int
}

// PlanGroups returns a plan for each scheme, that with the smaller error first: alpha/n
// of paper 002's theorem 1 for question & answer, and its like for the randomized group.
func PlanGroups(o GroupOptions) ([2]GroupPlan, error) {
	if o.Least == 0 && o.Most == 0 {
		o.Most = 1
	}
	if o.MeanSquare == 0 {
		o.MeanSquare = meanSquareOf(o.Largest)
	}
	gamma, omega, err := RandomGroupLies(o.Groups, o.Largest, o.Epsilon, o.Least, o.Most, o.MeanSquare)
	if err != nil {
		return [2]GroupPlan{}, err
	}
	lambda, err := QuestionLieBetween(o.Largest, o.Epsilon, o.Least, o.Most)
	if err != nil {
		return [2]GroupPlan{}, err
	}
	q, err := NewQuestionLying(o.Groups, o.Largest, lambda)
	if err != nil {
		return [2]GroupPlan{}, err
	}
	r, err := NewRandomGroup(o.Groups, o.Largest, gamma, omega)
	if err != nil {
		return [2]GroupPlan{}, err
	}
	plans := [2]GroupPlan{
		{ByQuestion, lambda, 0, QuestionAlpha(o.Largest, o.Groups, lambda, o.MeanSquare), q.Bits()},
		{ByRandomGroup, omega, gamma, RandomGroupAlpha(o.Largest, o.Groups, gamma, omega, o.MeanSquare), r.Bits()},
	}
	errorOf := func(p GroupPlan) float64 {
		if o.ByBits {
			return p.Alpha * float64(p.Bits)
		}
		return p.Alpha
	}
	if errorOf(plans[1]) < errorOf(plans[0]) {
		plans[0], plans[1] = plans[1], plans[0]
	}
	return plans, nil
}
