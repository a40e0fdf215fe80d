package postgres

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// mostSlices bounds the slices of one job, whatever few reports each has.
const mostSlices = 1024

// claiming is one call of ClaimJobs in its transaction.
type claiming struct {
	s        *Store
	after    int64 // free slices up to this one are held tasks'
	tx       *pgdb.Tx
	now, end time.Time // of the leases
	except   without
	most     store.Most
	jobs     []*store.Job
}

// without is what a claim leaves, as arguments of statements: tasks, and the first and the
// last batch bucket of each.
type without struct {
	tasks       [][]byte
	first, last []int64
}

func (w *without) add(e store.Except) {
	from, to := e.Bounds()
	w.tasks, w.first, w.last = append(w.tasks, e.Task[:]), append(w.first, from), append(w.last, to)
}

// between are arguments with these among them.
func (w *without) between(before []any, after ...any) []any {
	return slices.Concat(before, []any{w.tasks, w.first, w.last}, after)
}

// sum tells one from another.
func (w *without) sum() [sha256.Size]byte {
	h := sha256.New()
	for i, task := range w.tasks {
		h.Write(task)
		_ = binary.Write(h, binary.BigEndian, []int64{w.first[i], w.last[i]})
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// ClaimJobs leases jobs; see [store.Jobs]. It waits for no other claim: what another one is
// at is passed over.
func (s *Store) ClaimJobs(ctx context.Context, now time.Time, lease time.Duration, n int, most store.Most, except ...store.Except) ([]*store.Job, error) {
	if n <= 0 {
		return nil, nil
	}
	leaves := without{tasks: [][]byte{}, first: []int64{}, last: []int64{}}
	for _, e := range except {
		leaves.add(e)
	}
	// Looked at first, for what is not begun costs no write.
	var found bool
	var after int64
	err := s.view(ctx, "claimable", func(tx *pgdb.Tx) error {
		after = 0
		_, err := tx.One("claimable", leaves.between([]any{now.UnixNano(), now.Add(store.Longest).UnixNano()}, firstSlices), &found)
		if err != nil || found {
			return err
		}
		after, found, err = s.past.next(tx, s.clock.Now(), &leaves)
		return err
	})
	if err != nil || !found {
		return nil, err
	}
	var c *claiming
	err = s.update(ctx, "claim-jobs", func(tx *pgdb.Tx) error {
		c = &claiming{s: s, after: after, tx: tx, now: now, end: now.Add(lease), except: without{slices.Clone(leaves.tasks), slices.Clone(leaves.first), slices.Clone(leaves.last)}, most: most}
		if err := c.due(n); err != nil {
			return err
		}
		for more := true; more && len(c.jobs) < n; {
			var err error
			if more, err = c.fresh(); err != nil {
				return err
			}
		}
		return c.fill()
	})
	if err != nil {
		return nil, err
	}
	return c.jobs, nil
}

// due leases jobs that were made before.
func (c *claiming) due(n int) error {
	err := c.tx.Each("due-jobs", c.except.between([]any{c.now.UnixNano(), c.now.Add(store.Longest).UnixNano()}, n), func(r pgdb.Row) error {
		j := new(store.Job)
		var task, batch, digest, accepted []byte
		var bucket uint64
		var location string
		var step int
		if err := r.Scan(&j.ID, &task, &bucket, &batch, &j.Lease.Attempts, &digest, &accepted, &location, &step); err != nil {
			return err
		}
		j.Task, j.Batch = dap.TaskID(task), batchOf(bucket, batch)
		if digest != nil {
			j.Sent = &store.Sent{Accepted: accepted, Step: uint16(step), Digest: [32]byte(digest), Location: location}
		}
		c.jobs = append(c.jobs, j)
		return nil
	})
	if err != nil {
		return err
	}
	for _, j := range c.jobs {
		if err := c.lease(j); err != nil {
			return err
		}
		// A worker that was killed within its commit has left the ids claimed.
		if _, err := c.tx.Exec("drop-flight-of-lease", j.ID); err != nil {
			return err
		}
		if _, err := c.tx.Exec("lease-job", j.ID, j.Lease.Token[:], j.Lease.Expires.UnixNano()); err != nil {
			return err
		}
		if j.Sent == nil || j.Sent.Step == 0 {
			continue
		}
		err := c.tx.Each("answers-of-job", []any{j.ID}, func(r pgdb.Row) error {
			var body []byte
			err := r.Scan(&body)
			j.Sent.Answers = append(j.Sent.Answers, body)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// lease draws the token of a claim.
func (c *claiming) lease(j *store.Job) error {
	if _, err := rand.Read(j.Lease.Token[:]); err != nil {
		return fmt.Errorf("random bytes: %w", err)
	}
	j.Lease.Expires = c.end
	j.Lease.Attempts++
	return nil
}

// fresh makes a job of the oldest free slice and of the next ones of its task and batch
// bucket; false if there is none.
func (c *claiming) fresh() (more bool, err error) {
	t := new(task)
	var id []byte
	var mode int
	var bucket uint64
	found, err := c.tx.One("oldest-slice", c.except.between(nil, firstSlices), &t.row, &id, &mode, &t.least, &bucket)
	if err == nil && !found {
		found, err = c.tx.One("oldest-slice-after", c.except.between(nil, c.after), &t.row, &id, &mode, &t.least, &bucket)
	}
	if err != nil || !found {
		return false, err
	}
	t.id, t.mode = dap.TaskID(id), dap.BatchMode(mode)
	j := &store.Job{Task: t.id, Batch: store.Batch{Start: dap.Time(bucket)}}
	var batch any
	room := uint64(c.most.Reports) // until the batch has its minimum
	if t.mode == dap.LeaderSelected {
		var row int64
		if row, room, err = c.assign(t, j); err != nil {
			return false, err
		}
		if row == 0 { // another claim assigns
			c.except.add(store.Except{Task: t.id})
			return true, nil
		}
		batch = row
	}
	ids, reports, err := c.slices(t, bucket, room)
	if err != nil {
		return false, err
	}
	if err := c.lease(j); err != nil {
		return false, err
	}
	_, err = c.tx.One("put-job", []any{t.row, bucket, batch, reports, j.Lease.Token[:], j.Lease.Expires.UnixNano()}, &j.ID)
	if err != nil {
		return false, err
	}
	if n, err := c.tx.Exec("take-slices", j.ID, ids); err != nil || n != int64(len(ids)) {
		return false, expect(false, err, "slice that was locked")
	}
	c.jobs = append(c.jobs, j)
	return true, nil
}

// slices are those that a job takes, the first of which is locked already. It ends with the
// one by which its batch has no more room.
func (c *claiming) slices(t *task, bucket uint64, room uint64) (ids []int64, reports uint64, err error) {
	var size int64
	full := false
	limit := max(1, min(c.most.Reports, mostSlices))
	err = c.tx.Each("free-slices", []any{t.row, bucket, limit}, func(r pgdb.Row) error {
		var id, bytes int64
		var n uint64
		if err := r.Scan(&id, &bytes, &n); err != nil || full {
			return err
		}
		if len(ids) > 0 && (reports >= room || !c.most.Takes(int(reports), size, int(n), bytes)) {
			full = true
			return nil
		}
		ids, size, reports = append(ids, id), size+bytes, reports+n
		return nil
	})
	if err == nil && len(ids) == 0 {
		err = errors.New("internal error: a slice that was locked is gone")
	}
	return ids, reports, err
}

// assign gives a leader-selected job its batch, and says how many reports that lacks. Claims
// of one task do so one after the other, and before or after a batch of it is frozen; row is
// 0 where another is at it.
func (c *claiming) assign(t *task, j *store.Job) (row int64, room uint64, err error) {
	var one int
	if found, err := c.tx.One("turn-of-batches", []any{t.row}, &one); err != nil || !found {
		return 0, 0, err
	}
	row, id, has, err := c.s.full.fillable(c.tx, t)
	if err != nil {
		return 0, 0, err
	}
	if row == 0 {
		id = make([]byte, len(dap.BatchID{}))
		if _, err := rand.Read(id); err != nil {
			return 0, 0, fmt.Errorf("random bytes: %w", err)
		}
		if _, err := c.tx.One("put-batch-id", []any{t.row, id}, &row); err != nil {
			return 0, 0, err
		}
	}
	j.Batch = store.Batch{ID: dap.BatchID(id)}
	return row, t.minimum() - has, nil
}

// fill reads the slices of all jobs that were claimed.
func (c *claiming) fill() error {
	rows := make([]int64, len(c.jobs))
	at := make(map[int64]*store.Job, len(c.jobs))
	for i, j := range c.jobs {
		rows[i], at[j.ID] = j.ID, j
	}
	return eachSlice(c.tx, "slices-of-jobs", []any{rows}, func(job int64, s segment.Slice) {
		j := at[job]
		s.TaskID = j.Task
		j.Slices = append(j.Slices, s)
	})
}

// eachSlice reads rows of a statement that lists slices after a number.
func eachSlice(tx *pgdb.Tx, statement string, args []any, fn func(number int64, s segment.Slice)) error {
	return tx.Each(statement, args, func(r pgdb.Row) error {
		var number int64
		s, err := scanSlice(r, &number)
		if err == nil {
			fn(number, s)
		}
		return err
	})
}

// scanSlice reads a slice after other columns, but for its task.
func scanSlice(r pgdb.Row, before ...any) (s segment.Slice, err error) {
	var pieces, sum []byte
	if err = r.Scan(append(before, &s.Object, &pieces, &s.Bucket, &s.Count, &s.Duplicates, &sum, &s.Came)...); err != nil {
		return s, err
	}
	s.Sum = segment.Sum(sum)
	s.Pieces, err = segment.ReadPieces(pieces)
	return s, err
}
