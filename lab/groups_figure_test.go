package lab

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/starling-agg/starling/dp/local"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

var writeGroups = flag.Bool("write-groups", false, "write the table of two servers in docs/bench/groups.md anew")

// TestGroupsFigure compares sums by group of two servers with what devices answer where
// nobody is trusted, at one epsilon: normalised mean square errors, by formula, and of the
// estimates of 2,000 draws of noise with fixed seeds. It holds the measured ones to the
// formula within five standard errors (a false alarm below 1e-5), and the page to all.
func TestGroupsFigure(t *testing.T) {
	const n, runs = AllRows, 2000
	table := "| k | m | epsilon | question & answer | randomized group | columns as shares | two servers | measured | standard error | better than question & answer |\n" +
		"|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
	for i, c := range []struct {
		k, m    int
		epsilon string
	}{{2, 1, "1"}, {4, 1, "1"}, {8, 1, "1"}, {8, 4, "1"}, {16, 2, "1"}, {4, 10, "1"}, {8, 10, "1"}, {8, 4, "0.2"}, {8, 4, "4"}} {
		epsilon := decimal(c.epsilon)
		plans, err := local.PlanGroups(local.GroupOptions{Groups: c.k, Largest: c.m, Epsilon: epsilon.Float()})
		if err != nil {
			t.Fatal(err)
		}
		alpha := make(map[local.GroupScheme]float64)
		for _, p := range plans {
			alpha[p.Scheme] = p.Alpha
		}
		q := recipe.GroupSums{Min: -int64(c.m), Max: int64(c.m), Groups: uint32(c.k)}
		// Of delta 0, as what devices answer has.
		noise, err := account.Calibrate(q, account.LaplaceNoise, epsilon, recipe.Decimal{}, 1)
		if err != nil {
			t.Fatal(err)
		}
		variance := noise.Spread().Deviation * noise.Spread().Deviation // of both servers
		byFormula := float64(c.k) * q.SumVariance() * variance / (n * n)

		// The servers could multiply the one-hot column of the true value in each device's
		// table by that table, in shares. Then (k-1) T/n are of the rows of other groups (T is
		// the mean square of +-1..+-m), and k places move by 2m each where an answer changes.
		k, m := float64(c.k), float64(c.m)
		scale := 2 * m * k / epsilon.Float()
		columns := (k-1)*(m+1)*(2*m+1)/6/n + k*4*scale*scale/(n*n)

		still := make([]int64, q.Aggregates())
		truth, r := make([]float64, c.k), rand.New(rand.NewPCG(51, uint64(i)))
		for range n {
			group, v := min(r.IntN(c.k), r.IntN(c.k)), int64(1+r.IntN(c.m))
			if r.IntN(4) == 0 {
				v = -v
			}
			truth[group] += float64(v)
			for place, x := range q.Encode([]uint64{uint64(v), uint64(group)}) {
				still[place] += int64(x)
			}
		}
		b := noise.(recipe.DiscreteLaplace).Scale.Float()
		draw := func() int64 {
			plus, minus := int64(b*r.ExpFloat64()), int64(b*r.ExpFloat64())
			return plus - minus
		}
		x := recipe.Recipe{Query: q, Noise: noise}
		var sum, squares float64
		for range runs {
			sums := slices.Clone(still)
			for place := range sums {
				sums[place] += draw() + draw()
			}
			found, err := x.GroupTable(sums, n)
			if err != nil {
				t.Fatal(err)
			}
			nmse := 0.0
			for g, row := range found.Groups {
				off := (row.Sum.Estimate - truth[g]) / n
				nmse += off * off
			}
			sum, squares = sum+nmse/runs, squares+nmse*nmse/runs
		}
		stderr := math.Sqrt((squares - sum*sum) / (runs - 1))
		if off := (sum - byFormula) / stderr; math.Abs(off) > 5 {
			t.Errorf("k %d, m %d, epsilon %s: measured %v, by formula %v: %.1f standard errors off", c.k, c.m, c.epsilon, sum, byFormula, off)
		}
		question := alpha[local.ByQuestion] / n
		table += fmt.Sprintf("| %d | %d | %s | %.3g | %.3g | %.3g | %.4g | %.4g | %.1g | %.0f times |\n", c.k, c.m, c.epsilon, question,
			alpha[local.ByRandomGroup]/n, columns, byFormula, sum, stderr, question/byFormula)
	}
	disktest.HoldTable(t, filepath.Join("..", "docs", "bench", "groups.md"), "servers", table, *writeGroups)
}
