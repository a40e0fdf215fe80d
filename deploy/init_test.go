package deploy

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy/invitation"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
)

// initNow is the time of tests; certificates made then are valid now.
func initNow() time.Time { return time.Now() }

// mustInit makes a party, or joins.
func mustInit(t *testing.T, o InitOptions) *Made {
	t.Helper()
	if o.Now.IsZero() {
		o.Now = initNow()
	}
	made, err := Init(o)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// snapshot is all that a directory holds, byte for byte: files and directories with what
// they are and who may read them. Of a directory that is not there it is empty.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil || d.IsDir() {
			all[path+"/"] = info.Mode().String()
			return err
		}
		b, err := os.ReadFile(path)
		all[path] = string(b)
		all[path+" mode"] = info.Mode().String()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func invitationOf(dir string, role Role) string {
	return filepath.Join(dir, invitationsDir, string(role)+InvitationSuffix)
}

// couple are the directories of two people: hers with collector and leader, his with a
// helper that answers her.
func couple(t *testing.T) (ada, ben string, helper *Made) {
	t.Helper()
	ada, ben = filepath.Join(t.TempDir(), "ada"), filepath.Join(t.TempDir(), "ben")
	collector := mustInit(t, InitOptions{Dir: ada, Role: CollectorRole, Owner: "Ada"})
	leader := mustInit(t, InitOptions{Dir: ada, Role: LeaderRole, Owner: "Ada", URL: "https://leader.example/"})
	if !slices.Equal(leader.Missing, []Role{HelperRole}) {
		t.Errorf("missing: %v", leader.Missing)
	}
	helper = mustInit(t, InitOptions{Dir: ben, Role: HelperRole, Owner: "Ben", URL: "https://helper.example/",
		Join:         []string{invitationOf(ada, LeaderRole), invitationOf(ada, CollectorRole)},
		Fingerprints: []string{strings.ToUpper(collector.Fingerprint), leader.Fingerprint}})
	if len(helper.Missing) > 0 || len(helper.Joined) != 2 {
		t.Errorf("%+v", helper)
	}
	return ada, ben, helper
}

