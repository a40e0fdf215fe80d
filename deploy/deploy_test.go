package deploy

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/internal/service/servicetest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
)

// create writes a deployment of a small recipe into a new directory.
func create(t testing.TB, mode dap.BatchMode) (dir string, a *Addresses) {
	t.Helper()
	a, err := Loopback()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	first := dap.Time(time.Now().Unix() / 60)
	r, err := account.New(account.Options{Name: "Test", Query: recipe.Count{}, Leader: a.LeaderURL(), Helper: a.HelperURL(),
		MinBatch: 100, BatchMode: mode, TimePrecision: 60, Window: recipe.Between{Start: first, End: first + 60},
		Epsilon: recipe.Decimal{Coefficient: 1}, Delta: recipe.Decimal{Coefficient: 1, Scale: 6}})
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "deployment")
	if err := Create(dir, r, a); err != nil {
		t.Fatal(err)
	}
	return dir, a
}

func load(t testing.TB, dir string, role dap.Role) *Aggregator {
	t.Helper()
	c, err := LoadAggregator(filepath.Join(dir, role.String()+".toml"), role)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCreate(t *testing.T) {
	dir, a := create(t, dap.TimeInterval)
	for _, role := range []dap.Role{dap.RoleLeader, dap.RoleHelper} {
		if err := load(t, dir, role).Check(); err != nil {
			t.Errorf("%v: %v", role, err)
		}
	}
	c, err := LoadCollector(filepath.Join(dir, CollectorFile))
	if err != nil {
		t.Fatal(err)
	}
	if _, token, key, err := c.Read(); err != nil || len(token) < 16 || key == nil {
		t.Errorf("collector: token of %d bytes, %v", len(token), err)
	}
	err = filepath.WalkDir(filepath.Join(dir, "secrets"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// No secret stands outside secrets/.
	for _, name := range []string{"peer.token", "collector.token", "verify.key"} {
		secret, err := os.ReadFile(filepath.Join(dir, "secrets", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, public := range []string{LeaderFile, HelperFile, CollectorFile, RecipeFile, "README.txt", "collector.hpke"} {
			b, err := os.ReadFile(filepath.Join(dir, public))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(b), strings.TrimSpace(string(secret))) {
				t.Errorf("%s holds %s", public, name)
			}
		}
	}
	checked, err := OpenRecipe(filepath.Join(dir, RecipeFile))
	if err != nil {
		t.Fatal(err)
	}
	r := checked.Recipe()
	if err := Create(dir, r, a); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("a second deployment in the same directory: %v", err)
	}
	// Two deployments share nothing.
	other, _ := create(t, dap.TimeInterval)
	for _, name := range []string{"peer.token", "collector.token", "verify.key", "collector.hpke"} {
		x, _ := os.ReadFile(filepath.Join(dir, "secrets", name))
		y, _ := os.ReadFile(filepath.Join(other, "secrets", name))
		if len(x) == 0 || string(x) == string(y) {
			t.Errorf("%s is the same in two deployments", name)
		}
	}
}

// edit replaces text in a file of a deployment.
func edit(t testing.TB, path, old, new string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), old) {
		t.Fatalf("%s does not hold %q", path, old)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(b), old, new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLoadRefuses(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"unknown key", "[public]", "[public]\nport = 1", "public.port"},
		{"no data", `data = "leader"`, "", "data"},
		{"keys too short-lived", `hpke_key_period = "24h"`, `hpke_key_period = "1m"`, "hpke_key_period"},
		{"keys of a fraction of a second", `hpke_key_max_age = "24h"`, `hpke_key_max_age = "1.5s"`, "hpke_key_period"},
		{"keys without a unit", `hpke_key_period = "24h"`, `hpke_key_period = "24"`, "hpke_key_period"},
		{"a leader's delay", `hpke_key_period = "24h"`, "hpke_key_delay = \"72h\"", "hpke_key_delay"},
		{"no period", `hpke_key_period = "24h"`, `hpke_keys = ["secrets/leader.hpke"]`, "hpke_key_period"},
		{"no recipe", `recipe = "recipe.starling"`, "", "recipe"},
		{"no collector token", `collector_token = "secrets/collector.token"`, "", "collector_token"},
		{"no verify key", `verify_keys = [{ id = 1, file = "secrets/verify.key" }]`, "", "verify_keys"},
		{"deferred leader", `data = "leader"`, "data = \"leader\"\ndeferred = true", "deferred"},
		{"plain HTTP", `[public]` + "\n" + `address = "127.0.0.1`, `[public]` + "\n" + `address = "0.0.0.0`, "public: address"},
		{"open local listener", `for the operator alone` + "\n" + `address = "127.0.0.1`, `x` + "\n" + `address = "0.0.0.0`, "local.address"},
		{"limit", `data = "leader"`, "data = \"leader\"\nlimits = { workers = -1 }", "limits"},
		{"units alone", `# expected = { reports = 5000, units = 24 }`, "expected = { units = 24 }", "expected.units"},
		{"log level", `data = "leader"`, "data = \"leader\"\nlog = { level = \"chatty\" }", "chatty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, _ := create(t, dap.TimeInterval)
			path := filepath.Join(dir, LeaderFile)
			edit(t, path, c.old, c.new)
			_, err := LoadAggregator(path, dap.RoleLeader)
			var config *service.ConfigError
			if !errors.As(err, &config) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want a ConfigError about %s", err, c.want)
			}
		})
	}
}

