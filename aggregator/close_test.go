package aggregator_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// problemOfClosed is the type with which a helper refuses new jobs of a closed task.
const problemOfClosed dap.ProblemType = "urn:starling:task:closed"

// closable is a pair with a task of the registry at both.
func closable(t *testing.T, s setup) *pair {
	p := newPair(t, s)
	p.leaderOpt.Provide, p.helperOpt.Provide = p.provider, p.provider
	p.add(p.another(nil), true)
	return p
}

// closedAt closes the task at one of the two.
func (p *pair) closedAt(role dap.Role, why string) {
	p.t.Helper()
	shut := p.helper.CloseTask
	if role == dap.RoleLeader {
		shut = p.leader.CloseTask
	}
	if c, err := shut(p.t.Context(), p.id, "bob", why); err != nil || c.By != "bob" || c.Why != why {
		p.t.Fatalf("closed: %+v, %v", c, err)
	}
}

// closedBoth demands that both have the task closed, one of them by the other.
func (p *pair) closedBoth(began dap.Role, why string) {
	p.t.Helper()
	by := map[dap.Role]string{dap.RoleLeader: "the leader", dap.RoleHelper: "the helper"}
	by[began] = "bob"
	if began == dap.RoleLeader {
		by[dap.RoleHelper] = "the leader"
	} else {
		by[dap.RoleLeader] = "the helper"
	}
	for role, s := range map[dap.Role]*status.Task{dap.RoleLeader: p.taskOf(dap.RoleLeader), dap.RoleHelper: p.taskOf(dap.RoleHelper)} {
		if s.Closed == nil || s.Closed.By != by[role] || s.Closed.Why != why {
			p.t.Errorf("%v: closed %+v, want by %q for %q", role, s.Closed, by[role], why)
		}
	}
}

// taskOf is how the task stands at one of the two.
func (p *pair) taskOf(role dap.Role) *status.Task {
	p.t.Helper()
	read := p.helper.Status
	if role == dap.RoleLeader {
		read = p.leader.Status
	}
	s, err := read(context.Background())
	if err != nil {
		p.t.Fatal(err)
	}
	i := slices.IndexFunc(s.Tasks, func(t status.Task) bool { return t.ID == p.id.Base64() })
	if i < 0 {
		p.t.Fatalf("the %v has not opened the task", role)
	}
	return &s.Tasks[i]
}

// newJob asks the helper for an aggregation job of a report that its leader never had.
func (p *pair) newJob() answer {
	p.t.Helper()
	return p.postInit(p.initReq(p.kit.Inits(p.report(1, spoil{})), nil))
}

// minute lets a minute pass, in which the two compare themselves.
func (p *pair) minute() {
	p.t.Helper()
	p.clock.advance(time.Minute)
	p.step()
}

// TestClosedAtEither: a task that is closed at one of the two is closed at the other by the
// next comparison, for the same reason, over restarts of either. What was acknowledged is
// verified and can be collected, what was released still can, uploads are dropped, and new
// jobs are refused in words of their own once nothing waits, but not before.
func TestClosedAtEither(t *testing.T) {
	for _, began := range []dap.Role{dap.RoleLeader, dap.RoleHelper} {
		t.Run(began.String(), func(t *testing.T) {
			p := closable(t, setup{})
			p.accept(p.reports(11)...)
			p.step()
			q := p.query()
			p.collect(q)
			old := p.poll(p.ask(q).header.Get("Location")).body
			p.clock.advance(6 * time.Hour) // to what is not collected yet
			p.accept(p.reports(12)...)
			p.step()
			p.accept(p.reports(4)...)
			p.closedAt(began, "the study is over")
			p.step() // before the two compare, the helper takes what its leader acknowledged
			if c := p.taskOf(dap.RoleHelper).Counts; c.Aggregated != 27 {
				t.Errorf("counts %+v", c)
			}
			p.minute()
			p.minute() // the leader says that nothing waits
			p.closedBoth(began, "the study is over")
			if s := p.taskOf(dap.RoleLeader).Agreement; s.State != status.Agreed {
				t.Errorf("agreement %+v", s)
			}
			for range 2 {
				refused := p.uploadErrors(p.upload(p.reports(2)...))
				if len(refused) != 2 || refused[0].Error != p.dialect.Said(dap.ReportDropped) {
					t.Errorf("an upload: %v", refused)
				}
				a := p.newJob()
				p.refused(a, problemOfClosed, http.StatusBadRequest)
				if a.header.Get("Content-Type") != dap.ProblemMedia || a.header.Get("Retry-After") != "" || a.header.Get("Cache-Control") != "no-store" {
					t.Errorf("a new job is refused with %v", a.header)
				}
				p.leader.Close()
				p.startLeader()
				p.helper.Close()
				p.startHelper()
				if a := p.upload(); a.status != http.StatusOK { // opens the task
					t.Errorf("status %d", a.status)
				}
				p.minute()
				p.minute()
				p.closedBoth(began, "the study is over")
			}
			if got := p.poll(p.ask(q).header.Get("Location")).body; !bytes.Equal(got, old) {
				t.Error("what was released is another after the closing")
			}
			if resp, _ := p.collect(p.query()); resp.ReportCount != 16 {
				t.Errorf("%d reports, want 16", resp.ReportCount)
			}
			why := status.Why(p.taskOf(dap.RoleLeader))
			if len(why) == 0 || !strings.Contains(why[len(why)-1].Blocks, "the task was closed at") || !strings.Contains(why[len(why)-1].Do, "recipe again") {
				t.Errorf("why: %+v", why)
			}
		})
	}
}

