package aggregator_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/vdaf"
)

// TestUndecodableShares: what the client sealed and the VDAF cannot decode is
// invalid_message on both sides; what the leader sent stays vdaf_verify_error.
func TestUndecodableShares(t *testing.T) {
	p := newPair(t, setup{})
	of := func(role dap.Role, change func([]byte) []byte) dap.Report {
		return p.report(0, spoil{Plain: func(r dap.Role, s *dap.PlaintextInputShare) {
			if r == role {
				s.Payload = change(bytes.Clone(s.Payload))
			}
		}})
	}
	long := func(b []byte) []byte { return append(b, 0) }
	short := func(b []byte) []byte { return b[:len(b)-1] }
	unreduced := func(b []byte) []byte { copy(b, bytes.Repeat([]byte{0xff}, 16)); return b }
	p.perReport(of(dap.RoleHelper, long), dap.InvalidMessage, nil)
	p.perReport(of(dap.RoleHelper, short), dap.InvalidMessage, nil)
	p.perReport(p.report(0, spoil{Share: func(s *vdaf.Shares) { s.Public = s.Public[:3] }}), dap.InvalidMessage, nil)
	p.perReport(p.report(0, spoil{}), dap.VDAFVerifyError, func(v *dap.VerifyInit) {
		v.Payload = vdaf.AppendPingPongInitialize(nil, unreduced(make([]byte, p.vdaf.Sizes().VerifierShare)))
	})
	p.accept(of(dap.RoleLeader, long), of(dap.RoleLeader, short), of(dap.RoleLeader, unreduced), p.report(1, spoil{}))
	p.settled(1, map[string]uint64{"invalid_message": 3})
}

// TestHelperUnknownVerdict: a verdict of a later draft refuses the report that it is
// about, and costs no other report its own.
func TestHelperUnknownVerdict(t *testing.T) {
	for _, code := range []byte{12, 100, 254} {
		p := newPair(t, setup{})
		x := &tamper{answers: []func(http.ResponseWriter, *httptest.ResponseRecorder){respond(func(b []byte) []byte {
			rs := must(dap.Collect(speaks.VerifyResps(b, nil)))
			rs[2] = dap.VerifyResp{ID: rs[2].ID, Type: dap.Reject, Error: dap.BatchCollected}
			out := must(speaks.AppendVerifyResps(nil, rs))
			at := bytes.Index(out, rs[2].ID[:])
			out[at+17] = code // behind the id and the type
			return out
		})}}
		p.tamper(x)
		p.accept(p.reports(5)...)
		p.settled(4, map[string]uint64{fmt.Sprintf("report error %d", code): 1})
		if len(x.bodies) != 1 {
			t.Errorf("code %d: %d requests", code, len(x.bodies))
		}
	}
	for _, code := range []byte{0, 255} { // no verdicts
		p := newPair(t, setup{})
		p.tamper(&tamper{answers: []func(http.ResponseWriter, *httptest.ResponseRecorder){respond(func(b []byte) []byte {
			return append(bytes.Clone(b[:16]), byte(dap.Reject), code)
		})}})
		p.accept(p.reports(1)...)
		p.step()
		if c := p.counts(); c.Waiting != 1 {
			t.Errorf("code %d: %+v", code, c)
		}
		p.clock.advance(time.Hour)
		p.settled(1, nil)
	}
}

// TestShareOfAnotherKind: an aggregation parameter that nothing was aggregated with, and
// a selector of another batch mode, are faults of the leader's message.
func TestShareOfAnotherKind(t *testing.T) {
	for _, mode := range []dap.BatchMode{dap.TimeInterval, dap.LeaderSelected} {
		p, rs := verified(t, setup{mode: mode}, 12)
		other := dap.BatchSelector{Mode: dap.LeaderSelected, BatchID: dap.BatchID{1}}
		if mode == dap.LeaderSelected {
			other = dap.BatchSelector{Mode: dap.TimeInterval, Interval: dap.Interval{Start: p.now(), Duration: 1}}
		}
		for name, change := range map[string]func(*dap.AggregateShareReq){
			"parameter": func(r *dap.AggregateShareReq) { r.CollectionJobReq.AggParam = []byte{1} },
			"selector":  func(r *dap.AggregateShareReq) { r.BatchSelector = other },
		} {
			t.Run(mode.String()+" "+name, func(t *testing.T) { p.refused(p.postShare(p.shareReq(change, rs...)), dap.ProblemInvalidMessage, 400) })
		}
		if a := p.postShare(p.shareReq(nil, rs...)); a.status != 201 || len(a.body) == 0 {
			t.Errorf("refusals burnt the batch: status %d", a.status)
		}
	}
}

