package scan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/anonymity/admission"
	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/attester"
	"github.com/starling-agg/starling/anonymity/issuer"
	"github.com/starling-agg/starling/anonymity/mint"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/internal/service/servicetest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
	"github.com/starling-agg/starling/test/internal/recording"
)

// countedFile is the recipe that is asked.
const countedFile = "counted.starling"

// people is how many devices answer, and devices how many there are: one more.
const (
	people  = 5
	devices = people + 1
)

// A world is a deployment whose recipe counts devices, with all of its parties as an operator
// starts them, from files, and with devices.
type world struct {
	t          *testing.T
	dir        string
	owners     *deploy.Owners
	attester   *signed.PrivateKey // root
	servers    *deploy.Addresses
	front      *deploy.Front
	watched    *deploy.Watched
	vouching   deploy.Listeners
	recipe     *recipe.Recipe
	checked    *recipe.Checked
	anchors    *signed.Anchors
	manifest   *ohttp.Manifest // that shows the way
	issuing    *ohttp.Manifest // of the same epoch, that names issuers
	tokens     *admission.Keys
	codes      []string
	round      uint64
	asked      time.Time // when devices answer, in a round that is over
	gates      map[string]*gate
	logs       map[string]*recording.Bytes
	local      map[string]string // addresses of local listeners
	leader     *deploy.Aggregator
	helper     *deploy.Aggregator
	stopped    func() error
	needles    *finder
	devices    []*device
	verifiers  [2]*arc.Verifier
	epochBegin time.Time
}

// A gate holds back what comes to a listener, for as long as it is shut.
type gate struct {
	net.Listener
	mu   sync.Mutex
	open chan struct{}
}

func newGate(l net.Listener) *gate {
	g := &gate{Listener: l, open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

func (g *gate) lift() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
}

func (g *gate) wait() {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	<-open
}

func (g *gate) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return gated{c, g}, nil
}

type gated struct {
	net.Conn
	g *gate
}

