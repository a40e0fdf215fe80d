package aggregator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/aggregatortest"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
)

// inRounds is s with a VDAF of n rounds at both aggregators.
func inRounds(n int, lie aggregatortest.Lie, s setup) setup {
	s.ctx = aggregatortest.Rounds(context.Background(), n, lie)
	return s
}

// A said is one request about aggregation jobs, and its answer.
type said struct {
	method, path, query string
	step                uint16 // of a continuation
	body                []byte
	*httptest.ResponseRecorder
}

// continues says whether it is a continuation.
func (s *said) continues() bool { return s.method == "POST" && s.step > 0 }

// wire records what leader and helper say about aggregation jobs. judge, if there is one,
// sees each request before the helper does and each answer before the leader does, and
// may answer instead: it then returns true.
type wire struct {
	mu    sync.Mutex // guards said
	said  []*said
	judge func(w http.ResponseWriter, s *said, forward func()) bool
}

func (p *pair) wire(x *wire) {
	p.between(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.URL.Path, "/aggregation_jobs") {
				next.ServeHTTP(w, r)
				return
			}
			s := &said{method: r.Method, path: r.URL.Path, query: r.URL.RawQuery, body: must(io.ReadAll(r.Body)), ResponseRecorder: httptest.NewRecorder()}
			if r.Method == "POST" && !creates(r, "aggregation_jobs") {
				s.step = must(p.dialect.ReadAggregationJobContinueReq(s.body)).Step
			}
			x.mu.Lock()
			x.said = append(x.said, s)
			x.mu.Unlock()
			forward := func() {
				r.Body = io.NopCloser(bytes.NewReader(s.body))
				next.ServeHTTP(s, r)
			}
			if x.judge != nil && x.judge(w, s, forward) {
				return
			}
			forward()
			maps.Copy(w.Header(), s.Header())
			w.WriteHeader(s.Code)
			w.Write(s.Body.Bytes())
		})
	})
}

func (x *wire) count(f func(*said) bool) (n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.said {
		if f(s) {
			n++
		}
	}
	return n
}

// TestRounds: jobs of VDAFs with two to four rounds come to the right sum at both
// aggregators, and leave nothing behind.
func TestRounds(t *testing.T) {
	for n := 2; n <= 4; n++ {
		for name, s := range map[string]setup{
			"time interval":   {},
			"leader selected": {mode: dap.LeaderSelected},
			"deferred":        {helper: func(o *helper.Options) { o.Deferred = helper.Always }},
			"several jobs":    {leader: func(o *leader.Options) { o.MaxJobReports = 4 }},
		} {
			t.Run(strconv.Itoa(n)+" "+name, func(t *testing.T) {
				p := newPair(t, inRounds(n, nil, s))
				var x wire
				p.wire(&x)
				rs := append(p.reports(15), p.report(0, spoil{Context: []byte("of another task")}))
				p.accept(rs...)
				for range 3 {
					p.step()
					p.clock.advance(10 * time.Minute)
				}
				p.settled(15, map[string]uint64{"vdaf_verify_error": 1})
				if c := p.helperCounts(); c.Aggregated != 15 || c.Rejected["vdaf_verify_error"] != 1 || c.Acknowledged != 16 {
					t.Errorf("helper: %+v", c)
				}
				jobs := x.count(func(s *said) bool { return s.method == "DELETE" && s.Code == 204 })
				if got := x.count((*said).continues); jobs == 0 || got != jobs*(n-1) {
					t.Errorf("%d continuations of %d jobs of %d rounds", got, jobs, n)
				}
				for name, fsys := range map[string]disk.FS{"leader": p.leaderFS, "helper": p.helperFS} {
					if names := holding(t, fsys, ".", needles(rs)); len(names) != 0 {
						t.Errorf("the %s still has sealed shares in %q", name, names)
					}
				}
				q := p.query()
				loc := p.ask(q).header.Get("Location")
				for range 2 { // a helper that defers is asked again
					p.step()
					p.clock.advance(time.Minute)
				}
				resp, sum := p.open(q, p.poll(loc).body)
				if resp.ReportCount != 15 || !slices.Equal(sum, []int64{3, 3, 3, 3, 3}) {
					t.Errorf("%d reports, %v", resp.ReportCount, sum)
				}
			})
		}
	}
}

