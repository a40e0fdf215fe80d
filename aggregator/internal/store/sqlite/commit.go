package sqlite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/commits"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service/database"
)

// FinishJob implements [store.Jobs].
func (s *Store) FinishJob(ctx context.Context, j *store.Job, c *store.Commit) error {
	t, err := s.live(j.Task)
	if err != nil {
		return err
	}
	if c.Task != j.Task {
		return errors.New("store: finish-job: commit of another task")
	}
	for _, b := range c.Batches {
		if b != j.Batch {
			return errors.New("store: finish-job: not the batch of the job")
		}
	}
	// Looked at before the work as well, so that a worker that lost its lease does none.
	err = s.view(ctx, "fence", func(tx *database.Tx) error {
		_, err := fence(tx, j)
		return err
	})
	if err != nil {
		return err
	}
	return s.settle(ctx, "finish-job", t, c, nil, func(tx *database.Tx, total commits.Tally) error {
		l, err := fence(tx, j)
		if err != nil {
			return err
		}
		if n := total.Sum(); n != l.reports {
			return fmt.Errorf("the commit accounts for %d of the job's %d reports", n, l.reports)
		}
		if err := t.heard(tx, c.Conduct); err != nil {
			return err
		}
		return l.end(tx, "")
	})
}

// settle is one commit: verdicts, fold, run file, transaction, in this order. between
// runs after the fold and outside the transaction, within inside it, before anything is
// counted; both may be nil.
func (s *Store) settle(ctx context.Context, name string, t *task, c *store.Commit,
	between func(verdict []dap.ReportError) error, within func(*database.Tx, commits.Tally) error) error {
	if err := commits.Check(t.Mode, c); err != nil {
		return fmt.Errorf("store: %s: %w", name, err)
	}
	t.gate.RLock()
	gated := true
	defer func() {
		if gated {
			t.gate.RUnlock()
		}
	}()
	if t.isRetired() {
		return fmt.Errorf("store: %s: %w: the task is retired", name, store.ErrNotFound)
	}
	ids := make([]segment.ReportID, len(c.Candidates))
	for i, cand := range c.Candidates {
		ids[i] = segment.ReportID(cand.ID)
	}
	end, err := s.flights.begin(ctx, t.row, ids)
	if err != nil {
		return fmt.Errorf("store: %s: %w", name, err)
	}
	defer end()
	verdict, err := s.judge(ctx, t, c, ids)
	if err != nil {
		return err
	}
	total, parts, err := commits.Fold(c, verdict)
	if err != nil {
		return fmt.Errorf("store: %s: %w", name, err)
	}
	if between != nil {
		if err := between(verdict); err != nil {
			return err
		}
	}
	run, err := s.writeRun(verdict, ids)
	if err != nil {
		return fmt.Errorf("store: %s: %w", name, err)
	}
	var at step
	err = s.update(ctx, name, func(tx *database.Tx) error {
		if within != nil {
			if err := within(tx, total); err != nil {
				return err
			}
		}
		if err := s.grow(tx, false); err != nil {
			return err
		}
		at, err = t.apply(tx, c, total, parts, run)
		return err
	})
	if err != nil {
		if !errors.Is(err, store.ErrUnknown) && run.Name != "" {
			_ = segment.Remove(s.opt.FS, run.Name) // what stays is swept when the store is next opened
		}
		return err
	}
	t.gate.RUnlock()
	gated = false
	if run.Name != "" {
		s.add(idsOf(t.row), run, at)
	}
	end()
	if run.Name != "" {
		s.merge(context.WithoutCancel(ctx), idsOf(t.row))
	}
	return nil
}

// judge says of each candidate whether its batch still takes it and whether it is new.
func (s *Store) judge(ctx context.Context, t *task, c *store.Commit, ids []segment.ReportID) ([]dap.ReportError, error) {
	verdict := make([]dap.ReportError, len(c.Candidates))
	shut, err := s.shutBatches(ctx, t, c.Batches)
	if err != nil {
		return nil, err
	}
	var open []segment.ReportID
	var at []int
	for i, cand := range c.Candidates {
		if shut[cand.Batch] {
			verdict[i] = dap.BatchCollected
			continue
		}
		open, at = append(open, ids[i]), append(at, i)
	}
	if len(open) == 0 {
		return verdict, nil
	}
	b, release, err := s.acquire(ctx, idsOf(t.row))
	if err != nil {
		return nil, err
	}
	defer release()
	seen, err := b.FilterNew(open)
	if err != nil {
		return nil, s.damage(t.row, b, err)
	}
	for k, i := range at {
		if seen[k] {
			verdict[i] = dap.ReportReplayed
		}
	}
	return verdict, nil
}

