package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
)

// mostCommands is how many a newcomer may need from the sources to a first result.
const mostCommands = 12

// beyond is the heading of the page below which there is more than two parties need.
const beyond = "## Through a relay"

// commandsOf are the commands that a page has people type, those above a heading and those
// below it.
func commandsOf(t *testing.T, page, heading string) (first, rest []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	into, found := &first, false
	for line := range strings.Lines(string(text)) {
		if strings.TrimSpace(line) == heading {
			into, found = &rest, true
		} else if command, ok := strings.CutPrefix(line, "$ "); ok {
			*into = append(*into, strings.TrimSpace(command))
		}
	}
	if !found {
		t.Fatalf("%s has no %q", page, heading)
	}
	return first, rest
}

// TestFirstDeployment types every command of docs/first-deployment.md as it stands, but
// for ports, in an empty directory: two people come to a result with nothing else, and
// with a third to one through a relay.
func TestFirstDeployment(t *testing.T) {
	first, rest := commandsOf(t, "../../docs/first-deployment.md", beyond)
	if n := len(first); n > mostCommands || n < 8 || !strings.HasPrefix(first[0], "git clone ") || first[1] != "go install ./cmd/starling" {
		t.Fatalf("%d commands, want at most %d, the first two to get and to build the program: %q", n, mostCommands, first)
	}
	p := &people{t: t, dir: t.TempDir(), heard: map[string]string{},
		ports: strings.NewReplacer("8443", freePair(t), "8444", freePair(t), "8445", freePair(t), "8446", freePair(t),
			"8447", freePair(t), "8448", freePair(t), "8449", freePair(t))}
	said := p.types(first[2:])
	if result := said[len(said)-1]; !strings.Contains(result, "130 reports") || !strings.Contains(result, "epsilon 1") {
		t.Errorf("the last command prints no result:\n%s", result)
	}
	counting := slices.IndexFunc(rest, func(s string) bool { return strings.HasPrefix(s, "starling init attester ") })
	if counting < 0 || len(rest)-counting != 3 {
		t.Fatalf("who counts devices is not made at the end: %q", rest)
	}
	outer := rest[counting:]
	said = p.types(rest[:counting])
	// The gateway may hold some yet when the leader has enough.
	enough := regexp.MustCompile(`(?m)^1[0-3][0-9] reports from `)
	if n := len(said); n < 4 || !strings.Contains(said[n-4], "130 taken by the gateway") || !enough.MatchString(said[n-3]) ||
		!strings.Contains(said[n-2], "taken by the leader") || !strings.Contains(said[n-2], "130 answered by the gateway") ||
		strings.Count(said[n-1], " answers: ") < 5 || strings.Contains(said[n-1], "FAULT") {
		t.Errorf("no result came through the relay:\n%s", strings.Join(said, "\n"))
	}
	if said = p.types(outer); !strings.Contains(said[0], "starling recipe new --attester https://localhost:") || !strings.Contains(said[1], "starling init witness ") ||
		!strings.Contains(said[2], "starling serve witness ") {
		t.Errorf("no next command of who counts devices:\n%s", strings.Join(said, "\n"))
	}
	if _, err := deploy.LoadWitness(filepath.Join(p.dir, "finn", "witness.toml")); err != nil {
		t.Error(err)
	}
	for _, role := range deploy.Roles {
		if p.heard[string(role)] == "" {
			t.Errorf("nobody has read the fingerprint of the %s", role)
		}
	}
}

// people are those who type the commands of a page.
type people struct {
	t     *testing.T
	dir   string
	ports *strings.Replacer
	heard map[string]string // what one has read to the other, by role
	// logKey is what the log's owner has published.
	logKey string
}

// printedKey is the line of what is public.
var printedKey = regexp.MustCompile(`(?m)^key +(\S+)$`)

// printedFingerprint is the line that an owner reads from.
var printedFingerprint = regexp.MustCompile(`(?m)^fingerprint +(\S+)$`)

