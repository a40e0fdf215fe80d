package leader

import (
	"context"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/party"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

// asked is a store of which only the state of batches is asked.
type asked struct {
	store.Leader
	state store.BatchState
	times int
}

func (a *asked) BatchState(context.Context, dap.TaskID, store.Batch) (store.BatchState, error) {
	a.times++
	return a.state, nil
}

// TestBucketStates: how a batch bucket stands is asked of the store once a second, and never
// again once it is closed; each bucket for itself.
func TestBucketStates(t *testing.T) {
	clock, of := new(ahead), new(asked)
	l := &Leader{store: backend{Leader: of}}
	l.opt.Clock = clock
	r := &replicas{l: l}
	want := func(at dap.Time, state store.BatchState, times int) {
		t.Helper()
		got, err := r.state(t.Context(), dap.TaskID{1}, at)
		if err != nil || got != state || of.times != times {
			t.Fatalf("bucket %d is %v, %v after %d questions; want %v after %d", at, got, err, of.times, state, times)
		}
	}
	pass := func(d time.Duration) { clock.by.Add(int64(d)) }
	clock.by.Store(int64(time.Hour))
	want(1, store.Open, 1)
	of.state = store.Draining
	want(2, store.Draining, 2)
	pass(party.Fresh)
	want(1, store.Draining, 3)
	pass(-time.Hour / 2) // the clock was set
	want(1, store.Draining, 4)
	pass(party.Fresh)
	of.state = store.Closed
	want(1, store.Closed, 5)
	pass(time.Hour)
	of.state = store.Open
	want(1, store.Closed, 5)
	for at := range dap.Time(maxBuckets) {
		want(at+10, store.Open, 6+int(at))
	}
	if n := len(r.states.m); n > maxBuckets {
		t.Errorf("%d answers are kept", n)
	}
}
