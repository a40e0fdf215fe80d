package recipe

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/local"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/dp/sketch"
)

// GroupSums asks each device for a whole number from Min to Max and for the one of Groups
// that it is in; neither shows. The answer is the sum, the size and the mean of each
// group, and of all together ([Recipe.GroupTable]). A device sends how far its number is
// above Min and how far it is below Max, each in a place of its group ([sketch.Groups]),
// and proves that all places add up to at most Max - Min (Prio3L1BoundSum). Answers are
// the corners and edges of what is proved, so no bound that counts on them is tighter;
// and a device that does not follow counts as one that is spread over groups. On paths
// without proofs devices blur number and group themselves ([GroupRandomizer]).
type GroupSums struct {
	Min, Max int64  // at most MaxMeasurement from 0 and from each other; Max is above Min
	Groups   uint32 // 2 or more
	Chunk    uint32 // of the proof, 1 to (2*Groups+1)*bits(Max-Min)
}

func (q GroupSums) String() string { return q.words("the sum, the size and the mean of each group") }

func (q GroupSums) words(result string) string {
	return fmt.Sprintf("each device gives a whole number from %d to %d and one of %d groups, and neither shows; the result is %s", q.Min, q.Max, q.Groups, result)
}

// span is Max - Min, 0 where that makes no sense.
func (q GroupSums) span() uint64 {
	if q.Max <= q.Min {
		return 0
	}
	return uint64(q.Max) - uint64(q.Min)
}

func (q GroupSums) encoding() (*sketch.Groups, error) {
	return sketch.NewGroups(int(q.Groups), q.Min, q.Max)
}

// Form is [Grouped].
func (GroupSums) Form() Form { return Grouped }

func (q GroupSums) Wanted() string {
	return fmt.Sprintf("a whole number from %d to %d, and a group from 0 to %d", q.Min, q.Max, q.Groups-1)
}

// Holds says whether they are a number in range and a group.
func (q GroupSums) Holds(x []uint64) bool {
	return len(x) == 2 && q.Groups > 0 && within([]uint64{x[0] - uint64(q.Min)}, q.span()) && within(x[1:], uint64(q.Groups)-1)
}

// Add leaves the sum as it is: records may be of different groups.
func (GroupSums) Add(_, _ []uint64) {}

// MadeUp is most often Min in the first group.
func (q GroupSums) MadeUp(coins func() uint64) []uint64 {
	return []uint64{uint64(q.Min) + min(coins(), q.span()), min(coins(), uint64(q.Groups)-1)}
}

// Aggregates is two for each group.
func (q GroupSums) Aggregates() int { return 2 * int(q.Groups) }

// Encode is a number in each of two places of the group, in time that depends on how many
// groups there are alone.
func (q GroupSums) Encode(numbers []uint64) []uint64 {
	e, err := q.encoding()
	if err != nil {
		return nil
	}
	return e.Encode(int64(numbers[0]), uint32(numbers[1]))
}

// VDAFConfig is that of Prio3L1BoundSum.
func (q GroupSums) VDAFConfig() dap.VDAFConfig {
	return dap.L1BoundSumConfig{Length: 2 * q.Groups, MaxValue: q.span(), ChunkLength: q.Chunk}
}

// Contribution is whole numbers that add up to at most Max - Min.
func (q GroupSums) Contribution() release.Contribution {
	return release.Simplex(2*uint64(q.Groups), float64(q.span()))
}

// Largest is how far apart two answers may be, above Min and below Max alike.
func (q GroupSums) Largest() float64 { return float64(q.span()) }
func (GroupSums) Unit() float64      { return 1 }
func (GroupSums) Averages() bool     { return false }
func (GroupSums) Counts() bool       { return false }
func (GroupSums) Choices() uint64    { return 0 }
func (GroupSums) Part() string       { return "the sum of each group" }

func (GroupSums) query() uint8 { return tagGroupSums }

// places are the groups, of which an answer names one.
func (q GroupSums) places() uint32 { return q.Groups }

// append writes Min and Max in two's complement.
func (q GroupSums) append(b *cryptobyte.Builder) {
	b.AddUint64(uint64(q.Min))
	b.AddUint64(uint64(q.Max))
	b.AddUint32(q.Groups)
	b.AddUint32(q.Chunk)
}

func readGroupSums(d *decoder) Query {
	return GroupSums{Min: int64(d.u64("min")), Max: int64(d.u64("max")), Groups: d.u32("groups"), Chunk: d.u32("chunk")}
}

// parseGroupSums reads MIN:MAX:GROUPS, of which the first two may be below 0.
func parseGroupSums(rest string) (Query, error) {
	var q GroupSums
	parts := strings.Split(rest, ":")
	if len(parts) != 3 {
		return nil, fmt.Errorf("groups takes 3 numbers, as in %q", "groups:0:20:4")
	}
	for i, to := range []*int64{&q.Min, &q.Max} {
		n, err := strconv.ParseInt(parts[i], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", parts[i])
		}
		*to = n
	}
	n, err := strconv.ParseUint(parts[2], 10, 32)
	if err != nil {
		return nil, fmt.Errorf("%q is not a number of groups", parts[2])
	}
	q.Groups = uint32(n)
	return q, nil
}

func (q GroupSums) params() any {
	return map[string]int64{"min": q.Min, "max": q.Max, "groups": int64(q.Groups), "chunk": int64(q.Chunk)}
}

