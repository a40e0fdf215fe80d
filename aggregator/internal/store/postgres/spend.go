package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres/pgdb"
	"github.com/starling-agg/starling/aggregator/internal/store/rows"
	"github.com/starling-agg/starling/dap"
)

// spentSince is the first version of a schema that has marks.
const spentSince = 8

// marksOf reads what is kept beside the marks of a round; over says that it takes none.
func marksOf(tx *pgdb.Tx, x rows.Round) (m store.Marks, over bool, err error) {
	var sum []byte
	var state int
	found, err := tx.One("spent-round", []any{x.Task, int64(x.Number)}, &m.Count, &sum, &state)
	if found {
		m.Sum = [32]byte(sum)
	}
	return m, state > 0, err
}

// countMarks reads all marks of a round.
func countMarks(tx *pgdb.Tx, id dap.TaskID, x rows.Round) (m store.Marks, err error) {
	err = tx.Each("spent-of-round", []any{x.Task, int64(x.Number)}, func(r pgdb.Row) error {
		var mark, report []byte
		err := r.Scan(&mark, &report)
		if err == nil {
			m.Add(id, &store.Spend{Round: x.Number, Mark: store.Mark(mark), Report: dap.ReportID(report)})
		}
		return err
	})
	return m, err
}

// checkMarks reads the marks of some rounds before this handle relies on them for the
// first time, and not inside of a commit, for which others would wait.
func (s *Store) checkMarks(ctx context.Context, id dap.TaskID, numbers []uint64) error {
	var fresh []rows.Round
	err := s.view(ctx, "check-marks", func(tx *pgdb.Tx) error {
		fresh = nil
		t, err := find(tx, reading, id)
		if err != nil {
			return err
		}
		for _, n := range numbers {
			x := rows.Round{Task: t.row, Number: n}
			if s.rounds.Known(x) {
				continue
			}
			want, over, err := marksOf(tx, x)
			if err != nil {
				return err
			}
			if !over {
				got, err := countMarks(tx, id, x)
				if err != nil {
					return err
				}
				if got != want {
					return fmt.Errorf("%w: round %d of task %v has %d, and had %d", store.ErrMarks, n, id, got.Count, want.Count)
				}
			}
			fresh = append(fresh, x)
		}
		return nil
	})
	if err == nil {
		for _, x := range fresh {
			s.rounds.Note(x)
		}
	}
	return err
}

// Spend gives marks to reports; see [store.Spending]. Rows alone decide: of two replicas
// that spend in one round the second waits for what becomes of the first.
func (s *Store) Spend(ctx context.Context, id dap.TaskID, list []store.Spend) ([]bool, error) {
	order, err := store.Ascending(list)
	if err != nil {
		return nil, err
	}
	var numbers []uint64
	rounds, marks, reports := make([]int64, len(list)), make([][]byte, len(list)), make([][]byte, len(list))
	for k, i := range order {
		rounds[k], marks[k], reports[k] = int64(list[i].Round), list[i].Mark[:], list[i].Report[:]
		if k == 0 || list[i].Round != list[order[k-1]].Round {
			numbers = append(numbers, list[i].Round)
		}
	}
	if err := s.checkMarks(ctx, id, numbers); err != nil {
		return nil, err
	}
	spent := make([]bool, len(list))
	err = s.update(ctx, "spend", func(tx *pgdb.Tx) error {
		t, err := live(tx, sharing, id)
		if err != nil || len(list) == 0 {
			return err
		}
		kept, over, err := t.takeRounds(tx, slices.Compact(slices.Clone(rounds)))
		if err != nil {
			return err
		}
		var at []int // in order, of the rounds that are not over
		for k, i := range order {
			if spent[i] = over[list[i].Round]; !spent[i] {
				at = append(at, k)
			}
		}
		if len(at) == 0 {
			return nil
		}
		return t.spend(tx, list, order, at, rounds, marks, reports, kept, spent)
	})
	return spent, err
}

// takeRounds has the rows of some rounds until the transaction ends, and says what is kept
// beside their marks and which are over.
func (t *task) takeRounds(tx *pgdb.Tx, rounds []int64) (kept map[uint64]*store.Marks, over map[uint64]bool, err error) {
	if _, err := tx.Exec("begin-spent-rounds", t.row, rounds); err != nil {
		return nil, nil, err
	}
	kept, over = make(map[uint64]*store.Marks), make(map[uint64]bool)
	err = tx.Each("lock-spent-rounds", []any{t.row, rounds}, func(r pgdb.Row) error {
		var n uint64
		var m store.Marks
		var sum []byte
		var state int
		err := r.Scan(&n, &m.Count, &sum, &state)
		if err == nil {
			m.Sum = [32]byte(sum)
			kept[n], over[n] = &m, state > 0
		}
		return err
	})
	return kept, over, err
}

