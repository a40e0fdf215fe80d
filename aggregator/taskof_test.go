package aggregator_test

import (
	"strings"
	"testing"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
)

// TestTaskOf: what a recipe's guarantee rests on is in its task, a task whose noise nobody
// chose is none, and no recipe's task passes for one without.
func TestTaskOf(t *testing.T) {
	secrets := aggregator.Secrets{VerifyKeys: map[uint8][32]byte{1: {2}}, PeerToken: "a long random token", CollectorToken: "another long random token",
		CollectorHPKE: dap.NewHpkeConfig(must(sealed.Generate(1, sealed.SuiteX25519)))}
	o := account.Options{Name: "Test", Query: recipe.Count{}, Leader: "https://leader.example/", Helper: "https://helper.example/", MinBatch: 100,
		Epsilon: recipe.Decimal{Coefficient: 1}, RoundUnits: 3}
	r := must(account.New(o))
	opened := func(r *recipe.Recipe) *recipe.Checked { return must(recipe.Open(must(r.Append(nil)), account.Prover)) }
	task := must(aggregator.TaskOf(opened(r), secrets))
	if err := task.Validate(dap.RoleLeader); err != nil {
		t.Fatal(err)
	}
	want := must(r.Noise.Sampler()).Variance()
	if task.Noise.Variance() != want || !(want > 1) {
		t.Errorf("noise of variance %v, want the recipe's, %v", task.Noise.Variance(), want)
	}
	if task.Calendar == nil || task.Calendar.Units != 3 || task.ID != must(r.Task()).TaskID() {
		t.Errorf("calendar %+v, id %v", task.Calendar, task.ID)
	}
	if task.Rate != nil {
		t.Errorf("a recipe that samples nothing has a rate: %+v", task.Rate)
	}
	sampled := o
	sampled.Participation, sampled.Rate = recipe.Bernoulli{Rate: recipe.Rational{Num: 1, Den: 2}}, &recipe.Rate{Devices: 1000, Units: 3}
	sampled.Dummies = &recipe.Dummies{Rate: recipe.Rational{Num: 1, Den: 4}, Senders: 900, Allowance: 250}
	sampled.Relay = &recipe.Relay{URL: "https://relay.example/", Gateway: "https://gateway.example/"}
	sampled.Delta, sampled.BatchMode = recipe.Decimal{Coefficient: 1, Scale: 6}, dap.TimeInterval
	coins := must(account.New(sampled))
	secret := must(aggregator.TaskOf(opened(coins), secrets))
	least, most := coins.Sends()
	if err := secret.Validate(dap.RoleHelper); err != nil || secret.Rate == nil || *secret.Rate != (aggregator.Rate{Senders: 900, Least: least, Most: most}) {
		t.Errorf("rate %+v, %v", secret.Rate, err)
	}
	for name, spoil := range map[string]func(*aggregator.Task){
		"no probability":   func(t *aggregator.Task) { t.Rate.Most = 2 },
		"rounds together":  func(t *aggregator.Task) { t.Calendar = &aggregator.Calendar{Units: 3} },
		"no rounds at all": func(t *aggregator.Task) { t.Calendar = nil },
	} {
		bad := secret
		rate := *secret.Rate
		bad.Rate = &rate
		if spoil(&bad); bad.Validate(dap.RoleHelper) == nil {
			t.Errorf("%s: taken", name)
		}
	}
	exact := *r
	exact.Noise, exact.Claim = recipe.NoNoise{}, recipe.NoClaim{}
	if plain := must(aggregator.TaskOf(opened(&exact), secrets)); plain.Noise != (noise.Zero{}) {
		t.Errorf("a recipe without noise has %v", plain.Noise)
	}
	nobody := task
	nobody.Noise = nil
	if err := nobody.Validate(dap.RoleLeader); err == nil || !strings.Contains(err.Error(), "noise.Zero") {
		t.Errorf("a task whose noise nobody chose: %v", err)
	}
	if _, err := aggregator.ForeignTask(task.Version, task.Config, secrets); err == nil || !strings.Contains(err.Error(), "is named by the recipe") {
		t.Errorf("a recipe's task as one without a recipe: %v", err)
	}
	theirs := must(dap.NewTaskConfiguration(dap.TaskConfiguration{TaskInfo: []byte("theirs"), Leader: []byte(o.Leader), Helper: []byte(o.Helper),
		TimePrecision: 60, MinBatchSize: 10, BatchMode: dap.LeaderSelected, VDAFType: dap.TypePrio3Count}))
	foreign := must(aggregator.ForeignTask(dap.Draft18, theirs.Bytes(), secrets))
	if err := foreign.Validate(dap.RoleHelper); err != nil || foreign.Noise != (noise.Zero{}) || foreign.Calendar != nil || foreign.ID != theirs.TaskID() {
		t.Errorf("%+v, %v", foreign, err)
	}
}
