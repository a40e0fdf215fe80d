package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/aggregatortest"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
)

const (
	leaderURL = "https://leader.example/v1"
	helperURL = "https://helper.example/v1"

	collectorToken = aggregatortest.CollectorToken

	length        = 160 // buckets, and with it reports, of one run
	spare         = 80  // of them for the end
	precision     = 3600
	idle          = 20 * time.Second // between two looks for work that nobody announced
	lease         = 5 * time.Minute
	helperTimeout = 30 * time.Second
	maxBackOff    = time.Minute
	// patience of the last phase: a lease, and the longest chain of attempts that each
	// wait for the one before.
	patience = 30 * time.Minute
)

var limits = aggregator.Limits{Workers: 1}

// config is one deployment and what happens to it.
type config struct {
	seed     uint64
	version  dap.Version
	framing  dap.Framing // of what leader, helper and collector say to one another
	mode     dap.BatchMode
	deferred helper.Deferred
	min      uint64
	segment  int  // reports
	rounds   int  // of the VDAF; 0 is Prio3 as it is
	window   bool // the task ends
	patience time.Duration
	ops      int
	lively   bool          // leader and helper run their own workers, at their own pace
	units    uint64        // of a round; 0 where the task has no calendar
	alone    bool          // each round is a batch by itself
	views    bool          // and once more in one of two rounds
	ahead    time.Duration // of the leader's clock, and as much is the helper's behind
	damage   bool          // one file of the replay protection of one server
	series   bool          // both servers add noise that is correlated over releases
	// leader and helper make and destroy their keys by themselves, and clients follow
	// them
	rotate bool
	// of each party, on one database; 0 is one that has its store to itself
	leaders, replicas int
	// the fixed list of operations that passes every failpoint, on a good network
	tour    bool
	crashes []*crash // armed from the beginning until they strike
}

// draw is the deployment of a seed.
func draw(seed uint64) config {
	r := rand.New(rand.NewPCG(seed, 1))
	c := config{
		seed: seed, mode: dap.TimeInterval, min: 3 + r.Uint64N(5), segment: 2 + r.IntN(9), patience: -1, ops: 30 + r.IntN(60),
	}
	if r.IntN(2) == 0 {
		c.mode = dap.LeaderSelected
	}
	if r.IntN(2) == 0 {
		c.deferred = helper.Always
	}
	if r.IntN(4) == 0 {
		c.patience = 3 * time.Second
	}
	if r.IntN(3) == 0 {
		c.rounds = 2 + r.IntN(2)
	}
	c.window = r.IntN(2) == 0
	c.rotate = seed%4 == 0
	if c.version = dap.Versions[seed/2%uint64(len(dap.Versions))]; c.version == dap.Draft18 && seed%3 == 1 {
		c.framing = dap.Janus
	}
	if c.series = c.mode == dap.TimeInterval && seed%5 == 0; c.series {
		c.min, c.ops = 3, c.ops+60
	}
	if n := seed / 3; (seed%3 == 0 || seed%4 == 1) && c.mode == dap.TimeInterval && !c.series && !c.rotate {
		c.units, c.alone = 2+n%2, n%4 < 2
		c.views = c.alone && n/4%2 == 1
		if !c.window {
			c.ahead = []time.Duration{-apart, apart}[n/2%2]
		}
	}
	return c
}

// world is one deployment with everyone in it. It is not the pair of package aggregator's
// tests, although both make a leader and a helper of options on disks in memory: there a
// test opens and closes the two, in the machine's time and over loopback; here each has
// many lives, that end at a failpoint or a call of the disk and begin again by themselves,
// in a bubble whose clock stands still, over a network that this package draws. What the
// two share of a task and its reports is aggregatortest.Task; one harness for both would
// have every member twice.
type world struct {
	cfg     config
	rng     *rand.Rand
	start   time.Time
	oracle  *oracle
	net     *network
	leader  *node // or its first replica
	helper  *node
	quiet   func(bool)      // begins or ends what goes wrong at databases; may be nil
	over    func()          // is called in the end; may be nil
	before  func()          // happens first; may be nil
	extra   []op            // of the world's own
	lies    func() [][]byte // what object storage said that it keeps, and does not; may be nil
	client  *client.Client
	dead    []*life // to be closed
	depth   int     // of operations within operations
	armed   []*crash
	crashes []*crash                   // armed in every life, until they strike
	seen    map[string]map[string]bool // failpoints, by node

	mu    sync.Mutex // guards the next two
	fired map[crash]bool
	trace []string

	kit          *aggregatortest.Task
	task         aggregator.Task
	conf         *dap.TaskConfiguration
	taskID       dap.TaskID
	recipe       []byte
	vdaf         *prio3.Histogram
	leaderKeys   *sealed.Keyring
	helperKeys   *sealed.Keyring
	collectorKey *sealed.KeyPair

	hurt, mended *node // whose replay protection was damaged, and was mended
	polls        int   // of the collector
	ended        int   // keys destroyed and remembered at the end

	jobs     []*job
	collide  bool            // of tests of the oracle: two reports share a bucket
	deleting map[string]bool // a DELETE was sent, by id
}

