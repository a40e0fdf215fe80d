package hostile

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/internal/service"
)

// liveness bounds what would wait for an idle connection's two minutes.
const liveness = 60 * time.Second

// TestIdleConnections: at each of the four parties strangers hold twice as many idle
// connections as there are places, and a report goes all its way.
func TestIdleConnections(t *testing.T) {
	const places, reserved, idle = 16, 8, 32
	w, stop, err := beginWith(t.TempDir(), options(), nil, func(l *service.Listen) {
		// strangers and peers are of one address here
		l.MaxConnections, l.ReservedConnections = places, reserved
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	public := map[string]string{"relay": w.relay, "gateway": w.gateway, "leader": string(w.leader.Public.Address), "helper": string(w.helper.Public.Address)}
	for party, address := range public {
		for i := range idle {
			c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			switch i % 3 {
			case 0:
				c.SetDeadline(time.Now().Add(liveness))
				fmt.Fprintf(c, "GET /hpke_config HTTP/1.1\r\nHost: %s\r\n\r\n", address)
				if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
					t.Fatalf("%s, connection %d: %v", party, i, err)
				}
			case 1:
				io.WriteString(c, "POST / HTTP/1.1\r\nHo")
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), liveness)
	defer cancel()
	done := make(chan counts, 1)
	go func() {
		defer close(done)
		done <- w.settled(t)
	}()
	select {
	case c, ok := <-done:
		if !ok || c.Aggregated != 1 {
			t.Errorf("aggregated %d of 1", c.Aggregated)
		}
	case <-ctx.Done():
		t.Fatal("a report does not come through")
	}
	for party, local := range map[string]string{"relay": w.relayLocal, "gateway": w.gatewayLocal, "leader": w.leaderLocal,
		"helper": string(w.helper.Local.Address)} {
		resp, err := http.Get("http://" + local + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		shed := 0
		for line := range strings.Lines(string(b)) {
			fmt.Sscanf(line, `starling_connections_shed_total{listener="public",why="idle"} %d`, &shed)
		}
		if least := idle - places - reserved; shed < least {
			t.Errorf("%s shed %d idle connections, want %d or more", party, shed, least)
		}
	}
}
