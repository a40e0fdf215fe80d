package recipe

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/dp/sketch"
)

// Quantiles asks each device for a whole number; the answer is how the numbers are
// distributed, with the nine deciles ([Recipe.Distribution]). The numbers from Min to Max
// are cut into bins of Width numbers, the last of them of what is left, and those beyond
// count as the nearest. A device marks the nodes over its bin in a tree of that branching
// ([sketch.Tree]), one of each level (Prio3MultihotCountVec, whose weight bound is the
// levels). A device that does not follow may mark as many nodes elsewhere, and so counts
// as no more people than there are levels.
type Quantiles struct {
	Min, Max  uint64 // Max is above Min, and at most MaxMeasurement
	Width     uint64 // of a bin; it leaves 2 of them at least
	Branching uint32 // 2 to the number of bins; see sketch.Branching
	Chunk     uint32 // of the proof, 1 to the nodes + bits(levels)
}

func (q Quantiles) String() string {
	return fmt.Sprintf("each device gives a whole number, which counts as %d if it is less and as %d if it is more; the result is how the numbers "+
		"are distributed, in steps of %d, with their deciles", q.Min, q.Max, q.Width)
}

// bins is how many there are, 0 where that makes no sense.
func (q Quantiles) bins() uint64 {
	if q.Width == 0 || q.Max < q.Min {
		return 0
	}
	return (q.Max-q.Min)/q.Width + 1
}

// tree is that over the bins.
func (q Quantiles) tree() (*sketch.Tree, error) {
	return sketch.New(int(min(q.bins(), sketch.MaxLeaves+1)), int(q.Branching))
}

// size is that of the tree, nothing where there is none.
func (q Quantiles) size() (nodes, levels int) {
	t, err := q.tree()
	if err != nil {
		return 0, 0
	}
	return t.Nodes(), t.Levels()
}

// Form is [Number].
func (Quantiles) Form() Form { return Number }

func (q Quantiles) Wanted() string {
	return fmt.Sprintf("a whole number, which counts as %d if it is less and as %d if it is more", q.Min, q.Max)
}

// Holds says whether it is one number, whichever.
func (Quantiles) Holds(x []uint64) bool { return len(x) == 1 }

// Add adds, up to Max.
func (q Quantiles) Add(sum, record []uint64) { sum[0] = clippedSum(sum[0], record[0], q.Max) }

// MadeUp is most often Min.
func (q Quantiles) MadeUp(coins func() uint64) []uint64 {
	return []uint64{q.Min + min(coins(), q.Max-q.Min)}
}

// Aggregates is the number of nodes.
func (q Quantiles) Aggregates() int {
	nodes, _ := q.size()
	return nodes
}

// Marks says of each node whether the number is below it, in time that does not depend on
// the number.
func (q Quantiles) Marks(numbers []uint64) []bool {
	t, err := q.tree()
	if err != nil {
		return nil
	}
	offset, below := bits.Sub64(numbers[0], q.Min, 0)
	return t.Marks(offset&(below-1), q.Width)
}

// VDAFConfig is that of Prio3MultihotCountVec.
func (q Quantiles) VDAFConfig() dap.VDAFConfig {
	nodes, levels := q.size()
	return dap.MultihotCountVecConfig{Length: uint32(nodes), MaxWeight: uint64(levels), ChunkLength: q.Chunk}
}

// Contribution is 1 in as many places as there are levels. No bound that counts on one
// mark a level is tighter: of two numbers in the first and the last bin the paths share
// no node, as the top level has two at least, so that one in place of the other changes
// all of twice as many places, or every place of a tree that has no more.
func (q Quantiles) Contribution() release.Contribution {
	nodes, levels := q.size()
	return release.MultiHotOf(uint64(nodes), uint64(levels))
}

func (Quantiles) Largest() float64 { return 1 }
func (Quantiles) Unit() float64    { return 1 }
func (Quantiles) Averages() bool   { return false }
func (Quantiles) Counts() bool     { return true }
func (Quantiles) Choices() uint64  { return 0 }
func (Quantiles) Part() string     { return "the rank of each quantile" }

// FitVariance is the largest variance of how many reports are counted up to a bin, over
// that of the noise in each sum.
func (q Quantiles) FitVariance() float64 {
	t, err := q.tree()
	if err != nil {
		return 1
	}
	_, largest := t.RankVariance()
	return largest
}

// expected says how far off ranks are.
func (q Quantiles) expected(r *Recipe) string {
	nodes, levels := q.size()
	noise := r.Blurred(r.usual())
	return fmt.Sprintf("a device marks %d of %d nodes over %d bins; the noise puts the rank of a number off by at most %.3g reports, with probability 95 %%",
		levels, nodes, q.bins(), noise.Deviations95()*noise.Deviation*math.Sqrt(q.FitVariance()))
}

func (Quantiles) query() uint8 { return tagQuantiles }

func (q Quantiles) append(b *cryptobyte.Builder) {
	b.AddUint64(q.Min)
	b.AddUint64(q.Max)
	b.AddUint64(q.Width)
	b.AddUint32(q.Branching)
	b.AddUint32(q.Chunk)
}

func readQuantiles(d *decoder) Query {
	return Quantiles{Min: d.u64("min"), Max: d.u64("max"), Width: d.u64("width"), Branching: d.u32("branching"), Chunk: d.u32("chunk")}
}

