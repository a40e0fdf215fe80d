package deploy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// TestLibraryExample: the whole path in Go fits on a screen, and whoever types it elsewhere
// can: it imports nothing that this module keeps to itself. Nor do the examples of the two
// services.
func TestLibraryExample(t *testing.T) {
	const most = 60
	for _, path := range []string{"example_test.go", "../aggregator/leader/example_test.go", "../aggregator/helper/example_test.go"} {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			if name, err := strconv.Unquote(i.Path.Value); err != nil || strings.Contains(name, "/internal/") || strings.HasSuffix(name, "/internal") {
				t.Errorf("%s imports %s, which nobody else can: %v", path, name, err)
			}
		}
		examples := 0
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(f.Name.Name, "Example") {
				continue
			}
			examples++
			if lines := files.Position(f.End()).Line - files.Position(f.Pos()).Line + 1; lines >= most {
				t.Errorf("%s: %s has %d lines, want fewer than %d", path, f.Name.Name, lines, most)
			}
		}
		if examples == 0 {
			t.Errorf("%s has no example", path)
		}
	}
}
