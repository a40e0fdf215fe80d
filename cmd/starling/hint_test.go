package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/anonymity/gateway"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/signed"
)

// mistakes are command lines for every command that reads or writes something, without
// quotes. @ stands for each file of a world that is missing, no file, empty, cut, of
// another kind or of another world; good files of the world stand by their names.
// Commands that ask a party find nobody.
var mistakes = map[string][]string{
	"lab":              {"--keep recipe.starling/below", "--keep noise", "--keep secrets", "--rows 200 --out recipe.starling", "--recipe groups --path direct --population 200 --out recipe.starling"},
	"init":             {"leader --owner A --url https://l.example/ @", "--join @ --fingerprint 1 other", "--join new/invitations/leader.invitation --fingerprint 1 other"},
	"serve leader":     {"--check @", "empty", "missing", "--check leader.toml"},
	"serve helper":     {"--check @", "empty", "missing"},
	"serve relay":      {"--check @", "empty", "missing"},
	"serve gateway":    {"--check @", "empty", "missing"},
	"serve log":        {"--check @", "empty", "missing"},
	"serve witness":    {"--check @", "empty", "missing"},
	"serve attester":   {"--check @", "empty", "missing"},
	"serve hop":        {"--check @", "empty", "missing"},
	"serve analyzer":   {"--check @", "empty", "missing"},
	"serve controller": {"--check @", "empty", "missing"},
	"serve agent":      {"--check @", "empty", "missing"},
	"fl status":        {"@", "missing"},
	"fl start":         {"@", "missing", "--model missing missing"},
	"fl model":         {"--out x @", "@", "--out x missing"},
	"attester codes":   {"--count 3 --out @ --codes x", "--count 3 --out x --codes @", "--count 0 --out x --codes y"},
	"key issuer":       {"--role leader --keys x --out y @", "--role leader --keys x --out y recipe.starling", "--role x --keys x --out y recipe.starling"},
	"key admission":    {"--keys x --out y @", "--keys x --out y recipe.starling", "--keys x recipe.starling"},
	"log key":          {"--name a --out @", "--name a+b --out x.key"},
	"log add": {"--policy @ manifest.starling", "--policy log.policy @", "--policy log.policy manifest.starling", "--policy log.policy --withdraw @",
		"--policy log.policy --signing-key @ recipe.starling", "--policy log.policy --cohort 3 --signing-key secrets/leader.online @", "--policy log.policy --cohort 3 leader.toml"},
	"log show": {"--policy @ recipe.starling", "--policy log.policy @", "--policy log.policy"},
	"log verify": {"--policy @ recipe.starling", "--policy log.policy --anchors anchors.starling @", "--policy log.policy --anchors @ recipe.starling", "--policy log.policy --proof @",
		"--policy log.policy --anchors anchors.starling --all"},
	"recipe plan":        {"--query histogram:4", "--query x --people 5 --within 1%", "--query groups:0:9:2 --people 90 --epsilon 1 --randomizer qa"},
	"recipe new":         {"--name A --query count --min-batch 100 --epsilon 1 --leader https://a.example/ --helper https://b.example/ @"},
	"recipe again":       {"@ new.starling", "recipe.starling @"},
	"recipe show":        {"@", "recipe.starling"},
	"recipe certificate": {"@", "recipe.starling"},
	"key root":           {"--out @", "--out nowhere/recipe.starling/key"},
	"key online":         {"--root @ --out x.key", "--root secrets/leader.root --out @"},
	"key anchor":         {"--name A --domain a.example --owner A @"},
	"key collector":      {"--out @"},
	"key verify":         {"--out @"},
	"key token":          {"--out @"},
	"manifest new":       {"--key @ --out m.starling recipe.starling", "--key secrets/gateway.hpke --out @ recipe.starling", "--key secrets/gateway.hpke --out m.starling @"},
	"manifest sign":      {"--as leader --signing-key @ --record r manifest.starling recipe.starling", "--as leader --signing-key secrets/leader.online --record @ manifest.starling recipe.starling"},
	"manifest verify":    {"--anchors anchors.starling @ recipe.starling", "--anchors anchors.starling manifest.starling @", "--anchors @ manifest.starling recipe.starling"},
	"manifest show":      {"@", "manifest.starling"},
	"enrol": {"--anchors anchors.starling --credentials wallet --code @ counted.starling", "--anchors anchors.starling --credentials wallet --code code @",
		"--anchors anchors.starling --credentials @ --code code counted.starling", "--anchors @ --credentials wallet --code code counted.starling",
		"--anchors anchors.starling --credentials wallet --code code counted.starling", "--anchors anchors.starling --credentials wallet --stdin counted.starling",
		"--credentials wallet counted.starling", "--code code counted.starling"},
	"visit": {"--anchors anchors.starling --credentials wallet --policy witnessed.policy @", "--anchors anchors.starling --credentials wallet --policy @ logged.starling",
		"--anchors anchors.starling --credentials wallet --policy witnessed.policy --bundle @ logged.starling", "--anchors anchors.starling --credentials @ --policy witnessed.policy logged.starling",
		"--anchors anchors.starling --credentials wallet --policy witnessed.policy logged.starling", "--anchors anchors.starling --credentials wallet --policy witnessed.policy counted.starling",
		"--anchors anchors.starling --credentials wallet --policy log.policy logged.starling", "--anchors anchors.starling --credentials wallet logged.starling",
		"--wait --at-once --anchors anchors.starling --credentials wallet logged.starling", ""},
	"send": {"--anchors anchors.starling --credentials wallet --policy witnessed.policy counted.starling yes", "--anchors anchors.starling --credentials wallet --policy witnessed.policy logged.starling yes",
		"--anchors anchors.starling --credentials @ --policy witnessed.policy counted.starling yes", "--anchors anchors.starling --credentials wallet --policy @ counted.starling yes",
		"--anchors anchors.starling --manifest manifest.starling counted.starling yes", "--anchors anchors.starling logged.starling yes", "--credentials wallet recipe.starling yes", "--max-epsilon 0.01 @ 1", "--any-keys recipe.starling 1", "--max-epsilon 0.01 --anchors @ recipe.starling 1",
		"--max-epsilon 0.01 --anchors anchors.starling --manifest @ recipe.starling 1", "--anchors anchors.starling --csv @ --column a recipe.starling",
		"--anchors anchors.starling --ledger noise --budget 1 --manifest manifest.starling recipe.starling 1"},
	"budget":       {"@", "--recipe @ ledger"},
	"status":       {"@", "leader.toml", "relay.toml", "gateway.toml"},
	"why":          {"@", "leader.toml"},
	"task add":     {"--recipe recipe.starling @", "--recipe @ leader.toml", "leader.toml"},
	"task list":    {"@", "leader.toml"},
	"task show":    {"--task x @", "leader.toml", "--task x leader.toml"},
	"task change":  {"--task x @", "leader.toml", "--task x leader.toml", "--task x --expected 0 leader.toml"},
	"task close":   {"--task x --reason over @", "leader.toml", "--task x --reason over leader.toml"},
	"task hold":    {"@", "leader.toml"},
	"task resume":  {"@", "leader.toml"},
	"task drop":    {"@", "leader.toml"},
	"repair":       {"@", "leader.toml"},
	"backup":       {"--out b @", "--out @ leader.toml"},
	"restore":      {"--keys --yes @", "--data-keys --yes @", "--from @ --yes leader.toml", "--from nowhere --yes leader.toml"},
	"migrate":      {"@", "leader.toml"},
	"key wrapping": {"", "--out recipe.starling/x"},
	"key list":     {"@", "leader.toml"},
	"key rewrap":   {"@", "leader.toml"},
	"collect":      {"@", "collector.toml", "--png nowhere/x.png collector.toml"},
	"check":        {"@"},
	"doctor":       {"@", "leader.toml", "gateway.toml"},
	"bench e2e":    {"--vdaf x"},
	"bench report": {"--vdaf x", "--vdaf pine32 --dimension -1"},
	"account":      {"--mechanism gaussian --sigma -1 --delta 1e-8"},
	"figures":      {"--out @ nonsense", "nonsense"},
	"fl plan": {"", "--devices 10", "--devices 10 --dimension 0x", "--devices 20 --dimension 10 --sample 1/10", "--devices 100 --dimension 10 --sample x",
		"--devices 100 --dimension 10 --sample 1/2 --donate 1/2:2:1", "--devices 100 --dimension 10 --checkin fixed:1/2:8", "--devices 100 --dimension 10 --epsilon x", "--devices 100 --dimension 10 --epsilon 0", "--devices 100 --dimension 10 --delta x",
		"--devices 100 --dimension 10 --rounds 0", "--devices 100 --dimension 99999999", "--devices 100 --dimension 10 --epsilon 1e-9", "surplus"},
	"fl lab": {"", "--sites 1 --dimension 5", "--sites 2", "--sites 2 --dimension 5 --epsilon x", "--sites 2 --dimension 5 --epsilon 0", "--sites 2 --dimension 5 --delta x", "--sites 2 --dimension 5 --sample 2", "--sites 2 --dimension 5 --sample x",
		"--sites 2 --dimension 5 --round 1ms", "--sites 2 --dimension 5 --epsilon 1e9", "--sites 2 --dimension 5 more"},
	"fl train": {"--rounds 2 --out recipe.starling", "--data mnist", "--data mnist --data-dir @", "--data x", "--features x", "--model x", "--epsilon x", "--epsilon 0", "--delta 0", "--epsilon 1e-9",
		"--rounds 3 --covered 2 --out out", "--rounds 2 --out out", "--rounds 0x", "--credentials all", "--keep out", "--real --credentials senders", "--real --attackers 2", "--real --rounds 101",
		"--partition x", "--partition shards", "--adaptive-clip 2", "--correlated 1", "--correlated 2 --sample 1/2", "--noise-scale x", "--noise-scale 2", "--devices 3", "surplus"},
	"version":  {""},
	"licenses": {"", "nonsense"},
}

