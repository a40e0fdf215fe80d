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

// TestCommands: a newcomer types the README's commands as they stand, and knows before how
// long they take.
func TestCommands(t *testing.T) {
	readme := read(t, "README.md")
	for _, command := range []string{"\ngit clone https://github.com/starling-agg/starling && cd starling\ngo run ./cmd/starling lab\n",
		"\ngo test ./...\n"} {
		if strings.Count(readme, command) != 1 {
			t.Errorf("README.md must show %q once", strings.TrimSpace(command))
		}
	}
	if said, shown := strings.Index(readme, "The first build takes"), strings.Index(readme, "]("+"docs/lab.png)"); said < 0 || said > shown {
		t.Error("README.md must say how long the first build takes before it shows what comes of it")
	}
}

// TestHeadings: no page says the same thing twice, as a merge of two changes may leave it.
func TestHeadings(t *testing.T) {
	headings := 0
	for _, page := range pages(t) {
		seen := map[string]bool{}
		for line := range strings.Lines(read(t, page)) {
			if !strings.HasPrefix(line, "## ") {
				continue
			}
			headings++
			if seen[line] {
				t.Errorf("%s has two sections %q", page, strings.TrimSpace(line))
			}
			seen[line] = true
		}
	}
	if headings < 40 {
		t.Fatalf("only %d sections found", headings)
	}
}

// TestIndex: the README leads to every page of docs; to proofs and measurements as folders.
func TestIndex(t *testing.T) {
	readme := read(t, "README.md")
	for _, page := range pages(t) {
		if dir := filepath.ToSlash(filepath.Dir(page)); strings.Count(dir, "/") > 0 {
			page = dir
		}
		if page = filepath.ToSlash(page); page != "README.md" && !strings.Contains(readme, "]("+page+")") {
			t.Errorf("README.md does not lead to %s", page)
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

// docPath is a page or a picture of ours as it is named in Go code and in prose.
var docPath = regexp.MustCompile(`\bdocs/[a-z0-9/-]+\.(?:md|png|svg)\b`)

// TestPaths: a page that code or another page names by its path is there.
func TestPaths(t *testing.T) {
	files := pages(t)
	err := filepath.WalkDir(".", func(name string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(name, ".go") {
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range files {
		if name == "docs_test.go" {
			continue
		}
		for _, path := range docPath.FindAllString(read(t, name), -1) {
			found++
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s names %s: %v", name, path, err)
			}
		}
	}
	if found < 20 {
		t.Fatalf("only %d paths found: is the pattern broken?", found)
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

// TestRegistry: every domain string stands in docs/registry.md. What talks to people in
// commands is left out.
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

// cited is a proof that Go code cites, with the theorems or sections that it means.
var cited = regexp.MustCompile(`docs/proofs/([a-z-]+)\.md(?:, (theorem|section)s? (\d)(?: and (\d))?)?`)

// TestProofs: every proof that the code cites is there with the theorem or section, every
// proof is cited, and every test that a proof names is one.
func TestProofs(t *testing.T) {
	proofs := map[string]string{}
	files, err := filepath.Glob("docs/proofs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		proofs[strings.TrimSuffix(filepath.Base(name), ".md")] = read(t, name)
	}
	var code strings.Builder
	parts := 0
	seen := map[string]bool{}
	for _, p := range packages(t) {
		names, err := filepath.Glob(filepath.Join(p.Dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text := read(t, name)
			code.WriteString(text)
			for _, m := range cited.FindAllStringSubmatch(text, -1) {
				proof, ok := proofs[m[1]]
				if seen[m[1]] = true; !ok {
					t.Errorf("%s cites %s, which is not there", name, m[0])
				}
				for _, number := range m[3:] {
					if number == "" {
						continue
					}
					parts++
					heading := "\n## " + number + ". "
					if m[2] == "theorem" {
						heading = "\n## Theorem " + number + ": "
					}
					if !strings.Contains(proof, heading) {
						t.Errorf("%s cites %s; the proof has no %q", name, m[0], strings.TrimSpace(heading))
					}
				}
			}
		}
	}
	if parts < 10 {
		t.Errorf("only %d theorems and sections cited: is the pattern broken?", parts)
	}
	for name, proof := range proofs {
		if !seen[name] {
			t.Errorf("no code cites docs/proofs/%s.md", name)
		}
		for _, test := range regexp.MustCompile(`Test[A-Z]\w+`).FindAllString(proof, -1) {
			if !strings.Contains(code.String(), "\nfunc "+test+"(") {
				t.Errorf("docs/proofs/%s.md names %s, which is no test", name, test)
			}
		}
	}
}
