package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/anonymity/admission"
	"github.com/starling-agg/starling/anonymity/gateway"
	"github.com/starling-agg/starling/anonymity/issuer"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/visit"
	"github.com/starling-agg/starling/client/credentials"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/signed"
)

// A countedWorld is a deployment whose recipe counts devices, with the files of its two
// issuers and its attester, and the manifest of the next epoch.
type countedWorld struct {
	*logWorld
	recipe   *recipe.Recipe
	attester Listeners
	servers  *Addresses
	front    *Front
	codes    []string
	next     *ohttp.Manifest
}

func newCountedWorld(t *testing.T) *countedWorld {
	t.Helper()
	w := &countedWorld{logWorld: &logWorld{t: t, dir: filepath.Join(t.TempDir(), "x")}}
	var err error
	if w.servers, err = Loopback(); err != nil {
		t.Fatal(err)
	}
	if w.front, err = LoopbackFront(); err != nil {
		t.Fatal(err)
	}
	f := w.front
	t.Cleanup(func() { w.servers.Close(); f.Close() })
	if w.attester, err = LoopbackParty(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.attester.Close)
	if w.owners, err = NewOwners(); err != nil {
		t.Fatal(err)
	}
	o := account.Options{Name: "Test", Query: recipe.Count{}, Leader: w.servers.LeaderURL(), Helper: w.servers.HelperURL(), MinBatch: 100,
		Epsilon: recipe.Decimal{Coefficient: 1}, Relay: &recipe.Relay{URL: f.RelayURL(), Gateway: f.GatewayURL()},
		Tokens: &recipe.Tokens{Attester: w.attester.URL(), Key: w.owners.Attester.Public(), Attestation: recipe.Codes, MinCohort: 1, Admission: true}}
	if o.ServerKeys, err = w.owners.ServerKeys(true); err != nil {
		t.Fatal(err)
	}
	if w.recipe, err = account.New(o); err != nil {
		t.Fatal(err)
	}
	if err := CreateFor(w.dir, w.recipe, w.servers, w.owners); err != nil {
		t.Fatal(err)
	}
	if w.codes, err = CreateAttester(w.dir, w.attester, 3); err != nil {
		t.Fatal(err)
	}
	w.sign()
	return w
}

