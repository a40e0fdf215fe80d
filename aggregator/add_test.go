package aggregator_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/aggregatortest"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// another makes the test's parties speak of another task from now on, which neither
// aggregator has.
func (p *pair) another(change func(*dap.TaskConfiguration)) *aggregator.Provision {
	p.t.Helper()
	conf := *p.cfg
	conf.TaskInfo = []byte("another test")
	if change != nil {
		change(&conf)
	}
	kit := must(aggregatortest.NewTask(must(dap.NewTaskConfiguration(conf)), p.kit.Dialect.Framing))
	kit.Leader, kit.Helper, kit.Collector = p.kit.Leader, p.kit.Helper, p.kit.Collector
	p.kit, p.cfg, p.id = kit, kit.Config, kit.ID
	return &aggregator.Provision{
		Task: kit.Aggregator(), Form: aggregator.Configuration, Made: kit.Config.Bytes(), Terms: []byte(`{"test":1}`),
		Source: aggregator.Typed, By: "alice",
	}
}

// provider makes the tasks of a test again from what a store has of them.
func (p *pair) provider(_ context.Context, form aggregator.Form, made, terms []byte) (aggregator.Task, error) {
	t := p.task
	t.Config, t.ID = made, dap.TaskID{}
	if form != aggregator.Configuration || string(terms) != `{"test":1}` {
		return t, errors.New("not what was added")
	}
	return t, nil
}

// add takes a task into both running aggregators.
func (p *pair) add(in *aggregator.Provision, want bool) {
	p.t.Helper()
	for name, add := range map[string]func(context.Context, *aggregator.Provision) (bool, error){"leader": p.leader.Add, "helper": p.helper.Add} {
		if made, err := add(context.Background(), in); err != nil || made != want {
			p.t.Fatalf("%s: made %v, %v", name, made, err)
		}
	}
}

// TestTaskOfARunningPair: a task that comes while leader and helper run counts like one that
// they began with, beside it, in this life and in the next; the same add again is nothing.
func TestTaskOfARunningPair(t *testing.T) {
	p := newPair(t, setup{})
	p.leaderOpt.Provide, p.helperOpt.Provide = p.provider, p.provider
	p.accept(p.reports(3)...)
	p.step()
	in := p.another(nil)
	if a := p.upload(p.report(0, spoil{})); a.status != http.StatusNotFound {
		t.Fatalf("before it came: status %d", a.status)
	}
	p.add(in, true)
	p.add(in, false)
	p.accept(p.reports(7)...)
	p.step()
	for _, party := range []func(){
		func() { p.leader.Close(); p.startLeader() }, func() { p.helper.Close(); p.startHelper() },
	} {
		party()
		p.add(in, false)
	}
	p.clock.advance(time.Minute)
	p.step()
	p.accept(p.reports(5)...)
	p.step()
	if resp, _ := p.collect(p.query()); resp.ReportCount != 12 {
		t.Errorf("%d reports, want 12", resp.ReportCount)
	}
}

