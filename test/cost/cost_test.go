package cost

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/aggregatortest"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/anonymity/gateway"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/uploads"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
)

const (
	leaderURL = "https://leader.example/v1/"
	helperURL = "https://helper.example/v1/"
	relayURL  = "https://relay.example/"
	block     = 512 // reports that the proofs are verified together
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// local carries requests to handlers in this process, by host.
type local map[string]http.Handler

func (l local) RoundTrip(r *http.Request) (*http.Response, error) {
	h := l[r.URL.Host]
	if h == nil {
		return nil, errors.New("nobody is at " + r.URL.Host)
	}
	w := httptest.NewRecorder()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

func (l local) Do(r *http.Request) (*http.Response, error) { return l.RoundTrip(r) }

// passing is the gateway's way to the leader, and says how long each request was that the
// leader took.
type passing struct {
	local
	took chan int64
}

func (p passing) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := p.local.RoundTrip(r)
	if err == nil && answer.StatusCode < 300 {
		p.took <- r.ContentLength
	}
	return answer, err
}

// caught keeps the requests that devices send to the relay.
type caught struct{ bodies [][]byte }

var errCaught = errors.New("caught")

func (c *caught) RoundTrip(r *http.Request) (*http.Response, error) {
	c.bodies = append(c.bodies, must(io.ReadAll(r.Body)))
	return nil, errCaught
}

// A bed is the three services and what is sent to them.
type bed struct {
	batch  int // reports of one round, a multiple of block
	vdaf   vdaf.VDAF
	answer client.Value
	*aggregatortest.Task
	door    *sealed.KeyPair // the gateway's
	client  *client.Client
	leader  *leader.Leader
	helper  *helper.Helper
	gateway *gateway.Gateway
	took    chan int64 // lengths of the requests that the leader took of the gateway

	reports  []dap.Report
	size     int64    // of their encodings
	requests [][]byte // of the relay to the gateway
}

func newBed(b testing.TB, batch int, q recipe.Query, v vdaf.VDAF, answer client.Value) *bed {
	x := &bed{batch: batch, vdaf: v, answer: answer, took: make(chan int64, block)}
	x.door = must(sealed.Generate(3, sealed.SuiteX25519))
	r := &recipe.Recipe{
		Name: "cost", Query: q, Randomizer: recipe.NoRandomizer{}, Participation: recipe.Always{},
		Path:  recipe.TwoServer{Leader: leaderURL, Helper: helperURL, BatchMode: dap.TimeInterval},
		Noise: recipe.NoNoise{}, Claim: recipe.NoClaim{}, MinBatch: 100, TimePrecision: 3600, Window: recipe.NoWindow{},
	}
	x.Task = must(aggregatortest.NewTask(must(r.Task()), dap.Standard))
	tasks := []aggregator.Task{x.Aggregator()}
	ctx := context.Background()
	fs := func() disk.FS {
		f := must(disk.OS(b.TempDir()))
		b.Cleanup(func() { f.Close() })
		return f
	}
	net := local{}
	x.helper = must(helper.New(ctx, helper.Options{Options: aggregator.Options{
		Base: helperURL, Tasks: tasks, Keys: must(sealed.NewKeyring(x.Helper)), FS: fs(), Record: fs(),
	}}))
	b.Cleanup(func() { x.helper.Close() })
	x.leader = must(leader.New(ctx, leader.Options{Options: aggregator.Options{
		Base: leaderURL, Tasks: tasks, Keys: must(sealed.NewKeyring(x.Leader)), FS: fs(), Record: fs(),
	}, Transport: net}))
	b.Cleanup(func() { x.leader.Close() })
	net["helper.example"], net["leader.example"] = x.helper.Handler(), x.leader.Handler()
	x.gateway = must(gateway.New(gateway.Options{
		Keys: []gateway.Key{{Pair: x.door}}, Targets: []gateway.Target{{URL: leaderURL}}, Protocol: uploads.DAP{},
		FS: fs(), Record: fs(), Window: 50 * time.Millisecond, Transport: passing{net, x.took},
	}))
	b.Cleanup(func() { x.gateway.Close() })
	running, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { x.gateway.Run(running) })
	b.Cleanup(func() { stop(); done.Wait() })
	x.client = must(client.New(client.Options{AnyKeys: true, Prover: account.Prover, Recipe: must(r.Append(nil)), MaxEpsilon: math.Inf(1), HTTP: net}))
	if err := x.client.Refresh(ctx); err != nil {
		b.Fatal(err)
	}
	return x
}

