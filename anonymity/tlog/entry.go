package tlog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-agg/starling/internal/wire"
	"github.com/starling-agg/starling/signed"
	merkle "golang.org/x/mod/sumdb/tlog"
)

// A Kind says what an entry holds.
type Kind uint8

// The kinds. Numbers that are not here may come later: who does not know one skips it.
const (
	// KindActive is an [Active] of the log itself.
	KindActive Kind = 1
	// KindRecipe is a [Statement] over a recipe's file.
	KindRecipe Kind = 2
	// KindManifest is a manifest that leader, helper and gateway have signed.
	KindManifest Kind = 3
	// KindKeyList is a key list that leader or helper has signed (package signed).
	KindKeyList Kind = 4
	// KindWithdrawal is a [Statement] over the leaf hash of an entry that holds no more.
	KindWithdrawal Kind = 5
	// KindRelease is a [Statement] over a [Release].
	KindRelease Kind = 6
	// KindCohort is a [Statement] over a [Cohort].
	KindCohort Kind = 7
	// KindCensus is a [Statement] over what a released histogram shows of attributes.
	KindCensus Kind = 8
	// KindShuffleKeys is a key list of a hop or an analyzer, of one round (package onion).
	KindShuffleKeys Kind = 9
	// KindBatch is what both hops have signed of a round's batch (package onion).
	KindBatch Kind = 10
	// KindFrontManifest is a manifest that a gateway alone has signed, for a path without
	// leader and helper.
	KindFrontManifest Kind = 11
)

// kindNames are for people, and for JSON.
var kindNames = map[Kind]string{KindActive: "active", KindRecipe: "recipe", KindManifest: "manifest", KindKeyList: "key-list",
	KindWithdrawal: "withdrawal", KindRelease: "release", KindCohort: "cohort", KindCensus: "census", KindShuffleKeys: "shuffle-keys", KindBatch: "batch", KindFrontManifest: "front-manifest"}

func (k Kind) String() string {
	if name := kindNames[k]; name != "" {
		return name
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// An Entry is what stands at one place of a log.
type Entry struct {
	Kind Kind
	Body []byte // 1 to [MaxBody] bytes, as the kind has it
}

// Errors of an entry, to branch on with errors.Is.
var (
	// ErrEntry: malformed.
	ErrEntry = errors.New("tlog: malformed entry")
	// ErrLater: of a later version of entries, of which this build knows nothing.
	ErrLater = errors.New("tlog: an entry of a later version")
)

const (
	entryVersion = 1
	// MaxBody bounds the body of an entry, in bytes, and MaxEntry the entry: tlog-tiles
	// has two bytes for its length.
	MaxBody  = 60 << 10
	MaxEntry = 1 + 1 + 4 + MaxBody
)

// code reads and writes uint8 version = 1; uint8 kind; opaque body<1..2^32-1>.
func (e *Entry) code(c *wire.Coder) {
	c.Const(string(rune(entryVersion)), "an entry of another version")
	c.Uint8((*uint8)(&e.Kind), "kind")
	c.Check(e.Kind != 0, "kind 0")
	c.Vec32(&e.Body, 1, "body")
	c.Check(len(e.Body) <= MaxBody, "longer than an entry may be")
}

// Append appends the entry's one encoding: uint8 version = 1, kind; opaque
// body<1..61440> behind 32 bits of length. It fails with [ErrEntry].
func (e *Entry) Append(dst []byte) ([]byte, error) { return wire.Append(dst, ErrEntry, e.code) }

// ReadEntry reads exactly one entry, and copies what it keeps. It fails with [ErrEntry], and
// with [ErrLater] where nothing of it but its place can be known.
func ReadEntry(b []byte) (e Entry, err error) {
	if len(b) > MaxEntry {
		return e, fmt.Errorf("%w: longer than %d bytes", ErrEntry, MaxEntry)
	}
	if len(b) > 1 && b[0] > entryVersion {
		return e, fmt.Errorf("%w: %d", ErrLater, b[0])
	}
	err = wire.Read(bytes.Clone(b), ErrEntry, e.code)
	return e, err
}

// LeafHash is the hash of an encoded entry in the log's tree.
func LeafHash(entry []byte) Hash { return merkle.RecordHash(entry) }

// An Active entry is the log's own: which entries hold in one period. It is what makes a
// bundle the same for everyone.
type Active struct {
	// Begin and End bound the period, in whole seconds.
	Begin, End time.Time
	// Entries are the places in the log of those that hold, rising, all before this one.
	Entries []int64
}

// MaxActive is how many entries may hold at one time.
const MaxActive = 4096

func (a *Active) code(c *wire.Coder) {
	c.Seconds(&a.Begin, "begin")
	c.Seconds(&a.End, "end")
	c.Check(a.End.After(a.Begin), "a period that ends before it begins")
	c.Nested24("entries", func() {
		wire.Items(c, &a.Entries, func(i int, x *int64) {
			c.Int64(x, "entry")
			c.Check(*x >= 0 && *x < MaxSize && (i == 0 || a.Entries[i-1] < *x), "entries do not rise")
		})
	})
	c.Check(len(a.Entries) <= MaxActive, "more entries than may hold at one time")
}

// Entry is the entry of an active set: uint64 begin, end; int64 entries<0..2^24-1>,
// rising. It fails with [ErrEntry].
func (a *Active) Entry() (Entry, error) {
	b, err := wire.Append(nil, ErrEntry, a.code)
	return Entry{KindActive, b}, err
}

// ReadActive reads an entry of that kind ([ErrEntry]).
func ReadActive(e Entry) (*Active, error) {
	a := new(Active)
	if e.Kind != KindActive {
		return nil, fmt.Errorf("%w: %v, want %v", ErrEntry, e.Kind, KindActive)
	}
	err := wire.Read(e.Body, ErrEntry, a.code)
	return a, err
}

// A Statement is the body of entries that one owner says: who may say it is not for this
// package.
type Statement struct {
	// Deployment is what it is about, as recipes name it; zero where it is about none.
	Deployment [32]byte
	// At is when it was said, in whole seconds.
	At      time.Time
	Content []byte // 1 byte or more
	// Signature is the owner's, over kind, deployment, time and content.
	Signature signed.Signature
}

// statementDomain opens what an owner signs for the log.
const statementDomain = "starling log statement v1"

// MaxContent bounds the content of a statement, in bytes.
const MaxContent = MaxBody - 32 - 8 - 3 - signed.SignatureSize

// code reads and writes all but the signature.
func (s *Statement) code(c *wire.Coder) {
	c.Fixed(s.Deployment[:], "deployment")
	c.Seconds(&s.At, "at")
	c.Vec24(&s.Content, 1, "content")
	c.Check(len(s.Content) <= MaxContent, "longer than an entry may be")
}

// message is what the owner signs.
func (s *Statement) message(kind Kind) ([]byte, error) {
	return wire.Append([]byte{byte(kind)}, ErrEntry, s.code)
}

// State makes the entry of a statement of a kind, signed now by an owner: opaque
// deployment[32]; uint64 at; opaque content<1..2^24-1>; opaque signature[208]. It fails
// with [ErrEntry] and [signed.ErrWindow].
func State(kind Kind, deployment [32]byte, content []byte, owner *signed.Signer, now time.Time) (Entry, error) {
	s := Statement{Deployment: deployment, At: now.UTC().Truncate(time.Second), Content: content}
	message, err := s.message(kind)
	if err != nil {
		return Entry{}, err
	}
	signature, err := owner.Sign(statementDomain, message, s.At, s.At)
	if err != nil {
		return Entry{}, fmt.Errorf("tlog: sign the entry: %w", err)
	}
	return Entry{kind, signature.Append(message[1:])}, nil
}

// ReadStatement reads an entry's statement, whose signature [Statement.Verify] looks at.
// It fails with [ErrEntry].
func ReadStatement(e Entry) (*Statement, error) {
	n := len(e.Body) - signed.SignatureSize
	if n < 0 {
		return nil, fmt.Errorf("%w: %v: cut off", ErrEntry, e.Kind)
	}
	s := new(Statement)
	var err error
	if s.Signature, err = signed.ReadSignature(e.Body[n:]); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEntry, err)
	}
	err = wire.Read(slices.Clone(e.Body[:n]), ErrEntry, s.code)
	return s, err
}

