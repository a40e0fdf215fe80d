package session

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"

	"github.com/starling-agg/starling/internal/wire"
	"github.com/starling-agg/starling/signed"
)

// An Announcement says which model a round is for. Its bytes are
//
//	uint8 version = 1; opaque session[32]; uint32 index; uint64 round; opaque model[32], previous[32];
//	opaque signature[64]
//
// of which the controller signs those before the signature, under "starling training
// announcement v1". Its hash is the SHA-256 of the same string, a zero byte and the bytes
// that are signed.
type Announcement struct {
	Session Hash
	// Index counts announcements from 0: the step of the training.
	Index uint32
	// Round is the number of the recipe's round, rising from one to the next.
	Round uint64
	Model Hash
	// Previous is the hash of the one before; zero for the first.
	Previous  Hash
	Signature [ed25519.SignatureSize]byte
}

// AnnouncementBytes is the length of each announcement.
const AnnouncementBytes = 1 + 32 + 4 + 8 + 32 + 32 + ed25519.SignatureSize

// announcementDomain opens what a controller signs.
const announcementDomain = "starling training announcement v1"

func (a *Announcement) code(c *wire.Coder) {
	a.body(c)
	c.Fixed(a.Signature[:], "signature")
}

func (a *Announcement) body(c *wire.Coder) {
	c.Const("\x01", "is of another version")
	c.Fixed(a.Session[:], "session")
	c.Uint32(&a.Index, "index")
	c.Uint64(&a.Round, "round")
	c.Fixed(a.Model[:], "model")
	c.Fixed(a.Previous[:], "previous")
	c.Check(a.Index < MaxRounds, "index is out of bounds")
	c.Check((a.Index == 0) == (a.Previous == Hash{}), "the first has none before it, and every other has")
}

// Append appends the announcement. It panics for an index that no training reaches.
func (a *Announcement) Append(dst []byte) []byte { return wire.MustAppend(dst, a.code) }

// ReadAnnouncement reads an announcement, all of b; its signature is still to be verified.
// Errors wrap [ErrAnnouncement].
func ReadAnnouncement(b []byte) (*Announcement, error) {
	a := new(Announcement)
	if err := wire.Read(b, ErrAnnouncement, a.code); err != nil {
		return nil, err
	}
	return a, nil
}

// Hash names what is signed.
func (a *Announcement) Hash() Hash {
	return sha256.Sum256(wire.MustAppend([]byte(announcementDomain+"\x00"), a.body))
}

// Sign signs the announcement with the controller's key.
func (a *Announcement) Sign(key *signed.PrivateKey) {
	a.Signature = key.Sign(announcementDomain, wire.MustAppend(nil, a.body))
}

// Verify says whether an announcement is of this session and its controller's. Errors wrap
// [ErrAnnouncement].
func (s *Session) Verify(a *Announcement) error {
	hash, err := s.Hash()
	switch {
	case err != nil:
		return err
	case a.Session != hash:
		return fmt.Errorf("%w: it is of session %v, want %v", ErrAnnouncement, a.Session, hash)
	case a.Index >= s.Terms.Rounds:
		return fmt.Errorf("%w: it has index %d, and the training has %d rounds", ErrAnnouncement, a.Index, s.Terms.Rounds)
	case a.Round < s.Terms.FirstRound:
		return fmt.Errorf("%w: it is for round %d, before the first, %d", ErrAnnouncement, a.Round, s.Terms.FirstRound)
	case !s.Controller.Verifies(a.Signature, announcementDomain, wire.MustAppend(nil, a.body)):
		return fmt.Errorf("%w: it is not signed by the session's controller", ErrAnnouncement)
	}
	return nil
}

// An OldError is an announcement that comes before one that was seen.
type OldError struct {
	Seen, Got uint64 // rounds
}

func (e *OldError) Error() string {
	return fmt.Sprintf("session: the announcement is for round %d, and one for round %d was seen already", e.Got, e.Seen)
}

// Evidence is two different announcements of which an honest controller signs one: for
// one round, in one place of the chain, or the later one not built on the earlier.
type Evidence struct{ First, Second Announcement }

// Verify says whether both are the controller's and cannot stand together: then nobody
// but the controller can have made the evidence. Errors wrap [ErrAnnouncement].
func (e *Evidence) Verify(s *Session) error {
	for _, a := range []*Announcement{&e.First, &e.Second} {
		if err := s.Verify(a); err != nil {
			return err
		}
	}
	if !contradict(&e.First, &e.Second) {
		return fmt.Errorf("%w: the two stand together", ErrAnnouncement)
	}
	return nil
}

// contradict says that not both are of one chain.
func contradict(a, b *Announcement) bool {
	if a.Index > b.Index || a.Index == b.Index && a.Round > b.Round {
		a, b = b, a
	}
	switch x, y := a.Hash(), b.Hash(); {
	case x == y:
		return false
	case a.Index == b.Index || a.Round >= b.Round || a.Previous == b.Previous:
		return true
	default:
		// The rounds between are at least as many as the announcements.
		return b.Index == a.Index+1 && b.Previous != x || b.Round-a.Round < uint64(b.Index-a.Index)
	}
}

// A ContradictionError is a controller that was found lying.
type ContradictionError struct{ Evidence Evidence }

func (e *ContradictionError) Error() string {
	return fmt.Sprintf("session: the controller signed two announcements that contradict each other, for rounds %d and %d: "+
		"it shows different devices different models", e.Evidence.First.Round, e.Evidence.Second.Round)
}

// Follow takes the announcement next after last, the newest that was seen before, nil for
// none. It fails with *[OldError] where next is an earlier one of the chain, with
// *[ContradictionError] where both cannot be of one chain, and as [Session.Verify]. The one
// that was seen may come again.
func (s *Session) Follow(last, next *Announcement) error {
	if err := s.Verify(next); err != nil {
		return err
	}
	switch {
	case last == nil || last.Hash() == next.Hash():
		return nil
	case contradict(last, next):
		return &ContradictionError{Evidence{*last, *next}}
	case next.Index < last.Index:
		return &OldError{Seen: last.Round, Got: next.Round}
	}
	return nil
}

// A BlobError is a blob that is not the one that was announced.
type BlobError struct {
	Want, Got Hash
}

func (e *BlobError) Error() string {
	return fmt.Sprintf("session: the model has SHA-256 %v, and %v was announced", e.Got, e.Want)
}

// ReadModel reads the blob that a verified announcement of the session is about. It fails
// with *[BlobError], and with what wraps [ErrModel] where the announced model is of
// another session, round or shape.
func (s *Session) ReadModel(a *Announcement, blob []byte) (*Model, error) {
	if got := BlobHash(blob); got != a.Model {
		return nil, &BlobError{Want: a.Model, Got: got}
	}
	m, err := ReadModel(blob)
	if err != nil {
		return nil, err
	}
	switch {
	case m.Session != a.Session:
		return nil, fmt.Errorf("%w: it is of session %v", ErrModel, m.Session)
	case m.Round != a.Round:
		return nil, fmt.Errorf("%w: it is for round %d, announced for %d", ErrModel, m.Round, a.Round)
	case len(m.Parameters) != s.Terms.Dimension():
		return nil, fmt.Errorf("%w: it has %d parameters, the session's have %d", ErrModel, len(m.Parameters), s.Terms.Dimension())
	case s.Terms.Clipping.Adaptive == nil && m.Clip != s.Terms.Clipping.Norm:
		return nil, fmt.Errorf("%w: it is clipped at %v, the session's at %v", ErrModel, m.Clip, s.Terms.Clipping.Norm)
	}
	return m, nil
}
