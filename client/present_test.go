package client

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/signed"
)

// held is a device's credentials of some key epochs, with the verifiers that know them.
type held struct {
	t         testing.TB
	epochs    map[uint64]*Held
	verifiers map[uint64][2]*arc.Verifier
}

// Held implements [Credentials].
func (h *held) Held(epoch uint64) (*Held, error) {
	if x := h.epochs[epoch]; x != nil {
		return x, nil
	}
	return nil, fmt.Errorf("%w: epoch %d", ErrNoCredentials, epoch)
}

var credentialRoles = [2]arc.Role{arc.Leader, arc.Helper}

// issue has both issuers of an epoch give a device its credentials.
func (h *held) issue(deployment [32]byte, epoch uint64) {
	h.t.Helper()
	x := new(Held)
	var verifiers [2]*arc.Verifier
	for i, into := range []struct {
		credential **arc.Credential
		id         *arc.KeyID
	}{{&x.Leader, &x.LeaderKey}, {&x.Helper, &x.HelperKey}} {
		k := arc.GenerateKey()
		*into.id = k.PublicKey().ID()
		context := arc.NewRequestContext(credentialRoles[i], deployment, epoch, *into.id)
		p := arc.NewPending(context)
		response, err := k.Respond(p.Request())
		if err != nil {
			h.t.Fatal(err)
		}
		if *into.credential, err = p.Finalize(k.PublicKey(), response); err != nil {
			h.t.Fatal(err)
		}
		verifiers[i] = k.Verifier(context)
	}
	h.epochs[epoch], h.verifiers[epoch] = x, verifiers
}

// countedRecipe is one whose devices show credentials, a key epoch a week.
func countedRecipe(t testing.TB, q recipe.Query) (*recipe.Recipe, *trio) {
	t.Helper()
	r := testRecipe(q)
	x := newTrio(t, r)
	attester := signed.Generate()
	r.Tokens = &recipe.Tokens{Attester: "https://attester.example/", Key: attester.Public(), Attestation: recipe.Codes, MinCohort: 1}
	list := append(x.anchors.List(), signed.Anchor{Name: "attester", Domain: "attester.example", Key: attester.Public(), Owner: "another"})
	var err error
	if x.anchors, err = signed.ReadAnchors(signed.MarshalAnchors(list...)); err != nil {
		t.Fatal(err)
	}
	return r, x
}

