package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/service"
)

// manifest is what all devices were given, or have from the log.
func (f *frame) manifest() (ohttp.Source, error) {
	if f.counting != nil {
		return f.checked(f.counting.book)
	}
	b, err := os.ReadFile(filepath.Join(f.dir, deploy.ManifestFile))
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	m, err := ohttp.ReadManifest(b)
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	return f.checked(ohttp.Pin(m))
}

// checked are manifests as devices check them. One memory for all, in the place of each
// device's: what it holds is the same.
func (f *frame) checked(source ohttp.Source) (ohttp.Source, error) {
	return client.NewManifests(client.ManifestsOptions{Recipe: f.recipe, Anchors: f.anchors, Source: source, Memory: client.Forgetful()})
}

// relayed makes the devices' way through the relay; they share connections.
func (f *frame) relayed() (err error) {
	source, err := f.manifest()
	if err != nil {
		return err
	}
	f.via, err = ohttp.NewTransport(ohttp.TransportOptions{Source: source, Relay: f.http.Transport})
	return err
}

// readStatus reads the status of a relay or a gateway from its local listener.
func (f *frame) readStatus(ctx context.Context, address string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/statusz", nil)
	if err != nil {
		return err
	}
	return f.answered(req, into)
}

// operate has the operator of a party do something at its local listener.
func (f *frame) operate(ctx context.Context, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	return f.answered(req, into)
}

// answered asks a local listener.
func (f *frame) answered(req *http.Request, into any) error {
	resp, err := f.http.Do(req)
	if err != nil {
		return fmt.Errorf("read status: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("read status: HTTP status %d", resp.StatusCode)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, maxStatus)).Decode(into)
}

// frontParts are relay and gateway as they start from their files.
func (f *frame) frontParts(log *slog.Logger) ([]service.Part, error) {
	behind, err := deploy.LoadGateway(filepath.Join(f.dir, deploy.GatewayFile))
	if err != nil {
		return nil, err
	}
	ahead, err := deploy.LoadRelay(filepath.Join(f.dir, deploy.RelayFile))
	if err != nil {
		return nil, err
	}
	parts, err := ahead.Parts(log, deploy.Listeners{Public: f.front.Relay, Local: f.front.RelayLocal})
	if err != nil {
		return nil, err
	}
	return append(behind.Parts(log, deploy.Listeners{Public: f.front.Gateway, Local: f.front.GatewayLocal}), parts...), nil
}
