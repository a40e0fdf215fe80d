package account

import (
	"testing"
	"time"

	"github.com/starling-agg/starling/recipe"
)

// TestRoundsOfOptions: New fills in the round that rate or slots say, and the grace that
// a relay needs.
func TestRoundsOfOptions(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		want *recipe.Rounds
	}{
		"nothing said":   {Options{}, nil},
		"a day":          {Options{RoundUnits: 24}, &recipe.Rounds{Units: 24, Grace: 0}},
		"grace":          {Options{Grace: time.Minute}, &recipe.Rounds{Units: 1, Grace: 60}},
		"rate":           {Options{Rate: &recipe.Rate{Devices: 1000, Units: 24}}, &recipe.Rounds{Units: 24, Grace: 0}},
		"relay":          {Options{Relay: &recipe.Relay{}}, &recipe.Rounds{Units: 1, Grace: 300}},
		"relay, little":  {Options{Relay: &recipe.Relay{}, Grace: 2 * time.Second}, &recipe.Rounds{Units: 1, Grace: 2}},
		"relay, none":    {Options{Relay: &recipe.Relay{}, Grace: -1}, nil},
		"slots":          {Options{Participation: recipe.DonationTime{Slots: 8, Length: 3}}, &recipe.Rounds{Units: 24, Grace: 0}},
		"slots and rate": {Options{Participation: recipe.DonationTime{Slots: 8, Length: 3}, Rate: &recipe.Rate{Devices: 1000, Units: 7}}, &recipe.Rounds{Units: 24, Grace: 0}},
	} {
		got := c.o.rounds()
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
