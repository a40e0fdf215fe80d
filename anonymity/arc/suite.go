package arc

import (
	"sync"

	"github.com/starling-agg/starling/anonymity/arc/internal/sigma"
	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// suite is the ciphersuite's context string.
const suite = "ARCV1-P256"

// generatorH is the second generator, of which nobody knows the logarithm to the first.
var generatorH = func() p256.Element {
	g := p256.Generator()
	return p256.HashToGroup(g.Append(nil), "HashToGroup-"+suite+"generatorH")
}()

var fixedH = sync.OnceValue(func() *p256.Fixed { return p256.NewFixed(generatorH) })

// mulG and mulH are k G and k H for a k that is 0 with probability 2^-256 and so never.
// Constant time.
func mulG(k p256.Scalar) *p256.Point { return p256.MulBase(k) }
func mulH(k p256.Scalar) *p256.Point {
	e := elementH(k)
	return e.Point()
}

// elementH is [mulH] in affine coordinates.
func elementH(k p256.Scalar) p256.Element {
	e, ok := fixedH().Mul(k)
	if !ok {
		panic("arc: internal error: a random scalar is 0")
	}
	return e
}

// generators are G and H, which are the first elements of all statements.
var generators = sync.OnceValue(func() sigma.Bases {
	return sigma.Bases{
		numberG: {Secret: func(k p256.Scalar) (p256.Element, bool) { return p256.MulBase(k).Element() }, Public: p256.FixedGenerator()},
		numberH: base(fixedH()),
	}
})

// base is an element of which there are multiples.
func base(f *p256.Fixed) sigma.Base { return sigma.Base{Secret: f.Mul, Public: f} }
