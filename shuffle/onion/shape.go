package onion

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"

	"github.com/starling-agg/starling/sealed"
)

// A Role is that of a party a layer is sealed to, and that signs for itself.
type Role uint8

// The roles. They stand in HPKE infos and in what is signed.
const (
	First    Role = 1 // hop 1
	Second   Role = 2 // hop 2
	Analyzer Role = 3 // behind two hops
	Direct   Role = 4 // the analyzer of the direct path
)

func (r Role) String() string {
	switch r {
	case First:
		return "hop 1"
	case Second:
		return "hop 2"
	case Analyzer:
		return "analyzer"
	case Direct:
		return "analyzer of the direct path"
	}
	return fmt.Sprintf("role %d", uint8(r))
}

// Bounds of a shape.
const (
	MaxMessages = 1 << 16
	MaxSize     = 64 << 10 // bytes of a message
	MaxToken    = 16 << 10
	// MaxEnvelope bounds an envelope, in bytes.
	MaxEnvelope = 4 << 20
)

// overhead is how much longer a layer is than what is in it, in bytes: the encapsulated key
// and the tag of AES-GCM.
const overhead = 32 + 16

const (
	version    = 1
	headerSize = 1 + 3 + 8
	infoDomain = "starling shuffle v1"
)

// Suite is the one of all layers.
var Suite = sealed.SuiteX25519

// ErrShape: there is no contribution of that shape, or a message is of another.
var ErrShape = errors.New("onion: not of the shape")

// A Shape is how the contributions of one round look; it follows from the recipe and the
// round. All that is of one shape has one size.
type Shape struct {
	Recipe [32]byte // its id
	Round  uint64
	// Messages is m, how many a contribution has, 1 to MaxMessages; Size is of one, in bytes.
	Messages, Size int
	// EnvelopeToken is the size of the token that the envelope has for who opens it, and
	// MessageToken that of the one that each onion has for hop 2, in bytes; 0: there is none.
	EnvelopeToken, MessageToken int
}

// Validate fails with [ErrShape].
func (s Shape) Validate() error {
	switch {
	case s.Messages < 1 || s.Messages > MaxMessages:
		return fmt.Errorf("%w: %d messages, from 1 to %d", ErrShape, s.Messages, MaxMessages)
	case s.Size < 1 || s.Size > MaxSize:
		return fmt.Errorf("%w: messages of %d bytes, from 1 to %d", ErrShape, s.Size, MaxSize)
	case s.EnvelopeToken < 0 || s.EnvelopeToken > MaxToken || s.MessageToken < 0 || s.MessageToken > MaxToken:
		return fmt.Errorf("%w: tokens of %d and %d bytes, at most %d", ErrShape, s.EnvelopeToken, s.MessageToken, MaxToken)
	case s.Record(First) > MaxEnvelope:
		return fmt.Errorf("%w: an envelope of %d bytes, at most %d", ErrShape, s.Record(First), MaxEnvelope)
	}
	return nil
}

// Record is the size of what comes to a party, in bytes: an envelope, or a sealed message.
func (s Shape) Record(to Role) int {
	switch to {
	case First:
		return headerSize + overhead + s.EnvelopeToken + s.Messages*s.Record(Second)
	case Direct:
		return headerSize + overhead + s.EnvelopeToken + s.Messages*s.Size
	case Second:
		return overhead + s.MessageToken + s.Record(Analyzer)
	}
	return overhead + s.Size
}

// Parts are how many there are in a record of a party, and how long each is, in bytes: what a
// hop hands on, or messages.
func (s Shape) Parts(of Role) (n, size int) {
	switch of {
	case First:
		return s.Messages, s.Record(Second)
	case Second:
		return 1, s.Record(Analyzer)
	case Direct:
		return s.Messages, s.Size
	}
	return 1, s.Size
}

// token is the size of the token in front of the parts of a record.
func (s Shape) token(of Role) int {
	switch of {
	case First, Direct:
		return s.EnvelopeToken
	case Second:
		return s.MessageToken
	}
	return 0
}

// framed says whether a record has an envelope's header.
func framed(r Role) bool { return r == First || r == Direct }

func (s Shape) info(to Role) []byte {
	b := append([]byte(infoDomain), byte(to))
	return binary.BigEndian.AppendUint64(append(b, s.Recipe[:]...), s.Round)
}

// A Present returns the token for a party, of the size that the shape has, bound to aad, which
// is [Shape.AAD], and to what stands behind it.
type Present func(to Role, aad, bound []byte) ([]byte, error)

// AAD is all that the layer for a party is sealed under and beside: the HPKE info, and before
// an envelope its header. A token is bound to it.
func (s Shape) AAD(to Role) []byte {
	b := s.info(to)
	if framed(to) {
		b = append(b, s.header(to)...)
	}
	return b
}

// Keys are those to which a contribution on the shuffled path is sealed.
type Keys struct{ First, Second, Analyzer *sealed.PublicKey }

// Seal makes a contribution's envelope: messages are m, each of the shape's size. present is
// asked for tokens, and is nil where the shape has none. It fails with [ErrShape].
func (s Shape) Seal(to Keys, messages [][]byte, present Present) ([]byte, error) {
	if err := s.holds(messages); err != nil {
		return nil, err
	}
	order := make([]int, len(messages))
	for i := range order {
		order[i] = i
	}
	for i := len(order) - 1; i > 0; i-- {
		j, err := rand.Int(rand.Reader, big.NewInt(int64(i+1)))
		if err != nil {
			panic("onion: internal error: no randomness: " + err.Error())
		}
		order[i], order[j.Int64()] = order[j.Int64()], order[i]
	}
	var onions []byte
	for _, i := range order {
		inner, err := s.layer(nil, Analyzer, to.Analyzer, messages[i], nil)
		if err == nil {
			onions, err = s.layer(onions, Second, to.Second, inner, present)
		}
		if err != nil {
			return nil, err
		}
	}
	return s.layer(s.header(First), First, to.First, onions, present)
}

