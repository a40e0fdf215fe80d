package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
	"github.com/starling-agg/starling/internal/releases"
)

// span is an interval as rows have it: both ends included, cut off at 63 bits, which no
// report's time exceeds.
type span struct{ first, last uint64 }

func spanOf(iv dap.Interval) (span, error) {
	end, ok := iv.End()
	if !ok || iv.Duration == 0 {
		return span{}, fmt.Errorf("invalid interval %v", iv)
	}
	return span{min(uint64(iv.Start), math.MaxInt64), min(uint64(end-1), math.MaxInt64)}, nil
}

// batchName is how both aggregators call a batch of a task: [store.Released.Batch].
func batchName(sp span, id []byte) []byte {
	if id != nil {
		return id
	}
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, sp.first), sp.last)
}

// lastRelease is how far the ledger of a task is.
func (t *task) lastRelease(tx *pgdb.Tx) (position uint64, chain releases.Digest, err error) {
	var sum []byte
	if found, err := tx.One("last-release-of-task", []any{t.row}, &position, &sum); err != nil || !found {
		return 0, releases.Begin(t.id), err
	}
	return position, releases.Digest(sum), nil
}

// Ledger says how far the releases of a task are; see [store.Releases].
func (s *Store) Ledger(ctx context.Context, id dap.TaskID) (l store.Ledger, err error) {
	err = s.view(ctx, "ledger", func(tx *pgdb.Tx) error {
		t, err := find(tx, reading, id)
		if err == nil {
			l.Length, l.Chain, err = t.lastRelease(tx)
		}
		return err
	})
	if err == nil {
		err = s.tell(ctx) // the peer is told of it
	}
	return l, err
}

// LedgerAt is what Ledger said of the chain after a number of releases; see
// [store.Releases].
func (s *Store) LedgerAt(ctx context.Context, id dap.TaskID, length uint64) (chain releases.Digest, err error) {
	err = s.view(ctx, "ledger-entry", func(tx *pgdb.Tx) error {
		t, err := find(tx, reading, id)
		if chain = releases.Begin(id); err != nil || length == 0 {
			return err
		}
		r, at, err := t.entry(tx, length)
		if err != nil {
			return err
		}
		before := chain
		if length > 1 {
			if _, before, err = t.entry(tx, length-1); err != nil {
				return err
			}
		}
		if chain = at; before.Next(&r) != chain {
			return fmt.Errorf("the ledger is damaged at release %d", length)
		}
		return nil
	})
	return chain, err
}

// entry reads a row of the ledger, and the chain up to it.
func (t *task) entry(tx *pgdb.Tx, position uint64) (r releases.Release, chain releases.Digest, err error) {
	if position > math.MaxInt64 {
		return r, chain, fmt.Errorf("%w: release", store.ErrNotFound)
	}
	var sp span
	var id, answer, sum []byte
	found, err := tx.One("release-at", []any{t.row, position}, &sp.first, &sp.last, &id, &r.Count, &answer, &sum)
	if err = expect(found, err, "release"); err != nil {
		return r, chain, err
	}
	r.Batch, r.Answer = releasedBatch(sp, id), [32]byte(answer)
	return r, releases.Digest(sum), nil
}

// releasedBatch is the batch of a row of the ledger.
func releasedBatch(sp span, id []byte) releases.Batch {
	if id != nil {
		return releases.ID(dap.BatchID(id))
	}
	return releases.Units(dap.Interval{Start: dap.Time(sp.first), Duration: dap.Duration(sp.last-sp.first) + 1})
}

// ReleasesAfter lists releases of a task in their order; see [store.Releases].
func (s *Store) ReleasesAfter(ctx context.Context, task dap.TaskID, after int64, n int) (out []store.Released, err error) {
	err = s.view(ctx, "releases-after", func(tx *pgdb.Tx) error {
		out = nil
		t, err := find(tx, reading, task)
		if err != nil || n <= 0 {
			return err
		}
		return tx.Each("releases-after", []any{t.row, after, n}, func(r pgdb.Row) error {
			var x store.Released
			var sp span
			var id, checksum []byte
			if err := r.Scan(&x.Seq, &sp.first, &sp.last, &id, &x.Count, &checksum); err != nil {
				return err
			}
			x.Batch, x.Checksum = batchName(sp, id), dap.Checksum(checksum)
			out = append(out, x)
			return nil
		})
	})
	return out, err
}

// Frozen lists the batches of a task that are frozen and not released; see
// [store.Releases].
func (s *Store) Frozen(ctx context.Context, task dap.TaskID) (out []store.Released, err error) {
	err = s.view(ctx, "frozen", func(tx *pgdb.Tx) error {
		out = nil
		t, err := find(tx, reading, task)
		if err != nil {
			return err
		}
		return tx.Each("frozen", []any{t.row}, func(r pgdb.Row) error {
			var x store.Released
			var selection, checksum []byte
			if err := r.Scan(&selection, &x.Count, &checksum); err != nil {
				return err
			}
			sel, err := store.DecodeSelection(t.mode, selection)
			if err != nil {
				return err
			}
			var sp span
			id := sel.ID[:]
			if t.mode == dap.TimeInterval {
				if sp, err = spanOf(sel.Interval); err != nil {
					return err
				}
				id = nil
			}
			x.Batch, x.Checksum = batchName(sp, id), dap.Checksum(checksum)
			out = append(out, x)
			return nil
		})
	})
	return out, err
}
