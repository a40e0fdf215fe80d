package recipe_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/starling-agg/starling/recipe"
)

// docs/registry.md lists every domain string and codepoint of this package, and no other
// under its heading.
func TestRegistryDocument(t *testing.T) {
	text, err := os.ReadFile("../docs/registry.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## Recipe\n")
	if !ok {
		t.Fatal("docs/registry.md has no section \"Recipe\"")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	if want := fmt.Sprintf("`%q`", IDDomain); !strings.Contains(section, strings.ReplaceAll(want, `"`, "")) {
		t.Errorf("docs/registry.md does not list %s", want)
	}
	row := regexp.MustCompile(`(?m)^\| ([a-z-]+) \| ([0-9]+) \| ([a-z0-9-]+) \| (yes|reserved) \|$`)
	var got []Codepoint
	for _, m := range row.FindAllStringSubmatch(section, -1) {
		var value uint16
		if _, err := fmt.Sscan(m[2], &value); err != nil {
			t.Fatalf("%s: %v", m[0], err)
		}
		got = append(got, Codepoint{m[1], value, m[3], m[4] == "yes"})
	}
	if want := Codepoints(); !slices.Equal(got, want) {
		t.Errorf("docs/registry.md lists\n%v\nthe code has\n%v\n\nThe table would be:\n%s", got, want, table(want))
	}
}

func table(list []Codepoint) string {
	var b strings.Builder
	for _, c := range list {
		known := "reserved"
		if c.Known {
			known = "yes"
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %s |\n", c.Registry, c.Value, c.Name, known)
	}
	return b.String()
}

func TestCodepointsAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Codepoints() {
		for _, key := range []string{fmt.Sprint(c.Registry, c.Value), c.Registry + c.Name} {
			if seen[key] || c.Value == 0 {
				t.Errorf("%+v is taken twice or zero", c)
			}
			seen[key] = true
		}
	}
	if !strings.HasPrefix(IDDomain, "starling ") {
		t.Errorf("domain string %q", IDDomain)
	}
}

// docs/data-model.md shows the struct as the code does.
func TestDataModelDocument(t *testing.T) {
	source, err := os.ReadFile("wire.go")
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile("../docs/data-model.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, ok := strings.Cut(string(source), "//\tstruct {\n")
	shown, _, end := strings.Cut(shown, "//\t} Recipe;\n")
	if !ok || !end {
		t.Fatal("wire.go shows no struct")
	}
	if want := "struct {\n" + strings.ReplaceAll(shown, "//\t", "") + "} Recipe;\n"; !strings.Contains(string(document), want) {
		t.Errorf("docs/data-model.md does not show\n%s", want)
	}
	for _, c := range AllTags {
		if !c.Known || c.Registry != "query" && c.Registry != "noise" && c.Registry != "extension" {
			continue
		}
		if c.Name != "count" && c.Name != "none" && !strings.Contains(string(document), c.Name) {
			t.Errorf("docs/data-model.md does not say what %s %s looks like", c.Registry, c.Name)
		}
	}
}
