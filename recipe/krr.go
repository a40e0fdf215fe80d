package recipe

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dp/local"
	"github.com/starling-agg/starling/dp/release"
)

// KRR is k-ary randomized response on the bucket of a [Histogram], which is sent one-hot as
// Prio3Histogram proves, or on yes or no ([Count]). A device without an answer sends a
// uniform bucket, or tosses a fair coin.
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
	if q := r.Query; q != nil && !answers(q) {
		v.add("query", "is no count, and no histogram of 2 or more buckets, which randomized response needs")
	}
	v.local(r, z.Epsilon0)
}

// answers says whether a query has answers for randomized response.
func answers(q Query) bool {
	form := q.Form()
	return (form == Bucket || form == YesOrNo) && q.Choices() >= 2
}

func (KRR) given(q Query) Query { return q }

// Proves is false: a report is a bucket, as an answer is.
func (KRR) Proves(Query) (bound, answer uint64, ok bool) { return 0, 0, false }

func (z KRR) round(r *Recipe, s Situation, _ float64) (Disclosure, error) {
	return r.reports(z, s)
}

func (KRR) counts(sums []int64) ([]int64, error) { return sums, nil }
func (KRR) gaussian() Rational                   { return Rational{} }
func (KRR) exact() bool                          { return false }

func (KRR) conditions(r *Recipe) []string { return honestReports(r) }

// Local is randomized response of as many answers as there are buckets.
func (z KRR) Local(q Query) (release.Message, float64, error) {
	if !answers(q) {
		return nil, 0, errNoAnswers
	}
	return release.ResponseReport(z.Epsilon0.FloatUp(), q.Choices()), 0, nil
}

// whole is Local: a report is one answer.
func (z KRR) whole(q Query) (release.Message, float64, error) { return z.Local(q) }

// code is the answer.
func (KRR) code(q Query) (reportCode, error) {
	if !answers(q) {
		return nil, errNoAnswers
	}
	return indexCode{q.Choices(), q.Form() == YesOrNo}, nil
}

var errNoAnswers = errors.New("recipe: randomized response of no histogram and no count")

// Blur returns another bucket now and then.
func (z KRR) Blur(q Query) (func(place int) ([]uint64, error), error) {
	response, err := z.response(q)
	if err != nil {
		return nil, err
	}
	return blurTo(response.Randomize), nil
}

// response is the randomizer as devices draw it.
func (z KRR) response(q Query) (*local.Response, error) {
	if !answers(q) {
		return nil, errNoAnswers
	}
	return local.NewResponse(int(min(q.Choices(), local.MaxValues+1)), z.Epsilon0.FloatDown())
}

func (z KRR) messenger(r *Recipe) (*Messenger, error) {
	blur, err := z.Blur(r.Query)
	if err != nil {
		return nil, err
	}
	return localMessenger(r, z, blur)
}

// blurTo is a Blur that returns one answer.
func blurTo(randomize func(x int) (int, error)) func(place int) ([]uint64, error) {
	return func(place int) ([]uint64, error) {
		y, err := randomize(place)
		return []uint64{uint64(y)}, err
	}
}

// Fit returns both as they are.
func (z KRR) Fit(q Query, _ float64) (LocalRandomizer, Query) { return z, q }

func (z KRR) blurs(p *probabilities, q Query) {
	k := float64(q.Choices())
	p.lie = 1 / (k - 1 + math.Exp(z.Epsilon0.FloatDown()))
	p.keep, p.none = 1-(k-1)*p.lie, 1/k
}
