package lab

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/lab/internal/randhie"
	"github.com/starling-agg/starling/recipe"
)

// TestPopulation plays devices with coins, relay, gateway, both servers and the
// collector, for each question.
func TestPopulation(t *testing.T) {
	t.Parallel() // it waits for rounds more than it computes
	for question, o := range map[string]Options{
		Visits:  {Population: 2000},
		Needles: {Population: 3000, Recipe: Needles, Frame: Frame{Epsilon: decimal("4")}}, // needles hide among fewer
	} {
		t.Run(question, func(t *testing.T) {
			t.Parallel()
			keep := filepath.Join(t.TempDir(), "kept")
			var last Progress
			o.Out, o.Keep, o.Progress = t.TempDir(), keep, func(p Progress) { last = p }
			var seen *collector.Result
			o.seen = func(_ int, r *collector.Result) { seen = r }
			r, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Check(); err != nil {
				t.Error(err)
			}
			checkIntervals(t, r, seen)
			if !last.Over || last.Phase != phases {
				t.Errorf("the last progress is %+v", last)
			}
			n := uint64(o.Population)
			if r.Decisions != n || r.Accepted != r.Answers+r.Dummies || r.Dummies == 0 {
				t.Errorf("%d decisions; %d accepted, of %d answers and %d dummies", r.Decisions, r.Accepted, r.Answers, r.Dummies)
			}
			if !(r.Epsilon > 0.9) || !(*r.EpsilonIfRelayColludes > 1.5*r.Epsilon) {
				t.Errorf("epsilon %v, and %v if the relay colludes", r.Epsilon, *r.EpsilonIfRelayColludes)
			}
			edge, want := *r.EpsilonIfEdgeWatched, *r.EpsilonIfRelayColludes
			if question == Needles { // cover is against this
				want = r.Epsilon
				if r.NoOps != n-r.Sent {
					t.Errorf("%d no-ops beside %d reports of %d devices", r.NoOps, r.Sent, n)
				}
			}
			if edge != want {
				t.Errorf("epsilon %v if the network is watched, want %v", edge, want)
			}
			checkSampledText(t, r)
			checkSampledJSON(t, r)
			checkLedgers(t, keep)
		})
	}
}

// checkIntervals: what is printed, the table and the picture have the collector's
// intervals.
func checkIntervals(t *testing.T, r *Report, seen *collector.Result) {
	t.Helper()
	if !slices.Equal(r.Interval95, seen.Interval95) || !slices.Equal(r.Chart().Interval, seen.Interval95) {
		t.Errorf("intervals %v, drawn %v, the collector's %v", r.Interval95, r.Chart().Interval, seen.Interval95)
	}
	table, err := os.ReadFile(r.Table)
	for i, in := range seen.Interval95 {
		if row := fmt.Sprintf(",%v,%v,%d\n", in[0], in[1], r.Truth[i]); err != nil || !strings.Contains(string(table), row) {
			t.Fatalf("the table lacks %q, %v:\n%s", row, err, table)
		}
	}
}

func checkSampledText(t *testing.T, r *Report) {
	t.Helper()
	var text strings.Builder
	if err := r.WriteText(&text, 100, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Guarantee: epsilon", "If an assumption fails", "measured", "forecast", "drawn by a fixed seed",
		"16 on the disk", fmt.Sprintf("%d dummies", r.Dummies)} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
}

func checkSampledJSON(t *testing.T, r *Report) {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(b, &keys); err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]float64{"population": float64(r.Population), "sampling": 0.1, "dummies": float64(r.Dummies),
		"epsilon_if_relay_colludes": *r.EpsilonIfRelayColludes, "reports_accepted": float64(r.Answers + r.Dummies)} {
		if keys[k] != want {
			t.Errorf("the JSON has %s %v, want %v", k, keys[k], want)
		}
	}
}

// checkLedgers: the devices whose ledger is durable have paid for one round each.
func checkLedgers(t *testing.T, keep string) {
	t.Helper()
	checked, err := deploy.OpenCertified(filepath.Join(keep, deploy.RecipeFile))
	if err != nil {
		t.Fatal(err)
	}
	price, err := checked.LossAfter(1)
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := os.ReadDir(filepath.Join(keep, devicesDir))
	if err != nil || len(dirs) != durableDevices {
		t.Fatalf("%d devices with a ledger, %v", len(dirs), err)
	}
	for _, d := range dirs {
		fsys, err := disk.OS(filepath.Join(keep, devicesDir, d.Name()))
		if err != nil {
			t.Fatal(err)
		}
		entries, spent, err := participate.ReadLedger(fsys)
		if err != nil || len(entries) != 1 || entries[0].Rounds != 1 || math.Abs(spent.Epsilon-price.Epsilon) > 1e-6 {
			t.Errorf("device %s: %d recipes, %v spent of %v: %v", d.Name(), len(entries), spent, price, err)
		}
		fsys.Close()
	}
}

