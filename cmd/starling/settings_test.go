package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"flag"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestSettings puts 300 command lines to starling account, of all mechanisms and ways of
// taking part, and holds the answers against what test/interop/accounting/settings.py
// found by other means: closed forms, sums over all outcomes and data sets, and the
// intervals of published accountants. No epsilon or delta may be below what is known of
// the truth, no lower bound above it; and where the theorem is exact, no answer above
// what is known. All rows are asked where CI=true, elsewhere one in ten.
func TestSettings(t *testing.T) {
	const (
		// exact is how far numbers of the table, which were computed in float64, may be
		// off.
		exact = 1e-7
		// theirs is how far the published accountants' ends may be off: they bound the
		// discretization, not the rounding.
		theirs = 2e-4
		// grid is how far above what is known an answer may be for the grid it is
		// computed on.
		grid = 2e-3
	)
	text, err := os.ReadFile("../../test/interop/accounting/settings.csv")
	if err != nil {
		t.Fatal(err)
	}
	r := csv.NewReader(bytes.NewReader(text))
	r.Comment = '#'
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if rows = rows[1:]; len(rows) != 300 {
		t.Fatalf("%d rows", len(rows))
	}
	stride := 20
	if os.Getenv("CI") == "true" {
		stride = 1
	}
	kinds, bounded, both := map[string]bool{}, 0, 0
	for i := 0; i < len(rows); i += stride {
		kind, args, events, source := rows[i][0], rows[i][1], rows[i][2], rows[i][5]
		kinds[kind] = true
		a, err := ask(t, args, events)
		if err != nil {
			t.Errorf("row %d, account %s: %v", i+1, args, err)
			continue
		}
		upper, lower := a.Epsilon, a.EpsilonLower
		if strings.Contains(args, " --epsilon ") {
			upper, lower = a.Delta, a.DeltaLower
		}
		off := exact
		if strings.Contains(source, "ccount") {
			off = theirs
		}
		if least := number(t, rows[i][3]); upper < least*(1-off) {
			t.Errorf("row %d (%s), account %s%s: %v, and the truth is at least %v", i+1, source, args, events, upper, least)
		}
		if lower > upper {
			t.Errorf("row %d, account %s%s: nothing below %v, and %v holds", i+1, args, events, lower, upper)
		}
		if lower > 0 {
			bounded++
		}
		if rows[i][4] == "" {
			continue
		}
		both++
		most := number(t, rows[i][4])
		if lower > most*(1+off) {
			t.Errorf("row %d (%s), account %s%s: nothing below %v, and the truth is at most %v", i+1, source, args, events, lower, most)
		}
		if rows[i][6] == "yes" && upper > most*(1+grid) {
			t.Errorf("row %d (%s), account %s%s: %v, and the truth is at most %v", i+1, source, args, events, upper, most)
		}
	}
	t.Logf("%d questions, %d answered with a bound from below, %d with the truth known from above", (len(rows)+stride-1)/stride, bounded, both)
	if stride == 1 && (len(kinds) < 30 || bounded < 150 || both < 200) {
		t.Errorf("%d kinds, %d bounded from below, %d known from above", len(kinds), bounded, both)
	}
}

// answered is what the test reads of an answer.
type answered struct {
	Epsilon      float64 `json:"epsilon"`
	EpsilonLower float64 `json:"epsilon_lower"`
	Delta        float64 `json:"delta"`
	DeltaLower   float64 `json:"delta_lower"`
}

// ask runs starling account with these flags, and events on standard input.
func ask(t *testing.T, args, events string) (answered, error) {
	t.Helper()
	flags := flag.NewFlagSet("account", flag.ContinueOnError)
	run := accountSetup(flags)
	if err := flags.Parse(append(strings.Fields(args), "--json")); err != nil {
		return answered{}, err
	}
	var out bytes.Buffer
	if err := run(t.Context(), &env{stdin: strings.NewReader(events), stdout: &out, stderr: &out}, nil); err != nil {
		return answered{}, err
	}
	var a answered
	return a, json.Unmarshal(out.Bytes(), &a)
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	if s == "" {
		return 0
	}
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
