package starling

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// selected says in the test files of which packages a name stands behind a dot.
func (h *house) selected(t *testing.T) map[string]map[string]bool {
	t.Helper()
	all := make(map[string]map[string]bool)
	for path, p := range h.listed {
		names, err := filepath.Glob(filepath.Join(p.Dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok {
					if all[sel.Sel.Name] == nil {
						all[sel.Sel.Name] = make(map[string]bool)
					}
					all[sel.Sel.Name][path] = true
				}
				return true
			})
		}
	}
	return all
}

// interfaces are those that stand in our packages, and in all that these import.
func (h *house) interfaces() []*types.Interface {
	all := []*types.Interface{types.Universe.Lookup("error").Type().Underlying().(*types.Interface)}
	seen := make(map[*types.Package]bool)
	var visit func(p *types.Package)
	visit = func(p *types.Package) {
		if seen[p] {
			return
		}
		seen[p] = true
		for _, name := range p.Scope().Names() {
			if o := p.Scope().Lookup(name); isType(o) {
				if i, ok := o.Type().Underlying().(*types.Interface); ok && i.NumMethods() > 0 {
					all = append(all, i)
				}
			}
		}
		for _, q := range p.Imports() {
			visit(q)
		}
	}
	for _, p := range h.checked {
		visit(p)
	}
	return all
}

// behind reports whether a method is called, or may be, through one of the interfaces, or
// by package errors.
func behind(f *types.Func, interfaces []*types.Interface) bool {
	if slices.Contains([]string{"Is", "As", "Unwrap"}, f.Name()) {
		return true
	}
	of := types.NewPointer(receiver(f).Type())
	return slices.ContainsFunc(interfaces, func(i *types.Interface) bool {
		at, _, _ := types.LookupFieldOrMethod(i, false, nil, f.Name())
		return at != nil && types.Implements(of, i)
	})
}

// offered are the packages that outsiders import, or read what they print (doc.go): there
// a name needs no use of ours.
var offered = []string{"client", "collector", "recipe", "dap", "vdaf", "dp", "signed", "sealed", "anonymity/ohttp", "anonymity/arc", "anonymity/voprf", "anonymity/tlog",
	"shuffle/cloak", "aggregator/status", "deploy"}

// kept are exported names without a use of ours outside of their package, by package and
// name, each with the reason for which it is exported.
var kept = map[string]string{
	"aggregator/internal/payload.SweepFiles":               "it is for the start of a process that keeps its payload in files; none does yet",
	"aggregator/internal/steady.DefaultAbsence":            "it is the default of an option, and says so",
	"aggregator/internal/store/sqlite.FailNoiseAfterWrite": "its tests cut the power there, from outside",
	"aggregator/internal/store/postgres.Vault.Rewrap":      "it is for the engine's keys, which no product has yet",
	"lab.Report.Chart":      "whoever runs a lab from Go draws its report",
	"lab.Report.WorstError": "whoever runs a lab from Go compares its report with what the noise allows",
	"lab.Report.WriteCSV":   "whoever runs a lab from Go keeps its report",
}

// TestExportedNamesHaveAUse: what is exported where no outsider is meant to look (doc.go)
// has a use in another package: in product code by its type, in tests by its name. Errors
// need none.
func TestExportedNamesHaveAUse(t *testing.T) {
	h := typed(t)
	used := h.used(t)
	census, unused := 0, make(map[string]bool)
	for path, p := range h.checked {
		name, _ := ours(path)
		if name == "aggregator" || within(name, offered) && !strings.Contains(name, "internal/") || testOnly(name) || p.Name() == "main" {
			continue
		}
		for _, o := range exported(p) {
			census++
			label := name + "." + o.Name()
			if f, ok := o.(*types.Func); ok && f.Signature().Recv() != nil {
				label = name + "." + receiver(f).Name() + "." + o.Name()
			}
			if used[o] || isError(o) {
				continue
			}
			unused[label] = true
			if kept[label] == "" {
				t.Errorf("%s: %s is exported and used nowhere else", h.fset.Position(o.Pos()), label)
			}
		}
	}
	for label := range kept {
		if !unused[label] {
			t.Errorf("%s has a use, or is gone: take it off the list", label)
		}
	}
	if census < 1000 {
		t.Fatalf("only %d exported names found", census)
	}
}

