package aggregator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/aggregatortest"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
)

const (
	peerToken      = aggregatortest.PeerToken
	collectorToken = aggregatortest.CollectorToken
	buckets        = 5 // of the histogram
	precision      = 3600
)

// noon is ten minutes past twelve, in UTC.
const noon = 12*time.Hour + 10*time.Minute

// back is how far the machine's clock was beyond the last noon when the tests began.
var back = time.Since(time.Now().Add(-noon).Truncate(24 * time.Hour).Add(noon))

// today is the machine's time, moved back to noon when the tests began: no unit of a task
// ends in the middle of a test, and no day of keys in one that takes some hours.
func today() time.Time { return time.Now().Add(-back) }

// clock is [today], shifted: timers are real, dates are the test's.
type clock struct{ shift atomic.Int64 }

func (c *clock) Now() time.Time                      { return today().Add(time.Duration(c.shift.Load())) }
func (c *clock) NewTimer(d time.Duration) disk.Timer { return disk.SystemClock.NewTimer(d) }
func (c *clock) advance(d time.Duration)             { c.shift.Add(int64(d)) }

// setup is what a test chooses; the zero value is a time-interval task with a minimum of
// 10, without noise and bounds.
type setup struct {
	ctx      context.Context // leader and helper are opened in it; nil is the background
	mode     dap.BatchMode
	min      uint64
	dialect  *dap.Dialect // nil is that of the pass
	foreign  bool         // task_info is empty
	interval *dap.Interval
	noise    noise.Sampler
	series   *aggregator.Series
	calendar *aggregator.Calendar
	// reports show credentials of the issuers that the test gives to leader and helper
	credentials *aggregator.Credentials
	base        string         // path of both base URLs
	upload      string         // token
	config      dap.VDAFConfig // nil is a histogram; else reports have a shard of their own
	leader      func(*leader.Options)
	helper      func(*helper.Options)
	apart       bool // the records are the test's
}

