package attester

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-agg/starling/anonymity/visit"
)

// A CertificateName is what of a certificate tells one device from another.
type CertificateName uint8

const (
	// CertificateKey: the public key. A device whose certificate is renewed with a new key is
	// another device.
	CertificateKey CertificateName = 1 + iota
	// SubjectSerial: the subject's serialNumber (RFC 4519, 2.31), which certificates must have,
	// and of which the authority gives each device one.
	SubjectSerial
)

// CertificateOptions make [Certificates].
type CertificateOptions struct {
	// Roots have signed the certificates of devices, or those between. Required.
	Roots *x509.CertPool
	// Name is what tells devices apart. Required.
	Name CertificateName
	// Key hides it. Required.
	Key NameKey
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// maxChain bounds the certificates that a connection shows.
const maxChain = 6

// Certificates are TLS client certificates: the device is whoever holds the key of one that an
// authority of the operator's has signed. That no person has two is that authority's word. TLS
// is spoken with the attester itself: of a proxy's word nothing is taken.
type Certificates struct{ o CertificateOptions }

// NewCertificates makes the attestation by certificates.
func NewCertificates(o CertificateOptions) (*Certificates, error) {
	if o.Roots == nil || o.Name < CertificateKey || o.Name > SubjectSerial || o.Key == (NameKey{}) {
		return nil, errors.New("attester: certificates: no roots, name or key")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Certificates{o}, nil
}

// Device implements [Attestation].
func (c *Certificates) Device(_ context.Context, e *Evidence) (id [32]byte, err error) {
	refuse := func(format string, args ...any) ([32]byte, error) {
		return id, fmt.Errorf("%w: %w", ErrProof, fmt.Errorf(format, args...))
	}
	switch {
	case string(e.Proof) != visit.CertificateProof:
		return refuse("it is not by a certificate")
	case len(e.Certificates) == 0:
		return refuse("the connection shows no certificate")
	case len(e.Certificates) > maxChain:
		return refuse("%d certificates, want at most %d", len(e.Certificates), maxChain)
	}
	own, between := e.Certificates[0], x509.NewCertPool()
	for _, x := range e.Certificates[1:] {
		between.AddCert(x)
	}
	// To the library a certificate that says nothing of its use is for any.
	if !slices.Contains(own.ExtKeyUsage, x509.ExtKeyUsageClientAuth) {
		return refuse("the certificate is not for clients")
	}
	if _, err := own.Verify(x509.VerifyOptions{Roots: c.o.Roots, Intermediates: between, CurrentTime: c.o.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return refuse("%w", err)
	}
	if c.o.Name == CertificateKey {
		return c.o.Key.name(keyDomain, string(own.RawSubjectPublicKeyInfo)), nil
	}
	if own.Subject.SerialNumber == "" {
		return refuse("the certificate's subject has no serialNumber")
	}
	return c.o.Key.name(subjectDomain, own.Subject.SerialNumber), nil
}

// record implements [named].
func (c *Certificates) record() [32]byte {
	return c.o.Key.name(checkDomain, "mtls", string('0'+rune(c.o.Name)))
}
