package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

func init() {
	tests["SpendOnce"] = testSpendOnce
	tests["SpendAtOnce"] = testSpendAtOnce
	tests["SpentOfRetired"] = testSpentOfRetired
	tests["SpendOrNot"] = testSpendOrNot
	tests["RoundForgotten"] = testRoundForgotten
	tests["MarksDamaged"] = testMarksDamaged
}

// testSpendOnce: in one round of one task a mark belongs to the report that showed it first,
// for good, and says nothing about another round or task.
func testSpendOnce(t *testing.T, h Harness) {
	ctx := context.Background()
	task, other := Task(t, dap.TimeInterval, 1), Task(t, dap.LeaderSelected, 2)
	w := NewWorld(t, h, task, other)
	spend := func(of *store.Task, list ...store.Spend) string {
		t.Helper()
		spent, err := w.Store.Spend(ctx, of.ID, list)
		w.ok(err)
		return fmt.Sprint(spent)
	}
	of := func(round uint64, mark byte, report int) store.Spend {
		return store.Spend{Round: round, Mark: store.Mark{mark}, Report: ReportID(report)}
	}
	for range 2 {
		for i, c := range []struct {
			of   *store.Task
			list []store.Spend
			want string
		}{
			{task, nil, "[]"},
			{task, []store.Spend{of(7, 9, 1), of(7, 2, 2), of(7, 9, 3)}, "[false false true]"}, // the first in the list has it
			{task, []store.Spend{of(7, 9, 1), of(7, 2, 1)}, "[false true]"},
			{task, []store.Spend{of(8, 9, 3), of(7, 9, 3)}, "[false true]"},
			{other, []store.Spend{of(7, 9, 4), of(7, 2, 4)}, "[false false]"},
			{task, []store.Spend{of(1<<63-1, 9, 5)}, "[false]"},
		} {
			if got := spend(c.of, c.list...); got != c.want {
				t.Errorf("%d: %s, want %s", i, got, c.want)
			}
		}
		for _, c := range []struct {
			first, last uint64
			want        string
		}{
			{7, 7, "[{7 2}]"}, {6, 8, "[{7 2} {8 1}]"}, {8, 1 << 63, "[{8 1} {9223372036854775807 1}]"}, {0, store.LastRound - 1, "[{7 2} {8 1}]"},
			{0, 6, "[]"}, {9, 8, "[]"}, {1 << 63, 1<<64 - 1, "[]"},
		} {
			if got, err := w.Store.Spent(ctx, task.ID, c.first, c.last); err != nil || fmt.Sprint(got) != c.want {
				t.Errorf("rounds %d to %d have %v, %v; want %s", c.first, c.last, got, err, c.want)
			}
		}
		w.Audit()
		w.Reopen(t) // and the same again
	}
	for _, bad := range []store.Spend{of(1<<63, 1, 1), of(1, 0, 1)} {
		if _, err := w.Store.Spend(ctx, task.ID, []store.Spend{of(1, 77, 1), bad}); err == nil {
			t.Errorf("took %+v", bad)
		}
	}
	if got, err := w.Store.Spent(ctx, task.ID, 1, 1); err != nil || len(got) != 0 {
		t.Errorf("a list that was refused left %v, %v", got, err)
	}
	_, err := w.Store.Spend(ctx, dap.TaskID{9}, []store.Spend{of(1, 1, 1)})
	w.is(err, store.ErrNotFound)
	_, err = w.Store.Spent(ctx, dap.TaskID{9}, 1, 1)
	w.is(err, store.ErrNotFound)
}

