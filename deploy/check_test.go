package deploy

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
)

// wantFaults holds what is said of a file to what is wrong with it: a line for each, and
// no line for anything else.
func wantFaults(t *testing.T, c *Checked, want ...string) {
	t.Helper()
	left := slices.Clone(c.Faults)
	for _, w := range want {
		i := slices.IndexFunc(left, func(fault string) bool { return strings.Contains(fault, w) })
		if i < 0 {
			t.Errorf("%s: %q is not among the faults", c.Kind, w)
			continue
		}
		left = slices.Delete(left, i, i+1)
	}
	if len(left) > 0 {
		t.Errorf("%s: faults that nobody made: %q", c.Kind, left)
	}
}

// TestCheckAll: all that is wrong with the configuration of any party is said at once: of
// itself and of the files that it names, with keys that nobody knows among it.
func TestCheckAll(t *testing.T) {
	for role, c := range map[Role]struct {
		lines string
		want  []string
	}{
		LeaderRole: {`role = "leader"
hpke_key_delay = "1h"
deferred = true
hpke_keys = ["nowhere.hpke"]
colour = "blue"
public = { address = "0.0.0.0:99999", tls_certificate = "nowhere.pem", min_rate = -1, shape = "round" }
local = { address = "example.org:80" }
limits = { jobs = -1, workers = -2, min_free = -1 }
agreement = { key = "secrets/leader.key" }
[[tasks]]
recipe = "nowhere.starling"
peer_token = "nowhere.token"
collector_token = "nowhere.token"
[[tasks]]
expected = { units = 3 }
`, []string{"colour: unknown key", "shape: unknown key", "public: address: ", "public: min_rate", "tls_certificate and tls_key",
			"public: service: read TLS certificate", "local.address", "data: ", "deferred: ", "limits.jobs: negative", "limits.workers: negative",
			"hpke_key_period: without it", "agreement: key goes together", "hpke_keys: ", "agreement.key: service: open secret", "tasks[0]: recipe: ",
			"tasks[0]: peer_token: ", "tasks[0]: collector_token: ", "tasks[1].recipe: ", "tasks[1].expected.units"}},
		CollectorRole: {`role = "collector"
recipe = "nowhere.starling"
token = "nowhere.token"
hpke_key = "nowhere.hpke"
`, []string{"state: required", "recipe: ", "token: ", "hpke_key: "}},
		RelayRole: {`role = "relay"
gateway = "http://gateway.example:99999/"
gateway_token = "nowhere.token"
path = "resource"
public = { address = "127.0.0.1:65536", max_connections = -1, idle_timeout = "2h" }
local = { address = "127.0.0.1:80:80" }
limits = { request_bytes = -1, answer_timeout = "-1s" }
`, []string{"public: address: ", "public: max_connections", "public: idle_timeout", "local.address: ", "gateway: ", "path: ", "limits.request_bytes: negative",
			"limits.answer_timeout: negative", "gateway_token: "}},
		GatewayRole: {`role = "gateway"
window = "1ns"
overlap = "1h"
mix = "9999h"
min_round = -1
max_opened = -1
path = "x"
keys = [{ file = "nowhere.hpke" }, { }]
relays = [{ requests_per_tick = -1 }, { token = "nowhere.token" }]
targets = [{ url = "https://leader.example:0/" }, { url = "https://a.example/", via = "http://b.example/", token = "nowhere.token" }, { url = "https://a.example/" }]
public = { address = "nowhere" }
local = { address = "" }
limits = { held_bytes = -1 }
`, []string{"public: address: ", "local.address: ", "data: ", "overlap: belongs", "window: ", "mix: ", "min_round: ", "max_opened: ", "path: ", "keys[1].file: required",
			"keys[0]: ", "relays[0].token: required", "relays[0].requests_per_tick: negative", "relays[1].token: ", "targets[0].url: ", "targets[1].via: ", "targets[1].token: ",
			"targets[2].url: ", "limits.held_bytes"}},
		LogRole: {`role = "log"
key = "nowhere.key"
policy = "nowhere.policy"
anchors = "nowhere.anchors"
colour = "blue"
public = { address = "nowhere" }
local = { address = "" }
limits = { entries = -1 }
`, []string{"colour: unknown key", "public: address: ", "local.address: ", "data: ", "limits.entries: negative", "key: ", "policy: ", "anchors: "}},
		WitnessRole: {`role = "witness"
key = "nowhere.key"
logs = ["log.example+1+AA", "x"]
public = { address = "nowhere" }
local = { address = "" }
`, []string{"public: address: ", "local.address: ", "data: ", "logs[0]: ", "logs[1]: ", "key: "}},
	} {
		path := filepath.Join(t.TempDir(), "x.toml")
		if err := os.WriteFile(path, []byte(c.lines), 0o644); err != nil {
			t.Fatal(err)
		}
		got := CheckFile(path, initNow())
		if got.Kind != string(role)+"'s configuration" {
			t.Errorf("the %s's is taken for %q", role, got.Kind)
		}
		wantFaults(t, got, c.want...)
	}
}

