package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	gobuild "go/build"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var frozenUpdate = flag.Bool("frozen.update", false, "write testdata/frozen anew, for a change that NEWS.md states")

// frozen compares text with a file of testdata/frozen, line by line.
func frozen(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", "frozen", name)
	if *frozenUpdate {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	was, is := strings.Split(string(b), "\n"), strings.Split(text, "\n")
	for i := range max(len(was), len(is)) {
		if i >= len(was) || i >= len(is) || was[i] != is[i] {
			at := func(lines []string) string { return strings.Join(lines[min(i, len(lines)):min(i+3, len(lines))], "\n") }
			t.Fatalf("from line %d on %s is not what the binary does:\n%s\ninstead of\n%s\n"+
				"If the change is meant: go test ./cmd/starling -run Frozen -frozen.update, and NEWS.md", i+1, path, at(is), at(was))
		}
	}
}

// TestFrozenHelp holds what every command says of itself.
func TestFrozenHelp(t *testing.T) {
	var out strings.Builder
	var walk func(c *command, args []string)
	walk = func(c *command, args []string) {
		code, stdout, stderr := inProcess(t, append(args, "--help"))
		if code != exitDone || stderr != "" {
			t.Errorf("starling %s --help: exit code %d, %s", strings.Join(args, " "), code, stderr)
		}
		fmt.Fprintf(&out, "$ starling %s\n%s\n", strings.Join(append(args, "--help"), " "), stdout)
		for _, s := range c.sub {
			walk(s, append(slices.Clip(args), s.name))
		}
	}
	walk(root(), nil)
	frozen(t, "help.txt", out.String())
}

// inProcess runs a command line.
func inProcess(t *testing.T, args []string) (code int, stdout, stderr string) {
	t.Helper()
	var o, e bytes.Buffer
	err := root().run(t.Context(), &env{stdin: strings.NewReader(""), stdout: &o, stderr: &e}, "", args)
	code = say(&e, err)
	return code, o.String(), e.String()
}

const servers = "--leader https://leader.example/ --helper https://helper.example/"

// frozenRuns are command lines without quotes. Of each the exit code is held, whether an
// error comes with a hint, and the keys of what is printed with --json.
var frozenRuns = strings.Split(`
version --json
licenses --json
nonsense
recipe
recipe new
recipe new --name Birds --query histogram:12 --min-batch 1000 --epsilon 1 --json birds.starling `+servers+`
recipe new --name Birds --query histogram:12 --min-batch 1000 --epsilon 1 birds.starling `+servers+`
recipe new --name Birds --query histogram:x --min-batch 1000 --epsilon 1 none.starling `+servers+`
recipe new --name Birds --query sum:10 --min-batch 1 --epsilon 1 none.starling `+servers+`
recipe new --name Birds --query sum:10 --min-batch 100 --epsilon x none.starling `+servers+`
recipe new --name Crashes --query multihot:4:1 --needles 1/50:1/2 --devices 20000 --rounds 2 --min-batch 100 --epsilon 1 --relay https://relay.example/ --gateway https://leader.example/g --json crashes.starling `+servers+`
recipe new --name Votes --query histogram:12 --randomizer krr:2 --min-batch 500 --json votes.starling `+servers+`
recipe new --name Rappor --query multihot:12:12 --randomizer rappor:2 --min-batch 500 --json rappor.starling `+servers+`
recipe new --name Vectors --query vector:20:1:15 --min-batch 500 --epsilon 4 --json vectors.starling `+servers+`
recipe show birds.starling
recipe show --json birds.starling
recipe show none.starling
recipe show recipes
recipe certificate --json birds.starling
recipe certificate none.starling
recipe plan --query histogram:21 --people 20000 --within 1% --json
recipe plan --query sum:100 --people 20000 --epsilon 0.5 --rounds 10 --json
recipe plan --query groups:0:20:8 --people 20000 --path direct --epsilon 0.5 --json
recipe plan --query dots --people 10
key root --json --out leader.key
key root --out leader.key
key online --json --root leader.key --out leader.online
key collector --json --out collector.key
key root surplus
manifest show none
manifest verify none
budget none
budget
send none.starling 1
send birds.starling
send birds.starling 12
send birds.starling x
collect
status
why
task
task hold
repair
backup
restore
doctor
doctor none.toml
init
init leader
init --join none.invitation
check
check none.toml
serve
serve leader
serve helper none.toml
serve relay --check
serve gateway --check
figures nonsense
fl
fl train surplus
fl train --json --rounds 2 --out out
fl train --rounds 3 --covered 2 --out out
fl train --data mnist
fl train --epsilon 1e-9 --out out
bench nonsense
lab surplus
lab --rows many
lab --rows 5
lab --recipe nonsense
lab --json --rows 200 --out out
lab --json --recipe vector --devices 100 --dimension 50 --out out
account
account --mechanism nonsense --delta 1e-8
account --mechanism gaussian --sigma 5.1 --sampling 0.02 --steps 2500 --delta 1e-8 --json
account --mechanism gaussian --sigma 5.1 --delta 2
account --mechanism rr --epsilon0 1 --shuffle-n 10000 --delta 1e-6 --json
account --mechanism gaussian --epsilon 1 --delta 1e-8 --solve sigma --json
`, "\n")

// TestFrozenRuns holds exit codes, and the keys of JSON as it is printed.
func TestFrozenRuns(t *testing.T) {
	var out strings.Builder
	t.Run("commands", func(t *testing.T) {
		t.Chdir(t.TempDir())
		if err := os.Mkdir("recipes", 0o700); err != nil {
			t.Fatal(err)
		}
		for _, line := range frozenRuns {
			if line == "" {
				continue
			}
			code, stdout, stderr := inProcess(t, strings.Fields(line))
			fmt.Fprintf(&out, "$ starling %s\nexit %d", line, code)
			if code != exitDone && !strings.Contains(stderr, "starling: hint: ") {
				fmt.Fprint(&out, ", no hint")
			}
			fmt.Fprintln(&out)
			if strings.Contains(line+" ", "--json ") && code == exitDone {
				var v any
				if err := json.Unmarshal([]byte(stdout), &v); err != nil {
					t.Errorf("starling %s: %v\n%s", line, err, stdout)
				}
				for _, key := range keysOf(v) {
					fmt.Fprintf(&out, "  %s\n", key)
				}
			}
		}
	})
	frozen(t, "runs.txt", out.String())
}

// keysOf lists the paths to all that is no object, with its kind; elements of one list are
// one, and null is of any kind.
func keysOf(v any) []string {
	kinds := make(map[string]string)
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				walk(path+"."+k, x)
			}
			return
		case []any:
			for _, x := range v {
				walk(path+"[]", x)
			}
			if len(v) > 0 {
				return
			}
		}
		kind := map[string]string{"bool": "bool", "float64": "number", "string": "string", "[]interface {}": "list"}[fmt.Sprintf("%T", v)]
		if kinds[path] == "" {
			kinds[path] = kind
		}
	}
	walk("", v)
	var list []string
	for path, kind := range kinds {
		if kind == "" {
			kind = "null"
		}
		list = append(list, strings.TrimPrefix(path, ".")+" "+kind)
	}
	slices.Sort(list)
	return list
}

