package postgres

import (
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/store"
)

// TestTrickleIsWrittenFewTimes: what comes in small objects is written again a few times until
// it lies in large ones, of which there are few, and never more at once than is bounded.
func TestTrickleIsWrittenFewTimes(t *testing.T) {
	const each, comes = 200, 30_000 // bytes, and objects
	waiting := make(map[int64]int64)
	written, most, next := int64(0), 0, int64(0)
	for range comes {
		next++
		waiting[next] = each
		for {
			l := &lefts{small: make(map[int][]int64), size: waiting}
			for row, size := range waiting {
				if size <= smallBytes {
					l.small[leftTier(size)] = append(l.small[leftTier(size)], row)
				}
			}
			rows, sum := l.list(), int64(0)
			if len(rows) == 0 {
				break
			}
			for _, row := range rows {
				sum += waiting[row]
				delete(waiting, row)
			}
			if sum > store.LeftoverBytes {
				t.Fatalf("%d bytes are moved at once", sum)
			}
			next++
			waiting[next], written = sum, written+sum
		}
		most = max(most, len(waiting))
	}
	if limit := (leftTier(smallBytes)+1)*manySmall + each*comes/smallBytes + 1; most > limit {
		t.Errorf("%d objects, want at most %d", most, limit)
	}
	if times := float64(written) / (each * comes); times > 8 {
		t.Errorf("each byte is written again %.1f times", times)
	}
	// Those that are worn are no more at once than the rest.
	l := &lefts{worn: []int64{1, 2, 3}, size: map[int64]int64{1: store.LeftoverBytes - 1, 2: 1, 3: 1}}
	if rows := l.list(); len(rows) != 2 {
		t.Errorf("%d worn objects at once", len(rows))
	}
	l.size[1] = 2 * store.LeftoverBytes
	if rows := l.list(); len(rows) != 1 {
		t.Errorf("%d worn objects at once", len(rows))
	}
}
