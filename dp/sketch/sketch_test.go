package sketch

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// shapes are small trees, full and ragged.
func shapes(t *testing.T, do func(*Tree)) {
	for leaves := 2; leaves <= 11; leaves++ {
		for b := 2; b <= min(leaves, 5); b++ {
			tree, err := New(leaves, b)
			if err != nil {
				t.Fatal(err)
			}
			do(tree)
		}
	}
}

// TestShape: each bin is below one node of each level, levels narrow to the root, and
// paths that part at the top share nothing.
func TestShape(t *testing.T) {
	shapes(t, func(tree *Tree) {
		parted := 0
		for leaf := range tree.leaves {
			for o := range uint64(3) {
				marks, count := tree.Marks(uint64(leaf)*3+o, 3), 0
				for level := range tree.spans {
					for node := tree.first[level]; node < tree.first[level+1]; node++ {
						low, high := tree.covers(level, node)
						if marks[node] != (low <= leaf && leaf < high) {
							t.Fatalf("%d leaves, branching %d: bin %d, node %d: %v", tree.leaves, tree.branching, leaf, node, marks[node])
						}
						if marks[node] {
							count++
						}
					}
				}
				if count != tree.Levels() {
					t.Fatalf("%d nodes for %d levels", count, tree.Levels())
				}
			}
		}
		first, last := tree.Marks(0, 1), tree.Marks(math.MaxUint64, 1)
		for node := range first {
			if first[node] && last[node] {
				parted++
			}
		}
		if top := tree.first[1]; top < 2 || top > tree.branching || parted != 0 {
			t.Errorf("%d leaves, branching %d: %d nodes at the top, %d shared", tree.leaves, tree.branching, top, parted)
		}
	})
	for _, bad := range [][2]int{{1, 2}, {3, 1}, {3, 4}, {MaxLeaves + 1, 2}} {
		if _, err := New(bad[0], bad[1]); !errors.Is(err, errShape) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if full, err := New(MaxLeaves, 2); err != nil || full.Nodes() != 2*MaxLeaves-2 || full.Levels() != 20 {
		t.Errorf("%v", err)
	}
}

// solve returns the inverse of a positive definite matrix, by Gauss and Jordan.
func solve(a [][]float64) [][]float64 {
	n := len(a)
	for i := range a {
		a[i] = append(a[i], make([]float64, n)...)
		a[i][n+i] = 1
	}
	for i := range a {
		for j := range a[i] {
			if j != i {
				a[i][j] /= a[i][i]
			}
		}
		a[i][i] = 1
		for k := range a {
			if f := a[k][i]; k != i {
				for j := range a[k] {
					a[k][j] -= f * a[i][j]
				}
			}
		}
	}
	for i := range a {
		a[i] = a[i][n:]
	}
	return a
}

// TestLeastSquares: estimates and variances of all ranges are those of generalized least
// squares by dense algebra, over all bins but the last, which the number of people gives.
func TestLeastSquares(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	shapes(t, func(tree *Tree) {
		n := tree.leaves - 1
		variances := make([]float64, tree.Levels())
		for i := range variances {
			variances[i] = 0.2 + 5*r.Float64()
		}
		people, sums := uint64(r.IntN(300)), make([]int64, tree.Nodes())
		// sum = row x + constant, x the bins but the last
		information, right := make([][]float64, n), make([]float64, n)
		for i := range information {
			information[i] = make([]float64, n)
		}
		for level := range tree.spans {
			for node := tree.first[level]; node < tree.first[level+1]; node++ {
				sums[node] = r.Int64N(200) - 50
				low, high := tree.covers(level, node)
				row, y := make([]float64, n), float64(sums[node])
				for i := low; i < high; i++ {
					if i < n {
						row[i]++
						continue
					}
					y -= float64(people)
					for j := range row {
						row[j]--
					}
				}
				for i := range row {
					right[i] += row[i] * y / variances[level]
					for j := range row {
						information[i][j] += row[i] * row[j] / variances[level]
					}
				}
			}
		}
		covariance := solve(information)
		want, left := make([]float64, n+1), float64(people)
		for i := range n {
			for j := range n {
				want[i] += covariance[i][j] * right[j]
			}
			left -= want[i]
		}
		want[n] = left
		e, err := tree.Estimator(variances)
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.Bins(sums, people)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if math.Abs(got[i]-want[i]) > 1e-8 {
				t.Fatalf("%d leaves, branching %d: bins %v, want %v", tree.leaves, tree.branching, got, want)
			}
		}
		for low := range n + 1 {
			for high := low + 1; high <= n+1; high++ {
				w := make([]float64, n)
				for i := range w {
					if low <= i && i < high {
						w[i]++
					}
					if high == n+1 {
						w[i]--
					}
				}
				v := 0.0
				for i := range w {
					for j := range w {
						v += w[i] * w[j] * covariance[i][j]
					}
				}
				if got := e.Variance(low, high); math.Abs(got-v) > 1e-9 {
					t.Fatalf("%d leaves, branching %d: variance %v of %d to %d, want %v", tree.leaves, tree.branching, got, low, high, v)
				}
				if got := e.upTo(high); low == 0 && math.Abs(got-v) > 1e-9 {
					t.Fatalf("%d leaves, branching %d: variance %v up to %d, want %v", tree.leaves, tree.branching, got, high, v)
				}
			}
		}
	})
}