// ownKey gives the leader a key of the operator's.
func ownKey(t *testing.T, dir string) (path string) {
	t.Helper()
	path = filepath.Join(dir, "secrets/own.hpke")
	k, err := sealed.Generate(77, sealed.SuiteX25519)
	if err != nil {
		t.Fatal(err)
	}
	b, err := k.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	edit(t, filepath.Join(dir, LeaderFile), `data = "leader"`, "data = \"leader\"\nhpke_keys = [\"secrets/own.hpke\"]")
	return path
}

func TestCheckRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, dir string)
		want  string
	}{
		{"secret for all to read", func(t *testing.T, dir string) {
			if err := os.Chmod(ownKey(t, dir), 0o644); err != nil {
				t.Fatal(err)
			}
		}, "chmod 600"},
		{"key file cut", func(t *testing.T, dir string) {
			if err := os.Truncate(ownKey(t, dir), 20); err != nil {
				t.Fatal(err)
			}
		}, "own.hpke"},
		{"key twice", func(t *testing.T, dir string) {
			ownKey(t, dir)
			edit(t, filepath.Join(dir, LeaderFile), `"secrets/own.hpke"`, `"secrets/own.hpke", "secrets/own.hpke"`)
		}, "hpke_keys"},
		{"verify key of another length", func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "secrets/verify.key"), []byte("abcd\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "64 hexadecimal digits"},
		{"short token", func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "secrets/peer.token"), []byte("swallow\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "token"},
		{"missing token", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "secrets/peer.token")); err != nil {
				t.Fatal(err)
			}
		}, "peer_token"},
		{"recipe cut", func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, RecipeFile), 30); err != nil {
				t.Fatal(err)
			}
		}, "recipe"},
		{"collector's key is none", func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "collector.hpke"), []byte{1, 2}, 0o644); err != nil {
				t.Fatal(err)
			}
		}, "collector_hpke"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, _ := create(t, dap.TimeInterval)
			c.spoil(t, dir)
			err := load(t, dir, dap.RoleLeader).Check()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want something about %s", err, c.want)
			}
		})
	}
}

