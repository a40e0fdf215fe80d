package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/commits"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// leased is the row of a claimed job.
type leased struct {
	row, task, bucket int64
	reports           uint64
	digest            []byte
	location          string
	step              int
}

// fence finds the job that j claims, and keeps it for the transaction;
// [store.ErrStaleLease] if the claim is no longer j's.
func fence(tx *pgdb.Tx, j *store.Job) (*leased, error) { return fenced(tx, "lock-leased-job", j) }

func fenced(tx *pgdb.Tx, statement string, j *store.Job) (*leased, error) {
	l := new(leased)
	found, err := tx.One(statement, []any{j.ID, j.Lease.Token[:]}, &l.row, &l.task, &l.bucket, &l.reports, &l.digest, &l.location, &l.step)
	if err == nil && !found {
		err = store.ErrStaleLease
	}
	return l, err
}

// of is the task of a leased job, as far as its row tells.
func (l *leased) of(j *store.Job) *task { return &task{id: j.Task, row: l.task} }

// SetAside takes slices out of a job that was not sent; see [store.Jobs].
func (s *Store) SetAside(ctx context.Context, j *store.Job, list []int, code dap.ReportError, why string) (left *store.Job, err error) {
	if code == 0 || why == "" {
		return nil, errors.New("store: set-aside: no code or no reason")
	}
	err = s.update(ctx, "set-aside", func(tx *pgdb.Tx) error {
		left = nil
		l, err := fence(tx, j)
		if err != nil {
			return err
		}
		if l.digest != nil {
			return fmt.Errorf("%w: the job was sent", store.ErrDifferent)
		}
		var ends []int64
		var reports uint64
		if ends, reports, left, err = l.apart(tx, j, list); err != nil || len(ends) == 0 { // it was done before
			return err
		}
		if _, err := tx.Exec("end-those-slices", l.row, ends); err != nil {
			return err
		}
		if err := l.of(j).reject(tx, code, reports); err != nil {
			return err
		}
		if left == nil {
			_, err = tx.Exec("quarantine-job", l.row, why)
			return err
		}
		if _, err := tx.Exec("put-aside", l.task, l.bucket, reports, why); err != nil {
			return err
		}
		_, err = tx.Exec("shrink-job", l.row, reports)
		return err
	})
	if err != nil {
		return nil, err
	}
	return left, nil
}

// apart finds the rows of slices that are to leave a job, of how many reports, and the job
// that is left; nil if that is nothing. Slices that have left already are passed over.
func (l *leased) apart(tx *pgdb.Tx, j *store.Job, list []int) (ends []int64, reports uint64, left *store.Job, err error) {
	type there struct {
		row     int64
		reports uint64
	}
	rows := make(map[string]there)
	err = tx.Each("find-slices-of-job", []any{l.row}, func(r pgdb.Row) error {
		var x there
		var object string
		var pieces []byte
		err := r.Scan(&x.row, &x.reports, &object, &pieces)
		rows[object+string(pieces)] = x
		return err
	})
	if err != nil {
		return nil, 0, nil, err
	}
	out := make(map[int]bool)
	for _, i := range list {
		if i < 0 || i >= len(j.Slices) || out[i] {
			return nil, 0, nil, fmt.Errorf("slice %d of %d", i, len(j.Slices))
		}
		out[i] = true
	}
	if len(out) == 0 {
		return nil, 0, nil, errors.New("no slice is set aside")
	}
	rest := &store.Job{ID: j.ID, Lease: j.Lease, Task: j.Task, Batch: j.Batch}
	for i := range j.Slices {
		x, here := rows[j.Slices[i].Object+string(segment.AppendPieces(nil, j.Slices[i].Pieces))]
		switch {
		case out[i] && here:
			ends, reports = append(ends, x.row), reports+x.reports
		case !out[i] && !here:
			return nil, 0, nil, fmt.Errorf("%w: the job has other slices", store.ErrDifferent)
		case !out[i]:
			rest.Slices = append(rest.Slices, j.Slices[i])
		}
	}
	if len(ends)+len(rest.Slices) != len(rows) {
		return nil, 0, nil, fmt.Errorf("%w: the job has other slices", store.ErrDifferent)
	}
	if len(rest.Slices) > 0 {
		left = rest
	}
	return ends, reports, left, nil
}

