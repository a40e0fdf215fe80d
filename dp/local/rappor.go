package local

import (
	"io"
	"math"
)

// A Form is how RAPPOR treats ones and zeros.
type Form uint8

const (
	// Symmetric flips every bit with the same probability.
	Symmetric Form = iota + 1
	// Optimised keeps a one with probability 1/2 and flips zeros as rarely as epsilon
	// allows (Wang, Blocki, Li and Jha 2017, OUE).
	Optimised
)

// RAPPOR is unary encoding: k bits, all zero but the one of the value, each flipped by a
// draw of its own. It is safe for concurrent use.
type RAPPOR struct {
	k         int
	hit, miss probability // that a bit is sent as one if it is one, if it is zero; hit > miss
	epsilon   float64
	relation  Relation
	maxWeight int // k if unbounded
	redraw    float64
	src       io.Reader
}

// NewRAPPOR returns a randomizer of k >= 1 bits that is epsilon-LDP for the relation. The
// probability of flipping is
//
//	symmetric: 1/(e^epsilon+1) for deletion, 1/(e^(epsilon/2)+1) for replacement
//	optimised: a zero e^-epsilon/2 for deletion, 1/(e^epsilon+1) for replacement; a one 1/2
//
// each rounded up.
func NewRAPPOR(k int, epsilon float64, relation Relation, form Form) (*RAPPOR, error) {
	if k < 1 || k > MaxValues {
		return nil, parameter("number of values", float64(k), "1 to 2^24")
	}
	if err := checkEpsilon(epsilon); err != nil {
		return nil, err
	}
	if relation != Replacement && relation != Deletion {
		return nil, parameter("relation", float64(relation), "Replacement or Deletion")
	}
	r := &RAPPOR{k: k, epsilon: epsilon, relation: relation, maxWeight: k, src: system}
	switch {
	case form == Symmetric && relation == Deletion:
		r.miss = lie(math.Exp(epsilon), 1)
		r.hit = -r.miss
	case form == Symmetric:
		r.miss = lie(math.Exp(epsilon/2), 1)
		r.hit = -r.miss
	case form == Optimised && relation == Deletion:
		r.hit, r.miss = 1<<63, atLeast(math.Exp(-epsilon)/2)
	case form == Optimised:
		r.hit, r.miss = 1<<63, lie(math.Exp(epsilon), 1)
	default:
		return nil, parameter("form", float64(form), "Symmetric or Optimised")
	}
	return r, nil
}

// maxRedraws ends Randomize where only a stuck source of bits can be: it is passed with
// probability 2^-2560.
const maxRedraws = 64

// Bounded returns a copy that draws again while an answer has more than MaxWeight ones:
// the least w >= 1 that an answer, for any value or none, exceeds with probability at
// most 2^-40. A proof about a multi-hot vector can then ask for that weight.
// docs/proofs/local.md has what it costs: nothing under replacement, 2^-39 of epsilon
// under deletion, and for theorems that want independent bits RedrawProbability per
// report in total variation. The bias that it adds to an estimate is at most
// 2^-40/(hit-miss) per report, hit and miss being the probabilities of a one sent for a
// one and for a zero.
func (r *RAPPOR) Bounded() *RAPPOR {
	c := *r
	c.maxWeight, c.redraw = weightBound(r.k, r.hit, r.miss, maxRedraw)
	return &c
}

// Values returns k.
func (r *RAPPOR) Values() int { return r.k }

// MaxWeight returns the number of ones that no answer exceeds: k, or less if r is bounded.
func (r *RAPPOR) MaxWeight() int { return r.maxWeight }

// RedrawProbability bounds the probability that a draw is thrown away for its weight; 0
// if r is not bounded. The distribution of an answer is within it, in total variation, of
// that of independent bits.
func (r *RAPPOR) RedrawProbability() float64 { return r.redraw }

// Epsilon returns a local epsilon of what is drawn, rounded up. For the relation that r
// was made for it is the one asked for (and 2^-39 more for deletion if r is bounded).
func (r *RAPPOR) Epsilon(about Relation) float64 {
	e := math.Inf(1)
	switch {
	case about == r.relation:
		e = r.epsilon
	case about == Deletion:
		e = min(r.epsilon, max(logUp(r.hit.float()/r.miss.float()), logUp(r.miss.not()/r.hit.not())))
	case about == Replacement:
		e = min(2*r.epsilon, logUp(r.hit.float()/r.miss.float()*(r.miss.not()/r.hit.not())))
	}
	if about == Deletion && r.redraw > 0 {
		e += 0x1p-39
	}
	return e
}

// FlipProbability returns the probabilities with which a one and a zero are flipped, as
// they are drawn.
func (r *RAPPOR) FlipProbability() (one, zero float64) { return r.hit.not(), r.miss.float() }

// Randomize fills dst, of length k, with the answer for x in 0..k-1 or NoValue.
func (r *RAPPOR) Randomize(dst []bool, x int) error {
	if x < NoValue || x >= r.k {
		return parameter("value", float64(x), "-1 to the number of values less one")
	}
	if len(dst) != r.k {
		return parameter("length of the answer", float64(len(dst)), "the number of values")
	}
	s := newSource(r.src, r.k)
	defer s.wipe()
	for range maxRedraws {
		weight := uint64(0)
		for j := range dst {
			p := choose(equal(uint64(j), uint64(x)), uint64(r.hit), uint64(r.miss))
			bit := s.below(probability(p))
			weight += bit
			dst[j] = bit != 0
		}
		if weight <= uint64(r.maxWeight) {
			return nil
		}
	}
	panic("local: internal error: the source of random bits is stuck")
}

// Estimate returns, from the sums of the columns of n answers, how many devices held each
// value. Among the n may be any number of answers for NoValue.
func (r *RAPPOR) Estimate(sums []uint64, n uint64) ([]Estimate, error) {
	if len(sums) != r.k {
		return nil, parameter("number of sums", float64(len(sums)), "the number of values")
	}
	total, miss, gap := float64(n), r.miss.float(), (r.hit - r.miss).float()
	own, other := r.spread()
	out := make([]Estimate, r.k)
	for i, c := range sums {
		if c > n {
			return nil, parameter("sum of a column", float64(c), "at most the number of answers")
		}
		v := (float64(c) - total*miss) / gap
		held := min(total, max(0, v))
		out[i] = Estimate{v, held*own + (total-held)*other}
	}
	return out, nil
}

// spread returns the variances that a report adds to an estimate for a device with the
// value and one without.
func (r *RAPPOR) spread() (own, other float64) {
	gap := (r.hit - r.miss).float()
	return r.hit.float() * r.hit.not() / (gap * gap), r.miss.float() * r.miss.not() / (gap * gap)
}

// Variance returns the variance that each report adds to an estimated count if held is
// the fraction of devices with that value. For the symmetric form with flip f it is
// f(1-f)/(1-2f)^2.
func (r *RAPPOR) Variance(held float64) float64 {
	own, other := r.spread()
	return held*own + (1-held)*other
}
