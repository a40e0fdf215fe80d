package starling

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/starling-agg/starling"

// floors, from the ground up: a package may import packages of its own wing and of lower
// floors.
var floors = [][]string{
	{"internal/wire", "internal/faults", "internal/pgserver"},
	{"internal/disk", "sealed", "internal/endpoint", "internal/prose", "internal/outward", "internal/buffer"},
	{"internal/service", "signed", "internal/binomial", "internal/body", "internal/draw", "internal/search"},
	{"anonymity"},
	{"dp"},
	{"vdaf", "shuffle/cloak"}, // which recipes state and devices draw; who shuffles stands far above
	{"dap", "shuffle/onion"},  // what devices ship and recipes fix of a shuffle; who shuffles stands far above
	{"recipe", "internal/exchange", "internal/releases"},
	{"fl/session"}, // what devices and controllers tell each other; who trains stands above
	{"internal/logged", "internal/showing", "internal/pgdb"},
	{"aggregator"},
	{"client", "collector", "shuffle"},
	{"fl"}, // whose agent is a client
	{"internal/uploads", "internal/pgjournal"},
	{"deploy"},
	{"lab", "figures"},
	{"cmd", "test"},
}

// stories are the floors inside a wing, where it has many rooms: a package there may import
// those of its own room and of lower stories.
var stories = map[string][][]string{
	"aggregator/internal": {
		{"amazon"},
		{"datakey", "lost", "payload", "permit", "record", "room", "steady", "wrap"},
		{"segment"},
		{"store"},
		{"lease", "mend", "task"},
		{"release", "retire", "verify", "watch"},
		{"agreement", "rounds"},
		{"peer"},
		{"edge"},
		{"party"},
	},
	"anonymity":                  {{"internal"}, {"ohttp", "arc", "voprf", "tlog"}, {"admission", "visit"}, {"relay", "gateway", "logserver", "witness", "issuer", "attester", "mint"}},
	"anonymity/gateway/internal": {{"answer", "journal"}, {"forward"}},
	"fl":                         {{"internal", "images", "model", "optimizer", "session", "outlook"}, {"simulator", "round", "checkin"}, {"train", "agent"}, {"baseline"}},
	"shuffle":                    {{"cloak", "onion", "internal/derand"}, {"internal/order"}, {"internal/party"}, {"hop", "analyzer"}},
	"vdaf/internal":              {{"kernel"}, {"field", "derand"}, {"flp", "xof"}},
}

// parties meet only in bytes; deploy, lab, cmd and tests alone know more than one.
var parties = []string{"client", "collector", "aggregator/leader", "aggregator/helper", "anonymity/relay", "anonymity/gateway", "anonymity/logserver", "anonymity/witness",
	"anonymity/issuer", "anonymity/attester", "anonymity/mint", "shuffle/hop", "shuffle/analyzer"}

