package aggregator_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/vdaf"
)

// tamper stands between leader and helper for aggregation jobs: it records the requests
// and changes the first answers.
type tamper struct {
	bodies  [][]byte
	answers []func(w http.ResponseWriter, real *httptest.ResponseRecorder)
	drop    bool // the first requests do not reach the helper
}

func (p *pair) tamper(x *tamper) {
	p.between(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !creates(r, "aggregation_jobs") {
				next.ServeHTTP(w, r)
				return
			}
			body := must(io.ReadAll(r.Body))
			x.bodies = append(x.bodies, body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			n := len(x.bodies) - 1
			if n >= len(x.answers) {
				next.ServeHTTP(w, r)
				return
			}
			rec := httptest.NewRecorder()
			if !x.drop {
				next.ServeHTTP(rec, r)
			}
			x.answers[n](w, rec)
		})
	})
}

func (p *pair) leaderTask() *status.Task {
	p.t.Helper()
	s, err := p.leader.Status(context.Background())
	if err != nil {
		p.t.Fatal(err)
	}
	for i := range s.Tasks {
		if s.Tasks[i].ID == p.id.Base64() {
			return &s.Tasks[i]
		}
	}
	p.t.Fatalf("no task %v among %d", p.id, len(s.Tasks))
	return nil
}

func plainStatus(code int) func(http.ResponseWriter, *httptest.ResponseRecorder) {
	return func(w http.ResponseWriter, _ *httptest.ResponseRecorder) { w.WriteHeader(code) }
}

// respond answers 201 with other bytes.
func respond(body func(real []byte) []byte) func(http.ResponseWriter, *httptest.ResponseRecorder) {
	return func(w http.ResponseWriter, real *httptest.ResponseRecorder) {
		w.Header().Set("Content-Type", dap.ContentType(dap.MediaAggregationJobResp))
		w.Header().Set("Location", real.Header().Get("Location"))
		w.WriteHeader(201)
		w.Write(body(real.Body.Bytes()))
	}
}

// TestLeaderReplaysSameBytes: whatever goes wrong with an answer, but a definite refusal,
// the job is sent again with the same bytes, and the helper's first commitment counts
// once.
func TestLeaderReplaysSameBytes(t *testing.T) {
	cut := func(w http.ResponseWriter, _ *httptest.ResponseRecorder) { panic(http.ErrAbortHandler) }
	for name, bad := range map[string]func(http.ResponseWriter, *httptest.ResponseRecorder){
		"connection lost":    cut,
		"500":                plainStatus(500),
		"503":                plainStatus(503),
		"429":                plainStatus(429),
		"408":                plainStatus(408),
		"redirect":           plainStatus(307),
		"undecodable":        respond(func(b []byte) []byte { return b[:len(b)-1] }),
		"trailing bytes":     respond(func(b []byte) []byte { return append(b, 0) }),
		"wrong media type":   func(w http.ResponseWriter, r *httptest.ResponseRecorder) { w.Write(r.Body.Bytes()) },
		"no usable deferral": func(w http.ResponseWriter, _ *httptest.ResponseRecorder) { w.WriteHeader(201) },
	} {
		for _, drop := range []bool{false, true} {
			if drop && name == "undecodable" {
				continue
			}
			if name == "no usable deferral" && speaks.Framing == dap.Janus {
				continue // the job is where the leader put it, so it need not be told
			}
			t.Run(name, func(t *testing.T) {
				p := newPair(t, setup{})
				x := &tamper{answers: []func(http.ResponseWriter, *httptest.ResponseRecorder){bad, bad}, drop: drop}
				p.tamper(x)
				p.accept(p.reports(12)...)
				for range 3 {
					p.step()
					p.clock.advance(2 * time.Hour / 10) // past any back-off
				}
				p.settled(12, nil)
				if c := p.helperCounts(); c.Aggregated != 12 || len(c.Rejected) > 0 {
					t.Errorf("helper: %+v", c)
				}
				if len(x.bodies) != 3 || !bytes.Equal(x.bodies[0], x.bodies[1]) || !bytes.Equal(x.bodies[0], x.bodies[2]) {
					t.Errorf("%d requests, and not of the same bytes", len(x.bodies))
				}
			})
		}
	}
}

