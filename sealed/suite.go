package sealed

import (
	"crypto/hpke"
	"errors"
	"fmt"
)

// Errors to branch on. Faults of a ciphertext are deliberately not told apart.
var (
	ErrSuite      = errors.New("sealed: unsupported HPKE suite")
	ErrKey        = errors.New("sealed: malformed key")
	ErrUnknownKey = errors.New("sealed: unknown key id")
	ErrOpen       = errors.New("sealed: cannot open")
)

// Algorithm identifiers (RFC 9180 section 7, and the IANA registry for hybrids).
const (
	KEMP256              uint16 = 0x0010 // DHKEM(P-256, HKDF-SHA256)
	KEMX25519            uint16 = 0x0020 // DHKEM(X25519, HKDF-SHA256)
	KEMXWing             uint16 = 0x647a // ML-KEM-768 with X25519: safe from later quantum computers
	KDFSHA256            uint16 = 0x0001
	KDFSHA384            uint16 = 0x0002
	KDFSHA512            uint16 = 0x0003
	AEADAES128GCM        uint16 = 0x0001
	AEADAES256GCM        uint16 = 0x0002
	AEADChaCha20Poly1305 uint16 = 0x0003
)

// Suite names the three algorithms of HPKE.
type Suite struct{ KEM, KDF, AEAD uint16 }

// The suites that we make keys for; [Suite.Supported] accepts more.
var (
	SuiteX25519 = Suite{KEMX25519, KDFSHA256, AEADAES128GCM} // mandatory in DAP (section 7)
	SuiteXWing  = Suite{KEMXWing, KDFSHA256, AEADAES128GCM}
)

// Supported says whether we can seal to and open from keys of the suite: the KEMs of the
// constants above, HKDF with SHA-256, 384 or 512, and the three AEADs. Export-only and
// the one-stage KDFs are not for messages between parties of today.
func (s Suite) Supported() bool {
	_, _, _, err := s.algorithms()
	return err == nil
}

func (s Suite) algorithms() (hpke.KEM, hpke.KDF, hpke.AEAD, error) {
	switch s.KEM {
	case KEMP256, KEMX25519, KEMXWing:
	default:
		return nil, nil, nil, fmt.Errorf("%w: KEM %#04x", ErrSuite, s.KEM)
	}
	switch s.KDF {
	case KDFSHA256, KDFSHA384, KDFSHA512:
	default:
		return nil, nil, nil, fmt.Errorf("%w: KDF %#04x", ErrSuite, s.KDF)
	}
	switch s.AEAD {
	case AEADAES128GCM, AEADAES256GCM, AEADChaCha20Poly1305:
	default:
		return nil, nil, nil, fmt.Errorf("%w: AEAD %#04x", ErrSuite, s.AEAD)
	}
	kem, err1 := hpke.NewKEM(s.KEM)
	kdf, err2 := hpke.NewKDF(s.KDF)
	aead, err3 := hpke.NewAEAD(s.AEAD)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, nil, nil, fmt.Errorf("%w: %w", ErrSuite, err)
	}
	return kem, kdf, aead, nil
}

// EncSize is the length in bytes of an encapsulated key of the suite's KEM (Nenc), or 0
// if the suite is not supported.
func (s Suite) EncSize() int {
	switch s.KEM {
	case KEMP256:
		return 65
	case KEMX25519:
		return 32
	case KEMXWing:
		return 1120
	}
	return 0
}

// PublicKey seals to one recipient. It is immutable and safe for concurrent use.
type PublicKey struct {
	suite Suite
	key   hpke.PublicKey
	kdf   hpke.KDF
	aead  hpke.AEAD
}

// NewPublicKey parses a public key of the suite (RFC 9180 DeserializePublicKey). It fails
// with [ErrSuite] or [ErrKey].
func NewPublicKey(s Suite, b []byte) (*PublicKey, error) {
	kem, kdf, aead, err := s.algorithms()
	if err != nil {
		return nil, err
	}
	key, err := kem.NewPublicKey(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return &PublicKey{s, key, kdf, aead}, nil
}

// Suite is the key's suite.
func (k *PublicKey) Suite() Suite { return k.suite }

// Bytes is the serialized key, without its suite.
func (k *PublicKey) Bytes() []byte { return k.key.Bytes() }

// Sender begins a sending context (RFC 9180 SetupBaseS) for protocols that also export
// secrets from it, such as Oblivious HTTP. It is for one goroutine and one exchange.
func (k *PublicKey) Sender(info []byte) (enc []byte, s *hpke.Sender, err error) {
	enc, s, err = hpke.NewSender(k.key, k.kdf, k.aead, info)
	if err != nil {
		return nil, nil, fmt.Errorf("sealed: encapsulate: %w", err)
	}
	return enc, s, nil
}

// Seal encrypts one message (RFC 9180 SealBase): enc is the encapsulated key, ciphertext
// the message with its tag.
func (k *PublicKey) Seal(info, aad, plaintext []byte) (enc, ciphertext []byte, err error) {
	enc, sender, err := k.Sender(info)
	if err != nil {
		return nil, nil, err
	}
	ciphertext, err = sender.Seal(aad, plaintext)
	if err != nil {
		return nil, nil, fmt.Errorf("sealed: seal: %w", err)
	}
	return enc, ciphertext, nil
}