// TestEveryFailureHasAHint: each command, given each wrong file, ends with an exit code of
// docs/compatibility.md, an error and a hint. A failure that no exit code names (exit 1)
// has a command or a page in its hint, and more than another command's help; and of every
// hint the commands, flags and pages are there.
func TestEveryFailureHasAHint(t *testing.T) {
	t.Setenv(anchorsEnv, "")
	leaves := make(map[string]*command)
	var walk func(c *command, path string)
	walk = func(c *command, path string) {
		if c.sub == nil {
			leaves[path] = c
		}
		for _, s := range c.sub {
			walk(s, strings.TrimSpace(path+" "+s.name))
		}
	}
	walk(root(), "")
	pages, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	x := &hints{leaves: leaves, pages: pages}
	world := brokenWorld(t)
	t.Chdir(world.dir)
	ran := 0
	for path := range leaves {
		if len(mistakes[path]) == 0 {
			t.Errorf("starling %s: no mistakes are tried", path)
		}
		for _, line := range mistakes[path] {
			files := []string{""}
			if strings.Contains(line, "@") {
				files = world.bad
			}
			for _, file := range files {
				world.mend(t)
				typed := strings.TrimSpace(path + " " + strings.ReplaceAll(line, "@", file))
				code, _, stderr := inProcess(t, strings.Fields(typed))
				x.judge(t, typed, code, stderr)
				ran++
				if code == exitDone && file == "" {
					world.mend(t)
					code, stderr = intoFullDisk(t, strings.Fields(typed))
					if code == exitDone {
						t.Errorf("starling %s >/dev/full: exit code 0", typed)
					}
					x.judge(t, typed+" >/dev/full", code, stderr)
				}
			}
		}
	}
	if ran < 800 || x.judged[exitFailed] < 10 || x.judged[exitInput] < 100 {
		t.Errorf("%d command lines, by exit code %v", ran, x.judged)
	}
}