// TestRoundsLaterRejection: a report that fails in a later round is left out by both,
// whoever found it out, and fails nobody else. What the leader refuses the helper counts
// as dropped.
func TestRoundsLaterRejection(t *testing.T) {
	const n = 3
	for _, c := range []struct {
		name           string
		liar           dap.Role
		step           uint16
		leader, helper string
	}{
		{"helper's first answer", dap.RoleHelper, 0, "vdaf_verify_error", "report_dropped"},
		{"helper's second answer", dap.RoleHelper, 1, "vdaf_verify_error", "report_dropped"},
		{"leader's first continuation", dap.RoleLeader, 1, "vdaf_verify_error", "vdaf_verify_error"},
		{"leader's last continuation", dap.RoleLeader, 2, "vdaf_verify_error", "vdaf_verify_error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bad := map[dap.ReportID]bool{}
			p := newPair(t, inRounds(n, func(role dap.Role, step uint16, id dap.ReportID) bool {
				return role == c.liar && step == c.step && bad[id]
			}, setup{}))
			rs := p.reports(12)
			bad[rs[0].Metadata.ID], bad[rs[7].Metadata.ID] = true, true
			p.accept(rs...)
			p.settled(10, map[string]uint64{c.leader: 2})
			if got := p.helperCounts(); got.Aggregated != 10 || got.Rejected[c.helper] != 2 || got.Acknowledged != 12 {
				t.Errorf("helper: %+v", got)
			}
			if resp, sum := p.collect(p.query()); resp.ReportCount != 10 || !slices.Equal(sum, []int64{2, 3, 1, 2, 2}) {
				t.Errorf("%d reports, %v", resp.ReportCount, sum)
			}
		})
	}
}

// TestRoundsNobodyLeft: where no report survives a round the job ends there, and is
// deleted with the sealed shares in it.
func TestRoundsNobodyLeft(t *testing.T) {
	for _, liar := range []dap.Role{dap.RoleLeader, dap.RoleHelper} {
		t.Run(liar.String(), func(t *testing.T) {
			p := newPair(t, inRounds(2, func(role dap.Role, _ uint16, _ dap.ReportID) bool { return role == liar }, setup{}))
			var x wire
			p.wire(&x)
			rs := p.reports(4)
			p.accept(rs...)
			p.settled(0, map[string]uint64{"vdaf_verify_error": 4})
			if want, got := int(1-liar/dap.RoleHelper), x.count((*said).continues); got != want {
				t.Errorf("%d continuations, want %d", got, want)
			}
			if last := x.said[len(x.said)-1]; last.method != "DELETE" || last.Code != 204 {
				t.Errorf("%s, status %d", last.method, last.Code)
			}
			for name, fsys := range map[string]disk.FS{"leader": p.leaderFS, "helper": p.helperFS} {
				if names := holding(t, fsys, ".", needles(rs)); len(names) != 0 {
					t.Errorf("the %s still has sealed shares in %q", name, names)
				}
			}
		})
	}
}

// TestRoundsContinuationDeferred: a helper may put a continuation off too; the leader
// polls for that step, and where it loses patience it asks again with the same bytes.
func TestRoundsContinuationDeferred(t *testing.T) {
	for name, patience := range map[string]time.Duration{"polled": time.Minute, "given back": -1} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, inRounds(3, nil, setup{leader: func(o *leader.Options) { o.Patience, o.Poll = patience, time.Millisecond }}))
			seen := map[uint16]int{}
			x := wire{judge: func(w http.ResponseWriter, s *said, forward func()) bool {
				if !s.continues() {
					return false
				}
				if seen[s.step]++; seen[s.step] > 1 {
					return false
				}
				forward()
				w.Header().Set("Location", s.Header().Get("Location"))
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(http.StatusAccepted)
				return true
			}}
			p.wire(&x)
			p.accept(p.reports(12)...)
			for range 4 {
				p.step()
				p.clock.advance(10 * time.Minute)
			}
			p.settled(12, nil)
			for step := uint16(1); step <= 2; step++ {
				polls := x.count(func(s *said) bool { return s.method == "GET" && s.query == dap.StepQuery(step) && s.Code == 200 })
				if patience > 0 && (polls != 1 || seen[step] != 1) || patience < 0 && (polls != 0 || seen[step] != 2) {
					t.Errorf("step %d: %d polls, %d continuations", step, polls, seen[step])
				}
			}
			if c := p.helperCounts(); c.Aggregated != 12 {
				t.Errorf("helper: %+v", c)
			}
		})
	}
}

