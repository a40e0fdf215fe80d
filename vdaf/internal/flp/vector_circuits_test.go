package flp

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/starling-agg/starling/vdaf/internal/field"
)

var allFields = []field.Field{field.Field32, field.Field40, field.Field64{}, field.Field128{}}

// residues are raw elements below every modulus.
func residues(f field.Field, r *rand.Rand, n int) []uint64 {
	v := make([]uint64, n*f.Limbs())
	for i := range n {
		f.Put(v, i, f.FromUint64(r.Uint64()))
	}
	return v
}

// proves is verify for any field: two shares.
func proves(c *Circuit, r *rand.Rand, meas []uint64, spoil int) bool {
	f, l := c.F, c.F.Limbs()
	s := c.NewScratch()
	joint, proof := residues(f, r, c.JointRandLen), make([]uint64, c.ProofLen*l)
	c.Prove(s, proof, meas, residues(f, r, c.ProveRandLen), joint)
	if spoil >= 0 {
		f.Put(proof, spoil, f.Add(f.At(proof, spoil), f.FromUint64(1)))
	}
	half := f.ToRaw(f.Inv(f.ToWeight(f.FromUint64(2))))
	query := residues(f, r, c.QueryRandLen)
	m, p := residues(f, r, c.MeasLen), residues(f, r, c.ProofLen)
	sum, one := make([]uint64, c.VerifierLen*l), make([]uint64, c.VerifierLen*l)
	if !c.Query(s, sum, m, p, query, joint, half) {
		return false
	}
	rest, restProof := append([]uint64(nil), meas...), append([]uint64(nil), proof...)
	f.SubVec(rest, m)
	f.SubVec(restProof, p)
	if !c.Query(s, one, rest, restProof, query, joint, half) {
		return false
	}
	f.AddVec(sum, one)
	return c.Decide(sum)
}

// appendBits appends n bits of x as elements.
func appendBits(f field.Field, v []uint64, x uint64, n int) []uint64 {
	for i := range n {
		v = append(v, rawVec(f, int64(x>>i&1))...)
	}
	return v
}

func TestSquares(t *testing.T) {
	for _, f := range allFields {
		r := rand.New(rand.NewPCG(1, uint64(f.ID())))
		for _, n := range []int{1, 2, 5, 16, 33} {
			for _, chunk := range []int{1, 2, 4, 7, 40} {
				c := NewSquares(f, n, 20, chunk)
				meas, sum := []uint64(nil), int64(0)
				for range n {
					x := r.Int64N(201) - 100
					sum += x * x
					meas = append(meas, rawVec(f, x)...)
				}
				if c.ProofLen != ProofLen(chunk, calls(n, chunk)) {
					t.Fatalf("proof of %d elements, ProofLen says %d", c.ProofLen, ProofLen(chunk, calls(n, chunk)))
				}
				good := appendBits(f, meas, uint64(sum), 20)
				if !proves(c, r, good, -1) {
					t.Errorf("field %d: %d by %d: refused", f.ID(), n, chunk)
				}
				for _, off := range []int64{-1, 1} {
					if proves(c, r, appendBits(f, meas[:len(meas):len(meas)], uint64(sum+off), 20), -1) {
						t.Errorf("field %d: %d by %d: accepted with a wrong sum", f.ID(), n, chunk)
					}
				}
				for i := 0; i < c.ProofLen; i += 3 {
					if proves(c, r, good, i) {
						t.Errorf("field %d: %d by %d: accepted with proof element %d changed", f.ID(), n, chunk, i)
					}
				}
			}
		}
	}
}

// Several proofs of one measurement are those that each makes by itself, and by the
// definition: the seed stands first in its wire, and the wires' squares are added up at all
// roots.
func TestSquaresAtOnce(t *testing.T) {
	for _, f := range allFields {
		r, l := rand.New(rand.NewPCG(4, uint64(f.ID()))), f.Limbs()
		for _, chunk := range []int{1, 31, 32, 33, 100} {
			const proofs, n = 3, 301
			c := NewSquares(f, n, 20, chunk)
			meas, seeds := residues(f, r, c.MeasLen), residues(f, r, proofs*c.ProveRandLen)
			all := make([]uint64, proofs*c.ProofLen*l)
			s := c.NewScratch()
			c.ProveSquares(s, all, meas, seeds)
			for k := range proofs {
				own, one := seeds[k*c.ProveRandLen*l:(k+1)*c.ProveRandLen*l], make([]uint64, c.ProofLen*l)
				c.Prove(s, one, meas, own, nil)
				want, y, wire := make([]uint64, c.ProofLen*l), make([]uint64, c.size*l), make([]uint64, c.plan.P*l)
				for j := range chunk {
					clear(wire)
					copy(wire, own[j*l:(j+1)*l])
					for i := 0; i*chunk+j < n; i++ {
						f.Put(wire, 1+i, f.At(meas, i*chunk+j))
					}
					c.addProducts(y, wire, wire)
					c.coset(wire)
					c.addProducts(y[l:], wire, wire)
				}
				f.ScaleVec(y, y, f.ToWeight(c.one))
				copy(want, own)
				copy(want[chunk*l:], y[:c.polyLen*l])
				if !slices.Equal(want, one) || !slices.Equal(want, all[k*c.ProofLen*l:(k+1)*c.ProofLen*l]) {
					t.Errorf("field %d, %d by %d: proof %d is another", f.ID(), n, chunk, k)
				}
			}
		}
	}
}

