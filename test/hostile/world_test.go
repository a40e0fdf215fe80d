package hostile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/anonymity/gateway"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dap/daptest"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/internal/service/servicetest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/test/internal/recording"
)

// A world is a deployment of one recipe whose four services run, with an ear on all that
// reaches each of them. It is not the pair of package aggregator's tests, nor the world of
// test/sim: an attack is made on what an operator starts, so its services come from the
// files that package deploy writes and reads, with listeners and relay and gateway before
// them, and not from options. What all three play by hand, the messages of a task and the
// keys to them, is aggregatortest.Task.
type world struct {
	dir      string
	recipe   *recipe.Recipe
	bytes    []byte
	manifest *ohttp.Manifest

	relay, gateway string // host and port
	leaderLocal    string
	gatewayLocal   string
	relayLocal     string
	heard          map[string]*recording.Bytes // by party: bytes that came in from the network
	logs           map[string]*recording.Bytes
	leader, helper *deploy.Aggregator
	relayToken     string

	acknowledged atomic.Uint64 // reports, as far as the harness was told
	good         uint64        // those that settled has sent
}

// ear is a listener that keeps what its connections read.
type ear struct {
	net.Listener
	heard *recording.Bytes
}

type earConn struct {
	net.Conn
	heard *recording.Bytes
}

func (e ear) Accept() (net.Conn, error) {
	c, err := e.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return earConn{c, e.heard}, nil
}

func (c earConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.heard.Write(p[:n])
	return n, err
}

// options are a recipe of coins that needs few devices. Leader and Relay are filled in.
func options() account.Options {
	return account.Options{
		Name: "hostile", DAP: speaks, Query: recipe.Multihot{Length: 3, MaxWeight: 1}, BatchMode: dap.TimeInterval, MinBatch: 20, Grace: time.Second,
		Noise:         recipe.DiscreteGaussian{Variance: recipe.Rational{Num: 9, Den: 1}, Share: recipe.DrawsAll},
		Delta:         recipe.Decimal{Coefficient: 1, Scale: 6},
		Participation: recipe.Bernoulli{Rate: recipe.Rational{Num: 1, Den: 2}},
		Rate:          &recipe.Rate{Devices: 400, Units: 1},
		Dummies:       &recipe.Dummies{Rate: recipe.Rational{Num: 1, Den: 2}, Senders: 200, Allowance: 160},
		Rounds:        2,
	}
}

// begin starts a world in a directory, whose recipe names no signing keys: what a device
// would refuse by them goes further.
func begin(dir string, o account.Options) (w *world, stop func() error, err error) {
	return beginFor(dir, o, nil)
}

// beginFor starts a world whose recipe names the keys of owners, if there are any.
func beginFor(dir string, o account.Options, owners *deploy.Owners) (w *world, stop func() error, err error) {
	return beginWith(dir, o, owners, func(*service.Listen) {})
}

