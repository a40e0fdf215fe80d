package hostile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/admission"
	"github.com/starling-agg/starling/anonymity/gateway"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/relay"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/uploads"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
)

// An edge is devices, a relay and a gateway as they are, with all time from a fake clock,
// a disk that power cuts reach, a leader that follows a script, and an ear on every
// connection between them. It lives in a bubble ([testing/synctest]).
type edge struct {
	t      *testing.T
	begin  time.Time
	o      gateway.Options
	pair   *sealed.KeyPair
	m      *ohttp.Manifest
	client *client.Client
	via    *ohttp.Transport
	tokens map[string]string // of the devices that show the gateway one
	plan   *participate.Plan
	relay  *relay.Relay
	script script
	points *disk.Failpoints
	point  string // at which the gateway is killed, or empty

	mu        sync.Mutex // guards the rest
	heard     []string
	asked     []asking // what the leader heard
	gateway   *gateway.Gateway
	relayDown bool
	lives     sync.WaitGroup
	stopped   bool
	restarted bool // its next end is one in order, and not the last
	stop      context.CancelFunc
}

// asking is a request that the leader got.
type asking struct {
	at   time.Duration
	ids  []dap.ReportID
	body []byte
}

// script is what a leader does with the n-th request, from 1, in which those reports are.
type script func(ctx context.Context, since time.Duration, n, reports int) (status int, header http.Header, body []byte)

// edgeRecipe is made once: its certificate takes a second.
var edgeRecipe = sync.OnceValues(func() ([]byte, error) {
	o := options()
	o.Cover, o.Grace = &recipe.Cover{Rate: recipe.Rational{Num: 1, Den: 1}}, recipe.DefaultGrace
	o.Leader, o.Helper = "https://leader.example/", "https://helper.example/"
	o.Relay = &recipe.Relay{URL: "https://relay.example/", Gateway: "https://gateway.leader.example/"}
	r, err := account.New(o)
	if err != nil {
		return nil, err
	}
	return r.Append(nil)
})

// edgeKeys are the keys of gateway, leader and helper.
var edgeKeys = sync.OnceValues(func() (keys [3]*sealed.KeyPair, err error) {
	for i := range keys {
		if keys[i], err = sealed.Generate(uint8(1+i), sealed.SuiteX25519); err != nil {
			return keys, err
		}
	}
	return keys, nil
})

// newEdge starts relay and gateway. Zero options take what suits a test.
func newEdge(t *testing.T, o gateway.Options, s script) *edge {
	t.Helper()
	recipeBytes, err := edgeRecipe()
	if err != nil {
		t.Fatal(err)
	}
	keys, err := edgeKeys()
	if err != nil {
		t.Fatal(err)
	}
	e := &edge{t: t, begin: time.Now().Truncate(time.Minute), o: o, pair: keys[0], script: s, points: new(disk.Failpoints)}
	e.o.FS, e.o.Failpoints, e.o.Protocol, e.o.Transport = disktest.NewMem(1), e.points, uploads.DAP{}, leaderEnd{e}
	e.o.Targets = []gateway.Target{{URL: "https://leader.example/"}}
	if e.o.Keys == nil {
		e.o.Keys = []gateway.Key{{Pair: e.pair}}
	}
	var configs []ohttp.KeyConfig
	for _, k := range e.o.Keys {
		configs = append(configs, ohttp.NewKeyConfig(k.Pair))
	}
	e.m = &ohttp.Manifest{
		Epoch: ohttp.EpochAt(e.begin, ohttp.DefaultEpoch), Length: ohttp.DefaultEpoch, NotBefore: e.begin.Add(-time.Hour),
		NotAfter: e.begin.Add(5 * 24 * time.Hour), Relay: "https://relay.example/", Gateway: configs,
		Tries: ohttp.DefaultTries, Every: ohttp.DefaultEvery, Hold: ohttp.DefaultHold, Targets: []string{"https://leader.example/"},
	}
	for i, host := range []string{"leader", "helper"} {
		list, err := dap.HpkeConfigList{dap.NewHpkeConfig(keys[1+i])}.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		e.m.Pinned = append(e.m.Pinned, ohttp.Pinned{URL: "https://" + host + ".example/hpke_config",
			Media: dap.ContentType(dap.MediaHpkeConfigList), Body: list})
	}
	if e.relay, err = relay.New(relay.Options{Gateway: "https://gateway.leader.example/", Transport: tap{e, "relay", e.gatewayEnd}}); err != nil {
		t.Fatal(err)
	}
	if e.via, err = ohttp.NewTransport(ohttp.TransportOptions{Source: ohttp.Pin(e.m), Relay: tap{e, "", e.relayEnd}}); err != nil {
		t.Fatal(err)
	}
	if e.client, err = client.New(client.Options{Prover: account.Prover, Recipe: recipeBytes, Via: showing{e.via, e}, AnyKeys: true}); err != nil {
		t.Fatal(err)
	}
	for _, a := range e.o.Admission {
		a.Keys.Task, _ = e.client.Task()
	}
	if err := e.client.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.plan, err = participate.NewPlan(participate.PlanOptions{Client: e.client})
	if err != nil {
		t.Fatal(err)
	}
	e.live()
	time.Sleep(time.Until(e.begin.Add(time.Minute))) // so that all runs begin at the same place between ticks
	e.begin = time.Now()
	return e
}

