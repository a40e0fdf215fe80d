package recipe

import (
	"fmt"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
)

// Histogram asks each device for a bucket in [0, Length); the answer is how many devices
// named each (Prio3Histogram).
type Histogram struct {
	Length uint32 // buckets
	Chunk  uint32 // of the proof, 1 to Length; see prio3.OptimalChunk
}

func (q Histogram) String() string {
	return fmt.Sprintf("each device names one of %s; the result is how many devices named each",
		count(uint64(q.Length), "bucket", "buckets"))
}

// Form is [Bucket].
func (Histogram) Form() Form       { return Bucket }
func (q Histogram) Wanted() string { return fmt.Sprintf("a bucket from 0 to %d", q.Length-1) }

// Holds says whether it is one of the buckets.
func (q Histogram) Holds(x []uint64) bool {
	return len(x) == 1 && q.Length > 0 && within(x, uint64(q.Length)-1)
}

// Add leaves the sum as it is: buckets have none.
func (Histogram) Add(_, _ []uint64) {}

// MadeUp is most often the first.
func (q Histogram) MadeUp(coins func() uint64) []uint64 {
	return []uint64{min(coins(), uint64(q.Length)-1)}
}

// Aggregates is the number of buckets.
func (q Histogram) Aggregates() int { return int(q.Length) }

// VDAFConfig is that of Prio3Histogram.
func (q Histogram) VDAFConfig() dap.VDAFConfig {
	return dap.HistogramConfig{Length: q.Length, ChunkLength: q.Chunk}
}

// Contribution is 1 in one place.
func (Histogram) Contribution() release.Contribution { return release.OneHot() }

func (Histogram) Largest() float64 { return 1 }
func (Histogram) Unit() float64    { return 1 }
func (Histogram) Averages() bool   { return false }
func (Histogram) Counts() bool     { return true }

// Choices are the buckets.
func (q Histogram) Choices() uint64 { return uint64(q.Length) }
func (q Histogram) Part() string    { return fmt.Sprintf("each of %d buckets", q.Length) }

func (Histogram) query() uint8 { return tagHistogram }

func (q Histogram) append(b *cryptobyte.Builder) {
	b.AddUint32(q.Length)
	b.AddUint32(q.Chunk)
}

func readHistogram(d *decoder) Query {
	return Histogram{Length: d.u32("length"), Chunk: d.u32("chunk")}
}

func (q Histogram) params() any {
	return map[string]uint64{"length": uint64(q.Length), "chunk": uint64(q.Chunk)}
}

func (q Histogram) validate(v *validator) {
	if v.between("query.length", uint64(q.Length), 1, MaxElements) {
		v.between("query.chunk", uint64(q.Chunk), 1, uint64(q.Length))
	}
}

func (q Histogram) withChunk() Query {
	q.Chunk = chunk(q.Chunk, uint64(q.Length))
	return q
}

func (Histogram) spread(x, _ float64) float64 { return x }