// TestRoundsReplaysSameBytes: whatever goes wrong with the answer to a continuation, but
// a definite refusal, the leader sends the same bytes again, also in its next life, and
// every report counts once.
func TestRoundsReplaysSameBytes(t *testing.T) {
	for name, bad := range map[string]func(http.ResponseWriter, *said){
		"connection lost": func(http.ResponseWriter, *said) { panic(http.ErrAbortHandler) },
		"500":             func(w http.ResponseWriter, _ *said) { w.WriteHeader(500) },
		"429":             func(w http.ResponseWriter, _ *said) { w.WriteHeader(429) },
		"undecodable": func(w http.ResponseWriter, s *said) {
			w.Header().Set("Content-Type", dap.ContentType(dap.MediaAggregationJobResp))
			w.Write(s.Body.Bytes()[1:])
		},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(name+" "+strconv.FormatBool(restart), func(t *testing.T) {
				p := newPair(t, inRounds(3, nil, setup{}))
				broken := map[uint16]bool{}
				x := wire{judge: func(w http.ResponseWriter, s *said, forward func()) bool {
					if !s.continues() || broken[s.step] {
						return false
					}
					broken[s.step] = true
					forward()
					bad(w, s)
					return true
				}}
				p.wire(&x)
				p.accept(p.reports(12)...)
				for range 4 {
					p.step()
					p.clock.advance(time.Hour)
					if restart {
						p.leader.Close()
						p.startLeader()
						p.audit()
					}
				}
				p.settled(12, nil)
				if c := p.helperCounts(); c.Aggregated != 12 || len(c.Rejected) != 0 {
					t.Errorf("helper: %+v", c)
				}
				bodies := map[uint16][]byte{}
				for _, s := range x.said {
					if !s.continues() {
						continue
					}
					if b, ok := bodies[s.step]; ok && !bytes.Equal(b, s.body) {
						t.Errorf("step %d was sent again with other bytes", s.step)
					}
					bodies[s.step] = s.body
				}
				if n := x.count((*said).continues); len(bodies) != 2 || n < 4 {
					t.Errorf("%d continuations of %d steps", n, len(bodies))
				}
			})
		}
	}
}

// TestRoundsHelperLosesTheJob: a helper that has lost a job is told it again from the
// beginning; if it has answered and deleted it, its reports are replays there, so that
// the operator has to decide.
func TestRoundsHelperLosesTheJob(t *testing.T) {
	t.Run("says so once", func(t *testing.T) {
		p := newPair(t, inRounds(3, nil, setup{}))
		lost := false
		x := wire{judge: func(w http.ResponseWriter, s *said, _ func()) bool {
			if s.step != 1 || lost {
				return false
			}
			lost = true
			problemAnswer(dap.ProblemUnrecognizedAggregationJob, 404)(w, nil)
			return true
		}}
		p.wire(&x)
		p.accept(p.reports(12)...)
		p.settled(12, nil)
		if n := x.count(func(s *said) bool { return s.method == p.dialect.CreationMethod() && !s.continues() }); n != 2 {
			t.Errorf("%d init requests", n)
		}
	})
	t.Run("deleted", func(t *testing.T) {
		p := newPair(t, inRounds(2, nil, setup{}))
		x := wire{}
		x.judge = func(w http.ResponseWriter, s *said, _ func()) bool {
			if s.continues() && x.count((*said).continues) == 1 {
				if a := p.call("DELETE", p.helperURL, s.path, "", peerToken, nil); a.status != 204 {
					t.Errorf("delete: status %d", a.status)
				}
			}
			return false
		}
		p.wire(&x)
		rs := p.reports(4)
		p.accept(rs...)
		p.step()
		if s := p.leaderTask(); len(s.Stuck) != 1 || !s.Stuck[0].Parked || !strings.Contains(s.Stuck[0].Why, "out of step") {
			t.Errorf("stuck: %+v", s.Stuck)
		}
		p.resume(true)
		p.settled(0, map[string]uint64{"report_dropped": 4})
		if c := p.helperCounts(); c.Aggregated != 0 || c.Rejected["report_replayed"] != 4 {
			t.Errorf("helper: %+v", c)
		}
		if names := holding(t, p.leaderFS, ".", needles(rs)); len(names) != 0 {
			t.Errorf("the leader still has sealed shares in %q", names)
		}
	})
}

