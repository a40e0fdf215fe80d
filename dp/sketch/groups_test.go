package sketch

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// ranges are small ranges of values with both signs.
var ranges = [][2]int64{{0, 1}, {0, 20}, {-5, 3}, {-4, -1}, {7, 9}, {-3, 3}}

func newGroups(t *testing.T, k int, low, high int64) *Groups {
	t.Helper()
	g, err := NewGroups(k, low, high)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestGroupsExact: without noise each group has the sum and the size by counting, whatever
// the values are, and every answer adds up to the range.
func TestGroupsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	for _, in := range ranges {
		for k := 2; k <= 5; k++ {
			g := newGroups(t, k, in[0], in[1])
			sums, sum, size := make([]int64, g.Places()), make([]float64, k), make([]float64, k)
			n := uint64(0)
			for value := in[0]; value <= in[1]; value++ {
				for group := range k {
					for range r.IntN(3) {
						total := uint64(0)
						for i, x := range g.Encode(value, uint32(group)) {
							sums[i] += int64(x)
							total += x
							if x != 0 && i%k != group {
								t.Fatalf("%d in group %d stands in place %d", value, group, i)
							}
						}
						if total != g.Range() {
							t.Fatalf("%d in group %d adds up to %d", value, group, total)
						}
						n, sum[group], size[group] = n+1, sum[group]+float64(value), size[group]+1
					}
				}
			}
			each, all, err := g.Moments(sums, n, 0)
			if err != nil {
				t.Fatal(err)
			}
			whole := 0.0
			for i, m := range each {
				whole += sum[i]
				if math.Abs(m.Sum-sum[i]) > 1e-9 || math.Abs(m.Size-size[i]) > 1e-9 || m.SumVariance != 0 || m.SizeVariance != 0 {
					t.Errorf("%v, group %d: %+v, want %v of %v", in, i, m, sum[i], size[i])
				}
			}
			if math.Abs(all.Sum-whole) > 1e-9 || all.Size != float64(n) {
				t.Errorf("%v: all together %+v, want %v of %d", in, all, whole, n)
			}
		}
	}
}

// TestGroupsVariances: what is stated of variances follows from what one more in each
// place changes, which is all that a linear estimate has.
func TestGroupsVariances(t *testing.T) {
	for _, in := range ranges {
		for k := 2; k <= 5; k++ {
			g := newGroups(t, k, in[0], in[1])
			still := make([]int64, g.Places())
			before, beforeAll, _ := g.Moments(still, 100, 1)
			var sum, size, covariance, total float64
			for i := range still {
				one := slices.Clone(still)
				one[i]++
				after, afterAll, err := g.Moments(one, 100, 1)
				if err != nil {
					t.Fatal(err)
				}
				s, n, a := after[0].Sum-before[0].Sum, after[0].Size-before[0].Size, afterAll.Sum-beforeAll.Sum
				sum, size, covariance, total = sum+s*s, size+n*n, covariance+s*n, total+a*a
			}
			m := before[0]
			for _, x := range [][2]float64{{m.SumVariance, sum}, {m.SizeVariance, size}, {m.Covariance, covariance}, {beforeAll.SumVariance, total},
				{beforeAll.SizeVariance, 0}, {beforeAll.Covariance, 0}} {
				if math.Abs(x[0]-x[1]) > 1e-9*max(1, x[1]) {
					t.Errorf("%v, %d groups: stated %v, is %v", in, k, x[0], x[1])
				}
			}
		}
	}
}

// TestGroupsLiar: whatever is in an answer that the proof lets pass, which adds up to no
// more than the range, it counts as devices do whose parts add up to one: no part below 0
// or above 1 in the size of a group, and a sum within that many times the values.
func TestGroupsLiar(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 24))
	for _, in := range ranges {
		g := newGroups(t, 3, in[0], in[1])
		for range 200 {
			x, left := make([]int64, g.Places()), int64(g.Range())
			for range r.IntN(8) {
				part := r.Int64N(left + 1)
				x[r.IntN(len(x))] += part
				left -= part
			}
			each, all, err := g.Moments(x, 1, 0)
			if err != nil {
				t.Fatal(err)
			}
			size := 0.0
			for _, m := range each {
				size += m.Size
				if low, high := m.Size*float64(in[0]), m.Size*float64(in[1]); m.Size < -1e-9 || m.Size > 1+1e-9 || m.Sum < low-1e-9 || m.Sum > high+1e-9 {
					t.Fatalf("%v of %v: %+v", x, in, m)
				}
			}
			if math.Abs(size-1) > 1e-9 || all.Size != 1 {
				t.Fatalf("%v counts as %v devices", x, size)
			}
		}
	}
}

func TestGroupsRefused(t *testing.T) {
	for _, bad := range []struct {
		k         int
		low, high int64
	}{{1, 0, 1}, {MaxGroups + 1, 0, 1}, {2, 3, 3}, {2, 4, 3}, {2, -maxValue - 1, 0}, {2, 0, maxValue + 1}, {2, -1, maxValue}, {2, math.MinInt64, math.MaxInt64}} {
		if _, err := NewGroups(bad.k, bad.low, bad.high); err == nil {
			t.Errorf("%+v accepted", bad)
		}
	}
	g := newGroups(t, 2, 0, 1)
	for _, n := range []int{0, 3, 5} {
		if _, _, err := g.Moments(make([]int64, n), 1, 1); err == nil {
			t.Errorf("%d sums accepted", n)
		}
	}
	// More than any batch holds does not wrap around.
	g = newGroups(t, 2, 0, maxValue)
	each, _, err := g.Moments([]int64{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64}, math.MaxUint64, 1)
	if err != nil || each[0].Size < 1e18 || each[0].Size > 1e20 {
		t.Errorf("%v, %v", each, err)
	}
}

// TestMeanOfGroup: bounds hold every mean whose product with the size is near the sum, and
// nothing else; where the size may be 0 they are those of the values.
func TestMeanOfGroup(t *testing.T) {
	m := GroupMoments{Sum: 600, Size: 200, SumVariance: 900, SizeVariance: 100, Covariance: 40}
	const z = 2
	mean, from, to, detected := m.Mean(z, -10, 20)
	if !detected || mean != 3 {
		t.Fatalf("%v %v", mean, detected)
	}
	for u := -10.0; u <= 20; u += 0.001 {
		off, v := m.Sum-u*m.Size, m.SumVariance-2*u*m.Covariance+u*u*m.SizeVariance
		if in := off*off <= z*z*v; in != (from <= u && u <= to) && math.Abs(u-from) > .001 && math.Abs(u-to) > .001 {
			t.Fatalf("%v is in: %v; bounds %v to %v", u, in, from, to)
		}
	}
	for _, c := range []struct {
		size, variance float64
		detected       bool
	}{{20, 100, false}, {20.001, 100, true}, {0, 0, false}, {-50, 100, false}, {1, 0, true}, {5, math.Inf(1), false}} {
		m := GroupMoments{Sum: 3 * c.size, Size: c.size, SizeVariance: c.variance}
		mean, from, to, detected := m.Mean(z, -1, 2)
		if detected != c.detected || mean < -1 || mean > 2 || from < -1 || to > 2 || !detected && (from != -1 || to != 2) {
			t.Errorf("%+v: mean %v from %v to %v, %v", c, mean, from, to, detected)
		}
	}
}
