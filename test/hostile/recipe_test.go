package hostile

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// changed is the world's recipe as a hostile author writes it: the encoder takes it,
// whatever it says.
func changed(t *testing.T, change func(*recipe.Recipe)) []byte {
	t.Helper()
	r, err := recipe.Read(shared.bytes)
	if err != nil {
		t.Fatal(err)
	}
	change(r)
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// everybody hands a recipe to all who read recipes: a device, whose ledger keeps why it
// refused, the collector, and leader and helper, who read it when they start.
func everybody(t *testing.T, b []byte) (others map[string]error, device error) {
	t.Helper()
	ledger, err := participate.MemoryLedger(participate.LedgerOptions{MaxEpsilon: math.Inf(1), MaxDelta: 1})
	if err != nil {
		t.Fatal(err)
	}
	d := participate.Device{Ledger: ledger}
	_, device = d.Consider(t.Context(), client.Options{AnyKeys: true, Prover: account.Prover, Recipe: b}, time.Now())
	if entries := ledger.Entries(); device != nil && (len(entries) != 1 || entries[0].Refused == "" || entries[0].Rounds != 0) {
		t.Errorf("the device's ledger says %+v", entries)
	}
	path := filepath.Join(shared.dir, "hostile.starling")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	others = map[string]error{}
	for _, a := range []struct {
		file string
		role dap.Role
	}{{deploy.LeaderFile, dap.RoleLeader}, {deploy.HelperFile, dap.RoleHelper}} {
		text, err := os.ReadFile(filepath.Join(shared.dir, a.file))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(shared.dir, "hostile-"+a.file)
		if err := os.WriteFile(file, []byte(strings.Replace(string(text), deploy.RecipeFile, "hostile.starling", 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		config, err := deploy.LoadAggregator(file, a.role)
		if err != nil {
			t.Fatal(err)
		}
		others[a.role.String()] = config.Check()
	}
	config, err := deploy.LoadCollector(filepath.Join(shared.dir, deploy.CollectorFile))
	if err != nil {
		t.Fatal(err)
	}
	o := collector.Options{Recipe: b}
	if _, o.Token, o.Key, err = config.Read(); err != nil {
		t.Fatal(err)
	}
	_, others["collector"] = collector.New(o)
	return others, device
}

// refusedBy wants a recipe refused by everybody: by the device with a reason, by the
// others with an error of a type.
func refusedBy[E error](t *testing.T, b []byte, reason client.Reason) {
	t.Helper()
	others, device := everybody(t, b)
	var refused *client.RefusedError
	var detail E
	if !errors.As(device, &refused) || refused.Reason != reason || !errors.As(device, &detail) {
		t.Errorf("the device: %v, want %s", device, reason)
	}
	for who, err := range others {
		if !errors.As(err, &detail) {
			t.Errorf("the %s: %v", who, err)
		}
	}
}

func TestHonestRecipe(t *testing.T) {
	others, device := everybody(t, shared.bytes)
	for who, err := range others {
		if device = errors.Join(device, err); err != nil {
			t.Errorf("the %s: %v", who, err)
		}
	}
	if device != nil {
		t.Error(device)
	}
}

func TestRecipeBelowFloor(t *testing.T) {
	for _, b := range []uint64{0, 1, 2, recipe.SampledBatchFloor - 1} {
		refusedBy[*recipe.InvalidError](t, changed(t, func(r *recipe.Recipe) { r.MinBatch = b }), client.ReasonInvalid)
	}
	// Dummies that leave fewer answers than B are B below its floor, too.
	refusedBy[*recipe.InvalidError](t, changed(t, func(r *recipe.Recipe) { r.Dummies.Allowance = 20 }), client.ReasonInvalid)
}

func TestRecipeInconsistent(t *testing.T) {
	claim := func(change func(*recipe.ApproxDP)) func(*recipe.Recipe) {
		return func(r *recipe.Recipe) {
			c := r.Claim.(recipe.ApproxDP)
			change(&c)
			r.Claim = c
		}
	}
	for name, change := range map[string]func(*recipe.Recipe){
		"q is larger than the claim's epsilon allows": func(r *recipe.Recipe) {
			r.Participation = recipe.Bernoulli{Rate: recipe.Rational{Num: 4, Den: 5}}
		},
		"epsilon is smaller than q and the noise give": claim(func(c *recipe.ApproxDP) { c.Epsilon = recipe.Decimal{Coefficient: 1, Scale: 3} }),
		"less noise": func(r *recipe.Recipe) {
			r.Noise = recipe.DiscreteGaussian{Variance: recipe.Rational{Num: 4, Den: 1}, Share: recipe.DrawsAll}
		},
	} {
		t.Run(name, func(t *testing.T) { refusedBy[*recipe.ClaimError](t, changed(t, change), client.ReasonClaim) })
	}
	for name, change := range map[string]func(*recipe.Recipe){
		"a count without dummies":         func(r *recipe.Recipe) { r.Dummies = nil },
		"an epsilon for other neighbours": claim(func(c *recipe.ApproxDP) { c.Neighbours = 2 }),
	} {
		t.Run(name, func(t *testing.T) { refusedBy[*recipe.InvalidError](t, changed(t, change), client.ReasonInvalid) })
	}
}

// target is a predicate with evidence that looks right.
func target(c recipe.Clause, lower uint64) *recipe.Targeting {
	return &recipe.Targeting{Clauses: []recipe.Clause{c},
		Certificate: recipe.Certificate{Recipe: recipe.ID{1}, Entry: recipe.Hash{2}, LowerBound: lower, MinPopulation: 1000}}
}

func TestRecipeAimedAtOnePerson(t *testing.T) {
	linux := recipe.Clause{Attribute: recipe.Platform, Values: []string{"linux"}}
	for name, change := range map[string]func(*recipe.Recipe){
		"an attribute that nobody may be asked by": func(r *recipe.Recipe) {
			r.Targeting = target(recipe.Clause{Attribute: 0x8001, Values: []string{"4711"}}, 5000)
		},
		"evidence of one person": func(r *recipe.Recipe) { r.Targeting = target(linux, 1) },
		"a floor of one person": func(r *recipe.Recipe) {
			r.Targeting = target(linux, 2)
			r.Targeting.Certificate.MinPopulation = 1
		},
		"everybody who fits is sure to answer": func(r *recipe.Recipe) {
			r.Targeting, r.Participation = target(linux, 5000), recipe.Bernoulli{Rate: recipe.Rational{Num: 999, Den: 1000}}
		},
	} {
		t.Run(name, func(t *testing.T) { refusedByEither(t, changed(t, change)) })
	}
	// Evidence that looks right is the author's word: there is no log to hold it, and a
	// hash of any bytes will do. It is shown as that, and a device for which nobody has
	// looked, or for which whoever looked found nothing, refuses.
	b := changed(t, func(r *recipe.Recipe) { r.Targeting = target(linux, 5000) })
	if text := shown(t, b); strings.Contains(text, "; at least 5000 of them were counted") ||
		!strings.Contains(text, "the author says that at least 5000 of them were counted") ||
		!strings.Contains(text, "holds if what the author says is true") ||
		!strings.Contains(text, "- at least 5000 devices have the attributes that it asks for, as entry 02000000 of a log is to show") {
		t.Errorf("evidence that nobody has seen is shown as\n%s", text)
	}
	via, err := ohttp.NewTransport(ohttp.TransportOptions{Source: ohttp.Pin(shared.manifest)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{AnyKeys: true, Prover: account.Prover, Recipe: b, Via: via})
	if err != nil {
		t.Fatal(err)
	}
	o := participate.PlanOptions{Client: c}
	if _, err := participate.NewPlan(o); !errors.Is(err, participate.ErrCertificate) {
		t.Errorf("nobody looks: %v", err)
	}
	o.Certificate = func(*recipe.Targeting) error { return errors.New("no such entry") }
	if _, err := participate.NewPlan(o); !errors.Is(err, participate.ErrCertificate) {
		t.Errorf("no such entry: %v", err)
	}
}

// shown is what a recipe says to people, on lines without breaks.
func shown(t *testing.T, b []byte) string {
	t.Helper()
	r, err := recipe.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := account.Describe(r, &text); err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(text.String()), " ")
}

// TestRecipeOnTheAuthorsWord: an author who counts on a thousand million senders needs
// next to no dummies, and nobody counts them. What is printed first is what holds without
// that word; the smaller loss stands behind its conditions, for people and for programs.
func TestRecipeOnTheAuthorsWord(t *testing.T) {
	b := changed(t, func(r *recipe.Recipe) {
		d := recipe.Dummies{Rate: recipe.Rational{Num: 1, Den: 65536}, Senders: 1_000_000_000, Allowance: 20_000}
		r.Rate.Devices, r.Dummies, r.MinBatch = d.Senders, &d, 1000
	})
	r, err := recipe.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	g, err := account.Guarantee(r)
	if err != nil {
		t.Fatal(err)
	}
	relayed, ok := g.Fallback(recipe.RelayColludes)
	if !ok || !(relayed.Loss.Epsilon > 2*g.Epsilon) {
		t.Fatalf("%v, and %v without sampling: the recipe shows nothing", g.Loss, relayed.Loss)
	}
	text := shown(t, b)
	_, guarantee, _ := strings.Cut(text, " Guarantee ")
	first, rest, _ := strings.Cut(guarantee, "holds if what the author says is true")
	if !strings.HasPrefix(guarantee, relayed.Loss.String()) || !strings.HasSuffix(strings.TrimRight(first, " ,"), "for one device (add-remove neighbours)") ||
		!strings.Contains(rest, "- at least 1000000000 devices that follow the recipe decide in each round") {
		t.Errorf("the guarantee reads: %s", guarantee)
	}
	if _, claim, _ := strings.Cut(text, " Claim "); !strings.HasSuffix(claim, "and what the author says is true") {
		t.Errorf("the claim reads: %s", claim)
	}
	var out struct {
		Guarantee struct {
			Epsilon       float64
			Conditions    []string
			Unconditional recipe.Loss
		}
	}
	said, err := account.Of(r)
	if err == nil {
		b, err = r.JSON(said)
	}
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil || out.Guarantee.Epsilon != g.Epsilon || out.Guarantee.Unconditional != relayed.Loss || len(out.Guarantee.Conditions) != 1 {
		t.Errorf("%v: %+v", err, out)
	}
}

// TestRecipeOnOthersHonesty: an author who counts on a hundred thousand honest reports in a
// batch turns an epsilon of 4 on each device into a small one, and nobody can tell whether
// they are honest: the servers count reports, and all others may be the author's own. What
// is printed first, for people and for programs, is the device's own noise.
func TestRecipeOnOthersHonesty(t *testing.T) {
	epsilon0, err := recipe.ParseDecimal("4")
	if err != nil {
		t.Fatal(err)
	}
	delta, err := recipe.ParseDecimal("1e-9")
	if err != nil {
		t.Fatal(err)
	}
	r, err := account.New(account.Options{Name: "Honest crowds", Query: recipe.Histogram{Length: 5}, Leader: "https://leader.example/", Helper: "https://helper.example/",
		MinBatch: 100_000, BatchMode: dap.TimeInterval, TimePrecision: 3600, Rounds: 1, Randomizer: recipe.KRR{Epsilon0: epsilon0}, Epsilon: epsilon0, Delta: delta})
	if err != nil {
		t.Fatal(err)
	}
	g, err := account.Guarantee(r)
	if err != nil {
		t.Fatal(err)
	}
	if g.Epsilon > 0.5 || !(g.Unconditional.Epsilon >= 4 && g.Unconditional.Epsilon < 4.001) {
		t.Fatalf("%v among honest reports, %v without: the recipe shows nothing", g.Loss, g.Unconditional)
	}
	var out strings.Builder
	if err := account.Describe(r, &out); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	_, guarantee, _ := strings.Cut(text, " Guarantee ")
	first, rest, _ := strings.Cut(guarantee, "holds if what the author says is true")
	if at := strings.Index(first, g.Loss.String()); !strings.HasPrefix(guarantee, g.Unconditional.String()) || at < 0 ||
		!strings.Contains(first[:at], "even where it is known who sent what") ||
		!strings.Contains(rest, "- at least 100000 reports of each batch are of devices that follow the recipe") {
		t.Errorf("the guarantee reads: %s", guarantee)
	}
	if g.Person.Epsilon < g.Unconditional.Epsilon {
		t.Errorf("a person has %v, one unit of theirs %v", g.Person, g.Unconditional)
	}
	if paid, err := account.UnconditionalAfter(r, 1); err != nil || paid != g.Unconditional {
		t.Errorf("a round costs %v, %v", paid, err)
	}
}

// TestRecipeOfOneOwner: one party behind two names would see both shares of an answer, or
// who sent what.
func TestRecipeOfOneOwner(t *testing.T) {
	path := func(leader, helper string) func(*recipe.Recipe) {
		return func(r *recipe.Recipe) {
			p := r.Path.(recipe.TwoServer)
			p.Leader, p.Helper = leader, helper
			r.Path = p
		}
	}
	for name, change := range map[string]func(*recipe.Recipe){
		"a helper on another path":     path("https://leader.evil.example/", "https://leader.evil.example/h"),
		"a helper in capitals":         path("https://leader.evil.example/", "https://Leader.EVIL.example/"),
		"a helper with a trailing dot": path("https://leader.evil.example/", "https://leader.evil.example./"),
		"a helper of the same domain":  path("https://leader.evil.example/", "https://helper.evil.example/"),
		"a relay in capitals": func(r *recipe.Recipe) {
			path("https://leader.evil.example/", "https://helper.example/")(r)
			r.Relay.URL = "https://Leader.evil.example/"
		},
		"a relay of the helper's domain": func(r *recipe.Recipe) {
			path("https://leader.example/", "https://help.evil.example./")(r)
			r.Relay.URL = "https://relay.evil.example/"
		},
		"a relay of the gateway's domain": func(r *recipe.Recipe) {
			r.Relay = &recipe.Relay{URL: "https://relay.evil.example/", Gateway: "https://EVIL.example/gateway"}
		},
		"a loopback helper by another name": func(r *recipe.Recipe) {
			leader := r.Path.(recipe.TwoServer).Leader
			path(leader, strings.Replace(leader, "127.0.0.1", "localhost", 1))(r)
		},
	} {
		t.Run(name, func(t *testing.T) { refusedBy[*recipe.InvalidError](t, changed(t, change), client.ReasonInvalid) })
	}
}

// refusedByEither is for what either no reader knows or none allows.
func refusedByEither(t *testing.T, b []byte) {
	t.Helper()
	others, device := everybody(t, b)
	var refused *client.RefusedError
	if !errors.As(device, &refused) || refused.Reason != client.ReasonInvalid && refused.Reason != client.ReasonUnknown {
		t.Errorf("the device: %v", device)
	}
	for who, err := range others {
		var invalid *recipe.InvalidError
		var unknown *recipe.UnknownError
		if !errors.As(err, &invalid) && !errors.As(err, &unknown) {
			t.Errorf("the %s: %v", who, err)
		}
	}
}

// TestRecipeOfAnotherUnit: a recipe whose words promise a person what one visit has. A unit
// that looks like another word is refused by everybody, and so are two spellings of the
// default and sums of what has none; a small unit is named wherever there is an epsilon.
func TestRecipeOfAnotherUnit(t *testing.T) {
	for name, u := range map[string]recipe.Unit{
		"a word that looks like person":   {Name: "p\u0435rson", Records: 1, Reduce: recipe.FirstRecord},
		"a person, and a remark":          {Name: "person (or visit)", Records: 1, Reduce: recipe.FirstRecord},
		"no word":                         {Records: 1, Reduce: recipe.FirstRecord},
		"the default, spelled out":        recipe.DefaultUnit,
		"several first records":           {Name: "visit", Records: 7, Reduce: recipe.FirstRecord},
		"several persons make one person": {Name: "person", Records: 1, Reduce: recipe.FirstRecord, PerPerson: 9},
	} {
		t.Run(name, func(t *testing.T) {
			refusedBy[*recipe.InvalidError](t, changed(t, func(r *recipe.Recipe) { r.Unit = &u }), client.ReasonInvalid)
		})
	}
	text := shown(t, changed(t, func(r *recipe.Recipe) {
		r.Unit = &recipe.Unit{Name: recipe.UnitVisit, Records: 1, Reduce: recipe.FirstRecord}
	}))
	guarantee := text[strings.Index(text, " Guarantee "):]
	if !strings.Contains(text, "Protects one visit:") || !strings.Contains(text, "nothing is said of a person with several") ||
		strings.Count(guarantee, "for one visit (") != 2 || strings.Contains(text, "one person") {
		t.Errorf("visits are shown as\n%s", text)
	}
}

// TestRecipeSwapped: servers that run another recipe than the device agreed to, here one
// with a smaller B, or one that protects another unit. They do not know the device's
// task; and if they put the report into their own, its shares do not open, for the recipe
// is bound into them.
func TestRecipeSwapped(t *testing.T) {
	for name, change := range map[string]func(*recipe.Recipe){
		"B": func(r *recipe.Recipe) { r.MinBatch++ },
		"unit": func(r *recipe.Recipe) {
			r.Unit = &recipe.Unit{Name: recipe.UnitPerson, Records: 1, Reduce: recipe.FirstRecord}
		},
	} {
		t.Run(name, func(t *testing.T) { swapped(t, changed(t, change)) })
	}
}

func swapped(t *testing.T, agreed []byte) {
	t.Helper()
	before := shared.settled(t)
	via, err := ohttp.NewTransport(ohttp.TransportOptions{Source: ohttp.Pin(shared.manifest)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{AnyKeys: true, Prover: account.Prover, Recipe: agreed, Via: via, Tries: tries})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, _ := report(t, c)
	old := shared.passedOn(t)
	if _, err := c.Upload(t.Context(), []dap.Report{r}); err != nil { // the device is told what all are told
		t.Errorf("to its own task: %v", err)
	}
	if s := shared.passedOn(t); s.Unknown != old.Unknown+1 || s.Passed != old.Passed || len(s.Lost) > 0 || len(s.Troubles()) != 1 {
		t.Errorf("to its own task, which the leader does not have: %+v", s)
	}
	shared.unchanged(t, before)
	honest := shared.client(t, shared.manifest, nil)
	shared.upload(t, honest, r) // nothing is opened before it is acknowledged
	acknowledged, aggregated, rejected, _ := gained(before, shared.settled(t))
	if acknowledged != 1 || aggregated != 0 || rejected[dap.HpkeDecryptError.String()] != 1 {
		t.Errorf("acknowledged %d, aggregated %d, rejected %v", acknowledged, aggregated, rejected)
	}
}
