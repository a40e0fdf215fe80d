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
	"github.com/starling-agg/starling/dap"
)

// In worlds with cfg.replicas the helper is two or three processes on one database, and in
// those with cfg.leaders the leader is, which is real: each life of one has a line to it, on
// which statements and answers are lost, conflicts are made, and where it all ends when the
// life does. A request goes to any of them. After a transaction, before whoever made it hears
// of it, other operations may run. The server's clock is the world's.
//
// Of what leaders take, all above some kilobytes lies beside the database, in object storage
// that refuses, is slow, is full, and in some worlds lies.
//
// A seed repeats as far as a database does: what is drawn for a statement depends on the
// order of statements, which is fixed where one connection has them all.

var (
	replicaSeeds = flag.Int("replica-seeds", patient(6, 4), "how many seeds TestReplicas runs")
	replicaFrom  = flag.Int("replica-from", 0, "the first of them")
	replicaSeed  = flag.Int64("replica-seed", -1, "run this seed of TestReplicas alone")
	replicaEvery = flag.Int("replica-every", patient(30, 40), "TestReplicaFailpoints crashes at one failpoint of so many")
)

func TestMain(m *testing.M) { os.Exit(databasetest.Run(m)) }

// backed is the database of one party, with what goes wrong there. All of it but the methods
// that say so is outside of the world's bubble.
type backed struct {
	t       *testing.T
	objects *databasetest.Objects // beside it, of a leader; nil where all are rows
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
	beside atomic.Int64  // what goes wrong at objects ends, as now

	mu    sync.Mutex // guards the rest
	rng   *rand.Rand
	odds  int // one statement in so many meets a fault
	crash int // statements until the server is killed; negative: never
	met   map[string]int

	party string
	lies  bool // object storage does, for some time
}

// A line is what one life has.
type line struct {
	*databasetest.Line
	file string
}

