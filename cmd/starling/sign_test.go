package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
)

// TestSignOwnKeys: whoever makes manifests puts a key of its own in the gateway's place,
// beside the gateway's or alone, and asks the gateway's owner to sign. The command
// refuses before the record says anything, so that the true one is signed after.
func TestSignOwnKeys(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deployment")
	owners, err := deploy.NewOwners()
	if err != nil {
		t.Fatal(err)
	}
	a, err := deploy.Loopback()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	f, err := deploy.LoopbackFront()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o := account.Options{Name: "Test", Query: recipe.Count{}, Leader: a.LeaderURL(), Helper: a.HelperURL(), MinBatch: 100,
		Relay:   &recipe.Relay{URL: f.RelayURL(), Gateway: f.GatewayURL()},
		Epsilon: recipe.Decimal{Coefficient: 1}, Delta: recipe.Decimal{Coefficient: 1, Scale: 6}}
	if o.ServerKeys, err = owners.ServerKeys(true); err != nil {
		t.Fatal(err)
	}
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(deploy.CreateFor(dir, r, a, owners), deploy.CreateFront(dir, r, f, time.Now(), time.Second)); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, deploy.ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	m, err := ohttp.ReadManifest(b)
	if err != nil {
		t.Fatal(err)
	}
	gateways := m.Gateway[0]
	pair, err := sealed.Generate(gateways.ID+1, sealed.SuiteX25519)
	if err != nil {
		t.Fatal(err)
	}
	makers := ohttp.NewKeyConfig(pair)
	again := gateways
	again.Key, again.ID = makers.Key, gateways.ID
	draft, record := filepath.Join(dir, "next.draft"), filepath.Join(dir, "other.signed")
	sign := func(key string, gateway ...ohttp.KeyConfig) error {
		t.Helper()
		m.Gateway, m.Signatures = gateway, nil
		b, err := m.Append(nil)
		if err == nil {
			err = os.WriteFile(draft, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		args := []string{"manifest", "sign", "--as", "gateway", "--signing-key", filepath.Join(dir, "secrets", "gateway.online"),
			"--record", record}
		if key != "" {
			args = append(args, "--key", key)
		}
		var said strings.Builder
		err = root().run(t.Context(), &env{stdout: &said, stderr: &said}, "", append(args, draft, filepath.Join(dir, deploy.RecipeFile)))
		if b, e := os.ReadFile(draft); e != nil || err != nil && len(b) == 0 {
			t.Fatal(e)
		} else if after, e := ohttp.ReadManifest(b); e != nil || (len(after.Signatures) > 0) != (err == nil) {
			t.Fatalf("%v, and signed: %v, %v", err, after, e)
		}
		return err
	}
	own := filepath.Join(dir, "secrets", "gateway.hpke")
	for name, c := range map[string]struct {
		key     string
		gateway []ohttp.KeyConfig
		exit    int
	}{
		"another key":                {own, []ohttp.KeyConfig{makers}, exitCheck},
		"another beside the own":     {own, []ohttp.KeyConfig{gateways, makers}, exitCheck},
		"another under the own's id": {own, []ohttp.KeyConfig{again}, exitCheck},
		"no word on which":           {"", []ohttp.KeyConfig{gateways}, exitUsage},
	} {
		err := sign(c.key, c.gateway...)
		if got := new(failure); !errors.As(err, &got) || got.code != c.exit {
			t.Errorf("%s: %v", name, err)
		}
		if exists(record) {
			t.Fatalf("%s: the record says that it was signed", name)
		}
	}
	if err := sign(own, gateways); err != nil {
		t.Errorf("the true one: %v", err)
	}
}
