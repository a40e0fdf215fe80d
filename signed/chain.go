package signed

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"sync"
	"time"

	"github.com/starling-agg/starling/internal/wire"
)

// A Role is that of a party that signs.
type Role uint8

// The roles; leader and helper have the numbers that DAP gives them.
const (
	Leader  Role = 2
	Helper  Role = 3
	Gateway Role = 4
	// Attester vouches for devices to issuers, and signs no manifest.
	Attester Role = 5
	// Hop1 and Hop2 are those of the shuffler.
	Hop1 Role = 6
	Hop2 Role = 7
)

func (r Role) String() string {
	switch r {
	case Leader:
		return "leader"
	case Helper:
		return "helper"
	case Gateway:
		return "gateway"
	case Attester:
		return "attester"
	case Hop1:
		return "hop 1"
	case Hop2:
		return "hop 2"
	}
	return fmt.Sprintf("role %d", uint8(r))
}

// MaxOnline is how long an online key may sign at most: a thief of it has it for no
// longer.
const MaxOnline = 90 * 24 * time.Hour

// delegationDomain opens what a root signs about an online key.
const delegationDomain = "starling online key v1"

// A Delegation is the word of a root key that another key signs for it, from one time up
// to another.
type Delegation struct {
	Root, Key           PublicKey
	NotBefore, NotAfter time.Time // whole seconds, at most [MaxOnline] apart
	Signature           [ed25519.SignatureSize]byte
}

// DelegationSize is the length of a delegation's encoding, in bytes.
const DelegationSize = 2*KeySize + 16 + ed25519.SignatureSize

// Delegate has a root key vouch for an online key. It fails with [ErrWindow] where the
// time is empty or too long, and with [ErrKey] where a key vouches for itself.
func Delegate(root *PrivateKey, key PublicKey, from, until time.Time) (Delegation, error) {
	d := Delegation{Root: root.Public(), Key: key, NotBefore: from.UTC().Truncate(time.Second), NotAfter: until.UTC().Truncate(time.Second)}
	if err := d.validate(); err != nil {
		return Delegation{}, err
	}
	d.Signature = root.sign(delegationDomain, d.body())
	return d, nil
}

func (d *Delegation) validate() error {
	switch life := d.NotAfter.Sub(d.NotBefore); {
	case !validTime(d.NotBefore) || !validTime(d.NotAfter) || life <= 0 || life > MaxOnline:
		return fmt.Errorf("%w: from %s until %s, want at most %v", ErrWindow, d.NotBefore, d.NotAfter, MaxOnline)
	case d.Key == d.Root:
		return fmt.Errorf("%w: the root itself may not be online", ErrKey)
	}
	return d.Key.Validate()
}

func (d *Delegation) body() []byte { return wire.MustAppend(nil, d.codeBody) }

// codeBody reads and writes what the root signs.
func (d *Delegation) codeBody(c *wire.Coder) {
	c.Fixed(d.Root[:], "root")
	c.Fixed(d.Key[:], "key")
	c.Seconds(&d.NotBefore, "not_before")
	c.Seconds(&d.NotAfter, "not_after")
}

func (d *Delegation) code(c *wire.Coder) {
	d.codeBody(c)
	c.Fixed(d.Signature[:], "the root's signature")
}

// Verify says whether that root vouches: it fails with [ErrSignature], [ErrWindow] or
// [ErrKey].
func (d *Delegation) Verify(root PublicKey) error {
	if d.Root == root && vouched.has(d) {
		return nil
	}
	if err := root.Validate(); err != nil {
		return err
	}
	if d.Root != root {
		return fmt.Errorf("%w: the root is %s, want %s", ErrSignature, d.Root, root)
	}
	if err := d.validate(); err != nil {
		return err
	}
	if !verify(root, d.Signature, delegationDomain, d.body()) {
		return fmt.Errorf("%w: the root does not vouch for the online key", ErrSignature)
	}
	vouched.add(d)
	return nil
}

// vouched are delegations that hold, whole: whether one does depends on its bytes alone, and
// few of them stand in everything that a party reads. One that does not is looked at again.
var vouched words

// maxWords bounds those that are remembered.
const maxWords = 64

type words struct {
	mu   sync.RWMutex
	held map[Delegation]struct{}
}

func (w *words) has(d *Delegation) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	_, ok := w.held[*d]
	return ok
}

func (w *words) add(d *Delegation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.held) >= maxWords {
		clear(w.held) // those that come again are found again
	}
	if w.held == nil {
		w.held = make(map[Delegation]struct{})
	}
	w.held[*d] = struct{}{}
}

