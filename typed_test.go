package starling

import (
	"bytes"
	"encoding/json"
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
	"sync"
	"testing"
)

// A house is our product code with its types, read once from source.
type house struct {
	fset    *token.FileSet
	listed  map[string]*pkg // by import path, ours only
	checked map[string]*types.Package
	uses    map[types.Object]map[string]bool // by which of our packages, by import path
	blocks  map[types.Object]*ast.GenDecl    // of constants and variables that are declared together
	files   map[types.Object]map[string]bool // that name a type, where it is declared or used
	others  types.Importer                   // of what is not ours, from the compiler's export data
}

// typed reads all our packages, the first time.
func typed(t *testing.T) *house {
	t.Helper()
	h, err := readHouse()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

var readHouse = sync.OnceValues(func() (*house, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,GoFiles,Export", "./...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.Bytes())
	}
	h := &house{fset: token.NewFileSet(), listed: make(map[string]*pkg), checked: make(map[string]*types.Package),
		uses: make(map[types.Object]map[string]bool), blocks: make(map[types.Object]*ast.GenDecl),
		files: make(map[types.Object]map[string]bool)}
	exports := make(map[string]string)
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			pkg
			Export string
		}
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		if _, is := ours(p.ImportPath); is {
			h.listed[p.ImportPath] = &p.pkg
		} else {
			exports[p.ImportPath] = p.Export
		}
	}
	h.others = importer.ForCompiler(h.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for path := range h.listed {
		if _, err := h.Import(path); err != nil {
			return nil, err
		}
	}
	return h, nil
})

// Import checks one of our packages from source, once, so that each of its names is the
// same object wherever it is used.
func (h *house) Import(path string) (*types.Package, error) {
	p, is := h.listed[path]
	if !is {
		return h.others.Import(path)
	}
	if done := h.checked[path]; done != nil {
		return done, nil
	}
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(h.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	config, info := types.Config{Importer: h}, types.Info{Defs: make(map[*ast.Ident]types.Object), Uses: make(map[*ast.Ident]types.Object)}
	done, err := config.Check(path, h.fset, files, &info)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, o := range info.Uses {
		o = origin(o)
		if h.uses[o] == nil {
			h.uses[o] = make(map[string]bool)
		}
		h.uses[o][path] = true
	}
	for _, found := range []map[*ast.Ident]types.Object{info.Defs, info.Uses} {
		for at, o := range found {
			if _, is := o.(*types.TypeName); is {
				if h.files[o] == nil {
					h.files[o] = make(map[string]bool)
				}
				h.files[o][p.name()+"/"+filepath.Base(h.fset.Position(at.Pos()).Filename)] = true
			}
		}
	}
	for _, f := range files {
		for _, d := range f.Decls {
			if block, ok := d.(*ast.GenDecl); ok && (block.Tok == token.CONST || block.Tok == token.VAR) {
				for _, spec := range block.Specs {
					for _, name := range spec.(*ast.ValueSpec).Names {
						h.blocks[info.Defs[name]] = block
					}
				}
			}
		}
	}
	h.checked[path] = done
	return done, nil
}

// origin is what a name stands for before types were put in for its parameters.
func origin(o types.Object) types.Object {
	if f, ok := o.(*types.Func); ok {
		return f.Origin()
	}
	return o
}
