package hostile

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

// signerFrom is an online key of one of the owners that may have signed two weeks ago.
func signerFrom(t *testing.T, w *vouched, role signed.Role) *signed.Signer {
	t.Helper()
	root := map[signed.Role]*signed.PrivateKey{signed.Leader: w.owners.Leader, signed.Helper: w.owners.Helper, signed.Gateway: w.owners.Gateway}[role]
	return signedtest.Signer(t, root, time.Now().Add(-30*24*time.Hour), signed.MaxOnline)
}

// TestSignerAskedTwice: leader and helper are asked, by who has the token, to sign
// another manifest of an epoch whose first they signed in an earlier life; others; and by
// who has no token, the true one.
func TestSignerAskedTwice(t *testing.T) {
	w := vouchedFor(t)
	path := w.recipe.Path.(recipe.TwoServer)
	token, err := os.ReadFile(filepath.Join(w.dir, "secrets", "manifest.token"))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(base, token string, m *ohttp.Manifest, cut int) (int, []byte) {
		t.Helper()
		b, err := m.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		at, err := signed.ListURL(base, w.manifest.Deployment)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, strings.TrimSuffix(at, "hpke_config")+"manifest", bytes.NewReader(b[:len(b)-cut]))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, answer
	}
	bearer := string(bytes.TrimSpace(token))
	same := func(*ohttp.Manifest) {}
	for role, base := range map[signed.Role]string{signed.Leader: path.Leader, signed.Helper: path.Helper} {
		status, answer := ask(base, bearer, w.changed(t, same), 0)
		if c, err := ohttp.ReadCosignature(answer); status != http.StatusOK || err != nil || c.Role != role {
			t.Errorf("the %v, the same again: status %d, %v", role, status, err)
		}
		for name, c := range map[string]struct {
			change func(*ohttp.Manifest)
			token  string
			cut    int
			status int
		}{
			"another digest":         {func(m *ohttp.Manifest) { m.Previous[0]++ }, bearer, 0, http.StatusConflict},
			"tries past the grace":   {func(m *ohttp.Manifest) { m.Tries++ }, bearer, 0, http.StatusForbidden},
			"a hold above its keys'": {func(m *ohttp.Manifest) { m.Hold += time.Second }, bearer, 0, http.StatusForbidden},
			"another gateway's key":  {func(m *ohttp.Manifest) { m.Gateway = []ohttp.KeyConfig{ohttp.NewKeyConfig(pair(t, 1))} }, bearer, 0, http.StatusConflict},
			"one recipe fewer":       {func(m *ohttp.Manifest) { m.Recipes = nil }, bearer, 0, http.StatusConflict},
			"an earlier end":         {func(m *ohttp.Manifest) { m.NotAfter = m.NotAfter.Add(-time.Hour) }, bearer, 0, http.StatusConflict},
			"a revision":             {func(m *ohttp.Manifest) { m.Revision++ }, bearer, 0, http.StatusForbidden},
			"a recipe for one device": {func(m *ohttp.Manifest) {
				m.Recipes = append(m.Recipes, [32]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
			}, bearer, 0, http.StatusForbidden},
			"another relay":      {func(m *ohttp.Manifest) { m.Relay = "http://127.0.0.1:9/" }, bearer, 0, http.StatusForbidden},
			"another deployment": {func(m *ohttp.Manifest) { m.Deployment[0]++ }, bearer, 0, http.StatusNotFound},
			"of next year": {func(m *ohttp.Manifest) {
				m.NotBefore, m.NotAfter, m.Epoch = m.NotBefore.Add(52*m.Length), m.NotAfter.Add(52*m.Length), m.Epoch+52
			}, bearer, 0, http.StatusForbidden},
			"keys of its maker": {func(m *ohttp.Manifest) {
				for i, role := range allThree[:2] {
					m.Pinned[i].Body, _ = w.ownList(t, role, stranger(t), nil)
				}
			}, bearer, 0, http.StatusForbidden},
			// Signed by itself, as by a thief of its online key, but not one of its keys.
			"keys that are not its own": {func(m *ohttp.Manifest) {
				i := int(role) - int(signed.Leader)
				m.Pinned[i].Body, _ = w.ownList(t, role, w.signer(t, role), nil)
			}, bearer, 0, http.StatusForbidden},
			"cut off":         {same, bearer, 1, http.StatusForbidden},
			"without a token": {same, "", 0, http.StatusUnauthorized},
			"another token":   {same, bearer + "x", 0, http.StatusUnauthorized},
		} {
			if status, answer := ask(base, c.token, w.changed(t, c.change), c.cut); status != c.status || len(answer) == ohttp.CosignatureSize {
				t.Errorf("the %v, %s: status %d, want %d: %s", role, name, status, c.status, answer)
			}
		}
	}
}

