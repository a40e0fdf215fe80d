package gateway

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/internal/uploads"
	"github.com/starling-agg/starling/service"
)

// TestPartsDrain: a gateway process that is told to stop keeps and answers what waits for
// its tick, and does not cut the connection.
func TestPartsDrain(t *testing.T) {
	dir := t.TempDir()
	k := generate(t, 1)
	file, err := k.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "key"), file, 0o600); err != nil {
		t.Fatal(err)
	}
	c := &Config{
		Public: service.Listen{Address: "127.0.0.1:0"}, Data: service.Path(filepath.Join(dir, "data")),
		Keys: []ConfigKey{{File: service.Secret(filepath.Join(dir, "key"))}}, Targets: []ConfigTarget{{URL: leaderURL}},
		Window: service.Duration(time.Second),
	}
	c.Local.Address = "127.0.0.1:0"
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	var open Listeners
	for _, l := range []*net.Listener{&open.Public, &open.Local} {
		if *l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	started, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		stopped <- service.Run(ctx, 0, func() { close(started) }, c.Parts(slog.New(slog.DiscardHandler), uploads.DAP{}, open)...)
	}()
	<-started
	post := func(body []byte) (int, []byte, error) {
		resp, err := http.Post("http://"+open.Public.Addr().String()+"/", ohttp.RequestMedia, bytes.NewReader(body))
		if err != nil {
			return 0, nil, err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return resp.StatusCode, b, err
	}
	request, opener := sealTo(t, k, upload(report(t, 1)))
	answered := make(chan error, 1)
	var status int
	var answer []byte
	go func() {
		var err error
		status, answer, err = post(request)
		answered <- err
	}()
	for known := false; !known; { // until the request has come: the same bytes are a replay then
		_, b, err := post(append(bytes.Clone(request[:len(request)-1]), request[len(request)-1]^1))
		if err != nil {
			t.Fatal(err)
		}
		reason, _ := door.Read(bytes.NewReader(b))
		known = reason == door.Replayed
	}
	stop()
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	// Taken, sealed, or Busy in the clear if it was just about to wait.
	if status == http.StatusOK {
		plain, err := opener.Open(answer)
		if err != nil {
			t.Fatal(err)
		}
		a, err := ohttp.ReadResponse(plain, ohttp.MessageLimits{})
		if err != nil || a.Status != http.StatusAccepted {
			t.Errorf("status %d, %v", a.Status, err)
		}
	} else if reason, _ := door.Read(bytes.NewReader(answer)); reason != door.Busy {
		t.Errorf("status %d, %q", status, reason)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