// A job is a collection as the collector remembers it.
type job struct {
	query   dap.Query
	state   collector.State // of Save; JobID is empty while no answer came, unless we choose it
	problem error           // what it ended with
	done    bool
	deleted bool // by us, and the leader said so
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newWorld(cfg config) *world {
	w := &world{
		cfg: cfg, rng: rand.New(rand.NewPCG(cfg.seed, 2)), start: time.Now(), fired: make(map[crash]bool),
		seen: make(map[string]map[string]bool), deleting: make(map[string]bool),
	}
	w.oracle, w.net = newOracle(w), &network{w: w, rng: rand.New(rand.NewPCG(cfg.seed, 3))}
	chunk := uint32(prio3.OptimalChunk(length))
	r := &recipe.Recipe{
		Name: "simulation", Query: recipe.Histogram{Length: length, Chunk: chunk}, Randomizer: recipe.NoRandomizer{},
		Participation: recipe.Always{}, Path: recipe.TwoServer{Leader: leaderURL, Helper: helperURL, BatchMode: cfg.mode},
		Noise: recipe.NoNoise{}, Claim: recipe.NoClaim{}, DAP: cfg.version, MinBatch: cfg.min, TimePrecision: precision, Window: w.window(),
	}
	if cfg.units > 0 {
		r.Rounds = &recipe.Rounds{Units: cfg.units, Grace: uint32(grace / time.Second)}
	}
	w.recipe = must(r.Append(nil))
	w.kit = must(aggregatortest.NewTask(must(r.Task()), cfg.framing))
	w.conf, w.taskID, w.collectorKey = w.kit.Config, w.kit.ID, w.kit.Collector
	w.leaderKeys, w.helperKeys = must(sealed.NewKeyring(w.kit.Leader)), must(sealed.NewKeyring(w.kit.Helper))
	w.vdaf = must(prio3.NewHistogram(2, length, int(chunk)))
	w.task = w.kit.Aggregator()
	w.task.Calendar = w.calendar()
	w.client = must(client.New(client.Options{
		Prover: account.Prover, Recipe: w.recipe, MaxEpsilon: math.Inf(1), HTTP: &port{network: w.net}, Attempts: 1,
	}))
	w.leader = &node{w: w, name: "leader", disk: disktest.NewMem(2 * cfg.seed)}
	w.helper = &node{w: w, name: "helper", disk: disktest.NewMem(2*cfg.seed + 1)}
	w.leader.open, w.helper.open = w.newLeader, w.newHelper
	w.leader.clock, w.helper.clock = clock{ahead: cfg.ahead}, clock{ahead: -cfg.ahead}
	w.leader.replicate(cfg.leaders, 2*cfg.seed)
	w.helper.replicate(cfg.replicas, 2*cfg.seed+1)
	for _, n := range w.nodes() {
		n.given = w.task.Calendar
		if err := disk.MakeDirs(n.disk, "record"); err != nil {
			panic(err)
		}
	}
	if cfg.series {
		for _, n := range w.nodes() {
			n.noise = w.newLedger(n.name)
			n.wrap = func(fsys disk.FS) disk.FS { return watched{fsys, n.noise} }
		}
	}
	w.crashes = cfg.crashes
	return w
}

func (w *world) logf(format string, args ...any) {
	line := time.Since(w.start).Round(time.Millisecond).String() + strings.Repeat("  ", w.depth) + " " + fmt.Sprintf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, line)
}

// strike notes that a crash has come about.
func (w *world) strike(c *crash) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fired[*c] = true
}

func (w *world) struck(c *crash) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fired[*c]
}

func (w *world) nodeOf(host string) *node {
	if host == must(url.Parse(leaderURL)).Host {
		return w.leader
	}
	return w.helper
}

