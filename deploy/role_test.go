package deploy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service"
)

// TestRoles: a file is whose it says, under whatever name, and no party takes another's.
func TestRoles(t *testing.T) {
	x := createFront(t, counted)
	loads := map[Role]func(string) error{
		LeaderRole:    func(path string) error { _, err := LoadAggregator(path, dap.RoleLeader); return err },
		HelperRole:    func(path string) error { _, err := LoadAggregator(path, dap.RoleHelper); return err },
		CollectorRole: func(path string) error { _, err := LoadCollector(path); return err },
		RelayRole:     func(path string) error { _, err := LoadRelay(path); return err },
		GatewayRole:   func(path string) error { _, err := LoadGateway(path); return err },
	}
	for _, is := range Roles {
		text, err := os.ReadFile(filepath.Join(x.dir, string(is)+".toml"))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(x.dir, "of-somebody.toml")
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		if role, err := RoleOf(path); role != is || err != nil {
			t.Errorf("the %s's file is the %s's, %v", is, role, err)
		}
		for want, load := range loads {
			err := load(path)
			other := new(RoleError)
			switch {
			case is == want && err != nil:
				t.Errorf("%s: %v", is, err)
			case is != want && (!errors.As(err, &other) || other.Role != is || other.Want != want):
				t.Errorf("the %s took the %s's: %v", want, is, err)
			}
		}
		for _, line := range []string{"", `role = "somebody"`} {
			without := strings.Replace(string(text), `role = "`+string(is)+`"`, line, 1)
			if err := os.WriteFile(path, []byte(without), 0o644); err != nil {
				t.Fatal(err)
			}
			config := new(service.ConfigError)
			if err := loads[is](path); !errors.As(err, &config) || config.Key != "role" {
				t.Errorf("a %s's with %q: %v", is, line, err)
			}
		}
	}
}
