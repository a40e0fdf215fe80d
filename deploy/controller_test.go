package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/training"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/fl/round"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/internal/service/servicetest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
)

// trained is a training through real servers on loopback, with a relay that hands it out.
type trained struct {
	t          testing.TB
	dir        string
	addresses  *Addresses
	controller *Controller
	relay      *Relay
	checked    *recipe.Checked
	listeners  map[string]net.Listener
}

// newTrained writes a deployment of a training of exact sums: noise has tests of its own.
func newTrained(t testing.TB, dimension uint32, rounds uint32, units uint64, change func(*Controller)) *trained {
	t.Helper()
	a, err := Loopback()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	x := &trained{t: t, addresses: a, dir: filepath.Join(t.TempDir(), "d"), listeners: map[string]net.Listener{}}
	made, err := Init(InitOptions{Dir: filepath.Join(x.dir, "c"), Role: ControllerRole, Owner: "Cleo", URL: "http://127.0.0.1:18005/"})
	if err != nil {
		t.Fatal(err)
	}
	key, err := signed.ParsePublicKey(made.Public[0])
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(x.dir, "c", TermsFile)
	text := fmt.Sprintf("clip = 2.0\nrounds = %d\n[[tensor]]\nname = \"w\"\nshape = [%d]\n", rounds, dimension)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	terms, err := ReadTerms(file)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := terms.Hash()
	if err != nil {
		t.Fatal(err)
	}
	q, err := recipe.NewVector(dimension, 1, 10, 0)
	if err != nil {
		t.Fatal(err)
	}
	r, err := account.New(account.Options{Name: "Training", Query: q, Leader: a.LeaderURL(), Helper: a.HelperURL(), MinBatch: 4, TimePrecision: 1,
		RoundUnits: units, Grace: time.Second, Training: &recipe.Training{Controller: key, Terms: hash}})
	if err != nil {
		t.Fatal(err)
	}
	if err := Create(filepath.Join(x.dir, "d"), r, a); err != nil {
		t.Fatal(err)
	}
	if x.checked, err = OpenRecipe(filepath.Join(x.dir, "d", RecipeFile)); err != nil {
		t.Fatal(err)
	}
	edit(t, made.Config, `collector = "collector.toml"`, `collector = "../d/collector.toml"`)
	edit(t, made.Config, `# control =`, `control =`)
	edit(t, made.Config, `# cohort = 1000`, "cohort = 5\npoll = \"200ms\"")
	edit(t, made.Config, "rate = 0.5\nmomentum = 0.9", "rate = 1.0")
	if x.controller, err = LoadController(made.Config); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"controller", "controller local", "relay", "relay local"} {
		l, err := ListenLoopback()
		if err != nil {
			t.Fatal(err)
		}
		x.listeners[name] = l
	}
	at := func(name string) string { return x.listeners[name].Addr().String() }
	x.controller.Public.Address, x.controller.Local.Address = service.Address(at("controller")), service.Address(at("controller local"))
	x.relay = &Relay{Party: RelayRole, Public: service.Listen{Address: service.Address(at("relay"))}, Local: Local{Address: service.Address(at("relay local"))},
		Gateway: "http://127.0.0.1:1/", Trainings: []RelayTraining{{Controller: "http://" + at("controller") + "/", Recipe: x.checked.ID().String(),
			Every: service.Duration(100 * time.Millisecond)}}}
	x.relay.Limits.RequestsPerMinute = -1
	x.controller.Published = []string{"http://" + at("relay") + "/"}
	if change != nil {
		change(x.controller)
	}
	for _, err := range []error{x.controller.Validate(), x.controller.Check(), x.relay.Validate(), x.relay.Check()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return x
}

// serve starts leader, helper, relay and controller.
func (x *trained) serve() (stop func()) {
	x.serveServers()
	return servicetest.Serve(x.t, x.controller.Parts(slog.New(slog.DiscardHandler),
		Listeners{Public: x.listeners["controller"], Local: x.listeners["controller local"]})...)
}