// TestHelperWithoutProgress: a helper that is not ours has no progress to show, which is
// no fault; one that does not know the task, or the token, has.
func TestHelperWithoutProgress(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *httptest.ResponseRecorder)
		silent bool
	}{
		"plain 404":     {func(w http.ResponseWriter, _ *httptest.ResponseRecorder) { http.Error(w, "404 page not found", 404) }, true},
		"empty 404":     {plainStatus(404), true},
		"blank problem": {problemAnswer("", 404), true},
		"unknown task":  {problemAnswer(dap.ProblemUnrecognizedTask, 404), false},
		"token":         {plainStatus(401), false},
		"gone":          {plainStatus(410), false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, setup{})
			p.between(func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if strings.HasSuffix(r.URL.Path, "/starling_progress") {
						c.answer(w, nil)
						return
					}
					next.ServeHTTP(w, r)
				})
			})
			p.accept(p.reports(12)...)
			p.settled(12, nil)
			s := p.leaderTask()
			alarm := slices.ContainsFunc(status.Why(s), func(r status.Reason) bool { return strings.Contains(r.Blocks, "does not tell how far") })
			if s.PeerSilent != c.silent || alarm == c.silent || s.Peer != nil {
				t.Errorf("silent %v, alarm %v, peer %v", s.PeerSilent, alarm, s.Peer)
			}
		})
	}
}

// TestStalledUploadIsCounted: an upload that was judged before a collection stopped its
// batch, and reaches the log after, is acknowledged and in the result: the batch does not
// close around it.
func TestStalledUploadIsCounted(t *testing.T) {
	fp := new(disk.Failpoints)
	p := newPair(t, setup{leader: func(o *leader.Options) { o.Failpoints = fp }})
	p.accept(p.reports(11)...)
	p.step()

	judged, resume := make(chan struct{}), make(chan struct{})
	var stalled atomic.Bool
	fp.Arm(leader.FailBeforeLog, 0, func() error {
		if !stalled.Swap(true) { // the first one alone
			close(judged)
			<-resume
		}
		return nil
	})
	late := p.report(1, spoil{})
	done := make(chan answer)
	go func() { done <- p.upload(late) }()
	<-judged
	loc := p.ask(p.query()).header.Get("Location")
	p.step()
	if a := p.poll(loc); a.status != 200 || len(a.body) > 0 {
		t.Errorf("collected around an upload that is under way: status %d, %d bytes", a.status, len(a.body))
	}
	p.refusedAtUpload(p.report(2, spoil{}), dap.BatchCollected) // who comes now is told, and waits for nobody
	close(resume)
	if a := <-done; a.status != 200 || len(a.body) > 0 {
		t.Fatalf("status %d %q", a.status, a.body)
	}
	p.step()
	resp, _ := p.open(p.query(), p.poll(loc).body)
	if resp.ReportCount != 12 {
		t.Errorf("%d reports in the result, 12 were acknowledged", resp.ReportCount)
	}
	p.settled(12, nil)
}

// TestStalledUploadHoldsNoOther: uploads that began after a batch was stopped do not keep
// it waiting, however slow they are.
func TestStalledUploadHoldsNoOther(t *testing.T) {
	fp := new(disk.Failpoints)
	p := newPair(t, setup{leader: func(o *leader.Options) { o.Failpoints = fp }})
	p.accept(p.reports(11)...)
	p.step()
	// While the collection waits for one upload, another begins and stays.
	judged, resume := make(chan int, 2), []chan struct{}{make(chan struct{}), make(chan struct{})}
	var n atomic.Int32
	fp.Arm(leader.FailBeforeLog, 0, func() error {
		i := int(n.Add(1)) - 1
		judged <- i
		<-resume[i]
		return nil
	})
	done := make(chan answer, 2)
	other := p.now() + 1 // the unit beyond; its batch is another
	q := p.query()
	q.Query.Interval = dap.Interval{Start: p.now(), Duration: 1}
	first, second := p.report(1, spoil{}), p.report(1, spoil{Time: &other})
	go func() { done <- p.upload(first) }()
	<-judged
	loc := p.ask(q).header.Get("Location")
	p.step()
	p.clock.advance(precision * time.Second) // the second one's time has come
	go func() { done <- p.upload(second) }()
	<-judged
	close(resume[0])
	<-done
	p.step()
	if a := p.poll(loc); len(a.body) == 0 {
		t.Error("an upload of another batch, later, holds the collection up")
	}
	close(resume[1])
	<-done
	p.settled(13, nil)
}

// unread is the connection of a client that reads no answer until it is told to.
type unread struct {
	*httptest.ResponseRecorder
	writing, read chan struct{}
}

func (u *unread) Write(b []byte) (int, error) {
	close(u.writing)
	<-u.read
	return u.ResponseRecorder.Write(b)
}

