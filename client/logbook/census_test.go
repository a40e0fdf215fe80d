package logbook_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/internal/logged"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
)

// TestCensus: a device takes a recipe that asks by attributes once leader and helper have both
// logged the census that it rests on, and as long as neither withdraws it.
func TestCensus(t *testing.T) {
	w := newWorld(t)
	w.trio.Recipe.Tokens = nil
	base := w.trio.Recipe
	o := account.Options{
		Name: "targeted", Query: recipe.Multihot{Length: 4, MaxWeight: 1}, MinBatch: 20, Leader: "https://leader.example/v1", Helper: "https://helper.example/",
		Noise: recipe.DiscreteGaussian{Variance: recipe.Rational{Num: 16, Den: 1}, Share: recipe.DrawsAll}, Delta: recipe.Decimal{Coefficient: 1, Scale: 6},
		Participation: recipe.Bernoulli{Rate: recipe.Rational{Num: 1, Den: 4}}, Rate: &recipe.Rate{Devices: 5000, Units: 1},
		Dummies: &recipe.Dummies{Rate: recipe.Rational{Num: 1, Den: 8}, Senders: 5000, Allowance: 720},
		Relay:   base.Relay, ServerKeys: base.ServerKeys, Log: base.Log,
		Targeting: &recipe.Targeting{Clauses: []recipe.Clause{{Attribute: recipe.Platform, Values: []string{"linux"}}},
			Certificate: recipe.Certificate{Recipe: recipe.ID{1}, LowerBound: 5000, MinPopulation: 1000}},
	}
	census := o.Targeting.Census()
	var err error
	if o.Targeting.Certificate.Entry, err = census.Hash(); err != nil {
		t.Fatal(err)
	}
	if w.trio.Recipe, err = account.New(o); err != nil {
		t.Fatal(err)
	}
	b, err := w.trio.Recipe.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	l := w.open()
	m, err := client.NewManifests(client.ManifestsOptions{Recipe: w.trio.Recipe, Anchors: w.anchors, Source: l, Memory: client.Forgetful()})
	if err != nil {
		t.Fatal(err)
	}
	via, err := ohttp.NewTransport(ohttp.TransportOptions{Source: m})
	if err != nil {
		t.Fatal(err)
	}
	options := client.Options{Recipe: b, Prover: account.Prover, Anchors: w.anchors, Via: via, Log: l, MaxEpsilon: math.Inf(1)}
	said := func(c recipe.Census) []byte {
		t.Helper()
		b, err := c.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	w.add(w.trio.Say(tlog.KindRecipe, signed.Leader, b))
	var c *client.Client
	// turn is the next hour of the log.
	turn := func() {
		t.Helper()
		w.now = w.now.Add(time.Hour)
		w.show(w.now)
		w.refresh(l)
	}
	refused := func(name string) {
		t.Helper()
		var e *client.RefusedError
		if _, err := client.New(options); !errors.As(err, &e) || e.Reason != client.ReasonNotLogged || !errors.Is(err, logged.ErrNotCounted) {
			t.Errorf("%s: %v", name, err)
		}
		if c == nil {
			return
		}
		if err := c.Refresh(t.Context()); !errors.Is(err, logged.ErrNotCounted) {
			t.Errorf("%s: a client that was there: %v", name, err)
		}
		if _, err := participate.NewPlan(participate.PlanOptions{Client: c}); !errors.Is(err, participate.ErrCertificate) {
			t.Errorf("%s: a plan: %v", name, err)
		}
	}
	turn()
	refused("nobody's word")
	w.add(w.trio.Say(tlog.KindCensus, signed.Leader, said(*census)))
	turn()
	refused("the leader's word")
	w.add(w.trio.Say(tlog.KindCensus, signed.Gateway, said(*census)))
	turn()
	refused("the gateway's for the helper's")
	more, others := *census, *census
	more.LowerBound++
	others.Clauses = []recipe.Clause{{Attribute: recipe.Platform, Values: []string{"ios"}}}
	w.add(w.trio.Say(tlog.KindCensus, signed.Helper, said(more)))
	w.add(w.trio.Say(tlog.KindCensus, signed.Helper, said(others)))
	elsewhere, err := tlog.State(tlog.KindCensus, [32]byte{1}, said(*census), w.trio.Signers[signed.Helper], w.now)
	if err != nil {
		t.Fatal(err)
	}
	w.add(elsewhere)
	turn()
	refused("of the helper another bound, other devices and another deployment")
	w.add(w.trio.Say(tlog.KindCensus, signed.Helper, said(*census)))
	turn()
	if c, err = client.New(options); err != nil {
		t.Fatal(err)
	}
	if _, err := participate.NewPlan(participate.PlanOptions{Client: c}); err != nil {
		t.Error(err)
	}
	wrong := *w.trio.Recipe
	t2 := *wrong.Targeting
	t2.Certificate.Entry[0]++
	wrong.Targeting = &t2
	if err := l.Counted(&wrong); !errors.Is(err, logged.ErrNotCounted) {
		t.Errorf("a certificate of another hash: %v", err)
	}
	w.places = slices.Delete(w.places, 1, 2) // the leader withdraws
	turn()
	refused("withdrawn")
	if _, err := (logged.Judge{Anchors: w.anchors}).Claim(w.trio.Say(tlog.KindCensus, signed.Helper, said(*census)[1:])); !errors.Is(err, logged.ErrContent) {
		t.Errorf("half a census: %v", err)
	}
}