// showing is the way of devices, whose requests show what stands in the edge's tokens, be
// it a token or not.
type showing struct {
	*ohttp.Transport
	e *edge
}

func (s showing) Do(r *http.Request) (*http.Response, error) {
	if name, ok := r.Context().Value(deviceKey{}).(string); ok && s.e.tokens[name] != "" {
		r.Header.Set(admission.Field, s.e.tokens[name])
	}
	return s.Transport.Do(r)
}

// live runs the gateway, and again five seconds after each of its deaths or restarts, from
// what its disk then holds.
func (e *edge) live() {
	e.o.Record = disk.Sub(e.o.FS, "record")
	g, err := gateway.New(e.o)
	if err != nil {
		e.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	e.mu.Lock()
	e.gateway, e.stop = g, stop
	e.mu.Unlock()
	e.lives.Go(func() {
		err := g.Run(ctx)
		e.mu.Lock()
		e.gateway = nil
		over, again := e.stopped, e.restarted
		e.restarted = false
		e.mu.Unlock()
		if closed := g.Close(); closed != nil && err == nil {
			e.t.Error(closed)
		}
		if over || err == nil && !again {
			return
		}
		if err != nil && !errors.Is(err, disktest.ErrPowerLoss) {
			e.t.Error(err)
		}
		e.o.FS = e.o.FS.(*disktest.Mem).Crash()
		time.Sleep(5 * time.Second)
		e.live()
	})
}

// restart stops the gateway in order, as SIGTERM does.
func (e *edge) restart() {
	e.mu.Lock()
	e.restarted = true
	stop := e.stop
	e.mu.Unlock()
	stop()
}

// kill arms a point at which the gateway loses its power, once.
func (e *edge) kill(point string) {
	e.point = point
	e.points.Arm(point, 0, func() error {
		e.points.Disarm(point)
		e.o.FS.(*disktest.Mem).Cut()
		return disktest.ErrPowerLoss
	})
}

// end stops the gateway and returns what was heard on all edges, sorted: who hears one
// connection knows its order, and the order of connections at one instant is nobody's.
func (e *edge) end() []string {
	e.mu.Lock()
	e.stopped = true
	stop := e.stop
	e.mu.Unlock()
	stop()
	e.lives.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	slices.Sort(e.heard)
	return e.heard
}

// hear notes what passes an edge, or what a device is told.
func (e *edge) hear(where, format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = append(e.heard, fmt.Sprintf("%12s %-8s %s", time.Since(e.begin), where, fmt.Sprintf(format, args...)))
}

func (e *edge) gatewayEnd() http.Handler {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gateway == nil {
		return nil
	}
	return e.gateway
}

func (e *edge) relayEnd() http.Handler {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.relayDown {
		return nil
	}
	return e.relay
}

// relayIs lets the relay be down or up again.
func (e *edge) relayIs(down bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.relayDown = down
}

// tap is one side of a connection with an ear on it. Of ciphertexts it notes the length.
type tap struct {
	e     *edge
	where string // or the device's name, from the context
	to    func() http.Handler
}

type deviceKey struct{}

var errNoConnection = errors.New("connection refused")

func (t tap) RoundTrip(r *http.Request) (*http.Response, error) {
	where := t.where
	if where == "" {
		where, _ = r.Context().Value(deviceKey{}).(string)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	t.e.hear(where, "> %s %s %s, %d bytes", r.Method, r.URL, headerText(r.Header), len(body))
	h := t.to()
	if h == nil {
		t.e.hear(where, "< no connection")
		return nil, errNoConnection
	}
	inner := httptest.NewRequestWithContext(r.Context(), r.Method, "/", bytes.NewReader(body))
	inner.Header = r.Header.Clone()
	w, done := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(done)
		h.ServeHTTP(w, inner)
	}()
	select {
	case <-done:
	case <-r.Context().Done():
		t.e.hear(where, "> hangs up")
		return nil, r.Context().Err()
	}
	said := fmt.Sprintf("%d bytes", w.Body.Len())
	if w.Code != http.StatusOK {
		said = w.Body.String()
	}
	t.e.hear(where, "< %d %s %s", w.Code, headerText(w.Result().Header), said)
	return w.Result(), nil
}

func headerText(h http.Header) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h)) {
		fmt.Fprintf(&b, "%s=%q ", name, h[name])
	}
	return strings.TrimSpace(b.String())
}

