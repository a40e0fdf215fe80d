package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

var _ segment.Acknowledger = (*Store)(nil)

// uploading is one object in the transaction that acknowledges what it has.
type uploading struct {
	tasks   map[dap.TaskID]int64 // rows, of those that are not retired
	refused []segment.Refusal
	viewed  bool // a task may have views
}

// Acknowledge names the slices of an object; see [segment.Acknowledger]. Each task's row is
// held as commits hold it, so that a batch that is frozen, or a task that was closed, takes
// nothing more: no slice ever waits for one, nor comes to the other.
func (s *Store) Acknowledge(ctx context.Context, life, object string, body [][]byte, list []segment.Slice) (refused []segment.Refusal, err error) {
	err = s.update(ctx, "acknowledge", func(tx *pgdb.Tx) error {
		if err := lives(tx, life); err != nil {
			return fmt.Errorf("%w: %w", segment.ErrBusy, err)
		}
		u := &uploading{viewed: s.viewed.Load(), tasks: make(map[dap.TaskID]int64), refused: make([]segment.Refusal, len(list))}
		if err := u.judge(tx, list); err != nil {
			return err
		}
		refused = u.refused
		return u.put(tx, object, body, list)
	})
	if err == nil {
		return refused, nil
	}
	if body == nil && !errors.Is(err, store.ErrUnknown) {
		// Where this fails too the object stays, and nothing names it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
		defer cancel()
		_ = s.update(ctx, "give-up-object", func(tx *pgdb.Tx) error {
			_, err := tx.Exec("put-tombstones", [][]byte{[]byte(object)})
			return err
		})
	}
	return nil, err
}

// judge takes the locks of the tasks, and says which slices come too late.
func (u *uploading) judge(tx *pgdb.Tx, list []segment.Slice) error {
	known := make(map[dap.TaskID]bool)
	var ids [][]byte
	for i := range list {
		if id := dap.TaskID(list[i].TaskID); !known[id] {
			known[id] = true
			ids = append(ids, id[:])
		}
	}
	found := 0
	err := tx.Each("share-tasks", []any{ids}, func(r pgdb.Row) error {
		var id []byte
		var row int64
		var retired bool
		err := r.Scan(&id, &row, &retired)
		if found++; err == nil && !retired {
			u.tasks[dap.TaskID(id)] = row
		}
		return err
	})
	if err != nil {
		return err
	}
	if found < len(ids) {
		return fmt.Errorf("%w: %w: task", segment.ErrForeign, store.ErrNotFound)
	}
	tasks, buckets, at := []int64{}, []int64{}, []int{} // of the slices that have a task
	for i := range list {
		row, live := u.tasks[list[i].TaskID]
		if !live {
			u.refused[i] = segment.Refusal(dap.ReportDropped)
			continue
		}
		tasks, buckets, at = append(tasks, row), append(buckets, int64(min(list[i].Bucket, math.MaxInt64))), append(at, i)
	}
	statement := "shut-places"
	if u.viewed {
		statement = "shut-places-of-views"
	}
	return tx.Each(statement, []any{tasks, buckets}, func(r pgdb.Row) error {
		var n int
		var closed bool
		if err := r.Scan(&n, &closed); err != nil {
			return err
		}
		why := dap.BatchCollected
		if closed {
			why = dap.ReportDropped
		}
		u.refused[at[n-1]] = segment.Refusal(why)
		return nil
	})
}

// put names what is kept. An object of which nothing is has its tombstone at once, if it
// lies in object storage.
func (u *uploading) put(tx *pgdb.Tx, object string, body [][]byte, list []segment.Slice) error {
	var pieces, sums [][]byte
	var sizes, tasks, buckets, reports, duplicates, came []int64
	counts := make(map[int64]*taskTally)
	for i := range list {
		s := &list[i]
		if u.refused[i] != 0 {
			continue
		}
		row := u.tasks[s.TaskID]
		pieces, sums = append(pieces, segment.AppendPieces(nil, s.Pieces)), append(sums, s.Sum[:])
		sizes, tasks, buckets = append(sizes, s.Size()), append(tasks, row), append(buckets, int64(s.Bucket))
		reports, duplicates, came = append(reports, int64(s.Count)), append(duplicates, int64(s.Duplicates)), append(came, s.Came)
		if counts[row] == nil {
			counts[row] = new(taskTally)
		}
		counts[row].acknowledged += int64(s.Count + s.Duplicates)
		counts[row].repeated += int64(s.Duplicates)
	}
	if len(tasks) == 0 {
		if body == nil {
			_, err := tx.Exec("put-tombstones", [][]byte{[]byte(object)})
			return err
		}
		return nil
	}
	var whole []byte
	if body != nil {
		whole = join(body)
	}
	t := tallied(counts)
	_, err := tx.Exec("put-upload", object, len(tasks), whole, pieces, sizes, sums, tasks, buckets, reports, duplicates, came,
		t.tasks, t.kinds, t.codes, t.reports)
	if err == nil && body == nil {
		err = buriedAlready(tx, object)
	}
	return err
}

// taskTally is what an upload counts of one task.
type taskTally struct{ acknowledged, repeated int64 }

// tallied are the rows of counts, by task.
func tallied(counts map[int64]*taskTally) (t struct{ tasks, kinds, codes, reports []int64 }) {
	add := func(task, kind int64, code dap.ReportError, n int64) {
		if n > 0 {
			t.tasks, t.kinds, t.codes, t.reports = append(t.tasks, task), append(t.kinds, kind), append(t.codes, int64(code)), append(t.reports, n)
		}
	}
	for task, c := range counts {
		add(task, tallyAcknowledged, 0, c.acknowledged)
		add(task, tallyRejected, dap.ReportReplayed, c.repeated)
	}
	return t
}

func join(parts [][]byte) []byte {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	whole := make([]byte, 0, n)
	for _, p := range parts {
		whole = append(whole, p...)
	}
	return whole
}

// AddRefused counts reports that were refused at upload; see [store.Leader].
func (s *Store) AddRefused(ctx context.Context, id dap.TaskID, refused map[dap.ReportError]uint64) error {
	return s.update(ctx, "add-refused", func(tx *pgdb.Tx) error {
		t, err := find(tx, reading, id)
		if err != nil {
			return err
		}
		var counts tallies
		for _, code := range sortedCodes(refused) {
			if code == 0 {
				return errors.New("refused without a code")
			}
			counts.add(tallyRefused, code, refused[code])
		}
		_, err = counts.put(tx, t)
		return err
	})
}