// prepare makes a batch of reports and their requests.
func (x *bed) prepare() {
	c := &caught{}
	now := time.Now().Truncate(time.Second)
	device := must(ohttp.NewTransport(ohttp.TransportOptions{Relay: c, Source: ohttp.Pin(&ohttp.Manifest{
		Epoch: ohttp.EpochAt(now, ohttp.DefaultEpoch), Length: ohttp.DefaultEpoch, NotBefore: now, NotAfter: now.Add(time.Hour),
		Relay: relayURL, Gateway: []ohttp.KeyConfig{ohttp.NewKeyConfig(x.door)}, Tries: 1, Every: time.Second, Hold: ohttp.DefaultHold, Targets: []string{leaderURL},
	})}))
	u := must(url.Parse(leaderURL)).JoinPath(dap.CreationPath(x.ID, dap.ReportsResource)).String()
	x.reports, x.size = make([]dap.Report, x.batch), 0
	for i := range x.reports {
		rep := must(x.client.Prepare(x.answer, time.Now()))
		x.reports[i] = rep
		body := must(dap.AppendUploadRequest(nil, []dap.Report{rep}))
		x.size += int64(len(body))
		r := must(http.NewRequest(http.MethodPost, u, bytes.NewReader(body)))
		r.Header.Set("Content-Type", dap.ContentType(dap.MediaUploadReq))
		if _, err := device.RoundTrip(r); !errors.Is(err, errCaught) {
			panic(err)
		}
	}
	x.requests = c.bodies
}

// serve takes the batch through the three services.
func (x *bed) serve(b testing.TB, before uint64) {
	var devices sync.WaitGroup
	var failed atomic.Pointer[httptest.ResponseRecorder]
	for _, body := range x.requests {
		devices.Go(func() {
			r := &http.Request{
				Method: http.MethodPost, URL: &url.URL{Path: "/"}, Header: http.Header{"Content-Type": {ohttp.RequestMedia}},
				Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
			}
			w := httptest.NewRecorder()
			if x.gateway.ServeHTTP(w, r); w.Code != http.StatusOK {
				failed.Store(w)
			}
		})
	}
	devices.Wait()
	if w := failed.Load(); w != nil {
		b.Fatalf("gateway: status %d %s", w.Code, w.Body)
	}
	for left := x.size; left > 0; { // the gateway answers before the leader hears anything
		left -= <-x.took
	}
	must(x.leader.Step(b.Context()))
	s := must(x.leader.Status(b.Context()))
	if c := s.Tasks[0].Counts; c.Aggregated != before+uint64(x.batch) || c.Waiting > 0 {
		b.Fatalf("%+v after %d reports", c, before+uint64(x.batch))
	}
}

// parts are what no implementation can leave out, one after the other, in microseconds a
// report.
type parts struct{ outer, inner, checks, proof float64 }

func (p parts) sum() float64 { return p.outer + p.inner + p.checks + p.proof }