// TestRoundsOutOfStep: a helper that insists on being at another step, or refuses the
// step, ends the job in sight of the operator.
func TestRoundsOutOfStep(t *testing.T) {
	for _, typ := range []dap.ProblemType{dap.ProblemStepMismatch, dap.ProblemInvalidMessage} {
		t.Run(string(typ), func(t *testing.T) {
			p := newPair(t, inRounds(2, nil, setup{}))
			x := wire{judge: func(w http.ResponseWriter, s *said, _ func()) bool {
				if s.continues() {
					problemAnswer(typ, 400)(w, nil)
				}
				return s.continues()
			}}
			p.wire(&x)
			p.accept(p.reports(4)...)
			p.step()
			if s := p.leaderTask(); len(s.Stuck) != 1 || !s.Stuck[0].Parked || !strings.Contains(s.Stuck[0].Why, string(typ)) || s.Counts.Waiting != 4 {
				t.Errorf("stuck: %+v, %+v", s.Stuck, s.Counts)
			}
			p.between(nil) // it is itself again
			p.resume(false)
			p.settled(4, nil)
		})
	}
}

// TestRoundsQuarantinesChangedContinuation: what was sent in a step cannot be replaced by
// something else in the next life.
func TestRoundsQuarantinesChangedContinuation(t *testing.T) {
	p := newPair(t, inRounds(2, nil, setup{}))
	x := wire{judge: func(w http.ResponseWriter, s *said, _ func()) bool {
		if s.continues() {
			w.WriteHeader(500)
		}
		return s.continues()
	}}
	p.wire(&x)
	p.accept(p.reports(4)...)
	p.step()
	p.leader.Close()
	p.ctx = aggregatortest.Rounds(p.ctx, 2, func(role dap.Role, _ uint16, _ dap.ReportID) bool { return role == dap.RoleLeader })
	p.startLeader()
	p.clock.advance(time.Hour)
	p.settled(0, map[string]uint64{"report_dropped": 4})
	if n := x.count((*said).continues); n != 1 {
		t.Errorf("%d continuations", n)
	}
}

// TestRoundsHelperAnswersWithoutLocation: a job without a name cannot be continued.
func TestRoundsHelperAnswersWithoutLocation(t *testing.T) {
	p := newPair(t, inRounds(2, nil, setup{}))
	p.wire(&wire{judge: func(w http.ResponseWriter, s *said, forward func()) bool {
		if s.method != p.dialect.CreationMethod() {
			return false
		}
		forward()
		w.Header().Set("Content-Type", s.Header().Get("Content-Type"))
		w.Write(s.Body.Bytes())
		return true
	}})
	p.accept(p.reports(4)...)
	if p.dialect.Framing == dap.Janus { // the leader chose the name
		p.settled(4, nil)
		return
	}
	p.step()
	if s := p.leaderTask(); len(s.Stuck) != 1 || !s.Stuck[0].Parked || !strings.Contains(s.Stuck[0].Why, "Location") || s.Counts.Waiting != 4 {
		t.Errorf("stuck: %+v", s.Stuck)
	}
}

