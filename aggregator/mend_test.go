package aggregator_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/mend"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// runFiles are the files of the replay protection.
func (p *pair) runFiles(mem *disktest.Mem) (names []string) {
	p.t.Helper()
	for _, e := range must(mem.ReadDir("runs")) {
		names = append(names, path.Join("runs", e.Name))
	}
	if len(names) == 0 {
		p.t.Fatal("there are no runs")
	}
	return names
}

// damages are what happens to a file.
var damages = map[string]func(mem *disktest.Mem, name string) error{
	"flipped": func(mem *disktest.Mem, name string) error {
		b := must(disk.ReadFile(mem, name, 1<<20))
		b[len(b)/2] ^= 4
		return disk.WriteFile(mem, name, b)
	},
	"cut": func(mem *disktest.Mem, name string) error {
		b := must(disk.ReadFile(mem, name, 1<<20))
		return disk.WriteFile(mem, name, b[:len(b)-9])
	},
	"empty":   func(mem *disktest.Mem, name string) error { return disk.WriteFile(mem, name) },
	"missing": func(mem *disktest.Mem, name string) error { return disk.Remove(mem, name) },
}

// restartAfter stops both, has f done to their disks, and starts them again.
func (p *pair) restartAfter(f func()) {
	p.t.Helper()
	if err := p.leader.Close(); err != nil {
		p.t.Fatal(err)
	}
	if err := p.helper.Close(); err != nil {
		p.t.Fatal(err)
	}
	f()
	p.startHelper()
	p.startLeader()
}

// waitFor lets time pass, and both work, so often that back-offs are over.
func (p *pair) waitFor(passes int) {
	p.t.Helper()
	for range passes {
		p.clock.advance(2 * time.Minute)
		p.step()
	}
}

// known demands that both know all reports of rs, each by refusing it once more, and that
// nothing is damaged.
func (p *pair) known(rs []dap.Report, before uint64) {
	p.t.Helper()
	p.accept(rs...)
	p.waitFor(2)
	c := p.counts()
	if c.Waiting != 0 || c.Rejected["report_replayed"] != before+uint64(len(rs)) {
		p.t.Errorf("%d wait, rejected %v, want %d replays", c.Waiting, c.Rejected, before+uint64(len(rs)))
	}
	resps := p.resps(p.postInit(p.initReq(p.kit.Inits(rs...), nil)))
	for _, r := range resps {
		if r.Type != dap.Reject || r.Error != dap.ReportReplayed {
			p.t.Fatalf("the helper takes an old report: %v %v", r.Type, r.Error)
		}
	}
	if l, h := p.leaderTask().Damaged, p.helperTask().Damaged; len(l)+len(h) > 0 {
		p.t.Errorf("damaged at the leader %+v, at the helper %+v", l, h)
	}
}

// TestDamagedRunIsMended: whatever happens to files of the replay protection, at one
// aggregator or at both, to one or to all of them, they are made again from the other's
// ids; reports wait meanwhile, and none is counted twice.
func TestDamagedRunIsMended(t *testing.T) {
	for _, who := range []string{"leader", "helper", "both"} {
		for how, damage := range damages {
			for _, all := range []bool{false, true} {
				if who == "both" && all {
					continue // then nobody has the ids: TestIDsThatNobodyHas
				}
				t.Run(fmt.Sprintf("%s, %s, all %v", who, how, all), func(t *testing.T) {
					p := newPair(t, setup{})
					var old []dap.Report
					for range 3 {
						rs := p.reports(4)
						p.accept(rs...)
						p.step()
						old = append(old, rs...)
					}
					p.restartAfter(func() {
						for side, mem := range map[string]*disktest.Mem{"leader": p.leaderFS, "helper": p.helperFS} {
							names := p.runFiles(mem)
							switch {
							case who != side && who != "both":
								continue
							case who == "both" && side == "helper":
								names = names[:0] // of those, see below
							case !all:
								names = names[:1]
							}
							for _, name := range names {
								if err := damage(mem, name); err != nil {
									t.Fatal(err)
								}
							}
						}
					})
					if who == "both" {
						// The helper's is found damaged while it runs, once the leader's
						// is mended: they need one another.
						p.step()
						p.restartAfter(func() {
							if err := damage(p.helperFS, p.runFiles(p.helperFS)[1]); err != nil {
								t.Fatal(err)
							}
						})
					}
					p.accept(p.reports(4)...)
					p.waitFor(4)
					p.settled(16, nil)
					p.known(old, 0)
					if c := p.helperCounts(); c.Aggregated != 16 {
						t.Errorf("the helper has aggregated %d", c.Aggregated)
					}
				})
			}
		}
	}
}

