package contribute_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/contribute"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/client/sender"
	"github.com/starling-agg/starling/internal/uploads"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

// front is relay and gateway in one, with the sizes that a relay sees. It passes on what a
// gateway would.
type front struct {
	w      *world
	ring   *ohttp.Keyring
	sizes  []int
	covers int
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.sizes = append(f.sizes, len(body))
	e, err := f.ring.Split(body)
	if err != nil {
		f.w.t.Error(err)
		return
	}
	plain, seal, err := e.Open()
	if err != nil {
		f.w.t.Error(err)
		return
	}
	m, err := ohttp.ReadRequest(plain, ohttp.MessageLimits{})
	if err != nil {
		f.w.t.Error(err)
		return
	}
	media, err := uploads.Both{}.Route(m.Path[1:], m.Header[0].Value)
	if err != nil {
		f.w.t.Error(err)
	}
	if m.Method == ohttp.MethodCover {
		f.covers++
	} else {
		if _, err := (uploads.Both{}).Name(m.Path[1:], m.Content); err != nil {
			f.w.t.Error(err) // not one envelope alone
		}
		inner := httptest.NewRequest(m.Method, m.Path, bytes.NewReader(m.Content))
		inner.Header.Set("Content-Type", media)
		f.w.hosts[m.Authority].ServeHTTP(httptest.NewRecorder(), inner)
	}
	b, err := (&ohttp.Response{Status: 202}).Append(nil)
	if err == nil {
		b, err = seal.Seal(ohttp.Pad(b, ohttp.MinResponse))
	}
	if err != nil {
		f.w.t.Error(err)
	}
	w.Header().Set("Content-Type", ohttp.ResponseMedia)
	w.Write(b)
}

// relay makes relay and gateway, and the manifest that leads through them, which the gateway
// has signed.
func (w *world) relay() (*front, *ohttp.Manifest) {
	key, err := sealed.Generate(1, sealed.SuiteX25519)
	if err != nil {
		w.t.Fatal(err)
	}
	ring, err := ohttp.NewKeyring(key)
	if err != nil {
		w.t.Fatal(err)
	}
	f, now := &front{w: w, ring: ring}, time.Now().Truncate(time.Second)
	w.hosts["relay.example"] = f
	return f, w.signs(&ohttp.Manifest{
		Epoch: ohttp.EpochAt(now, ohttp.DefaultEpoch), Length: ohttp.DefaultEpoch, NotBefore: now, NotAfter: now.Add(24 * time.Hour),
		Relay: "https://relay.example/", Gateway: []ohttp.KeyConfig{ohttp.NewKeyConfig(key)},
		Tries: ohttp.DefaultTries, Every: ohttp.DefaultEvery, Hold: ohttp.DefaultHold, Targets: []string{"https://first.example/"},
	})
}

func (w *world) signs(m *ohttp.Manifest) *ohttp.Manifest {
	w.t.Helper()
	if err := m.Sign(signed.Gateway, w.gateway); err != nil {
		w.t.Fatal(err)
	}
	return m
}

// through are options by which a device goes through the relay.
func (w *world) through(source ohttp.Source) (contribute.Options, error) {
	m, err := contribute.NewManifests(contribute.ManifestsOptions{Recipe: w.checked.Recipe(), Source: source})
	if err != nil {
		return contribute.Options{}, err
	}
	via, err := ohttp.NewTransport(ohttp.TransportOptions{Source: m, Relay: w})
	o := w.options()
	o.HTTP, o.Via = nil, via
	return contribute.Options{Client: o, Lists: w}, err
}

