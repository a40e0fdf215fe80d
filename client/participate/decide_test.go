package participate

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// within6 says whether a count of n trials lies within 6 standard deviations of its mean:
// a false alarm once in 5e8.
func within6(t *testing.T, what string, got, n int, p float64) {
	t.Helper()
	if sd := math.Sqrt(float64(n) * p * (1 - p)); math.Abs(float64(got)-float64(n)*p) > 6*sd+1e-9 {
		t.Errorf("%s: %d of %d, want %.1f +- %.1f", what, got, n, float64(n)*p, sd)
	}
}

// Each kind of answer comes out with the probabilities of the recipe.
func TestOutcomes(t *testing.T) {
	const n = 300
	o := options()
	o.Cover = &recipe.Cover{Rate: recipe.Rational{Num: 1, Den: 2}}
	needles := options()
	needles.Participation = recipe.Importance{Default: recipe.Rational{Num: 1, Den: 10}, Other: recipe.Rational{Num: 1, Den: 2}}
	for _, c := range []struct {
		name                 string
		o                    account.Options
		v                    client.Value
		report, dummy, noOps float64
	}{
		{"bernoulli", options(), one(1), 0.25, 0.75 / 8, 0},
		{"bernoulli, default answer", options(), one(-1), 0.25, 0.75 / 8, 0},
		{"bernoulli, no answer", options(), client.NoValue(), 0, 1. / 8, 0},
		{"half cover", o, one(2), 0.25, 0.25 / 8, 0.25 * 7 / 8},
		{"needle", needles, one(3), 0.5, 0.5 / 8, 0.5 * 7 / 8},
		{"hay", needles, one(-1), 0.1, 0.9 / 8, 0.9 * 7 / 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServers(t)
			p := s.plan(c.o)
			count := map[outcome]int{}
			for range n {
				d := Device{Ledger: memory(t)}
				decision, err := d.Decide(t.Context(), p, c.v, now)
				if err != nil {
					t.Fatal(err)
				}
				count[decision.what]++
				if err := decision.Send(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := decision.Send(t.Context()); !errors.Is(err, ErrSent) {
					t.Fatal("sent twice", err)
				}
			}
			within6(t, "reports", count[report], n, c.report)
			within6(t, "dummies", count[dummy], n, c.dummy)
			within6(t, "no-ops", count[noOp], n, c.noOps)
			if s.Counts().Reports != count[report]+count[dummy] || s.Counts().NoOps != count[noOp] {
				t.Errorf("uploaded %d and %d, decided %v", s.Counts().Reports, s.Counts().NoOps, count)
			}
			if len(s.Counts().Sizes) != 1 {
				t.Errorf("units of several sizes: %v", s.Counts().Sizes)
			}
			if slices.Contains(s.Counts().Asked[2:], "GET /v1/hpke_config") {
				t.Error("keys are fetched again where nothing is known to the servers of who decides")
			}
		})
	}
}

// A coin is exact: over all bit strings of small denominators it would be; here 60,000
// tosses of 1/3 and the ends.
func TestCoin(t *testing.T) {
	heads := 0
	for range 60000 {
		if secretly(big.NewRat(1, 3)) {
			heads++
		}
		if secretly(new(big.Rat)) || !secretly(big.NewRat(1, 1)) {
			t.Fatal("a coin of probability 0 or 1 is wrong")
		}
	}
	within6(t, "heads", heads, 60000, 1./3)
}

// Heads or tails: the same requests before the upload, the same ledger record, and no
// print tells.
func TestOutcomeShowsNowhere(t *testing.T) {
	var traces []string
	for _, what := range []outcome{nothing, dummy, report} {
		s := newServers(t)
		p := s.plan(options())
		tosses := 0
		force := func(r *big.Rat) bool { // cover, report, dummy
			tosses++
			return tosses == 1 || what == report && tosses == 2 || what == dummy && tosses == 3
		}
		d := Device{Ledger: memory(t), coin: force}
		decision, err := d.Decide(t.Context(), p, one(1), now)
		if err != nil {
			t.Fatal(err)
		}
		if decision.what != what || tosses != 3 {
			t.Fatalf("outcome %d after %d tosses, want %d after all 3", decision.what, tosses, what)
		}
		j, err := json.Marshal(decision)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := json.Marshal(d.Ledger.Entries())
		if err != nil {
			t.Fatal(err)
		}
		traces = append(traces, fmt.Sprint(s.Counts().Asked, decision, string(j), string(entries)))
	}
	if traces[0] != traces[1] || traces[0] != traces[2] {
		t.Errorf("the outcome shows:\n%s\n%s\n%s", traces[0], traces[1], traces[2])
	}
}