// serveServers starts all but the controller.
func (x *trained) serveServers() {
	t := x.t
	log := slog.New(slog.DiscardHandler)
	leader, helper := load(t, filepath.Join(x.dir, "d"), dap.RoleLeader), load(t, filepath.Join(x.dir, "d"), dap.RoleHelper)
	parts := append(helper.Parts(log, Listeners{Public: x.addresses.Helper, Local: x.addresses.HelperLocal}),
		leader.Parts(log, Listeners{Public: x.addresses.Leader, Local: x.addresses.LeaderLocal})...)
	relay, err := x.relay.Parts(log, Listeners{Public: x.listeners["relay"], Local: x.listeners["relay local"]})
	if err != nil {
		t.Fatal(err)
	}
	servicetest.Serve(t, append(parts, relay...)...)
}

// devices take part in each round that is announced, as devices do: they fetch the model
// from the relay and report how it is off their own target.
func (x *trained) devices(ctx context.Context, n int, target func(device int) []float32) error {
	device, err := client.New(client.Options{Checked: x.checked, MaxEpsilon: math.Inf(1), AnyKeys: true})
	if err != nil {
		return err
	}
	f, err := training.Follow(x.checked.Recipe(), training.Remote{URL: "http://" + x.listeners["relay"].Addr().String() + "/"}, nil, nil)
	if err != nil {
		return err
	}
	q, _ := x.checked.Recipe().Vector()
	done := -1
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		a, err := f.Newest(ctx)
		if err != nil || int(a.Index) <= done {
			continue // not yet
		}
		begin, err := x.checked.Recipe().TimePrecision.Begin(dap.Time(a.Round * x.checked.Recipe().BatchUnits()))
		if err != nil {
			return err
		}
		time.Sleep(time.Until(begin))
		m, err := f.Model(ctx, a)
		if err != nil {
			return err
		}
		s, err := f.Session(ctx)
		if err != nil {
			return err
		}
		var values []client.Value
		for i := range n {
			update, v := make([]float32, len(m.Parameters)), make([]float64, s.Terms.Entries())
			for j, t := range target(i) {
				update[j] = m.Parameters[j] - t
			}
			if err := s.Terms.Vector(v, update, m.Clip, q.Norm()); err != nil {
				return err
			}
			values = append(values, client.Reals(v))
		}
		if err := device.Report(ctx, values...); err != nil {
			return err
		}
		done = int(a.Index)
	}
	return nil
}

func (x *trained) status() *round.Status {
	resp, err := http.Get("http://" + x.listeners["controller local"].Addr().String() + "/statusz")
	if err != nil {
		x.t.Fatal(err)
	}
	defer resp.Body.Close()
	s := new(round.Status)
	if err := json.NewDecoder(resp.Body).Decode(s); err != nil {
		return s // not started
	}
	return s
}

// crew has five devices take part until ended is called, which cancels. Where they fail no
// more rounds are stepped.
func (x *trained) crew(ctx context.Context, cancel func(), t testing.TB) (ended func()) {
	var crew sync.WaitGroup
	crew.Go(func() {
		err := x.devices(ctx, 5, func(i int) []float32 { return []float32{float32(i) / 10, 0.5, -0.25} })
		if err != nil && ctx.Err() == nil {
			t.Log("devices: ", err)
		}
	})
	return func() {
		cancel()
		crew.Wait()
	}
}