func TestLeaderBacksOff(t *testing.T) {
	p := newPair(t, setup{})
	x := &tamper{answers: []func(http.ResponseWriter, *httptest.ResponseRecorder){plainStatus(500), plainStatus(500)}}
	p.tamper(x)
	p.accept(p.reports(1)...)
	p.step()
	p.step()
	if len(x.bodies) != 1 {
		t.Errorf("%d requests without a pause", len(x.bodies))
	}
	s := p.leaderTask()
	if len(s.Stuck) != 1 || s.Stuck[0].Quarantined || !strings.Contains(s.Stuck[0].Why, "500") {
		t.Errorf("stuck: %+v", s.Stuck)
	}
}

// TestLeaderReplaysAfterRestart: the job that was under way when the leader died is sent
// again with the same bytes.
func TestLeaderReplaysAfterRestart(t *testing.T) {
	p := newPair(t, setup{})
	x := &tamper{answers: []func(http.ResponseWriter, *httptest.ResponseRecorder){plainStatus(500)}}
	p.tamper(x)
	p.accept(append(p.reports(7), p.report(0, spoil{AAD: func(b []byte) []byte { return append(b, 1) }}))...)
	p.step()
	if err := p.leader.Close(); err != nil {
		t.Fatal(err)
	}
	p.startLeader()
	p.clock.advance(10 * time.Minute)
	p.settled(7, map[string]uint64{"hpke_decrypt_error": 1})
	if len(x.bodies) != 2 || !bytes.Equal(x.bodies[0], x.bodies[1]) {
		t.Errorf("%d requests, and not of the same bytes", len(x.bodies))
	}
}

// TestLeaderQuarantinesChangedRequest: bytes that cannot be built again are not replaced
// by others.
func TestLeaderQuarantinesChangedRequest(t *testing.T) {
	p := newPair(t, setup{})
	x := &tamper{answers: []func(http.ResponseWriter, *httptest.ResponseRecorder){plainStatus(500)}}
	p.tamper(x)
	p.accept(p.reports(3)...)
	p.step()
	if err := p.leader.Close(); err != nil {
		t.Fatal(err)
	}
	keys := map[uint8][vdaf.VerifyKeySize]byte{7: {1, 2, 3}}
	p.leaderOpt.Tasks[0].VerifyKeys, p.helperOpt.Tasks[0].VerifyKeys = keys, keys
	p.startLeader()
	p.helper.Close()
	p.startHelper()
	p.clock.advance(10 * time.Minute)
	p.settled(0, map[string]uint64{"report_dropped": 3})
	if len(x.bodies) != 1 {
		t.Errorf("%d requests", len(x.bodies))
	}
	if s := p.leaderTask(); len(s.Stuck) != 1 || !s.Stuck[0].Quarantined || status.Why(s)[0].Do == "" {
		t.Errorf("stuck: %+v", s.Stuck)
	}
}

func problemAnswer(typ dap.ProblemType, code int) func(http.ResponseWriter, *httptest.ResponseRecorder) {
	return func(w http.ResponseWriter, _ *httptest.ResponseRecorder) {
		w.Header().Set("Content-Type", dap.ProblemMedia)
		w.WriteHeader(code)
		w.Write(must((&dap.Problem{Type: typ, Status: code, Detail: "a stranger's text"}).MarshalJSON()))
	}
}

// TestLeaderParksRefusedJob: a definite refusal is not repeated, not hidden, and costs no
// report: the operator decides.
func TestLeaderParksRefusedJob(t *testing.T) {
	for _, drop := range []bool{false, true} {
		p := newPair(t, setup{})
		x := &tamper{answers: []func(http.ResponseWriter, *httptest.ResponseRecorder){problemAnswer(dap.ProblemInvalidMessage, 400)}, drop: true}
		p.tamper(x)
		p.accept(p.reports(4)...)
		p.step()
		s := p.leaderTask()
		if len(s.Stuck) != 1 || !s.Stuck[0].Parked || !strings.Contains(s.Stuck[0].Why, "invalidMessage") || s.Stuck[0].Reports != 4 || s.Counts.Waiting != 4 {
			t.Errorf("stuck: %+v, %+v", s.Stuck, s.Counts)
		}
		if why := status.Why(s); len(why) == 0 || !strings.Contains(why[0].Blocks, "invalidMessage") || !strings.Contains(why[0].Do, "starling task resume") {
			t.Errorf("why: %+v", why)
		}
		p.clock.advance(24 * time.Hour)
		p.step()
		if len(x.bodies) != 1 {
			t.Errorf("%d requests", len(x.bodies))
		}
		p.clock.advance(-24 * time.Hour)
		if p.resume(drop); drop {
			p.settled(0, map[string]uint64{"report_dropped": 4})
		} else {
			p.settled(4, nil)
		}
	}
}

