package hostile

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// longGrace is a grace in which what ended half a day ago is over, and not to be released
// yet.
const longGrace = 48 * time.Hour

// A point is one place in the space of recipes.
type point struct {
	participation string // always, bernoulli, importance, donation
	noise         string // none, gaussian, laplace, correlated, krr
	rounds        uint32
	units         uint32 // of a round, or of a slot
	mode          dap.BatchMode
	relay         bool
	grace         time.Duration
	views         bool // of three and of six rounds
}

func (p point) String() string {
	views := ""
	if p.views {
		views = ", views"
	}
	return fmt.Sprintf("%s %s, %d rounds of %d, %v, relay %v, grace %v%s", p.participation, p.noise, p.rounds, p.units, p.mode, p.relay, p.grace, views)
}

// space lists all points but those that no recipe can be at, whatever its rounds are.
func space() (all []point) {
	for _, participation := range []string{"always", "bernoulli", "importance", "donation"} {
		noises := []string{"none", "gaussian"}
		if participation == "always" {
			noises = []string{"none", "gaussian", "laplace", "correlated", "krr"}
		}
		for _, noise := range noises {
			for _, rounds := range []uint32{1, 3} {
				for _, units := range []uint32{1, 4} {
					for _, mode := range []dap.BatchMode{dap.TimeInterval, dap.LeaderSelected} {
						for _, relay := range []bool{false, true} {
							if noise == "correlated" && mode == dap.LeaderSelected || participation == "importance" && !relay {
								continue
							}
							graces := []time.Duration{0}
							if relay && noise == "gaussian" && mode == dap.TimeInterval {
								graces = append(graces, longGrace)
							}
							for _, grace := range graces {
								all = append(all, point{participation, noise, rounds, units, mode, relay, grace, false})
							}
							if viewed := participation == "always" && (noise == "gaussian" || noise == "laplace" && rounds == 1); viewed && mode == dap.TimeInterval {
								all = append(all, point{participation, noise, rounds, units, mode, relay, 0, true})
							}
						}
					}
				}
			}
		}
	}
	return all
}

// sampled says whether devices toss coins.
func (p point) sampled() bool { return p.participation != "always" }

// alone says whether one person may be in several rounds, or devices toss coins, in the
// words of docs/released.md.
func (p point) alone() bool { return p.sampled() || p.rounds > 1 && p.noise != "none" || p.views }

// options of the recipe at a point; i picks its query.
func (p point) options(t *testing.T, i int) account.Options {
	o := account.Options{Name: p.String(), DAP: speaks, BatchMode: p.mode, MinBatch: 20, Rounds: p.rounds, RoundUnits: uint64(p.units),
		Delta: recipe.Decimal{Coefficient: 1, Scale: 6}}
	if p.relay {
		o.Relay = &recipe.Relay{URL: "https://relay.example/", Gateway: "https://gateway.example/"}
	}
	if o.Grace = p.grace; o.Grace == 0 {
		o.Grace = -1 // none
	}
	queries := []recipe.Query{recipe.Count{}, recipe.Sum{Max: 5}, recipe.Mean{Max: 5}, recipe.Multihot{Length: 3, MaxWeight: 1},
		recipe.SumVec{Length: 2, Max: 3}, recipe.Histogram{Length: 4}}
	if p.sampled() {
		queries = queries[:5] // a histogram has no zero
	}
	o.Query = queries[i%len(queries)]
	half := recipe.Rational{Num: 1, Den: 2}
	quarter := recipe.Rational{Num: 1, Den: 4}
	switch p.participation {
	case "bernoulli":
		o.Participation = recipe.Bernoulli{Rate: half}
	case "importance":
		o.Participation, o.Query = recipe.Importance{Default: quarter, Other: half}, recipe.Multihot{Length: 3, MaxWeight: 1}
	case "donation":
		o.Participation, o.RoundUnits = recipe.DonationTime{Rate: half, Slots: 2, Length: p.units}, 0
	}
	if p.sampled() {
		o.Rate = &recipe.Rate{Devices: 400, Units: uint64(p.units)}
		if p.participation == "donation" {
			o.Rate.Units *= 2
		}
		o.Dummies = &recipe.Dummies{Rate: quarter, Senders: 300, Allowance: 125}
		if p.participation == "donation" {
			o.Rate.Devices, o.Dummies.Senders = 1000, 900
		}
	}
	if p.views {
		o.Views = &recipe.Views{Round: "round", Keep: 4000, Wider: []recipe.View{{Name: "three", Rounds: 3}, {Name: "six", Rounds: 6}}}
	}
	switch p.noise {
	case "gaussian":
		o.Noise = recipe.DiscreteGaussian{Variance: recipe.Rational{Num: 100, Den: 1}, Share: recipe.DrawsAll}
	case "laplace":
		o.Noise = recipe.DiscreteLaplace{Scale: recipe.Rational{Num: 10, Den: 1}}
	case "correlated":
		strategy, err := correlated.SquareRoot(3, 6)
		if err != nil {
			t.Fatal(err)
		}
		o.Noise = recipe.CorrelatedGaussian{Variance: recipe.Rational{Num: 400, Den: 1},
			Series: correlated.Series{Strategy: strategy, Separation: 4, Rounds: 12}}
	case "krr":
		o.Query, o.Randomizer = recipe.Histogram{Length: 4}, recipe.KRR{Epsilon0: recipe.Decimal{Coefficient: 1}}
	}
	return o
}

