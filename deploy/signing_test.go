package deploy

import (
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

// TestSayAtOnce: commands that sign beside one another with one record sign one digest of
// an epoch between them.
func TestSayAtOnce(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	s := signedtest.Signer(t, signed.Generate(), now.Add(-time.Hour), 49*time.Hour)
	pair, err := sealed.Generate(1, sealed.SuiteX25519)
	if err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(t.TempDir(), "gateway.signed")
	manifest := func(previous byte) *ohttp.Manifest {
		return &ohttp.Manifest{Deployment: [32]byte{1}, Epoch: ohttp.EpochAt(now, 24*time.Hour), Length: 24 * time.Hour, NotBefore: now,
			NotAfter: now.Add(time.Hour), Previous: [32]byte{previous}, Relay: "https://relay.example/", Gateway: []ohttp.KeyConfig{ohttp.NewKeyConfig(pair)},
			Tries: 3, Every: time.Minute, Hold: ohttp.DefaultHold, Targets: []string{"https://leader.example/"}}
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	said := 0
	begin := make(chan struct{})
	for n := range byte(16) {
		all.Go(func() {
			m := manifest(n)
			<-begin
			err := Say(m, signed.Gateway, s, record)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				said++
			} else if !errors.Is(err, signed.ErrSigned) && !errors.Is(err, disk.ErrLocked) {
				t.Error(err)
			}
		})
	}
	close(begin)
	all.Wait()
	if said != 1 {
		t.Errorf("%d digests of one epoch were signed", said)
	}
	if err := Say(manifest(99), signed.Gateway, s, record); !errors.Is(err, signed.ErrSigned) {
		t.Errorf("afterwards: %v", err)
	}
}
