package amplify

import (
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

func benchmark(b *testing.B, delta float64, make func() (*Curve, error)) {
	for b.Loop() {
		c, err := make()
		if err != nil {
			b.Fatal(err)
		}
		epsilon(b, c, delta)
	}
}

func BenchmarkShuffle1e4(b *testing.B) {
	benchmark(b, 1e-8, func() (*Curve, error) { return Shuffle(release.AnyReport(4), 1e4) })
}

func BenchmarkShuffle1e6(b *testing.B) {
	benchmark(b, 1e-8, func() (*Curve, error) { return Shuffle(release.AnyReport(1), 1e6) })
}

func BenchmarkShuffle1e9(b *testing.B) {
	benchmark(b, 1e-12, func() (*Curve, error) { return Shuffle(release.AnyReport(1), 1e9) })
}

func BenchmarkKary2e4(b *testing.B) {
	benchmark(b, 1e-8, func() (*Curve, error) { return Shuffle(kary(16)(2), 2e4) })
}

func BenchmarkKary1e9(b *testing.B) {
	benchmark(b, 1e-12, func() (*Curve, error) { return Shuffle(kary(16)(2), 1e9) })
}

func BenchmarkCheckIn1e9(b *testing.B) {
	benchmark(b, 1e-12, func() (*Curve, error) {
		return CheckIn{Schedule: release.FixedWindow, Slots: 1e9, Rate: .01}.Curve(release.AnyReport(1), release.ReplaceOne)
	})
}

func BenchmarkAllocation1e9(b *testing.B) {
	benchmark(b, 1e-12, func() (*Curve, error) { return Allocation(release.AnyPresence(1), 1e9, 1) })
}