// TestTooFewOfAClosedTask: a collection of a closed task ends where its batch can never
// reach the minimum, and says so.
func TestTooFewOfAClosedTask(t *testing.T) {
	p := closable(t, setup{})
	p.accept(p.reports(3)...)
	p.step()
	loc := p.ask(p.query()).header.Get("Location")
	p.step()
	p.waits(loc)
	p.closedAt(dap.RoleLeader, "over")
	p.minute()
	p.refused(p.poll(loc), dap.ProblemInvalidBatchSize, http.StatusBadRequest)
}

// TestClosedWhileAway: a closing waits for a peer that is away, late or started anew, and
// loses nothing: the helper takes the jobs of what was acknowledged, however late they come.
func TestClosedWhileAway(t *testing.T) {
	p := closable(t, setup{})
	p.accept(p.reports(5)...)
	p.step()
	p.between(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	})
	p.accept(p.reports(7)...)
	p.closedAt(dap.RoleHelper, "the office moves")
	for range 3 {
		p.minute()
	}
	p.accept(p.reports(1)...) // the leader has not heard
	p.helper.Close()
	p.startHelper()
	p.clock.advance(80 * time.Hour) // more than hpke_key_delay
	p.between(nil)
	for range 4 {
		p.clock.advance(2 * time.Hour)
		p.step()
	}
	p.closedBoth(dap.RoleHelper, "the office moves")
	if c := p.taskOf(dap.RoleLeader).Counts; c.Waiting != 0 || c.Aggregated != 13 || len(c.Rejected) > 0 {
		t.Errorf("counts %+v", c)
	}
	p.refused(p.newJob(), problemOfClosed, http.StatusBadRequest)
}

// TestClosedForAStranger: of a leader that does not compare itself the jobs are taken for as
// long as they may be late, and then none that is new; one that was answered is answered
// again.
func TestClosedForAStranger(t *testing.T) {
	p := closable(t, setup{})
	p.between(strangers)
	body := p.initReq(p.kit.Inits(p.report(1, spoil{})), nil)
	p.closedAt(dap.RoleHelper, "over")
	p.clock.advance(71 * time.Hour)
	first := p.postInit(body)
	if first.status != http.StatusCreated {
		t.Fatalf("status %d %s", first.status, first.body)
	}
	p.clock.advance(2 * time.Hour)
	p.refused(p.newJob(), problemOfClosed, http.StatusBadRequest)
	if again := p.postInit(body); again.status != http.StatusCreated || !bytes.Equal(again.body, first.body) {
		t.Errorf("again: status %d", again.status)
	}
}

