package logged

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/shuffle/onion"
	"github.com/starling-agg/starling/signed"
)

// This file has what the owners of hops and analyzers have logged.

// keyOf names the key of a party for one round.
type keyOf struct {
	recipe [32]byte
	role   onion.Role
	round  uint64
	root   signed.PublicKey
}

// shuffleKeys reads the key list of a hop or an analyzer, of one round. A log takes one of
// them for each round, party and owner, so that who gave one device another key would have
// to show that key to all.
func (j Judge) shuffleKeys(e tlog.Entry) (*onion.KeyList, tlog.Claim, error) {
	l, root, err := onion.ReadKeyList(e.Body)
	if errors.Is(err, onion.ErrKeys) {
		return nil, tlog.Claim{}, fmt.Errorf("%w: %w", ErrContent, err)
	}
	if err != nil {
		return nil, tlog.Claim{}, fmt.Errorf("%w: %w", ErrAuthor, err)
	}
	if _, err := j.owner(root, l.Role.String()); err != nil {
		return nil, tlog.Claim{}, err
	}
	return l, tlog.Claim{From: l.Issued, Until: l.Until, Owners: []signed.PublicKey{root},
		About: about(e.Kind, l.Recipe[:], []byte{byte(l.Role)}, binary.BigEndian.AppendUint64(nil, l.First), root[:])}, nil
}

// batch reads what two hops have signed of a batch. Devices need none of it: it ends when it
// begins.
func (j Judge) batch(e tlog.Entry) (tlog.Claim, error) {
	m, roots, err := onion.ReadManifest(e.Body)
	if errors.Is(err, onion.ErrManifest) || errors.Is(err, onion.ErrCount) {
		return tlog.Claim{}, fmt.Errorf("%w: %w", ErrContent, err)
	}
	if err != nil {
		return tlog.Claim{}, fmt.Errorf("%w: %w", ErrAuthor, err)
	}
	var owners [2]signed.Anchor
	for i, role := range []onion.Role{onion.First, onion.Second} {
		if owners[i], err = j.owner(roots[i], role.String()); err != nil {
			return tlog.Claim{}, err
		}
	}
	if owners[0].SameOwner(owners[1]) {
		return tlog.Claim{}, fmt.Errorf("%w: both hops have one owner", ErrAuthor)
	}
	return tlog.Claim{From: m.At, Until: m.At, Owners: roots[:], Stated: m.At,
		About: about(e.Kind, m.Recipe[:], binary.BigEndian.AppendUint64(nil, m.Round), roots[0][:], roots[1][:])}, nil
}

// frontManifest reads the manifest of a path without leader and helper, which its gateway
// signs alone. It is about that gateway, so that no other takes its place.
func (j Judge) frontManifest(e tlog.Entry) (*ohttp.Manifest, tlog.Claim, error) {
	m, err := readManifest(e)
	if err != nil {
		return nil, tlog.Claim{}, err
	}
	if len(m.Signatures) != 1 || m.Signatures[0].Role != signed.Gateway {
		return nil, tlog.Claim{}, fmt.Errorf("%w: the gateway has not signed it, alone", ErrAuthor)
	}
	root := m.Signatures[0].Signature.Delegation.Root
	if _, err := j.owner(root, signed.Gateway.String()); err != nil {
		return nil, tlog.Claim{}, err
	}
	if err := m.VerifyOne(m.Signatures[0], root); err != nil {
		return nil, tlog.Claim{}, fmt.Errorf("%w: %w", ErrAuthor, err)
	}
	return m, tlog.Claim{From: m.NotBefore, Until: m.NotAfter, Owners: []signed.PublicKey{root},
		About: about(e.Kind, m.Deployment[:], binary.BigEndian.AppendUint32(nil, m.Epoch), binary.BigEndian.AppendUint16(nil, m.Revision), root[:])}, nil
}

// ShuffleKeys is the signed key list of a party for a round, by its owner's root key; nil
// where the log has none.
func (x *Content) ShuffleKeys(recipe [32]byte, role onion.Role, round uint64, root signed.PublicKey) []byte {
	return x.keys[keyOf{recipe, role, round, root}]
}

// HopsCohort is [Content.Cohort] of a manifest whose issuers stand beside two hops of these
// owners.
func (x *Content) HopsCohort(m *ohttp.Manifest, first, second signed.PublicKey) (c arc.Cohort, ok bool) {
	said := x.said(m, map[signed.Role]signed.PublicKey{signed.Hop1: first, signed.Hop2: second})
	return arc.Cohort{Leader: said[signed.Hop1], Helper: said[signed.Hop2], Attested: said[signed.Attester]}, len(said) == 3
}
