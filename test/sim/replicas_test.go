//go:build postgres

package sim

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/database"
	"github.com/starling-agg/starling/aggregator/database/databasetest"
)

// In worlds with cfg.replicas the helper is two or three processes on one database, which is
// real: each life of one has a line to it, on which statements and answers are lost,
// conflicts are made, and where it all ends when the life does. A request goes to any of
// them. After a transaction, before whoever made it hears of it, other operations may run.
// The server's clock is the world's.
//
// A seed repeats as far as a database does: what is drawn for a statement depends on the
// order of statements, which is fixed where one connection has them all.

var (
	replicaSeeds = flag.Int("replica-seeds", patient(6, 4), "how many seeds TestReplicas runs")
	replicaFrom  = flag.Int("replica-from", 0, "the first of them")
	replicaSeed  = flag.Int64("replica-seed", -1, "run this seed of TestReplicas alone")
	replicaEvery = flag.Int("replica-every", patient(10, 20), "TestReplicaFailpoints crashes at one failpoint of so many")
)

func TestMain(m *testing.M) { os.Exit(databasetest.Run(m)) }

// backed is the database of one world, with what goes wrong there. All of it but the
// methods that say so is outside of the world's bubble.
type backed struct {
	t       *testing.T
	schema  *databasetest.Schema
	dir     string
	service string // the role
	lines   chan *line
	ended   chan struct{}

	calm   atomic.Bool
	now    atomic.Int64  // of the world, in microseconds
	window atomic.Int32  // away, full or neither
	opened atomic.Uint64 // how many windows there were
	until  atomic.Int64  // it ends, as now

	mu    sync.Mutex // guards the rest
	rng   *rand.Rand
	odds  int // one statement in so many meets a fault
	crash int // statements until the server is killed; negative: never
	met   map[string]int
}

// A line is what one life has.
type line struct {
	*databasetest.Line
	file string
}

func newBacked(t *testing.T, cfg config) *backed {
	b := &backed{
		t: t, schema: databasetest.New(t), dir: t.TempDir(), lines: make(chan *line), ended: make(chan struct{}),
		rng: rand.New(rand.NewPCG(cfg.seed, 5)), odds: 40, crash: -1, met: make(map[string]int),
	}
	b.calm.Store(true)
	b.service = b.schema.Role
	owner := databasetest.NewLine(t, b.schema.Owner, nil, b.rewrite)
	file := b.write("owner", owner.Connection)
	_, _, err := database.Migrate(context.Background(), database.MigrateOptions{Database: aggregator.Database{File: file, Schema: b.schema.Name, Service: b.service}})
	if err != nil {
		t.Fatal(err)
	}
	owner.End()
	must(database.AddWrappingKey(filepath.Join(b.dir, "wrapping"), time.Now()))
	go func() {
		for n := 0; ; n++ {
			l := new(line)
			l.Line = databasetest.NewLine(t, b.schema.Service, b.fate, b.rewrite)
			l.file = b.write(fmt.Sprint("line-", n), l.Connection)
			select {
			case b.lines <- l:
			case <-b.ended:
				return
			}
		}
	}()
	t.Cleanup(func() { close(b.ended) })
	return b
}