// shutBatches says which batches take nothing any more: closed, or frozen by a collection.
func (s *Store) shutBatches(ctx context.Context, t *task, batches []store.Batch) ([]bool, error) {
	shut := make([]bool, len(batches))
	if t.Mode == dap.TimeInterval {
		for i, b := range batches {
			state, frozen := t.stateOf(b.Start)
			shut[i] = state == store.Closed || frozen
		}
		return shut, nil
	}
	err := s.view(ctx, "shut-batches", func(tx *database.Tx) error {
		for i, b := range batches {
			state, frozen, err := idState(tx, t, b.ID)
			if err != nil {
				return err
			}
			shut[i] = state == store.Closed || frozen
		}
		return nil
	})
	return shut, err
}

// writeRun makes the ids that are kept durable, in one file; it has no name where there
// are none.
func (s *Store) writeRun(verdict []dap.ReportError, ids []segment.ReportID) (meta segment.RunMeta, err error) {
	var kept []segment.ReportID
	for i, id := range ids {
		if verdict[i] == 0 {
			kept = append(kept, id)
		}
	}
	if len(kept) == 0 {
		return meta, nil
	}
	name, err := s.runName()
	if err != nil {
		return meta, err
	}
	return segment.WriteRun(s.opt.FS, name, &s.setKey, kept, s.opt.Failpoints)
}

// apply is the part of the transaction that all commits share.
func (t *task) apply(tx *database.Tx, c *store.Commit, total commits.Tally, parts []commits.Part, run segment.RunMeta) (at step, err error) {
	for i, p := range parts {
		if p.Reports == 0 {
			continue
		}
		if err := t.addTo(tx, c.Batches[i], p); err != nil {
			return at, err
		}
	}
	if run.Name != "" {
		if at, err = putRuns(tx, idsOf(t.row), run); err != nil {
			return at, err
		}
	}
	for _, code := range slices.Sorted(maps.Keys(total.Rejected)) {
		if err := reject(tx, t, code, total.Rejected[code]); err != nil {
			return at, err
		}
	}
	_, err = tx.Exec("count-aggregated", t.row, total.Kept)
	return at, err
}

// batchRow is a row of the table batch.
type batchRow struct {
	id          int64
	closed      bool
	verified    uint64
	bucket      uint64 // time-interval
	batch       []byte // leader-selected
	first, last uint64
	checksum    []byte
	share       []byte
	sum         []byte
}

func (r *batchRow) dest() []any {
	return []any{&r.id, &r.bucket, &r.batch, &r.closed, &r.verified, &r.first, &r.last, &r.checksum, &r.share, &r.sum}
}

// key is the batch as the columns `bucket` and `batch_id` have it.
func (t *task) key(b store.Batch) (bucket, id any) {
	if t.Mode == dap.TimeInterval {
		return uint64(b.Start), nil
	}
	return nil, b.ID[:]
}

func (t *task) batch(tx *database.Tx, b store.Batch) (row batchRow, found bool, err error) {
	if bucket, id := t.key(b); id == nil {
		found, err = tx.One("batch-of-bucket", []any{t.row, bucket}, row.dest()...)
	} else {
		found, err = tx.One("batch-of-id", []any{t.row, id}, row.dest()...)
	}
	if err == nil && found {
		err = t.check(&row)
	}
	return row, found, err
}

// addTo merges p into the row of its batch.
func (t *task) addTo(tx *database.Tx, b store.Batch, p commits.Part) error {
	row, found, err := t.batch(tx, b)
	if err != nil {
		return err
	}
	if row.closed {
		// The gate forbids it.
		return errors.New("internal error: commit to a closed batch")
	}
	if !found {
		bucket, id := t.key(b)
		if row.id, err = tx.Insert("put-batch", t.row, bucket, id); err != nil {
			return err
		}
		row.checksum = make([]byte, len(p.Checksum))
		row.bucket, row.batch = uint64(b.Start), b.ID[:]
	}
	first, last, sum := p.First, p.Last, p.Checksum
	sum.Merge(dap.Checksum(row.checksum))
	share := p.Share
	if row.verified > 0 {
		first, last = min(first, dap.Time(row.first)), max(last, dap.Time(row.last))
		v, err := t.getVDAF()
		if err != nil {
			return err
		}
		if share, err = v.ReadAggShare(row.share); err != nil {
			return fmt.Errorf("stored share: %w", err)
		}
		if err := share.Merge(p.Share); err != nil {
			return fmt.Errorf("merge: %w", err)
		}
	}
	row.verified, row.first, row.last = row.verified+p.Reports, uint64(first), uint64(last)
	row.checksum, row.share = sum[:], share.Append(nil)
	_, err = tx.Exec("merge-batch", row.id, row.verified, row.first, row.last, row.checksum, row.share, t.sum(&row))
	return err
}