// Append appends the encoding: opaque root[32], key[32]; uint64 not_before, not_after
// (seconds since 1970); opaque signature[64], over the domain string, a zero byte and
// what stands before it.
func (d *Delegation) Append(dst []byte) []byte { return wire.MustAppend(dst, d.code) }

// ReadDelegation reads exactly one delegation and does not verify it; [ErrSignature] if
// it is none.
func ReadDelegation(b []byte) (d Delegation, err error) {
	err = wire.Read(b, ErrSignature, d.code)
	return d, err
}

// MarshalFile is the file of a delegation: the domain string, a line feed, and the
// encoding.
func (d *Delegation) MarshalFile() []byte { return d.Append([]byte(delegationDomain + "\n")) }

// ParseDelegation reads a delegation's file and does not verify it; [ErrSignature] if it
// is none.
func ParseDelegation(file []byte) (Delegation, error) {
	b, ok := bytes.CutPrefix(file, []byte(delegationDomain+"\n"))
	if !ok {
		return Delegation{}, fmt.Errorf("%w: not a starling delegation of version 1", ErrSignature)
	}
	return ReadDelegation(b)
}

// maxTime bounds times, in seconds since 1970.
const maxTime = 1 << 40

func validTime(t time.Time) bool { return t.Unix() >= 0 && t.Unix() < maxTime && t.Nanosecond() == 0 }

// A Signer signs with an online key that its root vouches for. Safe for concurrent use.
type Signer struct {
	key        *PrivateKey
	delegation Delegation
}

// NewSigner puts an online key and its root's word together. It fails as
// [Delegation.Verify], with [ErrKey] where the word is for another key.
func NewSigner(key *PrivateKey, d Delegation) (*Signer, error) {
	if d.Key != key.Public() {
		return nil, fmt.Errorf("%w: the root vouches for another key", ErrKey)
	}
	if err := d.Verify(d.Root); err != nil {
		return nil, err
	}
	return &Signer{key, d}, nil
}

// Root is the key that vouches.
func (s *Signer) Root() PublicKey { return s.delegation.Root }

// From is the beginning of the online key.
func (s *Signer) From() time.Time { return s.delegation.NotBefore }

// Until is the end of the online key.
func (s *Signer) Until() time.Time { return s.delegation.NotAfter }

// Sign signs a message that holds from one time up to another, under a domain string. It
// fails with [ErrWindow] where the online key does not last as long.
func (s *Signer) Sign(domain string, message []byte, from, until time.Time) (Signature, error) {
	if err := s.delegation.covers(from, until); err != nil {
		return Signature{}, err
	}
	return Signature{s.delegation, s.key.sign(domain, message)}, nil
}

func (d *Delegation) covers(from, until time.Time) error {
	if from.Before(d.NotBefore) || until.After(d.NotAfter) {
		return fmt.Errorf("%w: it signs from %s until %s", ErrWindow, d.NotBefore.Format(time.RFC3339), d.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// A Signature is an online key's, with the word of its root.
type Signature struct {
	Delegation Delegation
	Signature  [ed25519.SignatureSize]byte
}

// SignatureSize is the length of a signature's encoding, in bytes.
const SignatureSize = DelegationSize + ed25519.SignatureSize

// Verify says whether the message is signed for the owner of that root, by a key that may
// sign for all the time in which the message holds. It fails with [ErrSignature],
// [ErrWindow] or [ErrKey].
func (s *Signature) Verify(root PublicKey, domain string, message []byte, from, until time.Time) error {
	if err := s.Delegation.Verify(root); err != nil {
		return err
	}
	if err := s.Delegation.covers(from, until); err != nil {
		return err
	}
	if !verify(s.Delegation.Key, s.Signature, domain, message) {
		return fmt.Errorf("%w: the online key has signed something else", ErrSignature)
	}
	return nil
}

// Append appends the encoding: the delegation's, then opaque signature[64].
func (s *Signature) Append(dst []byte) []byte { return wire.MustAppend(dst, s.code) }

func (s *Signature) code(c *wire.Coder) {
	s.Delegation.code(c)
	c.Fixed(s.Signature[:], "signature")
}

// ReadSignature reads exactly one signature and does not verify it; [ErrSignature] if it
// is none.
func ReadSignature(b []byte) (s Signature, err error) {
	err = wire.Read(b, ErrSignature, s.code)
	return s, err
}
