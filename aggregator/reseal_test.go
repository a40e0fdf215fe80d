package aggregator_test

import (
	"bytes"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/sealed"
)

// sealTo has the task sealed to a key from the next start on.
func sealTo(tasks []aggregator.Task, key *sealed.KeyPair) []aggregator.Task {
	tasks = append([]aggregator.Task{}, tasks...)
	tasks[0].CollectorHPKE = dap.NewHpkeConfig(key)
	return tasks
}

// TestShareThatNobodyOpensIsSealedAgain: an operator has given one server, or both, a key
// that is not the collector's. The batch closes, and nobody can read its result. Once the
// key is right and the server started again, the same job has the same shares, sealed to
// the collector: nothing else in the answer changes, nothing is drawn, and the ledger
// says it. In either batch mode, with helpers that answer at once and later, and however
// often it is asked for.
func TestShareThatNobodyOpensIsSealedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		s              setup
		leader, helper bool // has the wrong key
	}{
		"helper":                  {helper: true},
		"leader":                  {leader: true},
		"both":                    {leader: true, helper: true},
		"helper, leader-selected": {s: setup{mode: dap.LeaderSelected}, helper: true},
		"helper, deferred":        {s: setup{helper: func(o *helper.Options) { o.Deferred = helper.Always }}, helper: true},
	} {
		t.Run(name, func(t *testing.T) {
			// The wrong key has the id of the right one: only who opens a share can tell.
			wrong := must(sealed.Generate(3, sealed.SuiteX25519))
			l, h := c.s.leader, c.s.helper
			c.s.leader = func(o *leader.Options) {
				if c.leader {
					o.Tasks = sealTo(o.Tasks, wrong)
				}
				if l != nil {
					l(o)
				}
			}
			c.s.helper = func(o *helper.Options) {
				if c.helper {
					o.Tasks = sealTo(o.Tasks, wrong)
				}
				if h != nil {
					h(o)
				}
			}
			p := newKeptPair(t, c.s)
			p.between(strangers) // others find out before anything is sealed, unless both are wrong
			p.accept(p.reports(10)...)
			q := p.query()
			loc := p.ask(q).header.Get("Location")
			for range 3 {
				p.step()
				p.clock.advance(2 * time.Minute) // beyond the back-off of a deferred answer
			}
			first := p.poll(loc).body
			if len(first) == 0 {
				t.Fatal("nothing was released")
			}
			was := must(dap.ReadCollectionJobResp(first))
			aad := dap.AggregateShareAAD(p.id, p.cfg.Bytes(), must(q.Append(nil)))
			plain := func(bad bool, role dap.Role, ct dap.HpkeCiphertext) []byte {
				t.Helper()
				key := p.collector
				if bad {
					if _, err := key.Open(ct.Enc, p.dialect.AggregateShareInfo(role), aad, ct.Payload); err == nil {
						t.Fatalf("the %v's share opens", role)
					}
					key = wrong
				}
				return must(key.Open(ct.Enc, p.dialect.AggregateShareInfo(role), aad, ct.Payload))
			}
			want := [2][]byte{plain(c.leader, dap.RoleLeader, was.Leader), plain(c.helper, dap.RoleHelper, was.Helper)}
			for name, mem := range map[string]disk.FS{"leader": p.leaderFS, "helper": p.helperFS} {
				if files := holding(t, mem, ".", [][]byte{want[0], want[1]}); len(files) > 0 {
					t.Errorf("the %s has a noised share in the clear: %q", name, files)
				}
			}
			// Asked again before anybody acts it is what it was.
			p.clock.advance(time.Hour)
			if again := p.poll(loc).body; !bytes.Equal(again, first) {
				t.Error("the answer changed while the keys did not")
			}

			p.stop()
			p.leaderOpt.Tasks, p.helperOpt.Tasks = sealTo(p.leaderOpt.Tasks, p.collector), sealTo(p.helperOpt.Tasks, p.collector)
			p.start()
			got := p.poll(loc)
			if got.status != 200 {
				t.Fatalf("status %d %q", got.status, got.body)
			}
			if shares := p.opened(q, got.body); !bytes.Equal(shares[0], want[0]) || !bytes.Equal(shares[1], want[1]) {
				t.Error("the shares have another content")
			}
			is := must(dap.ReadCollectionJobResp(got.body))
			if is.ReportCount != was.ReportCount || is.Interval != was.Interval || !c.leader && !bytes.Equal(is.Leader.Payload, was.Leader.Payload) ||
				!c.helper && !bytes.Equal(is.Helper.Payload, was.Helper.Payload) {
				t.Error("something else of the answer changed")
			}
			// In this life and the next it is that from now on.
			p.clock.advance(time.Hour)
			if again := p.poll(loc).body; !bytes.Equal(again, got.body) {
				t.Error("the answer changed again")
			}
			p.stop()
			p.start()
			if again := p.ask(q).body; !bytes.Equal(again, got.body) {
				t.Error("the answer changed with a restart")
			}
			p.audit()
			resealed := func(party string, n uint64, want uint64) {
				t.Helper()
				if n != want {
					t.Errorf("the %s's ledger has %d shares sealed again, want %d", party, n, want)
				}
			}
			one := map[bool]uint64{true: 1}
			resealed("leader", p.leaderTask().Resealed, one[c.leader]+one[c.helper])
			resealed("helper", p.helperTask().Resealed, one[c.helper])
		})
	}
}

