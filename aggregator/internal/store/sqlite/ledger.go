package sqlite

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/releases"
	"github.com/starling-agg/starling/internal/service/database"
)

// ledgerEntry is what the ledger adds to a release.
type ledgerEntry struct {
	seq, position uint64
	answer        [32]byte
	chain         releases.Digest
	total         releases.Total
}

func (t *task) batchOf(sel store.Selection) releases.Batch {
	if t.Mode == dap.LeaderSelected {
		return releases.ID(sel.ID)
	}
	return releases.Units(sel.Interval)
}

// batchOfRow is batchOf for a row of the ledger.
func batchOfRow(sp span, id []byte) releases.Batch {
	if id != nil {
		return releases.ID(dap.BatchID(id))
	}
	return releases.Units(dap.Interval{Start: dap.Time(sp.first), Duration: dap.Duration(sp.last-sp.first) + 1})
}

// nextRelease is the place in the ledger of a release that is about to be made.
func (t *task) nextRelease(tx *database.Tx, sel store.Selection, count uint64, response []byte) (e ledgerEntry, err error) {
	if e.seq, e.total, err = lastRelease(tx); err != nil {
		return e, err
	}
	if e.position, e.chain, err = t.lastRelease(tx); err != nil {
		return e, err
	}
	e.answer = sha256.Sum256(response)
	e.seq, e.position = e.seq+1, e.position+1
	e.chain = e.chain.Next(&releases.Release{Batch: t.batchOf(sel), Count: count, Answer: e.answer})
	e.total = e.total.Next(e.chain)
	return e, nil
}

func lastRelease(tx *database.Tx) (seq uint64, total releases.Total, err error) {
	var sum []byte
	if found, err := tx.One("last-release", nil, &seq, &sum); err != nil || !found {
		return 0, total, err
	}
	return seq, releases.Total(sum), nil
}

func (t *task) lastRelease(tx *database.Tx) (position uint64, chain releases.Digest, err error) {
	var sum []byte
	if found, err := tx.One("last-release-of-task", []any{t.row}, &position, &sum); err != nil || !found {
		return 0, releases.Begin(t.ID), err
	}
	return position, releases.Digest(sum), nil
}

// Ledger implements [store.Releases].
func (s *Store) Ledger(ctx context.Context, id dap.TaskID) (l store.Ledger, err error) {
	t, err := s.task(id)
	if err != nil {
		return l, err
	}
	err = s.view(ctx, "ledger", func(tx *database.Tx) error {
		l.Length, l.Chain, err = t.lastRelease(tx)
		return err
	})
	return l, err
}

// LedgerAt implements [store.Releases].
func (s *Store) LedgerAt(ctx context.Context, id dap.TaskID, length uint64) (chain releases.Digest, err error) {
	t, err := s.task(id)
	if err != nil || length == 0 {
		return releases.Begin(id), err
	}
	err = s.view(ctx, "ledger-entry", func(tx *database.Tx) error {
		var r releases.Release
		if r, chain, err = t.entry(tx, length); err != nil {
			return err
		}
		before := releases.Begin(id)
		if length > 1 {
			if _, before, err = t.entry(tx, length-1); err != nil {
				return err
			}
		}
		if before.Next(&r) != chain {
			return fmt.Errorf("the ledger is damaged at release %d", length)
		}
		return nil
	})
	return chain, err
}

// entry reads a row of the ledger, and the chain up to it.
func (t *task) entry(tx *database.Tx, position uint64) (r releases.Release, chain releases.Digest, err error) {
	if position == 0 || position > math.MaxInt64 {
		return r, chain, fmt.Errorf("%w: no such release", store.ErrNotFound)
	}
	var sp span
	var id, answer, sum []byte
	found, err := tx.One("release-at", []any{t.row, position}, &sp.first, &sp.last, &id, &r.Count, &answer, &sum)
	if err != nil {
		return r, chain, err
	}
	if !found {
		return r, chain, fmt.Errorf("%w: no such release", store.ErrNotFound)
	}
	r.Batch, r.Answer = batchOfRow(sp, id), [32]byte(answer)
	return r, releases.Digest(sum), nil
}