// sign makes the issuers' keys of the next epoch, and its manifest, which all three sign.
func (w *countedWorld) sign() {
	w.t.Helper()
	of, err := aggregator.DeploymentOf(w.recipe)
	if err != nil {
		w.t.Fatal(err)
	}
	epoch := ohttp.EpochAt(time.Now(), of.Epoch) + 1
	begin := time.Unix(int64(epoch)*int64(of.Epoch/time.Second), 0).UTC()
	issuers := &ohttp.Issuers{Attester: w.recipe.Tokens.Key, Cap: 2}
	for _, x := range []struct {
		role signed.Role
		into *[ohttp.IssuerKeySize]byte
	}{{signed.Leader, &issuers.Leader}, {signed.Helper, &issuers.Helper}} {
		public, err := MakeIssuerKey(w.in(x.role.String()+".issuer"), x.role, of.ID, epoch)
		if err != nil {
			w.t.Fatal(err)
		}
		copy(x.into[:], public.Append(nil))
	}
	k, err := sealed.Generate(1, sealed.SuiteX25519)
	if err != nil {
		w.t.Fatal(err)
	}
	key, err := k.Marshal()
	if err != nil {
		w.t.Fatal(err)
	}
	named, err := (&RoundKeys{Recipe: w.recipe, Epoch: epoch, Rounds: 3}).Make(w.in(epochsDir))
	if err != nil {
		w.t.Fatal(err)
	}
	issuers.Admission = []ohttp.AdmissionKeys{named}
	tries, every := pace(w.recipe)
	make := func(x *ohttp.Issuers) (*ohttp.Manifest, error) {
		return cosigned(w.dir, Manifest{Deployment: of, NotBefore: begin, NotAfter: begin.Add(of.Epoch), Gateway: []ohttp.KeyConfig{ohttp.NewKeyConfig(k)},
			Tries: tries, Every: every, Hold: ohttp.DefaultHold, Issuers: x})
	}
	exchanged := *issuers
	exchanged.Leader, exchanged.Helper = exchanged.Helper, exchanged.Leader
	for name, x := range map[string]*ohttp.Issuers{"no issuers": nil, "exchanged keys": &exchanged} {
		if _, err := make(x); err == nil {
			w.t.Errorf("%s: leader and helper have signed", name)
		}
	}
	if w.next, err = make(issuers); err != nil {
		w.t.Fatal(err)
	}
	b, err := w.next.Append(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.write("manifests/next.manifest", string(b))
	w.write("epochs/next.manifest", string(b))
	w.write("epochs/next.key", string(key))
	w.write("relay.token", "a token of the relay's\n")
	w.write(GatewayFile, fmt.Sprintf("role = \"gateway\"\ndata = \"gateway\"\nrelay_token = \"relay.token\"\nepochs = \"epochs\"\nadmission = \"epochs\"\ntargets = [{ url = %q }]\n"+
		"[public]\naddress = %q\n[local]\naddress = %q\n[issuer]\nrecipe = %q\n", w.servers.LeaderURL(), w.front.Gateway.Addr(), w.front.GatewayLocal.Addr(), RecipeFile))
	w.write("manifests/other.manifest", "no manifest")
}

// start serves leader, helper, gateway and attester from their files.
func (w *countedWorld) start() {
	w.t.Helper()
	w.serve(w.aggregator(HelperFile, dap.RoleHelper, Listeners{Public: w.servers.Helper, Local: w.servers.HelperLocal}))
	w.serve(w.aggregator(LeaderFile, dap.RoleLeader, Listeners{Public: w.servers.Leader, Local: w.servers.LeaderLocal}))
	w.others()
}

// aggregator is one from its file.
func (w *countedWorld) aggregator(file string, role dap.Role, at Listeners) []service.Part {
	w.t.Helper()
	c, err := LoadAggregator(w.in(file), role)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := c.Check(); err != nil {
		w.t.Fatal(err)
	}
	return c.Parts(service.NewLogger(new(bytes.Buffer), 99), at)
}

// others serves gateway and attester.
func (w *countedWorld) others() {
	w.t.Helper()
	quiet := service.NewLogger(new(bytes.Buffer), 99)
	g, err := LoadGateway(w.in(GatewayFile))
	if err != nil {
		w.t.Fatal(err)
	}
	if err := g.Check(); err != nil {
		w.t.Fatal(err)
	}
	w.serve(g.Parts(quiet, Listeners{Public: w.front.Gateway, Local: w.front.GatewayLocal}))
	c, err := LoadAttester(w.in("attester.toml"))
	if err != nil {
		w.t.Fatal(err)
	}
	if err := c.Check(); err != nil {
		w.t.Fatal(err)
	}
	w.serve(c.Parts(quiet, w.attester))
}

func (w *countedWorld) wallet(seed uint64) *credentials.Wallet {
	w.t.Helper()
	x, err := credentials.Open(credentials.Options{Attester: w.attester.URL(), Deployment: w.next.Deployment, FS: disktest.NewMem(seed)})
	if err != nil {
		w.t.Fatal(err)
	}
	return x
}

// TestIssuersAndAttester: leader and helper give credentials beside their other work, and
// an attester vouches for devices, all from files. As many devices as the manifest says
// have some, each once; how many there are nobody is told before the epoch begins; and
// neither aggregator signs a manifest that names other issuers.
func TestIssuersAndAttester(t *testing.T) {
	w := newCountedWorld(t)
	w.start()
	var refused *credentials.RefusedError
	var first *credentials.Wallet
	for i, code := range w.codes {
		x := w.wallet(uint64(i))
		if i == 0 {
			first = x
		}
		if err := x.Enrol(t.Context(), []byte(code)); err != nil {
			t.Fatal(err)
		}
		switch err := x.Visit(t.Context(), w.next); {
		case i < 2 && err != nil:
			t.Fatal(err)
		case i == 2 && (!errors.As(err, &refused) || refused.Word != "full"):
			t.Errorf("a third of two devices: %v", err)
		}
	}
	if err := w.wallet(9).Enrol(t.Context(), []byte("NOCODE")); !errors.As(err, &refused) || refused.Word != "unproved" {
		t.Errorf("without a code: %v", err)
	}
	for _, url := range []string{w.recipe.Path.(recipe.TwoServer).Leader, w.recipe.Path.(recipe.TwoServer).Helper} {
		resp, err := http.Post(url+IssuerPath, visit.OrderMedia, bytes.NewReader(make([]byte, visit.OrderSize)))
		if err != nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %v, %v", url, resp, err)
		}
	}
	// The same visits have had the gateway's tokens, which its own keys let in.
	b, err := os.ReadFile(filepath.Join(w.in(epochsDir), fmt.Sprintf("%d-%x%s", w.next.Epoch, w.next.Issuers.Admission[0].Recipe[:8], admissionSuffix)))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := admission.ReadKeys(b)
	if err != nil {
		t.Fatal(err)
	}
	for n := range keys.Keys {
		round := keys.First + uint64(n)
		token, err := first.Admission(keys.Recipe)(round)
		if err == nil {
			err = keys.Of(round).Admit(keys.Round(round), token)
		}
		if err != nil {
			t.Errorf("round %d: %v", round, err)
		}
	}
	resp, err := http.Post(w.front.GatewayURL()+IssuerPath, visit.TokenOrderMedia, bytes.NewReader(make([]byte, visit.MinTokenOrder)))
	if err != nil || resp.StatusCode != http.StatusBadRequest {
		t.Errorf("no order: %v, %v", resp, err)
	}
	behind := &GatewayStatus{Status: new(gateway.Status)}
	if err := json.Unmarshal(get(t, "http://"+w.front.GatewayLocal.Addr().String()+"/statusz"), behind); err != nil || behind.Orders["issued"] != 2 ||
		behind.Orders["malformed"] != 1 || len(behind.Orders) != 2 || behind.MinRound != 1 {
		t.Errorf("%+v, %v", behind, err)
	}
	var s AttesterStatus
	if err := json.Unmarshal(get(t, "http://"+w.attester.Local.Addr().String()+"/statusz"), &s); err != nil || s.Devices != 3 || s.Outcomes["visited"] != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	lines := strings.Split(string(get(t, "http://"+w.attester.Local.Addr().String()+"/metrics")), "\n")
	if got := value(lines, `starling_attester_requests_total{outcome="full"}`); got != "1" {
		t.Errorf("%q requests are counted as full", got)
	}
}

