package lab

import (
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/recipe"
)

// TestHealth plays the lab whose devices prove that their visits, under one rating of
// four, add up to no more than a bound, with every kind of malicious report: one visit
// more than was proved is refused like all of them.
func TestHealth(t *testing.T) {
	n := 2 * len(attacks)
	r, err := Run(t.Context(), Options{Rows: testRows, Recipe: Health, Malicious: n, Frame: Frame{Out: t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	if r.Accepted != testRows || r.Rejected["vdaf_verify_error"] != 4 {
		t.Errorf("accepted %d, rejected %v", r.Accepted, r.Rejected)
	}
	if !slices.Equal(r.Labels, []string{"excellent", "good", "fair", "poor"}) || len(r.Truth) != 4 || len(r.Certificate) == 0 {
		t.Errorf("%q, truth %v, a certificate of %d bytes", r.Labels, r.Truth, len(r.Certificate))
	}
	// One report replaced by another moves the sums by sqrt(2)*20, for which epsilon 1 at
	// delta 1e-6 takes about five times as much.
	for _, s := range r.Stderr {
		if s < 100 || s > 300 {
			t.Errorf("standard errors %v", r.Stderr)
		}
	}
	var text strings.Builder
	if err := r.WriteText(&text, 100, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"by how people rate their health", "at most 20 visits, each proved", "616 sent, 600 accepted"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
}

func TestHealthRecipe(t *testing.T) {
	for n := range 300 {
		sum := uint64(0)
		for _, x := range healthVector(healthAnswer(n%4, n)) {
			sum += x
		}
		if sum != uint64(min(n, mostVisits)) {
			t.Fatalf("%d visits count as %d", n, sum)
		}
	}
	for name, o := range map[string]Options{
		"population": {Recipe: Health, Population: 2000}, "sampling": {Recipe: Health, Sampling: recipe.Rational{Num: 1, Den: 4}},
		"rounds": {Recipe: Health, Rounds: 2}, "none such": {Recipe: "wealth"},
	} {
		if err := o.Validate(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
