package hostile

import (
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
	"github.com/starling-agg/starling/lab/deploy"
	"github.com/starling-agg/starling/recipe"
)

// changed is the world's recipe as a hostile author writes it: the encoder takes it, whatever it says.
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

// everybody hands a recipe to all who read recipes: a device, whose ledger keeps why it refused, the collector, and leader
// and helper, who read it when they start.
func everybody(t *testing.T, b []byte) (others map[string]error, device error) {
	t.Helper()
	ledger, err := participate.MemoryLedger(participate.LedgerOptions{MaxEpsilon: math.Inf(1), MaxDelta: 1})
	if err != nil {
		t.Fatal(err)
	}
	d := participate.Device{Ledger: ledger}
	_, device = d.Consider(t.Context(), client.Options{Recipe: b}, time.Now())
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

// refusedBy wants a recipe refused by everybody: by the device with a reason, by the others with an error of a type.
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
	// Evidence that the log does not hold: only who looks there can see it, and a device that nobody looks for refuses.
	b := changed(t, func(r *recipe.Recipe) { r.Targeting = target(linux, 5000) })
	via, err := ohttp.NewTransport(ohttp.TransportOptions{Source: ohttp.Pin(shared.manifest)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{Recipe: b, Via: via})
	if err != nil {
		t.Fatal(err)
	}
	o := participate.PlanOptions{Client: c, Upload: via, Manifest: ohttp.Pin(shared.manifest)}
	if _, err := participate.NewPlan(o); !errors.Is(err, participate.ErrCertificate) {
		t.Errorf("nobody looks: %v", err)
	}
	o.Certificate = func(*recipe.Targeting) error { return errors.New("no such entry") }
	if _, err := participate.NewPlan(o); !errors.Is(err, participate.ErrCertificate) {
		t.Errorf("no such entry: %v", err)
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

// TestRecipeSwapped: servers that run another recipe than the device agreed to, here one with a smaller B. They do not know
// the device's task; and if they put the report into their own, its shares do not open, for the recipe is bound into them.
func TestRecipeSwapped(t *testing.T) {
	before := shared.settled(t)
	agreed := changed(t, func(r *recipe.Recipe) { r.MinBatch++ })
	via, err := ohttp.NewTransport(ohttp.TransportOptions{Source: ohttp.Pin(shared.manifest)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{Recipe: agreed, Via: via, Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, _ := report(t, c)
	if _, err := c.Upload(t.Context(), []dap.Report{r}); !errors.Is(err, &dap.Problem{Type: dap.ProblemUnrecognizedTask}) {
		t.Errorf("to its own task: %v", err)
	}
	shared.unchanged(t, before)
	honest := shared.client(t, shared.manifest, nil)
	shared.upload(t, honest, r) // nothing is opened before it is acknowledged
	acknowledged, aggregated, rejected, _ := gained(before, shared.settled(t))
	if acknowledged != 1 || aggregated != 0 || rejected[dap.HpkeDecryptError.String()] != 1 {
		t.Errorf("acknowledged %d, aggregated %d, rejected %v", acknowledged, aggregated, rejected)
	}
}
