package aggregator_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/vdaf"
)

// says answers every request to a helper the same way.
func says(f http.HandlerFunc) func(http.Handler) http.Handler {
	return func(http.Handler) http.Handler { return f }
}

// reasons are all that a leader's operator reads in why.
func (p *pair) reasons() (rs []status.Reason) {
	p.t.Helper()
	s := must(p.leader.Status(context.Background()))
	rs = append(s.Reasons(), s.Strays()...)
	for i := range s.Tasks {
		rs = append(rs, status.Why(&s.Tasks[i])...)
	}
	return rs
}

// TestWhyInEachSituation: each situation in which a task is stuck, made for real, is
// named in words, with what to do about it; and none of them is named where nothing is
// wrong.
func TestWhyInEachSituation(t *testing.T) {
	stuck := func(between func(http.Handler) http.Handler) func(*pair) {
		return func(p *pair) {
			p.between(between)
			p.accept(p.reports(3)...)
			p.step()
		}
	}
	anotherKey := setup{helper: func(o *helper.Options) {
		o.Tasks = slices.Clone(o.Tasks)
		verifyKey([vdaf.VerifyKeySize]byte{1, 2, 3})(&o.Tasks[0])
	}}
	for name, c := range map[string]struct {
		setup      setup
		make       func(*pair)
		blocks, do string
		heal       func(*pair) // after which nothing is said of it
	}{
		"another token": {make: stuck(says(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })),
			blocks: "status 401", do: "token"},
		"task unknown at the helper": {make: stuck(says(func(w http.ResponseWriter, _ *http.Request) {
			problemAnswer(dap.ProblemUnrecognizedTask, http.StatusNotFound)(w, nil)
		})), blocks: "unrecognizedTask", do: "provision the same task at the helper"},
		"helper down": {make: stuck(says(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })),
			blocks: "did not answer", do: "check that the helper runs and can be reached"},
		"helper answers HTML": {make: stuck(says(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<html>It works!</html>")
		})), blocks: "helper did not answer", do: "check that the helper runs"},
		"helper redirects": {make: stuck(says(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) })),
			blocks: "status 302", do: "check that the helper runs"},
		"helper answers rubbish": {make: stuck(says(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", dap.ContentType(dap.MediaAggregationJobResp))
			w.Header().Set("Location", "/x")
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, "rubbish")
		})), blocks: "did not answer", do: "check that the helper runs"},
		"batch too small": {make: func(p *pair) {
			p.accept(p.reports(3)...)
			p.ask(p.query())
			p.step()
		}, blocks: "fewer than 10 verified reports", do: "send more reports"},
		"batch held": {setup: setup{leader: func(o *leader.Options) { o.Tasks = expecting(o.Tasks, aggregator.Expectation{Reports: 5}) }}, make: func(p *pair) {
			p.accept(p.reports(11)...)
			p.ask(p.query())
			p.step()
		}, blocks: "a batch of 11 reports is held", do: "raise what this aggregator expects in its configuration"},
		"disk full": {setup: setup{leader: func(o *leader.Options) { o.Limits.MinFree = 1 << 20 }}, make: func(p *pair) {
			p.leaderFS.SetSize(p.leaderFS.Used() + 1<<19)
			p.away(p.upload(p.reports(1)...))
		}, heal: func(p *pair) { p.leaderFS.SetSize(p.leaderFS.Used() + 1<<30) }, blocks: "0 MiB are free, of 1 MiB that have to be (min_free)", do: "make room on the disk"},
		"too many wait": {setup: setup{leader: func(o *leader.Options) { o.Limits.MaxBacklog = 5 }}, make: func(p *pair) {
			p.between(says(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
			p.accept(p.reports(5)...)
			p.step()
			p.away(p.upload(p.reports(1)...))
		}, heal: func(p *pair) {
			p.between(nil)
			p.waitFor(3)
		}, blocks: "(max_backlog)", do: "what keeps reports from being verified"},
		"damaged log": {make: func(p *pair) {
			for range 4 {
				p.accept(p.reports(10)...)
			}
			p.leader.Close()
			for name := range filesOf(t, p.leaderFS, "inbox") {
				b := must(disk.ReadFile(p.leaderFS, name, 1<<30))
				b[len(b)*3/8] ^= 1
				if err := disk.WriteFile(p.leaderFS, name, b); err != nil {
					p.t.Fatal(err)
				}
			}
			p.startLeader()
			p.step()
		}, blocks: "requests of acknowledged reports are lost", do: "docs/recovery.md"},
		"damaged run": {make: func(p *pair) {
			p.accept(p.reports(4)...)
			p.step()
			p.restartAfter(func() {
				if err := damages["flipped"](p.leaderFS, p.runFiles(p.leaderFS)[0]); err != nil {
					p.t.Fatal(err)
				}
			})
			p.between(says(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
			p.accept(p.reports(2)...)
			p.step()
		}, heal: func(p *pair) {
			p.between(nil)
			p.waitFor(3)
		}, blocks: "the replay protection has a damaged file of 4 report ids", do: "starling repair leader.toml"},
		"another verification key": {setup: anotherKey, make: func(p *pair) {
			p.accept(p.reports(3)...)
			p.step()
		}, blocks: "verification key 7", do: "starling task change --verify-key 7=FILE"},
		"another verification key, and a helper that does not compare": {setup: anotherKey, make: func(p *pair) {
			p.between(strangers)
			p.accept(p.reports(120)...)
			p.step()
		}, blocks: "120 of 120 acknowledged reports were rejected: vdaf_verify_error", do: "give both the same file in verify_keys"},
		"helper's store lost": {make: func(p *pair) {
			p.accept(p.reports(12)...)
			p.step()
			p.helper.Close()
			p.helperFS = disktest.NewMem(11)
			p.helperOpt.FS = p.helperFS
			p.startHelper()
			p.clock.advance(2 * time.Minute)
			p.step()
		}, blocks: "the helper knows of 0 finished reports, and this leader has verified 12 with it", do: "put the newest state of its data directory back"},
		"clients of an unknown recipe": {make: func(p *pair) {
			p.call("POST", p.leaderURL, dap.CreationPath(dap.TaskID{9}, dap.ReportsResource), dap.MediaUploadReq, "", must(dap.AppendUploadRequest(nil, p.reports(1))))
		}, blocks: "1 requests since the start were for a task that is not served here", do: "starling recipe show"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, c.setup)
			if rs := p.reasons(); slices.ContainsFunc(rs, func(r status.Reason) bool { return strings.Contains(r.Blocks, c.blocks) }) {
				t.Fatalf("named before it is so: %+v", rs)
			}
			c.make(p)
			if rs := p.reasons(); !slices.ContainsFunc(rs, func(r status.Reason) bool {
				return strings.Contains(r.Blocks, c.blocks) && strings.Contains(r.Do, c.do)
			}) {
				t.Errorf("want %q and %q, got %+v", c.blocks, c.do, rs)
			}
			if c.heal == nil {
				return
			}
			c.heal(p)
			if rs := p.reasons(); slices.ContainsFunc(rs, func(r status.Reason) bool { return strings.Contains(r.Blocks, c.blocks) }) {
				t.Errorf("named when it is over: %+v", rs)
			}
		})
	}
}
