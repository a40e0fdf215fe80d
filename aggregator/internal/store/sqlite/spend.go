package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service/database"
)

// errOver: a round has ended, and all of its marks are another's.
var errOver = errors.New("store: the round is over")

// A total is what is kept beside the runs of a round, so that none is lost without being
// found out; each run proves itself.
type total struct {
	count  int64
	digest segment.SetDigest
}

func (x *total) add(m *segment.RunMeta) {
	x.count += m.Count
	x.digest.Add(m.Digest)
}

func totalOf(metas []segment.RunMeta) (x total) {
	for i := range metas {
		x.add(&metas[i])
	}
	return x
}

// marksOfRound reads what is kept beside the marks of a round; over says that it takes none.
func marksOfRound(tx *database.Tx, of runsOf) (x total, over bool, err error) {
	var sum []byte
	var state int
	found, err := tx.One("spent-round", of.key(), &x.count, &sum, &state)
	if found {
		x.digest = segment.SetDigest(sum)
	}
	return x, state > 0, err
}

// noMarks says that the marks of a round are not what was written.
func (s *Store) noMarks(of runsOf, why string) error {
	return fmt.Errorf("%w: of round %d of task %v %s", store.ErrMarks, of.round, s.taskByRow(of.task).ID, why)
}

// A spending is what a list of marks comes to in one round.
type spending struct {
	of    runsOf
	order []int           // of the list
	fresh []segment.Owned // marks that are new
	run   segment.RunMeta // with fresh; without a name where there are none
	at    step
	over  bool // none of it counts
}

// Spend implements [store.Spending]. It is a commit as those of reports are: marks are
// claimed, looked up, made durable in a run, and its row is committed.
func (s *Store) Spend(ctx context.Context, id dap.TaskID, list []store.Spend) ([]bool, error) {
	t, err := s.live(id)
	if err != nil {
		return nil, err
	}
	spent := make([]bool, len(list))
	order, err := store.Ascending(list)
	if err != nil || len(list) == 0 {
		return spent, err
	}
	marks := make([]segment.ReportID, len(order))
	for i := range list {
		marks[i] = segment.ReportID(list[i].Mark)
	}
	var parts []*spending
	for len(order) > 0 { // one round after the other
		n := 1
		for n < len(order) && list[order[n]].Round == list[order[0]].Round {
			n++
		}
		parts = append(parts, &spending{of: marksOf(t.row, list[order[0]].Round), order: order[:n]})
		order = order[n:]
	}
	if err := s.give(ctx, t, list, marks, parts, spent); err != nil {
		return nil, err
	}
	for _, p := range parts {
		if p.run.Name != "" && !p.over {
			s.merge(context.WithoutCancel(ctx), p.of)
		}
	}
	return spent, nil
}

// give gives the marks of a list, in any round the same way.
func (s *Store) give(ctx context.Context, t *task, list []store.Spend, marks []segment.ReportID, parts []*spending, spent []bool) (err error) {
	t.gate.RLock() // the task is not retired meanwhile
	defer t.gate.RUnlock()
	if t.isRetired() {
		return fmt.Errorf("store: spend: %w: the task is retired", store.ErrNotFound)
	}
	end, err := s.spends.begin(ctx, t.row, marks)
	if err != nil {
		return fmt.Errorf("store: spend: %w", err)
	}
	defer end()
	defer func() {
		for _, p := range parts {
			// A file that stays is swept when the store is next opened.
			if p.run.Name != "" && (p.over || err != nil && !errors.Is(err, store.ErrUnknown)) {
				_ = segment.Remove(s.opt.FS, p.run.Name)
			}
		}
	}()
	fresh := false
	for _, p := range parts {
		if err := s.judgeMarks(ctx, p, list, spent); err != nil {
			return err
		}
	}
	for _, p := range parts {
		if len(p.fresh) == 0 {
			continue
		}
		fresh = true
		name, err := s.runName()
		if err != nil {
			return err
		}
		if p.run, err = segment.WriteOwned(s.opt.FS, name, &s.setKey, p.fresh, s.opt.Failpoints); err != nil {
			return fmt.Errorf("store: spend: %w", err)
		}
	}
	if !fresh {
		return nil
	}
	err = s.update(ctx, "spend", func(tx *database.Tx) error {
		if err := s.grow(tx, false); err != nil {
			return err
		}
		for _, p := range parts {
			if p.run.Name == "" {
				continue
			}
			if err := p.put(tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, p := range parts {
		if p.over {
			for _, i := range p.order {
				spent[i] = true
			}
		} else if p.run.Name != "" {
			s.add(p.of, p.run, p.at)
		}
	}
	return nil
}

// judgeMarks says which marks of a round are another's, and which are new.
func (s *Store) judgeMarks(ctx context.Context, p *spending, list []store.Spend, spent []bool) error {
	b, release, err := s.acquire(ctx, p.of)
	if errors.Is(err, errOver) {
		for _, i := range p.order {
			spent[i] = true
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer release()
	var distinct []segment.ReportID
	for _, i := range p.order {
		if mark := segment.ReportID(list[i].Mark); len(distinct) == 0 || distinct[len(distinct)-1] != mark {
			distinct = append(distinct, mark)
		}
	}
	owners, held, err := b.Owners(distinct)
	if damaged := new(segment.DamagedError); errors.As(err, &damaged) {
		return s.noMarks(p.of, damaged.Runs[0].Why)
	}
	if err != nil {
		return fmt.Errorf("store: spend: %w", err)
	}
	k := 0 // of distinct
	for _, i := range p.order {
		if segment.ReportID(list[i].Mark) != distinct[k] {
			k++
		}
		report := segment.ReportID(list[i].Report)
		if !held[k] { // of two in the list the first has it
			owners[k], held[k] = report, true
			p.fresh = append(p.fresh, segment.Owned{ID: distinct[k], Owner: report})
		}
		spent[i] = owners[k] != report
	}
	return nil
}

// put names the run of new marks.
func (p *spending) put(tx *database.Tx) error {
	kept, over, err := marksOfRound(tx, p.of)
	if p.over = over; err != nil || over {
		return err
	}
	kept.add(&p.run)
	if _, err := tx.Exec("put-spent-round", p.of.key(kept.count, kept.digest[:])...); err != nil {
		return err
	}
	p.at, err = putRuns(tx, p.of, p.run)
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

// ForgetRound implements [store.Spending]. Marks go by the file.
func (s *Store) ForgetRound(ctx context.Context, id dap.TaskID, number uint64, n int) (more bool, err error) {
	t, err := s.live(id)
	if err != nil {
		return false, err
	}
	if n <= 0 {
		return false, fmt.Errorf("store: forget: %d files at a time", n)
	}
	of := marksOf(t.row, number)
	defer s.merges.lock(of)()
	err = s.update(ctx, "forget-round", func(tx *database.Tx) error {
		gone, _, err := dropListed(tx, "runs-of-round", "sweep-run", t.row, number, n)
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
	if err != nil {
		return false, err
	}
	s.replay.mu.Lock()
	s.replay.forget(of)
	s.replay.mu.Unlock()
	return more, s.Bury(ctx)
}