func (w *world) nodes() []*node {
	return slices.Concat([]*node{w.leader, w.helper}, w.helper.others, w.leader.others)
}

func (w *world) node(name string) *node {
	all := w.nodes()
	return all[slices.IndexFunc(all, func(n *node) bool { return n.name == name })]
}

// lives are those of a party that are up: of all replicas, where it has several.
func (w *world) lives(n *node) (all []*life) {
	for _, r := range n.replicas() {
		if l := r.life.Load(); l != nil && l.alive.Load() {
			all = append(all, l)
		}
	}
	return all
}

// first is a life of a party that is up, or nil: what one replica says all have to.
func (w *world) first(n *node) *life {
	if all := w.lives(n); len(all) > 0 {
		return all[0]
	}
	return nil
}

// serving is the life that gets the next message to a party, or nil.
func (w *world) serving(n *node) *life {
	switch all := w.lives(n); {
	case len(all) == 0:
		return nil
	case len(all) == 1 || w.net.pass.Load(): // a check changes nothing of what is drawn
		return all[0]
	default:
		return all[w.net.roll(len(all))]
	}
}

// stepLeader has one replica of the leader do what there is to do.
func (w *world) stepLeader() { w.step(w.leader) }

// stepHelper is the same of the helper.
func (w *world) stepHelper() { w.step(w.helper) }

func (w *world) step(n *node) {
	if l := w.serving(n); l != nil {
		l.step()
	}
}

// arm sets a crash in the node's life, or in the next one.
func (w *world) arm(c *crash) {
	w.logf("armed: %v", c)
	w.armed = append(w.armed, c)
	if n := w.node(c.node); n.life.Load() != nil {
		n.life.Load().set(c)
	} else {
		n.arm = c
	}
}

// unit is the instant at which a unit of the task begins.
func (w *world) unit(t dap.Time) time.Time { return time.Unix(int64(t)*precision, 0) }

// asked says whether a collection of the unit was ever asked for.
func (w *world) asked(t dap.Time) bool {
	for _, j := range w.jobs {
		if j.query.Interval.Contains(t) {
			return true
		}
	}
	return false
}

// released says whether the unit is in a result.
func (w *world) released(t dap.Time) bool {
	for _, res := range w.oracle.results {
		if res.interval.Contains(t) {
			return true
		}
	}
	return false
}

// wasted says whether the collector deleted a collection of the unit before it had seen a
// result, which may have been there.
func (w *world) wasted(t dap.Time) bool {
	for _, j := range w.jobs {
		if w.deleting[j.state.JobID] && w.oracle.results[j.state.JobID] == nil && j.query.Interval.Contains(t) {
			return true
		}
	}
	return false
}

// bury closes the lives that have ended. Nothing of them may be running.
func (w *world) bury() {
	for _, l := range w.dead {
		l.end()
		l.Close() // its disk is gone: the error says so
		w.note(l)
	}
	w.dead = nil
}

// note remembers which failpoints a life passed.
func (w *world) note(l *life) {
	if w.seen[l.name] == nil {
		w.seen[l.name] = make(map[string]bool)
	}
	for _, p := range l.fail.Seen() {
		w.seen[l.name][p] = true
	}
}

// close ends everything.
func (w *world) close() {
	if w.over != nil {
		defer w.over()
	}
	w.bury()
	for _, n := range w.nodes() {
		if l := n.life.Load(); l != nil {
			l.end()
			l.Close()
			w.note(l)
		}
	}
}

// A kind of report.
type kind int

const (
	good       kind = iota
	early           // of the next unit
	badLeader       // the leader cannot open its share
	badHelper       // the helper cannot
	badProof        // the shares are of two measurements
	badShare        // the helper's share is too short
	lastOfKind = badShare
	inside     = lastOfKind + 1 // of a unit within its round; only where there is a calendar
)

