package hop_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/gateway"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/relay"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/uploads"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/shuffle/analyzer"
	"github.com/starling-agg/starling/shuffle/onion"
)

// TestThroughGateway: devices' envelopes come to hop 1 by way of a relay and a gateway,
// which joins them and passes each on once; a device hears the gateway's constant,
// whatever is in its request.
func TestThroughGateway(t *testing.T) {
	b := newBench(t, false, 1)
	clock := &setClock{}
	b.clock = clock
	b.mustRun()
	defer b.stopAll()
	came, done := make(chan struct{}, 100), make(chan struct{}, 1)
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.place(onion.First).s.ServeHTTP(w, r)
		came <- struct{}{}
	}))
	b.tallyWith(func(x *analyzer.Batch) ([]byte, error) {
		defer func() { done <- struct{}{} }()
		return tallyAll(x)
	})
	defer inside.Close()
	target := inside.URL + "/"

	key, err := sealed.Generate(1, sealed.SuiteX25519)
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{Keys: []gateway.Key{{Pair: key}}, Targets: []gateway.Target{{URL: target, Token: fromGateway}}, Protocol: uploads.Both{},
		FS: disktest.NewMem(1), Record: disktest.NewMem(2), Window: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- g.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	}()
	middle := httptest.NewServer(g)
	defer middle.Close()
	r, err := relay.New(relay.Options{Gateway: middle.URL + "/"})
	if err != nil {
		t.Fatal(err)
	}
	outside := httptest.NewServer(r)
	defer outside.Close()
	now := time.Now().Truncate(time.Second)
	transport, err := ohttp.NewTransport(ohttp.TransportOptions{Source: ohttp.Pin(&ohttp.Manifest{
		Epoch: ohttp.EpochAt(now, ohttp.DefaultEpoch), Length: ohttp.DefaultEpoch, NotBefore: now, NotAfter: now.Add(time.Hour),
		Relay: outside.URL + "/", Gateway: []ohttp.KeyConfig{ohttp.NewKeyConfig(key)},
		Tries: ohttp.DefaultTries, Every: ohttp.DefaultEvery, Hold: ohttp.DefaultHold, Targets: []string{target},
	})})
	if err != nil {
		t.Fatal(err)
	}
	device := &http.Client{Transport: transport}
	n := b.round()
	envelopes := b.envelopes(n, 0, 8)
	bad := bytes.Clone(envelopes[0])
	bad[70] ^= 1
	var all sync.WaitGroup
	for _, e := range append(envelopes, envelopes[3], bad) {
		all.Go(func() {
			resp, err := device.Post(target+onion.ContributionsPath(b.s.Recipe), onion.ContributionsMedia, bytes.NewReader(e))
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			if resp.StatusCode != 202 {
				t.Errorf("status %d", resp.StatusCode)
			}
		})
	}
	all.Wait()
	for b.recipeStatus(onion.First).Requests["taken"] < 9 {
		<-came
	}
	clock.ahead.Store(int64(time.Until(b.s.Flush(n)) + time.Second))
	<-done
	b.stop(b.place(onion.Analyzer)) // when it has ended the round
	if err := b.run(b.place(onion.Analyzer)); err != nil {
		t.Fatal(err)
	}
	b.holdDevices(n, upTo(8)...)
	if c := b.result(n); c == nil || c.Counts != (onion.Counts{Contributions: 8, Messages: 24, Refused: 1}) {
		t.Errorf("%+v", c)
	}
	if again := b.recipeStatus(onion.First).Requests["again"]; again != 0 {
		t.Errorf("%d came twice", again) // the gateway knows them
	}
}
