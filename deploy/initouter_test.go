package deploy

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/signed"
)

// TestInitOuter makes an attester, a log and a witness, each in a directory of its own: what
// starling serve reads is there but for what others hand out, and what is printed is what
// others need of it.
func TestInitOuter(t *testing.T) {
	dir := t.TempDir()
	home := func(name string) string { return filepath.Join(dir, name) }

	a := mustInit(t, InitOptions{Dir: home("dora"), Role: AttesterRole, Owner: "Dora", URL: "https://attester.example/"})
	anchors, err := signed.ReadAnchors([]byte("starling anchors v1\n" + a.Anchor + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	root, err := signed.ParsePublicKey(a.Public[0])
	if err != nil {
		t.Fatal(err)
	}
	if anchor, ok := anchors.Find(root); !ok || anchor.Owner != "Dora" || !anchor.Holds("attester.example") {
		t.Errorf("the anchor is %+v", anchor)
	}
	online := filepath.Join(home("dora"), "secrets", "attester.online")
	s, err := ReadSigner(service.Secret(online), online+".delegation")
	if err != nil {
		t.Fatal(err)
	}
	if said, err := s.Sign("test", nil, initNow(), initNow()); err != nil || said.Delegation.Root != root {
		t.Errorf("it signs under %v, %v", said.Delegation.Root, err)
	}
	if _, err := LoadAttester(a.Config); err != nil {
		t.Error(err)
	}

	l := mustInit(t, InitOptions{Dir: home("eve"), Role: LogRole, Owner: "Eve", URL: "https://log.example/2026/"})
	if !strings.HasPrefix(l.Public[0], "log.example/2026+") {
		t.Errorf("the log's key is %s", l.Public[0])
	}
	witness := InitOptions{Dir: home("finn"), Role: WitnessRole, Owner: "Finn", URL: "https://witness.example/", Logs: l.Public}
	x := mustInit(t, witness)
	if _, err := LoadWitness(x.Config); err != nil {
		t.Error(err)
	}
	// The owner of the log puts the witness's line in the place of the comments.
	path := filepath.Join(home("eve"), PolicyFile)
	policy, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := tlog.ReadPolicy(policy); err != nil || p.Witnessed() {
		t.Errorf("a new policy: %v", err)
	}
	line := "witness one " + x.Public[0] + " https://witness.example/\ngroup enough 1 one\nquorum enough\n"
	policy = []byte(strings.Replace(string(policy), "quorum none\n", line, 1))
	if p, err := tlog.ReadPolicy(policy); err != nil || !p.Witnessed() {
		t.Errorf("with a witness: %v", err)
	}
	if err := errors.Join(os.WriteFile(path, policy, 0o644), os.WriteFile(filepath.Join(home("eve"), AnchorsFile), []byte("starling anchors v1\n"+a.Anchor+"\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadLog(l.Config); err != nil {
		t.Error(err)
	}

	// What is there stays, and who watches is not who is watched.
	for name, c := range map[string]struct {
		o    InitOptions
		want error
	}{
		"again":                        {witness, ErrExists},
		"a witness of one's own log":   {InitOptions{Dir: home("eve"), Role: WitnessRole, Owner: "Eve", URL: "https://w.example/", Logs: l.Public}, ErrApart},
		"a log beside its witness":     {InitOptions{Dir: home("finn"), Role: LogRole, Owner: "Finn", URL: "https://l.example/"}, ErrApart},
		"a leader beside the attester": {InitOptions{Dir: home("dora"), Role: LeaderRole, Owner: "Dora", URL: "https://leader.example/"}, ErrApart},
	} {
		was := snapshot(t, dir)
		c.o.Now = initNow()
		if _, err := Init(c.o); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if !maps.Equal(snapshot(t, dir), was) {
			t.Errorf("%s: something was written", name)
		}
	}
}
