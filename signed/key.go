package signed

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"filippo.io/edwards25519"
)

// Errors to branch on with errors.Is.
var (
	// ErrKey: not a key, or one that must not be used.
	ErrKey = errors.New("signed: not a usable Ed25519 key")
	// ErrSignature: not signed by whom it should be, or not this.
	ErrSignature = errors.New("signed: the signature does not hold")
	// ErrWindow: the online key may not sign for all of that time.
	ErrWindow = errors.New("signed: outside the time of the signing key")
)

// KeySize is the length of a public key, in bytes.
const KeySize = ed25519.PublicKeySize

// A PublicKey is an Ed25519 public key (RFC 8032). Its zero value stands for none.
type PublicKey [KeySize]byte

// ReadPublicKey reads a key of [KeySize] bytes. It fails with [ErrKey].
func ReadPublicKey(b []byte) (PublicKey, error) {
	if len(b) != KeySize {
		return PublicKey{}, fmt.Errorf("%w: %d bytes, want %d", ErrKey, len(b), KeySize)
	}
	k := PublicKey(b)
	return k, k.Validate()
}

// ParsePublicKey reads what [PublicKey.String] writes. It fails with [ErrKey].
func ParsePublicKey(s string) (PublicKey, error) {
	b, err := hex.DecodeString(s)
	if err != nil || hex.EncodeToString(b) != s {
		return PublicKey{}, fmt.Errorf("%w: not %d lower-case hexadecimal digits", ErrKey, 2*KeySize)
	}
	return ReadPublicKey(b)
}

// Validate refuses with [ErrKey] what is no point of the curve, not its one encoding, or
// of small order.
func (k PublicKey) Validate() error {
	p, err := new(edwards25519.Point).SetBytes(k[:])
	switch {
	case err != nil:
		return fmt.Errorf("%w: not a point of the curve", ErrKey)
	case !bytes.Equal(p.Bytes(), k[:]):
		return fmt.Errorf("%w: not in its one encoding", ErrKey)
	case new(edwards25519.Point).MultByCofactor(p).Equal(edwards25519.NewIdentityPoint()) == 1:
		return fmt.Errorf("%w: of small order", ErrKey)
	}
	return nil
}

// IsZero says whether there is none.
func (k PublicKey) IsZero() bool { return k == PublicKey{} }

// String is lower-case hexadecimal.
func (k PublicKey) String() string { return hex.EncodeToString(k[:]) }

// MarshalText is the hexadecimal form.
func (k PublicKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Fingerprint is for people to compare: the first 16 bytes of the key's SHA-256, in
// groups of four digits.
func (k PublicKey) Fingerprint() string {
	sum := sha256.Sum256(k[:])
	var groups []string
	for i := 0; i < 16; i += 2 {
		groups = append(groups, hex.EncodeToString(sum[i:i+2]))
	}
	return strings.Join(groups, " ")
}

// A PrivateKey is the secret half: a root or an online key. All forms of printing give
// "redacted"; [PrivateKey.Marshal] gives the secret. It is immutable and safe for
// concurrent use.
type PrivateKey struct{ key ed25519.PrivateKey }

// Generate makes a key.
func Generate() *PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	rand.Read(seed)
	return &PrivateKey{ed25519.NewKeyFromSeed(seed)}
}

// Public is the public half.
func (k *PrivateKey) Public() PublicKey { return PublicKey(k.key.Public().(ed25519.PublicKey)) }

// fileMagic opens a key file and holds the version of its format.
const fileMagic = "starling signing key v1\n"

// Marshal is the key file: magic, seed[32], public_key[32]. The public key is there to
// find damage. It holds the secret.
func (k *PrivateKey) Marshal() []byte {
	public := k.Public()
	return append(append([]byte(fileMagic), k.key.Seed()...), public[:]...)
}

// ParsePrivateKey reads a key file, all of it, and checks that the two halves belong
// together. It fails with [ErrKey].
func ParsePrivateKey(file []byte) (*PrivateKey, error) {
	s, ok := bytes.CutPrefix(file, []byte(fileMagic))
	if !ok || len(s) != ed25519.SeedSize+KeySize {
		return nil, fmt.Errorf("%w: not a starling signing key file of version 1", ErrKey)
	}
	k := &PrivateKey{ed25519.NewKeyFromSeed(s[:ed25519.SeedSize])}
	if public := k.Public(); !bytes.Equal(public[:], s[ed25519.SeedSize:]) {
		return nil, fmt.Errorf("%w: the file is damaged", ErrKey)
	}
	return k, nil
}

func (k *PrivateKey) sign(domain string, message []byte) [ed25519.SignatureSize]byte {
	return [ed25519.SignatureSize]byte(ed25519.Sign(k.key, input(domain, message)))
}

func verify(k PublicKey, signature [ed25519.SignatureSize]byte, domain string, message []byte) bool {
	return ed25519.Verify(k[:], input(domain, message), signature[:])
}

// Sign signs a message under a domain string, by the key itself and without an end, for
// what names this key and no root: [PublicKey.Verifies] takes it.
func (k *PrivateKey) Sign(domain string, message []byte) [ed25519.SignatureSize]byte {
	return k.sign(domain, message)
}

// Verifies says whether a signature of the key's own is over a message under a domain
// string.
func (k PublicKey) Verifies(signature [ed25519.SignatureSize]byte, domain string, message []byte) bool {
	return k.Validate() == nil && verify(k, signature, domain, message)
}

// input is what is signed: the domain string, a zero byte, which no domain string holds,
// and the message.
func input(domain string, message []byte) []byte {
	return append(append([]byte(domain), 0), message...)
}

// Format implements fmt.Formatter: the secret is never printed.
func (*PrivateKey) Format(f fmt.State, _ rune) { io.WriteString(f, "redacted") }

// LogValue implements slog.LogValuer.
func (*PrivateKey) LogValue() slog.Value { return slog.StringValue("redacted") }

// MarshalText is what other encoders, such as encoding/json, print.
func (*PrivateKey) MarshalText() ([]byte, error) { return []byte("redacted"), nil }
