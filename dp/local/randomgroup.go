package local

import (
	"io"
	"math"
	"math/bits"

	"github.com/starling-agg/starling/internal/outward"
)

// A RandomGroup reports a group and a value, each of which may be a lie: with probability
// gamma another group and a uniform value, else its group and the value by randomized
// response with probability omega of a lie (paper 002, section IV). It is safe for
// concurrent use.
type RandomGroup struct {
	groups, m    int
	gamma, omega *Response
	src          io.Reader
}

// NewRandomGroup returns a randomizer with these probabilities: gamma at least 0 and
// below 1, omega at least 0 and below (2m-1)/(2m). At gamma = (groups-1)/groups the sizes
// of the groups cannot be told, and the sums still can.
func NewRandomGroup(groups, m int, gamma, omega float64) (*RandomGroup, error) {
	if err := checkGroups(groups, m); err != nil {
		return nil, err
	}
	if !(gamma >= 0 && gamma < 1) {
		return nil, parameter("probability of another group", gamma, "0 or more and below 1")
	}
	w, err := NewResponseLying(2*m, omega)
	if err != nil {
		return nil, err
	}
	g := &Response{k: groups, answers: groups, lie: exactly(gamma), src: system}
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

// Bits returns the length of an answer, the least number of bits that hold any group and
// value.
func (r *RandomGroup) Bits() int { return bits.Len(uint(2*r.m*r.groups - 1)) }

// scale is (2m-1)/((1-gamma)(2m(1-omega)-1)).
func (r *RandomGroup) scale() float64 {
	_, _, gap := r.omega.rates()
	return 1 / (r.gamma.lie.not() * gap)
}

// NewSum returns an empty sum of answers.
func (r *RandomGroup) NewSum() *GroupSum {
	_, _, gap := r.omega.rates()
	tells, strays, _ := r.gamma.rates()
	return newSum(r.groups, r.m, gap, tells, strays)
}

// Add counts an answer.
func (r *RandomGroup) Add(sum *GroupSum, group, value int) error {
	if err := checkMember(group, value, r.groups, r.m); err != nil {
		return err
	}
	_, _, gap := r.omega.rates()
	if err := sum.check(r.groups, r.m, gap, r.gamma.lie.not()); err != nil {
		return err
	}
	sum.add(group, value)
	sum.n++
	return nil
}

// RandomGroupLies returns the probabilities gamma and omega at which the randomized group
// hides the group to epsilon, if each value has a probability from least to most in every
// group, and has about the least error for E v^2 = meanSquare. Only least = 0 and most =
// 1 hold whatever the distributions are; then too it is the group alone that is hidden to
// epsilon, and RandomGroup.Epsilon says what group and value are together. Both are
// rounded up. (docs/proofs/groups.md, theorem 4.)
func RandomGroupLies(groups, m int, epsilon, least, most, meanSquare float64) (gamma, omega float64, err error) {
	if err := checkGroups(groups, m); err != nil {
		return 0, 0, err
	}
	if err := checkEpsilon(epsilon); err != nil {
		return 0, 0, err
	}
	if err := checkBetween(least, most, m); err != nil {
		return 0, 0, err
	}
	if err := checkMeanSquare(meanSquare, m); err != nil {
		return 0, 0, err
	}
	v, k := float64(2*m), float64(groups)
	// Nor e^epsilon times as rarely, with room for what rounding gamma does to the odds
	// 1-gamma, which may be 1/vk.
	room := outward.Rounding * (1 + v*k)
	gamma, omega = leastLies(groups, m, epsilon, most, lieBetween(m, 2*epsilon-room, least, most),
		func(gamma, omega float64) float64 { return RandomGroupAlpha(m, groups, gamma, omega, meanSquare) })
	return gamma, omega, nil
}

// leastLies returns the omega from low on, about, and the least gamma for it, at which the
// failure is least.
func leastLies(groups, m int, epsilon, most, low float64, failure func(gamma, omega float64) float64) (gamma, omega float64) {
	v, k := float64(2*m), float64(groups)
	// The least gamma for an omega: of those who tell their group, none says a value
	// e^epsilon times as often as those do who do not.
	move := func(omega float64) float64 {
		r := ((v*(1-omega)-1)*most + omega) / (v - 1)
		others := v * (k - 1) * r
		return outward.Above(others / (others + math.Exp(epsilon)))
	}
	high := outward.Down((v - 1) / v)
	low = min(low, high)
	// The error need not have one minimum alone: a grid comes before the refinement.
	const steps = 64
	omega = low
	for range 8 {
		step := (high - low) / steps
		for i := range steps {
			if w := low + float64(i)*step; failure(move(w), w) < failure(move(omega), omega) {
				omega = w
			}
		}
		low, high = max(low, omega-step), min(high, omega+step)
	}
	return move(omega), omega
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
// rounded up; +Inf if gamma or omega is 0. It is one for the group alone too, whatever
// the distributions of the values. For deletion the reference is a uniform group and
// value.
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
