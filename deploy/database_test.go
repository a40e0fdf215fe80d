package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dap"
)

// TestDatabaseSettings: what is wrong with a database, its object storage and its marks is
// said, each with its key, before anything is asked of them.
func TestDatabaseSettings(t *testing.T) {
	const database, objects = `
[database]
file = "secrets/database"
wrapping_keys = "secrets/wrapping"
`, `endpoint = "https://s3.example"
region = "us-east-1"
bucket = "ours"
credentials = "secrets/objects"
`
	const none = "[database.marks]\nnone = true\n"
	dir, a := create(t, dap.TimeInterval)
	a.Close()
	for name, c := range map[string]struct {
		role dap.Role
		text string
		want []string // of which each fault has one
	}{
		"a helper's":               {dap.RoleHelper, database + "[database.marks]\ndirectory = \"marks\"\n", nil},
		"no marks, as is said":     {dap.RoleHelper, database + none, nil},
		"no marks":                 {dap.RoleHelper, database, []string{"database.marks: required"}},
		"marks, and none":          {dap.RoleHelper, database + none + "directory = \"marks\"\n", []string{"database.marks.none: a place is named, too"}},
		"a leader's":               {dap.RoleLeader, database + "[database.objects]\n" + objects + "[database.marks]\ndirectory = \"marks\"\n", nil},
		"marks in object storage":  {dap.RoleHelper, database + "[database.marks.objects]\n" + objects, nil},
		"marks beside uploads":     {dap.RoleLeader, database + "[database.objects]\n" + objects + "[database.marks.objects]\nprefix = \"marks/\"\n" + objects, nil},
		"nothing":                  {dap.RoleHelper, none, []string{"database.file: ", "database.wrapping_keys: "}},
		"uploads at a helper":      {dap.RoleHelper, database + none + "[database.objects]\n" + objects, []string{"a helper keeps no uploads"}},
		"half a store for uploads": {dap.RoleLeader, database + none + "[database.objects]\nprefix = \"x/\"\n", []string{"database.objects.endpoint", "database.objects.region", "database.objects.bucket", "database.objects.credentials"}},
		"half a store for marks":   {dap.RoleHelper, database + "[database.marks.objects]\nbucket = \"ours\"\n", []string{"database.marks.objects.endpoint", "database.marks.objects.region", "database.marks.objects.credentials"}},
		"marks among uploads":      {dap.RoleLeader, database + "[database.objects]\n" + objects + "[database.marks.objects]\n" + objects, []string{"give marks another bucket"}},
		"two places of marks":      {dap.RoleHelper, database + "[database.marks]\ndirectory = \"marks\"\n[database.marks.objects]\n" + objects, []string{"name one of the two"}},
	} {
		made, err := os.ReadFile(filepath.Join(dir, c.role.String()+".toml"))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "replica.toml")
		if err := os.WriteFile(file, []byte("engine = \"postgres\"\n"+string(made)+c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = LoadAggregator(file, c.role)
		if len(c.want) == 0 {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s: no fault", name)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != len(c.want) {
			t.Errorf("%s: %d faults, want %d: %v", name, len(lines), len(c.want), err)
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not said: %v", name, want, err)
			}
		}
	}
}
