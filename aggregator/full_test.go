package aggregator_test

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// away demands an answer that has clients come again.
func (p *pair) away(a answer) {
	p.t.Helper()
	p.refused(a, "", http.StatusServiceUnavailable)
	if s, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || s < 1 {
		p.t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
	}
}

// work steps both parties a few times, whatever the disk says.
func (p *pair) work() {
	for range 5 {
		p.leader.Step(context.Background())
		p.helper.Step(context.Background())
	}
}

// TestFullDisk: a disk that fills up, at the leader, the helper or both, down to nothing,
// refuses uploads and work in good time and ends no party; what was acknowledged is
// counted once there is room again.
func TestFullDisk(t *testing.T) {
	const keep = 1 << 20
	for name, c := range map[string]struct{ leader, helper bool }{"leader": {true, false}, "helper": {false, true}, "both": {true, true}} {
		t.Run(name, func(t *testing.T) {
			shed := make(map[aggregator.Shed]int)
			p := newPair(t, setup{
				leader: func(o *leader.Options) {
					o.Limits.MinFree = keep
					o.Observe.Shed = func(why aggregator.Shed) { shed[why]++ }
				},
				helper: func(o *helper.Options) { o.Limits.MinFree = keep },
			})
			fill := func(free int64) {
				for mem, full := range map[*disktest.Mem]bool{p.leaderFS: c.leader, p.helperFS: c.helper} {
					if full {
						mem.SetSize(mem.Used() + free)
					}
				}
			}
			good := 0
			send := func() {
				a := p.upload(p.reports(10)...)
				if c.leader && a.status != http.StatusOK {
					p.away(a)
					return
				}
				if a.status != http.StatusOK {
					t.Fatalf("status %d: the leader's disk has room", a.status)
				}
				good += 10
			}
			fill(2 * keep)
			send()
			if good != 10 {
				t.Fatal("an upload was refused before the disk was nearly full")
			}
			for _, free := range []int64{keep - 1, keep / 2, keep/2 - 1, keep / 4, keep/4 - 1, 4096, 1, 0} {
				fill(free)
				send()
				p.work()
				if c.leader && good > 10 {
					t.Fatalf("with %d free an upload was taken", free)
				}
				s, err := p.leader.Status(t.Context())
				if err != nil {
					t.Fatalf("with %d free there is no status: %v", free, err)
				}
				if got := s.Tasks[0].Counts; got.Acknowledged != uint64(good) || got.Waiting+got.Aggregated != uint64(good) {
					t.Errorf("with %d free: %d acknowledged, %d wait, %d aggregated; %d were acknowledged", free, got.Acknowledged, got.Waiting,
						got.Aggregated, good)
				}
			}
			if c.leader && shed[aggregator.ShedDisk] == 0 {
				t.Error("nobody counted")
			}
			fill(8 * keep)
			p.clock.advance(p.leaderOpt.BackOff)
			send()
			p.settled(uint64(good), nil)
		})
	}
}

// TestDiskOverwhelmed: a disk without min_free, which is full in the middle of whatever is
// written, ends no party either.
func TestDiskOverwhelmed(t *testing.T) {
	p := newPair(t, setup{
		leader: func(o *leader.Options) { o.Limits.MinFree = -1 },
		helper: func(o *helper.Options) { o.Limits.MinFree = -1 },
	})
	good := 0
	for i := range 40 {
		for _, mem := range []*disktest.Mem{p.leaderFS, p.helperFS} {
			mem.SetSize(mem.Used() + int64(i)*977)
		}
		if a := p.upload(p.reports(5)...); a.status == http.StatusOK {
			good += 5
		} else {
			p.away(a)
		}
		p.leader.Step(t.Context())
		if _, err := p.leader.Status(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.clock.advance(p.leaderOpt.BackOff)
	}
	if good == 0 || good == 200 {
		t.Fatalf("%d of 200 reports were taken: the disk was never, or always, full", good)
	}
	p.leaderFS.SetSize(0)
	p.helperFS.SetSize(0)
	p.clock.advance(p.leaderOpt.MaxBackOff)
	p.step() // gives back the last claim, which there was no room to do
	p.clock.advance(p.leaderOpt.MaxBackOff)
	p.settled(uint64(good), nil)
}

// TestBusyHelper: a helper that puts off one job after the other, for want of room say, is
// asked about a few of the jobs that wait and not about each of them, again and again;
// once it has room all go on.
func TestBusyHelper(t *testing.T) {
	p := newPair(t, setup{})
	asked := 0
	p.between(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.URL.Path, "aggregation_jobs") {
				next.ServeHTTP(w, r)
				return
			}
			asked++
			w.Header().Set("Retry-After", "5")
			w.WriteHeader(http.StatusServiceUnavailable)
		})
	})
	for range 12 {
		p.accept(p.reports(1)...)
		p.step()
	}
	if asked != 4 {
		t.Errorf("the helper was asked %d times, want 4", asked)
	}
	for range 10 {
		p.clock.advance(p.leaderOpt.MaxBackOff)
		p.step()
	}
	if asked != 4+10 {
		t.Errorf("the helper was asked %d times; want once more each time", asked)
	}
	p.between(nil)
	p.clock.advance(p.leaderOpt.MaxBackOff)
	p.step()
	p.settled(12, nil)
}

// TestBacklog: with the helper away the leader takes as many reports as may wait, says so
// by 503, and goes on by itself.
func TestBacklog(t *testing.T) {
	p := newPair(t, setup{leader: func(o *leader.Options) { o.Limits.MaxBacklog = 20 }})
	p.between(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	})
	p.accept(p.reports(15)...)
	if got := p.counts(); got.Acknowledged != 15 || got.Waiting != 15 {
		t.Errorf("before they are sorted: %+v", got)
	}
	p.step()
	p.accept(p.reports(5)...)
	for range 2 {
		p.away(p.upload(p.reports(1)...))
		p.step()
	}
	p.between(nil)
	p.clock.advance(p.leaderOpt.MaxBackOff)
	p.step()
	p.accept(p.reports(5)...)
	p.settled(25, nil)

	// A restart knows what waits.
	p.between(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	})
	p.accept(p.reports(20)...)
	p.step()
	if err := p.leader.Close(); err != nil {
		t.Fatal(err)
	}
	p.startLeader()
	p.away(p.upload(p.reports(1)...))
	p.between(nil)
	p.clock.advance(p.leaderOpt.MaxBackOff)
	p.settled(45, nil)
}
