package lab

import (
	"fmt"
	"io"
	"slices"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/sketch"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// Quantiles asks everybody for the number of visits by [recipe.Quantiles]: nine deciles,
// and counts of ten ranges, out of one batch.
const Quantiles = "quantiles"

// wideVisits is what the author of the recipe takes for the most that there may be; no
// row has more than 77.
const wideVisits = 99

// A Decile is one that was released, beside the truth.
type Decile struct {
	recipe.Decile
	Truth uint64 `json:"truth"`
}

// wideQuery asks for the visits, under the tree that suits Gaussian noise.
func wideQuery() recipe.Quantiles {
	return recipe.Quantiles{Max: wideVisits, Width: 1, Branching: uint32(sketch.Branching(wideVisits+1, 2))}
}

// askQuantiles takes down what each row would answer.
func (h *histogram) askQuantiles(visits []int) {
	h.values = visits
	h.value = func(n int) client.Value { return client.Number(uint64(n)) }
	h.query = func(o *account.Options) {
		o.Name, o.Query = "Visits to a doctor in a year", wideQuery()
		o.Description = "How many times did you see a doctor in the past year?"
	}
	h.found.words = chartWords{
		title:  "Visits to a doctor in a year: deciles, and how many are in ranges",
		x:      "visits",
		y:      "reports",
		answer: fmt.Sprintf("%d marks at most in a tree over %d numbers, each", wideQuery().VDAFConfig().(dap.MultihotCountVecConfig).MaxWeight, wideVisits+1),
	}
	h.distribution = h.spread
}

// spread takes down deciles and ranges, and works out the truth of each.
func (h *histogram) spread(x *collector.Result) {
	r, sorted := h.found, slices.Sorted(slices.Values(h.values))
	for i, d := range x.Distribution.Deciles {
		rank := (len(sorted)*(i+1) + 9) / 10 // from 1 on
		r.Deciles = append(r.Deciles, Decile{d, uint64(sorted[rank-1])})
	}
	r.Estimate, r.Stderr, r.Interval95 = nil, nil, nil
	for _, in := range x.Distribution.Ranges {
		r.Labels = append(r.Labels, fmt.Sprintf("%d-%d", in.From, in.To))
		r.Estimate, r.Stderr, r.Interval95 = append(r.Estimate, in.Count), append(r.Stderr, in.Stderr), append(r.Interval95, in.Interval95)
		count := int64(0)
		for _, n := range h.values {
			if in.From <= uint64(n) && uint64(n) <= in.To {
				count++
			}
		}
		r.Truth = append(r.Truth, count)
	}
}

// writeDeciles writes a line for each decile, and nothing where there are none.
func (r *Report) writeDeciles(w io.Writer) {
	if len(r.Deciles) == 0 {
		return
	}
	fmt.Fprintf(w, "%8s  %6s  %6s  %s\n", "decile", "visits", "truth", "95 % interval")
	for _, d := range r.Deciles {
		fmt.Fprintf(w, "%6.0f %%  %6d  %6d  %d to %d\n", 100*d.Share, d.Value, d.Truth, d.Interval95[0], d.Interval95[1])
	}
	fmt.Fprintln(w)
}

// quantilesForger shards what a forger asks for as an answer of the lab that asks for
// deciles.
type quantilesForger struct{ *prio3.MultihotCountVec }

func newQuantilesForger(c dap.MultihotCountVecConfig) (vdaf.Client[int], error) {
	v, err := prio3.NewMultihotCountVec(2, int(c.Length), int(c.MaxWeight), int(c.ChunkLength))
	return quantilesForger{v}, err
}

// Shard implements [vdaf.Client].
func (f quantilesForger) Shard(ctx []byte, n int, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
	return f.MultihotCountVec.Shard(ctx, wideQuery().Marks([]uint64{uint64(n)}), nonce)
}