// testSpendAtOnce: of reports that show one mark at one time, in lists of any order and
// through any handle, exactly one has it.
func testSpendAtOnce(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	const askers, marks = 8, 50
	won := make([][]bool, askers)
	var wg sync.WaitGroup
	for k := range askers {
		wg.Go(func() {
			var list []store.Spend
			for n := range marks { // and one of its own, at the end
				m := n
				if k%2 > 0 {
					m = marks - 1 - n
				}
				list = append(list, store.Spend{Round: 3, Mark: store.Mark{1, byte(m)}, Report: ReportID(k)})
			}
			list = append(list, store.Spend{Round: 3, Mark: store.Mark{2, byte(k)}, Report: ReportID(k)})
			spent, err := w.Store.Spend(ctx, task.ID, list)
			if err != nil || spent[marks] {
				t.Error(spent, err)
				return
			}
			won[k] = make([]bool, marks)
			for n := range marks {
				won[k][list[n].Mark[1]] = !spent[n]
			}
		})
	}
	wg.Wait()
	for m := range marks {
		winners := 0
		for k := range askers {
			if won[k] != nil && won[k][m] {
				winners++
			}
		}
		if winners != 1 {
			t.Errorf("mark %d belongs to %d reports", m, winners)
		}
	}
	if got, err := w.Store.Spent(ctx, task.ID, 3, 3); err != nil || len(got) != 1 || got[0].Marks != marks+askers {
		t.Errorf("%v, %v", got, err)
	}
	w.Audit()
}

// testSpentOfRetired: a retired task takes none, and they are swept with it.
func testSpentOfRetired(t *testing.T, h Harness) {
	ctx := context.Background()
	w, task, other := retiring(t, h, dap.TimeInterval)
	var list []store.Spend
	for n := range 9 {
		list = append(list, store.Spend{Round: uint64(n % 2), Mark: store.Mark{byte(n + 1)}, Report: ReportID(n)})
	}
	for _, of := range []*store.Task{task, other} {
		_, err := w.Store.Spend(ctx, of.ID, list)
		w.ok(err)
	}
	w.ok(w.Store.Retire(ctx, task.ID, w.Now))
	for range 2 {
		_, err := w.Store.Spend(ctx, task.ID, list)
		w.is(err, store.ErrNotFound)
		w.Reopen(t)
	}
	for more := true; more; {
		var err error
		more, err = w.Store.Sweep(ctx, task.ID, 4)
		w.ok(err)
		w.Audit()
	}
	for _, of := range []struct {
		*store.Task
		want string
	}{{task, "[]"}, {other, "[{0 5} {1 4}]"}} {
		if got, err := w.Store.Spent(ctx, of.ID, 0, store.LastRound); err != nil || fmt.Sprint(got) != of.want {
			t.Errorf("task %v has %v, %v; want %s", of.ID, got, err, of.want)
		}
	}
}

// testSpendOrNot: a call that fails has given all marks of its list or none, of whichever
// rounds they are, and is made again.
func testSpendOrNot(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	first, second := spends(3, 4, 1), spends(3, 4, 2)
	for _, at := range []string{"store.spend.before-commit", "store.spend.after-commit"} {
		for _, list := range [][]store.Spend{first, second} {
			for i := range list { // other marks than the last time
				list[i].Mark[0] += byte(len(at))
			}
		}
		h.Failpoints().Arm(at, 0, func() error { return ErrFault })
		_, err := w.Store.Spend(ctx, task.ID, first)
		h.Failpoints().Disarm(at)
		w.Reopen(t)
		w.Audit()
		if at == "store.spend.before-commit" && err == nil {
			t.Error("the failure was not reported")
		}
		done := err == nil || at == "store.spend.after-commit"
		spent, err := w.Store.Spend(ctx, task.ID, second)
		w.ok(err)
		for i := range spent {
			if spent[i] != done {
				t.Errorf("%s: of a list of rounds 3 and 4 mark %d is another's: %v, want %v", at, i, spent[i], done)
			}
		}
		w.Reopen(t)
		w.Audit()
		spent, err = w.Store.Spend(ctx, task.ID, first)
		w.ok(err)
		for i := range spent {
			if spent[i] == done {
				t.Errorf("%s: made again, mark %d is another's: %v", at, i, spent[i])
			}
		}
	}
}

// spends are five marks of each of two rounds, all of a single report.
func spends(a, b uint64, report int) (list []store.Spend) {
	for n := range 10 {
		list = append(list, store.Spend{Round: []uint64{a, b}[n%2], Mark: store.Mark{byte(n + 1)}, Report: ReportID(report)})
	}
	return list
}

