package hostile

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/service/servicetest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// TestLyingHelper stands between a leader and its helper and changes what the helper
// says. An answer for other reports than were asked about ends that job in sight of the
// operator, who decides, and loses nothing; a verdict that no draft has refuses one
// report; and a helper that shows no progress is not called unreachable.
func TestLyingHelper(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "world")
	a, err := deploy.Loopback()
	if err != nil {
		t.Fatal(err)
	}
	r, err := account.New(account.Options{Name: "lies", DAP: speaks, Query: recipe.L1BoundSum{Length: 3, Max: 4}, BatchMode: dap.TimeInterval,
		MinBatch: 5, Epsilon: recipe.Decimal{Coefficient: 1}, TimePrecision: 3600, Leader: a.LeaderURL(), Helper: a.HelperURL()})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := deploy.Create(dir, r, a); err != nil {
		t.Fatal(err)
	}
	load := func(file string, role dap.Role) *deploy.Aggregator {
		c, err := deploy.LoadAggregator(filepath.Join(dir, file), role)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	leader, helper := load(deploy.LeaderFile, dap.RoleLeader), load(deploy.HelperFile, dap.RoleHelper)

	// The helper's true place, and the liar where devices and leader look for it.
	behind, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var lie atomic.Pointer[func([]byte) []byte] // what becomes of the answer to an aggregation job
	var silent, refusing atomic.Bool
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: behind.Addr().String()})
	proxy.ModifyResponse = func(resp *http.Response) error {
		if silent.Load() && strings.HasSuffix(resp.Request.URL.Path, "/starling_progress") {
			resp.StatusCode, resp.Header = http.StatusNotFound, http.Header{}
			resp.Body = io.NopCloser(strings.NewReader(""))
			return nil
		}
		if refusing.Load() && resp.Request.Method != http.MethodGet && strings.Contains(resp.Request.URL.Path, "/aggregation_jobs") {
			resp.StatusCode = http.StatusBadRequest
			resp.Header = http.Header{"Content-Type": {dap.ProblemMedia}}
			resp.Body = io.NopCloser(strings.NewReader(`{"type":"` + dap.ProblemInvalidMessage.URI() + `"}`))
			resp.ContentLength = -1
			return nil
		}
		f := lie.Load()
		if f == nil || resp.Request.Method != http.MethodPost || !strings.HasSuffix(resp.Request.URL.Path, "/aggregation_jobs") {
			return nil
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		body = (*f)(body)
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
		return nil
	}
	liar := &http.Server{Handler: proxy}
	go liar.Serve(a.Helper)
	t.Cleanup(func() { liar.Close() })

	log, leaderLocal := slog.New(slog.DiscardHandler), a.LeaderLocal.Addr().String()
	servicetest.Serve(t, helper.Parts(log, deploy.Listeners{Public: behind, Local: a.HelperLocal})...)
	stopLeader := servicetest.Serve(t, leader.Parts(log, deploy.Listeners{Public: a.Leader, Local: a.LeaderLocal})...)

	// until reads the leader's status until it has what is looked for.
	until := func(what string, found func(*status.Task) bool) *status.Task {
		t.Helper()
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			resp, err := http.Get("http://" + leaderLocal + "/statusz")
			if err != nil {
				t.Fatal(err)
			}
			var s status.Status
			err = json.NewDecoder(resp.Body).Decode(&s)
			resp.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			if found(&s.Tasks[0]) {
				return &s.Tasks[0]
			}
			select {
			case <-ticker.C:
			case <-t.Context().Done():
				t.Fatalf("never %s: %+v", what, s.Tasks[0])
			}
		}
	}
	c, err := client.New(client.Options{Prover: account.Prover, Recipe: b})
	if err != nil {
		t.Fatal(err)
	}
	send := func(n int) {
		t.Helper()
		values := make([]client.Value, n)
		for i := range values {
			values[i] = client.Vector([]uint64{1, 0, 2})
		}
		if err := c.Report(t.Context(), values...); err != nil {
			t.Fatal(err)
		}
	}

	dialect := dap.Dialect{Version: speaks}
	twisted := func(b []byte) []byte {
		list, err := dap.Collect(dialect.VerifyResps(b, nil))
		if err != nil || len(list) < 2 {
			t.Errorf("the helper answers for %d reports, %v", len(list), err)
			return b
		}
		list[0], list[1] = list[1], list[0]
		b, _ = dialect.AppendVerifyResps(nil, list)
		return b
	}
	lie.Store(&twisted)
	send(6)
	s := until("parked", func(s *status.Task) bool { return len(s.Stuck) > 0 })
	if x := s.Stuck[0]; !x.Parked || x.Reports != 6 || s.Counts.Waiting != 6 || len(s.Counts.Rejected) > 0 {
		t.Errorf("%+v, %+v", x, s.Counts)
	}
	if why := status.Why(s)[0]; !strings.Contains(why.Do, "starling task resume leader.toml --task "+s.ID) {
		t.Errorf("why: %+v", why)
	}
	lie.Store(nil)
	stopLeader()
	if _, n, err := leader.Resume(t.Context(), false); n != 6 || err != nil {
		t.Errorf("a decision over %d reports, %v", n, err)
	}
	stopLeader = servicetest.Serve(t, leader.Parts(log, deploy.Listeners{})...)
	until("verified", func(s *status.Task) bool {
		return s.Counts.Aggregated == 6 && s.Counts.Waiting == 0 && len(s.Stuck) == 0
	})

	newer := func(b []byte) []byte {
		list, err := dap.Collect(dialect.VerifyResps(b, nil))
		if err != nil || len(list) == 0 {
			t.Errorf("the helper answers for %d reports, %v", len(list), err)
			return b
		}
		list[0] = dap.VerifyResp{ID: list[0].ID, Type: dap.Reject, Error: dap.ReportDropped}
		b, _ = dialect.AppendVerifyResps(nil, list)
		b[17] = 77 // behind the first id and its type
		return b
	}
	lie.Store(&newer)
	silent.Store(true)
	send(4)
	s = until("verified but for one", func(s *status.Task) bool { return s.Counts.Waiting == 0 && s.Counts.Acknowledged == 10 })
	if s.Counts.Aggregated != 9 || s.Counts.Rejected["report error 77"] != 1 || len(s.Stuck) > 0 {
		t.Errorf("%+v, %+v", s.Counts, s.Stuck)
	}
	if !s.PeerSilent || s.PeerUnreadable != "" {
		t.Errorf("a helper that shows no progress: silent %v, %q", s.PeerSilent, s.PeerUnreadable)
	}

	// One job after the other is refused as a whole: the task is held, devices are told to
	// come again, and every report that was acknowledged counts in the end.
	lie.Store(nil)
	silent.Store(false)
	refusing.Store(true)
	for i := range 5 {
		send(2)
		until("refused", func(s *status.Task) bool { return len(s.Stuck) == i+1 })
	}
	s = until("held", func(s *status.Task) bool { return len(s.Stops) > 0 })
	if s.Counts.Waiting != 10 || s.Counts.Rejected["report_dropped"] != 0 {
		t.Errorf("%+v", s.Counts)
	}
	if why := status.Why(s)[0]; !strings.Contains(why.Blocks, "5 jobs in a row") || !strings.Contains(why.Do, "starling task resume leader.toml --task "+s.ID) {
		t.Errorf("why: %+v", why)
	}
	resp, err := http.Post(a.LeaderURL()+"tasks/"+s.ID+"/reports", dap.ContentType(dap.MediaUploadReq), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("an upload to a held task: status %d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	refusing.Store(false)
	stopLeader()
	if held, n, err := leader.Resume(t.Context(), false); held != 1 || n != 10 || err != nil {
		t.Errorf("a decision over %d tasks and %d reports, %v", held, n, err)
	}
	stopLeader = servicetest.Serve(t, leader.Parts(log, deploy.Listeners{})...)
	send(2)
	until("verified", func(s *status.Task) bool {
		return s.Counts.Aggregated == 21 && s.Counts.Waiting == 0 && len(s.Stuck) == 0
	})
	stopLeader()
}
