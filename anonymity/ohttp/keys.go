package ohttp

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/sealed"
)

// Media types (RFC 9458 section 3 and 9).
const (
	RequestMedia  = "message/ohttp-req"
	ResponseMedia = "message/ohttp-res"
	KeysMedia     = "application/ohttp-keys"
)

// KeyProblem is the type of the problem document of a gateway that does not have the key, or no longer (RFC 9458 section 5.3).
const KeyProblem = door.KeyType

// Errors of keys and encapsulated messages.
var (
	// ErrKeyConfig: not a valid key configuration.
	ErrKeyConfig = errors.New("ohttp: malformed key configuration")
	// ErrTruncated: too short to be an encapsulated message.
	ErrTruncated = errors.New("ohttp: truncated encapsulated message")
	// ErrUnknownKey: no key has the id and the algorithms that the request names.
	ErrUnknownKey = errors.New("ohttp: unknown key")
	// ErrSealed: it does not open. It was altered, or sealed to another key or under another header.
	ErrSealed = errors.New("ohttp: cannot open")
)

// A Symmetric is a pair of HPKE algorithms that a gateway takes with its key.
type Symmetric struct{ KDF, AEAD uint16 }

// A KeyConfig is a gateway's public key (RFC 9458 section 3.1).
type KeyConfig struct {
	ID        uint8
	KEM       uint16
	Key       []byte      // serialized public key
	Symmetric []Symmetric // best first; 1 to 16383
}

// NewKeyConfig is what a gateway tells of a key pair: the pair's own suite and no other.
func NewKeyConfig(k *sealed.KeyPair) KeyConfig {
	s := k.Public().Suite()
	return KeyConfig{k.ID(), s.KEM, k.Public().Bytes(), []Symmetric{{s.KDF, s.AEAD}}}
}

// Choose is the first suite of the configuration that we can seal to, with the key parsed; [sealed.ErrSuite] or
// [sealed.ErrKey] if there is none.
func (c KeyConfig) Choose() (*sealed.PublicKey, error) {
	err := fmt.Errorf("%w: no pair of algorithms", ErrKeyConfig)
	for _, s := range c.Symmetric {
		var key *sealed.PublicKey
		if key, err = sealed.NewPublicKey(sealed.Suite{KEM: c.KEM, KDF: s.KDF, AEAD: s.AEAD}, c.Key); err == nil {
			return key, nil
		}
	}
	return nil, err
}

// Equal says whether both say the same.
func (c KeyConfig) Equal(d KeyConfig) bool {
	return c.ID == d.ID && c.KEM == d.KEM && bytes.Equal(c.Key, d.Key) && slices.Equal(c.Symmetric, d.Symmetric)
}

// Append appends the encoding.
func (c KeyConfig) Append(dst []byte) ([]byte, error) {
	if len(c.Symmetric) < 1 || len(c.Symmetric) > 65532/4 {
		return dst, fmt.Errorf("%w: %d pairs of algorithms", ErrKeyConfig, len(c.Symmetric))
	}
	if n := keySize(c.KEM); n == 0 || n != len(c.Key) {
		return dst, fmt.Errorf("%w: a key of %d bytes for KEM %#04x", ErrKeyConfig, len(c.Key), c.KEM)
	}
	b := cryptobyte.NewBuilder(dst)
	b.AddUint8(c.ID)
	b.AddUint16(c.KEM)
	b.AddBytes(c.Key)
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		for _, s := range c.Symmetric {
			b.AddUint16(s.KDF)
			b.AddUint16(s.AEAD)
		}
	})
	return b.Bytes()
}

// ReadKeyConfig reads exactly one configuration. The key has no length of its own, so that one of an unknown KEM cannot be
// read ([sealed.ErrSuite]). It copies what it keeps.
func ReadKeyConfig(b []byte) (KeyConfig, error) {
	var c KeyConfig
	var list cryptobyte.String
	in := cryptobyte.String(b)
	if !in.ReadUint8(&c.ID) || !in.ReadUint16(&c.KEM) {
		return KeyConfig{}, fmt.Errorf("%w: cut off", ErrKeyConfig)
	}
	n := keySize(c.KEM)
	if n == 0 {
		return KeyConfig{}, fmt.Errorf("ohttp: key configuration: %w: KEM %#04x", sealed.ErrSuite, c.KEM)
	}
	var key []byte
	if !in.ReadBytes(&key, n) || !in.ReadUint16LengthPrefixed(&list) || !in.Empty() || len(list) == 0 || len(list)%4 != 0 {
		return KeyConfig{}, fmt.Errorf("%w: cut off or too long", ErrKeyConfig)
	}
	c.Key = bytes.Clone(key)
	for !list.Empty() {
		var s Symmetric
		list.ReadUint16(&s.KDF)
		list.ReadUint16(&s.AEAD)
		c.Symmetric = append(c.Symmetric, s)
	}
	return c, nil
}

// keySize is the length in bytes of a public key (Npk), or 0 for a KEM that we do not know.
func keySize(kem uint16) int {
	switch kem {
	case sealed.KEMP256:
		return 65
	case sealed.KEMX25519:
		return 32
	case sealed.KEMXWing:
		return 1216
	}
	return 0
}

// AppendKeyConfigs appends a list of configurations of the media type [KeysMedia] (RFC 9458 section 3.2).
func AppendKeyConfigs(dst []byte, list []KeyConfig) ([]byte, error) {
	for _, c := range list {
		one, err := c.Append(nil)
		if err != nil {
			return dst, err
		}
		dst = append(append(dst, byte(len(one)>>8), byte(len(one))), one...)
	}
	return dst, nil
}

// ReadKeyConfigs reads such a list and leaves out configurations of unknown KEMs. It fails if none is left.
func ReadKeyConfigs(b []byte) ([]KeyConfig, error) {
	var list []KeyConfig
	for in := cryptobyte.String(b); !in.Empty(); {
		var one cryptobyte.String
		if !in.ReadUint16LengthPrefixed(&one) {
			return nil, fmt.Errorf("%w: cut off", ErrKeyConfig)
		}
		c, err := ReadKeyConfig(one)
		if errors.Is(err, sealed.ErrSuite) {
			continue
		} else if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: none that can be used", ErrKeyConfig)
	}
	return list, nil
}
