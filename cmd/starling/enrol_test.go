package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/attester/attestertest"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// TestEnrolByLogin: a device gets its nonce, brings an ID token with it, from a file or as it
// comes in, and is enrolled; the token for another directory, a second directory of one person
// and what is no token are refused with what to type, and so is another way than the recipe's.
func TestEnrolByLogin(t *testing.T) {
	p := attestertest.NewProvider(t)
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	at, err := deploy.LoopbackParty()
	check(err)
	t.Cleanup(at.Close)
	owners, err := deploy.NewOwners()
	check(err)
	o := account.Options{Name: "Test", Query: recipe.Count{}, Leader: "https://leader.example/", Helper: "https://helper.example/", MinBatch: 100,
		Epsilon: recipe.Decimal{Coefficient: 1}, Relay: &recipe.Relay{URL: "https://relay.example/", Gateway: "https://gateway.example/"},
		Tokens: &recipe.Tokens{Attester: at.URL(), Key: owners.Attester.Public(), Attestation: recipe.OIDC, MinCohort: 1}, Log: &recipe.Log{Origin: "log.example"}}
	o.ServerKeys, err = owners.ServerKeys(true)
	check(err)
	r, err := account.New(o)
	check(err)
	servers, err := deploy.Loopback()
	check(err)
	servers.Close()
	check(deploy.CreateFor(in("demo"), r, servers, owners))
	_, err = deploy.CreateAttester(in("demo"), at, 1)
	check(err)
	b, err := os.ReadFile(in("demo/attester.toml"))
	check(err)
	check(os.WriteFile(in("provider.pem"), p.CA(), 0o600))
	text := strings.Replace(string(b), "codes = \"codes\"", "names = \"names\"", 1) +
		"[oidc]\nissuer = \"" + p.Server.URL + "\"\naudience = \"" + attestertest.Audience + "\"\nca = \"../provider.pem\"\n"
	check(os.WriteFile(in("demo/attester.toml"), []byte(text), 0o600))
	check(root().run(t.Context(), &env{stdout: new(strings.Builder), stderr: new(strings.Builder)}, "", []string{"key", "token", "--out", in("demo/names")}))
	config, err := deploy.LoadAttester(in("demo/attester.toml"))
	check(err)
	up, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- service.Run(t.Context(), 0, func() { close(up) }, config.Parts(slog.New(slog.DiscardHandler), at)...)
	}()
	select {
	case <-up:
	case err := <-done:
		t.Fatal(err)
	}
	t.Cleanup(func() { <-done }) // its context ends before

	// The addresses are not those of anchors but for the attester's: none is asked.
	anchors := in("demo/" + deploy.AnchorsFile)
	enrol := func(stdin string, args ...string) (string, error) {
		var out strings.Builder
		e := &env{stdin: strings.NewReader(stdin), stdout: &out, stderr: new(strings.Builder)}
		err := root().run(t.Context(), e, "", append(append([]string{"enrol", "--anchors", anchors}, args...), in("demo/recipe.starling")))
		return strings.TrimSpace(out.String()), err
	}
	refused := func(err error, code int, says, hint string) {
		t.Helper()
		f := new(failure)
		if !errors.As(err, &f) || f.code != code || !strings.Contains(f.Error(), says) || !strings.Contains(f.hint, hint) {
			t.Errorf("%+v, want code %d, %q, hint %q", err, code, says, hint)
		}
	}
	nonce := func(wallet string) string {
		t.Helper()
		said, err := enrol("", "--credentials", in(wallet), "--nonce")
		check(err)
		if again, err := enrol("", "--credentials", in(wallet), "--nonce"); err != nil || again != said || len(said) != 43 {
			t.Errorf("the nonce %q, and then %q, %v", said, again, err)
		}
		return said
	}
	token := func(who, nonce string) string {
		return p.Token(t, "RS256", "rsa", p.Claims(who, nonce, time.Now()), p.RSA)
	}
	ada := token("ada", nonce("a"))
	check(os.WriteFile(in("token"), []byte(ada+"\n"), 0o600))
	_, err = enrol("", "--credentials", in("b"), "--oidc-token", in("token"))
	refused(err, exitCheck, "unproved", "--nonce "+in("demo/recipe.starling"))
	_, err = enrol("no token", "--credentials", in("a"), "--oidc-token", "-")
	refused(err, exitInput, "standard input has no ID token", "id_token")
	_, err = enrol("", "--credentials", in("a"), "--code", in("token"))
	refused(err, exitInput, "tells devices apart by oidc", "starling enrol --credentials "+in("a")+" --nonce")
	_, err = enrol("", "--credentials", in("a"), "--oidc-token", in("token"), "--nonce")
	refused(err, exitUsage, "one of them only", "enrol")
	if said, err := enrol("", "--credentials", in("a"), "--oidc-token", in("token")); err != nil || !strings.Contains(said, "this device is enrolled") {
		t.Errorf("%q, %v", said, err)
	}
	_, err = enrol(token("ada", nonce("b")), "--credentials", in("b"), "--oidc-token", "-")
	refused(err, exitCheck, "enrolled-other", "each has one")
	if said, err := enrol(token("bob", nonce("b")), "--json", "--credentials", in("b"), "--oidc-token", "-"); err != nil || !strings.Contains(said, `"enrolled": true`) {
		t.Errorf("%q, %v", said, err)
	}
	p.Down.Store(true)
	_, err = enrol("", "--credentials", in("c"), "--nonce")
	check(err)
	if err := root().run(t.Context(), &env{stdout: new(strings.Builder), stderr: new(strings.Builder)}, "",
		[]string{"visit", "--anchors", anchors, "--credentials", in("mistyped"), in("demo/recipe.starling")}); err == nil || exists(in("mistyped")) {
		t.Errorf("a directory that was mistyped is made, or %v", err)
	} else {
		refused(err, exitInput, "mistyped does not exist", "starling enrol --credentials "+in("mistyped"))
	}
}
