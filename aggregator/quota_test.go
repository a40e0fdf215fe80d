package aggregator_test

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// quotas gives a leader and a helper a quota, and counts what they turn away.
func quotas(s setup, q aggregator.Quota, shed map[aggregator.Shed]int) setup {
	s.leader = func(o *leader.Options) {
		o.Quota = q
		o.Observe.Shed = func(why aggregator.Shed) { shed[why]++ }
	}
	s.helper = func(o *helper.Options) {
		o.Quota = q
		o.Observe.Shed = func(why aggregator.Shed) { shed[why]++ }
	}
	return s
}

// quotaOf is a quota as a status has it.
func quotaOf(t *testing.T, s *status.Status, name string) status.Quota {
	t.Helper()
	for _, q := range s.Quotas {
		if q.Name == name {
			return q
		}
	}
	t.Fatalf("the status has no quota %q: %v", name, s.Quotas)
	return status.Quota{}
}

// TestQuotaOfTasks: a task beyond the quota is refused in words that name it, typed,
// imported or brought in band, at leader and helper, in this life and the next; one that is
// there is not, and a closing makes place.
func TestQuotaOfTasks(t *testing.T) {
	p := newPair(t, quotas(setup{}, aggregator.Quota{Tasks: 2}, map[aggregator.Shed]int{}))
	p.leaderOpt.Provide, p.helperOpt.Provide = p.provider, p.provider
	full := func(err error) {
		t.Helper()
		var e *aggregator.TaskError
		if !errors.As(err, &e) || e.Fault != aggregator.TaskTooMany || e.Task != p.id || !strings.Contains(e.Error(), "quota.tasks") {
			t.Errorf("%v, want a task beyond quota.tasks", err)
		}
	}
	first := p.another(nil)
	p.add(first, true)
	second := p.another(func(c *dap.TaskConfiguration) { c.TaskInfo = []byte("a second") })
	secondID := p.id
	p.add(second, true)
	third := p.another(func(c *dap.TaskConfiguration) { c.TaskInfo = []byte("a third") })
	for range 2 {
		_, err := p.leader.Add(t.Context(), third)
		full(err)
		_, err = p.helper.Add(t.Context(), third)
		full(err)
		p.add(first, false)
		p.leader.Close()
		p.helper.Close()
		p.startHelper()
		p.startLeader()
	}
	s := must(p.leader.Status(t.Context()))
	if q := quotaOf(t, s, "tasks"); q.Used != 2 || q.Most != 2 {
		t.Errorf("the status has %+v", q)
	}
	told := false
	for _, r := range s.Reasons() {
		told = told || strings.Contains(r.Blocks, "quota.tasks")
	}
	if !told {
		t.Error("no reason tells of the quota")
	}
	for _, done := range []func() error{
		func() error { _, err := p.leader.CloseTask(t.Context(), secondID, "bob", "over"); return err },
		func() error { _, err := p.helper.CloseTask(t.Context(), secondID, "bob", "over"); return err },
	} {
		if err := done(); err != nil {
			t.Fatal(err)
		}
	}
	p.add(third, true)
}

