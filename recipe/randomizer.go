package recipe

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/amplify"
)

// KRR is k-ary randomized response on the bucket of a [Histogram]: what is sent is one-hot, which Prio3Histogram proves.
// A device without an answer sends a uniform bucket.
type KRR struct {
	// Epsilon0 is the local epsilon for replacement.
	Epsilon0 Decimal
}

// RAPPOR is symmetric unary encoding of the bit set in a [Multihot] of weight 1 or none: each bit is flipped with
// probability 1/(e^Epsilon0 + 1). What is sent has at most the query's MaxWeight ones but for a probability of
// [WeightMiss], which Prio3MultihotCountVec proves. A device without an answer randomizes the zero vector.
type RAPPOR struct {
	// Epsilon0 is the local epsilon for deletion: any answer against none.
	Epsilon0 Decimal
}

// WeightMiss bounds the probability that RAPPOR sets more bits than the query allows. The device then draws again, which
// is charged to delta.
const WeightMiss = 1e-18

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

// RAPPORWeight is the least MaxWeight under which RAPPOR of so many bits fits but for a probability of [WeightMiss].
func RAPPORWeight(length uint32, epsilon0 Decimal) (uint64, error) {
	if length < 2 {
		return uint64(length), nil
	}
	w, err := upperQuantile(uint64(length-1), flip(epsilon0), WeightMiss)
	return min(w+1, uint64(length)), err // the bit of the answer itself counts as set
}

// upperQuantile returns the least u for which Bin(n, p) exceeds u with probability at most miss.
func upperQuantile(n uint64, p, miss float64) (uint64, error) {
	if n == 0 || p <= 0 {
		return 0, nil
	}
	if p >= 1 {
		return n, nil
	}
	b, err := amplify.MinimumBatch(n, 1-p, miss) // P(n - X < b) <= miss
	if err != nil {
		return 0, err
	}
	return n - b, nil
}

func (v *validator) randomizer(r *Recipe) {
	var epsilon Decimal
	switch z := r.Randomizer.(type) {
	case nil:
		v.add("randomizer", "is missing")
		return
	case NoRandomizer:
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
	if epsilon.Coefficient == 0 || !epsilon.valid() || epsilon.FloatDown() > maxEpsilon0 {
		v.add("randomizer.epsilon0", "is not a decimal above 0, at most %d, in its shortest form", maxEpsilon0)
		return
	}
	if r.Noise != (NoNoise{}) {
		v.add("noise", "is added by devices and servers; choose one")
	}
	if q, ok := r.Query.(Multihot); ok && q.Length >= 1 && q.Length <= MaxElements {
		if least, err := RAPPORWeight(q.Length, epsilon); err != nil || q.MaxWeight < least {
			v.add("query.max_weight", "is %d, but RAPPOR may set %d bits", q.MaxWeight, least)
		}
	}
}
