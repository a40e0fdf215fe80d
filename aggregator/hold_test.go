package aggregator_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/vdaf"
)

// takes says whether uploads are taken, and holds the answer of a held task to what a
// client comes again after.
func (p *pair) takes(rs ...dap.Report) bool {
	p.t.Helper()
	a := p.upload(rs...)
	if a.status == http.StatusOK && len(a.body) == 0 {
		return true
	}
	p.refused(a, "", http.StatusServiceUnavailable)
	if s, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || s < 1 {
		p.t.Errorf("Retry-After: %q", a.header.Get("Retry-After"))
	}
	return false
}

// heldBy is why a task is held; empty where it is not.
func heldBy(s *status.Task) string {
	for _, x := range s.Stops {
		if x.From == status.FromHold {
			return x.Why
		}
	}
	return ""
}

// TestWrongKeyIDHoldsTask: a helper that has the verification key under another id, as a
// rolling change of keys looks like, refuses every job of draft 18 as a whole. After
// three the task is held, over restarts, in words; nothing is lost, and once the helper
// is mended and a person says so all of it counts. To give it up, too, is a person's to
// say.
func TestWrongKeyIDHoldsTask(t *testing.T) {
	for _, drop := range []bool{false, true} {
		var key [vdaf.VerifyKeySize]byte
		p := newPair(t, setup{dialect: &dap.Dialect{Version: dap.Draft18}, helper: func(o *helper.Options) {
			o.Tasks = slices.Clone(o.Tasks)
			key = o.Tasks[0].VerifyKeys[7]
			o.Tasks[0].VerifyKeys = map[uint8][vdaf.VerifyKeySize]byte{9: key}
		}})
		// What the two say of themselves does not come through, as with another's helper.
		p.between(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/starling_agreement") {
					w.WriteHeader(http.StatusNotFound)
					return
				}
				r.Header.Del("Starling-Agreement")
				next.ServeHTTP(w, r)
			})
		})
		taken := 0
		var turned []dap.Report
		for range 5 {
			if rs := p.reports(10); p.takes(rs...) {
				taken += len(rs)
			} else {
				turned = append(turned, rs...)
			}
			p.step()
		}
		for range 2 {
			s := p.leaderTask()
			if taken != 30 || s.Counts.Waiting != 30 || len(s.Counts.Rejected) != 0 || len(s.Stuck) != 3 {
				t.Fatalf("%d taken; %+v, %+v", taken, s.Counts, s.Stuck)
			}
			why := status.Why(s)
			if held := heldBy(s); !strings.Contains(held, "first 3 jobs") || !strings.Contains(held, "invalidMessage") || why[0].Blocks != held ||
				!strings.Contains(why[0].Do, "starling task resume leader.toml --task "+p.id.Base64()) ||
				!strings.Contains(why[1].Blocks, "30 acknowledged reports of 3 jobs are kept") {
				t.Fatalf("held %q, why %+v", held, why)
			}
			if err := p.leader.Close(); err != nil {
				t.Fatal(err)
			}
			p.startLeader()
		}
		p.helper.Close()
		p.helperOpt.Tasks[0].VerifyKeys = map[uint8][vdaf.VerifyKeySize]byte{7: key}
		p.startHelper()
		p.step()
		if p.takes(turned[0]) {
			t.Error("a hold ends by itself")
		}
		if n := p.resume(drop); n != 30 {
			t.Errorf("a decision over %d reports", n)
		}
		if !p.takes(turned...) {
			t.Error("still held")
		}
		if drop {
			p.settled(20, map[string]uint64{"report_dropped": 30})
		} else {
			p.settled(50, nil)
		}
		if s := p.leaderTask(); heldBy(s) != "" {
			t.Errorf("held: %s", heldBy(s))
		}
	}
}

// TestHelperGoesWrong: one that has answered before holds the task with five refused jobs
// in a row; a batch that was whole before is collected meanwhile.
func TestHelperGoesWrong(t *testing.T) {
	p := newPair(t, setup{})
	start := p.now()
	p.accept(p.reports(12)...)
	p.step()
	p.clock.advance(precision * time.Second)
	wrong := slices.Repeat([]func(http.ResponseWriter, *httptest.ResponseRecorder){problemAnswer(dap.ProblemInvalidMessage, 400)}, 20)
	p.tamper(&tamper{drop: true, answers: wrong})
	taken := 0
	for p.takes(p.reports(2)...) {
		if taken += 2; taken > 20 {
			t.Fatal("never held")
		}
		p.step()
	}
	if s := p.leaderTask(); taken != 10 || s.Counts.Waiting != 10 || !strings.Contains(heldBy(s), "5 jobs in a row") {
		t.Errorf("%d taken; %+v, %+v", taken, s.Counts, heldBy(s))
	}
	q := p.query()
	if p.cfg.BatchMode == dap.TimeInterval {
		q.Query.Interval = dap.Interval{Start: start, Duration: 1}
	}
	if resp, _ := p.collect(q); resp.ReportCount != 12 {
		t.Errorf("%d reports of a batch that nobody refused", resp.ReportCount)
	}
	p.tamper(&tamper{})
	p.resume(false)
	p.settled(22, nil)
}

