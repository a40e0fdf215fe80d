package aggregator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/aggregatortest"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dap/taskprov"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/vdaf"
)

// seed is what leader and helper of these tests have for all tasks that the leader brings.
var seed = bytes.Repeat([]byte{7}, taskprov.SeedSize)

const bringer = "the leader of a test"

// bringing is a pair whose leader may bring tasks, within a policy that change may change.
func bringing(t testing.TB, s setup, change func(*aggregator.TaskPolicy)) *pair {
	var p *pair
	with := s.helper
	s.helper = func(o *helper.Options) {
		c := must(dap.ReadTaskConfiguration(o.Tasks[0].Version, o.Tasks[0].Config))
		policy := aggregator.TaskPolicy{
			Name: bringer, Leader: string(c.Leader), Version: c.Version, Framing: o.Tasks[0].Framing,
			Token: func(dap.TaskID) (string, error) { return peerToken, nil }, Terms: []byte(`{"test":2}`),
			VDAFs: []uint32{dap.TypePrio3Histogram, dap.TypePrio3SumVec}, MinBatch: 10, MinPrecision: 60, MaxReport: 4096,
			MaxWindow: 100 * time.Hour, Tasks: 50, TasksPerHour: 40,
		}
		if change != nil {
			change(&policy)
		}
		o.Taskprov = []aggregator.TaskPolicy{policy}
		o.Provide = func(_ context.Context, form aggregator.Form, made, terms []byte) (aggregator.Task, error) {
			if form != aggregator.Configuration || string(terms) != `{"test":2}` {
				return aggregator.Task{}, errors.New("not what was brought")
			}
			return p.ofSeed(made)
		}
		if with != nil {
			with(o)
		}
	}
	p = newPair(t, s)
	p.leaderOpt.Provide = func(_ context.Context, _ aggregator.Form, made, _ []byte) (aggregator.Task, error) {
		in, err := p.ofSeed(made)
		in.CollectorToken, in.Advertise = collectorToken, true
		return in, err
	}
	return p
}

// ofSeed is a task as its configuration and the seed tell it.
func (p *pair) ofSeed(config []byte) (aggregator.Task, error) {
	key, err := dap.DeriveVerifyKey(seed, dap.ConfigurationID(config))
	if err != nil {
		return aggregator.Task{}, err
	}
	t, err := aggregator.ForeignTask(p.dialect.Version, config, aggregator.Secrets{
		VerifyKeys: map[uint8][vdaf.VerifyKeySize]byte{aggregatortest.VerifyKeyID: key}, PeerToken: peerToken,
		CollectorHPKE: dap.NewHpkeConfig(p.collector),
	})
	t.Framing = p.dialect.Framing
	return t, err
}

// brought makes the test's parties speak of a task from now on that the leader alone knows
// of, with a window of two days.
func (p *pair) brought(change func(*dap.TaskConfiguration)) *aggregator.Provision {
	p.t.Helper()
	if p.home == nil {
		p.home = p.kit
	}
	p.kit, p.cfg, p.id = p.home, p.home.Config, p.home.ID
	in := p.another(func(c *dap.TaskConfiguration) {
		c.Extensions = must(dap.Extensions{}.WithTaskInterval(dap.Interval{Start: p.now() - 1, Duration: 48}))
		if change != nil {
			change(c)
		}
	})
	p.kit.VerifyKey = must(dap.DeriveVerifyKey(seed, p.id))
	in.Task.VerifyKeys = map[uint8][vdaf.VerifyKeySize]byte{aggregatortest.VerifyKeyID: p.kit.VerifyKey}
	in.Task.Advertise = true
	return in
}

// advert is the header's value for the task that the test speaks of.
func (p *pair) advert() string { return must(taskprov.Value(p.dialect.Framing, p.cfg.Bytes())) }

// offer asks the helper about a task as its leader, with those headers that advertise one.
func (p *pair) offer(id dap.TaskID, token string, adverts ...string) answer {
	p.t.Helper()
	return p.offerAt(p.helper, id, token, adverts...)
}

