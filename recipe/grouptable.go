package recipe

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/starling-agg/starling/dp/sketch"
)

// A CellState says what a cell of a table tells. The zero value is none of them.
type CellState uint8

const (
	// CellValue is an estimate with its interval.
	CellValue CellState = iota + 1
	// BelowDetection is what the noise does not let be told from nobody: a size whose
	// interval holds 0, with it a sum whose interval does, and the mean of such a group,
	// of which nothing is known.
	BelowDetection
	// Suppressed is an exact number about too few people, which a table does not show.
	Suppressed
	// CellNone is about nobody, for certain.
	CellNone
)

var cellStates = [...]string{CellValue: "value", BelowDetection: "below detection", Suppressed: "suppressed", CellNone: "none"}

func (s CellState) String() string {
	if s < CellValue || s > CellNone {
		return fmt.Sprintf("CellState(%d)", uint8(s))
	}
	return cellStates[s]
}

// MarshalText is the words of String.
func (s CellState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// A Cell is a number of a table. A state leaves numbers out, which are NaN: all but the
// interval of a mean below detection, and all of a cell that is suppressed or about
// nobody.
type Cell struct {
	State CellState
	// Estimate is unbiased, so it may be below 0, but for a mean, which is a ratio.
	Estimate float64
	// Stderr is the standard deviation of the noise in it; of a mean to the first order.
	Stderr float64
	// Interval95 holds the exact number of the batch with probability 95 % or more, each
	// cell by itself.
	Interval95 [2]float64
}

// MarshalJSON leaves out what the state does.
func (c Cell) MarshalJSON() ([]byte, error) {
	out := struct {
		State      CellState   `json:"state"`
		Estimate   *float64    `json:"estimate,omitempty"`
		Stderr     *float64    `json:"stderr,omitempty"`
		Interval95 *[2]float64 `json:"interval95,omitempty"`
	}{State: c.State}
	if c.Known() {
		out.Estimate, out.Stderr = &c.Estimate, &c.Stderr
	}
	if c.Bounded() {
		out.Interval95 = &c.Interval95
	}
	return json.Marshal(out)
}

// Known says whether there is an estimate.
func (c Cell) Known() bool { return !math.IsNaN(c.Estimate) }

// Bounded says whether there is an interval.
func (c Cell) Bounded() bool { return !math.IsNaN(c.Interval95[0]) }

// empty is a cell without numbers.
func empty(s CellState) Cell {
	n := math.NaN()
	return Cell{s, n, n, [2]float64{n, n}}
}

// A GroupRow is what is known of a group.
type GroupRow struct {
	Group string `json:"group,omitempty"` // its name; empty for all together
	Sum   Cell   `json:"sum"`
	Size  Cell   `json:"size"`
	Mean  Cell   `json:"mean"`
}

// A GroupTable is the sum, the size and the mean of each group in a batch of reports, and
// of all together, whose size is the number of reports.
type GroupTable struct {
	Groups []GroupRow `json:"groups"`
	Total  GroupRow   `json:"total"`
}

// Each calls do with every cell, group by group and then of all together, and what it is:
// sum, size or mean.
func (t *GroupTable) Each(do func(row *GroupRow, what string, c *Cell)) {
	for i := range t.Groups {
		t.Groups[i].each(do)
	}
	t.Total.each(do)
}

func (x *GroupRow) each(do func(row *GroupRow, what string, c *Cell)) {
	do(x, "sum", &x.Sum)
	do(x, "size", &x.Size)
	do(x, "mean", &x.Mean)
}

// GroupTable estimates that of a batch of reports from the released integers; nil where
// the query is not [GroupSums]. It fails where they are not as many as the query has.
//
// Where results are exact, what is about fewer than MinBatch people is suppressed, and
// with it the next smallest group or groups, so that what the totals tell of those that
// are suppressed is about MinBatch people at least, and two groups. That protects readers
// of the table alone: whoever collects it holds the integers.
func (r *Recipe) GroupTable(sums []int64, reports uint64) (*GroupTable, error) {
	q, ok := r.Query.(GroupSums)
	if !ok {
		return nil, nil
	}
	g, err := q.encoding()
	if err != nil {
		return nil, fmt.Errorf("recipe: %w", err)
	}
	noise := r.Noise.Spread()
	z := noise.Deviations95()
	each, all, err := g.Moments(sums, reports, noise.Deviation*noise.Deviation)
	if err != nil {
		return nil, fmt.Errorf("recipe: %w", err)
	}
	// Numbers that are whole lie beside what a density of that deviation covers. A weighted
	// sum of them lies no more than half its largest weight beside, which this adds.
	wider := 1.0
	if noise.Deviation > 0 {
		wider += .5 / (z * noise.Deviation)
	}
	row := func(m sketch.GroupMoments) (row GroupRow) {
		off := z * wider * math.Sqrt(m.SumVariance)
		row.Sum = Cell{CellValue, m.Sum, math.Sqrt(m.SumVariance), [2]float64{m.Sum - off, m.Sum + off}}
		off = z * wider * math.Sqrt(m.SizeVariance)
		row.Size = Cell{CellValue, m.Size, math.Sqrt(m.SizeVariance), [2]float64{m.Size - off, m.Size + off}}
		mean, low, high, detected := m.Mean(z*wider, float64(q.Min), float64(q.Max))
		if detected {
			variance := m.SumVariance - 2*mean*m.Covariance + mean*mean*m.SizeVariance
			row.Mean = Cell{CellValue, mean, math.Sqrt(max(0, variance)) / m.Size, [2]float64{low, high}}
			return row
		}
		row.Mean = empty(BelowDetection)
		row.Mean.Interval95 = [2]float64{low, high}
		row.Size.State = BelowDetection
		if in := row.Sum.Interval95; in[0] <= 0 && in[1] >= 0 {
			row.Sum.State = BelowDetection
		}
		return row
	}
	t := &GroupTable{Total: row(all)}
	for i, m := range each {
		x := row(m)
		x.Group = r.Label(i)
		t.Groups = append(t.Groups, x)
	}
	if !r.Noisy() {
		t.suppress(float64(r.MinBatch))
	}
	return t, nil
}

// suppress takes out of exact results what is about too few.
func (t *GroupTable) suppress(least float64) {
	var some []int
	for i := range t.Groups {
		if x := &t.Groups[i]; x.Size.Estimate < .5 {
			x.each(func(_ *GroupRow, _ string, c *Cell) { *c = empty(CellNone) })
			continue
		}
		some = append(some, i)
	}
	slices.SortStableFunc(some, func(a, b int) int { return cmp.Compare(t.Groups[a].Size.Estimate, t.Groups[b].Size.Estimate) })
	hidden := 0.0
	for _, i := range some {
		x := &t.Groups[i]
		if x.Size.Estimate >= least && (hidden == 0 || hidden >= least) {
			break
		}
		hidden += x.Size.Estimate
		x.each(func(_ *GroupRow, _ string, c *Cell) { *c = empty(Suppressed) })
	}
}