// make makes the next report, of the given age, or returns nil if there are enough.
func (w *world) make(k kind, age time.Duration) *report {
	bucket := len(w.oracle.reports)
	if bucket >= length {
		return nil
	}
	if w.collide {
		bucket &^= 1
	}
	at := time.Now().Add(-age)
	if at.Before(w.start) {
		at = w.start
	}
	if k == early {
		at = time.Now().Add(precision * time.Second)
	}
	to := w.keys()
	if to == nil {
		return nil
	}
	r, err := w.client.Prepare(client.Bucket(uint32(bucket)), at)
	if err != nil {
		w.oracle.violate("client: %v", err)
		return nil
	}
	switch k {
	case badLeader:
		r.Leader.Payload[len(r.Leader.Payload)-1] ^= 1
	case badHelper:
		r.Helper.Payload[0] ^= 1
	case badProof, badShare, inside:
		at := r.Metadata.Time
		if k == inside {
			at++
		}
		r = must(w.kit.Report(at, func(ctx []byte, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
			// Both are always made, so that a seed draws the same whatever the kind.
			one, two := must(w.vdaf.Shard(ctx, bucket, nonce)), must(w.vdaf.Shard(ctx, (bucket+1)%length, nonce))
			switch k {
			case badShare:
				one.Inputs[1] = two.Inputs[1][1:]
			case badProof:
				one.Inputs[1] = two.Inputs[1]
			}
			return one, nil
		}, aggregatortest.Spoil{ID: &r.Metadata.ID, To: []dap.HpkeConfig{to[dap.RoleLeader], to[dap.RoleHelper]}}))
	}
	return w.oracle.add(r, k == good || k == early)
}

// upload sends reports as a client does.
func (w *world) upload(reports []*report) {
	if len(reports) == 0 {
		return
	}
	batch := make([]dap.Report, len(reports))
	for i, r := range reports {
		batch[i] = r.Report
	}
	refused, err := w.client.Upload(context.Background(), batch)
	w.logf("upload of %d: %d refused, %v", len(batch), len(refused), err)
}

// collector is one as it begins anew, with nothing but what it saved.
func (w *world) collector(j *job) *collector.Collector {
	return must(collector.New(collector.Options{
		Recipe: w.recipe, Token: collectorToken, Key: w.collectorKey, HTTP: &port{network: w.net}, Attempts: 1, Framing: w.cfg.framing,
		Save: func(s collector.State) error { j.state = s; return nil },
	}))
}

// ask creates a collection job, or asks again for one that got no answer.
func (w *world) ask(j *job) {
	_, err := w.collector(j).Start(context.Background(), j.query)
	w.logf("collect %v: %v", j.query.Interval, err)
	if p := new(dap.Problem); errors.As(err, &p) && p.HTTPStatus() < 500 {
		// A duplicate of this request was answered, and the job deleted, before this one came.
		gone := p.HTTPStatus() == 404 && w.deleting[j.state.JobID]
		if p.Type != dap.ProblemBatchOverlap && !(p.Type == dap.ProblemBatchInvalid && w.late(j)) && !gone {
			w.oracle.violate("collection refused: %v", p)
		}
		j.problem, j.done = p, true
		return
	}
	w.poll(j)
}

// poll asks once for the result of a job; again, as if for the first time, if there is
// one already.
func (w *world) poll(j *job) {
	if j.state.JobID == "" {
		return
	}
	state := j.state
	state.Response = nil
	// Each poll has a limit of its own: of two that end at the same instant, one within
	// the other, the scheduler would choose which is first, and no seed would repeat
	// that.
	w.polls++
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond+time.Duration(w.polls))
	defer cancel()
	res, err := must(w.collector(j).Resume(state)).Wait(ctx)
	var p *dap.Problem
	switch {
	case err == nil:
		j.done = true
		w.oracle.collected(j.state.JobID, j.query, res)
	case errors.As(err, &p) && p.HTTPStatus() < 500:
		switch {
		case p.HTTPStatus() == 404 && w.deleting[j.state.JobID]:
		case p.Type == dap.ProblemBatchOverlap && w.cfg.mode == dap.TimeInterval:
		case p.Type == dap.ProblemBatchInvalid && w.late(j):
		default:
			w.oracle.violate("collection failed: %v", p)
		}
		j.problem, j.done = p, true
	}
	w.logf("poll %.4s: %v", j.state.JobID, err)
}

// delete gives a job up.
func (w *world) delete(j *job) {
	if j.state.JobID == "" {
		return
	}
	w.deleting[j.state.JobID] = true
	err := must(w.collector(j).Resume(j.state)).Delete(context.Background())
	w.logf("delete %.4s: %v", j.state.JobID, err)
	if err == nil {
		j.done, j.deleted = true, true
	}
}

func (w *world) dump() string {
	return fmt.Sprintf("%+v\n%s", w.cfg, strings.Join(w.trace[max(0, len(w.trace)-400):], "\n"))
}
