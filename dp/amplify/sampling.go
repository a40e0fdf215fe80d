package amplify

import (
	"math"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

// sampled is the curve q delta(ln(1 + (e^epsilon - 1)/q)).
func sampled(base *Curve, q float64, theorem string) *Curve {
	before := func(epsilon float64) float64 { // rounded down: an earlier point has a larger delta
		if epsilon > 1 { // e^epsilon/q may overflow
			return max(0, outward.Down(epsilon-math.Log(q)+math.Log1p(-(1-q)*math.Exp(-epsilon))))
		}
		return max(0, outward.Down(math.Log1p(math.Expm1(epsilon)/q)))
	}
	end := base.end
	if !math.IsInf(end, 1) {
		end = sampledPure(end, q)
	}
	return &Curve{
		neighbours: base.neighbours,
		theorem:    theorem + " of: " + base.theorem,
		upper:      func(epsilon float64) float64 { return outward.Up(q * base.at(before(epsilon))) },
		end:        end,
	}
}

// Poisson is the whole curve of a mechanism each of whose records is kept with
// probability q, independently and secretly: delta'(ln(1 + q (e^epsilon - 1))) = q
// delta(epsilon). The base must be under AddRemove neighbours; for others it answers
// release.ErrUnsupported. An observer who can count the records kept sees more, and this
// does not hold.
func Poisson(base *Curve, q float64) (*Curve, error) {
	if err := checkRate("sampling rate", q); err != nil {
		return nil, err
	}
	if base.neighbours != release.AddRemove {
		return nil, relationError("Poisson sampling", base.neighbours)
	}
	return sampled(base, q, "amplification by Poisson sampling (Balle, Barthe and Gaboardi 2018, theorem 8)"), nil
}

// WithoutReplacement is the whole curve of a mechanism run on a secret uniform subset of
// size kept out of total records. The base must be under ReplaceOne neighbours; for
// others it answers release.ErrUnsupported. The size may be public.
func WithoutReplacement(base *Curve, kept, total uint64) (*Curve, error) {
	if err := checkCount("number of records", total); err != nil {
		return nil, err
	}
	if kept == 0 || kept > total {
		return nil, parameter("number of records kept", float64(kept), "1 to the number of records")
	}
	if base.neighbours != release.ReplaceOne {
		return nil, relationError("sampling without replacement", base.neighbours)
	}
	q := math.Min(1, outward.Above(float64(kept)/float64(total)))
	return sampled(base, q, "amplification by sampling without replacement (Balle, Barthe and Gaboardi 2018, theorem 9)"), nil
}
