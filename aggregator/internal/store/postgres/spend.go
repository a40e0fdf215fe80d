package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// spentSince is the first version of a schema that has marks in runs.
const spentSince = 10

// A round is a row of the table spent_round.
type round struct {
	total      // of its runs
	over  bool // it takes no mark
}

// scan reads a row that begins with the round's number.
func (x *round) scan(r pgdb.Row, n *uint64) error {
	var sum []byte
	var state int
	err := r.Scan(n, &x.count, &sum, &state)
	if err == nil {
		x.digest, x.over = segment.SetDigest(sum), state > 0
	}
	return err
}

// stay keeps a round as it is, but for marks that come, until the transaction ends, and
// says whether it is over. A round without a row is one that is damaged.
func (of runsOf) stay(tx *pgdb.Tx) (over bool, err error) {
	if !of.marks {
		return false, nil
	}
	var state int
	found, err := tx.One("share-spent-round", of.key(), &state)
	return !found || state > 0, err
}

// noMarks says that the marks of a round are not what was written.
func (of runsOf) noMarks(why string) error {
	return fmt.Errorf("%w: of round %d of task %v %s", store.ErrMarks, of.round, of.task, why)
}

// A spending is what a list of marks comes to in one round.
type spending struct {
	of    runsOf
	order []int          // of the list
	marks []dap.ReportID // distinct, ascending
	q     *query
	due   bool // a merge of the round's runs
}

// spendings are those of a list, round by round.
func spendings(id dap.TaskID, list []store.Spend, order []int) (parts []*spending) {
	var p *spending
	for _, i := range order {
		x := &list[i]
		if p == nil || p.of.round != x.Round {
			p = &spending{of: runsOf{runsName: marksOf(id, x.Round)}}
			parts = append(parts, p)
		}
		p.order = append(p.order, i)
		if mark := dap.ReportID(x.Mark); len(p.marks) == 0 || p.marks[len(p.marks)-1] != mark {
			p.marks = append(p.marks, mark)
		}
	}
	return parts
}

// Spend gives marks to reports; see [store.Spending]. It is one transaction, which looks for
// the marks in the runs of their rounds and appends a run of those that are new, and has the
// rows of the rounds: of two replicas that spend in one round the second waits for what
// becomes of the first.
func (s *Store) Spend(ctx context.Context, id dap.TaskID, list []store.Spend) (spent []bool, err error) {
	order, err := store.Ascending(list)
	if err != nil {
		return nil, err
	}
	parts := spendings(id, list, order)
	err = s.update(ctx, "spend", func(tx *pgdb.Tx) error {
		spent = make([]bool, len(list))
		t, err := live(tx, sharing, id)
		if err != nil || len(list) == 0 {
			return err
		}
		return s.spend(tx, t, list, parts, spent)
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
	defer cancel()
	for _, p := range parts {
		if p.due {
			_ = s.mergeRuns(ctx, p.of.runsName) // it is due again at the next list
		}
	}
	return spent, nil
}

// spend takes the rounds, judges what is new in each, and appends that. All that takes time
// and leans on nothing that may change comes before others wait.
func (s *Store) spend(tx *pgdb.Tx, t *task, list []store.Spend, parts []*spending, spent []bool) error {
	numbers := make([]int64, len(parts))
	for n, p := range parts {
		numbers[n] = int64(p.of.round)
		p.of, p.due = p.of.found(t), false
		under, err := s.hidden(p.of)
		if err != nil {
			return err
		}
		p.q = s.query(under, p.marks)
		p.q.form(t.own())
		if _, err := s.load(tx, p.of); err != nil { // so that few are new in the turn
			return err
		}
	}
	rounds, err := t.takeRounds(tx, numbers)
	if err != nil {
		return err
	}
	var counts []int64
	var sums [][]byte
	for _, p := range parts {
		r := rounds[p.of.round]
		if err := s.give(tx, p, r, list, spent); err != nil {
			return err
		}
		counts, sums = append(counts, int64(r.count)), append(sums, r.digest[:])
	}
	_, err = tx.Exec("save-spent-rounds", t.row, numbers, counts, sums)
	return err
}

// takeRounds has the rows of some rounds until the transaction ends.
func (t *task) takeRounds(tx *pgdb.Tx, numbers []int64) (map[uint64]*round, error) {
	if _, err := tx.Exec("begin-spent-rounds", t.row, numbers); err != nil {
		return nil, err
	}
	rounds := make(map[uint64]*round, len(numbers))
	err := tx.Each("lock-spent-rounds", []any{t.row, numbers}, func(r pgdb.Row) error {
		var n uint64
		x := new(round)
		err := x.scan(r, &n)
		rounds[n] = x
		return err
	})
	if err == nil && len(rounds) != len(numbers) {
		err = errors.New("internal error: a round is neither new nor there")
	}
	return rounds, err
}

// give gives the marks of one round. Nothing is given where its runs are not those that
// were written: a mark may be missing.
func (s *Store) give(tx *pgdb.Tx, p *spending, r *round, list []store.Spend, spent []bool) error {
	if r.over {
		for _, i := range p.order {
			spent[i] = true
		}
		return nil
	}
	held, rs, err := s.held(tx, p.of, p.q)
	if err != nil {
		return err
	}
	if len(rs.bad) > 0 {
		return p.of.noMarks(rs.told().Why)
	}
	if got := rs.total(); got != r.total {
		return p.of.noMarks(fmt.Sprintf("there are %d, and were %d", got.count, r.count))
	}
	var fresh []byte
	n := 0 // of the distinct ones
	for _, i := range p.order {
		x := &list[i]
		if dap.ReportID(x.Mark) != p.marks[n] {
			n++
		}
		if held[n] == nil { // of two in the list the first has it
			held[n] = append(x.Mark[:], x.Report[:]...)
			fresh = append(fresh, held[n]...)
		}
		spent[i] = !bytes.Equal(held[n][idSize:], x.Report[:])
	}
	if p.due = rs.plan() != nil; len(fresh) == 0 {
		return nil
	}
	added, err := s.putRun(tx, p.of, fresh)
	r.add(added)
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

// ForgetRound ends a round and erases marks of it, by the run; see [store.Spending].
func (s *Store) ForgetRound(ctx context.Context, id dap.TaskID, number uint64, n int) (more bool, err error) {
	if n <= 0 {
		return false, fmt.Errorf("forget-round: %d runs at a time", n)
	}
	err = s.update(ctx, "forget-round", func(tx *pgdb.Tx) error {
		t, err := live(tx, sharing, id)
		if err != nil {
			return err
		}
		// In turn with whoever spends in it or merges its runs, which may be on their way.
		var one int
		if _, err := tx.One("exclude-spent-round", []any{t.row, int64(number)}, &one); err != nil {
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
	s.cache.drop(marksOf(id, number))
	return more, err
}
