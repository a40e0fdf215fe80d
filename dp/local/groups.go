package local

import (
	"math"

	"github.com/starling-agg/starling/dp/sketch"
)

// Paper 002: a device has a group of k, secret, and a value from +-1..+-m; the sums of
// the values by group are wanted. Both schemes are for settings where no one is trusted:
// with secure aggregation and central noise the error is far smaller.

const (
	maxGroups    = 1 << 16
	maxMagnitude = 1 << 16
)

// checkGroups bounds the number of groups and the magnitude m.
func checkGroups(groups, m int) error {
	if groups < 2 || groups > maxGroups {
		return parameter("number of groups", float64(groups), "2 to 65536")
	}
	if m < 1 || m > maxMagnitude {
		return parameter("largest value", float64(m), "1 to 65536")
	}
	if int64(groups)*int64(m) > 1<<24 {
		return parameter("groups times values", float64(groups)*float64(m), "at most 2^24")
	}
	return nil
}

func checkMember(group, value, groups, m int) error {
	if group < 0 || group >= groups {
		return parameter("group", float64(group), "0 to the number of groups less one")
	}
	if value == 0 || value < -m || value > m {
		return parameter("value", float64(value), "plus or minus 1 to the largest value")
	}
	return nil
}

// checkBetween wants bounds that the probabilities of 2m values, which add up to 1, can
// meet: others would be bounds on nothing, and call for no lies.
func checkBetween(least, most float64, m int) error {
	const rounding = 1e-9
	each := 1 / float64(2*m)
	if !(least >= 0 && least <= each*(1+rounding)) {
		return parameter("least probability of a value", least, "0 to 1/(2m)")
	}
	if !(most >= each*(1-rounding) && most <= 1-float64(2*m-1)*least+rounding) {
		return parameter("largest probability of a value", most, "1/(2m) to what 2m - 1 values of the least leave")
	}
	return nil
}

func checkMeanSquare(meanSquare float64, m int) error {
	if !(meanSquare >= 1 && meanSquare <= float64(m)*float64(m)) {
		return parameter("mean square of the values", meanSquare, "1 to the square of the largest value")
	}
	return nil
}

// indexOf maps -m..-1, 1..m to 0..2m-1; valueAt is its inverse.
func indexOf(value, m int) uint64 {
	return uint64(value+m) - uint64(int64(value)>>63&1^1)
}

func valueAt(index uint64, m int) int {
	v := int(index) - m
	return v + 1 - int(uint64(int64(v)>>63)&1)
}

// meanSquareOf is the mean of v^2 over +-1..+-m.
func meanSquareOf(m int) float64 { f := float64(m); return (f + 1) * (2*f + 1) / 6 }

// secondMoment returns E of the square of what a device of mean square meanSquare says.
func (r *Response) secondMoment(m int, meanSquare float64) float64 {
	l, v := r.lie.float(), float64(2*m)
	return r.lie.not()*meanSquare + l*(v*meanSquareOf(m)-meanSquare)/(v-1)
}

// checkDistributions returns 2m.
func checkDistributions(distributions [][]float64) (float64, error) {
	if len(distributions) < 2 {
		return 0, parameter("number of groups", float64(len(distributions)), "2 to 65536")
	}
	n := len(distributions[0])
	if n < 2 || n%2 == 1 {
		return 0, parameter("number of values", float64(n), "an even number, 2 or more")
	}
	if err := checkGroups(len(distributions), n/2); err != nil {
		return 0, err
	}
	for _, p := range distributions {
		if len(p) != n {
			return 0, parameter("number of values", float64(len(p)), "the same in each group")
		}
		total := 0.0
		for _, x := range p {
			if !(x >= 0 && x <= 1) {
				return 0, parameter("probability of a value", x, "0 to 1")
			}
			total += x
		}
		if !(math.Abs(total-1) < 1e-9) {
			return 0, parameter("sum of a distribution", total, "1")
		}
	}
	return float64(n), nil
}

// A GroupSum adds up answers. The zero value is not ready; Question and RandomGroup make
// it. It is not safe for concurrent use.
type GroupSum struct {
	m   int
	gap float64 // of truth and lie, in the response about the value
	// tells and strays are the probabilities with which an answer counts for a group if
	// it is of that group, and if of another: 1 for question & answer, whose answers
	// count for each.
	tells, strays float64
	n             uint64
	// By group: of the answers that count for it, the number, and the sums of what they
	// say and of its square.
	counts  []uint64
	values  []int64
	squares []uint64
}

func newSum(groups, m int, gap, tells, strays float64) *GroupSum {
	return &GroupSum{m: m, gap: gap, tells: tells, strays: strays,
		counts: make([]uint64, groups), values: make([]int64, groups), squares: make([]uint64, groups)}
}

