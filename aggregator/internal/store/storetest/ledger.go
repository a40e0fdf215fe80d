package storetest

import (
	"context"
	"crypto/sha256"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/releases"
)

func init() {
	tests["Ledger"] = testLedger
	tests["LedgerOfSelectedBatches"] = testLedgerOfSelectedBatches
}

// release asks for a selection that has its minimum, and releases it.
func (w *World) release(task *store.Task, body string, sel *store.Selection) *store.Frozen {
	w.t.Helper()
	r := w.Ask(task, body, sel)
	f := w.Hold(r)
	_, err := w.Store.Release(context.Background(), w.ReleaseOf(task, r, f, new([]int64)))
	w.ok(err)
	return f
}

// ledgerIs demands that the ledger of a task has these releases in this order, each with
// the answer of [World.ReleaseOf].
func (w *World) ledgerIs(task *store.Task, batches releases.Digest, list ...releases.Release) {
	w.t.Helper()
	ctx := context.Background()
	chain := releases.Begin(task.ID)
	for i := range list {
		at, err := w.Store.LedgerAt(ctx, task.ID, uint64(i))
		if w.ok(err); at != chain {
			w.t.Errorf("the chain at %d is %x, want %x", i, at, chain)
		}
		list[i].Answer = sha256.Sum256([]byte("the response"))
		entry, before, err := w.Store.Entry(ctx, task.ID, uint64(i+1))
		if w.ok(err); entry != list[i] || before != chain {
			w.t.Errorf("release %d is %+v after %x, want %+v after %x", i+1, entry, before, list[i], chain)
		}
		chain = chain.Next(&list[i])
	}
	want := store.Ledger{Length: uint64(len(list)), Chain: chain, Batches: batches}
	for range 2 { // the second is remembered
		got, err := w.Store.Ledger(ctx, task.ID)
		if w.ok(err); got != want {
			w.t.Errorf("the ledger is %+v, want %+v", got, want)
		}
	}
	_, err := w.Store.LedgerAt(ctx, task.ID, uint64(len(list)+1))
	w.is(err, store.ErrNotFound)
	_, _, err = w.Store.Entry(ctx, task.ID, 0)
	w.is(err, store.ErrNotFound)
	_, _, err = w.Store.Entry(ctx, task.ID, 1<<63)
	w.is(err, store.ErrNotFound)
}

func testLedger(t *testing.T, h Harness) {
	ctx := context.Background()
	one, two := Task(t, dap.TimeInterval, 1), Task(t, dap.TimeInterval, 2)
	w := NewWorld(t, h, one, two)
	w.ledgerIs(one, releases.NewBatches(one.ID).Sum())
	for _, unknown := range []uint64{0, 1} {
		_, err := w.Store.LedgerAt(ctx, dap.TaskID{9}, unknown)
		w.is(err, store.ErrNotFound)
	}
	length, empty, err := w.Store.Released(ctx)
	if w.ok(err); length != 0 || empty != [32]byte{} {
		t.Fatalf("%d releases, %x, of an empty store", length, empty)
	}
	w.add(one, 10, 0, 5)
	w.add(one, 20, 6, 12)
	w.add(two, 10, 0, 5)
	twenty := w.release(one, "twenty", Interval(20, 2))
	other := w.release(two, "ten", Interval(10, 1))
	ten := w.release(one, "ten", Interval(10, 1))

	// The batches are in the order of time, the chain in that of the releases.
	first, second := releases.Units(ten.Selection.Interval), releases.Units(twenty.Selection.Interval)
	batches := releases.NewBatches(one.ID)
	batches.Add(first, ten.Count, ten.Checksum)
	batches.Add(second, twenty.Count, twenty.Checksum)
	check := func() {
		t.Helper()
		w.ledgerIs(one, batches.Sum(), releases.Release{Batch: second, Count: 7}, releases.Release{Batch: first, Count: 6})
		of := releases.NewBatches(two.ID)
		of.Add(first, other.Count, other.Checksum)
		w.ledgerIs(two, of.Sum(), releases.Release{Batch: first, Count: 6})
		length, total, err := w.Store.Released(ctx)
		if w.ok(err); length != 3 || total == empty {
			t.Errorf("%d releases, %x", length, total)
		}
	}
	check()
	w.Reopen(t)
	check()
	w.Audit()
}

func testLedgerOfSelectedBatches(t *testing.T, h Harness) {
	task := Task(t, dap.LeaderSelected, 1)
	w := NewWorld(t, h, task)
	batches := map[dap.BatchID]*store.Frozen{}
	var list []releases.Release
	for n := range 3 {
		w.add(task, 10, 6*n, 6*n+5)
		f := w.release(task, string(rune('a'+n)), nil)
		batches[f.Selection.ID] = f
		list = append(list, releases.Release{Batch: releases.ID(f.Selection.ID), Count: f.Count})
	}
	set := releases.NewBatches(task.ID)
	for len(batches) > 0 {
		var least *store.Frozen
		for id, f := range batches {
			if least == nil || string(id[:]) < string(least.Selection.ID[:]) {
				least = f
			}
		}
		set.Add(releases.ID(least.Selection.ID), least.Count, least.Checksum)
		delete(batches, least.Selection.ID)
	}
	w.ledgerIs(task, set.Sum(), list...)
	w.Audit()
}