// bans hold for everything a package reaches, not just for what it names.
var bans = []struct {
	who    []string // packages and all below them
	never  []string // import paths (ours without the module path) and all below them
	except []string
	why    string
}{
	{[]string{"vdaf", "dp", "dap", "recipe", "shuffle/cloak", "shuffle/onion", "shuffle/internal/order"}, []string{"net/http", "database/sql", "os/exec"}, nil,
		"pure: what is proved about them must not depend on a network, a database or a process"},
	{[]string{"vdaf", "dp", "shuffle/cloak"}, []string{"log", "log/slog"}, nil,
		"pure: code that handles shares and noise has no way to print them"},
	{[]string{"client"}, []string{"dp/accountant", "dp/amplify", "dp/calculator", "recipe/account"}, nil,
		"a device takes what a prover says of a recipe, and ships no accountant that it does not ask"},
	{[]string{"recipe"}, []string{"dp/accountant", "dp/amplify", "dp/calculator"}, []string{"recipe/account", "recipe/plan"},
		"who reads a recipe needs no accountant; recipe/account asks it"},
	{[]string{"client"}, []string{"aggregator", "internal/service", "database/sql", "github.com/ncruces/go-sqlite3"}, nil,
		"a device ships this: no server code, no database"},
	{[]string{"collector"}, []string{"aggregator", "database/sql"}, nil,
		"who may see only sums cannot read an aggregator's store"},
	{[]string{"client", "collector", "anonymity", "recipe", "dap", "aggregator"}, []string{"github.com/aws"},
		[]string{"aggregator/internal/payload/objects", "aggregator/internal/wrap/kms", "aggregator/internal/wrap/keeper", "aggregator/internal/amazon",
			"aggregator/internal/party", "aggregator/leader", "aggregator/helper", "aggregator/database"},
		"a cloud's SDK is behind two interfaces: what keeps reports asks five calls, what wraps keys two, which the services open, and nobody else speaks to a cloud at all"},
	{[]string{"client", "collector", "anonymity", "recipe", "dap", "aggregator", "shuffle", "fl"}, []string{"github.com/jackc"},
		[]string{"aggregator/internal/store/postgres", "aggregator/internal/party", "aggregator/leader", "aggregator/helper", "aggregator/database"},
		"a database that others can reach is one engine of the aggregator's store, which its services open and its owner migrates; what a controller keeps there deploy hands it, and no other party has one"},
	{[]string{"client", "collector", "anonymity", "recipe", "dap", "aggregator"}, []string{"github.com/coreos", "github.com/go-jose", "golang.org/x/oauth2"}, []string{"anonymity/attester"},
		"who a person is, by an identity provider, is the attester's business alone"},
	{[]string{"shuffle"}, []string{"aggregator", "client", "collector", "recipe", "dap", "vdaf", "anonymity"}, nil,
		"the shuffled path is another than that of two servers, and shares the mathematics with it alone"},
	{[]string{"shuffle/hop", "shuffle/internal/party"}, []string{"shuffle/cloak", "dp"}, nil,
		"who mixes messages has no code that reads one"},
	{[]string{"aggregator"}, []string{"client", "collector"}, nil,
		"who must not make or open reports in the clear cannot call the code that does"},
	{[]string{"anonymity"}, []string{"dap", "vdaf", "dp", "recipe", "aggregator", "client", "collector"}, nil,
		"who must not link people to reports cannot even parse them"},
	{[]string{"anonymity/tlog"}, []string{"net/http", "database/sql", "os/exec"}, nil,
		"pure: a device verifies a log with it offline, and fetches nothing by it"},
	{[]string{"anonymity/logserver", "anonymity/witness"}, []string{"anonymity/ohttp", "sealed"}, nil,
		"who keeps or watches a log sees what is public, and holds no code that opens a message"},
	{[]string{"anonymity/visit"}, []string{"net/http", "database/sql", "os/exec"}, nil,
		"pure: a device reads and writes these messages, and so do those who must not link them"},
	{[]string{"anonymity/issuer", "anonymity/attester"}, []string{"anonymity/ohttp", "anonymity/voprf", "sealed"}, nil,
		"who gives out credentials sees no report and no way of one"},
	{[]string{"anonymity/mint"}, []string{"anonymity/ohttp", "sealed"}, nil,
		"who gives out tokens opens no request of a device, though the gateway's process does"},
	{[]string{"anonymity/relay"}, []string{"anonymity/ohttp", "anonymity/arc", "anonymity/voprf", "anonymity/admission", "anonymity/tlog", "anonymity/gateway", "sealed", "signed", "internal/disk"}, nil,
		"who sees addresses has no code that opens a message, and none that stores anything"},
	{[]string{"anonymity/arc", "anonymity/voprf", "anonymity/admission", "anonymity/internal/p256"}, []string{"net", "database/sql", "os/exec", "log", "internal/disk"}, nil,
		"pure: what is proved about credentials depends on no network, clock or store, and code that handles their secrets cannot print or keep them"},
	{[]string{"anonymity/gateway/internal/forward", "anonymity/gateway/internal/journal"},
		[]string{"anonymity/ohttp", "sealed", "anonymity/voprf", "anonymity/gateway/internal/answer"}, nil,
		"what speaks with the leader holds no request, key or answer of a device, so nothing of the leader's reaches one"},
	{[]string{"anonymity/gateway/internal/answer"},
		[]string{"anonymity/gateway/internal/forward", "anonymity/gateway/internal/journal"}, nil,
		"what answers devices knows nothing of the leader, nor of what is kept for it"},
	{[]string{"anonymity"}, []string{"internal/service", "deploy"}, nil,
		"a relay and a gateway are told what to do; no file of theirs tells it to code that sees people or reports"},
	{[]string{"anonymity/ohttp"}, []string{"database/sql", "os/exec"}, nil,
		"a device ships this: no server code, no database"},
	{[]string{"fl/agent"}, []string{"dp/accountant", "dp/amplify", "dp/calculator", "recipe/account", "aggregator", "collector", "internal/service", "database/sql"}, nil,
		"an agent is a device: it checks certificates, and has no accountant and no server's code"},
	{[]string{"fl"}, []string{"net/http", "database/sql", "os/exec", "client", "collector", "aggregator", "internal/service"}, []string{"fl/agent"},
		"a simulation has no party and no network: what it says of the running system, a test holds against that"},
	{[]string{"fl/model"}, []string{"recipe", "dp", "vdaf"}, nil,
		"what devices train knows nothing of how it is reported"},
	{[]string{"dp/release"}, []string{"dp/accountant", "dp/amplify", "dp/certificate", "dp/noise", "internal/outward"}, nil,
		"everybody who speaks of privacy takes its words from here, and a device reads them without anything else"},
	{[]string{"dp/amplify", "dp/certificate", "dp/noise", "dp/local", "dp/correlated"}, []string{"dp/accountant", "dp/calculator"}, nil,
		"what the accountant stands on, or what checks it, knows nothing of it"},
	{[]string{"dp/certificate"}, []string{"dp/amplify"}, nil,
		"a certificate is checked without what made it: an error there is found here"},
	{[]string{"aggregator/internal"}, []string{"aggregator/leader", "aggregator/helper"}, nil,
		"what both parties stand on knows neither"},
	{[]string{"aggregator/internal"}, []string{"aggregator/backup"}, []string{"aggregator/internal/party"},
		"a backup copies what a store says of itself; the party alone, which both services are made of, offers one"},
	{[]string{"internal/disk", "sealed", "signed"}, []string{"dap", "vdaf", "dp", "recipe", "aggregator", "client", "collector"}, nil,
		"the ground floor knows bytes only"},
}