func TestChargedBeforeTossed(t *testing.T) {
	s := newServers(t)
	p := s.plan(options())
	l, err := MemoryLedger(LedgerOptions{MaxEpsilon: math.Inf(1), MaxDelta: 1})
	if err != nil {
		t.Fatal(err)
	}
	tosses := 0
	d := Device{Ledger: l, coin: func(*big.Rat) bool {
		if tosses++; l.Entries()[0].Rounds == 0 {
			t.Fatal("tossed before it was charged")
		}
		return false
	}}
	if _, err := d.Decide(t.Context(), p, one(1), now); err != nil {
		t.Fatal(err)
	}
	price, err := p.checked.LossAfter(1)
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Spent(); got.Epsilon < price.Epsilon || got.Epsilon > price.Epsilon*1.001 {
		t.Errorf("tails cost %v, want %v", got, price)
	}
	if full, _ := account.Guarantee(p.recipe); price.Epsilon > full.Epsilon {
		t.Errorf("one round costs %v of %v", price, full.Loss)
	}
	// A second coin in the same round is not tossed; the next round's is, up to the
	// recipe's rounds.
	before := tosses
	if _, err := d.Decide(t.Context(), p, one(1), now.Add(time.Hour)); !errors.Is(err, ErrDecided) || tosses != before {
		t.Errorf("a second coin in one round: %v", err)
	}
	for i := 1; i <= 3; i++ {
		_, err := d.Decide(t.Context(), p, one(1), now.AddDate(0, 0, i))
		if i < 3 && err != nil || i == 3 && !errors.Is(err, ErrDecided) {
			t.Errorf("day %d: %v", i, err)
		}
	}
	if full, _ := account.Guarantee(p.recipe); math.Abs(l.Spent().Epsilon-full.Epsilon) > 1e-3*full.Epsilon {
		t.Errorf("three rounds cost %v, the recipe's guarantee is %v", l.Spent(), full.Loss)
	}
	// Whoever would overspend tosses nothing.
	tosses = 0
	poor, err := MemoryLedger(LedgerOptions{MaxEpsilon: price.Epsilon / 2, MaxDelta: 1})
	if err != nil {
		t.Fatal(err)
	}
	d.Ledger = poor
	var over *BudgetError
	if _, err := d.Decide(t.Context(), p, one(1), now); !errors.Is(err, ErrBudget) || !errors.As(err, &over) || tosses != 0 {
		t.Errorf("an overspend: %v after %d tosses", err, tosses)
	}
	if poor.Spent() != (Spent{}) {
		t.Errorf("refused and charged: %v", poor.Spent())
	}
}

func TestDecideRefuses(t *testing.T) {
	s := newServers(t)
	targeted := options()
	targeted.Targeting = &recipe.Targeting{
		Clauses:     []recipe.Clause{{Attribute: recipe.Platform, Values: []string{"linux"}}},
		Certificate: recipe.Certificate{Recipe: recipe.ID{1}, Entry: recipe.Hash{1}, LowerBound: 5000, MinPopulation: 1000},
	}
	plain := s.plan(options())
	for _, c := range []struct {
		name string
		p    *Plan
		d    Device
		v    client.Value
		want error
	}{
		{"other attributes", s.plan(targeted), Device{}, one(1), ErrNotAsked},
		{"no answer to the query", plain, Device{}, client.Number(1), new(client.ValueError)},
		{"two bits", plain, Device{}, client.Vector([]uint64{1, 1, 0, 0}), new(client.ValueError)},
	} {
		c.d.Ledger = memory(t)
		_, err := c.d.Decide(t.Context(), c.p, c.v, now)
		if value := new(client.ValueError); !errors.Is(err, c.want) && !(errors.As(c.want, &value) && errors.As(err, &value)) {
			t.Errorf("%s: %v", c.name, err)
		}
		if len(c.d.Ledger.Entries()) != 0 {
			t.Errorf("%s: charged", c.name)
		}
	}
	c := s.client(makeRecipe(t, targeted), s)
	if _, err := NewPlan(PlanOptions{Client: c}); !errors.Is(err, ErrCertificate) {
		t.Error("a targeted recipe without a check of its certificate", err)
	}
	forged := errors.New("no such entry")
	_, err := NewPlan(PlanOptions{Client: c, Certificate: func(*recipe.Targeting) error { return forged }})
	if !errors.Is(err, ErrCertificate) || !errors.Is(err, forged) {
		t.Error("a forged certificate", err)
	}
	if c, err = client.New(client.Options{AnyKeys: true, Prover: account.Prover, Recipe: makeRecipe(t, options()), HTTP: s}); err != nil {
		t.Fatal(err)
	}
	if _, err := NewPlan(PlanOptions{Client: c}); err == nil {
		t.Error("a plan that would send past the relay")
	}
	if _, err := NewPlan(PlanOptions{}); err == nil {
		t.Error("a plan without a client")
	}
}

