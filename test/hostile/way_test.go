package hostile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
)

func pair(t *testing.T, id uint8) *sealed.KeyPair {
	t.Helper()
	k, err := sealed.Generate(id, sealed.SuiteX25519)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// with is the world's manifest, changed.
func with(change func(*ohttp.Manifest)) *ohttp.Manifest {
	m := *shared.manifest
	m.Pinned, m.Targets, m.Gateway = slices.Clone(m.Pinned), slices.Clone(m.Targets), slices.Clone(m.Gateway)
	change(&m)
	return &m
}

// TestHonestReport: what the attacks below change is taken as it is.
func TestHonestReport(t *testing.T) {
	before := shared.settled(t)
	c := shared.client(t, shared.manifest, nil)
	r, _ := report(t, c)
	shared.upload(t, c, r)
	if acknowledged, aggregated, rejected, _ := gained(before, shared.settled(t)); acknowledged != 1 || aggregated != 1 || len(rejected) > 0 {
		t.Errorf("acknowledged %d, aggregated %d, rejected %v", acknowledged, aggregated, rejected)
	}
}

// TestStaleGatewayKey: the key of an epoch that is over, or never was.
func TestStaleGatewayKey(t *testing.T) {
	before := shared.settled(t)
	c := shared.client(t, with(func(m *ohttp.Manifest) {
		m.Gateway = []ohttp.KeyConfig{ohttp.NewKeyConfig(pair(t, 77))}
	}), nil)
	r, _ := report(t, c)
	if _, err := c.Upload(t.Context(), []dap.Report{r}); reasonOf(err) != ohttp.ReasonKey {
		t.Errorf("an epoch that is not: %v", err)
	}
	// The device sees by itself that a manifest is over.
	old := with(func(m *ohttp.Manifest) {
		m.NotBefore, m.NotAfter = m.NotBefore.AddDate(0, -1, 0), m.NotBefore.AddDate(0, 0, -1)
	})
	via, err := ohttp.NewTransport(ohttp.TransportOptions{Source: ohttp.Pin(old)})
	if err != nil {
		t.Fatal(err)
	}
	get, err := http.NewRequestWithContext(t.Context(), http.MethodGet, old.Pinned[0].URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := via.RoundTrip(get); !errors.Is(err, ohttp.ErrManifest) {
		t.Errorf("a manifest that is over: %v", err)
	}
	shared.unchanged(t, before)
}

// TestStaleShareKey: shares sealed to a key that the leader no longer has, or to another
// key under the same id.
func TestStaleShareKey(t *testing.T) {
	keys := func(id uint8) *ohttp.Manifest {
		list, err := dap.HpkeConfigList{dap.NewHpkeConfig(pair(t, id))}.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		return with(func(m *ohttp.Manifest) { m.Pinned[0].Body = list })
	}
	before := shared.settled(t)
	c := shared.client(t, keys(shared.leaderKey(t)+99), nil)
	r, _ := report(t, c)
	if refused, err := c.Upload(t.Context(), []dap.Report{r}); err != nil || len(refused) > 0 {
		t.Errorf("a key that is gone: the device was told %v, %v", refused, err) // the leader's operator is
	}
	c = shared.client(t, keys(shared.leaderKey(t)), nil)
	r, _ = report(t, c)
	shared.upload(t, c, r) // another key under the same id
	acknowledged, aggregated, rejected, named := gained(before, shared.settled(t))
	if acknowledged != 1 || aggregated != 0 || rejected[dap.HpkeDecryptError.String()] != 1 || named[dap.Dialect{Version: speaks}.Said(dap.OutdatedConfig).String()] != 1 {
		t.Errorf("acknowledged %d, aggregated %d, rejected %v, refused %v", acknowledged, aggregated, rejected, named)
	}
}

// leaderKey is the id of the leader's HPKE key.
func (w *world) leaderKey(t *testing.T) uint8 {
	t.Helper()
	list, err := dap.ReadHpkeConfigList(w.manifest.Pinned[0].Body)
	if err != nil {
		t.Fatal(err)
	}
	return list[0].ID
}

// TestOversized: a request above the relay's limit ends there; one that an accomplice at
// the relay lets through, or brings around it, ends at the gateway.
func TestOversized(t *testing.T) {
	before, heard := shared.settled(t), len(shared.heard["gateway"].Copy())
	if reason, _ := post(t, shared.relay, "", make([]byte, 20_001)); reason != ohttp.ReasonOversized {
		t.Errorf("the relay: %q", reason)
	}
	chunked := "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: " + ohttp.RequestMedia + "\r\nTransfer-Encoding: chunked\r\n\r\n" +
		fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", 30_000, make([]byte, 30_000))
	if reason := talk(t, shared.relay, chunked); reason != ohttp.ReasonOversized {
		t.Errorf("the relay, of an unknown length: %q", reason)
	}
	if len(shared.heard["gateway"].Copy()) != heard {
		t.Error("the gateway heard of it")
	}
	head := "POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + shared.relayToken + "\r\nContent-Type: " + ohttp.RequestMedia +
		"\r\nContent-Length: 4000000000\r\n\r\n"
	if reason := talk(t, shared.gateway, head); reason != ohttp.ReasonOversized {
		t.Errorf("the gateway: %q", reason)
	}
	shared.unchanged(t, before)
}

// TestReplayed: a relay that keeps a request and brings it again, and again in other words.
func TestReplayed(t *testing.T) {
	before := shared.settled(t)
	_, upload := report(t, shared.client(t, shared.manifest, nil))
	request, opener := seal(t, shared.manifest.Gateway[0], upload)
	reason, answer := post(t, shared.relay, "", request)
	if reason != "" {
		t.Fatal(reason)
	}
	if status := shared.inside(t, opener, answer); status != http.StatusAccepted {
		t.Fatalf("status %d", status)
	}
	shared.acknowledged.Add(1)
	if reason, _ := post(t, shared.relay, "", request); reason != ohttp.ReasonReplayed {
		t.Errorf("once more through the relay: %q", reason)
	}
	if reason, _ := post(t, shared.gateway, shared.relayToken, request); reason != ohttp.ReasonReplayed {
		t.Errorf("once more by the relay itself: %q", reason)
	}
	if reason, _ := post(t, shared.gateway, "", request); reason != ohttp.ReasonUnauthorized {
		t.Errorf("around the relay: %q", reason)
	}
	for _, at := range []int{0, 1, len(request) / 2, len(request) - 1} {
		altered := slices.Clone(request)
		altered[at] ^= 1
		if reason, _ := post(t, shared.relay, "", altered); !slices.Contains([]ohttp.Reason{ohttp.ReasonSealed, ohttp.ReasonKey, ohttp.ReasonReplayed}, reason) {
			t.Errorf("with byte %d changed: %q", at, reason)
		}
	}
	if acknowledged, aggregated, rejected, _ := gained(before, shared.settled(t)); acknowledged != 1 || aggregated != 1 || len(rejected) > 0 {
		t.Errorf("acknowledged %d, aggregated %d, rejected %v", acknowledged, aggregated, rejected)
	}
}

// TestReencapsulated: who has a report in the clear of its outer layer, as its device
// does, may encapsulate it afresh. The gateway knows the report by its name and passes it
// on once, though it says to each that it was taken; and the servers would count it once
// where a gateway passed on more.
func TestReencapsulated(t *testing.T) {
	before, known := shared.settled(t), shared.passedOn(t).Known
	_, upload := report(t, shared.client(t, shared.manifest, nil))
	const times = 4
	send := func() {
		request, opener := seal(t, shared.manifest.Gateway[0], upload)
		reason, answer := post(t, shared.relay, "", request)
		if reason != "" {
			t.Error(reason)
		} else if status := shared.inside(t, opener, answer); status != http.StatusAccepted {
			t.Errorf("status %d", status)
		}
	}
	shared.acknowledged.Add(1)
	for range times {
		send()
		shared.settled(t) // each in a round of its own
	}
	expect := func(how string, copies uint64) {
		t.Helper()
		acknowledged, aggregated, rejected, _ := gained(before, shared.settled(t))
		if n := shared.passedOn(t).Known - known; acknowledged != 1 || aggregated != 1 || len(rejected) > 0 || n != copies {
			t.Errorf("%s: acknowledged %d, aggregated %d, rejected %v, known to the gateway %d", how, acknowledged, aggregated, rejected, n)
		}
	}
	expect("one after the other", times-1)
	before, known = shared.settled(t), shared.passedOn(t).Known
	_, upload = report(t, shared.client(t, shared.manifest, nil))
	shared.acknowledged.Add(1)
	var senders sync.WaitGroup
	for range times {
		senders.Go(send)
	}
	senders.Wait()
	expect("at once", times-1)
	// A gateway of malice passes a report on again and again.
	before = shared.settled(t)
	for range times {
		shared.direct(t, upload)
		shared.settled(t) // each in an aggregation job of its own
	}
	acknowledged, aggregated, rejected, _ := gained(before, shared.settled(t))
	if acknowledged != times || aggregated != 0 || rejected[dap.ReportReplayed.String()] != times {
		t.Errorf("by the gateway: acknowledged %d, aggregated %d, rejected %v", acknowledged, aggregated, rejected)
	}
	// A relay has no report in the clear, only the id of the gateway's key.
	before = shared.settled(t)
	request, _ := seal(t, ohttp.NewKeyConfig(pair(t, shared.manifest.Gateway[0].ID)), upload)
	if reason, _ := post(t, shared.relay, "", request); reason != ohttp.ReasonSealed {
		t.Errorf("sealed to a key of the attacker's own: %q", reason)
	}
	shared.unchanged(t, before)
}

// direct brings an upload to the leader as the gateway does.
func (w *world) direct(t *testing.T, m *ohttp.Request) {
	t.Helper()
	resp, err := http.Post(m.Scheme+"://"+m.Authority+m.Path, m.Header[0].Value, bytes.NewReader(m.Content))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the leader answers with status %d", resp.StatusCode)
	}
	w.acknowledged.Add(1)
}

// TestRelayElsewhere: a relay pointed elsewhere by a device, by a manifest, or by whoever
// runs it.
func TestRelayElsewhere(t *testing.T) {
	before, heard := shared.settled(t), len(shared.heard["gateway"].Copy())
	c := shared.client(t, shared.manifest, nil)
	r, upload := report(t, c)
	request, _ := seal(t, shared.manifest.Gateway[0], upload)
	for _, where := range []string{"http://" + shared.leaderLocal + "/statusz", "/?to=http://" + shared.leaderLocal, "//x/", "/statusz"} {
		text := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", where, ohttp.RequestMedia, len(request), request)
		if reason := talk(t, shared.relay, text); reason != ohttp.ReasonPath {
			t.Errorf("by a device, to %s: %q", where, reason)
		}
	}
	if len(shared.heard["gateway"].Copy()) != heard {
		t.Error("the gateway heard of it")
	}
	// By what is inside: the gateway serves the leader's uploads and nothing else.
	for _, change := range []func(*ohttp.Request){
		func(m *ohttp.Request) { m.Authority = shared.leaderLocal },
		func(m *ohttp.Request) { m.Method, m.Path, m.Content = http.MethodGet, "/hpke_config", nil },
	} {
		m := *upload
		change(&m)
		request, opener := seal(t, shared.manifest.Gateway[0], &m)
		reason, answer := post(t, shared.relay, "", request)
		if reason != "" {
			t.Fatal(reason)
		}
		if status := shared.inside(t, opener, answer); status != http.StatusMisdirectedRequest {
			t.Errorf("by what is inside, %s %s: status %d", m.Method, m.Authority, status)
		}
	}
	// By a manifest: the device sees that the recipe names another relay, and tosses no
	// coin.
	elsewhere := with(func(m *ohttp.Manifest) { m.Relay = "http://127.0.0.1:9/" })
	var bad *participate.ManifestError
	if err := participate.CheckManifest(shared.recipe, elsewhere); !errors.As(err, &bad) || !errors.Is(err, participate.ErrManifest) {
		t.Errorf("by a manifest: %v", err)
	}
	// By whoever runs it: to a gateway of the attacker's, which has everything but the key.
	caught := make(chan []byte, 8)
	rogue := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		caught <- b
		w.Header().Set("Content-Type", ohttp.ResponseMedia)
		w.Write(make([]byte, 1200))
	}))
	defer rogue.Close()
	hijacked := shared.client(t, shared.manifest, redirect(rogue.Listener.Addr().String()))
	if _, err := hijacked.Upload(t.Context(), []dap.Report{r}); !errors.Is(err, ohttp.ErrSealed) {
		t.Errorf("by whoever runs it: %v", err)
	}
	if len(caught) != 1 {
		t.Fatalf("the attacker's gateway got %d requests", len(caught))
	}
	keys, err := ohttp.NewKeyring(pair(t, shared.manifest.Gateway[0].ID))
	if err != nil {
		t.Fatal(err)
	}
	e, err := keys.Split(<-caught)
	if err == nil {
		_, _, err = e.Open()
	}
	if !errors.Is(err, ohttp.ErrSealed) {
		t.Errorf("the attacker's gateway opens it: %v", err)
	}
	shared.unchanged(t, before)
}

// TestTriesPastTheGrace: a maker of manifests sets tries so far apart that the last of
// them come when their round is released, and are lost. Devices take no such manifest,
// before they pay; signers sign none (TestSignerAskedTwice).
func TestTriesPastTheGrace(t *testing.T) {
	late := with(func(m *ohttp.Manifest) { m.Every += time.Second })
	var sending *ohttp.SendingError
	if err := participate.CheckManifest(shared.recipe, late); !errors.Is(err, participate.ErrManifest) || !errors.As(err, &sending) ||
		sending.Grace != shared.recipe.Grace() || sending.Sending <= sending.Grace {
		t.Errorf("by its coins: %v", err)
	}
	if err := participate.CheckManifest(shared.recipe, shared.manifest); err != nil {
		t.Error(err)
	}
	via, err := ohttp.NewTransport(ohttp.TransportOptions{Source: ohttp.Pin(late)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{Prover: account.Prover, Recipe: shared.bytes, Via: via})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Refresh(t.Context()); !errors.As(err, &sending) {
		t.Errorf("without coins: %v", err)
	}
}

// redirect sends every request to another host.
type redirect string

func (to redirect) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = string(to)
	return http.DefaultTransport.RoundTrip(r)
}
