package hostile

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/disk"
)

// uploads counts what a device sends through the relay.
type uploadsOf struct {
	next http.RoundTripper
	sent int
}

func (u *uploadsOf) RoundTrip(r *http.Request) (*http.Response, error) {
	u.sent++
	return u.next.RoundTrip(r)
}

// device opens the ledger in a directory and makes the plan of the world's recipe, as a device does when it starts.
func (w *world) device(t *testing.T, dir string, m *ohttp.Manifest, wire http.RoundTripper) (*participate.Device, *participate.Plan, func(), error) {
	t.Helper()
	fsys, err := disk.OS(dir)
	if err != nil {
		t.Fatal(err)
	}
	ledger, err := participate.OpenLedger(fsys, participate.LedgerOptions{MaxEpsilon: 10, MaxDelta: 1e-3})
	if err != nil {
		fsys.Close()
		return nil, nil, nil, err
	}
	via, err := ohttp.NewTransport(ohttp.TransportOptions{Source: ohttp.Pin(m), Relay: wire})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{Recipe: w.bytes, Via: via, Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := participate.NewPlan(participate.PlanOptions{Client: c, Upload: via, Manifest: ohttp.Pin(m)})
	if err != nil {
		t.Fatal(err)
	}
	return &participate.Device{Ledger: ledger}, plan, func() {
		if err := errors.Join(ledger.Close(), fsys.Close()); err != nil {
			t.Error(err)
		}
	}, nil
}

var answer = client.Vector([]uint64{0, 1, 0})

// TestLedgerCutOff: the attacker turns the power off while the device writes that it pays, or spoils what was written before,
// so that the device would toss a second coin for the same round. A record that is torn was never acted on, and the device
// goes on; one that was acted on and is gone stops it: it tosses nothing, and sends nothing.
func TestLedgerCutOff(t *testing.T) {
	before := shared.settled(t)
	dir := filepath.Join(t.TempDir(), "device")
	path := filepath.Join(dir, participate.LedgerFile)
	wire := &uploadsOf{next: http.DefaultTransport}
	now := time.Now()
	decide := func(at time.Time) error {
		d, plan, closeAll, err := shared.device(t, dir, shared.manifest, wire)
		if err != nil {
			return err
		}
		defer closeAll()
		_, err = d.Decide(t.Context(), plan, answer, at) // never sent: what the coin said plays no part here
		return err
	}
	if err := decide(now); err != nil {
		t.Fatal(err)
	}
	one, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	next := now.Add(time.Hour) // the recipe's next round
	if err := decide(next); err != nil {
		t.Fatal(err)
	}
	both, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rounds := func() uint32 {
		fsys, err := disk.OS(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer fsys.Close()
		entries, _, err := participate.ReadLedger(fsys)
		if err != nil || len(entries) != 1 {
			t.Fatalf("%+v, %v", entries, err)
		}
		return entries[0].Rounds
	}
	write := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// Torn at every byte of the second charge.
	for n := len(one); n < len(both); n++ {
		write(both[:n])
		if got := rounds(); got != 1 {
			t.Fatalf("cut to %d of %d bytes: %d rounds are paid for", n, len(both), got)
		}
	}
	if err := decide(now); !errors.Is(err, participate.ErrDecided) {
		t.Errorf("the round that was paid for, after a torn write: %v", err)
	}
	if err := decide(next); err != nil || rounds() != 2 {
		t.Errorf("the round whose charge was torn: %v, %d rounds", err, rounds())
	}
	// A charge that was acted on is damaged or lost in its place, with another after it.
	damaged, lost := slices.Clone(both), slices.Clone(both)
	damaged[len(one)-1] ^= 1
	clear(lost[len(one)-20 : len(one)])
	for name, b := range map[string][]byte{"damaged": damaged, "lost": lost, "no header": both[10:]} {
		write(b)
		if err := decide(next.Add(time.Hour)); !errors.Is(err, participate.ErrLedger) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if wire.sent != 0 {
		t.Errorf("%d requests were sent", wire.sent)
	}
	shared.unchanged(t, before)
}

// TestManifestElsewhereTossesNoCoin: a device that was handed a manifest of another relay pays nothing, tosses nothing and
// sends nothing, to nobody.
func TestManifestElsewhereTossesNoCoin(t *testing.T) {
	before := shared.settled(t)
	wire := &uploadsOf{next: http.DefaultTransport}
	for name, m := range map[string]*ohttp.Manifest{
		"another relay":  with(func(m *ohttp.Manifest) { m.Relay = "http://127.0.0.1:9/" }),
		"another leader": with(func(m *ohttp.Manifest) { m.Targets[0] = "http://127.0.0.1:9/" }),
	} {
		d, plan, closeAll, err := shared.device(t, filepath.Join(t.TempDir(), "device"), m, wire)
		if err != nil {
			t.Fatal(err)
		}
		var bad *participate.ManifestError
		if _, err := d.Decide(t.Context(), plan, answer, time.Now()); !errors.As(err, &bad) {
			t.Errorf("%s: %v", name, err)
		}
		if len(d.Ledger.Entries()) != 0 {
			t.Errorf("%s: charged", name)
		}
		closeAll()
	}
	if wire.sent != 0 {
		t.Errorf("%d requests were sent", wire.sent)
	}
	shared.unchanged(t, before)
}