// check refuses a sum that another scheme made.
func (s *GroupSum) check(groups, m int, gap, tells float64) error {
	if len(s.values) != groups || s.m != m || s.gap != gap || s.tells != tells {
		return parameter("number of groups of the sum", float64(len(s.values)), "a sum of the same scheme")
	}
	return nil
}

func (s *GroupSum) add(group, value int) {
	s.counts[group]++
	s.values[group] += int64(value)
	s.squares[group] += uint64(value * value)
}

// asksSizes reports whether the scheme is a question with values of one alone, and so may
// be one on sizes.
func (s *GroupSum) asksSizes() bool { return s.m == 1 && s.tells == 1 && s.strays == 1 }

// A GroupEstimate has unbiased estimates for one group.
type GroupEstimate struct {
	// Sum is that of the values. Its variance is an estimate too, unbiased but for what
	// keeping it in range does; if the size is not known it is larger than the true one
	// by the sum of the squares of the group's values.
	Sum Estimate
	// Size is the number of devices; its variance is +Inf if the answers do not tell.
	Size Estimate

	covariance float64
	m          float64
}

// Estimate returns the sum of the values of each group, and its size as far as the
// answers tell: those of a RandomGroup do; those of a Question do not, for a group with
// uniform values answers as others do, and EstimateWithSizes is for it.
func (s *GroupSum) Estimate() []GroupEstimate {
	sizes := make([]Estimate, len(s.values))
	for g := range sizes {
		sizes[g] = s.size(g)
	}
	return s.estimate(sizes)
}

// EstimateWithSizes is Estimate of the answers to a Question, with the sizes of the
// groups from those of the same devices to another one, of m = 1, to which each gave the
// value 1. Its lies and its nonces are others, and its epsilon adds to that of the first.
func (s *GroupSum) EstimateWithSizes(sizes *GroupSum) ([]GroupEstimate, error) {
	if !sizes.asksSizes() || s.tells != 1 {
		return nil, parameter("largest value of the sizes", float64(sizes.m), "1, by question & answer")
	}
	if len(sizes.values) != len(s.values) {
		return nil, parameter("number of groups of the sizes", float64(len(sizes.values)), "that of the sum")
	}
	if sizes.n != s.n {
		return nil, parameter("number of answers on sizes", float64(sizes.n), "that of the sum")
	}
	held := make([]Estimate, len(s.values))
	for g, x := range sizes.values {
		size, n := float64(x)/sizes.gap, float64(sizes.n)
		// Each report adds c^2, less one of the group's own.
		held[g] = Estimate{size, n/(sizes.gap*sizes.gap) - min(n, max(0, size))}
	}
	return s.estimate(held), nil
}

// estimate goes by two expectations (docs/proofs/groups.md, theorem 2). With x a report's
// unbiased estimate of what its device adds to a group's sum, the sum of x^2 has that of
// the variance and of Q, the sum of the squares of the group's values; and the squares
// that were said tell Q if the size is known.
func (s *GroupSum) estimate(sizes []Estimate) []GroupEstimate {
	out := make([]GroupEstimate, len(s.values))
	n, t, m := float64(s.n), meanSquareOf(s.m), float64(s.m)
	scale := 1 / (s.tells * s.gap)
	for g, size := range sizes {
		sum := Estimate{scale * float64(s.values[g]), scale * scale * float64(s.squares[g])}
		e := GroupEstimate{Sum: sum, Size: size, m: m}
		if !math.IsInf(size.Variance, 1) {
			held := min(n, max(0, size.Value))
			q := held*t + scale*(float64(s.squares[g])-s.tells*held*t-s.strays*(n-held)*t)
			e.Sum.Variance -= min(held*m*m, max(held, q))
			if s.tells != 1 {
				e.covariance = sum.Value * (1 - s.tells) / (s.tells - s.strays)
			}
		}
		out[g] = e
	}
	return out
}

// Interval returns bounds of z standard errors about the estimate: for the many devices
// that it takes, a confidence interval of probability about 2 Phi(z) - 1.
func (e Estimate) Interval(z float64) (low, high float64) {
	d := z * math.Sqrt(max(0, e.Variance))
	return e.Value - d, e.Value + d
}

// Mean returns the mean of the values of the group, sum by size, and bounds of z standard
// errors: the means whose product with the size is that close to the sum (Fieller 1954),
// within the range of the values. Where the size may be zero, to z standard errors, the
// bounds are that range.
func (e GroupEstimate) Mean(z float64) (mean, low, high float64) {
	m := sketch.GroupMoments{Sum: e.Sum.Value, Size: e.Size.Value,
		SumVariance: e.Sum.Variance, SizeVariance: e.Size.Variance, Covariance: e.covariance}
	mean, low, high, _ = m.Mean(z, -e.m, e.m)
	return mean, low, high
}
