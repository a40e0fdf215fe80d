package attester

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"

	"github.com/starling-agg/starling/internal/disk"
)

// Evidence is what a device enrols with.
type Evidence struct {
	// Proof is that of its visit.Enrolment.
	Proof []byte
	// Nonce is visit.Nonce of the enrolment: a proof that has it was made for this secret.
	Nonce string
	// Certificates are those that its TLS connection showed, its own first, whose key it has
	// there proved to hold; none where it showed none. They are not verified yet.
	Certificates []*x509.Certificate
}

// An Attestation tells one device from another: [Codes], [OIDC] or [Certificates]. It must be
// safe for concurrent use.
type Attestation interface {
	// Device returns the name of the device that evidence is of, the same each time, and tells
	// nothing of who that is to those who do not have the attestation's key. It fails with an
	// error that wraps [ErrProof], or [ErrAway].
	Device(ctx context.Context, e *Evidence) (id [32]byte, err error)
}

// ErrProof: what a device enrols with proves nothing.
var ErrProof = errors.New("attester: the proof is of no device")

// ErrAway: who says what a proof is worth does not answer, so that the device may come again.
var ErrAway = errors.New("attester: the identity provider does not answer")

// A NameKey hides whom the names of devices are of: names come from identities by HMAC-SHA-256
// under it. Under another key a device would have another name, and a second credential.
type NameKey [32]byte

// Domains of what is hashed under a [NameKey].
const (
	oidcDomain    = "starling device oidc v1"
	keyDomain     = "starling device certificate key v1"
	subjectDomain = "starling device certificate subject v1"
	checkDomain   = "starling device name key v1"
)

// name is HMAC-SHA-256 of the domain and of parts, each behind its length.
func (k *NameKey) name(domain string, parts ...string) (id [32]byte) {
	h := hmac.New(sha256.New, k[:])
	for _, p := range append([]string{domain}, parts...) {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	h.Sum(id[:0])
	return id
}

// named is an attestation whose names depend on more than what a device proves: on its key,
// and on what tells devices apart.
type named interface {
	// record is a value that another key, provider or choice does not have.
	record() [32]byte
}

// ErrNames: the devices that are known have names by another attestation, under which they
// would all be new, and each could have a second credential.
var ErrNames = errors.New("attester: the devices that are known were told apart in another way, or under another key")

const (
	namesFile = "names"
	namesSize = 32
)

// keepNames holds the attestation to the one by which the devices got their names.
func (a *Attester) keepNames() error {
	kept, err := disk.ReadFile(a.o.FS, namesFile, namesSize)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("attester: %s: %w", namesFile, err)
	}
	x, ok := a.o.Attestation.(named)
	switch {
	case !ok && len(kept) == 0:
		return nil
	case !ok:
		return ErrNames
	}
	now := x.record()
	switch {
	case err == nil && !hmac.Equal(kept, now[:]), err != nil && len(a.secrets) > 0:
		return ErrNames
	case err == nil:
		return nil
	}
	if err := disk.WriteFile(a.o.FS, namesFile, now[:]); err != nil {
		return fmt.Errorf("attester: %s: %w", namesFile, err)
	}
	return nil
}
