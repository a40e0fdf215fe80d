package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/logserver"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/internal/logged"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
)

// A logWorld is a deployment with its owners, and the files of a log and two witnesses.
type logWorld struct {
	t      *testing.T
	dir    string
	url    map[string]string
	listen map[string]Listeners
	owners *Owners
}

func (w *logWorld) in(name string) string { return filepath.Join(w.dir, name) }

func (w *logWorld) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(w.in(name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func newLogWorld(t *testing.T) *logWorld {
	t.Helper()
	w := &logWorld{t: t, dir: filepath.Join(t.TempDir(), "x"), url: make(map[string]string), listen: make(map[string]Listeners)}
	a, err := Loopback()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	f, err := LoopbackFront()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if w.owners, err = NewOwners(); err != nil {
		t.Fatal(err)
	}
	o := account.Options{Name: "Test", Query: recipe.Count{}, Leader: a.LeaderURL(), Helper: a.HelperURL(), MinBatch: 100, Epsilon: recipe.Decimal{Coefficient: 1},
		Relay: &recipe.Relay{URL: f.RelayURL(), Gateway: f.GatewayURL()}}
	if o.ServerKeys, err = w.owners.ServerKeys(true); err != nil {
		t.Fatal(err)
	}
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(CreateFor(w.dir, r, a, w.owners), CreateFront(w.dir, r, f, time.Now(), time.Second)); err != nil {
		t.Fatal(err)
	}
	at, err := LoopbackLog()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(at.Close)
	if err := CreateLog(w.dir, at, time.Second); err != nil {
		t.Fatal(err)
	}
	w.url["log"], w.listen["log"] = at.LogURL(), at.Log
	for i, l := range at.Witnesses {
		w.listen[fmt.Sprintf("witness-%d", i+1)] = l
	}
	return w
}

// serve runs a party until the test ends.
func (w *logWorld) serve(parts []service.Part) {
	ctx, cancel := context.WithCancel(context.Background())
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- service.Run(ctx, 0, func() { close(started) }, parts...) }()
	select {
	case <-started:
	case err := <-ended:
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
}

// TestLogAndWitnesses: a log and two witnesses from their files. Three owners' manifest and
// a recipe are logged; a device that got the bundle verifies it offline and holds the
// recipe's deployment against it; a monitor finds the whole log in order.
func TestLogAndWitnesses(t *testing.T) {
	w := newLogWorld(t)
	quiet := service.NewLogger(new(bytes.Buffer), 99)
	for _, name := range []string{"witness-1", "witness-2"} {
		c, err := LoadWitness(w.in(name + ".toml"))
		if err != nil {
			t.Fatal(err)
		}
		w.serve(c.Parts(quiet, w.listen[name]))
	}
	c, err := LoadLog(w.in("log.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	w.serve(c.Parts(quiet, w.listen["log"]))

	log := logged.Remote{URL: w.url["log"]}
	policy, err := ReadPolicy(w.in("log.policy"))
	if err != nil {
		t.Fatal(err)
	}
	anchors, err := ReadAnchors(w.in(AnchorsFile))
	if err != nil {
		t.Fatal(err)
	}
	judge := logged.Judge{Anchors: anchors}
	add := func(e tlog.Entry) (int64, error) {
		b, err := e.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		i, _, err := log.Add(t.Context(), logserver.EntryMedia, b)
		return i, err
	}
	manifest, err := os.ReadFile(w.in(ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(w.in(RecipeFile))
	if err != nil {
		t.Fatal(err)
	}
	checked, err := OpenRecipe(w.in(RecipeFile))
	if err != nil {
		t.Fatal(err)
	}
	deployment, err := checked.Recipe().Deployment()
	if err != nil {
		t.Fatal(err)
	}
	signer := func(root *signed.PrivateKey) *signed.Signer {
		online := signed.Generate()
		d, err := signed.Delegate(root, online.Public(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		s, err := signed.NewSigner(online, d)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	forged, err := tlog.State(tlog.KindRecipe, deployment, file, signer(signed.Generate()), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var refused *logged.RefusedError
	if _, err := add(forged); !errors.As(err, &refused) || refused.Outcome != "refused" {
		t.Errorf("a recipe that a stranger has signed: %v", err)
	}
	said, err := tlog.State(tlog.KindRecipe, deployment, file, signer(w.owners.Helper), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	places := make(map[int64]bool)
	for _, e := range []tlog.Entry{{Kind: tlog.KindManifest, Body: manifest}, said} {
		i, err := add(e)
		if err != nil {
			t.Fatal(err)
		}
		places[i] = true
	}
	// The device: a file and a memory, and nobody to ask.
	var m tlog.Memory
	var o *tlog.Opened
	for deadline := time.Now().Add(time.Minute); ; {
		b, err := log.Bundle(t.Context())
		if err == nil {
			x, err := tlog.ReadBundle(b)
			if err != nil {
				t.Fatal(err)
			}
			if o, m, err = x.Open(policy, m, time.Now(), nil); err != nil {
				t.Fatal(err)
			}
			if len(o.Entries) == len(places) {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the entries never held: %v", err)
		}
		time.Sleep(50 * time.Millisecond) // there is no signal of another's period
	}
	if len(o.Cosigned) != 2 || slices.ContainsFunc(o.Entries, func(p tlog.Placed) bool { return !places[p.Index] }) {
		t.Errorf("%+v", o)
	}
	content, err := judge.Read(o.Entries)
	if err != nil {
		t.Fatal(err)
	}
	id, err := checked.Recipe().ID()
	if err != nil || !bytes.Equal(content.Recipes[id], file) || len(content.Manifests) != 1 {
		t.Fatalf("%+v, %v", content, err)
	}
	if got := content.Manifests[0]; got.Deployment != deployment {
		t.Error("the manifest is of another deployment than the recipe")
	}
	if err := VerifyManifest(t.Context(), content.Manifests[0], checked.Recipe(), anchors, time.Now()); err != nil {
		t.Error(err)
	}
	note, err := log.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen, err := policy.Open(note, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	all, err := judge.Watch(&seen.Checkpoint, log.Files(t.Context()), time.Now())
	if err != nil || len(all.Faults) > 0 || len(all.Live) != 2 || all.Total != seen.Size || all.Entries[tlog.KindActive] < 1 {
		t.Errorf("%+v, %v", all, err)
	}
	lines := strings.Split(string(get(t, "http://"+w.listen["log"].Local.Addr().String()+"/metrics")), "\n")
	if got := value(lines, `starling_log_entries_sent_total{outcome="refused"}`); got != "1" {
		t.Errorf("%q entries are counted as refused", got)
	}
}

// TestPolicyFile: a policy is told from configurations, and what is wrong with it is said.
func TestPolicyFile(t *testing.T) {
	w := newLogWorld(t)
	c := CheckFile(w.in("log.policy"), time.Now())
	if c.Kind != kindPolicy || len(c.Faults) > 0 || c.Found != "1 logs, 2 witnesses" {
		t.Errorf("%+v", c)
	}
	text, err := os.ReadFile(w.in("log.policy"))
	if err != nil {
		t.Fatal(err)
	}
	w.write("alone", strings.Replace(string(text), "quorum all", "quorum none", 1))
	if c := CheckFile(w.in("alone"), time.Now()); !strings.Contains(c.Found, "believes the log alone") {
		t.Errorf("%+v", c)
	}
	w.write("bad", "# ours\n"+strings.Replace(string(text), "quorum all", "quorum three", 1))
	wantFaults(t, CheckFile(w.in("bad"), time.Now()), `line 6: no witness and no group "three" before`)
	if c := CheckFile(w.in("log.toml"), time.Now()); c.Kind != "log's configuration" || len(c.Faults) > 0 {
		t.Errorf("%+v", c)
	}
	if c := CheckFile(w.in("witness-1.toml"), time.Now()); c.Kind != "witness's configuration" || len(c.Faults) > 0 {
		t.Errorf("%+v", c)
	}
	// Keys in the wrong hands, and a policy of another log.
	mixed := func(name, from, to string) {
		text, err := os.ReadFile(w.in(name))
		if err != nil {
			t.Fatal(err)
		}
		w.write("mixed.toml", strings.Replace(string(text), from, to, 1))
	}
	mixed("log.toml", "log.key", "witness-1.key")
	wantFaults(t, CheckFile(w.in("mixed.toml"), time.Now()), "is a witness's", "it does not name the log's key")
	mixed("witness-1.toml", "witness-1.key", "log.key")
	wantFaults(t, CheckFile(w.in("mixed.toml"), time.Now()), "is a log's")
	mixed("log.toml", `interval = "50ms"`, `republish = "20h"`)
	wantFaults(t, CheckFile(w.in("mixed.toml"), time.Now()), "or devices take the log for dead")
	mixed("log.toml", `record = "log.record"`, `record = "log/record"`)
	wantFaults(t, CheckFile(w.in("mixed.toml"), time.Now()), errRecord.Error())
	for _, load := range []func() error{
		func() error { _, err := LoadLog(w.in("witness-1.toml")); return err },
		func() error { _, err := LoadWitness(w.in("log.toml")); return err },
		func() error { _, err := LoadGateway(w.in("log.toml")); return err },
	} {
		if role := new(RoleError); !errors.As(load(), &role) {
			t.Errorf("another's: %v", load())
		}
	}
}
