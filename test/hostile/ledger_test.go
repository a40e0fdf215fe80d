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
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/recipe/account"
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

// device opens the ledger in a directory and makes the plan of the world's recipe, as a
// device does when it starts.
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
	c, err := client.New(client.Options{Prover: account.Prover, Recipe: w.bytes, Via: via, Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := participate.NewPlan(participate.PlanOptions{Client: c})
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

// TestLedgerCutOff: the attacker turns the power off while the device writes that it
// pays, or spoils what it wrote, so that the device would toss a second coin for the same
// round. A charge is acted on once its mark stands. One that is torn before that is
// charged anew; one that was acted on and of which a bit is flipped or a byte is cut off,
// the last record though it is, stops the device: it tosses nothing, and sends nothing.
func TestLedgerCutOff(t *testing.T) {
	before := shared.settled(t)
	dir := filepath.Join(t.TempDir(), "device")
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
	// files are what the directory holds, by name.
	files := func() map[string][]byte {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		list := map[string][]byte{}
		for _, e := range entries {
			b, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			list[e.Name()] = b
		}
		return list
	}
	write := func(name string, b []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := decide(now); err != nil {
		t.Fatal(err)
	}
	one := files()
	if len(one) < 2 {
		t.Fatalf("a charge stands in %d files: the last record of one is protected by nothing", len(one))
	}
	// Four times over: the charge that was acted on is the last record of the ledger, and
	// a bit of it is flipped.
	for range 4 {
		flipped := slices.Clone(one[participate.LedgerFile])
		flipped[len(flipped)-1] ^= 1
		write(participate.LedgerFile, flipped)
		if err := decide(now); !errors.Is(err, participate.ErrLedger) {
			t.Fatalf("a second toss in one round: %v", err)
		}
	}
	write(participate.LedgerFile, one[participate.LedgerFile])
	// A bit of each byte and each cut of the last record and of the mark, with nothing
	// after the charge.
	for name, whole := range one {
		for n := max(0, len(whole)-200); n < len(whole); n++ {
			changed := slices.Clone(whole)
			changed[n] ^= 1 << (n % 8)
			for what, b := range map[string][]byte{"a bit flipped": changed, "cut": whole[:n]} {
				write(name, b)
				if err := decide(now); !errors.Is(err, participate.ErrLedger) {
					t.Errorf("%s, %s at byte %d of %d: %v", name, what, n, len(whole), err)
				}
			}
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if err := decide(now); !errors.Is(err, participate.ErrLedger) {
			t.Errorf("without %s: %v", name, err)
		}
		write(name, whole)
	}
	// Torn within a second charge, whose mark does not stand: the round before is
	// decided, this one is not.
	next := now.Add(time.Hour) // the recipe's next round
	if err := decide(next); err != nil {
		t.Fatal(err)
	}
	two := files()
	shorter, longer := len(one[participate.LedgerFile]), len(two[participate.LedgerFile])
	for n := shorter; n <= longer; n += max(1, min(3, longer-n)) {
		for name, b := range one {
			write(name, b)
		}
		write(participate.LedgerFile, two[participate.LedgerFile][:n])
		if err := decide(now); !errors.Is(err, participate.ErrDecided) {
			t.Errorf("torn at byte %d of %d: the round before is decided again: %v", n, longer, err)
		}
		err := decide(next)
		if whole := n == longer; !whole && err != nil || whole && !errors.Is(err, participate.ErrDecided) {
			t.Errorf("torn at byte %d of %d: %v", n, longer, err)
		}
	}
	// The ledger of before the second charge, beside the mark of after it; and the other
	// way round.
	for name, b := range two {
		write(name, b)
	}
	write(participate.LedgerFile, one[participate.LedgerFile])
	if err := decide(next); !errors.Is(err, participate.ErrLedger) {
		t.Errorf("a ledger that was put back: %v", err)
	}
	write(participate.LedgerFile, two[participate.LedgerFile])
	write(participate.MarkFile, one[participate.MarkFile])
	if err := decide(next); err == nil {
		t.Error("a mark that was put back brings a round back")
	}
	if wire.sent != 0 {
		t.Errorf("%d requests were sent", wire.sent)
	}
	shared.unchanged(t, before)
}

// TestManifestElsewhereTossesNoCoin: a device that was handed a manifest of another relay
// pays nothing, tosses nothing and sends nothing, to nobody.
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
