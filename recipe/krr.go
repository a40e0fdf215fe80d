package recipe

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dp/local"
	"github.com/starling-agg/starling/dp/release"
)

// KRR is k-ary randomized response on the bucket of a [Histogram]: what is sent is
// one-hot, which Prio3Histogram proves. A device without an answer sends a uniform
// bucket.
type KRR struct {
	// Epsilon0 is the local epsilon for replacement.
	Epsilon0 Decimal
}

func (z KRR) String() string {
	return fmt.Sprintf("the device names a random bucket instead of the true one with some probability (randomized response, epsilon %s)", z.Epsilon0)
}
func (KRR) randomizer() uint8 { return tagKRR }

func (z KRR) append(b *cryptobyte.Builder) { addDecimal(b, z.Epsilon0) }

func (z KRR) params() any { return map[string]string{"epsilon0": z.Epsilon0.String()} }

func (z KRR) validate(v *validator, r *Recipe) {
	if q := r.Query; q != nil && (q.Form() != Bucket || q.Aggregates() < 2) {
		v.add("query", "is no histogram of 2 or more buckets, which randomized response needs")
	}
	v.local(r, z.Epsilon0)
}

func (KRR) given(q Query) Query { return q }

// Proves is false: a report is a bucket, as an answer is.
func (KRR) Proves(Query) (bound, answer uint64, ok bool) { return 0, 0, false }

func (z KRR) round(r *Recipe, s Situation, _ float64) (Disclosure, error) {
	return r.shuffledReports(z, s)
}

func (KRR) counts(sums []int64) ([]int64, error) { return sums, nil }
func (KRR) gaussian() Rational                   { return Rational{} }

func (KRR) conditions(r *Recipe) []string { return honestReports(r) }

// Local is randomized response of as many answers as there are buckets.
func (z KRR) Local(q Query) (release.Message, float64, error) {
	if q.Form() != Bucket {
		return nil, 0, errors.New("recipe: randomized response of no histogram")
	}
	return release.ResponseReport(z.Epsilon0.FloatUp(), uint64(q.Aggregates())), 0, nil
}

// Blur returns another bucket now and then.
func (z KRR) Blur(q Query) (func(place int) ([]uint64, error), error) {
	if q.Form() != Bucket {
		return nil, errors.New("recipe: randomized response of no histogram")
	}
	response, err := local.NewResponse(q.Aggregates(), z.Epsilon0.FloatDown())
	return func(place int) ([]uint64, error) {
		y, err := response.Randomize(place)
		return []uint64{uint64(y)}, err
	}, err
}

// Fit returns both as they are.
func (z KRR) Fit(q Query, _ float64) (LocalRandomizer, Query) { return z, q }

func (z KRR) blurs(p *probabilities, q Query) {
	k := float64(q.Aggregates())
	p.lie = 1 / (k - 1 + math.Exp(z.Epsilon0.FloatDown()))
	p.keep, p.none = 1-(k-1)*p.lie, 1/k
}
