package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/admission"
	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/voprf"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
)

// flakyRelay opens what devices send and loses the first answers, as many as lost says.
type flakyRelay struct {
	ring   *ohttp.Keyring
	lost   int
	shown  []string // of each request, or "" if it has another field than one for admission
	method []string
	sizes  []int
}

func (f *flakyRelay) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
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
	shown := ""
	if len(m.Header) == 2 && m.Header[1].Name == admission.Field {
		shown = m.Header[1].Value
	}
	f.shown, f.method = append(f.shown, shown), append(f.method, m.Method)
	if f.lost--; f.lost >= 0 {
		return nil, errors.New("connection reset")
	}
	answer, err := (&ohttp.Response{Status: http.StatusAccepted}).Append(nil)
	if err != nil {
		return nil, err
	}
	if answer, err = seal.Seal(ohttp.Pad(answer, ohttp.MinResponse)); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", ohttp.ResponseMedia)
	w.Write(answer)
	return w.Result(), nil
}

// TestShowsToken: every try of a report or a cover shows the gateway one token of the
// report's round, in requests of one size; without a token nothing is sent, and a recipe
// that asks for tokens is refused by a device that has no place for them.
func TestShowsToken(t *testing.T) {
	r, x := countedRecipe(t, recipe.Histogram{Length: 4, Chunk: 2})
	r.Tokens.Admission = true
	s := newServers(t, r)
	deployment, err := r.Deployment()
	if err != nil {
		t.Fatal(err)
	}
	h := &held{t, map[uint64]*Held{}, map[uint64][2]*arc.Verifier{}}
	h.issue(deployment, uint64(now.Unix())/uint64(r.ServerKeys.EpochLength))
	o := Options{Prover: account.Prover, Recipe: encode(t, s.recipe), MaxEpsilon: inf, HTTP: s, Now: func() time.Time { return now }, Anchors: x.anchors, Credentials: h}
	refused := new(RefusedError)
	if _, err := New(o); !errors.As(err, &refused) || refused.Reason != ReasonCredentials {
		t.Fatalf("without a place for tokens: %v", err)
	}
	unit, err := r.TimePrecision.At(now)
	if err != nil {
		t.Fatal(err)
	}
	round, asked := r.Round(unit), 0
	token := voprf.Token{Nonce: [32]byte{1}, Output: [32]byte{2}}
	o.Admission = func(number uint64) (voprf.Token, error) {
		if asked++; number != round {
			return voprf.Token{}, fmt.Errorf("%w: round %d", ErrNoCredentials, number)
		}
		return token, nil
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := sealed.Generate(7, sealed.SuiteX25519)
	if err != nil {
		t.Fatal(err)
	}
	relay := &flakyRelay{}
	if relay.ring, err = ohttp.NewKeyring(pair); err != nil {
		t.Fatal(err)
	}
	manifest := &ohttp.Manifest{
		Epoch: ohttp.EpochAt(now, ohttp.DefaultEpoch), Length: ohttp.DefaultEpoch, NotBefore: now, NotAfter: now.Add(time.Hour),
		Relay: "https://relay.example/", Gateway: []ohttp.KeyConfig{ohttp.NewKeyConfig(pair)},
		Tries: 3, Every: time.Millisecond, Hold: ohttp.DefaultHold, Targets: []string{"https://leader.example/v1"},
	}
	via, err := ohttp.NewTransport(ohttp.TransportOptions{Source: ohttp.Pin(manifest), Relay: relay, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	c.o.Via, c.o.Tries = via, Tries{Count: 3, Every: time.Millisecond, Timeout: time.Minute}
	report := dap.Report{Metadata: dap.ReportMetadata{ID: dap.ReportID{1}, Time: unit},
		Leader: dap.HpkeCiphertext{Enc: []byte{1}, Payload: make([]byte, 400)}, Helper: dap.HpkeCiphertext{Enc: []byte{1}, Payload: make([]byte, 400)}}
	for method, send := range map[string]func() error{
		"POST":            func() error { _, err := c.Upload(context.Background(), []dap.Report{report}); return err },
		ohttp.MethodCover: func() error { return c.Cover(context.Background(), &report) },
	} {
		*relay = flakyRelay{ring: relay.ring, lost: 2}
		asked = 0
		if err := send(); err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		want := admission.Value(round, token)
		if !slices.Equal(relay.shown, []string{want, want, want}) || !slices.Equal(relay.method, []string{method, method, method}) || asked != 1 {
			t.Errorf("%s: shown %q in %q, of %d tokens asked for", method, relay.shown, relay.method, asked)
		}
		if size := relay.sizes[0]; relay.sizes[1] != size || relay.sizes[2] != size || size > ohttp.MinRequest+100 {
			t.Errorf("%s: sizes %d", method, relay.sizes)
		}
	}
	if err := c.Creditable(now); err != nil {
		t.Errorf("with a token: %v", err)
	}
	*relay, round = flakyRelay{ring: relay.ring}, round+1
	if _, err := c.Upload(context.Background(), []dap.Report{report}); !errors.Is(err, ErrNoCredentials) {
		t.Errorf("a report without a token: %v", err)
	}
	if err := c.Cover(context.Background(), &report); !errors.Is(err, ErrNoCredentials) {
		t.Errorf("a cover without a token: %v", err)
	}
	if err := c.Creditable(now); !errors.Is(err, ErrNoCredentials) || len(relay.shown) > 0 {
		t.Errorf("without a token: %v, %d requests", err, len(relay.shown))
	}
}