// TestLeaderKeepsJobWhileMisconfigured: what an operator can mend is no reason to lose
// reports.
func TestLeaderKeepsJobWhileMisconfigured(t *testing.T) {
	p := newPair(t, setup{})
	x := &tamper{drop: true, answers: []func(http.ResponseWriter, *httptest.ResponseRecorder){
		problemAnswer("", 401), problemAnswer(dap.ProblemUnrecognizedTask, 404), plainStatus(403),
	}}
	p.tamper(x)
	p.accept(p.reports(4)...)
	for range 4 {
		p.step()
		p.clock.advance(2 * time.Hour)
	}
	p.settled(4, nil)
}

// TestLeaderDeletesFinishedJobs: a committed job is deleted at the helper; one that is
// not is not.
func TestLeaderDeletesFinishedJobs(t *testing.T) {
	p := newPair(t, setup{})
	var deleted, posted []string
	fail := true
	p.between(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rec := httptest.NewRecorder()
			next.ServeHTTP(rec, r)
			switch {
			case r.Method == http.MethodDelete && rec.Code == http.StatusNoContent:
				deleted = append(deleted, r.URL.Path)
			case creates(r, "aggregation_jobs"):
				loc, _, _ := strings.Cut(rec.Header().Get("Location"), "?")
				posted = append(posted, loc)
				if fail {
					fail = false
					w.WriteHeader(http.StatusBadGateway)
					return
				}
			}
			maps.Copy(w.Header(), rec.Header())
			w.WriteHeader(rec.Code)
			w.Write(rec.Body.Bytes())
		})
	})
	p.accept(p.reports(12)...)
	p.step()
	if len(posted) != 1 || len(deleted) != 0 {
		t.Fatalf("%d jobs, %d deleted before the leader has an answer", len(posted), len(deleted))
	}
	p.clock.advance(10 * time.Minute)
	p.settled(12, nil)
	if len(posted) != 2 || len(deleted) != 1 || posted[1] != deleted[0] {
		t.Errorf("jobs %q, deleted %q", posted, deleted)
	}
	if resp, _ := p.collect(p.query()); resp.ReportCount != 12 {
		t.Errorf("%d reports", resp.ReportCount)
	}
}

// TestLeaderReplayedReportIsNotSent: what was aggregated stays out of later jobs.
func TestLeaderReplayedReportIsNotSent(t *testing.T) {
	p := newPair(t, setup{})
	x := &tamper{}
	p.tamper(x)
	old := p.report(0, spoil{})
	p.accept(old)
	p.step()
	p.accept(old, p.report(1, spoil{}))
	p.settled(2, map[string]uint64{"report_replayed": 1})
	req := must(p.dialect.ReadAggregationJobInitReq(x.bodies[1]))
	if inits := must(dap.Collect(req.VerifyInits(nil))); len(inits) != 1 || inits[0].Metadata.ID == old.Metadata.ID {
		t.Errorf("%d reports in the second job", len(inits))
	}
}

// TestLeaderLeavesOutWhatItRefuses: and a job without any report is not sent.
func TestLeaderLeavesOutWhatItRefuses(t *testing.T) {
	p := newPair(t, setup{})
	x := &tamper{}
	p.tamper(x)
	bad := p.report(0, spoil{Report: func(r *dap.Report) { r.Leader.Payload[0] ^= 1 }})
	p.accept(bad)
	p.settled(0, map[string]uint64{"hpke_decrypt_error": 1})
	if len(x.bodies) != 0 {
		t.Error("an empty job was sent")
	}
	p.accept(p.report(0, spoil{Report: func(r *dap.Report) { r.Leader.Payload[0] ^= 1 }}), p.report(1, spoil{}))
	p.settled(1, map[string]uint64{"hpke_decrypt_error": 2})
	p.untouchedRejections()
}

