package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service/servicetest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// A hosting is a leader and a helper with tenants, each in a directory of its own below
// dir, with one task each.
type hosting struct {
	dir       string
	addresses *Addresses
	devices   map[string]*client.Client // by tenant; the host's own has no name
	tasks     map[string]dap.TaskID
}

// host writes a host with tenants, and lets change look through the text of each
// configuration, by tenant and role.
func host(t *testing.T, names []string, change func(tenant string, role dap.Role, text string) string) *hosting {
	t.Helper()
	a, err := Loopback()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	h := &hosting{dir: t.TempDir(), addresses: a, devices: map[string]*client.Client{}, tasks: map[string]dap.TaskID{}}
	for _, name := range append([]string{""}, names...) {
		at, below, dir := a, "", h.dir
		if name != "" {
			own, err := Loopback()
			if err != nil {
				t.Fatal(err)
			}
			at = &Addresses{Leader: a.Leader, LeaderLocal: own.LeaderLocal, Helper: a.Helper, HelperLocal: own.HelperLocal}
			below, dir = name+"/", filepath.Join(h.dir, name)
			own.Close()
		}
		r, err := account.New(account.Options{Name: "count", Query: recipe.Count{}, Leader: a.LeaderURL() + below, Helper: a.HelperURL() + below,
			MinBatch: 100, Epsilon: recipe.Decimal{Coefficient: 1}})
		if err != nil {
			t.Fatal(err)
		}
		if name == "" {
			dir = filepath.Join(h.dir, "host")
		}
		if err := Create(dir, r, at); err != nil {
			t.Fatal(err)
		}
		for _, role := range []dap.Role{dap.RoleLeader, dap.RoleHelper} {
			path := filepath.Join(dir, role.String()+".toml")
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text, url := string(b), map[dap.Role]string{dap.RoleLeader: a.LeaderURL(), dap.RoleHelper: a.HelperURL()}[role]
			if name != "" {
				text = regexp.MustCompile(`\[public\]\naddress = ".*"\n`).ReplaceAllString(text, "")
				text = strings.Replace(text, "\ndata = ", fmt.Sprintf("\ntenant = %q\nurl = %q\ndata = ", name, url+below), 1)
			} else {
				for _, n := range names {
					text += fmt.Sprintf("\n[[tenants]]\nname = %q\nfile = \"../%s/%s.toml\"\n", n, n, role)
				}
			}
			if change != nil {
				text = change(name, role, text)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		task, err := r.Task()
		if err != nil {
			t.Fatal(err)
		}
		h.tasks[name] = task.TaskID()
		raw, err := r.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if h.devices[name], err = client.New(client.Options{Prover: account.Prover, Recipe: raw, MaxEpsilon: 2}); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// config is a configuration of the host, or of a tenant.
func (h *hosting) config(t *testing.T, tenant string, role dap.Role) *Aggregator {
	t.Helper()
	if tenant == "" {
		tenant = "host"
	}
	return load(t, filepath.Join(h.dir, tenant), role)
}

// lines collects the lines of a log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// upload has n devices of a tenant send a report each, in one request, and returns the
// answer.
func (h *hosting) upload(t *testing.T, tenant string, n int) *http.Response {
	t.Helper()
	var reports []dap.Report
	for range n {
		r, err := h.devices[tenant].Prepare(client.Bool(true), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		reports = append(reports, r)
	}
	body, err := dap.AppendUploadRequest(nil, reports)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(h.devices[tenant].UploadURL().String(), dap.ContentType(dap.MediaUploadReq), bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp
}

// TestTenants: a leader and a helper each serve two tenants and themselves in one process,
// whose reports meet in no store; each has its own local listener, token and metrics, its
// lines in the log bear its name, and one at its quota keeps nobody else from anything. A
// stopped one is looked at by its own file.
func TestTenants(t *testing.T) {
	h := host(t, []string{"acme", "zeta"}, func(tenant string, role dap.Role, text string) string {
		if tenant == "acme" && role == dap.RoleLeader {
			text += "\n[quota]\nreports_per_second = 1\ntasks = 1\nbytes_stored = 100000000\nrequests = 50\n"
		}
		return text
	})
	h.addresses.Close()
	log := &lines{}
	var stops []func()
	for _, role := range []dap.Role{dap.RoleHelper, dap.RoleLeader} {
		c := h.config(t, "", role)
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
		stops = append(stops, servicetest.Serve(t, c.Parts(slog.New(slog.NewTextHandler(log, nil)), Listeners{})...))
	}
	for name, d := range h.devices {
		if err := d.Refresh(t.Context()); err != nil {
			t.Fatalf("%q: %v", name, err)
		}
	}
	want := map[string]uint64{"": 3, "acme": 40, "zeta": 7}
	for name, n := range want {
		if resp := h.upload(t, name, int(n)); resp.StatusCode != http.StatusOK {
			t.Fatalf("%q: status %d", name, resp.StatusCode)
		}
	}
	if resp := h.upload(t, "acme", 1); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("acme, beyond its quota: status %d", resp.StatusCode)
	}
	for _, name := range []string{"", "zeta"} {
		if resp := h.upload(t, name, 1); resp.StatusCode != http.StatusOK {
			t.Errorf("%q, while acme is beyond its quota: status %d", name, resp.StatusCode)
		}
		want[name]++
	}
	for _, role := range []dap.Role{dap.RoleLeader, dap.RoleHelper} {
		for name, n := range want {
			c := h.config(t, name, role)
			var s status.Status
			for deadline := time.Now().Add(time.Minute); ; {
				getJSON(t, c, "/statusz", &s)
				if len(s.Tasks) == 1 && s.Tasks[0].Counts.Aggregated == n {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%v %q: %+v, want %d aggregated", role, name, s.Tasks, n)
				}
			}
			if s.Tasks[0].ID != h.tasks[name].Base64() {
				t.Errorf("%v %q: it has task %s, want its own", role, name, s.Tasks[0].ID)
			}
			if name == "acme" && role == dap.RoleLeader {
				if len(s.Quotas) != 4 {
					t.Errorf("acme's status has the quotas %+v", s.Quotas)
				}
			} else if len(s.Quotas) != 0 {
				t.Errorf("%v %q has the quotas %+v", role, name, s.Quotas)
			}
		}
	}
	host := h.config(t, "", dap.RoleLeader)
	text := metricsOf(t, host)
	for _, line := range []string{`starling_tenant_tasks{tenant="acme"} 1`, `starling_tenant_requests{tenant="zeta"} 0`} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("the host's metrics have no %s", line)
		}
	}
	for _, role := range []dap.Role{dap.RoleLeader, dap.RoleHelper} { // whose turns the tenants waited for
		text := metricsOf(t, h.config(t, "", role))
		for _, name := range []string{"acme", "zeta"} {
			if at := `starling_tenant_verify_seconds{tenant="` + name + `"} `; !strings.Contains(text, at) || strings.Contains(text, at+"0\n") {
				t.Errorf("%v: nothing was verified in turns for %s", role, name)
			}
		}
	}
	text = metricsOf(t, h.config(t, "acme", dap.RoleLeader))
	for _, line := range []string{
		`starling_quota_max{quota="reports_per_second"} 1`, `starling_quota_used{quota="tasks"} 1`, `starling_shed_total{why="reports_per_second"} 1`,
		`starling_http_requests_total{class="2xx",route="POST /tasks/{task}/reports"} 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("acme's metrics have no %s", line)
		}
	}
	tokens := map[string]bool{}
	for name := range want {
		token, err := h.config(t, name, dap.RoleLeader).OperatorToken()
		if err != nil || tokens[token] {
			t.Errorf("%q has no operator's token of its own: %v", name, err)
		}
		tokens[token] = true
	}
	for i := range stops {
		stops[len(stops)-1-i]()
	}
	for _, line := range strings.Split(log.String(), "\n") {
		for name, id := range h.tasks {
			if tagged := strings.Contains(line, "tenant="+name); strings.Contains(line, id.Base64()) && name != "" && !tagged {
				t.Fatalf("a line of %s does not bear its name: %s", name, line)
			}
		}
	}
	for name, n := range want {
		s, err := h.config(t, name, dap.RoleLeader).StoppedStatus(t.Context())
		if err != nil || s.Tasks[0].Counts.Aggregated != n {
			t.Errorf("%q, stopped: %+v, %v", name, s, err)
		}
	}
}

// TestTenantFails: a tenant that cannot be opened is nobody else's trouble: it is answered
// 503, the host and the others are served, and so is it once it can be, in the same process.
func TestTenantFails(t *testing.T) {
	h := host(t, []string{"acme", "zeta"}, nil)
	h.addresses.Close()
	acme := h.config(t, "acme", dap.RoleLeader)
	other, err := openFiles(acme.Data, acme.Record)
	if err != nil {
		t.Fatal(err)
	}
	log := &lines{}
	for _, role := range []dap.Role{dap.RoleHelper, dap.RoleLeader} {
		servicetest.Serve(t, h.config(t, "", role).Parts(slog.New(slog.NewTextHandler(log, nil)), Listeners{})...)
	}
	url := h.addresses.LeaderURL() + "acme/hpke_config"
	ask := func() int {
		t.Helper()
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	others := func() {
		t.Helper()
		for _, name := range []string{"", "zeta"} {
			if err := h.devices[name].Refresh(t.Context()); err != nil {
				t.Fatalf("%q: %v", name, err)
			}
			if resp := h.upload(t, name, 1); resp.StatusCode != http.StatusOK {
				t.Errorf("%q: status %d", name, resp.StatusCode)
			}
		}
	}
	if got := ask(); got != http.StatusServiceUnavailable {
		t.Errorf("acme, whose directory another process has: status %d", got)
	}
	others()
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ask() != http.StatusOK; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("acme is not served; the log: %s", log)
		}
	}
	if err := h.devices["acme"].Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if resp := h.upload(t, "acme", 1); resp.StatusCode != http.StatusOK {
		t.Errorf("acme, served at last: status %d", resp.StatusCode)
	}
	if said := log.String(); !strings.Contains(said, "the tenant is not served") || !strings.Contains(said, "in use by another process") {
		t.Errorf("the log does not say why: %s", said)
	}
}

// TestTenantAgain: a tenant that fails lives again after a rest, which is twice as long where
// it fails at once and short where it has lived; nobody waits for it, and it ends in order.
func TestTenantAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fault := errors.New("the disk is gone")
		ctx, cancel := context.WithCancel(t.Context())
		log := &lines{}
		begin, ready := time.Now(), 0
		var lives []time.Duration
		err := again(ctx, slog.New(slog.NewTextHandler(log, nil)), func() { ready++ }, func(ctx context.Context, works func()) error {
			lives = append(lives, time.Since(begin))
			switch len(lives) {
			case 1, 2:
				return fault
			case 3:
				if ready != 1 {
					t.Errorf("the others wait for a tenant that fails: ready %d times", ready)
				}
				works()
				time.Sleep(time.Hour)
				return fault
			}
			cancel()
			<-ctx.Done()
			return nil
		})
		want := []time.Duration{0, time.Second, 3 * time.Second, 3*time.Second + time.Hour + time.Second}
		if err != nil || ready != 1 || !slices.Equal(lives, want) {
			t.Errorf("lives at %v, want %v; ready %d times; %v", lives, want, ready, err)
		}
		if n := strings.Count(log.String(), "the disk is gone"); n != 3 {
			t.Errorf("the log says %d times why", n)
		}
	})
}

// TestTenantsRefused: what is wrong with tenants and quotas is said in words, before
// anything is started.
func TestTenantsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(tenant string, text string) string
		want   string
	}{
		"a name":        {on("", `name = "acme"`, `name = "Acme Inc"`), `"Acme Inc" is not 1 to 32`},
		"twice":         {on("", `name = "zeta"`, `name = "acme"`), "stands twice"},
		"another's":     {on("", `../zeta/leader.toml`, `../acme/leader.toml`), `is of tenant "acme", and "zeta" is wanted`},
		"a helper's":    {on("", `../zeta/leader.toml`, `../zeta/helper.toml`), "helper's configuration"},
		"no file":       {on("", `../zeta/leader.toml`, `../zeta/nobody.toml`), "nobody.toml"},
		"a listener":    {on("acme", "\n[local]", "\n[public]\naddress = \"127.0.0.1:1\"\n[local]"), "reached at its host's listeners"},
		"no url":        {on("acme", "\nurl = ", "\n# url = "), "its path picks it"},
		"one directory": {on("acme", `data = "leader"`, `data = "../zeta/leader"`), "it is the directory of tenants[0]"},
		"host's data":   {on("acme", `data = "leader"`, `data = "../host/leader"`), "it is the host's directory"},
		"negative":      {on("acme", "", "\n[quota]\nrequests = -1\n"), "quota.requests: negative"},
		"few tasks":     {on("acme", "", "\n[[tasks]]\nrecipe = \"x\"\n[quota]\ntasks = 1\n"), "quota.tasks: 1, and there are 2 [[tasks]]"},
		"few bytes":     {on("acme", "", "\n[quota]\nbytes_stored = 1000\n"), "less than one upload"},
		"unknown":       {on("acme", "", "\n[quota]\nreports = 1\n"), "quota.reports: unknown key"},
	} {
		t.Run(name, func(t *testing.T) {
			h := host(t, []string{"zeta", "acme"}, func(tenant string, role dap.Role, text string) string {
				if role == dap.RoleLeader {
					return c.change(tenant, text)
				}
				return text
			})
			said := CheckFile(filepath.Join(h.dir, "host", LeaderFile), time.Now())
			if all := strings.Join(said.Faults, "\n"); !strings.Contains(all, c.want) {
				t.Errorf("starling check says %q, want %q", all, c.want)
			}
		})
	}
	t.Run("paths", func(t *testing.T) {
		h := host(t, []string{"zeta", "acme"}, nil)
		for i, c := range []struct{ at, want string }{{"tasks/", "is the host's own"}, {"zeta/acme/", "meets"}, {"", "has a path"}} {
			path := filepath.Join(h.dir, "acme", LeaderFile)
			edit(t, path, fmt.Sprintf("url = %q", h.addresses.LeaderURL()+[]string{"acme/", "tasks/", "zeta/acme/"}[i]), fmt.Sprintf("url = %q", h.addresses.LeaderURL()+c.at))
			said := CheckFile(filepath.Join(h.dir, "host", LeaderFile), time.Now())
			if all := strings.Join(said.Faults, "\n"); !strings.Contains(all, c.want) {
				t.Errorf("starling check says %q, want %q", all, c.want)
			}
		}
	})
	t.Run("a helper's quotas", func(t *testing.T) {
		h := host(t, []string{"zeta"}, func(tenant string, role dap.Role, text string) string {
			return text + map[bool]string{true: "\n[quota]\nbytes_stored = 100000000\nreports_per_second = 5\n"}[role == dap.RoleHelper]
		})
		said := strings.Join(CheckFile(filepath.Join(h.dir, "zeta", HelperFile), time.Now()).Faults, "\n")
		for _, want := range []string{"quota.bytes_stored: only a leader", "quota.reports_per_second: only a leader"} {
			if !strings.Contains(said, want) {
				t.Errorf("starling check says %q, want %q", said, want)
			}
		}
	})
	t.Run("alone", func(t *testing.T) {
		h := host(t, []string{"zeta"}, nil)
		var refused *TenantError
		if err := h.config(t, "zeta", dap.RoleLeader).Serves(); !errors.As(err, &refused) || refused.Tenant != "zeta" {
			t.Errorf("a tenant is served alone: %v", err)
		}
		if err := h.config(t, "", dap.RoleLeader).Serves(); err != nil {
			t.Error(err)
		}
		if said := CheckFile(filepath.Join(h.dir, "zeta", LeaderFile), time.Now()); len(said.Faults) > 0 {
			t.Errorf("a tenant's file by itself: %v", said.Faults)
		}
	})
}

// on changes the text of one tenant's configuration; what replaces nothing is added.
func on(tenant, old, new string) func(string, string) string {
	return func(of, text string) string {
		switch {
		case of != tenant:
			return text
		case old == "":
			return text + new
		}
		return strings.Replace(text, old, new, 1)
	}
}

// TestTenantsAtThePeerListener: the tenants of a host are at its peer listener too.
func TestTenantsAtThePeerListener(t *testing.T) {
	l, err := ListenLoopback()
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	h := host(t, []string{"acme"}, func(tenant string, role dap.Role, text string) string {
		if tenant == "" && role == dap.RoleHelper {
			text += fmt.Sprintf("\n[peer]\naddress = %q\n", at)
		}
		return text
	})
	l.Close()
	h.addresses.Close()
	servicetest.Serve(t, h.config(t, "", dap.RoleHelper).Parts(slog.New(slog.DiscardHandler), Listeners{})...)
	for path, want := range map[string]int{"/hpke_config": 200, "/acme/hpke_config": 200, "/zeta/hpke_config": 404} {
		resp, err := http.Get("http://" + at + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: status %d, want %d", path, resp.StatusCode, want)
		}
	}
}

// metricsOf are those at an aggregator's local listener.
func metricsOf(t *testing.T, c *Aggregator) string {
	t.Helper()
	return string(get(t, "http://"+string(c.Local.Address)+"/metrics"))
}

// getJSON asks a local listener.
func getJSON(t *testing.T, c *Aggregator, path string, into any) {
	t.Helper()
	if err := json.Unmarshal(get(t, "http://"+string(c.Local.Address)+path), into); err != nil {
		t.Fatal(err)
	}
}