// pair is a leader and a helper over loopback HTTP, with everything that their peers know.
type pair struct {
	t         testing.TB
	ctx       context.Context
	apart     bool
	clock     *clock
	log       *syncBuffer
	kit       *aggregatortest.Task
	home      *aggregatortest.Task // the first kit, once there were others; see brought
	task      aggregator.Task
	cfg       *dap.TaskConfiguration
	dialect   dap.Dialect
	names     byte // see anew
	id        dap.TaskID
	vdaf      *prio3.Histogram
	function  vdaf.VDAF // of the task
	leaderKey *sealed.KeyPair
	helperKey *sealed.KeyPair
	collector *sealed.KeyPair
	offered   [2]*dap.HpkeConfig // of leader and helper, where they make keys by themselves; see fetchKeys

	leader    *leader.Leader
	helper    *helper.Helper
	leaderFS  *disktest.Mem // with the leader's record in "record", as one machine has one disk
	helperFS  *disktest.Mem
	leaderOpt leader.Options
	helperOpt helper.Options
	leaderURL string // base, with its path
	helperURL string

	leaderHandler, helperHandler atomic.Pointer[http.Handler]
	// toHelper, if set, stands between the leader and the helper.
	toHelper atomic.Pointer[func(next http.Handler) http.Handler]
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// recordOn is the record of an aggregator on a disk that it has for itself.
func recordOn(mem *disktest.Mem) disk.FS {
	if err := disk.MakeDirs(mem, "record"); err != nil {
		panic(err)
	}
	return disk.Sub(mem, "record")
}

// onDatabases, where it is set, has leader and helper of a pair stand on databases, and
// afterAll ends what it began; see postgres_test.go.
var (
	onDatabases func(t testing.TB, p *pair)
	afterAll    = func() {}
)

func newPair(t testing.TB, s setup) *pair {
	t.Helper()
	if s.mode == 0 {
		s.mode = dap.TimeInterval
	}
	if s.min == 0 {
		s.min = 10
	}
	if s.dialect == nil {
		s.dialect = &speaks
	}
	if s.noise == nil {
		s.noise = noise.Zero{}
	}
	if s.ctx == nil {
		s.ctx = context.Background()
	}
	p := &pair{t: t, ctx: s.ctx, apart: s.apart, dialect: *s.dialect, clock: &clock{}, log: &syncBuffer{}}
	serve := func(h *atomic.Pointer[http.Handler]) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*h.Load()).ServeHTTP(w, r) }))
		t.Cleanup(srv.Close)
		return srv.URL + s.base
	}
	p.leaderURL, p.helperURL = serve(&p.leaderHandler), serve(&p.helperHandler)
	conf := dap.TaskConfiguration{
		Version: s.dialect.Version, TaskInfo: []byte("a test"), Leader: []byte(p.leaderURL), Helper: []byte(p.helperURL),
		TimePrecision: precision, MinBatchSize: s.min, BatchMode: s.mode, VDAFType: dap.TypePrio3Histogram,
		VDAFConfig: must(dap.HistogramConfig{Length: buckets, ChunkLength: 2}.Append(nil)),
	}
	if s.config != nil {
		conf.VDAFType, conf.VDAFConfig = s.config.Type(), must(s.config.Append(nil))
	}
	if s.interval != nil {
		conf.Extensions = must(conf.Extensions.WithTaskInterval(*s.interval))
	}
	if s.foreign {
		conf.TaskInfo = nil
	}
	p.kit = must(aggregatortest.NewTask(must(dap.NewTaskConfiguration(conf)), s.dialect.Framing))
	p.cfg, p.id, p.function = p.kit.Config, p.kit.ID, p.kit.VDAF
	p.leaderKey, p.helperKey, p.collector = p.kit.Leader, p.kit.Helper, p.kit.Collector
	p.vdaf = must(prio3.NewHistogram(2, buckets, 2))
	p.task = p.kit.Aggregator()
	p.task.UploadToken, p.task.Noise, p.task.Series, p.task.Calendar = s.upload, s.noise, s.series, s.calendar
	p.task.Credentials = s.credentials
	log := slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	p.leaderFS, p.helperFS = disktest.NewMem(1), disktest.NewMem(2)
	both := func(base string, key *sealed.KeyPair, fsys disk.FS) aggregator.Options {
		return aggregator.Options{Base: base, Tasks: []aggregator.Task{p.task}, Keys: must(sealed.NewKeyring(key)), FS: fsys,
			Clock: p.clock, Absence: -1, Log: log}
	}
	p.leaderOpt = leader.Options{Options: both(p.leaderURL, p.leaderKey, p.leaderFS), Patience: -1, BackOff: time.Minute, MaxBackOff: time.Hour}
	p.helperOpt = helper.Options{Options: both(p.helperURL, p.helperKey, p.helperFS)}
	if onDatabases != nil {
		onDatabases(t, p)
	}
	if s.leader != nil {
		s.leader(&p.leaderOpt)
	}
	if s.helper != nil {
		s.helper(&p.helperOpt)
	}
	p.startLeader()
	p.startHelper()
	t.Cleanup(func() {
		p.audit()
		p.leader.Close()
		p.helper.Close()
		if t.Failed() {
			t.Log(p.log.String())
		}
	})
	return p
}

func (p *pair) startLeader() {
	p.t.Helper()
	if mem, ok := p.leaderOpt.FS.(*disktest.Mem); ok && !p.apart {
		p.leaderOpt.Record = recordOn(mem)
	}
	l, err := leader.New(p.ctx, p.leaderOpt)
	if err != nil {
		p.t.Fatal(err)
	}
	p.leader = l
	h := l.Handler()
	p.leaderHandler.Store(&h)
}

func (p *pair) startHelper() {
	p.t.Helper()
	if mem, ok := p.helperOpt.FS.(*disktest.Mem); ok && !p.apart {
		p.helperOpt.Record = recordOn(mem)
	}
	hs, err := helper.New(p.ctx, p.helperOpt)
	if err != nil {
		p.t.Fatal(err)
	}
	p.helper = hs
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := p.toHelper.Load(); f != nil {
			(*f)(hs.Handler()).ServeHTTP(w, r)
			return
		}
		hs.Handler().ServeHTTP(w, r)
	})
	p.helperHandler.Store(&h)
}