// TestInit: two people who exchange nothing but invitations have a deployment: the same
// verification key and tokens for each task, others for another task, and no private key
// in the directory, or the invitation, of anybody else.
func TestInit(t *testing.T) {
	ada, ben, helper := couple(t)
	joined := mustInit(t, InitOptions{Dir: ada, Join: []string{invitationOf(ben, HelperRole)}, Fingerprints: []string{helper.Fingerprint}})
	if len(joined.Missing) > 0 {
		t.Errorf("missing: %v", joined.Missing)
	}
	seen := map[string]bool{}
	for n := range 2 {
		r, err := account.New(account.Options{Name: "Test " + string(rune('a'+n)), Query: recipe.Count{}, Leader: "https://leader.example/", Helper: "https://helper.example/",
			MinBatch: 100, Epsilon: recipe.Decimal{Coefficient: 1}})
		if err != nil {
			t.Fatal(err)
		}
		b, err := RecipeFileOf(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{ada, ben} {
			if err := os.WriteFile(filepath.Join(dir, RecipeFile), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		l, h := load(t, ada, dap.RoleLeader), load(t, ben, dap.RoleHelper)
		if err := errors.Join(l.Check(), h.Check()); err != nil {
			t.Fatal(err)
		}
		lm, err := l.read()
		if err != nil {
			t.Fatal(err)
		}
		hm, err := h.read()
		if err != nil {
			t.Fatal(err)
		}
		a, b2 := lm.tasks[0], hm.tasks[0]
		if len(a.VerifyKeys) != 1 || !maps.Equal(a.VerifyKeys, b2.VerifyKeys) || a.PeerToken == "" || a.PeerToken != b2.PeerToken {
			t.Error("leader and helper hold different keys")
		}
		c, err := LoadCollector(filepath.Join(ada, CollectorFile))
		if err != nil {
			t.Fatal(err)
		}
		_, token, _, err := c.Read()
		if err != nil || token != a.CollectorToken || token == a.PeerToken {
			t.Errorf("the collector's token is another than the leader's, %v", err)
		}
		for _, secret := range []string{token, a.PeerToken, fmt.Sprint(a.VerifyKeys[verifyKeyID])} {
			if seen[secret] {
				t.Error("two tasks share a secret")
			}
			seen[secret] = true
		}
	}
	hers, his := snapshot(t, ada), snapshot(t, ben)
	secrets := 0
	for path, text := range hers {
		if !strings.Contains(path, secretsDir) || strings.HasSuffix(path, "/") || strings.HasSuffix(path, " mode") {
			continue
		}
		secrets++
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
		for other, there := range his {
			if strings.Contains(there, text) {
				t.Errorf("%s is in %s", path, other)
			}
		}
		for other, there := range hers {
			if other != path && strings.Contains(there, text) {
				t.Errorf("%s is in %s", path, other)
			}
		}
	}
	if secrets != 4 {
		t.Errorf("%d secrets of a collector and a leader", secrets)
	}
	for _, path := range []string{filepath.Join(ada, LeaderFile), filepath.Join(ada, CollectorFile), filepath.Join(ben, HelperFile), invitationOf(ada, LeaderRole), filepath.Join(ada, RecipeFile)} {
		if c := CheckFile(path, initNow()); len(c.Faults) > 0 {
			t.Errorf("%s: %q", path, c.Faults)
		}
	}
}

// TestInitFront: a relay and a gateway of other people, and the gateway's leader.
func TestInitFront(t *testing.T) {
	ada, ben := filepath.Join(t.TempDir(), "ada"), filepath.Join(t.TempDir(), "ben")
	leader := mustInit(t, InitOptions{Dir: ada, Role: LeaderRole, Owner: "Ada", URL: "https://leader.example/"})
	gateway := mustInit(t, InitOptions{Dir: ada, Role: GatewayRole, Owner: "Ada", URL: "https://gateway.example/"})
	if leader.Fingerprint == gateway.Fingerprint || !slices.Equal(gateway.Missing, []Role{CollectorRole, HelperRole, RelayRole}) {
		t.Errorf("missing: %v", gateway.Missing)
	}
	relay := mustInit(t, InitOptions{Dir: ben, Role: RelayRole, Owner: "Ben", URL: "https://relay.example/",
		Join: []string{invitationOf(ada, GatewayRole)}, Fingerprints: []string{gateway.Fingerprint}})
	mustInit(t, InitOptions{Dir: ada, Join: []string{invitationOf(ben, RelayRole)}, Fingerprints: []string{relay.Fingerprint}})
	r, err := LoadRelay(filepath.Join(ben, RelayFile))
	if err != nil {
		t.Fatal(err)
	}
	ahead, err := r.options()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(); err != nil || ahead.Gateway != "https://gateway.example/" || ahead.Transport == nil {
		t.Errorf("the relay goes to %q, %v", ahead.Gateway, err)
	}
	g, err := LoadGateway(filepath.Join(ada, GatewayFile))
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key")
	pair, err := sealed.Generate(1, sealed.SuiteX25519)
	if err != nil {
		t.Fatal(err)
	}
	own, err := pair.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, own, 0o600); err != nil {
		t.Fatal(err)
	}
	g.Keys = []GatewayKey{{File: service.Secret(key)}}
	behind, err := g.options()
	if err != nil {
		t.Fatal(err)
	}
	if len(behind.Relays) != 1 || behind.Relays[0].Token == "" || behind.Relays[0].Token != ahead.Token || len(behind.Targets) != 1 || behind.Targets[0].URL != "https://leader.example/" {
		t.Errorf("the gateway knows %+v and goes to %+v", behind.Relays, behind.Targets)
	}
}

// TestInitRefuses: what cannot be right is refused with its reason, and leaves both
// directories as they were. TestInitKeepsApart: nobody makes, in one directory, parties
// that together know what neither may.
func TestInitKeepsApart(t *testing.T) {
	make := func(dir string, role Role, others InitOptions) error {
		o := others
		o.Dir, o.Role, o.Owner, o.URL, o.Now = dir, role, "Ada", "https://"+string(role)+".example/", initNow()
		if role == CollectorRole {
			o.URL = ""
		}
		_, err := Init(o)
		return err
	}
	for name, c := range map[string]struct {
		first []Role
		then  Role
		want  error
	}{
		"a relay beside a gateway":   {[]Role{GatewayRole}, RelayRole, ErrApart},
		"a leader beside a relay":    {[]Role{RelayRole}, LeaderRole, ErrApart},
		"a helper beside a leader":   {[]Role{CollectorRole, LeaderRole}, HelperRole, ErrApart},
		"a leader beside a helper":   {[]Role{HelperRole}, LeaderRole, ErrApart},
		"a gateway beside a leader":  {[]Role{CollectorRole, LeaderRole}, GatewayRole, nil},
		"a collector beside a relay": {[]Role{RelayRole}, CollectorRole, ErrApart},
	} {
		dir := filepath.Join(t.TempDir(), "one")
		for _, role := range c.first {
			if err := make(dir, role, InitOptions{}); err != nil {
				t.Fatalf("%s: %s: %v", name, role, err)
			}
		}
		before := snapshot(t, dir)
		if err := make(dir, c.then, InitOptions{}); !errors.Is(err, c.want) || c.want != nil && !maps.Equal(snapshot(t, dir), before) {
			t.Errorf("%s: %v, want %v and all as it was", name, err, c.want)
		}
	}

	// Two invitations and one fingerprint are no sign of a forgery.
	ada, _, _ := couple(t)
	leader, err := readInvitation(invitationOf(ada, LeaderRole))
	if err != nil {
		t.Fatal(err)
	}
	err = make(filepath.Join(t.TempDir(), "ben"), HelperRole, InitOptions{
		Join:         []string{invitationOf(ada, LeaderRole), invitationOf(ada, CollectorRole)},
		Fingerprints: []string{leader.ID().Fingerprint()},
	})
	if !errors.Is(err, ErrFingerprint) || !strings.Contains(err.Error(), "1 for 2 invitations") {
		t.Errorf("a fingerprint that is missing: %v", err)
	}
}

func TestInitRefuses(t *testing.T) {
	ada, ben, helper := couple(t)
	answer := invitationOf(ben, HelperRole)
	text, err := os.ReadFile(answer)
	if err != nil {
		t.Fatal(err)
	}
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "helper.invitation")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// Somebody in between puts a key of his own in place of Ben's.
	between, err := invitation.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	v, err := invitation.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	forged := *v
	forged.Key = between.Public()
	swapped, err := forged.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	forged = *v
	forged.Answers = []invitation.ID{{1}}
	strange, err := forged.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	strangePrint := forged.ID().Fingerprint()
	forged = *v
	forged.URL = "https://leader.example/"
	same, err := forged.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	samePrint := forged.ID().Fingerprint()
	own, err := readInvitation(invitationOf(ada, LeaderRole))
	if err != nil {
		t.Fatal(err)
	}
	apart := filepath.Join(t.TempDir(), "new")
	for name, c := range map[string]struct {
		o    InitOptions
		want error
		says string
	}{
		"truncated":               {InitOptions{Dir: ada, Join: []string{file(string(text[:len(text)-9]))}, Fingerprints: []string{helper.Fingerprint}}, invitation.ErrFormat, "its end is missing"},
		"of another version":      {InitOptions{Dir: ada, Join: []string{file(strings.Replace(string(text), "v1", "v9", 1))}, Fingerprints: []string{helper.Fingerprint}}, invitation.ErrVersion, ""},
		"changed on the way":      {InitOptions{Dir: ada, Join: []string{file(strings.Replace(string(text), "Ben", "Bob", 1))}, Fingerprints: []string{helper.Fingerprint}}, invitation.ErrDamaged, ""},
		"of somebody in between":  {InitOptions{Dir: ada, Join: []string{file(string(swapped))}, Fingerprints: []string{helper.Fingerprint}}, ErrFingerprint, "differs"},
		"nobody read it out":      {InitOptions{Dir: ada, Join: []string{answer}}, ErrFingerprint, "needed"},
		"half a fingerprint":      {InitOptions{Dir: ada, Join: []string{answer}, Fingerprints: []string{helper.Fingerprint[:19]}}, ErrFingerprint, "differs"},
		"an empty fingerprint":    {InitOptions{Dir: ada, Join: []string{answer}, Fingerprints: []string{""}}, ErrFingerprint, "differs"},
		"answered by the inviter": {InitOptions{Dir: ada, Join: []string{invitationOf(ada, LeaderRole)}, Fingerprints: []string{own.ID().Fingerprint()}}, ErrOwnInvitation, ""},
		"an answer to another":    {InitOptions{Dir: ada, Join: []string{file(string(strange))}, Fingerprints: []string{strangePrint}}, ErrStranger, "somebody else"},
		"one URL for both":        {InitOptions{Dir: ada, Join: []string{file(string(same))}, Fingerprints: []string{samePrint}}, nil, "one server would see whole reports"},
		"nobody works with it":    {InitOptions{Dir: apart, Join: []string{answer}, Fingerprints: []string{helper.Fingerprint}}, ErrStranger, "nobody"},
		"joined twice":            {InitOptions{Dir: ben, Join: []string{invitationOf(ada, LeaderRole)}, Fingerprints: []string{own.ID().Fingerprint()}}, ErrJoined, ""},
		"made twice":              {InitOptions{Dir: ada, Role: LeaderRole, Owner: "Ada", URL: "https://leader.example/"}, ErrExists, ""},
		"plain HTTP":              {InitOptions{Dir: apart, Role: LeaderRole, Owner: "Ada", URL: "http://leader.example/"}, nil, "plain HTTP"},
		"no URL":                  {InitOptions{Dir: apart, Role: LeaderRole, Owner: "Ada"}, nil, "url: required"},
		"port 99999":              {InitOptions{Dir: apart, Role: LeaderRole, Owner: "Ada", URL: "https://leader.example:99999/"}, nil, "port"},
		"an owner of two lines":   {InitOptions{Dir: apart, Role: LeaderRole, Owner: "Ada\nkey: 00", URL: "https://leader.example/"}, invitation.ErrFormat, "owner"},
		"a role of nobody":        {InitOptions{Dir: apart, Role: "judge", Owner: "Ada", URL: "https://leader.example/"}, nil, "none of"},
		"an attester beside":      {InitOptions{Dir: ada, Role: AttesterRole, Owner: "Ada", URL: "https://attester.example/"}, ErrApart, "knows devices"},
		"an invited attester":     {InitOptions{Dir: apart, Role: AttesterRole, Owner: "Ada", URL: "https://attester.example/", Join: []string{answer}, Fingerprints: []string{helper.Fingerprint}}, ErrStranger, "nobody"},
		"a log of two lines":      {InitOptions{Dir: apart, Role: LogRole, Owner: "Ada\nkey = 1", URL: "https://log.example/"}, nil, "owner"},
		"a witness of nothing":    {InitOptions{Dir: apart, Role: WitnessRole, Owner: "Ada", URL: "https://witness.example/"}, nil, "logs: required"},
		"a witness of no key":     {InitOptions{Dir: apart, Role: WitnessRole, Owner: "Ada", URL: "https://witness.example/", Logs: []string{"x"}}, nil, "logs: "},
		"a leader that follows":   {InitOptions{Dir: apart, Role: LeaderRole, Owner: "Ada", URL: "https://leader.example/", Logs: []string{"x"}}, nil, "a witness alone"},
		"no file":                 {InitOptions{Dir: ada, Join: []string{"nowhere"}, Fingerprints: []string{helper.Fingerprint}}, fs.ErrNotExist, ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := map[string]map[string]string{ada: snapshot(t, ada), ben: snapshot(t, ben), apart: {}}
			c.o.Now = initNow()
			_, err := Init(c.o)
			if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %v and %q", err, c.want, c.says)
			}
			for dir, was := range before {
				if !maps.Equal(snapshot(t, dir), was) {
					t.Errorf("%s is not as it was", dir)
				}
			}
		})
	}
	// The true answer is still taken, once; after that no other.
	mustInit(t, InitOptions{Dir: ada, Join: []string{answer}, Fingerprints: []string{helper.Fingerprint}})
	for name, path := range map[string]string{"the same": answer, "another": file(string(swapped))} {
		before := snapshot(t, ada)
		forged := *v
		forged.Key = between.Public()
		_, err := Init(InitOptions{Dir: ada, Join: []string{path}, Fingerprints: []string{helper.Fingerprint, forged.ID().Fingerprint()}, Now: initNow()})
		if !errors.Is(err, ErrJoined) || !maps.Equal(snapshot(t, ada), before) {
			t.Errorf("answered twice, %s: %v", name, err)
		}
	}
}