// TestFrozenKeys holds the keys of all objects that the commands can print with --json, as
// the types of what they print say.
func TestFrozenKeys(t *testing.T) {
	fset := token.NewFileSet()
	here, err := gobuild.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range here.GoFiles {
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object),
		Instances: make(map[*ast.Ident]types.Instance)}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", exportData(t))}
	if _, err := config.Check("main", fset, files, info); err != nil {
		t.Fatal(err)
	}
	printed := make(map[string]bool)
	for _, f := range files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "json" && len(n.Args) == 1 {
						for _, t := range typesOf(info, info.Types[n.Args[0]].Type) {
							for _, key := range shapeOf(t) {
								printed[key] = true
							}
						}
					}
				case *ast.CompositeLit: // the keys of an object that is put together
					for _, e := range n.Elts {
						if kv, ok := e.(*ast.KeyValueExpr); ok && isObject(info.Types[n].Type) {
							addKey(printed, info, kv.Key, kv.Value)
						}
					}
				case *ast.AssignStmt:
					for i, x := range n.Lhs {
						if at, ok := x.(*ast.IndexExpr); ok && isObject(info.Types[at.X].Type) && len(n.Rhs) == len(n.Lhs) {
							addKey(printed, info, at.Index, n.Rhs[i])
						}
					}
				}
				return true
			})
		}
	}
	if len(printed) < 100 {
		t.Fatalf("only %d keys were found", len(printed))
	}
	var list []string
	for key := range printed {
		list = append(list, key)
	}
	slices.Sort(list)
	frozen(t, "keys.txt", strings.Join(list, "\n")+"\n")
}