type pkg struct {
	ImportPath, Dir        string
	Imports, Deps, GoFiles []string
}

func (p *pkg) name() string { return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/") }

func packages(t *testing.T) []*pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps,GoFiles,Dir", "./...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	var all []*pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(pkg)
		if err := dec.Decode(p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 10 {
		t.Fatalf("go list found only %d packages", len(all))
	}
	return all
}

// within reports whether the package is one of the roots or below one.
func within(name string, roots []string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return name == r || strings.HasPrefix(name, r+"/") })
}

func ours(path string) (string, bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

func floorOf(name string) int {
	return slices.IndexFunc(floors, func(f []string) bool { return within(name, f) })
}

// testOnly packages hold derandomised twins and harnesses; products may not import them.
func testOnly(name string) bool {
	return strings.HasSuffix(name, "test") || within(name, []string{"test"})
}

func TestImportsGoDown(t *testing.T) {
	for _, p := range packages(t) {
		from := p.name()
		if from == "" {
			continue
		}
		level := floorOf(from)
		if level < 0 {
			t.Errorf("%s stands on no floor: add it to the plan in doc.go and here", from)
			continue
		}
		for _, path := range p.Imports {
			to, ok := ours(path)
			if !ok {
				continue
			}
			if within(to, []string{wingOf(from, floors[level])}) {
				continue
			}
			if floorOf(to) >= level {
				t.Errorf("%s imports %s, which is not on a lower floor", from, to)
			}
		}
	}
}

// wingOf is the one of the roots that a package is in.
func wingOf(name string, roots []string) string {
	return roots[slices.IndexFunc(roots, func(r string) bool { return within(name, []string{r}) })]
}

// TestImportsGoDownInside is TestImportsGoDown for the stories of a wing.
func TestImportsGoDownInside(t *testing.T) {
	all := packages(t)
	for wing, rooms := range stories {
		full := slices.Clone(rooms)
		for i := range full {
			full[i] = slices.Clone(full[i])
			for j, room := range full[i] {
				full[i][j] = wing + "/" + room
			}
		}
		storyOf := func(name string) int {
			return slices.IndexFunc(full, func(f []string) bool { return within(name, f) })
		}
		used := map[string]bool{}
		for _, p := range all {
			from := p.name()
			if !strings.HasPrefix(from, wing+"/") {
				continue
			}
			level := storyOf(from)
			if level < 0 {
				t.Errorf("%s stands on no story of %s: add it here", from, wing)
				continue
			}
			room := wingOf(from, full[level])
			used[room] = true
			for _, path := range p.Imports {
				to, ok := ours(path)
				if ok && strings.HasPrefix(to, wing+"/") && !within(to, []string{room}) && storyOf(to) >= level {
					t.Errorf("%s imports %s, which is not on a lower story", from, to)
				}
			}
		}
		for _, room := range slices.Concat(full...) {
			if !used[room] {
				t.Errorf("no package is in %s", room)
			}
		}
	}
}

func TestBans(t *testing.T) {
	imports := imports(t)
	for _, p := range packages(t) {
		for _, ban := range bans {
			if !within(p.name(), ban.who) || within(p.name(), ban.except) || testOnly(p.name()) {
				continue
			}
			for _, path := range reached(p, imports) {
				to, isOurs := ours(path)
				if !isOurs {
					to = path
				}
				if within(to, ban.never) {
					t.Errorf("%s reaches %s: %s", p.name(), to, ban.why)
				}
			}
		}
	}
}

// tables are packages of others that hold data and no way to anything, whatever they
// import for the sake of an interface.
var tables = []string{
	"golang.org/x/net/publicsuffix", // imports net/http/cookiejar, whose interface its list fits
}

// imports lists what each package that ours reach imports.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		names := strings.Fields(line)
		all[names[0]] = names[1:]
	}
	for _, table := range tables {
		if all[table] == nil {
			t.Errorf("nothing imports %s", table)
		}
		all[table] = nil
	}
	return all
}