// TestCheckPorts: no party takes a port that is none, wherever it stands.
func TestCheckPorts(t *testing.T) {
	x := createFront(t, counted)
	replaced := 0
	for _, role := range Roles {
		text, err := os.ReadFile(filepath.Join(x.dir, string(role)+".toml"))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(text), "\n")
		for i, line := range lines {
			at := strings.LastIndex(line, "127.0.0.1:")
			if at < 0 || strings.HasPrefix(line, "#") {
				continue
			}
			replaced++
			at += len("127.0.0.1:")
			digits := strings.IndexFunc(line[at:], func(r rune) bool { return r < '0' || r > '9' })
			bad := slices.Clone(lines)
			bad[i] = line[:at] + "99999" + line[at+digits:]
			path := filepath.Join(x.dir, "bad.toml")
			if err := os.WriteFile(path, []byte(strings.Join(bad, "\n")), 0o644); err != nil {
				t.Fatal(err)
			}
			if c := CheckFile(path, initNow()); len(c.Faults) == 0 || !strings.Contains(c.Faults[0], "the port is not a number from ") {
				t.Errorf("%s: %s: %q", role, bad[i], c.Faults)
			}
		}
	}
	if replaced < 10 {
		t.Errorf("only %d ports were looked at", replaced)
	}
}

// TestCheckCertificates: a certificate that those who come to a party would not take is a
// fault: it is over, it is another's, or it is not the one in the party's invitation.
func TestCheckCertificates(t *testing.T) {
	ada, _, _ := couple(t)
	path := filepath.Join(ada, LeaderFile)
	certificate := filepath.Join(ada, "leader.certificate.pem")
	mine, err := os.ReadFile(certificate)
	if err != nil {
		t.Fatal(err)
	}
	only := func(c *Checked) (all []string) {
		for _, fault := range c.Faults {
			if strings.Contains(fault, "certificate") {
				all = append(all, fault)
			}
		}
		return all
	}
	for name, c := range map[string]struct {
		after time.Duration
		says  string
	}{
		"now": {0, ""}, "too early": {-2 * time.Hour, "holds from"}, "too late": {selfSigned + time.Hour, "has ended"},
	} {
		got := only(CheckFile(path, initNow().Add(c.after)))
		if c.says == "" && len(got) > 0 || c.says != "" && (len(got) != 1 || !strings.Contains(got[0], c.says)) {
			t.Errorf("%s: %q", name, got)
		}
	}
	// Somebody copies the files of another party over its own.
	other := filepath.Join(t.TempDir(), "other")
	mustInit(t, InitOptions{Dir: other, Role: LeaderRole, Owner: "Eve", URL: "https://elsewhere.example/"})
	for _, file := range []string{"leader.certificate.pem", filepath.Join(secretsDir, "leader.tls")} {
		b, err := os.ReadFile(filepath.Join(other, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(ada, file), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got := only(CheckFile(path, initNow()))
	if len(got) != 2 || !strings.Contains(got[0], "invitation has another") || !strings.Contains(got[1], "leader.example") {
		t.Errorf("another party's: %q", got)
	}
	if err := os.WriteFile(certificate, mine, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := only(CheckFile(path, initNow())); len(got) != 1 || !strings.Contains(got[0], "private key does not match") {
		t.Errorf("with the key of another: %q", got)
	}
}

// TestCheckStatements: of a manifest and an invitation too all is said at once.
func TestCheckStatements(t *testing.T) {
	x := createFront(t, counted)
	path := filepath.Join(x.dir, ManifestFile)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	wantFaults(t, CheckFile(path, initNow()))
	m, err := ohttp.ReadManifest(b)
	if err != nil {
		t.Fatal(err)
	}
	wantFaults(t, CheckFile(path, m.NotAfter), "its time ended at "+m.NotAfter.UTC().Format(time.DateTime))
	// The relay's URL, and the hold, which ends nine bytes before the first target, are not
	// what they were.
	spoilt := bytes.Replace(b, []byte(m.Relay), []byte(strings.Replace(m.Relay, "http", "hxxp", 1)), 1)
	i := bytes.Index(spoilt, []byte(m.Targets[0])) - 9
	copy(spoilt[i:], []byte{0xff, 0xff, 0xff, 0xff})
	if err := os.WriteFile(path, spoilt, 0o644); err != nil {
		t.Fatal(err)
	}
	wantFaults(t, CheckFile(path, initNow()), "relay: ", "the gateway holds uploads for")

	path = filepath.Join(x.dir, "bad.invitation")
	text := "starling invitation v1\nrole: attester\nowner: \nurl: https://a.example:99999/\ncolour: blue\nkey: 00\nhpke: 0102\nsum: " + strings.Repeat("0", 64) + "\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	wantFaults(t, CheckFile(path, initNow()), `"colour" is not known`, `role "attester"`, "owner: ", "url: ", "key: ", "hpke: a collector", "hpke: not an HpkeConfig")
	for _, size := range []int{0, 1, 100} { // however many faults there are
		var lines strings.Builder
		for n := range size {
			fmt.Fprintf(&lines, "colour%d: blue\n", n)
		}
		long := strings.Replace(text, "colour: blue\n", lines.String(), 1)
		if err := os.WriteFile(path, []byte(long), 0o644); err != nil {
			t.Fatal(err)
		}
		if c := CheckFile(path, initNow()); len(c.Faults) < 6 || len(c.Faults) > 100 {
			t.Errorf("%d faults of %d lines", len(c.Faults), size)
		}
	}
}
