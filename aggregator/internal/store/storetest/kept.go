package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/vdaf"
)

func init() {
	tests["KeptShares"] = testKeptShares
	tests["DataKeys"] = testDataKeys
}

// testKeptShares: what a release keeps is there as it was, over restarts; it is sealed
// again by whoever saw the answer that is there, and by nobody else, and goes with the
// resource.
func testKeptShares(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	w.ok(w.Store.NoteDataKey(ctx, datakey.SetID{1}, datakey.Record{Serial: 4, From: Epoch, Until: Epoch.Add(time.Hour)}))
	w.Upload(task, 10, 0, 5)
	w.Sort()
	w.Work(task)
	r := w.Ask(task, "ten", Interval(10, 1))
	_, err := w.Store.Kept(ctx, store.KindCollection, task.ID, r.ID)
	w.is(err, store.ErrNotFound)
	rel := w.ReleaseOf(task, r, w.Hold(r), new([]int64))
	kept := &store.Kept{Key: 4, Box: []byte("sealed"), To: [32]byte{1}, Asked: []byte("asked"), Peer: "theirs"}
	build := rel.Build
	rel.Build = func(sum *vdaf.AggShare, f store.Frozen, noise []int64) ([]byte, *store.Kept, error) {
		response, _, err := build(sum, f, noise)
		return response, kept, err
	}
	response, err := w.Store.Release(ctx, rel)
	w.ok(err)
	w.Reopen(t)
	got, err := w.Store.Kept(ctx, store.KindCollection, task.ID, r.ID)
	w.ok(err)
	if got.Key != 4 || string(got.Box) != "sealed" || got.To != kept.To || string(got.Asked) != "asked" || got.Peer != "theirs" {
		t.Errorf("kept is %+v", got)
	}
	if n, err := w.Store.KeptUnder(ctx, 4); n != 1 || err != nil {
		t.Errorf("%d shares lie under the key: %v", n, err)
	}
	change := &store.Reseal{
		Task: task.ID, Kind: store.KindCollection, Resource: r.ID, Whose: store.Own, From: [32]byte{1}, To: [32]byte{2},
		Former: response, Response: []byte("sealed again"), Now: w.Now,
	}
	for what, spoil := range map[string]func(*store.Reseal){
		"from another key": func(r *store.Reseal) { r.From = [32]byte{9} },
		"another answer":   func(r *store.Reseal) { r.Former = []byte("another") },
	} {
		wrong := *change
		spoil(&wrong)
		if err := w.Store.Reseal(ctx, &wrong); err == nil {
			t.Errorf("sealed again %s", what)
		} else {
			w.is(err, store.ErrDifferent)
		}
	}
	w.ok(w.Store.Reseal(ctx, change))
	w.is(w.Store.Reseal(ctx, change), store.ErrDifferent)
	theirs := *change
	theirs.Whose, theirs.Former, theirs.Response = store.Peers, []byte("sealed again"), []byte("and theirs")
	w.ok(w.Store.Reseal(ctx, &theirs))
	w.Audit()
	w.Reopen(t)
	now, err := w.Store.Resource(ctx, store.KindCollection, task.ID, r.ID)
	w.ok(err)
	if string(now.Response) != "and theirs" || now.State != store.Ready {
		t.Errorf("the answer is %q", now.Response)
	}
	if n, resealed, err := w.Store.Shares(ctx, task.ID); n != 1 || resealed != 2 || err != nil {
		t.Errorf("%d shares, sealed again %d times: %v", n, resealed, err)
	}
	w.ok(w.Store.Delete(ctx, store.KindCollection, task.ID, r.ID))
	if n, resealed, err := w.Store.Shares(ctx, task.ID); n != 0 || resealed != 2 || err != nil {
		t.Errorf("after DELETE %d shares, sealed again %d times: %v", n, resealed, err)
	}
	w.is(w.Store.Reseal(ctx, change), store.ErrNotFound)
	w.Audit()
}

// testDataKeys: keys are noted once, of one set and one time each, and end for ever.
func testDataKeys(t *testing.T, h Harness) {
	ctx := context.Background()
	w := NewWorld(t, h, Task(t, dap.TimeInterval, 1))
	set := datakey.SetID{1}
	a := datakey.Record{Serial: 1, From: Epoch.UTC(), Until: Epoch.UTC().Add(time.Hour)}
	b := datakey.Record{Serial: 2, From: a.Until, Until: a.Until.Add(time.Hour)}
	for range 2 {
		w.ok(w.Store.NoteDataKey(ctx, set, a))
		w.ok(w.Store.NoteDataKey(ctx, set, b))
		w.Reopen(t)
	}
	w.is(w.Store.NoteDataKey(ctx, datakey.SetID{2}, b), store.ErrDifferent)
	moved := b
	moved.Until = moved.Until.Add(time.Hour)
	w.is(w.Store.NoteDataKey(ctx, set, moved), store.ErrDifferent)
	w.ok(w.Store.EndDataKey(ctx, 1))
	w.ok(w.Store.EndDataKey(ctx, 1))
	w.is(w.Store.EndDataKey(ctx, 7), store.ErrNotFound)
	w.ok(w.Store.NoteDataKey(ctx, set, a)) // which brings it not back
	w.Reopen(t)
	id, keys, err := w.Store.DataKeys(ctx)
	w.ok(err)
	a.Ended = true
	if id != set || !slices.Equal(keys, []datakey.Record{a, b}) {
		t.Errorf("%x has %+v", id, keys)
	}
}
