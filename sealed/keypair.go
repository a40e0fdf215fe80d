package sealed

import (
	"bytes"
	"crypto/hpke"
	"fmt"
	"io"
	"log/slog"

	"github.com/starling-agg/starling/internal/wire"
)

// KeyPair is a private key, its suite and the id by which senders name it. It is
// immutable and safe for concurrent use. All forms of printing give "redacted";
// [KeyPair.Marshal] gives the secret.
type KeyPair struct {
	id     uint8
	key    hpke.PrivateKey
	public *PublicKey
}

// Generate makes a key pair. The id must be distinct among the keys that a party has at
// one time.
func Generate(id uint8, s Suite) (*KeyPair, error) {
	kem, _, _, err := s.algorithms()
	if err != nil {
		return nil, err
	}
	key, err := kem.GenerateKey()
	if err != nil {
		return nil, fmt.Errorf("sealed: generate key: %w", err)
	}
	return newKeyPair(id, s, key)
}

func newKeyPair(id uint8, s Suite, key hpke.PrivateKey) (*KeyPair, error) {
	public, err := NewPublicKey(s, key.PublicKey().Bytes())
	if err != nil {
		return nil, err
	}
	return &KeyPair{id, key, public}, nil
}

// ID is the config id.
func (k *KeyPair) ID() uint8 { return k.id }

// Public is the public half.
func (k *KeyPair) Public() *PublicKey { return k.public }

// Recipient begins a receiving context (RFC 9180 SetupBaseR), the other end of
// [PublicKey.Sender], or fails with [ErrOpen]. It is for one goroutine and one exchange.
func (k *KeyPair) Recipient(enc, info []byte) (*hpke.Recipient, error) {
	r, err := hpke.NewRecipient(enc, k.key, k.public.kdf, k.public.aead, info)
	if err != nil {
		return nil, fmt.Errorf("%w: encapsulated key", ErrOpen)
	}
	return r, nil
}

// Open decrypts one message that was sealed to this key (RFC 9180 OpenBase), or fails
// with [ErrOpen].
func (k *KeyPair) Open(enc, info, aad, ciphertext []byte) ([]byte, error) {
	r, err := k.Recipient(enc, info)
	if err != nil {
		return nil, err
	}
	plaintext, err := r.Open(aad, ciphertext)
	if err != nil {
		return nil, fmt.Errorf("%w: authentication", ErrOpen)
	}
	return plaintext, nil
}

// fileMagic opens a key file and holds the version of its format.
const fileMagic = "starling hpke key v1\n"

// Marshal is the key file: magic, id u8, KEM, KDF and AEAD u16, private_key<0..2^16-1>,
// public_key<0..2^16-1>. The public key is there to find damage, which would otherwise
// show only as reports that cannot be opened. It holds the secret.
func (k *KeyPair) Marshal() ([]byte, error) {
	private, err := k.key.Bytes()
	if err != nil {
		return nil, fmt.Errorf("sealed: marshal key: %w", err)
	}
	f := keyFile{k.id, k.public.suite, private, k.public.Bytes()}
	return wire.Append(nil, ErrKey, f.code)
}

// A keyFile is what is in one.
type keyFile struct {
	id              uint8
	suite           Suite
	private, public []byte
}

func (f *keyFile) code(c *wire.Coder) {
	c.Const(fileMagic, "not a starling HPKE key file of version 1")
	c.Uint8(&f.id, "id")
	c.Uint16(&f.suite.KEM, "KEM")
	c.Uint16(&f.suite.KDF, "KDF")
	c.Uint16(&f.suite.AEAD, "AEAD")
	c.Vec16(&f.private, 0, "private key")
	c.Vec16(&f.public, 0, "public key")
}

// ParseKeyPair reads a key file, all of it, and checks that the two halves belong
// together. It fails with [ErrKey] or [ErrSuite].
func ParseKeyPair(file []byte) (*KeyPair, error) {
	var f keyFile
	if err := wire.Read(file, ErrKey, f.code); err != nil {
		return nil, err
	}
	kem, _, _, err := f.suite.algorithms()
	if err != nil {
		return nil, err
	}
	key, err := kem.NewPrivateKey(f.private)
	if err != nil {
		return nil, fmt.Errorf("%w: private key", ErrKey) // the cause might quote it
	}
	k, err := newKeyPair(f.id, f.suite, key)
	if err != nil {
		return nil, err
	}
	// Covers the public key too, and X25519 private keys that are not clamped, which
	// crypto/hpke takes and mends.
	if again, err := k.Marshal(); err != nil || !bytes.Equal(again, file) {
		return nil, fmt.Errorf("%w: key file is damaged", ErrKey)
	}
	return k, nil
}

const redacted = "redacted"

func (k *KeyPair) Format(f fmt.State, _ rune)   { io.WriteString(f, redacted) }
func (k *KeyPair) String() string               { return redacted }
func (k *KeyPair) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (k *KeyPair) MarshalText() ([]byte, error) { return []byte(redacted), nil }