// reached lists the packages that a package imports, and those that these import, and so
// on.
func reached(p *pkg, imports map[string][]string) []string {
	seen := map[string]bool{}
	var list []string
	var visit func(names []string)
	visit = func(names []string) {
		for _, name := range names {
			if !seen[name] {
				seen[name] = true
				list = append(list, name)
				visit(imports[name])
			}
		}
	}
	visit(p.Imports)
	return list
}

func TestPartiesMeetOnlyInBytes(t *testing.T) {
	for _, p := range packages(t) {
		if within(p.name(), []string{"deploy", "lab", "cmd", "test"}) {
			continue
		}
		for _, path := range p.Deps {
			to, ok := ours(path)
			if !ok {
				continue
			}
			for _, party := range parties {
				// An agent is the client of a device whose processes come and go.
				if agent := party == "client" && within(p.name(), []string{"fl/agent"}); within(to, []string{party}) && !within(p.name(), []string{party}) && !agent {
					t.Errorf("%s reaches the party %s; only deploy, lab, cmd and tests know parties", p.name(), to)
				}
			}
		}
	}
}

// TestProductCode reads every file that ships: no test library, no toy randomness, no
// exit below cmd.
func TestProductCode(t *testing.T) {
	banned := map[string]string{
		"testing":      "product code never imports testing",
		"math/rand":    "randomness is cryptographic",
		"math/rand/v2": "randomness is cryptographic",
		"unsafe":       "memory safety is part of the guarantee",
	}
	for _, p := range packages(t) {
		if testOnly(p.name()) {
			continue
		}
		for _, path := range p.Imports {
			if to, ok := ours(path); ok && testOnly(to) {
				t.Errorf("%s imports %s, which is for tests only", p.name(), to)
			}
		}
		for _, name := range p.GoFiles {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, imp := range file.Imports {
				path, _ := strconv.Unquote(imp.Path.Value)
				if why, bad := banned[path]; bad {
					t.Errorf("%s/%s imports %s: %s", p.name(), name, path, why)
				}
			}
			if within(p.name(), []string{"cmd"}) {
				continue
			}
			pure := within(p.name(), []string{"vdaf", "dp", "dap", "recipe", "anonymity/arc", "anonymity/voprf", "shuffle/cloak", "shuffle/onion"})
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && within(p.name(), []string{"aggregator"}) && len(call.Args) == 1 {
					if method, ok := call.Fun.(*ast.SelectorExpr); ok && method.Sel.Name == "Sample" {
						t.Errorf("%s: a server's noise is a function of a data key and of what it covers: noise.Key.Sample", fset.Position(call.Pos()))
					}
				}
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				x, ok := sel.X.(*ast.Ident)
				if !ok {
					return true
				}
				call := x.Name + "." + sel.Sel.Name
				if call == "os.Exit" || strings.HasPrefix(call, "log.Fatal") {
					t.Errorf("%s: %s below cmd: return an error", fset.Position(n.Pos()), call)
				}
				if pure && slices.Contains([]string{"time.Now", "time.Sleep", "time.After", "time.Tick"}, call) {
					t.Errorf("%s: %s in a pure package: take the time as an argument", fset.Position(n.Pos()), call)
				}
				return true
			})
		}
	}
}

