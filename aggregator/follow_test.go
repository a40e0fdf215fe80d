//go:build postgres

package aggregator_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/database"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/internal/party"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/pgdb/pgtest"
)

// replica is one of two helpers in one process, on one database.
type replica struct {
	*helper.Helper
	url string

	mu     sync.Mutex
	states int      // statements that asked how a task stands
	opened []string // the terms of tasks that were opened
}

// replicas gives a pair, in place of its helper, two on one database; the leader comes to
// the second. Options of each may be changed.
func (p *pair) replicas(schema *pgtest.Schema, dir string, change ...func(i int, o *helper.Options)) (both [2]*replica) {
	p.t.Helper()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		must(0, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	_, _, err := database.Migrate(p.t.Context(), database.MigrateOptions{
		Database: aggregator.Database{File: write("owner", schema.Owner), Schema: schema.Name, Service: schema.Role}})
	if err != nil {
		p.t.Fatal(err)
	}
	must(database.AddWrappingKey(filepath.Join(dir, "wrapping"), time.Now()))
	p.helper.Close()
	for i := range both {
		r := new(replica)
		opt := p.helperOpt
		mem := disktest.NewMem(uint64(20 + i))
		opt.FS, opt.Record, opt.Keys, opt.KeySchedule = mem, recordOn(mem), nil, &keyset.Schedule{}
		opt.Database = &aggregator.Database{
			File: write("service", schema.Service), Schema: schema.Name, Service: schema.Role, WrappingKeys: filepath.Join(dir, "wrapping"), Connections: 4,
		}
		opt.Observe.Transaction = func(name string, _ time.Duration, _ error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if name == "task-state" {
				r.states++
			}
		}
		opt.Provide = func(_ context.Context, _ aggregator.Form, made, terms []byte) (aggregator.Task, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.opened = append(r.opened, string(terms))
			if opt.Taskprov != nil {
				return p.ofSeed(made)
			}
			t := p.task
			t.Config, t.ID = made, dap.TaskID{}
			return t, nil
		}
		for _, f := range change {
			f(i, &opt)
		}
		if r.Helper, err = helper.New(p.t.Context(), opt); err != nil {
			p.t.Fatal(err)
		}
		srv := httptest.NewServer(r.Handler())
		p.t.Cleanup(srv.Close)
		if i == 0 { // the second is the pair's, which closes it
			p.t.Cleanup(func() { r.Close() })
		}
		r.url, both[i] = srv.URL, r
	}
	p.helper = both[1].Helper
	h := both[1].Handler()
	p.helperHandler.Store(&h)
	return both
}

func (r *replica) step(t *testing.T) {
	t.Helper()
	if _, err := r.Step(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// TestReplicasHearOfTheRegistry: a task that one replica takes, changes or closes the other
// knows of within the time that is stated, and at once where the leader asks; how tasks stand
// is no statement a request.
func TestReplicasHearOfTheRegistry(t *testing.T) {
	schema, dir := pgtest.NewServer(t).Schema(t), t.TempDir() // which end after the pair
	p := newPair(t, setup{})
	p.leaderOpt.Provide = p.provider
	both := p.replicas(schema, dir)
	one, two := both[0], both[1]
	in := p.another(nil)
	in.Terms = []byte(`{"test":2}`)
	there := func(r *replica, want int) {
		t.Helper()
		if a := p.call("GET", r.url, "tasks/"+p.id.Base64()+"/starling_progress", "", peerToken, nil); a.status != want {
			t.Errorf("status %d, want %d", a.status, want)
		}
	}
	if made, err := one.Add(t.Context(), in); err != nil || !made {
		t.Fatalf("made %v, %v", made, err)
	}
	there(one, http.StatusOK)
	there(two, http.StatusNotFound)
	p.clock.advance(party.FollowEvery)
	two.step(t)
	there(two, http.StatusOK)

	// Another, of which the leader asks the second before that has looked.
	first := *p.kit
	in = p.another(func(c *dap.TaskConfiguration) { c.TaskInfo = []byte("the second") })
	for _, add := range []func(context.Context, *aggregator.Provision) (bool, error){one.Add, p.leader.Add} {
		if _, err := add(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.leader.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := p.taskOf(dap.RoleLeader).Agreement; a.State != status.Agreed {
		t.Errorf("agreement %+v", a)
	}

	// Other terms.
	p.kit, p.cfg, p.id = &first, first.Config, first.ID
	in = &aggregator.Provision{Task: p.kit.Aggregator(), Form: aggregator.Configuration, Made: p.cfg.Bytes(), Terms: []byte(`{"test":3}`), Source: aggregator.Typed, By: "alice"}
	if now, err := one.Amend(t.Context(), in); err != nil || !now {
		t.Errorf("amended: now %v, %v", now, err)
	}
	for _, r := range both {
		p.clock.advance(party.FollowEvery)
		r.step(t)
		there(r, http.StatusOK)
		if n := len(r.opened); n == 0 || r.opened[n-1] != `{"test":3}` {
			t.Errorf("opened with %q", r.opened)
		}
	}

	// The closing, of which neither has heard from its leader when the time for jobs is over.
	job := func(r *replica) answer {
		t.Helper()
		body := p.initReq(p.kit.Inits(p.report(1, spoil{})), nil)
		return p.create(r.url, dap.AggregationJobsResource, dap.MediaAggregationJobInitReq, peerToken, body)
	}
	two.mu.Lock()
	before := two.states
	two.mu.Unlock()
	for range 10 {
		if a := job(two); a.status != http.StatusCreated {
			t.Fatalf("a job: status %d %s", a.status, a.body)
		}
	}
	two.mu.Lock()
	if n := two.states - before; n > 1 {
		t.Errorf("10 jobs asked %d times how their task stands", n)
	}
	two.mu.Unlock()
	if _, err := one.CloseTask(t.Context(), p.id, "bob", "over"); err != nil {
		t.Fatal(err)
	}
	p.clock.advance(keyset.DefaultDelay + party.Fresh)
	p.refused(job(two), problemOfClosed, http.StatusBadRequest)
	tasks, err := two.Registered(t.Context())
	if i := slices.IndexFunc(tasks, func(r status.Registered) bool { return r.Task == p.id.Base64() }); err != nil || i < 0 || tasks[i].Closed == nil || tasks[i].Closed.By != "bob" {
		t.Errorf("registered: %+v, %v", tasks, err)
	}
}

// TestReplicasTaskprov: a task that a leader brings to two replicas at once is one row, one
// that came to either the other serves at its next request, and the limits hold over both.
func TestReplicasTaskprov(t *testing.T) {
	server := pgtest.NewServer(t)
	for name, c := range map[string]struct{ live, perHour, fit int }{"live": {5, 40, 3}, "per hour": {50, 4, 2}} {
		t.Run(name, func(t *testing.T) {
			schema, dir := server.Schema(t), t.TempDir()
			p := bringing(t, setup{}, func(policy *aggregator.TaskPolicy) { policy.Tasks, policy.TasksPerHour = c.live, c.perHour })
			both := p.replicas(schema, dir)
			type offered struct {
				id     dap.TaskID
				advert string
			}
			fresh := func() offered {
				info := fmt.Appendf(nil, "%s %d", name, rand.Uint64())
				p.brought(func(c *dap.TaskConfiguration) { c.TaskInfo = info })
				return offered{p.id, p.advert()}
			}
			at := func(r *replica, o offered) int { return p.offerAt(r.Helper, o.id, peerToken, o.advert).status }
			// atOnce has all offered at both replicas at one time, and counts those that were taken
			// at either, and the requests that were asked to come later.
			atOnce := func(list ...offered) (taken map[dap.TaskID]int, later int) {
				var mu sync.Mutex
				var wait sync.WaitGroup
				taken = make(map[dap.TaskID]int)
				for _, o := range list {
					for _, r := range both {
						wait.Go(func() {
							status := at(r, o)
							mu.Lock()
							defer mu.Unlock()
							switch status {
							case http.StatusOK:
								taken[o.id]++
							case http.StatusTooManyRequests:
								later++
							default:
								t.Errorf("status %d", status)
							}
						})
					}
				}
				wait.Wait()
				return taken, later
			}
			known := func(want int) {
				t.Helper()
				for _, r := range both {
					list, err := r.Registered(t.Context())
					if err != nil || len(list) != want {
						t.Errorf("%d tasks are registered, want %d: %v", len(list), want, err)
					}
					for _, reg := range list {
						if reg.Source != "in band" || reg.By != bringer {
							t.Errorf("registered %+v", reg)
						}
					}
				}
			}
			known(0)
			one := fresh()
			if taken, later := atOnce(slices.Repeat([]offered{one}, 6)...); taken[one.id] != 12 || later != 0 {
				t.Errorf("%d of 12 requests were served, %d later", taken[one.id], later)
			}
			known(1)
			two := fresh()
			if first, second := at(both[0], two), at(both[1], two); first != http.StatusOK || second != http.StatusOK {
				t.Errorf("status %d, and %d at the other", first, second)
			}
			known(2)
			var list []offered
			for range 6 {
				list = append(list, fresh())
			}
			taken, later := atOnce(list...)
			if len(taken) != c.fit || later < 2*(len(list)-c.fit) {
				t.Errorf("%d of %d tasks were taken where %d fit, and %d requests refused", len(taken), len(list), c.fit, later)
			}
			known(2 + c.fit)
			// Those that were taken are served by both, though no more may come.
			for _, o := range list {
				for i, r := range both {
					want := http.StatusTooManyRequests
					if taken[o.id] > 0 {
						want = http.StatusOK
					}
					if status := at(r, o); status != want {
						t.Errorf("status %d at replica %d, want %d", status, i, want)
					}
				}
			}
			if name == "per hour" {
				p.clock.advance(61 * time.Minute)
				if taken, _ := atOnce(fresh(), fresh(), fresh(), fresh(), fresh()); len(taken) != c.perHour {
					t.Errorf("%d tasks came in the next hour, want %d", len(taken), c.perHour)
				}
			}
		})
	}
}
