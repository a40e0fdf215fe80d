package service

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

const (
	testID    = "AbC3x-_9QwErTyUiOpAsDf"           // 16 bytes in base64url
	testToken = "0123456789abcdef0123456789abcdef" // 16 bytes in hexadecimal
)

type talkative struct{}

func (talkative) LogValue() slog.Value { return slog.StringValue("from 192.0.2.7") }

// TestGuard sends what must not be written down every way a logger offers.
func TestGuard(t *testing.T) {
	var buf bytes.Buffer
	log := NewLogger(&buf, slog.LevelDebug)
	opErr := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 443},
		Err: errors.New("refused")}
	log.Info("from 192.0.2.7:443 and [2001:db8::7]:443, report "+testID,
		"a", "192.0.2.7", "b", "2001:db8::7", "c", opErr, "d", fmt.Errorf("upload: %w", opErr),
		"e", netip.MustParseAddr("192.0.2.7"), "f", &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7)},
		"g", []byte("192.0.2.7"), "h", [16]byte{1, 9, 2}, "i", struct{ Addr string }{"192.0.2.7"},
		"j", testToken, "k", talkative{}, "l", []string{"192.0.2.7", testID},
		slog.Group("m", "n", "::1", slog.Group("o", "p", testToken)),
		"q", "lookup phone.example.org on 192.0.2.53:53: no such host", "r", "fe80::1%eth0", "s", "::ffff:192.0.2.7",
		"t", "1:2:3:4:5:6:7:8")
	log.With("a", "192.0.2.7", "report", testID).WithGroup("g").Warn("x", "b", "192.0.2.7")
	out := buf.String()
	for _, leak := range []string{"192.0", "2001:db8", "fe80", "::1", "1:2:3", testID, testToken, "phone.example", "eth0",
		"AbC3x", "MTkyLj"} {
		if strings.Contains(out, leak) {
			t.Errorf("the log shows %q:\n%s", leak, out)
		}
	}
	if n := strings.Count(out, "\n"); n != 2 {
		t.Errorf("%d lines, want 2", n)
	}
}

// TestGuardKeeps: what operators need comes through unchanged.
func TestGuardKeeps(t *testing.T) {
	var buf bytes.Buffer
	log := NewLogger(&buf, slog.LevelInfo)
	log.Debug("not this")
	want := map[string]any{
		"task": testID, "route": "POST /tasks/{task_id}/reports", "class": "2xx", "n": float64(7), "ok": true,
		"rate": 1.5, "at": "line 3:12: bad", "phase": "aggregation_job_initialize_request", "time_of_day": "11:18:59",
		"file": "/var/lib/starling/segments", "error": "disk full",
	}
	log.Info("accepted", "task", testID, "route", "POST /tasks/{task_id}/reports", "class", "2xx", "n", 7, "ok", true,
		"rate", 1.5, "at", "line 3:12: bad", "phase", "aggregation_job_initialize_request", "time_of_day", "11:18:59",
		"file", "/var/lib/starling/segments", "error", errors.New("disk full"), "took", time.Second)
	var got map[string]any
	if err := json.Unmarshal(buf.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s = %v, want %v", k, got[k], v)
		}
	}
	if got["msg"] != "accepted" || got["took"] != float64(time.Second) {
		t.Errorf("got %v", got)
	}
}
