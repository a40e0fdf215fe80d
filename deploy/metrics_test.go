package deploy

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/internal/service/servicetest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// TestMetrics runs a deployment, lets it aggregate, refuse and reject reports, and reads
// what /metrics shows of that.
func TestMetrics(t *testing.T) {
	addresses, err := Loopback()
	if err != nil {
		t.Fatal(err)
	}
	defer addresses.Close()
	r, err := account.New(account.Options{
		Name: "metrics", Query: recipe.Count{}, Leader: addresses.LeaderURL(), Helper: addresses.HelperURL(), MinBatch: 100,
		Epsilon: recipe.Decimal{Coefficient: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := Create(dir, r, addresses); err != nil {
		t.Fatal(err)
	}
	var parts []service.Part
	local := map[string]string{}
	for role, open := range map[dap.Role]Listeners{
		dap.RoleLeader: {Public: addresses.Leader, Local: addresses.LeaderLocal},
		dap.RoleHelper: {Public: addresses.Helper, Local: addresses.HelperLocal},
	} {
		a, err := LoadAggregator(filepath.Join(dir, role.String()+".toml"), role)
		if err != nil {
			t.Fatal(err)
		}
		local[role.String()] = "http://" + string(a.Local.Address)
		parts = append(parts, a.Parts(slog.New(slog.DiscardHandler), open)...)
	}
	defer servicetest.Serve(t, parts...)() // before the listeners are closed

	send(t, r)
	waitFor(t, local["leader"], func(s *status.Status) bool { return s.Tasks[0].Done == 14 && s.Tasks[0].Counts.Waiting == 0 })
	// A job is counted after its transaction, so the ledger may be ahead of it.
	const done = `starling_jobs_total{kind="aggregation",outcome="done"}`
	leader, helper := metricsWith(t, local["leader"], done), metricsWith(t, local["helper"], done)
	for _, want := range []string{
		`starling_reports_total{reason="none",stage="acknowledged"} 14`,
		`starling_reports_total{reason="none",stage="aggregated"} 12`,
		`starling_reports_total{reason="report_replayed",stage="rejected"} 2`,
		`starling_reports_total{reason="report_too_early",stage="refused"} 1`,
		`starling_jobs_total{kind="aggregation",outcome="failed"} 0`,
	} {
		if !slices.Contains(leader, want) {
			t.Errorf("the leader's metrics lack %s", want)
		}
	}
	if want := `starling_reports_total{reason="none",stage="aggregated"} 12`; !slices.Contains(helper, want) {
		t.Errorf("the helper's metrics lack %s", want)
	}
	for role, lines := range map[string][]string{"leader": leader, "helper": helper} {
		if want := `starling_store_transactions_total{result="committed",tx="open"}`; value(lines, want) < "1" {
			t.Errorf("%s: %s is %q", role, want, value(lines, want))
		}
	}
	if n := value(leader, `starling_store_transactions_total{result="committed",tx="finish-job"}`); n < "1" {
		t.Errorf("commits of jobs: %q", n)
	}
	// What both wrote is counted where it went.
	for _, c := range []struct {
		lines       []string
		file        string
		least, most float64
	}{
		{leader, "inbox", 14 * 200, 14 * 600}, {leader, "run", 12 * 16, 1 << 14}, {leader, "database_log", 4096, 1 << 22}, {leader, "record", 1, 1 << 16},
		{helper, "inbox", 0, 0}, {helper, "slices", 0, 0}, {leader, "slices", 0, 0}, {helper, "run", 12 * 16, 1 << 14}, {helper, "database_log", 4096, 1 << 22}, {helper, "rest", 1, 1 << 16},
	} {
		n, err := strconv.ParseFloat(value(c.lines, `starling_written_bytes_total{file="`+c.file+`"}`), 64)
		if err != nil || n < c.least || n > c.most {
			t.Errorf("%s: %v bytes written, %v; want %v to %v", c.file, n, err, c.least, c.most)
		}
	}
	// Labels are from closed sets: nothing was counted under a name that they lack, and
	// none names the task.
	for _, line := range slices.Concat(leader, helper) {
		if regexp.MustCompile(`="other"[,}].* [^0]`).MatchString(line) && !strings.HasPrefix(line, "starling_http") &&
			strings.HasPrefix(line, "starling_") {
			t.Errorf("outside of the closed set: %s", line)
		}
		if task, err := r.Task(); err != nil || strings.Contains(line, task.TaskID().Base64()) {
			t.Errorf("a task in the metrics: %s", line)
		}
	}
}

// send uploads twelve good reports, two of them twice, and one from the future.
func send(t *testing.T, r *recipe.Recipe) {
	t.Helper()
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{Prover: account.Prover, Recipe: b, MaxEpsilon: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	var reports []dap.Report
	for i := range 13 {
		at := now
		if i == 12 {
			at = now.Add(10 * time.Hour)
		}
		report, err := c.Prepare(client.Bool(true), at)
		if err != nil {
			t.Fatal(err)
		}
		reports = append(reports, report)
	}
	reports = append(reports, reports[0], reports[1])
	if refused, err := c.Upload(t.Context(), reports); err != nil || len(refused) != 1 || refused[0].Error != dap.ReportTooEarly {
		t.Fatalf("refused %v, %v", refused, err)
	}
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: status %d, %v: %s", url, resp.StatusCode, err, b)
	}
	return b
}

func waitFor(t *testing.T, base string, enough func(*status.Status) bool) {
	t.Helper()
	var last []byte
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		last = get(t, base+"/statusz")
		var s status.Status
		if err := json.Unmarshal(last, &s); err != nil {
			t.Fatal(err)
		}
		if enough(&s) {
			return
		}
	}
	t.Fatalf("never came about: %s", last)
}

// metricsWith are the lines of /metrics, after a status, which brings the counts up to
// date, once a series is at least 1.
func metricsWith(t *testing.T, base, series string) []string {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		get(t, base+"/statusz")
		if lines := strings.Split(string(get(t, base+"/metrics")), "\n"); value(lines, series) >= "1" {
			return lines
		}
	}
	t.Fatalf("%s: %s never became 1", base, series)
	return nil
}

// value is what stands after a series.
func value(lines []string, series string) string {
	for _, line := range lines {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			return rest
		}
	}
	return ""
}
