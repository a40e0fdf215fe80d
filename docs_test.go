package starling

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// pages are the README and all that stands in docs.
func pages(t *testing.T) []string {
	t.Helper()
	found := []string{"README.md", "NEWS.md", "CONTRIBUTING.md", "SECURITY.md"}
	err := filepath.WalkDir("docs", func(name string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(name, ".md") {
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestCommands: a newcomer needs the README's two commands.
func TestCommands(t *testing.T) {
	readme := read(t, "README.md")
	for _, command := range []string{"\ngo run ./cmd/starling lab\n", "\ngo test ./...\n"} {
		if strings.Count(readme, command) != 1 {
			t.Errorf("README.md must show %q once", strings.TrimSpace(command))
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)

// TestLinks: what a page links to is there.
func TestLinks(t *testing.T) {
	links := 0
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			}
		}
	}
	if links < 10 {
		t.Fatalf("only %d links found: is the pattern broken?", links)
	}
}

// TestDependencies: every module we require has its reason.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{if not (or .Indirect .Main)}}{{.Path}}{{end}}", "all").Output()
	if err != nil {
		t.Fatal(err)
	}
	reasons := read(t, "docs/dependencies.md")
	for _, module := range strings.Fields(string(out)) {
		if !strings.Contains(reasons, "| `"+module+"` |") {
			t.Errorf("docs/dependencies.md has no line for %s", module)
		}
	}
}

// domainString is every string of ours that is hashed, signed or opens a file.
var domainString = regexp.MustCompile(`^starl(ing [a-z]|[a-z]{3}$)`)

// TestRegistry: every domain string stands in docs/registry.md. What talks to people in commands is left out.
func TestRegistry(t *testing.T) {
	registry := read(t, "docs/registry.md")
	found := 0
	for _, p := range packages(t) {
		if within(p.name(), []string{"cmd", "lab", "test", "aggregator/status"}) || testOnly(p.name()) {
			continue
		}
		for _, name := range p.GoFiles {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				lit, ok := n.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					return true
				}
				s, _ := strconv.Unquote(lit.Value)
				if !domainString.MatchString(s) {
					return true
				}
				found++
				if !strings.Contains(registry, "`"+strings.TrimSpace(s)+"`") {
					t.Errorf("%s: %q is not in docs/registry.md", fset.Position(lit.Pos()), s)
				}
				return true
			})
		}
	}
	if found < 5 {
		t.Fatalf("only %d domain strings found: is the pattern broken?", found)
	}
}
