package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudflare/circl/hpke"
	"github.com/openpcc/bhttp"
	theirs "github.com/openpcc/ohttp"

	"github.com/starling-agg/starling/anonymity/gateway"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/relay"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/sealed"
)

const media = "application/test-upload"

var suites = []sealed.Suite{
	sealed.SuiteX25519,
	sealed.SuiteXWing,
	{KEM: sealed.KEMP256, KDF: sealed.KDFSHA256, AEAD: sealed.AEADAES128GCM},
	{KEM: sealed.KEMX25519, KDF: sealed.KDFSHA512, AEAD: sealed.AEADChaCha20Poly1305},
	{KEM: sealed.KEMX25519, KDF: sealed.KDFSHA256, AEAD: sealed.AEADAES256GCM},
}

func each(t *testing.T, f func(*testing.T, sealed.Suite)) {
	for _, s := range suites {
		t.Run(fmt.Sprintf("%04x-%d-%d", s.KEM, s.KDF, s.AEAD), func(t *testing.T) { f(t, s) })
	}
}

// one takes every body as one upload and lets each go alone.
type one struct{}

func (one) Route(path, m string) (string, error) {
	if path != "reports" || m != media {
		return "", errors.New("no upload")
	}
	return m, nil
}
func (one) Name(_ string, body []byte) ([]byte, error) { return body, nil }
func (one) Task(string) ([32]byte, error)              { return [32]byte{}, nil }
func (one) Join(bodies [][]byte) [][]byte              { return bodies }
func (one) Final(int, []byte) bool                     { return false }
func (one) Unknown(int, []byte) bool                   { return false }
func (one) Reasons() []string                          { return nil }
func (one) Refusals([][]byte, []byte) (map[string]uint64, error) {
	return nil, nil
}

// relayTo runs our relay before a gateway.
func relayTo(t *testing.T, gatewayURL string) string {
	t.Helper()
	r, err := relay.New(relay.Options{Gateway: gatewayURL + "/"})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	return s.URL + "/"
}

// TestTheirDevice: their transport, our relay, our gateway.
func TestTheirDevice(t *testing.T) {
	each(t, func(t *testing.T, s sealed.Suite) {
		got := make(chan []byte, 1)
		leader := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			got <- body
			io.WriteString(w, "the answer, which no device hears")
		}))
		defer leader.Close()
		pair, err := sealed.Generate(9, s)
		if err != nil {
			t.Fatal(err)
		}
		g, err := gateway.New(gateway.Options{
			Keys: []gateway.Key{{Pair: pair}}, Targets: []gateway.Target{{URL: leader.URL + "/"}}, Protocol: one{},
			FS: disktest.NewMem(1), Record: disktest.NewMem(2), Window: time.Millisecond, Mix: time.Millisecond, Limits: gateway.Limits{Joined: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.Run(ctx) }()
		defer func() {
			cancel()
			if err := errors.Join(<-done, g.Close()); err != nil {
				t.Error(err)
			}
		}()
		front := httptest.NewServer(g)
		defer front.Close()

		list, err := ohttp.AppendKeyConfigs(nil, []ohttp.KeyConfig{ohttp.NewKeyConfig(pair)})
		if err != nil {
			t.Fatal(err)
		}
		var configs theirs.KeyConfigs
		if err := configs.UnmarshalBinary(list); err != nil {
			t.Fatalf("they cannot read our key configuration: %v", err)
		}
		transport, err := theirs.NewTransport(configs[0], relayTo(t, front.URL))
		if err != nil {
			t.Fatal(err)
		}
		device := &http.Client{Transport: transport}
		for _, n := range []int{1, 5_000, 300_000} {
			body := bytes.Repeat([]byte("b"), n)
			resp, err := device.Post(leader.URL+"/reports", media, bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusAccepted || len(answer) > 0 || !bytes.Equal(<-got, body) {
				t.Errorf("%d bytes: status %d, answer %q, %v", n, resp.StatusCode, answer, err)
			}
		}
		// What is for nobody here is refused to them in a way that they can read.
		resp, err := device.Get(leader.URL + "/admin")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if b, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusMisdirectedRequest || len(b) > 0 {
			t.Errorf("status %d, %s", resp.StatusCode, b)
		}
	})
}

