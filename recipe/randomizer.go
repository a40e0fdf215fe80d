package recipe

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/local"
	"github.com/starling-agg/starling/internal/binomial"
)

// KRR is k-ary randomized response on the bucket of a [Histogram]: what is sent is one-hot, which Prio3Histogram proves.
// A device without an answer sends a uniform bucket.
type KRR struct {
	// Epsilon0 is the local epsilon for replacement.
	Epsilon0 Decimal
}

// RAPPOR is symmetric unary encoding of the bit set in a [Multihot] of weight 1 or none: each bit is flipped with
// probability 1/(e^Epsilon0 + 1). What is sent has at most the query's MaxWeight ones, which Prio3MultihotCountVec proves: a
// device draws again while there are more, with a probability of at most 2^-[TailBits]. A device without an answer
// randomizes the zero vector.
type RAPPOR struct {
	// Epsilon0 is the local epsilon for deletion: any answer against none.
	Epsilon0 Decimal
}

// maxEpsilon0 is where a local randomizer no longer blurs.
const maxEpsilon0 = 32

func (KRR) randomizer() uint8    { return tagKRR }
func (RAPPOR) randomizer() uint8 { return tagRAPPOR }

func (z KRR) String() string {
	return fmt.Sprintf("the device names a random bucket instead of the true one with some probability (randomized response, epsilon %s)", z.Epsilon0)
}
func (z RAPPOR) String() string {
	return fmt.Sprintf("the device flips each bit of its answer with probability %.4g (RAPPOR, epsilon %s)", flip(z.Epsilon0), z.Epsilon0)
}

// flip is 1/(e^epsilon + 1).
func flip(epsilon Decimal) float64 { return 1 / (math.Exp(epsilon.FloatDown()) + 1) }

// RAPPORWeight is the least MaxWeight that RAPPOR of so many bits exceeds with the given probability at most; see [TailOdds].
func RAPPORWeight(length uint32, epsilon0 Decimal, odds float64) (uint64, error) {
	z, err := RAPPOR{epsilon0}.local(length)
	if err != nil {
		return 0, err
	}
	return uint64(z.WeightBound(odds)), nil
}

// local is the randomizer as devices draw it.
func (z RAPPOR) local(length uint32) (*local.RAPPOR, error) {
	return local.NewRAPPOR(int(min(length, MaxElements+1)), z.Epsilon0.FloatDown(), local.Deletion, local.Symmetric)
}

// Overweight bounds the probability that an answer has more ones than weight.
func (z RAPPOR) Overweight(length uint32, weight uint64) (float64, error) {
	l, err := z.local(length)
	if err != nil {
		return 0, err
	}
	return l.WeightOdds(int(min(weight, uint64(length)))), nil
}

// TailOdds is how rare redraws have to be in batches of so many reports: 2^-TailBits, and less where a batch is so large, or delta
// so small, that they would cost more than about a hundredth of delta.
func TailOdds(reports uint64, rounds uint32, delta float64) float64 {
	return min(1./(1<<TailBits), delta/(200*float64(max(reports, 1))*float64(max(rounds, 1))))
}

// upperQuantile returns the least u for which Bin(n, p) exceeds u with probability at most miss.
func upperQuantile(n uint64, p, miss float64) (uint64, error) {
	if n == 0 || p <= 0 {
		return 0, nil
	}
	if p >= 1 {
		return n, nil
	}
	if n > binomial.MaxCount || !(miss > 0 && miss < 1) {
		return 0, fmt.Errorf("of %d devices with a miss of %v", n, miss)
	}
	return n - binomial.Fewest(n, 1-p, miss), nil // P(n - X < b) <= miss
}

func (v *validator) randomizer(r *Recipe) {
	var epsilon Decimal
	switch z := r.Randomizer.(type) {
	case nil:
		v.add("randomizer", "is missing")
		return
	case NoRandomizer:
		return
	case Gaussian:
		v.deviceNoise(r, z)
		return
	case KRR:
		epsilon = z.Epsilon0
		if q, ok := r.Query.(Histogram); !ok || q.Length < 2 {
			v.add("query", "is no histogram of 2 or more buckets, which randomized response needs")
		}
	case RAPPOR:
		epsilon = z.Epsilon0
		if _, ok := r.Query.(Multihot); !ok {
			v.add("query", "is not multihot, which RAPPOR needs")
		}
	}
	if epsilon.Coefficient == 0 || !epsilon.Valid() || epsilon.FloatDown() > maxEpsilon0 {
		v.add("randomizer.epsilon0", "is not a decimal above 0, at most %d, in its shortest form", maxEpsilon0)
		return
	}
	if r.Noise != (NoNoise{}) {
		v.add("noise", "is added by devices and servers; choose one")
	}
	if q, ok := r.Query.(Multihot); ok && q.Length >= 1 && q.Length <= MaxElements {
		if least, err := RAPPORWeight(q.Length, epsilon, 1./(1<<TailBits)); err != nil || q.MaxWeight < least {
			v.add("query.max_weight", "is %d, which RAPPOR exceeds more often than 2^-%d; want at least %d", q.MaxWeight, TailBits, least)
		}
	}
}
