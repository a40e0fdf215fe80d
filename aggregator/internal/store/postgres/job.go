package postgres

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/commits"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// CommitJob commits a job's reports with its response; see [store.Helper].
func (s *Store) CommitJob(ctx context.Context, in *store.Resource, c *store.Commit,
	reply func(verdict []dap.ReportError) ([]byte, error)) ([]byte, error) {
	a := &answer{name: "commit-job", in: in, commit: c, reply: reply}
	a.due = func(r *resourceRow) (done bool, err error) {
		switch r.State {
		case store.Ready:
			return true, nil
		case store.Failed:
			return false, r.Problem
		}
		return false, nil
	}
	a.write = func(tx *pgdb.Tx, row int64) (int64, error) { return tx.Exec("job-ready", row, a.response, c.Final) }
	return s.answer(ctx, a)
}

// Advance commits a later step of a job with its response; see [store.Helper].
func (s *Store) Advance(ctx context.Context, in *store.Resource, step uint16, digest [32]byte, c *store.Commit,
	reply func(verdict []dap.ReportError) ([]byte, error)) ([]byte, error) {
	if c == nil {
		c = &store.Commit{Task: in.Task}
	}
	a := &answer{name: "advance-job", in: in, commit: c, reply: reply}
	a.due = func(r *resourceRow) (done bool, err error) {
		switch {
		case r.State == store.Failed:
			return false, r.Problem
		case step == 0 || r.State != store.Ready:
			return false, store.ErrStep
		case step == r.Step && bytes.Equal(digest[:], r.stepDigest):
			return true, nil
		case int(step) != int(r.Step)+1:
			return false, store.ErrStep
		}
		return false, nil
	}
	a.write = func(tx *pgdb.Tx, row int64) (int64, error) {
		return tx.Exec("job-advance", row, int(step), digest[:], a.response, c.Final)
	}
	return s.answer(ctx, a)
}

// answer is one step of an aggregation job.
type answer struct {
	name     string
	in       *store.Resource
	commit   *store.Commit
	reply    func(verdict []dap.ReportError) ([]byte, error)
	due      func(r *resourceRow) (done bool, err error) // done: the stored response is the answer
	write    func(tx *pgdb.Tx, row int64) (changed int64, err error)
	response []byte
}

func (s *Store) answer(ctx context.Context, a *answer) ([]byte, error) {
	if a.commit.Task != a.in.Task {
		return nil, fmt.Errorf("store: %s: commit of another task", a.name)
	}
	var done bool
	// Looked at before the work as well, so that what was answered costs none.
	err := s.view(ctx, "reload-resource", func(tx *pgdb.Tx) error {
		t, err := live(tx, reading, a.in.Task)
		if err != nil {
			return err
		}
		r, err := mustResource(tx, t, a.in.Kind, "find-resource", a.in.ID)
		if err != nil {
			return err
		}
		done, err = a.take(r)
		return err
	})
	if err != nil || done {
		return a.response, err
	}
	var row int64
	err = s.settle(ctx, a.in.Task, &deed{
		name: a.name, commit: a.commit, acknowledges: true,
		lock: func(tx *pgdb.Tx) (*task, bool, error) {
			t, err := live(tx, reading, a.in.Task)
			if err != nil {
				return nil, false, err
			}
			r, err := mustResource(tx, t, a.in.Kind, "lock-resource", a.in.ID)
			if err != nil {
				return nil, false, err
			}
			row = r.row
			if done, err := a.take(r); err != nil || done {
				return nil, done, err
			}
			t, err = live(tx, sharing, a.in.Task)
			return t, false, err
		},
		folded: func(verdict []dap.ReportError) error {
			b, err := a.reply(verdict)
			if err != nil {
				return fmt.Errorf("reply: %w", err)
			}
			a.response = append([]byte{}, b...) // never NULL, which would mean that there is none
			return nil
		},
		write: func(tx *pgdb.Tx, _ commits.Tally) error {
			n, err := a.write(tx, row)
			return expect(n == 1, err, "resource")
		},
	})
	if err != nil {
		return nil, err
	}
	return a.response, nil
}

// take has a stored response be the answer, where there is one.
func (a *answer) take(r *resourceRow) (done bool, err error) {
	done, err = a.due(r)
	if done {
		a.response = r.Response
	}
	return done, err
}

// expect is the error where something is not there, or the one that was met before.
func expect(found bool, err error, what string) error {
	if err == nil && !found {
		err = fmt.Errorf("%w: %s", store.ErrNotFound, what)
	}
	return err
}

// UnfinishedJobs counts the jobs from whose stored bytes reports are still to be opened;
// see [store.Helper].
func (s *Store) UnfinishedJobs(ctx context.Context, before time.Time) (n uint64, err error) {
	err = s.view(ctx, "unfinished-jobs", func(tx *pgdb.Tx) error {
		_, err := tx.One("unfinished-jobs", []any{before.UnixNano()}, &n)
		return err
	})
	return n, err
}

// answersAtOnce is how many responses are read in one transaction.
const answersAtOnce = 16

// Answers hands over the responses of the answered jobs; see [store.Helper]. Each handful
// is read in a transaction of its own, so that fn may take its time.
func (s *Store) Answers(ctx context.Context, task dap.TaskID, fn func(response []byte) error) error {
	for last, more := int64(0), true; more; {
		var page [][]byte
		begin := last
		err := s.view(ctx, "answers-of-task", func(tx *pgdb.Tx) error {
			page, last = nil, begin
			t, err := find(tx, reading, task)
			if err != nil {
				return err
			}
			return tx.Each("answers-of-task", []any{t.row, begin, answersAtOnce}, func(r pgdb.Row) error {
				var response []byte
				err := r.Scan(&last, &response)
				page = append(page, response)
				return err
			})
		})
		if err != nil {
			return err
		}
		for _, response := range page {
			if err := fn(response); err != nil {
				return err
			}
		}
		more = len(page) == answersAtOnce
	}
	return nil
}
