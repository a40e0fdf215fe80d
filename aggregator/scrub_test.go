package aggregator_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"path"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/sealed"
)

// holding lists the files that hold any of the needles.
func holding(t *testing.T, fsys disk.FS, dir string, needles [][]byte) (names []string) {
	t.Helper()
	for _, e := range must(fsys.ReadDir(dir)) {
		name := path.Join(dir, e.Name)
		if e.Dir {
			names = append(names, holding(t, fsys, name, needles)...)
			continue
		}
		content := must(disk.ReadFile(fsys, name, e.Size))
		for _, n := range needles {
			if bytes.Contains(content, n) {
				names = append(names, name)
				break
			}
		}
	}
	return names
}

// needles are bytes of the sealed shares of each report.
func needles(rs []dap.Report) (raw [][]byte) {
	for i := range rs {
		for _, ct := range []dap.HpkeCiphertext{rs[i].Leader, rs[i].Helper} {
			raw = append(raw, ct.Payload[:16], ct.Payload[len(ct.Payload)-16:])
		}
	}
	return raw
}

// TestRawSharesGoAsTheyAreFolded: what a client sealed, good or bad, is on the leader's
// disk until the report is judged and folded into a sub-aggregate, and on neither disk
// afterwards, long before anybody collects.
func TestRawSharesGoAsTheyAreFolded(t *testing.T) {
	for name, s := range map[string]setup{
		"time interval":   {},
		"leader selected": {mode: dap.LeaderSelected},
		"deferred":        {helper: func(o *helper.Options) { o.Deferred = helper.Always }},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "deferred" {
				s.leader = func(o *leader.Options) { o.Patience = -1 }
			}
			p := newPair(t, s)
			rs := append(p.reports(12), p.report(0, spoil{Context: []byte("of another task")}))
			rs = append(rs, rs[0])
			raw := needles(rs)
			p.accept(rs...)
			if names := holding(t, p.leaderFS, ".", raw); len(names) == 0 {
				t.Fatal("the leader acknowledged reports that are nowhere")
			}
			if name == "deferred" {
				must(p.leader.Step(t.Context()))
				if names := holding(t, p.helperFS, ".", raw); len(names) == 0 {
					t.Fatal("the helper put the job off and keeps it nowhere")
				}
				must(p.helper.Step(t.Context()))
				p.clock.advance(time.Minute)
			}
			p.step()
			for name, c := range map[string]status.Counts{"leader": p.counts(), "helper": p.helperCounts()} {
				if c.Aggregated != 12 || c.Waiting != 0 || c.Collected != 0 {
					t.Fatalf("%s: %+v", name, c)
				}
			}
			for name, fsys := range map[string]disk.FS{"leader": p.leaderFS, "helper": p.helperFS} {
				if names := holding(t, fsys, ".", raw); len(names) != 0 {
					t.Errorf("the %s still has sealed shares in %q", name, names)
				}
			}
		})
	}
}

// TestRawSharesGoWithQuarantine: reports that the operator gives up count as rejected and
// are never read again, so that their shares go at once; the reason stays.
func TestRawSharesGoWithQuarantine(t *testing.T) {
	p := newPair(t, setup{})
	p.tamper(&tamper{drop: true, answers: []func(http.ResponseWriter, *httptest.ResponseRecorder){
		problemAnswer(dap.ProblemInvalidMessage, 400),
	}})
	rs := p.reports(4)
	p.accept(rs...)
	p.step()
	if names := holding(t, p.leaderFS, "inbox", needles(rs)); len(names) == 0 {
		t.Error("what the operator may decide over is nowhere")
	}
	p.resume(true)
	p.settled(0, map[string]uint64{"report_dropped": 4})
	if names := holding(t, p.leaderFS, ".", needles(rs)); len(names) != 0 {
		t.Errorf("sealed shares are in %q", names)
	}
	p.leader.Close()
	p.startLeader()
	p.audit()
	if s := p.leaderTask(); len(s.Stuck) != 1 || !s.Stuck[0].Quarantined || s.Stuck[0].Reports != 4 {
		t.Errorf("stuck: %+v", s.Stuck)
	}
}

// TestReportsEndWithTheirKey: once an HPKE key pair is gone from an aggregator, what was
// sealed to it counts as rejected, also where it was acknowledged, and new reports for it
// are refused in a way that brings clients back with the new key.
func TestReportsEndWithTheirKey(t *testing.T) {
	for _, role := range []string{"leader", "helper"} {
		t.Run(role, func(t *testing.T) {
			p := newPair(t, setup{})
			rs := p.reports(6)
			p.accept(rs[:3]...)
			keys := must(sealed.NewKeyring(must(sealed.Generate(77, sealed.SuiteX25519))))
			if role == "leader" {
				p.leader.Close()
				p.leaderOpt.Keys = keys
				p.startLeader()
				refused := p.uploadErrors(p.upload(rs[3:]...))
				if len(refused) != 3 || !refused[0].Error.Outdated() {
					t.Errorf("refused: %+v", refused)
				}
			} else {
				p.helper.Close()
				p.helperOpt.Keys = keys
				p.startHelper()
			}
			p.settled(0, map[string]uint64{"hpke_unknown_config_id": 3})
			if names := holding(t, p.leaderFS, ".", needles(rs)); len(names) != 0 {
				t.Errorf("sealed shares are in %q", names)
			}
		})
	}
}