// intoFullDisk runs a command line whose output goes to a disk without room.
func intoFullDisk(t *testing.T, args []string) (code int, stderr string) {
	var e bytes.Buffer
	code = play(t.Context(), &env{stdin: strings.NewReader(""), stdout: noRoom{}, stderr: &e}, args)
	return code, e.String()
}

type noRoom struct{}

func (noRoom) Write([]byte) (int, error) {
	return 0, &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}
}

// hints judges what commands say where they fail.
type hints struct {
	leaves map[string]*command
	pages  string // the directory with docs/
	judged [256]int
}

// judge looks at the last words of one command.
func (x *hints) judge(t *testing.T, typed string, code int, stderr string) {
	t.Helper()
	x.judged[code]++
	if code == exitDone || code == exitInterrupted {
		return
	}
	_, hint, found := strings.Cut(stderr, "starling: hint: ")
	hint, _, _ = strings.Cut(hint, "\n")
	if !strings.Contains(stderr, "starling: error: ") || !found {
		t.Errorf("starling %s: exit %d, without a hint: %s", typed, code, stderr)
		return
	}
	steps, err := x.steps(hint)
	if err != nil {
		t.Errorf("starling %s: exit %d: %v: %s", typed, code, err, stderr)
	}
	if code == exitFailed && steps == 0 {
		t.Errorf("starling %s: exit 1, and its hint has neither a command to run nor a page: %s", typed, stderr)
	}
}

