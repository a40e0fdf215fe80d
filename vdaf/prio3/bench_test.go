package prio3

import (
	"testing"

	"github.com/starling-agg/starling/vdaf"
)

// benchmarks are the parameters of libprio-rs's speed_tests, and SumVec with a maximum of
// 255 and L1BoundSum beside them.
func benchmarks() []fixture {
	count, sum := must(NewCount(2)), must(NewSum(2, 255))
	vec, hist := must(NewSumVec(2, 1000, 255, 89)), must(NewHistogram(2, 1000, 31))
	l1, few := must(NewL1BoundSum(2, 1000, 255, 89)), make([]uint64, 1000)
	few[3], few[500] = 200, 55
	elems := make([]uint64, 1000)
	for i := range elems {
		elems[i] = uint64(i % 256)
	}
	return []fixture{
		{"Count", count, func(_ int, n *[16]byte) (*vdaf.Shares, error) { return count.Shard(testCtx, true, n) }, nil},
		{"Sum255", sum, func(_ int, n *[16]byte) (*vdaf.Shares, error) { return sum.Shard(testCtx, 200, n) }, nil},
		{"SumVec1000max255", vec, func(_ int, n *[16]byte) (*vdaf.Shares, error) { return vec.Shard(testCtx, elems, n) }, nil},
		{"L1BoundSum1000max255", l1, func(_ int, n *[16]byte) (*vdaf.Shares, error) { return l1.Shard(testCtx, few, n) }, nil},
		{"Histogram1000", hist, func(_ int, n *[16]byte) (*vdaf.Shares, error) { return hist.Shard(testCtx, 123, n) }, nil},
	}
}

func BenchmarkShard(b *testing.B) {
	for _, f := range benchmarks() {
		b.Run(f.name, func(b *testing.B) {
			var nonce [vdaf.NonceSize]byte
			for b.Loop() {
				if _, err := f.shard(0, &nonce); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkVerifyInit verifies batches of 64 on one core; ns/report is the figure to
// compare.
func BenchmarkVerifyInit(b *testing.B) {
	const n = 64
	for _, f := range benchmarks() {
		for agg, role := range []string{"leader", "helper"} {
			b.Run(f.name+"/"+role, func(b *testing.B) {
				x := newBatch(b, f, n)
				for b.Loop() {
					f.v.VerifyInit(x.states[agg], &testKey, testCtx, agg, &x.in[agg], x.shares[agg], x.errs)
				}
				for _, err := range x.errs {
					if err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/report")
			})
		}
	}
}
