package recipe

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dp/local"
	"github.com/starling-agg/starling/dp/release"
)

// RAPPOR is symmetric unary encoding of the bit set in a [Multihot] of weight 1 or none:
// each bit is flipped with probability 1/(e^Epsilon0 + 1). An answer has at most the
// query's MaxWeight ones, which Prio3MultihotCountVec proves: a device draws again while
// there are more, with a probability of at most 2^-[TailBits]. A device without an answer
// randomizes the zero vector.
type RAPPOR struct {
	// Epsilon0 is the local epsilon for deletion: any answer against none.
	Epsilon0 Decimal
}

func (z RAPPOR) String() string {
	return fmt.Sprintf("the device flips each bit of its answer with probability %.4g (RAPPOR, epsilon %s)", flip(z.Epsilon0), z.Epsilon0)
}

// flip is 1/(e^epsilon + 1).
func flip(epsilon Decimal) float64 { return 1 / (math.Exp(epsilon.FloatDown()) + 1) }

// weight is the least MaxWeight that as many bits exceed with probability odds at most.
func (z RAPPOR) weight(length uint32, odds float64) (uint64, error) {
	l, err := z.local(length)
	if err != nil {
		return 0, err
	}
	return uint64(l.WeightBound(odds)), nil
}

// local is the randomizer as devices draw it.
func (z RAPPOR) local(length uint32) (*local.RAPPOR, error) {
	return local.NewRAPPOR(int(min(length, MaxElements+1)), z.Epsilon0.FloatDown(), local.Deletion, local.Symmetric)
}

func (RAPPOR) randomizer() uint8 { return tagRAPPOR }

func (z RAPPOR) append(b *cryptobyte.Builder) { addDecimal(b, z.Epsilon0) }

func (z RAPPOR) params() any { return map[string]string{"epsilon0": z.Epsilon0.String()} }

func (z RAPPOR) validate(v *validator, r *Recipe) {
	q, ok := r.Query.(Multihot)
	if !ok {
		v.add("query", "is not multihot, which RAPPOR needs")
	}
	if !v.local(r, z.Epsilon0) || !ok || q.Length < 1 || q.Length > MaxElements {
		return
	}
	if least, err := z.weight(q.Length, 1./(1<<TailBits)); err != nil || q.MaxWeight < least {
		v.add("query.max_weight", "is %d, which RAPPOR exceeds more often than 2^-%d; want at least %d", q.MaxWeight, TailBits, least)
	}
}

// given has weight 1: MaxWeight bounds what the randomizer makes of it.
func (RAPPOR) given(q Query) Query {
	if m, ok := q.(Multihot); ok {
		m.MaxWeight = 1
		return m
	}
	return q
}

// Proves is MaxWeight, of one.
func (RAPPOR) Proves(q Query) (bound, answer uint64, ok bool) {
	m, ok := q.(Multihot)
	return m.MaxWeight, 1, ok
}

func (z RAPPOR) round(r *Recipe, s Situation, _ float64) (Disclosure, error) {
	return r.reports(z, s)
}

func (RAPPOR) counts(sums []int64) ([]int64, error) { return sums, nil }
func (RAPPOR) gaussian() Rational                   { return Rational{} }
func (RAPPOR) exact() bool                          { return false }

func (RAPPOR) conditions(r *Recipe) []string { return honestReports(r) }

// Local is one column, with the odds of more ones than MaxWeight.
func (z RAPPOR) Local(q Query) (release.Message, float64, error) {
	m, ok := q.(Multihot)
	if !ok {
		return nil, 0, errNoRAPPOR
	}
	l, err := z.local(m.Length)
	if err != nil {
		return nil, 0, err
	}
	return release.ColumnsOf(z.Epsilon0.FloatUp()), l.WeightOdds(int(min(m.MaxWeight, uint64(m.Length)))), nil
}

// whole is of all bits of a report, of which two differ between answers.
func (z RAPPOR) whole(q Query) (release.Message, float64, error) {
	_, odds, err := z.Local(q)
	if err != nil {
		return nil, 0, err
	}
	return release.ReportOf(release.RAPPOR{Epsilon0: z.Epsilon0.FloatUp(), Answers: uint64(q.Aggregates())}), odds, nil
}

// code is the bits, of which there are at most MaxWeight ones.
func (RAPPOR) code(q Query) (reportCode, error) {
	m, ok := q.(Multihot)
	if !ok {
		return nil, errNoRAPPOR
	}
	return bitsCode{int(m.Length), m.MaxWeight}, nil
}

var errNoRAPPOR = errors.New("recipe: RAPPOR of no multihot query")

func (z RAPPOR) messenger(r *Recipe) (*Messenger, error) {
	blur, err := z.Blur(r.Query)
	if err != nil {
		return nil, err
	}
	return localMessenger(r, z, blur)
}

// Blur flips bits. Answers that the proof would refuse, with probability 2^-TailBits at
// most, are drawn again.
func (z RAPPOR) Blur(q Query) (func(place int) ([]uint64, error), error) {
	m, ok := q.(Multihot)
	if !ok {
		return nil, errNoRAPPOR
	}
	l, err := z.local(m.Length)
	if err != nil {
		return nil, err
	}
	return z.blurBy(l, m), nil
}

// blurBy flips bits by a randomizer.
func (RAPPOR) blurBy(l *local.RAPPOR, m Multihot) func(place int) ([]uint64, error) {
	return func(place int) ([]uint64, error) {
		flags, out := make([]bool, m.Length), make([]uint64, m.Length)
		for {
			if err := l.Randomize(flags, place); err != nil {
				return nil, err
			}
			var weight uint64
			for i, set := range flags {
				out[i] = 0
				if set {
					out[i] = 1
				}
				weight += out[i]
			}
			if weight <= m.MaxWeight {
				return out, nil
			}
		}
	}
}

// Fit chooses the least MaxWeight. Where that cannot be computed, Validate says why.
func (z RAPPOR) Fit(q Query, odds float64) (LocalRandomizer, Query) {
	if m, ok := q.(Multihot); ok && m.MaxWeight == 0 {
		m.MaxWeight, _ = z.weight(m.Length, odds)
		return z, m
	}
	return z, q
}

func (z RAPPOR) blurs(p *probabilities, _ Query) {
	p.lie = flip(z.Epsilon0)
	p.keep, p.none = 1-p.lie, p.lie
}