// beginWith starts a world whose public listeners are changed first.
func beginWith(dir string, o account.Options, owners *deploy.Owners, change func(*service.Listen)) (w *world, stop func() error, err error) {
	w = &world{dir: dir, heard: map[string]*recording.Bytes{}, logs: map[string]*recording.Bytes{}}
	a, err := deploy.Loopback()
	if err != nil {
		return nil, nil, err
	}
	f, err := deploy.LoopbackFront()
	if err != nil {
		return nil, nil, err
	}
	o.Leader, o.Helper = a.LeaderURL(), a.HelperURL()
	o.Relay = &recipe.Relay{URL: f.RelayURL(), Gateway: f.GatewayURL()}
	if owners != nil {
		if o.ServerKeys, err = owners.ServerKeys(true); err != nil {
			return nil, nil, err
		}
	}
	if w.recipe, err = account.New(o); err != nil {
		return nil, nil, err
	}
	if w.bytes, err = w.recipe.Append(nil); err != nil {
		return nil, nil, err
	}
	if err := deploy.CreateFor(dir, w.recipe, a, owners); err != nil {
		return nil, nil, err
	}
	if err := deploy.CreateFront(dir, w.recipe, f, time.Now(), 5*time.Millisecond); err != nil {
		return nil, nil, err
	}
	w.relay, w.gateway, w.leaderLocal = f.Relay.Addr().String(), f.Gateway.Addr().String(), a.LeaderLocal.Addr().String()
	w.gatewayLocal, w.relayLocal = f.GatewayLocal.Addr().String(), f.RelayLocal.Addr().String()
	b, err1 := os.ReadFile(filepath.Join(dir, deploy.ManifestFile))
	m, err2 := ohttp.ReadManifest(b)
	token, err3 := os.ReadFile(filepath.Join(dir, "secrets", "relay.token"))
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, nil, err
	}
	w.manifest, w.relayToken = m, string(bytes.TrimSpace(token))

	listen := func(party string, l net.Listener) net.Listener {
		w.heard[party] = &recording.Bytes{}
		return ear{l, w.heard[party]}
	}
	logger := func(party string) *slog.Logger {
		w.logs[party] = &recording.Bytes{}
		return service.NewLogger(w.logs[party], slog.LevelDebug)
	}
	if w.helper, err = deploy.LoadAggregator(filepath.Join(dir, deploy.HelperFile), dap.RoleHelper); err != nil {
		return nil, nil, err
	}
	if w.leader, err = deploy.LoadAggregator(filepath.Join(dir, deploy.LeaderFile), dap.RoleLeader); err != nil {
		return nil, nil, err
	}
	// so that the helper hears nothing that a test does not cause
	w.leader.CompareEvery = service.Duration(time.Hour)
	behind, err := deploy.LoadGateway(filepath.Join(dir, deploy.GatewayFile))
	if err != nil {
		return nil, nil, err
	}
	ahead, err := deploy.LoadRelay(filepath.Join(dir, deploy.RelayFile))
	if err != nil {
		return nil, nil, err
	}
	ahead.Limits.RequestBytes = 20_000
	for _, l := range []*service.Listen{&w.helper.Public, &w.leader.Public, &behind.Public, &ahead.Public} {
		change(l)
	}
	front, err := ahead.Parts(logger("relay"), deploy.Listeners{Public: listen("relay", f.Relay), Local: f.RelayLocal})
	if err != nil {
		return nil, nil, err
	}
	parts := slices.Concat(
		w.helper.Parts(logger("helper"), deploy.Listeners{Public: listen("helper", a.Helper), Local: a.HelperLocal}),
		w.leader.Parts(logger("leader"), deploy.Listeners{Public: listen("leader", a.Leader), Local: a.LeaderLocal}),
		behind.Parts(logger("gateway"), deploy.Listeners{Public: listen("gateway", f.Gateway), Local: f.GatewayLocal}),
		front)
	if stop, err = servicetest.Start(parts...); err != nil {
		return nil, nil, fmt.Errorf("the services did not start: %w", err)
	}
	return w, stop, w.compared()
}

// compared waits until the leader has compared itself with its helper, once for the world.
func (w *world) compared() error {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	late := time.After(time.Minute)
	for {
		resp, err := http.Get("http://" + w.leaderLocal + "/statusz")
		if err != nil {
			return err
		}
		var s status.Status
		err = json.NewDecoder(resp.Body).Decode(&s)
		resp.Body.Close()
		switch {
		case err != nil || len(s.Tasks) != 1:
			return fmt.Errorf("status of %d tasks: %w", len(s.Tasks), err)
		case s.Tasks[0].Agreement.State == status.Agreed:
			return nil
		}
		select {
		case <-ticker.C:
		case <-late:
			return fmt.Errorf("leader and helper do not agree: %+v", s.Tasks[0].Agreement)
		}
	}
}

// shared is the world in which attacks are played one after the other; each counts from
// what it finds.
var shared *world

// speaks is the draft of DAP in this pass.
var speaks dap.Version