// TestIssuerConfiguration: what is missing is said by its key, and a recipe that counts
// devices has no aggregator without an issuer.
func TestIssuerConfiguration(t *testing.T) {
	w := newCountedWorld(t)
	mixed := func(name, from, to string) *Checked {
		t.Helper()
		b, err := os.ReadFile(w.in(name))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(string(b), from, to, 1)
		if text == string(b) {
			t.Fatalf("%s has no %q", name, from)
		}
		w.write("mixed.toml", text)
		return CheckFile(w.in("mixed.toml"), time.Now())
	}
	wantFaults(t, mixed(LeaderFile, "[issuer] # beside it: gives devices their credentials, whom the attester vouches for\nkeys = \"leader.issuer\"\nmanifests = \"manifests\"\n", ""), "issuer.keys: required, for a recipe counts devices")
	wantFaults(t, mixed(LeaderFile, "keys = \"leader.issuer\"\n", ""), "issuer.keys, manifests: both are required")
	wantFaults(t, mixed(GatewayFile, "admission = \"epochs\"\n", ""), "issuer.recipe: there are no keys to give tokens of out by")
	wantFaults(t, mixed(GatewayFile, "[issuer]\nrecipe = \"recipe.starling\"\n", "[issuer]\nmanifests = \"manifests\"\n"), "issuer.recipe: required")
	wantFaults(t, mixed("attester.toml", "codes = \"codes\"\n", ""), "codes, oidc, mtls: want one of them")
	wantFaults(t, mixed("attester.toml", "[public]", "[mtls]\nname = \"colour\"\n[public]"), "codes, oidc, mtls: want one of them", "mtls.ca: required", "mtls.name: want", "mtls: goes with public.tls_certificate")
	wantFaults(t, mixed("attester.toml", "[public]", "[oidc]\nissuer = \"http://provider.example\"\n[public]"), "codes, oidc, mtls: want one of them", "oidc.audience: required", "oidc.issuer: ")
	wantFaults(t, mixed("attester.toml", "codes = \"codes\"", "codes = \"codes\"\nnames = \"secrets/attester.online\""), "names: goes with oidc and mtls")
	wantFaults(t, mixed("attester.toml", "codes = \"codes\"", "codes = \"secrets/attester.online\""), "not a file of enrolment codes")
	wantFaults(t, mixed("attester.toml", "key = \"secrets/attester.online\"\ndelegation = \"secrets/attester.online.delegation\"",
		"key = \"secrets/leader.online\"\ndelegation = \"secrets/leader.online.delegation\""), "and the recipe's attester is")
	if c := CheckFile(w.in("attester.toml"), time.Now()); c.Kind != "attester's configuration" || len(c.Faults) > 0 {
		t.Errorf("%+v", c)
	}
}

