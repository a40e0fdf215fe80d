package hostile

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// sampledHourly is a recipe of coins: a tenth of 20,000 devices report in each round, in
// 50 rounds.
func sampledHourly(t *testing.T, leader, helper string, units uint64, o account.Options) *recipe.Recipe {
	t.Helper()
	o.Name, o.DAP, o.Leader, o.Helper, o.BatchMode = "coins", speaks, leader, helper, dap.TimeInterval
	o.Relay, o.Grace = &recipe.Relay{URL: "https://relay.example/", Gateway: "https://gateway.example/"}, -1
	o.Delta = recipe.Decimal{Coefficient: 1, Scale: 6}
	o.Noise = recipe.DiscreteGaussian{Variance: recipe.Rational{Num: 100, Den: 1}, Share: recipe.DrawsAll}
	o.Participation, o.Rate = recipe.Bernoulli{Rate: recipe.Rational{Num: 1, Den: 2}}, &recipe.Rate{Devices: 400, Units: units}
	o.Dummies = &recipe.Dummies{Rate: recipe.Rational{Num: 1, Den: 4}, Senders: 300, Allowance: 100}
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestManyRoundsUnderOneDraw: a collector asks for all rounds of a recipe at once, as
// then one draw of noise covers all reports of a person: of one who answered in each of
// 30 rounds under "epsilon 1", 30 reports at epsilon 6.15; of one who tossed 50 coins of
// a tenth, five or so at epsilon 13.8 (10^-9). A leader who helps the collector asks the
// helper for its share of the same.
func TestManyRoundsUnderOneDraw(t *testing.T) {
	const rounds = 30
	o := openOffice(t, func(leader, helper string) map[string]*recipe.Recipe {
		plain, err := account.New(account.Options{Name: "plain", DAP: speaks, Query: recipe.Sum{Max: 100}, Leader: leader, Helper: helper, MinBatch: 20,
			BatchMode: dap.TimeInterval, Epsilon: recipe.Decimal{Coefficient: 1}, Rounds: rounds})
		if err != nil {
			t.Fatal(err)
		}
		return map[string]*recipe.Recipe{"plain": plain,
			"coins": sampledHourly(t, leader, helper, 1, account.Options{Query: recipe.Sum{Max: 100}, MinBatch: 20, Rounds: 50})}
	})
	for _, q := range o.tasks {
		start := q.unit(t, time.Now().Add(-10*24*time.Hour))
		var all, first []dap.Report
		for i := range dap.Time(rounds) {
			hers := q.reports(t, 1, q.at(t, start+i))
			if all = append(all, hers...); i == 0 {
				first = append(first, hers...)
			}
		}
		others := q.reports(t, q.recipe.Threshold(), q.at(t, start))
		all, first = append(all, others...), append(first, others...)
		q.accept(t, all)
		r := ofInterval(start, rounds)
		if a := q.askLeader(t, r); a.status != http.StatusBadRequest || a.problem != dap.ProblemBatchInvalid {
			if resp, _ := q.released(t, a); true {
				t.Errorf("%s: one draw of noise covers %d reports, %d of them of one person", q.name, resp.ReportCount, rounds)
			}
			continue
		}
		// What leader and collector together can still do: the first round, in which she
		// has one report.
		made := q.askLeader(t, ofInterval(start, 1))
		if resp, _ := q.released(t, made); resp.ReportCount != uint64(len(first)) {
			t.Errorf("%s: her first round has %d reports, want %d", q.name, resp.ReportCount, len(first))
		}
		q.refused(t, "helper alone", "all rounds, with the true count and checksum", q.askHelper(t, r, r.Query.Interval, all), dap.ProblemBatchInvalid)
		rest := ofInterval(start+1, rounds-1)
		q.refused(t, "helper alone", "the other rounds", q.askHelper(t, rest, rest.Query.Interval, all[1:rounds]), dap.ProblemBatchInvalid)
	}
}

// TestUnitOfARound: a recipe counts its dummies in a day, and somebody wants to know how
// many reports came in the hour of one person. Reports say the day and no hour, an hour
// is no batch, and leader and helper have no count of it; with counts of hours,
// delta(0.4999) is 0.087 for someone alone in hers, where 10^-9 is claimed.
func TestUnitOfARound(t *testing.T) {
	const day = 24
	o := openOffice(t, func(leader, helper string) map[string]*recipe.Recipe {
		return map[string]*recipe.Recipe{"coins": sampledHourly(t, leader, helper, day, account.Options{Query: recipe.Count{}, MinBatch: 20, Rounds: 1})}
	})
	q := o.tasks[0]
	start := q.unit(t, time.Now().Add(-10*24*time.Hour))
	start -= start % day
	var reports []dap.Report
	for hour := range dap.Time(day) {
		n := uint64(7)
		if hour == 13 {
			n = 1 // hers
		}
		reports = append(reports, q.reports(t, n, q.at(t, start+hour).Add(25*time.Minute))...)
	}
	q.accept(t, reports)
	times := map[dap.Time]int{}
	for i := range reports {
		times[reports[i].Metadata.Time]++
	}
	if len(times) != 1 || times[start] != len(reports) {
		t.Errorf("reports of one day have the times %v, which tell the hour", times)
	}
	hour := ofInterval(start+13, 1)
	q.refused(t, "leader", "her hour", q.askLeader(t, hour), dap.ProblemBatchInvalid)
	q.refused(t, "helper alone", "her hour", q.askHelper(t, hour, hour.Query.Interval, reports[13*7:13*7+1]), dap.ProblemBatchInvalid)
	made := q.askLeader(t, ofInterval(start, day))
	if resp, _ := q.released(t, made); resp.ReportCount != uint64(len(reports)) || resp.Interval.Duration != 1 {
		t.Errorf("the day has %d reports of %v, want %d", resp.ReportCount, resp.Interval, len(reports))
	}
}

// TestRoundBeforeItsEnd: a collector asks for the round that runs as soon as a batch is
// full, when a part of the devices on whose dummies the guarantee counts has decided (a
// tenth of them leaves epsilon 1.27 where 1 is printed), and a leader asks the helper for
// the same. Deleting the question and asking again helps neither, nor does any other
// question about the round.
func TestRoundBeforeItsEnd(t *testing.T) {
	o := openOffice(t, func(leader, helper string) map[string]*recipe.Recipe {
		return map[string]*recipe.Recipe{"coins": sampledHourly(t, leader, helper, 24*366, account.Options{Query: recipe.Count{}, MinBatch: 20, Rounds: 1})}
	})
	q := o.tasks[0]
	start := q.recipe.ReportTime(q.unit(t, time.Now()))
	reports := q.reports(t, q.recipe.Threshold(), time.Now())
	q.accept(t, reports)
	r := ofInterval(start, q.recipe.BatchUnits())
	for range 2 {
		made := q.askLeader(t, r)
		q.settle(t, made)
		q.waits(t, "a round that runs, with enough reports", made)
		if a := q.askHelper(t, r, r.Query.Interval, reports); a.status != http.StatusServiceUnavailable || !strings.Contains(string(a.body), "not over") {
			t.Errorf("the helper alone: %v", a)
		}
		q.forget(t, made)
	}
	q.accept(t, q.reports(t, 1, time.Now())) // nothing was drained
}

// settle waits until the leader has looked at a collection job, of which its status then
// says why it waits.
func (q *tasked) settle(t *testing.T, made reply) {
	t.Helper()
	if made.status != http.StatusCreated || len(made.body) > 0 {
		t.Fatalf("%s: %v", q.name, made)
	}
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		if slices.ContainsFunc(q.waiting(t), func(why string) bool { return strings.Contains(why, "the round is not over") }) {
			return
		}
		if a := q.poll(t, made); len(a.body) > 0 {
			t.Fatalf("%s: released: %v", q.name, a)
		}
		select {
		case <-ticker.C:
		case <-t.Context().Done():
			t.Fatal("the leader never looks")
		}
	}
}
