package starling

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// choiceFiles is in how many files of product code the type of a choice is named at most.
// A choice has a file of its own with its bytes, words, bounds, estimates and releases, and
// a list that knows it; what else names it should ask it instead. Numbers, above the aim of 3
// for randomizers, 4 for noise and 6 for queries or below, only ever fall.
var choiceFiles = map[string]int{
	"KRR": 3, "RAPPOR": 3, "PGR": 1, "NoRandomizer": 2, "Gaussian": 3,
	"DiscreteGaussian": 2, "DiscreteLaplace": 2, "CorrelatedGaussian": 3, "NoNoise": 3,
	"Count": 3, "Sum": 2, "Mean": 2, "Histogram": 6, "Multihot": 6, "SumVec": 2, "L1BoundSum": 3, "Vector": 6,
	"Always": 3, "Bernoulli": 3, "Importance": 2, "DonationTime": 1,
}

// TestFilesThatNameAChoice counts them, by what the compiler takes each name for.
func TestFilesThatNameAChoice(t *testing.T) {
	named := filesThatName(t, "recipe", choiceFiles)
	for choice, most := range choiceFiles {
		switch files := named[choice]; {
		case len(files) == 0:
			t.Errorf("no file names recipe.%s", choice)
		case len(files) > most:
			t.Errorf("recipe.%s is named in %d files, want %d:\n%s", choice, len(files), most, strings.Join(files, "\n"))
		case len(files) < most:
			t.Logf("recipe.%s is named in %d files, and choiceFiles still allows %d", choice, len(files), most)
		}
	}
}

// filesThatName returns the files of product code that name each of the types of a package,
// in their own package or another.
func filesThatName[T any](t *testing.T, owner string, wanted map[string]T) map[string][]string {
	t.Helper()
	fset := token.NewFileSet()
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", exportData(t))}
	named := make(map[string][]string)
	for _, p := range packages(t) {
		if testOnly(p.name()) || p.name() != owner && !slices.Contains(p.Imports, module+"/"+owner) {
			continue
		}
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		info := types.Info{Defs: make(map[*ast.Ident]types.Object), Uses: make(map[*ast.Ident]types.Object)}
		if _, err := config.Check(p.ImportPath, fset, files, &info); err != nil {
			t.Fatal(err)
		}
		for _, found := range []map[*ast.Ident]types.Object{info.Defs, info.Uses} {
			for at, o := range found {
				is, ok := o.(*types.TypeName)
				if !ok || is.Pkg() == nil || is.Pkg().Path() != module+"/"+owner || is.Parent() != is.Pkg().Scope() {
					continue
				}
				file := p.name() + "/" + filepath.Base(fset.Position(at.Pos()).Filename)
				if _, asked := wanted[is.Name()]; asked && !slices.Contains(named[is.Name()], file) {
					named[is.Name()] = append(named[is.Name()], file)
				}
			}
		}
	}
	for _, files := range named {
		slices.Sort(files)
	}
	return named
}

// exportData opens what the compiler left of a package.
func exportData(t *testing.T) importer.Lookup {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Export string }
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		files[p.ImportPath] = p.Export
	}
	return func(path string) (io.ReadCloser, error) {
		if files[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(files[path])
	}
}