func TestEstimatorRefused(t *testing.T) {
	tree, _ := New(4, 2)
	for _, bad := range [][]float64{{1}, {1, 0}, {1, math.NaN()}, {1, 1, 1}} {
		if _, err := tree.Estimator(bad); !errors.Is(err, errShape) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	e, _ := tree.Estimator([]float64{1, 1})
	if _, err := e.Bins(make([]int64, 5), 3); !errors.Is(err, errShape) {
		t.Error("five sums for six nodes")
	}
}

// added are the exact sums of a tree over counts of bins.
func added(tree *Tree, counts []int64) (sums []int64, people uint64) {
	sums = make([]int64, tree.Nodes())
	for bin, count := range counts {
		people += uint64(count)
		for node, mark := range tree.Marks(uint64(bin), 1) {
			if mark {
				sums[node] += count
			}
		}
	}
	return sums, people
}

// TestExactQuantiles: without noise each quantile is the one by sorting, and its interval
// is that bin alone.
func TestExactQuantiles(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	shares := []float64{0.01, 0.1, 0.25, 0.5, 0.7, 0.9, 0.999}
	shapes(t, func(tree *Tree) {
		counts := make([]int64, tree.leaves)
		var sorted []int
		for bin := range counts {
			counts[bin] = r.Int64N(4) * 5 * r.Int64N(2)
			sorted = append(sorted, slices.Repeat([]int{bin}, int(counts[bin]))...)
		}
		if len(sorted) == 0 {
			return
		}
		sums, people := added(tree, counts)
		e := tree.even()
		bins, err := e.Bins(sums, people)
		if err != nil {
			t.Fatal(err)
		}
		for i, q := range e.Quantiles(bins, shares, 0) {
			rank := int(math.Ceil(shares[i]*float64(people) - roundoff))
			if want := sorted[rank-1]; q != (Quantile{want, want, want, true}) {
				t.Errorf("%v of %v: %+v, want %d", shares[i], counts, q, want)
			}
		}
	})
}

// TestCoverage: over 2,000 draws of normal noise, an interval of 95 % leaves the true bin
// out no more often than 151 times for any of nine deciles; at 100 expected, a false
// alarm has probability below 1e-6 over all nine. A tenth of the reach leaves it out far
// more often, so the interval is not simply all bins.
func TestCoverage(t *testing.T) {
	const runs, deviation = 2000, 40
	r := rand.New(rand.NewPCG(5, 6))
	tree, _ := New(200, 6)
	e, _ := tree.Estimator(slices.Repeat([]float64{deviation * deviation}, tree.Levels()))
	counts := make([]int64, 200)
	for range 5000 {
		counts[min(199, int(r.ExpFloat64()*40))]++
	}
	exact, people := added(tree, counts)
	var shares []float64
	for i := range 9 {
		shares = append(shares, float64(i+1)/10)
	}
	bins, _ := e.Bins(exact, people)
	truth := e.Quantiles(bins, shares, 0)
	missed, tight, width := make([]int, 9), 0, 0
	for range runs {
		sums := make([]int64, len(exact))
		for i := range sums {
			sums[i] = exact[i] + int64(math.Round(deviation*r.NormFloat64()))
		}
		bins, _ := e.Bins(sums, people)
		for i, q := range e.Quantiles(bins, shares, 1.96) {
			if truth[i].Bin < q.Low || truth[i].Bin > q.High {
				missed[i]++
			}
			width += q.High - q.Low
		}
		for i, q := range e.Quantiles(bins, shares, 0.196) {
			if truth[i].Bin < q.Low || truth[i].Bin > q.High {
				tight++
			}
		}
	}
	for i, n := range missed {
		if n > 151 {
			t.Errorf("decile %d is outside its interval %d times in %d", i+1, n, runs)
		}
	}
	if tight < runs || width > 9*runs*20 {
		t.Errorf("missed %d times by intervals a tenth as wide; mean width %d", tight, width/9/runs)
	}
}

// TestUndetected: under noise that drowns all counts no quantile is told from any other.
func TestUndetected(t *testing.T) {
	tree, _ := New(8, 2)
	e := tree.even()
	sums, people := added(tree, []int64{1, 0, 2, 1, 0, 0, 3, 1})
	bins, _ := e.Bins(sums, people)
	if q := e.Quantiles(bins, []float64{0.5}, 100)[0]; q.Detected || q.Low != 0 || q.High != 7 {
		t.Errorf("%+v", q)
	}
}

// TestRising: among all rising sequences of a few values none is nearer.
func TestRising(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	far := func(x, y []float64) (d float64) {
		for i := range x {
			d += (x[i] - y[i]) * (x[i] - y[i])
		}
		return d
	}
	for range 200 {
		x := []float64{0}
		for range 4 {
			x = append(x, float64(r.IntN(9)-2))
		}
		x = append(x, 5)
		got := rising(x)
		if !slices.IsSorted(got) || got[0] != 0 || got[5] != 5 {
			t.Fatalf("%v of %v", got, x)
		}
		for i := range 11 * 11 * 11 * 11 {
			y := []float64{0, float64(i%11) / 2, float64(i/11%11) / 2, float64(i/121%11) / 2, float64(i/1331) / 2, 5}
			if slices.IsSorted(y) && far(x, y) < far(x, got)-1e-9 {
				t.Fatalf("%v is nearer to %v than %v", y, x, got)
			}
		}
	}
}

// TestBranching: the choice is the best of all branchings of small trees, few bins are
// best left flat, many are not, and Laplace noise wants fewer levels.
func TestBranching(t *testing.T) {
	for _, leaves := range []int{2, 3, 10, 60} {
		for _, norm := range []int{1, 2} {
			cost := func(b int) float64 {
				tree, _ := New(leaves, b)
				v, _ := tree.RankVariance()
				if v *= float64(tree.Levels()); norm == 1 {
					v *= float64(tree.Levels())
				}
				return v
			}
			for b, best := 2, Branching(leaves, norm); b <= leaves; b++ {
				if cost(b) < cost(best) {
					t.Errorf("%d bins, norm %d: branching %d is better than %d", leaves, norm, b, best)
				}
			}
		}
	}
	if b := Branching(3, 2); b != 3 {
		t.Errorf("branching %d of three bins", b)
	}
	if b := Branching(1, 2); b != 0 {
		t.Errorf("branching %d of one bin", b)
	}
	levels := func(norm int) int {
		tree, _ := New(4096, Branching(4096, norm))
		return tree.Levels()
	}
	if levels(2) < 2 || levels(1) > levels(2) {
		t.Errorf("%d levels for Gaussian noise, %d for Laplace", levels(2), levels(1))
	}
}

// TestRankVariance: the largest is that of every place, also where nodes of upper levels do
// not end: figures of a direct sum, which places spread evenly take for 1.05, 1.01 and 7.27.
func TestRankVariance(t *testing.T) {
	for _, c := range []struct {
		leaves, branching int
		largest           float64
	}{{1024, 2, 1.527}, {4096, 2, 1.749}, {4096, 16, 11.02}} {
		tree, _ := New(c.leaves, c.branching)
		mean, largest := tree.RankVariance()
		if math.Abs(largest-c.largest) > .006 {
			t.Errorf("%d bins, branching %d: at most %.4g, want %.4g", c.leaves, c.branching, largest, c.largest)
		}
		if probed := tree.probed(); math.Abs(probed/mean-1) > .02 {
			t.Errorf("%d bins, branching %d: 256 places have a mean variance of %.4g, all of them %.4g", c.leaves, c.branching, probed, mean)
		}
	}
}
