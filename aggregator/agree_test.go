package aggregator_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/vdaf"
)

// helperWith starts the helper anew with another configuration of its task.
func (p *pair) helperWith(change func(*aggregator.Task)) {
	p.t.Helper()
	if err := p.helper.Close(); err != nil {
		p.t.Fatal(err)
	}
	p.helperOpt.Tasks = slices.Clone(p.helperOpt.Tasks)
	change(&p.helperOpt.Tasks[0])
	p.startHelper()
}

// verifyKey gives a task another verification key under the same id.
func verifyKey(key [vdaf.VerifyKeySize]byte) func(*aggregator.Task) {
	return func(t *aggregator.Task) { t.VerifyKeys = map[uint8][vdaf.VerifyKeySize]byte{7: key} }
}

// waitsBecause demands that uploads are refused for now, and that both sides' operators
// read what differs and what to type.
func (p *pair) waitsBecause(what, do string) {
	p.t.Helper()
	if a := p.upload(p.report(0, spoil{})); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		p.t.Errorf("an upload: status %d, Retry-After %q", a.status, a.header.Get("Retry-After"))
	}
	for side, s := range map[string]*status.Task{"leader": p.leaderTask(), "helper": p.helperTask()} {
		why := status.Why(s)
		if len(why) == 0 || !strings.Contains(why[0].Blocks, what) || !strings.Contains(why[0].Do, do) {
			p.t.Errorf("the %s's why: %+v; want %q and %q", side, why, what, do)
		}
		if len(s.Stops) == 0 || !slices.Contains(s.Stops[0].Stops, status.Release) || s.Agreement == nil || s.Agreement.State != status.Differs && s.Agreement.State != status.StoreBehind {
			p.t.Errorf("the %s's status: %+v, %+v", side, s.Stops, s.Agreement)
		}
	}
}

// TestAnotherVerifyKey: a helper that holds another verification key under the same id
// would have every report rejected, for good: so it does where the two cannot compare.
// Where they do, nothing goes to it: what was acknowledged waits, no more is taken, both
// say why; and once the helper has the right key all of it counts, within the time
// between two exchanges, and the leader was not started again.
func TestAnotherVerifyKey(t *testing.T) {
	for _, compare := range []bool{false, true} {
		t.Run(fmt.Sprint("compared: ", compare), func(t *testing.T) {
			p := newPair(t, setup{helper: func(o *helper.Options) {
				o.Tasks = slices.Clone(o.Tasks)
				verifyKey([vdaf.VerifyKeySize]byte{1, 2, 3})(&o.Tasks[0])
			}})
			if !compare {
				p.between(strangers)
			}
			p.accept(p.reports(120)...)
			if !compare {
				p.settled(0, map[string]uint64{"vdaf_verify_error": 120})
				return
			}
			p.step()
			if c := p.counts(); c.Waiting != 120 || len(c.Rejected) > 0 {
				t.Errorf("counts %+v", c)
			}
			p.waitsBecause("verification key 7", "--verify-key 7=FILE")
			for _, s := range []*status.Task{p.leaderTask(), p.helperTask()} {
				d := s.Agreement.Differences
				if len(d) != 1 || d[0].Leader == d[0].Helper || d[0] != p.leaderTask().Agreement.Differences[0] {
					t.Errorf("differences %+v", d)
				}
			}
			p.helperWith(verifyKey(p.task.VerifyKeys[7]))
			p.clock.advance(time.Minute)
			p.settled(120, nil)
			if why := status.Why(p.leaderTask()); strings.Contains(why[0].Blocks, "do not hold the same") {
				t.Errorf("why, when it is mended: %+v", why)
			}
			p.accept(p.report(1, spoil{}))
			p.settled(121, nil)
		})
	}
}

