package recipe

import (
	"fmt"
	"math/rand/v2"

	"github.com/starling-agg/starling/dp/local"
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
	case QA:
		q := r.Query.(GroupSums)
		value, size, err := z.questions(q)
		if err != nil {
			return nil, err
		}
		rounding, err := local.NewRounding(q.Numbers(z.Asks == AskSizes).Largest(), int(z.Levels))
		if err != nil {
			return nil, err
		}
		return z.messengerBy(r, q, localtest.Seeded(value, seed), localtest.Seeded(size, other(seed, 1)), localtest.Seeded(rounding, other(seed, 2)),
			rand.NewChaCha8(other(seed, 3)).Read)
	case RandomizedGroup:
		q := r.Query.(GroupSums)
		l, err := z.local(q)
		if err != nil {
			return nil, err
		}
		rounding, err := local.NewRounding(q.Numbers(z.Asks == AskSizes).Largest(), int(z.Levels))
		if err != nil {
			return nil, err
		}
		return z.messengerBy(r, q, localtest.Seeded(l, seed), localtest.Seeded(rounding, other(seed, 1))), nil
	}
	return nil, fmt.Errorf("no seeds for %T", r.Randomizer)
}

// Rewrapped is what a cloak writes of the message that it reads.
func Rewrapped(r *Recipe, b []byte) ([]byte, bool, error) {
	p, err := r.Randomizer.(Cloak).protocol(r.Query)
	if err != nil {
		return nil, false, err
	}
	m, ok := wrapper{p}.unwrap(b)
	if !ok {
		return nil, false, nil
	}
	return wrapper{p}.wrap(m), true, nil
}

// other is another seed: what is drawn of one seed twice is not independent.
func other(seed [32]byte, n byte) [32]byte {
	seed[31] += n
	return seed
}