// types types commands one after the other, and returns what each has printed; a party
// runs on until the test ends.
func (p *people) types(commands []string) (said []string) {
	p.t.Helper()
	for _, command := range commands {
		command = p.ports.Replace(command)
		for role, fingerprint := range p.heard {
			command = strings.ReplaceAll(command, strings.ToUpper(role)+"-FINGERPRINT", fingerprint)
		}
		words := strings.Fields(command)
		command = strings.ReplaceAll(command, "LOG-KEY", p.logKey)
		if strings.HasPrefix(command, "starling serve ") {
			serveUntilEnd(p.t, p.dir, words)
			said = append(said, "")
			continue
		}
		c := exec.CommandContext(p.t.Context(), "sh", "-c", command)
		c.Dir = p.dir
		c.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "LC_ALL=C.UTF-8", "NO_PROXY=localhost")
		out, err := c.CombinedOutput()
		if err != nil {
			p.t.Fatalf("%s: %v\n%s", command, err, out)
		}
		if m := printedKey.FindSubmatch(out); m != nil && words[2] == "log" {
			p.logKey = string(m[1])
		}
		if m := printedFingerprint.FindSubmatch(out); m != nil && words[1] == "init" {
			p.heard[words[2]] = string(m[1])
		}
		said = append(said, string(out))
	}
	return said
}

// freePair is a port that nobody listens on, nor on the one 1000 above it, which is the
// operator's by default. Both are held until the test ends.
func freePair(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := deploy.ListenLoopback()
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		above := fmt.Sprintf("127.0.0.1:%d", port+1000)
		high, err := net.Listen("tcp", above)
		if err != nil {
			l.Close()
			continue
		}
		held := true
		for _, at := range []string{l.Addr().String(), above} {
			c, err := net.ListenPacket("udp", at)
			if held = held && err == nil; err == nil {
				t.Cleanup(func() { c.Close() })
			}
		}
		l.Close()
		high.Close()
		if held {
			return fmt.Sprint(port)
		}
	}
	t.Fatal("no two ports are free")
	return ""
}

// serveUntilEnd runs a party until the test ends, and returns when it is ready.
func serveUntilEnd(t *testing.T, dir string, words []string) {
	t.Helper()
	c := exec.Command(filepath.Join(bin, words[0]), words[1:]...)
	c.Dir, c.Env = dir, append(os.Environ(), "NO_PROXY=localhost")
	var log bytes.Buffer
	c.Stderr = &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() {
		c.Process.Signal(os.Interrupt)
		if err := <-ended; err != nil {
			t.Errorf("%q: %v\n%s", words, err, log.Bytes())
		}
	})
	local, err := localAddress(filepath.Join(dir, words[len(words)-1]))
	if err != nil {
		t.Fatal(err)
	}
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for !answers(ctx, local) {
		select {
		case <-ticker.C:
		case err := <-ended:
			ended <- nil
			t.Fatalf("%q: %v\n%s", words, err, log.Bytes())
		case <-ctx.Done():
			t.Fatalf("%q is not ready", words)
		}
	}
}

// answers says whether a party listens and takes what comes.
func answers(ctx context.Context, local service.Address) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+string(local)+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// TestInitAndCheck: the two commands, as people type them, with what may be wrong.
func TestInitAndCheck(t *testing.T) {
	dir := t.TempDir()
	run := func(args ...string) (string, int) {
		t.Helper()
		var out, messages strings.Builder
		e := &env{stdin: strings.NewReader(""), stdout: &out, stderr: &messages}
		code := say(&messages, root().run(t.Context(), e, "", args))
		return out.String() + messages.String(), code
	}
	ada, ben := filepath.Join(dir, "ada"), filepath.Join(dir, "ben")
	leader := filepath.Join(ada, "invitations", "leader.invitation")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"init"}, exitUsage, "needs a role, or --join"},
		{[]string{"init", "leader", ada}, exitUsage, "--owner"},
		{[]string{"init", "leader", "--owner", "Ada", ada}, exitInput, "url: required"},
		{[]string{"init", "collector", "--owner", "Ada", ada}, exitDone, "Still to be joined: the invitation of the leader"},
		{[]string{"init", "leader", "--owner", "Ada", "--url", "https://leader.example/", ada}, exitDone, "fingerprint  "},
		{[]string{"init", "leader", "--owner", "Ada", "--url", "https://leader.example/", ada}, exitInput, "hint: name another directory"},
		{[]string{"init", "--join", leader, ada}, exitInput, "hint: send it to the owner of the other party"},
		{[]string{"init", "helper", "--owner", "Ben", "--url", "https://helper.example/", "--join", leader, ben}, exitInput, "hint: call the owner"},
		{[]string{"init", "helper", "--owner", "Ben", "--url", "https://helper.example/", "--join", leader, "--fingerprint", exampleFingerprint, ben}, exitInput, "differs"},
		{[]string{"check", leader}, exitDone, "of the leader of Ada https://leader.example/; fingerprint "},
		{[]string{"check", leader, filepath.Join(ada, "nothing")}, exitCheck, "1 fault found"},
		{[]string{"check"}, exitUsage, "needs files"},
		{[]string{"check", "--json", filepath.Join(ada, "leader.toml")}, exitCheck, `"kind": "leader's configuration"`},
		{[]string{"serve", "helper", filepath.Join(ada, "leader.toml")}, exitInput, "it is the leader's configuration, and the helper's is wanted"},
		{[]string{"serve", "leader", filepath.Join(ada, "leader.toml")}, exitInput, "hint: starling init --join helper.invitation"},
	} {
		if out, code := run(c.args...); code != c.code || !strings.Contains(out, c.says) {
			t.Errorf("starling %s: exit code %d, want %d and %q:\n%s", strings.Join(c.args, " "), code, c.code, c.says, out)
		}
	}
	if entries, err := os.ReadDir(ben); err == nil {
		t.Errorf("a refused init left %v", entries)
	}
}

