package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/internal/service/servicetest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// TestTasksOfARunningLeader: a leader that runs takes a task through its local listener, from
// who has its token alone; it is there in the next life, without a line of the configuration,
// and stopped leaders take and list tasks too. What is refused says why.
func TestTasksOfARunningLeader(t *testing.T) {
	addresses, err := Loopback()
	if err != nil {
		t.Fatal(err)
	}
	defer addresses.Close()
	count := func(name, helper string) *recipe.Recipe {
		t.Helper()
		r, err := account.New(account.Options{Name: name, Query: recipe.Count{}, Leader: addresses.LeaderURL(), Helper: helper,
			MinBatch: 100, Epsilon: recipe.Decimal{Coefficient: 1}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	dir := t.TempDir()
	if err := Create(dir, count("first", addresses.HelperURL()), addresses); err != nil {
		t.Fatal(err)
	}
	load := func() *Aggregator {
		t.Helper()
		a, err := LoadAggregator(filepath.Join(dir, LeaderFile), dap.RoleLeader)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := load()
	file := func(r *recipe.Recipe) *status.NewTask {
		t.Helper()
		b, err := RecipeFileOf(r)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, r.Name+".starling")
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		task := a.Tasks[0]
		task.Recipe = service.Path(path)
		in, err := a.NewTask(&task, "alice")
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	second, third := file(count("second", addresses.HelperURL())), file(count("third", addresses.HelperURL()))
	for _, in := range []*status.NewTask{second, third} {
		for _, secret := range []string{string(a.Tasks[0].PeerToken), string(a.Tasks[0].CollectorToken)} {
			text, err := service.Secret(secret).Text()
			if err != nil || bytes.Contains(in.Terms, []byte(text)) || !bytes.Contains(in.Terms, []byte(filepath.Base(secret))) || bytes.Contains(in.Terms, []byte(dir)) {
				t.Errorf("terms %s: want the name of %s alone, %v", in.Terms, secret, err)
			}
		}
	}
	addresses.Close() // the aggregator listens there
	var bearer string
	ask := func(path string, body, into any) (int, string) {
		t.Helper()
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+string(a.Local.Address)+path, bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+bearer)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		said, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode == http.StatusOK {
			err = json.Unmarshal(said, into)
		}
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(said)
	}
	serve := func() func() {
		t.Helper()
		stop := servicetest.Serve(t, a.Parts(slog.New(slog.DiscardHandler), Listeners{})...)
		if bearer, err = a.OperatorToken(); err != nil {
			t.Fatal(err)
		}
		return func() {
			t.Helper()
			stop()
			http.DefaultClient.CloseIdleConnections() // or the next life is asked over one of this
		}
	}

	stop := serve()
	good := bearer
	for _, path := range []string{status.AddTaskPath, status.ListTasksPath, status.CloseTaskPath, status.GiveUpTaskPath} {
		bearer = strings.Repeat("0", 64)
		if code, _ := ask(path, second, nil); code != http.StatusUnauthorized {
			t.Errorf("%s without the token: status %d", path, code)
		}
	}
	bearer = good
	var added, again status.Added
	if code, said := ask(status.AddTaskPath, second, &added); code != http.StatusOK || !added.New || added.Task == "" {
		t.Fatalf("added: %d %s", code, said)
	}
	if code, said := ask(status.AddTaskPath, second, &again); code != http.StatusOK || again.New || again.Task != added.Task {
		t.Errorf("added again: %d %s", code, said)
	}
	for name, c := range map[string]struct {
		change func(*status.NewTask)
		says   string
	}{
		"other terms": {func(in *status.NewTask) {
			in.Terms = bytes.Replace(in.Terms, []byte("{"), []byte(`{"expected":{"reports":9},`), 1)
		}, "terms"},
		"unknown terms": {func(in *status.NewTask) { in.Terms = json.RawMessage(`{"peer":"x"}`) }, "unknown field"},
		"no recipe":     {func(in *status.NewTask) { in.Made = []byte("nothing") }, "recipe"},
		"nobody":        {func(in *status.NewTask) { in.By = "" }, "somebody"},
	} {
		in := *second
		c.change(&in)
		if code, said := ask(status.AddTaskPath, &in, nil); code != http.StatusBadRequest || !strings.Contains(said, c.says) {
			t.Errorf("%s: %d %s", name, code, said)
		}
	}
	stop()

	done, err := a.AddTask(t.Context(), third) // stopped
	if err != nil || !done.New {
		t.Fatalf("added to a stopped one: %+v, %v", done, err)
	}
	a = load()
	stop = serve()
	var tasks []status.Registered
	if code, said := ask(status.ListTasksPath, struct{}{}, &tasks); code != http.StatusOK || len(tasks) != 3 || tasks[0].Source != "imported" || tasks[1].Task != added.Task ||
		tasks[1].By != "alice" || tasks[2].Task != done.Task || tasks[2].Source != "typed" || tasks[1].Closed != nil {
		t.Errorf("listed: %d %s", code, said)
	}
	var closed status.Closed
	c := status.Closing{Task: added.Task, By: "bob", Why: "over"}
	if code, said := ask(status.CloseTaskPath, c, &closed); code != http.StatusOK || closed.By != "bob" || closed.Waiting+closed.Ready+closed.Short != 0 {
		t.Errorf("closed: %d %s", code, said)
	}
	c.By = "carol"
	if code, said := ask(status.GiveUpTaskPath, c, &closed); code != http.StatusOK || closed.By != "bob" || closed.Dropped != 0 {
		t.Errorf("given up: %d %s", code, said)
	}
	if code, said := ask(status.GiveUpTaskPath, status.Closing{Task: added.Task}, nil); code != http.StatusBadRequest || !strings.Contains(said, "a reason") {
		t.Errorf("given up by nobody: %d %s", code, said)
	}
	if code, said := ask(status.AddTaskPath, second, nil); code != http.StatusBadRequest || !strings.Contains(said, "closed: by bob") {
		t.Errorf("added after it was closed: %d %s", code, said)
	}
	stop()
	if closed, err := a.GiveUpTask(t.Context(), &status.Closing{Task: done.Task, By: "bob", Why: "over"}); err != nil || closed.By != "bob" { // stopped
		t.Errorf("given up: %+v, %v", closed, err)
	}
	b, err := LoadAggregator(filepath.Join(dir, HelperFile), dap.RoleHelper)
	if err != nil {
		t.Fatal(err)
	}
	servicetest.Serve(t, b.Parts(slog.New(slog.DiscardHandler), Listeners{})...)()
	c = status.Closing{Task: tasks[0].Task, By: "bob", Why: "over"}
	if _, err := b.GiveUpTask(t.Context(), &c); !errors.As(err, new(*status.BadRequest)) || !strings.Contains(err.Error(), "at its leader") {
		t.Errorf("given up at a helper: %v", err)
	}
	for range 2 { // stopped, and again
		if closed, err := b.CloseTask(t.Context(), &c); err != nil || closed.By != "bob" || closed.Why != "over" || closed.At.IsZero() {
			t.Errorf("closed at a helper: %+v, %v", closed, err)
		}
		c.By = "carol"
	}
	c.Task = dap.TaskID{9}.Base64()
	if _, err := b.CloseTask(t.Context(), &c); !errors.As(err, new(*status.BadRequest)) {
		t.Errorf("closed what is not there: %v", err)
	}
	if tasks, err = a.Registered(t.Context()); err != nil || len(tasks) != 3 || tasks[1].Closed == nil || tasks[1].Task != added.Task || tasks[2].Closed == nil {
		t.Errorf("listed when stopped: %+v, %v", tasks, err)
	}
}

// TestConfigurationIsImportedOnce: the first start takes [[tasks]] over; later ones take
// the same lines, no lines, and none that are new or changed, and say what to type. What the
// directory is called does not matter.
func TestConfigurationIsImportedOnce(t *testing.T) {
	dir, _ := create(t, dap.TimeInterval)
	file := filepath.Join(dir, HelperFile)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, block, ok := strings.Cut(string(b), "[[tasks]]\n")
	if !ok {
		t.Fatal("no task in the configuration")
	}
	start := func(text string) (n int, err error) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		a, err := LoadAggregator(file, dap.RoleHelper)
		if err != nil {
			return 0, err
		}
		err = a.with(t.Context(), slog.New(slog.DiscardHandler), func(s *opened) error {
			tasks, err := s.Registered(t.Context())
			n = len(tasks)
			return err
		})
		return n, err
	}
	m, err := load(t, dir, dap.RoleHelper).read()
	if err != nil {
		t.Fatal(err)
	}
	bare := "url = \"" + m.base + "\"\n" + head
	for name, text := range map[string]string{"no task and no address": head, "another address": "url = \"https://else.example/\"\n" + string(b)} {
		if _, err := start(text); err == nil || !strings.Contains(err.Error(), "url") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{string(b), string(b), bare, string(b)} {
		if n, err := start(text); n != 1 || err != nil {
			t.Fatalf("%d tasks, %v", n, err)
		}
	}
	moved := dir + ".moved"
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(moved, HelperFile)
	if n, err := start(bare); n != 1 || err != nil {
		t.Errorf("moved: %d tasks, %v", n, err)
	}
	c, err := OpenRecipe(filepath.Join(moved, RecipeFile))
	if err != nil {
		t.Fatal(err)
	}
	r := *c.Recipe()
	r.Name = "another"
	other, err := RecipeFileOf(&r)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(moved, "other.starling"), other, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text  string
		fault aggregator.TaskFault
		says  string
	}{
		"a new task":    {string(b) + "\n[[tasks]]\n" + strings.Replace(block, RecipeFile, "other.starling", 1), aggregator.TaskUnknown, "other.starling"},
		"changed terms": {head + "[[tasks]]\nexpected = { reports = 9 }\n" + block, aggregator.TaskDiffers, `"reports":9`},
	} {
		_, err := start(c.text)
		var refused *ImportError
		if !errors.As(err, &refused) || refused.Err.Fault != c.fault || !strings.Contains(err.Error(), c.says) || refused.Role != dap.RoleHelper {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n, err := start(bare); n != 1 || err != nil {
		t.Errorf("after what was refused: %d tasks, %v", n, err)
	}

	// What was refused as a line goes as a command, and is read by the next start.
	if err := os.WriteFile(file, []byte(bare), 0o644); err != nil {
		t.Fatal(err)
	}
	a := load(t, moved, dap.RoleHelper)
	there, err := a.ShowTask(t.Context(), &status.Named{Task: m.tasks[0].ID.Base64()})
	if err != nil || there.Source != "imported" || len(there.Made) == 0 {
		t.Fatalf("%+v, %v", there, err)
	}
	in, err := a.Amended(&there, &Task{Expected: Expected{Reports: 9}})
	if err != nil {
		t.Fatal(err)
	}
	if done, err := a.AmendTask(t.Context(), in); err != nil || !done.Now {
		t.Fatalf("%+v, %v", done, err)
	}
	if there, err = a.ShowTask(t.Context(), &status.Named{Task: there.Task}); err != nil || !bytes.Contains(there.Terms, []byte(`"expected":{"reports":9}`)) ||
		!bytes.Contains(there.Terms, []byte("peer.token")) {
		t.Errorf("terms %s, %v", there.Terms, err)
	}
	if _, err := a.ShowTask(t.Context(), &status.Named{Task: dap.TaskID{9}.Base64()}); !errors.As(err, new(*status.BadRequest)) {
		t.Errorf("a task that is not there: %v", err)
	}
	if n, err := start(string(b)); n != 1 || err != nil {
		t.Errorf("with the configuration that was imported, after a change: %d tasks, %v", n, err)
	}
	in.Terms = json.RawMessage(`{"peer_token":"nowhere.token"}`)
	if _, err := a.AmendTask(t.Context(), in); !errors.As(err, new(*status.BadRequest)) || !strings.Contains(err.Error(), "nowhere.token") {
		t.Errorf("terms of a file that is not there: %v", err)
	}
}
