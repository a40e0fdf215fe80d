package starling

import (
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestOptionsCanBeWritten: an importer of the module can name, or make, the type of each
// exported field of each exported record in our public packages. A type of an internal
// package is one only where a public package has another name for it. What deploy has is
// read from a file of TOML instead.
func TestOptionsCanBeWritten(t *testing.T) {
	h := typed(t)
	public := make(map[string]bool) // internal types, by their names, that have a public one
	for path, p := range h.checked {
		if internalPackage(path) || p.Name() == "main" {
			continue
		}
		for _, name := range p.Scope().Names() {
			if a, ok := p.Scope().Lookup(name).Type().(*types.Alias); ok && p.Scope().Lookup(name).Exported() {
				public[types.TypeString(types.Unalias(a), nil)] = true
			}
		}
	}
	fields := 0
	for _, path := range slices.Sorted(maps.Keys(h.checked)) {
		p := h.checked[path]
		if name, _ := ours(path); internalPackage(path) || p.Name() == "main" || testOnly(name) || name == "deploy" {
			continue
		}
		for _, name := range p.Scope().Names() {
			o := p.Scope().Lookup(name)
			record, ok := o.Type().Underlying().(*types.Struct)
			if !ok || !o.Exported() || !isType(o) {
				continue
			}
			for f := range record.Fields() {
				if !f.Exported() {
					continue
				}
				fields++
				for _, hidden := range hidden(f.Type(), public) {
					t.Errorf("%s: %s.%s.%s wants %s, which an importer cannot name", h.fset.Position(f.Pos()), p.Name(), name, f.Name(), hidden)
				}
			}
		}
	}
	if fields < 500 {
		t.Fatalf("only %d fields found", fields)
	}
}

// internalPackage reports whether importers of the module are kept from a package.
func internalPackage(path string) bool { return strings.Contains("/"+path+"/", "/internal/") }

// hidden lists the types of internal packages without a public name that have to be named
// to write a type, or to make one that is an interface.
func hidden(of types.Type, public map[string]bool) (all []string) {
	switch of := of.(type) {
	case *types.Alias:
		return hidden(types.Unalias(of), public)
	case *types.Named:
		if o := of.Obj(); o.Pkg() != nil && internalPackage(o.Pkg().Path()) {
			if _, is := ours(o.Pkg().Path()); is && !public[types.TypeString(of, nil)] {
				return []string{o.Pkg().Path() + "." + o.Name()}
			}
		}
		for a := range of.TypeArgs().Types() {
			all = append(all, hidden(a, public)...)
		}
	case *types.Pointer:
		return hidden(of.Elem(), public)
	case *types.Slice:
		return hidden(of.Elem(), public)
	case *types.Array:
		return hidden(of.Elem(), public)
	case *types.Chan:
		return hidden(of.Elem(), public)
	case *types.Map:
		return append(hidden(of.Key(), public), hidden(of.Elem(), public)...)
	case *types.Signature:
		for _, vars := range []*types.Tuple{of.Params(), of.Results()} {
			for v := range vars.Variables() {
				all = append(all, hidden(v.Type(), public)...)
			}
		}
	}
	return all
}
