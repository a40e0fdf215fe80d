package local

import (
	"io"
	"math"
	"slices"

	"github.com/starling-agg/starling/internal/outward"
)

// Question & answer and the randomized group (paper 002, multi-group aggregation): each
// device is in one secret group and holds a value from +-1..+-m; the sums of the values
// by group are wanted. Both are for settings where no one is trusted: with secure
// aggregation and central noise the error is far smaller.

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
	if groups*m > 1<<24 {
		return parameter("groups times values", float64(groups*m), "at most 2^24")
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

// indexOf maps -m..-1, 1..m to 0..2m-1; valueAt is its inverse.
func indexOf(value, m int) uint64 {
	return uint64(value+m) - uint64(int64(value)>>63&1^1)
}

func valueAt(index uint64, m int) int {
	v := int(index) - m
	return v + 1 - int(uint64(int64(v)>>63)&1)
}

// QuestionLie returns the least probability lambda of a lie at which question & answer
// hides the group to epsilon, whatever the distributions of the values:
// (2m-1)/(2m-1+e^epsilon). It then is epsilon-LDP for group and value together.
func QuestionLie(m int, epsilon float64) (float64, error) {
	return QuestionLieBetween(m, epsilon, 0, 1)
}

// QuestionLieBetween is QuestionLie where each value has a probability from least to most
// in every group: with D = most - least e^epsilon it is (2m-1)D/(2mD+e^epsilon-1), and 0
// if D <= 0. (Paper 002 drops a parenthesis here.)
func QuestionLieBetween(m int, epsilon, least, most float64) (float64, error) {
	if err := checkGroups(2, m); err != nil {
		return 0, err
	}
	if err := checkEpsilon(epsilon); err != nil {
		return 0, err
	}
	if !(least >= 0 && least <= 1) {
		return 0, parameter("least probability of a value", least, "0 to 1")
	}
	if !(most >= least && most <= 1) {
		return 0, parameter("largest probability of a value", most, "from the least to 1")
	}
	d := most - least*math.Exp(epsilon)
	if d <= 0 {
		return 0, nil
	}
	d, v := outward.Up(d), float64(2*m)
	return (v - 1) * d / (v*d + math.Expm1(epsilon)), nil
}

// A Question is question & answer: the server (or a public seed) deals each device a
// table with a row for each group, a permutation of the 2m values; the device names the
// column in which its group's row holds its value, or a lie. It is safe for concurrent
// use.
type Question struct {
	groups, m int
	response  *Response
}

// NewQuestion returns question & answer for the number of groups, values +-1..+-m and the
// probability lambda of a lie, at least 0 and below (2m-1)/(2m).
func NewQuestion(groups, m int, lambda float64) (*Question, error) {
	if err := checkGroups(groups, m); err != nil {
		return nil, err
	}
	r, err := NewResponseLying(2*m, lambda)
	if err != nil {
		return nil, err
	}
	return &Question{groups, m, r}, nil
}

// Table is the question to one device: Rows of 2m values each.
type Table [][]int

// Table deals the table of a seed, which is public and differs between devices and
// collections: a uniform permutation of the values for each group, by Fisher and Yates
// with rejection from cSHAKE128 of the seed, with the customization "starling question
// table". Privacy does not depend on the seed; that the estimates are as stated does.
func (q *Question) Table(seed [32]byte) Table {
	s := newSource(expand(tableDomain, seed), 2*q.m*q.groups)
	t := make(Table, q.groups)
	for g := range t {
		row := make([]int, 2*q.m)
		for i := range row {
			j := int(s.uniform(uint64(i + 1)))
			row[i] = row[j]
			row[j] = valueAt(uint64(i), q.m)
		}
		t[g] = row
	}
	return t
}

// Randomize returns the answer, a column 0..2m-1, of a device of this group with this
// value, to the table of the seed.
func (q *Question) Randomize(seed [32]byte, group, value int) (int, error) {
	if err := checkMember(group, value, q.groups, q.m); err != nil {
		return 0, err
	}
	s := newSource(q.response.src, 2)
	defer s.wipe()
	said := valueAt(q.response.answer(s, indexOf(value, q.m)), q.m)
	column := uint64(0)
	for g, row := range q.Table(seed) {
		for a, v := range row {
			column |= uint64(a) & -(equal(uint64(v), uint64(said)) & equal(uint64(g), uint64(group)))
		}
	}
	return int(column), nil
}

// scale is c = (2m-1)/(2m-2m lambda-1), one over the difference of truth and lie.
func (q *Question) scale() float64 {
	_, _, gap := q.response.rates()
	return 1 / gap
}

// Epsilon returns a local epsilon for group and value together, rounded up; that of the
// randomized response inside. For deletion the reference is a uniform column.
func (q *Question) Epsilon(about Relation) float64 { return q.response.Epsilon(about) }

// Variance returns the variance that each report adds to an estimated sum if held is the
// fraction of devices in that group and meanSquare is E v^2 over them.
func (q *Question) Variance(held, meanSquare float64) float64 {
	c := q.scale()
	own := c*c*q.response.secondMoment(q.m, meanSquare) - meanSquare
	return held*own + (1-held)*c*c*meanSquareOf(q.m)
}

// meanSquareOf is the mean of v^2 over +-1..+-m.
func meanSquareOf(m int) float64 { f := float64(m); return (f + 1) * (2*f + 1) / 6 }

// secondMoment returns E of the square of what a device of mean square meanSquare says.
func (r *Response) secondMoment(m int, meanSquare float64) float64 {
	l, v := r.lie.float(), float64(2*m)
	return r.lie.not()*meanSquare + l*(v*meanSquareOf(m)-meanSquare)/(v-1)
}

// A GroupSum adds up answers. The zero value is not ready; Question and RandomGroup make
// it.
type GroupSum struct {
	values []int64 // by group
	n      uint64
	scale  float64
	alpha  float64
}

// NewSum returns an empty sum of answers. meanSquare is E v^2 over all devices, as far as
// known: it enters the variance of the estimates; (m+1)(2m+1)/6 is that of uniform
// values.
func (q *Question) NewSum(meanSquare float64) *GroupSum {
	return &GroupSum{values: make([]int64, q.groups), scale: q.scale(),
		alpha: QuestionAlpha(q.m, q.groups, q.response.lie.float(), meanSquare)}
}

// Add counts the answer of the device with this seed.
func (q *Question) Add(sum *GroupSum, seed [32]byte, column int) error {
	if column < 0 || column >= 2*q.m {
		return parameter("column", float64(column), "0 to twice the largest value less one")
	}
	for g, row := range q.Table(seed) {
		sum.values[g] += int64(row[column])
	}
	sum.n++
	return nil
}

// Estimate returns the sum of the values of each group. The variance is the mean over the
// groups: n alpha over the number of groups.
func (s *GroupSum) Estimate() []Estimate {
	out := make([]Estimate, len(s.values))
	v := float64(s.n) * s.alpha / float64(len(s.values))
	for g, x := range s.values {
		out[g] = Estimate{s.scale * float64(x), v}
	}
	return out
}

// QuestionAlpha is n times the normalised mean square error of question & answer, summed
// over the groups, for E v^2 = meanSquare:
//
//	2m lambda E v^2/(2m-2m lambda-1) + (4m^2-1)(m+1)[(2m-1)(groups-1)+2m lambda]/(6(2m-2m lambda-1)^2)
func QuestionAlpha(m, groups int, lambda, meanSquare float64) float64 {
	f, k := float64(m), float64(groups)
	d := 2*f - 2*f*lambda - 1
	return 2*f*lambda*meanSquare/d + (4*f*f-1)*(f+1)*((2*f-1)*(k-1)+2*f*lambda)/(6*d*d)
}

// QuestionEpsilon returns how well question & answer hides the group if a device of group g has the value of index i
// (-m first) with probability distributions[g][i]: the largest ratio over different groups and any values of
// (2m(1-lambda)-1) p + lambda, rounded up; +Inf if one is 0.
func QuestionEpsilon(distributions [][]float64, lambda float64) (float64, error) {
	values, err := checkDistributions(distributions)
	if err != nil {
		return 0, err
	}
	if !(lambda >= 0 && lambda < (values-1)/values) {
		return 0, parameter("probability of a lie", lambda, "0 or more and below (2m-1)/(2m)")
	}
	// The answers likeliest and least likely to be a group's, each with the runner-up of
	// another group.
	weight := values*(1-lambda) - 1
	var most, least [2]struct {
		p     float64
		group int
	}
	least[0].p, least[1].p = math.Inf(1), math.Inf(1)
	for g, distribution := range distributions {
		if p := slices.Max(distribution); p > most[0].p {
			most[1], most[0].p, most[0].group = most[0], p, g
		} else if p > most[1].p {
			most[1].p, most[1].group = p, g
		}
		if p := slices.Min(distribution); p < least[0].p {
			least[1], least[0].p, least[0].group = least[0], p, g
		} else if p < least[1].p {
			least[1].p, least[1].group = p, g
		}
	}
	worst := 0.0
	for _, a := range most {
		for _, b := range least {
			if a.group == b.group {
				continue
			}
			if weight*b.p+lambda == 0 {
				return math.Inf(1), nil
			}
			worst = max(worst, logUp((weight*a.p+lambda)/(weight*b.p+lambda)))
		}
	}
	return outward.Up(worst), nil
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

// A RandomGroup reports a group and a value, each of which may be a lie: with probability
// gamma another group and a uniform value, else its group and the value by randomized
// response with probability omega of a lie. It is safe for concurrent use.
type RandomGroup struct {
	groups, m    int
	gamma, omega *Response
	src          io.Reader
}

// NewRandomGroup returns a randomizer with these probabilities: gamma at least 0 and
// below (groups-1)/groups, omega at least 0 and below (2m-1)/(2m).
func NewRandomGroup(groups, m int, gamma, omega float64) (*RandomGroup, error) {
	if err := checkGroups(groups, m); err != nil {
		return nil, err
	}
	g, err := NewResponseLying(groups, gamma)
	if err != nil {
		return nil, err
	}
	w, err := NewResponseLying(2*m, omega)
	if err != nil {
		return nil, err
	}
	return &RandomGroup{groups, m, g, w, system}, nil
}

// Randomize returns the group and the value to report.
func (r *RandomGroup) Randomize(group, value int) (int, int, error) {
	if err := checkMember(group, value, r.groups, r.m); err != nil {
		return 0, 0, err
	}
	s := newSource(r.src, 5)
	defer s.wipe()
	g := r.gamma.answer(s, uint64(group))
	v := r.omega.answer(s, indexOf(value, r.m))
	uniform := s.uniform(uint64(2 * r.m))
	return int(g), valueAt(choose(equal(g, uint64(group)), v, uniform), r.m), nil
}

// scale is (2m-1)/((1-gamma)(2m(1-omega)-1)).
func (r *RandomGroup) scale() float64 {
	_, _, gap := r.omega.rates()
	return 1 / (r.gamma.lie.not() * gap)
}

// NewSum returns an empty sum of answers; meanSquare is as for Question.
func (r *RandomGroup) NewSum(meanSquare float64) *GroupSum {
	return &GroupSum{values: make([]int64, r.groups), scale: r.scale(),
		alpha: RandomGroupAlpha(r.m, r.groups, r.gamma.lie.float(), r.omega.lie.float(), meanSquare)}
}

// Add counts an answer.
func (r *RandomGroup) Add(sum *GroupSum, group, value int) error {
	if err := checkMember(group, value, r.groups, r.m); err != nil {
		return err
	}
	sum.values[group] += int64(value)
	sum.n++
	return nil
}

// RandomGroupAlpha is QuestionAlpha for the randomized group: with c the factor of its
// estimates and T = sum of v^2 over all 2m values,
//
//	c^2 [(1-gamma)((1 - 2m omega/(2m-1)) E v^2 + omega T/(2m-1)) + gamma T/(2m)] - E v^2
func RandomGroupAlpha(m, groups int, gamma, omega, meanSquare float64) float64 {
	f := float64(m)
	t := f * (f + 1) * (2*f + 1) / 3
	c := (2*f - 1) / ((1 - gamma) * (2*f*(1-omega) - 1))
	return c*c*((1-gamma)*((1-2*f*omega/(2*f-1))*meanSquare+omega*t/(2*f-1))+gamma*t/(2*f)) - meanSquare
}

// RandomGroupEpsilon returns how well the randomized group hides the group for these
// distributions of the values, as for QuestionEpsilon: the largest
// |ln(2m(groups-1)(1-gamma) r/gamma)|, r = [(2m(1-omega)-1)p+omega]/(2m-1) being the
// probability that value v is said by who tells the group; rounded up; +Inf if gamma or
// an r is 0.
func RandomGroupEpsilon(distributions [][]float64, gamma, omega float64) (float64, error) {
	values, err := checkDistributions(distributions)
	if err != nil {
		return 0, err
	}
	groups := float64(len(distributions))
	if !(gamma >= 0 && gamma < 1) {
		return 0, parameter("probability of another group", gamma, "0 or more and below 1")
	}
	if !(omega >= 0 && omega < (values-1)/values) {
		return 0, parameter("probability of a lie", omega, "0 or more and below (2m-1)/(2m)")
	}
	worst := 0.0
	for _, p := range distributions {
		for _, x := range p {
			r := ((values*(1-omega)-1)*x + omega) / (values - 1)
			if gamma == 0 || r == 0 {
				return math.Inf(1), nil
			}
			ratio := values * (groups - 1) * (1 - gamma) * r / gamma
			worst = max(worst, logUp(max(ratio, 1/ratio)))
		}
	}
	return outward.Up(worst), nil
}

// Epsilon returns a local epsilon for group and value together, as they are drawn,
// rounded up; +Inf if gamma or omega is
// 0. It also hides the group so well whatever the distributions of the values. For
// deletion the reference is a uniform group and value.
func (r *RandomGroup) Epsilon(about Relation) float64 {
	tells, tellsValue := r.gamma.lie.not(), r.omega.lie.not()
	v := float64(2 * r.m)
	truth, liar := tells*tellsValue, tells*r.omega.lie.float()/(v-1)
	other := r.gamma.lie.float() / (float64(r.groups-1) * v)
	most, least := max(truth, liar, other), min(truth, liar, other)
	answers := float64(r.groups) * v
	switch {
	case least == 0:
		return math.Inf(1)
	case about == Replacement:
		return logUp(most / least)
	case about == Deletion:
		return max(logUp(most*answers), logUp(1/(least*answers)))
	}
	return math.Inf(1)
}

// Variance returns the variance that each report adds to an estimated sum if held is the
// fraction of devices in that group and meanSquare is E v^2 over them.
func (r *RandomGroup) Variance(held, meanSquare float64) float64 {
	c, all := r.scale(), meanSquareOf(r.m)
	own := c*c*r.gamma.lie.not()*r.omega.secondMoment(r.m, meanSquare) - meanSquare
	return held*own + (1-held)*c*c*r.gamma.lie.float()/float64(r.groups-1)*all
}
