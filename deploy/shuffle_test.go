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
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/internal/service/servicetest"
	"github.com/starling-agg/starling/internal/uploads"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/shuffle/analyzer"
	"github.com/starling-agg/starling/shuffle/hop"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

// A mixedWorld is a deployment of a recipe without proofs, behind a relay and a gateway.
type mixedWorld struct {
	t       *testing.T
	dir     string
	recipe  *recipe.Recipe
	s       *onion.Shuffle
	m       *recipe.Messenger
	mixers  *Mixers
	front   *Front
	devices *http.Client
}

// exactSum asks for a sum that nobody blurs, in rounds of two seconds.
func exactSum() account.Options {
	return account.Options{Query: recipe.Sum{Max: 20}, Randomizer: recipe.Cloak{Kind: recipe.SumPreservingCloak}, MinBatch: 20}
}

func newMixedWorld(t *testing.T, direct bool, o account.Options) *mixedWorld {
	t.Helper()
	w := &mixedWorld{t: t, dir: filepath.Join(t.TempDir(), "x")}
	var err error
	if w.mixers, err = LoopbackMixers(direct); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.mixers.Close)
	if w.front, err = LoopbackFront(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.front.Close)
	o.Name, o.TimePrecision, o.RoundUnits, o.Grace = "Test", 1, 4, time.Second
	o.Relay = &recipe.Relay{URL: w.front.RelayURL(), Gateway: w.front.GatewayURL()}
	o.Path = w.mixers.Path(true)
	if w.recipe, err = account.New(o); err != nil {
		t.Fatal(err)
	}
	if w.m, err = w.recipe.Messenger(); err != nil {
		t.Fatal(err)
	}
	if w.s, err = w.recipe.Shuffle(); err != nil {
		t.Fatal(err)
	}
	if err := CreateShuffle(w.dir, w.recipe, w.mixers, w.front, time.Now(), 20*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *mixedWorld) in(name string) string { return filepath.Join(w.dir, name) }

