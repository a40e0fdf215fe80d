package hostile

import (
	"errors"
	"math"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/recipe"
)

// nobody is a network on which every request is one too many.
type nobody struct{ asked int }

func (n *nobody) Do(*http.Request) (*http.Response, error) {
	n.asked++
	return nil, errors.New("hostile: nobody is to be asked")
}

// TestCertificateOfAnother: whoever hands a recipe out puts something else behind it than
// its certificate. The device refuses it, keeps why, asks nobody and pays nothing.
func TestCertificateOfAnother(t *testing.T) {
	file := func(change func(*recipe.Recipe)) (alone, certificate []byte) {
		r, err := recipe.Read(shared.bytes)
		if err != nil {
			t.Fatal(err)
		}
		change(r)
		b, err := deploy.RecipeFileOf(r)
		if err != nil {
			t.Fatal(err)
		}
		if alone, certificate, err = recipe.SplitFile(b); err != nil || len(certificate) == 0 {
			t.Fatalf("%d bytes behind %d: %v", len(certificate), len(alone), err)
		}
		return alone, certificate
	}
	alone, own := file(func(*recipe.Recipe) {})
	_, better := file(func(r *recipe.Recipe) {
		claim := r.Claim.(recipe.ApproxDP)
		noise, err := r.Noise.Stronger(3)
		if err != nil {
			t.Fatal(err)
		}
		claim.Epsilon, r.Noise, r.Claim = recipe.Decimal{Coefficient: 100}, noise, claim
	})
	for name, c := range map[string]struct {
		certificate []byte
		reason      client.Reason
	}{
		"its own":          {own, ""},
		"none":             {nil, client.ReasonCertificate},
		"half of it":       {own[:len(own)/2], client.ReasonCertificate},
		"all but a byte":   {own[:len(own)-1], client.ReasonCertificate},
		"a byte behind it": {append(slices.Clone(own), 0), client.ReasonCertificate},
		"it twice":         {slices.Concat(own, own), client.ReasonCertificate},
		"a better one":     {better, client.ReasonCertificate},
		"text":             {[]byte("epsilon 0.1, promised"), client.ReasonCertificate},
	} {
		mem := disktest.NewMem(1)
		ledger, err := participate.OpenLedger(mem, participate.LedgerOptions{MaxEpsilon: math.Inf(1), MaxDelta: 1})
		if err != nil {
			t.Fatal(err)
		}
		net := &nobody{}
		d := participate.Device{Ledger: ledger}
		_, err = d.Consider(t.Context(), client.Options{AnyKeys: true, Recipe: slices.Concat(alone, c.certificate), HTTP: net}, time.Now())
		refused := new(client.RefusedError)
		if errors.As(err, &refused); refused.Reason != c.reason || (err == nil) != (c.reason == "") {
			t.Errorf("%s: %v", name, err)
		}
		entries := ledger.Entries()
		if net.asked != 0 || ledger.Spent() != (participate.Spent{}) || len(entries) != 1 || entries[0].Rounds != 0 || (entries[0].Refused == "") != (err == nil) ||
			string(entries[0].Bytes) != string(alone) {
			t.Errorf("%s: asked %d times, the ledger says %+v", name, net.asked, entries)
		}
		if err := ledger.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
