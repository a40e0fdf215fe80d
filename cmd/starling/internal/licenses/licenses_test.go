package licenses

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestComplete holds the embedded list to the modules that the binary is built from.
func TestComplete(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]Module{}
	for _, m := range all {
		if m.License == "" || len(m.Text) < 200 {
			t.Errorf("%s has no terms", m.Path)
		}
		have[m.Path] = m
	}
	if !strings.Contains(have["std"].Text, "The Go Authors") {
		t.Error("the standard library's terms are missing")
	}
	cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}",
		"github.com/starling-agg/starling/cmd/starling")
	cmd.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		path, version, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || seen[path] {
			continue
		}
		seen[path] = true
		if have[path].Version != version {
			t.Errorf("%s is %s in the build and %q in the list: run go generate ./cmd/starling/internal/licenses",
				path, version, have[path].Version)
		}
	}
	if len(seen) < 3 {
		t.Errorf("go list names only %d modules", len(seen))
	}
}

// TestTerms: none of the modules binds users of the binary to more than a notice.
func TestTerms(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		for _, l := range strings.Split(m.License, " AND ") {
			switch l {
			case "Apache-2.0", "BSD-3-Clause", "MIT", "ISC", "OFL-1.1", "FTL":
			default:
				t.Errorf("%s: %s is not a licence we have agreed to", m.Path, l)
			}
		}
	}
}

// TestNotice: terms that want a credit in what comes with the binary have it in NOTICE.
func TestNotice(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("../../../../NOTICE")
	if err != nil {
		t.Fatal(err)
	}
	credits := map[string]string{"FTL": "The FreeType Project (www.freetype.org)", "OFL-1.1": "Reserved Font Name Liberation"}
	seen := map[string]bool{}
	for _, m := range all {
		for _, l := range strings.Split(m.License, " AND ") {
			if credit, ok := credits[l]; ok {
				seen[l] = true
				if !strings.Contains(strings.Join(strings.Fields(string(b)), " "), credit) {
					t.Errorf("NOTICE lacks %q, which the terms of %s want", credit, m.Path)
				}
			}
		}
	}
	for l := range credits {
		if !seen[l] {
			t.Errorf("no module is under %s any more: take its credit away", l)
		}
	}
}
