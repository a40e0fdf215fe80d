package aggregator_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// leaps is a pair with keys by the clock and a task that ends, with 12 acknowledged
// reports that the helper could not verify yet. With steady the aggregators judge their
// clocks; else they follow them.
func leaps(t *testing.T, steady bool) *pair {
	t.Helper()
	at := must(dap.TimePrecision(precision).At(today()))
	p := newScheduledPair(t, setup{
		interval: &dap.Interval{Start: at - 1, Duration: 20},
		leader: func(o *leader.Options) {
			if steady {
				o.Absence = 0
			}
		},
		helper: func(o *helper.Options) {
			if steady {
				o.Absence = 0
			}
		},
	})
	p.down()
	p.accept(p.reports(12)...)
	p.step()
	return p
}

// down takes the helper away from the leader.
func (p *pair) down() {
	p.between(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	})
}

// restart ends both lives and begins the next.
func (p *pair) restart() {
	p.leader.Close()
	p.helper.Close()
	p.startLeader()
	p.startHelper()
}

// held says of which aggregators the clock is not plausible.
func (p *pair) held() (who []string) {
	for _, s := range []*status.Status{must(p.leader.Standing(context.Background())), must(p.helper.Standing(context.Background()))} {
		if s.Clock != nil {
			who = append(who, s.Role)
			if len(s.Reasons()) == 0 {
				p.t.Errorf("%s: no word of its clock", s.Role)
			}
		}
	}
	return who
}

// destroyed counts keys of both that are destroyed.
func (p *pair) destroyed() (n int) {
	for _, k := range append(p.leader.Keys(), p.helper.Keys()...) {
		if k.State == status.KeyDestroyed {
			n++
		}
	}
	return n
}

const years = 3 * 365 * 24 * time.Hour

// TestClockLeaps: a clock that is years ahead retires nothing and destroys no key, over
// restarts, while reports are verified and taken; set right, everything goes on. An
// aggregator that follows its clock loses all.
func TestClockLeaps(t *testing.T) {
	followed := leaps(t, false)
	followed.clock.advance(years)
	followed.step()
	if s := followed.statusOf()["leader"]; s.Phase != status.Retired || s.Counts.Rejected["report_dropped"] != 12 {
		t.Fatalf("without judgement: %+v", s)
	}

	p := leaps(t, true)
	p.clock.advance(years)
	for range 3 {
		p.step()
		if who := p.held(); !slices.Equal(who, []string{"leader", "helper"}) {
			t.Fatalf("held: %q", who)
		}
		for name, s := range p.statusOf() {
			if s.Phase == status.Retired {
				t.Fatalf("%s retired its task", name)
			}
		}
		if n := p.destroyed(); n != 0 {
			t.Fatalf("%d keys are destroyed", n)
		}
		p.restart()
	}
	p.between(nil)
	p.clock.advance(24 * time.Hour)
	p.step()
	if c, h := p.counts(), p.helperCounts(); c.Aggregated != 12 || h.Aggregated != 12 {
		t.Errorf("verified %d and %d, while the clock is wrong", c.Aggregated, h.Aggregated)
	}
	p.clock.advance(-years - 24*time.Hour)
	p.accept(p.reports(2)...)
	p.step()
	if who := p.held(); len(who) != 0 {
		t.Errorf("still held: %q", who)
	}
	if resp, _ := p.collect(p.query()); resp.ReportCount != 14 {
		t.Errorf("%d reports collected", resp.ReportCount)
	}
}

// TestClockFallsBack: a machine that begins in 1970 takes and verifies reports of today,
// and ends no key when its clock is set right.
func TestClockFallsBack(t *testing.T) {
	p := leaps(t, true)
	today := p.now()
	back := p.clock.Now().Sub(time.Unix(1000, 0))
	keys := len(p.leader.Keys())
	p.clock.advance(-back)
	p.restart()
	if who := p.held(); len(who) != 2 {
		t.Fatalf("held: %q", who)
	}
	p.between(nil)
	p.accept(p.report(1, spoil{Time: &today}))
	p.clock.advance(60 * 24 * time.Hour) // long enough for any key to end
	p.step()
	if c, h := p.counts(), p.helperCounts(); c.Aggregated != 13 || h.Aggregated != 13 {
		t.Errorf("verified %d and %d, %+v", c.Aggregated, h.Aggregated, c)
	}
	if n := len(p.leader.Keys()); n != keys {
		t.Errorf("%d keys, had %d", n, keys)
	}
	p.clock.advance(back - 60*24*time.Hour)
	p.step()
	if who := p.held(); len(who) != 0 || p.destroyed() != 0 {
		t.Errorf("held %q, %d keys destroyed", who, p.destroyed())
	}
}

// TestClockIsRight: after a long absence the word of a person lets tasks and keys end.
func TestClockIsRight(t *testing.T) {
	p := leaps(t, true)
	p.clock.advance(years)
	p.restart()
	p.step()
	if len(p.held()) != 2 {
		t.Fatal("not held")
	}
	for _, confirm := range []func(context.Context) (time.Time, error){p.leader.ConfirmClock, p.helper.ConfirmClock} {
		if at, err := confirm(context.Background()); err != nil || at.Sub(p.clock.Now()).Abs() > time.Minute {
			t.Fatalf("confirmed %v, %v", at, err)
		}
	}
	p.restart()
	p.step()
	if who := p.held(); len(who) != 0 {
		t.Errorf("held: %q", who)
	}
	for name, s := range p.statusOf() {
		if s.Phase != status.Retired {
			t.Errorf("%s is at %s", name, s.Phase)
		}
	}
}