// TestHintsOfFailures reads the hint of each failure with exit 1 in the code: where it is
// written there, it has a command or a page. The rest are remedies, which are asked below.
func TestHintsOfFailures(t *testing.T) {
	pages, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	x, fset, found := &hints{pages: pages}, token.NewFileSet(), 0
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	is := func(e ast.Expr, name string) bool { id, ok := e.(*ast.Ident); return ok && id.Name == name }
	judge := func(hint ast.Expr) {
		found++
		var text strings.Builder
		remedy := false
		ast.Inspect(hint, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				s, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				text.WriteString(s)
			}
			sel, ok := n.(*ast.SelectorExpr)
			remedy = remedy || ok && sel.Sel.Name == "Remedy"
			return true
		})
		// An empty one is lastHint's.
		if steps, err := x.steps(text.String()); !remedy && text.Len() > 0 && (err != nil || steps == 0) {
			t.Errorf("%s: exit 1 with a hint that has neither a command to run nor a page: %s, %v", fset.Position(hint.Pos()), text.String(), err)
		}
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if is(n.Fun, "failf") && is(n.Args[0], "exitFailed") {
					judge(n.Args[1])
				}
			case *ast.CompositeLit:
				if is(n.Type, "failure") && len(n.Elts) == 3 && is(n.Elts[0], "exitFailed") {
					judge(n.Elts[2])
				}
			case *ast.ReturnStmt:
				if len(n.Results) == 2 && is(n.Results[0], "exitFailed") {
					judge(n.Results[1])
				}
			}
			return true
		})
	}
	if found < 9 {
		t.Errorf("%d failures found", found)
	}
	hints := []string{whereToLook, (&deploy.StateError{}).Remedy(), (&deploy.StateError{Newer: true}).Remedy(),
		(&gateway.StateError{}).Remedy(), (&gateway.StateError{Newer: true}).Remedy()}
	for fault := aggregator.DatabaseLost; fault <= aggregator.MarksLost; fault++ {
		hints = append(hints, (&aggregator.StoreError{Fault: fault, Role: "leader"}).Remedy())
	}
	for _, err := range []error{syscall.EADDRINUSE, disk.ErrLocked, syscall.ENOSPC, fs.ErrPermission, errors.New("another")} {
		hints = append(hints, lastHint(err))
	}
	for _, hint := range hints {
		if steps, err := x.steps(hint); err != nil || steps == 0 {
			t.Errorf("exit 1 with a hint that has neither a command to run nor a page: %s, %v", hint, err)
		}
	}
}

var (
	pageName = regexp.MustCompile(`docs/[a-z0-9-]+\.md`)
	// inHint is one command of ours, up to the end of a clause.
	inHint = regexp.MustCompile(`\bstarling ((?:[a-z0-9]|--?[a-z])[^;:,()]*)`)
	// system are commands of the operating system that hints name.
	system = regexp.MustCompile(`\b(chmod 600 |df -h|ls -l|ss -ltnp)`)
)

