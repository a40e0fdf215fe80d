package participate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

// vouching are servers under one manifest, which leader, helper and gateway have signed.
type vouching struct {
	*servers
	manifests *client.Manifests
	lists     map[string]ohttp.Pinned // by host
}

// Source implements [client.Way].
func (v *vouching) Source() ohttp.Source { return v.manifests }

// Do answers from the manifest what it pins, as a relay's client does.
func (v *vouching) Do(r *http.Request) (*http.Response, error) {
	if p := v.lists[r.URL.Host]; strings.HasSuffix(r.URL.Path, "/hpke_config") {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {p.Media}}, Body: io.NopCloser(bytes.NewReader(p.Body))}, nil
	}
	return v.servers.Do(r)
}

// purse is a device's credentials, of every epoch, once it has any.
type purse struct{ held *client.Held }

func (p *purse) Held(epoch uint64) (*client.Held, error) {
	if p.held == nil {
		return nil, fmt.Errorf("%w: epoch %d", client.ErrNoCredentials, epoch)
	}
	return p.held, nil
}

// fill has two issuers give a device its credentials.
func (p *purse) fill(t *testing.T, deployment [32]byte) {
	t.Helper()
	p.held = new(client.Held)
	for role, into := range map[arc.Role]struct {
		credential **arc.Credential
		id         *arc.KeyID
	}{arc.Leader: {&p.held.Leader, &p.held.LeaderKey}, arc.Helper: {&p.held.Helper, &p.held.HelperKey}} {
		k := arc.GenerateKey()
		*into.id = k.PublicKey().ID()
		pending := arc.NewPending(arc.NewRequestContext(role, deployment, 0, *into.id))
		response, err := k.Respond(pending.Request())
		if err != nil {
			t.Fatal(err)
		}
		if *into.credential, err = pending.Finalize(k.PublicKey(), response); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSitsOut: a device without credentials of the round pays nothing, tosses nothing and
// keeps the round for when it has them: the same round is then decided and paid for as ever.
func TestSitsOut(t *testing.T) {
	signers := map[signed.Role]*signed.Signer{}
	var anchors []signed.Anchor
	for _, role := range []signed.Role{signed.Leader, signed.Helper, signed.Gateway, signed.Attester} {
		domain := role.String() + ".example"
		if role == signed.Gateway {
			domain = "leader.example"
		}
		root := signed.Generate()
		signers[role] = signedtest.Signer(t, root, now.AddDate(0, 0, -1), 30*24*time.Hour)
		anchors = append(anchors, signed.Anchor{Name: role.String(), Domain: domain, Key: root.Public(), Owner: domain})
	}
	trusted, err := signed.ReadAnchors(signed.MarshalAnchors(anchors...))
	if err != nil {
		t.Fatal(err)
	}
	o := options()
	o.ServerKeys = &recipe.ServerKeys{Collector: recipe.Hash{1}, EpochLength: recipe.DefaultEpochLength}
	o.Tokens = &recipe.Tokens{Attester: "https://attester.example/", Attestation: recipe.Codes, MinCohort: 1}
	for i, key := range []*signed.PublicKey{&o.ServerKeys.Leader, &o.ServerKeys.Helper, &o.ServerKeys.Gateway, &o.Tokens.Key} {
		*key = anchors[i].Key
	}
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	recipeBytes, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	deployment, err := r.Deployment()
	if err != nil {
		t.Fatal(err)
	}
	id, err := r.ID()
	if err != nil {
		t.Fatal(err)
	}
	v := &vouching{newServers(t), nil, map[string]ohttp.Pinned{}}
	m := manifest()
	m.Deployment, m.Epoch, m.Length = deployment, ohttp.EpochAt(now, r.ServerKeys.Epoch()), r.ServerKeys.Epoch()
	m.NotAfter = now.AddDate(0, 0, 6).Truncate(time.Second)
	m.Recipes = [][32]byte{id}
	gateway, err := sealed.Generate(7, sealed.SuiteX25519)
	if err != nil {
		t.Fatal(err)
	}
	m.Gateway = []ohttp.KeyConfig{ohttp.NewKeyConfig(gateway)}
	m.Issuers = &ohttp.Issuers{Leader: [ohttp.IssuerKeySize]byte{1}, Helper: [ohttp.IssuerKeySize]byte{2}, Attester: o.Tokens.Key, Cap: 1000}
	for i, role := range []signed.Role{signed.Leader, signed.Helper} {
		k, err := sealed.Generate(uint8(i+1), sealed.SuiteX25519)
		if err != nil {
			t.Fatal(err)
		}
		body, err := dap.HpkeConfigList{dap.NewHpkeConfig(k)}.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		base := []string{o.Leader, o.Helper}[i]
		l := &signed.List{Deployment: deployment, Role: role, URL: base, Epoch: m.Epoch, NotBefore: m.NotBefore, NotAfter: m.NotAfter, Body: body}
		list, err := l.Sign(signers[role])
		if err != nil {
			t.Fatal(err)
		}
		at, err := signed.ListURL(base, deployment)
		if err != nil {
			t.Fatal(err)
		}
		m.Pinned = append(m.Pinned, ohttp.Pinned{URL: at, Media: signed.ListMedia, Body: list})
		v.lists[role.String()+".example"] = m.Pinned[i]
	}
	for _, role := range []signed.Role{signed.Leader, signed.Helper, signed.Gateway} {
		if err := m.Sign(role, signers[role]); err != nil {
			t.Fatal(err)
		}
	}
	v.manifests, err = client.NewManifests(client.ManifestsOptions{Recipe: r, Anchors: trusted, Source: ohttp.Pin(m), Memory: client.Forgetful(),
		Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	mine := new(purse)
	c, err := client.New(client.Options{Prover: account.Prover, Recipe: recipeBytes, Anchors: trusted, Credentials: mine, Via: v,
		Now: func() time.Time { return now }, Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPlan(PlanOptions{Client: c})
	if err != nil {
		t.Fatal(err)
	}
	tosses := 0
	d := Device{Ledger: memory(t), coin: func(*big.Rat) bool { tosses++; return true }}
	for range 2 {
		if _, err := d.Decide(t.Context(), p, one(1), now); !errors.Is(err, client.ErrNoCredentials) {
			t.Fatalf("without credentials: %v", err)
		}
	}
	if tosses != 0 || len(d.Ledger.Entries()) != 0 || d.Ledger.Spent() != (Spent{}) {
		t.Fatalf("a round sat out: %d tosses, %v, %v", tosses, d.Ledger.Entries(), d.Ledger.Spent())
	}

	mine.fill(t, deployment)
	decision, err := d.Decide(t.Context(), p, one(1), now)
	if err != nil {
		t.Fatal(err)
	}
	if tosses == 0 || len(d.Ledger.Entries()) != 1 || d.Ledger.Spent().Epsilon == 0 {
		t.Errorf("with credentials: %d tosses, %v, %v", tosses, d.Ledger.Entries(), d.Ledger.Spent())
	}
	if err := decision.Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := v.Counts().Reports; n != 1 {
		t.Errorf("%d reports sent, want 1", n)
	}
	// Without them again it is the next round that is sat out, unpaid.
	mine.held = nil
	before := d.Ledger.Spent()
	if _, err := d.Decide(t.Context(), p, one(1), now.AddDate(0, 0, 1)); !errors.Is(err, client.ErrNoCredentials) || d.Ledger.Spent() != before {
		t.Errorf("the next round: %v, %v after %v", err, d.Ledger.Spent(), before)
	}
}
