package sketch

import (
	"fmt"
	"math"
	"math/big"
)

// MaxGroups bounds the groups of [Groups].
const MaxGroups = 1 << 20

// maxValue bounds the values of [Groups], to keep sums of 2^30 of them in 63 bits.
const maxValue = 1 << 32

// Groups encodes a value of Min to Max in one of several groups as whole numbers that add
// up to Max - Min, whatever the value: in the place of its group how far it is above Min,
// and in another place of its group how far it is below Max. One noisy sum of such
// answers has the sum, the size and so the mean of each group, and no group's size costs
// more noise than sums alone do (docs/proofs/group-sums.md). The places are first those
// above Min, group by group, and then those below Max. Groups is immutable.
type Groups struct {
	groups   int
	min, max int64
}

// NewGroups fails unless 2 <= groups <= [MaxGroups], min < max, neither is more than 2^32
// from 0, and they are no more than that apart.
func NewGroups(groups int, min, max int64) (*Groups, error) {
	if groups < 2 || groups > MaxGroups {
		return nil, fmt.Errorf("sketch: %d groups, want 2 to %d", groups, MaxGroups)
	}
	if min >= max || min < -maxValue || max > maxValue || max-min > maxValue {
		return nil, fmt.Errorf("sketch: values from %d to %d, want rising ones at most 2^32 from 0 and from each other", min, max)
	}
	return &Groups{groups, min, max}, nil
}

// Places is how many numbers encode an answer.
func (g *Groups) Places() int { return 2 * g.groups }

// Range is Max - Min, which the numbers of every answer add up to.
func (g *Groups) Range() uint64 { return uint64(g.max - g.min) }

// Encode returns the numbers of an answer, in time that depends on the number of groups
// alone. The value is from Min to Max, and group counts from 0; the caller has seen to it.
func (g *Groups) Encode(value int64, group uint32) []uint64 {
	x := make([]uint64, g.Places())
	above := uint64(value - g.min)
	for i := range g.groups {
		off := uint64(uint32(i) ^ group)
		own := (off - 1) >> 63 * ^uint64(0) // all ones if off is 0, and else none
		x[i] = above & own
		x[g.groups+i] = (g.Range() - above) & own
	}
	return x
}

// GroupMoments are unbiased estimates of the sum and the size of a group, which may be
// below 0, with their variances and their covariance.
type GroupMoments struct {
	Sum, Size                             float64
	SumVariance, SizeVariance, Covariance float64
}

// Moments estimates those of each group, and of all together, from a sum of answers with
// independent noise of one variance in each place. The number of answers, which is public
// and exact, is the size of all together, and is what all places add up to beside the
// noise; so what they add up to beyond is taken off, from each place alike: the least
// squares fit. It fails where sums are not as many as the places.
func (g *Groups) Moments(sums []int64, answers uint64, variance float64) (each []GroupMoments, all GroupMoments, err error) {
	if len(sums) != g.Places() {
		return nil, all, fmt.Errorf("sketch: %d sums for %d places", len(sums), g.Places())
	}
	span := float64(g.Range())
	total, add := new(big.Int).SetUint64(answers), new(big.Int)
	total.Neg(total.Mul(total, add.SetUint64(g.Range()))) // may be more than 64 bits hold
	for _, s := range sums {
		total.Add(total, add.SetInt64(s))
	}
	beyond, _ := new(big.Float).SetInt(total).Float64()
	beyond /= float64(len(sums))
	all.Size, all.SumVariance = float64(answers), g.TotalVariance()*variance
	sumVariance, sizeVariance, covariance := g.Variances()
	for i := range g.groups {
		above, below := float64(sums[i])-beyond, float64(sums[g.groups+i])-beyond
		m := GroupMoments{
			Sum:         (float64(g.max)*above + float64(g.min)*below) / span,
			Size:        (above + below) / span,
			SumVariance: sumVariance * variance, SizeVariance: sizeVariance * variance, Covariance: covariance * variance,
		}
		all.Sum += m.Sum
		each = append(each, m)
	}
	return each, all, nil
}

// Variances are those of the sum and the size of a group, and their covariance, over the
// variance of the noise in each place: for weights c the fit has |c|^2 less the square of
// the sum of c over the number of places.
func (g *Groups) Variances() (sum, size, covariance float64) {
	high, low, places := float64(g.max)/float64(g.Range()), float64(g.min)/float64(g.Range()), float64(g.Places())
	weight := 2 / float64(g.Range()) // of both places in the size
	sum = high*high + low*low - (high+low)*(high+low)/places
	size = weight*weight/2 - weight*weight/places
	covariance = (high + low) * (weight/2 - weight/places)
	return sum, size, covariance
}

// TotalVariance is that of the sum over all groups, over that of the noise in each place.
func (g *Groups) TotalVariance() float64 { return float64(g.groups) / 2 }

// Mean returns sum over size, and bounds of z standard errors: the means whose product
// with the size is that close to the sum (Fieller 1954). All are kept from low to high,
// which bound every value. Where the size may be 0, to z standard errors, or is below it,
// nothing is known: detected is false, the bounds are low and high, and the mean is to be
// told to nobody.
func (m GroupMoments) Mean(z, low, high float64) (mean, from, to float64, detected bool) {
	within := func(x float64) float64 { return min(high, max(low, x)) }
	a := m.Size*m.Size - z*z*m.SizeVariance
	if !(a > 0) || m.Size <= 0 {
		if m.Size > 0 && !math.IsInf(m.SizeVariance, 1) {
			mean = m.Sum / m.Size
		}
		return within(mean), low, high, false
	}
	b := m.Sum*m.Size - z*z*m.Covariance
	c := m.Sum*m.Sum - z*z*m.SumVariance
	d := math.Sqrt(max(0, b*b-a*c))
	return within(m.Sum / m.Size), within((b - d) / a), within((b + d) / a), true
}