// TestRecipeOfStrangers: an author names keys of its own, under true addresses, in recipe
// and manifest: a whole deployment that is none. The anchors know no such key, or know
// that leader and helper are one owner.
func TestRecipeOfStrangers(t *testing.T) {
	w := vouchedFor(t)
	anchor := func(name string, key *signed.PrivateKey, domain, owner string) signed.Anchor {
		return signed.Anchor{Name: name, Domain: domain, Key: key.Public(), Owner: owner}
	}
	agreed := func(list ...signed.Anchor) error {
		t.Helper()
		a, err := signed.ReadAnchors(signed.MarshalAnchors(list...))
		if err != nil {
			t.Fatal(err)
		}
		ledger, err := participate.MemoryLedger(participate.LedgerOptions{MaxEpsilon: 10, MaxDelta: 1e-3})
		if err != nil {
			t.Fatal(err)
		}
		d := participate.Device{Ledger: ledger}
		_, err = d.Consider(t.Context(), client.Options{Prover: account.Prover, Recipe: w.bytes, Anchors: a, AnyKeys: true}, time.Now())
		if entries := ledger.Entries(); err != nil && (len(entries) != 1 || entries[0].Refused == "") {
			t.Errorf("the ledger does not keep why: %+v", entries)
		}
		return err
	}
	o, host := w.owners, "127.0.0.1"
	leader, helper, gateway := anchor("leader", o.Leader, host, "One"), anchor("helper", o.Helper, host, "Two"), anchor("gateway", o.Gateway, host, "One")
	if err := agreed(leader, helper, gateway); err != nil {
		t.Fatal(err)
	}
	for name, list := range map[string][]signed.Anchor{
		"keys that no anchor has":     {anchor("leader", signed.Generate(), host, "One"), anchor("helper", signed.Generate(), host, "Two")},
		"one that no anchor has":      {leader, gateway},
		"one owner":                   {leader, anchor("helper", o.Helper, host, "ONE"), gateway},
		"a key of somebody elsewhere": {leader, anchor("helper", o.Helper, "helper.example", "Two"), gateway},
		"no anchors":                  nil,
	} {
		var refused *client.RefusedError
		if err := agreed(list...); !errors.As(err, &refused) || refused.Reason != client.ReasonKeys {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Without keys such a recipe is refused as a whole, unless all of it is on this
	// machine.
	bare := options()
	bare.Leader, bare.Helper = "https://leader.example/", "https://helper.example/"
	bare.Relay = &recipe.Relay{URL: "https://relay.example/", Gateway: "https://gateway.example/"}
	r, err := account.New(bare)
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	var refused *client.RefusedError
	if _, err := client.New(client.Options{Prover: account.Prover, Recipe: b}); !errors.As(err, &refused) || refused.Reason != client.ReasonKeys {
		t.Errorf("a recipe that names no keys: %v", err)
	}
}

// impostor answers for an aggregator's address, as who has its name or its certificate.
type impostor struct {
	prefix string
	answer func(*http.Request) []byte
}

func (i impostor) Do(r *http.Request) (*http.Response, error) {
	if strings.HasPrefix(r.URL.String(), i.prefix) && strings.HasSuffix(r.URL.Path, "hpke_config") {
		media := dap.ContentType(dap.MediaHpkeConfigList)
		if strings.Contains(r.URL.Path, "/deployments/") {
			media = signed.ListMedia
		}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {media}}, Body: io.NopCloser(bytes.NewReader(i.answer(r)))}, nil
	}
	return http.DefaultClient.Do(r)
}

