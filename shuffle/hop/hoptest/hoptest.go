// Package hoptest has a hop whose orders a test chooses. A chosen order hides nobody; nothing
// but tests may import this package.
package hoptest

import (
	"io"

	"github.com/starling-agg/starling/shuffle/hop"
	"github.com/starling-agg/starling/shuffle/internal/derand"
	"github.com/starling-agg/starling/shuffle/internal/order"
)

// New is [hop.New] with the randomness of orders.
func New(o hop.Options, random io.Reader) (*hop.Hop, error) {
	return hop.NewDerandomized(o, derand.New(random))
}

// Order is the order in which a hop hands on n things: thing Order[i] comes to place i.
func Order(n uint32, random io.Reader) []uint32 { return order.Draw(n, derand.New(random)) }
