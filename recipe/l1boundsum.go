package recipe

import (
	"fmt"
	"math/bits"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
)

// L1BoundSum asks each device for a vector of Length integers from 0 on that add up to at
// most Max; the answer is their sum (Prio3L1BoundSum). Where a device has a budget to
// spread over places, it hides behind less noise than a [SumVec] of that Max needs, which
// may have Max at every place.
type L1BoundSum struct {
	Length uint32
	Max    uint64 // of the sum of a vector
	Chunk  uint32 // of the proof, 1 to (Length+1)*bits(Max)
}

func (q L1BoundSum) String() string {
	return fmt.Sprintf("each device gives %s from 0 on that add up to at most %d, which it proves; the result is the sum at each place",
		count(uint64(q.Length), "whole number", "whole numbers"), q.Max)
}

// Form is [Numbers].
func (L1BoundSum) Form() Form { return Numbers }

func (q L1BoundSum) Wanted() string {
	return fmt.Sprintf("a vector of %d numbers from 0 on that add up to at most %d", q.Length, q.Max)
}

// Holds says whether there are so many, whose sum is not above Max.
func (q L1BoundSum) Holds(x []uint64) bool { return len(x) == int(q.Length) && sumWithin(x, q.Max) }

// Add adds at each place, the first places first, no more than Max in all.
func (q L1BoundSum) Add(sum, record []uint64) {
	left := q.Max
	for _, x := range sum {
		left -= x
	}
	for i, x := range record {
		x = min(x, left)
		sum[i] += x
		left -= x
	}
}

// MadeUp spreads most often nothing, and most of it over the first places.
func (q L1BoundSum) MadeUp(coins func() uint64) []uint64 {
	x := make([]uint64, q.Length)
	for range min(coins(), q.Max) {
		x[min(coins(), uint64(q.Length)-1)]++
	}
	return x
}

// Aggregates is the length of the vector.
func (q L1BoundSum) Aggregates() int { return int(q.Length) }

// VDAFConfig is that of Prio3L1BoundSum.
func (q L1BoundSum) VDAFConfig() dap.VDAFConfig {
	return dap.L1BoundSumConfig{Length: q.Length, MaxValue: q.Max, ChunkLength: q.Chunk}
}

// Contribution is whole numbers that add up to at most Max.
func (q L1BoundSum) Contribution() release.Contribution {
	return release.Simplex(uint64(q.Length), float64(q.Max))
}

func (q L1BoundSum) Largest() float64 { return float64(q.Max) }
func (L1BoundSum) Unit() float64      { return 1 }
func (L1BoundSum) Averages() bool     { return false }
func (L1BoundSum) Counts() bool       { return false }
func (L1BoundSum) Choices() uint64    { return 0 }
func (L1BoundSum) Part() string       { return "each number" }

func (L1BoundSum) query() uint8 { return tagL1BoundSum }

func (q L1BoundSum) append(b *cryptobyte.Builder) {
	b.AddUint32(q.Length)
	b.AddUint64(q.Max)
	b.AddUint32(q.Chunk)
}

func readL1BoundSum(d *decoder) Query {
	return L1BoundSum{Length: d.u32("length"), Max: d.u64("max"), Chunk: d.u32("chunk")}
}

func (q L1BoundSum) params() any {
	return map[string]uint64{"length": uint64(q.Length), "max": q.Max, "chunk": uint64(q.Chunk)}
}

func (q L1BoundSum) validate(v *validator) {
	v.numbers(q.Length, q.Max, q.Chunk, q.elements(), "and one more, times the bits of max,")
}

// elements is the number of field elements that encode one answer, its total among them.
func (q L1BoundSum) elements() uint64 { return (uint64(q.Length) + 1) * uint64(bits.Len64(q.Max)) }

func (q L1BoundSum) withChunk() Query {
	q.Chunk = chunk(q.Chunk, q.elements())
	return q
}

func (q L1BoundSum) spread(x, _ float64) float64 { return x * q.Largest() }