// testRoundForgotten: a round that is over takes no mark, old or new, whatever is erased of
// it as yet and whoever opens it; its marks go, and others stay.
func testRoundForgotten(t *testing.T, h Harness) {
	ctx := context.Background()
	task, other := Task(t, dap.TimeInterval, 1), Task(t, dap.LeaderSelected, 2)
	w := NewWorld(t, h, task, other)
	for _, of := range []*store.Task{task, other} {
		for _, x := range spends(3, 4, 1) { // by as many jobs
			_, err := w.Store.Spend(ctx, of.ID, []store.Spend{x})
			w.ok(err)
		}
	}
	rounds := func(want string) {
		t.Helper()
		list, err := w.Store.SpentRounds(ctx, task.ID, 9)
		w.ok(err)
		if got := fmt.Sprint(list); got != want {
			t.Errorf("there are marks of rounds %s, want %s", got, want)
		}
	}
	rounds("[3 4]")
	if list, err := w.Store.SpentRounds(ctx, task.ID, 1); err != nil || fmt.Sprint(list) != "[3]" {
		t.Errorf("the first of them is %v, %v", list, err)
	}
	steps := 0
	for more := true; more; steps++ {
		var err error
		more, err = w.Store.ForgetRound(ctx, task.ID, 3, 1)
		w.ok(err)
		w.Audit()
		w.Reopen(t)
		spent, err := w.Store.Spend(ctx, task.ID, append(spends(3, 4, 1), store.Spend{Round: 3, Mark: store.Mark{77}, Report: ReportID(7)}))
		w.ok(err)
		if got := fmt.Sprint(spent); got != "[true false true false true false true false true false true]" {
			t.Errorf("after %d steps: %s, want those of round 3 and no other", steps+1, got)
		}
		if more {
			rounds("[3 4]")
		}
	}
	if steps < 2 || steps > 6 { // an engine keeps some of them together
		t.Errorf("5 marks took %d steps of one", steps)
	}
	rounds("[4]")
	for _, of := range []struct {
		*store.Task
		round, want uint64
	}{{task, 3, 5}, {task, 4, 5}, {other, 3, 5}} {
		if got, err := w.Store.Spent(ctx, of.ID, of.round, of.round); err != nil || len(got) != 1 || got[0].Marks != of.want {
			t.Errorf("round %d of task %v had %v marks, %v; want %d", of.round, of.ID, got, err, of.want)
		}
	}
	spent, err := w.Store.Spend(ctx, other.ID, spends(3, 4, 2))
	w.ok(err)
	if slices.Contains(spent, false) {
		t.Errorf("another task has lost marks: %v", spent)
	}
	// Nothing is known of round 5: it is not ended before it begins.
	if more, err := w.Store.ForgetRound(ctx, task.ID, 5, 2); more || err != nil {
		t.Errorf("of a round without marks: %v, %v", more, err)
	}
	if _, err := w.Store.ForgetRound(ctx, task.ID, 4, 0); err == nil {
		t.Error("took steps of nothing")
	}
	_, err = w.Store.ForgetRound(ctx, dap.TaskID{9}, 4, 1)
	w.is(err, store.ErrNotFound)
	_, err = w.Store.SpentRounds(ctx, dap.TaskID{9}, 1)
	w.is(err, store.ErrNotFound)
	w.Audit()
}

