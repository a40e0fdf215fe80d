package hostile

import (
	"net/http"
	"strings"
	"testing"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
)

// TestListOfOneDevice: a leader signs a key list of its own for a device that asks it, so
// that it knows the device's report by the key. A program that takes its keys so, and
// sends through the relay all the same, gets no plan.
func TestListOfOneDevice(t *testing.T) {
	w := vouchedFor(t)
	path := w.recipe.Path.(recipe.TwoServer)
	tag, _ := w.ownList(t, signed.Leader, w.signer(t, signed.Leader), nil)
	asked := impostor{"http", func(r *http.Request) []byte {
		if strings.HasPrefix(r.URL.String(), path.Leader) {
			return tag
		}
		return w.manifest.Pinned[1].Body
	}}
	source, err := client.NewManifests(client.ManifestsOptions{Recipe: w.recipe, Anchors: w.anchors, Source: ohttp.Pin(w.manifest), Memory: client.Forgetful()})
	if err != nil {
		t.Fatal(err)
	}
	via, err := ohttp.NewTransport(ohttp.TransportOptions{Source: source})
	if err != nil {
		t.Fatal(err)
	}
	plan := func(o client.Options) error {
		t.Helper()
		o.Recipe, o.Prover, o.Anchors = w.bytes, account.Prover, w.anchors
		c, err := client.New(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Refresh(t.Context()); err != nil {
			t.Fatal(err) // its owner has signed the list
		}
		_, err = participate.NewPlan(participate.PlanOptions{Client: c})
		return err
	}
	if err := plan(client.Options{Via: via}); err != nil {
		t.Fatal(err)
	}
	if err := plan(client.Options{HTTP: asked}); err == nil {
		t.Error("a device sends what it sealed to a key that nobody else has")
	}
}
