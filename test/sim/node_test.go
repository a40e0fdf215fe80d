package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/aggregatortest"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

var (
	errPower    = errors.New("sim: the power is gone")
	errReported = errors.New("sim: reported failed")
)

// A service is what leader and helper have in common.
type service interface {
	Handler() http.Handler
	Step(context.Context) (bool, error)
	Run(context.Context) error
	Status(context.Context) (*status.Status, error)
	Audit(context.Context) ([]string, error)
	Close() error
}

// A node is a machine with a disk, on which one service has one life after the other.
type node struct {
	w    *world
	name string
	disk *disktest.Mem
	life atomic.Pointer[life] // nil while the machine is down
	due  time.Time
	arm  *crash // for the next life
	open func(*life) (service, error)
	wrap func(disk.FS) disk.FS // a disk that is worse than it may be, or one that the oracle watches
	// party is the first replica of all that serve together, which has the others.
	party  *node
	others []*node
	// reach lays a way to the database of the replicas for one life, and says how to cut it.
	// nil where each node has a store of its own.
	reach func(*life) (d *aggregator.Database, cut func())
	rows  func(sql string) int // asks that database for a number; %s is its schema
	begin func(*life)          // is told of each life before it is opened; may be nil
	// outage says whether the database is away, or full, or what lies beside it; may be nil.
	outage func() bool
	// opening changes the context in which a life is opened; may be nil.
	opening func(context.Context) context.Context
	// noise is nil where releases have none.
	noise *ledger
	// given is the calendar that it is told, which is the world's but in tests of the
	// oracle.
	given *aggregator.Calendar
	clock clock
}

// replicate makes other replicas, so that there are so many.
func (n *node) replicate(all int, seed uint64) {
	n.party = n
	for i := 1; i < all; i++ {
		n.others = append(n.others, &node{
			w: n.w, name: fmt.Sprintf("%s %d", n.name, i+1), disk: disktest.NewMem(seed + uint64(i)<<32), open: n.open, clock: n.clock, party: n,
		})
	}
}

// replicas are all of a party.
func (n *node) replicas() []*node { return append([]*node{n}, n.others...) }

// fs is the disk as the service sees it.
func (l *life) fs() disk.FS {
	if l.wrap != nil {
		return l.wrap(l.disk)
	}
	return l.disk
}

// record is where the service keeps what must not go back when its data does: on the same
// disk, which fails as one.
func (l *life) record() disk.FS { return disk.Sub(l.fs(), "record") }

// A life is a service from its start to its end.
type life struct {
	*node
	service
	disk  *disktest.Mem
	fail  *disk.Failpoints
	alive atomic.Bool
	// shaken: an operation was reported failed, so that the service may answer errors
	// until it is restarted.
	shaken atomic.Bool

	audited  int            // writes to the disk before the last audit
	requests sync.WaitGroup // being answered
	cancel   func()         // ends its workers, in lively worlds
	cut      func()         // ends its way to a database; nil where it has none
	workers  sync.WaitGroup
}

// A crash is a fault that waits at a failpoint, or at one of the disk's calls.
type crash struct {
	node  string
	point string // empty: at the disk
	skip  int    // so many times nothing happens
	soft  bool   // reported failed, without loss of power
}

func (c *crash) String() string {
	what := "loses power"
	if c.soft {
		what = "fails"
	}
	if c.point == "" {
		return fmt.Sprintf("%s %s at its disk's call %d", c.node, what, c.skip)
	}
	return fmt.Sprintf("%s %s at %s after %d", c.node, what, c.point, c.skip)
}

// lose takes the power away. It may be called from any goroutine of the life, between two
// calls of its disk.
func (l *life) lose() {
	l.alive.Store(false)
	l.disk.Cut()
	if l.cut != nil {
		l.cut()
	}
}

// away says whether the database of a replica is, or has no room.
func (l *life) away() bool { return l.cut != nil && l.outage != nil && l.outage() }

// excused says whether the service may answer errors.
func (l *life) excused() bool { return l.shaken.Load() || l.away() }