func (q GroupSums) validate(v *validator) {
	between := func(field string, x, least int64) bool {
		if x < least || x > MaxMeasurement {
			v.add(field, "is %d, want %d to %d", x, least, int64(MaxMeasurement))
			return false
		}
		return true
	}
	// -MaxMeasurement is where a float64 and a sum of 2^30 numbers still have room.
	if !between("query.min", q.Min, -MaxMeasurement) || !between("query.max", q.Max, q.Min+1) {
		return
	}
	if q.span() > MaxMeasurement {
		v.add("query.max", "is %d above min, want at most %d", q.span(), int64(MaxMeasurement))
		return
	}
	if !v.between("query.groups", uint64(q.Groups), 2, MaxElements) {
		return
	}
	if elements := q.elements(); elements > MaxElements {
		v.add("query.groups", "twice and one more, times the bits of max - min, is %d field elements, want at most %d", elements, MaxElements)
	} else {
		v.between("query.chunk", uint64(q.Chunk), 1, elements)
	}
}

// whole is why the query needs the exact number of answers.
func (GroupSums) whole() string { return "sums by group of a secret sample are not estimated" }

// elements is the number of field elements that encode one answer, its total among them.
func (q GroupSums) elements() uint64 {
	return (2*uint64(q.Groups) + 1) * uint64(bits.Len64(q.span()))
}

func (q GroupSums) withChunk() Query {
	q.Chunk = chunk(q.Chunk, max(1, q.elements()))
	return q
}

func (q GroupSums) spread(x, _ float64) float64 { return x * q.Largest() }

// GroupErrors are distances that estimates stay within with probability 95 %, each by
// itself, in units of the result.
type GroupErrors struct {
	// Reports are those of a batch, and Size how many of them a group has that is as
	// large as others.
	Reports uint64  `json:"reports"`
	Members float64 `json:"members"`
	Sum     float64 `json:"sum"`
	Size    float64 `json:"size"`
	// Mean is of a group of Members, whatever its mean is; of the first order. It and Size
	// are 0 where nobody is asked for sizes.
	Mean float64 `json:"mean"`
	// Total is of the sum over all groups.
	Total float64 `json:"total"`
}

// Errors are those of noise of a variance in each released number that stays within z
// standard deviations, about a batch of reports. They are 0 where the query is not valid.
func (q GroupSums) Errors(z, variance float64, reports uint64) GroupErrors {
	e := GroupErrors{Reports: reports, Members: float64(reports) / float64(q.Groups)}
	g, err := q.encoding()
	if err != nil {
		return e
	}
	sum, size, covariance := g.Variances()
	worst := 0.0 // over means; a convex function
	for _, u := range []float64{float64(q.Min), float64(q.Max)} {
		worst = max(worst, sum-2*u*covariance+u*u*size)
	}
	reach := func(part float64) float64 { return z * math.Sqrt(part*variance) }
	e.Sum, e.Size, e.Mean, e.Total = reach(sum), reach(size), reach(worst)/e.Members, reach(g.TotalVariance())
	return e
}

// SumVariance is the variance of the sum of a group, over that of the noise in each
// released number.
func (q GroupSums) SumVariance() float64 {
	g, err := q.encoding()
	if err != nil {
		return 1
	}
	sum, _, _ := g.Variances()
	return sum
}

// errors are those of a recipe's noise, at as many reports as a batch usually has.
func (q GroupSums) errors(r *Recipe) GroupErrors {
	if z, _, ok := r.blursGroups(); ok {
		e, err := z.Errors(q, Normal95, r.usual())
		if err != nil {
			return GroupErrors{}
		}
		return e
	}
	noise := r.Blurred(r.usual())
	return q.Errors(noise.Deviations95(), noise.Deviation*noise.Deviation, r.usual())
}

// expected says how far off sums, sizes and means are.
func (q GroupSums) expected(r *Recipe) string {
	e := q.errors(r)
	if e.Sum == 0 {
		return ""
	}
	if e.Size == 0 {
		return fmt.Sprintf("in a batch of %d the noise puts the sum of a group off by at most %.3g and the sum of all by %.3g, each with probability 95 %%; sizes "+
			"and means are not told", e.Reports, e.Sum, e.Total)
	}
	return fmt.Sprintf("the noise puts the sum of a group off by at most %.3g, its size by %.3g, the sum of all by %.3g and, in a batch of %d, the mean of a group of "+
		"%.4g by %.3g, each with probability 95 %%; of a group below %.3g devices no mean is told", e.Sum, e.Size, e.Total, e.Reports, e.Members, e.Mean, e.Size)
}

// Numbers are what devices blur, with sizes or without.
func (q GroupSums) Numbers(sizes bool) local.GroupNumbers {
	return local.GroupNumbers{Groups: int(min(q.Groups, local.MaxTable)), Min: q.Min, Max: q.Max, Sizes: sizes}
}

// Forecast turns variances over the number of reports into errors of a batch, within so
// many deviations.
func (q GroupSums) Forecast(e local.NumberErrors, deviations float64, reports uint64) GroupErrors {
	x := GroupErrors{Reports: reports, Members: float64(reports) / float64(q.Groups)}
	reach := func(variance float64) float64 {
		if math.IsInf(variance, 1) {
			return 0
		}
		return deviations * math.Sqrt(variance*float64(reports))
	}
	x.Sum, x.Size, x.Mean, x.Total = reach(e.Sum), reach(e.Size), reach(e.Mean)/x.Members, reach(e.Total)
	return x
}
