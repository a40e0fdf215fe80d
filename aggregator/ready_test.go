package aggregator_test

import (
	"net/http"
	"testing"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/internal/service"
)

// able demands what a party can do: for each ability the codes of the reasons that are in
// its way, none if it can.
func able(t *testing.T, when string, r service.Readiness, take, verify, release []string) {
	t.Helper()
	for _, a := range []struct {
		name string
		got  *service.Ability
		want []string
	}{{"take", &r.Take, take}, {"verify", r.Verify, verify}, {"release", &r.Release, release}} {
		var codes []string
		for _, why := range a.got.Reasons {
			codes = append(codes, why.Code)
		}
		same := len(codes) == len(a.want)
		for i := range codes {
			same = same && codes[i] == a.want[i]
		}
		if !same {
			t.Errorf("%s: %s is kept by %q, want %q", when, a.name, codes, a.want)
		}
	}
}

// TestReadiness: what is in the way of uploads, of verification and of releases is told
// apart; a leader without its helper takes uploads.
func TestReadiness(t *testing.T) {
	const keep = 1 << 20
	p := newPair(t, setup{min: 1,
		leader: func(o *leader.Options) { o.Limits.MinFree, o.Limits.MaxBacklog = keep, 10 },
		helper: func(o *helper.Options) { o.Limits.MinFree = keep },
	})
	var none []string
	disk, peer, backlog := []string{service.ReasonDisk}, []string{service.ReasonPeer}, []string{service.ReasonBacklog}
	able(t, "at first", p.leader.Readiness(), none, none, none)
	able(t, "at first, helper", p.helper.Readiness(), none, none, none)

	p.between(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	})
	p.accept(p.reports(3)...)
	p.step()
	able(t, "helper down", p.leader.Readiness(), none, peer, peer)
	if l := p.leader.Levels(); l.Backlog != 3 || l.Peer == nil || l.Store != nil {
		t.Errorf("helper down: %+v", l)
	}
	p.accept(p.reports(7)...)
	able(t, "as many wait as may", p.leader.Readiness(), backlog, peer, peer)
	p.between(nil)
	p.clock.advance(p.leaderOpt.MaxBackOff)
	p.step()
	able(t, "helper up", p.leader.Readiness(), none, none, none)

	p.leaderFS.SetSize(p.leaderFS.Used() + keep - 1)
	able(t, "little room", p.leader.Readiness(), disk, none, none)
	p.leaderFS.SetSize(p.leaderFS.Used() + keep/2 - 1)
	able(t, "no room", p.leader.Readiness(), disk, disk, disk)
	p.helperFS.SetSize(p.helperFS.Used() + keep - 1)
	able(t, "little room at the helper", p.helper.Readiness(), none, none, none)
	p.helperFS.SetSize(p.helperFS.Used() + keep/2 - 1)
	able(t, "no room at the helper", p.helper.Readiness(), disk, disk, disk)
	p.leaderFS.SetSize(0)
	p.helperFS.SetSize(0)
	able(t, "room", p.leader.Readiness(), none, none, none)
}

// TestReadinessHeld: a batch that is held keeps back releases and nothing else; what waits
// for a decision keeps back verification.
func TestReadinessHeld(t *testing.T) {
	p := newPair(t, setup{min: 5})
	task := p.task
	task.Expected = aggregator.Expectation{Reports: 4}
	p.leaderOpt.Tasks = []aggregator.Task{task}
	if err := p.leader.Close(); err != nil {
		t.Fatal(err)
	}
	p.startLeader()
	p.accept(p.reports(12)...)
	p.step()
	if a := p.ask(p.query()); a.status != http.StatusCreated {
		t.Fatalf("status %d", a.status)
	}
	p.step()
	p.counts() // reads the levels
	held := []string{service.ReasonHeld}
	able(t, "held", p.leader.Readiness(), nil, nil, held)
	if l := p.leader.Levels(); l.Held != 1 {
		t.Errorf("%d batches are held", l.Held)
	}
}