func newBacked(t *testing.T, seed uint64) *backed {
	b := &backed{
		t: t, schema: databasetest.New(t), dir: t.TempDir(), lines: make(chan *line), ended: make(chan struct{}),
		rng: rand.New(rand.NewPCG(seed, 5)), odds: 40, crash: -1, met: make(map[string]int),
	}
	_ = t.Context().Done() // made here, for a channel of the bubble could not be closed outside
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

// reach is [node.reach], and runs in the bubble.
func (b *backed) reach(*life) (*aggregator.Database, func()) {
	n := <-b.lines
	return &aggregator.Database{
		File: n.file, Schema: b.schema.Name, Service: b.service, WrappingKeys: filepath.Join(b.dir, "wrapping"), Connections: 4,
	}, n.End
}

// locked are transactions of a process that has locked its keys: whatever else it does in
// between may wait for them, and the step that it is in would never go on.
var locked = transactions("beat", "save-vault", "note-data-key", "note-keys")

// begin is [node.begin], and runs in the bubble: after some transactions others come first.
func (b *backed) begin(l *life) {
	for _, p := range l.w.points(l.node) {
		if strings.HasSuffix(p, ".after-commit") && !slices.Contains(locked, p) {
			l.fail.Arm(p, 0, func() error {
				if !l.w.net.pass.Load() && !b.calm.Load() && l.node.life.Load() == l && l.alive.Load() && l.w.net.roll(8) == 0 {
					l.w.interleave()
				}
				return nil
			})
		}
	}
}

// join gives the replicas of a party the database, and runs in the bubble.
func (b *backed) join(first *node) {
	for _, n := range first.replicas() {
		n.reach, n.begin, n.outage = b.reach, b.begin, b.outage
		n.clock.set = new(atomic.Int64)
		n.rows = func(sql string) int { return b.schema.Server.Ask(b.t, fmt.Sprintf(sql, b.schema.Name)) }
		if b.objects != nil {
			n.opening = func(ctx context.Context) context.Context { return b.objects.In(ctx, rowBytes) }
		}
	}
}

// outage is [node.outage]: something is away or full, or was when what is heard of now began.
func (b *backed) outage() bool {
	now := time.Now().UnixMicro()
	return b.window.Load() != 0 && now < b.until.Load()+outlast.Microseconds() || now < b.beside.Load()+outlast.Microseconds()
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
	w.logf("%s: database %s for %v", b.party, []string{away: "away", full: "full"}[b.window.Load()], lasts)
}

// rowBytes is what becomes an object in these worlds: about two reports.
const rowBytes = 8 << 10

// wrongs are what goes wrong at object storage for some time; the last one is for worlds in
// which it lies.
var wrongs = []struct {
	name  string
	rates map[databasetest.Wrong]float64
	delay time.Duration // of puts
}{
	{"refuses", map[databasetest.Wrong]float64{databasetest.Refused: 0.3, databasetest.Silent: 0.1, databasetest.Late: 0.1}, 0},
	{"is full", map[databasetest.Wrong]float64{databasetest.Full: 0.8, databasetest.Denied: 0.1}, 0},
	{"is slow", map[databasetest.Wrong]float64{databasetest.Silent: 0.1}, 40 * time.Second},
	{"lies", map[databasetest.Wrong]float64{databasetest.Lying: 0.4}, 0},
}

// opObjects begins a time in which object storage does not do what it should.
func (b *backed) opObjects(w *world) {
	if b.now.Load() < b.beside.Load() {
		return
	}
	n := len(wrongs)
	if !b.lies {
		n--
	}
	lasts := time.Duration(w.rng.Int64N(int64(2 * lease)))
	b.beside.Store(time.Now().Add(lasts).UnixMicro())
	x := wrongs[w.rng.IntN(n)]
	b.objects.Go(x.rates, x.delay)
	b.mu.Lock()
	b.met[x.name]++
	b.mu.Unlock()
	w.logf("%s: object storage %s for %v", b.party, x.name, lasts)
}

// endObjects ends it when its time is over.
func (b *backed) endObjects() {
	if end := b.beside.Load(); end > 0 && b.now.Load() >= end {
		b.objects.Calm()
	}
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
	all := slices.DeleteFunc(w.nodes(), func(n *node) bool { return n.clock.set == nil })
	n := all[w.rng.IntN(len(all))]
	n.clock.set.Store(w.rng.Int64N(int64(4*time.Minute)) - int64(2*time.Minute)) // more is an alarm, and should be
	w.logf("%s: its clock is set %v ahead", n.name, time.Duration(n.clock.set.Load()))
}

// replicated is the deployment of a seed, with replicas of the helper, the leader, or both.
func replicated(seed uint64) config {
	c := draw(seed)
	switch n := 2 + int(seed/2%2); seed % 3 {
	case 0:
		c.leaders = n
	case 1:
		c.leaders, c.replicas = n, 2
	default:
		c.replicas = n
	}
	c.series = false // the oracle reads noise from files
	return c
}

// databases are those of a world's parties; nil where one has its store to itself.
type databases struct{ leader, helper *backed }

func (d databases) all() (all []*backed) {
	for _, b := range []*backed{d.leader, d.helper} {
		if b != nil {
			all = append(all, b)
		}
	}
	return all
}

// newDatabases makes those that a world has, before all that is random is the seed's.
func newDatabases(t *testing.T, cfg config) (d databases) {
	if cfg.leaders > 0 {
		d.leader = newBacked(t, cfg.seed)
		d.leader.party, d.leader.lies = "leader", cfg.seed%4 == 0
		d.leader.objects = databasetest.NewObjects(cfg.seed)
	}
	if cfg.replicas > 0 {
		d.helper = newBacked(t, cfg.seed+1<<32)
		d.helper.party = "helper"
	}
	return d
}

// play runs a world whose parties stand on databases.
func (d databases) play(t *testing.T, cfg config) *world {
	t.Helper()
	return d.playing(t, cfg, func(*world) {})
}

// playing is play with a change of the world before it begins.
func (d databases) playing(t *testing.T, cfg config, change func(*world)) *world {
	t.Helper()
	w := run(t, cfg, func(w *world) {
		change(w)
		w.extra = []op{{2, opClock, true}}
		if d.leader != nil {
			d.leader.join(w.leader)
			w.extra = append(w.extra, op{2, d.leader.opObjects, true})
			w.lies = d.leader.objects.Lies
		}
		if d.helper != nil {
			d.helper.join(w.helper)
		}
		for _, b := range d.all() {
			w.extra = append(w.extra, op{1, b.opWindow, false})
			b.now.Store(time.Now().UnixMicro())
		}
		w.quiet = func(calm bool) {
			for _, n := range w.nodes() {
				if n.clock.set != nil {
					n.clock.set.Store(0)
				}
			}
			for _, b := range d.all() {
				b.calm.Store(calm)
				b.window.Store(0)
				if b.beside.Store(0); b.objects != nil {
					b.objects.Calm()
				}
			}
		}
		stop := make(chan struct{})
		w.over = func() { close(stop) }
		go func() {
			for tick := time.NewTicker(time.Second); ; {
				select {
				case at := <-tick.C:
					for _, b := range d.all() {
						if b.now.Store(at.UnixMicro()); b.objects != nil {
							b.endObjects()
						}
					}
				case <-stop:
					return
				}
			}
		}()
	})
	if len(w.oracle.violations) > 0 {
		t.Errorf("seed %d: %q\nreproduce with: go test -tags postgres ./test/sim -run TestReplicas -count 1 -v -replica-seed %d\n%s\n%v", cfg.seed,
			w.oracle.violations, cfg.seed, w.dump(), d.met())
	} else if testing.Verbose() && *replicaSeed >= 0 {
		t.Log(w.dump())
	}
	return w
}

// met is what happened on all lines, and beside.
func (d databases) met() map[string]int {
	met := make(map[string]int)
	for _, b := range d.all() {
		b.mu.Lock()
		for what, n := range b.met {
			met[what] += n
		}
		b.mu.Unlock()
		if b.objects != nil {
			met["objects"] += b.objects.Puts()
			met["objects lost by a lie"] += len(b.objects.Lies())
		}
	}
	return met
}

// TestReplicas: replicas of leader, helper or both on one database each, through all that the
// worlds of TestSeeds meet, and through what happens between them, the databases and object
// storage.
func TestReplicas(t *testing.T) {
	var total tally
	met := make(map[string]int)
	one := func(t *testing.T, seed uint64) {
		cfg := replicated(seed)
		d := newDatabases(t, cfg)
		if seed%6 == 5 && os.Getenv("STARLING_TEST_POSTGRES") == "" {
			all := d.all()
			all[len(all)-1].crash = 200 + int(seed*37%400)
		}
		total.add(d.play(t, cfg))
		for what, n := range d.met() {
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
	want := []string{"away", "no room", "server killed", "objects"}
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
	all := []config{tours[0], tours[2]}
	if *replicaEvery > 10 {
		all = all[:1]
	}
	for _, cfg := range all {
		cfg.leaders, cfg.replicas = 2, 2
		var dry *world
		t.Run("none", func(t *testing.T) { dry = newDatabases(t, cfg).play(t, cfg) })
		if t.Failed() {
			return
		}
		for first, parties := range map[*node]int{dry.leader: 25, dry.helper: 20} {
			points := make(map[string]bool)
			for _, n := range first.replicas() {
				for p := range dry.seen[n.name] {
					if strings.HasPrefix(p, "store.") {
						points[p] = true
					}
				}
			}
			if len(points) < parties {
				t.Errorf("the tour passes %q alone", slices.Sorted(maps.Keys(points)))
			}
			for i, p := range slices.Sorted(maps.Keys(points)) {
				if i%*replicaEvery == 0 {
					replicaCrash(t, cfg, first, p)
				}
			}
		}
	}
}

// replicaCrash has one replica of a party lose power at a failpoint, and then fail there.
func replicaCrash(t *testing.T, cfg config, first *node, p string) {
	for _, soft := range []bool{false, true} {
		t.Run(fmt.Sprint(first.name, "-", p, map[bool]string{true: "-fails", false: "-loses-power"}[soft]), func(t *testing.T) {
			// All schemas are made before all that is random is the seed's.
			both := []databases{newDatabases(t, cfg), newDatabases(t, cfg)}
			for i, n := range first.replicas() { // a request may go to either
				c := crash{node: n.name, point: p, soft: soft}
				cfg.crashes = []*crash{&c}
				if w := both[i].play(t, cfg); w.fired[c] {
					return
				}
			}
			t.Error("never reached")
		})
	}
}

// TestReplicasFull: while the databases of replicas of a leader, or of its helper, have no
// room or are away, or object storage is full, uploads or the work on them are answered 503;
// nothing that was acknowledged is lost, and all goes on by itself once that is over.
func TestReplicasFull(t *testing.T) {
	for _, what := range []string{"leader", "helper", "objects", "away"} {
		t.Run(what, func(t *testing.T) {
			cfg := tours[0]
			cfg.leaders, cfg.replicas, cfg.tour, cfg.window, cfg.ops = 2, 2, false, false, 0
			d := newDatabases(t, cfg)
			refused := 0
			w := d.playing(t, cfg, func(w *world) {
				w.net.forge = func(m *message, a *answer) {
					if m.method == "POST" && strings.HasSuffix(m.url.Path, "/reports") && a.status == 503 && a.header.Get("Retry-After") != "" {
						refused++
					}
				}
				w.before = func() { w.full(d, what) }
			})
			if w.failed() {
				return
			}
			acked := 0
			for _, r := range w.oracle.reports {
				acked += r.acked
			}
			if acked == 0 || len(w.oracle.results) == 0 || (refused > 0) != (what != "helper") {
				t.Errorf("%d reports acknowledged, %d results, %d uploads refused", acked, len(w.oracle.results), refused)
			}
		})
	}
}

// full has no room at one place for a while, in which devices and both servers go on.
func (w *world) full(d databases, what string) {
	upload := func(n int) {
		var reports []*report
		for range n {
			reports = append(reports, w.make(good, 0))
		}
		w.upload(reports)
	}
	upload(4)
	const lasts = 10 * time.Minute
	until := time.Now().Add(lasts).UnixMicro()
	if what == "objects" {
		d.leader.objects.Go(map[databasetest.Wrong]float64{databasetest.Full: 1}, 0)
		d.leader.beside.Store(until)
	} else {
		b := d.leader
		if what == "helper" {
			b = d.helper
		}
		b.odds = 1 << 30
		b.calm.Store(false)
		if b.window.Store(full); what == "away" {
			b.window.Store(away)
		}
		b.until.Store(until)
	}
	for range 4 {
		upload(4)
		w.step(w.leader)
		w.step(w.helper)
		time.Sleep(time.Minute)
	}
	time.Sleep(lasts)
	upload(4)
}

// TestReplicaLacksKey: a leader's replica that was cut off for a while claims reports
// sealed to a key that the other offers since then. It refuses none of them: who has the
// key takes them.
func TestReplicaLacksKey(t *testing.T) {
	cfg := config{seed: 1, mode: dap.TimeInterval, min: 3, segment: 4, patience: -1, rotate: true, leaders: 2}
	away := 0
	w := newDatabases(t, cfg).playing(t, cfg, func(w *world) {
		w.net.forge = func(m *message, a *answer) {
			if a.by.name == "leader 2" && a.status == 503 && strings.HasSuffix(m.url.Path, "/reports") {
				away++
			}
		}
		w.before = func() {
			other := w.leader.others[0]
			w.leader.step()
			other.step()
			time.Sleep(keyPeriod + time.Minute)
			for range 5 { // the other one is held dead, and a new key is offered
				w.leader.step()
				time.Sleep(15 * time.Second)
			}
			for range 8 {
				w.upload([]*report{w.make(good, 0), w.make(good, 0)})
			}
			other.step()
		}
	})
	if away == 0 || len(w.oracle.results) == 0 {
		t.Errorf("%d uploads to the replica that lacks the key, %d results", away, len(w.oracle.results))
	}
}
