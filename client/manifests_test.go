package client

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

// A trio is leader, helper and gateway, who sign.
type trio struct {
	t       testing.TB
	recipe  *recipe.Recipe
	signers map[signed.Role]*signed.Signer
	anchors *signed.Anchors
}

var trioRoles = []signed.Role{signed.Leader, signed.Helper, signed.Gateway}

// newTrio makes the three, and has a recipe name their keys and a relay.
func newTrio(t testing.TB, r *recipe.Recipe) *trio {
	t.Helper()
	x := &trio{t: t, recipe: r, signers: make(map[signed.Role]*signed.Signer)}
	var anchors []signed.Anchor
	for _, role := range trioRoles {
		root := signed.Generate()
		x.signers[role] = signedtest.Signer(t, root, now.AddDate(0, 0, -30), 90*24*time.Hour)
		domain := map[signed.Role]string{signed.Leader: "leader.example", signed.Helper: "helper.example", signed.Gateway: "leader.example"}[role]
		anchors = append(anchors, signed.Anchor{Name: role.String(), Domain: domain, Key: root.Public(), Owner: domain})
	}
	r.Relay = &recipe.Relay{URL: "https://relay.example/", Gateway: "https://gateway.leader.example/"}
	r.Rounds = &recipe.Rounds{Units: 1, Grace: 1}
	r.ServerKeys = &recipe.ServerKeys{Leader: anchors[0].Key, Helper: anchors[1].Key, Gateway: anchors[2].Key, Collector: recipe.Hash{1},
		EpochLength: recipe.DefaultEpochLength}
	var err error
	if x.anchors, err = signed.ReadAnchors(signed.MarshalAnchors(anchors...)); err != nil {
		t.Fatal(err)
	}
	return x
}

// manifest is one of the trio, with fresh keys of leader and helper under the ids id and
// id+1.
func (x *trio) manifest(from time.Time, life time.Duration, revision uint16, id uint8) *ohttp.Manifest {
	x.t.Helper()
	deployment, err := x.recipe.Deployment()
	if err != nil {
		x.t.Fatal(err)
	}
	recipeID, err := x.recipe.ID()
	if err != nil {
		x.t.Fatal(err)
	}
	path := x.recipe.Path.(recipe.TwoServer)
	key := func(id uint8) *sealed.KeyPair {
		k, err := sealed.Generate(id, sealed.SuiteX25519)
		if err != nil {
			x.t.Fatal(err)
		}
		return k
	}
	length := x.recipe.ServerKeys.Epoch()
	m := &ohttp.Manifest{
		Deployment: deployment, Epoch: ohttp.EpochAt(from, length), Revision: revision, Length: length, NotBefore: from, NotAfter: from.Add(life),
		Relay: x.recipe.Relay.URL, Gateway: []ohttp.KeyConfig{ohttp.NewKeyConfig(key(7))}, Tries: 1, Every: time.Second, Hold: ohttp.DefaultHold,
		Targets: []string{path.Leader}, Recipes: [][32]byte{recipeID},
	}
	for i, base := range []string{path.Leader, path.Helper} {
		body, err := dap.HpkeConfigList{dap.NewHpkeConfig(key(id + uint8(i)))}.Append(nil)
		if err != nil {
			x.t.Fatal(err)
		}
		l := &signed.List{Deployment: deployment, Role: trioRoles[i], URL: base, Epoch: m.Epoch, NotBefore: m.NotBefore, NotAfter: m.NotAfter, Body: body}
		list, err := l.Sign(x.signers[trioRoles[i]])
		if err != nil {
			x.t.Fatal(err)
		}
		at, err := signed.ListURL(base, deployment)
		if err != nil {
			x.t.Fatal(err)
		}
		m.Pinned = append(m.Pinned, ohttp.Pinned{URL: at, Media: signed.ListMedia, Body: list})
	}
	for _, role := range trioRoles {
		if err := m.Sign(role, x.signers[role]); err != nil {
			x.t.Fatal(err)
		}
	}
	return m
}