// TestHelperRefusesForItself: verdicts that no report can bring about, on most of a hundred
// reports, hold the task too; what was refused so far is in the counts.
func TestHelperRefusesForItself(t *testing.T) {
	p := newPair(t, setup{})
	collected := respond(func(b []byte) []byte {
		list := must(dap.Collect(p.dialect.VerifyResps(b, nil)))
		for i := range list {
			list[i] = dap.VerifyResp{ID: list[i].ID, Type: dap.Reject, Error: dap.BatchCollected}
		}
		return must(p.dialect.AppendVerifyResps(nil, list))
	})
	p.tamper(&tamper{answers: slices.Repeat([]func(http.ResponseWriter, *httptest.ResponseRecorder){collected}, 20)})
	taken := 0
	for p.takes(p.reports(20)...) {
		if taken += 20; taken > 200 {
			t.Fatal("never held")
		}
		p.step()
	}
	if s := p.leaderTask(); taken != 100 || s.Counts.Rejected["batch_collected"] != 100 || !strings.Contains(heldBy(s), "100 of the last 100") {
		t.Errorf("%d taken; %+v, %+v", taken, s.Counts, heldBy(s))
	}
}

// TestStrangersHoldNoTask: whoever can write reports can make the helper refuse them, each
// in every way that a report has, before the task's first good one, and more than a hundred
// of them: the task is not held, an honest report counts, and why says what share it is.
func TestStrangersHoldNoTask(t *testing.T) {
	p := newPair(t, setup{min: 1})
	onlyHelper := func(f func(*dap.PlaintextInputShare)) spoil {
		return spoil{Plain: func(role dap.Role, s *dap.PlaintextInputShare) {
			if role == dap.RoleHelper {
				f(s)
			}
		}}
	}
	ways := []spoil{
		{Report: func(r *dap.Report) { r.Helper.ConfigID ^= 0x55 }},                               // no such key
		{Report: func(r *dap.Report) { r.Helper.Payload[0] ^= 1 }},                                // does not open
		onlyHelper(func(s *dap.PlaintextInputShare) { s.Payload = s.Payload[:len(s.Payload)-1] }), // is no share
		onlyHelper(func(s *dap.PlaintextInputShare) { s.Payload[0] ^= 1 }),                        // does not hold
		{Context: []byte("another task's context")},                                               // neither
		onlyHelper(func(s *dap.PlaintextInputShare) { s.Payload = []byte{1} }),                    // is next to nothing
	}
	sent := 0
	for range 5 {
		for _, way := range ways { // each job is refused as a whole
			for range 4 {
				p.accept(p.report(0, way))
				sent++
			}
			p.step()
		}
	}
	s := p.leaderTask()
	rejected := uint64(0)
	for _, n := range s.Counts.Rejected {
		rejected += n
	}
	if heldBy(s) != "" || len(s.Stuck) != 0 || rejected != uint64(sent) {
		t.Fatalf("%d sent: %+v, %+v, %+v", sent, heldBy(s), s.Stuck, s.Counts)
	}
	if why := status.Why(s); !slices.ContainsFunc(why, func(r status.Reason) bool {
		return strings.Contains(r.Blocks, strconv.Itoa(sent)+" of "+strconv.Itoa(sent)) && strings.Contains(r.Do, "starling doctor") && strings.Contains(r.Do, "strangers")
	}) {
		t.Errorf("why: %+v", why)
	}
	p.accept(p.report(1, spoil{}))
	p.step()
	if c := p.counts(); c.Aggregated != 1 || c.Waiting != 0 {
		t.Errorf("an honest report after %d of strangers: %+v", sent, c)
	}
}

// TestPersonHoldsTask: a person stops uploads, jobs and results, over restarts, and lets
// them go on; a task that is not there is named.
func TestPersonHoldsTask(t *testing.T) {
	p := newPair(t, setup{})
	p.accept(p.reports(10)...)
	p.step()
	p.accept(p.reports(5)...)
	if n, err := p.leader.HoldTask(context.Background(), "the helper moves", dap.TaskID{9}); n != 0 || !errors.Is(err, leader.ErrNoTask) {
		t.Errorf("held %d, %v", n, err)
	}
	if n, err := p.leader.HoldTask(context.Background(), "the helper moves"); n != 1 || err != nil {
		t.Fatalf("held %d, %v", n, err)
	}
	p.leader.Close()
	p.startLeader()
	if p.takes(p.reports(1)...) {
		t.Error("an upload was taken")
	}
	loc := p.ask(p.query()).header.Get("Location")
	p.step()
	if a := p.poll(loc); a.status != http.StatusOK || len(a.body) > 0 {
		t.Errorf("a result of a held task: status %d", a.status)
	}
	s := p.leaderTask()
	why := status.Why(s)
	if s.Counts.Waiting != 5 || !strings.Contains(heldBy(s), "a person holds the task") || !strings.Contains(why[0].Blocks, "the helper moves") || !strings.Contains(why[0].Do, "starling task resume") {
		t.Errorf("%+v, %+v", s.Counts, why)
	}
	if !slices.ContainsFunc(why, func(r status.Reason) bool {
		return strings.Contains(r.Blocks, "a collection waits: "+status.WaitsForStop())
	}) {
		t.Errorf("why: %+v", why)
	}
	p.resume(false)
	if !p.takes(p.reports(1)...) {
		t.Error("still held")
	}
	p.step()
	if c := p.counts(); c.Aggregated != 16 {
		t.Errorf("%+v", c)
	}
}
