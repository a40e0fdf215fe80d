package onion

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/internal/wire"
	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/signed"
)

// ErrKeys: malformed, or not the key list that is wanted.
var ErrKeys = errors.New("onion: not the key list that is wanted")

const (
	keysDomain = "starling shuffle keys v1"
	keySize    = 32
	maxKeys    = 1024
	// MaxKeyList bounds an encoded list, in bytes.
	MaxKeyList = 64 + maxKeys*keySize + signed.SignatureSize
)

// A KeyList has the public HPKE keys of one party for rounds of a recipe that follow one
// another. It says nothing of whether others were given another: that is for a log.
type KeyList struct {
	Recipe [32]byte
	Role   Role
	First  uint64 // round of the first key
	Keys   [][keySize]byte
	// Issued is when the list was signed, Until the flush of its last round. Whole seconds.
	Issued, Until time.Time
}

func (l *KeyList) code(c *wire.Coder) {
	c.Fixed(l.Recipe[:], "recipe")
	c.Uint8((*uint8)(&l.Role), "role")
	c.Uint64(&l.First, "first round")
	c.Seconds(&l.Issued, "issued")
	c.Seconds(&l.Until, "until")
	wire.Items(c, &l.Keys, func(_ int, k *[keySize]byte) { c.Fixed(k[:], "key") })
	c.Check(len(l.Keys) > 0 && len(l.Keys) <= maxKeys, "number of keys out of bounds")
	c.Check(l.First <= maxRound, "round out of bounds")
}

// Sign returns the encoding with its owner's signature. It fails with [ErrKeys], and with
// [signed.ErrWindow] where the signer's key ends before the list does.
//
//	opaque recipe[32]; uint8 role; uint64 first, issued, until; opaque keys[32*n];
//	opaque signature[..];  (over the domain string, a zero byte and all before)
func (l *KeyList) Sign(s *signed.Signer) ([]byte, error) {
	return sign(s, keysDomain, ErrKeys, l.code, l.Issued, l.Until)
}

// OpenKeyList reads a list and says whether it is a party's for a recipe. It looks at no
// clock. It fails with [ErrKeys], or with an error of package signed.
func OpenKeyList(b []byte, root signed.PublicKey, recipe [32]byte, role Role) (*KeyList, error) {
	if len(b) > MaxKeyList {
		return nil, fmt.Errorf("%w: longer than %d bytes", ErrKeys, MaxKeyList)
	}
	l := &KeyList{}
	signature, message, err := read(b, ErrKeys, l.code)
	switch {
	case err != nil:
		return nil, err
	case l.Recipe != recipe:
		return nil, fmt.Errorf("%w: of another recipe", ErrKeys)
	case l.Role != role:
		return nil, fmt.Errorf("%w: of %v, want that of %v", ErrKeys, l.Role, role)
	}
	if err := signature.Verify(root, keysDomain, message, l.Issued, l.Until); err != nil {
		return nil, fmt.Errorf("onion: the key list of %v: %w", role, err)
	}
	return l, nil
}

// ReadKeyList reads a list as an entry of a transparency log has it, of one round, and by
// which root key it is signed: whether that is a party's is for who knows the recipe. It
// fails as [OpenKeyList].
func ReadKeyList(b []byte) (l *KeyList, root signed.PublicKey, err error) {
	if len(b) > MaxKeyList {
		return nil, root, fmt.Errorf("%w: longer than %d bytes", ErrKeys, MaxKeyList)
	}
	l = &KeyList{}
	signature, message, err := read(b, ErrKeys, l.code)
	switch {
	case err != nil:
		return nil, root, err
	case len(l.Keys) != 1:
		return nil, root, fmt.Errorf("%w: of %d rounds, and an entry of a log is of one", ErrKeys, len(l.Keys))
	case l.Role < First || l.Role > Direct:
		return nil, root, fmt.Errorf("%w: of %v", ErrKeys, l.Role)
	}
	root = signature.Delegation.Root
	if err := signature.Verify(root, keysDomain, message, l.Issued, l.Until); err != nil {
		return nil, root, fmt.Errorf("onion: the key list of %v: %w", l.Role, err)
	}
	return l, root, nil
}

// Key is the key of a round; it fails with [ErrKeys] where the list has none.
func (l *KeyList) Key(round uint64) (*sealed.PublicKey, error) {
	if round < l.First || round-l.First >= uint64(len(l.Keys)) {
		return nil, fmt.Errorf("%w: it has no key of round %d", ErrKeys, round)
	}
	k, err := sealed.NewPublicKey(Suite, l.Keys[round-l.First][:])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeys, err)
	}
	return k, nil
}

// sign encodes by a table and appends the signature of what is encoded.
func sign(s *signed.Signer, domain string, malformed error, table func(*wire.Coder), from, until time.Time) ([]byte, error) {
	b, err := wire.Append(nil, malformed, table)
	if err != nil {
		return nil, err
	}
	signature, err := s.Sign(domain, b, from, until)
	if err != nil {
		return nil, fmt.Errorf("onion: sign: %w", err)
	}
	return signature.Append(b), nil
}

// read reads what sign wrote, and copies what it keeps.
func read(b []byte, malformed error, table func(*wire.Coder)) (s signed.Signature, message []byte, err error) {
	n := len(b) - signed.SignatureSize
	if n < 0 {
		return s, nil, fmt.Errorf("%w: cut off", malformed)
	}
	message = bytes.Clone(b[:n])
	if s, err = signed.ReadSignature(b[n:]); err != nil {
		return s, nil, fmt.Errorf("%w: %w", malformed, err)
	}
	return s, message, wire.Read(message, malformed, table)
}
