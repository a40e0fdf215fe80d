package account

import (
	"sync"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/recipe"
)

// The last answers of the accountant and of the theory of shuffling are kept. Both are
// asked the same again and again: a recipe for its guarantee, for what is left of it and
// for what is told of it, and one recipe by each party that opens it in one process.
var (
	losses = kept[releases, release.Guarantee]{size: 256}
	bounds = kept[shuffling, release.Guarantee]{size: 256}
)

// releases are a question to the accountant. No round of a recipe has more: one for each
// view, or one and what stands beside it.
type releases struct {
	list       [recipe.MaxViews]release.Release
	delta      float64
	neighbours release.Neighbours
}

// shuffling is a question about the shuffled messages of people.
type shuffling struct {
	message release.Message
	people  uint64
	delta   float64
}

// kept is a memory of the last size values by their keys. It is safe for concurrent use.
type kept[K comparable, V any] struct {
	size int

	mu     sync.Mutex
	values map[K]V
	keys   []K // in a ring; the oldest is keys[next] where there are size of them
	next   int
}

// once is the value of a key: what was made for it before, or what compute makes. An error
// is not kept.
func (k *kept[K, V]) once(key K, compute func() (V, error)) (V, error) {
	k.mu.Lock()
	v, ok := k.values[key]
	k.mu.Unlock()
	if ok {
		return v, nil
	}
	v, err := compute()
	if err != nil {
		return v, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if first, ok := k.values[key]; ok { // made by another in the meantime
		return first, nil
	}
	if k.values == nil {
		k.values = make(map[K]V)
	}
	if len(k.keys) < k.size {
		k.keys = append(k.keys, key)
	} else {
		delete(k.values, k.keys[k.next])
		k.keys[k.next] = key
		k.next = (k.next + 1) % k.size
	}
	k.values[key] = v
	return v, nil
}