// TestExpected: an aggregator holds batches by its own configuration, and knows what is
// left of the recipe's guarantee.
func TestExpected(t *testing.T) {
	for _, role := range []dap.Role{dap.RoleLeader, dap.RoleHelper} {
		dir, _ := create(t, dap.TimeInterval)
		m, err := load(t, dir, role).read()
		if err != nil {
			t.Fatal(err)
		}
		if got := m.tasks[0].Expected; got != (aggregator.Expectation{}) {
			t.Errorf("%v expects %+v without being told", role, got)
		}
		edit(t, filepath.Join(dir, role.String()+".toml"), "# expected = {", "expected = {")
		if m, err = load(t, dir, role).read(); err != nil {
			t.Fatal(err)
		}
		g, err := account.Guarantee(m.recipes[0])
		if err != nil || !g.Finite() {
			t.Fatalf("the recipe gives %v, %v", g, err)
		}
		want := aggregator.Expectation{
			Reports: 5000, Units: 24, HalfHonestEpsilon: g.PerRound.Epsilon, HalfHonestDelta: g.PerRound.Delta,
		}
		if got := m.tasks[0].Expected; got != want {
			t.Errorf("%v expects %+v, want %+v", role, got, want)
		}
	}
}

// TestRetention: an aggregator keeps a task for 30 days after the recipe's window, or for
// as long as its operator says.
func TestRetention(t *testing.T) {
	for _, role := range []dap.Role{dap.RoleLeader, dap.RoleHelper} {
		for _, c := range []struct {
			config string
			kept   time.Duration
		}{{"", 720 * time.Hour}, {`retention = "48h"`, 48 * time.Hour}, {`retention = "-1s"`, -1}} {
			dir, a := create(t, dap.TimeInterval)
			a.Close()
			if c.config != "" {
				edit(t, filepath.Join(dir, role.String()+".toml"), `# retention = "720h"`, c.config)
			}
			config := load(t, dir, role)
			s, err := config.open(t.Context(), slog.New(slog.DiscardHandler), aggregator.Observer{}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			st, err := s.Status(t.Context())
			if err := errors.Join(err, s.Close()); err != nil {
				t.Fatal(err)
			}
			recipes, err := config.Recipes()
			if err != nil {
				t.Fatal(err)
			}
			// the clock skew of a lab
			end := time.Unix(60*int64(recipes[0].Recipe().Window.(recipe.Between).End), 0).Add(time.Second)
			if got := st.Tasks[0].RetiresAt; c.kept < 0 && !got.IsZero() || c.kept >= 0 && !got.Equal(end.Add(c.kept)) {
				t.Errorf("%v, %s: kept until %v, the window ends at %v", role, c.config, got, end)
			}
		}
	}
}

// TestCalendarByRecipe: leader and helper each hold releases to the rounds of the recipe,
// whatever it is.
func TestCalendarByRecipe(t *testing.T) {
	_, a := create(t, dap.TimeInterval)
	coins := account.Options{Query: recipe.Count{}, MinBatch: 500, Epsilon: recipe.Decimal{Coefficient: 1}, Delta: recipe.Decimal{Coefficient: 1, Scale: 6},
		Participation: recipe.Bernoulli{Rate: recipe.Rational{Num: 1, Den: 10}}, Rate: &recipe.Rate{Devices: 60000, Units: 24},
		Relay: &recipe.Relay{URL: "https://relay.example/", Gateway: a.LeaderURL() + "gateway"}}
	slots := coins
	slots.Participation, slots.Rate = recipe.DonationTime{Rate: recipe.Rational{Num: 1, Den: 10}, Slots: 4, Length: 6}, &recipe.Rate{Devices: 200000, Units: 24}
	twice := account.Options{Query: recipe.Count{}, MinBatch: 500, Epsilon: recipe.Decimal{Coefficient: 1}, Rounds: 2, RoundUnits: 7, Grace: time.Minute}
	selected := account.Options{Query: recipe.Count{}, MinBatch: 500, BatchMode: dap.LeaderSelected, RoundUnits: 3}
	for name, c := range map[string]struct {
		o    account.Options
		want aggregator.Calendar
	}{
		"coins":           {coins, aggregator.Calendar{Units: 24, Alone: true, Grace: recipe.DefaultGrace}},
		"slots":           {slots, aggregator.Calendar{Units: 6, Alone: true, Grace: recipe.DefaultGrace}},
		"two rounds":      {twice, aggregator.Calendar{Units: 7, Alone: true, Grace: time.Minute}},
		"nothing at all":  {account.Options{Query: recipe.Count{}, MinBatch: 500}, aggregator.Calendar{Units: 1}},
		"leader-selected": {selected, aggregator.Calendar{Units: 3}},
	} {
		c.o.Name, c.o.Leader, c.o.Helper = name, a.LeaderURL(), a.HelperURL()
		r, err := account.New(c.o)
		if err != nil {
			t.Fatal(name, err)
		}
		dir := filepath.Join(t.TempDir(), "calendar")
		if err := Create(dir, r, a); err != nil {
			t.Fatal(err)
		}
		for _, role := range []dap.Role{dap.RoleLeader, dap.RoleHelper} {
			m, err := load(t, dir, role).read()
			if err != nil {
				t.Fatal(err)
			}
			if got := m.tasks[0].Calendar; got == nil || *got != c.want {
				t.Errorf("%s: the %v has %+v, want %+v", name, role, got, c.want)
			}
		}
	}
}

// TestExpectedByRecipe: a recipe that says how many devices decide needs no word from the
// operator, whose word counts more; and the alarm of a sampled recipe says what half the
// dummies leave.
func TestExpectedByRecipe(t *testing.T) {
	_, a := create(t, dap.TimeInterval)
	r, err := account.New(account.Options{Name: "Test", Query: recipe.Multihot{Length: 8, MaxWeight: 1, Chunk: 3}, Leader: a.LeaderURL(), Helper: a.HelperURL(),
		MinBatch: 500, BatchMode: dap.TimeInterval, TimePrecision: 3600, Window: recipe.NoWindow{},
		Epsilon: recipe.Decimal{Coefficient: 1}, Delta: recipe.Decimal{Coefficient: 1, Scale: 6},
		Participation: recipe.Bernoulli{Rate: recipe.Rational{Num: 1, Den: 10}}, Rate: &recipe.Rate{Devices: 60000, Units: 24},
		Relay: &recipe.Relay{URL: "https://relay.example/", Gateway: a.LeaderURL() + "gateway"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "sampled")
	if err := Create(dir, r, a); err != nil {
		t.Fatal(err)
	}
	g, err := account.Guarantee(r)
	if err != nil {
		t.Fatal(err)
	}
	half, ok := g.Fallback(recipe.HalfAreDishonest)
	if !ok || !(half.Loss.Epsilon > g.Epsilon) {
		t.Fatalf("half of the dummies hide as well as all: %+v, %+v", half, g.Loss)
	}
	_, most, _ := r.Expected(24)
	want := aggregator.Expectation{Reports: uint64(math.Ceil(most)), Units: 24,
		HalfHonestEpsilon: half.Loss.Epsilon, HalfHonestDelta: half.Loss.Delta}
	if want.Reports < 6000 || want.Reports > 60000 {
		t.Fatalf("a tenth of 60,000 devices send %d reports and dummies", want.Reports)
	}
	for _, role := range []dap.Role{dap.RoleLeader, dap.RoleHelper} {
		m, err := load(t, dir, role).read()
		if err != nil {
			t.Fatal(err)
		}
		if got := m.tasks[0].Expected; got != want {
			t.Errorf("%v expects %+v, want %+v", role, got, want)
		}
		edit(t, filepath.Join(dir, role.String()+".toml"), "# expected = {", "expected = {")
		if m, err = load(t, dir, role).read(); err != nil {
			t.Fatal(err)
		}
		if got := m.tasks[0].Expected; got.Reports != 5000 || got.HalfHonestEpsilon != want.HalfHonestEpsilon {
			t.Errorf("%v expects %+v against its operator", role, got)
		}
	}
}

// TestParts starts both aggregators, looks at their listeners, stops them, and audits and
// locks their stores.
func TestParts(t *testing.T) {
	dir, a := create(t, dap.TimeInterval)
	leader, helper := load(t, dir, dap.RoleLeader), load(t, dir, dap.RoleHelper)
	log := slog.New(slog.DiscardHandler)
	parts := append(helper.Parts(log, Listeners{Public: a.Helper, Local: a.HelperLocal}), leader.Parts(log, Listeners{Public: a.Leader, Local: a.LeaderLocal})...)
	stop := servicetest.Serve(t, parts...)
	for _, c := range []*Aggregator{leader, helper} {
		for _, path := range []string{"/livez", "/readyz", "/statusz", "/metrics"} {
			resp, err := http.Get("http://" + string(c.Local.Address) + path)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%v %s: status %d", c.Role, path, resp.StatusCode)
			}
		}
		resp, err := http.Get("http://" + string(c.Public.Address) + "/" + dap.HpkeConfigPath)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%v: keys: status %d", c.Role, resp.StatusCode)
		}
		if infos, err := filepath.Glob(filepath.Join(string(c.Data), "keys", "*.hpke")); err != nil || len(infos) != 1 {
			t.Errorf("%v: keys %v, %v", c.Role, infos, err)
		} else if info, err := os.Stat(infos[0]); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v: key %v, %v", c.Role, info.Mode(), err)
		}
		if _, err := c.Audit(t.Context()); !errors.Is(err, disk.ErrLocked) {
			t.Errorf("%v: an audit of a running aggregator: %v", c.Role, err)
		}
	}
	stop()
	for _, c := range []*Aggregator{leader, helper} {
		faults, standing, err := c.Inspect(t.Context())
		if err != nil || len(faults) > 0 {
			t.Errorf("%v: audit: %v, %v", c.Role, faults, err)
		}
		if len(standing.Keys) != 1 || standing.Keys[0].State != status.KeyCurrent || len(standing.Reasons()) > 0 {
			t.Errorf("%v: keys %+v, %v", c.Role, standing.Keys, standing.Reasons())
		}
	}
}

