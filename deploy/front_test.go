package deploy

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service/servicetest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// A fronted deployment has a relay before it; all its ports are open.
type fronted struct {
	*Addresses
	*Front
	dir     string
	recipe  *recipe.Recipe
	made    time.Time
	relay   *Relay
	gateway *Gateway
}

// sampled is a recipe whose devices decide by coins.
var sampled = account.Options{Name: "Test", Query: recipe.Multihot{Length: 4, MaxWeight: 1}, MinBatch: 100, TimePrecision: 60,
	Epsilon: recipe.Decimal{Coefficient: 1}, Delta: recipe.Decimal{Coefficient: 1, Scale: 6},
	Participation: recipe.Bernoulli{Rate: recipe.Rational{Num: 1, Den: 4}}, Rate: &recipe.Rate{Devices: 4000, Units: 1}}

// counted is a recipe whose guarantee is soon computed.
var counted = account.Options{Name: "Test", Query: recipe.Count{}, MinBatch: 100, Epsilon: recipe.Decimal{Coefficient: 1}}

// createFront writes a deployment of a recipe into a new directory, with a relay and a
// gateway, and reads the files of these two.
func createFront(t *testing.T, o account.Options) *fronted {
	t.Helper()
	x := &fronted{dir: filepath.Join(t.TempDir(), "deployment"), made: time.Now()}
	var err error
	if x.Addresses, err = Loopback(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Addresses.Close)
	if x.Front, err = LoopbackFront(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Front.Close)
	o.Leader, o.Helper, o.Relay = x.LeaderURL(), x.HelperURL(), &recipe.Relay{URL: x.RelayURL(), Gateway: x.GatewayURL()}
	x.recipe, err = account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := Create(x.dir, x.recipe, x.Addresses); err != nil {
		t.Fatal(err)
	}
	if err := CreateFront(x.dir, x.recipe, x.Front, x.made, 20*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if x.relay, err = LoadRelay(filepath.Join(x.dir, RelayFile)); err != nil {
		t.Fatal(err)
	}
	if x.gateway, err = LoadGateway(filepath.Join(x.dir, GatewayFile)); err != nil {
		t.Fatal(err)
	}
	return x
}

// TestCreateFront: the files of relay and gateway are read by relay and gateway, the
// manifest says of the aggregators' keys what they say themselves, and the aggregators
// know how many reports are too many.
func TestCreateFront(t *testing.T) {
	x := createFront(t, sampled)
	a, ahead, behind := x.Addresses, x.relay, x.gateway
	if err := ahead.Check(); err != nil {
		t.Error(err)
	}
	if err := behind.Check(); err != nil {
		t.Error(err)
	}
	if len(behind.Parts(slog.New(slog.DiscardHandler), Listeners{})) == 0 {
		t.Error("a gateway of no parts")
	}

	leader := load(t, x.dir, dap.RoleLeader)
	m, err := leader.read()
	if err != nil {
		t.Fatal(err)
	}
	g, err := account.Guarantee(x.recipe)
	if err != nil {
		t.Fatal(err)
	}
	half, _ := g.Fallback(recipe.HalfAreDishonest)
	_, most, _ := x.recipe.Expected(1)
	if e := m.tasks[0].Expected; float64(e.Reports) < most || float64(e.Reports) > most+1 || e.Units != 1 || e.HalfHonestEpsilon != half.Loss.Epsilon {
		t.Errorf("expected %+v; want %.1f reports a unit, and epsilon %v for half of them", e, most, half.Loss.Epsilon)
	}

	b, err := os.ReadFile(filepath.Join(x.dir, ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := ohttp.ReadManifest(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := manifest.ValidAt(x.made); err != nil {
		t.Error(err)
	}
	// A device takes the keys from the manifest while nothing runs, and later finds that
	// the helper gives out the same.
	via, err := ohttp.NewTransport(ohttp.TransportOptions{Source: ohttp.Pin(manifest)})
	if err != nil {
		t.Fatal(err)
	}
	recipeBytes, err := x.recipe.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{Prover: account.Prover, Recipe: recipeBytes, HTTP: via})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	helper := load(t, x.dir, dap.RoleHelper)
	servicetest.Serve(t, helper.Parts(slog.New(slog.DiscardHandler), Listeners{Public: a.Helper, Local: a.HelperLocal})...)
	resp, err := http.Get(a.HelperURL() + "hpke_config")
	if err != nil {
		t.Fatal(err)
	}
	list, err := readBody(resp)
	if err != nil {
		t.Fatal(err)
	}
	if p := manifest.Pinned[1]; !strings.HasPrefix(p.URL, a.HelperURL()) || string(p.Body) != string(list) {
		t.Errorf("the manifest pins %q for %s", p.Body, p.URL)
	}
}

func readBody(r *http.Response) ([]byte, error) {
	defer r.Body.Close()
	return io.ReadAll(r.Body)
}

// TestOneMaker: what the lab writes for a party is what init writes, line for line, but
// for keys that it has in files, for what only a lab has, and for where it listens.
func TestOneMaker(t *testing.T) {
	x, home := createFront(t, counted), t.TempDir()
	lines := func(path string) (all []string) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			line = strings.TrimSpace(line)
			if key, value, ok := strings.Cut(line, " = "); ok && (key == "address" || key == "hpke_key_max_age") {
				line = key + fmt.Sprint(len(value) > 0)
			}
			all = append(all, line)
		}
		return all
	}
	agreed := []string{"# What is shared with others follows from these: starling init --join puts an invitation there.", "[agreement]", `invitations = "invitations"`}
	for role, only := range map[Role]struct{ inits, labs []string }{
		LeaderRole: {nil, []string{`peer_token = "secrets/peer.token"`, `collector_token = "secrets/collector.token"`, `collector_hpke = "collector.hpke"`,
			`verify_keys = [{ id = 1, file = "secrets/verify.key" }]`, "[limits] # leader and helper on one machine read one clock", `clock_skew = "1s"`}},
		HelperRole: {nil, []string{`peer_token = "secrets/peer.token"`, `collector_hpke = "collector.hpke"`, `verify_keys = [{ id = 1, file = "secrets/verify.key" }]`,
			"[limits] # leader and helper on one machine read one clock", `clock_skew = "1s"`}},
		CollectorRole: {nil, []string{`token = "secrets/collector.token"`}},
		RelayRole: {nil, []string{`gateway_token = "secrets/relay.token"`, `gateway = "` + x.GatewayURL() + `"`, "[limits]", "requests_per_minute = -1",
			"# Of one part of the network. Here all devices have one address; in earnest leave the line out, which is a limit of 600."}},
		GatewayRole: {[]string{`epochs = "epochs" # starling manifest new --key epochs/1.key --out epochs/1.manifest`},
			[]string{`relay_token = "secrets/relay.token"`, `keys = [{ file = "secrets/gateway.hpke" }]`, `targets = [{ url = "` + x.LeaderURL() + `" }]`, `window = "20ms"`,
				"# Uploads that come between two ticks are kept, answered at the next tick and then passed on together. A lab is in a",
				"# hurry; in earnest take a second or more."}},
	} {
		o := InitOptions{Dir: filepath.Join(home, string(role)), Role: role, Owner: "Ada", URL: "https://" + string(role) + ".example/", Proxied: true}
		if role == CollectorRole {
			o.URL = ""
		}
		made, lab := lines(mustInit(t, o).Config), lines(filepath.Join(x.dir, string(role)+".toml"))
		inits := append(slices.Clone(only.inits), agreed...)
		inits = append(inits, `key = "secrets/`+string(role)+`.key"`, "tls_terminated_upstream = true # a proxy in front speaks TLS",
			`# forwarded_header = "X-Forwarded-For" # in which the proxy writes the sender's address`)
		for _, d := range []struct {
			who       string
			has, than []string
			may       []string
		}{{"init", made, lab, inits}, {"the lab", lab, made, only.labs}} {
			for _, line := range d.has {
				known := line == "" || strings.HasPrefix(line, "# The ") // which names the owner
				if !known && !slices.Contains(d.than, line) && !slices.Contains(d.may, line) {
					t.Errorf("%s: %s alone writes %q", role, d.who, line)
				}
			}
		}
	}
}
