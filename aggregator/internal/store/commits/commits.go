// Package commits has what every engine's commit does the same: it refuses what only a bug
// of the caller could send, and counts and folds what is kept.
package commits

import (
	"errors"
	"fmt"
	"maps"
	"math"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/vdaf"
)

// maxTime is the last report time that an engine takes; it leaves room for the end of an
// interval.
const maxTime = dap.Time(math.MaxInt64 - 1)

// Tally is what a commit counts.
type Tally struct {
	Kept     uint64
	Rejected map[dap.ReportError]uint64
}

// Sum counts the reports that a commit accounts for.
func (t Tally) Sum() uint64 {
	n := t.Kept
	for _, r := range t.Rejected {
		n += r
	}
	return n
}

// Part is what a commit adds to one batch. Share is nil where there are no reports.
type Part struct {
	Reports     uint64
	First, Last dap.Time
	Checksum    dap.Checksum
	Share       *vdaf.AggShare
}

// Check refuses what only a bug of the caller could send.
func Check(mode dap.BatchMode, c *store.Commit) error {
	seen := make(map[store.Batch]struct{}, len(c.Batches))
	for _, b := range c.Batches {
		if _, twice := seen[b]; twice {
			return errors.New("batch named twice")
		}
		seen[b] = struct{}{}
		if mode == dap.TimeInterval && b.Start > maxTime {
			return fmt.Errorf("bucket %d is out of range", b.Start)
		}
	}
	for _, cand := range c.Candidates {
		switch {
		case cand.Batch < 0 || int(cand.Batch) >= len(c.Batches):
			return fmt.Errorf("candidate of batch %d of %d", cand.Batch, len(c.Batches))
		case cand.Time > maxTime:
			return fmt.Errorf("report time %d is out of range", cand.Time)
		case mode == dap.TimeInterval && cand.Time != c.Batches[cand.Batch].Start:
			return errors.New("candidate outside of its bucket")
		}
	}
	for code, n := range c.Rejected {
		if code == 0 && n > 0 {
			return errors.New("rejected without a code")
		}
	}
	return nil
}

// Fold counts, and has the caller add up the shares of what is kept: a part for each batch
// of the commit.
func Fold(c *store.Commit, verdict []dap.ReportError) (Tally, []Part, error) {
	total := Tally{Rejected: maps.Clone(c.Rejected)}
	if total.Rejected == nil {
		total.Rejected = make(map[dap.ReportError]uint64)
	}
	parts := make([]Part, len(c.Batches))
	for i, cand := range c.Candidates {
		if verdict[i] != 0 {
			total.Rejected[verdict[i]]++
			continue
		}
		total.Kept++
		p := &parts[cand.Batch]
		if p.Reports == 0 {
			p.First, p.Last = cand.Time, cand.Time
		}
		p.First, p.Last = min(p.First, cand.Time), max(p.Last, cand.Time)
		p.Reports++
		p.Checksum.Add(cand.ID)
	}
	if c.Fold == nil {
		if len(c.Candidates) > 0 {
			return total, nil, errors.New("candidates without Fold")
		}
		return total, parts, nil
	}
	shares, err := c.Fold(verdict)
	if err != nil {
		return total, nil, fmt.Errorf("fold: %w", err)
	}
	if len(shares) != len(parts) {
		return total, nil, fmt.Errorf("fold returned %d shares for %d batches", len(shares), len(parts))
	}
	for i, share := range shares {
		if parts[i].Reports > 0 && share == nil {
			return total, nil, errors.New("fold returned no share for a batch with reports")
		}
		parts[i].Share = share
	}
	return total, parts, nil
}