// TestKeySchedule: the recipes choose the KEM, the configuration the times; keys of the
// operator's own alone are not touched.
func TestKeySchedule(t *testing.T) {
	dir, a := create(t, dap.TimeInterval)
	read := func(role dap.Role) *material {
		t.Helper()
		m, err := load(t, dir, role).read()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	day := 24 * time.Hour
	for role, delay := range map[dap.Role]time.Duration{dap.RoleLeader: 0, dap.RoleHelper: 3 * day} {
		s := read(role).epochs
		if s.Period != day || s.MaxAge != day || s.Overlap != time.Hour || s.Delay != delay || len(s.Suites) != 1 || s.Suites[0] != sealed.SuiteX25519 {
			t.Errorf("%v: %+v", role, s)
		}
	}
	// A second recipe, which wants to be safe from later machines.
	r, err := account.New(account.Options{Name: "Test", Query: recipe.Count{}, Leader: a.LeaderURL(), Helper: a.HelperURL(),
		MinBatch: 100, KEM: recipe.XWing, Epsilon: recipe.Decimal{Coefficient: 1}, Delta: recipe.Decimal{Coefficient: 1, Scale: 6}})
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := Create(other, r, a); err != nil {
		t.Fatal(err)
	}
	m, err := load(t, other, dap.RoleHelper).read()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.epochs.Suites) != 1 || m.epochs.Suites[0] != sealed.SuiteXWing {
		t.Errorf("suites %v", m.epochs.Suites)
	}
	edit(t, filepath.Join(dir, LeaderFile), "# Hold batches", "[[tasks]]\nrecipe = \""+filepath.Join(other, RecipeFile)+`"
peer_token = "secrets/peer.token"
collector_token = "secrets/collector.token"
collector_hpke = "collector.hpke"
verify_keys = [{ id = 1, file = "secrets/verify.key" }]
# Hold batches`)
	edit(t, filepath.Join(dir, LeaderFile), `hpke_key_period = "24h"`, `hpke_key_period = "12h"`)
	edit(t, filepath.Join(dir, LeaderFile), `hpke_key_max_age = "24h"`, "hpke_key_max_age = \"48h\"\nhpke_key_overlap = \"2h\"")
	s := read(dap.RoleLeader).epochs
	if len(s.Suites) != 2 || s.Suites[0] != sealed.SuiteX25519 || s.Suites[1] != sealed.SuiteXWing || s.Period != day/2 ||
		s.MaxAge != 2*day || s.Overlap != 2*time.Hour {
		t.Errorf("%+v", s)
	}
	ownKey(t, dir)
	if m := read(dap.RoleLeader); m.epochs == nil || !m.keys.Has(77) {
		t.Error("a schedule beside keys of the operator's own is lost")
	}
	for _, line := range []string{`hpke_key_period = "12h"`, `hpke_key_max_age = "48h"`, `hpke_key_overlap = "2h"`} {
		edit(t, filepath.Join(dir, LeaderFile), line, "")
	}
	if m := read(dap.RoleLeader); m.epochs != nil || !m.keys.Has(77) {
		t.Errorf("keys of the operator's own alone: %+v", m.epochs)
	}
	// What is left out is the default.
	edit(t, filepath.Join(dir, LeaderFile), `hpke_keys = ["secrets/own.hpke"]`, "")
	if s := read(dap.RoleLeader).epochs; s == nil || s.Period != keyset.DefaultPeriod || s.MaxAge != keyset.DefaultMaxAge {
		t.Errorf("%+v", s)
	}
}

