package arc

import (
	"sync"

	"github.com/starling-agg/starling/anonymity/internal/p256"
)

const (
	// oftenUses is for how many multiplications an element is as any other. Its multiples
	// cost as much as about ten.
	oftenUses = 12
	// oftenMost is of how many elements there are multiples: those of the keys of two issuers
	// in two epochs. They take 1 MB.
	oftenMost = 12
)

// often has the multiples of elements of public keys. One device that asks once and shows a
// credential once a round makes none of them; an issuer, or a device of many rounds, works
// with its few keys again and again.
var often = shelf{most: oftenMost}

// A shelf keeps multiples of the public elements that are used most lately. Which these are
// shows in its time.
type shelf struct {
	most int

	mu    sync.Mutex
	used  map[p256.Element]*use
	clock uint64 // of uses
}

type use struct {
	uses, last uint64 // under the shelf's mu
	once       sync.Once
	fixed      *p256.Fixed
}

// of notes a use of an element, and returns its multiples or, of one that is used rarely,
// nil.
func (s *shelf) of(e p256.Element) *p256.Fixed {
	s.mu.Lock()
	u := s.used[e]
	if u == nil {
		if s.used == nil {
			s.used = make(map[p256.Element]*use)
		}
		if len(s.used) >= s.most {
			var oldest p256.Element
			last := s.clock + 1
			for e, u := range s.used {
				if u.last < last {
					oldest, last = e, u.last
				}
			}
			delete(s.used, oldest)
		}
		u = new(use)
		s.used[e] = u
	}
	s.clock++
	u.last = s.clock
	u.uses++
	rare := u.uses <= oftenUses
	s.mu.Unlock()
	if rare {
		return nil
	}
	u.once.Do(func() { u.fixed = p256.NewFixed(e) })
	return u.fixed
}

// mul is k e for a secret k and an element of a public key. Constant time but for what a
// [shelf] shows.
func (s *shelf) mul(k p256.Scalar, e p256.Element) *p256.Point {
	if f := s.of(e); f != nil {
		if product, ok := f.Mul(k); ok {
			return product.Point()
		}
	}
	return p256.Mul(k, e.Point())
}