func TestMain(m *testing.M) {
	plan := daptest.Plan{Dialects: []dap.Dialect{{Version: dap.Draft18}, {Version: dap.Draft19}}}
	code := daptest.Run(m, plan, pass)
	if err := stopVouched(); err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		code = 1
	}
	os.Exit(code)
}

// pass runs the tests in a world that speaks one draft.
func pass(d dap.Dialect, run func() int) int {
	speaks = d.Version
	dir, err := os.MkdirTemp("", "starling-hostile-")
	if err == nil {
		defer os.RemoveAll(dir)
		var stop func() error
		if shared, stop, err = begin(filepath.Join(dir, "world"), options()); err == nil {
			code := run()
			if err = stop(); err == nil {
				return code
			}
		}
	}
	fmt.Fprintln(os.Stderr, "hostile:", err)
	return 1
}

// status is the leader's.
func (w *world) status(t *testing.T) *status.Status {
	t.Helper()
	resp, err := http.Get("http://" + w.leaderLocal + "/statusz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	s := new(status.Status)
	if err := json.NewDecoder(resp.Body).Decode(s); err != nil || len(s.Tasks) != 1 {
		t.Fatalf("status %+v, %v", s, err)
	}
	return s
}

// passedOn waits until the gateway is done with all that it has acknowledged, but for what
// the leader has no task for, and returns its status.
func (w *world) passedOn(t *testing.T) *gateway.Status {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		resp, err := http.Get("http://" + w.gatewayLocal + "/statusz")
		if err != nil {
			t.Fatal(err)
		}
		s := new(gateway.Status)
		err = json.NewDecoder(resp.Body).Decode(s)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if s.Charged == s.Unknown {
			return s
		}
		select {
		case <-ticker.C:
		case <-t.Context().Done():
			t.Fatalf("not passed on: %+v", s)
		}
	}
}

// counts are the leader's, beside those of the harness at the same time.
type counts struct {
	status.Counts
	good uint64 // reports sent by settled
}

// settled sends one good report, waits until leader and helper have finished it and all
// that was acknowledged before, and returns the leader's counts, which lag behind what it
// acknowledges.
func (w *world) settled(t *testing.T) counts {
	t.Helper()
	c := w.client(t, w.manifest, nil)
	r, _ := report(t, c)
	w.upload(t, c, r)
	w.good++
	w.passedOn(t)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		s := w.status(t)
		c, done := s.Tasks[0].Counts, uint64(0)
		for _, n := range c.Rejected {
			done += n
		}
		if c.Acknowledged >= w.acknowledged.Load() && c.Waiting == 0 && done+c.Aggregated == c.Acknowledged {
			return counts{c, w.good}
		}
		select {
		case <-ticker.C:
		case <-t.Context().Done():
			t.Fatalf("not settled: %+v", c)
		}
	}
}

// tries are those of a client that has to be answered at once.
var tries = client.Tries{Count: 1, Every: 10 * time.Second}

// upload sends a report that the leader has to acknowledge, whatever becomes of it later.
func (w *world) upload(t *testing.T, c *client.Client, r dap.Report) {
	t.Helper()
	if refused, err := c.Upload(t.Context(), []dap.Report{r}); err != nil || len(refused) > 0 {
		t.Fatal(refused, err)
	}
	w.acknowledged.Add(1)
}

// gained says what came to the counts since before, but for the good reports of settled.
func gained(before, after counts) (acknowledged, aggregated uint64, rejected, refused map[string]uint64) {
	less := func(a, b map[string]uint64) map[string]uint64 {
		out := map[string]uint64{}
		for k, n := range a {
			if n -= b[k]; n > 0 {
				out[k] = n
			}
		}
		return out
	}
	good := after.good - before.good
	return after.Acknowledged - before.Acknowledged - good, after.Aggregated - before.Aggregated - good, less(after.Rejected, before.Rejected),
		less(after.Refused, before.Refused)
}