// TestOperatingDefaults: docs/operating.md states the defaults as they are.
func TestOperatingDefaults(t *testing.T) {
	page, err := os.ReadFile("../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	for setting, d := range map[string]time.Duration{
		"hpke_key_period": keyset.DefaultPeriod, "hpke_key_max_age": keyset.DefaultMaxAge, "hpke_key_overlap": keyset.DefaultOverlap,
		"hpke_key_delay": keyset.DefaultDelay,
	} {
		if row := fmt.Sprintf("| `%s` | `\"%.0fh\"` |", setting, d.Hours()); !strings.Contains(string(page), row) {
			t.Errorf("docs/operating.md misses %s", row)
		}
	}
	if kept := fmt.Sprintf("`retention` after it, `\"%.0fh\"` if not given", aggregator.DefaultRetention.Hours()); !strings.Contains(string(page), kept) {
		t.Errorf("docs/operating.md misses %s", kept)
	}
}

// A task's framing is the operator's to choose; the draft's own unless something else is
// said.
func TestFraming(t *testing.T) {
	dir, _ := create(t, dap.TimeInterval)
	for file, role := range map[string]dap.Role{LeaderFile: dap.RoleLeader, HelperFile: dap.RoleHelper} {
		path := filepath.Join(dir, file)
		framing := func() (dap.Framing, error) {
			a, err := LoadAggregator(path, role)
			if err != nil {
				return 0, err
			}
			m, err := a.read()
			if err != nil {
				return 0, err
			}
			return m.tasks[0].Framing, nil
		}
		if f, err := framing(); err != nil || f != dap.Standard {
			t.Errorf("%s: %v, %v", file, f, err)
		}
		edit(t, path, "[[tasks]]", "[[tasks]]\nframing = \"janus\"")
		if f, err := framing(); err != nil || f != dap.Janus {
			t.Errorf("%s: %v, %v", file, f, err)
		}
		edit(t, path, `"janus"`, `"Janus"`)
		var bad *service.ConfigError
		if _, err := framing(); !errors.As(err, &bad) || !strings.Contains(bad.Reason, "standard") {
			t.Errorf("%s with another word: %v", file, err)
		}
	}
	path := filepath.Join(dir, CollectorFile)
	edit(t, path, "state =", "framing = \"janus\"\nstate =")
	c, err := LoadCollector(path)
	if err != nil || c.Framing != dap.Janus {
		t.Fatalf("%+v, %v", c, err)
	}
	asked := ""
	s, err := c.Open(collector.Options{Attempts: 1, HTTP: doer(func(r *http.Request) (*http.Response, error) {
		asked = r.Method
		return nil, errors.New("nobody is there")
	})})
	if err != nil {
		t.Fatal(err)
	}
	w := s.Recipe().Window.(recipe.Between)
	begin, _ := s.Recipe().TimePrecision.Begin(w.Start)
	if _, err := s.Collect(t.Context(), begin, begin.Add(time.Minute)); err == nil || asked != "PUT" {
		t.Errorf("%s, %v", asked, err)
	}
	if !s.Pending() {
		t.Error("a job that may be there is forgotten")
	}
}