// TestIssuedIsOfItsDeployment: an aggregator is told of its issuer's own epochs alone; the
// number of another, or of one beyond all manifests, would pass for that of its round.
func TestIssuedIsOfItsDeployment(t *testing.T) {
	x, err := issuer.New(issuer.Options{Role: signed.Leader, Deployment: [32]byte{9}, Epoch: time.Hour, Keys: disktest.NewMem(1), Register: disktest.NewMem(2),
		Terms: func(epoch uint32) (issuer.Terms, bool) {
			return issuer.Terms{Begin: time.Unix(int64(epoch), 0)}, epoch < 100
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	for _, c := range []struct {
		deployment byte
		epoch      uint64
		known      bool
	}{{9, 99, true}, {9, 100, false}, {8, 99, false}, {9, 1<<32 + 99, false}} {
		if n, err := (issued{&openedIssuer{Issuer: x}}).Issued(t.Context(), [32]byte{c.deployment}, c.epoch); (err == nil) != c.known || n != 0 {
			t.Errorf("%+v: %d, %v", c, n, err)
		}
	}
}

// TestIssuerKeepsKeysForLateReports: the key of an epoch outlives it by the longest grace
// of all recipes that are named at the start; a task that would need it for longer is not
// taken while it runs, or its late reports would meet a destroyed key.
func TestIssuerKeepsKeysForLateReports(t *testing.T) {
	w := newCountedWorld(t)
	w.servers.Close() // the store is opened without serving
	late := *w.recipe
	late.Rounds = new(*w.recipe.Rounds)
	late.Rounds.Grace = recipe.MaxGrace
	b, err := RecipeFileOf(&late)
	if err != nil {
		t.Fatal(err)
	}
	w.write("late.starling", string(b))
	load := func() *Aggregator {
		t.Helper()
		a, err := LoadAggregator(w.in(LeaderFile), dap.RoleLeader)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := load()
	task := a.Tasks[0]
	task.Recipe = service.Path(w.in("late.starling"))
	in, err := a.NewTask(&task, "alice")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.AddTask(t.Context(), in); !errors.As(err, new(*status.BadRequest)) || !strings.Contains(err.Error(), "issuer.recipe") {
		t.Errorf("a week of grace: %v", err)
	}
	named := load()
	named.Issuer.Recipe = task.Recipe
	beside := load()
	beside.Tasks = append(beside.Tasks, task)
	for name, a := range map[string]*Aggregator{"issuer.recipe": named, "tasks": beside} {
		m, err := a.read()
		if err != nil {
			t.Fatal(err)
		}
		if want := late.Grace() + lateReports; m.keep != want {
			t.Errorf("%s: keys are kept for %v, want %v", name, m.keep, want)
		}
	}
	if _, err := named.AddTask(t.Context(), in); err != nil {
		t.Errorf("named as issuer.recipe: %v", err)
	}
}
