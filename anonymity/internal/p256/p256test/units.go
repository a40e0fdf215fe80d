//go:build unix

package p256test

import (
	"syscall"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// InUnits times f against multiplications in constant time, by turns within one run, and
// reports what one of n things that f does costs in these: M. Both are processor time, so
// that other load counts little, and what slows one slows the other.
func InUnits(b *testing.B, n int, f func()) {
	g := p256.Generator()
	k, p := p256.HashToScalar([]byte("a scalar"), "p256test"), p256.Mul(p256.ScalarOf(3), g.Point())
	units := max(4, n)
	var of, unit time.Duration
	for b.Loop() {
		start := cpu()
		f()
		between := cpu()
		for range units {
			p256.Mul(k, p)
		}
		of += between - start
		unit += cpu() - between
	}
	b.ReportMetric(float64(of)/float64(n)/(float64(unit)/float64(units)), "M/op")
	b.ReportMetric(float64(unit.Microseconds())/float64(units*b.N), "µs/M")
	b.ReportMetric(0, "ns/op")
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