// testMarksDamaged: where a row of the marks of a round is gone or is another, nothing is
// spent in the round, and the audit says so; other rounds go on, and the round can be ended.
func testMarksDamaged(t *testing.T, h Harness) {
	ctx := context.Background()
	task := Task(t, dap.TimeInterval, 1)
	w := NewWorld(t, h, task)
	for i, damage := range h.MarkDamage() {
		whole, hurt := uint64(100*i+10), uint64(100*i+20)
		list := spends(whole, hurt, 1)
		for _, some := range [][]store.Spend{list[:4], list[4:]} {
			_, err := w.Store.Spend(ctx, task.ID, some)
			w.ok(err)
		}
		w.close()
		h.Tamper(t, fmt.Sprintf(damage, hurt))
		w.open(t)
		for range 2 { // and at the other handle
			spent, err := w.Store.Spend(ctx, task.ID, spends(whole, hurt, 2))
			if w.is(err, store.ErrMarks); spent != nil {
				t.Errorf("%s: said %v", damage, spent)
			}
			w.is(err, store.ErrDamaged)
		}
		if problems, err := w.Store.Audit(ctx); err != nil || !strings.Contains(strings.Join(problems, "\n"), fmt.Sprintf("of round %d", hurt)) {
			t.Errorf("%s: the audit says %q, %v", damage, problems, err)
		}
		spent, err := w.Store.Spend(ctx, task.ID, spends(whole, whole, 1)[:1])
		if w.ok(err); spent[0] {
			t.Errorf("%s: another round has lost a mark", damage)
		}
		if got, err := w.Store.Spent(ctx, task.ID, whole, whole); err != nil || len(got) != 1 || got[0].Marks != 5 {
			t.Errorf("%s: a call that was refused left %v marks of another round, %v", damage, got, err)
		}
		for _, round := range []uint64{hurt, hurt - 1} {
			_, err = w.Store.ForgetRound(ctx, task.ID, round, 100)
			w.ok(err)
		}
		w.Audit()
		w.Reopen(t)
		spent, err = w.Store.Spend(ctx, task.ID, spends(hurt, hurt, 2))
		if w.ok(err); slices.Contains(spent, false) {
			t.Errorf("%s: a round that was ended takes marks: %v", damage, spent)
		}
	}
}

// forgets has a process end round 2, which no other call relies on.
func (p *play) forgets(proc *process, task *store.Task) func() {
	return func() {
		key := shown{task: task.ID, round: 2}
		p.mu.Lock()
		p.over[key] = max(p.over[key], 1)
		p.mu.Unlock()
		_, err := proc.store.ForgetRound(context.Background(), task.ID, 2, 3)
		if p.fine(err); err != nil {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for x := range p.marks { // a round that has no marks yet is not ended
			if x.task == task.ID && x.round == 2 {
				p.over[key] = 2
			}
		}
	}
}

// shows has a process spend some marks, of which there are few, so that others have them.
func (p *play) shows(proc *process, task *store.Task) func() {
	var list []store.Spend
	for range 1 + p.rng.IntN(4) {
		list = append(list, store.Spend{Round: uint64(p.rng.IntN(3)), Mark: store.Mark{1, byte(p.rng.IntN(20))}, Report: ReportID(p.rng.IntN(Elements))})
	}
	return func() {
		p.mu.Lock()
		before := p.over[shown{task: task.ID, round: 2}]
		p.mu.Unlock()
		spent, err := proc.store.Spend(context.Background(), task.ID, list)
		if p.fine(err); err != nil {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		after := p.over[shown{task: task.ID, round: 2}]
		for i, x := range list {
			key := shown{task.ID, x.Round, x.Mark}
			owner, known := p.marks[key]
			switch {
			case x.Round == 2 && before == 2 && !spent[i]:
				p.t.Errorf("task %v: a round that is over takes a mark", task.ID)
			case x.Round == 2 && after > 0 && spent[i]: // it may have ended meanwhile
			case !spent[i] && known && owner != x.Report:
				p.t.Errorf("task %v: a mark of round %d belongs to two reports", task.ID, x.Round)
			case spent[i] && known && owner == x.Report:
				p.t.Errorf("task %v: a mark of round %d is lost to its report", task.ID, x.Round)
			case !spent[i]:
				p.marks[key] = x.Report
			}
		}
	}
}

// shown names a mark.
type shown struct {
	task  dap.TaskID
	round uint64
	mark  store.Mark
}

// shownAll checks that every mark still belongs to whom it did, through either handle.
func (p *play) shownAll() {
	p.t.Helper()
	for key, owner := range p.marks {
		if p.over[shown{task: key.task, round: key.round}] == 1 {
			continue // whether it was ended nobody has heard
		}
		over := p.over[shown{task: key.task, round: key.round}] == 2
		for i, report := range []dap.ReportID{owner, ReportID(Elements)} {
			for _, proc := range p.procs {
				spent, err := proc.store.Spend(context.Background(), key.task, []store.Spend{{Round: key.round, Mark: key.mark, Report: report}})
				if p.w.ok(err); err == nil && spent[0] != (i > 0 || over) {
					p.t.Errorf("task %v: a mark of round %d has changed hands", key.task, key.round)
				}
			}
		}
	}
}