func (c gated) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.g.wait()
	}
	return n, err
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "x"), gates: make(map[string]*gate), logs: make(map[string]*recording.Bytes), local: make(map[string]string),
		needles: newFinder()}
	var err error
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w.servers, err = deploy.Loopback()
	ok(err)
	w.front, err = deploy.LoopbackFront()
	ok(err)
	w.watched, err = deploy.LoopbackLog()
	ok(err)
	for _, l := range []*net.Listener{&w.vouching.Public, &w.vouching.Local} {
		*l, err = deploy.ListenLoopback()
		ok(err)
	}
	w.owners, err = deploy.NewOwners()
	ok(err)
	w.attester = signed.Generate()
	now := time.Now().UTC().Truncate(time.Second)
	keys, err := w.owners.ServerKeys(true)
	ok(err)
	// An epoch that neither begins nor ends about now: what follows takes no other.
	for days := uint32(11); ; days-- {
		keys.EpochLength = days * 86400
		in := now.Unix() % int64(keys.EpochLength)
		if near := int64(4 * 3600); in >= near && in < int64(keys.EpochLength)-near {
			break
		}
	}
	o := account.Options{
		Name: "Scan", Query: recipe.Count{}, Leader: w.servers.LeaderURL(), Helper: w.servers.HelperURL(), MinBatch: people, Epsilon: recipe.Decimal{Coefficient: 1},
		Grace: time.Second, Relay: &recipe.Relay{URL: w.front.RelayURL(), Gateway: w.front.GatewayURL()}, ServerKeys: keys,
	}
	// A deployment is made for a recipe that counts nobody, for the first manifest has no
	// issuers yet; then it is given one that does.
	w.recipe, err = account.New(o)
	ok(err)
	ok(deploy.CreateFor(w.dir, w.recipe, w.servers, w.owners))
	ok(deploy.CreateFront(w.dir, w.recipe, w.front, now, 5*time.Millisecond))
	ok(deploy.CreateLog(w.dir, w.watched, time.Hour))
	o.Tokens = &recipe.Tokens{Attester: "http://" + w.vouching.Public.Addr().String() + "/", Key: w.attester.Public(), Attestation: recipe.Codes, MinCohort: devices, Admission: true}
	w.recipe, err = account.New(o)
	ok(err)
	b, err := deploy.RecipeFileOf(w.recipe)
	ok(err)
	w.write(countedFile, string(b))
	b, err = w.recipe.Append(nil)
	ok(err)
	w.checked, err = recipe.Open(b, account.Prover)
	ok(err)
	for _, name := range []string{deploy.LeaderFile, deploy.HelperFile} {
		w.write(name, string(w.read(name))+fmt.Sprintf("\n[issuer]\nkeys = %q\nmanifests = \"manifests\"\nrecipe = %q\n", strings.TrimSuffix(name, ".toml")+".issuer", countedFile))
	}

	// Credentials of an epoch are given before it. Here the visits' manifest begins within its
	// epoch, so that nobody has to wait for the next; that of the epoch's reports has begun,
	// and takes its place when all have visited ([world.begins]).
	w.epochBegin = now.Add(time.Hour)
	w.asked = now.Add(-time.Hour).Truncate(time.Hour)
	w.manifest, err = ohttp.ReadManifest(w.read(deploy.ManifestFile))
	ok(err)
	w.manifest.Recipes = [][32]byte{w.checked.ID()}
	w.manifest.Issuers = &ohttp.Issuers{Attester: w.attester.Public(), Cap: devices}
	for _, x := range []struct {
		role signed.Role
		as   arc.Role
		into *[ohttp.IssuerKeySize]byte
	}{{signed.Leader, arc.Leader, &w.manifest.Issuers.Leader}, {signed.Helper, arc.Helper, &w.manifest.Issuers.Helper}} {
		public, err := deploy.MakeIssuerKey(w.in(x.role.String()+".issuer"), x.role, w.manifest.Deployment, w.manifest.Epoch)
		ok(err)
		copy(x.into[:], public.Append(nil))
		i, close := w.issuer(x.role, now, disktest.NewMem(1))
		w.verifiers[x.as-arc.Leader], _, err = i.Verifier(t.Context(), w.manifest.Deployment, uint64(w.manifest.Epoch))
		ok(errors.Join(err, close()))
	}
	// The gateway's keys for tokens of a few rounds, which the manifests name.
	task, _ := w.checked.Task()
	unit, err := w.recipe.TimePrecision.At(w.asked)
	ok(err)
	w.round = w.recipe.Round(unit)
	w.tokens = &admission.Keys{Deployment: w.manifest.Deployment, Recipe: w.checked.ID(), Task: task, First: w.round, Length: w.recipe.RoundUnits() * uint64(w.recipe.TimePrecision), Grace: 4 * 3600}
	w.tokens.Generate(3)
	b, err = w.tokens.Append(nil)
	ok(err)
	w.write("epochs/now.admission", string(b))
	w.manifest.Issuers.Admission = []ohttp.AdmissionKeys{{Recipe: w.checked.ID(), Keys: w.tokens.Public().Digest()}}
	issuing := *w.manifest
	issuing.Revision, issuing.NotBefore = 1, w.epochBegin
	w.issuing = &issuing
	for role, root := range map[signed.Role]*signed.PrivateKey{signed.Leader: w.owners.Leader, signed.Helper: w.owners.Helper, signed.Gateway: w.owners.Gateway} {
		by := signedtest.Signer(t, root, now.Add(-time.Hour), 30*24*time.Hour)
		ok(errors.Join(w.manifest.Sign(role, by), w.issuing.Sign(role, by)))
	}
	for name, m := range map[string]*ohttp.Manifest{"manifests/issuing.manifest": w.issuing, deploy.ManifestFile: w.manifest} {
		b, err := m.Append(nil)
		ok(err)
		w.write(name, string(b))
	}

	online := signed.Generate()
	d, err := signed.Delegate(w.attester, online.Public(), now.Add(-time.Hour), now.AddDate(0, 0, 60))
	ok(err)
	codes, hashes, err := attester.MakeCodes(devices)
	ok(err)
	w.codes = codes
	w.write("codes", string(hashes))
	w.write("secrets/attester.online", string(online.Marshal()))
	w.write("secrets/attester.online.delegation", string(d.MarshalFile()))
	w.write("attester.toml", fmt.Sprintf("role = \"attester\"\ndata = \"attester\"\nrecipe = %q\nmanifests = \"manifests\"\ncodes = \"codes\"\nkey = \"secrets/attester.online\"\n"+
		"delegation = \"secrets/attester.online.delegation\"\n[public]\naddress = %q\n[local]\naddress = %q\n", countedFile, w.vouching.Public.Addr(), w.vouching.Local.Addr()))
	b, err = os.ReadFile(w.in(deploy.AnchorsFile))
	ok(err)
	_, another, _ := strings.Cut(string(signed.MarshalAnchors(signed.Anchor{Name: "attester", Domain: "127.0.0.1", Key: w.attester.Public(), Owner: "attester.example"})), "\n")
	w.write("device.anchors", string(b)+another)
	w.anchors, err = deploy.ReadAnchors(w.in("device.anchors"))
	ok(err)

	for role, name := range map[dap.Role]string{dap.RoleLeader: deploy.LeaderFile, dap.RoleHelper: deploy.HelperFile} {
		a, err := deploy.LoadAggregator(w.in(name), role)
		ok(err)
		task := a.Tasks[0]
		task.Recipe = service.Path(w.in(countedFile))
		add, err := a.NewTask(&task, "the test")
		ok(err)
		_, err = a.AddTask(t.Context(), add)
		ok(err)
	}

	w.write("epochs/now.key", string(w.read("secrets/gateway.hpke")))
	w.write("epochs/now.manifest", string(w.read(deploy.ManifestFile)))
	return w
}