// TestSwappedRuns: the files of two tasks, or two files of one, change places.
func TestSwappedRuns(t *testing.T) {
	p := newPair(t, setup{})
	var old []dap.Report
	for range 2 {
		rs := p.reports(4)
		p.accept(rs...)
		p.step()
		old = append(old, rs...)
	}
	p.restartAfter(func() {
		names := p.runFiles(p.leaderFS)
		a, b := must(disk.ReadFile(p.leaderFS, names[0], 1<<20)), must(disk.ReadFile(p.leaderFS, names[1], 1<<20))
		if err := disk.WriteFile(p.leaderFS, names[0], b); err != nil {
			t.Fatal(err)
		}
		if err := disk.WriteFile(p.leaderFS, names[1], a); err != nil {
			t.Fatal(err)
		}
	})
	p.accept(p.reports(2)...)
	p.waitFor(2)
	p.settled(10, nil)
	p.known(old, 0)
}

// TestMendedWithJobsInFlight: a job is answered by the helper and not committed by the
// leader, another was sent and never came; the files of one side, or of the other, are
// lost. What is in flight is told from what was in them.
func TestMendedWithJobsInFlight(t *testing.T) {
	for _, who := range []string{"leader", "helper"} {
		for _, arrives := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, the job arrives %v", who, arrives), func(t *testing.T) {
				p := newPair(t, setup{})
				old := p.reports(6)
				p.accept(old...)
				p.step()
				p.between(func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if creates(r, "aggregation_jobs") {
							if arrives {
								next.ServeHTTP(httptest.NewRecorder(), r)
							}
							w.WriteHeader(http.StatusBadGateway)
							return
						}
						next.ServeHTTP(w, r)
					})
				})
				flying := p.reports(5)
				p.accept(flying...)
				p.step()
				if c := p.counts(); c.Waiting != 5 {
					t.Fatalf("%d wait, want 5 in flight", c.Waiting)
				}
				p.restartAfter(func() {
					mem := map[string]*disktest.Mem{"leader": p.leaderFS, "helper": p.helperFS}[who]
					for _, name := range p.runFiles(mem) {
						if err := disk.Remove(mem, name); err != nil {
							t.Fatal(err)
						}
					}
				})
				p.waitFor(3) // the jobs still fail
				if l, h := p.leaderTask().Damaged, p.helperTask().Damaged; len(l)+len(h) > 0 {
					t.Errorf("damaged at the leader %+v, at the helper %+v", l, h)
				}
				p.between(nil)
				p.clock.advance(3 * time.Hour)
				p.settled(11, nil)
				p.known(append(old, flying...), 0)
			})
		}
	}
}