// TestUnreadAnswerHoldsNoCollection: an upload is through once its reports are in the
// log, whenever the client reads the answer.
func TestUnreadAnswerHoldsNoCollection(t *testing.T) {
	p := newPair(t, setup{})
	p.accept(p.reports(11)...)
	p.step()
	early := p.now() + 10
	body := must(dap.AppendUploadRequest(nil, []dap.Report{p.report(1, spoil{}), p.report(1, spoil{Time: &early})}))
	r := httptest.NewRequest("POST", p.leaderURL+"/"+p.path(dap.ReportsResource), bytes.NewReader(body))
	r.Header.Set("Content-Type", dap.ContentType(dap.MediaUploadReq))
	u := &unread{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.leader.Handler().ServeHTTP(u, r)
	}()
	<-u.writing
	if resp, _ := p.collect(p.query()); resp.ReportCount != 12 {
		t.Errorf("%d reports in the result", resp.ReportCount)
	}
	close(u.read)
	<-done
}

// TestRefusedShareRequestsLeaveNothing: a leader that asks with ever new counts makes the
// helper's store grow by nothing, where it is answered at once, and by a bounded number
// of refusals where it is not.
func TestRefusedShareRequestsLeaveNothing(t *testing.T) {
	for _, deferred := range []helper.Deferred{helper.Never, helper.Always} {
		p := newPair(t, setup{helper: func(o *helper.Options) { o.Deferred = deferred }})
		rs := p.reports(12)
		p.postInit(p.initReq(p.kit.Inits(rs...), nil))
		p.step()
		ask := func(from, to uint64) {
			for n := from; n < to; n++ {
				p.postShare(p.shareReq(func(r *dap.AggregateShareReq) { r.ReportCount = 100 + n }, rs...))
				if deferred == helper.Always {
					if _, err := p.helper.Step(context.Background()); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		size := func() int64 { // of the database, which a stop leaves in one file
			if err := p.helper.Close(); err != nil {
				t.Fatal(err)
			}
			n := must(p.helperFS.Stat("store.db")).Size
			p.startHelper()
			return n
		}
		ask(0, 200)
		before := size()
		ask(200, 600)
		if after := size(); after > before {
			t.Errorf("deferred %v: the store grew from %d to %d bytes", deferred, before, after)
		}
		a := p.postShare(p.shareReq(nil, rs...))
		p.step()
		if a = p.call("GET", p.helperURL, a.header.Get("Location"), "", peerToken, nil); a.status != 200 || len(a.body) == 0 {
			t.Errorf("deferred %v: the right request gets status %d", deferred, a.status)
		}
	}
}

// resume stops the leader, decides over what it keeps, as starling task does, and
// starts it again.
func (p *pair) resume(drop bool) (reports uint64) {
	p.t.Helper()
	if err := p.leader.Close(); err != nil {
		p.t.Fatal(err)
	}
	p.startLeader()
	_, reports, err := p.leader.Resume(context.Background(), drop)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.leader.Close(); err != nil {
		p.t.Fatal(err)
	}
	p.startLeader()
	return reports
}

// TestHelperOfOtherReports: an answer for other reports than were asked about, or in
// another order, ends that job at once. Its reports stay acknowledged, with their file,
// until the operator decides; no restart decides for him.
func TestHelperOfOtherReports(t *testing.T) {
	change := func(f func([]dap.VerifyResp) []dap.VerifyResp) func(http.ResponseWriter, *httptest.ResponseRecorder) {
		return respond(func(b []byte) []byte {
			return must(speaks.AppendVerifyResps(nil, f(must(dap.Collect(speaks.VerifyResps(b, nil))))))
		})
	}
	for name, lie := range map[string]func(http.ResponseWriter, *httptest.ResponseRecorder){
		"other order":   change(func(rs []dap.VerifyResp) []dap.VerifyResp { rs[0], rs[1] = rs[1], rs[0]; return rs }),
		"a report less": change(func(rs []dap.VerifyResp) []dap.VerifyResp { return rs[1:] }),
		"one twice":     change(func(rs []dap.VerifyResp) []dap.VerifyResp { rs[1] = rs[0]; return rs }),
		"one more":      change(func(rs []dap.VerifyResp) []dap.VerifyResp { return append(rs, dap.VerifyResp{Type: dap.Finish}) }),
		"another id":    change(func(rs []dap.VerifyResp) []dap.VerifyResp { rs[3].ID[0] ^= 1; return rs }),
	} {
		for _, drop := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				p := newPair(t, setup{})
				x := &tamper{answers: []func(http.ResponseWriter, *httptest.ResponseRecorder){lie}}
				p.tamper(x)
				rs := p.reports(12)
				p.accept(rs...)
				for range 4 {
					p.step()
					p.clock.advance(10 * time.Minute)
				}
				p.leader.Close()
				p.startLeader()
				p.step()
				if len(x.bodies) != 1 {
					t.Errorf("%d requests, DAP has the leader abandon the job", len(x.bodies))
				}
				s := p.leaderTask()
				if c := s.Counts; c.Waiting != 12 || len(c.Rejected) > 0 {
					t.Errorf("%+v: acknowledged reports went because a helper is wrong", c)
				}
				if len(s.Stuck) != 1 || !s.Stuck[0].Parked || s.Stuck[0].Quarantined || s.Stuck[0].Reports != 12 {
					t.Fatalf("stuck: %+v", s.Stuck)
				}
				if why := status.Why(s); !strings.Contains(why[0].Blocks, "12 acknowledged reports") || !strings.Contains(why[0].Do, "starling task resume leader.toml") {
					t.Errorf("why: %+v", why[0])
				}
				if n := p.resume(drop); n != 12 {
					t.Errorf("a decision over %d reports", n)
				}
				if drop {
					p.settled(0, map[string]uint64{"report_dropped": 12})
					if names := holding(t, p.leaderFS, ".", needles(rs)); len(names) > 0 {
						t.Errorf("sealed shares that were given up are in %q", names)
					}
					return
				}
				p.settled(12, nil)
				if len(x.bodies) != 2 || !bytes.Equal(x.bodies[0], x.bodies[1]) {
					t.Errorf("%d requests, and not of the same bytes", len(x.bodies))
				}
				resp, _ := p.collect(p.query())
				if resp.ReportCount != 12 {
					t.Errorf("%d reports in the result", resp.ReportCount)
				}
			})
		}
	}
}

