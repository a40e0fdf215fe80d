package flp

import (
	"math"
	"sort"

	"github.com/starling-agg/starling/vdaf/internal/field"
)

// squareSum is what kindSquares needs beside chunk.
type squareSum struct {
	n    int
	pow2 []uint64 // weights of the bits
}

// NewSquares checks that the squares of n elements, chunk of them to a gadget, add up in
// the field to the number whose bits (least significant first, not checked here) follow
// them: the norm equality of PINE (draft-chen-cfrg-vdaf-pine-02, PineValidNormEquality).
// It has no joint randomness.
func NewSquares(f field.Field, n, bits, chunk int) *Circuit {
	c := &Circuit{F: f, kind: kindSquares, MeasLen: n + bits, arity: chunk, degree: 2, calls: calls(n, chunk), evalLen: 1,
		chunk: chunk, square: &squareSum{n, powersOfTwo(f, bits)}}
	return c.build()
}

// ProofLen is the length of a proof by a circuit of the given arity and calls and of
// degree 2, without building it.
func ProofLen(arity, calls int) int { return arity + 2*(1<<ceilLog(1+calls)) - 1 }

// ShortestChunk returns the chunk length, 1 to n, that makes the shortest proof of degree
// 2; the smallest, if several do. lengths gives arity and calls, of which the first rises
// with the chunk and the second falls. A proof is arity + 2p - 1 elements, p a power of
// two above the calls: so for each p only the least chunk that fits counts.
func ShortestChunk(n int, lengths func(chunk int) (arity, calls int)) int {
	best, size := n, math.MaxInt
	for p := 2; p <= 1<<20; p *= 2 {
		if _, calls := lengths(n); calls >= p {
			continue
		}
		chunk := 1 + sort.Search(n-1, func(c int) bool { _, calls := lengths(1 + c); return calls < p })
		if s := ProofLen(lengths(chunk)); s < size || s == size && chunk < best {
			best, size = chunk, s
		}
	}
	return best
}

func calls(n, chunk int) int { return (n + chunk - 1) / chunk }

// powersOfTwo returns the weights 1, 2, 4 and so on.
func powersOfTwo(f field.Field, n int) []uint64 {
	v := make([]uint64, n*f.Limbs())
	x := f.ToWeight(f.FromUint64(1))
	for i := range n {
		f.Put(v, i, x)
		x = f.Add(x, x)
	}
	return v
}

func (c *Circuit) querySquares(s *Scratch, wires, seeds, outs, meas []uint64) field.Elem {
	f, l := c.F, c.F.Limbs()
	elements, bits := meas[:c.square.n*l], meas[c.square.n*l:]
	f.Rows(wires, s.w[l:(1+c.calls)*l], elements, c.chunk)
	c.addSeeds(s, wires, seeds)
	return f.Sub(f.Dot(c.square.pow2, bits, 1), f.Sum(outs, c.calls, 2))
}

// addSeeds adds to each wire its seed times the first Lagrange weight.
func (c *Circuit) addSeeds(s *Scratch, wires, seeds []uint64) {
	f := c.F
	w0 := f.At(s.w, 0)
	for j := range c.arity {
		f.Put(wires, j, f.Add(f.At(wires, j), f.Mul(f.At(seeds, j), w0)))
	}
}

func (c *Circuit) proveSquares(s *Scratch, meas, proveRand []uint64) {
	f, l := c.F, c.F.Limbs()
	wire := s.even[:c.plan.P*l]
	for j := range c.chunk {
		clear(wire)
		f.Put(wire, 0, f.At(proveRand, j))
		for i := 0; i*c.chunk+j < c.square.n; i++ {
			f.Put(wire, 1+i, f.At(meas, i*c.chunk+j))
		}
		c.addProducts(s.y, wire, wire)
		c.coset(wire)
		c.addProducts(s.y[l:], wire, wire)
	}
}