// TestTaskAtOneAlone: a task that its leader has and its helper does not takes no uploads
// once the two have compared, what came before waits, and nothing is lost; when it comes to
// the helper it goes on by itself.
func TestTaskAtOneAlone(t *testing.T) {
	p := newPair(t, setup{})
	p.accept(p.reports(1)...)
	p.step()
	in := p.another(nil)
	if _, err := p.leader.Add(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	p.accept(p.reports(12)...) // nothing was compared yet
	p.step()
	if a := p.upload(p.report(0, spoil{})); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("status %d", a.status)
	}
	if _, err := p.helper.Add(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	p.clock.advance(time.Minute)
	p.step()
	p.accept(p.reports(1)...)
	p.step()
	if resp, _ := p.collect(p.query()); resp.ReportCount != 13 {
		t.Errorf("%d reports, want 13", resp.ReportCount)
	}
}

// TestRefusedTasks: a task that cannot be taken is refused with the reason, and leaves
// nothing behind.
func TestRefusedTasks(t *testing.T) {
	p := newPair(t, setup{})
	first := *p.kit
	for name, c := range map[string]struct {
		change func(*dap.TaskConfiguration)
		terms  func(*aggregator.Provision)
		fault  aggregator.TaskFault
		says   string
	}{
		"another leader": {func(c *dap.TaskConfiguration) { c.Leader = []byte("https://other.example/") }, nil, aggregator.TaskOfOthers, "other.example"},
		"over": {func(c *dap.TaskConfiguration) {
			c.Extensions = must(c.Extensions.WithTaskInterval(dap.Interval{Start: 1, Duration: 5}))
		}, nil, aggregator.TaskOver, "1970"},
		"no token":             {nil, func(in *aggregator.Provision) { in.Task.PeerToken = "" }, aggregator.TaskInvalid, "token"},
		"another of that id":   {func(c *dap.TaskConfiguration) { c.TaskInfo = []byte("twice") }, func(in *aggregator.Provision) { in.Terms = []byte("{}") }, aggregator.TaskDiffers, `"test":1`},
		"one that was closed":  {func(c *dap.TaskConfiguration) { c.TaskInfo = []byte("closed") }, nil, aggregator.TaskClosed, "by bob"},
		"a collector's no key": {nil, func(in *aggregator.Provision) { in.Task.CollectorHPKE = dap.HpkeConfig{} }, aggregator.TaskInvalid, "collector"},
	} {
		p.kit, p.cfg, p.id = &first, first.Config, first.ID
		in := p.another(c.change)
		if c.fault == aggregator.TaskDiffers || c.fault == aggregator.TaskClosed {
			if _, err := p.leader.Add(t.Context(), in); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if c.fault == aggregator.TaskClosed {
			if _, err := p.leader.CloseTask(t.Context(), p.id, "bob", "over"); err != nil {
				t.Fatal(err)
			}
		}
		if c.terms != nil {
			c.terms(in)
		}
		_, err := p.leader.Add(t.Context(), in)
		var refused *aggregator.TaskError
		if !errors.As(err, &refused) || refused.Fault != c.fault || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q and %q", name, err, c.fault, c.says)
		}
		if c.fault == aggregator.TaskDiffers || c.fault == aggregator.TaskClosed {
			continue
		}
		if a := p.upload(); a.status != http.StatusNotFound {
			t.Errorf("%s: status %d after it was refused", name, a.status)
		}
	}
}

// TestClosedTask: a task that is closed takes no upload from that moment on, in this life and
// the next; what was acknowledged is verified and can be collected.
func TestClosedTask(t *testing.T) {
	p := newPair(t, setup{})
	p.leaderOpt.Provide, p.helperOpt.Provide = p.provider, p.provider
	in := p.another(nil)
	p.add(in, true)
	p.accept(p.reports(12)...)
	p.step()
	p.accept(p.reports(4)...)
	closed, err := p.leader.CloseTask(t.Context(), p.id, "bob", "the study is over")
	if err != nil || closed.By != "bob" || closed.Waiting != 4 || closed.Ready != 12 || closed.Short != 0 {
		t.Errorf("closed: %+v, %v", closed, err)
	}
	for range 2 {
		if e := p.uploadErrors(p.upload(p.reports(1)...)); len(e) != 1 || e[0].Error != p.dialect.Said(dap.ReportDropped) {
			t.Errorf("an upload: %v", e)
		}
		p.leader.Close()
		p.startLeader()
	}
	again, err := p.leader.CloseTask(t.Context(), p.id, "carol", "once more")
	if err != nil || again.By != "bob" || !again.At.Equal(closed.At) {
		t.Errorf("closed again: %+v, %v", again, err)
	}
	if _, err := p.leader.CloseTask(t.Context(), dap.TaskID{1}, "bob", "over"); !errors.Is(err, leader.ErrNoTask) {
		t.Errorf("a task that is not there: %v", err)
	}
	p.step()
	if resp, _ := p.collect(p.query()); resp.ReportCount != 16 {
		t.Errorf("%d reports, want 16", resp.ReportCount)
	}
	if s := p.leaderTask(); s.Phase == status.NotStarted {
		t.Errorf("phase %q", s.Phase)
	}
}

// TestAddedAtOneFirst: a task that the helper gets some seconds after its leader is agreed
// upon within two, whatever differed in another before; one that stays different is compared
// about as rarely as any after some minutes.
func TestAddedAtOneFirst(t *testing.T) {
	p := newPair(t, setup{})
	p.leaderOpt.Provide, p.helperOpt.Provide = p.provider, p.provider
	p.leader.Close()
	p.startLeader()
	p.helper.Close()
	p.startHelper()
	var asked atomic.Int64
	p.between(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if compares(r) {
				asked.Add(1)
			}
			next.ServeHTTP(w, r)
		})
	})
	steps := func(n int) {
		for range n {
			p.clock.advance(time.Second)
			p.step()
		}
	}
	if _, err := p.leader.Add(t.Context(), p.another(nil)); err != nil { // at one alone
		t.Fatal(err)
	}
	steps(300)
	asked.Store(0)
	if steps(300); asked.Load() > 20 { // each is of two requests, half a minute apart or more
		t.Errorf("%d requests in five minutes of a task that one has", asked.Load())
	}
	in := p.another(func(c *dap.TaskConfiguration) { c.TaskInfo = []byte("a third") })
	if _, err := p.leader.Add(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	steps(1)
	if s := p.taskOf(dap.RoleLeader).Agreement; s.State != status.Differs {
		t.Fatalf("agreement %+v", s)
	}
	if _, err := p.helper.Add(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	steps(2)
	if s := p.taskOf(dap.RoleLeader).Agreement; s.State != status.Agreed {
		t.Errorf("agreement %+v", s)
	}
}