// TestEveryPartysFile: the configuration of one party is refused by every other, under
// whatever name, with the party that it is of; and starts nothing.
func TestEveryPartysFile(t *testing.T) {
	dir := t.TempDir()
	run := func(args ...string) (string, int) {
		t.Helper()
		var out strings.Builder
		e := &env{stdin: strings.NewReader(""), stdout: &out, stderr: &out}
		code := say(&out, root().run(t.Context(), e, "", args))
		return out.String(), code
	}
	for _, role := range deploy.Roles {
		args := []string{"init", string(role), "--owner", "Ada"}
		if role != deploy.CollectorRole {
			args = append(args, "--url", "https://"+string(role)+".example/")
		}
		if out, code := run(append(args, filepath.Join(dir, string(role)))...); code != exitDone {
			t.Fatalf("init %s: %s", role, out)
		}
	}
	entries := func() (names []string) {
		if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error { names = append(names, path); return err }); err != nil {
			t.Fatal(err)
		}
		return names
	}
	before := entries()
	for _, is := range deploy.Roles {
		for _, wanted := range deploy.Roles {
			if is == wanted {
				continue
			}
			args := []string{"serve", string(wanted)}
			if wanted == deploy.CollectorRole {
				args = []string{"collect"}
			}
			out, code := run(append(args, filepath.Join(dir, string(is), string(is)+".toml"))...)
			says := fmt.Sprintf("it is the %s's configuration, and the %s's is wanted", is, wanted)
			if code != exitInput || !strings.Contains(out, says) || !strings.Contains(out, "hint: ") {
				t.Errorf("%s given the %s's: exit code %d, want %d and %q:\n%s", wanted, is, code, exitInput, says, out)
			}
		}
	}
	if after := entries(); !slices.Equal(after, before) {
		t.Errorf("refusing has left %q of %q", after, before)
	}
	bad := filepath.Join(dir, "bad.toml")
	for _, text := range []string{"", "role = \"somebody\"\n", "role = 7\n", "role\n"} {
		if err := os.WriteFile(bad, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"serve", "leader", bad}, {"serve", "relay", bad}, {"collect", bad}, {"check", bad}} {
			says := "role"
			if text == "role\n" {
				says = "bad.toml:1: "
			}
			if out, code := run(args...); code != exitInput && code != exitCheck || !strings.Contains(out, says) || !strings.Contains(out, "hint: ") {
				t.Errorf("starling %s of %q: exit code %d\n%s", strings.Join(args, " "), text, code, out)
			}
		}
	}
}

// TestHintOfCertificate: who does not trust a party's certificate is told what to type, and
// not to see whether the party runs.
func TestHintOfCertificate(t *testing.T) {
	for says, err := range map[string]error{
		"SSL_CERT_FILE=DIR/certificates.pem": x509.UnknownAuthorityError{}, "is over": x509.CertificateInvalidError{Reason: x509.Expired},
		"another name": x509.HostnameError{Host: "x", Certificate: &x509.Certificate{}},
	} {
		err = fmt.Errorf("client: %w", &tls.CertificateVerificationError{Err: err})
		for _, hint := range []string{hintOfAnswer(err), hintOfAway(err, "", recipe.TwoServer{})} {
			if !strings.Contains(hint, says) {
				t.Errorf("%v: hint %q, want %q", err, hint, says)
			}
		}
	}
	if hint := hintOfAnswer(errors.New("refused")); !strings.Contains(hint, "starling status") {
		t.Errorf("of a party that is away: %q", hint)
	}
}
