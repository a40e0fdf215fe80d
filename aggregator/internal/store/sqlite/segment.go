package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service/database"
)

const (
	stageUpload = 0 // refused at upload
	stageLater  = 1 // rejected after the acknowledgement
)

// SegmentsOfLog implements [segment.Committer].
func (s *Store) SegmentsOfLog(ctx context.Context, log disk.LogID) (done bool, err error) {
	err = s.view(ctx, "segments-of-log", func(tx *database.Tx) error {
		var one int
		done, err = tx.One("find-log", []any{log[:]}, &one)
		return err
	})
	return done, err
}

// CommitLog implements [segment.Committer]: the reports of the log are acknowledged for
// good and wait to be claimed. Duplicates that the sorter left out count as replays.
func (s *Store) CommitLog(ctx context.Context, log disk.LogID, segments []segment.Meta, lost *segment.LogDamage, others []segment.Begun) error {
	return s.update(ctx, "commit-log", func(tx *database.Tx) error {
		var one int
		if done, err := tx.One("find-log", []any{log[:]}, &one); err != nil || done {
			return err
		}
		if _, err := tx.Exec("put-log", log[:]); err != nil {
			return err
		}
		if err := beginLogs(tx, others); err != nil {
			return err
		}
		if err := s.grow(tx, false); err != nil {
			return err
		}
		for _, m := range segments {
			t, err := s.task(m.TaskID)
			if err != nil {
				return fmt.Errorf("%w: %w", segment.ErrForeign, err)
			}
			if _, err := tx.Exec("count-acknowledged", t.row, m.Count+m.Duplicates); err != nil {
				return err
			}
			queued, err := t.putSegment(tx, m)
			if err != nil {
				return err
			}
			if !queued {
				if _, err := tx.Exec("put-tombstone", m.Name); err != nil {
					return err
				}
			}
			if err := reject(tx, t, dap.ReportReplayed, uint64(m.Duplicates)); err != nil {
				return err
			}
		}
		if lost == nil {
			return nil
		}
		return s.countDamage(tx, log, lost)
	})
}

func beginLogs(tx *database.Tx, logs []segment.Begun) error {
	for _, log := range logs {
		if _, err := tx.Exec("begin-log", log.ID[:], log.File); err != nil {
			return err
		}
	}
	return nil
}

// BeginLogs implements [segment.Committer].
func (s *Store) BeginLogs(ctx context.Context, logs []segment.Begun) error {
	return s.update(ctx, "begin-logs", func(tx *database.Tx) error { return beginLogs(tx, logs) })
}

// BegunLogs implements [segment.Committer].
func (s *Store) BegunLogs(ctx context.Context) (logs []segment.Begun, err error) {
	err = s.view(ctx, "begun-logs", func(tx *database.Tx) error {
		logs = nil
		return tx.Each("begun-logs", nil, func(r database.Row) error {
			var id []byte
			var log segment.Begun
			if err := r.Scan(&id, &log.File); err != nil {
				return err
			}
			log.ID = disk.LogID(id)
			logs = append(logs, log)
			return nil
		})
	})
	return logs, err
}

// putSegment queues a segment, unless its batch bucket was closed, or its task retired,
// while the reports were in the log.
func (t *task) putSegment(tx *database.Tx, m segment.Meta) (queued bool, err error) {
	if t.isRetired() {
		return false, reject(tx, t, dap.ReportDropped, uint64(m.Count))
	}
	if t.Mode == dap.TimeInterval {
		var one int
		closed, err := tx.One("interval-closed", []any{t.row, m.Bucket, m.Bucket}, &one)
		if err != nil {
			return false, err
		}
		if closed {
			return false, reject(tx, t, dap.BatchCollected, uint64(m.Count))
		}
	}
	_, err = tx.Exec("put-segment", m.Name, m.Size, m.Sum[:], m.Duplicates, t.row, m.Bucket, m.Count, m.Came)
	return err == nil, err
}

// ForgetLog implements [segment.Committer].
func (s *Store) ForgetLog(ctx context.Context, log disk.LogID) error {
	return s.update(ctx, "forget-log", func(tx *database.Tx) error {
		_, err := tx.Exec("forget-log", log[:])
		return err
	})
}

// reject counts reports turned away after their acknowledgement.
func reject(tx *database.Tx, t *task, code dap.ReportError, reports uint64) error {
	if reports == 0 {
		return nil
	}
	_, err := tx.Exec("count-rejected", t.row, stageLater, int(code), reports)
	return err
}