// TestRoundsCrash loses power at every place that a job of three rounds passes, in each
// of its rounds, and demands that every acknowledged report is counted exactly once at
// both.
func TestRoundsCrash(t *testing.T) {
	errPower := errors.New("power lost")
	transaction := func(name string) []string {
		return []string{"store." + name + ".before-commit", "store." + name + ".after-commit"}
	}
	for side, points := range map[string][]string{
		"leader": slices.Concat([]string{leader.FailBeforeSend, leader.FailAfterSend}, transaction("save-sent"), transaction("finish-job"),
			[]string{leader.FailBeforeCommit, leader.FailAfterCommit}),
		"helper": slices.Concat([]string{helper.FailBeforeCommit, helper.FailAfterCommit}, transaction("commit-job"), transaction("advance-job")),
	} {
		for _, point := range points {
			for skip := range 3 {
				once := strings.Contains(point, "commit-job") || strings.Contains(point, "finish-job") || strings.HasPrefix(point, "leader.") && strings.Contains(point, "-commit")
				if skip > 0 && once || skip > 1 && strings.Contains(point, "advance-job") {
					continue
				}
				if skip == 1 && !patient { // the first time and the last are asked about
					continue
				}
				t.Run(point+" "+strconv.Itoa(skip), func(t *testing.T) {
					fp := new(disk.Failpoints)
					p := newPair(t, inRounds(3, nil, setup{
						leader: func(o *leader.Options) {
							if side == "leader" {
								o.Failpoints = fp
							}
						},
						helper: func(o *helper.Options) {
							if side == "helper" {
								o.Failpoints = fp
							}
						},
					}))
					mem := &p.leaderFS
					if side == "helper" {
						mem = &p.helperFS
					}
					crashed := false
					fp.Arm(point, skip, func() error {
						crashed = true
						(*mem).Cut()
						return errPower
					})
					rs := p.reports(14)
					p.accept(rs...)
					restarted := false
					for range 6 {
						p.leader.Step(context.Background()) // errors are what this test makes
						p.helper.Step(context.Background())
						if crashed && !restarted {
							restarted = true
							fp.Disarm(point)
							*mem = (*mem).Crash()
							if side == "leader" {
								p.leader.Close()
								p.leaderOpt.FS = *mem
								p.startLeader()
							} else {
								p.helper.Close()
								p.helperOpt.FS = *mem
								p.startHelper()
							}
							p.audit()
						}
						p.clock.advance(10 * time.Minute)
					}
					if !crashed {
						t.Fatal("the failpoint was never passed")
					}
					p.settled(14, nil)
					if c := p.helperCounts(); c.Aggregated != 14 || len(c.Rejected) != 0 || c.Acknowledged != 14 {
						t.Errorf("helper: %+v", c)
					}
					if resp, _ := p.collect(p.query()); resp.ReportCount != 14 {
						t.Errorf("%d reports", resp.ReportCount)
					}
				})
			}
		}
	}
}

// TestRoundsTwins: the same reports are uploaded twice, so that two jobs make the
// same job. While one of them is in the middle of it the other neither takes the answers
// of its later steps for its own, nor deletes the job, nor is set aside.
func TestRoundsTwins(t *testing.T) {
	for name, s := range map[string]setup{"at once": {}, "deferred": {helper: func(o *helper.Options) { o.Deferred = helper.Always }}} {
		for lost := uint16(1); lost <= 2; lost++ {
			t.Run(name+" "+strconv.Itoa(int(lost)), func(t *testing.T) {
				p := newPair(t, inRounds(3, nil, s))
				rs := p.reports(10)
				p.accept(rs...)
				var x wire
				again := false
				x.judge = func(w http.ResponseWriter, s *said, forward func()) bool {
					if again || s.step != lost {
						return false
					}
					again = true
					forward() // and the answer gets lost
					p.accept(rs...)
					w.WriteHeader(http.StatusServiceUnavailable)
					return true
				}
				p.wire(&x)
				for range 6 {
					p.step()
					p.clock.advance(10 * time.Minute)
				}
				if !again {
					t.Fatal("no answer was lost")
				}
				q := p.query()
				loc := p.ask(q).header.Get("Location")
				for range 2 { // a helper that defers is asked again
					p.step()
					p.clock.advance(time.Minute)
				}
				_, sum := p.open(q, p.poll(loc).body)
				var total int64
				for _, n := range sum {
					total += n
				}
				status := must(p.leader.Status(context.Background())).Tasks[0]
				if total != 10 || len(status.Stuck) > 0 || status.Counts.Rejected[dap.ReportReplayed.String()] != 10 {
					t.Errorf("sum %v, stuck %+v, rejected %v", sum, status.Stuck, status.Counts.Rejected)
				}
				p.audit()
			})
		}
	}
}

