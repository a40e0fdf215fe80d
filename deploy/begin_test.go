package deploy

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/internal/logged/loggedtest"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/signed"
)

// TestEpochBeginsOnce: an epoch of which a manifest has begun has begun, whatever
// revision is signed later: nothing is given out for it after devices were counted.
func TestEpochBeginsOnce(t *testing.T) {
	trio, dir := loggedtest.New(t, ""), t.TempDir()
	root := signed.Generate()
	trio.Recipe.Tokens = &recipe.Tokens{Attester: "https://attester.example/", Key: root.Public(), Attestation: recipe.Codes, MinCohort: 1}
	trio.Recipe.Log = &recipe.Log{Origin: "log.example/starling"}
	issuers := &ohttp.Issuers{Attester: root.Public(), Cap: 100}
	copy(issuers.Leader[:], arc.GenerateKey().PublicKey().Append(nil))
	copy(issuers.Helper[:], arc.GenerateKey().PublicKey().Append(nil))
	length := trio.Recipe.ServerKeys.Epoch()
	write := func(name string, revision uint16, after time.Duration) {
		t.Helper()
		e := trio.Manifest(func(m *ohttp.Manifest) {
			m.Revision, m.Issuers = revision, issuers
			m.NotBefore = loggedtest.Now.Add(after)
			m.NotAfter = m.NotBefore.Add(length)
			for i, role := range []signed.Role{signed.Leader, signed.Helper} {
				m.Pinned[i].Body = trio.ListAt(role, uint8(20+i), m.Epoch, m.NotBefore, m.NotAfter)
			}
		})
		if err := os.WriteFile(filepath.Join(dir, name+manifestSuffix), e.Body, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d, err := manifestsOf(service.Path(dir), trio.Recipe, service.NewLogger(os.Stderr, 0))
	if err != nil {
		t.Fatal(err)
	}
	epoch := ohttp.EpochAt(loggedtest.Now, length)
	if m, _ := d.of(epoch); m != nil {
		t.Fatal("there is a manifest")
	}
	for i, name := range []string{"b", "a", "c"} { // whichever is read first
		write(name, uint16(i), time.Duration(i)*time.Hour)
		m, begin := d.of(epoch)
		if m == nil || m.Revision != uint16(i) || !begin.Equal(loggedtest.Now) {
			t.Errorf("revision %d: %+v begins %v, want %v", i, m, begin, loggedtest.Now)
		}
	}
}
