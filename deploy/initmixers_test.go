package deploy

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
)

// TestInitMixers makes two hops and an analyzer, each in a directory of its own. With a recipe
// that names the keys that are printed, and the tokens that owners hand out, each
// configuration is good as it stands.
func TestInitMixers(t *testing.T) {
	dir := t.TempDir()
	home := func(name string) string { return filepath.Join(dir, name) }
	options := []InitOptions{
		{Dir: home("gil"), Role: HopRole, Number: 1, Owner: "Gil", URL: "https://one.example/"},
		{Dir: home("hana"), Role: HopRole, Number: 2, Owner: "Hana", URL: "https://two.example/"},
		{Dir: home("ida"), Role: AnalyzerRole, Owner: "Ida", URL: "https://analyzer.example/"},
	}
	var parties []recipe.Party
	var made []*Made
	for _, o := range options {
		m := mustInit(t, o)
		root, err := signed.ParsePublicKey(m.Public[0])
		if err != nil {
			t.Fatal(err)
		}
		anchors, err := signed.ReadAnchors([]byte("starling anchors v1\n" + m.Anchor + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		if a, ok := anchors.Find(root); !ok || a.Owner != o.Owner {
			t.Errorf("the anchor is %+v", a)
		}
		parties, made = append(parties, recipe.Party{URL: o.URL, Key: root}), append(made, m)
	}
	r, err := account.New(account.Options{Name: "test", MinBatch: 1000, Query: recipe.Count{}, Randomizer: recipe.KRR{Epsilon0: recipe.Decimal{Coefficient: 4}},
		Path: recipe.Shuffled{First: parties[0], Second: parties[1], Analyzer: parties[2], Mode: recipe.CountedMode}, TimePrecision: 3600})
	if err != nil {
		t.Fatal(err)
	}
	file, err := RecipeFileOf(r)
	if err != nil {
		t.Fatal(err)
	}
	give := func(from, to string) {
		t.Helper()
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range options {
		if err := os.WriteFile(filepath.Join(o.Dir, RecipeFile), file, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	give(filepath.Join(home("gil"), "secrets", "hop.token"), filepath.Join(home("hana"), "secrets", "hop-1.token"))
	give(filepath.Join(home("hana"), "secrets", "hop.token"), filepath.Join(home("ida"), "secrets", "hop-2.token"))
	for _, m := range made[:2] {
		h, err := LoadHop(m.Config)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Check(); err != nil {
			t.Errorf("%s: %v", m.Config, err)
		}
	}
	a, err := LoadAnalyzer(made[2].Config)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Check(); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		o    InitOptions
		want error
	}{
		"again":                     {options[0], ErrExists},
		"the analyzer beside a hop": {InitOptions{Dir: home("gil"), Role: AnalyzerRole, Owner: "Gil", URL: "https://a.example/"}, ErrApart},
		"a hop beside the analyzer": {InitOptions{Dir: home("ida"), Role: HopRole, Number: 2, Owner: "Ida", URL: "https://h.example/"}, ErrApart},
		"the attester beside a hop": {InitOptions{Dir: home("hana"), Role: AttesterRole, Owner: "Hana", URL: "https://t.example/"}, ErrApart},
		"a relay beside a hop":      {InitOptions{Dir: home("gil"), Role: RelayRole, Owner: "Gil", URL: "https://r.example/"}, ErrApart},
		"a hop without a number":    {InitOptions{Dir: home("new"), Role: HopRole, Owner: "New", URL: "https://h.example/"}, nil},
		"a third hop":               {InitOptions{Dir: home("new"), Role: HopRole, Number: 3, Owner: "New", URL: "https://h.example/"}, nil},
		"an analyzer with a number": {InitOptions{Dir: home("new"), Role: AnalyzerRole, Number: 1, Owner: "New", URL: "https://h.example/"}, nil},
	} {
		was := snapshot(t, dir)
		c.o.Now = initNow()
		if _, err := Init(c.o); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if !maps.Equal(snapshot(t, dir), was) {
			t.Errorf("%s: something was written", name)
		}
	}
}

// TestHopIssuers: a hop of the mode tokens wants an issuer, and policy, of one deployment; no
// other hop has one.
func TestHopIssuers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	m, err := LoopbackMixers(false)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	front, err := LoopbackFront()
	if err != nil {
		t.Fatal(err)
	}
	defer front.Close()
	watched, err := LoopbackLog()
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Close()
	at, err := LoopbackParty()
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	now := time.Now().UTC().Truncate(time.Hour)
	m.Tokens = &MixerTokens{Attester: signed.Generate(), Begin: now, EpochLength: 3600}
	front.Log, front.Devices = watched.LogURL(), 100
	r, err := account.New(account.Options{Name: "test", MinBatch: 1000, Query: recipe.Count{}, Randomizer: recipe.KRR{Epsilon0: recipe.Decimal{Coefficient: 4}},
		Path: m.Path(true), Relay: &recipe.Relay{URL: front.RelayURL(), Gateway: front.GatewayURL()}, TimePrecision: 60, Grace: 10 * time.Minute,
		Log:    &recipe.Log{Origin: watched.Origin()},
		Tokens: &recipe.Tokens{Attester: at.URL(), Key: m.Tokens.Attester.Public(), Attestation: recipe.Codes, MinCohort: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := CreateShuffle(dir, r, m, front, now, time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateAttester(dir, at, 3); err != nil {
		t.Fatal(err)
	}
	if err := CreateLog(dir, watched, time.Minute); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.toml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range CheckFiles(append(files, filepath.Join(dir, RecipeFile), filepath.Join(dir, AnchorsFile), filepath.Join(dir, ManifestFile)), time.Now()) {
		if len(c.Faults) > 0 {
			t.Errorf("%+v", c)
		}
	}
	load := func() *Hop {
		h, err := LoadHop(filepath.Join(dir, HopFile(1)))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	for name, change := range map[string]func(*Hop){
		"no issuer":       func(h *Hop) { h.Issuer = HopIssuer{} },
		"no policy":       func(h *Hop) { h.Policy = "" },
		"another policy":  func(h *Hop) { h.Policy = service.Path(filepath.Join(dir, RecipeFile)) },
		"the other hop's": func(h *Hop) { h.Number = 2 },
	} {
		h := load()
		if change(h); h.Check() == nil {
			t.Errorf("%s: good", name)
		}
	}
	h := load()
	if h.Issuer.Manifests = ""; h.Validate() == nil {
		t.Error("keys without manifests are good")
	}
	// A key is there until the last recipe's rounds are over, not only the first's.
	late := *r
	late.Rounds = new(*r.Rounds)
	late.Rounds.Grace = recipe.MaxGrace
	for _, recipes := range [][]*recipe.Recipe{{r, &late}, {&late, r}} {
		by, err := h.issues(recipes)
		if err != nil {
			t.Fatal(err)
		}
		if keep := by.keep(time.Hour); keep < late.Grace()+time.Hour {
			t.Errorf("a key is kept for %v, and rounds end %v after their epoch", keep, late.Grace())
		}
	}
}