// TestPresents: a report shows a credential of each issuer, in the round of its time and
// bound to its own shares; a device without any of the round makes none; and what is sealed
// anew shows the same, byte for byte.
func TestPresents(t *testing.T) {
	r, x := countedRecipe(t, recipe.Histogram{Length: 4, Chunk: 2})
	s := newServers(t, r)
	deployment, err := r.Deployment()
	if err != nil {
		t.Fatal(err)
	}
	length := uint64(r.ServerKeys.EpochLength)
	epoch := uint64(now.Unix()) / length
	h := &held{t, map[uint64]*Held{}, map[uint64][2]*arc.Verifier{}}
	h.issue(deployment, epoch)
	c := s.client(func(o *Options) { o.AnyKeys, o.Anchors, o.Credentials = false, x.anchors, h })
	key := func(k *sealed.KeyPair) *sealingKey {
		config := dap.NewHpkeConfig(k)
		public, err := config.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		return &sealingKey{id: k.ID(), public: public, expires: now.Add(time.Hour), until: now.Add(time.Hour)}
	}
	c.leader.set(key(s.leader))
	c.helper.set(key(s.helper))

	// shown opens both shares as their aggregators do, and verifies what they show.
	shown := func(report dap.Report) (tags [2]arc.Tag, shows [2][]byte) {
		t.Helper()
		aad := dap.InputShareAAD(c.taskID, c.task.Bytes(), &report.Metadata, report.PublicShare)
		for i, by := range []struct {
			key    *sealed.KeyPair
			role   dap.Role
			sealed dap.HpkeCiphertext
			id     arc.KeyID
		}{{s.leader, dap.RoleLeader, report.Leader, h.epochs[epoch].LeaderKey}, {s.helper, dap.RoleHelper, report.Helper, h.epochs[epoch].HelperKey}} {
			plain, err := by.key.Open(by.sealed.Enc, c.task.Version.InputShareInfo(by.role), aad, by.sealed.Payload)
			if err != nil {
				t.Fatal(err)
			}
			share, err := dap.ReadPlaintextInputShare(plain)
			if err != nil || share.PrivateExtensions.Len() != 1 {
				t.Fatalf("%v, %v", share.PrivateExtensions, err)
			}
			data, _ := share.PrivateExtensions.Get(dap.ExtPresentation)
			p, err := arc.ReadPresentation(data)
			if err != nil {
				t.Fatal(err)
			}
			base := arc.NewTagBase(arc.NewPresentationContext(credentialRoles[i], c.taskID, r.Round(report.Metadata.Time), by.id))
			item := arc.Item{Base: base, Binding: arc.Bind(credentialRoles[i], aad, share.Payload), Presentation: p}
			if err := h.verifiers[epoch][i].Verify(item); err != nil {
				t.Errorf("%v: %v", by.role, err)
			}
			tags[i], shows[i] = p.Tag(), data
		}
		return tags, shows
	}
	prepare := func(at time.Time) dap.Report {
		t.Helper()
		report, err := c.Prepare(Bucket(1), at)
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	first, _ := shown(prepare(now))
	if again, _ := shown(prepare(now)); again != first {
		t.Error("one device in one round has two tags")
	}
	if next, _ := shown(prepare(now.Add(time.Hour))); next[0] == first[0] || next[1] == first[1] {
		t.Error("one tag in two rounds")
	}
	if back, _ := shown(prepare(now)); back != first {
		t.Error("another tag in a round that was left and entered again")
	}

	m, err := c.prepare(Bucket(1), now)
	if err != nil {
		t.Fatal(err)
	}
	before := m.report
	_, one := shown(m.report)
	if err := c.seal(m); err != nil {
		t.Fatal(err)
	}
	if _, two := shown(m.report); !bytes.Equal(one[0], two[0]) || !bytes.Equal(one[1], two[1]) || bytes.Equal(before.Leader.Payload, m.report.Leader.Payload) {
		t.Error("a report that is sealed anew shows another presentation, or is not sealed anew")
	}

	begin := time.Unix(int64((epoch+1)*length), 0)
	for _, at := range []time.Time{begin, begin.Add(time.Hour)} {
		if _, err := c.Prepare(Bucket(1), at); !errors.Is(err, ErrNoCredentials) {
			t.Errorf("%v: %v", at, err)
		}
		if err := c.Creditable(at); !errors.Is(err, ErrNoCredentials) {
			t.Errorf("%v: %v", at, err)
		}
	}
	if err := c.Creditable(now); err != nil {
		t.Error(err)
	}

	size, err := r.UploadBytes()
	if err != nil {
		t.Fatal(err)
	}
	r.Tokens = nil
	without, err := r.UploadBytes()
	if err != nil || size-without != 2*(4+arc.PresentationSize) {
		t.Errorf("%d bytes with credentials, %d without, %v", size, without, err)
	}
}

// TestCredentialsRequired: a recipe that counts devices is not for one that has nowhere to
// take credentials from.
func TestCredentialsRequired(t *testing.T) {
	r, x := countedRecipe(t, recipe.Histogram{Length: 4, Chunk: 2})
	o := Options{Prover: account.Prover, Recipe: encode(t, r), MaxEpsilon: inf, Anchors: x.anchors}
	var refused *RefusedError
	if _, err := New(o); !errors.As(err, &refused) || refused.Reason != ReasonCredentials {
		t.Errorf("%v", err)
	}
	o.Credentials = &held{t: t}
	if _, err := New(o); err != nil {
		t.Error(err)
	}
}

// TestManifestIssuers: a device whose recipe counts devices takes no manifest that names no
// issuers, or those of another attester.
func TestManifestIssuers(t *testing.T) {
	r, x := countedRecipe(t, recipe.Histogram{Length: 4, Chunk: 2})
	source := new(given)
	m, err := NewManifests(ManifestsOptions{Recipe: r, Anchors: x.anchors, Source: source, Memory: Forgetful(), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		issuers *ohttp.Issuers
		want    error
	}{
		"none":             {nil, ohttp.ErrManifest},
		"another attester": {&ohttp.Issuers{Leader: [ohttp.IssuerKeySize]byte{1}, Attester: signed.Generate().Public(), Cap: 1}, ohttp.ErrManifest},
		"its own":          {&ohttp.Issuers{Leader: [ohttp.IssuerKeySize]byte{1}, Attester: r.Tokens.Key, Cap: 1}, nil},
	} {
		source.m = x.manifest(now.UTC().Truncate(time.Second), time.Hour, 0, 10)
		source.m.Issuers, source.m.Signatures = c.issuers, nil
		for _, role := range trioRoles {
			if err := source.m.Sign(role, x.signers[role]); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := m.Manifest(t.Context()); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
