package sqlite

import (
	"fmt"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/internal/disk"
)

// BenchmarkDraw correlates the noise of a release with that of 15 earlier ones, on the
// disk that the temporary directory is on.
func BenchmarkDraw(b *testing.B) {
	for _, entries := range []int{1 << 14, 1 << 18, 1 << 20} {
		b.Run(fmt.Sprint(entries), func(b *testing.B) {
			fsys, err := disk.OS(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			defer fsys.Close()
			s, err := Open(b.Context(), Options{FS: fsys})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			strategy, err := correlated.SquareRoot(16, 8)
			if err != nil {
				b.Fatal(err)
			}
			ser := &store.Series{Rule: correlated.Series{Strategy: strategy, Separation: 16, Rounds: 1000}, Units: 1}
			draw := make([]int64, entries)
			var past []noiseRow
			for range 15 {
				x := series{lean: past, written: new(noiseRow)}
				if _, err := s.correlate(ser, &x, draw); err != nil {
					b.Fatal(err)
				}
				past = append([]noiseRow{*x.written}, past...)
			}
			b.SetBytes(int64(16 * 8 * entries))
			b.ReportAllocs()
			for b.Loop() {
				x := series{lean: past, written: new(noiseRow)}
				if _, err := s.correlate(ser, &x, draw); err != nil {
					b.Fatal(err)
				}
				s.dropNoise(b.Context(), *x.written)
			}
		})
	}
}