func (p *pair) untouchedRejections() {
	p.t.Helper()
	if c := p.helperCounts(); len(c.Rejected) != 0 {
		p.t.Errorf("the helper saw what the leader had refused: %v", c.Rejected)
	}
}

func TestBothRejectByTheSameReason(t *testing.T) {
	p := newPair(t, setup{})
	p.accept(p.report(0, spoil{Report: func(r *dap.Report) { r.Helper.Payload[0] ^= 1 }}),
		p.report(1, spoil{Context: []byte("another application")}),
		p.report(2, spoil{Report: func(r *dap.Report) { r.Helper.ConfigID = 77 }}), p.report(3, spoil{}))
	want := map[string]uint64{"hpke_decrypt_error": 1, "vdaf_verify_error": 1, "hpke_unknown_config_id": 1}
	p.settled(1, want)
	if c := p.helperCounts(); !equalCounts(c.Rejected, want) {
		t.Errorf("helper: %v", c.Rejected)
	}
}

// TestLeaderRefusesFinishForPrio3: without the helper's message the leader cannot check,
// so it does not count.
func TestLeaderRefusesFinishForPrio3(t *testing.T) {
	for name, change := range map[string]func(*dap.VerifyResp){
		"finish":                  func(r *dap.VerifyResp) { r.Type, r.Payload = dap.Finish, nil },
		"another message":         func(r *dap.VerifyResp) { r.Payload[len(r.Payload)-1] ^= 1 },
		"ping-pong of next round": func(r *dap.VerifyResp) { r.Payload = vdaf.AppendPingPongContinue(nil, []byte("m"), []byte("s")) },
		"rubbish":                 func(r *dap.VerifyResp) { r.Payload = []byte{7} },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, setup{})
			p.tamper(&tamper{answers: []func(http.ResponseWriter, *httptest.ResponseRecorder){respond(func(b []byte) []byte {
				rs := must(dap.Collect(p.dialect.VerifyResps(b, nil)))
				change(&rs[1])
				return must(p.dialect.AppendVerifyResps(nil, rs))
			})}})
			p.accept(p.reports(3)...)
			p.settled(2, map[string]uint64{"vdaf_verify_error": 1})
		})
	}
}

// TestLeaderFollowsNoForeignLocation: only the id is taken from a Location, so that a
// token never leaves for another origin.
func TestLeaderFollowsNoForeignLocation(t *testing.T) {
	for _, base := range []string{"", "/a/b"} {
		p := newPair(t, setup{base: base, helper: func(o *helper.Options) { o.Deferred = helper.Always }})
		stranger := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the leader went to a stranger") }))
		defer stranger.Close()
		p.between(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				rec := httptest.NewRecorder()
				next.ServeHTTP(rec, r)
				for k, v := range rec.Header() {
					w.Header()[k] = v
				}
				if loc := rec.Header().Get("Location"); loc != "" {
					// As the text of the draft has it, without the base path; and on
					// another origin.
					w.Header().Set("Location", stranger.URL+strings.TrimPrefix(loc, base))
				}
				w.WriteHeader(rec.Code)
				w.Write(rec.Body.Bytes())
			})
		})
		p.accept(p.reports(12)...)
		for range 4 {
			p.step()
			p.clock.advance(2 * time.Minute)
		}
		p.settled(12, nil)
	}
}

// TestDeferredHelper: jobs and shares that the helper answers later, with and without
// patience.
func TestDeferredHelper(t *testing.T) {
	p := newPair(t, setup{helper: func(o *helper.Options) { o.Deferred = helper.Always }})
	p.accept(p.reports(20)...)
	q := p.query()
	a := p.ask(q)
	for range 6 {
		p.step()
		p.clock.advance(time.Minute)
	}
	got := p.poll(a.header.Get("Location"))
	if got.status != 200 || len(got.body) == 0 {
		t.Fatalf("collection: status %d", got.status)
	}
	if resp, _ := p.open(q, got.body); resp.ReportCount != 20 {
		t.Errorf("%d reports", resp.ReportCount)
	}
}