// spend gives the marks at some places of columns in order, and counts those that are new.
func (t *task) spend(tx *pgdb.Tx, list []store.Spend, order, at []int, rounds []int64, marks, reports [][]byte, kept map[uint64]*store.Marks, spent []bool) error {
	r, m, p := make([]int64, len(at)), make([][]byte, len(at)), make([][]byte, len(at))
	for n, k := range at {
		r[n], m[n], p[n] = rounds[k], marks[k], reports[k]
	}
	err := tx.Each("spend", []any{t.row, r, m, p}, func(row pgdb.Row) error {
		var x store.Spend
		var mark, report []byte
		err := row.Scan(&x.Round, &mark, &report)
		if err == nil {
			x.Mark, x.Report = store.Mark(mark), dap.ReportID(report)
			kept[x.Round].Add(t.id, &x)
		}
		return err
	})
	if err != nil {
		return err
	}
	found := 0
	err = tx.Each("spenders", []any{t.row, r, m}, func(row pgdb.Row) error {
		var n int64
		var whose []byte
		if err := row.Scan(&n, &whose); err != nil {
			return err
		}
		i := order[at[n-1]]
		spent[i] = string(whose) != string(list[i].Report[:])
		found++
		return nil
	})
	if err == nil && found != len(at) {
		return errors.New("internal error: a mark is neither new nor there")
	}
	if err != nil {
		return err
	}
	var numbers, counts []int64
	var sums [][]byte
	for n, x := range kept {
		numbers, counts, sums = append(numbers, int64(n)), append(counts, int64(x.Count)), append(sums, x.Sum[:])
	}
	_, err = tx.Exec("save-spent-rounds", t.row, numbers, counts, sums)
	return err
}

// Spent counts the marks of rounds; see [store.Spending].
func (s *Store) Spent(ctx context.Context, id dap.TaskID, first, last uint64) (all []store.Spent, err error) {
	err = s.view(ctx, "counts", func(tx *pgdb.Tx) error {
		all = nil
		t, err := find(tx, reading, id)
		if err != nil || first > store.LastRound {
			return err
		}
		return tx.Each("spent-in-rounds", []any{t.row, int64(first), int64(min(last, store.LastRound))}, func(r pgdb.Row) error {
			var x store.Spent
			err := r.Scan(&x.Round, &x.Marks)
			all = append(all, x)
			return err
		})
	})
	return all, err
}

// SpentRounds lists the rounds that have marks; see [store.Spending].
func (s *Store) SpentRounds(ctx context.Context, id dap.TaskID, n int) (list []uint64, err error) {
	err = s.view(ctx, "counts", func(tx *pgdb.Tx) error {
		list = nil
		t, err := find(tx, reading, id)
		if err != nil {
			return err
		}
		return tx.Each("spent-rounds", []any{t.row, n}, func(r pgdb.Row) error {
			var x uint64
			err := r.Scan(&x)
			list = append(list, x)
			return err
		})
	})
	return list, err
}

// ForgetRound ends a round and erases marks of it; see [store.Spending].
func (s *Store) ForgetRound(ctx context.Context, id dap.TaskID, number uint64, n int) (more bool, err error) {
	if n <= 0 {
		return false, fmt.Errorf("forget-round: %d marks at a time", n)
	}
	err = s.update(ctx, "forget-round", func(tx *pgdb.Tx) error {
		t, err := live(tx, sharing, id)
		if err != nil {
			return err
		}
		// In turn with who spends in it.
		if err := tx.Each("lock-spent-rounds", []any{t.row, []int64{int64(number)}}, func(pgdb.Row) error { return nil }); err != nil {
			return err
		}
		gone, err := tx.Exec("forget-round", t.row, int64(number), n)
		if err != nil {
			return err
		}
		state, statement := 2, "round-over"
		if more = gone == int64(n); more {
			state = 1
		}
		if gone > 0 {
			statement = "put-round-over" // whatever is kept of it: none of these marks is new again
		}
		_, err = tx.Exec(statement, t.row, int64(number), state)
		return err
	})
	return more, err
}
