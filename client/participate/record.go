package participate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/starling-agg/starling/internal/wire"
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
//	    case charge:
//	      uint64 round, epsilon, delta;               // 10^-9 and 10^-18, over all rounds; epsilon 2^64-1 is unbounded
//	      uint64 open_epsilon, open_delta;            // the like on none of the recipe's conditions
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
	open   charge // on none of the recipe's conditions
}

func (r *record) code(c *wire.Coder) {
	c.Uint8(&r.kind, "kind")
	c.Uint32(&r.day, "day")
	c.Fixed(r.recipe[:], "recipe id")
	switch r.kind {
	case kindBegun:
	case kindSeen:
		c.Vec24(&r.bytes, 0, "recipe")
		c.Check(len(r.bytes) <= recipe.MaxSize, "recipe is too long")
	case kindRefused:
		c.Vec16(&r.bytes, 0, "reason")
		c.Check(len(r.bytes) <= maxReason, "reason is too long")
	case kindCharge:
		c.Uint64(&r.round, "round")
		c.Uint64(&r.charge.epsilon, "epsilon")
		c.Uint64(&r.charge.delta, "delta")
		c.Uint64(&r.open.epsilon, "epsilon on no conditions")
		c.Uint64(&r.open.delta, "delta on no conditions")
	default:
		c.Fail(fmt.Sprintf("kind %d", r.kind))
	}
}

func (r record) append(dst []byte) ([]byte, error) {
	if r.kind == kindRefused {
		r.bytes = r.bytes[:min(len(r.bytes), maxReason)]
	}
	return wire.Append(dst, errRecord, r.code)
}

func readRecord(b []byte) (r record, err error) {
	err = wire.Read(b, errRecord, r.code)
	r.bytes = slices.Clone(r.bytes) // a payload lives no longer than its visit
	return r, err
}
