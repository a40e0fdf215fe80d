package lab

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
)

// The whole demonstration, small: every answer a round too soon is refused, every report
// counts once, and each round's and each running sum's error is what the forecast says.
// Check rejects an honest run once in 10^8.
func TestRunSeries(t *testing.T) {
	o := SeriesOptions{Frame: Frame{Out: t.TempDir()}, Rounds: 7, Shape: Shape{Devices: 100, Dimension: 64}, Separation: 3}
	r, err := RunSeries(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	if r.Sent != 234 || r.Early != 134 || r.Refused != 134 || len(r.Rounds) != 7 || r.Bands != 3 || r.Participations != 3 {
		t.Errorf("%d reports, %d of %d refused, %d rounds, %d bands, %d times", r.Sent, r.Refused, r.Early, len(r.Rounds), r.Bands, r.Participations)
	}
	if r.Epsilon > 8 || r.Epsilon < 7.99 || !(r.GainForecast > 1) {
		t.Errorf("epsilon %v, gain %v", r.Epsilon, r.GainForecast)
	}
	for i, x := range r.Rounds {
		if i > 0 && !(x.PrefixIndependent > r.Rounds[i-1].PrefixIndependent) {
			t.Errorf("round %d: %+v", i+1, x)
		}
	}
	table, err := os.ReadFile(r.Table)
	if err != nil || len(strings.Split(strings.TrimSpace(string(table)), "\n")) != 8 {
		t.Errorf("table %q, %v", table, err)
	}
	var text strings.Builder
	if err := r.WriteText(&text, 100); err != nil || !strings.Contains(text.String(), "refused 134 of 134 answers a round too soon") {
		t.Errorf("%v: %s", err, text.String())
	}
	if raw, err := json.Marshal(r); err != nil || !strings.Contains(string(raw), `"gain_forecast":`) {
		t.Errorf("%s, %v", raw, err)
	}

	// What Check is for.
	for name, spoil := range map[string]func(*SeriesReport){
		"a lost report":      func(r *SeriesReport) { r.Accepted-- },
		"a rejected one":     func(r *SeriesReport) { r.Rejected = map[string]uint64{"vdaf": 1} },
		"a device too early": func(r *SeriesReport) { r.Refused-- },
		"too much noise":     func(r *SeriesReport) { r.Rounds[3].Error *= 3 },
		"too little noise":   func(r *SeriesReport) { r.Rounds[3].Error /= 50 },
		"an independent sum": func(r *SeriesReport) { r.Rounds[6].PrefixError *= 3 },
	} {
		c := *r
		c.Rounds = append([]SeriesRound(nil), r.Rounds...)
		if name == "too little noise" { // 64 entries say little: as many as in the demonstration
			c.Dimension = 1000
		}
		spoil(&c)
		if c.Check() == nil {
			t.Errorf("%s passes the check", name)
		}
	}
}

func TestSeriesOptions(t *testing.T) {
	o := SeriesOptions{}.WithDefaults()
	if err := o.Validate(); err != nil || o.Rounds != 32 || o.Devices != 200 || o.Separation != 8 || o.participations() != 4 {
		t.Errorf("%+v, %v", o, err)
	}
	for name, o := range map[string]SeriesOptions{
		"one round":      {Rounds: 1},
		"many rounds":    {Rounds: 101},
		"few devices":    {Shape: Shape{Devices: 99}},
		"many devices":   {Shape: Shape{Devices: 3000}},
		"next round":     {Separation: 1},
		"never again":    {Rounds: 10, Separation: 11},
		"small rounds":   {Shape: Shape{Devices: 100}, Separation: 6},
		"odd dimension":  {Shape: Shape{Dimension: 3}},
		"huge dimension": {Shape: Shape{Dimension: 1 << 20}},
		"precision":      {Frame: Frame{Precision: math.MaxInt64}},
	} {
		if err := o.Validate(); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
