package local

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
)

// ErrParameter is what every *ParameterError matches.
var ErrParameter = errors.New("local: parameter out of range")

// A ParameterError says which number is outside its range. It matches ErrParameter.
type ParameterError struct {
	Parameter string
	Value     float64
	Want      string
}

func (e *ParameterError) Error() string {
	return fmt.Sprintf("local: %s is %v, want %s", e.Parameter, e.Value, e.Want)
}

// Is reports whether target is ErrParameter.
func (e *ParameterError) Is(target error) bool { return target == ErrParameter }

func parameter(name string, value float64, want string) error {
	return &ParameterError{name, value, want}
}

const (
	// MinEpsilon and MaxEpsilon bound the epsilon of a randomizer.
	MinEpsilon, MaxEpsilon = 1e-6, 32
	// MaxValues bounds the number of values of Response and RAPPOR.
	MaxValues = 1 << 24
	// NoValue is the input of a dummy: it takes the same draws and the same time as a
	// value.
	NoValue = -1
)

func checkEpsilon(epsilon float64) error {
	if !(epsilon >= MinEpsilon && epsilon <= MaxEpsilon) {
		return parameter("epsilon", epsilon, "10^-6 to 32")
	}
	return nil
}

func checkValues(k int) error {
	if k < 2 || k > MaxValues {
		return parameter("number of values", float64(k), "2 to 2^24")
	}
	return nil
}

// A Relation says what a local epsilon is about.
type Relation uint8

const (
	// Replacement: any two values.
	Replacement Relation = iota + 1
	// Deletion: any value and the reference answer, which is that of no value where there
	// is one, else uniform.
	Deletion
)

func (r Relation) String() string {
	switch r {
	case Replacement:
		return "replacement"
	case Deletion:
		return "deletion"
	}
	return fmt.Sprintf("Relation(%d)", uint8(r))
}

// An Estimate is an unbiased estimate and its variance.
type Estimate struct{ Value, Variance float64 }

// Response is k-ary randomized response: the truth, or with some probability one of the
// other answers, uniformly. It is safe for concurrent use.
type Response struct {
	k       int // values
	answers int // k, or k+1 if the last one is "no value"
	lie     probability
	epsilon float64 // for replacement; what is drawn does not exceed it
	src     io.Reader
}

// NewResponse returns k-ary randomized response that is epsilon-LDP for replacement: it
// lies with probability (k-1)/(k-1+e^epsilon), rounded up. With k = 2 it is Warner's
// binary randomized response. NoValue gives a uniform answer; see
// Response.EstimateWithDummies.
func NewResponse(k int, epsilon float64) (*Response, error) {
	if err := checkValues(k); err != nil {
		return nil, err
	}
	if err := checkEpsilon(epsilon); err != nil {
		return nil, err
	}
	return &Response{k, k, lie(math.Exp(epsilon), float64(k-1)), epsilon, system}, nil
}

// NewOptionalResponse is NewResponse for k >= 1 values of which a device has one or none.
// "None" is an answer of its own, the last of k+1, and as hard to tell from any value as
// one value from another; so the total count debiases however many dummies there are.
func NewOptionalResponse(k int, epsilon float64) (*Response, error) {
	if k < 1 || k >= MaxValues {
		return nil, parameter("number of values", float64(k), "1 to 2^24-1")
	}
	r, err := NewResponse(k+1, epsilon)
	if err != nil {
		return nil, err
	}
	r.k = k
	return r, nil
}

// NewResponseLying returns k-ary randomized response that lies with probability l, 0 <= l
// < (k-1)/k.
func NewResponseLying(k int, l float64) (*Response, error) {
	if err := checkValues(k); err != nil {
		return nil, err
	}
	if !(l >= 0 && l < 1) {
		return nil, parameter("probability of a lie", l, "0 or more and below (k-1)/k")
	}
	r := &Response{k: k, answers: k, lie: exactly(l), src: system}
	hit, miss, gap := r.rates()
	if gap <= 0 {
		return nil, parameter("probability of a lie", l, "0 or more and below (k-1)/k")
	}
	r.epsilon = logUp(hit / miss)
	return r, nil
}

// Values returns k.
func (r *Response) Values() int { return r.k }

// Answers returns the number of different answers: k, or k+1 for NewOptionalResponse.
func (r *Response) Answers() int { return r.answers }

// LieProbability returns the probability of a lie, as it is drawn.
func (r *Response) LieProbability() float64 { return r.lie.float() }