// TestLyingPeerMendsNothing: a helper that gives other ids, another order, too many, too
// few, or rubbish, or is silent, is refused; reports wait, the status says why, and an
// honest helper mends it all.
func TestLyingPeerMendsNothing(t *testing.T) {
	change := func(f func(page []mend.Entry) []mend.Entry) func(w http.ResponseWriter, rec *httptest.ResponseRecorder) {
		return func(w http.ResponseWriter, rec *httptest.ResponseRecorder) {
			page := f(must(mend.ReadPage(rec.Body.Bytes())))
			w.Header().Set("Content-Type", mend.Media)
			w.Write(mend.AppendPage(nil, page))
		}
	}
	for name, lie := range map[string]struct {
		answer func(w http.ResponseWriter, rec *httptest.ResponseRecorder)
		why    string
	}{
		"another id": {change(func(p []mend.Entry) []mend.Entry { p[2].ID[15] ^= 1; return p }), "SHA-256"},
		"one less":   {change(func(p []mend.Entry) []mend.Entry { return p[1:] }), "does not hold all"},
		"none":       {change(func([]mend.Entry) []mend.Entry { return nil }), "does not hold all"},
		"one more": {change(func(p []mend.Entry) []mend.Entry {
			return append(p, mend.Entry{ID: dap.ReportID(bytes.Repeat([]byte{0xff}, 16))})
		}), "holds more"},
		"turned":  {change(func(p []mend.Entry) []mend.Entry { p[0], p[1] = p[1], p[0]; return p }), "out of order"},
		"marked":  {change(func(p []mend.Entry) []mend.Entry { p[0].ID[0] ^= 0; p[3].ID[3] ^= 1; p[3].Marked = true; return p }), ""},
		"rubbish": {func(w http.ResponseWriter, _ *httptest.ResponseRecorder) { io.WriteString(w, "<html>") }, "no message"},
		"endless": {func(w http.ResponseWriter, _ *httptest.ResponseRecorder) {
			w.Header().Set("Content-Type", mend.Media)
			w.Write(make([]byte, mend.MaxMessage+17))
		}, "malformed"},
		"down":    {func(w http.ResponseWriter, _ *httptest.ResponseRecorder) { w.WriteHeader(502) }, "502"},
		"another": {func(w http.ResponseWriter, _ *httptest.ResponseRecorder) { http.NotFound(w, nil) }, "another implementation"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, setup{})
			old := p.reports(6)
			p.accept(old...)
			p.step()
			p.restartAfter(func() {
				if err := damages["flipped"](p.leaderFS, p.runFiles(p.leaderFS)[0]); err != nil {
					t.Fatal(err)
				}
			})
			asked := 0
			p.between(func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if strings.HasSuffix(r.URL.Path, mend.Path+"/ids") {
						asked++
						rec := httptest.NewRecorder()
						next.ServeHTTP(rec, r)
						lie.answer(w, rec)
						return
					}
					next.ServeHTTP(w, r)
				})
			})
			p.accept(p.reports(2)...)
			p.waitFor(3)
			task := p.leaderTask()
			if len(task.Damaged) != 1 || !strings.Contains(task.Damaged[0].Tried, lie.why) || task.Counts.Waiting != 2 || task.Counts.Aggregated != 6 {
				t.Errorf("damaged %+v, counts %+v, want %q", task.Damaged, task.Counts, lie.why)
			}
			if asked == 0 || asked > 5 {
				t.Errorf("the helper was asked %d times in 6 minutes", asked)
			}
			p.between(nil)
			p.clock.advance(3 * time.Hour)
			p.step()
			p.settled(8, nil)
			p.known(old, 0)
		})
	}
}

// TestIDsThatNobodyHas: both have lost the same ids. Nothing is taken without replay
// protection, both say so in words, and a copy of the file that is put back by hand mends
// it.
func TestIDsThatNobodyHas(t *testing.T) {
	p := newPair(t, setup{})
	old := p.reports(6)
	p.accept(old...)
	p.step()
	copies := make(map[*disktest.Mem][]byte)
	p.restartAfter(func() {
		for _, mem := range []*disktest.Mem{p.leaderFS, p.helperFS} {
			name := p.runFiles(mem)[0]
			copies[mem] = must(disk.ReadFile(mem, name, 1<<20))
			if err := damages["cut"](mem, name); err != nil {
				t.Fatal(err)
			}
		}
	})
	p.accept(append(p.reports(2), old[0])...)
	p.waitFor(4)
	for who, task := range map[string]int{"leader": len(p.leaderTask().Damaged), "helper": len(p.helperTask().Damaged)} {
		if task != 1 {
			t.Errorf("the %s does not say that its replay protection is damaged", who)
		}
	}
	if task := p.leaderTask(); task.Counts.Aggregated != 6 || task.Counts.Waiting != 3 || !strings.Contains(task.Damaged[0].Tried, "does not hold all") {
		t.Errorf("counts %+v, damaged %+v", task.Counts, task.Damaged)
	}
	if a := p.postInit(p.initReq(p.kit.Inits(old[1]), nil)); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("a job with an old report at the helper: status %d", a.status)
	}
	if err := disk.WriteFile(p.leaderFS, p.runFiles(p.leaderFS)[0], copies[p.leaderFS]); err != nil {
		t.Fatal(err)
	}
	p.clock.advance(3 * time.Hour)
	p.step()
	p.waitFor(4)
	p.clock.advance(3 * time.Hour)
	p.step()
	p.settled(8, map[string]uint64{"report_replayed": 1})
	p.known(old, 1)
}