// set arms a crash in this life.
func (l *life) set(c *crash) {
	if c.point == "" {
		left, cut := c.skip, false
		l.disk.Inject(func(op disktest.Op, _ string) error {
			if op == disktest.OpRead || op == disktest.OpOpen {
				if cut {
					return disktest.ErrPowerLoss
				}
				return nil
			}
			if left--; left < 0 {
				l.w.strike(c)
				if c.soft {
					l.shaken.Store(true)
					if left == -1 {
						l.w.logf("%s: %s fails", l.name, op)
						return syscall.EIO
					}
					return nil
				}
				if !cut {
					cut = true
					l.alive.Store(false)
					l.w.logf("%s: power lost at %s", l.name, op)
				}
				return disktest.ErrPowerLoss
			}
			return nil
		})
		return
	}
	l.fail.Arm(c.point, c.skip, func() error {
		if !l.alive.Load() {
			return errPower
		}
		l.fail.Disarm(c.point)
		l.w.strike(c)
		l.w.logf("%v: now", c)
		if c.soft {
			// What became of a commit a replica finds out by itself.
			if l.cut == nil || !strings.HasPrefix(c.point, "store.") || !strings.HasSuffix(c.point, ".after-commit") {
				l.shaken.Store(true)
			}
			return errReported
		}
		l.lose()
		return errPower
	})
}

// disarm takes every fault away that has not struck.
func (l *life) disarm() {
	l.disk.Inject(nil)
	for _, p := range l.fail.Seen() {
		l.fail.Disarm(p)
	}
	for _, c := range l.w.armed {
		l.fail.Disarm(c.point)
	}
}

// start begins a life, and another one if that ends before it has begun.
func (n *node) start() {
	for attempt := 0; ; attempt++ {
		l := &life{node: n, disk: n.disk, fail: new(disk.Failpoints)}
		l.alive.Store(true)
		if n.begin != nil {
			n.begin(l) // before the faults, which go where it has its own
		}
		if n.arm != nil {
			l.set(n.arm)
			n.arm = nil
		}
		for _, c := range n.w.crashes {
			if c.node == n.name && !n.w.struck(c) {
				l.set(c)
			}
		}
		s, err := n.open(l)
		if err == nil && l.alive.Load() {
			if n.noise != nil {
				n.noise.reopen(l.disk)
			}
			l.service = s
			l.work()
			n.life.Store(l)
			n.w.logf("%s: up", n.name)
			return
		}
		if err == nil {
			l.service = s
			n.w.dead = append(n.w.dead, l)
		} else if l.alive.Load() && l.away() {
			l.lose()
			n.disk, n.due = n.disk.Crash(), time.Now().Add(lease) // somebody starts it again
			return
		} else if l.alive.Load() && !l.shaken.Load() {
			n.w.oracle.violate("%s does not start: %v", n.name, err)
			return
		}
		l.lose()
		n.disk = n.disk.Crash()
		if attempt == 3 {
			n.w.oracle.violate("%s does not start after a loss of power: %v", n.name, err)
			return
		}
	}
}

// fall ends the life as a loss of power does; the machine is down for the given time.
func (n *node) fall(down time.Duration) {
	l := n.life.Load()
	l.lose()
	n.life.Store(nil)
	n.disk, n.due = l.disk.Crash(), time.Now().Add(down)
	if l.cut != nil && n.w.rng.IntN(2) == 0 { // it never comes back, and another machine takes its place
		n.disk = disktest.NewMem(n.w.rng.Uint64())
		must(0, disk.MakeDirs(n.disk, "record"))
		n.w.logf("%s: another machine", n.name)
	}
	n.w.dead = append(n.w.dead, l)
	n.w.logf("%s: down", n.name)
}

// stop ends the life as a good operator does. Nothing of it may be running.
func (n *node) stop() {
	l := n.life.Load()
	l.disarm()
	n.life.Store(nil)
	l.end()
	err := l.Close()
	if !l.alive.Load() { // power was lost while it closed
		n.disk = l.disk.Crash()
	} else if err != nil && !l.shaken.Load() {
		n.w.oracle.violate("%s: close: %v", n.name, err)
	}
	n.w.note(l)
	l.alive.Store(false)
	n.due = time.Now()
	n.w.logf("%s: stopped", n.name)
}

