package recipe

import (
	"errors"
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/projection"
)

// A Projection shortens the vectors of a [Vector] before they are sent: devices give
// Entries numbers, and send the Dimension of the query, which [projection.Projection]
// makes of them. It comes before clipping, so Bound is the sensitivity whatever it does.
// The collector lengthens the sum again, with an error that [Recipe.Forecast] tells
// beforehand. It is the same in all batches of a recipe, and so is the error that it
// makes of the same vectors.
type Projection struct {
	// Entries of a device's vector and of the result: above the query's Dimension, at
	// most MaxElements.
	Entries uint32
	// Seed of the map. It is public, and new for each recipe; not zero.
	Seed [32]byte
}

// NewProjection returns the query for vectors of which that many numbers are sent, and the
// projection to them, whose seed is left to draw.
func NewProjection(of Query, numbers uint) (Query, *Projection, error) {
	q, ok := of.(Vector)
	if !ok {
		return nil, nil, errors.New("goes with a query of vectors, as vector:N:NORM:BITS")
	}
	if numbers >= uint(q.Dimension) {
		return nil, nil, fmt.Errorf("is %d, want less than the %d numbers of a vector", numbers, q.Dimension)
	}
	p := &Projection{Entries: q.Dimension}
	q.Dimension = uint32(numbers)
	return q, p, nil
}

// Map is the map that the seed stands for, to vectors of the query's length. It takes
// time and memory of the order of Entries.
func (p *Projection) Map(q Vector) (*projection.Projection, error) {
	return projection.New(int(p.Entries), int(q.Dimension), p.Seed)
}

// Entries is how many numbers a device's answer to a [Vector] and the result have: the
// dimension, or with a projection what that starts from. For other queries it is
// Aggregates.
func (r *Recipe) Entries() int { return r.Given().Aggregates() }

// Given is the query as people answer it: that of the recipe, but for a projection, which
// sends fewer numbers than it is given, and for randomizers, of which more may be proved
// than an answer is.
func (r *Recipe) Given() Query {
	q := r.Query
	if r.Randomizer != nil {
		q = r.Randomizer.given(q)
	}
	if v, ok := q.(Vector); ok && r.Projection != nil {
		v.Dimension = r.Projection.Entries
		return v
	}
	return q
}

// A VectorForecast is the expected error of a mean of vectors: the root of the mean
// squared Euclidean distance from the exact mean. Rounding, of about a unit over the root
// of the reports for each entry, is left out, and so is what clipping takes from vectors
// that are too long, before a projection or after it.
type VectorForecast struct {
	// Noise is what servers and devices add, in units of the entries; where it is
	// correlated over rounds, in the worst of them.
	Noise float64 `json:"noise"`
	// Lost is what the projection adds, over the length of the exact mean; 0 without one.
	Lost float64 `json:"lost_by_projection"`
}

// Of is the expected error where the exact mean has the given length.
func (f VectorForecast) Of(length float64) float64 { return math.Hypot(f.Noise, f.Lost*length) }

// Forecast is the expected error of the mean of the reports' vectors. It is false for
// other queries, and where devices toss coins.
func (r *Recipe) Forecast(reports uint64) (VectorForecast, bool) {
	q, ok := r.Vector()
	if !ok || r.Sampled() || reports == 0 {
		return VectorForecast{}, false
	}
	// A column of the map has length 1: noise in what was sent is as much in each number
	// of the result.
	variance := r.noiseVariance() + float64(reports)*r.probabilities().added
	f := VectorForecast{Noise: math.Sqrt(float64(r.Entries())*variance) * q.Unit() / float64(reports)}
	if r.Projection != nil {
		f.Lost = projection.Error(r.Entries(), int(q.Dimension))
	}
	return f, true
}

func (v *validator) projection(r *Recipe) {
	p := r.Projection
	if p == nil {
		return
	}
	q, ok := r.Vector()
	if !ok {
		v.add("projection", "goes with a vector")
		return
	}
	if v.between("projection.entries", uint64(p.Entries), 2, MaxElements) && q.Dimension >= p.Entries {
		v.add("query.dimension", "is %d, want less than the %d numbers that the projection takes", q.Dimension, p.Entries)
	}
	if p.Seed == ([32]byte{}) {
		v.add("projection.seed", "is zero, want random bytes")
	}
}

// asked says what devices give and what comes out.
func (r *Recipe) asked() string {
	sent, ok := r.Vector()
	q := r.Given()
	if z, sums, blurs := r.blursGroups(); blurs && !z.tellsSizes() {
		return sums.words("the sum of each group")
	}
	if !ok {
		return q.String()
	}
	if r.Projection == nil {
		return q.String()
	}
	return fmt.Sprintf("%v, estimated from the %s that a public random projection makes of a vector and that are sent", q,
		count(uint64(sent.Dimension), "number", "numbers"))
}

// usual is how many reports a batch is expected to have: the people, or the least; of
// independent batches all together.
func (r *Recipe) usual() uint64 {
	if r.Population != nil {
		return max(r.Population.Expected, r.MinBatch*r.Parts())
	}
	return r.MinBatch * r.Parts()
}

// expected says how long a report of a vector is and how far off the mean will be; it is
// empty for other queries.
func (r *Recipe) expected() (string, error) {
	if _, ok := r.Vector(); !ok {
		return "", nil
	}
	size, err := r.UploadBytes()
	if err != nil && size == 0 {
		return "", err
	}
	text := fmt.Sprintf("a report has about %d bytes, %.3g times 4 bytes a number", size, float64(size)/(4*float64(r.Entries())))
	if err != nil {
		text += ", more than a leader takes"
	}
	f, ok := r.Forecast(r.usual())
	if !ok {
		return text, nil
	}
	text += fmt.Sprintf("; a mean of %d vectors is expected to be %.3g off for the noise", r.usual(), f.Noise)
	if r.Projection != nil {
		text += fmt.Sprintf(", and %.3g times its own length for the projection", f.Lost)
	}
	return text, nil
}
