package service

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type testConfig struct {
	Store  Path     `toml:"store"`
	Window Duration `toml:"window"`
	Public Listen   `toml:"public"`
	Peers  []struct {
		Token Secret `toml:"token"`
	} `toml:"peers"`
}

func writeFile(t *testing.T, name, text string, mode fs.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	path := writeFile(t, "leader.toml", `
store = "data"
window = "5m"
[public]
address = "127.0.0.1:0"
tls_key = "/etc/key.pem"
[[peers]]
token = "secrets/helper"
`, 0o600)
	c := testConfig{Window: Duration(time.Hour)}
	if err := Load(path, &c); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	if got, want := string(c.Store), filepath.Join(dir, "data"); got != want {
		t.Errorf("store = %q, want %q", got, want)
	}
	if got, want := string(c.Peers[0].Token), filepath.Join(dir, "secrets/helper"); got != want {
		t.Errorf("token = %q, want %q", got, want)
	}
	if c.Public.TLSKey != "/etc/key.pem" || c.Public.TLSCertificate != "" {
		t.Errorf("an absolute or empty path changed: %+v", c.Public)
	}
	if time.Duration(c.Window) != 5*time.Minute || c.Public.Address != "127.0.0.1:0" {
		t.Errorf("got %+v", c)
	}
}

func TestLoadRefuses(t *testing.T) {
	for _, c := range []struct {
		name, text, key string
		line            int
	}{
		{"unknown key", "store = \"x\"\n\nstroe = \"y\"\n", "stroe", 3},
		{"unknown key in table", "[public]\naddress = \"a:1\"\nadress = \"b:1\"\n", "public.adress", 3},
		{"unknown table", "store = \"x\"\n[publik]\naddress = \"a:1\"\n", "publik", 2},
		{"wrong type", "store = 5\n", "store", 1},
		{"bad duration", "window = \"5 parsecs\"\n", "window", 1},
		{"repeated key", "store = \"x\"\nstore = \"y\"\n", "", 2},
		{"broken syntax", "store = \n", "", 1},
		{"too large", strings.Repeat("#", maxConfigBytes+1), "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var into testConfig
			err := Load(writeFile(t, "c.toml", c.text, 0o600), &into)
			var ce *ConfigError
			if !errors.As(err, &ce) {
				t.Fatalf("got %v, want a ConfigError", err)
			}
			if ce.Line != c.line || (c.key != "" && ce.Key != c.key) {
				t.Errorf("got line %d, key %q; want line %d, key %q (%v)", ce.Line, ce.Key, c.line, c.key, err)
			}
		})
	}
	var into testConfig
	if err := Load(filepath.Join(t.TempDir(), "none.toml"), &into); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func TestSecret(t *testing.T) {
	if got, err := Secret(writeFile(t, "s", "swallow\n", 0o600)).Text(); err != nil || got != "swallow" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := Secret(writeFile(t, "s", "\x00key\n", 0o600)).Read(); err != nil || string(got) != "\x00key\n" {
		t.Errorf("bytes changed: %q, %v", got, err)
	}
	var mode *SecretModeError
	path := writeFile(t, "s", "swallow\n", 0o600)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Secret(path).Read(); !errors.As(err, &mode) || mode.Mode != 0o640 {
		t.Errorf("readable by the group: %v", err)
	}
	for name, s := range map[string]Secret{
		"empty":     Secret(writeFile(t, "s", "\n", 0o600)),
		"large":     Secret(writeFile(t, "s", strings.Repeat("x", maxSecretBytes+1), 0o600)),
		"missing":   Secret(filepath.Join(t.TempDir(), "none")),
		"directory": Secret(t.TempDir()),
		"no path":   "",
	} {
		if b, err := s.Text(); err == nil {
			t.Errorf("%s: read %d bytes", name, len(b))
		} else if strings.Contains(err.Error(), "xxx") {
			t.Errorf("%s: the error shows the secret: %v", name, err)
		}
	}
}

func TestDuration(t *testing.T) {
	for _, s := range []string{"0s", "1.5s", "5m0s", "24h0m0s"} {
		var d Duration
		if err := d.UnmarshalText([]byte(s)); err != nil {
			t.Fatal(err)
		}
		if b, err := d.MarshalText(); err != nil || string(b) != s {
			t.Errorf("%q became %q, %v", s, b, err)
		}
	}
}

func ExampleLoad() {
	dir, _ := os.MkdirTemp("", "starling")
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "leader.toml")
	os.WriteFile(path, []byte("[public]\naddress = \"127.0.0.1:8001\"\nport = 8001\n"), 0o600)

	var config struct {
		Public Listen `toml:"public"`
	}
	var wrong *ConfigError
	if err := Load(path, &config); errors.As(err, &wrong) {
		fmt.Printf("line %d: %s: %s\n", wrong.Line, wrong.Key, wrong.Reason)
	}
	// Output: line 3: public.port: unknown key
}
