//go:build kms

package aggregator_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/wrap/kms/kmstest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// TestCheckKMS: a check of a helper's configuration has each key of its key management
// service wrap something, and says which line is wrong.
func TestCheckKMS(t *testing.T) {
	endpoint := kmstest.Start(t)
	keys := []string{kmstest.NewKey(t, endpoint), kmstest.NewKey(t, endpoint)}
	dir := t.TempDir()
	a, err := deploy.Loopback()
	if err != nil {
		t.Fatal(err)
	}
	rec, err := account.New(account.Options{Name: "count", Query: recipe.Count{}, Leader: a.LeaderURL(), Helper: a.HelperURL(), MinBatch: 10,
		TimePrecision: 1, Epsilon: recipe.Decimal{Coefficient: 30}})
	if err != nil {
		t.Fatal(err)
	}
	if err := deploy.Create(filepath.Join(dir, "d"), rec, a); err != nil {
		t.Fatal(err)
	}
	a.Close()
	made, err := os.ReadFile(filepath.Join(dir, "d", deploy.HelperFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "d/secrets/database"), []byte("host=/tmp dbname=x user=y"), 0o600); err != nil {
		t.Fatal(err)
	}
	credentials := kmstest.Credentials(t)
	check := func(endpoint string, keys []string) error {
		t.Helper()
		file := filepath.Join(dir, "d", "replica.toml")
		text := "engine = \"postgres\"\n" + string(made) + fmt.Sprintf("\n[database]\nfile = \"secrets/database\"\n\n[database.marks]\ndirectory = \"marks\"\n\n[database.kms]\nendpoint = %q\nregion = \"eu-central-1\"\nkeys = [\"%s\"]\ncredentials = %q\n",
			endpoint, strings.Join(keys, `", "`), credentials)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := deploy.LoadAggregator(file, dap.RoleHelper)
		if err != nil {
			return err
		}
		return c.Check()
	}
	if err := check(endpoint, keys); err != nil {
		t.Error(err)
	}
	for what, wrong := range map[string][]string{
		"no key":                         {endpoint},
		"an alias":                       {endpoint, "alias/starling"},
		"a second key that is not there": {endpoint, keys[0], "00112233-4455-6677-8899-aabbccddeeff"},
		"nobody there":                   {"http://127.0.0.1:1", keys[0]},
		"no TLS":                         {"http://kms.example", keys[0]},
	} {
		if err := check(wrong[0], wrong[1:]); err == nil || !strings.Contains(err.Error(), "database.kms") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
