package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service/database"
)

// conduct is how the peer answered the jobs of a task since a person last let it go on.
type conduct struct {
	heard          bool
	turned         int
	asked, refused uint64
	held           bool
}

func (t *task) conduct(tx *database.Tx) (c conduct, err error) {
	_, err = tx.One("conduct", []any{t.row}, &c.heard, &c.turned, &c.asked, &c.refused, &c.held)
	return c, err
}

// hear writes a conduct down, and holds the task that it speaks against.
func (t *task) hear(tx *database.Tx, c conduct, why string, now time.Time) error {
	if _, err := tx.Exec("put-conduct", t.row, c.heard, c.turned, c.asked, c.refused); err != nil || why == "" || c.held {
		return err
	}
	_, err := tx.Exec("hold-task", t.row, now.UnixNano(), false, why)
	return err
}

// turned enters a job that the peer has refused as a whole.
func (t *task) turned(tx *database.Tx, why string, now time.Time) error {
	c, err := t.conduct(tx)
	if err != nil {
		return err
	}
	c.turned++
	hold := ""
	switch {
	case !c.heard && c.turned >= store.FirstTurned:
		hold = fmt.Sprintf("the helper has refused each of the first %d jobs as a whole, the last one so: %s", c.turned, why)
	case c.turned >= store.RowTurned:
		hold = fmt.Sprintf("the helper has refused %d jobs in a row as a whole, the last one so: %s", c.turned, why)
	}
	return t.hear(tx, c, hold, now)
}

// heard enters a job that the peer has answered report by report. A window that speaks for
// the peer is followed by another, so that an old one hides no new fault.
func (t *task) heard(tx *database.Tx, said *store.Conduct) error {
	if said == nil || said.Asked == 0 {
		return nil
	}
	c, err := t.conduct(tx)
	if err != nil {
		return err
	}
	c.heard, c.turned = true, 0
	c.asked, c.refused = c.asked+said.Asked, c.refused+said.Refused
	hold := ""
	if c.asked >= store.WindowReports {
		if 2*c.refused > c.asked {
			hold = fmt.Sprintf("the helper has refused %d of the last %d reports for reasons of its own", c.refused, c.asked)
		}
		c.asked, c.refused = 0, 0
	}
	return t.hear(tx, c, hold, said.Now)
}

// ParkJob implements [store.Jobs].
func (s *Store) ParkJob(ctx context.Context, j *store.Job, why string, now time.Time) error {
	if why == "" {
		return errors.New("store: park: no reason")
	}
	return s.update(ctx, "park-job", func(tx *database.Tx) error {
		l, err := fence(tx, j)
		if err != nil {
			return err
		}
		if _, err = tx.Exec("park-job", l.id, why); err != nil {
			return err
		}
		return s.taskByRow(l.task).turned(tx, why, now)
	})
}

// HoldTask implements [store.Leader].
func (s *Store) HoldTask(ctx context.Context, id dap.TaskID, why string, now time.Time) error {
	t, err := s.live(id)
	if err != nil {
		return err
	}
	if why == "" {
		return errors.New("store: hold: no reason")
	}
	return s.update(ctx, "hold-task", func(tx *database.Tx) error {
		_, err := tx.Exec("hold-task", t.row, now.UnixNano(), true, why)
		return err
	})
}

// Holds implements [store.Leader].
func (s *Store) Holds(ctx context.Context) (holds []store.Hold, err error) {
	err = s.view(ctx, "holds", func(tx *database.Tx) error {
		holds = nil
		return tx.Each("holds-of-tasks", nil, func(r database.Row) error {
			var h store.Hold
			var row, since int64
			err := r.Scan(&row, &since, &h.Person, &h.Why)
			if t := s.taskByRow(row); t != nil {
				h.Task, h.Since = t.ID, time.Unix(0, since).UTC()
				holds = append(holds, h)
			}
			return err
		})
	})
	return holds, err
}

// Resume implements [store.Leader].
func (s *Store) Resume(ctx context.Context, tasks []dap.TaskID, drop bool) (reports uint64, err error) {
	type job struct {
		leased
		why string
	}
	err = s.update(ctx, "resume", func(tx *database.Tx) error {
		reports = 0
		chosen := make(map[int64]*task)
		for _, id := range tasks {
			t, err := s.task(id)
			if err != nil {
				return err
			}
			chosen[t.row] = t
			if _, err := tx.Exec("forgive-task", t.row); err != nil {
				return err
			}
		}
		var parked []job
		err := tx.Each("parked-jobs", nil, func(r database.Row) error {
			var x job
			err := r.Scan(&x.id, &x.task, &x.reports, &x.step, &x.why)
			if chosen[x.task] != nil {
				parked = append(parked, x)
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, x := range parked {
			reports += x.reports
			if !drop {
				if _, err := tx.Exec("unpark-job", x.id); err != nil {
					return err
				}
				continue
			}
			if err := x.end(tx, "given up: "+x.why); err != nil {
				return err
			}
			if err := reject(tx, chosen[x.task], dap.ReportDropped, x.reports); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return reports, nil
}