func (b *backed) write(name, text string) string {
	name = filepath.Join(b.dir, name)
	must(0, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// rewrite has the server's clock be the world's, and a server that does not sync say that
// it does.
func (b *backed) rewrite(sql string) string {
	if !strings.Contains(sql, "now()") && !strings.Contains(sql, "clock_timestamp()") && !strings.Contains(sql, "'fsync'") {
		return sql
	}
	at := fmt.Sprintf("to_timestamp(%d / 1000000.0)", b.now.Load())
	return strings.NewReplacer("now()", at, "clock_timestamp()", at, "current_setting('fsync', true)", "'on'").Replace(sql)
}

// outlast is how long what began in a window may take to hear of its end.
const outlast = 2 * time.Minute

// What a window is of: for some time no connection is had, or there is no room for what is
// written.
const (
	away = 1 + iota
	full
)

// fates are drawn for what ends a transaction, and rarely for what does not.
var fates = []databasetest.Fate{
	databasetest.LostBefore, databasetest.LostAfter, databasetest.UnderWay, databasetest.Conflict, databasetest.Deadlock, databasetest.ShutDown,
}

func (b *backed) fate(sql string) databasetest.Fate {
	if b.calm.Load() {
		return databasetest.Arrives
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.kind() {
	case away:
		b.met["away"]++
		return databasetest.LostBefore
	case full:
		if strings.Contains(sql, "READ WRITE") {
			b.met["no room"]++
			return databasetest.NoRoom
		}
	}
	if sql == databasetest.Connecting {
		return databasetest.Arrives
	}
	if b.crash >= 0 {
		if b.crash--; b.crash < 0 {
			b.met["server killed"]++
			b.schema.Server.Crash(b.t, func() {})
		}
	}
	odds := 4 * b.odds
	if strings.HasPrefix(sql, "COMMIT") {
		odds = b.odds / 4
	}
	if b.rng.IntN(odds) > 0 {
		return databasetest.Arrives
	}
	f := fates[b.rng.IntN(len(fates))]
	b.met[string(f)]++
	return f
}

// reach is [world.reach], and runs in the bubble.
func (b *backed) reach(*life) (*aggregator.Database, func()) {
	n := <-b.lines
	return &aggregator.Database{
		File: n.file, Schema: b.schema.Name, Service: b.service, WrappingKeys: filepath.Join(b.dir, "wrapping"), Connections: 4,
	}, n.End
}

// begin is [world.begin], and runs in the bubble: after some transactions others come first.
func (b *backed) begin(l *life) {
	if l.node == l.w.leader {
		return
	}
	for _, p := range replicaPoints {
		if strings.HasSuffix(p, "after-commit") {
			l.fail.Arm(p, 0, func() error {
				if !l.w.net.pass.Load() && !b.calm.Load() && l.node.life.Load() == l && l.alive.Load() && l.w.net.roll(8) == 0 {
					l.w.interleave()
				}
				return nil
			})
		}
	}
}

// opWindow begins a time in which the database is away, or full.
func (b *backed) opWindow(w *world) {
	if b.kind() != 0 {
		return
	}
	lasts := time.Duration(w.rng.Int64N(int64(2 * lease)))
	b.until.Store(time.Now().Add(lasts).UnixMicro())
	// By turns, so that a few worlds have both whatever they draw.
	b.window.Store(int32(away + (b.opened.Add(1)+w.cfg.seed)%2))
	w.logf("database: %s for %v", []string{away: "away", full: "full"}[b.window.Load()], lasts)
}

// kind is that of the window which is open now, or 0. Whoever waits for the database may wait
// for its end.
func (b *backed) kind() int32 {
	if b.now.Load() >= b.until.Load() {
		return 0
	}
	return b.window.Load()
}

// opClock sets the clock of a replica, to and fro.
func opClock(w *world) {
	if w.cfg.units > 0 {
		return // who gives out a round goes by it
	}
	n := append([]*node{w.helper}, w.others...)[w.rng.IntN(1+len(w.others))]
	n.clock.set.Store(w.rng.Int64N(int64(4*time.Minute)) - int64(2*time.Minute)) // more is an alarm, and should be
	w.logf("%s: its clock is set %v ahead", n.name, time.Duration(n.clock.set.Load()))
}

// replicated is the deployment of a seed, with replicas of the helper.
func replicated(seed uint64) config {
	c := draw(seed)
	c.replicas = 2 + int(seed/2%2)
	c.series, c.rotate = false, false // the oracle reads noise and keys from files
	return c
}

// play runs a world whose helper stands on a database.
func (b *backed) play(cfg config) *world {
	b.t.Helper()
	w := run(b.t, cfg, func(w *world) {
		w.reach, w.begin = b.reach, b.begin
		w.outage = func() bool { // and for what began before its end
			return b.window.Load() != 0 && time.Now().UnixMicro() < b.until.Load()+outlast.Microseconds()
		}
		w.extra = []op{{1, b.opWindow, false}, {2, opClock, true}}
		for _, n := range append([]*node{w.helper}, w.others...) {
			n.clock.set = new(atomic.Int64)
		}
		w.quiet = func(calm bool) {
			b.calm.Store(calm)
			for _, n := range append([]*node{w.helper}, w.others...) {
				n.clock.set.Store(0)
			}
			b.window.Store(0)
		}
		stop := make(chan struct{})
		w.over = func() { close(stop) }
		b.now.Store(time.Now().UnixMicro())
		go func() {
			for tick := time.NewTicker(time.Second); ; {
				select {
				case at := <-tick.C:
					b.now.Store(at.UnixMicro())
				case <-stop:
					return
				}
			}
		}()
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(w.oracle.violations) > 0 {
		b.t.Errorf("seed %d: %q\nreproduce with: go test -tags postgres ./test/sim -run TestReplicas -count 1 -v -replica-seed %d\n%s\n%v", cfg.seed,
			w.oracle.violations, cfg.seed, w.dump(), b.met)
	} else if testing.Verbose() && *replicaSeed >= 0 {
		b.t.Log(w.dump())
	}
	return w
}

// TestReplicas: replicas of a helper on one database, through all that the worlds of
// TestSeeds meet, and through what happens between them and the database.
func TestReplicas(t *testing.T) {
	var total tally
	met := make(map[string]int)
	one := func(t *testing.T, seed uint64) {
		cfg := replicated(seed)
		b := newBacked(t, cfg)
		if seed%6 == 5 && os.Getenv("STARLING_TEST_POSTGRES") == "" {
			b.crash = 200 + int(seed*37%400)
		}
		total.add(b.play(cfg))
		for what, n := range b.met {
			met[what] += n
		}
	}
	if *replicaSeed >= 0 {
		one(t, uint64(*replicaSeed))
		return
	}
	for s := range uint64(*replicaSeeds) {
		s += uint64(*replicaFrom)
		t.Run(strconv.FormatUint(s, 10), func(t *testing.T) { one(t, s) })
	}
	t.Logf("%d seeds: %+v; on the lines %v", *replicaSeeds, total, met)
	if *replicaSeeds < 6 || *replicaFrom%6 != 0 || t.Failed() {
		return
	}
	want := []string{"away", "no room", "server killed"}
	for _, f := range fates {
		want = append(want, string(f))
	}
	for _, what := range want {
		if met[what] == 0 {
			t.Errorf("nothing was %q on any line: %v", what, slices.Sorted(maps.Keys(met)))
		}
	}
	if total.results == 0 || total.counted == 0 || total.rejected == 0 || total.struck == 0 || total.late == 0 {
		t.Errorf("too little happened: %+v", total)
	}
}

// TestReplicaFailpoints loses the power of a replica at each failpoint of its transactions,
// and has what is done there reported failed, while another replica is there.
func TestReplicaFailpoints(t *testing.T) {
	cfg := tours[0]
	cfg.replicas = 2
	var dry *world
	t.Run("none", func(t *testing.T) { dry = newBacked(t, cfg).play(cfg) })
	points := make(map[string]bool)
	for name, seen := range dry.seen {
		for p := range seen {
			if name != dry.leader.name && strings.HasPrefix(p, "store.") {
				points[p] = true
			}
		}
	}
	if len(points) < 20 {
		t.Errorf("the tour passes %q alone", slices.Sorted(maps.Keys(points)))
	}
	for i, p := range slices.Sorted(maps.Keys(points)) {
		if i%*replicaEvery != 0 {
			continue
		}
		for _, soft := range []bool{false, true} {
			t.Run(fmt.Sprint(p, map[bool]string{true: "-fails", false: "-loses-power"}[soft]), func(t *testing.T) {
				// Both schemas are made before all that is random is the seed's.
				backs := []*backed{newBacked(t, cfg), newBacked(t, cfg)}
				for i, name := range []string{dry.helper.name, dry.others[0].name} { // a request may go to either
					c := crash{node: name, point: p, soft: soft}
					cfg.crashes = []*crash{&c}
					if w := backs[i].play(cfg); w.fired[c] {
						return
					}
				}
				t.Error("never reached")
			})
		}
	}
}
