package local

import (
	"math"
	"math/bits"

	"github.com/starling-agg/starling/internal/outward"
)

// GroupNumbers are the numbers of which sums by group are asked for. Its methods want them
// to be in range, which Check says.
type GroupNumbers struct {
	Groups int // 2 to 65536
	// Min and Max bound the numbers; Max is above Min, and neither is more than 2^32 from 0.
	Min, Max int64
	// Sizes are asked for too. Half of the answers to a [Question] are then about them, and
	// numbers are taken from the middle of Min and Max, else from 0.
	Sizes bool
}

// MaxTable bounds groups times 2m where numbers are summed: what adding up one answer takes.
const MaxTable = 1 << 16

// Check says what is out of range.
func (a GroupNumbers) Check() error {
	const most = maxNumber / 2
	switch {
	case a.Min >= a.Max || a.Min < -most || a.Max > most:
		return parameter("smallest number", float64(a.Min), "below the largest, and both within 2^32 of 0")
	case a.Groups < 2 || a.Groups > MaxTable/2:
		return parameter("number of groups", float64(a.Groups), "2 to 32768")
	}
	return nil
}

// Largest is the largest number that a [Rounding] is given.
func (a GroupNumbers) Largest() uint64 {
	if a.Sizes {
		return uint64(a.Max - a.Min)
	}
	return uint64(max(a.Max, -a.Max, a.Min, -a.Min))
}

// Rounded is what a [Rounding] is given of a number.
func (a GroupNumbers) Rounded(number int64) int64 {
	if a.Sizes {
		return 2*number - a.Min - a.Max
	}
	return number
}

// Scale says what numbers 2m values stand for.
func (a GroupNumbers) Scale(m int) GroupScale {
	step := float64(a.Largest()) / float64(m)
	if a.Sizes {
		return GroupScale{step / 2, float64(a.Min+a.Max) / 2}
	}
	return GroupScale{Step: step}
}

// MaxLevels is the largest m that these numbers and groups allow.
func (a GroupNumbers) MaxLevels() int {
	return int(min(a.Largest(), MaxTable/2/uint64(a.Groups)))
}

// NumberErrors are variances over the number of reports, of groups of which each has as
// many devices as any other, at most, whatever the numbers are.
type NumberErrors struct {
	// Sum and Size are those of the sum and of the size of a group, Total that of the sum
	// over all. Size is +Inf where it is not told.
	Sum, Size, Total float64
	// Mean is that of the sum less the size times the mean, whatever this is: of the mean
	// it is the variance, to the first order, over the squared size. +Inf as Size.
	Mean float64
}

// Alpha by the number of devices is the normalised mean square error of all sums.
func (e NumberErrors) Alpha(groups int) float64 { return e.Sum * float64(groups) }

// errors are those of answers that tell their group with probability tells and name
// another given one with probability strays, and in which the value has gap more of the
// truth than of a lie. Asked is the variance of a size where devices are asked for it.
func (a GroupNumbers) errors(m int, tells, strays, gap, asked float64) NumberErrors {
	k, t, most := float64(a.Groups), meanSquareOf(m), float64(m)*float64(m)
	held, c, of := 1/k, 1/(tells*gap), a.Scale(m)
	// A device's own answer has E said^2 less the square of what it says on average, which
	// rounding leaves within 1 of that of the value.
	own := c*c*tells*(1-gap)*t + (c*c*tells*gap-1)*most + 1
	sum := held*own + (1-held)*c*c*strays*t
	total, size := k*sum, asked
	covariance := 0.0 // of sum and size, over the sum
	switch {
	case !a.Sizes:
		size = math.Inf(1)
	case tells == strays: // a question; two samples, each of half
		sum, total, covariance = 2*sum+held*most, 2*total+most, held-1
	case tells > strays:
		size = (held*tells*(1-tells) + (1-held)*strays*(1-strays)) / ((tells - strays) * (tells - strays))
		covariance = (1 - tells) / (tells - strays)
	}
	sum, total = of.Step*of.Step*sum, of.Step*of.Step*total
	if math.IsInf(size, 1) {
		return NumberErrors{Sum: sum, Total: total, Size: size, Mean: size}
	}
	// Where all of a group have the number Middle + x, its sum beside the middle is held x.
	furthest := float64(a.Max-a.Min) / 2
	return NumberErrors{
		Sum:   sum + of.Middle*of.Middle*size + 2*math.Abs(of.Middle)*furthest*math.Abs(covariance)*held,
		Total: total,
		Size:  size,
		Mean:  sum + furthest*furthest*max(0, size-2*covariance*held),
	}
}

