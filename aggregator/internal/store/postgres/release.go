package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
	"github.com/starling-agg/starling/internal/releases"
	"github.com/starling-agg/starling/vdaf"
)

// selected is what a selection holds, batch by batch.
type selected struct {
	rows    []int64
	batches map[int64]*batchSum
	views   viewed // of a task with views
	store.Frozen
}

// batchSum is a batch of a selection: the sum of its parts but for their shares.
type batchSum struct {
	of          store.Batch
	reports     uint64
	first, last uint64
	checksum    dap.Checksum
}

// gather reads what a selection holds; ErrOverlap if any of it was released. The task is
// held alone, so that nothing of it changes.
func (t *task) gather(tx *pgdb.Tx, sel store.Selection) (*selected, error) {
	if err := t.refuseOverlap(tx, sel); err != nil {
		return nil, err
	}
	x := &selected{batches: make(map[int64]*batchSum), Frozen: store.Frozen{Selection: sel}}
	if len(t.views) > 0 {
		if err := t.gatherView(tx, x); err != nil {
			return nil, err
		}
		if err := x.readParts(tx); err != nil {
			return nil, err
		}
		if err := x.whole(t); err != nil {
			return nil, err
		}
		return x, x.sum(t)
	}
	statement, args := "batch-of-id", []any{t.row, sel.ID[:]}
	if t.mode == dap.TimeInterval {
		sp, err := spanOf(sel.Interval)
		if err != nil {
			return nil, err
		}
		statement, args = "batches-in-interval", []any{t.row, sp.first, sp.last}
	}
	err := tx.Each(statement, args, func(r pgdb.Row) error {
		var row int64
		var closed bool
		var bucket uint64
		var id []byte
		if err := r.Scan(&row, &closed, &bucket, &id); err != nil {
			return err
		}
		if closed {
			return store.ErrOverlap
		}
		x.rows = append(x.rows, row)
		x.batches[row] = &batchSum{of: batchOf(bucket, id)}
		return nil
	})
	if err != nil || len(x.rows) == 0 {
		return x, err
	}
	if err := x.readParts(tx); err != nil {
		return nil, err
	}
	return x, x.sum(t)
}

// readParts adds up what the parts of the batches say beside their shares.
func (x *selected) readParts(tx *pgdb.Tx) error {
	return tx.Each("parts", []any{x.rows}, func(r pgdb.Row) error {
		var p partRow
		err := p.scan(r)
		if err == nil {
			x.batches[p.batch].add(&p)
		}
		return err
	})
}

func (b *batchSum) add(p *partRow) {
	if b.reports == 0 {
		b.first, b.last = p.first, p.last
	}
	b.first, b.last = min(b.first, p.first), max(b.last, p.last)
	b.reports += p.reports
	b.checksum.Merge(p.checksum)
}

// sum adds the batches up.
func (x *selected) sum(t *task) error {
	var first, last uint64
	for _, b := range x.batches {
		if b.reports == 0 {
			continue
		}
		if x.Count == 0 {
			first, last = b.first, b.last
		}
		first, last = min(first, b.first), max(last, b.last)
		x.Count += b.reports
		x.Checksum.Merge(b.checksum)
		if t.mode == dap.TimeInterval {
			x.Fullest = max(x.Fullest, b.reports)
		}
	}
	span, ok := dap.Span(dap.Time(first), dap.Time(last))
	if !ok {
		return errors.New("span of reports is reversed")
	}
	x.Span = span
	return nil
}

// share adds up the shares of a selection, one at a time in memory.
func (x *selected) share(tx *pgdb.Tx, t *task, keys taskKeys, v vdaf.VDAF) (*vdaf.AggShare, error) {
	total := v.NewAggShare()
	var reports uint64
	err := tx.Each("shares", []any{x.rows}, func(r pgdb.Row) error {
		var p partRow
		var box, sum []byte
		if err := p.scan(r, &p.key, &p.own, &box, &sum); err != nil {
			return err
		}
		p.of = x.batches[p.batch].of
		share, err := t.open(keys, v, &p, box, sum)
		if err != nil {
			return err
		}
		defer share.Reset()
		reports += p.reports
		return total.Merge(share)
	})
	if err == nil && reports != x.Count {
		err = errors.New("internal error: the parts of a selection changed")
	}
	return total, err
}

// Release closes a batch and stores the response; see [store.Releases].
func (s *Store) Release(ctx context.Context, rel *store.Release) (response []byte, err error) {
	if rel.Kind != store.KindCollection && rel.Kind != store.KindShare {
		return nil, fmt.Errorf("store: release: resources of kind %d release nothing", rel.Kind)
	}
	v, err := s.vdaf(rel.Task)
	if err != nil {
		return nil, err
	}
	err = s.update(ctx, "release", func(tx *pgdb.Tx) error {
		response = nil
		t, err := live(tx, reading, rel.Task)
		if err != nil {
			return err
		}
		r, err := mustResource(tx, t, rel.Kind, "lock-resource", rel.Resource)
		if err != nil {
			return err
		}
		switch r.State {
		case store.Ready:
			response = r.Response
			return nil
		case store.Failed:
			return r.Problem
		}
		if t, err = live(tx, excluding, rel.Task); err != nil {
			return err
		}
		if err := s.spans(tx, t); err != nil {
			return err
		}
		if rel.Kind == store.KindCollection { // as its hold is now, under the task's lock
			if r.Frozen, err = frozen(tx, t, r.row); err != nil {
				return err
			}
		}
		x, err := t.gather(tx, rel.Selection)
		if err == nil {
			err = t.releasable(x, r, rel)
		}
		if err != nil {
			return err
		}
		sum, err := x.share(tx, t, taskKeys{s, t}, v)
		if err != nil {
			return err
		}
		var kept *store.Kept
		if response, kept, err = s.build(ctx, tx, t, rel, sum, x.Frozen); err != nil {
			return err
		}
		if err := t.close(tx, r, rel, x, response); err != nil {
			return err
		}
		return s.keep(tx, t, r, kept)
	})
	if err == nil {
		err = s.tell(ctx)
	}
	if err != nil {
		return nil, err
	}
	return response, nil
}