func (x *bed) primitives() (p parts) {
	ring := must(ohttp.NewKeyring(x.door))
	messages := make([][]byte, x.batch)
	p.outer = x.timed(func() {
		for i, body := range x.requests {
			messages[i], _ = must2(must(ring.Split(body)).Open())
		}
	})
	var protocol uploads.DAP
	p.checks = x.timed(func() {
		for _, m := range messages {
			r := must(ohttp.ReadRequest(m, ohttp.MessageLimits{}))
			must(protocol.Name(strings.TrimPrefix(r.Path, "/v1/"), r.Content))
			reports := must(dap.Collect(dap.Reports(r.Content, nil))) // by the leader, as it came and as it is aggregated
			must(dap.ReadReport(reports[0].Bytes()))
		}
	})
	in := [2]*vdaf.Reports{}
	for role := range in {
		in[role] = &vdaf.Reports{Nonces: make([][16]byte, x.batch), Public: make([][]byte, x.batch), Inputs: make([][]byte, x.batch)}
	}
	p.inner = x.timed(func() {
		for i := range x.reports {
			rep := &x.reports[i]
			aad := dap.InputShareAAD(x.ID, x.Config.Bytes(), &rep.Metadata, rep.PublicShare)
			for side, ct := range []*dap.HpkeCiphertext{&rep.Leader, &rep.Helper} {
				role := []dap.Role{dap.RoleLeader, dap.RoleHelper}[side]
				plain := must([]*sealed.KeyPair{x.Leader, x.Helper}[side].Open(ct.Enc, x.Config.Version.InputShareInfo(role), aad, ct.Payload))
				in[side].Nonces[i], in[side].Public[i] = rep.Metadata.ID, rep.PublicShare
				in[side].Inputs[i] = must(dap.ReadPlaintextInputShare(plain)).Payload
			}
		}
	})
	states := [2]vdaf.State{x.vdaf.NewState(block), x.vdaf.NewState(block)}
	sums := [2]*vdaf.AggShare{x.vdaf.NewAggShare(), x.vdaf.NewAggShare()}
	size, context := x.vdaf.Sizes(), x.Config.Version.VDAFContext(x.ID)
	shares := [][]byte{make([]byte, block*size.VerifierShare), make([]byte, block*size.VerifierShare)}
	msgs := make([]byte, block*size.VerifierMessage)
	p.proof = x.timed(func() {
		for lo := 0; lo < x.batch; lo += block {
			errs := make([]error, block)
			for side := range 2 {
				some := &vdaf.Reports{
					Nonces: in[side].Nonces[lo : lo+block], Public: in[side].Public[lo : lo+block], Inputs: in[side].Inputs[lo : lo+block],
				}
				x.vdaf.VerifyInit(states[side], &x.VerifyKey, context, side, some, shares[side], errs)
			}
			x.vdaf.Combine(context, shares, msgs, errs)
			for side := range 2 {
				x.vdaf.Check(states[side], msgs, errs)
				x.vdaf.Accumulate(states[side], nil, nil, sums[side:side+1], errs)
			}
			if err := errors.Join(errs...); err != nil {
				panic(err)
			}
		}
	})
	return p
}

func must2[T, U any](v T, u U, err error) (T, U) { return must(v, err), u }

// timed is the processor time, of all threads and of the kernel too, that f takes a
// report, in microseconds.
func (x *bed) timed(f func()) float64 {
	before := spent()
	f()
	return float64(spent()-before) / float64(time.Microsecond) / float64(x.batch)
}

func spent() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkReport takes a batch of reports through all services; an operation is a batch.
func BenchmarkReport(b *testing.B) {
	for _, c := range []struct {
		name   string
		query  recipe.Query
		vdaf   vdaf.VDAF
		answer client.Value
	}{
		{"histogram-16", recipe.Histogram{Length: 16, Chunk: 4}, must(prio3.NewHistogram(2, 16, 4)), client.Bucket(3)},
		{"histogram-1024", recipe.Histogram{Length: 1024, Chunk: 32}, must(prio3.NewHistogram(2, 1024, 32)), client.Bucket(3)},
	} {
		b.Run(c.name, func(b *testing.B) {
			x := newBed(b, 2048, c.query, c.vdaf, c.answer)
			var services float64
			var p parts
			rounds := 0
			for b.Loop() {
				b.StopTimer()
				x.prepare()
				runtime.GC() // what the devices left behind is not for the services to collect
				b.StartTimer()
				services += x.timed(func() { x.serve(b, uint64(rounds*x.batch)) })
				b.StopTimer()
				q := x.primitives()
				p.outer, p.inner, p.checks, p.proof = p.outer+q.outer, p.inner+q.inner, p.checks+q.checks, p.proof+q.proof
				rounds++
				b.StartTimer()
			}
			n := float64(rounds)
			b.ReportMetric(services/n, "us-services/report")
			b.ReportMetric(p.sum()/n, "us-primitives/report")
			b.ReportMetric(p.outer/n, "us-outer-open/report")
			b.ReportMetric(p.inner/n, "us-inner-opens/report")
			b.ReportMetric(p.checks/n, "us-checks/report")
			b.ReportMetric(p.proof/n, "us-proof/report")
			b.ReportMetric(services/p.sum(), "ratio")
			b.ReportMetric(float64(len(x.requests[0])), "bytes/request")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// TestCost: the benchmark's services take what its devices send, and the primitives find
// it good.
func TestCost(t *testing.T) {
	x := newBed(t, block, recipe.Count{}, must(prio3.NewCount(2)), client.Bool(true))
	x.prepare()
	x.serve(t, 0)
	x.primitives()
}
