package watch

import (
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

// counted is a store that has nothing but counts.
type counted struct {
	store.Watch
	counts store.Counts
	err    error
}

func (c *counted) Totals(context.Context) (*store.Counts, error) { return &c.counts, c.err }

// TestLedgerTellsGrowth: an observer hears of each report once, over all tasks together,
// however often it is told and although a reading fails in between.
func TestLedgerTellsGrowth(t *testing.T) {
	s := &counted{counts: store.Counts{
		Acknowledged: 9, Aggregated: 3, Rejected: map[dap.ReportError]uint64{dap.ReportReplayed: 2},
		Refused: map[dap.ReportError]uint64{dap.ReportReplayed: 1},
	}}
	told := map[entry]uint64{}
	calls := 0
	o := &aggregator.Observer{Reports: func(stage aggregator.Stage, reason dap.ReportError, n uint64) {
		calls++
		told[entry{stage, reason}] += n
	}}
	var l Ledger
	tell := func(want map[entry]uint64) {
		t.Helper()
		if _, err := l.Tell(t.Context(), s, o); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	}
	want := map[entry]uint64{
		{aggregator.StageAcknowledged, 0}:              9,
		{aggregator.StageAggregated, 0}:                3,
		{aggregator.StageRejected, dap.ReportReplayed}: 2,
		{aggregator.StageRefused, dap.ReportReplayed}:  1,
	}
	tell(want)
	before := calls
	tell(want)
	if calls != before {
		t.Error("told of what had not grown")
	}
	s.err = errors.New("the disk is gone")
	if _, err := l.Tell(t.Context(), s, o); !errors.Is(err, s.err) {
		t.Fatalf("error %v", err)
	}
	s.err = nil
	s.counts.Aggregated = 7
	want[entry{aggregator.StageAggregated, 0}] = 7
	tell(want)
	if _, err := l.Tell(t.Context(), s, &aggregator.Observer{}); err != nil {
		t.Errorf("without an observer: %v", err)
	}
}
