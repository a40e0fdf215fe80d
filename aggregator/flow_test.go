package aggregator_test

import (
	"slices"
	"testing"
)

func TestTimeIntervalFlow(t *testing.T) {
	p := newPair(t, setup{})
	p.accept(p.reports(17)...)
	p.accept(p.reports(6)...)
	resp, got := p.collect(p.query())
	if want := []int64{6, 5, 4, 4, 4}; resp.ReportCount != 23 || !slices.Equal(got, want) {
		t.Errorf("%d reports %v, want 23 %v", resp.ReportCount, got, want)
	}
	if resp.Interval.Start > p.now() || resp.Interval.Duration != 1 {
		t.Errorf("interval %v, want the one unit that has reports", resp.Interval)
	}
}
