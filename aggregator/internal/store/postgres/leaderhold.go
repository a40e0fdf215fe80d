package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// conduct is how the peer answered the jobs of a task since a person last let it go on.
type conduct struct {
	heard          bool
	turned         int
	asked, refused uint64
	held           bool
}

func (t *task) conduct(tx *pgdb.Tx, statement string) (c conduct, found bool, err error) {
	found, err = tx.One(statement, []any{t.row}, &c.heard, &c.turned, &c.asked, &c.refused, &c.held)
	return c, found, err
}

// change has fn change a conduct, which nobody else changes until the transaction is over.
func (t *task) change(tx *pgdb.Tx, fn func(c *conduct) (hold string), now time.Time) error {
	for range 8 { // a person may forgive in between
		if _, err := tx.Exec("begin-conduct", t.row); err != nil {
			return err
		}
		c, found, err := t.conduct(tx, "lock-conduct")
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		hold := fn(&c)
		if _, err := tx.Exec("save-conduct", t.row, c.heard, c.turned, c.asked, c.refused); err != nil || hold == "" || c.held {
			return err
		}
		_, err = tx.Exec("hold-task", t.row, now.UnixNano(), false, hold)
		return err
	}
	return errors.New("the conduct of the peer comes and goes")
}

// turned enters a job that the peer has refused as a whole.
func (t *task) turned(tx *pgdb.Tx, why string, now time.Time) error {
	return t.change(tx, func(c *conduct) string {
		c.turned++
		switch {
		case !c.heard && c.turned >= store.FirstTurned:
			return fmt.Sprintf("the helper has refused each of the first %d jobs as a whole, the last one so: %s", c.turned, why)
		case c.turned >= store.RowTurned:
			return fmt.Sprintf("the helper has refused %d jobs in a row as a whole, the last one so: %s", c.turned, why)
		}
		return ""
	}, now)
}

// heard enters a job that the peer has answered report by report. A window begins with the
// first refusal, so that a peer that answers well is read of and not written, and its jobs
// do not wait for one another. One that speaks for the peer is followed by another, so
// that an old one hides no new fault.
func (t *task) heard(tx *pgdb.Tx, said *store.Conduct) error {
	if said == nil || said.Asked == 0 {
		return nil
	}
	c, _, err := t.conduct(tx, "conduct")
	if err != nil || c.heard && c.turned == 0 && c.asked == 0 && said.Refused == 0 {
		return err
	}
	return t.change(tx, func(c *conduct) string {
		c.heard, c.turned = true, 0
		if c.asked == 0 && said.Refused == 0 {
			return ""
		}
		c.asked, c.refused = c.asked+said.Asked, c.refused+said.Refused
		if c.asked < store.WindowReports {
			return ""
		}
		hold := ""
		if 2*c.refused > c.asked {
			hold = fmt.Sprintf("the helper has refused %d of the last %d reports for reasons of its own", c.refused, c.asked)
		}
		c.asked, c.refused = 0, 0
		return hold
	}, said.Now)
}

// HoldTask holds a task in the name of a person; see [store.Leader].
func (s *Store) HoldTask(ctx context.Context, id dap.TaskID, why string, now time.Time) error {
	if why == "" {
		return errors.New("store: hold: no reason")
	}
	return s.update(ctx, "hold-task", func(tx *pgdb.Tx) error {
		t, err := live(tx, reading, id)
		if err == nil {
			_, err = tx.Exec("hold-task", t.row, now.UnixNano(), true, why)
		}
		return err
	})
}

// Holds lists the tasks that are held; see [store.Leader].
func (s *Store) Holds(ctx context.Context) (holds []store.Hold, err error) {
	var sum hash.Hash
	err = s.view(ctx, "holds", func(tx *pgdb.Tx) error {
		holds, sum = nil, sha256.New()
		return tx.Each("holds-of-tasks", nil, func(r pgdb.Row) error {
			var h store.Hold
			err := addHold(sum, r, &h)
			holds = append(holds, h)
			return err
		})
	})
	if err == nil {
		s.past.read([sha256.Size]byte(sum.Sum(nil)))
	}
	return holds, err
}

// addHold reads a row of "holds-of-tasks", and adds to a hash which task is held since when.
func addHold(sum hash.Hash, r pgdb.Row, h *store.Hold) error {
	var id []byte
	var since int64
	var person bool
	var why string
	if err := r.Scan(&id, &since, &person, &why); err != nil {
		return err
	}
	sum.Write(binary.BigEndian.AppendUint64(id[:len(id):len(id)], uint64(since)))
	if h != nil {
		*h = store.Hold{Task: dap.TaskID(id), Since: time.Unix(0, since).UTC(), Person: person, Why: why}
	}
	return nil
}

// Resume lets tasks go on; see [store.Leader].
func (s *Store) Resume(ctx context.Context, ids []dap.TaskID, drop bool) (reports uint64, err error) {
	type parked struct {
		leased
		why string
	}
	err = s.update(ctx, "resume", func(tx *pgdb.Tx) error {
		reports = 0
		chosen := make(map[int64]*task)
		var rows []int64
		for _, id := range ids {
			t, err := find(tx, reading, id)
			if err != nil {
				return err
			}
			chosen[t.row], rows = t, append(rows, t.row)
			if _, err := tx.Exec("forgive-task", t.row); err != nil {
				return err
			}
		}
		var jobs []parked
		err := tx.Each("parked-jobs", []any{rows}, func(r pgdb.Row) error {
			var x parked
			err := r.Scan(&x.row, &x.task, &x.reports, &x.why)
			jobs = append(jobs, x)
			return err
		})
		if err != nil {
			return err
		}
		for i := range jobs {
			x := &jobs[i]
			reports += x.reports
			if drop {
				err = x.quarantine(tx, chosen[x.task], dap.ReportDropped, "given up: "+x.why)
			} else {
				_, err = tx.Exec("unpark-job", x.row)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	s.past.forget()
	return reports, nil
}
