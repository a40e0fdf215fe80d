package recipe

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/starling-agg/starling/dp/sketch"
)

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

// GroupTable estimates that of a batch of reports from the released integers, or from the
// sums of a tally; nil where the query is not [GroupSums]. It fails where they are not as many as the query has.
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
	if z, _, ok := r.blursGroups(); ok {
		each, all, err := z.moments(r, sums, reports)
		if err != nil {
			return nil, fmt.Errorf("recipe: %w", err)
		}
		return r.groupTable(q, each, all, Normal95), nil
	}
	g, err := q.encoding()
	if err != nil {
		return nil, fmt.Errorf("recipe: %w", err)
	}
	noise := r.Blurred(reports)
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
	t := r.groupTable(q, each, all, z*wider)
	if noise.Deviation == 0 {
		t.suppress(float64(r.MinBatch))
	}
	return t, nil
}

// groupTable makes the table of estimates that stay within z deviations 95 times in 100.
func (r *Recipe) groupTable(q GroupSums, each []sketch.GroupMoments, all sketch.GroupMoments, z float64) *GroupTable {
	row := func(m sketch.GroupMoments) (row GroupRow) {
		off := z * math.Sqrt(m.SumVariance)
		row.Sum = Cell{sketch.Value, m.Sum, math.Sqrt(m.SumVariance), [2]float64{m.Sum - off, m.Sum + off}}
		if math.IsInf(m.SizeVariance, 1) { // nobody was asked
			row.Size, row.Mean = empty(sketch.None), empty(sketch.None)
			return row
		}
		off = z * math.Sqrt(m.SizeVariance)
		row.Size = Cell{sketch.Value, m.Size, math.Sqrt(m.SizeVariance), [2]float64{m.Size - off, m.Size + off}}
		mean, low, high, detected := m.Mean(z, float64(q.Min), float64(q.Max))
		if detected {
			variance := m.SumVariance - 2*mean*m.Covariance + mean*mean*m.SizeVariance
			row.Mean = Cell{sketch.Value, mean, math.Sqrt(max(0, variance)) / m.Size, [2]float64{low, high}}
			return row
		}
		row.Mean = empty(sketch.BelowDetection)
		row.Mean.Interval95 = [2]float64{low, high}
		row.Size.State = sketch.BelowDetection
		if in := row.Sum.Interval95; in[0] <= 0 && in[1] >= 0 {
			row.Sum.State = sketch.BelowDetection
		}
		return row
	}
	t := &GroupTable{Total: row(all)}
	for i, m := range each {
		x := row(m)
		x.Group = r.Label(i)
		t.Groups = append(t.Groups, x)
	}
	return t
}

// suppress takes out of exact results what is about too few.
func (t *GroupTable) suppress(least float64) {
	var some []int
	for i := range t.Groups {
		if x := &t.Groups[i]; x.Size.Estimate < .5 {
			x.each(func(_ *GroupRow, _ string, c *Cell) { *c = empty(sketch.None) })
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
		x.each(func(_ *GroupRow, _ string, c *Cell) { *c = empty(sketch.Suppressed) })
	}
}