// SealDirect makes a contribution's envelope of the direct path. It fails with [ErrShape].
func (s Shape) SealDirect(to *sealed.PublicKey, messages [][]byte, present Present) ([]byte, error) {
	if err := s.holds(messages); err != nil {
		return nil, err
	}
	var all []byte
	for _, m := range messages {
		all = append(all, m...)
	}
	return s.layer(s.header(Direct), Direct, to, all, present)
}

func (s Shape) holds(messages [][]byte) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if len(messages) != s.Messages {
		return fmt.Errorf("%w: %d messages, want %d", ErrShape, len(messages), s.Messages)
	}
	for _, m := range messages {
		if len(m) != s.Size {
			return fmt.Errorf("%w: a message of %d bytes, want %d", ErrShape, len(m), s.Size)
		}
	}
	return nil
}

// layer appends what is sealed to a party: the token, and content behind it.
func (s Shape) layer(dst []byte, to Role, key *sealed.PublicKey, content []byte, present Present) ([]byte, error) {
	if key == nil || key.Suite() != Suite {
		return nil, fmt.Errorf("%w: the key of %v is of another suite", ErrShape, to)
	}
	if n := s.token(to); n > 0 {
		if present == nil {
			return nil, fmt.Errorf("%w: no token for %v", ErrShape, to)
		}
		token, err := present(to, s.AAD(to), content)
		if err != nil {
			return nil, err
		}
		if len(token) != n {
			return nil, fmt.Errorf("%w: a token of %d bytes for %v, want %d", ErrShape, len(token), to, n)
		}
		content = append(token[:n:n], content...)
	}
	enc, ciphertext, err := key.Seal(s.info(to), nil, content)
	if err != nil {
		return nil, err
	}
	return append(append(dst, enc...), ciphertext...), nil
}

func (s Shape) header(to Role) []byte {
	n := s.Record(to) - 4
	b := append(make([]byte, 0, s.Record(to)), version, byte(n>>16), byte(n>>8), byte(n))
	return binary.BigEndian.AppendUint64(b, s.Round)
}

// ErrEnvelope: not the beginning of an envelope, or one that is cut off.
var ErrEnvelope = errors.New("onion: not an envelope")

// ReadEnvelope reads the first of envelopes that stand one behind another, of whatever shape:
// its round, all of it, and what follows. It fails with [ErrEnvelope].
func ReadEnvelope(b []byte) (round uint64, envelope, rest []byte, err error) {
	if len(b) < headerSize || b[0] != version {
		return 0, nil, nil, fmt.Errorf("%w: no header of version %d", ErrEnvelope, version)
	}
	n := 4 + (int(b[1])<<16 | int(b[2])<<8 | int(b[3]))
	if n < headerSize+overhead || n > MaxEnvelope || n > len(b) {
		return 0, nil, nil, fmt.Errorf("%w: cut off or out of bounds", ErrEnvelope)
	}
	return binary.BigEndian.Uint64(b[4:]), b[:n:n], b[n:], nil
}

// An Opener opens the records of one party and shape. Safe for concurrent use.
type Opener struct {
	ring *sealed.Keyring
	info []byte
	s    Shape
	role Role
}

// Opener returns one for a party's key of the round.
func (s Shape) Opener(role Role, key *sealed.KeyPair) (*Opener, error) {
	if key.Public().Suite() != Suite {
		return nil, fmt.Errorf("%w: a key of another suite", ErrShape)
	}
	ring, err := sealed.NewKeyring(key)
	if err != nil {
		return nil, err
	}
	return &Opener{ring, s.info(role), s, role}, s.Validate()
}

// Errors of tokens, to branch on with errors.Is.
var (
	// ErrToken: none, or one that does not hold for what stands behind it, in this round, here.
	ErrToken = errors.New("onion: a token that does not hold")
	// ErrSpent: its device has shown as much as may be of this round.
	ErrSpent = errors.New("onion: a token that was counted before")
)

// A Verdict is what is known of a token: its tag, which is the same for what one device shows
// twice and tells nothing else, or why it counts for nothing.
type Verdict struct {
	Tag [32]byte
	Err error // [ErrToken]
}

// An Opened is what was in a record; Parts is nil where it did not open, or was not of the
// shape.
type Opened struct {
	Token []byte // for the party that opened it
	Parts []byte // one behind another, as [Shape.Parts] says
}

// Open opens records, each by itself, on the caller's workers.
func (o *Opener) Open(records [][]byte, run sealed.Runner) []Opened {
	id := o.ring.Keys()[0].ID()
	items := make([]sealed.Item, len(records))
	for i, r := range records {
		if len(r) != o.s.Record(o.role) {
			items[i].Err = ErrEnvelope
			continue
		}
		if framed(o.role) {
			round, _, rest, err := ReadEnvelope(r)
			if err != nil || len(rest) > 0 || round != o.s.Round {
				items[i].Err = ErrEnvelope
				continue
			}
			r = r[headerSize:]
		}
		items[i] = sealed.Item{ID: id, Enc: r[:32], Ciphertext: r[32:]}
	}
	o.ring.OpenBatch(o.info, items, run)
	all := make([]Opened, len(records))
	for i, it := range items {
		if n := o.s.token(o.role); it.Err == nil {
			all[i] = Opened{it.Plaintext[:n:n], it.Plaintext[n:]}
		}
	}
	return all
}