// typedQuantiles is of MIN:MAX:WIDTH:BRANCHING; a branching of 0 is the best one for
// Gaussian noise.
func typedQuantiles(n []uint64) Query {
	q := Quantiles{Min: n[0], Max: n[1], Width: n[2], Branching: uint32(min(n[3], math.MaxUint32))}
	if bins := q.bins(); q.Branching == 0 && bins <= sketch.MaxLeaves {
		q.Branching = uint32(sketch.Branching(int(bins), 2))
	}
	return q
}

func (q Quantiles) params() any {
	return map[string]uint64{"min": q.Min, "max": q.Max, "width": q.Width, "branching": uint64(q.Branching), "chunk": uint64(q.Chunk)}
}

func (q Quantiles) validate(v *validator) {
	if !v.between("query.max", q.Max, 1, MaxMeasurement) || !v.between("query.min", q.Min, 0, q.Max-1) ||
		!v.between("query.width", q.Width, 1, q.Max-q.Min) || !v.between("query.branching", uint64(q.Branching), 2, q.bins()) {
		return
	}
	switch elements := q.elements(); {
	case elements == 0 || elements > MaxElements:
		v.add("query.width", "leaves %d bins, whose tree has more than %d field elements", q.bins(), MaxElements)
	default:
		v.between("query.chunk", uint64(q.Chunk), 1, elements)
	}
}

// whole is why the query needs the exact number of answers, which all levels add up to.
func (Quantiles) whole() string { return "quantiles of a secret sample are not estimated" }

// elements is the number of field elements that encode one answer, 0 where none do.
func (q Quantiles) elements() uint64 {
	nodes, levels := q.size()
	return uint64(nodes + bits.Len(uint(levels)))
}

func (q Quantiles) withChunk() Query {
	q.Chunk = chunk(q.Chunk, max(1, q.elements()))
	return q
}

func (Quantiles) spread(x, _ float64) float64 { return x }

// A Distribution is how the numbers in a batch of reports are distributed, as far as the
// noise lets it be known.
type Distribution struct {
	// Deciles are the nine of them.
	Deciles []Decile `json:"deciles"`
	// Ranges are at most ten that together hold all numbers, of as many bins each as
	// another or one more. Their counts add up to the reports.
	Ranges []Range `json:"ranges"`
}

// A Decile is the least number that a Share of the reports have or are below.
type Decile struct {
	Share float64 `json:"share"`
	Value uint64  `json:"value"` // the middle of its bin, rounded down
	// Interval95 holds the exact decile of the batch with probability 95 % or more, for
	// each decile by itself; it is bounded by whole bins. See [sketch.Quantile].
	Interval95 [2]uint64 `json:"interval95"`
	// Detected is false where reports are too few for the noise to tell anything: the
	// interval holds all numbers.
	Detected bool `json:"detected"`
}

// A Range is how many reports have a number in it: an unbiased estimate, which may be
// below 0, with its standard deviation and 95 % interval.
type Range struct {
	From       uint64     `json:"from"`
	To         uint64     `json:"to"` // the last that is in it
	Count      float64    `json:"count"`
	Stderr     float64    `json:"stderr"`
	Interval95 [2]float64 `json:"interval95"`
}

// mostRanges is how many ranges a [Distribution] has at most.
const mostRanges = 10

// Distribution estimates that of a batch of reports from the released integers, one for
// each node; nil where the query is not [Quantiles]. It fails where they are not as many.
func (r *Recipe) Distribution(sums []int64, reports uint64) (*Distribution, error) {
	q, ok := r.Query.(Quantiles)
	if !ok {
		return nil, nil
	}
	t, err := q.tree()
	if err != nil {
		return nil, fmt.Errorf("recipe: %w", err)
	}
	// All nodes have the same noise, so that its variance is the unit here.
	noise := r.Blurred(reports)
	reach := noise.Deviations95()
	e, err := t.Estimator(slices.Repeat([]float64{1}, t.Levels()))
	if err != nil {
		return nil, fmt.Errorf("recipe: %w", err)
	}
	bins, err := e.Bins(sums, reports)
	if err != nil {
		return nil, fmt.Errorf("recipe: %w", err)
	}
	first := func(bin int) uint64 { return q.Min + uint64(bin)*q.Width }
	last := func(bin int) uint64 { return min(first(bin)+q.Width-1, q.Max) }
	d := new(Distribution)
	var shares []float64
	for i := 1; i < 10; i++ {
		shares = append(shares, float64(i)/10)
	}
	for i, x := range e.Quantiles(bins, shares, reach*noise.Deviation) {
		d.Deciles = append(d.Deciles, Decile{shares[i], first(x.Bin) + (last(x.Bin)-first(x.Bin))/2, [2]uint64{first(x.Low), last(x.High)}, x.Detected})
	}
	n := min(mostRanges, len(bins))
	for i := range n {
		low, high := i*len(bins)/n, (i+1)*len(bins)/n
		x := Range{From: first(low), To: last(high - 1)}
		for _, count := range bins[low:high] {
			x.Count += count
		}
		x.Stderr = deviation(noise, e.Variance(low, high))
		x.Interval95 = interval(noise, x.Count, x.Stderr)
		d.Ranges = append(d.Ranges, x)
	}
	return d, nil
}
