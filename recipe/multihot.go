package recipe

import (
	"fmt"
	"math/bits"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
)

// Multihot asks each device for a vector of Length zeros and ones, at most MaxWeight of
// them ones; the answer is their sum (Prio3MultihotCountVec).
type Multihot struct {
	Length    uint32
	MaxWeight uint64 // 1 to Length
	Chunk     uint32 // of the proof, 1 to Length + bits(MaxWeight)
}

func (q Multihot) String() string {
	return fmt.Sprintf("each device marks at most %d of %s; the result is how many devices marked each",
		q.MaxWeight, count(uint64(q.Length), "item", "items"))
}

// Form is [Numbers].
func (Multihot) Form() Form { return Numbers }

func (q Multihot) Wanted() string {
	return fmt.Sprintf("a vector of %d zeros and ones, at most %d of them ones", q.Length, q.MaxWeight)
}

// Holds says whether there are so many zeros and ones, and not too many ones.
func (q Multihot) Holds(x []uint64) bool {
	return len(x) == int(q.Length) && within(x, 1) && sumWithin(x, q.MaxWeight)
}

// Add marks what a record does, the first places first, and no more than MaxWeight.
func (q Multihot) Add(sum, record []uint64) {
	left := q.MaxWeight
	for _, x := range sum {
		left -= x
	}
	for i, x := range record {
		set := min(x, 1) &^ sum[i] & min(left, 1)
		sum[i] |= set
		left -= set
	}
}

// MadeUp marks most often none, and the first places most often.
func (q Multihot) MadeUp(coins func() uint64) []uint64 {
	x := make([]uint64, q.Length)
	for range min(coins(), q.MaxWeight) {
		x[min(coins(), uint64(q.Length)-1)] = 1
	}
	return x
}

// Aggregates is the length of the vector.
func (q Multihot) Aggregates() int { return int(q.Length) }

// VDAFConfig is that of Prio3MultihotCountVec.
func (q Multihot) VDAFConfig() dap.VDAFConfig {
	return dap.MultihotCountVecConfig{Length: q.Length, MaxWeight: q.MaxWeight, ChunkLength: q.Chunk}
}

// Marks are the ones of the vector.
func (q Multihot) Marks(numbers []uint64) []bool {
	marks := make([]bool, len(numbers))
	for i, x := range numbers {
		marks[i] = x == 1
	}
	return marks
}

// Contribution is 1 in at most MaxWeight places.
func (q Multihot) Contribution() release.Contribution {
	return release.MultiHotOf(uint64(q.Length), q.MaxWeight)
}

func (Multihot) Largest() float64 { return 1 }
func (Multihot) Unit() float64    { return 1 }
func (Multihot) Averages() bool   { return false }
func (Multihot) Counts() bool     { return true }
func (Multihot) Choices() uint64  { return 0 }
func (Multihot) Part() string     { return "each number" }

func (Multihot) query() uint8 { return tagMultihot }

func (q Multihot) append(b *cryptobyte.Builder) {
	b.AddUint32(q.Length)
	b.AddUint64(q.MaxWeight)
	b.AddUint32(q.Chunk)
}

func readMultihot(d *decoder) Query {
	return Multihot{Length: d.u32("length"), MaxWeight: d.u64("max_weight"), Chunk: d.u32("chunk")}
}

func (q Multihot) params() any {
	return map[string]uint64{"length": uint64(q.Length), "max_weight": q.MaxWeight, "chunk": uint64(q.Chunk)}
}

func (q Multihot) validate(v *validator) {
	if v.between("query.length", uint64(q.Length), 1, MaxElements) && v.between("query.max_weight", q.MaxWeight, 1, uint64(q.Length)) {
		v.between("query.chunk", uint64(q.Chunk), 1, q.elements())
	}
}

// elements is the number of field elements that encode one answer.
func (q Multihot) elements() uint64 { return uint64(q.Length) + uint64(bits.Len64(q.MaxWeight)) }

func (q Multihot) withChunk() Query {
	q.Chunk = chunk(q.Chunk, q.elements())
	return q
}

func (Multihot) spread(x, _ float64) float64 { return x }