// reject counts reports turned away after their acknowledgement.
func (t *task) reject(tx *pgdb.Tx, code dap.ReportError, reports uint64) error {
	var counts tallies
	counts.add(tallyRejected, code, reports)
	_, err := counts.put(tx, t)
	return err
}

// SaveSent records what is about to be sent; see [store.Leader].
func (s *Store) SaveSent(ctx context.Context, j *store.Job, sent *store.Sent, expires time.Time) error {
	if n := (j.Reports() + 7) / 8; len(sent.Accepted) != n {
		return fmt.Errorf("store: save-sent: bitmap of %d bytes, want %d", len(sent.Accepted), n)
	}
	if len(sent.Answers) != int(sent.Step) {
		return fmt.Errorf("store: save-sent: %d answers before step %d", len(sent.Answers), sent.Step)
	}
	err := s.update(ctx, "save-sent", func(tx *pgdb.Tx) error {
		l, err := fence(tx, j)
		if err != nil {
			return err
		}
		switch step := int(sent.Step); {
		case l.digest == nil && step == 0:
		case l.digest != nil && step == l.step && bytes.Equal(l.digest, sent.Digest[:]):
		case l.digest != nil && step == l.step+1:
			if found, err := l.shared(tx, sent.Location); err != nil {
				return err
			} else if found {
				return errShared
			}
			if _, err := tx.Exec("put-answer", l.row, l.step, append([]byte{}, sent.Answers[l.step]...)); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%w: not the request that was sent before, nor the next", store.ErrDifferent)
		}
		location := sent.Location
		if location == "" {
			location = l.location
		}
		_, err = tx.Exec("save-sent", l.row, sent.Digest[:], sent.Accepted, location, expires.UnixNano(), int(sent.Step))
		if pgdb.Violated(err) == "job_location" { // another replica was at it
			return errors.Join(errShared, err)
		}
		return err
	})
	if err == nil && expires.After(j.Lease.Expires) {
		j.Lease.Expires = expires
	}
	return err
}

// errShared: of two jobs of the same reports another one goes on.
var errShared = fmt.Errorf("%w: another job of the same reports goes on with the helper's", store.ErrBusy)

// Shared says whether another job of the same reports goes on; see [store.Leader].
func (s *Store) Shared(ctx context.Context, j *store.Job, location string) (found bool, err error) {
	err = s.view(ctx, "shared-job", func(tx *pgdb.Tx) error {
		l, err := fenced(tx, "leased-job", j)
		if err == nil {
			found, err = l.shared(tx, location)
		}
		return err
	})
	return found, err
}

func (l *leased) shared(tx *pgdb.Tx, location string) (bool, error) {
	if location == "" {
		return false, nil
	}
	var one int
	return tx.One("shared-job", []any{l.task, location, l.row}, &one)
}

// RenewJob extends a lease; see [store.Jobs]. A crash of the server may take it back, which
// costs the worker its job.
func (s *Store) RenewJob(ctx context.Context, j *store.Job, expires time.Time) error {
	return s.outcome("renew-job", s.db.Pass(ctx, "renew-job", func(tx *pgdb.Tx) error {
		n, err := tx.Exec("renew-job", j.ID, j.Lease.Token[:], expires.UnixNano())
		if err == nil && n == 0 {
			err = store.ErrStaleLease
		}
		return err
	}))
}

// RetryJob gives a claim back; see [store.Leader].
func (s *Store) RetryJob(ctx context.Context, j *store.Job, after time.Time, why string) error {
	return s.update(ctx, "retry-job", func(tx *pgdb.Tx) error {
		l, err := fence(tx, j)
		if err != nil {
			return err
		}
		_, err = tx.Exec("retry-job", l.row, after.UnixNano(), why)
		return err
	})
}

// QuarantineJob sets a job aside for good; see [store.Leader].
func (s *Store) QuarantineJob(ctx context.Context, j *store.Job, code dap.ReportError, why string) error {
	if code == 0 || why == "" {
		return errors.New("store: quarantine: no code or no reason")
	}
	return s.update(ctx, "quarantine-job", func(tx *pgdb.Tx) error {
		l, err := fence(tx, j)
		if err != nil {
			return err
		}
		return l.quarantine(tx, l.of(j), code, why)
	})
}

