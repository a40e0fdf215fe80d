package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
)

// relayed is relay and gateway in one before a leader, with the sizes that a relay sees.
type relayed struct {
	ring   *ohttp.Keyring
	leader http.Handler
	sizes  []int
	drops  int
	posts  int
}

func (f *relayed) RoundTrip(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	f.sizes = append(f.sizes, len(body))
	e, err := f.ring.Split(body)
	if err != nil {
		return nil, err
	}
	plain, seal, err := e.Open()
	if err != nil {
		return nil, err
	}
	m, err := ohttp.ReadRequest(plain, ohttp.MessageLimits{})
	if err != nil {
		return nil, err
	}
	answer := &ohttp.Response{Status: 200}
	if m.Method == ohttp.MethodCover {
		f.drops++
	} else {
		f.posts++
		inner := httptest.NewRequest(m.Method, m.Scheme+"://"+m.Authority+m.Path, bytes.NewReader(m.Content))
		inner.Header.Set("Content-Type", m.Header[0].Value)
		w := httptest.NewRecorder()
		f.leader.ServeHTTP(w, inner)
		answer.Status, answer.Content = w.Code, w.Body.Bytes()
	}
	b, err := answer.Append(nil)
	if err != nil {
		return nil, err
	}
	if b, err = seal.Seal(ohttp.Pad(b, ohttp.MinResponse)); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", ohttp.ResponseMedia)
	w.Write(b)
	return w.Result(), nil
}

// TestVia: through a relay every report goes alone, cover looks like it, and no server is
// asked for anything directly.
func TestVia(t *testing.T) {
	r := testRecipe(recipe.Histogram{Length: 4, Chunk: 2})
	r.Rounds = &recipe.Rounds{Units: 1, Grace: 180}
	s := newServers(t, r)
	// All three messages under X-Wing: the outer one and both shares.
	keys := make([]*sealed.KeyPair, 3)
	for i := range keys {
		var err error
		if keys[i], err = sealed.Generate(uint8(7+i), sealed.SuiteXWing); err != nil {
			t.Fatal(err)
		}
	}
	gatewayKey := keys[0]
	s.leader, s.helper = keys[1], keys[2]
	ring, err := ohttp.NewKeyring(gatewayKey)
	if err != nil {
		t.Fatal(err)
	}
	list := func(k *sealed.KeyPair) []byte {
		b, err := dap.HpkeConfigList{dap.NewHpkeConfig(k)}.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	media := dap.ContentType(dap.MediaHpkeConfigList)
	manifest := &ohttp.Manifest{
		Epoch: ohttp.EpochAt(now, ohttp.DefaultEpoch), Length: ohttp.DefaultEpoch, NotBefore: now, NotAfter: now.Add(time.Hour),
		Relay: "https://relay.example/", Gateway: []ohttp.KeyConfig{ohttp.NewKeyConfig(gatewayKey)},
		Tries: ohttp.DefaultTries, Every: ohttp.DefaultEvery, Hold: ohttp.DefaultHold, Targets: []string{"https://leader.example/v1"},
		Pinned: []ohttp.Pinned{
			{URL: "https://leader.example/v1/hpke_config", Media: media, Body: list(s.leader)},
			{URL: "https://helper.example" + helperPath + "hpke_config", Media: media, Body: list(s.helper)},
		},
	}
	front := &relayed{ring: ring, leader: s}
	via, err := ohttp.NewTransport(ohttp.TransportOptions{Source: ohttp.Pin(manifest), Relay: front, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{AnyKeys: true, Prover: account.Prover, Recipe: encode(t, s.recipe), MaxEpsilon: inf, Via: via, Now: func() time.Time { return now }}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Report(context.Background(), Bucket(1), Bucket(2), Bucket(2)); err != nil {
		t.Fatal(err)
	}
	like, err := c.Prepare(Bucket(0), now)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Cover(context.Background(), &like); err != nil {
		t.Fatal(err)
	}
	if front.posts != 3 || front.drops != 1 || s.uploads != 3 || len(s.fetches) != 0 {
		t.Errorf("%d reports and %d covers; %d uploads at the leader, keys fetched %v", front.posts, front.drops, s.uploads, s.fetches)
	}
	for _, n := range front.sizes {
		if n != front.sizes[0] {
			t.Errorf("sizes on the way %v", front.sizes)
			break
		}
	}
	o.HTTP = http.DefaultClient
	if _, err := New(o); err == nil {
		t.Error("HTTP beside Via is accepted")
	}
	o.HTTP, o.Via = nil, nil
	if c, err = New(o); err != nil {
		t.Fatal(err)
	}
	if err := c.Cover(context.Background(), &like); !errors.Is(err, ErrNoRelay) {
		t.Errorf("cover without a relay: %v", err)
	}
}