// TestReleases walks the space of recipes and asks leader and helper of each, over the
// wire, for all that is not the event its guarantee accounts for (docs/released.md);
// every question is refused with its reason, or left waiting where it is early; then the
// true batch is released, and asked for again. Recipes of leader-selected batches in
// which a person may be twice do not exist. Where CI is not true it visits every third
// point.
func TestReleases(t *testing.T) {
	stride := 3 // no choice has three values that take turns, so each value comes up
	if os.Getenv("CI") == "true" {
		stride = 1
	}
	points := make(map[string]point)
	o := openOffice(t, func(leader, helper string) map[string]*recipe.Recipe {
		recipes := make(map[string]*recipe.Recipe)
		for i, p := range space() {
			if i%stride != 0 {
				continue
			}
			options := p.options(t, i)
			options.Leader, options.Helper = leader, helper
			r, err := account.New(options)
			if p.mode == dap.LeaderSelected && p.alone() {
				if !refusedAt(err, "path.batch_mode") {
					t.Errorf("%v: %v", p, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%v: %v", p, err)
			}
			recipes[p.String()], points[p.String()] = r, p
		}
		return recipes
	})
	if len(o.tasks) < 60/stride {
		t.Errorf("only %d recipes", len(o.tasks))
	}
	var take []func() // what may be had, once all have been asked for it
	for _, q := range o.tasks {
		if p := points[q.name]; p.mode == dap.LeaderSelected {
			take = append(take, q.selected(t))
		} else {
			take = append(take, q.intervals(t, p))
		}
		q.misdated(t)
	}
	for _, f := range take {
		f()
	}
}

func refusedAt(err error, field string) bool {
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		return slices.ContainsFunc(list.Unwrap(), func(e error) bool { return refusedAt(e, field) })
	}
	var invalid *recipe.InvalidError
	return errors.As(err, &invalid) && invalid.Field == field
}

// refused demands the same refusal of an answer.
func (q *tasked) refused(t *testing.T, who, what string, a reply, want ...dap.ProblemType) {
	t.Helper()
	if a.status != http.StatusBadRequest || !slices.Contains(want, a.problem) {
		t.Errorf("%s: the %s, asked for %s: %v; want %v", q.name, who, what, a, want)
	}
}

// A span is what is asked for.
type span struct {
	what   string
	start  dap.Time
	length uint64
}

// intervals plays the attacks on a recipe of time intervals, asks for what may be had,
// and returns how to take it.
func (q *tasked) intervals(t *testing.T, p point) (take func()) {
	u := uint64(p.units) // released together
	unit := dap.Time(u)
	// over, its grace too
	start := q.recipe.ReportTime(q.unit(t, time.Now().Add(-30*24*time.Hour)))
	if uint64(start)%u != 0 {
		t.Fatalf("%s: a round from %d on", q.name, start)
	}
	if p.participation == "donation" {
		start -= start % (2 * unit) // the first slot of its round
	}
	if p.views {
		start -= start % (6 * unit) // the first round of its six
	}
	whole := dap.Interval{Start: start, Duration: dap.Duration(u)}

	// What no clock makes right.
	never := []span{{"nothing", start, 0}, {"an interval without end", math.MaxUint64 - 1, u + 1}}
	if u > 1 {
		never = append(never, span{"the first unit of a round", start, 1}, span{"a unit inside a round", start + 1, 1}, span{"half a round", start, u / 2},
			span{"a round and a unit", start, u + 1}, span{"a straddle", start + 1, u}, span{"a straddle of two", start + 1, 2 * u},
			span{"the last unit of a round and the next round", start + unit - 1, u + 1})
	}
	if p.alone() {
		never = append(never, span{"two rounds", start, 2 * u}, span{"two rounds of other pairs", start - unit, 2 * u}, span{"thirty rounds", start - 10*unit, 30 * u})
	}
	if p.views {
		never = append(never, span{"two rounds of a view", start, 2 * u}, span{"a round and a view", start - unit, 4 * u}, span{"three rounds of two views", start + unit, 3 * u},
			span{"six rounds of two views", start + 3*unit, 6 * u}, span{"two of the widest view", start, 12 * u}, span{"three of three", start, 9 * u})
	}
	for _, s := range never {
		r := ofInterval(s.start, s.length)
		q.refused(t, "leader", s.what, q.askLeader(t, r), dap.ProblemBatchInvalid)
		q.refused(t, "helper alone", s.what, q.askHelper(t, r, r.Query.Interval, nil), dap.ProblemBatchInvalid)
	}
	if u > 1 {
		q.refused(t, "helper alone", "a unit of the round that the collector asked for",
			q.askHelper(t, ofInterval(start, u), dap.Interval{Start: start, Duration: 1}, nil), dap.ProblemBatchInvalid)
		if !p.alone() {
			q.refused(t, "helper alone", "a straddle of the rounds that the collector asked for",
				q.askHelper(t, ofInterval(start, 2*u), dap.Interval{Start: start + 1, Duration: dap.Duration(u)}, nil), dap.ProblemBatchInvalid)
		}
	}
	other := dap.CollectionJobReq{Query: dap.Query{Mode: dap.LeaderSelected}}
	q.refused(t, "leader", "a batch of its own choice", q.askLeader(t, other), dap.ProblemInvalidMessage)
	q.refused(t, "helper alone", "a batch of the leader's choice", q.askHelper(t, other, dap.Interval{}, nil), dap.ProblemInvalidMessage)
	q.second(t, ofInterval(start, u), whole)

	// What is early: a round that runs or is to come, a span into it, and one in its grace.
	soon := q.recipe.ReportTime(q.unit(t, time.Now().Add(5*time.Minute)))
	early := []span{{"a round that is not over", soon, u}, {"a round to come", soon + 10*unit, u}}
	if !p.alone() {
		early = append(early, span{"rounds of which one is not over", soon - 2*unit, 3 * u})
	}
	if p.views {
		early = append(early, span{"a view that is not over", soon - soon%(6*unit), 6 * u})
	}
	if p.grace > 0 {
		// The leader has just begun: what a gateway may have kept for it meanwhile is
		// waited for, though the helper needs not.
		early = append(early, span{"a round in its grace", q.recipe.ReportTime(q.unit(t, time.Now().Add(-12*time.Hour))), u})
	}
	var waiting []reply
	for _, s := range early {
		r := ofInterval(s.start, s.length)
		a := q.askHelper(t, r, r.Query.Interval, nil)
		after, err := strconv.Atoi(a.header.Get("Retry-After"))
		if a.status != http.StatusServiceUnavailable || a.location != "" || err != nil || after < 1 || !strings.Contains(string(a.body), "not over") {
			t.Errorf("%s: the helper alone, asked for %s: %v", q.name, s.what, a)
		}
		if a = q.askLeader(t, r); a.status != http.StatusCreated || len(a.body) > 0 {
			t.Fatalf("%s: the leader, asked for %s: %v", q.name, s.what, a)
		}
		waiting = append(waiting, a)
	}

	if p.grace > 0 {
		made := q.askLeader(t, ofInterval(start, u))
		q.waits(t, "a round, of a leader that began a moment ago", made)
		q.forget(t, made)
		return func() { q.unreleased(t, early, waiting) }
	}

	// What may be had: all reports of the round, whenever in it they were made, and no
	// other's.
	n := q.recipe.Threshold()
	end := q.at(t, start+unit)
	reports := slices.Concat(q.reports(t, n-1, end.Add(-time.Second)), q.reports(t, 1, q.at(t, start)))
	q.accept(t, reports)
	question := ofInterval(start, u)
	made := q.askLeader(t, question)
	return func() {
		resp, body := q.released(t, made)
		if resp.ReportCount != n || resp.Interval != (dap.Interval{Start: start, Duration: 1}) {
			t.Errorf("%s: released %d reports of %v, want %d of unit %d", q.name, resp.ReportCount, resp.Interval, n, start)
		}

		// Again: the same bytes for the same question, and nothing once it was deleted.
		if again := q.askLeader(t, question); string(again.body) != string(body) {
			t.Errorf("%s: the same question has another answer: %v", q.name, again)
		}
		q.forget(t, made)
		q.refused(t, "leader", "the round again", q.askLeader(t, question), dap.ProblemBatchOverlap)
		q.refused(t, "helper alone", "the round again, with other counts", q.askHelper(t, question, whole, nil), dap.ProblemBatchOverlap)
		if !p.alone() {
			r := ofInterval(start-unit, 3*u)
			q.refused(t, "leader", "a span with the round in it", q.askLeader(t, r), dap.ProblemBatchOverlap)
			q.refused(t, "helper alone", "a span with the round in it", q.askHelper(t, r, r.Query.Interval, nil), dap.ProblemBatchOverlap)
			q.refused(t, "helper alone", "the round, of a wider question", q.askHelper(t, r, whole, nil), dap.ProblemBatchOverlap)
		}
		late := q.reports(t, 1, end.Add(-time.Second))
		if refused, err := q.client.Upload(t.Context(), late); err != nil || len(refused) != 1 || refused[0].Error != dap.BatchCollected {
			t.Errorf("%s: a report of a released round: %v, %v", q.name, refused, err)
		}
		if p.views {
			q.views(t, start, u, n)
		}

		q.unreleased(t, early, waiting)
	}
}

// views takes each view of a round that was released, which has its reports, and asks for it
// again; a recipe's views release nothing whose time is over.
func (q *tasked) views(t *testing.T, start dap.Time, u, n uint64) {
	t.Helper()
	q.accept(t, q.reports(t, 3, q.at(t, start+dap.Time(u)))) // too few for a round
	for _, rounds := range []uint64{3, 6} {
		question := ofInterval(start, rounds*u)
		made := q.askLeader(t, question)
		resp, body := q.released(t, made)
		if resp.ReportCount != n+3 {
			t.Errorf("%s: a view of %d released %d reports, want %d", q.name, rounds, resp.ReportCount, n+3)
		}
		if again := q.askLeader(t, question); string(again.body) != string(body) {
			t.Errorf("%s: the same question about a view has another answer: %v", q.name, again)
		}
		q.forget(t, made)
		q.refused(t, "leader", "a view again", q.askLeader(t, question), dap.ProblemBatchOverlap)
		q.refused(t, "helper alone", "a view again, with other counts", q.askHelper(t, question, question.Query.Interval, nil), dap.ProblemBatchOverlap)
		late := q.reports(t, 1, q.at(t, start+dap.Time((rounds-1)*u)))
		if refused, err := q.client.Upload(t.Context(), late); err != nil || len(refused) != 1 || refused[0].Error != dap.BatchCollected {
			t.Errorf("%s: a report of a round without any, in a released view: %v, %v", q.name, refused, err)
		}
	}
	long := start - start%dap.Time(6*u) - dap.Time(6*u*1000)
	for _, s := range []span{{"a round whose time is over", long, u}, {"a view whose time is over", long, 6 * u}} {
		r := ofInterval(s.start, s.length)
		q.refused(t, "helper alone", s.what, q.askHelper(t, r, r.Query.Interval, nil), dap.ProblemBatchInvalid)
	}
}

// waits demands that a collection job has no answer yet, and that the collector is told
// when to come again.
func (q *tasked) waits(t *testing.T, what string, made reply) {
	t.Helper()
	if a := q.poll(t, made); a.status != http.StatusOK || len(a.body) > 0 || a.header.Get("Retry-After") == "" {
		t.Errorf("%s: %s: %v", q.name, what, a)
	}
}

// unreleased looks at what was early: it still waits, and keeps no report out; deleted
// and asked for again it waits again.
func (q *tasked) unreleased(t *testing.T, early []span, waiting []reply) {
	t.Helper()
	for i, s := range early {
		q.waits(t, s.what, waiting[i])
		if begun := q.at(t, s.start); i == len(early)-1 && begun.Before(time.Now()) {
			q.accept(t, q.reports(t, 1, begun))
		}
		q.forget(t, waiting[i])
		if i > 0 {
			continue
		}
		a := q.askLeader(t, ofInterval(s.start, s.length))
		if a.status != http.StatusCreated || len(a.body) > 0 {
			t.Errorf("%s: %s, again: %v", q.name, s.what, a)
		}
		q.forget(t, a)
	}
}

// second asks for what may be had with an aggregation parameter, as if there were a
// second result in it.
func (q *tasked) second(t *testing.T, r dap.CollectionJobReq, batch dap.Interval) {
	t.Helper()
	r.AggParam = []byte{1}
	want := []dap.ProblemType{dap.ProblemInvalidAggregationParameter, dap.ProblemInvalidMessage}
	q.refused(t, "leader", "a second parameter", q.askLeader(t, r), want...)
	q.refused(t, "helper alone", "a second parameter", q.askHelper(t, r, batch, nil), want...)
}

// selected asks for a batch of the leader's choice, and returns how to take it: no clock
// is asked, and no interval is answered.
func (q *tasked) selected(t *testing.T) (take func()) {
	interval := ofInterval(q.recipe.ReportTime(q.unit(t, time.Now().Add(-30*24*time.Hour))), q.recipe.BatchUnits())
	q.refused(t, "leader", "an interval", q.askLeader(t, interval), dap.ProblemInvalidMessage)
	q.refused(t, "helper alone", "an interval", q.askHelper(t, interval, interval.Query.Interval, nil), dap.ProblemInvalidMessage)
	next := dap.CollectionJobReq{Query: dap.Query{Mode: dap.LeaderSelected}}
	q.second(t, next, dap.Interval{})
	n := q.recipe.Threshold()
	q.accept(t, q.reports(t, n, time.Now()))
	made := q.askLeader(t, next)
	return func() {
		if resp, _ := q.released(t, made); resp.ReportCount < n {
			t.Errorf("%s: released %d reports", q.name, resp.ReportCount)
		}
		q.forget(t, made)
		again := q.askLeader(t, next) // the next batch, for which there are no reports
		if again.status != http.StatusCreated || len(again.body) > 0 {
			t.Errorf("%s: again: %v", q.name, again)
		}
		q.forget(t, again)
	}
}

// misdated sends reports of times inside a round: to the leader as a device does, and to
// the helper as a leader does.
func (q *tasked) misdated(t *testing.T) {
	start := q.recipe.ReportTime(q.unit(t, time.Now().Add(-60*24*time.Hour)))
	for unit := start + 1; unit < start+dap.Time(q.recipe.BatchUnits()); unit++ {
		r := q.reports(t, 1, q.at(t, unit))[0]
		if r.Metadata.Time != start {
			t.Errorf("%s: a device that answers in unit %d says %d, and its round begins with %d", q.name, unit, r.Metadata.Time, start)
		}
		r.Metadata.Time = unit
		refused, err := q.client.Upload(t.Context(), []dap.Report{r})
		if err != nil || len(refused) != 1 || refused[0].Error != dap.InvalidMessage {
			t.Errorf("%s: the leader, of a report of unit %d: %v, %v", q.name, unit, refused, err)
		}
		if got := q.verdict(t, r); got != dap.InvalidMessage {
			t.Errorf("%s: the helper alone, of a report of unit %d: %v", q.name, unit, got)
		}
	}
}

// verdict is what the helper says of a report that a leader sends by itself.
func (q *tasked) verdict(t *testing.T, r dap.Report) dap.ReportError {
	t.Helper()
	init := dap.VerifyInit{ReportShare: dap.ReportShare{Metadata: r.Metadata, PublicShare: r.PublicShare, Ciphertext: r.Helper}, Payload: []byte{0}}
	req := dap.AggregationJobInitReq{VerificationKeyID: 1}
	var err error
	if req.Inits, err = init.Append(nil); err != nil {
		t.Fatal(err)
	}
	if path := q.recipe.Path.(recipe.TwoServer); path.BatchMode == dap.LeaderSelected {
		if req.Extensions, err = req.Extensions.WithLeaderSelectedBatch(dap.BatchID{1}); err != nil {
			t.Fatal(err)
		}
	}
	speech := dap.Dialect{Version: speaks}
	body, err := speech.AppendAggregationJobInitReq(nil, &req)
	if err != nil {
		t.Fatal(err)
	}
	a := q.do(t, "POST", q.helper, dap.CreationPath(q.id, dap.AggregationJobsResource), q.peer, dap.MediaAggregationJobInitReq, body)
	if a.status != http.StatusCreated {
		t.Fatalf("%s: an aggregation job: %v", q.name, a)
	}
	resps, err := dap.Collect(speech.VerifyResps(a.body, dap.DefaultLimits()))
	if err != nil || len(resps) != 1 {
		t.Fatalf("%s: an aggregation job: %v, %v", q.name, resps, err)
	}
	return resps[0].Error
}
