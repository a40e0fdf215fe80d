package aggregator_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// statusOf serves the status of an aggregator as JSON.
func statusOf(s interface {
	Status(context.Context) (*status.Status, error)
}) http.Handler {
	return status.Handler(func(r *http.Request) (*status.Status, error) { return s.Status(r.Context()) })
}

func TestStatusHandlers(t *testing.T) {
	p := newPair(t, setup{})
	p.accept(append(p.reports(12), p.report(0, spoil{Context: []byte("x")}))...)
	p.refusedAtUpload(p.report(0, spoil{Report: func(r *dap.Report) { r.Leader.ConfigID = 50 }}), dap.OutdatedConfig)
	p.step()
	p.refused(p.ask(dap.CollectionJobReq{Query: dap.Query{Mode: dap.TimeInterval}}), dap.ProblemBatchInvalid, 400)
	for role, h := range map[string]http.Handler{"leader": statusOf(p.leader), "helper": statusOf(p.helper)} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/status", nil))
		var s status.Status
		if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || w.Code != 200 || s.Role != role || len(s.Tasks) != 1 {
			t.Fatalf("%s: status %d %v %s", role, w.Code, err, w.Body)
		}
		task := s.Tasks[0]
		if task.ID != p.id.Base64() || task.Phase != status.Running || task.MinBatch != 10 || task.TimePrecision != precision {
			t.Errorf("%s: %+v", role, task)
		}
		if task.Counts.Aggregated != 12 || task.Counts.Rejected["vdaf_verify_error"] != 1 || task.Done != 13 || task.Total != 13 {
			t.Errorf("%s: counts %+v, %d of %d", role, task.Counts, task.Done, task.Total)
		}
		if len(task.Batches) != 1 || task.Batches[0].State != "open" || task.Batches[0].Verified != 12 {
			t.Errorf("%s: batches %+v", role, task.Batches)
		}
		if role == "leader" {
			if task.Peer == nil || task.Peer.Done != 13 || task.Peer.Total != 13 || task.Counts.Refused[p.dialect.Said(dap.OutdatedConfig).String()] != 1 {
				t.Errorf("leader: peer %+v %s", task.Peer, task.PeerUnreadable)
			}
			if s.RefusedRequests["batchInvalid"] != 1 {
				t.Errorf("leader: refused requests %v", s.RefusedRequests)
			}
		}
		w = httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest("POST", "/status", nil)); w.Code != 405 {
			t.Errorf("%s: POST gives %d", role, w.Code)
		}
	}
	// The peer's view needs the peer's token.
	p.refused(p.call("GET", p.helperURL, "tasks/"+p.id.Base64()+"/starling_progress", "", "", nil), "", 401)
}

func TestWhyWithoutHelper(t *testing.T) {
	p := newPair(t, setup{})
	p.accept(p.reports(3)...)
	p.between(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	})
	p.step()
	why := status.Why(p.leaderTask())
	if len(why) == 0 || !strings.Contains(why[0].Blocks, "did not answer") || !strings.Contains(why[0].Do, "helper") {
		t.Errorf("why: %+v", why)
	}
	for _, r := range why {
		if strings.Contains(r.Blocks+r.Do, "127.0.0.1") {
			t.Errorf("an address: %+v", r)
		}
	}
}

// TestRefusedUploadsOutliveTheLeader: what was refused at upload is in status and in why
// after a restart, a loss of power included, and a write that fails loses none of it.
func TestRefusedUploadsOutliveTheLeader(t *testing.T) {
	p := newPair(t, setup{})
	outdated := func(n int) {
		for range n {
			p.refusedAtUpload(p.report(0, spoil{Report: func(r *dap.Report) { r.Leader.ConfigID = 50 }}), dap.OutdatedConfig)
		}
	}
	is := func(want uint64) {
		t.Helper()
		task := p.leaderTask()
		if got := task.Counts.Refused[p.dialect.Said(dap.OutdatedConfig).String()]; got != want {
			t.Errorf("%d refused, want %d", got, want)
		}
		why := status.Why(task)
		if len(why) == 0 || !strings.Contains(why[0].Blocks, p.dialect.Said(dap.OutdatedConfig).String()+" ("+strconv.FormatUint(want, 10)+")") {
			t.Errorf("why: %+v", why)
		}
	}
	outdated(2)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := p.leader.Status(ended); err == nil {
		t.Fatal("a status without a database")
	}
	is(2)
	p.leaderFS = p.leaderFS.Crash()
	p.leaderOpt.FS = p.leaderFS
	p.leader.Close() // of the life that is gone
	p.startLeader()
	is(2)
	outdated(1)
	if err := p.leader.Close(); err != nil {
		t.Fatal(err)
	}
	p.startLeader()
	is(3)
}