// offerAt is offer at one of several processes of the helper.
func (p *pair) offerAt(h *helper.Helper, id dap.TaskID, token string, adverts ...string) answer {
	req := httptest.NewRequest("GET", p.helperURL+"/tasks/"+id.Base64()+"/starling_progress", nil)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for _, v := range adverts {
		req.Header.Add(taskprov.Header, v)
	}
	w := httptest.NewRecorder()
	h.Handler().ServeHTTP(w, req)
	return answer{w.Code, w.Header(), w.Body.Bytes()}
}

// registered are the tasks in the helper's registry.
func (p *pair) registered() []status.Registered {
	p.t.Helper()
	list, err := p.helper.Registered(context.Background())
	if err != nil {
		p.t.Fatal(err)
	}
	return list
}

// TestTaskprov: a task that the leader alone is told of comes to the helper with the
// leader's requests, each of which advertises it, and counts like any other, in this life
// and in the next of both; whether the leader compares itself with the helper or not.
func TestTaskprov(t *testing.T) {
	for _, ours := range []bool{true, false} {
		t.Run(fmt.Sprintf("ours=%v", ours), func(t *testing.T) {
			p := bringing(t, setup{}, nil)
			var bare atomic.Int32
			first := p.id
			p.between(func(next http.Handler) http.Handler {
				if !ours {
					next = strangers(next)
				}
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					of := strings.Contains(r.URL.Path, "/tasks/"+first.Base64())
					if ad, err := taskprov.Parse(r.Header.Values(taskprov.Header)); strings.Contains(r.URL.Path, "/tasks/") && !of &&
						(err != nil || !strings.Contains(r.URL.Path, ad.TaskID().Base64())) || of && err == nil {
						bare.Add(1)
					}
					if !ours && strings.HasSuffix(r.URL.Path, "_progress") {
						http.NotFound(w, r)
						return
					}
					next.ServeHTTP(w, r)
				})
			})
			in := p.brought(nil)
			if made, err := p.leader.Add(t.Context(), in); err != nil || !made {
				t.Fatal(made, err)
			}
			p.accept(p.reports(12)...)
			p.step()
			list := p.registered()
			if len(list) != 1 || list[0].Task != p.id.Base64() || list[0].Source != "in band" || list[0].By != bringer || list[0].Form != "configuration" ||
				list[0].Ends.IsZero() {
				t.Fatalf("the helper has %+v", list)
			}
			for _, again := range []func(){
				func() { p.leader.Close(); p.startLeader() }, func() { p.helper.Close(); p.startHelper() },
			} {
				again()
				p.clock.advance(time.Minute)
				p.accept(p.reports(5)...)
				p.step()
			}
			if resp, _ := p.collect(p.query()); resp.ReportCount != 22 {
				t.Errorf("%d reports, want 22", resp.ReportCount)
			}
			if n := bare.Load(); n > 0 {
				t.Errorf("%d requests advertised the task that they were not about, or not the one that they were about", n)
			}
			if len(p.registered()) != 1 {
				t.Error("another task came")
			}
		})
	}
}