// releasable refuses what may not be given out.
func (t *task) releasable(x *selected, r *resourceRow, rel *store.Release) error {
	if rel.Kind == store.KindCollection {
		switch {
		case r.Frozen == nil || !bytes.Equal(r.Frozen.Selection.Encode(t.mode), rel.Selection.Encode(t.mode)):
			return errors.New("the selection is not frozen")
		case r.Frozen.Count != x.Count || r.Frozen.Checksum != x.Checksum:
			return errors.New("internal error: a frozen batch changed")
		}
	}
	switch {
	case x.Count < t.minimum():
		return store.ErrTooSmall
	case x.Count != rel.Count || x.Checksum != rel.Checksum:
		return store.ErrMismatch
	}
	return nil
}

// build has the caller make the response of a sum.
func (s *Store) build(ctx context.Context, tx *pgdb.Tx, t *task, rel *store.Release, sum *vdaf.AggShare, f store.Frozen) (
	response []byte, kept *store.Kept, err error) {
	var noise []int64
	if rel.Draw != nil {
		if noise, err = rel.Draw(sum, f); err != nil {
			return nil, nil, fmt.Errorf("draw: %w", err)
		}
		defer clear(noise)
	}
	if rel.Series != nil {
		key, err := s.keys.At(ctx, s.clock.Now())
		if err != nil {
			return nil, nil, err
		}
		defer key.Wipe()
		correlated, err := s.correlate(tx, t, key, rel.Series, rel.Selection, noise)
		if err != nil {
			return nil, nil, err
		}
		defer clear(correlated)
		noise = correlated
	}
	built, kept, err := rel.Build(sum, f, noise)
	if err != nil {
		return nil, nil, fmt.Errorf("build: %w", err)
	}
	return append([]byte{}, built...), kept, nil // never NULL, which would mean that there is none
}

// close is the part of a release's transaction in which a batch closes: response, ledger,
// shares and hold change together. The turn to enter the ledger comes after all other locks
// and is held for a few statements.
func (t *task) close(tx *pgdb.Tx, r *resourceRow, rel *store.Release, x *selected, response []byte) error {
	answer := sha256.Sum256(response)
	n, err := tx.Exec("resource-ready", r.row, response, answer[:])
	if err = expect(n == 1, err, "resource"); err != nil {
		return err
	}
	if len(t.views) > 0 {
		err = x.closeView(tx, t)
	} else {
		err = x.close(tx)
	}
	if err != nil {
		return err
	}
	if _, err := tx.Exec("drop-hold", r.row); err != nil {
		return err
	}
	var first, last, id any
	var sp span
	batch := releases.ID(rel.Selection.ID)
	if id = rel.Selection.ID[:]; t.mode == dap.TimeInterval {
		if sp, err = spanOf(rel.Selection.Interval); err != nil {
			return err
		}
		first, last, id = sp.first, sp.last, nil
		batch = releases.Units(rel.Selection.Interval)
	}
	position, chain, err := t.lastRelease(tx)
	if err != nil {
		return err
	}
	position++
	chain = chain.Next(&releases.Release{Batch: batch, Count: x.Count, Answer: answer})
	var seq uint64
	var before []byte
	found, err := tx.One("head", nil, &seq, &before)
	if err = expect(found, err, "head of the ledger"); err != nil {
		return err
	}
	seq++
	total := releases.Total(before).Next(chain)
	args := []any{seq, t.row, int(rel.Kind), rel.Resource, first, last, id, x.Count, x.Checksum[:], rel.Debit, position, answer[:], chain[:], total[:]}
	if len(t.views) > 0 {
		n, err = tx.Exec("put-release-of-view", append(args, x.views.number, x.views.fresh)...)
	} else {
		n, err = tx.Exec("put-release", args...)
	}
	if err = expect(n == 1, err, "task"); err != nil {
		return err
	}
	n, err = tx.Exec("move-head", seq, total[:])
	return expect(n == 1, err, "head of the ledger")
}

// close notes the numbers of each batch in its row, and erases its shares.
func (x *selected) close(tx *pgdb.Tx) error {
	if err := x.note(tx, x.rows); err != nil {
		return err
	}
	_, err := tx.Exec("drop-parts", x.rows)
	return err
}

// note closes batches, with their numbers.
func (x *selected) note(tx *pgdb.Tx, rows []int64) error {
	var reports, first, last []int64
	var checksums [][]byte
	for _, row := range rows {
		b := x.batches[row]
		reports, first, last = append(reports, int64(b.reports)), append(first, int64(b.first)), append(last, int64(b.last))
		checksums = append(checksums, b.checksum[:])
	}
	n, err := tx.Exec("close-batches", rows, reports, first, last, checksums)
	return expect(n == int64(len(rows)), err, "batches of a selection")
}
