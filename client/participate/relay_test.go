package participate

import (
	"bytes"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
)

// A relay or a leader other than the recipe's, or a weaker key: the device tosses no coin.
func TestManifestPointsElsewhere(t *testing.T) {
	s := newServers(t)
	strong := options()
	strong.KEM = recipe.XWing
	for _, c := range []struct {
		name   string
		o      account.Options
		change func(*ohttp.Manifest)
	}{
		{"another relay", options(), func(m *ohttp.Manifest) { m.Relay = "https://relay.example.evil/" }},
		{"another leader", options(), func(m *ohttp.Manifest) { m.Targets = []string{"https://leader.example/v2"} }},
		{"tries past the grace", options(), func(m *ohttp.Manifest) { m.Every = 101 * time.Second }},
		{"a weaker key", strong, func(m *ohttp.Manifest) { m.Gateway = []ohttp.KeyConfig{{KEM: sealed.KEMX25519}} }},
	} {
		p := s.plan(c.o)
		s.manifest = manifest()
		c.change(s.manifest)
		d := Device{Ledger: memory(t), coin: func(*big.Rat) bool { t.Errorf("%s: tossed", c.name); return false }}
		var refused *ManifestError
		if _, err := d.Decide(t.Context(), p, one(1), now); !errors.Is(err, ErrManifest) || !errors.As(err, &refused) {
			t.Errorf("%s: %v", c.name, err)
		}
		if len(d.Ledger.Entries()) != 0 {
			t.Errorf("%s: charged", c.name)
		}
	}
}

// gateway is relay and gateway in one: it sees what a relay sees, and opens it.
type gateway struct {
	t     *testing.T
	keys  *ohttp.Keyring
	sizes map[int]int
	inner []*ohttp.Request
}

func (g *gateway) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	g.sizes[len(body)]++
	e, err := g.keys.Split(body)
	if err != nil {
		return nil, err
	}
	message, answer, err := e.Open()
	if err != nil {
		return nil, err
	}
	m, err := ohttp.ReadRequest(message, ohttp.MessageLimits{})
	if err != nil {
		return nil, err
	}
	g.inner = append(g.inner, m)
	response := ohttp.Response{Status: 200}
	if message, err = response.Append(nil); err != nil {
		return nil, err
	}
	sealedAnswer, err := answer.Seal(ohttp.Pad(message, ohttp.MinResponse))
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", ohttp.ResponseMedia)
	w.Write(sealedAnswer)
	return w.Result(), nil
}

// Through the real transport: what a relay sees of a report, a dummy and a no-op is
// alike, and a no-op holds nothing.
func TestUnitsThroughTheRelay(t *testing.T) {
	pair, err := sealed.Generate(1, sealed.SuiteXWing)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := ohttp.NewKeyring(pair)
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{t: t, keys: keys, sizes: map[int]int{}}
	m := manifest()
	servers := newServers(t)
	m.Gateway, m.Pinned = keys.Configs(), servers.Pinned("https://leader.example/v1/", "https://helper.example/")
	transport, err := ohttp.NewTransport(ohttp.TransportOptions{Source: ohttp.Pin(m), Relay: g, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	o := options()
	o.KEM, o.Cover = recipe.XWing, &recipe.Cover{Rate: recipe.Rational{Num: 1, Den: 1}}
	p := servers.planVia(makeRecipe(t, o), transport)
	for _, c := range []struct {
		what outcome
		v    client.Value
	}{{report, one(2)}, {report, one(-1)}, {dummy, one(2)}, {dummy, client.NoValue()}, {noOp, one(2)}, {noOp, client.NoValue()}} {
		tosses := 0
		d := Device{Ledger: memory(t), coin: func(*big.Rat) bool {
			tosses++
			return tosses == 1 || c.what == report && tosses == 2 || c.what == dummy && tosses == 3
		}}
		decision, err := d.Decide(t.Context(), p, c.v, now)
		if err != nil {
			t.Fatal(err)
		}
		if err := decision.Send(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := g.inner[len(g.inner)-1]
		empty := bytes.Count(got.Content, []byte{0}) == len(got.Content)
		if isNoOp := c.what == noOp; (got.Method == ohttp.MethodCover) != isNoOp || empty != isNoOp {
			t.Errorf("outcome %d: %s with %d bytes, empty %v", c.what, got.Method, len(got.Content), empty)
		}
	}
	if len(g.sizes) != 1 || len(g.inner) != 6 {
		t.Errorf("the relay sees requests of sizes %v", g.sizes)
	}
}