// unchanged fails the test unless the leader counts what it did before.
func (w *world) unchanged(t *testing.T, before counts) {
	t.Helper()
	if acknowledged, aggregated, rejected, refused := gained(before, w.settled(t)); acknowledged+aggregated > 0 || len(rejected)+len(refused) > 0 {
		t.Errorf("the leader acknowledged %d more, aggregated %d, rejected %v, refused %v", acknowledged, aggregated, rejected, refused)
	}
}

// client makes an honest device's client, which goes through the relay of a manifest.
func (w *world) client(t *testing.T, m *ohttp.Manifest, relay http.RoundTripper) *client.Client {
	t.Helper()
	via, err := ohttp.NewTransport(ohttp.TransportOptions{Source: ohttp.Pin(m), Relay: relay})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{Prover: account.Prover, Recipe: w.bytes, Via: via, Tries: tries})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// report makes an honest report and the request that uploads it.
func report(t *testing.T, c *client.Client) (dap.Report, *ohttp.Request) {
	t.Helper()
	r, err := c.Prepare(client.Vector([]uint64{0, 1, 0}), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return r, request(t, c.UploadURL(), r)
}

// request is the upload of reports as it travels inside of oblivious HTTP.
func request(t *testing.T, to *url.URL, reports ...dap.Report) *ohttp.Request {
	t.Helper()
	body, err := dap.AppendUploadRequest(nil, reports)
	if err != nil {
		t.Fatal(err)
	}
	return &ohttp.Request{Method: http.MethodPost, Scheme: to.Scheme, Authority: to.Host, Path: to.RequestURI(),
		Header: []ohttp.Field{{Name: "content-type", Value: dap.ContentType(dap.MediaUploadReq)}}, Content: body}
}

// seal encapsulates a request to a gateway's key.
func seal(t *testing.T, k ohttp.KeyConfig, m *ohttp.Request) ([]byte, *ohttp.ResponseOpener) {
	t.Helper()
	key, err := k.Choose()
	if err != nil {
		t.Fatal(err)
	}
	plain, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	b, opener, err := ohttp.Encapsulate(k.ID, key, ohttp.Pad(plain, ohttp.MinRequest))
	if err != nil {
		t.Fatal(err)
	}
	return b, opener
}

// post brings an encapsulated request to a door, with a token where the sender has one,
// and returns the reason of a refusal in the clear, or the answer.
func post(t *testing.T, address, token string, body []byte) (reason ohttp.Reason, answer []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", ohttp.RequestMedia)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return answerOf(t, func() (*http.Response, error) { return http.DefaultClient.Do(r) })
}

func answerOf(t *testing.T, do func() (*http.Response, error)) (ohttp.Reason, []byte) {
	t.Helper()
	resp, err := do()
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode == http.StatusOK {
		return "", b
	}
	var problem dap.Problem
	if err := json.Unmarshal(b, &problem); err != nil {
		t.Fatalf("status %d without a reason: %q", resp.StatusCode, b)
	}
	reason, ok := ohttp.ReasonOf(string(problem.Type))
	if !ok {
		t.Fatalf("status %d, type %q", resp.StatusCode, problem.Type)
	}
	return reason, b
}

// talk writes a request as it stands and reads the answer's reason.
func talk(t *testing.T, address, text string) ohttp.Reason {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go io.WriteString(c, text) // the server may answer and close before it has read all
	reason, _ := answerOf(t, func() (*http.Response, error) { return http.ReadResponse(bufio.NewReader(c), nil) })
	return reason
}

// inside opens a sealed answer and returns its status. It holds nothing else.
func (w *world) inside(t *testing.T, opener *ohttp.ResponseOpener, answer []byte) int {
	t.Helper()
	plain, err := opener.Open(answer)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ohttp.ReadResponse(plain, ohttp.MessageLimits{})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Content)+len(m.Header) > 0 {
		t.Errorf("the answer says more than its status: %v, %q", m.Header, m.Content)
	}
	return m.Status
}

// reasonOf is why relay or gateway refused what a client sent.
func reasonOf(err error) ohttp.Reason {
	if refused := new(ohttp.RefusedError); errors.As(err, &refused) {
		return refused.Reason
	}
	return ""
}
