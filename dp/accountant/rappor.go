package accountant

import "github.com/starling-agg/starling/dp/release"

// rappor is the release of a vector of bits, one of which is set, each flipped with
// probability 1/(e^Epsilon0 + 1). Saying nothing is the vector in which none is set: one
// bit away. Saying another thing is two bits away.
type rappor struct{ Epsilon0 float64 }

func (rappor) event() {}

func (r rappor) check() error { return randomizedResponse{r.Epsilon0, 2}.check() }

// bits is how many of them differ.
func (rappor) bits(n release.Neighbours) uint64 {
	if n == release.ReplaceOne {
		return 2
	}
	return 1
}

func (r rappor) exact(n release.Neighbours, count float64) (curve, string, error) {
	return randomizedResponse{r.Epsilon0, 2}.exact(n, count*float64(r.bits(n)))
}

func (r rappor) dominating(n release.Neighbours) (dominance, error) {
	if err := r.check(); err != nil {
		return dominance{}, err
	}
	bit := responsePair(r.Epsilon0, 2)
	if n != release.ReplaceOne {
		return dominance{pair: bit, symmetric: true, attained: true}, nil
	}
	both := bit.times(bit)
	both.a, both.b = -2*r.Epsilon0, 0
	return dominance{pair: both, symmetric: true, attained: true}, nil
}

func (r rappor) divergence(n release.Neighbours) (func(float64) float64, error) {
	f, err := randomizedResponse{r.Epsilon0, 2}.divergence(n)
	return func(a float64) float64 { return float64(r.bits(n)) * f(a) }, err
}
