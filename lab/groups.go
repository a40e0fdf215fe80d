package lab

import (
	"cmp"
	"fmt"
	"io"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/sketch"
	"github.com/starling-agg/starling/lab/internal/randhie"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// Groups asks everybody for their visits and for the health that they rate theirs by
// [recipe.GroupSums]: the sum, the size and the mean of each group, out of one batch.
const Groups = "groups"

// A GroupCell is one that was released, beside the truth. Group is empty for all together,
// and Of is sum, size or mean. The truth of the mean of nobody is 0.
type GroupCell struct {
	Group string      `json:"group"`
	Of    string      `json:"of"`
	Cell  recipe.Cell `json:"cell"`
	Truth float64     `json:"truth"`
}

// groupsQuery asks for the visits in a group.
func groupsQuery() recipe.GroupSums {
	return recipe.GroupSums{Max: mostVisits, Groups: uint32(len(randhie.HealthLabels))}
}

// inGroup reads an answer as healthAnswer codes it.
func inGroup(answer int) (visits int64, group uint32) {
	return int64(answer % (mostVisits + 1)), uint32(answer / (mostVisits + 1))
}

// askGroups takes down what each row would answer.
func (h *histogram) askGroups() error {
	if err := h.askHealth(); err != nil {
		return err
	}
	h.value = func(a int) client.Value { return client.InGroup(inGroup(a)) }
	h.query = func(o *account.Options) {
		healthRecipe(o)
		// Of one round, whole-number Laplace noise is the narrower one.
		o.Query, o.Labels, o.Kind = groupsQuery(), randhie.HealthLabels, account.LaplaceNoise
	}
	h.found.words.title = "Visits to a doctor in a year, and how many people, by how they rate their health"
	h.distribution = h.tabulate
	return nil
}

// tabulate takes down the table, and works out the truth of each cell.
func (h *histogram) tabulate(x *collector.Result) {
	r, t := h.found, x.Groups
	truth := make([]struct{ sum, size float64 }, len(t.Groups)+1)
	for _, a := range h.values {
		visits, group := inGroup(a)
		for _, i := range []int{int(group), len(t.Groups)} {
			truth[i].sum += float64(visits)
			truth[i].size++
		}
	}
	t.Each(func(row *recipe.GroupRow, what string, c *recipe.Cell) {
		is := truth[len(r.Groups)/3]
		r.Groups = append(r.Groups, GroupCell{row.Group, what, *c, map[string]float64{"sum": is.sum, "size": is.size, "mean": is.sum / max(1, is.size)}[what]})
	})
	r.Estimate, r.Stderr, r.Interval95 = nil, nil, nil
	for _, row := range t.Groups {
		r.Estimate, r.Stderr, r.Interval95 = append(r.Estimate, row.Sum.Estimate), append(r.Stderr, row.Sum.Stderr), append(r.Interval95, row.Sum.Interval95)
	}
}

// writeGroups writes a line for each cell, and nothing where there are none.
func (r *Report) writeGroups(w io.Writer) {
	if len(r.Groups) == 0 {
		return
	}
	fmt.Fprintf(w, "%14s  %4s  %9s  %9s  %s\n", "health", "", "estimate", "truth", "95 % interval")
	for _, x := range r.Groups {
		name, estimate, note := "", "", ""
		if x.Of == "sum" {
			name = cmp.Or(x.Group, "all together")
		}
		if x.Cell.Known() {
			estimate = fmt.Sprintf("%.5g", x.Cell.Estimate)
		}
		if x.Cell.State != sketch.Value {
			note = ", " + string(x.Cell.State)
		}
		fmt.Fprintf(w, "%14s  %4s  %9s  %9.5g  %.5g to %.5g%s\n", name, x.Of, estimate, x.Truth, x.Cell.Interval95[0], x.Cell.Interval95[1], note)
	}
	fmt.Fprintln(w)
}

// groupsForger shards what a forger asks for as an answer of the lab that asks for groups.
type groupsForger struct{ *prio3.L1BoundSum }

func newGroupsForger(c dap.L1BoundSumConfig) (vdaf.Client[int], error) {
	v, err := prio3.NewL1BoundSum(2, int(c.Length), c.MaxValue, int(c.ChunkLength))
	return groupsForger{v}, err
}

// Shard implements [vdaf.Client].
func (f groupsForger) Shard(ctx []byte, n int, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
	visits, group := inGroup(healthAnswer(n%len(randhie.HealthLabels), n))
	return f.L1BoundSum.Shard(ctx, groupsQuery().Encode([]uint64{uint64(visits), uint64(group)}), nonce)
}