// TestGiftsAreChecked: a helper takes ids for what it lacks from the leader alone, in
// bounded pages and in order, and none that do not prove to be the run's. One that is
// started again in the middle begins anew.
func TestGiftsAreChecked(t *testing.T) {
	p := newPair(t, setup{})
	old := p.reports(6)
	p.accept(old...)
	p.step()
	p.restartAfter(func() {
		if err := damages["missing"](p.helperFS, p.runFiles(p.helperFS)[0]); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := p.helper.Step(context.Background()); err != nil {
		t.Fatal(err)
	}
	base := "tasks/" + p.id.Base64() + "/" + mend.Path
	send := func(method, path, token string, body []byte) answer {
		req := must(http.NewRequest(method, p.helperURL+"/"+path, bytes.NewReader(body)))
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", mend.Media)
		resp := must(http.DefaultClient.Do(req))
		defer resp.Body.Close()
		return answer{status: resp.StatusCode, header: resp.Header, body: must(io.ReadAll(resp.Body))}
	}
	for _, path := range []string{base + "/ids", base + "/give"} {
		if a := send("POST", path, "another", nil); a.status != 401 {
			t.Errorf("without the token: status %d", a.status)
		}
		for _, body := range [][]byte{nil, make([]byte, 31), bytes.Repeat([]byte{1}, 32+16+17*2), make([]byte, mend.MaxMessage+1)} {
			if a := send("POST", path, peerToken, body); a.status/100 != 4 {
				t.Errorf("%s with %d bytes: status %d", path, len(body), a.status)
			}
		}
	}
	needs := must(mend.ReadNeeds(send("GET", base, peerToken, nil).body))
	if len(needs) != 1 || needs[0].IDs != 6 {
		t.Fatalf("needs %+v", needs)
	}
	n := needs[0]
	give := func(page []mend.Entry) (mend.Outcome, dap.ReportID) {
		t.Helper()
		a := send("POST", base+"/give", peerToken, (&mend.Gift{Sum: n.Sum, From: n.Next, Page: page}).Append(nil))
		o, next, err := mend.ReadOutcome(a.body)
		if a.status != 200 || err != nil {
			t.Fatalf("status %d %q: %v", a.status, a.body, err)
		}
		return o, next
	}
	full := make([]mend.Entry, mend.PageSize)
	for i := range full {
		// ids that nobody has aggregated
		full[i] = mend.Entry{ID: dap.ReportID{0, 0, 0, byte(i >> 8), byte(i)}, Marked: i > 2}
	}
	if o, next := give(full); o != mend.Go || next == n.Next {
		t.Errorf("a page of marked ids: %v, then %x", o, next)
	}
	for i := range full {
		full[i].Marked = false
	}
	if o, next := give(full); o != mend.Go || next == n.Next {
		t.Errorf("the same page again moved to %x: %v", next, o) // it says where it is
	}
	n.Next = after(full[len(full)-1].ID)
	for i := range full {
		full[i] = mend.Entry{ID: dap.ReportID{0, 0, 1, byte(i >> 8), byte(i)}}
	}
	if o, _ := give(full); o != mend.Unlike {
		t.Errorf("more ids than the file had: %v", o)
	}
	if s := p.helperTask(); len(s.Damaged) != 1 || !strings.Contains(s.Damaged[0].Tried, "holds more") {
		t.Errorf("damaged %+v", s.Damaged)
	}
	n.Next = needs[0].Next
	for i := range full {
		full[i] = mend.Entry{ID: dap.ReportID{0, 0, 0, byte(i >> 8), byte(i)}, Marked: true}
	}
	if o, _ := give(full); o != mend.Go {
		t.Errorf("a page after all that: %v", o)
	}
	if moved := must(mend.ReadNeeds(send("GET", base, peerToken, nil).body)); len(moved) != 1 || moved[0].Next == needs[0].Next {
		t.Errorf("in the middle: %+v", moved)
	}
	p.restartAfter(func() {})
	p.clock.advance(2 * time.Minute)
	if _, err := p.helper.Step(context.Background()); err != nil {
		t.Fatal(err)
	}
	if anew := must(mend.ReadNeeds(send("GET", base, peerToken, nil).body)); len(anew) != 1 || anew[0].Next != needs[0].Next {
		t.Errorf("after a restart in the middle: %+v", anew)
	}
	if err := p.leader.Repair(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s := p.helperTask(); len(s.Damaged) != 0 {
		t.Errorf("not mended: %+v", s.Damaged)
	}
	p.known(old, 0)
}

func after(id dap.ReportID) dap.ReportID {
	id[15]++
	return id
}