// a configuration file with one line changed.
func (w *mixedWorld) edit(file, old, new string) {
	w.t.Helper()
	b, err := os.ReadFile(w.in(file))
	if err != nil {
		w.t.Fatal(err)
	}
	text := strings.Replace(string(b), old, new, 1)
	if text == string(b) {
		w.t.Fatalf("%s has no %q", file, old)
	}
	if err := os.WriteFile(w.in(file), []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// parts are those of all parties, by their name.
func (w *mixedWorld) parts() []service.Part {
	w.t.Helper()
	log := slog.New(slog.DiscardHandler)
	c, err := LoadAnalyzer(w.in(AnalyzerFile))
	if err != nil {
		w.t.Fatal(err)
	}
	all := c.Parts(log, w.mixers.Analyzer)
	for i := len(w.mixers.Hops); i > 0; i-- {
		c, err := LoadHop(w.in(HopFile(i)))
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, c.Parts(log, w.mixers.Hops[i-1])...)
	}
	g, err := LoadGateway(w.in(GatewayFile))
	if err != nil {
		w.t.Fatal(err)
	}
	all = append(all, g.Parts(log, Listeners{Public: w.front.Gateway, Local: w.front.GatewayLocal})...)
	r, err := LoadRelay(w.in(RelayFile))
	if err != nil {
		w.t.Fatal(err)
	}
	last, err := r.Parts(log, Listeners{Public: w.front.Relay, Local: w.front.RelayLocal})
	if err != nil {
		w.t.Fatal(err)
	}
	return append(all, last...)
}

// relayed makes the devices' way through the relay, by the manifest that the gateway signed.
func (w *mixedWorld) relayed() {
	w.t.Helper()
	b, err := os.ReadFile(w.in(ManifestFile))
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := ohttp.ReadManifest(b)
	if err != nil {
		w.t.Fatal(err)
	}
	if len(m.Signatures) != 1 || m.Signatures[0].Role != signed.Gateway {
		w.t.Fatalf("signatures %v; want that of the gateway", m.Signatures)
	}
	if err := m.VerifyOne(m.Signatures[0], w.mixers.Roots[len(w.mixers.Roots)-1].Public()); err != nil {
		w.t.Fatal(err)
	}
	via, err := ohttp.NewTransport(ohttp.TransportOptions{Source: ohttp.Pin(m)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.devices = &http.Client{Transport: via, Timeout: 30 * time.Second}
}

func (w *mixedWorld) get(url, token string) (int, []byte) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, b
}

// keys are those of a round, in the order in which an envelope meets them.
func (w *mixedWorld) keys(round uint64) (keys []*sealed.PublicKey) {
	w.t.Helper()
	roles := []onion.Role{onion.First, onion.Second, onion.Analyzer}
	if w.s.Direct() {
		roles = []onion.Role{onion.Direct}
	}
	for i, at := range w.mixers.all() {
		status, b := w.get(at.URL()+onion.KeysPath(w.s.Recipe), "")
		if status != http.StatusOK {
			w.t.Fatalf("%v has no keys: status %d", roles[i], status)
		}
		l, err := onion.OpenKeyList(b, w.mixers.Roots[i].Public(), w.s.Recipe, roles[i])
		if err != nil {
			w.t.Fatal(err)
		}
		k, err := l.Key(round)
		if err != nil {
			w.t.Fatal(err)
		}
		keys = append(keys, k)
	}
	return keys
}

// contribute has n devices send an answer each, and returns all that they sealed.
func (w *mixedWorld) contribute(round uint64, n int) (messages [][]byte) {
	w.t.Helper()
	keys := w.keys(round)
	_, entry := w.recipe.Entry()
	var sending sync.WaitGroup
	for i := range n {
		mine, err := w.m.Messages([]uint64{uint64(i % 21)})
		if err != nil {
			w.t.Fatal(err)
		}
		messages = append(messages, mine...)
		var envelope []byte
		if shape := w.s.Shape(round); w.s.Direct() {
			envelope, err = shape.SealDirect(keys[0], mine, nil)
		} else {
			envelope, err = shape.Seal(onion.Keys{First: keys[0], Second: keys[1], Analyzer: keys[2]}, mine, nil)
		}
		if err != nil {
			w.t.Fatal(err)
		}
		sending.Go(func() {
			resp, err := w.devices.Post(entry+onion.ContributionsPath(w.s.Recipe), onion.ContributionsMedia, bytes.NewReader(envelope))
			if err != nil {
				w.t.Error(err)
				return
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusAccepted {
				w.t.Errorf("status %d", resp.StatusCode)
			}
		})
	}
	sending.Wait()
	return messages
}

// result waits for that of a round, which it opens.
func (w *mixedWorld) result(round uint64) (*onion.Result, recipe.Outcome) {
	w.t.Helper()
	token, err := service.Secret(w.in("secrets/collector.token")).Text()
	if err != nil {
		w.t.Fatal(err)
	}
	var b []byte
	w.until("there is a result", round, func() (ok bool) {
		var status int
		status, b = w.get(w.mixers.Analyzer.URL()+onion.ResultPath(w.s.Recipe, round), token)
		return status == http.StatusOK
	})
	r, err := onion.OpenResult(b, w.s, round)
	if err != nil {
		w.t.Fatal(err)
	}
	x, err := w.m.ReadOutcome(r.Tally, r.Counts.Contributions, r.Counts.Tallied())
	if err != nil {
		w.t.Fatal(err)
	}
	return r, x
}

// until waits for something that follows the flush of a round.
func (w *mixedWorld) until(what string, round uint64, is func() bool) {
	w.t.Helper()
	for late := time.After(time.Until(w.s.Flush(round)) + time.Minute); !is(); {
		select {
		case <-late:
			w.t.Fatal("it is not so that ", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestShuffledDeployment: what devices send through relay, gateway and both hops, or through
// the first two to an analyzer alone, the analyzer tallies: the same that the messages
// tally to which they sealed, which the collector has with the signatures of all.
func TestShuffledDeployment(t *testing.T) {
	for name, direct := range map[string]bool{"shuffled": false, "direct": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := exactSum()
			if direct {
				o.Query, o.Randomizer = recipe.Histogram{Length: 21}, recipe.KRR{Epsilon0: recipe.Decimal{Coefficient: 5}}
			}
			w := newMixedWorld(t, direct, o)
			for _, c := range CheckFiles([]string{w.in(AnalyzerFile), w.in(GatewayFile), w.in(RelayFile), w.in(RecipeFile), w.in(AnchorsFile), w.in(ManifestFile)}, time.Now()) {
				if len(c.Faults) > 0 {
					t.Errorf("%+v", c)
				}
			}
			servicetest.Serve(t, w.parts()...)
			w.relayed()
			round := w.s.Round(time.Now()) + 2 // there are keys ahead, and nobody is in a hurry
			const devices = 25
			want, err := w.m.Tally(w.contribute(round, devices))
			if err != nil {
				t.Fatal(err)
			}
			r, got := w.result(round)
			if got.Problem != "" || !reflect.DeepEqual(*got.Tally, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if c := (onion.Counts{Contributions: devices, Messages: uint64(devices * w.m.MessagesPerContribution())}); r.Counts != c {
				t.Errorf("got %+v, want %+v", r.Counts, c)
			}
			if !direct && want.Sums[0] != 10*21+(0+1+2+3) {
				t.Errorf("the sum of what devices answered is %d", want.Sums[0])
			}
			if status, _ := w.get(w.mixers.Analyzer.URL()+onion.ResultPath(w.s.Recipe, round), "a token of nobody's"); status != http.StatusUnauthorized {
				t.Errorf("anybody may have a result: status %d", status)
			}
			for i, at := range w.mixers.all() {
				// A result is there just before its round has ended.
				w.until(fmt.Sprintf("party %d has ended the round", i), round, func() bool {
					_, b := w.get("http://"+at.Local.Addr().String()+"/statusz", "")
					s := new(hop.Status)
					return json.Unmarshal(b, s) == nil && len(s.Shuffles) == 1 && s.Shuffles[0].Totals.Contributions == devices
				})
				if status, b := w.get("http://"+at.Local.Addr().String()+"/readyz", ""); status != http.StatusOK {
					t.Errorf("party %d is not ready: %s", i, b)
				}
			}
		})
	}
}

// TestHopStarts: a hop starts anew from its directory, with the keys that it had.
func TestHopStarts(t *testing.T) {
	w := newMixedWorld(t, false, exactSum())
	c, err := LoadHop(w.in(HopFile(1)))
	if err != nil {
		t.Fatal(err)
	}
	var before []byte
	for i := range 2 {
		at, err := LoopbackParty()
		if err != nil {
			t.Fatal(err)
		}
		stop := servicetest.Serve(t, c.Parts(slog.New(slog.DiscardHandler), at)...)
		round := w.s.Round(time.Now()) + 1
		if status, b := w.get(at.URL()+onion.KeysPath(w.s.Recipe), ""); status != http.StatusOK {
			t.Fatalf("status %d, %s", status, b)
		} else if l, err := onion.OpenKeyList(b, w.s.First, w.s.Recipe, onion.First); err != nil {
			t.Fatal(err)
		} else if k := l.Keys[len(l.Keys)-1]; i == 0 {
			before = append(before, k[:]...)
		} else if round <= l.First+uint64(len(l.Keys)) && !bytes.Contains(bytes.Join(flat(l.Keys), nil), before) {
			t.Error("another key of the same round")
		}
		stop()
	}
}

func flat(keys [][32]byte) (list [][]byte) {
	for _, k := range keys {
		list = append(list, k[:])
	}
	return list
}

// TestMixersRefuse: a hop and an analyzer say all that is wrong with their files, and do not
// start by them.
func TestMixersRefuse(t *testing.T) {
	w := newMixedWorld(t, false, exactSum())
	direct := newMixedWorld(t, true, account.Options{Query: recipe.Count{}, Randomizer: recipe.KRR{Epsilon0: recipe.Decimal{Coefficient: 5}}, MinBatch: 20})
	two := createFront(t, counted)
	hop1, analyzer := HopFile(1), AnalyzerFile
	for name, x := range map[string]struct {
		file, old, new string
		want           string
	}{
		"another number":          {hop1, "number = 1", "number = 2", "names another root"},
		"no number":               {hop1, "number = 1", "number = 3", "number: 1 or 2"},
		"a stray key":             {hop1, "number = 1", "number = 1\ncolour = 3", "unknown key"},
		"no recipe":               {hop1, `recipe = "recipe.starling"`, `recipe = ""`, "shuffles[0].recipe: required"},
		"no shuffles":             {hop1, "shuffles = [", "shuffles = []\n#", "shuffles: at least one"},
		"no token":                {hop1, "hop-1.token", "hop-7.token", "shuffles[0].next_token"},
		"a token that is none":    {hop1, "hop-1.token", "short.token", "token of less than"},
		"another owner":           {hop1, "secrets/hop-1.online\"\ndelegation = \"secrets/hop-1", "secrets/hop-2.online\"\ndelegation = \"secrets/hop-2", "names another root"},
		"keys of two owners":      {hop1, "secrets/hop-1.online\"\n", "secrets/hop-2.online\"\n", "delegation"},
		"two servers":             {hop1, `recipe = "recipe.starling"`, fmt.Sprintf("recipe = %q", filepath.Join(two.dir, RecipeFile)), "that of two servers"},
		"no hops":                 {hop1, `recipe = "recipe.starling"`, fmt.Sprintf("recipe = %q", direct.in(RecipeFile)), "path is direct"},
		"twice":                   {hop1, "shuffles = [", `shuffles = [{ recipe = "recipe.starling", next_token = "secrets/hop-1.token" }, `, "stands twice"},
		"hop 2 takes anybody's":   {HopFile(2), "tokens = [", "tokens = []\n#", "tokens: hop 2 wants"},
		"a negative limit":        {hop1, "\n[public]", "\n[limits]\nrequests = -1\n[public]", "limits.requests"},
		"a request too small":     {hop1, "\n[public]", "\n[limits]\nrequest_bytes = 10\n[public]", "limits: "},
		"a time too long":         {hop1, "number = 1", "number = 1\nhold = \"1000h\"", "Hold"},
		"no data":                 {hop1, `data = "hop-1"`, `data = ""`, "data: "},
		"the analyzer's recipes":  {analyzer, `recipes = ["recipe.starling"]`, "recipes = []", "recipes: at least one"},
		"two paths":               {analyzer, `recipes = ["`, fmt.Sprintf(`recipes = [%q, "`, direct.in(RecipeFile)), "recipes[0]"},
		"no collector":            {analyzer, "readers = [", "readers = []\n#", "readers: at least one"},
		"the analyzer takes all":  {analyzer, "tokens = [", "tokens = []\n#", "no token of the party"},
		"a token that is missing": {analyzer, "collector.token", "nobody.token", "readers[0]"},
		"a hop's file":            {analyzer, `role = "analyzer"`, `role = "hop"`, "hop"},
		"what a target takes":     {GatewayFile, `takes = "contributions"`, `takes = "all"`, "targets[0].takes"},
	} {
		was, err := os.ReadFile(w.in(x.file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(w.in("secrets/short.token"), []byte("short"), 0o600); err != nil {
			t.Fatal(err)
		}
		w.edit(x.file, x.old, x.new)
		if got := CheckFile(w.in(x.file), time.Now()); !strings.Contains(strings.Join(got.Faults, "\n"), x.want) {
			t.Errorf("%s: %q, want %q", name, got.Faults, x.want)
		}
		if err := os.WriteFile(w.in(x.file), was, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := CreateShuffle(w.dir, w.recipe, w.mixers, w.front, time.Now(), time.Second); !errors.Is(err, ErrNotEmpty) {
		t.Error(err)
	}
	if err := CreateShuffle(filepath.Join(t.TempDir(), "y"), two.recipe, w.mixers, w.front, time.Now(), time.Second); err == nil {
		t.Error("a deployment of a recipe on another path")
	}
}

// TestTallyProblem: what is wrong with messages for good is the result, and what is wrong with
// the machine is not.
func TestTallyProblem(t *testing.T) {
	w := newMixedWorld(t, false, exactSum())
	all := tallies{w.s.Recipe: &mixed{Shuffle: w.s, messenger: w.m}}
	var messages [][]byte
	for range 20 {
		mine, err := w.m.Messages([]uint64{3})
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, mine...)
	}
	for name, x := range map[string]struct {
		missing  uint64
		messages [][]byte
		want     recipe.Problem
	}{
		"whole":                {0, messages, ""},
		"a contribution lost":  {uint64(w.m.MessagesPerContribution()), messages, recipe.MessagesMissing},
		"fewer than the least": {0, messages[w.m.MessagesPerContribution():], recipe.MessagesUnusable},
		"no whole ones":        {0, messages[1:], recipe.MessagesUnusable},
	} {
		b := &analyzer.Batch{Recipe: w.s.Recipe, Messages: func(yield func([]byte) bool) {
			one := make([]byte, w.s.Size) // valid until the next
			for _, m := range x.messages {
				if copy(one, m); !yield(one) {
					return
				}
			}
		}}
		b.Counts.Messages, b.Counts.Dropped = uint64(len(x.messages))+x.missing, x.missing
		out, err := all.tally(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		got, err := w.m.ReadOutcome(out, uint64(len(x.messages)/w.m.MessagesPerContribution()), uint64(len(x.messages)))
		if err != nil {
			t.Fatal(err)
		}
		if got.Problem != x.want || x.want == "" && (len(got.Tally.Sums) != 1 || got.Tally.Sums[0] != 60 || got.Tally.Reports != 20) {
			t.Errorf("%s: %s", name, out)
		}
		if again, _ := all.tally(t.Context(), b); !bytes.Equal(again, out) {
			t.Errorf("%s: another result the second time", name)
		}
	}
	b := &analyzer.Batch{Recipe: w.s.Recipe, Messages: func(yield func([]byte) bool) { yield(messages[0]) }}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := all.tally(stopped, b); !errors.Is(err, context.Canceled) {
		t.Errorf("a tally that was stopped: %v", err)
	}
	if _, err := (tallies{}).tally(t.Context(), b); err == nil {
		t.Error("a tally of no recipe")
	}
}

// TestGatewayProtocol: a gateway takes what its targets take. One whose targets take one kind
// passes on nothing of the other.
func TestGatewayProtocol(t *testing.T) {
	reports, contributions := GatewayTarget{URL: "http://127.0.0.1:1/"}, GatewayTarget{URL: "http://127.0.0.1:2/", Takes: "contributions"}
	for want, targets := range map[string][]GatewayTarget{
		"uploads.DAP": {reports}, "uploads.Contributions": {contributions}, "uploads.Both": {contributions, reports},
	} {
		p := (&Gateway{Targets: targets}).protocol()
		if got := fmt.Sprintf("%T", p); got != want {
			t.Errorf("%d targets: %s, want %s", len(targets), got, want)
		}
	}
	if got := fmt.Sprintf("%T", (&Gateway{}).protocol()); got != "uploads.DAP" {
		t.Errorf("an agreement's leader: %s", got)
	}
}

// TestGatewayOfBothKinds: where a gateway's targets take both kinds, what is sent to the one
// that takes the other is held as of a task that nobody knows, which is bounded.
func TestGatewayOfBothKinds(t *testing.T) {
	w := newMixedWorld(t, false, exactSum())
	x := createFront(t, counted)
	silence := slog.New(slog.DiscardHandler)
	servicetest.Serve(t, w.parts()[:9]...)
	servicetest.Serve(t, load(t, x.dir, dap.RoleHelper).Parts(silence, Listeners{Public: x.Helper, Local: x.HelperLocal})...)
	servicetest.Serve(t, load(t, x.dir, dap.RoleLeader).Parts(silence, Listeners{Public: x.Leader, Local: x.LeaderLocal})...)
	for _, q := range []struct{ url, path, media string }{
		{x.LeaderURL(), onion.ContributionsPath(w.s.Recipe), onion.ContributionsMedia},
		{w.mixers.Hops[0].URL(), dap.CreationPath(dap.TaskID{7}, dap.ReportsResource), dap.ContentType(dap.MediaUploadReq)},
	} {
		token, err := service.Secret(w.in("secrets/gateway.token")).Text()
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, q.url+q.path, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", q.media)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !(uploads.Both{}).Unknown(resp.StatusCode, b) {
			t.Errorf("%s%s: status %d, %s, %v", q.url, q.path, resp.StatusCode, b, err)
		}
	}
}
