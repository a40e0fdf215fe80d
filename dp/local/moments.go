package local

import (
	"math"

	"github.com/starling-agg/starling/dp/sketch"
)

// Reports is how many answers were added up.
func (s *GroupSum) Reports() uint64 { return s.n }

// Numbers are all that is known of the answers: for a [Question] the sums of what they say
// by group, and then those of the squares; for a [RandomGroup] the number of answers by
// group before both.
func (s *GroupSum) Numbers() []int64 {
	var list []int64
	if s.tells != s.strays {
		for _, x := range s.counts {
			list = append(list, int64(x))
		}
	}
	list = append(list, s.values...)
	for _, x := range s.squares {
		list = append(list, int64(x))
	}
	return list
}

// ReadSum makes a sum of n answers of its Numbers. It fails with *[ParameterError] for
// those of no such answers.
func (q *Question) ReadSum(n uint64, numbers []int64) (*GroupSum, error) {
	s := q.NewSum()
	if len(numbers) != 2*q.groups {
		return nil, parameter("number of numbers", float64(len(numbers)), "two for each group")
	}
	s.n = n
	for g := range s.values {
		if err := s.set(g, int64(n), numbers[g], numbers[q.groups+g]); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// ReadSum is as that of [Question]; the numbers say how many answers there are.
func (r *RandomGroup) ReadSum(numbers []int64) (*GroupSum, error) {
	s := r.NewSum()
	if len(numbers) != 3*r.groups {
		return nil, parameter("number of numbers", float64(len(numbers)), "three for each group")
	}
	for g := range s.values {
		if err := s.set(g, numbers[g], numbers[r.groups+g], numbers[2*r.groups+g]); err != nil {
			return nil, err
		}
		s.n += s.counts[g]
	}
	return s, nil
}

// maxAnswers keeps the squares of as many answers in 63 bits.
const maxAnswers = 1 << 30

// set sets what is known of a group, if answers can say so.
func (s *GroupSum) set(g int, count, value, square int64) error {
	m := int64(s.m)
	switch {
	case count < 0 || count > maxAnswers:
		return parameter("number of answers", float64(count), "0 to 2^30")
	case value < -count*m || value > count*m || (count-value)&1 != 0 && m == 1:
		return parameter("sum of the values", float64(value), "what as many answers can say")
	case square < count || square > count*m*m:
		return parameter("sum of the squares", float64(square), "what as many answers can say")
	}
	s.counts[g], s.values[g], s.squares[g] = uint64(count), value, uint64(square)
	return nil
}

// A GroupScale says what number a value stands for on average: Step times the value, and
// Middle.
type GroupScale struct{ Step, Middle float64 }

// Moments estimates sum and size of the numbers of each group, and of all together, whose
// size is the number of reports. Values are those that a [Rounding] made of numbers, so
// that the variances count on no more of their squares than the sums show, and are too
// large rather than too small. Sizes are those of devices that were asked for their group
// alone in the place of their value, of which [Query.OfSize] decides; nil where all were
// asked for their value, and then a Question tells no sizes: their variance is +Inf, and
// the scale's Middle is 0. It fails with *[ParameterError] where sizes are not those of a
// question about them, and where either half is without answers. (docs/proofs/groups.md,
// theorem 5.)
func (s *GroupSum) Moments(sizes *GroupSum, of GroupScale) (each []sketch.GroupMoments, all sketch.GroupMoments, err error) {
	n1, n2 := float64(s.n), 0.0
	if sizes != nil {
		if !sizes.asksSizes() || s.tells != s.strays || len(sizes.values) != len(s.values) {
			return nil, all, parameter("largest value of the sizes", float64(sizes.m), "1, by question & answer, of as many groups")
		}
		if n2 = float64(sizes.n); n2 == 0 {
			return nil, all, parameter("number of answers on sizes", 0, "1 or more")
		}
	}
	n := n1 + n2
	if n1 == 0 || n < 2 {
		return nil, all, parameter("number of answers", n1, "1 or more, of 2")
	}
	each = make([]sketch.GroupMoments, len(s.values))
	scale, up := 1/(s.tells*s.gap), n/n1
	total, squares, said := 0.0, 0.0, 0.0
	for g, x := range s.values {
		sum, square := up*scale*float64(x), up*scale*scale*float64(s.squares[g])
		total, squares = total+sum, squares+square
		size, covariance := s.size(g), 0.0
		if sizes != nil {
			size = sizes.asked(g, n)
			covariance = -(sum - sum*min(n, max(0, size.Value))/n) * n / (n - 1)
		} else if s.tells != s.strays {
			covariance = sum * (1 - s.tells) / (s.tells - s.strays)
		}
		said += float64(s.squares[g])
		held, known := n, math.NaN() // at most, and nothing of the squares
		if !math.IsInf(size.Variance, 1) {
			held = min(n, max(1, size.Value))
			known = s.held(up*float64(s.squares[g]), held, n-held)
		}
		least := min(s.least(0, n), s.least(n, 0))
		if !math.IsNaN(known) {
			least = s.least(held, n-held)
		}
		each[g] = of.apply(sum, max(up*least, s.spread(sum, square, known, held, n)), size, covariance)
	}
	others := n * float64(len(s.values)-1)
	known := s.held(up*said, n, others)
	all = of.apply(total, max(up*s.least(n, others), s.spread(total, squares, known, n, n)), Estimate{n, 0}, 0)
	return each, all, nil
}

// size is the size of a group as the answers tell it: those of a RandomGroup do.
func (s *GroupSum) size(g int) Estimate {
	gap, n := s.tells-s.strays, float64(s.n)
	if gap == 0 {
		return Estimate{Variance: math.Inf(1)}
	}
	size := (float64(s.counts[g]) - n*s.strays) / gap
	held := min(n, max(0, size))
	return Estimate{size, (held*s.tells*(1-s.tells) + (n-held)*s.strays*(1-s.strays)) / (gap * gap)}
}

// asked is the size of a group among n devices, of which those of s were asked for it.
func (s *GroupSum) asked(g int, n float64) Estimate {
	part := float64(s.n)
	size := n / part * float64(s.values[g]) / s.gap
	held := min(n, max(0, size))
	each := n / part * n / (s.gap * s.gap) // of the variance and of the size
	return Estimate{size, max(0, each-held*n*(part-1)/(part*(n-1))-held*held*(n-part)/(part*(n-1)))}
}

// held is the sum of the squares of the values of held devices, from that of what is said,
// by them and others. (docs/proofs/groups.md, theorem 2.)
func (s *GroupSum) held(said, held, others float64) float64 {
	t := meanSquareOf(s.m)
	return held*t + (said-s.tells*held*t-s.strays*others*t)/(s.tells*s.gap)
}

// least is the variance of an estimated sum of values of held devices, to which others add
// chance alone, where it is least: where each value is 1 or -1. Answers show less of it now
// and then where few of the others stray.
func (s *GroupSum) least(held, others float64) float64 {
	c, t := 1/(s.tells*s.gap), meanSquareOf(s.m)
	return held*max(0, c*c*s.tells*((1-s.gap)*t+s.gap)-1) + others*c*c*s.strays*t
}

// spread is the variance of an estimated sum of values of at most held of n devices, of
// which those of s were asked. Square has the mean of the variance of noise and of the sum
// of squares of what each value is on average, and known is the sum of squares of the
// values, NaN where it is not known.
func (s *GroupSum) spread(sum, square, known, held, n float64) float64 {
	part, m := float64(s.n), float64(s.m)
	square *= n / part
	// Of the square of the sum no more is counted on than its noise leaves, and of the
	// squares no more than the sum shows (Cauchy and Schwarz), or what rounding leaves.
	sums := min(max(0, sum*sum-square), held*held*m*m)
	own := sums / held
	if s.m > 1 && !math.IsNaN(known) {
		own = min(max(own, known-held), held*m*m)
	}
	return max(0, square-own*n*(part-1)/(part*(n-1))-sums*(n-part)/(part*(n-1)))
}

// apply turns estimates about values into those about numbers.
func (of GroupScale) apply(sum, variance float64, size Estimate, covariance float64) sketch.GroupMoments {
	if math.IsInf(size.Variance, 1) {
		return sketch.GroupMoments{Sum: of.Step * sum, Size: size.Value, SumVariance: of.Step * of.Step * variance, SizeVariance: size.Variance}
	}
	return sketch.GroupMoments{
		Sum:          of.Step*sum + of.Middle*size.Value,
		Size:         size.Value,
		SumVariance:  max(0, of.Step*of.Step*variance+2*of.Step*of.Middle*covariance+of.Middle*of.Middle*size.Variance),
		SizeVariance: size.Variance,
		Covariance:   of.Step*covariance + of.Middle*size.Variance,
	}
}