// TestRounds: several collections of one population have one budget, with coins and with
// a known sample.
func TestRounds(t *testing.T) {
	t.Parallel() // it waits for rounds more than it computes
	const devices, rounds = 1000, 2
	var errors [2]float64
	for i, known := range []bool{false, true} {
		r, err := Run(t.Context(), Options{Population: devices, Sampling: recipe.Rational{Num: 1, Den: 4}, Rounds: rounds,
			KnownSample: known, Frame: Frame{Out: t.TempDir()}})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Check(); err != nil {
			t.Error(err)
		}
		want := uint64(rounds * devices)
		if known {
			want /= 4
		}
		if r.Decisions != want || len(r.SquaredErrorRounds) != rounds || !(r.Epsilon <= 1) {
			t.Errorf("%d decisions and not %d; %d rounds; epsilon %v", r.Decisions, want, len(r.SquaredErrorRounds), r.Epsilon)
		}
		if known && (r.Dummies != 0 || *r.EpsilonIfRelayColludes != r.Epsilon) {
			t.Errorf("a known sample with %d dummies, epsilon %v if the relay colludes", r.Dummies, *r.EpsilonIfRelayColludes)
		}
		errors[i] = r.SquaredErrorForecast
	}
	if errors[0] <= 0 || errors[1] <= 0 {
		t.Errorf("forecasts %v", errors)
	}
}

func TestPopulationRefuses(t *testing.T) {
	for name, o := range map[string]Options{
		"few":             {Population: MinPopulation - 1},
		"many":            {Population: MaxPopulation + 1},
		"certain":         {Population: 2000, Sampling: recipe.Rational{Num: 1, Den: 1}},
		"nowhere to hide": {Population: MinPopulation},
		"no sample":       {Population: 2000, Sampling: recipe.Rational{Num: 1, Den: 1000}},
		"question":        {Population: 2000, Recipe: "names"},
		"certain needle":  {Population: 2000, Recipe: Needles, Sampling: recipe.Rational{Num: 1, Den: 5}},
		"attack":          {Population: 2000, Malicious: 1},
		"rounds":          {Population: 2000, Rounds: MaxRounds + 1},
	} {
		o.Out = t.TempDir()
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	// Where the dummies would outnumber what may be sent, there is no recipe.
	if _, err := Run(t.Context(), Options{Population: 1000, Sampling: recipe.Rational{Num: 1, Den: 40}, Frame: Frame{Out: t.TempDir()}}); err == nil {
		t.Error("25 answers among 50 dummies: accepted")
	}
}

func TestResample(t *testing.T) {
	visits, err := randhie.Visits()
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]int, len(visits))
	for i := range rows {
		rows[i] = i
	}
	for _, n := range []int{1000, len(rows), 60_000} {
		population := resample(rows, n)
		count := make([]int, len(rows))
		for _, row := range population {
			count[row]++
		}
		if least, most := slices.Min(count), slices.Max(count); len(population) != n || least != n/len(rows) || most > least+1 {
			t.Errorf("%d devices of %d: rows stand %d to %d times", len(population), n, least, most)
		}
		if !slices.Equal(population, resample(rows, n)) {
			t.Errorf("another population of %d", n)
		}
	}
	share := 0
	for _, v := range visits {
		if v >= often {
			share++
		}
	}
	if share != 1851 || len(visits)/share+1 != needleShare {
		t.Errorf("%d needles", share)
	}
}

// TestAsked: a known sample takes every device equally often, and none more often than
// the recipe says.
func TestAsked(t *testing.T) {
	o := Options{Population: 1050, Sampling: recipe.Rational{Num: 1, Den: 10}, Rounds: 25, KnownSample: true}.WithDefaults()
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	sizes := make([]int, o.Rounds)
	for i, rounds := range o.asked() {
		if len(rounds) > int(o.lifetime()) {
			t.Errorf("device %d is asked in rounds %v, of at most %d", i, rounds, o.lifetime())
		}
		if !slices.IsSorted(rounds) {
			t.Errorf("device %d is asked in rounds %v", i, rounds)
		}
		for _, round := range rounds {
			sizes[round]++
		}
	}
	if slices.Min(sizes) != 105 || slices.Max(sizes) != 105 || o.lifetime() != 3 {
		t.Errorf("samples of %v, at most %d times", sizes, o.lifetime())
	}
}

// TestForecastInterval holds the quantiles to chi-squared laws as other programs tabulate
// them, and to a sum of two unequal squares, whose tail is that of the exponential law
// where each stands twice.
func TestForecastInterval(t *testing.T) {
	for _, c := range []struct {
		places, collections int
		outside, low, high  float64 // quantiles of the chi-squared law of places * collections degrees of freedom
	}{{5, 2, outside999, 1.26503, 31.41982}, {1, 1, outside999, 3.926991e-7, 12.11567}, {10, 10, outside999, 59.896, 153.167}} {
		f := &forecast{}
		for range c.places {
			f.add(1)
		}
		n := float64(c.collections)
		low, high := f.interval(c.collections, c.outside)
		if math.Abs(low*n-c.low) > 0.02*c.low+0.01 || math.Abs(high*n-c.high) > 0.02*c.high {
			t.Errorf("%d degrees of freedom: between %v and %v, want %v and %v", c.places*c.collections, low*n, high*n, c.low, c.high)
		}
	}
	// 3 E + E' with E, E' exponential of mean 2: the tail is (3 exp(-x/6) - exp(-x/2)) / 2.
	f := &forecast{each: []float64{3, 3, 1, 1}, mean: 8}
	_, high := f.interval(1, outsideNever)
	if tail := (3*math.Exp(-high/6) - math.Exp(-high/2)) / 2; math.Abs(tail/(outsideNever/2)-1) > 0.1 {
		t.Errorf("%v is exceeded with probability %v", high, tail)
	}
}
