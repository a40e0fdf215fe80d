package recipe

import (
	"fmt"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
)

// Mean asks each device for an integer in [0, Max]; the answer is their mean: the sum over
// the public count (Prio3Sum).
type Mean struct{ Max uint64 }

func (q Mean) String() string {
	return fmt.Sprintf("each device gives a whole number from 0 to %d; the result is their mean", q.Max)
}

// Form is [Number].
func (Mean) Form() Form       { return Number }
func (q Mean) Wanted() string { return fmt.Sprintf("a number from 0 to %d", q.Max) }

// Holds says whether it is at most Max.
func (q Mean) Holds(x []uint64) bool { return len(x) == 1 && within(x, q.Max) }

// Add adds, up to Max.
func (q Mean) Add(sum, record []uint64) { sum[0] = clippedSum(sum[0], record[0], q.Max) }

// MadeUp is most often 0.
func (q Mean) MadeUp(coins func() uint64) []uint64 { return []uint64{min(coins(), q.Max)} }

// Aggregates is 1.
func (Mean) Aggregates() int { return 1 }

// VDAFConfig is that of Prio3Sum.
func (q Mean) VDAFConfig() dap.VDAFConfig { return dap.SumConfig{MaxMeasurement: q.Max} }

// Contribution is from 0 to Max.
func (q Mean) Contribution() release.Contribution { return release.Interval(float64(q.Max)) }

func (q Mean) Largest() float64 { return float64(q.Max) }
func (Mean) Unit() float64      { return 1 }
func (Mean) Averages() bool     { return true }
func (Mean) Counts() bool       { return false }
func (Mean) Choices() uint64    { return 0 }
func (Mean) Part() string       { return "the mean" }

func (Mean) query() uint8 { return tagMean }

func (q Mean) append(b *cryptobyte.Builder) { b.AddUint64(q.Max) }

func (q Mean) params() any { return map[string]uint64{"max": q.Max} }

func (q Mean) validate(v *validator)       { v.between("query.max", q.Max, 1, MaxMeasurement) }
func (q Mean) withChunk() Query            { return q }
func (q Mean) spread(x, _ float64) float64 { return x * q.Largest() }