// leaderEnd is the leader.
type leaderEnd struct{ e *edge }

func (l leaderEnd) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	q := asking{at: time.Since(l.e.begin), body: body}
	for report, err := range dap.Reports(body, nil) {
		if err != nil {
			return nil, err
		}
		q.ids = append(q.ids, report.Metadata.ID)
	}
	l.e.mu.Lock()
	l.e.asked = append(l.e.asked, q)
	n := len(l.e.asked)
	l.e.mu.Unlock()
	status, header, answer := l.e.script(r.Context(), q.at, n, len(q.ids))
	if status == 0 {
		return nil, errNoConnection
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if header == nil {
		header = http.Header{}
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(bytes.NewReader(answer))}, nil
}

// kind is what a device sends.
type kind string

const (
	isReport kind = "report"
	isDummy  kind = "dummy"
	isNoOp   kind = "no-op"
	isCover  kind = "cover" // not of a coin, but by [client.Client.Cover]
)

// device has a device of that name send a unit of a kind at a time, as its own coins say:
// it decides, with a ledger that is new, until they say that.
func (e *edge) device(name string, k kind, at time.Duration) (sent func()) {
	e.t.Helper()
	ctx := context.WithValue(e.t.Context(), deviceKey{}, name)
	send := func() error {
		like, err := e.client.Prepare(client.NoValue(), time.Now())
		if err != nil {
			return err
		}
		return e.client.Cover(ctx, &like)
	}
	for k != isCover {
		ledger, err := participate.MemoryLedger(participate.LedgerOptions{MaxEpsilon: math.Inf(1), MaxDelta: 1})
		if err != nil {
			e.t.Fatal(err)
		}
		d, err := (&participate.Device{Ledger: ledger}).Decide(e.t.Context(), e.plan, client.Vector([]uint64{0, 1, 0}), time.Now())
		if err != nil {
			e.t.Fatal(err)
		}
		var said participate.Tally
		said.Add(d)
		if got := map[kind]uint64{isReport: said.Reports(), isDummy: said.Dummies(), isNoOp: said.NoOps()}[k]; got == 1 {
			send = func() error { return d.Send(ctx) }
			break
		}
	}
	var done sync.WaitGroup
	done.Go(func() {
		time.Sleep(time.Until(e.begin.Add(at)))
		if err := send(); err != nil {
			e.hear(name, "is told %v", err)
			return
		}
		e.hear(name, "is told that it was taken")
	})
	return done.Wait
}

// once fails the test unless each report came to the leader in one batch: in one request,
// always of the same bytes, or in halves of that.
func (e *edge) once() {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	first := map[dap.ReportID][]byte{}
	for _, q := range e.asked {
		for _, id := range q.ids {
			if first[id] == nil {
				first[id] = q.body
			} else if !bytes.Contains(first[id], q.body) {
				e.t.Errorf("a report came to the leader in a second batch")
			}
		}
	}
}
