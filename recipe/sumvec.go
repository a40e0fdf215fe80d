package recipe

import (
	"fmt"
	"math/bits"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
)

// SumVec asks each device for a vector of Length integers in [0, Max]; the answer is their
// sum (Prio3SumVec).
type SumVec struct {
	Length uint32
	Max    uint64
	Chunk  uint32 // of the proof, 1 to Length*bits(Max)
}

func (q SumVec) String() string {
	return fmt.Sprintf("each device gives %s from 0 to %d; the result is the sum at each place",
		count(uint64(q.Length), "whole number", "whole numbers"), q.Max)
}

// Form is [Numbers].
func (SumVec) Form() Form { return Numbers }

func (q SumVec) Wanted() string {
	return fmt.Sprintf("a vector of %d numbers from 0 to %d", q.Length, q.Max)
}

// Holds says whether there are so many, none above Max.
func (q SumVec) Holds(x []uint64) bool { return len(x) == int(q.Length) && within(x, q.Max) }

// Add adds at each place, up to Max.
func (q SumVec) Add(sum, record []uint64) {
	for i, x := range record {
		sum[i] = clippedSum(sum[i], x, q.Max)
	}
}

// MadeUp is most often 0 at each place.
func (q SumVec) MadeUp(coins func() uint64) []uint64 {
	x := make([]uint64, q.Length)
	for i := range x {
		x[i] = min(coins(), q.Max)
	}
	return x
}

// Aggregates is the length of the vector.
func (q SumVec) Aggregates() int { return int(q.Length) }

// VDAFConfig is that of Prio3SumVec.
func (q SumVec) VDAFConfig() dap.VDAFConfig {
	return dap.SumVecConfig{Length: q.Length, MaxMeasurement: q.Max, ChunkLength: q.Chunk}
}

// Contribution is from 0 to Max at each place.
func (q SumVec) Contribution() release.Contribution {
	return release.Vector(uint64(q.Length), float64(q.Max))
}

func (q SumVec) Largest() float64 { return float64(q.Max) }
func (SumVec) Unit() float64      { return 1 }
func (SumVec) Averages() bool     { return false }
func (SumVec) Counts() bool       { return false }
func (SumVec) Choices() uint64    { return 0 }
func (SumVec) Part() string       { return "each number" }

func (SumVec) query() uint8 { return tagSumVec }

func (q SumVec) append(b *cryptobyte.Builder) {
	b.AddUint32(q.Length)
	b.AddUint64(q.Max)
	b.AddUint32(q.Chunk)
}

func readSumVec(d *decoder) Query {
	return SumVec{Length: d.u32("length"), Max: d.u64("max"), Chunk: d.u32("chunk")}
}

func (q SumVec) params() any {
	return map[string]uint64{"length": uint64(q.Length), "max": q.Max, "chunk": uint64(q.Chunk)}
}

func (q SumVec) validate(v *validator) {
	v.numbers(q.Length, q.Max, q.Chunk, q.elements(), "times the bits of max")
}

// elements is the number of field elements that encode one answer.
func (q SumVec) elements() uint64 { return uint64(q.Length) * uint64(bits.Len64(q.Max)) }

func (q SumVec) withChunk() Query {
	q.Chunk = chunk(q.Chunk, q.elements())
	return q
}

func (q SumVec) spread(x, _ float64) float64 { return x * q.Largest() }
