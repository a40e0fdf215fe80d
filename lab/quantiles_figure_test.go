package lab

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/starling-agg/starling/dp/sketch"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/lab/internal/randhie"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

var writeQuantiles = flag.Bool("write-quantiles", false, "write the tables in docs/bench/quantiles.md anew, from 200 runs instead of 10")

// figureRuns are those of the page.
const figureRuns = 200

// A ladder is a way to the deciles of a column at one guarantee.
type ladder struct {
	words  string
	query  recipe.Quantiles
	fitted bool // sums are made consistent; else cumulative counts are added up as released
}

// TestQuantilesFigure compares ranks of deciles that are read from a flat histogram and
// from trees, each at epsilon 1 and delta 10^-6. With -write-quantiles it writes what 200
// runs show; without it holds ten to what must be: on a column with few ties the tree of
// the branching that is chosen is far better than the flat histogram and than sums as
// they are released.
func TestQuantilesFigure(t *testing.T) {
	visits, err := randhie.Visits()
	if err != nil {
		t.Fatal(err)
	}
	lognormal, r := make([]int, len(visits)), rand.New(rand.NewPCG(1, 1))
	for i := range lognormal {
		lognormal[i] = min(int(800*math.Exp(0.7*r.NormFloat64())), mostMadeUp)
	}
	play := func(name string, values []int, most uint64, fixed ...uint32) (mean []float64) {
		flat, best := uint32(most)+1, uint32(sketch.Branching(int(most)+1, 2))
		of := func(branching uint32) recipe.Quantiles {
			return recipe.Quantiles{Max: most, Width: 1, Branching: branching}
		}
		ladders := []ladder{
			{fmt.Sprintf("branching %d, fitted (chosen)", best), of(best), true},
			{fmt.Sprintf("branching %d, as released", best), of(best), false},
			{"flat, fitted to the number of reports", of(flat), true},
		}
		runs := figureRuns
		if !*writeQuantiles {
			runs, fixed = 10, nil
		}
		for _, b := range fixed {
			ladders = append(ladders, ladder{fmt.Sprintf("branching %d, fitted", b), of(b), true})
		}
		table := "| sums | nodes | levels | deviation of a sum | mean error of a rank | worst of nine, mean over runs | deciles exact |\n|---|---:|---:|---:|---:|---:|---:|\n"
		deviations := make(map[recipe.Quantiles]float64) // of a sum, for the guarantee
		for _, l := range ladders {
			if deviations[l.query] == 0 {
				noise, err := account.Calibrate(l.query, account.GaussianNoise, decimal("1"), decimal("0.000001"), 1)
				if err != nil {
					t.Fatal(err)
				}
				deviations[l.query] = noise.Spread().Deviation
			}
			deviation := deviations[l.query]
			off, worst, exact := l.play(t, values, runs, deviation)
			mean = append(mean, off)
			levels := 0
			for _, mark := range l.query.Marks([]uint64{0}) {
				if mark {
					levels++
				}
			}
			table += fmt.Sprintf("| %s | %d | %d | %.1f | %.1f | %.1f | %.0f %% |\n", l.words, l.query.Aggregates(), levels, deviation, off, worst, 100*exact)
		}
		if *writeQuantiles {
			disktest.HoldTable(t, filepath.Join("..", "docs", "bench", "quantiles.md"), name, table, true)
		}
		t.Logf("%s:\n%s", name, table)
		return mean
	}
	if *writeQuantiles {
		play("visits", visits, wideVisits, 2, 16)
	}
	if mean := play("lognormal", lognormal, mostMadeUp, 4, 16); mean[0] > mean[1]/2 || mean[0] > mean[2]/5 {
		t.Errorf("mean errors of ranks %v", mean)
	}
}

// mostMadeUp is the largest of the made-up numbers.
const mostMadeUp = 8191

// play returns the mean error of the nine ranks, the mean of each run's largest, and the
// share of deciles without one, in numbers of reports, under noise of a deviation.
func (l ladder) play(t *testing.T, values []int, runs int, deviation float64) (mean, worst, exact float64) {
	t.Helper()
	still, below := make([]int64, l.query.Aggregates()), make([]int, l.query.Max+2)
	marks := make([][]bool, l.query.Max+1)
	for _, v := range values {
		if marks[v] == nil {
			marks[v] = l.query.Marks([]uint64{uint64(v)})
		}
		for node, mark := range marks[v] {
			if mark {
				still[node]++
			}
		}
		below[v+1]++
	}
	for v := range below[1:] {
		below[v+1] += below[v]
	}
	r := rand.New(rand.NewPCG(uint64(l.query.Branching), l.query.Max))
	// The fit is the same whatever the deviation is said to be.
	x := recipe.Recipe{Query: l.query, Noise: recipe.NoNoise{}}
	for range runs {
		sums := slices.Clone(still)
		for node := range sums {
			sums[node] += int64(math.Round(deviation * r.NormFloat64()))
		}
		var deciles []uint64
		if l.fitted {
			d, err := x.Distribution(sums, uint64(len(values)))
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range d.Deciles {
				deciles = append(deciles, q.Value)
			}
		} else {
			deciles = l.asReleased(sums, len(values))
		}
		most := 0.0
		for i, v := range deciles {
			rank := (len(values)*(i+1) + 9) / 10
			off := float64(max(0, below[v]+1-rank, rank-below[v+1]))
			most = max(most, off)
			mean += off / float64(9*runs)
			if off == 0 {
				exact += 1 / float64(9*runs)
			}
		}
		worst += most / float64(runs)
	}
	return mean, worst, exact
}

// asReleased are the first numbers at which so many are counted, by the fewest nodes.
func (l ladder) asReleased(sums []int64, people int) (deciles []uint64) {
	n, b := int(l.query.Max)+1, int(l.query.Branching)
	spans := []int{1}
	for spans[0]*b < n {
		spans = slices.Insert(spans, 0, spans[0]*b)
	}
	upTo := make([]int64, n+1)
	first := 0
	for level, span := range spans {
		width := (n + span - 1) / span
		added := make([]int64, width+1)
		for i := range width {
			added[i+1] = added[i] + sums[first+i]
		}
		for k := range n + 1 {
			elder := 0 // the first of the siblings
			if level > 0 {
				elder = k / spans[level-1] * b
			}
			upTo[k] += added[k/span] - added[min(elder, k/span)]
		}
		first += width
	}
	for i := range 9 {
		k := 1
		for k < n && float64(upTo[k]) < float64(people*(i+1))/10 {
			k++
		}
		deciles = append(deciles, uint64(k-1))
	}
	return deciles
}
