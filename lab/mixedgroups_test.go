package lab

import (
	"bytes"
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/recipe"
)

// TestMixedGroups: sums by group of which nobody is trusted with an answer, or one of two
// hops, go from devices to the result; its cells are off by their noise and by nothing
// else, and the deployment that is left behind is one.
func TestMixedGroups(t *testing.T) {
	for _, c := range []struct {
		path, randomizer string
		saw, files       int
		bytes            int
	}{{"direct", "qa", 5, 4, 17}, {"shuffled", "", 7, 6, 1}} {
		keep := filepath.Join(t.TempDir(), "kept")
		r := inRound(t, Options{Frame: Frame{Out: t.TempDir(), Keep: keep, Precision: time.Second}, Recipe: Groups, Path: c.path, Randomizer: c.randomizer, Population: 300})
		if err := r.Check(); err != nil {
			t.Error(err)
		}
		if r.Sent != 300 || r.Accepted != 300 || r.Epsilon > 1 || r.Epsilon < 0.99 || r.Delta != 1e-6 || r.MessagesPerDevice != 1 || r.MessageBytes != c.bytes ||
			len(r.Saw) != c.saw || len(r.Groups) != 15 || len(r.Estimate) != 4 || len(r.Certificate) == 0 || r.UnitsPerPerson != yearsPerPerson ||
			(len(r.Conditions) > 0) != (c.path == "shuffled") || (r.Honest > 0) != (c.path == "shuffled") {
			t.Errorf("%s: %+v %+v", c.path, r, r.Mixed)
		}
		for i, x := range r.Groups {
			if i%3 == 0 && i < 12 && (int64(x.Truth) != r.Truth[i/3] || x.Cell.Estimate != r.Estimate[i/3]) {
				t.Errorf("cell %d is %+v, the bar %v of %d", i, x, r.Estimate[i/3], r.Truth[i/3])
			}
			// Of 300 answers, each of which moves a cell by a fifth of its deviation at most:
			// 18 of them once in 10^7, by Bernstein's inequality.
			if i%3 != 2 && math.Abs(x.Cell.Estimate-x.Truth) > 8*x.Cell.Stderr {
				t.Errorf("cell %d is far off: %+v", i, x)
			}
		}
		var text bytes.Buffer
		if err := r.WriteText(&text, 80, true); err != nil {
			t.Fatal(err)
		}
		words := strings.Join(strings.Fields(text.String()), " ")
		for _, want := range []string{"all together sum", "Each device sent 1 message of", map[string]string{"direct": "nobody is trusted", "shuffled": "one of the two hops tells nobody its order"}[c.path]} {
			if !strings.Contains(words, want) {
				t.Errorf("%s: the words lack %q:\n%s", c.path, want, &text)
			}
		}
		checkJSON(t, r)
		b, err := json.Marshal(r)
		if err != nil || !bytes.Contains(b, []byte(`"groups":[{"group":"excellent","of":"sum"`)) || !bytes.Contains(b, []byte(`"messages_per_device":1`)) || bytes.Contains(b, []byte(`"mean":{`)) {
			t.Errorf("%s, %v", b, err)
		}
		files, err := filepath.Glob(filepath.Join(keep, "*.toml"))
		if err != nil || len(files) != c.files {
			t.Fatalf("%v, %v", files, err)
		}
		files = append(files, filepath.Join(keep, deploy.RecipeFile), filepath.Join(keep, deploy.AnchorsFile), filepath.Join(keep, deploy.ManifestFile))
		for _, f := range deploy.CheckFiles(files, time.Now()) {
			if len(f.Faults) > 0 {
				t.Errorf("%+v", f)
			}
		}
	}
}

// TestMixedGroupsOptions: what does not go with such a lab is refused, and two servers are
// the default.
func TestMixedGroupsOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"no path":                {Recipe: Groups, Path: "pigeon"},
		"no randomizer":          {Recipe: Groups, Path: "direct", Randomizer: "krr"},
		"a randomizer alone":     {Recipe: Groups, Randomizer: "qa"},
		"another recipe":         {Recipe: Health, Path: "direct"},
		"a path of a cloak":      {Recipe: Cloak, Path: "direct"},
		"a cloak's randomizer":   {Recipe: Cloak, Randomizer: "qa"},
		"too few":                {Recipe: Groups, Path: "shuffled", Population: MinRows - 1},
		"malicious":              {Recipe: Groups, Path: "direct", Malicious: 1},
		"coins":                  {Recipe: Groups, Path: "direct", Sampling: recipe.Rational{Num: 1, Den: 2}},
		"rows":                   {Recipe: Groups, Path: "direct", Rows: 300},
		"two servers, resampled": {Recipe: Groups, Path: "two-server", Population: 3000},
	} {
		if o.Validate() == nil {
			t.Error(name)
		}
	}
	for _, o := range []Options{{Recipe: Groups}, {Recipe: Groups, Path: "two-server"}, {Recipe: Groups, Path: "direct"}, {Recipe: Groups, Path: "shuffled", Randomizer: "randomized-group", Population: 20190}} {
		if err := o.Validate(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if o := (Options{Recipe: Groups, Path: "direct"}).WithDefaults(); o.Population != defaultMixed || o.Precision != mixedPrecision {
		t.Errorf("%+v", o)
	}
}
