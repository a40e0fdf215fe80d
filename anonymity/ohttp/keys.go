package ohttp

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/internal/wire"
	"github.com/starling-agg/starling/sealed"
)

// Media types (RFC 9458 section 3 and 9).
const (
	RequestMedia  = "message/ohttp-req"
	ResponseMedia = "message/ohttp-res"
	KeysMedia     = "application/ohttp-keys"
)

// KeyProblem is the type of the problem document of a gateway that does not have the key,
// or no longer (RFC 9458 section 5.3).
const KeyProblem = door.KeyType

// Errors of keys and encapsulated messages.
var (
	// ErrKeyConfig: not a valid key configuration.
	ErrKeyConfig = errors.New("ohttp: malformed key configuration")
	// ErrTruncated: too short to be an encapsulated message.
	ErrTruncated = errors.New("ohttp: truncated encapsulated message")
	// ErrUnknownKey: no key has the id and the algorithms that the request names.
	ErrUnknownKey = errors.New("ohttp: unknown key")
	// ErrSealed: it does not open. It was altered, or sealed to another key or under
	// another header.
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

// Choose is the first suite of the configuration that we can seal to, with the key
// parsed; [sealed.ErrSuite] or [sealed.ErrKey] if there is none.
func (k KeyConfig) Choose() (*sealed.PublicKey, error) {
	err := fmt.Errorf("%w: no pair of algorithms", ErrKeyConfig)
	for _, s := range k.Symmetric {
		var key *sealed.PublicKey
		if key, err = sealed.NewPublicKey(sealed.Suite{KEM: k.KEM, KDF: s.KDF, AEAD: s.AEAD}, k.Key); err == nil {
			return key, nil
		}
	}
	return nil, err
}

// Equal says whether both say the same.
func (k KeyConfig) Equal(o KeyConfig) bool {
	return k.ID == o.ID && k.KEM == o.KEM && bytes.Equal(k.Key, o.Key) && slices.Equal(k.Symmetric, o.Symmetric)
}

// code reads and writes the configuration. The key has no length of its own: that is its
// KEM's.
func (k *KeyConfig) code(c *wire.Coder) {
	c.Uint8(&k.ID, "key id")
	c.Uint16(&k.KEM, "KEM")
	n := keySize(k.KEM)
	switch {
	case c.Err() != nil:
	case c.Writing() && (n == 0 || n != len(k.Key)):
		c.Abort(fmt.Errorf("%w: a key of %d bytes for KEM %#04x", ErrKeyConfig, len(k.Key), k.KEM))
	case n == 0:
		c.Abort(fmt.Errorf("ohttp: key configuration: %w: KEM %#04x", sealed.ErrSuite, k.KEM))
	case !c.Writing():
		k.Key = make([]byte, n)
	}
	c.Fixed(k.Key, "key")
	c.Nested16("pairs of algorithms", func() {
		wire.Items(c, &k.Symmetric, func(_ int, s *Symmetric) {
			c.Uint16(&s.KDF, "KDF")
			c.Uint16(&s.AEAD, "AEAD")
		})
	})
	c.Check(len(k.Symmetric) > 0, "no pair of algorithms")
}

// Append appends the encoding.
func (k KeyConfig) Append(dst []byte) ([]byte, error) { return wire.Append(dst, ErrKeyConfig, k.code) }

// ReadKeyConfig reads exactly one configuration. The key has no length of its own, so
// that one of an unknown KEM cannot be read ([sealed.ErrSuite]). It copies what it keeps.
func ReadKeyConfig(b []byte) (KeyConfig, error) {
	var k KeyConfig
	if err := wire.Read(b, ErrKeyConfig, k.code); err != nil {
		return KeyConfig{}, err
	}
	return k, nil
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

// AppendKeyConfigs appends a list of configurations of the media type [KeysMedia] (RFC
// 9458 section 3.2).
func AppendKeyConfigs(dst []byte, list []KeyConfig) ([]byte, error) {
	return wire.Append(dst, ErrKeyConfig, func(c *wire.Coder) {
		wire.Items(c, &list, func(_ int, k *KeyConfig) {
			c.Nested16("key configuration", func() { k.code(c) })
		})
	})
}

// ReadKeyConfigs reads such a list and leaves out configurations of unknown KEMs. It
// fails if none is left.
func ReadKeyConfigs(b []byte) ([]KeyConfig, error) {
	var list []KeyConfig
	for c := wire.Reader(b, ErrKeyConfig); c.More(); {
		var one []byte
		if c.Vec16(&one, 0, "key configuration"); c.Err() != nil {
			return nil, c.Err()
		}
		k, err := ReadKeyConfig(one)
		if errors.Is(err, sealed.ErrSuite) {
			continue
		} else if err != nil {
			return nil, err
		}
		list = append(list, k)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: none that can be used", ErrKeyConfig)
	}
	return list, nil
}