// TestSlackIsSaidOnce: no file has a factor 1 + 1e-12, or the like, of its own;
// internal/outward has each with its reason, and what is wider has a name where it is
// used.
func TestSlackIsSaidOnce(t *testing.T) {
	files := 0
	for _, p := range packages(t) {
		if within(p.name(), []string{"internal/outward"}) || testOnly(p.name()) {
			continue
		}
		for _, name := range p.GoFiles {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files++
			ast.Inspect(file, func(n ast.Node) bool {
				if slack := inlineSlack(n); slack != "" {
					t.Errorf("%s: %s: take internal/outward's, or give it a name and a reason", fset.Position(n.Pos()), slack)
				}
				return true
			})
		}
	}
	if files < 200 {
		t.Fatalf("only %d files read", files)
	}
}

// inlineSlack is what a node has of slack written out: 1 give or take a small number, or
// such a number handed to internal/outward.
func inlineSlack(n ast.Node) string {
	small := func(x ast.Expr) bool {
		if v, ok := literal(x); ok {
			return v > 0 && v < 1e-2
		}
		if product, ok := x.(*ast.BinaryExpr); ok && product.Op == token.MUL {
			v, ok := literal(product.X)
			return ok && v > 0 && v < 1e-2
		}
		return false
	}
	switch n := n.(type) {
	case *ast.BinaryExpr:
		one, ok := literal(n.X)
		if other, otherOK := literal(n.Y); otherOK && other == 1 && n.Op == token.ADD && small(n.X) {
			return "a number and 1"
		}
		if ok && one == 1 && (n.Op == token.ADD || n.Op == token.SUB) && small(n.Y) {
			return "1 give or take a number"
		}
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.SelectorExpr)
		if !ok {
			return ""
		}
		if x, ok := f.X.(*ast.Ident); ok && x.Name == "outward" && slices.ContainsFunc(n.Args, small) {
			return "outward." + f.Sel.Name + " of a number"
		}
	}
	return ""
}