// TestSignedManifest: one of the next epoch is held to all but its time, and nothing of it is
// remembered: the present one is used as before, and so is another one of the next epoch.
func TestSignedManifest(t *testing.T) {
	r := testRecipe(recipe.Histogram{Length: 4, Chunk: 2})
	x := newTrio(t, r)
	clock, begin := now, now.UTC().Truncate(time.Second)
	source := &given{x.manifest(begin, time.Hour, 0, 10)}
	manifests, err := NewManifests(ManifestsOptions{Recipe: r, Anchors: x.anchors, Source: source, Memory: Forgetful(), Now: func() time.Time { return clock }})
	if err != nil {
		t.Fatal(err)
	}
	coming := x.manifest(begin.Add(r.ServerKeys.Epoch()), time.Hour, 0, 12)
	if err := manifests.Signed(coming); err != nil {
		t.Fatal(err)
	}
	if _, err := manifests.Manifest(t.Context()); err != nil {
		t.Errorf("the present manifest, after one of the next epoch was looked at: %v", err)
	}
	half := *coming
	half.Signatures = half.Signatures[:2]
	if err := manifests.Signed(&half); !errors.Is(err, ohttp.ErrUnsigned) {
		t.Errorf("two of three have signed: %v", err)
	}
	other := *coming
	other.Deployment[0]++
	if err := manifests.Signed(&other); !errors.Is(err, ohttp.ErrManifest) {
		t.Errorf("of another deployment: %v", err)
	}
	clock = coming.NotBefore
	source.m = x.manifest(coming.NotBefore, time.Hour, 0, 14)
	if _, err := manifests.Manifest(t.Context()); err != nil {
		t.Errorf("the one of the next epoch, where another was looked at: %v", err)
	}
}

