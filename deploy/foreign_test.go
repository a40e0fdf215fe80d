package deploy

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/sealed"
)

// A task that has no recipe is provisioned by the configuration that its parties agreed
// on, as it is, beside tasks of recipes; task_info may be empty where its draft allows
// that.
func TestForeignTask(t *testing.T) {
	dir, a := create(t, dap.TimeInterval)
	config, err := dap.NewTaskConfiguration(dap.TaskConfiguration{
		Version: dap.Draft19, Leader: []byte(a.LeaderURL()), Helper: []byte(a.HelperURL()), TimePrecision: 60, MinBatchSize: 10,
		BatchMode: dap.LeaderSelected, VDAFType: dap.TypePrio3Count,
	})
	if err != nil {
		t.Fatal(err)
	}
	id := dap.TaskID{7}
	source := `configuration = "theirs.task"
dap = "dap-19"
id = "` + id.Base64() + `"`
	files := map[dap.Role]string{dap.RoleLeader: LeaderFile, dap.RoleHelper: HelperFile}
	rest := `
peer_token = "secrets/peer.token"
collector_token = "secrets/collector.token"
collector_hpke = "collector.hpke"
verify_keys = [{ id = 0, file = "secrets/verify.key" }]
`
	original := map[dap.Role]string{}
	for role, file := range files {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		original[role] = string(b)
	}
	load := func(role dap.Role, source string) (*material, error) {
		path := filepath.Join(dir, files[role])
		if err := os.WriteFile(path, []byte(original[role]+"\n[[tasks]]\n"+source+rest), 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := LoadAggregator(path, role)
		if err != nil {
			return nil, err
		}
		return a.read()
	}
	if err := os.WriteFile(filepath.Join(dir, "theirs.task"), config.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for role := range files {
		m, err := load(role, source)
		if err != nil {
			t.Fatalf("%v: %v", role, err)
		}
		got := m.tasks[1]
		if len(m.tasks) != 2 || len(m.recipes) != 1 || got.ID != id || got.Version != dap.Draft19 || string(got.Config) != string(config.Bytes()) ||
			got.Noise != (noise.Zero{}) || got.Calendar != nil || got.Series != nil || got.Expected.Reports != 0 {
			t.Errorf("%v: %+v of %d tasks and %d recipes", role, got.ID, len(m.tasks), len(m.recipes))
		}
		if m, err = load(role, strings.ReplaceAll(source, `id = "`+id.Base64()+`"`, "")); err != nil || m.tasks[1].ID != config.TaskID() {
			t.Errorf("%v without an id: %v", role, err)
		}
	}
	for name, c := range map[string]struct{ source, want string }{
		"of draft 18":         {strings.Replace(source, "19", "18", 1), "task_info"},
		"of no draft":         {strings.Replace(source, "19", "17", 1), "dap-17"},
		"framed as Janus":     {source + "\nframing = \"janus\"", "draft 18"},
		"with an odd id":      {strings.Replace(source, id.Base64(), "abc", 1), "id: "},
		"of nothing":          {"", "tasks[1].recipe: required"},
		"of two sources":      {source + "\nrecipe = \"recipe.starling\"", "tasks[1].configuration"},
		"a recipe's draft":    {"recipe = \"recipe.starling\"\ndap = \"dap-19\"", "the recipe says them"},
		"a recipe's id":       {"recipe = \"recipe.starling\"\nid = \"" + id.Base64() + "\"", "the recipe says them"},
		"no configuration":    {strings.Replace(source, "theirs.task", "recipe.starling", 1), "no TaskConfiguration"},
		"no such file":        {strings.Replace(source, "theirs.task", "none.task", 1), "none.task"},
		"of another's leader": {strings.Replace(source, "theirs.task", "elsewhere.task", 1), "calls this"},
	} {
		if name == "of another's leader" {
			other := *config
			other.Leader = []byte("https://other.example/")
			b, err := other.Append(nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "elsewhere.task"), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := load(dap.RoleLeader, c.source); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := load(dap.RoleLeader, strings.Replace(source, "theirs.task", "none.task", 1)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestRecipeAsForeignTask: a helper's operator who is given the configuration of a
// recipe's task, and not the recipe, would verify what devices send for the recipe, and
// release it with no noise and at any time. It is refused, under any id.
func TestRecipeAsForeignTask(t *testing.T) {
	dir, _ := create(t, dap.TimeInterval)
	checked, err := OpenRecipe(filepath.Join(dir, "recipe.starling"))
	if err != nil {
		t.Fatal(err)
	}
	r := checked.Recipe()
	config, err := r.Task()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "theirs.task"), config.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for role, file := range map[dap.Role]string{dap.RoleLeader: LeaderFile, dap.RoleHelper: HelperFile} {
		path := filepath.Join(dir, file)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"", `id = "` + dap.TaskID{7}.Base64() + `"`} {
			text := strings.Replace(string(b), `recipe = "recipe.starling"`, `configuration = "theirs.task"`+"\n"+id, 1)
			if text == string(b) {
				t.Fatalf("%s names no recipe", file)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			a, err := LoadAggregator(path, role)
			if err == nil {
				_, err = a.read()
			}
			if err == nil || !strings.Contains(err.Error(), "is named by the recipe") {
				t.Errorf("the %v, %q: %v", role, id, err)
			}
		}
	}
}

// A service whose recipes want keys of another KEM still offers what DAP demands to the
// clients of its other tasks.
func TestForeignTaskKeys(t *testing.T) {
	x25519, xwing := sealed.SuiteX25519, sealed.SuiteXWing
	for _, c := range []struct {
		kem     recipe.KEM
		foreign service.Path
		want    []sealed.Suite
	}{
		{recipe.XWing, "", []sealed.Suite{xwing}}, {recipe.XWing, "theirs.task", []sealed.Suite{x25519, xwing}},
		{recipe.X25519, "", []sealed.Suite{x25519}}, {recipe.X25519, "theirs.task", []sealed.Suite{x25519}},
	} {
		a := &Aggregator{Role: dap.RoleLeader, Tasks: []Task{{Recipe: "x"}, {Configuration: c.foreign}}}
		s, err := a.schedule([]*recipe.Recipe{{KEM: c.kem}}, nil)
		if err != nil || !slices.Equal(s.Suites, c.want) {
			t.Errorf("recipes of %v beside %q: %+v, %v", c.kem, c.foreign, s, err)
		}
	}
}