func (l *leased) quarantine(tx *pgdb.Tx, t *task, code dap.ReportError, why string) error {
	if _, err := tx.Exec("drop-answers", l.row); err != nil {
		return err
	}
	if _, err := tx.Exec("end-slices", l.row); err != nil {
		return err
	}
	if err := t.reject(tx, code, l.reports); err != nil {
		return err
	}
	_, err := tx.Exec("quarantine-job", l.row, why)
	return err
}

// ParkJob leaves a job until Resume; see [store.Leader].
func (s *Store) ParkJob(ctx context.Context, j *store.Job, why string, now time.Time) error {
	if why == "" {
		return errors.New("store: park: no reason")
	}
	return s.update(ctx, "park-job", func(tx *pgdb.Tx) error {
		l, err := fence(tx, j)
		if err != nil {
			return err
		}
		if _, err := tx.Exec("park-job", l.row, why); err != nil {
			return err
		}
		return l.of(j).turned(tx, why, now)
	})
}

// FinishJob commits a job and ends it; see [store.Leader].
func (s *Store) FinishJob(ctx context.Context, j *store.Job, c *store.Commit) error {
	if c.Task != j.Task {
		return errors.New("store: finish-job: commit of another task")
	}
	for _, b := range c.Batches {
		if b != j.Batch {
			return errors.New("store: finish-job: not the batch of the job")
		}
	}
	// Looked at before the work as well, so that a worker that lost its lease does none.
	err := s.view(ctx, "fence", func(tx *pgdb.Tx) error {
		if _, err := live(tx, reading, j.Task); err != nil {
			return err
		}
		_, err := fenced(tx, "leased-job", j)
		return err
	})
	if err != nil {
		return err
	}
	var l *leased
	return s.settle(ctx, j.Task, &deed{
		name: "finish-job", commit: c, flight: j.Lease.Token,
		lock: func(tx *pgdb.Tx) (t *task, done bool, err error) {
			if l, err = fence(tx, j); err != nil {
				return nil, false, err
			}
			t, err = live(tx, sharing, j.Task)
			return t, false, err
		},
		write: func(tx *pgdb.Tx, total commits.Tally) error {
			if n := total.Sum(); n != l.reports {
				return fmt.Errorf("the commit accounts for %d of the job's %d reports", n, l.reports)
			}
			if _, err := tx.Exec("end-slices", l.row); err != nil {
				return err
			}
			if _, err := tx.Exec("drop-job", l.row); err != nil {
				return err
			}
			return l.of(j).heard(tx, c.Conduct)
		},
	})
}

// Hurry has the jobs of a task that wait claimable at once; see [store.Leader].
func (s *Store) Hurry(ctx context.Context, id dap.TaskID) error {
	return s.update(ctx, "hurry-jobs", func(tx *pgdb.Tx) error {
		t, err := find(tx, reading, id)
		if err == nil {
			_, err = tx.Exec("hurry-jobs", t.row)
		}
		return err
	})
}

// Sent lists the jobs that were sent and are not finished; see [store.Jobs].
func (s *Store) Sent(ctx context.Context, id dap.TaskID) (out []store.JobInFlight, err error) {
	err = s.view(ctx, "sent-jobs", func(tx *pgdb.Tx) error {
		out = nil
		t, err := find(tx, reading, id)
		if err != nil {
			return err
		}
		var rows []int64
		at := make(map[int64]int)
		err = tx.Each("sent-jobs", []any{t.row}, func(r pgdb.Row) error {
			var row int64
			var x store.JobInFlight
			err := r.Scan(&row, &x.Accepted)
			rows, at[row], out = append(rows, row), len(out), append(out, x)
			return err
		})
		if err != nil {
			return err
		}
		return eachSlice(tx, "slices-of-jobs", []any{rows}, func(job int64, x segment.Slice) {
			x.TaskID = id
			out[at[job]].Slices = append(out[at[job]].Slices, x)
		})
	})
	return out, err
}

func sortedCodes(m map[dap.ReportError]uint64) []dap.ReportError {
	return slices.Sorted(maps.Keys(m))
}
