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
func (w *World) ledgerIs(task *store.Task, list ...releases.Release) {
	w.t.Helper()
	ctx := context.Background()
	chain := releases.Begin(task.ID)
	for i := range list {
		at, err := w.Store.LedgerAt(ctx, task.ID, uint64(i))
		if w.ok(err); at != chain {
			w.t.Errorf("the chain at %d is %x, want %x", i, at, chain)
		}
		list[i].Answer = sha256.Sum256([]byte("the response"))
		chain = chain.Next(&list[i])
	}
	got, err := w.Store.Ledger(ctx, task.ID)
	if want := (store.Ledger{Length: uint64(len(list)), Chain: chain}); err != nil || got != want {
		w.t.Errorf("the ledger is %+v, %v, want %+v", got, err, want)
	}
	for _, beyond := range []uint64{uint64(len(list) + 1), 1 << 63} {
		_, err := w.Store.LedgerAt(ctx, task.ID, beyond)
		w.is(err, store.ErrNotFound)
	}
}

func testLedger(t *testing.T, h Harness) {
	ctx := context.Background()
	one, two := Task(t, dap.TimeInterval, 1), Task(t, dap.TimeInterval, 2)
	w := NewWorld(t, h, one, two)
	w.ledgerIs(one)
	for _, unknown := range []uint64{0, 1} {
		_, err := w.Store.LedgerAt(ctx, dap.TaskID{9}, unknown)
		w.is(err, store.ErrNotFound)
	}
	w.add(one, 10, 0, 5)
	w.add(one, 20, 6, 12)
	w.add(two, 10, 0, 5)
	twenty := w.release(one, "twenty", Interval(20, 2))
	other := w.release(two, "ten", Interval(10, 1))
	ten := w.release(one, "ten", Interval(10, 1))

	// The chain is in the order of the releases.
	first, second := releases.Units(ten.Selection.Interval), releases.Units(twenty.Selection.Interval)
	check := func() {
		t.Helper()
		w.ledgerIs(one, releases.Release{Batch: second, Count: twenty.Count}, releases.Release{Batch: first, Count: ten.Count})
		w.ledgerIs(two, releases.Release{Batch: first, Count: other.Count})
	}
	check()
	w.Reopen(t)
	check()
	w.Audit()
}

func testLedgerOfSelectedBatches(t *testing.T, h Harness) {
	task := Task(t, dap.LeaderSelected, 1)
	w := NewWorld(t, h, task)
	var list []releases.Release
	for n := range 3 {
		w.add(task, 10, 6*n, 6*n+5)
		f := w.release(task, string(rune('a'+n)), nil)
		list = append(list, releases.Release{Batch: releases.ID(f.Selection.ID), Count: f.Count})
	}
	w.ledgerIs(task, list...)
	w.Audit()
}