func TestSchedules(t *testing.T) {
	const n = 20000
	for _, c := range []struct {
		s    Schedule
		want func(slot uint64) float64
		from uint64
	}{
		{DonationSlots{Slots: 5}, func(i uint64) float64 { return math.Pow(.8, float64(i)) / 5 }, 0},
		{CheckIns{Window: release.FixedWindow, Slots: 5, P0: recipe.Rational{Num: 1, Den: 2}}, func(uint64) float64 { return .1 }, 0},
		{CheckIns{Window: release.AveragedWindow, Slots: 5, P0: recipe.Rational{Num: 1, Den: 1}}, func(uint64) float64 { return .2 }, 0},
		{CheckIns{Window: release.SlidingWindow, Slots: 5, P0: recipe.Rational{Num: 1, Den: 1}}, func(uint64) float64 { return .2 }, 7},
	} {
		count := map[uint64]int{}
		for range n {
			if slot, ok := c.s.Draw(7); ok {
				count[slot]++
			}
		}
		for i := range uint64(5) {
			within6(t, fmt.Sprintf("%T, slot %d", c.s, i), count[c.from+i], n, c.want(i))
			delete(count, c.from+i)
		}
		if len(count) > 0 {
			t.Errorf("%T: slots out of range %v", c.s, count)
		}
	}
	if err := (CheckIns{Window: release.AveragedWindow, Slots: 5, P0: recipe.Rational{Num: 1, Den: 1}}).Validate(); err != nil {
		t.Error(err)
	}
	if err := (CheckIns{Window: release.FixedWindow, P0: recipe.Rational{Num: 1, Den: 1}}).Validate(); err == nil {
		t.Error("no slots")
	}
}

// emptyLog is a log that holds nothing.
type emptyLog struct{ ohttp.Source }

func (emptyLog) Holds(recipe.ID) error        { return errors.New("no inclusion proof") }
func (emptyLog) Counted(*recipe.Recipe) error { return nil }

// Consider writes down every recipe that can be named, and why it was refused.
func TestConsider(t *testing.T) {
	d := Device{Ledger: memory(t)}
	good := makeRecipe(t, options())
	if _, err := d.Consider(t.Context(), client.Options{AnyKeys: true, Prover: account.Prover, Recipe: good}, now); err != nil {
		t.Fatal(err)
	}
	var refused *client.RefusedError
	if _, err := d.Consider(t.Context(), client.Options{AnyKeys: true, Prover: account.Prover, Recipe: good, MaxEpsilon: 1e-3}, now); !errors.As(err, &refused) ||
		refused.Reason != client.ReasonEpsilon {
		t.Error(err)
	}
	later := slices.Clone(good)
	later[0] = 2
	if _, err := d.Consider(t.Context(), client.Options{AnyKeys: true, Prover: account.Prover, Recipe: later}, now); !errors.As(err, &refused) {
		t.Error(err)
	}
	if _, err := d.Consider(t.Context(), client.Options{AnyKeys: true, Prover: account.Prover, Recipe: good[:40]}, now); err == nil {
		t.Error("cut bytes")
	}
	list := d.Ledger.Entries()
	if len(list) != 2 || list[0].Refused == "" || list[1].Refused == "" {
		t.Errorf("entries %+v", list)
	}
	if _, err := d.Consider(t.Context(), client.Options{AnyKeys: true, Prover: account.Prover, Recipe: good, Log: emptyLog{}}, now); !errors.As(err, &refused) ||
		refused.Reason != client.ReasonNotLogged {
		t.Error(err)
	}
}
