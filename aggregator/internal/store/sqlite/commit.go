package sqlite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/service/database"
	"github.com/starling-agg/starling/vdaf"
)

// CommitSegment implements [store.Store].
func (s *Store) CommitSegment(ctx context.Context, j *store.SegmentJob, c *store.Commit) error {
	t, err := s.live(j.Task)
	if err != nil {
		return err
	}
	if c.Task != j.Task {
		return errors.New("store: commit-segment: commit of another task")
	}
	for _, b := range c.Batches {
		if b != j.Batch {
			return errors.New("store: commit-segment: not the batch of the segment")
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
	return s.settle(ctx, "commit-segment", t, c, nil, func(tx *database.Tx, total tally) error {
		l, err := fence(tx, j)
		if err != nil {
			return err
		}
		if n := total.sum(); n != l.reports {
			return fmt.Errorf("the commit accounts for %d of the segment's %d reports", n, l.reports)
		}
		if err := l.dropAnswers(tx); err != nil {
			return err
		}
		_, err = tx.Exec("drop-segment", l.id)
		return err
	})
}

// tally is what a commit counts.
type tally struct {
	kept     uint64
	rejected map[dap.ReportError]uint64
}

func (t tally) sum() uint64 {
	n := t.kept
	for _, r := range t.rejected {
		n += r
	}
	return n
}

// part is what a commit adds to one batch.
type part struct {
	reports     uint64
	first, last dap.Time
	checksum    dap.Checksum
	share       *vdaf.AggShare
}

// settle is one commit: verdicts, fold, run files, transaction, in this order. between runs after the fold and outside
// the transaction, within inside it, before anything is counted; both may be nil.
func (s *Store) settle(ctx context.Context, name string, t *task, c *store.Commit,
	between func(verdict []dap.ReportError) error, within func(*database.Tx, tally) error) error {
	if err := t.checkCommit(c); err != nil {
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
	buckets, unlock, err := s.lockBuckets(ctx, t, c)
	if err != nil {
		return err
	}
	defer unlock()
	verdict, err := s.judge(ctx, t, c, buckets)
	if err != nil {
		return err
	}
	total, parts, err := fold(c, verdict)
	if err != nil {
		return fmt.Errorf("store: %s: %w", name, err)
	}
	if between != nil {
		if err := between(verdict); err != nil {
			return err
		}
	}
	if err := s.writeRuns(c, verdict, buckets); err != nil {
		return fmt.Errorf("store: %s: %w", name, err)
	}
	err = s.update(ctx, name, func(tx *database.Tx) error {
		if within != nil {
			if err := within(tx, total); err != nil {
				return err
			}
		}
		return t.apply(tx, c, total, parts, buckets)
	})
	if err != nil {
		if !errors.Is(err, store.ErrUnknown) {
			s.dropRuns(buckets)
		}
		return err
	}
	t.gate.RUnlock()
	gated = false
	for _, b := range buckets {
		if b.run.Name != "" {
			if err := b.Add(b.run); err != nil {
				// Committed all the same: the rows know the run, and whoever comes next loads it.
				s.replay.retire(b.key, b.openBucket)
			}
		}
		b.unlock()
	}
	for _, b := range buckets {
		s.merge(context.WithoutCancel(ctx), b.key, b.openBucket)
	}
	return nil
}

// checkCommit refuses what only a bug of the caller could send.
func (t *task) checkCommit(c *store.Commit) error {
	seen := make(map[store.Batch]struct{}, len(c.Batches))
	for _, b := range c.Batches {
		if _, twice := seen[b]; twice {
			return errors.New("batch named twice")
		}
		seen[b] = struct{}{}
		if t.Mode == dap.TimeInterval && b.Start > maxTime {
			return fmt.Errorf("bucket %d is out of range", b.Start)
		}
	}
	for _, cand := range c.Candidates {
		switch {
		case cand.Batch < 0 || int(cand.Batch) >= len(c.Batches):
			return fmt.Errorf("candidate of batch %d of %d", cand.Batch, len(c.Batches))
		case cand.Time > maxTime:
			return fmt.Errorf("report time %d is out of range", cand.Time)
		case t.Mode == dap.TimeInterval && cand.Time != c.Batches[cand.Batch].Start:
			return errors.New("candidate outside of its bucket")
		}
	}
	for code, n := range c.Rejected {
		if code == 0 && n > 0 {
			return errors.New("rejected without a code")
		}
	}
	return nil
}

// lockedBucket is a bucket whose replay set this commit owns.
type lockedBucket struct {
	*openBucket
	key        bucketKey
	candidates []int // indices into Commit.Candidates
	run        segment.RunMeta
	unlock     func() // may be called more than once
	release    func()
}

// lockBuckets locks the buckets of the candidates, in ascending order, and opens their runs.
func (s *Store) lockBuckets(ctx context.Context, t *task, c *store.Commit) (buckets []*lockedBucket, unlock func(), err error) {
	byTime := make(map[dap.Time][]int)
	for i, cand := range c.Candidates {
		byTime[cand.Time] = append(byTime[cand.Time], i)
	}
	unlock = func() {
		for _, b := range buckets {
			b.unlock()
			b.release()
		}
	}
	for _, at := range slices.Sorted(maps.Keys(byTime)) {
		b := &lockedBucket{key: bucketKey{t.row, int64(at)}, candidates: byTime[at]}
		unlockOne, held := s.replay.commits.lock(b.key), true
		b.unlock = func() {
			if held {
				held = false
				unlockOne()
			}
		}
		if b.openBucket, b.release, err = s.acquire(ctx, b.key); err != nil {
			b.unlock()
			unlock()
			return nil, nil, err
		}
		buckets = append(buckets, b)
	}
	return buckets, unlock, nil
}

// judge says of each candidate whether its batch still takes it and whether it is new.
func (s *Store) judge(ctx context.Context, t *task, c *store.Commit, buckets []*lockedBucket) ([]dap.ReportError, error) {
	verdict := make([]dap.ReportError, len(c.Candidates))
	shut, err := s.shutBatches(ctx, t, c.Batches)
	if err != nil {
		return nil, err
	}
	for i, cand := range c.Candidates {
		if shut[cand.Batch] {
			verdict[i] = dap.BatchCollected
		}
	}
	for _, b := range buckets {
		var ids []segment.ReportID
		var at []int
		for _, i := range b.candidates {
			if verdict[i] == 0 {
				ids = append(ids, segment.ReportID(c.Candidates[i].ID))
				at = append(at, i)
			}
		}
		seen, err := b.FilterNew(ids)
		if err != nil {
			return nil, fmt.Errorf("store: replay check: %w", err)
		}
		for k, i := range at {
			if seen[k] {
				verdict[i] = dap.ReportReplayed
			}
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

// fold counts, and has the caller add up the shares of what is kept.
func fold(c *store.Commit, verdict []dap.ReportError) (tally, []part, error) {
	total := tally{rejected: maps.Clone(c.Rejected)}
	if total.rejected == nil {
		total.rejected = make(map[dap.ReportError]uint64)
	}
	parts := make([]part, len(c.Batches))
	for i, cand := range c.Candidates {
		if verdict[i] != 0 {
			total.rejected[verdict[i]]++
			continue
		}
		total.kept++
		p := &parts[cand.Batch]
		if p.reports == 0 {
			p.first, p.last = cand.Time, cand.Time
		}
		p.first, p.last = min(p.first, cand.Time), max(p.last, cand.Time)
		p.reports++
		p.checksum.Add(cand.ID)
	}
	if c.Fold == nil {
		if len(c.Candidates) > 0 {
			return total, nil, errors.New("candidates without Fold")
		}
		return total, parts, nil
	}
	shares, err := c.Fold(verdict)
	if err != nil {
		return total, nil, fmt.Errorf("fold: %w", err)
	}
	if len(shares) != len(parts) {
		return total, nil, fmt.Errorf("fold returned %d shares for %d batches", len(shares), len(parts))
	}
	for i, share := range shares {
		if parts[i].reports > 0 && share == nil {
			return total, nil, errors.New("fold returned no share for a batch with reports")
		}
		parts[i].share = share
	}
	return total, parts, nil
}

// writeRuns makes the ids that are kept durable, a file per bucket.
func (s *Store) writeRuns(c *store.Commit, verdict []dap.ReportError, buckets []*lockedBucket) error {
	for _, b := range buckets {
		var ids []segment.ReportID
		for _, i := range b.candidates {
			if verdict[i] == 0 {
				ids = append(ids, segment.ReportID(c.Candidates[i].ID))
			}
		}
		if len(ids) == 0 {
			continue
		}
		name, err := s.runName()
		if err != nil {
			return err
		}
		meta, err := segment.WriteRun(s.opt.FS, name, ids, s.opt.Failpoints)
		if err != nil {
			s.dropRuns(buckets)
			return err
		}
		b.run = meta
	}
	return nil
}

// dropRuns removes the files of a commit that did not come about; what stays is swept when the store is next opened.
func (s *Store) dropRuns(buckets []*lockedBucket) {
	var names []string
	for _, b := range buckets {
		if b.run.Name != "" {
			names = append(names, b.run.Name)
		}
	}
	_ = segment.Remove(s.opt.FS, names...)
}

// apply is the part of the transaction that all commits share.
func (t *task) apply(tx *database.Tx, c *store.Commit, total tally, parts []part, buckets []*lockedBucket) error {
	for i, p := range parts {
		if p.reports == 0 {
			continue
		}
		if err := t.addTo(tx, c.Batches[i], p); err != nil {
			return err
		}
	}
	for _, b := range buckets {
		if b.run.Name != "" {
			if err := putRun(tx, b.key, b.run); err != nil {
				return err
			}
		}
	}
	for _, code := range slices.Sorted(maps.Keys(total.rejected)) {
		if err := reject(tx, t, code, total.rejected[code]); err != nil {
			return err
		}
	}
	_, err := tx.Exec("count-aggregated", t.row, total.kept)
	return err
}

// batchRow is a row of the table batch.
type batchRow struct {
	id          int64
	closed      bool
	verified    uint64
	first, last uint64
	checksum    []byte
	share       []byte
}

func (r *batchRow) dest() []any {
	return []any{&r.id, &r.closed, &r.verified, &r.first, &r.last, &r.checksum, &r.share}
}

// key is the batch as the columns bucket and batch_id have it.
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
	return row, found, err
}

// addTo merges p into the row of its batch.
func (t *task) addTo(tx *database.Tx, b store.Batch, p part) error {
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
		row.checksum = make([]byte, len(p.checksum))
	}
	first, last, sum := p.first, p.last, p.checksum
	sum.Merge(dap.Checksum(row.checksum))
	share := p.share
	if row.verified > 0 {
		first, last = min(first, dap.Time(row.first)), max(last, dap.Time(row.last))
		v, err := t.getVDAF()
		if err != nil {
			return err
		}
		if share, err = v.ReadAggShare(row.share); err != nil {
			return fmt.Errorf("stored share: %w", err)
		}
		if err := share.Merge(p.share); err != nil {
			return fmt.Errorf("merge: %w", err)
		}
	}
	_, err = tx.Exec("merge-batch", row.id, row.verified+p.reports, uint64(first), uint64(last), sum[:], share.Append(nil))
	return err
}