// TestOurDevice: our transport, our relay, their gateway.
func TestOurDevice(t *testing.T) {
	each(t, func(t *testing.T, s sealed.Suite) {
		kem := hpke.KEM(s.KEM)
		if !kem.IsValid() {
			t.Fatalf("they do not know KEM %#04x", s.KEM)
		}
		public, secret, err := kem.Scheme().GenerateKeyPair()
		if err != nil {
			t.Fatal(err)
		}
		pair := theirs.KeyPair{SecretKey: secret, KeyConfig: theirs.KeyConfig{KeyID: 9, KemID: kem, PublicKey: public,
			SymmetricAlgorithms: []theirs.SymmetricAlgorithm{{KDFID: hpke.KDF(s.KDF), AEADID: hpke.AEAD(s.AEAD)}}}}
		g, err := theirs.NewGateway(pair, theirs.WithRequestValidator(theirs.NewHostnameAllowlist("leader.example")))
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		var seen *http.Request
		front := httptest.NewServer(theirs.Middleware(g, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen = r
			got, _ = io.ReadAll(r.Body)
			w.Header().Set("Content-Type", "application/test-answer")
			w.WriteHeader(http.StatusAccepted)
			io.WriteString(w, "the answer")
		})))
		defer front.Close()

		list, err := theirs.KeyConfigs{pair.KeyConfig}.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		configs, err := ohttp.ReadKeyConfigs(list)
		if err != nil {
			t.Fatalf("we cannot read their key configuration: %v", err)
		}
		now := time.Now().Truncate(time.Second)
		transport, err := ohttp.NewTransport(ohttp.TransportOptions{Source: ohttp.Pin(&ohttp.Manifest{
			Epoch: ohttp.EpochAt(now, ohttp.DefaultEpoch), Length: ohttp.DefaultEpoch, NotBefore: now, NotAfter: now.Add(time.Hour),
			Relay: relayTo(t, front.URL), Gateway: configs[:1], Tries: ohttp.DefaultTries, Every: ohttp.DefaultEvery, Hold: ohttp.DefaultHold,
			Targets: []string{"https://leader.example/v1/"},
		})})
		if err != nil {
			t.Fatal(err)
		}
		device := &http.Client{Transport: transport}
		for _, n := range []int{0, 1, 5_000, 300_000} {
			body := bytes.Repeat([]byte("b"), n)
			resp, err := device.Post("https://leader.example/v1/reports", media, bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusAccepted || string(answer) != "the answer" || !bytes.Equal(got, body) {
				t.Errorf("%d bytes: status %d, answer %q, %v", n, resp.StatusCode, answer, err)
			}
			if seen.Method != "POST" || seen.URL.Path != "/v1/reports" || seen.Host != "leader.example" || seen.Header.Get("Content-Type") != media {
				t.Errorf("they read %s %s %s %v", seen.Method, seen.Host, seen.URL, seen.Header)
			}
		}
		// Sealed to a key that they do not have.
		other, err := sealed.Generate(9, s)
		if err != nil {
			t.Fatal(err)
		}
		stale, err := ohttp.NewTransport(ohttp.TransportOptions{Source: ohttp.Pin(&ohttp.Manifest{
			Epoch: ohttp.EpochAt(now, ohttp.DefaultEpoch), Length: ohttp.DefaultEpoch, NotBefore: now, NotAfter: now.Add(time.Hour),
			Relay: relayTo(t, front.URL), Gateway: []ohttp.KeyConfig{ohttp.NewKeyConfig(other)},
			Tries: ohttp.DefaultTries, Every: ohttp.DefaultEvery, Hold: ohttp.DefaultHold, Targets: []string{"https://leader.example/v1/"},
		})})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: stale}).Post("https://leader.example/v1/reports", media, strings.NewReader("x"))
		if refused := new(ohttp.RefusedError); !errors.As(err, &refused) {
			t.Errorf("a stale key: %v, %v", resp, err)
		}
	})
}

// TestTheirMessages: we read what they write, in both framings.
func TestTheirMessages(t *testing.T) {
	for name, c := range map[string]struct {
		request  *bhttp.RequestEncoder
		response *bhttp.ResponseEncoder
	}{
		"known length":  {bhttp.NewKnownLengthRequestEncoder(), bhttp.NewKnownLengthResponseEncoder()},
		"indeterminate": {bhttp.NewIndeterminateLengthRequestEncoder(), bhttp.NewIndeterminateLengthResponseEncoder()},
	} {
		for _, n := range []int{0, 1, 100_000} {
			body := bytes.Repeat([]byte("b"), n)
			r, err := http.NewRequest("POST", "https://leader.example/v1/reports?x", bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", media)
			message, err := c.request.EncodeRequest(r)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(message)
			if err != nil {
				t.Fatal(err)
			}
			m, err := ohttp.ReadRequest(b, ohttp.MessageLimits{})
			if err != nil || m.Method != "POST" || m.Scheme != "https" || m.Authority != "leader.example" || m.Path != "/v1/reports?x" ||
				!bytes.Equal(m.Content, body) || !slices.Contains(m.Header, ohttp.Field{Name: "content-type", Value: media}) {
				t.Errorf("%s, %d bytes: %+v, %v", name, n, m, err)
			}
			response, err := c.response.EncodeResponse(&http.Response{StatusCode: 404, Header: http.Header{"Retry-After": {"5"}},
				Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(n)})
			if err != nil {
				t.Fatal(err)
			}
			if b, err = io.ReadAll(response); err != nil {
				t.Fatal(err)
			}
			a, err := ohttp.ReadResponse(b, ohttp.MessageLimits{})
			if err != nil || a.Status != 404 || !bytes.Equal(a.Content, body) ||
				!slices.Contains(a.Header, ohttp.Field{Name: "retry-after", Value: "5"}) {
				t.Errorf("%s, %d bytes: %+v, %v", name, n, a, err)
			}
		}
	}
}

// TestOurMessages: they read what we write, padding included. They refuse a message that
// ends behind its control data, as the example of RFC 9458 appendix A does; we read those
// and write none.
func TestOurMessages(t *testing.T) {
	request := &ohttp.Request{Method: "POST", Scheme: "https", Authority: "leader.example", Path: "/v1/reports",
		Header: []ohttp.Field{{Name: "content-type", Value: media}}, Content: []byte("body")}
	b, err := request.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := new(bhttp.RequestDecoder).DecodeRequest(t.Context(), bytes.NewReader(ohttp.Pad(b, ohttp.MinRequest)))
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(r.Body); err != nil || string(body) != "body" || r.Method != "POST" || r.Host != "leader.example" ||
		r.URL.Path != "/v1/reports" || r.Header.Get("Content-Type") != media {
		t.Errorf("they read %s %s %s %q, %v", r.Method, r.Host, r.URL, body, err)
	}
	example := []byte("\x00\x03GET\x05https\x0bexample.com\x01/")
	if _, err := ohttp.ReadRequest(example, ohttp.MessageLimits{}); err != nil {
		t.Errorf("the RFC's example: %v", err)
	}
	if _, err := new(bhttp.RequestDecoder).DecodeRequest(t.Context(), bytes.NewReader(example)); err == nil {
		t.Error("they now read the RFC's example: say so above")
	}
}