// TestHelperTakesItsClosingBack: a helper that says that a task is closed and later, with
// another store, that it is not, is told that it is: its leader has closed it for good.
func TestHelperTakesItsClosingBack(t *testing.T) {
	p := closable(t, setup{})
	p.step()
	p.helper.Close()
	open := copied(t, p.helperFS)
	p.startHelper()
	p.closedAt(dap.RoleHelper, "over\x1b[2J\n"+strings.Repeat("x", 900))
	p.minute()
	s := p.taskOf(dap.RoleLeader).Closed
	if s == nil || strings.ContainsAny(s.Why, "\x1b\n") || len(s.Why) > 300 {
		t.Fatalf("the leader says %+v", s)
	}
	p.helper.Close()
	p.helperFS, p.helperOpt.FS = open, open
	p.startHelper()
	p.minute()
	p.minute()
	if s := p.taskOf(dap.RoleHelper).Closed; s == nil || s.By != "the leader" || s.Why != p.taskOf(dap.RoleLeader).Closed.Why {
		t.Errorf("the helper says %+v", s)
	}
	if e := p.uploadErrors(p.upload(p.reports(1)...)); len(e) != 1 {
		t.Errorf("an upload: %v", e)
	}
}

// TestClosedBesideAnOlderHelper: a helper of the version before, which does not read the
// newer message, is compared with in the older one; once it is replaced it hears of the
// closing.
func TestClosedBesideAnOlderHelper(t *testing.T) {
	p := closable(t, setup{})
	var old atomic.Bool
	old.Store(true)
	var mu sync.Mutex
	asked := map[byte]int{}
	p.between(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/starling_agreement") {
				next.ServeHTTP(w, r)
				return
			}
			body := must(io.ReadAll(r.Body))
			mu.Lock()
			asked[body[0]]++
			mu.Unlock()
			if old.Load() && body[0] > 1 {
				w.Header().Set("Content-Type", dap.ProblemMedia)
				w.WriteHeader(http.StatusBadRequest)
				io.WriteString(w, `{"type":"about:blank","status":400,"detail":"agreement: a message of version 2, where 1 is known here"}`)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			real := httptest.NewRecorder()
			next.ServeHTTP(real, r)
			if real.Code == http.StatusOK && real.Body.Bytes()[0] != body[0] {
				t.Errorf("a message of version %d is answered in %d", body[0], real.Body.Bytes()[0])
			}
			for k, v := range real.Header() {
				w.Header()[k] = v
			}
			w.WriteHeader(real.Code)
			w.Write(real.Body.Bytes())
		})
	})
	p.accept(p.reports(12)...)
	p.step()
	p.closedAt(dap.RoleLeader, "over")
	p.minute()
	p.minute()
	if s := p.taskOf(dap.RoleLeader).Agreement; s.State != status.Agreed || s.Failed != "" {
		t.Errorf("agreement with the older one: %+v", s)
	}
	if resp, _ := p.collect(p.query()); resp.ReportCount != 12 {
		t.Errorf("%d reports", resp.ReportCount)
	}
	if s := p.taskOf(dap.RoleHelper).Closed; s != nil {
		t.Errorf("the older helper has heard of the closing: %+v", s)
	}
	old.Store(false)
	p.minute()
	p.minute()
	p.closedBoth(dap.RoleLeader, "over")
	if asked[1] == 0 || asked[2] == 0 {
		t.Errorf("asked %v", asked)
	}
}

// TestHelperRefusesTooEarly: a leader whose helper refuses the jobs of a closed task while
// some are to come says so at once, keeps what waits and brings it when it is let.
func TestHelperRefusesTooEarly(t *testing.T) {
	p := closable(t, setup{})
	p.step()
	var lies atomic.Bool
	var asked atomic.Int64
	lies.Store(true)
	p.between(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/starling_agreement") {
				asked.Add(1)
			}
			if lies.Load() && creates(r, dap.AggregationJobsResource) {
				w.Header().Set("Content-Type", dap.ProblemMedia)
				w.WriteHeader(http.StatusBadRequest)
				io.WriteString(w, `{"type":"urn:starling:task:closed","status":400}`)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	p.accept(p.reports(12)...)
	p.step()
	if n := asked.Load(); n == 0 {
		t.Error("the leader does not ask at once")
	}
	s := p.taskOf(dap.RoleLeader)
	if s.Counts.Waiting != 12 || len(s.Stuck) != 1 || s.Stuck[0].Parked || !strings.Contains(s.Stuck[0].Why, "the task was closed there") {
		t.Errorf("counts %+v, stuck %+v", s.Counts, s.Stuck)
	}
	lies.Store(false)
	p.minute()
	p.minute()
	if c := p.taskOf(dap.RoleLeader).Counts; c.Aggregated != 12 {
		t.Errorf("counts %+v", c)
	}
}