// TestInitSpoilt: an invitation that lost its end, wherever, or one bit anywhere, is
// refused with the file's name, for whoever has read the right fingerprint too; and the
// directory stays as it is.
func TestInitSpoilt(t *testing.T) {
	ada, _, _ := couple(t)
	// One behind a proxy has no certificate of its own in it, so there is less to spoil.
	ben := filepath.Join(t.TempDir(), "ben too")
	helper := mustInit(t, InitOptions{Dir: ben, Role: HelperRole, Owner: "Ben", URL: "https://helper.example/", Proxied: true})
	text, err := os.ReadFile(invitationOf(ben, HelperRole))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "helper.invitation")
	before, refused := snapshot(t, ada), 0
	refuse := func(what string, n int, spoilt []byte) {
		if err := os.WriteFile(path, spoilt, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Init(InitOptions{Dir: ada, Join: []string{path}, Fingerprints: []string{helper.Fingerprint}, Now: initNow()})
		of := new(InvitationError)
		if !errors.As(err, &of) || of.File != path || !errors.Is(err, invitation.ErrFormat) && !errors.Is(err, invitation.ErrDamaged) && !errors.Is(err, invitation.ErrVersion) {
			t.Errorf("%s %d: %v", what, n, err)
		}
		if !maps.Equal(snapshot(t, ada), before) {
			t.Fatalf("%s %d: the directory is not as it was", what, n)
		}
		refused++
	}
	for n := range text {
		refuse("cut at", n, text[:n])
		changed := slices.Clone(text)
		changed[n] ^= 1 << (n % 8)
		refuse("changed at", n, changed)
	}
	if refused != 2*len(text) || refused < 400 {
		t.Errorf("%d spoilt files of %d bytes", refused, len(text))
	}
	mustInit(t, InitOptions{Dir: ada, Join: []string{invitationOf(ben, HelperRole)}, Fingerprints: []string{helper.Fingerprint}})
	// One that is spoilt after it was joined is told of by whatever reads it.
	joined := invitationOf(ada, HelperRole)
	if err := os.WriteFile(joined, text[:len(text)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	before = snapshot(t, ada)
	if _, err := Init(InitOptions{Dir: ada, Role: GatewayRole, Owner: "Ada", URL: "https://gateway.example/", Now: initNow()}); err == nil || !strings.Contains(err.Error(), joined) {
		t.Errorf("another party beside a spoilt invitation: %v", err)
	}
	if c := CheckFile(filepath.Join(ada, LeaderFile), initNow()); !slices.ContainsFunc(c.Faults, func(f string) bool { return strings.Contains(f, "the helper's invitation: ") }) {
		t.Errorf("the leader's configuration with a spoilt invitation: %q", c.Faults)
	}
	if !maps.Equal(snapshot(t, ada), before) {
		t.Error("the directory is not as it was")
	}
}

// TestInitWritesAllOrNothing: where one file cannot be written none is.
func TestInitWritesAllOrNothing(t *testing.T) {
	for name, c := range map[string]struct {
		there func(dir string) error
		says  string
	}{
		"invitations is a file":        {func(dir string) error { return os.WriteFile(filepath.Join(dir, invitationsDir), nil, 0o644) }, "invitations"},
		"the certificates' is no file": {func(dir string) error { return os.Mkdir(filepath.Join(dir, CertificatesFile), 0o755) }, "is no file"},
		"a file of the same name":      {func(dir string) error { return os.WriteFile(filepath.Join(dir, LeaderFile), []byte("mine"), 0o644) }, "it is there already"},
		"a link of the same name":      {func(dir string) error { return os.Symlink("elsewhere", filepath.Join(dir, LeaderFile)) }, "it is there already"},
	} {
		dir := filepath.Join(t.TempDir(), "ada")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := c.there(dir); err != nil {
			t.Fatal(err)
		}
		list := func() (all []string) {
			if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { all = append(all, path); return err }); err != nil {
				t.Fatal(err)
			}
			return all
		}
		before := list()
		_, err := Init(InitOptions{Dir: dir, Role: LeaderRole, Owner: "Ada", URL: "https://leader.example/", Now: initNow()})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if after := list(); !slices.Equal(after, before) {
			t.Errorf("%s: there was %q, now %q", name, before, after)
		}
	}
	deep := filepath.Join(t.TempDir(), "a", "b")
	if err := os.WriteFile(filepath.Dir(deep), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Init(InitOptions{Dir: deep, Role: LeaderRole, Owner: "Ada", URL: "https://leader.example/", Now: initNow()}); err == nil {
		t.Error("a directory below a file was made")
	}
}

// TestAgreementMistakes: a configuration whose agreement does not fit its task or its
// role starts nothing, and says what is missing.
func TestAgreementMistakes(t *testing.T) {
	ada, ben, helper := couple(t)
	r, err := account.New(account.Options{Name: "Test", Query: recipe.Count{}, Leader: "https://leader.example/", Helper: "https://helper.example/",
		MinBatch: 100, Epsilon: recipe.Decimal{Coefficient: 1}})
	if err != nil {
		t.Fatal(err)
	}
	write := func(dir string, r *recipe.Recipe) {
		t.Helper()
		b, err := r.Append(nil)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, RecipeFile), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(ada, r)
	missing := new(NotJoinedError)
	if err := load(t, ada, dap.RoleLeader).Check(); !errors.As(err, &missing) || missing.Role != HelperRole {
		t.Errorf("before the helper has answered: %v", err)
	}
	mustInit(t, InitOptions{Dir: ada, Join: []string{invitationOf(ben, HelperRole)}, Fingerprints: []string{helper.Fingerprint}})
	if err := load(t, ada, dap.RoleLeader).Check(); err != nil {
		t.Fatal(err)
	}
	other, err := account.New(account.Options{Name: "Test", Query: recipe.Count{}, Leader: "https://leader.example/", Helper: "https://elsewhere.example/",
		MinBatch: 100, Epsilon: recipe.Decimal{Coefficient: 1}})
	if err != nil {
		t.Fatal(err)
	}
	write(ada, other)
	if err := load(t, ada, dap.RoleLeader).Check(); err == nil || !strings.Contains(err.Error(), `"https://elsewhere.example/"`) {
		t.Errorf("a recipe of another helper: %v", err)
	}
	write(ada, r)
	// The helper's key in place of the leader's agrees with nobody.
	for name, change := range map[string]func() error{
		"the helper's key": func() error {
			b, err := os.ReadFile(filepath.Join(ben, secretsDir, "helper.key"))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(ada, secretsDir, "leader.key"), b, 0o600)
		},
		"no key": func() error { return os.WriteFile(filepath.Join(ada, secretsDir, "leader.key"), []byte("key"), 0o600) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if err := load(t, ada, dap.RoleLeader).Check(); !errors.Is(err, invitation.ErrOwn) && !errors.Is(err, invitation.ErrKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCheckFile: all faults of a file are found at once, whatever kind it is of.
func TestCheckFile(t *testing.T) {
	dir, _ := create(t, dap.TimeInterval)
	text, err := os.ReadFile(filepath.Join(dir, LeaderFile))
	if err != nil {
		t.Fatal(err)
	}
	bad := strings.NewReplacer(`data = "leader"`, "", `peer_token = "secrets/peer.token"`, "", "[local]", "[local] #",
		`verify_keys = `, `# verify_keys = `).Replace(string(text))
	lines := strings.Split(bad, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "address = ") {
			lines[i] = `address = "127.0.0.1:99999"`
		}
	}
	path := filepath.Join(dir, "bad.toml")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	c := CheckFile(path, initNow())
	all := strings.Join(c.Faults, "\n")
	for _, want := range []string{"public: address", "local.address", "data: ", "tasks[0].verify_keys", "tasks[0].peer_token"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not among the faults:\n%s", want, all)
		}
	}
	if len(c.Faults) != 5 {
		t.Errorf("%d faults:\n%s", len(c.Faults), all)
	}
	for name, text := range map[string]string{"empty": "", "noise": "\x07\x00", "half a recipe": "\x01\x00", "half a manifest": "starling manifest v3\n",
		"half an invitation": "starling invitation v1\n", "no role": "data = 1"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if c := CheckFile(path, initNow()); len(c.Faults) != 1 {
			t.Errorf("%s: %q", name, c.Faults)
		}
	}
}

// TestCheckCertificate: the certificate behind a recipe is that recipe's, or a fault.
func TestCheckCertificate(t *testing.T) {
	made := func(epsilon uint64) (alone, proof []byte) {
		t.Helper()
		r, err := account.New(account.Options{Name: "Test", Query: recipe.Count{}, Leader: "https://leader.example/", Helper: "https://helper.example/",
			MinBatch: 100, Epsilon: recipe.Decimal{Coefficient: epsilon}})
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if proof, err = account.Certify(r); err != nil {
			t.Fatal(err)
		}
		return b, proof
	}
	path := filepath.Join(t.TempDir(), RecipeFile)
	alone, proof := made(1)
	_, others := made(2)
	for name, c := range map[string]struct {
		proof  []byte
		faults int
	}{"its own": {proof, 0}, "another recipe's": {others, 1}, "half of it": {proof[:len(proof)/2], 1}, "nothing": {nil, 1},
		"two": {slices.Concat(proof, proof), 1}, "a byte more": {append(slices.Clone(proof), 7), 1}} {
		if err := os.WriteFile(path, slices.Concat(alone, c.proof), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := CheckFile(path, initNow()); len(got.Faults) != c.faults || strings.Contains(got.Found, "proves") != (c.faults == 0) {
			t.Errorf("%s: %+v", name, got)
		}
		// A server starts without a certificate, and never with a wrong one.
		_, server := OpenRecipe(path)
		_, device := OpenCertified(path)
		if (server == nil) != (c.faults == 0 || len(c.proof) == 0) || (device == nil) != (c.faults == 0) {
			t.Errorf("%s: %v; %v", name, server, device)
		}
	}
}
