package starling

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// steps of one report; DESIGN of the way is in docs/one-report.md.
const steps = 13

// absent steps are not built yet.
var absent = map[int]string{}

var stepLine = regexp.MustCompile(`Step (\d+) of one report: from ([^,]+), to ([^.]+)\.\s*$`)

// TestWalk finds each step of one report in exactly one doc comment, and the same
// function in docs/one-report.md.
func TestWalk(t *testing.T) {
	found := map[int]string{}
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			for _, decl := range file.Decls {
				fn, ok := decl.(*ast.FuncDecl)
				if !ok || fn.Doc == nil || !strings.Contains(fn.Doc.Text(), "of one report") {
					continue
				}
				m := stepLine.FindStringSubmatch(strings.ReplaceAll(fn.Doc.Text(), "\n", " "))
				where := p.name() + "." + funcName(fn)
				if m == nil {
					t.Errorf("%s: its doc comment must end with \"Step N of one report: from X, to Y.\"", where)
					continue
				}
				n, _ := strconv.Atoi(m[1])
				if other, dup := found[n]; dup {
					t.Errorf("step %d stands at %s and at %s", n, other, where)
				}
				found[n] = where
			}
		}
	}
	guide, err := os.ReadFile("docs/one-report.md")
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= steps; n++ {
		where, why := found[n], absent[n]
		switch {
		case where == "" && why == "":
			t.Errorf("step %d stands nowhere", n)
		case where != "" && why != "":
			t.Errorf("step %d stands at %s: take it out of the absent ones", n, where)
		case where != "" && !strings.Contains(string(guide), fmt.Sprintf("| %d | `%s` |", n, where)):
			t.Errorf("docs/one-report.md: step %d must name `%s`", n, where)
		}
	}
}

func funcName(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	typ := fn.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if index, ok := typ.(*ast.IndexExpr); ok {
		typ = index.X
	}
	if id, ok := typ.(*ast.Ident); ok {
		return id.Name + "." + fn.Name.Name
	}
	return fn.Name.Name
}