// Epsilon returns a local epsilon of what is drawn, rounded up; +Inf if it never lies.
// For replacement it is the one asked for. For deletion the reference is a uniform
// answer, or that of "none", which is one more value.
func (r *Response) Epsilon(about Relation) float64 {
	switch {
	case about == Replacement, about == Deletion && r.answers > r.k:
		return r.epsilon
	case about == Deletion && r.lie > 0:
		hit, miss, _ := r.rates()
		return min(r.epsilon, max(logUp(hit*float64(r.k)), logUp(1/(miss*float64(r.k)))))
	}
	return math.Inf(1)
}

// Randomize returns the answer, 0..Answers()-1, for x in 0..k-1 or NoValue.
func (r *Response) Randomize(x int) (int, error) {
	if x < NoValue || x >= r.k {
		return 0, parameter("value", float64(x), "-1 to the number of values less one")
	}
	s := newSource(r.src, 3)
	defer s.wipe()
	none := uint64(x) >> 63
	optional := below(uint64(r.k), uint64(r.answers))
	answer := r.answer(s, choose(none, optional*uint64(r.k), uint64(x)))
	dummy := s.uniform(uint64(r.answers)) // drawn in any case
	return int(choose(none&(1^optional), dummy, answer)), nil
}

func (r *Response) answer(s *source, x uint64) uint64 {
	lies := s.below(r.lie)
	other := s.uniform(uint64(r.answers - 1)) // drawn in any case
	other += x + 1
	other -= uint64(r.answers) * (1 ^ below(other, uint64(r.answers)))
	return choose(lies, other, x)
}

// below is 1 if a < b, for a, b < 2^63.
func below(a, b uint64) uint64 { return (a - b) >> 63 }

// rates returns the probabilities with which an answer is v if the truth is v, if it is
// another, and their difference, which is taken in integers because it may be far smaller
// than both.
func (r *Response) rates() (hit, miss, gap float64) {
	others := uint64(r.answers - 1)
	carry, lies := bits.Mul64(uint64(r.answers), uint64(r.lie))
	low, borrow := bits.Sub64(0, lies, 0)
	high, negative := bits.Sub64(others, carry, borrow)
	if negative == 0 {
		gap = (float64(high) + float64(low)*0x1p-64) / float64(others)
	}
	return r.lie.not(), r.lie.float() / float64(others), gap
}

// Estimate returns, from how many answers were each, how many devices held each of the k
// values. The answers for NoValue count as devices with none in an optional response, and
// as 1/k of a device with each value in any other.
func (r *Response) Estimate(answers []uint64) ([]Estimate, error) {
	return r.estimate(answers, Estimate{})
}

// EstimateWithDummies is Estimate for answers among which an expected number of
// dummies.Value, with that variance, was for NoValue. It is for NewResponse only: an
// optional response needs no such number.
func (r *Response) EstimateWithDummies(answers []uint64, dummies Estimate) ([]Estimate, error) {
	if r.answers > r.k {
		return nil, parameter("number of dummies", dummies.Value, "none: an optional response counts them itself")
	}
	if !(dummies.Value >= 0 && dummies.Value <= math.MaxInt64) {
		return nil, parameter("number of dummies", dummies.Value, "0 to 2^63")
	}
	if !(dummies.Variance >= 0 && dummies.Variance <= math.MaxFloat64) {
		return nil, parameter("variance of the number of dummies", dummies.Variance, "0 or more")
	}
	return r.estimate(answers, dummies)
}

func (r *Response) estimate(answers []uint64, dummies Estimate) ([]Estimate, error) {
	if len(answers) != r.answers {
		return nil, parameter("number of counts", float64(len(answers)), "the number of answers")
	}
	n := 0.0
	for _, c := range answers {
		n += float64(c)
	}
	_, miss, gap := r.rates()
	own, other := r.spread()
	k := float64(r.k)
	out := make([]Estimate, r.k)
	for i := range out {
		v := (float64(answers[i])-n*miss)/gap - dummies.Value/k
		real := max(0, n-dummies.Value)
		held := min(real, max(0, v))
		out[i] = Estimate{v, held*own + (real-held)*other +
			dummies.Value*(k-1)/(k*k*gap*gap) + dummies.Variance/(k*k)}
	}
	return out, nil
}

// spread returns the variances that a report adds to an estimate for a device with the
// value and one with another.
func (r *Response) spread() (own, other float64) {
	hit, miss, gap := r.rates()
	return hit * r.lie.float() / (gap * gap), miss * (hit + float64(r.answers-2)*miss) / (gap * gap)
}

// Variance returns the variance that each of n reports adds to an estimated count if held
// is the fraction of devices with that value.
func (r *Response) Variance(held float64) float64 {
	own, other := r.spread()
	return held*own + (1-held)*other
}
