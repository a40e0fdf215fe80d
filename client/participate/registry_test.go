package participate

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// docs/registry.md lists the kinds of ledger records.
func TestRegistryDocument(t *testing.T) {
	b, err := os.ReadFile("../../docs/registry.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(b), "| ledger record | kind |\n|---|---|\n")
	want := fmt.Sprintf("| seen | %d |\n| refused | %d |\n| charge | %d |\n| begun | %d |\n", kindSeen, kindRefused, kindCharge, kindBegun)
	if !ok || !strings.HasPrefix(table, want) {
		t.Errorf("docs/registry.md does not list\n%s", want)
	}
	for _, magic := range []string{drawsMagic, markMagic, counterMagic} {
		if row := fmt.Sprintf("| `%s` |", magic); !strings.Contains(string(b), row) {
			t.Errorf("docs/registry.md does not list the file that begins with %q", magic)
		}
	}
}