// TestTaskprovRefused: what is not a peer's, not the task of the path, or not within the
// policy makes no task and no row; strangers hear what a helper says that has no such task.
func TestTaskprovRefused(t *testing.T) {
	p := bringing(t, setup{}, nil)
	const unknown, invalid = dap.ProblemUnrecognizedTask, dap.ProblemInvalidTask
	good := p.brought(nil)
	id, value, config := p.id, p.advert(), bytes.Clone(good.Made)
	for name, c := range map[string]struct {
		id      dap.TaskID
		token   string
		adverts []string
	}{
		"no header":              {id, peerToken, nil},
		"no token":               {id, "", []string{value}},
		"another's token":        {id, collectorToken, []string{value}},
		"the task of another id": {dap.TaskID{1}, peerToken, []string{value}},
		"twice":                  {id, peerToken, []string{value, value}},
		"of another type":        {id, peerToken, []string{`"` + value + `"`}},
		"empty":                  {id, peerToken, []string{""}},
		"cut":                    {id, peerToken, []string{value[:len(value)/2]}},
		"too long":               {id, peerToken, []string{":" + strings.Repeat("AAAA", 4096) + ":"}},
	} {
		p.refused(p.offer(c.id, c.token, c.adverts...), unknown, http.StatusNotFound)
		if t.Failed() {
			t.Fatal(name)
		}
	}
	// Bytes that are no configuration have an id all the same.
	for name, junk := range map[string][]byte{
		"no bytes": {}, "junk": []byte("junk"), "a byte more": append(bytes.Clone(config), 0), "a byte less": config[:len(config)-1],
	} {
		v, err := taskprov.Value(p.dialect.Framing, junk)
		if err != nil {
			t.Fatal(err)
		}
		p.refused(p.offer(dap.ConfigurationID(junk), peerToken, v), unknown, http.StatusNotFound)
		if t.Failed() {
			t.Fatal(name)
		}
	}
	window := func(start dap.Time, units dap.Duration) func(*dap.TaskConfiguration) {
		return func(c *dap.TaskConfiguration) {
			c.Extensions = must(dap.Extensions{}.WithTaskInterval(dap.Interval{Start: start, Duration: units}))
		}
	}
	vector := func(length, chunk uint32) func(*dap.TaskConfiguration) {
		return func(c *dap.TaskConfiguration) {
			c.VDAFType, c.VDAFConfig = dap.TypePrio3SumVec, must(dap.SumVecConfig{Length: length, MaxMeasurement: 1, ChunkLength: chunk}.Append(nil))
		}
	}
	now := p.now()
	for name, c := range map[string]struct {
		change func(*dap.TaskConfiguration)
		typ    dap.ProblemType
		says   string
	}{
		"another leader": {func(c *dap.TaskConfiguration) { c.Leader = []byte("https://other.example/") }, unknown, ""},
		"another helper": {func(c *dap.TaskConfiguration) { c.Helper = []byte("https://other.example/") }, invalid, "other.example"},
		"another VDAF": {func(c *dap.TaskConfiguration) { c.VDAFType, c.VDAFConfig = dap.TypePrio3Count, nil }, invalid,
			"VDAF type"},
		"small batches":      {func(c *dap.TaskConfiguration) { c.MinBatchSize = 9 }, invalid, "batch size of 9"},
		"short units":        {func(c *dap.TaskConfiguration) { c.TimePrecision = 59 }, invalid, "precision of 59"},
		"long reports":       {vector(1000, 10), invalid, "bytes"},
		"endless reports":    {vector(1<<22, 1<<11), invalid, "bytes"},
		"no window":          {func(c *dap.TaskConfiguration) { c.Extensions = dap.Extensions{} }, invalid, "no window"},
		"over":               {window(now-10, 5), invalid, "it ended"},
		"far away":           {window(now+90, 20), invalid, "window"},
		"long":               {window(now-90, 100), invalid, ""},
		"longer":             {window(now-90, 101), invalid, "window"},
		"for ever":           {window(1, 1<<50), invalid, ""},
		"that of a recipe":   {func(c *dap.TaskConfiguration) { c.TaskInfo = bytes.Repeat([]byte{1}, 32) }, invalid, "recipe"},
		"within all of them": {nil, "", ""},
	} {
		if name == "long" || name == "within all of them" {
			continue // taken, below
		}
		p.brought(c.change)
		a := p.offer(p.id, peerToken, p.advert())
		if c.typ == unknown {
			p.refused(a, unknown, http.StatusNotFound)
		} else {
			p.refused(a, invalid, http.StatusBadRequest)
		}
		if d := p.problem(a).Detail; t.Failed() || !strings.Contains(d, c.says) {
			t.Fatalf("%s: %q", name, d)
		}
		// and it tells a stranger nothing
		p.refused(p.offer(p.id, collectorToken, p.advert()), unknown, http.StatusNotFound)
	}
	p.brought(nil) // the table comes in any order, and a case left its own
	endless := *p.cfg
	vector(1<<32-1, 1<<16)(&endless)
	c := must(dap.NewTaskConfiguration(endless))
	p.id = c.TaskID()
	p.refused(p.offer(p.id, peerToken, must(taskprov.Value(p.dialect.Framing, c.Bytes()))), invalid, http.StatusBadRequest)
	if other := map[dap.Framing]dap.Framing{dap.Standard: dap.Janus, dap.Janus: dap.Standard}[p.dialect.Framing]; true {
		p.brought(nil)
		p.refused(p.offer(p.id, peerToken, must(taskprov.Value(other, p.cfg.Bytes()))), invalid, http.StatusBadRequest)
	}
	if list := p.registered(); len(list) > 0 {
		t.Fatalf("refused tasks are there: %+v", list)
	}
	p.brought(window(now-90, 100))
	if a := p.offer(p.id, peerToken, p.advert()); a.status != http.StatusOK {
		t.Errorf("the longest window: %d %s", a.status, a.body)
	}
	if a := p.offer(id, peerToken, value); a.status != http.StatusOK {
		t.Errorf("the task itself: %d %s", a.status, a.body)
	}
	// now that it is there, only another task's advertisement is looked at
	p.id = id
	p.refused(p.offer(id, peerToken, p.advert()), unknown, http.StatusNotFound)
	for _, adverts := range [][]string{nil, {"(junk)"}, {value, value}, {value}} {
		if a := p.offer(id, peerToken, adverts...); a.status != http.StatusOK {
			t.Errorf("with %q: %d %s", adverts, a.status, a.body)
		}
	}
	if a := p.offer(id, collectorToken, value); a.status != http.StatusUnauthorized {
		t.Errorf("a stranger: %d", a.status)
	}
}