// TestManifestPastTheGrace: a manifest by which devices would still try when their round
// is released is refused, though all three have signed it.
func TestManifestPastTheGrace(t *testing.T) {
	r := testRecipe(recipe.Histogram{Length: 4, Chunk: 2})
	x := newTrio(t, r)
	source := &given{x.manifest(now.UTC().Truncate(time.Second), time.Hour, 0, 10)}
	manifests, err := NewManifests(ManifestsOptions{Recipe: r, Anchors: x.anchors, Source: source, Memory: Forgetful(), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := manifests.Manifest(t.Context()); err != nil {
		t.Fatal(err)
	}
	late := *source.m
	late.Tries, late.Signatures = 2, nil
	for _, role := range trioRoles {
		if err := late.Sign(role, x.signers[role]); err != nil {
			t.Fatal(err)
		}
	}
	source.m = &late
	var sending *ohttp.SendingError
	if _, err := manifests.Manifest(t.Context()); !errors.As(err, &sending) || sending.Sending != 2*time.Second || sending.Grace != time.Second {
		t.Errorf("tries for 2 s, and 1 s of grace: %v", err)
	}
	// No round of a batch that the leader selects is waited for.
	path := r.Path.(recipe.TwoServer)
	path.BatchMode = dap.LeaderSelected
	r.Path = path
	manifests, err = NewManifests(ManifestsOptions{Recipe: r, Anchors: x.anchors, Source: source, Memory: Forgetful(), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := manifests.Manifest(t.Context()); err != nil {
		t.Errorf("leader-selected: %v", err)
	}
}

// given is a source whose manifest a test exchanges.
type given struct{ m *ohttp.Manifest }

func (g *given) Manifest(context.Context) (*ohttp.Manifest, error) { return g.m, nil }

// noRoad carries nothing.
type noRoad struct{ t *testing.T }

func (r noRoad) RoundTrip(*http.Request) (*http.Response, error) {
	r.t.Error("a request was sent")
	return nil, errors.New("no road")
}

// TestPinnedKeysEndWithTheirManifest: a device that lives long seals to no key after the
// manifest that it was in, takes those of the next epoch when it comes, and those of an
// emergency's at once.
func TestPinnedKeysEndWithTheirManifest(t *testing.T) {
	r := testRecipe(recipe.Histogram{Length: 4, Chunk: 2})
	x := newTrio(t, r)
	begin := now.UTC().Truncate(time.Second)
	clock := begin
	source := &given{x.manifest(begin, time.Hour, 0, 10)}
	manifests, err := NewManifests(ManifestsOptions{Recipe: r, Anchors: x.anchors, Source: source, Memory: Forgetful(), Now: func() time.Time { return clock }})
	if err != nil {
		t.Fatal(err)
	}
	via, err := ohttp.NewTransport(ohttp.TransportOptions{Source: manifests, Relay: noRoad{t}, Now: func() time.Time { return clock }})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Prover: account.Prover, Recipe: encode(t, r), Anchors: x.anchors, MaxEpsilon: inf, Via: via, Now: func() time.Time { return clock }}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	sealedTo := func() (leader, helper uint8) {
		t.Helper()
		report, err := c.Prepare(Bucket(1), clock)
		if err != nil {
			t.Fatal(err)
		}
		return report.Leader.ConfigID, report.Helper.ConfigID
	}
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l, h := sealedTo(); l != 10 || h != 11 {
		t.Errorf("sealed to %d and %d", l, h)
	}
	// An emergency: other keys in the same epoch, long before the old ones would have
	// been asked for again.
	clock = clock.Add(time.Second)
	source.m = x.manifest(begin, time.Hour, 1, 20)
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l, h := sealedTo(); l != 20 || h != 21 {
		t.Errorf("sealed to %d and %d of the first revision", l, h)
	}
	clock = begin.Add(time.Hour - time.Second)
	sealedTo()
	clock = begin.Add(time.Hour)
	if _, err := c.Prepare(Bucket(1), clock); !errors.Is(err, ErrNoKeys) {
		t.Errorf("sealed to keys whose manifest is over: %v", err)
	}
	if err := c.Refresh(t.Context()); !errors.Is(err, ohttp.ErrManifest) {
		t.Errorf("the manifest is over: %v", err)
	}
	clock = begin.Add(r.ServerKeys.Epoch())
	source.m = x.manifest(clock, time.Hour, 0, 30)
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l, h := sealedTo(); l != 30 || h != 31 {
		t.Errorf("sealed to %d and %d of the epoch before", l, h)
	}
	// A recipe that is not live any more is not answered.
	retired := x.manifest(clock, time.Hour, 1, 40)
	retired.Recipes = nil
	for _, role := range trioRoles {
		if err := retired.Sign(role, x.signers[role]); err != nil {
			t.Fatal(err)
		}
	}
	source.m = retired
	if err := c.Refresh(t.Context()); !errors.Is(err, ohttp.ErrManifest) {
		t.Errorf("a recipe that is not live: %v", err)
	}
	// No other source of manifests will do, nor another deployment's.
	if o.Via, err = ohttp.NewTransport(ohttp.TransportOptions{Source: source}); err != nil {
		t.Fatal(err)
	}
	if _, err := New(o); err == nil {
		t.Error("manifests that nobody checks are taken")
	}
	o.Via, o.Anchors = via, nil
	var refused *RefusedError
	if _, err := New(o); !errors.As(err, &refused) || refused.Reason != ReasonKeys {
		t.Errorf("without anchors: %v", err)
	}
}

// TestMemoryAtFailingDisk: whatever write fails, whether the power goes then or not, a
// device that took a manifest takes no other of that epoch, and a clock that it acted on
// is not put back.
func TestMemoryAtFailingDisk(t *testing.T) {
	r := testRecipe(recipe.Histogram{Length: 4, Chunk: 2})
	x := newTrio(t, r)
	begin := now.UTC().Truncate(time.Second)
	one, two := x.manifest(begin, time.Hour, 0, 10), x.manifest(begin, time.Hour, 0, 20)
	failed := 0
	for at := 0; ; at++ {
		for _, cut := range []bool{false, true} {
			mem := disktest.NewMem(uint64(at))
			device := func(m *ohttp.Manifest, clock time.Time) error {
				memory, err := OpenMemory(mem)
				if err != nil {
					return err
				}
				manifests, err := NewManifests(ManifestsOptions{Recipe: r, Anchors: x.anchors, Source: ohttp.Pin(m), Memory: memory,
					Now: func() time.Time { return clock }})
				if err != nil {
					t.Fatal(err)
				}
				_, err = manifests.Manifest(t.Context())
				return err
			}
			n := 0
			mem.Inject(func(disktest.Op, string) error {
				if n++; n == at+1 {
					return errors.New("no")
				}
				return nil
			})
			taken := device(one, begin.Add(time.Minute)) == nil
			done := n <= at
			if !taken {
				failed++
			}
			mem.Inject(nil)
			if cut {
				mem = mem.Crash()
			}
			if taken {
				if err := device(one, begin.Add(time.Minute-time.Second)); !errors.Is(err, ErrClock) {
					t.Errorf("operation %d, power cut %v: the clock: %v", at, cut, err)
				}
			}
			if err := device(two, begin.Add(2*time.Minute)); (err == nil) == taken || taken && !errors.Is(err, ErrConflict) {
				// Where the first failed half-way the disk may hold it all the same.
				if taken || !errors.Is(err, ErrConflict) {
					t.Errorf("operation %d, power cut %v: the other is taken: %v, and the one was: %v", at, cut, err, taken)
				}
			}
			if done && cut {
				if failed < 6 {
					t.Errorf("only %d failures were played", failed)
				}
				return
			}
		}
	}
}