// steps counts the commands and pages of a hint, without those that only ask for help. It
// is an error if one of them is not there.
func (x *hints) steps(hint string) (n int, err error) {
	for _, page := range pageName.FindAllString(hint, -1) {
		if _, err := os.Stat(filepath.Join(x.pages, page)); err != nil {
			return 0, fmt.Errorf("the hint names a page that is not there: %w", err)
		}
		n++
	}
	n += len(system.FindAllString(hint, -1))
	for _, m := range inHint.FindAllStringSubmatch(hint, -1) {
		words := strings.Fields(m[1])
		c, at := root(), 0
		for at < len(words) && c.sub != nil {
			i := slices.IndexFunc(c.sub, func(s *command) bool { return s.name == words[at] })
			if i < 0 {
				break
			}
			c, at = c.sub[i], at+1
		}
		if at == 0 {
			return 0, fmt.Errorf("the hint names a command that is not there: starling %s", m[1])
		}
		helps := false
		for _, word := range words[at:] {
			name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
			switch {
			case !strings.HasPrefix(word, "--"):
				continue
			case name == "help":
				helps = true
				continue
			case c.setup == nil:
				return 0, fmt.Errorf("the hint gives a flag to a group of commands: starling %s", m[1])
			}
			flags := flag.NewFlagSet("", flag.ContinueOnError)
			c.setup(flags)
			if flags.Lookup(name) == nil {
				return 0, fmt.Errorf("the hint names a flag that is not there: %s in starling %s", word, m[1])
			}
		}
		if !helps {
			n++
		}
	}
	return n, nil
}

// TestHintsAreJudged: what is judged to be a hint.
func TestHintsAreJudged(t *testing.T) {
	pages, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	x := &hints{pages: pages}
	for hint, want := range map[string]int{
		"starling status": 1, "starling status --help": 0, "try again": 0, "starling check x; docs/operating.md": 2, "chmod 600 x": 1,
		"docs/" + "none.md": -1, "starling nonsense": -1, "starling status --nonsense": -1, "starling task --json": -1,
		"wait for the other starling send to end": 1,
	} {
		n, err := x.steps(hint)
		if err != nil {
			n = -1
		}
		if n != want {
			t.Errorf("%s: %d, want %d; %v", hint, n, want, err)
		}
	}
}

// A broken is a world with files that are wrong in each way.
type broken struct {
	dir   string
	bad   []string          // names
	files map[string][]byte // of the directory; nil for directories in it
	made  string            // what the directory looked like when it was made
}

