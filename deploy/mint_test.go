package deploy

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/admission"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// TestRoundKeys: an epoch has one list of keys for each recipe, of its own rounds,
// however often they are asked for; and a gateway reads it.
func TestRoundKeys(t *testing.T) {
	owners, err := NewOwners()
	if err != nil {
		t.Fatal(err)
	}
	o := account.Options{Name: "Test", Query: recipe.Count{}, Leader: "https://leader.example/", Helper: "https://helper.example/", MinBatch: 100, Epsilon: recipe.Decimal{Coefficient: 1},
		Grace: 7 * time.Minute, TimePrecision: 3600, RoundUnits: 1, Relay: &recipe.Relay{URL: "https://relay.example/", Gateway: "https://gateway.example/x"},
		Tokens: &recipe.Tokens{Attester: "https://attester.example/", Key: owners.Attester.Public(), Attestation: recipe.Codes, MinCohort: 1, Admission: true}}
	if o.ServerKeys, err = owners.ServerKeys(true); err != nil {
		t.Fatal(err)
	}
	o.ServerKeys.EpochLength = 86400
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if got := tokensURL(r); got != "https://gateway.example/x/"+IssuerPath {
		t.Errorf("orders go to %s", got)
	}
	const epoch = 20000
	dir := filepath.Join(t.TempDir(), "epochs")
	begin := time.Unix(epoch*86400, 0)
	named, err := (&RoundKeys{Recipe: r, Epoch: epoch}).Make(dir)
	if err != nil {
		t.Fatal(err)
	}
	id, err := r.ID()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := (&RoundKeys{Recipe: r, Epoch: epoch, Rounds: 2}).Make(dir); err != nil || again != named || named.Recipe != id {
		t.Errorf("%x, then %x, %v", named, again, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"+admissionSuffix))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	info, err := os.Stat(files[0])
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	k, err := admission.ReadKeys(b)
	if err != nil || len(k.Keys) != 24 || k.First != epoch*24 || k.Length != 3600 || k.Grace != 12*60 || k.Public().Digest() != named.Keys {
		t.Errorf("%+v, %v", k, err)
	}
	for _, c := range []struct {
		from      time.Time
		rounds    int
		first, of uint64 // first counts from the epoch's
	}{{begin.Add(90 * time.Minute), 0, 1, 23}, {begin.Add(90 * time.Minute), 2, 1, 2}, {begin.Add(-time.Hour), 100, 0, 24}, {begin.Add(24*time.Hour - 1), 5, 23, 1}} {
		k, err := (&RoundKeys{Recipe: r, Epoch: epoch, From: c.from, Rounds: c.rounds}).keys()
		if err != nil || k.First != epoch*24+c.first || uint64(len(k.Keys)) != c.of {
			t.Errorf("%+v: %d from %d, %v", c, len(k.Keys), k.First, err)
		}
	}
	if _, err := (&RoundKeys{Recipe: r, Epoch: epoch, From: begin.Add(24 * time.Hour)}).keys(); !errors.Is(err, admission.ErrKeys) {
		t.Errorf("after the epoch: %v", err)
	}
	o.Tokens.Admission = false
	if r, err = account.New(o); err != nil {
		t.Fatal(err)
	}
	if _, err := (&RoundKeys{Recipe: r, Epoch: epoch}).Make(dir); !errors.Is(err, ErrNoAdmission) {
		t.Errorf("a recipe without admission: %v", err)
	}
}
