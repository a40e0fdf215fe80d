package deploy

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

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/sealed"
)

// TestGatewayDrains: a gateway process that is told to stop keeps and answers what waits
// for its tick, and does not cut the connection.
func TestGatewayDrains(t *testing.T) {
	dir := t.TempDir()
	k, err := sealed.Generate(1, sealed.SuiteX25519)
	if err != nil {
		t.Fatal(err)
	}
	file, err := k.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "key"), file, 0o600); err != nil {
		t.Fatal(err)
	}
	c := &Gateway{
		Public: service.Listen{Address: "127.0.0.1:0"}, Data: service.Path(filepath.Join(dir, "data")),
		Keys: []GatewayKey{{File: service.Secret(filepath.Join(dir, "key"))}}, Targets: []GatewayTarget{{URL: "https://leader.example/v1/"}},
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
		stopped <- service.Run(ctx, 0, func() { close(started) }, c.Parts(slog.New(slog.DiscardHandler), open)...)
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
	request, opener := sealedUpload(t, k)
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
		known = bytes.Contains(b, []byte("replayed"))
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
	} else if !bytes.Contains(answer, []byte("busy")) {
		t.Errorf("status %d, %q", status, answer)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// sealedUpload is a request of a device with one report, sealed to a gateway's key.
func sealedUpload(t *testing.T, k *sealed.KeyPair) ([]byte, *ohttp.ResponseOpener) {
	t.Helper()
	share := dap.HpkeCiphertext{ConfigID: 1, Enc: []byte{1}, Payload: bytes.Repeat([]byte{1}, 40)}
	report, err := dap.AppendUploadRequest(nil, []dap.Report{{Metadata: dap.ReportMetadata{ID: dap.ReportID{1}, Time: 7}, Leader: share, Helper: share}})
	if err != nil {
		t.Fatal(err)
	}
	m := &ohttp.Request{Method: "POST", Scheme: "https", Authority: "leader.example", Path: "/v1/" + dap.CreationPath(dap.TaskID{5}, dap.ReportsResource),
		Header: []ohttp.Field{{Name: "content-type", Value: dap.ContentType(dap.MediaUploadReq)}}, Content: report}
	plain, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	b, opener, err := ohttp.Encapsulate(k.ID(), k.Public(), ohttp.Pad(plain, ohttp.MinRequest))
	if err != nil {
		t.Fatal(err)
	}
	return b, opener
}
