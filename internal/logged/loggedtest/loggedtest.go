// Package loggedtest makes what owners have logged, for tests.
package loggedtest

import (
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

// Now is the time of what a trio signs.
var Now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// Roles are those of a trio.
var Roles = []signed.Role{signed.Leader, signed.Helper, signed.Gateway}

// A Trio is leader, helper and gateway, who sign, with a recipe of theirs.
type Trio struct {
	t       testing.TB
	Recipe  *recipe.Recipe
	Signers map[signed.Role]*signed.Signer
	Anchors []signed.Anchor
}

// New makes a trio whose names begin with a prefix.
func New(t testing.TB, prefix string) *Trio {
	t.Helper()
	x := &Trio{t: t, Signers: make(map[signed.Role]*signed.Signer)}
	for _, role := range Roles {
		root := signed.Generate()
		x.Signers[role] = signedtest.Signer(t, root, Now.AddDate(0, 0, -30), 90*24*time.Hour)
		domain := map[signed.Role]string{signed.Leader: "leader.example", signed.Helper: "helper.example", signed.Gateway: "gateway.example"}[role]
		x.Anchors = append(x.Anchors, signed.Anchor{Name: prefix + role.String(), Domain: domain, Key: root.Public(), Owner: prefix + domain})
	}
	x.Recipe = &recipe.Recipe{
		Name: "test", Query: recipe.Histogram{Length: 4, Chunk: 2}, Randomizer: recipe.NoRandomizer{}, Participation: recipe.Always{},
		Path:  recipe.TwoServer{Leader: "https://leader.example/v1", Helper: "https://helper.example/", BatchMode: dap.TimeInterval},
		Noise: recipe.NoNoise{}, Claim: recipe.NoClaim{}, MinBatch: 2, TimePrecision: 3600, Window: recipe.NoWindow{},
		Relay: &recipe.Relay{URL: "https://relay.example/", Gateway: "https://gateway.example/"}, Rounds: &recipe.Rounds{Units: 1, Grace: 1},
		ServerKeys: &recipe.ServerKeys{Leader: x.Anchors[0].Key, Helper: x.Anchors[1].Key, Gateway: x.Anchors[2].Key, Collector: recipe.Hash{1}, EpochLength: recipe.DefaultEpochLength},
	}
	return x
}

// Deployment is that of the recipe.
func (x *Trio) Deployment() [32]byte {
	id, err := x.Recipe.Deployment()
	if err != nil {
		x.t.Fatal(err)
	}
	return id
}

// List is the signed key list of one role, of the epoch of Now.
func (x *Trio) List(role signed.Role, id uint8) []byte {
	x.t.Helper()
	return x.ListAt(role, id, ohttp.EpochAt(Now, x.Recipe.ServerKeys.Epoch()), Now, Now.Add(time.Hour))
}

// ListAt is the signed key list of one role, of an epoch and of a time.
func (x *Trio) ListAt(role signed.Role, id uint8, epoch uint32, from, until time.Time) []byte {
	x.t.Helper()
	k, err := sealed.Generate(id, sealed.SuiteX25519)
	if err != nil {
		x.t.Fatal(err)
	}
	body, err := dap.HpkeConfigList{dap.NewHpkeConfig(k)}.Append(nil)
	if err != nil {
		x.t.Fatal(err)
	}
	path := x.Recipe.Path.(recipe.TwoServer)
	base := map[signed.Role]string{signed.Leader: path.Leader, signed.Helper: path.Helper}[role]
	l := &signed.List{Deployment: x.Deployment(), Role: role, URL: base, Epoch: epoch, NotBefore: from, NotAfter: until, Body: body}
	b, err := l.Sign(x.Signers[role])
	if err != nil {
		x.t.Fatal(err)
	}
	return b
}

// Manifest is one of the trio, signed as the Roles say, after a change.
func (x *Trio) Manifest(change func(*ohttp.Manifest)) tlog.Entry {
	x.t.Helper()
	path, length := x.Recipe.Path.(recipe.TwoServer), x.Recipe.ServerKeys.Epoch()
	k, err := sealed.Generate(7, sealed.SuiteX25519)
	if err != nil {
		x.t.Fatal(err)
	}
	m := &ohttp.Manifest{Deployment: x.Deployment(), Epoch: ohttp.EpochAt(Now, length), Length: length, NotBefore: Now, NotAfter: Now.Add(time.Hour),
		Relay: x.Recipe.Relay.URL, Gateway: []ohttp.KeyConfig{ohttp.NewKeyConfig(k)}, Tries: 1, Every: time.Second, Hold: ohttp.DefaultHold, Targets: []string{path.Leader}}
	for i, base := range []string{path.Leader, path.Helper} {
		at, err := signed.ListURL(base, m.Deployment)
		if err != nil {
			x.t.Fatal(err)
		}
		m.Pinned = append(m.Pinned, ohttp.Pinned{URL: at, Media: signed.ListMedia, Body: x.List(Roles[i], uint8(10+i))})
	}
	if change != nil {
		change(m)
	}
	if m.Signatures == nil {
		for _, role := range Roles {
			if err := m.Sign(role, x.Signers[role]); err != nil {
				x.t.Fatal(err)
			}
		}
	}
	b, err := m.Append(nil)
	if err != nil {
		x.t.Fatal(err)
	}
	return tlog.Entry{Kind: tlog.KindManifest, Body: b}
}

// Say is a statement of one role's owner.
func (x *Trio) Say(kind tlog.Kind, role signed.Role, content []byte) tlog.Entry {
	x.t.Helper()
	e, err := tlog.State(kind, x.Deployment(), content, x.Signers[role], Now)
	if err != nil {
		x.t.Fatal(err)
	}
	return e
}

// RecipeFile is the recipe without a certificate.
func (x *Trio) RecipeFile() []byte {
	x.t.Helper()
	b, err := x.Recipe.Append(nil)
	if err != nil {
		x.t.Fatal(err)
	}
	return b
}