// doer is an HTTP client.
type doer func(*http.Request) (*http.Response, error)

func (d doer) Do(r *http.Request) (*http.Response, error) { return d(r) }

func TestSession(t *testing.T) {
	dir, _ := create(t, dap.TimeInterval)
	config, err := LoadCollector(filepath.Join(dir, CollectorFile))
	if err != nil {
		t.Fatal(err)
	}
	s, err := config.Open(collector.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := s.Recipe().Window.(recipe.Between)
	begin, _ := s.Recipe().TimePrecision.Begin(w.Start)
	now := begin.Add(150 * time.Second)
	from, to, err := s.Interval(now, 0)
	if err != nil || !from.Equal(begin) || !to.Equal(begin.Add(2*time.Minute)) {
		t.Errorf("first interval from %v to %v, %v", from, to, err)
	}
	// The round that runs ends in half a minute.
	for patience, end := range map[time.Duration]time.Duration{29 * time.Second: 2 * time.Minute, 30 * time.Second: 3 * time.Minute} {
		if _, to, err := s.Interval(now, patience); err != nil || !to.Equal(begin.Add(end)) {
			t.Errorf("first interval to %v, %v", to, err)
		}
	}
	if cut, err := s.Batches(from, to); err != nil || len(cut) != 1 || !cut[0][0].Equal(from) || !cut[0][1].Equal(to) {
		t.Errorf("a recipe whose people are in one round is asked for %v, %v", cut, err)
	}
	// What was collected is not asked for again, and the window's end is the last.
	s.state.Next = to
	if err := s.save(); err != nil {
		t.Fatal(err)
	}
	if s, err = config.Open(collector.Options{}); err != nil {
		t.Fatal(err)
	}
	// Nothing is over: the round that runs is waited for.
	if from, to, err := s.Interval(now, 0); err != nil || !from.Equal(begin.Add(2*time.Minute)) || !to.Equal(begin.Add(3*time.Minute)) {
		t.Errorf("second interval from %v to %v, %v", from, to, err)
	}
	if _, _, err := s.Interval(begin.Add(90*time.Second), 0); !errors.Is(err, ErrNothingNew) {
		t.Errorf("an interval that has been collected: %v", err)
	}
	from, to, err = s.Interval(begin.Add(100*time.Hour), time.Minute)
	if err != nil || !from.Equal(begin.Add(2*time.Minute)) || !to.Equal(begin.Add(time.Hour)) {
		t.Errorf("last interval from %v to %v, %v", from, to, err)
	}
	if s.Pending() {
		t.Error("a question is pending that nobody asked")
	}
	if err := os.WriteFile(string(config.State), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Open(collector.Options{}); err == nil {
		t.Error("a damaged state is accepted")
	}
}

func Example() {
	dir, _ := os.MkdirTemp("", "starling")
	defer os.RemoveAll(dir)
	addresses, err := Loopback()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer addresses.Close()
	r, err := account.New(account.Options{Name: "Do you like birds?", Query: recipe.Count{}, MinBatch: 100,
		Leader: addresses.LeaderURL(), Helper: addresses.HelperURL()})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := Create(filepath.Join(dir, "demo"), r, addresses); err != nil {
		fmt.Println(err)
		return
	}
	leader, err := LoadAggregator(filepath.Join(dir, "demo", LeaderFile), dap.RoleLeader)
	fmt.Println(leader.Role, len(leader.Tasks), err)
	// Output: leader 1 <nil>
}
