package aggregator_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/dp/noise/noisetest"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/pine"
)

// vectors is a task of PINE.
func vectors(field uint32, dim int, bound uint64) (dap.PineConfig, *pine.Pine) {
	c := dap.PineConfig{Field: field, Dimension: uint32(dim), FracBits: 10, Bound: bound}
	return c, must(pine.New(c.PineParams()))
}

// vector is a report of integers.
func (p *pair) vector(v *pine.Pine, e []int64, s spoil) dap.Report {
	p.t.Helper()
	s.Shard = func(ctx []byte, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
		return v.ShardIntegers(ctx, e, nonce)
	}
	return p.report(0, s)
}

// misfit is Pearson's statistic of draws against the law of the sum of two discrete
// Gaussians of the given variances (one that is zero is no noise), with places put
// together until each is expected 5 times, and its degrees of freedom.
func misfit(draws []int64, variances ...float64) (x2 float64, freedom int) {
	const reach = 200
	law := map[int]float64{0: 1}
	for _, v := range variances {
		pmf, total := map[int]float64{}, 0.0
		for y := -reach; y <= reach; y++ {
			pmf[y] = math.Exp(-float64(y*y) / (2 * v))
			total += pmf[y]
		}
		next := map[int]float64{}
		for a, p := range law {
			for b, q := range pmf {
				next[a+b] += p * q / total
			}
		}
		law = next
	}
	counts := map[int]float64{}
	for _, d := range draws {
		counts[int(d)]++
	}
	expected, seen, all := 0.0, 0.0, 0.0
	n := float64(len(draws))
	for y := -2 * reach; y <= 2*reach; y++ {
		expected += law[y] * n
		seen += counts[y]
		if expected >= 5 && n-all-expected >= 5 {
			x2 += (seen - expected) * (seen - expected) / expected
			all, expected, seen = all+expected, 0, 0
			freedom++
		}
	}
	return x2 + (seen-expected)*(seen-expected)/expected, freedom
}

// quantile of the chi-square law that is exceeded once in 10^6 (Wilson and Hilferty 1931,
// good to a part in 1000 here).
func quantile(freedom int) float64 {
	d := 2 / (9 * float64(freedom))
	return float64(freedom) * math.Pow(1-d+4.7534*math.Sqrt(d), 3)
}

// An all-zero collection shows the noise alone: 4096 entries, each the sum of two
// independent discrete Gaussians, one of each server. False rejects once in 10^6 seeds;
// the seeds are fixed.
func TestVectorNoiseFits(t *testing.T) {
	const dim = 4096
	config, v := vectors(dap.TypePine32, dim, 1024)
	g := must(noise.NewDiscreteGaussian(9, 1))
	p := newPair(t, setup{
		config: config,
		leader: func(o *leader.Options) { o.Tasks = withNoise(o.Tasks, noisetest.DiscreteGaussian(g, [32]byte{1})) },
		helper: func(o *helper.Options) { o.Tasks = withNoise(o.Tasks, noisetest.DiscreteGaussian(g, [32]byte{2})) },
	})
	for range 10 {
		p.accept(p.vector(v, make([]int64, dim), spoil{}))
	}
	resp, got := p.collect(p.query())
	if resp.ReportCount != 10 || len(got) != dim {
		t.Fatalf("%d reports, %d entries", resp.ReportCount, len(got))
	}
	if x2, freedom := misfit(got, 9, 9); freedom < 20 || x2 > quantile(freedom) {
		t.Errorf("chi-square %v with %d degrees of freedom, want at most %v", x2, freedom, quantile(freedom))
	}
	// The test tells wrong noise: of one server only, of the same draws twice, a little
	// too wide.
	for _, wrong := range [][]float64{{9}, {36}, {12, 12}} {
		if x2, freedom := misfit(got, wrong...); x2 < quantile(freedom) {
			t.Errorf("variances %v fit as well: chi-square %v", wrong, x2)
		}
	}
}

// withNoise are the tasks with another sampler.
func withNoise(tasks []aggregator.Task, n noise.Sampler) []aggregator.Task {
	tasks = append([]aggregator.Task{}, tasks...)
	tasks[0].Noise = n
	return tasks
}

// Of n devices k attack in every way they have; those that are counted move the mean by
// exactly k*B/n, and no vote of theirs weighs more (paper 000, section 4.7).
func TestVectorAttackersAreBounded(t *testing.T) {
	const dim, bound, honest, attackers = 100, 1024, 30, 6
	for _, field := range []uint32{dap.TypePine32, dap.TypePine40, dap.TypePine64, dap.TypePine128} {
		config, v := vectors(field, dim, bound)
		p := newPair(t, setup{config: config})
		sum := make([]int64, dim)
		for i := range honest {
			e := make([]int64, dim)
			for j := range e {
				e[j] = int64((i*31+j*17)%60 - 30)
				sum[j] += e[j]
			}
			p.accept(p.vector(v, e, spoil{}))
		}
		// All that PINE allows in one direction.
		push := make([]int64, dim)
		push[0] = bound
		for range attackers {
			p.accept(p.vector(v, push, spoil{}))
		}
		// And what it does not: an entry that is larger, in the leader's share; another
		// vector's proof; the proof of another report.
		larger := func(by uint64) func(*vdaf.Shares) {
			return func(s *vdaf.Shares) {
				binary.LittleEndian.PutUint16(s.Inputs[0], binary.LittleEndian.Uint16(s.Inputs[0])+uint16(by))
			}
		}
		other := must(v.ShardIntegers(p.dialect.VDAFContext(p.id), push, &[vdaf.NonceSize]byte{1}))
		for range attackers {
			p.accept(p.vector(v, push, spoil{Share: larger(1)}), p.vector(v, push, spoil{Share: larger(1 << 15)}),
				p.vector(v, push, spoil{Share: func(s *vdaf.Shares) { *s = *other }}),
				p.vector(v, make([]int64, dim), spoil{Share: func(s *vdaf.Shares) { copy(s.Inputs[0], other.Inputs[0][:8]) }}))
		}
		resp, got := p.collect(p.query())
		if resp.ReportCount != honest+attackers {
			t.Errorf("%#x: %d reports count, want %d", field, resp.ReportCount, honest+attackers)
		}
		moved := 0.0
		for j := range got {
			moved += float64(got[j]-sum[j]) * float64(got[j]-sum[j])
		}
		if moved = math.Sqrt(moved); moved != attackers*bound {
			t.Errorf("%#x: %d attackers moved the sum by %v units, want at most %d", field, attackers, moved, attackers*bound)
		}
		counts, err := p.leader.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := counts.Tasks[0].Counts.Rejected; sumOf(n) != 4*attackers {
			t.Errorf("%#x: rejected %v, want %d", field, n, 4*attackers)
		}
	}
}

func sumOf[K comparable](m map[K]uint64) (n uint64) {
	for _, x := range m {
		n += x
	}
	return n
}