// brokenWorld makes a deployment with all its parties, of which none runs.
func brokenWorld(t *testing.T) *broken {
	t.Helper()
	w := &broken{dir: filepath.Join(t.TempDir(), "world"), files: make(map[string][]byte)}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a, err := deploy.Loopback()
	check(err)
	a.Close()
	f, err := deploy.LoopbackFront()
	check(err)
	f.Close()
	owners, err := deploy.NewOwners()
	check(err)
	keys, err := owners.ServerKeys(true)
	check(err)
	r, err := account.New(account.Options{Name: "count", Query: recipe.Count{}, Leader: a.LeaderURL(), Helper: a.HelperURL(), MinBatch: 100,
		Epsilon: recipe.Decimal{Coefficient: 1}, Relay: &recipe.Relay{URL: f.RelayURL(), Gateway: f.GatewayURL()}, ServerKeys: keys})
	check(err)
	check(deploy.CreateFor(w.dir, r, a, owners))
	check(deploy.CreateFront(w.dir, r, f, time.Now(), time.Millisecond))
	e := &env{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
	check(root().run(context.Background(), e, "", []string{"init", "leader", "--owner", "A", "--url", "https://l.example/", filepath.Join(w.dir, "new")}))

	// Two more recipes: one counts devices, both stand in a log.
	attester := signed.Generate()
	for name, tokens := range map[string]*recipe.Tokens{"logged.starling": nil,
		"counted.starling": {Attester: "http://127.0.0.1:1/", Key: attester.Public(), Attestation: recipe.Codes, MinCohort: 1}} {
		r, err := account.New(account.Options{Name: "another", Query: recipe.Count{}, Leader: a.LeaderURL(), Helper: a.HelperURL(), MinBatch: 100,
			Epsilon: recipe.Decimal{Coefficient: 1}, Relay: &recipe.Relay{URL: f.RelayURL(), Gateway: f.GatewayURL()}, ServerKeys: keys,
			Log: &recipe.Log{Origin: "log.example"}, Tokens: tokens})
		check(err)
		_, err = writeRecipe(r, filepath.Join(w.dir, name))
		check(err)
	}
	anchors, err := deploy.ReadAnchors(filepath.Join(w.dir, deploy.AnchorsFile))
	check(err)
	check(os.WriteFile(filepath.Join(w.dir, deploy.AnchorsFile), signed.MarshalAnchors(append(anchors.List(),
		signed.Anchor{Name: "attester", Domain: "127.0.0.1", Key: attester.Public(), Owner: "A"})...), 0o600))
	check(os.WriteFile(filepath.Join(w.dir, "code"), []byte("AAAA\n"), 0o600))

	put := func(name string, b []byte) {
		check(os.WriteFile(filepath.Join(w.dir, name), b, 0o600))
		w.bad = append(w.bad, name)
	}
	log, err := tlog.Generate("log.example", tlog.Ed25519)
	check(err)
	check(os.WriteFile(filepath.Join(w.dir, "log.policy"), fmt.Appendf(nil, "log %s http://127.0.0.1:1/\nquorum none\n", log.Key()), 0o600))
	witness, err := tlog.Generate("witness.example", tlog.CosignEd)
	check(err)
	check(os.WriteFile(filepath.Join(w.dir, "witnessed.policy"), fmt.Appendf(nil, "log %s http://127.0.0.1:1/\nwitness w %s\nquorum w\n", log.Key(), witness.Key()), 0o600))
	check(os.Mkdir(filepath.Join(w.dir, "directory"), 0o700))
	w.bad = append(w.bad, "missing", "recipe.starling/below", "directory")
	put("empty", nil)
	put("noise", bytes.Repeat([]byte{0xa5, '#', '='}, 300))
	for _, name := range []string{"recipe.starling", "leader.toml", "gateway.toml", "collector.toml", "manifest.starling", "anchors.starling", "new/invitations/leader.invitation"} {
		whole, err := os.ReadFile(filepath.Join(w.dir, name))
		check(err)
		w.bad = append(w.bad, name) // of another kind, but where it is wanted
		put("cut-"+filepath.Base(name), whole[:len(whole)*2/3])
	}
	w.bad = append(w.bad, "secrets/leader.online", "secrets/collector.hpke", "secrets/peer.token")
	check(filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == w.dir {
			return err
		}
		var b []byte
		if !d.IsDir() {
			if b, err = os.ReadFile(path); b == nil {
				b = []byte{}
			}
		}
		w.files[path] = b
		return err
	}))
	w.made = w.looks(t)
	return w
}

// looks is what the directory looks like: names, sizes and times.
func (w *broken) looks(t *testing.T) string {
	t.Helper()
	var s strings.Builder
	err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			fmt.Fprintln(&s, path)
			return err
		}
		info, err := d.Info()
		if err == nil {
			fmt.Fprintln(&s, path, info.Size(), info.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.String()
}

// mend puts the world back as it was made.
func (w *broken) mend(t *testing.T) {
	t.Helper()
	if w.looks(t) == w.made {
		return
	}
	err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if _, kept := w.files[path]; err != nil || kept || path == w.dir {
			return err
		}
		if err := os.RemoveAll(path); err != nil || !d.IsDir() {
			return err
		}
		return fs.SkipDir
	})
	for _, path := range slices.Sorted(maps.Keys(w.files)) {
		if err == nil && w.files[path] == nil {
			err = os.MkdirAll(path, 0o700)
		} else if err == nil {
			err = os.WriteFile(path, w.files[path], 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	w.made = w.looks(t)
}
