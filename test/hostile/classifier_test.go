package hostile

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/gateway"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/relay"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/uploads"
	"github.com/starling-agg/starling/recipe/account"
)

// classified is how many devices TestClassifier has: docs/bench/ohttp.md has what 2,000
// gave.
var classified = flag.Int("classified", 200, "devices of each run of TestClassifier")

// trace is what who watches a device's network sees of it.
type trace struct {
	kind     kind
	requests int
	up, down int // bytes of bodies
	took     time.Duration
}

// watch counts what passes a device, which the context names.
type watch struct{ to http.RoundTripper }

func (w watch) RoundTrip(r *http.Request) (*http.Response, error) {
	x := r.Context().Value(deviceKey{}).(*trace)
	x.requests++
	x.up += int(r.ContentLength)
	resp, err := w.to.RoundTrip(r)
	if err == nil {
		x.down += int(resp.ContentLength)
	}
	return resp, err
}

// TestClassifier measures, over sockets and a real disk, what one sees who watches
// devices: how many requests each makes, how many bytes go up and down, and how long it
// takes, with servers that are up and that fail. No threshold on any of these tells
// devices that report from those that do not: the AUC is 0.5.
//
// Of n devices of each of two classes that are alike the AUC has the standard deviation
// sqrt((2n+1)/(12 n^2)), 0.041 for the 100 of either class here. The bound is 5.4 of
// them, which one of the 12 figures exceeds once in 10^6 runs where devices do not
// share their ticks, and less where they do.
func TestClassifier(t *testing.T) {
	up := func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }
	var asked atomic.Uint64
	fails := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		switch asked.Add(1) % 4 {
		case 0:
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(503)
		case 1:
			w.WriteHeader(429)
		case 2:
			w.Write(make([]byte, 1<<20))
		case 3:
			panic(http.ErrAbortHandler)
		}
	}
	var passed atomic.Uint64
	for _, c := range []struct {
		name   string
		leader http.HandlerFunc
		flaky  func(http.Handler) http.Handler
	}{
		{"all up", up, nil},
		{"the leader fails", fails, nil},
		{"the relay fails", up, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if passed.Add(1)%3 == 0 {
					panic(http.ErrAbortHandler)
				}
				next.ServeHTTP(w, r)
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			traces := watched(t, c.leader, c.flaky, *classified)
			sends := func(x *trace) bool { return x.kind == isReport || x.kind == isDummy }
			n := float64(len(traces)) / 2
			bound := 5.4 * math.Sqrt((2*n+1)/(12*n*n))
			for _, feature := range []struct {
				name string
				of   func(*trace) float64
			}{
				{"requests", func(x *trace) float64 { return float64(x.requests) }},
				{"bytes up", func(x *trace) float64 { return float64(x.up) }},
				{"bytes down", func(x *trace) float64 { return float64(x.down) }},
				{"time", func(x *trace) float64 { return float64(x.took) }},
			} {
				got := auc(traces, sends, feature.of)
				t.Logf("%d devices, %s: AUC %.3f by %s", len(traces), c.name, got, feature.name)
				if math.Abs(got-0.5) > bound {
					t.Errorf("by %s the AUC is %.3f, want 0.5 +- %.3f", feature.name, got, bound)
				}
			}
		})
	}
}

// auc is the probability that a value of the one class is above one of the other, ties
// counted half.
func auc(traces []*trace, class func(*trace) bool, of func(*trace) float64) float64 {
	sorted := slices.SortedFunc(slices.Values(traces), func(a, b *trace) int { return cmp.Compare(of(a), of(b)) })
	ranks, n := 0.0, 0
	for i := 0; i < len(sorted); {
		j := i
		for j < len(sorted) && of(sorted[j]) == of(sorted[i]) {
			j++
		}
		for _, x := range sorted[i:j] {
			if class(x) {
				ranks += float64(i+1+j) / 2
				n++
			}
		}
		i = j
	}
	m := len(sorted) - n
	return (ranks - float64(n)*float64(n+1)/2) / float64(n) / float64(m)
}

