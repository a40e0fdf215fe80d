package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	"github.com/starling-agg/starling/anonymity/gateway"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/relay"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/sealed"
)

// notes is a protocol of short notes, one a line.
type notes struct{}

func (notes) Task(string) ([32]byte, error) { return [32]byte{}, fmt.Errorf("no tasks") }
func (notes) Route(path, media string) (string, error) {
	if path != "notes" {
		return "", fmt.Errorf("no such path")
	}
	return "text/plain", nil
}
func (notes) Name(path string, body []byte) ([]byte, error) { return body, nil }
func (notes) Join(bodies [][]byte) [][]byte                 { return bodies }
func (notes) Refusals([][]byte, []byte) (map[string]uint64, error) {
	return nil, nil
}
func (notes) Final(status int, _ []byte) bool { return status == http.StatusBadRequest }
func (notes) Unknown(int, []byte) bool        { return false }
func (notes) Reasons() []string               { return nil }

// Relay and gateway between a device and a leader.
func Example() {
	came := make(chan struct{})
	leader := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note, _ := io.ReadAll(r.Body)
		fmt.Println("the leader gets", string(note), "from", r.UserAgent()+"nobody")
		close(came)
	}))
	defer leader.Close()

	key, _ := sealed.Generate(1, sealed.SuiteX25519)
	g, err := gateway.New(gateway.Options{
		Keys: []gateway.Key{{Pair: key}}, Targets: []gateway.Target{{URL: leader.URL + "/"}}, Protocol: notes{},
		FS: disktest.NewMem(1), Record: disktest.NewMem(2), Window: 50 * time.Millisecond,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go g.Run(ctx)
	inside := httptest.NewServer(g)
	defer inside.Close()

	r, err := relay.New(relay.Options{Gateway: inside.URL + "/"})
	if err != nil {
		fmt.Println(err)
		return
	}
	outside := httptest.NewServer(r)
	defer outside.Close()

	now := time.Now().Truncate(time.Second)
	transport, _ := ohttp.NewTransport(ohttp.TransportOptions{Source: ohttp.Pin(&ohttp.Manifest{
		Epoch: ohttp.EpochAt(now, ohttp.DefaultEpoch), Length: ohttp.DefaultEpoch, NotBefore: now, NotAfter: now.Add(time.Hour),
		Relay: outside.URL + "/", Gateway: []ohttp.KeyConfig{ohttp.NewKeyConfig(key)},
		Tries: ohttp.DefaultTries, Every: ohttp.DefaultEvery, Hold: ohttp.DefaultHold, Targets: []string{leader.URL + "/"},
	})})
	device := &http.Client{Transport: transport}
	u, _ := url.JoinPath(leader.URL, "notes")
	resp, err := device.Post(u, "text/plain", strings.NewReader("hello"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the device gets status", resp.StatusCode)
	<-came // later: no answer waits for the leader
	// Output:
	// the device gets status 202
	// the leader gets hello from nobody
}
