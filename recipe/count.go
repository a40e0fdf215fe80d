package recipe

import (
	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
)

// Count asks each device yes or no; the answer is how many said yes (Prio3Count).
type Count struct{}

func (Count) String() string {
	return "each device answers yes or no; the result is how many answered yes"
}

// Form is [YesOrNo].
func (Count) Form() Form     { return YesOrNo }
func (Count) Wanted() string { return "yes or no" }

// Holds says whether it is 0 or 1.
func (Count) Holds(x []uint64) bool { return len(x) == 1 && within(x, 1) }

// Add makes it yes if any record is.
func (Count) Add(sum, record []uint64) { sum[0] |= record[0] }

// MadeUp is yes half of the time.
func (Count) MadeUp(coins func() uint64) []uint64 { return []uint64{1 - min(coins(), 1)} }

// Aggregates is 1.
func (Count) Aggregates() int { return 1 }

// VDAFConfig is that of Prio3Count.
func (Count) VDAFConfig() dap.VDAFConfig { return dap.CountConfig{} }

// Contribution is 0 or 1.
func (Count) Contribution() release.Contribution { return release.Interval(1) }

func (Count) Largest() float64 { return 1 }
func (Count) Unit() float64    { return 1 }
func (Count) Averages() bool   { return false }
func (Count) Counts() bool     { return true }

// Choices are yes and no.
func (Count) Choices() uint64 { return 2 }
func (Count) Part() string    { return "the count" }

func (Count) query() uint8                { return tagCount }
func (Count) append(*cryptobyte.Builder)  {}
func (Count) params() any                 { return nil }
func (Count) validate(*validator)         {}
func (q Count) withChunk() Query          { return q }
func (Count) spread(x, _ float64) float64 { return x }