// issuer opens the issuer of a role by itself, at a time.
func (w *world) issuer(role signed.Role, now time.Time, register disk.FS) (x *issuer.Issuer, close func() error) {
	w.t.Helper()
	keys, err := disk.OS(w.in(role.String() + ".issuer"))
	if err != nil {
		w.t.Fatal(err)
	}
	x, err = issuer.New(issuer.Options{Role: role, Deployment: w.manifest.Deployment, Epoch: w.recipe.ServerKeys.Epoch(), Keys: keys, Register: register,
		Now: func() time.Time { return now }, Terms: func(uint32) (issuer.Terms, bool) { return issuer.Terms{}, false }})
	if err != nil {
		w.t.Fatal(err)
	}
	return x, func() error { return errors.Join(x.Close(), keys.Close()) }
}

func (w *world) in(name string) string { return filepath.Join(w.dir, filepath.FromSlash(name)) }

func (w *world) read(name string) []byte {
	w.t.Helper()
	b, err := os.ReadFile(w.in(name))
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(w.in(name)), 0o700), os.WriteFile(w.in(name), []byte(text), 0o600)); err != nil {
		w.t.Fatal(err)
	}
}

// start serves all from their files.
func (w *world) start() {
	t := w.t
	t.Helper()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	log := func(party string) *slog.Logger {
		if w.logs[party] == nil {
			w.logs[party] = new(recording.Bytes)
		}
		return service.NewLogger(w.logs[party], slog.LevelDebug)
	}
	at := func(party string, public, local net.Listener) deploy.Listeners {
		t.Helper()
		w.gates[party] = newGate(w.anew(public))
		w.local[party] = local.Addr().String()
		return deploy.Listeners{Public: w.gates[party], Local: w.anew(local)}
	}
	var err error
	w.helper, err = deploy.LoadAggregator(w.in(deploy.HelperFile), dap.RoleHelper)
	ok(err)
	w.leader, err = deploy.LoadAggregator(w.in(deploy.LeaderFile), dap.RoleLeader)
	ok(err)
	for _, a := range []*deploy.Aggregator{w.leader, w.helper} {
		a.Retention = service.Duration(time.Nanosecond)
	}
	behind, err := deploy.LoadGateway(w.in(deploy.GatewayFile))
	ok(err)
	behind.Keys, behind.Epochs, behind.Admission = nil, service.Path(w.in("epochs")), service.Path(w.in("epochs"))
	behind.Mint = deploy.Mint{Recipe: service.Path(w.in(countedFile)), Manifests: service.Path(w.in("manifests"))}
	ok(behind.Check())
	ahead, err := deploy.LoadRelay(w.in(deploy.RelayFile))
	ok(err)
	ahead.Limits.RequestsPerMinute = 10_000 // counted by address
	vouching, err := deploy.LoadAttester(w.in("attester.toml"))
	ok(err)
	shows, err := deploy.LoadLog(w.in(deploy.LogFile))
	ok(err)
	front, err := ahead.Parts(log("relay"), at("relay", w.front.Relay, w.front.RelayLocal))
	ok(err)
	parts := slices.Concat(
		w.helper.Parts(log("helper"), at("helper", w.servers.Helper, w.servers.HelperLocal)),
		w.leader.Parts(log("leader"), at("leader", w.servers.Leader, w.servers.LeaderLocal)),
		vouching.Parts(log("attester"), at("attester", w.vouching.Public, w.vouching.Local)),
		behind.Parts(log("gateway"), at("gateway", w.front.Gateway, w.front.GatewayLocal)), front)
	for i, l := range w.watched.Witnesses {
		c, err := deploy.LoadWitness(w.in(deploy.WitnessFile(i + 1)))
		ok(err)
		party := fmt.Sprint("witness-", i+1)
		parts = append(parts, c.Parts(log(party), at(party, l.Public, l.Local))...)
	}
	parts = append(parts, shows.Parts(log("log"), at("log", w.watched.Log.Public, w.watched.Log.Local))...)
	w.stopped, err = servicetest.Start(parts...)
	ok(err)
	t.Cleanup(func() { w.stopped() })
}