// Errors are those of this question and, where sizes are asked for, of one about them of
// the same epsilon.
func (q *Question) Errors(a GroupNumbers) (NumberErrors, error) {
	s, err := NewQuestion(q.groups, 1, q.Epsilon(Replacement))
	if err != nil {
		return NumberErrors{}, err
	}
	_, _, gap := q.response.rates()
	return a.errors(q.m, 1, 1, gap, 2*s.scale()*s.scale()), nil
}

// Errors are those of this randomizer. Sizes are told where a device names its own group
// more often than any other.
func (r *RandomGroup) Errors(a GroupNumbers) NumberErrors {
	_, _, gap := r.omega.rates()
	tells, strays, _ := r.gamma.rates()
	return a.errors(r.m, tells, strays, gap, math.Inf(1))
}

// A NumberPlan is a scheme for numbers, and how many values it rounds them to.
type NumberPlan struct {
	GroupPlan     // Alpha is of the sums of the numbers
	Levels    int // m
	Errors    NumberErrors
}

// PlanNumbers returns the plan of a scheme with the least error of the sums, or where
// sizes are asked for of sums and means. It is epsilon-LDP for group and number together,
// whatever the distributions of the numbers are. levels is m, and 0 leaves it to the plan.
func PlanNumbers(a GroupNumbers, s GroupScheme, epsilon float64, levels int) (NumberPlan, error) {
	var p NumberPlan
	if err := a.Check(); err != nil {
		return p, err
	}
	if err := checkEpsilon(epsilon); err != nil {
		return p, err
	}
	try, ok := map[GroupScheme]func(a GroupNumbers, m int, epsilon float64) error{ByQuestion: p.question, ByRandomGroup: p.random}[s]
	if !ok {
		return p, parameter("scheme", float64(s), "one of two")
	}
	most := a.MaxLevels()
	if levels < 0 || levels > most {
		return p, parameter("largest value", float64(levels), "1 to the largest number, and at most 32768 over the number of groups")
	}
	if levels != 0 {
		return p, try(a, levels, epsilon)
	}
	for m := 1; m <= min(most, mostPlanned) && m <= p.Levels+patience; m++ {
		if err := try(a, m, epsilon); err != nil {
			return p, err
		}
	}
	return p, nil
}

// mostPlanned bounds the m that a plan chooses, and patience how much larger ones than the
// best so far it tries.
const mostPlanned, patience = 1024, 32

// weight is what a plan makes as small as it can.
func (p *NumberPlan) weight(a GroupNumbers) float64 {
	switch {
	case p.Levels == 0:
		return math.Inf(1)
	case a.Sizes:
		return p.Errors.Sum + p.Errors.Mean
	}
	return p.Errors.Sum
}

// question takes question & answer of m where that is better.
func (p *NumberPlan) question(a GroupNumbers, m int, epsilon float64) error {
	q, err := NewQuestion(a.Groups, m, epsilon)
	if err != nil {
		return err
	}
	e, err := q.Errors(a)
	if err != nil {
		return err
	}
	trial := NumberPlan{GroupPlan{ByQuestion, q.Lie(), 0, e.Alpha(a.Groups), q.Bits()}, m, e}
	if trial.weight(a) < p.weight(a) {
		*p = trial
	}
	return nil
}

// random does so with the randomized group. Its lies about the value hide that by
// themselves, so that what two answers of one group tell of it is bounded too.
func (p *NumberPlan) random(a GroupNumbers, m int, epsilon float64) error {
	v, k := float64(2*m), float64(a.Groups)
	trial := func(gamma, omega float64) NumberPlan {
		gap := 1 - v*omega/(v-1)
		e := a.errors(m, 1-gamma, gamma/(k-1), gap, math.Inf(1))
		return NumberPlan{GroupPlan{ByRandomGroup, omega, gamma, e.Alpha(a.Groups), bits.Len(uint(2*m*a.Groups - 1))}, m, e}
	}
	room := outward.Rounding * (1 + v*k)
	gamma, omega := leastLies(a.Groups, m, epsilon-room, 1, lieBetween(m, epsilon-room, 0, 1), func(gamma, omega float64) float64 {
		t := trial(gamma, omega)
		return t.weight(a)
	})
	if best := trial(gamma, omega); best.weight(a) < p.weight(a) {
		*p = best
	}
	return nil
}