// work starts the workers of a service in a lively world; in others it works only when it
// is told to step.
func (l *life) work() {
	if !l.w.cfg.lively {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	l.workers.Go(func() {
		if err := l.Run(ctx); err != nil && l.alive.Load() && !l.shaken.Load() {
			l.w.oracle.violate("%s: run: %v", l.name, err)
		}
	})
}

// says has the trace tell what a service logs as an error: why it answered 500, most of all.
type says struct{ *life }

func (says) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }
func (s says) WithAttrs([]slog.Attr) slog.Handler             { return s }
func (s says) WithGroup(string) slog.Handler                  { return s }

func (s says) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" || a.Key == "why" {
			s.w.logf("%s: %s: %v", s.name, r.Message, a.Value)
		}
		return true
	})
	return nil
}

// end waits until nothing of a life is running, so that it can be closed.
func (l *life) end() {
	if l.cancel != nil {
		l.cancel()
	}
	l.workers.Wait()
	l.requests.Wait()
}

// settle notices a life that ended by itself, and brings the machine up again when it is
// time.
func (n *node) settle(r *rand.Rand) {
	if n.life.Load() != nil && !n.life.Load().alive.Load() {
		n.fall(time.Duration(r.IntN(90)) * time.Second)
	}
	if n.life.Load() == nil && !time.Now().Before(n.due) {
		n.start()
	}
}

// step lets the service do what there is to do.
func (n *node) step() (worked bool) {
	l := n.life.Load()
	if l == nil || !l.alive.Load() || n.w.cfg.lively {
		return false
	}
	worked, err := l.Step(context.Background())
	switch {
	case !l.alive.Load():
		return false
	case err == nil:
		return worked
	case !l.excused():
		n.w.oracle.violate("%s: step: %v", n.name, err)
	}
	return false
}

// dataKeys is the time that a data key is of: short where keys rotate and replicas share them.
func (l *life) dataKeys() time.Duration {
	if l.w.cfg.rotate && l.reach != nil {
		return aggregator.MinDataKeyPeriod
	}
	return 0
}

// context is that in which a life is opened: with the VDAF's rounds.
func (l *life) context() context.Context {
	ctx := context.Background()
	if l.w.cfg.rounds > 0 {
		ctx = aggregatortest.Rounds(ctx, l.w.cfg.rounds, nil)
	}
	if l.opening != nil {
		ctx = l.opening(ctx)
	}
	return ctx
}

func (w *world) newLeader(l *life) (service, error) {
	opt := leader.Options{
		Options: aggregator.Options{
			Base: leaderURL, Tasks: []aggregator.Task{l.task()}, Keys: w.leaderKeys, KeySchedule: w.schedule(0), DataKeyPeriod: l.dataKeys(), FS: l.fs(), Record: l.record(),
			Clock: l.clock, Idle: idle, Limits: limits, Failpoints: l.fail, Retention: retention, Log: slog.New(says{l}),
		},
		Transport: &port{w.net, l}, HelperTimeout: helperTimeout, Patience: w.cfg.patience, Lease: lease, MaxJobReports: w.cfg.segment,
		BackOff: time.Second, MaxBackOff: maxBackOff,
	}
	if l.reach != nil {
		opt.Database, l.cut = l.reach(l)
	}
	s, err := leader.New(l.context(), opt)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (w *world) newHelper(l *life) (service, error) {
	opt := helper.Options{
		Options: aggregator.Options{
			Base: helperURL, Tasks: []aggregator.Task{l.task()}, Keys: w.helperKeys, KeySchedule: w.schedule(keyDelay), DataKeyPeriod: l.dataKeys(), FS: l.fs(), Record: l.record(),
			Clock: l.clock, Idle: idle, Limits: limits, Failpoints: l.fail, Retention: retention, Log: slog.New(says{l}),
		},
		Deferred: w.cfg.deferred,
	}
	if l.reach != nil {
		opt.Database, l.cut = l.reach(l)
	}
	s, err := helper.New(l.context(), opt)
	if err != nil {
		return nil, err
	}
	return s, nil
}