// exported lists the exported names of a package, and the exported methods of its types.
func exported(p *types.Package) (all []types.Object) {
	for _, n := range p.Scope().Names() {
		o := p.Scope().Lookup(n)
		if !o.Exported() {
			continue
		}
		all = append(all, o)
		if named, ok := o.Type().(*types.Named); ok && isType(o) {
			for m := range named.Methods() {
				if m.Exported() {
					all = append(all, m)
				}
			}
		}
	}
	return all
}

func isType(o types.Object) bool { _, ok := o.(*types.TypeName); return ok }

// isError reports whether a name is an error or a type of errors: a package says all that
// can go wrong, whether or not somebody tells it apart yet.
func isError(o types.Object) bool {
	failure := types.Universe.Lookup("error").Type().Underlying().(*types.Interface)
	return types.Implements(o.Type(), failure) || isType(o) && types.Implements(types.NewPointer(o.Type()), failure)
}

// receiver is the type that a method is of.
func receiver(f *types.Func) *types.TypeName {
	of := f.Signature().Recv().Type()
	if p, ok := of.(*types.Pointer); ok {
		of = p.Elem()
	}
	return of.(*types.Named).Obj()
}

// used are the exported names of all our packages that another one uses: by name, as a
// method behind an interface, as a type within what is used, or as one of the constants of
// a block, which is read as a whole.
func (h *house) used(t *testing.T) map[types.Object]bool {
	tests, interfaces := h.selected(t), h.interfaces()
	used := make(map[types.Object]bool)
	var use func(o types.Object)
	var inside func(of types.Type)
	use = func(o types.Object) {
		if o = origin(o); used[o] || o.Pkg() == nil || h.checked[o.Pkg().Path()] == nil {
			return
		}
		used[o] = true
		inside(o.Type())
		if isType(o) {
			inside(o.Type().Underlying())
		}
	}
	inside = func(of types.Type) {
		switch of := of.(type) {
		case *types.Named:
			use(of.Obj())
			for a := range of.TypeArgs().Types() {
				inside(a)
			}
		case *types.Alias:
			use(of.Obj())
		case *types.Pointer:
			inside(of.Elem())
		case *types.Slice:
			inside(of.Elem())
		case *types.Array:
			inside(of.Elem())
		case *types.Chan:
			inside(of.Elem())
		case *types.Map:
			inside(of.Key())
			inside(of.Elem())
		case *types.Signature:
			inside(of.Params())
			inside(of.Results())
		case *types.Tuple:
			for v := range of.Variables() {
				inside(v.Type())
			}
		case *types.Struct:
			for f := range of.Fields() {
				if f.Exported() {
					inside(f.Type())
				}
			}
		case *types.Interface:
			for m := range of.Methods() {
				inside(m.Type())
			}
		}
	}
	blocks := make(map[*ast.GenDecl]bool)
	for path, p := range h.checked {
		for _, o := range exported(p) {
			outside := others(h.uses[o], path) || others(tests[o.Name()], path)
			if f, ok := o.(*types.Func); !outside && ok && f.Signature().Recv() != nil {
				outside = behind(f, interfaces)
			}
			if outside {
				if block := h.blocks[o]; block != nil {
					blocks[block] = true
				}
				use(o)
			}
		}
	}
	for o, block := range h.blocks {
		if blocks[block] {
			use(o)
		}
	}
	return used
}

// others reports whether a set has more than a path.
func others(set map[string]bool, path string) bool {
	return len(set) > 1 || len(set) == 1 && !set[path]
}