// TestRoundsTwinsRefused: reports of which some are refused, by either side, are uploaded
// twice, and both segments have sent the job's request before the helper hears of it. When
// one has come to its end, and the helper was not told to delete the job, the reports of
// the other are replays: that the leader has not aggregated what the helper has not
// either is no reason to set them aside, also where it has the job's name and asks for it by that. Framed as Janus frames, each has a job of its own,
// and what is refused is refused in both.
func TestRoundsTwinsRefused(t *testing.T) {
	for _, liar := range []dap.Role{dap.RoleLeader, dap.RoleHelper} {
		for _, kept := range []int{7, 0} {
			for name, set := range map[string]setup{"at once": {}, "deferred": {helper: func(o *helper.Options) { o.Deferred = helper.Always }}} {
				t.Run(fmt.Sprintf("%v %d %s", liar, kept, name), func(t *testing.T) {
					good := map[dap.ReportID]bool{}
					p := newPair(t, inRounds(3, func(role dap.Role, step uint16, id dap.ReportID) bool {
						return role == liar && step == 1 && !good[id]
					}, set))
					asked, deleted := 0, ""
					x := wire{judge: func(w http.ResponseWriter, s *said, _ func()) bool {
						first := false
						if s.method == "DELETE" {
							first = deleted == "" || deleted == s.path
							deleted = s.path
						} else if s.step == 0 {
							asked++
							first = asked <= 2
						}
						if first {
							w.WriteHeader(http.StatusServiceUnavailable)
						}
						return first
					}}
					p.wire(&x)
					rs := p.reports(10)
					for _, r := range rs[:kept] {
						good[r.Metadata.ID] = true
					}
					p.accept(rs...)
					p.step()
					p.accept(rs...)
					for range 8 {
						p.step()
						p.clock.advance(10 * time.Minute)
					}
					refused, replayed := uint64(10-kept), uint64(10)
					if p.dialect.Framing == dap.Janus {
						refused, replayed = 2*refused, uint64(kept)
					}
					c := p.leaderTask().Counts
					if c.Aggregated != uint64(kept) || c.Rejected["vdaf_verify_error"] != refused || c.Rejected["report_replayed"] != replayed || c.Waiting > 0 {
						t.Errorf("%+v, stuck %+v", c, p.leaderTask().Stuck)
					}
					if asked < 4 || deleted == "" {
						t.Errorf("%d requests, deleted %q", asked, deleted)
					}
					if h := p.helperCounts(); h.Aggregated != uint64(kept) {
						t.Errorf("the helper aggregated %d", h.Aggregated)
					}
					p.audit()
				})
			}
		}
	}
}

