package recipe_test

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"

	"github.com/starling-agg/starling/dap"
)

// donating is a recipe of 8 slots of 3 hours, the whole a day.
func donating() *Recipe { return sampledVariants()["donation time"] }

func TestRoundsGoldenBytes(t *testing.T) {
	got := hex.EncodeToString(mustAppend(t, needles()))
	if want := "000b" + "000c" + "0000000000000018" + "0000012c"; !strings.Contains(got, want) {
		t.Errorf("the bytes\n%s\nlack\n%s", got, want)
	}
}

// TestRoundsRefuses: what disagrees about the length of a round, and leader-selected
// batches that may hold a person twice.
func TestRoundsRefuses(t *testing.T) {
	leaderSelected := func(r *Recipe) {
		p := r.Path.(TwoServer)
		p.BatchMode = dap.LeaderSelected
		r.Path = p
	}
	for name, c := range map[string]struct {
		of     func() *Recipe
		change func(*Recipe)
		field  string
	}{
		"no length":                        {needles, func(r *Recipe) { r.Rounds.Units = 0 }, "round.units"},
		"too long":                         {doctor, func(r *Recipe) { r.Rounds = &Rounds{Units: MaxRoundUnits + 1} }, "round.units"},
		"longer than a life":               {doctor, func(r *Recipe) { r.Rounds = &Rounds{Units: MaxRound/3600 + 1} }, "round.units"},
		"longer than what a number holds":  {doctor, func(r *Recipe) { r.Rounds = &Rounds{Units: MaxRoundUnits} }, "round.units"},
		"too much grace":                   {doctor, func(r *Recipe) { r.Rounds = &Rounds{Units: 1, Grace: MaxGrace + 1} }, "round.grace"},
		"what its absence says":            {doctor, func(r *Recipe) { r.Rounds = &Rounds{Units: 1} }, "round"},
		"rate of a day, rounds of an hour": {needles, func(r *Recipe) { r.Rounds = nil }, "rate.units"},
		"rate of an hour":                  {needles, func(r *Recipe) { r.Rate.Units = 1 }, "rate.units"},
		"slots of an hour":                 {donating, func(r *Recipe) { r.Participation = DonationTime{Rational{Num: 1, Den: 4}, 8, 1} }, "round.units"},
		"a window that begins in a round":  {doctor, func(r *Recipe) { r.Rounds = &Rounds{Units: 48} }, "window"},
		"a window that ends in a round":    {doctor, func(r *Recipe) { r.Rounds, r.Window = &Rounds{Units: 5}, Between{480000, 480024} }, "window"},
		"leader-selected, two rounds":      {func() *Recipe { return variants()["two rounds"] }, leaderSelected, "path.batch_mode"},
		"leader-selected, coins":           {targeted, leaderSelected, "path.batch_mode"},
		"leader-selected, slots":           {donating, leaderSelected, "path.batch_mode"},
	} {
		r := c.of()
		if err := account.Validate(r); err != nil {
			t.Fatalf("%s: refused before the change: %v", name, err)
		}
		c.change(r)
		if err := account.Validate(r); !invalidAt(err, c.field) {
			t.Errorf("%s: %v, want one about %s", name, err, c.field)
		}
	}
}

