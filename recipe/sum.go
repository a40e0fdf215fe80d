package recipe

import (
	"fmt"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
)

// Sum asks each device for an integer in [0, Max]; the answer is their sum (Prio3Sum).
type Sum struct{ Max uint64 }

func (q Sum) String() string {
	return fmt.Sprintf("each device gives a whole number from 0 to %d; the result is their sum", q.Max)
}

// Form is [Number].
func (Sum) Form() Form       { return Number }
func (q Sum) Wanted() string { return fmt.Sprintf("a number from 0 to %d", q.Max) }

// Holds says whether it is at most Max.
func (q Sum) Holds(x []uint64) bool { return len(x) == 1 && within(x, q.Max) }

// Add adds, up to Max.
func (q Sum) Add(sum, record []uint64) { sum[0] = clippedSum(sum[0], record[0], q.Max) }

// MadeUp is most often 0.
func (q Sum) MadeUp(coins func() uint64) []uint64 { return []uint64{min(coins(), q.Max)} }

// Aggregates is 1.
func (Sum) Aggregates() int { return 1 }

// VDAFConfig is that of Prio3Sum.
func (q Sum) VDAFConfig() dap.VDAFConfig { return dap.SumConfig{MaxMeasurement: q.Max} }

// Contribution is from 0 to Max.
func (q Sum) Contribution() release.Contribution { return release.Interval(float64(q.Max)) }

func (q Sum) Largest() float64 { return float64(q.Max) }
func (Sum) Unit() float64      { return 1 }
func (Sum) Averages() bool     { return false }
func (Sum) Counts() bool       { return false }
func (Sum) Choices() uint64    { return 0 }
func (Sum) Part() string       { return "the sum" }

func (Sum) query() uint8 { return tagSum }

func (q Sum) append(b *cryptobyte.Builder) { b.AddUint64(q.Max) }

func (q Sum) params() any { return map[string]uint64{"max": q.Max} }

func (q Sum) validate(v *validator)       { v.between("query.max", q.Max, 1, MaxMeasurement) }
func (q Sum) withChunk() Query            { return q }
func (q Sum) spread(x, _ float64) float64 { return x * q.Largest() }