// TestRoundsTwinsGone: of two segments of the same reports one has made their job, and
// comes to its end, and has the job deleted, while the answer to the first request of the
// other is under way. That one finds no job, and a new one in which all are replays, which
// they are. Framed as Janus frames, no two segments have one job.
func TestRoundsTwinsGone(t *testing.T) {
	p := newPair(t, inRounds(3, nil, setup{dialect: &dap.Dialect{Version: speaks.Version}}))
	made, over, other := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var first sync.Once
	lost, deleted := 0, false
	x := wire{judge: func(w http.ResponseWriter, s *said, forward func()) bool {
		reply := func() bool {
			maps.Copy(w.Header(), s.Header())
			w.WriteHeader(s.Code)
			w.Write(s.Body.Bytes())
			return true
		}
		switch {
		case s.method == "POST" && s.step == 0 && lost < 2: // so that both have sent it
			lost++
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		case s.method == "POST" && s.step == 0:
			forward()
			held := true
			first.Do(func() { held = false })
			if held && !deleted {
				close(made)
				<-over
			}
			return reply()
		case s.method == "POST" && s.step == 1 && !deleted:
			go func() {
				_, err := p.leader.Step(context.Background())
				other <- err
			}()
			<-made
		case s.method == "DELETE" && !deleted:
			deleted = true
			forward()
			close(over) // once it is gone
			return reply()
		}
		return false
	}}
	p.wire(&x)
	rs := p.reports(10)
	p.accept(rs...)
	p.step()
	p.accept(rs...)
	p.step()
	p.clock.advance(10 * time.Minute)
	p.step()
	if err := <-other; err != nil {
		t.Error(err)
	}
	p.step()
	c := p.leaderTask().Counts
	if c.Aggregated != 10 || c.Rejected["report_replayed"] != 10 || c.Waiting > 0 {
		t.Errorf("%+v, stuck %+v", c, p.leaderTask().Stuck)
	}
	if n := x.count(func(s *said) bool { return s.Code == http.StatusNotFound }); n == 0 {
		t.Error("the job was never gone")
	}
	p.audit()
}

// TestRoundsUncounted: a helper that has gone on with a job and counted a report that the
// leader has not is not taken at its word: the reports wait for the operator.
func TestRoundsUncounted(t *testing.T) {
	p := newPair(t, inRounds(2, nil, setup{}))
	rs := p.reports(4)
	x := wire{judge: func(w http.ResponseWriter, s *said, _ func()) bool {
		if s.method != p.dialect.CreationMethod() {
			return false
		}
		resps := make([]dap.VerifyResp, len(rs))
		for i := range resps {
			resps[i] = dap.VerifyResp{ID: rs[i].Metadata.ID, Type: dap.Reject, Error: dap.VDAFVerifyError}
		}
		resps[3] = dap.VerifyResp{ID: rs[3].Metadata.ID, Type: dap.Finish}
		w.Header().Set("Content-Type", dap.ContentType(dap.MediaAggregationJobResp))
		w.Header().Set("Location", p.path(dap.AggregationJobsResource)+"/"+strings.Repeat("A", 43)+"?step=1")
		w.WriteHeader(http.StatusCreated)
		w.Write(must(p.dialect.AppendVerifyResps(nil, resps)))
		return true
	}}
	p.wire(&x)
	p.accept(rs...)
	p.step()
	if s := p.leaderTask(); len(s.Stuck) != 1 || !s.Stuck[0].Parked || s.Counts.Waiting != 4 {
		t.Errorf("stuck: %+v, %+v", s.Stuck, s.Counts)
	}
}

// TestRoundsLostLease: a worker that comes back after its lease, when another has
// finished the job, finds the helper's job gone and made anew, with other answers.
// That is no fault, and sets nothing aside.
func TestRoundsLostLease(t *testing.T) {
	p := newPair(t, inRounds(3, nil, setup{}))
	p.accept(p.reports(10)...)
	var x wire
	late := false
	x.judge = func(_ http.ResponseWriter, s *said, _ func()) bool {
		if !late && s.step == 2 {
			late = true
			p.clock.advance(time.Hour)
			if _, err := p.leader.Step(context.Background()); err != nil {
				t.Error(err)
			}
		}
		return false
	}
	p.wire(&x)
	p.step()
	if n := x.count(func(s *said) bool { return s.method == "POST" && s.Code == http.StatusNotFound }); !late || n == 0 {
		t.Fatal("nobody was late")
	}
	if log := p.log.String(); strings.Contains(log, "quarantined") {
		t.Error("the log tells of a job that was set aside")
	}
	p.settled(10, nil)
	p.audit()
}