// TestTaskprovIgnored: a helper that takes no tasks in band does not look at the header.
func TestTaskprovIgnored(t *testing.T) {
	p := newPair(t, setup{})
	first := p.id
	p.brought(nil)
	p.refused(p.offer(p.id, peerToken, p.advert()), dap.ProblemUnrecognizedTask, http.StatusNotFound)
	if a := p.offer(first, peerToken, p.advert()); a.status != http.StatusOK {
		t.Errorf("a task that is there: %d %s", a.status, a.body)
	}
}

// TestTaskprovFlood: ten thousand tasks, each another, of a leader that is over its limits,
// and as many of strangers, make no row, no transaction each and no memory that stays; the
// limits hold over restarts, and leave the leader its next tasks when their time has come.
func TestTaskprovFlood(t *testing.T) {
	var registers atomic.Int64
	p := bringing(t, setup{helper: func(o *helper.Options) {
		o.Observe.Transaction = func(name string, _ time.Duration, _ error) {
			if name == "register" {
				registers.Add(1)
			}
		}
	}}, func(policy *aggregator.TaskPolicy) { policy.Tasks, policy.TasksPerHour = 5, 3 })
	n := 0
	flood := func(token string, tries int) (taken, later, unknown int) {
		t.Helper()
		for range tries {
			n++
			info := fmt.Appendf(nil, "task %d", n)
			p.brought(func(c *dap.TaskConfiguration) { c.TaskInfo = info })
			switch a := p.offer(p.id, token, p.advert()); a.status {
			case http.StatusOK:
				taken++
			case http.StatusTooManyRequests:
				if a.header.Get("Retry-After") == "" {
					t.Fatal("429 without a Retry-After")
				}
				later++
			case http.StatusNotFound:
				unknown++
			default:
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
		return taken, later, unknown
	}
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	if taken, later, _ := flood(peerToken, 20); taken != 3 || later != 17 {
		t.Errorf("in the first hour %d were taken and %d later", taken, later)
	}
	if n := registers.Load(); n != 4 {
		t.Errorf("%d transactions for 3 tasks and 17 that were too many", n)
	}
	p.helper.Close()
	p.startHelper()
	if taken, _, _ := flood(peerToken, 5); taken != 0 {
		t.Errorf("a restart forgot %d tasks", taken)
	}
	before, begun := heap(), registers.Load()
	// One configuration's keys cost more than the request: the flood's own are made from bytes.
	template := p.brought(nil).Made
	at := bytes.Index(template, []byte("another test"))
	taken, later, unknown := 0, 0, 0
	for i := range 10_000 {
		copy(template[at:], fmt.Sprintf("%012d", i))
		token := peerToken
		if i%2 == 0 {
			token = collectorToken
		}
		switch a := p.offer(dap.ConfigurationID(template), token, must(taskprov.Value(p.dialect.Framing, template))); a.status {
		case http.StatusTooManyRequests:
			later++
		case http.StatusNotFound:
			unknown++
		default:
			taken++
		}
	}
	if taken != 0 || later != 5000 || unknown != 5000 {
		t.Errorf("of 10,000 %d were taken, %d later, %d a stranger's", taken, later, unknown)
	}
	if n := registers.Load() - begun; n > 0 {
		t.Errorf("%d transactions for tasks that were too many", n)
	}
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("%d bytes stayed of tasks that were not taken", grown)
	}
	if len(p.registered()) != 3 {
		t.Errorf("%d rows", len(p.registered()))
	}
	p.clock.advance(61 * time.Minute)
	if taken, later, _ := flood(peerToken, 4); taken != 2 || later != 2 { // five live ones
		t.Errorf("in the second hour %d were taken and %d later", taken, later)
	}
	p.clock.advance(50 * time.Hour) // all have ended
	if taken, _, _ := flood(peerToken, 4); taken != 3 {
		t.Errorf("after the first tasks ended, %d were taken", taken)
	}
}

// TestTaskprovAtOnce: of requests that bring one task at the same time all are served, and
// it is one task; of those that bring several none is beyond the limit.
func TestTaskprovAtOnce(t *testing.T) {
	p := bringing(t, setup{}, func(policy *aggregator.TaskPolicy) { policy.Tasks = 4 })
	var wait sync.WaitGroup
	var taken, later atomic.Int32
	for i := range 8 {
		p.brought(func(c *dap.TaskConfiguration) { c.TaskInfo = fmt.Appendf(nil, "task %d", i%2) })
		id, value := p.id, p.advert()
		for range 4 {
			wait.Go(func() {
				if a := p.offer(id, peerToken, value); a.status == http.StatusOK {
					taken.Add(1)
				}
			})
		}
	}
	wait.Wait()
	if n := len(p.registered()); n != 2 || taken.Load() != 32 {
		t.Errorf("%d tasks of 2, and %d of 32 requests were served", n, taken.Load())
	}
	for i := range 8 {
		p.brought(func(c *dap.TaskConfiguration) { c.TaskInfo = fmt.Appendf(nil, "other %d", i) })
		id, value := p.id, p.advert()
		wait.Go(func() {
			if a := p.offer(id, peerToken, value); a.status == http.StatusTooManyRequests {
				later.Add(1)
			}
		})
	}
	wait.Wait()
	if n := len(p.registered()); n != 4 || later.Load() != 6 {
		t.Errorf("%d tasks where 4 may be, and %d of 6 came too many", n, later.Load())
	}
}

// TestTaskprovCrash: a helper that loses power just before or after a task comes, between
// the task and the job that brought it, has all of it or nothing, and every report counts
// once.
func TestTaskprovCrash(t *testing.T) {
	for _, point := range []string{"store.register.before-commit", "store.register.after-commit"} {
		t.Run(point, func(t *testing.T) {
			fp := new(disk.Failpoints)
			p := bringing(t, setup{helper: func(o *helper.Options) { o.Failpoints = fp }}, nil)
			in := p.brought(nil)
			if _, err := p.leader.Add(t.Context(), in); err != nil {
				t.Fatal(err)
			}
			crashed := false
			fp.Arm(point, 0, func() error {
				crashed = true
				p.helperFS.Cut()
				return errors.New("power lost")
			})
			p.accept(p.reports(12)...)
			p.leader.Step(t.Context()) // errors are what this test makes
			if !crashed {
				t.Fatal("no task came")
			}
			fp.Disarm(point)
			p.helper.Close()
			p.helperFS = p.helperFS.Crash()
			p.helperOpt.FS = p.helperFS
			p.startHelper()
			if n := len(p.registered()); n > 1 || n == 0 && strings.HasSuffix(point, "after-commit") {
				t.Fatalf("%d tasks are there", n)
			}
			p.clock.advance(10 * time.Minute)
			p.step()
			p.clock.advance(10 * time.Minute)
			if resp, _ := p.collect(p.query()); resp.ReportCount != 12 || len(p.registered()) != 1 {
				t.Errorf("%d reports, want 12", resp.ReportCount)
			}
		})
	}
}

// TestTaskprovNotTaken: a leader whose helper does not take the task that it brings takes no
// upload for it, so that no acknowledged report is refused for good; it says what to do, and
// goes on by itself once the helper takes the task.
func TestTaskprovNotTaken(t *testing.T) {
	p := bringing(t, setup{}, func(policy *aggregator.TaskPolicy) { policy.MinBatch = 11 })
	in := p.brought(nil)
	if _, err := p.leader.Add(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	p.step()
	if a := p.upload(p.report(0, spoil{})); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("an upload: status %d", a.status)
	}
	if !strings.Contains(p.log.String(), "a minimum batch size of 10, and the least that is taken is 11") {
		t.Error("the helper's log does not say why")
	}
	tasks := must(p.leader.Status(t.Context())).Tasks
	at := slices.IndexFunc(tasks, func(s status.Task) bool { return s.ID == p.id.Base64() })
	if d := tasks[at].Agreement.Differences; len(d) != 1 || !strings.Contains(d[0].Do, "[[taskprov]]") {
		t.Errorf("the leader's status: %+v", d)
	}
	p.helper.Close()
	p.helperOpt.Taskprov[0].MinBatch = 10
	p.startHelper()
	p.clock.advance(2 * time.Minute)
	p.step()
	p.accept(p.reports(12)...)
	p.step()
	if resp, _ := p.collect(p.query()); resp.ReportCount != 12 {
		t.Errorf("%d reports, want 12", resp.ReportCount)
	}
}

// TestTaskprovEnded: a task that is retired at the helper never comes back, whatever is
// advertised, however often the helper starts, and where its clock is put back.
func TestTaskprovEnded(t *testing.T) {
	p := bringing(t, setup{helper: func(o *helper.Options) { o.Retention = time.Hour }}, nil)
	p.brought(nil)
	id, value := p.id, p.advert()
	if a := p.offer(id, peerToken, value); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	p.clock.advance(60 * time.Hour)
	for range 5 {
		must(p.helper.Step(t.Context()))
	}
	job := func() answer {
		req := httptest.NewRequest("POST", p.helperURL+"/"+dap.CreationPath(id, dap.AggregationJobsResource), nil)
		if p.dialect.CreationMethod() == "PUT" {
			req = httptest.NewRequest("PUT", p.helperURL+"/"+dap.CreationPathOf(id, dap.AggregationJobsResource, p.dialect.ChooseID(id, dap.AggregationJobsResource, nil, nil)), nil)
		}
		req.Header.Set("Authorization", "Bearer "+peerToken)
		req.Header.Set(taskprov.Header, value)
		w := httptest.NewRecorder()
		p.helper.Handler().ServeHTTP(w, req)
		return answer{w.Code, w.Header(), w.Body.Bytes()}
	}
	p.id = id
	for life := range 3 {
		p.refused(job(), dap.ProblemInvalidTask, http.StatusBadRequest)
		if life > 0 {
			p.refused(p.offer(id, peerToken, value), dap.ProblemInvalidTask, http.StatusBadRequest)
		}
		if t.Failed() {
			t.Fatalf("in life %d", life)
		}
		p.helper.Close()
		if life == 1 { // a policy that would take it: the window is as long as it likes, and the clock is back in it
			p.clock.advance(-60 * time.Hour)
		}
		p.startHelper()
	}
	if n := len(p.registered()); n != 1 {
		t.Errorf("%d rows", n)
	}
}

// TestTaskprovOfAnOldPolicy: a task that came goes on when its policy is narrowed or gone,
// and no other comes.
func TestTaskprovOfAnOldPolicy(t *testing.T) {
	for name, change := range map[string]func(*helper.Options){
		"narrowed": func(o *helper.Options) { o.Taskprov[0].MinBatch = 1000 },
		"gone":     func(o *helper.Options) { o.Taskprov = nil },
	} {
		t.Run(name, func(t *testing.T) {
			p := bringing(t, setup{}, nil)
			if _, err := p.leader.Add(t.Context(), p.brought(nil)); err != nil {
				t.Fatal(err)
			}
			p.accept(p.reports(6)...)
			p.step()
			p.helper.Close()
			change(&p.helperOpt)
			p.startHelper()
			p.clock.advance(time.Minute)
			p.accept(p.reports(6)...)
			p.step()
			p.clock.advance(time.Minute)
			if resp, _ := p.collect(p.query()); resp.ReportCount != 12 {
				t.Errorf("%d reports, want 12", resp.ReportCount)
			}
			p.brought(func(c *dap.TaskConfiguration) { c.TaskInfo = []byte("a new one") })
			if a := p.offer(p.id, peerToken, p.advert()); a.status == http.StatusOK {
				t.Error("a task came that the policy does not take")
			}
		})
	}
}