// TestResealWaitsForNobody: a helper that is away, or says something else, takes nothing
// from an answer that is there.
func TestResealWaitsForNobody(t *testing.T) {
	p := newKeptPair(t, setup{})
	p.accept(p.reports(10)...)
	q := p.query()
	loc, first := p.released(q)
	var asked atomic.Int32
	for _, answer := range []func(w http.ResponseWriter){
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) },
		func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", dap.ContentType(dap.MediaAggregateShare))
			w.Write([]byte("rubbish"))
		},
		func(w http.ResponseWriter) { // a share of another length
			w.Header().Set("Content-Type", dap.ContentType(dap.MediaAggregateShare))
			w.Write(must(dap.AggregateShare{Ciphertext: dap.HpkeCiphertext{ConfigID: 3, Enc: make([]byte, 32), Payload: make([]byte, 20)}}.Append(nil)))
		},
	} {
		p.between(func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				answer(w)
			})
		})
		p.clock.advance(time.Hour)
		for range 3 { // asked once a minute at most, however often the collector comes
			if a := p.poll(loc); a.status != 200 || !bytes.Equal(a.body, first) {
				t.Errorf("status %d, %d bytes", a.status, len(a.body))
			}
		}
	}
	if n := asked.Load(); n != 4 {
		t.Errorf("the helper was asked %d times, want 4", n)
	}
	p.between(nil)
}

// TestKeptShareGoes: the collector's DELETE takes the noised share with the job, at the
// leader; the task's retirement takes it at both.
func TestKeptShareGoes(t *testing.T) {
	now := must(dap.TimePrecision(precision).At(today()))
	p := newKeptPair(t, setup{interval: &dap.Interval{Start: now - 1, Duration: 3}})
	p.accept(p.reports(10)...)
	kept := func() (leader, helper uint64) {
		return p.leaderTask().KeptShares, p.helperTask().KeptShares
	}
	loc, _ := p.released(p.query())
	if l, h := kept(); l != 1 || h != 1 {
		t.Fatalf("%d and %d are kept", l, h)
	}
	if a := p.call("DELETE", p.leaderURL, loc, "", collectorToken, nil); a.status != 204 {
		t.Fatalf("delete: status %d", a.status)
	}
	if l, h := kept(); l != 0 || h != 1 {
		t.Errorf("%d and %d are kept after DELETE", l, h)
	}
	p.clock.advance(40 * 24 * time.Hour)
	p.step()
	p.step()
	if l, h := kept(); l != 0 || h != 0 {
		t.Errorf("%d and %d are kept of a retired task", l, h)
	}
}
