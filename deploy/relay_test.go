package deploy

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/starling-agg/starling/internal/service"
)

// TestRelayRate: the limit is on, off where it cannot hold, and then the log says so.
func TestRelayRate(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Relay)
		rate   int
		loud   bool
		bad    bool
	}{
		{"nothing said", func(*Relay) {}, 0, false, false},
		{"off", func(c *Relay) { c.Limits.RequestsPerMinute = -1 }, -1, true, false},
		{"behind a proxy", func(c *Relay) { c.Public.TLSTerminatedUpstream = true }, -1, true, false},
		{"behind a proxy that tells", func(c *Relay) {
			c.Public.TLSTerminatedUpstream, c.Public.ForwardedHeader = true, "X-Forwarded-For"
		}, 0, false, false},
		{"a limit behind a proxy that does not tell", func(c *Relay) {
			c.Public.TLSTerminatedUpstream, c.Limits.RequestsPerMinute = true, 5
		}, 0, false, true},
		{"a header without a proxy", func(c *Relay) { c.Public.ForwardedHeader = "X-Forwarded-For" }, 0, false, true},
	} {
		config := &Relay{Gateway: "https://gateway.example/", Public: service.Listen{Address: "127.0.0.1:0"}}
		config.Local.Address = "127.0.0.1:0"
		c.change(config)
		if err := config.Validate(); (err != nil) != c.bad {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.bad {
			continue
		}
		var logged bytes.Buffer
		if _, err := config.Parts(slog.New(slog.NewTextHandler(&logged, nil)), Listeners{}); err != nil {
			t.Fatal(err)
		}
		if got := config.plain().Limits.Rate.Requests; got != c.rate || strings.Contains(logged.String(), "level=WARN") != c.loud {
			t.Errorf("%s: a rate of %d, log %q", c.name, got, logged.String())
		}
	}
}
