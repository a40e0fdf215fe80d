package deploy

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service/servicetest"
)

// mostSeries is how many series of its own a party may have; they do not depend on tasks.
const mostSeries = 1600

var (
	metricName = regexp.MustCompile(`\bstarling_[a-z0-9_]+\b`)
	suffix     = regexp.MustCompile(`_(bucket|count|sum)$`)
)

// scraped starts the four parties that have metrics and returns the lines of each.
func scraped(t *testing.T) map[string][]string {
	t.Helper()
	x := createFront(t, counted)
	a, f := x.Addresses, x.Front
	log := slog.New(slog.DiscardHandler)
	front, err := x.relay.Parts(log, Listeners{Public: f.Relay, Local: f.RelayLocal})
	if err != nil {
		t.Fatal(err)
	}
	parts := slices.Concat(load(t, x.dir, dap.RoleHelper).Parts(log, Listeners{Public: a.Helper, Local: a.HelperLocal}),
		load(t, x.dir, dap.RoleLeader).Parts(log, Listeners{Public: a.Leader, Local: a.LeaderLocal}),
		x.gateway.Parts(log, Listeners{Public: f.Gateway, Local: f.GatewayLocal}), front)
	stop := servicetest.Serve(t, parts...)
	all := map[string][]string{}
	for party, local := range map[string]string{"leader": a.LeaderLocal.Addr().String(), "helper": a.HelperLocal.Addr().String(),
		"gateway": f.GatewayLocal.Addr().String(), "relay": f.RelayLocal.Addr().String()} {
		all[party] = strings.Split(string(get(t, "http://"+local+"/metrics")), "\n")
	}
	stop()
	return all
}

// TestAlertsAndDashboard: every series that the rules, their tests and the dashboard name
// is on a running party, with those labels; every metric of a party is in
// docs/operating.md; every rule is tested where it fires and where it does not.
func TestAlertsAndDashboard(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join("..", "docs", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	exported := map[string]string{} // a line of each metric
	var lines []string
	for party, all := range scraped(t) {
		own := 0
		for _, line := range all {
			if name := metricName.FindString(line); strings.HasPrefix(line, "starling_") && name != "" {
				own++
				exported[suffix.ReplaceAllString(name, "")] = line
				lines = append(lines, line)
			}
		}
		if own == 0 || own > mostSeries {
			t.Errorf("%s has %d series of its own, want 1 to %d", party, own, mostSeries)
		}
		t.Logf("%s: %d series", party, own)
	}
	for _, want := range []struct{ label, in string }{{"ability", "starling_ready"}, {"listener", "starling_connections"},
		{"why", "starling_connections_shed_total"}, {"why", "starling_shed_total"}, {"state", "starling_stuck_reports"},
		{"why", "starling_held_tasks"},
		{"kind", "starling_lost_files"}, {"kind", "starling_damaged_files"}, {"outcome", "starling_gateway_uploads_total"}, {"class", "starling_http_requests_total"}} {
		if !strings.Contains(exported[want.in], want.label+"=") {
			t.Errorf("%s has no label %s: %q", want.in, want.label, exported[want.in])
		}
	}
	rules, tests, dashboard := read("alerts/rules.yml"), read("alerts/rules_test.yml"), read("alerts/dashboard.json")
	var parsed struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(dashboard), &parsed); err != nil || len(parsed.Panels) < 10 {
		t.Fatalf("%d panels, %v", len(parsed.Panels), err)
	}
	var exprs []string
	for _, p := range parsed.Panels {
		for _, target := range p.Targets {
			exprs = append(exprs, target.Expr)
		}
	}
	named := 0
	for where, text := range map[string]string{"rules.yml": rules, "rules_test.yml": tests, "dashboard.json": strings.Join(exprs, "\n")} {
		for _, name := range metricName.FindAllString(text, -1) {
			named++
			if exported[suffix.ReplaceAllString(name, "")] == "" {
				t.Errorf("%s names %s, which no party has", where, name)
			}
		}
	}
	if named < 50 {
		t.Fatalf("only %d names found", named)
	}
	// Values of labels, too, are those of a party.
	value := regexp.MustCompile(`\b(ability|why|state|kind|outcome|class|listener)=~?\\?"([a-z0-9_|]+)\\?"`)
	for _, m := range value.FindAllStringSubmatch(rules+strings.Join(exprs, "\n"), -1) {
		for v := range strings.SplitSeq(m[2], "|") {
			if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, m[1]+`="`+v+`"`) }) {
				t.Errorf("no party has a series with %s=%q", m[1], v)
			}
		}
	}
	operating := read("operating.md")
	for name := range exported {
		if !strings.Contains(operating, "`"+name+"`") {
			t.Errorf("docs/operating.md does not say what %s is", name)
		}
	}
	alerts := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 15 {
		t.Fatalf("only %d rules", len(alerts))
	}
	for _, m := range alerts {
		for _, kind := range []string{" fires\n", " quiet\n"} {
			if !strings.Contains(tests, "name: "+m[1]+kind) {
				t.Errorf("%s has no test%s", m[1], kind)
			}
		}
	}
}
