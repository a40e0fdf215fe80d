package session

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/wire"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/signed"
)

// A Hash is the SHA-256 that names a session, a model or an announcement.
type Hash [sha256.Size]byte

// String is lower-case hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText is the hexadecimal form.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads the hexadecimal form.
func (h *Hash) UnmarshalText(b []byte) (err error) {
	*h, err = ParseHash(string(b))
	return err
}

// ParseHash reads the form that [Hash.String] writes.
func ParseHash(s string) (h Hash, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(h) || hex.EncodeToString(b) != s {
		return Hash{}, fmt.Errorf("session: a hash is %d lower-case hexadecimal digits", 2*len(h))
	}
	copy(h[:], b)
	return h, nil
}

// A Session is a training. Its bytes are
//
//	uint8 version = 1; opaque recipe[32], controller[32]; Terms terms
//
// and its hash is the SHA-256 of "starling training session v1" and the bytes.
type Session struct {
	Recipe     recipe.ID
	Controller signed.PublicKey // signs announcements
	Terms      Terms
}

// MaxSession is the length of the longest session, in bytes.
const MaxSession = 1 + 32 + 32 + MaxTerms

// sessionDomain opens the hash that names a session.
const sessionDomain = "starling training session v1"

// ErrNoTraining is for a recipe without a training extension.
var ErrNoTraining = errors.New("session: the recipe is of no training")

// Of is the session of a recipe that was checked, whose terms are these. It fails with
// [ErrNoTraining], and with what wraps [ErrSession] where the recipe holds other terms or
// its vectors have another length.
func Of(r *recipe.Recipe, t Terms) (*Session, error) {
	if r.Training == nil {
		return nil, ErrNoTraining
	}
	id, err := r.ID()
	if err != nil {
		return nil, err
	}
	s := &Session{id, r.Training.Controller, t}
	return s, s.Check(r)
}

// Check compares a session with the recipe that it names. Errors are as of [Of].
func (s *Session) Check(r *recipe.Recipe) error {
	t := r.Training
	if t == nil {
		return ErrNoTraining
	}
	id, err := r.ID()
	if err != nil {
		return err
	}
	hash, err := s.Terms.Hash()
	switch want := Entries(r); {
	case err != nil:
		return err
	case id != s.Recipe:
		return fmt.Errorf("%w: it is of recipe %v, want %v", ErrSession, s.Recipe, id)
	case s.Controller != t.Controller:
		return fmt.Errorf("%w: its controller has another key than the recipe's", ErrSession)
	case hash != t.Terms:
		return fmt.Errorf("%w: its terms have SHA-256 %x, the recipe's %x", ErrSession, hash, t.Terms)
	case want != s.Terms.Entries():
		return fmt.Errorf("%w: devices would report %d numbers, and the recipe takes %d", ErrSession, s.Terms.Entries(), want)
	}
	return nil
}

// Entries is the length of the vectors that a recipe takes of a device, before a projection
// shortens them; 0 where it takes none.
func Entries(r *recipe.Recipe) int {
	q, ok := r.Vector()
	switch {
	case !ok:
		return 0
	case r.Projection != nil:
		return int(r.Projection.Entries)
	}
	return int(q.Dimension)
}

// Round is the number of the round in which time unit t of a recipe lies, as models and
// announcements count them: of what is released by itself, so a slot where a recipe has
// slots.
func Round(r *recipe.Recipe, t dap.Time) uint64 { return uint64(t) / r.BatchUnits() }

func (s *Session) code(c *wire.Coder) {
	c.Const("\x01", "is of another version")
	c.Fixed(s.Recipe[:], "recipe")
	c.Fixed(s.Controller[:], "controller")
	if c.Err() == nil {
		if err := s.Controller.Validate(); err != nil {
			c.Fail("controller: " + err.Error())
		}
	}
	s.Terms.code(c)
}

// Append appends the bytes of a session whose terms and key are valid.
func (s *Session) Append(dst []byte) ([]byte, error) { return wire.Append(dst, ErrSession, s.code) }

// Read reads a session, all of b. Errors wrap [ErrSession] or [ErrTerms]. [Session.Check]
// is still to be asked whether it is that of a recipe.
func Read(b []byte) (*Session, error) {
	if len(b) > MaxSession {
		return nil, fmt.Errorf("%w: %d bytes, want at most %d", ErrSession, len(b), MaxSession)
	}
	s := new(Session)
	if err := wire.Read(b, ErrSession, s.code); err != nil {
		return nil, err
	}
	return s, nil
}

// Hash names the session. It fails where [Session.Append] does.
func (s *Session) Hash() (Hash, error) {
	b, err := s.Append([]byte(sessionDomain))
	if err != nil {
		return Hash{}, err
	}
	return sha256.Sum256(b), nil
}