// TestCheckBatch holds the rule to its words, over all short intervals: exactly one whole
// round, or slot, where a person may be in several, and else whole rounds; and a refused
// interval is told which whole rounds it lies in.
func TestCheckBatch(t *testing.T) {
	one := func(units uint64) func() *Recipe {
		return func() *Recipe {
			r := doctor()
			r.Window = NoWindow{}
			if units > 1 {
				r.Rounds = &Rounds{Units: units}
			}
			return r
		}
	}
	two := func(units uint64) func() *Recipe {
		return func() *Recipe {
			r := one(units)()
			c := r.Claim.(ApproxDP)
			c.Rounds, c.Epsilon = 2, Decimal{3, 0}
			r.Claim = c
			return r
		}
	}
	for name, c := range map[string]struct {
		of    func() *Recipe
		units uint64
		alone bool
	}{
		"one round of one unit":  {one(1), 1, false},
		"one round of five":      {one(5), 5, false},
		"two rounds of one unit": {two(1), 1, true},
		"two rounds of five":     {two(5), 5, true},
		"coins":                  {needles, 24, true},
		"slots":                  {donating, 3, true},
	} {
		r := c.of()
		if err := account.Validate(r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r.BatchUnits() != c.units || r.Alone() != c.alone {
			t.Errorf("%s: %d units, alone %v", name, r.BatchUnits(), r.Alone())
		}
		base := dap.Time(240 * 2000)
		for start := range dap.Time(60) {
			at := r.ReportTime(base + start)
			if at > base+start || base+start-at >= dap.Time(c.units) || uint64(at)%c.units != 0 {
				t.Fatalf("%s: a report of unit %d says %d", name, base+start, at)
			}
			for length := dap.Duration(1); length <= 60; length++ {
				first, last := uint64(start)/c.units, (uint64(start)+uint64(length)-1)/c.units
				rounds := last - first + 1
				whole := uint64(start) == first*c.units && uint64(length) == rounds*c.units
				err := r.CheckBatch(dap.Interval{Start: base + start, Duration: length})
				if want := whole && (rounds == 1 || !c.alone); want != (err == nil) {
					t.Fatalf("%s: %d units from %d on: %v", name, length, start, err)
				}
				var refused *BatchError
				cut, cutErr := r.Batches(dap.Interval{Start: base + start, Duration: length})
				if (cutErr == nil) != whole {
					t.Fatalf("%s: %d units from %d on are cut into %v, %v", name, length, start, cut, cutErr)
				}
				at, left := base+start, length
				for _, b := range cut {
					if b.Start != at || r.CheckBatch(b) != nil {
						t.Fatalf("%s: %d units from %d on are cut into %v", name, length, start, cut)
					}
					at, left = at+dap.Time(b.Duration), left-b.Duration
				}
				if whole && left != 0 {
					t.Fatalf("%s: %d units from %d on are cut into %v", name, length, start, cut)
				}
				if err == nil {
					continue
				}
				if !errors.As(err, &refused) || r.CheckBatch(refused.First) != nil || !refused.First.Contains(base+start) ||
					!refused.Whole.Covers(refused.Asked) || uint64(refused.Whole.Duration) != rounds*c.units {
					t.Fatalf("%s: %d units from %d on: told %v", name, length, start, err)
				}
			}
		}
	}
	r := needles()
	err := r.CheckBatch(dap.Interval{Start: 480001, Duration: 24})
	if want := "recipe: a batch is exactly one round: ask for 2024-10-04T00:00:00Z to 2024-10-05T00:00:00Z, and so on, one after the " +
		"other, to 2024-10-06T00:00:00Z"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestShowRounds: what is released, and when, in words.
func TestShowRounds(t *testing.T) {
	for name, c := range map[string]struct {
		of   *Recipe
		want []string
	}{
		"coins":      {needles(), []string{"a round is 24 hours; each is released alone, after its end and 5m0s of grace", "once in each; each round is released alone"}},
		"slots":      {donating(), []string{"a round is 24 hours, 8 slots of 3 hours; each is released alone, after its end"}},
		"one round":  {doctor(), []string{"rounds are released after their end, alone or several together", "one device has one report at most, in one round"}},
		"two rounds": {variants()["two rounds"], []string{"one device has one report in each of at most 2 rounds; each round is released alone, after its end"}},
		"leader":     {variants()["leader selected"], []string{"the leader releases reports of any rounds together"}},
	} {
		var b strings.Builder
		if err := account.Describe(c.of, &b); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(b.String()), " ")
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in\n%s", name, want, b.String())
			}
		}
	}
}
