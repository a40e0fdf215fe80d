package participate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/clienttest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

var now = time.Date(2026, 11, 21, 12, 34, 56, 0, time.UTC)

// servers are what devices of a test talk to, and the relay before them, which leads to
// them by a manifest without hiding anything.
type servers struct {
	*clienttest.Servers
	t        testing.TB
	manifest *ohttp.Manifest
}

func newServers(t testing.TB) *servers {
	t.Helper()
	return &servers{clienttest.New(t), t, manifest()}
}

// Source implements [client.Way].
func (s *servers) Source() ohttp.Source { return ohttp.Pin(s.manifest) }

// Pace implements [client.Way].
func (s *servers) Pace(context.Context) (int, time.Duration, error) {
	return 1, ohttp.DefaultEvery, nil
}

func options() account.Options {
	return account.Options{
		Name: "test", Query: recipe.Multihot{Length: 4, MaxWeight: 1}, MinBatch: 20,
		Leader: "https://leader.example/v1", Helper: "https://helper.example/",
		Noise:         recipe.DiscreteGaussian{Variance: recipe.Rational{Num: 16, Den: 1}, Share: recipe.DrawsAll},
		Delta:         recipe.Decimal{Coefficient: 1, Scale: 6},
		Participation: recipe.Bernoulli{Rate: recipe.Rational{Num: 1, Den: 4}},
		Rate:          &recipe.Rate{Devices: 5000, Units: 24},
		Dummies:       &recipe.Dummies{Rate: recipe.Rational{Num: 1, Den: 8}, Senders: 5000, Allowance: 720},
		Relay:         &recipe.Relay{URL: "https://relay.example/", Gateway: "https://leader.example/gateway"},
		Rounds:        3,
	}
}

// manifest fits the recipe of options.
func manifest() *ohttp.Manifest {
	return &ohttp.Manifest{
		Epoch: ohttp.EpochAt(now, ohttp.MaxEpoch), Length: ohttp.MaxEpoch, NotBefore: now.Truncate(time.Second),
		NotAfter: now.AddDate(0, 1, 0).Truncate(time.Second), Tries: ohttp.DefaultTries, Every: ohttp.DefaultEvery, Hold: ohttp.DefaultHold,
		Relay: "https://relay.example/", Targets: []string{"https://leader.example/v1"},
	}
}

// made holds the bytes of recipes by their options: half of these tests' time would go
// into making the same ones again.
var made sync.Map

func makeRecipe(t testing.TB, o account.Options) []byte {
	t.Helper()
	key, err := json.Marshal(struct {
		account.Options
		Kind string // of the participation
	}{o, fmt.Sprintf("%T", o.Participation)})
	if err != nil {
		t.Fatal(err)
	}
	if b, ok := made.Load(string(key)); ok {
		return bytes.Clone(b.([]byte))
	}
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	made.Store(string(key), bytes.Clone(b))
	return b
}

func (s *servers) plan(o account.Options) *Plan {
	s.t.Helper()
	return s.planOf(makeRecipe(s.t, o))
}

func (s *servers) planOf(recipeBytes []byte) *Plan {
	s.t.Helper()
	return s.planVia(recipeBytes, s)
}

// planVia goes through a relay if the recipe names one.
func (s *servers) planVia(recipeBytes []byte, via client.Way) *Plan {
	s.t.Helper()
	p, err := NewPlan(PlanOptions{Client: s.client(recipeBytes, via), Certificate: func(*recipe.Targeting) error { return nil }})
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

func (s *servers) client(recipeBytes []byte, via client.Way) *client.Client {
	s.t.Helper()
	o := client.Options{AnyKeys: true, Prover: account.Prover, Recipe: recipeBytes, Now: func() time.Time { return now }, Attempts: 1}
	if r, err := recipe.Read(recipeBytes); err == nil && r.Relay != nil {
		o.Via = via
	} else {
		o.HTTP = s
	}
	c, err := client.New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func memory(t testing.TB) *Ledger {
	t.Helper()
	l, err := MemoryLedger(LedgerOptions{MaxEpsilon: math.Inf(1), MaxDelta: 1})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func one(i int) client.Value {
	v := make([]uint64, 4)
	if i >= 0 {
		v[i] = 1
	}
	return client.Vector(v)
}
