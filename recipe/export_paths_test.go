package recipe

import (
	"fmt"

	"github.com/starling-agg/starling/dp/local/localtest"
	"github.com/starling-agg/starling/shuffle/cloak/cloaktest"
)

// SeededMessenger is the recipe's, with messages that are determined by the seed.
func (r *Recipe) SeededMessenger(seed [32]byte) (*Messenger, error) {
	switch z := r.Randomizer.(type) {
	case Cloak:
		p, err := z.protocol(r.Query)
		if err != nil {
			return nil, err
		}
		return z.messengerOf(r, cloaktest.Seeded(p, seed)), nil
	case KRR:
		l, err := z.response(r.Query)
		if err != nil {
			return nil, err
		}
		return localMessenger(r, z, blurTo(localtest.Seeded(l, seed).Randomize))
	case PGR:
		l, err := z.local()
		if err != nil {
			return nil, err
		}
		return localMessenger(r, z, blurTo(localtest.Seeded(l, seed).Randomize))
	case RAPPOR:
		q := r.Query.(Multihot)
		l, err := z.local(q.Length)
		if err != nil {
			return nil, err
		}
		return localMessenger(r, z, z.blurBy(localtest.Seeded(l, seed), q))
	}
	return nil, fmt.Errorf("no seeds for %T", r.Randomizer)
}
