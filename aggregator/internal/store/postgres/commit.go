package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/commits"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// The kinds of the table tally.
const (
	tallyAcknowledged = iota
	tallyAggregated
	tallyRefused
	tallyRejected
)

// A deed is a commit with what is its caller's.
type deed struct {
	name   string
	commit *store.Commit
	// flight is the token of its flight, where whoever takes the work over is to know it;
	// zero: a random one.
	flight [16]byte
	// acknowledges: what it accounts for was acknowledged by it.
	acknowledges bool
	// lock takes the locks of what the commit is about, and of its task, and says whether
	// it was done before.
	lock func(tx *pgdb.Tx) (t *task, done bool, err error)
	// folded is called once, with the verdicts.
	folded func(verdict []dap.ReportError) error
	// write is the caller's part of the transaction.
	write func(tx *pgdb.Tx, total commits.Tally) error
}

// folded is what became of a commit's candidates. It is made once, whatever happens to the
// transaction.
type folded struct {
	verdict []dap.ReportError
	total   commits.Tally
	parts   []commits.Part
	crowd   // of the last attempt
}

// settle is one commit. A first transaction claims its ids, and a second one judges, folds
// and appends, under the locks of package store.
func (s *Store) settle(ctx context.Context, id dap.TaskID, d *deed) error {
	c := d.commit
	var ids []dap.ReportID
	for _, cand := range c.Candidates {
		ids = append(ids, cand.ID)
	}
	key, err := s.keys.At(ctx, s.clock.Now())
	if err != nil {
		return fmt.Errorf("store: %s: %w", d.name, err)
	}
	defer key.Wipe()
	var once *folded
	for range 8 {
		var f *flight
		if len(ids) > 0 {
			if f, err = s.takeOff(ctx, id, ids, d.flight); err != nil {
				return err
			}
		}
		var done bool
		err = s.update(ctx, d.name, func(tx *pgdb.Tx) (err error) {
			if err := lives(tx, c.Life); err != nil {
				return err
			}
			var t *task
			if t, done, err = d.lock(tx); err != nil || done {
				return err
			}
			if err := commits.Check(t.mode, c); err != nil {
				return err
			}
			if err := s.spans(tx, t); err != nil {
				return err
			}
			verdict, err := t.judge(tx, c, f)
			if err != nil {
				return err
			}
			if once == nil {
				total, parts, err := commits.Fold(c, verdict)
				if err == nil && d.folded != nil {
					err = d.folded(verdict)
				}
				if err != nil {
					return err
				}
				once = &folded{verdict: verdict, total: total, parts: parts}
			} else if !slices.Equal(once.verdict, verdict) {
				return fmt.Errorf("%w: a batch was closed, or reports were aggregated, while the commit was tried again", store.ErrAgain)
			}
			own, err := taskKeys{s, t}.of(key)
			if err != nil {
				return err
			}
			defer own.Wipe()
			if err := s.appendTo(tx, t, d, own, once); err != nil {
				return err
			}
			if err := d.write(tx, once.total); err != nil {
				return err
			}
			return f.end(tx) // last, for whoever looks for flights that are too old waits for it
		})
		switch {
		case err == nil && !done:
			s.tidy(ctx, id, once.crowd, f != nil && f.due)
			return nil
		case errors.Is(err, store.ErrUnknown):
			return err // the flight ends with its transaction, or by the clock
		}
		s.giveUp(ctx, f)
		if done || !errors.Is(err, errGrounded) {
			return err
		}
	}
	return err
}

// judge says of each candidate whether its batch still takes it and whether it is new.
func (t *task) judge(tx *pgdb.Tx, c *store.Commit, f *flight) ([]dap.ReportError, error) {
	shut, err := t.shut(tx, c.Batches)
	if err != nil {
		return nil, err
	}
	verdict := make([]dap.ReportError, len(c.Candidates))
	had := make(map[dap.ReportID]struct{}, len(c.Candidates))
	for i, cand := range c.Candidates {
		if _, closed := shut[c.Batches[cand.Batch]]; closed {
			verdict[i] = dap.BatchCollected
			continue
		}
		if _, again := had[cand.ID]; again || f.seen[i] {
			verdict[i] = dap.ReportReplayed
		}
		had[cand.ID] = struct{}{}
	}
	return verdict, nil
}

