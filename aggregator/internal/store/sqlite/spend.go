package sqlite

import (
	"context"
	"fmt"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/rows"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service/database"
)

// marksOf reads what is kept beside the marks of a round; over says that it takes none.
func marksOf(tx *database.Tx, x rows.Round) (m store.Marks, over bool, err error) {
	var sum []byte
	var state int
	found, err := tx.One("spent-round", []any{x.Task, x.Number}, &m.Count, &sum, &state)
	if found {
		m.Sum = [32]byte(sum)
	}
	return m, state > 0, err
}

// countMarks reads all marks of a round.
func countMarks(tx *database.Tx, id dap.TaskID, x rows.Round) (m store.Marks, err error) {
	err = tx.Each("spent-of-round", []any{x.Task, x.Number}, func(r database.Row) error {
		var mark, report []byte
		err := r.Scan(&mark, &report)
		if err == nil {
			m.Add(id, &store.Spend{Round: x.Number, Mark: store.Mark(mark), Report: dap.ReportID(report)})
		}
		return err
	})
	return m, err
}

// checkMarks reads the marks of a round before this handle relies on them for the first
// time, and not inside of a commit, for which others would wait.
func (s *Store) checkMarks(ctx context.Context, t *task, number uint64) error {
	x := rows.Round{Task: t.row, Number: number}
	if s.rounds.Known(x) {
		return nil
	}
	err := s.view(ctx, "check-marks", func(tx *database.Tx) error {
		want, over, err := marksOf(tx, x)
		if err != nil || over {
			return err
		}
		got, err := countMarks(tx, t.ID, x)
		if err == nil && got != want {
			err = fmt.Errorf("%w: round %d of task %v has %d, and had %d", store.ErrMarks, number, t.ID, got.Count, want.Count)
		}
		return err
	})
	if err == nil {
		s.rounds.Note(x)
	}
	return err
}

// Spend implements [store.Spending].
func (s *Store) Spend(ctx context.Context, id dap.TaskID, list []store.Spend) ([]bool, error) {
	t, err := s.live(id)
	if err != nil {
		return nil, err
	}
	spent := make([]bool, len(list))
	// In the order of the keys, so that rows of one page come one after the other.
	order, err := store.Ascending(list)
	if err != nil || len(list) == 0 {
		return spent, err
	}
	for k, i := range order {
		if k > 0 && list[i].Round == list[order[k-1]].Round {
			continue
		}
		if err := s.checkMarks(ctx, t, list[i].Round); err != nil {
			return nil, err
		}
	}
	t.gate.RLock() // the task is not retired meanwhile
	defer t.gate.RUnlock()
	if t.isRetired() {
		return nil, fmt.Errorf("store: spend: %w: the task is retired", store.ErrNotFound)
	}
	err = s.update(ctx, "spend", func(tx *database.Tx) error {
		if err := s.grow(tx, false); err != nil {
			return err
		}
		for len(order) > 0 { // one round after the other
			n := 1
			for n < len(order) && list[order[n]].Round == list[order[0]].Round {
				n++
			}
			if err := t.spend(tx, list, order[:n], spent); err != nil {
				return err
			}
			order = order[n:]
		}
		return nil
	})
	return spent, err
}

// spend gives the marks of one round, in an order.
func (t *task) spend(tx *database.Tx, list []store.Spend, order []int, spent []bool) error {
	x := rows.Round{Task: t.row, Number: list[order[0]].Round}
	marks, over, err := marksOf(tx, x)
	if err != nil {
		return err
	}
	before := marks.Count
	for _, i := range order {
		if over {
			spent[i] = true
			continue
		}
		y := &list[i]
		var whose []byte
		found, err := tx.One("spend", []any{t.row, y.Round, y.Mark[:], y.Report[:]}, &whose)
		switch {
		case err == nil && found:
			marks.Add(t.ID, y)
		case err == nil: // it is there
			found, err = tx.One("spender", []any{t.row, y.Round, y.Mark[:]}, &whose)
		}
		switch {
		case err != nil:
			return err
		case !found:
			return fmt.Errorf("internal error: a mark is neither new nor there")
		}
		spent[i] = string(whose) != string(y.Report[:])
	}
	if marks.Count == before {
		return nil
	}
	_, err = tx.Exec("put-spent-round", t.row, x.Number, marks.Count, marks.Sum[:])
	return err
}

// Spent implements [store.Spending].
func (s *Store) Spent(ctx context.Context, id dap.TaskID, first, last uint64) (all []store.Spent, err error) {
	t, err := s.task(id)
	if err != nil || first > store.LastRound {
		return nil, err
	}
	err = s.view(ctx, "counts", func(tx *database.Tx) error {
		all = nil
		return tx.Each("spent-in-rounds", []any{t.row, first, min(last, store.LastRound)}, func(r database.Row) error {
			var x store.Spent
			err := r.Scan(&x.Round, &x.Marks)
			all = append(all, x)
			return err
		})
	})
	return all, err
}

// SpentRounds implements [store.Spending].
func (s *Store) SpentRounds(ctx context.Context, id dap.TaskID, n int) (list []uint64, err error) {
	t, err := s.task(id)
	if err != nil {
		return nil, err
	}
	err = s.view(ctx, "counts", func(tx *database.Tx) error {
		list = nil
		return tx.Each("spent-rounds", []any{t.row, n}, func(r database.Row) error {
			var x uint64
			err := r.Scan(&x)
			list = append(list, x)
			return err
		})
	})
	return list, err
}

// ForgetRound implements [store.Spending].
func (s *Store) ForgetRound(ctx context.Context, id dap.TaskID, number uint64, n int) (more bool, err error) {
	t, err := s.live(id)
	if err != nil {
		return false, err
	}
	if n <= 0 {
		return false, fmt.Errorf("store: forget: %d marks at a time", n)
	}
	err = s.update(ctx, "forget-round", func(tx *database.Tx) error {
		gone, err := tx.Exec("forget-round", t.row, number, n)
		if err != nil {
			return err
		}
		state := 2
		if more = gone == n; more {
			state = 1
		}
		statement := "round-over"
		if gone > 0 {
			statement = "put-round-over" // whatever is kept of it: none of these marks is new again
		}
		_, err = tx.Exec(statement, t.row, number, state)
		return err
	})
	return more, err
}
