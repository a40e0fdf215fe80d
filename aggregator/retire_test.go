package aggregator_test

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// ending is a pair whose task ends with the hour after this one. retired says when both
// are to forget it.
func ending(t *testing.T, mode dap.BatchMode, change func(*setup)) (p *pair, retired time.Time) {
	now := must(dap.TimePrecision(precision).At(today()))
	s := setup{mode: mode, interval: &dap.Interval{Start: now - 1, Duration: 3}}
	if change != nil {
		change(&s)
	}
	p = newPair(t, s)
	end := must(dap.TimePrecision(precision).Begin(now + 2))
	return p, end.Add(5*time.Minute + aggregator.DefaultRetention) // 5 minutes of clock skew
}

// until lets the time come that is so much after at.
func (p *pair) until(at time.Time, after time.Duration) {
	p.clock.advance(at.Add(after).Sub(p.clock.Now()))
}

// statusOf are the task's at leader and helper.
func (p *pair) statusOf() map[string]*status.Task {
	p.t.Helper()
	h, err := p.helper.Status(context.Background())
	if err != nil {
		p.t.Fatal(err)
	}
	return map[string]*status.Task{"leader": p.leaderTask(), "helper": &h.Tasks[0]}
}

// TestRetiredTask: a result is there, byte for byte, until the retention ends; then all
// but counts and ledger is gone at both aggregators, for good, and the task takes nothing
// any more.
func TestRetiredTask(t *testing.T) {
	for _, mode := range []dap.BatchMode{dap.TimeInterval, dap.LeaderSelected} {
		t.Run(mode.String(), func(t *testing.T) {
			p, at := ending(t, mode, nil)
			rs := p.reports(12)
			p.accept(rs...)
			q := p.query()
			loc := p.ask(q).header.Get("Location")
			p.step()
			result := p.poll(loc)
			if len(result.body) == 0 {
				t.Fatal("no result")
			}
			init := p.initReq(p.kit.Inits(p.reports(2)...), nil)
			job := p.postInit(init)
			if job.status != http.StatusCreated {
				t.Fatalf("init: status %d", job.status)
			}

			p.until(at, -time.Second)
			p.step()
			p.upload(p.report(0, spoil{Time: &rs[0].Metadata.Time, ID: &rs[0].Metadata.ID})) // known, or too late for its batch
			p.step()
			if c := p.counts(); c.Aggregated != 12 || c.Rejected["report_replayed"]+c.Refused["batch_collected"] != 1 {
				t.Errorf("a replay was taken: %+v", c)
			}
			if again := p.ask(q); !bytes.Equal(again.body, result.body) {
				t.Error("the result is not what it was")
			}
			for name, s := range p.statusOf() {
				if s.Phase != status.Over || !s.RetiresAt.Equal(at) {
					t.Errorf("%s: %s, kept until %v, want %v", name, s.Phase, s.RetiresAt, at)
				}
			}

			before := map[string]status.Counts{"leader": p.counts(), "helper": p.helperCounts()}
			p.until(at, 0)
			p.step()
			p.audit()
			for range 2 {
				for name, s := range p.statusOf() {
					b := before[name]
					if s.Phase != status.Retired || !s.RetiresAt.IsZero() || len(s.Batches) != 0 || len(status.Why(s)) != 0 {
						t.Errorf("%s: %+v", name, s)
					}
					if s.Counts.Aggregated != b.Aggregated || s.Counts.Collected != b.Collected || s.Counts.Acknowledged != b.Acknowledged {
						t.Errorf("%s: counts %+v, before %+v", name, s.Counts, b)
					}
				}
				for name, fsys := range map[string]*disktest.Mem{"leader": p.leaderFS, "helper": p.helperFS} {
					for _, dir := range []string{"runs", "slices"} {
						if _, err := fsys.Stat(dir); err != nil {
							continue
						}
						if files := holding(t, fsys, dir, [][]byte{nil}); len(files) > 0 { // any file
							t.Errorf("the %s still has %q", name, files)
						}
					}
					if names := holding(t, fsys, ".", [][]byte{result.body[:64], result.body[len(result.body)-64:]}); name == "leader" && len(names) > 0 {
						t.Errorf("the result is still in %q", names)
					}
				}
				id := rs[0].Metadata.ID
				p.refusedAtUpload(p.report(0, spoil{Time: &rs[0].Metadata.Time, ID: &id}), dap.ReportDropped)
				for what, a := range map[string]answer{
					"poll": p.poll(loc), "ask": p.ask(q), "job": p.postInit(init),
					"job again": p.call("GET", p.helperURL, job.header.Get("Location"), "", peerToken, nil),
				} {
					if doc := p.problem(a); doc.Type != dap.ProblemUnrecognizedTask || a.status != 404 {
						t.Errorf("%s: status %d %s", what, a.status, doc.Type)
					}
				}
				// Not even a clock that is set back, or another retention, brings it back.
				p.leader.Close()
				p.helper.Close()
				p.clock.advance(-aggregator.DefaultRetention)
				p.leaderOpt.Retention, p.helperOpt.Retention = -1, -1
				p.startLeader()
				p.startHelper()
				p.step()
				p.audit()
			}
		})
	}
}