// shut are the batches that take nothing any more: closed, or frozen by a collection.
func (t *task) shut(tx *pgdb.Tx, batches []store.Batch) (map[store.Batch]struct{}, error) {
	shut := make(map[store.Batch]struct{})
	of := "shut-buckets"
	if len(t.views) > 0 {
		of = "shut-buckets-of-views"
	}
	statement, names := t.names(of, "shut-ids", batches)
	err := tx.Each(statement, []any{t.row, names}, func(r pgdb.Row) error {
		b, err := t.scanBatch(r)
		shut[b] = struct{}{}
		return err
	})
	return shut, err
}

// names are batches as a statement takes them, by the task's mode.
func (t *task) names(buckets, ids string, batches []store.Batch) (statement string, names any) {
	if t.mode == dap.LeaderSelected {
		all := make([][]byte, len(batches))
		for i, b := range batches {
			all[i] = b.ID[:]
		}
		return ids, all
	}
	all := make([]int64, len(batches))
	for i, b := range batches {
		all[i] = int64(b.Start) // commits.Check
	}
	return buckets, all
}

// scanBatch reads the name of a batch, after other columns.
func (t *task) scanBatch(r pgdb.Row, before ...any) (b store.Batch, err error) {
	if t.mode != dap.LeaderSelected {
		var start uint64
		err = r.Scan(append(before, &start)...)
		b.Start = dap.Time(start)
		return b, err
	}
	var id []byte
	if err = r.Scan(append(before, &id)...); err == nil {
		b.ID = dap.BatchID(id)
	}
	return b, err
}

// appendTo writes what all commits write. Each row is a new one.
func (s *Store) appendTo(tx *pgdb.Tx, t *task, d *deed, key *datakey.Key, f *folded) (err error) {
	f.crowd = crowd{}
	if err := s.appendParts(tx, t, d.commit, key, f); err != nil {
		return err
	}
	var kept []dap.ReportID
	for i, cand := range d.commit.Candidates {
		if f.verdict[i] == 0 {
			kept = append(kept, cand.ID)
		}
	}
	if len(kept) > 0 {
		if _, err := s.putRun(tx, idsOf(t.id).found(t), joinIDs(kept)); err != nil {
			return err
		}
	}
	var counts tallies
	if d.acknowledges {
		counts.add(tallyAcknowledged, 0, f.total.Sum())
	}
	counts.add(tallyAggregated, 0, f.total.Kept)
	for _, code := range slices.Sorted(maps.Keys(f.total.Rejected)) {
		counts.add(tallyRejected, code, f.total.Rejected[code])
	}
	f.tallies, err = counts.put(tx, t)
	return err
}

// appendParts makes the batches that there are not yet, ascending, and adds to each.
func (s *Store) appendParts(tx *pgdb.Tx, t *task, c *store.Commit, key *datakey.Key, f *folded) error {
	var batches []store.Batch
	for i, p := range f.parts {
		if p.Reports > 0 {
			batches = append(batches, c.Batches[i])
		}
	}
	if len(batches) == 0 {
		return nil
	}
	statement, names := t.names("put-buckets", "put-ids", batches)
	if _, err := tx.Exec(statement, t.row, names); err != nil {
		return err
	}
	rows := make(map[store.Batch]int64, len(batches))
	statement, names = t.names("find-buckets", "find-ids", batches)
	err := tx.Each(statement, []any{t.row, names}, func(r pgdb.Row) error {
		var row int64
		b, err := t.scanBatch(r, &row)
		rows[b] = row
		return err
	})
	if err != nil {
		return err
	}
	for i, p := range f.parts {
		if p.Reports == 0 {
			continue
		}
		row := rows[c.Batches[i]]
		n, err := t.putPart(tx, key, row, c.Batches[i], p)
		if err != nil {
			return err
		}
		if n >= partsMost {
			f.batches = append(f.batches, row)
		}
	}
	return nil
}

// tallies are rows of the table tally.
type tallies struct{ kinds, codes, reports []int64 }

func (x *tallies) add(kind int, code dap.ReportError, reports uint64) {
	if reports > 0 {
		x.kinds, x.codes, x.reports = append(x.kinds, int64(kind)), append(x.codes, int64(code)), append(x.reports, int64(reports))
	}
}

// put says whether there are many of the task.
func (x *tallies) put(tx *pgdb.Tx, t *task) (many bool, err error) {
	if len(x.kinds) == 0 {
		return false, nil
	}
	var before int
	_, err = tx.One("put-tally", []any{t.row, x.kinds, x.codes, x.reports, talliesMost}, &before)
	return before >= talliesMost, err
}
