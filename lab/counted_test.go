package lab

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/recipe"
)

// TestCounted plays devices that are counted: every one enrols, is given credentials by both
// issuers, takes recipe, keys and counts from the log, and shows what it has.
func TestCounted(t *testing.T) {
	t.Parallel() // it waits for an epoch more than it computes
	keep := filepath.Join(t.TempDir(), "kept")
	steps := make(map[string]int)
	o := Options{Population: 500, Sampling: recipe.Rational{Num: 4, Den: 5}, Rounds: 2, Credentials: true,
		Frame: Frame{Epsilon: decimal("4"), Keep: keep, Out: t.TempDir(), Progress: func(p Progress) { steps[p.Name] = p.Phases }}}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	c := r.Counted
	if c == nil || c.Leader != 500 || c.Helper != 500 || c.Attested != 500 || c.Witnesses != 2 || c.Entries < 6 || c.Admitted != r.Sent+r.NoOps {
		t.Fatalf("%+v", c)
	}
	if r.Decisions != 1000 || r.Accepted != r.Sent || r.Sent == 0 || len(r.Rejected) != 0 {
		t.Errorf("%d decisions, %d sent, %d accepted, %v", r.Decisions, r.Sent, r.Accepted, r.Rejected)
	}
	if steps[rehearsing] != phases+2 || steps[enrolling] != phases+2 {
		t.Errorf("steps %v", steps)
	}
	made, err := deploy.OpenRecipe(filepath.Join(keep, deploy.RecipeFile))
	if err != nil {
		t.Fatal(err)
	}
	if x := made.Recipe(); x.Tokens == nil || x.Tokens.MinCohort != 500 || x.Log == nil {
		t.Errorf("the recipe has tokens %+v and log %+v", x.Tokens, x.Log)
	}
	for _, file := range []string{deploy.AttesterFile, deploy.LogFile, deploy.WitnessFile(2), filepath.Join(bookDir, "memory")} {
		if _, err := os.Stat(filepath.Join(keep, file)); err != nil {
			t.Error(err)
		}
	}
}

// TestEpochFrom: an epoch begins soon after the time that is wanted, with a round, and no
// earlier one of its length is near.
func TestEpochFrom(t *testing.T) {
	for _, precision := range []time.Duration{time.Second, 7 * time.Second, 10 * time.Second, time.Hour} {
		for i := range 50 {
			wanted := time.Unix(1_795_000_000+int64(i)*7919, 500)
			begin, length := epochFrom(wanted, precision)
			n, p := int64(length/time.Second), int64(precision/time.Second)
			if begin.Before(wanted) || begin.Unix()%n != 0 || n%p != 0 || n < shortEpoch || n > longEpoch {
				t.Errorf("%v, precision %v: begins %v, of %v", wanted, precision, begin, length)
			}
			if late := begin.Sub(wanted); late > 30*precision {
				t.Errorf("%v, precision %v: begins %v later", wanted, precision, late)
			}
		}
	}
}

// TestCountedOptions: what credentials do not go with is said before anything starts.
func TestCountedOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"the plain lab":  {Credentials: true},
		"a known sample": {Credentials: true, Population: 1000, KnownSample: true},
		"too many":       {Credentials: true, Population: MaxCounted + 1},
	} {
		if err := o.Validate(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := (Options{Credentials: true, Population: 6000, Sampling: recipe.Rational{Num: 1, Den: 2}}).Validate(); err != nil {
		t.Error(err)
	}
}
