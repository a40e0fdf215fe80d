package participate

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/recipe"
)

// Record kinds of the ledger file.
const (
	kindSeen    = 1
	kindRefused = 2
	kindCharge  = 3
	kindBegun   = 4
)

const (
	maxReason = 1 << 10
	maxRecord = recipe.MaxSize + 256
)

var errRecord = errors.New("participate: malformed ledger record")

// A record is one line of the ledger:
//
//	struct {
//	  uint8 kind;
//	  uint32 day;              // since 1970, UTC
//	  opaque recipe_id[32];    // of begun, the first record: the ledger's own id, drawn at random
//	  select (kind) {
//	    case begun:   struct {};
//	    case seen:    opaque recipe<0..2^24-1>;
//	    case refused: opaque reason<0..2^16-1>;
//	    case charge:  uint64 round, epsilon, delta;   // 10^-9 and 10^-18, over all rounds; epsilon 2^64-1 is unbounded
//	  };
//	}
//
// It does not say what the coins said.
type record struct {
	kind   uint8
	day    uint32
	recipe recipe.ID
	bytes  []byte // of the recipe, or the reason
	round  uint64
	charge charge
}

func (r record) append(dst []byte) ([]byte, error) {
	b := cryptobyte.NewBuilder(dst)
	b.AddUint8(r.kind)
	b.AddUint32(r.day)
	b.AddBytes(r.recipe[:])
	switch r.kind {
	case kindBegun:
	case kindSeen:
		b.AddUint24LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(r.bytes) })
	case kindRefused:
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(r.bytes[:min(len(r.bytes), maxReason)]) })
	case kindCharge:
		b.AddUint64(r.round)
		b.AddUint64(r.charge.epsilon)
		b.AddUint64(r.charge.delta)
	default:
		panic(fmt.Sprintf("participate: internal error: record kind %d", r.kind))
	}
	return b.Bytes()
}

func readRecord(b []byte) (record, error) {
	var r record
	s := cryptobyte.String(b)
	var bytes cryptobyte.String
	ok := s.ReadUint8(&r.kind) && s.ReadUint32(&r.day) && s.CopyBytes(r.recipe[:])
	if !ok {
		return r, errRecord
	}
	switch r.kind {
	case kindBegun:
	case kindSeen:
		ok = s.ReadUint24LengthPrefixed(&bytes) && len(bytes) <= recipe.MaxSize
	case kindRefused:
		ok = s.ReadUint16LengthPrefixed(&bytes) && len(bytes) <= maxReason
	case kindCharge:
		ok = s.ReadUint64(&r.round) && s.ReadUint64(&r.charge.epsilon) && s.ReadUint64(&r.charge.delta)
	default:
		return r, fmt.Errorf("%w: kind %d", errRecord, r.kind)
	}
	if !ok || !s.Empty() {
		return r, errRecord
	}
	r.bytes = slices.Clone(bytes) // a payload lives no longer than its visit
	return r, nil
}
