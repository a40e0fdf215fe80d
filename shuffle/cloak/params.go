package cloak

import (
	"errors"
	"math"

	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/internal/outward"
)

// ErrMessages: no number of messages up to 512 gives the guarantee with a modulus below
// 2^62, or the stated ones do not.
var ErrMessages = errors.New("cloak: no number of messages up to 512 gives the guarantee, with a modulus below 2^62")

// Modern returns parameters that are (Epsilon, Delta)-DP for neighbours that differ in
// the values of one user, by theorem 3 of docs/proofs/cloak.md. Every user adds to each
// entry one share of Honest to discrete Laplace noise of scale Moved/Epsilon. The number of
// messages is the least for which the distance of a block from random messages of the same
// sums, of which delta pays 1+e^Epsilon times for each block that may change, is small
// enough. It returns a *RangeError if an option is outside its
// range.
func Modern(o Options) (*Params, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.setDefaults()
	t, s, err := o.scale(1, o.Moved)
	if err != nil {
		return nil, err
	}
	p := newParams(o)
	if p.noise, err = noise.NewDiscreteLaplaceShare(t, s, o.Honest); err != nil {
		return nil, err
	}
	if p.modulus = o.Modulus; p.modulus == 0 {
		p.modulus = p.roomy()
	}
	limit := outward.Beneath(math.Log(share(o.Delta, min(o.Changed, o.blocks())) / (1 + math.Exp(o.Epsilon))))
	order := outward.Above(float64(o.Block) * math.Log(float64(p.modulus)))
	first, last := o.counts()
	for p.messages = first; p.messages <= last; p.messages++ {
		if outward.Above(distance(o.Honest, p.messages, order, limit)) <= limit {
			return p, nil
		}
	}
	return nil, ErrMessages
}

// SumPreserving returns parameters that are (Epsilon, Delta)-DP for neighbours of the same
// sums, after rounding: theorem 2 of the paper. Nobody adds noise. Its lemmas give the
// constants (docs/proofs/cloak.md, theorem 4), for changes among all Users: more of them may
// be honest than Honest. It returns a *RangeError if an option is outside its range.
func SumPreserving(o Options) (*Params, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.setDefaults()
	if err := o.unblocked(); err != nil {
		return nil, err
	}
	p := newParams(o)
	// Of the same sums users may exchange all they have.
	if err := p.smooth(&o, o.Users, share(o.Epsilon, o.Entries), share(o.Delta, o.Entries)); err != nil {
		return nil, err
	}
	return p, nil
}

// unblocked refuses messages of several entries, of which the paper's lemmas say nothing.
func (o *Options) unblocked() error {
	if o.Block != 1 {
		return &RangeError{"the number of entries of a message", float64(o.Block), "1 by the paper's theorems"}
	}
	return nil
}

// preRandomizers is what the paper has for the mean number of users who add noise, in
// units of ln(1/delta), and for the part of epsilon that the noise hides.
const preRandomizers = 10

// SingleUser returns parameters that are (Epsilon, Delta)-DP for neighbours that differ in
// the values of one user: theorem 1 of the paper. A user adds noise to an entry with
// probability 10 ln(1/delta)/n, with probability proportional to p^|w| for each w, p =
// 1 - epsilon/(10k), or a little more of it; the rest is [SumPreserving]
// (docs/proofs/cloak.md, theorem 5). It returns a *RangeError if an option is outside its
// range.
func SingleUser(o Options) (*Params, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.setDefaults()
	if err := o.unblocked(); err != nil {
		return nil, err
	}
	moved := uint64(o.Changed) * o.Precision // each entry has an equal part of epsilon
	if o.Epsilon >= preRandomizers*float64(moved) {
		return nil, &RangeError{"epsilon", o.Epsilon, "below ten times the precision times the entries that change"}
	}
	t, s, err := o.scale(preRandomizers, moved)
	if err != nil {
		return nil, err
	}
	t, s = 2*t-s, 2*s // -1/ln(1-x) <= 1/x - 1/2
	p := newParams(o)
	if p.noise, err = noise.NewDiscreteLaplace(t, s); err != nil {
		return nil, err
	}
	epsilon, delta := share(o.Epsilon, o.Changed), share(o.Delta, o.Changed)
	silent := 0.0 // the probability that no honest user adds noise
	if rate := outward.Up(preRandomizers * math.Log(1/delta) / float64(o.Users)); rate < 1 {
		p.rate = uint64(math.Ceil(rate * 0x1p64))
		silent = outward.Up(math.Exp(float64(o.Honest) * math.Log1p(-rate)))
	}
	hidden := outward.Up(float64(o.Precision) * float64(s) / float64(t))
	left := outward.Down(epsilon - hidden)
	rest := outward.Down((delta - silent) * math.Exp(-hidden))
	if !(left > 0 && rest > 0) {
		return nil, &RangeError{"the number of honest users", float64(o.Honest), "more than a tenth of the users, by far"}
	}
	if err := p.smooth(&o, o.Honest, left, rest); err != nil {
		return nil, err
	}
	return p, nil
}

// smooth sets the least number of messages for which sum-preserving changes among as many
// honest users are (epsilon, delta)-DP by lemmas 1 to 6 of the paper, and its modulus.
func (p *Params) smooth(o *Options, honest uint64, epsilon, delta float64) error {
	swaps := float64(honest - 1)
	gamma := outward.Down(math.Tanh(epsilon / (2 * swaps)))
	growth := outward.Up(math.Expm1(epsilon) / math.Expm1(epsilon/swaps))
	first, last := o.counts()
	for m := float64(first); m <= float64(last); m++ {
		if p.messages, p.modulus = int(m), o.Modulus; p.modulus == 0 {
			modulus := max(float64(p.roomy()), math.Ceil(outward.Up(4*m*m*growth/delta)))
			if modulus >= maxModulus {
				break
			}
			p.modulus = max(p.roomy(), uint64(modulus)|1)
		}
		if outward.Up(notSmooth(p.modulus, m, gamma)*growth) <= delta {
			return nil
		}
	}
	return ErrMessages
}

// notSmooth is the bound of lemma 1: the probability that the messages of two users are
// not all distinct, or not gamma-smooth.
func notSmooth(modulus uint64, m, gamma float64) float64 {
	return outward.Up(2*m*m/float64(modulus) + rough(modulus, m, gamma))
}

// rough is what of it is for messages that are not gamma-smooth: of which the subsets of m
// have some sum more or less often than 1 give or take gamma times as often as others.
func rough(modulus uint64, m, gamma float64) float64 {
	return 18 * math.Sqrt(m) * math.Pow(float64(modulus)/gamma, 2) * math.Exp2(-2*m)
}