// TestRunningServices: the workers' own loops, with a patient leader and a helper that
// defers.
func TestRunningServices(t *testing.T) {
	p := newPair(t, setup{
		leader: func(o *leader.Options) {
			o.Patience, o.Poll, o.Idle, o.Latency = time.Minute, time.Millisecond, 5*time.Millisecond, time.Millisecond
		},
		helper: func(o *helper.Options) {
			o.Deferred, o.Poll, o.Idle = helper.Always, time.Millisecond, 5*time.Millisecond
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- p.leader.Run(ctx) }()
	go func() { done <- p.helper.Run(ctx) }()
	p.accept(p.reports(30)...)
	q := p.query()
	a := p.ask(q)
	var got answer
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		if got = p.poll(a.header.Get("Location")); len(got.body) > 0 {
			break
		}
	}
	if resp, _ := p.open(q, got.body); resp.ReportCount != 30 {
		t.Errorf("%d reports", resp.ReportCount)
	}
	cancel()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestLeaderKeepsItsLeaseWhileItAsks: a job whose verification took most of its lease is
// not claimed by another worker while the helper is asked.
func TestLeaderKeepsItsLeaseWhileItAsks(t *testing.T) {
	for _, again := range []bool{false, true} {
		p := newPair(t, setup{leader: func(o *leader.Options) { o.HelperTimeout, o.Lease = 20*time.Second, time.Minute }})
		requests, fail := 0, again
		p.between(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !creates(r, "aggregation_jobs") { // the end of the finished job, what the helper lacks
					next.ServeHTTP(w, r)
					return
				}
				requests++
				if fail {
					fail = false
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				p.clock.advance(15 * time.Second)
				if requests < 5 {
					if worked, err := p.leader.Step(context.Background()); worked || err != nil {
						t.Errorf("another worker took the job: %v, %v", worked, err)
					}
				}
				next.ServeHTTP(w, r)
			})
		})
		p.accept(p.reports(12)...)
		if again {
			p.step()
			p.clock.advance(time.Hour)
		}
		var slow atomic.Bool
		p.leaderFS.Inject(func(op disktest.Op, name string) error {
			if op == disktest.OpOpen && strings.HasPrefix(name, "inbox/") && !slow.Swap(true) {
				p.clock.advance(50 * time.Second) // in the verification
			}
			return nil
		})
		before := requests
		p.step()
		if !slow.Load() {
			t.Error("no file of reports was opened")
		}
		if requests != before+1 {
			t.Errorf("again %v: %d requests", again, requests-before)
		}
		p.settled(12, nil)
	}
}

// TestLeaderStopsAfterFailedSync: what a failed sync left on the disk only a restart can
// tell, so the service says that it is not ready, and ends instead of refusing uploads
// for ever.
func TestLeaderStopsAfterFailedSync(t *testing.T) {
	p := newPair(t, setup{leader: func(o *leader.Options) { o.Idle = time.Millisecond }})
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	go func() { done <- p.leader.Run(ctx) }()
	p.leaderFS.Inject(func(op disktest.Op, name string) error {
		if op == disktest.OpSync && strings.HasPrefix(name, "inbox/") {
			return errors.New("the disk is gone")
		}
		return nil
	})
	for range 2 {
		a := p.upload(p.reports(1)...)
		p.refused(a, "", http.StatusServiceUnavailable)
		if a.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	w := httptest.NewRecorder()
	if statusOf(p.leader).ServeHTTP(w, httptest.NewRequest("GET", "/status", nil)); w.Code != http.StatusServiceUnavailable {
		t.Errorf("status gives %d", w.Code)
	}
	if err := <-done; !errors.Is(err, disk.ErrSync) {
		t.Errorf("Run returned %v", err)
	}
	p.leaderFS.Inject(nil)
	if err := p.leader.Close(); err != nil {
		t.Log(err)
	}
	p.startLeader()
	p.accept(p.reports(1)...)
}