// TestHelperOfOtherReportsElsewhere: collections of other batches go on beside a batch
// that waits for the operator.
func TestHelperOfOtherReportsElsewhere(t *testing.T) {
	less := respond(func(b []byte) []byte {
		return must(speaks.AppendVerifyResps(nil, must(dap.Collect(speaks.VerifyResps(b, nil)))[1:]))
	})
	through := func(w http.ResponseWriter, real *httptest.ResponseRecorder) {
		respond(func(b []byte) []byte { return b })(w, real)
	}
	for _, mode := range []dap.BatchMode{dap.TimeInterval, dap.LeaderSelected} {
		t.Run(mode.String(), func(t *testing.T) {
			p := newPair(t, setup{mode: mode, leader: func(o *leader.Options) { o.MaxJobReports = 11 }})
			p.tamper(&tamper{answers: []func(http.ResponseWriter, *httptest.ResponseRecorder){through, less}})
			start := p.now()
			p.accept(p.reports(11)...) // enough for a result
			p.step()
			q := p.query()
			q.Query.Interval = dap.Interval{Start: start, Duration: 1}
			if mode == dap.LeaderSelected {
				q.Query.Interval = dap.Interval{}
				p.accept(p.reports(5)...) // a second batch, parked
			} else {
				p.accept(p.reports(5)...) // of the same batch, parked
			}
			p.step()
			loc := ""
			if mode == dap.TimeInterval {
				loc = p.ask(q).header.Get("Location")
				p.step()
				if a := p.poll(loc); a.status != 200 || len(a.body) > 0 {
					t.Fatalf("a batch was collected without 5 acknowledged reports: status %d", a.status)
				}
				if why := status.Why(p.leaderTask()); !slices.ContainsFunc(why, func(r status.Reason) bool {
					return strings.Contains(r.Blocks, "5 of the task are kept until you decide") && strings.Contains(r.Do, "starling task resume")
				}) {
					t.Errorf("why: %+v", why)
				}
				p.clock.advance(precision * time.Second)
				other := q
				other.Query.Interval.Start++
				p.accept(p.reports(12)...)
				p.step()
				if resp, _ := p.collect(other); resp.ReportCount != 12 {
					t.Errorf("%d reports of another batch", resp.ReportCount)
				}
			} else {
				if resp, _ := p.collect(q); resp.ReportCount != 11 {
					t.Errorf("%d reports of another batch", resp.ReportCount)
				}
			}
			if n := p.resume(false); n != 5 {
				t.Errorf("a decision over %d reports", n)
			}
			p.step()
			if mode == dap.TimeInterval {
				resp, _ := p.open(q, p.poll(loc).body)
				if resp.ReportCount != 16 {
					t.Errorf("%d reports once the operator had decided", resp.ReportCount)
				}
			}
			if c := p.counts(); c.Waiting != 0 || len(c.Rejected) > 0 {
				t.Errorf("%+v", c)
			}
		})
	}
}
