package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service/database"
)

// jobSlices is how many slices a job takes at most.
const jobSlices = 256

// ClaimJobs implements [store.Jobs].
func (s *Store) ClaimJobs(ctx context.Context, now time.Time, lease time.Duration, n int, most store.Most, except ...store.Except) (jobs []*store.Job, err error) {
	if n <= 0 {
		return nil, nil
	}
	without := [][3]int64{}
	for _, e := range except {
		if t, err := s.task(e.Task); err == nil {
			from, to := e.Bounds()
			without = append(without, [3]int64{t.row, from, to})
		}
	}
	rows, err := json.Marshal(without)
	if err != nil {
		return nil, err
	}
	err = s.update(ctx, "claim-jobs", func(tx *database.Tx) error {
		jobs = nil
		claims, err := s.due(tx, now, n, string(rows))
		if err != nil {
			return err
		}
		for len(claims) < n {
			c, found, err := s.makeJob(tx, most, string(rows))
			if err != nil {
				return err
			}
			if !found {
				break
			}
			claims = append(claims, c)
		}
		for _, c := range claims {
			if err := s.claim(tx, c, now.Add(lease)); err != nil {
				return err
			}
			jobs = append(jobs, c.job)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return jobs, nil
}

// claim is a job about to be leased.
type claim struct {
	task  *task
	batch int64 // leader-selected
	job   *store.Job
}

// due reads the oldest jobs that may be claimed again; without is a JSON array of rows of
// tasks with batch buckets, from and to.
func (s *Store) due(tx *database.Tx, now time.Time, n int, without string) (claims []claim, err error) {
	err = tx.Each("due-jobs", []any{now.UnixNano(), n, now.Add(store.Longest).UnixNano(), without}, func(r database.Row) error {
		c := claim{job: new(store.Job)}
		var row int64
		var bucket uint64
		var digest, accepted []byte
		var location string
		var step int
		err := r.Scan(&c.job.ID, &row, &bucket, &c.batch, &c.job.Lease.Attempts, &digest, &accepted, &location, &step)
		if err != nil {
			return err
		}
		c.task = s.taskByRow(row)
		c.of(bucket)
		if digest != nil {
			c.job.Sent = &store.Sent{Accepted: accepted, Step: uint16(step), Digest: [32]byte(digest), Location: location}
		}
		claims = append(claims, c)
		return nil
	})
	return claims, err
}

// of sets what the job is of.
func (c *claim) of(bucket uint64) {
	c.job.Task = c.task.ID
	if c.task.Mode == dap.TimeInterval {
		c.job.Batch.Start = dap.Time(bucket)
	}
}

// makeJob makes a job of the oldest free slice, and of others of its task and batch bucket.
func (s *Store) makeJob(tx *database.Tx, most store.Most, without string) (c claim, found bool, err error) {
	var row int64
	var bucket uint64
	if found, err = tx.One("oldest-free", []any{without}, &row, &bucket); err != nil || !found {
		return c, false, err
	}
	c = claim{task: s.taskByRow(row), job: new(store.Job)}
	c.of(bucket)
	var batch any
	missing := uint64(0) // that the batch takes before it is full; time-interval: any number
	if c.task.Mode == dap.LeaderSelected {
		if missing, err = s.assign(tx, &c); err != nil {
			return c, false, err
		}
		batch = c.batch
	}
	type free struct {
		id, size int64
		reports  int
	}
	var list []free
	err = tx.Each("next-free", []any{row, bucket, jobSlices}, func(r database.Row) error {
		var f free
		err := r.Scan(&f.id, &f.reports, &f.size)
		list = append(list, f)
		return err
	})
	if err != nil {
		return c, false, err
	}
	reports, size, n := 0, int64(0), 0
	for _, f := range list {
		full := missing > 0 && uint64(reports) >= missing
		if n > 0 && (full || !most.Takes(reports, size, f.reports, f.size)) {
			break
		}
		reports, size, n = reports+f.reports, size+f.size, n+1
	}
	if c.job.ID, err = tx.Insert("put-job", row, bucket, batch, reports); err != nil {
		return c, false, err
	}
	for _, f := range list[:n] {
		if _, err := tx.Exec("give-slice", f.id, c.job.ID); err != nil {
			return c, false, err
		}
	}
	return c, true, nil
}

func (s *Store) claim(tx *database.Tx, c claim, expires time.Time) (err error) {
	if c.task.Mode == dap.LeaderSelected {
		var id []byte
		if _, err := tx.One("batch-by-row", []any{c.batch}, &id); err != nil {
			return err
		}
		c.job.Batch.ID = dap.BatchID(id)
	}
	if _, c.job.Slices, err = s.readSlices(tx, "slices-of-job", c.job.ID); err != nil {
		return err
	}
	token, err := s.random(16)
	if err != nil {
		return err
	}
	if c.job.Sent != nil && c.job.Sent.Step > 0 {
		if c.job.Sent.Answers, err = answers(tx, c.job.ID); err != nil {
			return err
		}
	}
	c.job.Lease.Token = [16]byte(token)
	c.job.Lease.Expires = expires
	c.job.Lease.Attempts++
	_, err = tx.Exec("lease-job", c.job.ID, token, expires.UnixNano())
	return err
}

// answers are what the helper said so far in an aggregation job.
func answers(tx *database.Tx, job int64) (out [][]byte, err error) {
	err = tx.Each("answers", []any{job}, func(r database.Row) error {
		var body []byte
		err := r.Scan(&body)
		out = append(out, body)
		return err
	})
	return out, err
}

// assign gives a leader-selected job its batch, and says how many reports that lacks.
func (s *Store) assign(tx *database.Tx, c *claim) (missing uint64, err error) {
	var id []byte
	var total uint64
	found, err := tx.One("fillable-batch", []any{c.task.row, c.task.minimum()}, &c.batch, &id, &total)
	if err != nil {
		return 0, err
	}
	if !found {
		if id, err = s.random(32); err != nil {
			return 0, err
		}
		if c.batch, err = tx.Insert("put-batch", c.task.row, nil, id); err != nil {
			return 0, err
		}
	}
	return c.task.minimum() - total, nil
}

// leased is the row of a claimed job.
type leased struct {
	id, task int64
	reports  uint64
	batch    int64
	digest   []byte
	location string
	step     int
}

// fence finds the job that j claims; [store.ErrStaleLease] if the claim is no longer j's.
func fence(tx *database.Tx, j *store.Job) (l leased, err error) {
	found, err := tx.One("leased-job", []any{j.ID, j.Lease.Token[:]},
		&l.id, &l.task, &l.reports, &l.batch, &l.digest, &l.location, &l.step)
	if err == nil && !found {
		err = store.ErrStaleLease
	}
	return l, err
}

// dropAnswers erases what a job of several rounds kept.
func (l *leased) dropAnswers(tx *database.Tx) error {
	if l.step == 0 {
		return nil
	}
	tx.Erase()
	_, err := tx.Exec("drop-answers", l.id)
	return err
}

// end lets the slices of a job go, and sets it aside with a reason, or ends it.
func (l *leased) end(tx *database.Tx, aside string) error {
	if err := l.dropAnswers(tx); err != nil {
		return err
	}
	if _, err := tx.Exec("drop-slices-of-job", l.id); err != nil {
		return err
	}
	var err error
	if aside != "" {
		_, err = tx.Exec("quarantine-job", l.id, aside)
	} else {
		_, err = tx.Exec("drop-job", l.id)
	}
	return err
}

// SetAside implements [store.Jobs].
func (s *Store) SetAside(ctx context.Context, j *store.Job, indexes []int, code dap.ReportError, why string) (left *store.Job, err error) {
	if code == 0 || why == "" {
		return nil, errors.New("store: set-aside: no code or no reason")
	}
	err = s.update(ctx, "set-aside", func(tx *database.Tx) error {
		left = nil
		l, err := fence(tx, j)
		if err != nil {
			return err
		}
		if l.digest != nil {
			return fmt.Errorf("%w: the job was sent", store.ErrDifferent)
		}
		ids, list, err := s.readSlices(tx, "slices-of-job", l.id)
		if err != nil {
			return err
		}
		out, reports := chosen(j, indexes, list)
		if len(out) == len(list) {
			if err := l.end(tx, why); err != nil {
				return err
			}
			return reject(tx, s.taskByRow(l.task), code, uint64(reports))
		}
		rest := *j
		rest.Slices = nil
		for i := range list {
			if !slices.Contains(out, i) {
				rest.Slices = append(rest.Slices, list[i])
			}
		}
		left = &rest
		if len(out) == 0 {
			return nil // it took place before
		}
		for _, i := range out {
			if _, err := tx.Exec("drop-slice", ids[i]); err != nil {
				return err
			}
		}
		if _, err := tx.Exec("put-set-aside", l.task, list[0].Bucket, reports, why); err != nil {
			return err
		}
		if _, err := tx.Exec("shrink-job", l.id, reports); err != nil {
			return err
		}
		return reject(tx, s.taskByRow(l.task), code, uint64(reports))
	})
	return left, err
}

// chosen are the slices of a list that are those of a job by their indexes there, and how
// many reports they have.
func chosen(j *store.Job, indexes []int, list []segment.Slice) (out []int, reports int) {
	for i := range list {
		for _, k := range indexes {
			if x := &j.Slices[k]; x.Object == list[i].Object && x.Start() == list[i].Start() && x.Sum == list[i].Sum {
				out, reports = append(out, i), reports+list[i].Count
				break
			}
		}
	}
	return out, reports
}

// SaveSent implements [store.Jobs].
func (s *Store) SaveSent(ctx context.Context, j *store.Job, sent *store.Sent, expires time.Time) error {
	if n := (j.Reports() + 7) / 8; len(sent.Accepted) != n {
		return fmt.Errorf("store: save-sent: bitmap of %d bytes, want %d", len(sent.Accepted), n)
	}
	if len(sent.Answers) != int(sent.Step) {
		return fmt.Errorf("store: save-sent: %d answers before step %d", len(sent.Answers), sent.Step)
	}
	err := s.update(ctx, "save-sent", func(tx *database.Tx) error {
		l, err := fence(tx, j)
		if err != nil {
			return err
		}
		switch step := int(sent.Step); {
		case l.digest == nil && step == 0:
		case l.digest != nil && step == l.step && bytes.Equal(l.digest, sent.Digest[:]):
		case l.digest != nil && step == l.step+1:
			if found, err := shared(tx, l, sent.Location); err != nil {
				return err
			} else if found {
				return fmt.Errorf("%w: another job of the same reports goes on with the helper's", store.ErrBusy)
			}
			if _, err := tx.Exec("put-answer", l.id, l.step, sent.Answers[l.step]); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%w: not the request that was sent before, nor the next", store.ErrDifferent)
		}
		location := sent.Location
		if location == "" {
			location = l.location
		}
		_, err = tx.Exec("save-sent", l.id, sent.Digest[:], sent.Accepted, location, expires.UnixNano(), int(sent.Step))
		return err
	})
	if err == nil && expires.After(j.Lease.Expires) {
		j.Lease.Expires = expires
	}
	return err
}

// Shared implements [store.Jobs].
func (s *Store) Shared(ctx context.Context, j *store.Job, location string) (found bool, err error) {
	err = s.view(ctx, "shared-job", func(tx *database.Tx) error {
		l, err := fence(tx, j)
		if err == nil {
			found, err = shared(tx, l, location)
		}
		return err
	})
	return found, err
}

func shared(tx *database.Tx, l leased, location string) (bool, error) {
	if location == "" {
		return false, nil
	}
	var one int
	return tx.One("shared-job", []any{l.task, location, l.id}, &one)
}

// RenewJob implements [store.Jobs].
func (s *Store) RenewJob(ctx context.Context, j *store.Job, expires time.Time) error {
	return s.update(ctx, "renew-job", func(tx *database.Tx) error {
		l, err := fence(tx, j)
		if err != nil {
			return err
		}
		_, err = tx.Exec("renew-job", l.id, expires.UnixNano())
		return err
	})
}

// RetryJob implements [store.Jobs].
func (s *Store) RetryJob(ctx context.Context, j *store.Job, after time.Time, why string) error {
	return s.update(ctx, "retry-job", func(tx *database.Tx) error {
		l, err := fence(tx, j)
		if err != nil {
			return err
		}
		_, err = tx.Exec("retry-job", l.id, after.UnixNano(), why)
		return err
	})
}

// QuarantineJob implements [store.Jobs].
func (s *Store) QuarantineJob(ctx context.Context, j *store.Job, code dap.ReportError, why string) error {
	if code == 0 || why == "" {
		return errors.New("store: quarantine: no code or no reason")
	}
	return s.update(ctx, "quarantine-job", func(tx *database.Tx) error {
		l, err := fence(tx, j)
		if err != nil {
			return err
		}
		if err := l.end(tx, why); err != nil {
			return err
		}
		return reject(tx, s.taskByRow(l.task), code, l.reports)
	})
}

// Sent implements [store.Jobs].
func (s *Store) Sent(ctx context.Context, id dap.TaskID) (out []store.JobInFlight, err error) {
	t, err := s.task(id)
	if err != nil {
		return nil, err
	}
	err = s.view(ctx, "sent", func(tx *database.Tx) error {
		out = nil
		var jobs []int64
		err := tx.Each("sent-jobs", []any{t.row}, func(r database.Row) error {
			var job int64
			var x store.JobInFlight
			err := r.Scan(&job, &x.Accepted)
			jobs, out = append(jobs, job), append(out, x)
			return err
		})
		if err != nil {
			return err
		}
		for i, job := range jobs {
			if _, out[i].Slices, err = s.readSlices(tx, "slices-of-job", job); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

// rejectLate finishes the slices of a time-interval batch that has just been closed. No
// worker has seen them: a collection freezes only when nothing in it waits, and what
// comes later is not claimable.
func (t *task) rejectLate(tx *database.Tx, sp span) error {
	_, late, err := dropListed(tx, "late-slices", "drop-slice", t.row, sp.first, sp.last)
	if err != nil {
		return err
	}
	return reject(tx, t, dap.BatchCollected, late)
}

// dropListed deletes the rows that a statement lists as id and reports, and says how many
// rows and reports they were.
func dropListed(tx *database.Tx, list, drop string, args ...any) (rows int, reports uint64, err error) {
	var ids []int64
	err = tx.Each(list, args, func(r database.Row) error {
		var id int64
		var n uint64
		err := r.Scan(&id, &n)
		ids, reports = append(ids, id), reports+n
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	for _, id := range ids {
		if _, err := tx.Exec(drop, id); err != nil {
			return 0, 0, err
		}
	}
	return len(ids), reports, nil
}
