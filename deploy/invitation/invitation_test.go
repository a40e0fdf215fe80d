package invitation

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/sealed"
)

// party makes a key and an invitation of it.
func party(t testing.TB, role string, answers ...ID) (*Key, *Invitation) {
	t.Helper()
	k, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	v := &Invitation{Role: role, Owner: "The " + role, URL: "https://" + role + ".example/", Key: k.Public(), Answers: answers}
	if role == "collector" {
		pair, err := sealed.Generate(1, sealed.SuiteX25519)
		if err != nil {
			t.Fatal(err)
		}
		v.URL = ""
		if v.HPKE, err = dap.NewHpkeConfig(pair).Append(nil); err != nil {
			t.Fatal(err)
		}
	}
	return k, v
}

// TestAgree: two sides derive the same of each other's invitations, and nobody else does:
// no other task, role or key, nor the other use.
func TestAgree(t *testing.T) {
	leaderKey, leader := party(t, "leader")
	helperKey, helper := party(t, "helper", leader.ID())
	collectorKey, collector := party(t, "collector")
	seen := map[string]string{}
	add := func(what, value string) {
		t.Helper()
		if other := seen[value]; other != "" {
			t.Errorf("%s is %s's", what, other)
		}
		seen[value] = what
	}
	both := func(k1 *Key, r1 string, v2 *Invitation, k2 *Key, r2 string, v1 *Invitation) *Secret {
		t.Helper()
		a, err := k1.Agree(r1, v2)
		if err != nil {
			t.Fatal(err)
		}
		b, err := k2.Agree(r2, v1)
		if err != nil {
			t.Fatal(err)
		}
		if *a != *b {
			t.Errorf("%s and %s derive different secrets", r1, r2)
		}
		for n := range byte(3) {
			token, err := a.Token(dap.TaskID{n})
			if err != nil || len(token) != 43 {
				t.Fatalf("token %q, %v", token, err)
			}
			add(fmt.Sprintf("the token of %s and %s for task %d", r1, r2, n), token)
		}
		return a
	}
	peers := both(leaderKey, "leader", helper, helperKey, "helper", leader)
	results := both(leaderKey, "leader", collector, collectorKey, "collector", leader)
	for n := range byte(3) {
		key, err := peers.VerifyKey(dap.TaskID{n})
		if err != nil {
			t.Fatal(err)
		}
		add(fmt.Sprintf("the verification key of task %d", n), string(key[:]))
	}
	if _, err := results.VerifyKey(dap.TaskID{}); !errors.Is(err, ErrRoles) {
		t.Errorf("a collector's verification key: %v", err)
	}
	// The same key under another role is another secret.
	twice := *helper
	twice.Role, twice.URL, twice.HPKE = "collector", "", collector.HPKE
	s, err := leaderKey.Agree("leader", &twice)
	if err != nil || s.root == peers.root {
		t.Errorf("a helper's key as a collector's: the same secret, %v", err)
	}
	own := *leader
	own.Role = "helper"
	if _, err := leaderKey.Agree("leader", &own); !errors.Is(err, ErrOwn) {
		t.Errorf("with oneself: %v", err)
	}
	if _, err := helperKey.Agree("helper", collector); !errors.Is(err, ErrRoles) {
		t.Errorf("helper and collector: %v", err)
	}
	// A key of small order would give everybody the same secret.
	small := *helper
	small.Key = [32]byte{1}
	if _, err := leaderKey.Agree("leader", &small); !errors.Is(err, ErrFormat) {
		t.Errorf("a key of small order: %v", err)
	}
	for _, v := range []any{leaderKey, peers} {
		if text := fmt.Sprintf("%v%+v%x", v, v, v); text != "redactedredactedredacted" {
			t.Errorf("printed as %q", text)
		}
	}
}

// TestFixed: what follows of two fixed keys does not change, or running deployments would
// not understand each other.
func TestFixed(t *testing.T) {
	fixed := func(n byte) *Key {
		k, err := ParseKey(fmt.Appendf([]byte(keyMagic), "%x\n", bytes.Repeat([]byte{n}, 32)))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	a, b := fixed(1), fixed(2)
	helper := &Invitation{Role: "helper", Owner: "Ben", URL: "https://helper.example/", Key: b.Public()}
	s, err := a.Agree("leader", helper)
	if err != nil {
		t.Fatal(err)
	}
	token, err := s.Token(dap.TaskID{3})
	if err != nil {
		t.Fatal(err)
	}
	key, err := s.VerifyKey(dap.TaskID{3})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ what, got, want string }{
		{"fingerprint", helper.ID().Fingerprint(), fixedFingerprint}, {"token", token, fixedToken}, {"key", fmt.Sprintf("%x", key), fixedVerify},
	} {
		if c.got != c.want {
			t.Errorf("%s %s, want %s", c.what, c.got, c.want)
		}
	}
}