// watched lets devices send, as many of each kind, in an order drawn by a fixed seed and
// many at a time.
func watched(t *testing.T, leader http.HandlerFunc, flaky func(http.Handler) http.Handler, devices int) []*trace {
	t.Helper()
	keys, err := edgeKeys()
	if err != nil {
		t.Fatal(err)
	}
	recipeBytes, err := edgeRecipe()
	if err != nil {
		t.Fatal(err)
	}
	behind := httptest.NewServer(leader)
	defer behind.Close()
	fsys, err := disk.OS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{Keys: []gateway.Key{{Pair: keys[0]}}, FS: fsys, Record: disktest.NewMem(1), Protocol: uploads.DAP{},
		Targets: []gateway.Target{{URL: "https://leader.example/", Via: behind.URL + "/"}}, Window: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	inside := httptest.NewServer(g)
	defer func() {
		inside.Close()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		fsys.Close()
	}()
	r, err := relay.New(relay.Options{Gateway: inside.URL + "/", Limits: relay.Limits{Rate: relay.Rate{Requests: -1}}})
	if err != nil {
		t.Fatal(err)
	}
	var front http.Handler = r
	if flaky != nil {
		front = flaky(front)
	}
	outside := httptest.NewServer(front)
	defer outside.Close()
	now := time.Now().Truncate(time.Second)
	m := &ohttp.Manifest{
		Epoch: ohttp.EpochAt(now, ohttp.DefaultEpoch), Length: ohttp.DefaultEpoch, NotBefore: now.Add(-time.Second), NotAfter: now.Add(time.Hour),
		Relay: outside.URL + "/", Gateway: []ohttp.KeyConfig{ohttp.NewKeyConfig(keys[0])}, Tries: ohttp.MaxTries, Every: time.Second, Hold: ohttp.DefaultHold,
		Targets: []string{"https://leader.example/"},
	}
	for i, host := range []string{"leader", "helper"} {
		list, err := dap.HpkeConfigList{dap.NewHpkeConfig(keys[1+i])}.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		m.Pinned = append(m.Pinned, ohttp.Pinned{URL: "https://" + host + ".example/hpke_config",
			Media: dap.ContentType(dap.MediaHpkeConfigList), Body: list})
	}
	kinds := make([]kind, devices)
	for i := range kinds {
		kinds[i] = []kind{isReport, isNoOp, isDummy, isCover}[i%4]
	}
	order := rand.New(rand.NewPCG(1, 2))
	order.Shuffle(devices, func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	// connections are the lab's, not a device's
	shared := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	defer shared.CloseIdleConnections()
	via, err := ohttp.NewTransport(ohttp.TransportOptions{Source: ohttp.Pin(m), Relay: watch{shared}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{Prover: account.Prover, Recipe: recipeBytes, Via: via, AnyKeys: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	traces := make([]*trace, devices)
	var next atomic.Int64
	var all sync.WaitGroup
	for range 24 {
		all.Go(func() {
			for {
				i := int(next.Add(1) - 1)
				if i >= devices {
					return
				}
				x := &trace{kind: kinds[i]}
				traces[i] = x
				if err := x.send(ctx, c); err != nil {
					t.Errorf("%s: %v", x.kind, err)
				}
			}
		})
	}
	all.Wait()
	return traces
}

// send makes the unit of a device and sends it.
func (x *trace) send(ctx context.Context, c *client.Client) error {
	ctx = context.WithValue(ctx, deviceKey{}, x)
	v := client.NoValue()
	if x.kind == isReport {
		v = client.Vector([]uint64{0, 1, 0})
	}
	made, err := c.Prepare(v, time.Now())
	if err != nil {
		return err
	}
	begin := time.Now()
	if x.kind == isCover || x.kind == isNoOp {
		err = c.Cover(ctx, &made)
	} else {
		_, err = c.Upload(ctx, []dap.Report{made})
	}
	x.took = time.Since(begin)
	if gone := new(client.UnavailableError); errors.As(err, &gone) {
		return nil // a relay that fails each time: that is seen too, of all kinds
	}
	return err
}
