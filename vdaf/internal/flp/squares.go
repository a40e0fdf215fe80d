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

// wiresAtOnce bounds the memory of proofs of squares.
const wiresAtOnce = 32

// proveSquares writes proofs of one measurement, one for each ProveRandLen elements of
// proveRand, whose seeds are all that they differ by.
//
// Proof k has wires m_j + r_kj e, of the measurement's m_j, a seed and the polynomial e
// that is 1 at the first root of unity and 0 at the others. So its sum of squares is
//
//	sum m_j^2 + e sum 2 r_kj m_j + e^2 sum r_kj^2
//
// and it takes one multiplication a proof for each number of the measurement on the coset,
// where e is not zero; what is left is moved there once for all.
func (c *Circuit) proveSquares(s *Scratch, proofs, meas, proveRand []uint64) {
	f, l := c.F, c.F.Limbs()
	p, n := c.plan.P*l, len(proveRand)/(c.arity*l)
	y := make([]uint64, c.size*l) // of the measurement alone
	atOnce := min(wiresAtOnce, c.chunk)
	wires, cross, part := make([]uint64, atOnce*p), make([]uint64, n*p), make([]uint64, p)
	weights := make([]uint64, atOnce*l)
	for from := 0; from < c.chunk; from += atOnce {
		now := min(atOnce, c.chunk-from)
		for j := range now {
			wire := wires[j*p : (j+1)*p]
			clear(wire)
			for i := 0; i*c.chunk+from+j < c.square.n; i++ {
				f.Put(wire, 1+i, f.At(meas, i*c.chunk+from+j))
			}
			c.addProducts(y, wire, wire)
			c.coset(wire)
			c.addProducts(y[l:], wire, wire)
		}
		for k := range n {
			for j := range now {
				r := f.At(proveRand, k*c.arity+from+j)
				f.Put(weights, j, f.ToWeight(f.Add(r, r)))
			}
			f.Rows(part, weights[:now*l], wires[:now*p], c.plan.P)
			f.AddVec(cross[k*p:(k+1)*p], part)
		}
	}
	unit := wires[:p]
	clear(unit)
	f.Put(unit, 0, f.FromUint64(1))
	c.coset(unit)
	for k := range n {
		seeds := proveRand[k*c.arity*l : (k+1)*c.arity*l]
		own := f.Dot(seeds, seeds, 1)
		copy(s.y, y)
		f.Put(s.y, 0, f.Add(f.At(s.y, 0), own))
		c.addProducts(s.y[l:], unit, cross[k*p:(k+1)*p])
		for i := range c.plan.P {
			u := f.At(unit, i)
			square := f.Mul(f.ToWeight(u), f.Mul(f.ToWeight(u), own))
			f.Put(s.y, 1+2*i, f.Add(f.At(s.y, 1+2*i), square))
		}
		c.finish(s, proofs[k*c.ProofLen*l:(k+1)*c.ProofLen*l], seeds)
	}
}

// ProveSquares writes proofs of one measurement, as [Circuit.Prove] would write each of them
// with the next ProveRandLen elements of proveRand. The circuit is one of [NewSquares].
func (c *Circuit) ProveSquares(s *Scratch, proofs, meas, proveRand []uint64) {
	if c.kind != kindSquares {
		panic("flp: internal error: no circuit of squares")
	}
	c.proveSquares(s, proofs, meas, proveRand)
}