// TestRetirementDropsWhatWaits: reports that were acknowledged and never verified, and
// collections that nobody could answer, end with the task, and are accounted for.
func TestRetirementDropsWhatWaits(t *testing.T) {
	p, at := ending(t, dap.TimeInterval, nil)
	p.between(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	})
	p.accept(p.reports(12)...)
	p.ask(p.query())
	p.step()
	rs := p.reports(3)
	p.until(at, time.Hour)
	p.step()
	p.between(nil)
	p.dropped(rs)
	if c := p.counts(); c.Waiting != 0 || c.Aggregated != 0 || c.Rejected["report_dropped"] != 12 || c.Refused["report_dropped"] != 3 {
		t.Errorf("%+v", c)
	}
	if s := p.leaderTask(); len(s.Collections) != 0 || len(s.Stuck) != 0 {
		t.Errorf("%+v", s)
	}
	if names := holding(t, p.leaderFS, ".", needles(rs)); len(names) > 0 {
		t.Errorf("sealed shares are in %q", names)
	}
}

// dropped uploads reports that must all be refused as dropped.
func (p *pair) dropped(rs []dap.Report) {
	p.t.Helper()
	if n := len(p.uploadErrors(p.upload(rs...))); n != len(rs) {
		p.t.Errorf("%d of %d refused", n, len(rs))
	}
}

// TestRetention: it is each aggregator's own choice; negative keeps a task, and so does
// one without an end.
func TestRetention(t *testing.T) {
	p, at := ending(t, dap.TimeInterval, func(s *setup) {
		s.leader = func(o *leader.Options) { o.Retention = time.Hour }
		s.helper = func(o *helper.Options) { o.Retention = -1 }
	})
	p.accept(p.reports(12)...)
	p.step()
	p.until(at, -aggregator.DefaultRetention+time.Hour)
	p.step()
	s := p.statusOf()
	if s["leader"].Phase != status.Retired || s["helper"].Phase != status.Over || !s["helper"].RetiresAt.IsZero() {
		t.Errorf("leader %s, helper %s until %v", s["leader"].Phase, s["helper"].Phase, s["helper"].RetiresAt)
	}
	endless := newPair(t, setup{})
	endless.accept(endless.reports(12)...)
	endless.clock.advance(100 * 365 * 24 * time.Hour)
	endless.step()
	for name, s := range endless.statusOf() {
		if s.Phase != status.Running || !s.RetiresAt.IsZero() || s.Counts.Aggregated != 12 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestRunRetires: the services' own workers retire too.
func TestRunRetires(t *testing.T) {
	p, at := ending(t, dap.TimeInterval, func(s *setup) {
		s.leader = func(o *leader.Options) { o.Idle = time.Millisecond }
		s.helper = func(o *helper.Options) { o.Idle = time.Millisecond }
	})
	p.accept(p.reports(12)...)
	p.step()
	p.until(at, time.Minute)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 2)
	go func() { done <- p.leader.Run(ctx) }()
	go func() { done <- p.helper.Run(ctx) }()
	for ctx.Err() == nil {
		phases := p.statusOf()
		if slices.Equal([]string{phases["leader"].Phase, phases["helper"].Phase}, []string{status.Retired, status.Retired}) {
			stop()
		}
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
