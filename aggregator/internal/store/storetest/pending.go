package storetest

import (
	"context"
	"slices"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

func init() {
	tests["PendingInOrder"] = testPendingInOrder
	tests["PendingIsFair"] = testPendingIsFair
}

func testPendingInOrder(t *testing.T, h Harness) {
	ctx := context.Background()
	a, b := Task(t, dap.TimeInterval, 1), Task(t, dap.LeaderSelected, 2)
	w := NewWorld(t, h, a, b)
	var want []string
	for i := range 6 {
		task := a
		if i%2 == 1 {
			task = b
		}
		r, _, err := w.Store.Create(ctx, store.KindAggregation, task.ID, "", []byte{byte(i)}, true, nil, w.Now)
		w.ok(err)
		want = append(want, r.ID)
	}
	w.ok(w.Store.Fail(ctx, &store.Resource{Kind: store.KindAggregation, Task: a.ID, ID: want[0]}, &dap.Problem{Type: dap.ProblemInvalidMessage}))
	pending, err := w.Store.PendingResources(ctx, store.KindAggregation, 4)
	w.ok(err)
	var got []string
	for _, r := range pending {
		got = append(got, r.ID)
		if len(r.Body) != 1 || !r.Created.Equal(w.Now) {
			t.Errorf("pending resource is %+v", r)
		}
	}
	if !slices.Equal(got, want[1:5]) {
		t.Fatalf("pending are %v, want %v", got, want[1:5])
	}
	if none, err := w.Store.PendingResources(ctx, store.KindShare, 4); err != nil || len(none) != 0 {
		t.Fatal(none, err)
	}
}

// testPendingIsFair: a task with many resources that wait does not hide those of another.
func testPendingIsFair(t *testing.T, h Harness) {
	ctx := context.Background()
	a, b := Task(t, dap.TimeInterval, 1), Task(t, dap.LeaderSelected, 2)
	w := NewWorld(t, h, a, b)
	var ids []string
	for i, task := range []*store.Task{a, a, a, a, a, b} {
		r, _, err := w.Store.Create(ctx, store.KindCollection, task.ID, "", []byte{byte(i)}, true, nil, w.Now)
		w.ok(err)
		ids = append(ids, r.ID)
	}
	pending, err := w.Store.PendingResources(ctx, store.KindCollection, 3)
	w.ok(err)
	var got []string
	for _, r := range pending {
		got = append(got, r.ID)
	}
	if want := []string{ids[0], ids[5], ids[1]}; !slices.Equal(got, want) {
		t.Fatalf("pending are %v, want %v", got, want)
	}
}
