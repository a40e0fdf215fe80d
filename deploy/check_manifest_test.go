package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
)

// createSigned writes a deployment with a relay and a gateway, of a recipe that names its
// owners' keys.
func createSigned(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "deployment")
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a, err := Loopback()
	check(err)
	t.Cleanup(a.Close)
	f, err := LoopbackFront()
	check(err)
	t.Cleanup(f.Close)
	owners, err := NewOwners()
	check(err)
	o := counted
	o.Leader, o.Helper, o.Relay = a.LeaderURL(), a.HelperURL(), &recipe.Relay{URL: f.RelayURL(), Gateway: f.GatewayURL()}
	o.ServerKeys, err = owners.ServerKeys(true)
	check(err)
	r, err := account.New(o)
	check(err)
	check(CreateFor(dir, r, a, owners))
	check(CreateFront(dir, r, f, time.Now(), time.Millisecond))
	return dir
}

// TestCheckSignatures: with the anchors, a manifest's signatures are verified, with its
// recipe and without it. A manifest that lacks one, that was changed after it was signed,
// or whose signers the anchors do not name, is refused; and the anchors alone say nothing
// of files without signatures.
func TestCheckSignatures(t *testing.T) {
	mine, other := createSigned(t), createSigned(t)
	in := func(name string) string { return filepath.Join(mine, name) }
	b, err := os.ReadFile(in(ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	// written writes a manifest of ours that was changed.
	written := func(name string, change func(*ohttp.Manifest)) string {
		m, err := ohttp.ReadManifest(b)
		if err != nil {
			t.Fatal(err)
		}
		change(m)
		changed, err := m.Append(nil)
		if err == nil {
			err = os.WriteFile(in(name), changed, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return in(name)
	}
	unsigned := written("unsigned", func(m *ohttp.Manifest) { m.Signatures = m.Signatures[:2] })
	changed := written("changed", func(m *ohttp.Manifest) { m.Every += time.Second })
	anchors, err := ReadAnchors(in(AnchorsFile))
	if err != nil {
		t.Fatal(err)
	}
	one := anchors.List()
	for i := range one {
		one[i].Owner = "one and the same"
	}
	if err := os.WriteFile(in("one"), signed.MarshalAnchors(one...), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		files []string // the manifest is first
		fault string   // in the first of its faults; "" is none
		found string
	}{
		"without anchors":            {[]string{in(ManifestFile), in(RecipeFile)}, "", "of epoch"},
		"with anchors":               {[]string{in(ManifestFile), in(AnchorsFile)}, "", "name its file too"},
		"with both":                  {[]string{in(ManifestFile), in(AnchorsFile), in(RecipeFile)}, "", `verify it for "Test"`},
		"another's recipe":           {[]string{in(ManifestFile), in(AnchorsFile), filepath.Join(other, RecipeFile)}, "", "name its file too"},
		"another's anchors":          {[]string{in(ManifestFile), filepath.Join(other, AnchorsFile)}, "is not among the anchors", ""},
		"another's anchors, both":    {[]string{in(ManifestFile), in(RecipeFile), filepath.Join(other, AnchorsFile)}, `with the recipe "Test": `, ""},
		"one owner":                  {[]string{in(ManifestFile), in("one")}, "have one owner", ""},
		"one owner, both":            {[]string{in(ManifestFile), in("one"), in(RecipeFile)}, "have one owner", ""},
		"unsigned, without anchors":  {[]string{unsigned}, "", "of epoch"},
		"unsigned":                   {[]string{unsigned, in(AnchorsFile)}, "has not signed", ""},
		"unsigned, both":             {[]string{unsigned, in(AnchorsFile), in(RecipeFile)}, "has not signed", ""},
		"changed":                    {[]string{changed, in(AnchorsFile)}, "signature", ""},
		"changed, both":              {[]string{changed, in(AnchorsFile), in(RecipeFile)}, "signature", ""},
		"anchors and no manifest":    {[]string{in(RecipeFile), in(AnchorsFile)}, "", "gives epsilon"},
		"a file of anchors is asked": {[]string{in(AnchorsFile), in(ManifestFile)}, "", "3 root keys"},
	} {
		all := CheckFiles(c.files, initNow())
		first := all[0]
		switch {
		case len(all) != len(c.files):
			t.Errorf("%s: %d files", name, len(all))
		case c.fault == "" && (len(first.Faults) > 0 || !strings.Contains(first.Found, c.found)):
			t.Errorf("%s: %q, %s; want %s", name, first.Faults, first.Found, c.found)
		case c.fault != "" && (len(first.Faults) == 0 || !strings.Contains(first.Faults[0], c.fault)):
			t.Errorf("%s: %q; want %s", name, first.Faults, c.fault)
		}
		for _, c := range all[1:] {
			if len(c.Faults) > 0 {
				t.Errorf("%s: %s: %q", name, c.File, c.Faults)
			}
		}
	}
	twice := CheckFiles([]string{in(AnchorsFile), filepath.Join(other, AnchorsFile)}, initNow())
	if len(twice[0].Faults) != 0 || len(twice[1].Faults) != 1 {
		t.Errorf("two files of anchors: %q, %q", twice[0].Faults, twice[1].Faults)
	}
}
