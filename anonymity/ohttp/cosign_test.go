package ohttp

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

// party makes an owner whose online key signs in the time of testManifest.
func party(t testing.TB) (root signed.PublicKey, s *signed.Signer) {
	t.Helper()
	offline := signed.Generate()
	return offline.Public(), signedtest.Signer(t, offline, time.Unix(500, 0), 2000*time.Second)
}

var roles = []signed.Role{signed.Leader, signed.Helper, signed.Gateway}

// cosigned is a manifest that all three have signed.
func cosigned(t testing.TB) (*Manifest, Roots, []*signed.Signer) {
	t.Helper()
	m := testManifest(t, generate(t, 3, sealed.SuiteX25519), "https://relay.example/", "https://leader.example/v1/")
	var r Roots
	signers := make([]*signed.Signer, 3)
	r.Leader, signers[0] = party(t)
	r.Helper, signers[1] = party(t)
	r.Gateway, signers[2] = party(t)
	for i := range roles {
		i = 2 - i // in whatever order they come
		if err := m.Sign(roles[i], signers[i]); err != nil {
			t.Fatal(err)
		}
	}
	return m, r, signers
}

// TestCosigned: a manifest holds if leader, helper and gateway have signed all of it,
// each as what it is.
func TestCosigned(t *testing.T) {
	m, roots, signers := cosigned(t)
	file, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ReadManifest(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Verify(roots); err != nil {
		t.Fatal(err)
	}
	before, _ := m.Digest()
	m.Signatures = nil
	if after, _ := m.Digest(); before != after {
		t.Error("the digest covers the signatures")
	}
	changed := func(change func(*Manifest)) *Manifest {
		x, err := ReadManifest(file)
		if err != nil {
			t.Fatal(err)
		}
		change(x)
		return x
	}
	sign := func(x *Manifest, role signed.Role, by int) {
		if err := x.Sign(role, signers[by]); err != nil {
			t.Fatal(err)
		}
	}
	for name, x := range map[string]*Manifest{
		"deployment": changed(func(x *Manifest) { x.Deployment[0]++ }),
		"revision":   changed(func(x *Manifest) { x.Revision++ }),
		"epoch": changed(func(x *Manifest) {
			x.NotBefore, x.NotAfter, x.Epoch = time.Unix(2000, 0).UTC(), time.Unix(2001, 0).UTC(), 2
		}),
		"previous":   changed(func(x *Manifest) { x.Previous[31]++ }),
		"relay":      changed(func(x *Manifest) { x.Relay = "https://relay.example/v2" }),
		"gateway":    changed(func(x *Manifest) { x.Gateway = []KeyConfig{NewKeyConfig(generate(t, 3, sealed.SuiteX25519))} }),
		"second key": changed(func(x *Manifest) { x.Gateway = append(x.Gateway, NewKeyConfig(generate(t, 4, sealed.SuiteX25519))) }),
		"tries":      changed(func(x *Manifest) { x.Tries-- }),
		"every":      changed(func(x *Manifest) { x.Every += time.Second }),
		"target":     changed(func(x *Manifest) { x.Targets[0] += "x/" }),
		"pinned":     changed(func(x *Manifest) { x.Pinned[0].Body[0]++ }),
		"recipes":    changed(func(x *Manifest) { x.Recipes = x.Recipes[1:] }),
		"nobody":     changed(func(x *Manifest) { x.Signatures = nil }),
		"leader's word alone": changed(func(x *Manifest) {
			x.Relay, x.Signatures = "https://other.example/", nil
			sign(x, signed.Leader, 0)
		}),
		"leader's word for all": changed(func(x *Manifest) {
			x.Relay, x.Signatures = "https://other.example/", nil
			for _, role := range roles {
				sign(x, role, 0)
			}
		}),
		"leader and gateway": changed(func(x *Manifest) {
			x.Relay = "https://other.example/"
			sign(x, signed.Leader, 0)
			sign(x, signed.Gateway, 2)
		}),
		"roles exchanged": changed(func(x *Manifest) {
			x.Signatures[0].Signature, x.Signatures[1].Signature = x.Signatures[1].Signature, x.Signatures[0].Signature
		}),
	} {
		if err := x.Verify(roots); !errors.Is(err, ErrUnsigned) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// One owner's key in two roles signs for each apart.
	one := changed(func(x *Manifest) { x.Signatures[1].Signature = x.Signatures[0].Signature })
	if err := one.Verify(Roots{roots.Leader, roots.Leader, roots.Gateway}); !errors.Is(err, ErrUnsigned) {
		t.Errorf("the leader's signature as the helper's: %v", err)
	}
}

// TestCosignedByExpiredKey: an online key signs nothing that holds past its end, and
// nothing of that kind is taken.
func TestCosignedByExpiredKey(t *testing.T) {
	m, roots, signers := cosigned(t)
	m.NotBefore, m.NotAfter, m.Epoch = time.Unix(2000, 0).UTC(), time.Unix(2600, 0).UTC(), 2
	if err := m.Sign(signed.Leader, signers[0]); !errors.Is(err, signed.ErrWindow) {
		t.Errorf("signed past the end: %v", err)
	}
	if err := m.Verify(roots); !errors.Is(err, ErrUnsigned) || !errors.Is(err, signed.ErrWindow) {
		t.Errorf("taken: %v", err)
	}
}

// TestManifestCut: what is cut off, or goes on, is no manifest; a changed byte is none,
// or not signed.
func TestManifestCut(t *testing.T) {
	m, roots, _ := cosigned(t)
	file, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadManifest(append(bytes.Clone(file), 0)); !errors.Is(err, ErrManifest) {
		t.Errorf("a byte more: %v", err)
	}
	for i := range file {
		if _, err := ReadManifest(file[:i]); !errors.Is(err, ErrManifest) {
			t.Fatalf("%d bytes: %v", i, err)
		}
		changed := bytes.Clone(file)
		changed[i] ^= 1
		x, err := ReadManifest(changed)
		if err == nil {
			err = x.Verify(roots)
		}
		if !errors.Is(err, ErrManifest) && !errors.Is(err, ErrUnsigned) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
	}
}
