package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/recipe"
)

// inRound plays a lab whose devices send in one round, and anew with longer rounds where the
// machine was so busy that a round was over before.
func inRound(t *testing.T, o Options) *Report {
	t.Helper()
	for try := 0; ; try++ {
		r, err := Run(t.Context(), o)
		if err == nil {
			return r
		}
		if try == 3 || !errors.Is(err, errLate) {
			t.Fatal(err)
		}
		t.Logf("%v; again", err)
		o.Precision = 3 * o.WithDefaults().Precision
		if o.Keep != "" {
			if err := os.RemoveAll(o.Keep); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestCloak: some devices' visits go through relay, gateway and hops to the analyzer,
// whose sum is off by its noise and by nothing else; the deployment that is left behind
// is one.
func TestCloak(t *testing.T) {
	out, keep := t.TempDir(), filepath.Join(t.TempDir(), "kept")
	r := inRound(t, Options{Frame: Frame{Out: out, Keep: keep}, Recipe: Cloak, Population: 300})
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	if r.Sent != 300 || r.Accepted != 300 || r.Epsilon > 1 || r.Epsilon < 0.99 || r.Delta != 1e-6 || r.Honest != 150 || r.MessagesPerDevice < 2 || len(r.Saw) != 7 || r.UnitsPerPerson != yearsPerPerson {
		t.Errorf("%+v %+v", r, r.Cloaked)
	}
	if r.Mean.Truth != float64(r.Truth[0])/300 || r.Mean.Truth < 1 || r.Mean.Truth > 6 {
		t.Errorf("the mean of visits is %v", r.Mean.Truth)
	}
	var text bytes.Buffer
	if err := r.WriteText(&text, 80, true); err != nil || !strings.Contains(text.String(), "mean ") || !strings.Contains(text.String(), "hop 2 ") {
		t.Errorf("%s, %v", &text, err)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	keys := make(map[string]any)
	if err := json.Unmarshal(b, &keys); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"reports_sent", "estimate", "truth", "stderr", "interval95", "buckets", "epsilon", "seconds_total", "messages_per_device", "mean", "picture"} {
		if keys[k] == nil {
			t.Errorf("no %s in %s", k, b)
		}
	}
	for _, name := range []string{PictureFile, TableFile} {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(keep, "*.toml"))
	if err != nil || len(files) != 6 {
		t.Fatalf("%v, %v", files, err)
	}
	files = append(files, filepath.Join(keep, deploy.RecipeFile), filepath.Join(keep, deploy.AnchorsFile), filepath.Join(keep, deploy.ManifestFile))
	for _, c := range deploy.CheckFiles(files, time.Now()) {
		if len(c.Faults) > 0 {
			t.Errorf("%+v", c)
		}
	}
	wrong := *r
	cloaked := *r.Cloaked
	wrong.Cloaked = &cloaked
	mean := *r.Mean
	wrong.Mean = &mean
	wrong.Mean.Estimate = wrong.Mean.Truth + 13*wrong.Mean.Stderr
	if wrong.Check() == nil {
		t.Error("a mean that no noise explains is good")
	}
}

// TestCloakVisits: a histogram goes the same way, and each count is off by its noise.
func TestCloakVisits(t *testing.T) {
	r := inRound(t, Options{Frame: Frame{Out: t.TempDir()}, Recipe: CloakVisits, Population: 220})
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	sum := int64(0)
	for _, n := range r.Truth {
		sum += n
	}
	if r.Sent != 220 || sum != 220 || len(r.Estimate) != 21 || len(r.Interval95) != 21 || r.Honest != 110 || r.MessagesPerDevice < 10 || r.Mean != nil {
		t.Errorf("%+v %+v", r, r.Cloaked)
	}
	var text bytes.Buffer
	if err := r.WriteText(&text, 80, true); err != nil || strings.Contains(text.String(), "mean ") || !strings.Contains(text.String(), "hop 2 ") || !strings.Contains(text.String(), "   20+ ") {
		t.Errorf("%s, %v", &text, err)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	keys := make(map[string]any)
	if err := json.Unmarshal(b, &keys); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"reports_sent", "estimate", "truth", "stderr", "interval95", "buckets", "epsilon", "seconds_total", "messages_per_device", "picture"} {
		if keys[k] == nil {
			t.Errorf("no %s in %s", k, b)
		}
	}
}

// TestCloakOptions: what does not go with a lab of a cloak is refused.
func TestCloakOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"too few":     {Population: MinRows - 1},
		"too many":    {Population: AllRows + 1},
		"malicious":   {Malicious: 1},
		"coins":       {Sampling: recipe.Rational{Num: 1, Den: 2}},
		"rounds":      {Rounds: 2},
		"known":       {KnownSample: true},
		"credentials": {Credentials: true, Population: maxShown + 1},
		"rows":        {Rows: 300},
	} {
		if o.Recipe = Cloak; o.Validate() == nil {
			t.Error(name)
		}
	}
	o := Options{Recipe: Cloak}
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	if o = o.WithDefaults(); o.Population != 2000 || o.Precision != mixedPrecision {
		t.Errorf("%+v", o)
	}
}

// TestCloakCredentials: in the mode tokens devices come to credentials of the issuers beside
// both hops, take keys from the log alone, and are counted by each hop; the deployment that
// is left behind is one.
func TestCloakCredentials(t *testing.T) {
	keep := filepath.Join(t.TempDir(), "kept")
	r := inRound(t, Options{Frame: Frame{Out: t.TempDir(), Keep: keep, Precision: 4 * time.Second}, Recipe: Cloak, Population: MinRows, Credentials: true})
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	if r.Sent != MinRows || r.Accepted != MinRows || len(r.Saw) != 9 || !strings.Contains(r.Guarantee, "neither is trusted not to pad") {
		t.Errorf("%+v", r)
	}
	files, err := filepath.Glob(filepath.Join(keep, "*.toml"))
	if err != nil || len(files) != 10 {
		t.Fatalf("%v, %v", files, err)
	}
	files = append(files, filepath.Join(keep, deploy.RecipeFile), filepath.Join(keep, deploy.AnchorsFile), filepath.Join(keep, deploy.ManifestFile))
	for _, c := range deploy.CheckFiles(files, time.Now()) {
		if len(c.Faults) > 0 {
			t.Errorf("%+v", c)
		}
	}
}