// TestImpostor: a device that goes to leader and helper directly, and somebody else
// answers for one of them, or for both.
func TestImpostor(t *testing.T) {
	w := vouchedFor(t)
	direct := *w.recipe // the same servers, and no relay
	keys := *w.recipe.ServerKeys
	keys.Gateway = signed.PublicKey{}
	o := options()
	path := w.recipe.Path.(recipe.TwoServer)
	o.Leader, o.Helper, o.ServerKeys = path.Leader, path.Helper, &keys
	o.Participation, o.Rate, o.Dummies = nil, nil, nil
	made, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	direct = *made
	b, err := direct.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	deployment, err := direct.Deployment()
	if err != nil {
		t.Fatal(err)
	}
	list := func(role signed.Role, base string, s *signed.Signer, change func(*signed.List)) []byte {
		body, err := (dap.HpkeConfigList{dap.NewHpkeConfig(pair(t, 9))}).Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		from := time.Now().Add(-time.Minute).Truncate(time.Second)
		l := &signed.List{Deployment: deployment, Role: role, URL: base, NotBefore: from, NotAfter: from.Add(time.Hour), Body: body,
			Epoch: ohttp.EpochAt(from, direct.ServerKeys.Epoch())}
		if change != nil {
			change(l)
		}
		b, err := l.Sign(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	leader, helper := signerFrom(t, w, signed.Leader), signerFrom(t, w, signed.Helper)
	refresh := func(leaderList, helperList []byte) error {
		t.Helper()
		both := impostor{"http", func(r *http.Request) []byte {
			if strings.HasPrefix(r.URL.String(), path.Leader) {
				return leaderList
			}
			return helperList
		}}
		c, err := client.New(client.Options{Prover: account.Prover, Recipe: b, Anchors: w.anchors, HTTP: both, Attempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		return c.Refresh(context.WithoutCancel(t.Context()))
	}
	good := [2][]byte{list(signed.Leader, path.Leader, leader, nil), list(signed.Helper, path.Helper, helper, nil)}
	if err := refresh(good[0], good[1]); err != nil {
		t.Fatal(err)
	}
	bare, err := (dap.HpkeConfigList{dap.NewHpkeConfig(pair(t, 9))}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		list []byte
		want error
	}{
		"keys without a signature": {bare, signed.ErrList},
		"keys of a stranger":       {list(signed.Leader, path.Leader, stranger(t), nil), signed.ErrSignature},
		"the helper's":             {good[1], signed.ErrList},
		"of another deployment":    {list(signed.Leader, path.Leader, leader, func(l *signed.List) { l.Deployment[5]++ }), signed.ErrList},
		"old": {list(signed.Leader, path.Leader, leader, func(l *signed.List) {
			l.NotBefore, l.NotAfter = l.NotBefore.Add(-3*time.Hour), l.NotAfter.Add(-3*time.Hour)
			l.Epoch = ohttp.EpochAt(l.NotBefore, direct.ServerKeys.Epoch())
		}), signed.ErrList},
		"of no epoch": {list(signed.Leader, path.Leader, leader, func(l *signed.List) { l.Epoch++ }), signed.ErrList},
		"for ever":    {list(signed.Leader, path.Leader, leader, func(l *signed.List) { l.NotAfter = l.NotBefore.Add(8 * 24 * time.Hour) }), signed.ErrList},
	} {
		err := refresh(c.list, good[1])
		var bad *client.KeysError
		if !errors.As(err, &bad) || !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	shared := list(signed.Helper, path.Helper, helper, func(l *signed.List) {
		of, _, err := signed.ReadList(good[0])
		if err != nil {
			t.Fatal(err)
		}
		l.Body = of.Body
	})
	if err := refresh(good[0], shared); !errors.Is(err, client.ErrSharedKey) {
		t.Errorf("one key in both lists: %v", err)
	}
}