// TestQuotaOfImports: a configuration with more tasks than the quota allows is refused by
// the first start, whole.
func TestQuotaOfImports(t *testing.T) {
	p := newPair(t, setup{})
	a, b := p.another(nil), p.another(func(c *dap.TaskConfiguration) { c.TaskInfo = []byte("a second") })
	a.Source, b.Source = aggregator.Imported, aggregator.Imported
	p.leader.Close()
	opt := p.leaderOpt
	opt.Import, opt.Provide, opt.Quota.Tasks = []aggregator.Provision{*a, *b}, p.provider, 1
	_, err := leader.New(t.Context(), opt)
	var e *aggregator.TaskError
	if !errors.As(err, &e) || e.Fault != aggregator.TaskTooMany || e.Task != p.id || !strings.Contains(err.Error(), "quota.tasks") {
		t.Errorf("%v, want an import beyond quota.tasks", err)
	}
	opt.Quota.Tasks = 2
	l, err := leader.New(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	if list := must(l.Registered(t.Context())); len(list) != 2 {
		t.Errorf("%d tasks, want 2", len(list))
	}
	l.Close()
	p.leaderOpt.Provide = p.provider
	p.startLeader()
}

// TestQuotaOfTasksInBand: a leader that brings a task beyond the helper's quota is told to
// come later, not that the task is refused for good, and comes through once there is place.
func TestQuotaOfTasksInBand(t *testing.T) {
	p := bringing(t, setup{helper: func(o *helper.Options) { o.Quota.Tasks = 1 }}, nil)
	in := p.brought(nil)
	if a := p.offer(p.id, peerToken, p.advert()); a.status/100 != 2 && a.status != http.StatusBadRequest {
		t.Fatalf("the first: status %d", a.status)
	}
	first := p.id
	p.brought(func(c *dap.TaskConfiguration) { c.TaskInfo = []byte("one too many") })
	a := p.offer(p.id, peerToken, p.advert())
	p.refused(a, "", http.StatusTooManyRequests)
	if a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if n := len(p.registered()); n != 1 {
		t.Errorf("%d tasks, want 1", n)
	}
	if _, err := p.helper.CloseTask(t.Context(), first, "bob", "over"); err != nil {
		t.Fatal(err)
	}
	p.clock.advance(time.Minute)
	if a := p.offer(p.id, peerToken, p.advert()); a.status == http.StatusTooManyRequests {
		t.Errorf("after a closing: status %d", a.status)
	}
	_ = in
}

// TestQuotaOfBytes: a leader that has as much as it may takes no upload, with a Retry-After,
// and goes on with what it has acknowledged; another life knows as much at once; uploads
// are taken again by themselves when it has less.
func TestQuotaOfBytes(t *testing.T) {
	shed := map[aggregator.Shed]int{}
	const most = 16 << 10
	p := newPair(t, quotas(setup{}, aggregator.Quota{BytesStored: most}, shed))
	good := 0
	fill := func() {
		t.Helper()
		for range 1000 {
			a := p.upload(p.reports(5)...)
			if a.status != http.StatusOK {
				p.away(a)
				return
			}
			good += 5
		}
		t.Fatal("nothing was refused")
	}
	fill()
	size := len(must(dap.AppendUploadRequest(nil, p.reports(1))))
	if stored := good * size; stored < most*8/10 || stored > most*12/10 {
		t.Errorf("%d bytes of reports were taken, and %d may be stored", stored, most)
	}
	if shed[aggregator.ShedStored] != 1 {
		t.Errorf("%d refusals were counted", shed[aggregator.ShedStored])
	}
	s := must(p.leader.Status(t.Context()))
	if q := quotaOf(t, s, "bytes_stored"); !q.Full() || q.Used > most*12/10 {
		t.Errorf("the status has %+v", q)
	}
	p.leader.Close()
	p.startLeader()
	p.away(p.upload(p.reports(1)...))
	if r := p.leader.Readiness(); len(r.Take.Reasons) != 1 || r.Take.Reasons[0].Code != "quota" {
		t.Errorf("it can take uploads: %+v", r.Take)
	}
	p.settled(uint64(good), nil)
	if a := p.upload(p.reports(1)...); a.status != http.StatusOK {
		t.Errorf("with nothing waiting: status %d", a.status)
	}
	good++
	p.settled(uint64(good), nil)
}

// untouched is a body that nobody may read.
type untouched struct{ t *testing.T }

func (b untouched) Read([]byte) (int, error) {
	b.t.Error("the body of a refused request was read")
	return 0, io.EOF
}

// serve hands a request to a handler, past any connection, and returns the answer.
func (p *pair) serve(h http.Handler, method, path string, body io.Reader) answer {
	p.t.Helper()
	r := must(http.NewRequest(method, "http://x"+path, body))
	r.Header.Set("Content-Type", dap.ContentType(dap.MediaUploadReq))
	w := &plainWriter{answer: answer{header: http.Header{}, status: http.StatusOK}}
	h.ServeHTTP(w, r)
	return w.answer
}

// plainWriter keeps an answer.
type plainWriter struct{ answer }

func (w *plainWriter) Header() http.Header    { return w.header }
func (w *plainWriter) WriteHeader(status int) { w.status = status }
func (w *plainWriter) Write(b []byte) (int, error) {
	w.body = append(w.body, b...)
	return len(b), nil
}

// TestQuotaOfReports: a leader takes as many reports a second as it may, on average: one
// request may bring more, and those after it wait for all of them. They are refused before
// anything of their bodies is read, with the time that they have to wait.
func TestQuotaOfReports(t *testing.T) {
	shed := map[aggregator.Shed]int{}
	p := newPair(t, quotas(setup{}, aggregator.Quota{ReportsPerSecond: 10}, shed))
	early := func(seconds int) {
		t.Helper()
		a := p.serve(p.leader.Handler(), "POST", "/tasks/"+p.id.Base64()+"/reports", untouched{t})
		p.refused(a, "", http.StatusTooManyRequests)
		if s, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || s < seconds || s > seconds+1 {
			t.Errorf("Retry-After %q, want %d", a.header.Get("Retry-After"), seconds)
		}
	}
	p.accept(p.reports(5)...)
	p.accept(p.reports(50)...) // the time of 5 seconds, of which one was left over
	early(5)
	p.clock.advance(3 * time.Second)
	early(2)
	if n := shed[aggregator.ShedReports]; n != 2 {
		t.Errorf("%d refusals were counted", n)
	}
	p.clock.advance(3 * time.Second)
	p.accept(p.reports(1)...)
	p.clock.advance(time.Hour) // allows no more than a second's
	p.accept(p.reports(20)...)
	early(1)
	p.clock.advance(-time.Minute) // a clock that was put back keeps nobody waiting for it
	early(1)
	p.clock.advance(2 * time.Second)
	p.accept(p.reports(1)...)
	p.clock.advance(time.Hour)
	p.settled(77, nil)
}

// TestQuotaOfRequests: as many requests are under way as may be; a further one, at whatever
// path and with whatever token, is refused before its body is read, and the place of one that
// ends is free.
func TestQuotaOfRequests(t *testing.T) {
	shed := map[aggregator.Shed]int{}
	p := newPair(t, quotas(setup{}, aggregator.Quota{Requests: 2}, shed))
	for name, handler := range map[string]http.Handler{"leader": p.leader.Handler(), "helper": p.helper.Handler()} {
		path := "/tasks/" + p.id.Base64() + "/reports"
		if name == "helper" {
			path = "/hpke_config"
		}
		var ends []chan struct{}
		done := make(chan answer)
		for range 2 { // are under way until they have answered
			begun, end := make(chan struct{}), make(chan struct{})
			ends = append(ends, end)
			go func() {
				r := must(http.NewRequest("GET", "http://x/hpke_config", nil))
				w := &slowWriter{plainWriter: plainWriter{answer{header: http.Header{}, status: 200}}, begun: begun, end: end}
				handler.ServeHTTP(w, r)
				done <- w.answer
			}()
			<-begun
		}
		method := map[string]string{"leader": "POST", "helper": "GET"}[name]
		for range 3 {
			a := p.serve(handler, method, path, untouched{t})
			p.away(a)
		}
		if n := shed[aggregator.ShedRequests]; n != 3 {
			t.Errorf("%s: %d refusals were counted", name, n)
		}
		clear(shed)
		for _, end := range ends {
			close(end)
			if a := <-done; a.status != http.StatusOK {
				t.Errorf("%s: status %d", name, a.status)
			}
		}
		if a := p.serve(handler, "GET", "/hpke_config", nil); a.status != http.StatusOK {
			t.Errorf("%s: status %d with nothing under way", name, a.status)
		}
	}
	if q := quotaOf(t, must(p.leader.Status(t.Context())), "requests"); q.Used != 0 || q.Most != 2 {
		t.Errorf("the status has %+v", q)
	}
}

// slowWriter has its answer wait.
type slowWriter struct {
	plainWriter
	begun, end chan struct{}
}

func (w *slowWriter) Write(b []byte) (int, error) {
	close(w.begun)
	<-w.end
	return w.plainWriter.Write(b)
}
