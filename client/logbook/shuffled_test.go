package logbook_test

import (
	"errors"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/client/logbook"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

// TestShuffled: a device of the shuffled path takes the manifest that the recipe's gateway has
// signed, and no other owner's; the keys of hops by their owners; and the number of devices by
// the owners of both hops and the attester.
func TestShuffled(t *testing.T) {
	w := newWorld(t)
	signers := make(map[string]*signed.Signer)
	var anchors []signed.Anchor
	for _, name := range []string{"first", "second", "analyzer", "gateway", "attester", "other"} {
		root := signed.Generate()
		signers[name] = signedtest.Signer(t, root, w.now.AddDate(0, 0, -30), 90*24*time.Hour)
		anchors = append(anchors, signed.Anchor{Name: name, Domain: name + ".example", Key: root.Public(), Owner: name})
	}
	var err error
	if w.anchors, err = signed.ReadAnchors(signed.MarshalAnchors(anchors...)); err != nil {
		t.Fatal(err)
	}
	party := func(name string) recipe.Party {
		return recipe.Party{URL: "https://" + name + ".example/", Key: signers[name].Root()}
	}
	r, err := account.New(account.Options{
		Name: "test", MinBatch: 1000, Query: recipe.Count{}, Randomizer: recipe.KRR{Epsilon0: recipe.Decimal{Coefficient: 4}},
		Path: recipe.Shuffled{First: party("first"), Second: party("second"), Analyzer: party("analyzer"), Gateway: signers["gateway"].Root(), Mode: recipe.TokensMode,
			EpochLength: recipe.DefaultEpochLength},
		Relay: &recipe.Relay{URL: "https://relay.example/", Gateway: "https://gateway.example/"}, Log: &recipe.Log{Origin: origin},
		Tokens: &recipe.Tokens{Attester: "https://attester.example/", Key: signers["attester"].Root(), Attestation: recipe.Codes, MinCohort: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.trio.Recipe = r
	deployment, err := r.Deployment()
	if err != nil {
		t.Fatal(err)
	}
	front := func(by string, revision uint16) *ohttp.Manifest {
		t.Helper()
		k, err := sealed.Generate(7, sealed.SuiteX25519)
		if err != nil {
			t.Fatal(err)
		}
		m := &ohttp.Manifest{Deployment: deployment, Epoch: ohttp.EpochAt(w.now, ohttp.DefaultEpoch), Revision: revision, Length: ohttp.DefaultEpoch, NotBefore: w.now, NotAfter: w.now.Add(time.Hour),
			Relay: "https://relay.example/", Gateway: []ohttp.KeyConfig{ohttp.NewKeyConfig(k)}, Tries: 1, Every: time.Second, Hold: ohttp.DefaultHold, Targets: []string{"https://first.example/"}}
		w.issued(m)
		if err := m.Sign(signed.Gateway, signers[by]); err != nil {
			t.Fatal(err)
		}
		b, err := m.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		w.add(tlog.Entry{Kind: tlog.KindFrontManifest, Body: b})
		return m
	}
	keys := func(by string, role onion.Role, round uint64) []byte {
		t.Helper()
		l := &onion.KeyList{Recipe: [32]byte{3}, Role: role, First: round, Keys: [][32]byte{{9}}, Issued: w.now, Until: w.now.Add(time.Hour)}
		b, err := l.Sign(signers[by])
		if err != nil {
			t.Fatal(err)
		}
		w.add(tlog.Entry{Kind: tlog.KindShuffleKeys, Body: b})
		return b
	}
	mine := front("gateway", 0)
	front("other", 1) // of a later revision, by an owner who is an anchor too
	first := keys("first", onion.First, 7)
	keys("other", onion.First, 8)
	w.show(w.now)
	l := w.open()
	w.refresh(l)
	m, err := l.Manifest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, _ := m.Digest()
	if want, _ := mine.Digest(); got != want {
		t.Error("the manifest is another gateway's")
	}
	root := signers["first"].Root()
	if b, err := l.ShuffleKeys([32]byte{3}, onion.First, 7, root); err != nil || string(b) != string(first) {
		t.Errorf("%x, %v", b, err)
	}
	if _, err := l.ShuffleKeys([32]byte{3}, onion.First, 8, root); !errors.Is(err, logbook.ErrNoKey) {
		t.Errorf("the key of another owner: %v", err)
	}
	say := func(by string, role signed.Role, n uint64) {
		t.Helper()
		b, err := (&tlog.Cohort{Role: role, Epoch: m.Epoch, Devices: n}).Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		e, err := tlog.State(tlog.KindCohort, deployment, b, signers[by], w.now)
		if err != nil {
			t.Fatal(err)
		}
		w.add(e)
	}
	say("first", signed.Hop1, 5)
	say("attester", signed.Attester, 6)
	say("other", signed.Hop2, 5)
	say("second", signed.Helper, 5) // as no hop is
	w.show(w.now.Add(time.Minute))
	w.now = w.now.Add(time.Minute)
	w.refresh(l)
	if _, ok, err := l.Cohort(m); ok || err != nil {
		t.Errorf("hop 2 has said nothing: %v, %v", ok, err)
	}
	say("second", signed.Hop2, 5)
	w.show(w.now.Add(time.Minute))
	w.now = w.now.Add(time.Minute)
	w.refresh(l)
	if c, ok, err := l.Cohort(m); !ok || err != nil || c != (arc.Cohort{Leader: 5, Helper: 5, Attested: 6}) {
		t.Errorf("%+v, %v, %v", c, ok, err)
	}
}