// between puts f between leader and helper; nil takes it away.
func (p *pair) between(f func(next http.Handler) http.Handler) {
	if f == nil {
		p.toHelper.Store(nil)
		return
	}
	p.toHelper.Store(&f)
}

// compares says whether a request is of the exchange in which leader and helper compare
// themselves.
func compares(r *http.Request) bool {
	return strings.HasSuffix(r.URL.Path, "/starling_agreement") || strings.HasSuffix(r.URL.Path, "/starling_ledger")
}

// strangers keeps leader and helper from comparing themselves, as implementations do that
// know nothing of it.
func strangers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if compares(r) {
			http.NotFound(w, r)
			return
		}
		r.Header.Del("Starling-Agreement")
		next.ServeHTTP(w, r)
	})
}

func (p *pair) audit() {
	p.t.Helper()
	for name, audit := range map[string]func(context.Context) ([]string, error){"leader": p.leader.Audit, "helper": p.helper.Audit} {
		faults, err := audit(context.Background())
		if err != nil || len(faults) > 0 {
			p.t.Errorf("%s: audit: %v %q", name, err, faults)
		}
	}
}

// now is the current unit of the task.
func (p *pair) now() dap.Time { return must(dap.TimePrecision(precision).At(p.clock.Now())) }

// A spoil changes a report on its way.
type spoil = aggregatortest.Spoil