// literal is the value of a number that is written out.
func literal(x ast.Expr) (float64, bool) {
	lit, ok := x.(*ast.BasicLit)
	if !ok || lit.Kind != token.FLOAT && lit.Kind != token.INT {
		return 0, false
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(lit.Value, "_", ""), 64)
	return v, err == nil
}

// TestInlineSlack: what TestSlackIsSaidOnce looks for is found where it is, and not
// elsewhere.
func TestInlineSlack(t *testing.T) {
	for code, want := range map[string]bool{
		"x * (1 + 1e-12)": true, "x*(1-1e-9)": true, "1e-6 + 1": true, "1 + 0x1p-40": true, "1 + 1e-15*n": true, "outward.Widened(x, 5e-6)": true,
		"1 + slack": false, "1 - 0.5": false, "2 + 1e-12": false, "outward.Up(x)": false, "1e-300 + x": false, "f(1e-9)": false, "1 + n*ulp": false,
	} {
		expr, err := parser.ParseExpr(code)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		ast.Inspect(expr, func(n ast.Node) bool { found = found || inlineSlack(n) != ""; return true })
		if found != want {
			t.Errorf("%s: slack %v, want %v", code, found, want)
		}
	}
}

// TestFloors: every wing stands on one floor and is drawn once, and the plan in doc.go
// names every package that others may import, each wing on a line of its own.
func TestFloors(t *testing.T) {
	seen := map[string]bool{}
	for _, wing := range slices.Concat(floors...) {
		if seen[wing] {
			t.Errorf("%s stands on two floors", wing)
		}
		seen[wing] = true
	}
	house, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	plan := map[string]string{} // the lines of a wing by its name
	var names []string          // of the wings that the last line began
	for line := range strings.Lines(string(house)) {
		wings, found := strings.CutPrefix(line, "//\t")
		if !found {
			continue
		}
		if wings[0] == ' ' { // goes on with what the line before began
			for _, name := range names {
				plan[name] += wings
			}
			continue
		}
		first := strings.Fields(wings)[0]
		if plan[first] != "" {
			t.Errorf("doc.go has two lines of %s", first)
		}
		names = strings.Fields(wings[:min(19, len(wings))]) // two wings may share a line
		for _, name := range names {
			plan[name] = wings
		}
	}
	named := 0
	for _, p := range packages(t) {
		path := strings.TrimPrefix(p.ImportPath, module+"/")
		wing, rest, inside := strings.Cut(path, "/")
		if path == module || !inside || strings.Contains(path, "internal/") || wing == "cmd" || wing == "test" || strings.HasSuffix(path, "test") {
			continue
		}
		named++
		if !strings.Contains(" "+strings.NewReplacer(":", " ", ",", " ", ";", " ", "/", " ", "\n", " ").Replace(plan[wing])+" ", " "+filepath.Base(rest)+" ") {
			t.Errorf("doc.go does not name %s", path)
		}
	}
	if named < 15 {
		t.Fatalf("only %d packages looked for", named)
	}
}

// TestPackageComments: every package says what it is for.
func TestPackageComments(t *testing.T) {
	for _, p := range packages(t) {
		documented := false
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			documented = documented || file.Doc != nil
		}
		if !documented && len(p.GoFiles) > 0 {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

// TestNoReplace: no module of the repository replaces another, so that each is built from
// what it says. A workspace puts a module together with the product.
func TestNoReplace(t *testing.T) {
	found := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "go.mod" && d.Name() != "go.work" {
			return err
		}
		found++
		b, err := os.ReadFile(path)
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(strings.TrimSpace(line), "replace") {
				t.Errorf("%s: %s", path, strings.TrimSpace(line))
			}
		}
		return err
	})
	if err != nil || found < 3 {
		t.Errorf("%d files, %v", found, err)
	}
}