// Verify says whether the owner of a root has said it, as an entry of that kind and while
// the online key held. It fails with [signed.ErrSignature], [signed.ErrWindow] and
// [signed.ErrKey].
func (s *Statement) Verify(kind Kind, root signed.PublicKey) error {
	message, err := s.message(kind)
	if err != nil {
		return err
	}
	return s.Signature.Verify(root, statementDomain, message, s.At, s.At)
}

// A Release is a file of software that was given out.
type Release struct {
	Name   string   // of the file; 1 to 255 bytes
	Digest [32]byte // SHA-256 of the file
}

func (r *Release) code(c *wire.Coder) {
	c.Text8(&r.Name, "name")
	c.Check(r.Name != "", "a release without a name")
	c.Fixed(r.Digest[:], "digest")
}

// Append appends the encoding: opaque name<1..255>, digest[32]. It fails with [ErrEntry].
func (r *Release) Append(dst []byte) ([]byte, error) { return wire.Append(dst, ErrEntry, r.code) }

// ReadRelease reads exactly one ([ErrEntry]).
func ReadRelease(b []byte) (r Release, err error) {
	err = wire.Read(b, ErrEntry, r.code)
	return r, err
}

// A Cohort is how many devices an issuer of credentials has answered, or an attester has let
// ask, for an epoch: what its owner says when the epoch begins.
type Cohort struct {
	Role    signed.Role // whose issuer, or the attester
	Epoch   uint32
	Devices uint64
}

func (x *Cohort) code(c *wire.Coder) {
	c.Uint8((*uint8)(&x.Role), "role")
	switch x.Role {
	case signed.Leader, signed.Helper, signed.Hop1, signed.Hop2, signed.Attester:
	default:
		c.Fail("a cohort of a role that has none")
	}
	c.Uint32(&x.Epoch, "epoch")
	c.Uint64(&x.Devices, "devices")
}

// Append appends the encoding: uint8 role; uint32 epoch; uint64 devices. It fails with
// [ErrEntry].
func (x *Cohort) Append(dst []byte) ([]byte, error) { return wire.Append(dst, ErrEntry, x.code) }

// ReadCohort reads exactly one ([ErrEntry]).
func ReadCohort(b []byte) (x Cohort, err error) {
	err = wire.Read(b, ErrEntry, x.code)
	return x, err
}
