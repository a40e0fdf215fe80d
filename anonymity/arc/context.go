package arc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// A Role is that of a verifier of presentations, with the number that package signed has
// for it. Each has an issuer beside it.
type Role uint8

// The roles: the aggregators, as DAP numbers them, and the hops of the shuffler.
const (
	Leader Role = 2
	Helper Role = 3
	Hop1   Role = 6
	Hop2   Role = 7
)

// check panics for a role that is none. It is our own that is checked, and not a
// stranger's: one that was forgotten would be alike for all verifiers.
func (r Role) check() {
	switch r {
	case Leader, Helper, Hop1, Hop2:
	default:
		panic(fmt.Sprintf("arc: internal error: %d is the role of no verifier", r))
	}
}

// A RequestContext is what a credential is issued for: an epoch of one issuer's key. The
// issuer never sees it, so that it separates domains and nothing more; epochs are kept
// apart by their keys.
type RequestContext []byte

// A PresentationContext is that in which a credential can be shown once, or as often as a
// limit says: a round of one task, to one verifier. The report is not in it, or every
// report would have a tag of its own.
type PresentationContext []byte

// NewRequestContext is the context of all requests to the issuer of a role in one epoch.
// Every field is of logged bytes, none of an answer of a server: a server that chose one
// for a device would know that device again.
//
// deployment is the log's or the deployment's id, key the name of the issuer's key of that
// epoch.
func NewRequestContext(role Role, deployment [32]byte, epoch uint64, key KeyID) RequestContext {
	return encodeContext("starling arc epoch v1", role, deployment, epoch, key)
}

// NewPresentationContext is the context of all presentations to the verifier of a role
// in one round of one task. task is the task's id, which binds the recipe, and so the limit
// where there is one; on the shuffled path, which has no tasks, it is the recipe's id, and
// round the epoch of the batch. For a recipe with slots round is that of all slots
// together, or a device would count in each.
func NewPresentationContext(role Role, task [32]byte, round uint64, key KeyID) PresentationContext {
	return encodeContext("starling arc round v1", role, task, round, key)
}

// encodeContext is injective: strings of bytes have their length before them, in 16 bits.
func encodeContext(domain string, role Role, of [32]byte, number uint64, key KeyID) []byte {
	role.check()
	var b []byte
	add := func(s []byte) {
		b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	add([]byte(domain))
	b = append(b, byte(role))
	add(of[:])
	b = binary.BigEndian.AppendUint64(b, number)
	add(key[:])
	return b
}

// m2 is the scalar that stands for the context in a credential.
func (c RequestContext) m2() p256.Scalar {
	return p256.HashToScalar(c, "HashToScalar-"+suite+"requestContext")
}

// A TagBase is the element T that all tags of one context are made from. It costs about a
// third of a multiplication, so that a caller keeps it for each context that is open.
type TagBase struct{ t p256.Element }

// NewTagBase computes the base of a context. Its time does not depend on the context.
func NewTagBase(c PresentationContext) *TagBase {
	return &TagBase{p256.HashToGroup(c, "HashToGroup-"+suite+"Tag")}
}

// ErrEpoch: a round belongs to no epoch.
var ErrEpoch = errors.New("arc: the round belongs to no key epoch")

// EpochOf returns the one key epoch to which a round belongs, by a rule on its number: the
// epoch in which the round starts. Both lengths are in seconds. Keys of other epochs are
// refused for it, or a device would count twice in a round on their border.
//
// It refuses a round that is longer than an epoch, and a number whose start is beyond 64
// bits. The error wraps [ErrEpoch].
func EpochOf(round, roundLength, epochLength uint64) (uint64, error) {
	if roundLength == 0 || roundLength > epochLength {
		return 0, fmt.Errorf("%w: a round of %d seconds, an epoch of %d", ErrEpoch, roundLength, epochLength)
	}
	over, start := bits.Mul64(round, roundLength)
	if over != 0 {
		return 0, fmt.Errorf("%w: round %d starts after the end of time", ErrEpoch, round)
	}
	return start / epochLength, nil
}

// LastRound returns the last round that belongs to an epoch; once it is closed in all
// tasks the epoch's key is destroyed. The error wraps [ErrEpoch].
func LastRound(epoch, roundLength, epochLength uint64) (uint64, error) {
	if _, err := EpochOf(0, roundLength, epochLength); err != nil {
		return 0, err
	}
	over, end := bits.Mul64(epoch, epochLength)
	end, carry := bits.Add64(end, epochLength-1, 0)
	if over+carry != 0 {
		return 0, fmt.Errorf("%w: epoch %d ends after the end of time", ErrEpoch, epoch)
	}
	return end / roundLength, nil
}