// typesOf is t itself or, of a parameter of a generic function, what the calls have in its
// place.
func typesOf(info *types.Info, t types.Type) (list []types.Type) {
	parameter, ok := t.(*types.TypeParam)
	if !ok {
		return []types.Type{t}
	}
	for id, made := range info.Instances {
		f, ok := info.Uses[id].(*types.Func)
		if !ok {
			continue
		}
		of := f.Signature().TypeParams()
		for i := range of.Len() {
			if of.At(i) == parameter {
				list = append(list, made.TypeArgs.At(i))
			}
		}
	}
	return list
}

// exportData opens what the compiler left of a package.
func exportData(t *testing.T) importer.Lookup {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{if .Export}}{{.ImportPath}}\t{{.Export}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		if path, file, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			files[path] = file
		}
	}
	return func(path string) (io.ReadCloser, error) {
		if files[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(files[path])
	}
}

// isObject says whether the type is map[string]any.
func isObject(t types.Type) bool {
	m, ok := t.Underlying().(*types.Map)
	return ok && types.Identical(m.Key(), types.Typ[types.String]) && types.Identical(m.Elem().Underlying(), types.NewInterfaceType(nil, nil))
}

func addKey(printed map[string]bool, info *types.Info, key, value ast.Expr) {
	name := "{}" // computed
	if v := info.Types[key].Value; v != nil {
		name = constant.StringVal(v)
	}
	printed[name] = true
	for _, below := range shapeOf(info.Types[value].Type) {
		printed[name+"."+below] = true
	}
}

// shapeOf lists the paths of keys of a value's JSON, by its type.
func shapeOf(t types.Type) []string {
	var list []string
	var walk func(path string, t types.Type, above []types.Type)
	walk = func(path string, t types.Type, above []types.Type) {
		if slices.ContainsFunc(above, func(x types.Type) bool { return types.Identical(x, t) }) {
			return // a list of its own kind
		}
		above = append(slices.Clip(above), t)
		for _, method := range []string{"MarshalJSON", "MarshalText"} {
			if m, _, _ := types.LookupFieldOrMethod(t, true, nil, method); m != nil {
				if method == "MarshalJSON" && !strings.HasPrefix(t.String(), "time.") {
					list = append(list, strings.TrimPrefix(path+".", ".")+"("+method+")")
				}
				return
			}
		}
		switch u := t.Underlying().(type) {
		case *types.Pointer:
			walk(path, u.Elem(), above)
		case *types.Slice:
			walk(path+"[]", u.Elem(), above)
		case *types.Array:
			walk(path+"[]", u.Elem(), above)
		case *types.Map:
			walk(path+"{}", u.Elem(), above)
		case *types.Struct:
			for i := range u.NumFields() {
				name, rest, _ := strings.Cut(reflect.StructTag(u.Tag(i)).Get("json"), ",")
				switch f := u.Field(i); {
				case name == "-" || !f.Exported() && !f.Embedded():
					continue
				case name == "" && f.Embedded():
					walk(path, f.Type(), above)
					continue
				case name == "":
					name = f.Name()
					fallthrough
				default:
					at := strings.TrimPrefix(path+"."+name, ".")
					list = append(list, strings.TrimSpace(at+" "+rest))
					walk(at, f.Type(), above)
				}
			}
		}
	}
	if t != nil {
		walk("", t, nil)
	}
	return list
}