// TestVia: through a relay each contribution goes alone, a cover looks like one, no hop is
// asked for more than its keys, and for none that the manifest pins.
func TestVia(t *testing.T) {
	in(t, kind{relayed: true}, func(t *testing.T, w *world) {
		f, m := w.relay()
		o, err := w.through(ohttp.Pin(m))
		if err != nil {
			t.Fatal(err)
		}
		c, err := contribute.New(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Report(t.Context(), client.Number(1), client.Number(2), client.Number(3), client.Number(4)); err != nil {
			t.Fatal(err)
		}
		if err := c.Cover(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(f.sizes) != 5 || f.covers != 1 || slices.Max(f.sizes) != slices.Min(f.sizes) {
			t.Errorf("sizes %v, %d covers", f.sizes, f.covers)
		}
		want := []string{"GET first.example", "GET second.example", "GET analyzer.example"}
		if got := slices.DeleteFunc(w.requests(), func(s string) bool { return s == "POST relay.example" }); !slices.Equal(got, want) {
			t.Errorf("asked %v", got)
		}
		if x, err := w.reader().Round(t.Context(), w.flushed()); err != nil || x.Raw[0] != 10 {
			t.Errorf("%+v, %v", x, err)
		}
		// the lists of a later manifest
		later := *m
		later.Revision, later.Pinned = 1, nil
		for _, host := range []string{"first", "second", "analyzer"} {
			host += ".example"
			at := "https://" + host + "/" + onion.KeysPath(w.shuffle.Recipe)
			resp, err := w.Do(httptest.NewRequest("GET", at, nil))
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(resp.Body)
			later.Pinned = append(later.Pinned, ohttp.Pinned{URL: at, Media: onion.KeysMedia, Body: b})
		}
		if o, err = w.through(ohttp.Pin(w.signs(&later))); err != nil {
			t.Fatal(err)
		}
		if c, err = contribute.New(o); err != nil {
			t.Fatal(err)
		}
		w.forget()
		if err := c.Report(t.Context(), client.Number(1)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(w.requests(), []string{"POST relay.example"}) {
			t.Errorf("asked %v", w.requests())
		}
	})
}

// TestViaPerson: a person's answer, and those of many, go through the relay.
func TestViaPerson(t *testing.T) {
	in(t, kind{relayed: true, counts: true}, func(t *testing.T, w *world) {
		_, m := w.relay()
		o, err := w.through(ohttp.Pin(m))
		if err != nil {
			t.Fatal(err)
		}
		d := participate.Device{}
		if d.Ledger, err = participate.MemoryLedger(participate.LedgerOptions{MaxEpsilon: 100, MaxDelta: 1e-3}); err != nil {
			t.Fatal(err)
		}
		c, err := d.ConsiderContribution(t.Context(), o, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		p, err := participate.NewPlan(participate.PlanOptions{Contributor: c})
		if err != nil {
			t.Fatal(err)
		}
		decided, err := d.Decide(t.Context(), p, client.Bool(true), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		w.forget()
		if err := decided.Send(t.Context()); err != nil || !slices.Equal(w.requests(), []string{"POST relay.example"}) {
			t.Errorf("%v, %v", w.requests(), err)
		}
		plain := w.options()
		if c, err = d.ConsiderContribution(t.Context(), contribute.Options{Client: plain}, time.Now()); err != nil {
			t.Fatal(err)
		}
		if _, err := participate.NewPlan(participate.PlanOptions{Contributor: c}); err == nil {
			t.Error("a plan past the relay that the recipe names")
		}
		plain.Recipe, plain.Checked, plain.HTTP = nil, w.checked, nil
		m.Signatures = nil
		if _, err := sender.New(sender.Options{Client: plain, Manifest: ohttp.Pin(m)}); err != nil {
			t.Error(err) // it is looked at when it is used
		}
	})
}

// TestHostileManifests: a manifest that the gateway has not signed, of another relay or
// without the first hop, and a second one of an epoch lead nowhere.
func TestHostileManifests(t *testing.T) {
	in(t, kind{relayed: true}, func(t *testing.T, w *world) {
		_, m := w.relay()
		for name, c := range map[string]struct {
			change func(m *ohttp.Manifest)
			want   error
		}{
			"unsigned":           {func(m *ohttp.Manifest) { m.Signatures = nil }, ohttp.ErrUnsigned},
			"changed":            {func(m *ohttp.Manifest) { m.Revision++ }, ohttp.ErrUnsigned},
			"another relay":      {func(m *ohttp.Manifest) { m.Relay = "https://other.example/"; w.signs(m) }, ohttp.ErrManifest},
			"another first hop":  {func(m *ohttp.Manifest) { m.Targets = []string{"https://second.example/"}; w.signs(m) }, ohttp.ErrManifest},
			"over":               {func(m *ohttp.Manifest) { m.NotAfter = m.NotBefore.Add(time.Millisecond) }, ohttp.ErrManifest},
			"too long for grace": {func(m *ohttp.Manifest) { m.Every = time.Hour; w.signs(m) }, nil},
		} {
			x := *m
			c.change(&x)
			o, err := w.through(ohttp.Pin(&x))
			if err != nil {
				t.Fatal(err)
			}
			d, err := contribute.New(o)
			if err != nil {
				t.Fatal(err)
			}
			w.forget()
			time.Sleep(2 * time.Millisecond)
			long := new(ohttp.SendingError)
			if err := d.Report(t.Context(), client.Number(1)); c.want != nil && !errors.Is(err, c.want) || c.want == nil && !errors.As(err, &long) || len(w.requests()) > 0 {
				t.Errorf("%s: %v; asked %v", name, err, w.requests())
			}
		}
		given := m
		o, err := w.through(givenBy(func() *ohttp.Manifest { return given }))
		if err != nil {
			t.Fatal(err)
		}
		d, err := contribute.New(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		x := *m
		x.Hold += time.Second
		given = w.signs(&x)
		if err := d.Refresh(t.Context()); !errors.Is(err, client.ErrConflict) {
			t.Errorf("two of one epoch: %v", err)
		}
		raw, err := ohttp.NewTransport(ohttp.TransportOptions{Source: ohttp.Pin(m), Relay: w})
		if err != nil {
			t.Fatal(err)
		}
		o.Client.Via = raw
		if _, err := contribute.New(o); err == nil {
			t.Error("manifests that nobody checks")
		}
	})
}

// givenBy is a source of whatever manifest there is.
type givenBy func() *ohttp.Manifest

func (f givenBy) Manifest(context.Context) (*ohttp.Manifest, error) { return f(), nil }