func TestWraps(t *testing.T) {
	for _, f := range allFields {
		r := rand.New(rand.NewPCG(2, uint64(f.ID())))
		for _, chunk := range []int{1, 3, 5, 8, 100} {
			p := Wraps{NormBits: 7, TestBits: 5, Tests: 4, Passes: 3, Range: 16, Bound: 10, Chunk: chunk}
			c := NewWraps(f, p)
			// Tests 0, 2 and 3 pass; test 1 is out of range and claims nothing.
			build := func(v, u uint64, w, g, s []int64) []uint64 {
				m := appendBits(f, appendBits(f, nil, v, 7), u, 7)
				for i := range w {
					m = append(appendBits(f, m, uint64(w[i]), 5), rawVec(f, g[i])...)
				}
				return append(m, rawVec(f, s...)...)
			}
			w, g, s := []int64{0, 9, 31, 15}, []int64{1, 0, 1, 1}, []int64{-15, 100, 16, 0}
			good := build(40, 60, w, g, s)
			if !proves(c, r, good, -1) {
				t.Fatalf("field %d, chunk %d: refused", f.ID(), chunk)
			}
			bad := map[string][]uint64{
				"norm":            build(41, 60, w, g, s),
				"norm over":       build(101, 127, w, g, s),
				"result":          build(40, 60, w, g, []int64{-15, 100, 16, 1}),
				"below range":     build(40, 60, w, g, []int64{-16, 100, 16, 0}),
				"claimed pass":    build(40, 60, w, []int64{1, 1, 1, 1}, s),
				"one pass less":   build(40, 60, w, []int64{1, 0, 1, 0}, s),
				"pass not a bit":  build(40, 60, w, []int64{2, 0, 1, 0}, s),
				"passes by trade": build(40, 60, w, []int64{1, 1, 1, 0}, s),
			}
			for _, at := range []int{0, 6, 7, 14, 18, 37} { // an element that is not a bit
				m := append([]uint64(nil), good...)
				f.Put(m, at, f.FromInt64(2))
				bad[fmt.Sprint("bit ", at)] = m
			}
			for name, m := range bad {
				if proves(c, r, m, -1) {
					t.Errorf("field %d, chunk %d: %s: accepted", f.ID(), chunk, name)
				}
			}
			for i := range c.ProofLen {
				if proves(c, r, good, i) {
					t.Errorf("field %d, chunk %d: accepted with proof element %d changed", f.ID(), chunk, i)
				}
			}
		}
	}
}

func TestBounded(t *testing.T) {
	for _, v := range []struct {
		f     field.Field
		width int
	}{{field.Field64{}, 16}, {field.Field128{}, 16}, {field.Field128{}, 32}, {field.Field128{}, 64}} {
		r := rand.New(rand.NewPCG(3, uint64(v.width)))
		f := v.f
		for _, n := range []int{1, 2, 3, 9} {
			for _, chunk := range []int{7, 30, 200} {
				c := NewBounded(f, n, v.width, chunk)
				if c.calls != BoundedCalls(n, v.width, chunk) || c.MeasLen != BoundedLen(n, v.width) {
					t.Fatal("BoundedCalls or BoundedLen disagrees")
				}
				limit := new(big.Int).Lsh(big.NewInt(1), uint(2*v.width-2))
				for range 6 {
					entries, sum := make([]int64, n), new(big.Int)
					for i := range entries {
						entries[i] = int64(r.Uint64()) >> (64 - v.width + r.IntN(4))
						if i > 0 && r.IntN(2) == 0 {
							entries[i] = int64(i) - 1
						}
						x := big.NewInt(entries[i])
						sum.Add(sum, x.Mul(x, x))
					}
					meas := make([]uint64, c.MeasLen*f.Limbs())
					ok := c.BoundedEncode(meas, entries)
					if ok != (sum.Cmp(limit) < 0) {
						t.Fatalf("%d entries of %d bits: norm %x: BoundedEncode reports %v", n, v.width, sum, ok)
					}
					if proves(c, r, meas, -1) != ok {
						t.Errorf("%d entries of %d bits, chunk %d: %d: accepted %v", n, v.width, chunk, entries, !ok)
					}
					if !ok {
						continue
					}
					at := r.IntN(c.MeasLen)
					f.Put(meas, at, f.Sub(f.FromUint64(1), f.At(meas, at)))
					if proves(c, r, meas, -1) {
						t.Errorf("%d entries of %d bits, chunk %d: %d: accepted with bit %d changed", n, v.width, chunk, entries, at)
					}
					f.Put(meas, at, f.FromInt64(2))
					if proves(c, r, meas, -1) {
						t.Errorf("%d entries of %d bits, chunk %d: %d: accepted with 2 at %d", n, v.width, chunk, entries, at)
					}
				}
			}
		}
	}
}
