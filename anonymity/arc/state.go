package arc

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/starling-agg/starling/anonymity/internal/derand"
)

// ErrLimit: a credential was shown as often as its limit says in a context.
var ErrLimit = errors.New("arc: the limit of presentations is reached")

// PresentationStateSize is the length of a state as a device keeps it, in bytes.
const PresentationStateSize = 1 + 4 + sha256.Size

const stateVersion = 1

// A PresentationState is a device's account of the numbers that one credential has shown in
// one context: each is given once, in their order, and after the last there is none.
// Verifiers do not see which number a presentation has.
//
// Two presentations of one number are linked, and one of them is refused. So a number is
// taken where a crash does not give it back ([PresentationState.Present]); a backup of the
// state that is put back does, and what a device must do then is to sit the context out.
// A device that has lost the state of a context, and may have presented in it, makes no new
// one. A state may be used by several goroutines, and there is one of a credential and
// context: two copies would give numbers twice.
type PresentationState struct {
	credential *Credential
	context    PresentationContext
	base       *TagBase
	form       *limitedForm

	mu   sync.Mutex
	next int // under mu: the lowest number that was not taken
}

// NewPresentationState is the state of a credential that has shown nothing in a context
// yet, under a limit of [MinLimit] to [MaxLimit]. The limit follows from what the context
// names (a recipe), so that a context has one for ever.
func (c *Credential) NewPresentationState(context PresentationContext, limit int) *PresentationState {
	return &PresentationState{credential: c, context: context, base: NewTagBase(context), form: newLimitedForm(limit)}
}

// Left is how many presentations are left.
func (s *PresentationState) Left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.form.limit - s.next
}

// Present makes one presentation for each binding, with cryptographic randomness. It first
// takes their numbers and calls keep with the state's encoding, which keep makes durable:
// it returns nil once a crash of the machine would not undo it, and writes of one state are
// not reordered, for none begins before the last has ended. Where keep fails, nothing is
// presented, the numbers stay taken, and the error wraps keep's. Where fewer numbers are
// left than there are bindings, the error wraps [ErrLimit], and nothing is taken.
//
// A device presents for every outcome of its draw, as [Credential.Present] says.
func (s *PresentationState) Present(keep func(state []byte) error, bindings ...Binding) ([]*LimitedPresentation, error) {
	for _, b := range bindings {
		b.check()
	}
	first, err := s.take(len(bindings), keep)
	if err != nil {
		return nil, err
	}
	all := make([]*LimitedPresentation, len(bindings))
	for i, b := range bindings {
		all[i] = s.credential.presentLimited(s.form, s.base, limitedSession(s.form.limit, b), first+i, derand.Rand{})
	}
	return all, nil
}

// take takes n numbers, and returns the first.
func (s *PresentationState) take(n int, keep func(state []byte) error) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.next
	if left := s.form.limit - first; n > left {
		return 0, fmt.Errorf("%w: %d of %d are left, not %d", ErrLimit, left, s.form.limit, n)
	}
	s.next += n
	if err := keep(s.encode(nil)); err != nil {
		return 0, fmt.Errorf("arc: keeping which presentations were made: %w", err)
	}
	return first, nil
}

// Append appends the state, [PresentationStateSize] bytes, to b: a version, how many
// numbers are taken, and HMAC-SHA256 of that, the limit and the context, under a key that
// follows from the credential's secret.
func (s *PresentationState) Append(b []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.encode(b)
}

func (s *PresentationState) encode(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(append(b, stateVersion), uint32(s.next))
	return append(b, s.mark()...)
}

func (s *PresentationState) mark() []byte {
	key := sha256.Sum256(s.credential.m1.Append([]byte("starling arc state v1")))
	h := hmac.New(sha256.New, key[:])
	said := binary.BigEndian.AppendUint32(nil, uint32(s.next))
	said = binary.BigEndian.AppendUint32(said, uint32(s.form.limit))
	h.Write(append(said, s.context...))
	return h.Sum(nil)
}

// ReadPresentationState reads the state that was kept of the credential in a context under
// a limit. The error is a [Refusal]; where the state was kept of another credential,
// context or limit, or is damaged, it wraps [ErrProof].
func (c *Credential) ReadPresentationState(b []byte, context PresentationContext, limit int) (*PresentationState, error) {
	r := read("presentation state", b, PresentationStateSize)
	r.version(stateVersion)
	if r.err != nil {
		return nil, r.err
	}
	next := binary.BigEndian.Uint32(r.b)
	if int64(next) > int64(limit) {
		r.fail("numbers taken", fmt.Errorf("%w: %d of %d", ErrMalformed, next, limit))
		return nil, r.err
	}
	s := c.NewPresentationState(context, limit)
	s.next = int(next)
	if !hmac.Equal(r.b[4:], s.mark()) {
		r.fail("mark", ErrProof)
		return nil, r.err
	}
	return s, nil
}