// TestRead: an invitation is read back as it was written, and no file that differs from
// it in one byte, or is cut anywhere, is taken.
func TestRead(t *testing.T) {
	_, first := party(t, "leader")
	for _, role := range Roles {
		_, v := party(t, role, first.ID())
		file, err := v.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Read(file)
		if err != nil || got.ID() != v.ID() || got.Owner != v.Owner || len(got.Answers) != 1 || got.Answers[0] != first.ID() {
			t.Fatalf("%s: %+v, %v", role, got, err)
		}
		if !v.ID().Is(strings.ToUpper(v.ID().Fingerprint())) || v.ID().Is(first.ID().Fingerprint()) || v.ID().Is("") {
			t.Error("fingerprints do not tell invitations apart")
		}
		for n := range file {
			if _, err := Read(file[:n]); err == nil {
				t.Fatalf("%s: %d of %d bytes were taken", role, n, len(file))
			}
			changed := bytes.Clone(file)
			changed[n] ^= 1
			if _, err := Read(changed); err == nil {
				t.Fatalf("%s: taken with byte %d changed", role, n)
			}
		}
	}
	file, err := first.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file string
		want error
	}{
		"of version 2":  {strings.Replace(string(file), "v1", "v2", 1), ErrVersion},
		"empty":         {"", ErrFormat},
		"a recipe":      {"\x01\x02", ErrFormat},
		"with CRLF":     {strings.ReplaceAll(string(file), "\n", "\r\n"), ErrDamaged},
		"another owner": {strings.Replace(string(file), "The leader", "The liar", 1), ErrDamaged},
		"longer":        {string(file) + "x", ErrFormat},
		"huge":          {domain + "\n" + strings.Repeat("a", MaxFile), ErrFormat},
		"without a key": {domain + "\nrole: leader\nowner: x\nurl: https://a/\nsum: " + strings.Repeat("0", 64) + "\n", ErrFormat},
	} {
		if _, err := Read([]byte(c.file)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for name, change := range map[string]func(*Invitation){
		"a new line in the owner": func(v *Invitation) { v.Owner = "a\nkey: 00" },
		"no owner":                func(v *Invitation) { v.Owner = "" },
		"no slash":                func(v *Invitation) { v.URL = "https://a" },
		"a role of nobody":        func(v *Invitation) { v.Role = "attester" },
		"a zero key":              func(v *Invitation) { v.Key = [32]byte{} },
		"a leader's HPKE key":     func(v *Invitation) { v.HPKE = []byte{1} },
		"no certificate":          func(v *Invitation) { v.Certificate = []byte{1, 2} },
	} {
		v := *first
		change(&v)
		if _, err := v.Append(nil); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeyFile(t *testing.T) {
	k, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	file := k.Marshal()
	if again, err := ParseKey(file); err != nil || again.Public() != k.Public() {
		t.Fatal(err)
	}
	for _, bad := range [][]byte{nil, file[:len(file)-1], append(bytes.Clone(file), 'x'), bytes.ToUpper(file)} {
		if _, err := ParseKey(bad); !errors.Is(err, ErrKey) {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
}

// FuzzRead: what is read is written again byte for byte.
func FuzzRead(f *testing.F) {
	for _, role := range Roles {
		_, v := party(f, role)
		file, err := v.Append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		v, err := Read(file)
		if err != nil {
			return
		}
		if again, err := v.Append(nil); err != nil || !bytes.Equal(again, file) {
			t.Errorf("%q again is %q, %v", file, again, err)
		}
	})
}

// What follows of the keys 01...01 and 02...02; computed apart from this package, from
// RFC 7748 and RFC 5869.
const (
	fixedFingerprint = "c706-b247-c105-2726-d51d-bd1a-ff6d-058c"
	fixedToken       = "wQh88G746nn8-ndE7rbcxIX60eSjvzQR0VI0J_ZobZA"
	fixedVerify      = "7cd60ccbd68107f978ee0ac9eaa02046caf8905d338b40174913992d9aa15655"
)
