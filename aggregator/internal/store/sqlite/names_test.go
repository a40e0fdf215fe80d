package sqlite_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/store/sqlite"
)

// transaction finds the calls that begin one, with its name.
var transaction = regexp.MustCompile(`\b(?:view|update|settle|snapshot)\([a-z.A-Z()]+, "([a-z-]+)"`)

// TestTransactionNames: the list has each name that the code uses and no other, once and
// in order.
func TestTransactionNames(t *testing.T) {
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var used []string
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range transaction.FindAllStringSubmatch(string(src), -1) {
			used = append(used, m[1])
		}
	}
	slices.Sort(used)
	used = slices.Compact(used)
	if got := sqlite.TransactionNames(); !slices.Equal(got, used) {
		t.Errorf("the list is\n%q, used are\n%q", got, used)
	}
}
