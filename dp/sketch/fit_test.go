package sketch

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// rooted are all rooted trees of up to 6 nodes, by the parents of their nodes.
func rooted(do func(parent []int)) {
	var grow func(parent []int)
	grow = func(parent []int) {
		if len(parent) > 0 {
			do(parent)
		}
		if len(parent) < 6 {
			for p := -1; p < len(parent); p++ {
				grow(append(parent[:len(parent):len(parent)], p))
			}
		}
	}
	grow(nil)
}

// TestFit: of every rooted tree of up to 6 nodes, of any shape, estimates and variances of
// all nodes are those of generalized least squares by dense algebra over the leaves but
// one, which the total gives; and what is estimated adds up.
func TestFit(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	trees := 0
	rooted(func(parent []int) {
		trees++
		n := len(parent)
		leaf := make([]bool, n)
		for i := range leaf {
			leaf[i] = true
		}
		for _, p := range parent {
			if p >= 0 {
				leaf[p] = false
			}
		}
		var place []int // of each leaf
		leaves := 0
		for _, is := range leaf {
			place = append(place, leaves)
			if is {
				leaves++
			}
		}
		free := leaves - 1
		// rows[i] says which leaves are below node i, the last one by what it is not.
		rows, total := make([][]float64, n), uint64(r.IntN(100))
		constant := make([]float64, n)
		for i := range rows {
			rows[i] = make([]float64, free)
		}
		for i := range n {
			if !leaf[i] {
				continue
			}
			for a := i; a >= 0; a = parent[a] {
				if place[i] < free {
					rows[a][place[i]]++
					continue
				}
				constant[a] += float64(total)
				for j := range free {
					rows[a][j]--
				}
			}
		}
		variance, sums := make([]float64, n), make([]int64, n)
		information, right := make([][]float64, free), make([]float64, free)
		for i := range information {
			information[i] = make([]float64, free)
		}
		for i := range n {
			variance[i], sums[i] = 0.2+5*r.Float64(), r.Int64N(90)-20
			for j := range free {
				right[j] += rows[i][j] * (float64(sums[i]) - constant[i]) / variance[i]
				for k := range free {
					information[j][k] += rows[i][j] * rows[i][k] / variance[i]
				}
			}
		}
		covariance := solve(information)
		f, err := NewFit(parent, variance)
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.Counts(sums, total)
		if err != nil {
			t.Fatal(err)
		}
		variances, below, largest := f.Variances(), make([]float64, n), 0.0
		all := 0.0
		for i := range n {
			want, v := constant[i], 0.0
			for j := range free {
				for k := range free {
					want += rows[i][j] * covariance[j][k] * right[k]
					v += rows[i][j] * covariance[j][k] * rows[i][k]
				}
			}
			if math.Abs(got[i]-want) > 1e-8 || math.Abs(variances[i]-v) > 1e-8 {
				t.Fatalf("%v: node %d is %v with variance %v, want %v, %v", parent, i, got[i], variances[i], want, v)
			}
			if largest = max(largest, v); parent[i] >= 0 {
				below[parent[i]] += got[i]
			} else {
				all += got[i]
			}
		}
		for i := range n {
			if !leaf[i] && math.Abs(below[i]-got[i]) > 1e-8 {
				t.Fatalf("%v: the children of %d add up to %v, not %v", parent, i, below[i], got[i])
			}
		}
		if math.Abs(all-float64(total)) > 1e-8 || math.Abs(f.LargestVariance()-largest) > 1e-8 {
			t.Fatalf("%v: all add up to %v of %d; largest variance %v of %v", parent, all, total, f.LargestVariance(), largest)
		}
	})
	if trees != 1+2+6+24+120+720 {
		t.Errorf("%d trees", trees)
	}
}

func TestFitRefused(t *testing.T) {
	for _, bad := range []struct {
		parent   []int
		variance []float64
	}{
		{nil, nil}, {[]int{-1}, []float64{1, 1}}, {[]int{0}, []float64{1}}, {[]int{-2}, []float64{1}}, {[]int{-1, 2, -1}, []float64{1, 1, 1}},
		{[]int{-1}, []float64{0}}, {[]int{-1}, []float64{math.NaN()}}, {[]int{-1}, []float64{math.Inf(1)}},
		{make([]int, 2*MaxLeaves+1), make([]float64, 2*MaxLeaves+1)},
	} {
		if _, err := NewFit(bad.parent, bad.variance); !errors.Is(err, errShape) {
			t.Errorf("%d nodes: %v", len(bad.parent), err)
		}
	}
	f, _ := NewFit([]int{-1, 0}, []float64{1, 1})
	if _, err := f.Counts([]int64{1}, 1); !errors.Is(err, errShape) {
		t.Error("one sum for two nodes")
	}
}

// TestFitCovers: over 2,000 draws of normal noise on a ragged tree, 95 % intervals of no
// node leave its count out more than 155 times (100 are expected; over 7 nodes a false
// alarm has probability below 1e-6), of none that the total does not fix fewer than 50.
func TestFitCovers(t *testing.T) {
	const runs, deviation = 2000, 30
	r := rand.New(rand.NewPCG(23, 24))
	parent := []int{-1, -1, 0, 0, 0, 2, 2}
	exact := []int64{700, 300, 500, 150, 50, 490, 10}
	variance := make([]float64, len(parent))
	for i := range variance {
		variance[i] = deviation * deviation
	}
	f, _ := NewFit(parent, variance)
	deviations := f.Variances()
	missed := make([]int, len(parent))
	for range runs {
		sums := make([]int64, len(exact))
		for i := range sums {
			sums[i] = exact[i] + int64(math.Round(deviation*r.NormFloat64()))
		}
		got, _ := f.Counts(sums, 1000)
		for i, x := range got {
			if math.Abs(x-float64(exact[i])) > 1.96*math.Sqrt(deviations[i]) {
				missed[i]++
			}
		}
	}
	for i, n := range missed {
		if n > 155 || n < 50 {
			t.Errorf("node %d is outside its interval %d times in %d", i, n, runs)
		}
	}
}

func TestDetected(t *testing.T) {
	for _, c := range []struct {
		count, deviation float64
		want             State
	}{{0, 0, Value}, {3, 1, Value}, {1.9, 1, BelowDetection}, {-5, 1, BelowDetection}, {math.NaN(), 1, BelowDetection}} {
		if got := Detected(c.count, c.deviation, 2); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
