package recipe

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dp/local"
	"github.com/starling-agg/starling/dp/release"
)

// PGR is projective geometry response (Feldman, Nelson, Nguyen and Talwar 2022) on one of
// Values buckets: buckets and answers are points of a projective space, and those answers
// are e^Epsilon0 times as likely that lie in the hyperplane of the bucket. An answer is
// one of all points, one-hot, which Prio3Histogram proves: the query is a [Histogram] of
// as many buckets as there are points. Counts of buckets that few people have are about
// as accurate as by [RAPPOR], whose messages are not one-hot; those of a bucket that most
// have are less so, since every second answer of theirs lies outside of its hyperplane.
// So package plan, which promises an error whatever the answers are, does not plan it. A
// device without an answer sends a uniform point.
type PGR struct {
	// Epsilon0 is the local epsilon for replacement, of none too: a uniform point is a
	// mixture of all buckets' answers.
	Epsilon0 Decimal
	// Values is how many buckets an answer names one of, 2 to the number of points.
	Values uint32
	// Field is the number of elements of the field, a prime, and Dimension that of the
	// vectors whose lines are the points, 2 or more. account.New takes the field that fits
	// Epsilon0 and the least dimension where Values is zero.
	Field     uint16
	Dimension uint8
}

func (z PGR) String() string {
	return fmt.Sprintf("the device names one of %d points; those in a hyperplane that belongs to its bucket are %.4g times as likely "+
		"(projective geometry response, epsilon %s)", z.points(), math.Exp(z.Epsilon0.FloatDown()), z.Epsilon0)
}

// points is how many there are; 0 where there is no such space.
func (z PGR) points() int {
	if p, err := z.local(); err == nil {
		return p.Answers()
	}
	return 0
}

// local is the randomizer as devices draw it.
func (z PGR) local() (*local.Projective, error) {
	return local.NewProjectiveOver(int(min(z.Values, local.MaxValues+1)), z.Epsilon0.FloatDown(), uint64(z.Field), uint64(z.Dimension))
}

func (PGR) randomizer() uint8 { return tagPGR }

func (z PGR) append(b *cryptobyte.Builder) {
	addDecimal(b, z.Epsilon0)
	b.AddUint32(z.Values)
	b.AddUint16(z.Field)
	b.AddUint8(z.Dimension)
}

func readPGR(d *decoder) Randomizer {
	return PGR{Epsilon0: d.decimal("epsilon0"), Values: d.u32("values"), Field: d.u16("field"), Dimension: d.u8("dimension")}
}

func parsePGR(s string) (Randomizer, error) {
	e, err := ParseDecimal(s)
	return PGR{Epsilon0: e}, err
}

func (z PGR) params() any {
	return map[string]any{"epsilon0": z.Epsilon0.String(), "values": z.Values, "field": z.Field, "dimension": z.Dimension}
}

func (z PGR) validate(v *validator, r *Recipe) {
	if q := r.Query; q != nil && q.Form() != Bucket {
		v.add("query", "is no histogram, which projective geometry response needs")
		return
	}
	if !v.local(r, z.Epsilon0) {
		return
	}
	p, err := z.local()
	if err != nil {
		v.add("randomizer", "cannot be drawn: %v", err)
	} else if q := r.Query; q != nil && q.Aggregates() != p.Answers() {
		v.add("query.length", "is %d, want the %d points of the randomizer", q.Aggregates(), p.Answers())
	}
}

func (PGR) conditions(r *Recipe) []string { return honestReports(r) }

// given is of the buckets that an answer names one of.
func (z PGR) given(q Query) Query {
	if q.Form() != Bucket {
		return q
	}
	return Histogram{Length: z.Values}
}

// Proves is false: a report is one point, as an answer is one bucket.
func (PGR) Proves(Query) (bound, answer uint64, ok bool) { return 0, 0, false }

func (z PGR) round(r *Recipe, s Situation, _ float64) (Disclosure, error) {
	return r.reports(z, s)
}

func (PGR) gaussian() Rational { return Rational{} }
func (PGR) exact() bool        { return false }

// Local is a report of which nothing but its epsilon is known.
func (z PGR) Local(Query) (release.Message, float64, error) {
	return release.AnyReport(z.Epsilon0.FloatUp()), 0, nil
}

// Blur returns a point.
func (z PGR) Blur(Query) (func(place int) ([]uint64, error), error) {
	p, err := z.local()
	if err != nil {
		return nil, err
	}
	return blurTo(p.Randomize), nil
}

// whole is Local: a report is one point.
func (z PGR) whole(q Query) (release.Message, float64, error) { return z.Local(q) }

// code is the point.
func (PGR) code(q Query) (reportCode, error) {
	if q.Form() != Bucket {
		return nil, errors.New("recipe: projective geometry response of no histogram")
	}
	return indexCode{values: uint64(q.Aggregates())}, nil
}

func (z PGR) messenger(r *Recipe) (*Messenger, error) {
	blur, err := z.Blur(r.Query)
	if err != nil {
		return nil, err
	}
	return localMessenger(r, z, blur)
}

// Fit chooses the space, and the points of it as the query's buckets. Where there is none,
// Validate says why.
func (z PGR) Fit(q Query, _ float64) (LocalRandomizer, Query) {
	if q == nil || z.Values != 0 || q.Form() != Bucket {
		return z, q
	}
	z.Values = uint32(q.Aggregates())
	p, err := local.NewProjective(int(z.Values), z.Epsilon0.FloatDown())
	if err != nil {
		return z, q
	}
	field, dimension := p.Space()
	z.Field, z.Dimension = uint16(field), uint8(dimension)
	return z, Histogram{Length: uint32(p.Answers())}
}

// counts are how many points lie in the hyperplane of each bucket: a report of the bucket
// does with probability keep, and another one with probability lie.
func (z PGR) counts(sums []int64) ([]int64, error) {
	p, err := z.local()
	if err != nil {
		return nil, err
	}
	answers := make([]uint64, len(sums))
	for i, x := range sums {
		if x < 0 {
			return nil, errors.New("recipe: a sum of one-hot reports is negative")
		}
		answers[i] = uint64(x)
	}
	meeting, err := p.Meeting(answers)
	if err != nil {
		return nil, err
	}
	out := make([]int64, len(meeting))
	for i, x := range meeting {
		out[i] = int64(x)
	}
	return out, nil
}

func (z PGR) blurs(p *probabilities, _ Query) {
	if l, err := z.local(); err == nil {
		p.keep, p.lie, p.none = l.Meets()
	}
}
