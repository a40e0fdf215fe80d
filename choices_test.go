package starling

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// choiceFiles is in how many files of product code a choice of recipes may be named at
// most. A choice has a file of its own with its bytes, words, bounds, estimates and
// releases, and a list that knows it; what else names it should ask it instead. Numbers
// above the aim of 3 for randomizers, 4 for noise and 6 for queries only ever fall.
var choiceFiles = map[string]int{
	"KRR": 3, "RAPPOR": 3, "NoRandomizer": 3, "Gaussian": 11,
	"DiscreteGaussian": 14, "DiscreteLaplace": 12, "CorrelatedGaussian": 15, "NoNoise": 9,
	"Count": 17, "Sum": 16, "Mean": 19, "Histogram": 22, "Multihot": 20, "SumVec": 16, "L1BoundSum": 19, "Vector": 33,
}

// TestFilesThatNameAChoice counts them.
func TestFilesThatNameAChoice(t *testing.T) {
	named := make(map[string][]string)
	for _, p := range packages(t) {
		if testOnly(p.name()) {
			continue
		}
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for choice := range choicesIn(file, p.name() == "recipe") {
				named[choice] = append(named[choice], p.name()+"/"+name)
			}
		}
	}
	for choice, most := range choiceFiles {
		files := named[choice]
		if slices.Sort(files); len(files) == 0 {
			t.Errorf("no file names recipe.%s", choice)
		} else if len(files) > most {
			t.Errorf("recipe.%s is named in %d files, want %d:\n%s", choice, len(files), most, strings.Join(files, "\n"))
		}
	}
}

// choicesIn are the choices that a file names: as recipe.X, or in package recipe as X.
func choicesIn(file *ast.File, inside bool) map[string]bool {
	found := make(map[string]bool)
	var imported bool
	for _, i := range file.Imports {
		imported = imported || strings.Trim(i.Path.Value, `"`) == module+"/recipe" && i.Name == nil
	}
	var visit func(n ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && imported && x.Name == "recipe" && choiceFiles[n.Sel.Name] > 0 {
				found[n.Sel.Name] = true
			}
			ast.Inspect(n.X, visit) // and not Sel, which may be a field of that name
			return false
		case *ast.Field: // nor names of fields
			ast.Inspect(n.Type, visit)
			return false
		case *ast.KeyValueExpr:
			ast.Inspect(n.Value, visit)
			return false
		case *ast.Ident:
			if inside && choiceFiles[n.Name] > 0 {
				found[n.Name] = true
			}
		}
		return true
	}
	ast.Inspect(file, visit)
	return found
}