// TestStartedWithAnotherKey: the two agreed a moment ago, and the helper was started
// again with another key since. The jobs that come before the next exchange carry a
// fence: none is looked into, the leader asks at once what is wrong, and nothing is lost;
// nor is what a helper that answers later had stored before.
func TestStartedWithAnotherKey(t *testing.T) {
	for _, deferred := range []helper.Deferred{helper.Never, helper.Always} {
		t.Run(fmt.Sprint("deferred ", deferred), func(t *testing.T) {
			p := newPair(t, setup{helper: func(o *helper.Options) { o.Deferred = deferred }})
			p.accept(p.reports(12)...)
			for range 2 { // one that answers later is asked again
				p.step()
				p.clock.advance(time.Minute)
			}
			p.settled(12, nil)
			if deferred == helper.Always { // a job that waits at the helper
				p.accept(p.reports(5)...)
				if _, err := p.leader.Step(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			p.helperWith(verifyKey([vdaf.VerifyKeySize]byte{9}))
			p.accept(p.reports(20)...)
			for range 3 {
				p.step()
				p.clock.advance(5 * time.Second)
			}
			waits := uint64(20)
			if deferred == helper.Always {
				waits = 25
			}
			if c := p.counts(); c.Waiting != waits || len(c.Rejected) > 0 {
				t.Errorf("counts %+v", c)
			}
			p.waitsBecause("verification key 7", "--verify-key 7=FILE")
			p.helperWith(verifyKey(p.task.VerifyKeys[7]))
			p.clock.advance(time.Minute)
			p.step()
			p.clock.advance(time.Hour)
			p.settled(12+waits, nil)
		})
	}
}

// TestAnotherCollectorKey: no batch is closed at either while one of them would seal its
// share to another collector, so no result is lost.
func TestAnotherCollectorKey(t *testing.T) {
	p := newPair(t, setup{})
	p.accept(p.reports(12)...)
	p.settled(12, nil)
	other := must(sealed.Generate(3, sealed.SuiteX25519))
	p.helperWith(func(t *aggregator.Task) { t.CollectorHPKE = dap.NewHpkeConfig(other) })
	q := p.query()
	loc := p.ask(q).header.Get("Location")
	for range 3 {
		p.step()
		p.clock.advance(time.Second)
	}
	p.waits(loc)
	p.waitsBecause("the collector's public key", "--collector-hpke")
	if c := p.helperCounts(); c.Collected != 0 {
		t.Errorf("the helper has released: %+v", c)
	}
	p.helperWith(func(t *aggregator.Task) { t.CollectorHPKE = p.task.CollectorHPKE })
	p.clock.advance(2 * time.Minute)
	p.step()
	got := p.poll(loc)
	if len(got.body) == 0 {
		t.Fatalf("status %d, no result: %+v", got.status, p.leaderTask().Collections)
	}
	if resp, _ := p.open(q, got.body); resp.ReportCount != 12 {
		t.Errorf("%d reports", resp.ReportCount)
	}
}

// TestTaskNotThere: a leader whose helper does not have the task, which is what another
// recipe at the helper comes to, takes no uploads for it.
func TestTaskNotThere(t *testing.T) {
	p := newPair(t, setup{})
	mine := p.helperOpt.Tasks
	another := must(dap.ReadTaskConfiguration(p.dialect.Version, p.cfg.Bytes()))
	conf := *another
	conf.TaskInfo = []byte("another recipe")
	other := p.task
	other.Config = must(dap.NewTaskConfiguration(conf)).Bytes()
	p.helper.Close()
	p.helperOpt.Tasks, p.helperOpt.FS = []aggregator.Task{other}, disktest.NewMem(9)
	p.startHelper()
	p.accept(p.reports(3)...)
	p.step()
	if a := p.upload(p.report(0, spoil{})); a.status != http.StatusServiceUnavailable {
		t.Errorf("status %d", a.status)
	}
	if why := status.Why(p.leaderTask()); len(why) == 0 || !strings.Contains(why[0].Blocks, "the task (at the leader: is here; at the helper: is not there") {
		t.Errorf("why: %+v", why)
	}
	p.helper.Close()
	p.helperOpt.Tasks = mine
	p.startHelper()
	p.clock.advance(time.Minute)
	p.settled(3, nil)
}

// TestClockTooFarOff: a leader that is further ahead than its helper allows would have its
// reports rejected as too early.
func TestClockTooFarOff(t *testing.T) {
	off := &clock{}
	off.advance(-10 * time.Minute)
	p := newPair(t, setup{helper: func(o *helper.Options) { o.Clock = off }})
	p.accept(p.report(0, spoil{}))
	p.step()
	if why := status.Why(p.leaderTask()); len(why) == 0 || !strings.Contains(why[0].Blocks, "the clock (at the leader: 10m0s ahead") {
		t.Errorf("why: %+v", why)
	}
	off.advance(10 * time.Minute)
	p.clock.advance(time.Minute)
	off.advance(time.Minute)
	p.settled(1, nil)
}

// TestJobsTooLarge: a helper that takes smaller jobs than the leader makes would refuse
// them for ever.
func TestJobsTooLarge(t *testing.T) {
	p := newPair(t, setup{helper: func(o *helper.Options) { o.Limits.JobBody = 100_000 }})
	p.accept(p.report(0, spoil{}))
	p.step()
	p.waitsBecause("the size of a job", "limits.job_bytes")
}

// putBack runs a pair through a release, with noise, and puts one side back to before it,
// record and all.
func putBack(t *testing.T, compare bool, side dap.Role) (p *pair, before []byte, q dap.CollectionJobReq) {
	t.Helper()
	g, err := noise.NewDiscreteGaussian(1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	p = newPair(t, setup{noise: g})
	if !compare {
		p.between(strangers)
	}
	p.accept(p.reports(20)...)
	p.settled(20, nil)
	p.leader.Close()
	p.helper.Close()
	disks := []*disktest.Mem{p.leaderFS.Crash(), p.leaderFS.Crash(), p.helperFS.Crash(), p.helperFS.Crash()}
	use := func(leader, helper *disktest.Mem) {
		p.leaderFS, p.leaderOpt.FS, p.helperFS, p.helperOpt.FS = leader, leader, helper, helper
		p.startLeader()
		p.startHelper()
	}
	use(disks[0], disks[2])
	q = p.query()
	loc := p.ask(q).header.Get("Location")
	p.step()
	if before = p.poll(loc).body; len(before) == 0 {
		t.Fatal("no result")
	}
	p.leader.Close()
	p.helper.Close()
	if side == dap.RoleLeader {
		use(disks[1], disks[2].Crash())
	} else {
		use(disks[0].Crash(), disks[3])
	}
	return p, before, q
}

// TestPutBackLeader: a leader whose store, with the record beside it, went back to before
// a collection would release the same batch again, and whatever sum it holds of it then,
// with noise for that: so it does where the two cannot compare. Where they do it finds
// that it is behind, releases nothing and takes nothing, and says how it gets out; a
// restart changes nothing.
func TestPutBackLeader(t *testing.T) {
	for _, compare := range []bool{false, true} {
		t.Run(fmt.Sprint("compared: ", compare), func(t *testing.T) {
			p, before, q := putBack(t, compare, dap.RoleLeader)
			loc := p.ask(q).header.Get("Location")
			p.step()
			again := p.poll(loc).body
			if !compare {
				if len(again) == 0 {
					t.Fatal("no second result")
				}
				if one, _ := p.open(q, before); one.ReportCount != 20 || p.counts().Collected != 20 {
					t.Errorf("%d reports, %+v", one.ReportCount, p.counts())
				}
				return
			}
			for range 2 {
				p.waits(loc)
				if why := status.Why(p.leaderTask()); len(why) == 0 || !strings.Contains(why[0].Blocks, "this leader's store is behind: it lacks 1 of the releases") ||
					!strings.Contains(why[0].Do, "put the newest state of its data directory back") {
					t.Errorf("why: %+v", why)
				}
				if a := p.upload(p.report(0, spoil{})); a.status != http.StatusServiceUnavailable {
					t.Errorf("an upload: status %d", a.status)
				}
				p.leader.Close()
				p.startLeader()
				p.step()
			}
		})
	}
}

// TestPutBackHelper: a helper that went back is found behind by itself and by its leader.
func TestPutBackHelper(t *testing.T) {
	p, before, q := putBack(t, true, dap.RoleHelper)
	p.step()
	if why := status.Why(p.leaderTask()); len(why) == 0 || !strings.Contains(why[0].Blocks, "the helper's store is behind: it lacks 1 of the releases") {
		t.Errorf("the leader's why: %+v", why)
	}
	if why := status.Why(p.helperTask()); len(why) == 0 || !strings.Contains(why[0].Blocks, "this helper's store is behind: it lacks 1 of the releases") {
		t.Errorf("the helper's why: %+v", why)
	}
	p.waitsBecause("store is behind", "newest state of its data directory")
	// What was released before is still there for its collector, byte for byte.
	if got := p.poll(p.ask(q).header.Get("Location")).body; string(got) != string(before) {
		t.Errorf("the old result has %d bytes, want %d", len(got), len(before))
	}
}

// TestFirstStartWithoutHelper: a leader that has never reached its helper takes uploads,
// and releases nothing; all of them count once the helper is there.
func TestFirstStartWithoutHelper(t *testing.T) {
	p := newPair(t, setup{})
	p.between(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	})
	p.accept(p.reports(12)...)
	q := p.query()
	loc := p.ask(q).header.Get("Location")
	for range 3 {
		p.step()
		p.clock.advance(time.Second)
	}
	if c := p.counts(); c.Waiting != 12 || len(c.Rejected) > 0 {
		t.Errorf("counts %+v", c)
	}
	p.waits(loc)
	if why := status.Why(p.leaderTask()); len(why) == 0 || !strings.Contains(why[0].Blocks, "have not been compared since this leader's start: helper did not answer") {
		t.Errorf("why: %+v", why)
	}
	p.between(nil)
	for range 6 {
		p.clock.advance(2 * time.Minute)
		p.step()
	}
	if resp, _ := p.open(q, p.poll(loc).body); resp.ReportCount != 12 {
		t.Errorf("%d reports", resp.ReportCount)
	}
	// A helper that is away after that keeps nobody out.
	p.between(func(http.Handler) http.Handler { return http.NotFoundHandler() })
	p.clock.advance(6 * time.Hour) // after what was collected
	p.step()
	p.accept(p.report(2, spoil{}))
}

// TestHostileComparison: whatever comes of the exchange on its way, cut, mangled, of
// another kind or not at all, nobody falls, no report is lost, and once it comes through
// again nothing of it is left.
func TestHostileComparison(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 5))
		p := newPair(t, setup{})
		var evil atomic.Bool
		var mu sync.Mutex // comparisons run beside each other
		p.between(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if !compares(req) {
					next.ServeHTTP(w, req)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if !evil.Load() || r.IntN(4) == 0 {
					next.ServeHTTP(w, req)
					return
				}
				real := httptest.NewRecorder()
				next.ServeHTTP(real, req)
				mangle(r, w, real)
			})
		})
		p.accept(p.reports(12)...)
		loc := p.ask(p.query()).header.Get("Location")
		for i := range 8 {
			evil.Store(i < 6)
			p.step()
			p.clock.advance(2 * time.Minute)
		}
		p.settled(12, nil)
		if a := p.leaderTask().Agreement; a.State != status.Agreed {
			t.Errorf("seed %d: %+v", seed, a)
		}
		if resp := must(dap.ReadCollectionJobResp(p.poll(loc).body)); resp.ReportCount != 12 {
			t.Errorf("seed %d: %d reports", seed, resp.ReportCount)
		}
	}
}
