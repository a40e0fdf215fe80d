package deploy

import (
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
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
