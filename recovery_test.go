package starling

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// printed finds the first cell of a row of docs/recovery.md that holds words as a party
// prints them.
var printed = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|(.*)$")

// TestRecovery: what docs/recovery.md says is printed is what the code prints, once, with
// something to type. "..." stands for what differs; the parts between are of one literal.
func TestRecovery(t *testing.T) {
	literals := literals(t)
	rows := printed.FindAllStringSubmatch(read(t, "docs/recovery.md"), -1)
	if len(rows) < 5 {
		t.Fatalf("only %d rows found: is the pattern broken?", len(rows))
	}
	seen := make(map[string]bool)
	for _, row := range rows {
		words, cells := row[1], strings.Split(strings.Trim(row[2], " |"), " | ")
		if seen[words] {
			t.Errorf("%q stands there twice", words)
		}
		seen[words] = true
		if len(cells) != 3 || slices.Contains(cells, "") {
			t.Errorf("%q: %d cells after it, want what it means, what to type and what is lost", words, len(cells))
		}
		parts := strings.Split(words, "...")
		if !slices.ContainsFunc(literals, func(s string) bool { return inOrder(s, parts) }) {
			t.Errorf("nothing prints %q", words)
		}
	}
}

// inOrder says whether s has all parts, one after the other.
func inOrder(s string, parts []string) bool {
	for _, p := range parts {
		_, rest, ok := strings.Cut(s, p)
		if !ok {
			return false
		}
		s = rest
	}
	return true
}

// literals are all strings in the code that is no test.
func literals(t *testing.T) (all []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if s, err := strconv.Unquote(lit.Value); err == nil {
					all = append(all, s)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