// report makes one report of measurement m.
func (p *pair) report(m int, s spoil) dap.Report {
	p.t.Helper()
	if s.To == nil && p.offered != [2]*dap.HpkeConfig{} {
		s.To = []dap.HpkeConfig{dap.NewHpkeConfig(p.leaderKey), dap.NewHpkeConfig(p.helperKey)}
		for i, offered := range p.offered {
			if offered != nil {
				s.To[i] = *offered
			}
		}
	}
	r, err := p.kit.Report(p.now(), func(ctx []byte, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
		return p.vdaf.Shard(ctx, m, nonce)
	}, s)
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

// reports makes n good reports, with measurements 0, 1, 2, ... modulo the number of
// buckets.
func (p *pair) reports(n int) []dap.Report {
	rs := make([]dap.Report, n)
	for i := range rs {
		rs[i] = p.report(i%buckets, spoil{})
	}
	return rs
}

// answer is an HTTP response, read.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// problem is the answer's problem document; the test fails if it is none.
func (p *pair) problem(a answer) *dap.Problem {
	p.t.Helper()
	if a.header.Get("Content-Type") != dap.ProblemMedia {
		p.t.Fatalf("status %d, content type %q, want a problem document; body %q", a.status, a.header.Get("Content-Type"), a.body)
	}
	doc := new(dap.Problem)
	if err := json.Unmarshal(a.body, doc); err != nil {
		p.t.Fatal(err)
	}
	if doc.Status != a.status {
		p.t.Errorf("the document says status %d, the answer has %d", doc.Status, a.status)
	}
	return doc
}

// refused demands a problem of that type and status.
func (p *pair) refused(a answer, typ dap.ProblemType, status int) {
	p.t.Helper()
	doc := p.problem(a)
	if doc.Type != typ || a.status != status {
		p.t.Errorf("problem %q with status %d (%s), want %q with %d", doc.Type, a.status, doc.Detail, typ, status)
	}
	if typ != "" && doc.TaskID != nil && *doc.TaskID != p.id && typ != dap.ProblemUnrecognizedTask {
		p.t.Errorf("the document names another task")
	}
}

// call makes one request to path below a base URL; a relative Location may be given with
// its leading slash.
func (p *pair) call(method, base, path string, m dap.Media, token string, body []byte) answer {
	p.t.Helper()
	u := base + "/" + path
	if strings.HasPrefix(path, "/") { // a Location: resolved against the origin
		origin := base[:strings.Index(base[8:], "/")+8+1]
		if i := strings.Index(base[8:], "/"); i < 0 {
			origin = base + "/"
		}
		u = strings.TrimSuffix(origin, "/") + path
	}
	req, err := http.NewRequest(method, u, bytes.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if m != "" {
		req.Header.Set("Content-Type", dap.ContentType(m))
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, b}
}

func (p *pair) path(c dap.Collection) string { return dap.CreationPath(p.id, c) }

// create creates a resource as the framing has it. Where the creator chooses the id, the
// same bytes choose the same one until the next call of anew.
func (p *pair) create(base string, c dap.Collection, m dap.Media, token string, body []byte) answer {
	p.t.Helper()
	id := p.dialect.ChooseID(p.id, c, body, []byte{p.names})
	return p.call(p.dialect.CreationMethod(), base, dap.CreationPathOf(p.id, c, id), m, token, body)
}

// anew lets the same bytes choose another id.
func (p *pair) anew() { p.names++ }

// creates says whether a request creates a resource of that kind, in any framing.
func creates(r *http.Request, c dap.Collection) bool {
	return r.Method == "POST" && strings.HasSuffix(r.URL.Path, "/"+string(c)) || r.Method == "PUT" && strings.Contains(r.URL.Path, "/"+string(c)+"/")
}

// upload sends reports in one request.
func (p *pair) upload(rs ...dap.Report) answer {
	p.t.Helper()
	return p.call("POST", p.leaderURL, p.path(dap.ReportsResource), dap.MediaUploadReq, "", must(dap.AppendUploadRequest(nil, rs)))
}

// accept uploads reports that must all be acknowledged.
func (p *pair) accept(rs ...dap.Report) {
	p.t.Helper()
	if a := p.upload(rs...); a.status != http.StatusOK || len(a.body) > 0 {
		p.t.Fatalf("upload: status %d, %d bytes of errors: %q", a.status, len(a.body), a.body)
	}
}

// uploadErrors reads the refusals of an upload.
func (p *pair) uploadErrors(a answer) []dap.ReportUploadStatus {
	p.t.Helper()
	if a.status != http.StatusOK {
		p.t.Fatalf("upload: status %d %q", a.status, a.body)
	}
	if len(a.body) > 0 {
		if err := dap.CheckContentType(a.header.Get("Content-Type"), dap.MediaUploadErrors); err != nil {
			p.t.Error(err)
		}
	}
	return must(dap.Collect(p.dialect.UploadErrors(a.body, nil)))
}

// step lets leader and helper work until neither has anything to do.
func (p *pair) step() {
	p.t.Helper()
	for range 100 {
		a, err := p.leader.Step(context.Background())
		if err != nil {
			p.t.Fatal(err)
		}
		b, err := p.helper.Step(context.Background())
		if err != nil {
			p.t.Fatal(err)
		}
		if !a && !b {
			return
		}
	}
	p.t.Fatal("leader and helper never rest")
}

// query is a collection request for the units around now.
func (p *pair) query() dap.CollectionJobReq {
	q := dap.CollectionJobReq{Query: dap.Query{Mode: p.cfg.BatchMode}}
	if q.Query.Mode == dap.TimeInterval {
		q.Query.Interval = dap.Interval{Start: p.now() - 2, Duration: 5}
	}
	return q
}

func (p *pair) ask(q dap.CollectionJobReq) answer {
	p.t.Helper()
	return p.create(p.leaderURL, dap.CollectionJobsResource, dap.MediaCollectionJobReq, collectorToken, must(q.Append(nil)))
}

func (p *pair) poll(location string) answer {
	p.t.Helper()
	return p.call("GET", p.leaderURL, location, "", collectorToken, nil)
}

// open opens a collection's result.
func (p *pair) open(q dap.CollectionJobReq, body []byte) (*dap.CollectionJobResp, []int64) {
	p.t.Helper()
	resp, sum, err := p.kit.Open(&q, body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp, sum
}

// collect asks, works, polls and opens.
func (p *pair) collect(q dap.CollectionJobReq) (*dap.CollectionJobResp, []int64) {
	p.t.Helper()
	a := p.ask(q)
	if a.status != http.StatusCreated {
		p.t.Fatalf("collection: status %d %q", a.status, a.body)
	}
	p.step()
	got := p.poll(a.header.Get("Location"))
	if got.status != http.StatusOK || len(got.body) == 0 {
		p.t.Fatalf("collection: status %d, %d bytes", got.status, len(got.body))
	}
	return p.open(q, got.body)
}