// twoSteps has a training of two rounds go through, in the middle of the second of which the
// controller is started anew. It returns when the first was over, or nothing where the machine
// was so busy that devices came too late for a round.
func (x *trained) twoSteps(ctx context.Context, begun time.Time) (steps []time.Duration, ended func()) {
	stop := x.serve()
	inside, cancel := context.WithCancel(ctx)
	ended = x.crew(inside, cancel, x.t)
	for s := x.status(); s.Stepped < 2; s = x.status() {
		if len(steps) < s.Stepped {
			steps = append(steps, time.Since(begun).Round(10*time.Millisecond))
			for x.status().Begun < 2 && ctx.Err() == nil {
				time.Sleep(20 * time.Millisecond)
			}
			stop()
			stop = servicetest.Serve(x.t, x.controller.Parts(slog.New(slog.DiscardHandler), Listeners{})...)
		}
		if s.Skipped > 0 {
			x.t.Logf("again: %+v", s)
			return nil, ended
		}
		select {
		case <-ctx.Done():
			ended()
			x.t.Fatalf("not over in time: %+v", s)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return steps, ended
}

// TestControllerTrains: two rounds through leader and helper, with models that devices
// fetch from a relay: with exact sums the model is the mean of what the devices want after
// one, and stays there. The controller is started anew in the middle of the second. Rounds are
// longer where the machine is so busy that devices come too late for one.
func TestControllerTrains(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	begun := time.Now()
	x, steps := newTrained(t, 6, 2, 2, nil), []time.Duration(nil)
	for units := uint64(2); ; x = newTrained(t, 6, 2, units, nil) {
		var ended func()
		if steps, ended = x.twoSteps(ctx, begun); len(steps) > 0 {
			defer ended()
			break
		}
		ended()
		if units *= 3; units > 18 {
			t.Fatal("devices came too late each time")
		}
	}
	t.Log("steps at ", steps, " and ", time.Since(begun).Round(10*time.Millisecond))
	control := atSocket(t, x.controller.Control)
	ask := func(method, path string, status int) []byte {
		t.Helper()
		code, body := control(method, path, nil)
		if code != status {
			t.Fatalf("%s %s: status %d, %s", method, path, code, body)
		}
		return []byte(body)
	}
	model, err := session.ReadFloats(ask("GET", "/v1/model", 200))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float32{0.2, 0.5, -0.25, 0, 0, 0} {
		if math.Abs(float64(model[i]-want)) > 2*2./1024 { // rounding of the vectors, of two steps
			t.Errorf("parameter %d is %v, want %v", i, model[i], want)
		}
	}
	mean, err := session.ReadFloats(ask("GET", "/v1/rounds/0/aggregate", 200))
	if err != nil || math.Abs(float64(mean[1]+0.5)) > 2./1024 {
		t.Errorf("%v, %v", mean, err)
	}
	var said TrainingSession
	if err := json.Unmarshal(ask("GET", "/v1/session", 200), &said); err != nil || said.Dimension != 6 || said.Recipe != x.checked.ID() || said.Tensors[0].Name != "w" {
		t.Errorf("%+v, %v", said, err)
	}
	ask("GET", "/v1/rounds/1", 200)
	ask("GET", "/v1/rounds/9", 404)
	ask("GET", "/v1/rounds/-1", 404)
	ask("GET", "/v1/rounds/9/aggregate", 404)
	ask("POST", "/v1/rounds", 409)
	ask("DELETE", "/v1/rounds", 405)
	if info, err := os.Stat(string(x.controller.Control)); err != nil || info.Mode().Type() != os.ModeSocket {
		t.Errorf("%v, %v", info, err)
	}
	// What is published is the same for everybody, and nothing else is there.
	for _, host := range []string{"relay", "controller"} {
		at := "http://" + x.listeners[host].Addr().String() + "/"
		id := x.checked.ID()
		for path, status := range map[string]int{session.SessionPath(id): 200, session.AnnouncementPath(id): 200, session.ModelPath(id, session.Hash{1}): 404,
			session.SessionPath(recipe.ID{1}): 404, "training/": 404, session.AnnouncementPath(id) + "?device=7": 0} {
			resp, err := http.Get(at + path)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != status && (status != 0 || resp.StatusCode < 400) {
				t.Errorf("%s: %s: status %d", host, path, resp.StatusCode)
			}
		}
	}
	resp, err := http.Get("http://" + x.listeners["controller local"].Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || !bytes.Contains(b, []byte("starling_training_stepped_rounds 2")) {
		t.Errorf("metrics lack the rounds: %v", err)
	}
}

// TestControllerSkips: a round of too few reports is skipped once its grace is over, and the
// next begins; the controller is looked at while it is stopped.
func TestControllerSkips(t *testing.T) {
	x := newTrained(t, 6, 1, 1, nil)
	stop := x.serve()
	for end := time.Now().Add(2 * time.Minute); x.status().Skipped < 1; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%+v", x.status())
		}
	}
	stop()
	err := x.controller.Stopped(t.Context(), func(r *round.Controller) error {
		s, err := r.Status()
		if err != nil || s.Skipped != 1 || s.Rounds[0].Reason != "too few reports" {
			t.Errorf("%+v, %v", s, err)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestControllerRefuses: files that do not belong together, each with its key.
func TestControllerRefuses(t *testing.T) {
	x := newTrained(t, 6, 1, 1, nil)
	good := *x.controller
	for name, c := range map[string]struct {
		change func(*Controller)
		want   string
	}{
		"no data":                {func(c *Controller) { c.Data = "" }, "data"},
		"no key":                 {func(c *Controller) { c.Key = "" }, "key"},
		"no rate":                {func(c *Controller) { c.Optimizer.Rate = 0 }, "optimizer"},
		"negative":               {func(c *Controller) { c.Batch = -1 }, "batch"},
		"too little ahead":       {func(c *Controller) { c.Batch, c.Ahead = 3, 2 }, "ahead"},
		"manual, no socket":      {func(c *Controller) { c.Manual, c.Control = true, "" }, "manual"},
		"a socket for everybody": {func(c *Controller) { c.Control = "@control" }, "control: \"@control\""},
		"plain http":             {func(c *Controller) { c.Published = []string{"http://relay.example/"} }, "published[0]"},
		"record in data":         {func(c *Controller) { c.Record = c.Data + "/record" }, "record"},
		"no such engine":         {func(c *Controller) { c.Engine = "sqlite" }, "engine"},
		"a database for nothing": {func(c *Controller) { c.Database.Schema = "training" }, "database: it is for"},
		"no database":            {func(c *Controller) { c.Engine = Postgres }, "database.file: "},
		"no schema's name": {func(c *Controller) {
			c.Engine, c.Database = Postgres, ControllerDatabase{File: c.Key, Schema: "a-b"}
		}, "no name of a schema"},
		"no connection string": {func(c *Controller) {
			c.Engine, c.Database = Postgres, ControllerDatabase{File: "nowhere"}
		}, "database.file: "},
		"another key":             {func(c *Controller) { c.Key = service.Secret(filepath.Join(x.dir, "other.key")) }, "key"},
		"no collector":            {func(c *Controller) { c.Collector = "nowhere.toml" }, "collector"},
		"other terms":             {func(c *Controller) { c.Terms = service.Path(filepath.Join(x.dir, "other.toml")) }, "terms"},
		"no cohort":               {func(c *Controller) { c.Cohort = 0 }, "cohort"},
		"a short model":           {func(c *Controller) { c.Initial = service.Path(filepath.Join(x.dir, "short")) }, "initial"},
		"a model of half numbers": {func(c *Controller) { c.Initial = service.Path(filepath.Join(x.dir, "half")) }, "initial"},
	} {
		for file, b := range map[string][]byte{"short": make([]byte, 4), "half": make([]byte, 23),
			"other.toml": []byte("clip = 2.5\nrounds = 1\n[[tensor]]\nname = \"w\"\nshape = [6]\n")} {
			if err := os.WriteFile(filepath.Join(x.dir, file), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Init(InitOptions{Dir: filepath.Join(x.dir, "e"), Role: ControllerRole, Owner: "Eve", URL: "http://127.0.0.1:18006/"}); err == nil {
			b, err := os.ReadFile(filepath.Join(x.dir, "e", "secrets", "controller.key"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(x.dir, "other.key"), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		bad := good
		c.change(&bad)
		err := bad.Validate()
		if err == nil {
			err = bad.Check()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want one about %s", name, err, c.want)
		}
	}
	if err := good.Stopped(t.Context(), func(*round.Controller) error { return nil }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("one that never ran: %v", err)
	}
	for name, text := range map[string]string{
		"unknown key": "clip = 1.0\nrounds = 1\nmodel = 1\n[[tensor]]\nname = \"w\"\nshape = [6]\n",
		"no tensor":   "clip = 1.0\nrounds = 1\n",
		"no clip":     "rounds = 1\n[[tensor]]\nname = \"w\"\nshape = [6]\n",
		"algorithm":   "algorithm = \"fedprox\"\nclip = 1.0\nrounds = 1\n[[tensor]]\nname = \"w\"\nshape = [6]\n",
	} {
		file := filepath.Join(x.dir, "bad.toml")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadTerms(file); err == nil || !strings.Contains(err.Error(), "bad.toml") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