// ClaimSegments implements [store.Leader].
func (s *Store) ClaimSegments(ctx context.Context, now time.Time, lease time.Duration, n int, except ...dap.TaskID) (jobs []*store.SegmentJob, err error) {
	if n <= 0 {
		return nil, nil
	}
	without := []int64{}
	for _, id := range except {
		if t, err := s.task(id); err == nil {
			without = append(without, t.row)
		}
	}
	rows, err := json.Marshal(without)
	if err != nil {
		return nil, err
	}
	err = s.update(ctx, "claim-segments", func(tx *database.Tx) error {
		claims, err := s.claimable(tx, now, n, string(rows))
		if err != nil {
			return err
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

// rejectLate finishes the segments of a time-interval batch that has just been closed. No
// worker has seen them: a collection freezes only when nothing in it waits, and what
// comes later is not claimable.
func (t *task) rejectLate(tx *database.Tx, sp span) error {
	_, late, err := dropListed(tx, "late-segments", "drop-segment", t.row, sp.first, sp.last)
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

// claim is a segment about to be leased.
type claim struct {
	id    int64
	task  *task
	batch int64 // leader-selected: zero until assigned
	job   *store.SegmentJob
}

// claimable reads the oldest claimable segments; without is a JSON array of rows of tasks.
func (s *Store) claimable(tx *database.Tx, now time.Time, n int, without string) (claims []claim, err error) {
	err = tx.Each("claimable-segments", []any{now.UnixNano(), n, now.Add(store.Longest).UnixNano(), without}, func(r database.Row) error {
		c := claim{job: new(store.SegmentJob)}
		m := &c.job.Segment
		var row int64
		var sum, digest, accepted []byte
		var location string
		var step int
		err := r.Scan(&c.id, &m.Name, &m.Size, &sum, &m.Duplicates, &row, &m.Bucket, &m.Count, &c.batch,
			&c.job.Lease.Attempts, &digest, &accepted, &location, &step)
		if err != nil {
			return err
		}
		c.task = s.taskByRow(row)
		m.TaskID, m.Sum = c.task.ID, segment.Sum(sum)
		c.job.Task = c.task.ID
		if digest != nil {
			c.job.Sent = &store.Sent{Accepted: accepted, Step: uint16(step), Digest: [32]byte(digest), Location: location}
		}
		claims = append(claims, c)
		return nil
	})
	return claims, err
}

func (s *Store) claim(tx *database.Tx, c claim, expires time.Time) error {
	var batch any
	if c.task.Mode == dap.LeaderSelected {
		if err := s.assign(tx, &c); err != nil {
			return err
		}
		batch = c.batch
	} else {
		c.job.Batch.Start = dap.Time(c.job.Segment.Bucket)
	}
	token, err := s.random(16)
	if err != nil {
		return err
	}
	if c.job.Sent != nil && c.job.Sent.Step > 0 {
		if c.job.Sent.Answers, err = answers(tx, c.id); err != nil {
			return err
		}
	}
	c.job.Lease.Token = [16]byte(token)
	c.job.Lease.Expires = expires
	c.job.Lease.Attempts++
	_, err = tx.Exec("lease-segment", c.id, token, expires.UnixNano(), batch)
	return err
}

// answers are what the helper said so far in a segment's aggregation job.
func answers(tx *database.Tx, segment int64) (out [][]byte, err error) {
	err = tx.Each("answers", []any{segment}, func(r database.Row) error {
		var body []byte
		err := r.Scan(&body)
		out = append(out, body)
		return err
	})
	return out, err
}

// assign gives a leader-selected segment its batch.
func (s *Store) assign(tx *database.Tx, c *claim) error {
	var id []byte
	if c.batch != 0 {
		if _, err := tx.One("batch-by-row", []any{c.batch}, &id); err != nil {
			return err
		}
		c.job.Batch.ID = dap.BatchID(id)
		return nil
	}
	found, err := tx.One("fillable-batch", []any{c.task.row, c.task.minimum()}, &c.batch, &id)
	if err != nil {
		return err
	}
	if !found {
		if id, err = s.random(32); err != nil {
			return err
		}
		if c.batch, err = tx.Insert("put-batch", c.task.row, nil, id); err != nil {
			return err
		}
	}
	c.job.Batch.ID = dap.BatchID(id)
	return nil
}

// leased is the row of a claimed segment.
type leased struct {
	id, task int64
	reports  uint64
	batch    int64
	digest   []byte
	location string
	step     int
}

// fence finds the segment that j claims; [store.ErrStaleLease] if the claim is no longer
// j's.
func fence(tx *database.Tx, j *store.SegmentJob) (l leased, err error) {
	found, err := tx.One("leased-segment", []any{j.Segment.Name, j.Lease.Token[:]},
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

// SaveSent implements [store.Leader].
func (s *Store) SaveSent(ctx context.Context, j *store.SegmentJob, sent *store.Sent, expires time.Time) error {
	if n := (j.Segment.Count + 7) / 8; len(sent.Accepted) != n {
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
				return fmt.Errorf("%w: another segment of the same reports goes on with the job", store.ErrBusy)
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

// Shared implements [store.Leader].
func (s *Store) Shared(ctx context.Context, j *store.SegmentJob, location string) (found bool, err error) {
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

// RetrySegment implements [store.Leader].
func (s *Store) RetrySegment(ctx context.Context, j *store.SegmentJob, after time.Time, why string) error {
	return s.update(ctx, "retry-segment", func(tx *database.Tx) error {
		l, err := fence(tx, j)
		if err != nil {
			return err
		}
		_, err = tx.Exec("retry-segment", l.id, after.UnixNano(), why)
		return err
	})
}

// Quarantine implements [store.Leader].
func (s *Store) Quarantine(ctx context.Context, j *store.SegmentJob, code dap.ReportError, why string) error {
	if code == 0 {
		return errors.New("store: quarantine: no code")
	}
	return s.update(ctx, "quarantine", func(tx *database.Tx) error {
		l, err := fence(tx, j)
		if err != nil {
			return err
		}
		if err := l.dropAnswers(tx); err != nil {
			return err
		}
		if _, err := tx.Exec("quarantine-segment", l.id, why); err != nil {
			return err
		}
		return reject(tx, s.taskByRow(l.task), code, l.reports)
	})
}