// anew is a listener at an address that had one: the first time the one that is open.
func (w *world) anew(l net.Listener) net.Listener {
	w.t.Helper()
	if w.stopped == nil {
		return l
	}
	again, err := net.Listen("tcp", l.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	return again
}

func (w *world) stop() {
	w.t.Helper()
	if err := w.stopped(); err != nil {
		w.t.Fatal(err)
	}
}

// await asks until there is an answer.
func (w *world) await(what string, done func() bool) {
	w.t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	late := time.After(2 * time.Minute)
	for !done() {
		select {
		case <-ticker.C:
		case <-late:
			w.t.Fatalf("%s: not after two minutes", what)
		}
	}
}

// page reads what a party's local listener says.
func (w *world) page(party, path string) []byte {
	w.t.Helper()
	resp, err := http.Get("http://" + w.local[party] + path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// counts are an aggregator's.
func (w *world) counts(party string) status.Counts {
	w.t.Helper()
	var s status.Status
	err := json.Unmarshal(w.page(party, "/statusz"), &s)
	task, _ := w.checked.Task()
	i := slices.IndexFunc(s.Tasks, func(x status.Task) bool { return x.ID == task.String() })
	if err != nil || i < 0 {
		w.t.Fatalf("status %+v, %v", s, err)
	}
	return s.Tasks[i].Counts
}

// A place is where something was found: a file of a party, below the directory of the
// deployment, or what its process says.
type place struct{ party, where, kind string }

// found searches everything for every needle.
func (w *world) found() map[place]string {
	w.t.Helper()
	found := make(map[place]string)
	search := func(party, where string, b []byte) {
		w.needles.find(b, func(p *pattern, at int) {
			if k := (place{party, where, p.kind}); found[k] == "" {
				found[k] = fmt.Sprintf("%s, at byte %d of %d", p.form, at, len(b))
			}
		})
	}
	for party := range w.local { // first, for a leader asks its helper, which takes a while where that is away
		for _, path := range []string{"/metrics", "/statusz", "/readyz", "/livez"} {
			search(party, path, w.page(party, path))
		}
	}
	for party, log := range w.logs {
		search(party, "log", log.Copy())
	}
	err := filepath.WalkDir(w.dir, func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it goes while we look
		}
		if err != nil || e.IsDir() {
			return err
		}
		inside, err := filepath.Rel(w.dir, name)
		if err != nil {
			return err
		}
		party, where, ok := strings.Cut(filepath.ToSlash(inside), "/")
		if !ok {
			party, where = "configuration", party
		}
		if strings.HasPrefix(party, "device-") {
			party = "device"
		}
		b, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		search(party, where, append([]byte(where+"\n"), b...)) // a name may tell, too
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

// collects has the collector ask for the round of the answers.
func (w *world) collects(ctx context.Context) (*collector.Result, error) {
	config, err := deploy.LoadCollector(w.in(deploy.CollectorFile))
	if err != nil {
		return nil, err
	}
	config.Recipe = service.Path(w.in(countedFile))
	session, err := config.Open(collector.Options{Poll: 50 * time.Millisecond, MaxPoll: 200 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	return session.Collect(ctx, w.asked, w.asked.Add(time.Hour))
}

// ends makes a backup of the leader, and closes the task at both aggregators; they are
// stopped.
func (w *world) ends(ctx context.Context) error {
	if _, err := w.leader.Backup(ctx, w.in("backup")); err != nil {
		return err
	}
	task, _ := w.checked.Task()
	for _, a := range []*deploy.Aggregator{w.leader, w.helper} {
		if _, err := a.CloseTask(ctx, &status.Closing{Task: task.String(), By: "the test", Why: "it is over"}); err != nil {
			return err
		}
	}
	return nil
}

// begins has the epoch begin for those who go by its manifest: nobody is given credentials any
// more, and issuers say how many have some.
func (w *world) begins() {
	w.t.Helper()
	b, err := w.manifest.Append(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.write("manifests/issuing.manifest", string(b))
}

// epochEnds plays at issuers, attester and what gives out tokens, which are stopped, that
// all rounds of the epoch are over, and two days; and at the devices.
func (w *world) epochEnds() {
	w.t.Helper()
	late := w.epochBegin.Add(3*w.recipe.ServerKeys.Epoch() + 49*time.Hour)
	for _, role := range []signed.Role{signed.Leader, signed.Helper} {
		register, err := disk.OS(w.in(role.String() + "/issuer"))
		if err != nil {
			w.t.Fatal(err)
		}
		x, close := w.issuer(role, late, register)
		if _, any, err := x.Retire(w.t.Context()); err != nil || !any {
			w.t.Errorf("the %v's issuer: %v, %v", role, any, err)
		}
		if err := errors.Join(close(), register.Close()); err != nil {
			w.t.Error(err)
		}
	}
	data, err := disk.OS(w.in("attester"))
	if err != nil {
		w.t.Fatal(err)
	}
	a, err := attester.New(attester.Options{Deployment: w.issuing.Deployment, Signer: signedtest.Signer(w.t, w.attester, time.Now().Add(-time.Hour), 24*time.Hour),
		Attestation: new(attester.Codes), Leader: w.servers.LeaderURL(), Helper: w.servers.HelperURL(), FS: data,
		Terms: func(uint32) (attester.Terms, bool) { return attester.Terms{}, false }})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := errors.Join(a.Forget(w.issuing.Epoch), a.Close(), data.Close()); err != nil {
		w.t.Error(err)
	}
	tokens, err := disk.OS(w.in("gateway/tokens"))
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := mint.New(mint.Options{Deployment: w.issuing.Deployment, Register: tokens, Keys: func() []*admission.Keys { return nil },
		Terms: func(uint32) (mint.Terms, bool) { return mint.Terms{}, false }})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := errors.Join(m.Forget(w.issuing.Epoch), m.Close(), tokens.Close()); err != nil {
		w.t.Error(err)
	}
	for _, d := range w.devices {
		d.now = late
		if n, err := d.wallet.Forget(); n != 1 || err != nil {
			w.t.Errorf("%d, %v", n, err)
		}
	}
}
