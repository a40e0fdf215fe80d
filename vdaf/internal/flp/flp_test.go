package flp

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/starling-agg/starling/vdaf/internal/field"
)

var fields = []field.Field{field.Field64{}, field.Field128{}}

func randomVec(f field.Field, r *rand.Rand, n int) []uint64 {
	v := make([]uint64, n*f.Limbs())
	for i := range v {
		v[i] = r.Uint64() >> 1 // reduced in either field
	}
	return v
}

func rawVec(f field.Field, xs ...int64) []uint64 {
	v := make([]uint64, len(xs)*f.Limbs())
	for i, x := range xs {
		f.Put(v, i, f.FromInt64(x))
	}
	return v
}

// verify proves meas, spoils the proof at element spoil if that is not negative, splits
// both into shares, queries each and decides on the sum.
func verify(c *Circuit, r *rand.Rand, shares int, meas []uint64, spoil int) bool {
	f, l := c.F, c.F.Limbs()
	s := c.NewScratch()
	joint := randomVec(f, r, c.JointRandLen)
	proof := make([]uint64, c.ProofLen*l)
	c.Prove(s, proof, meas, randomVec(f, r, c.ProveRandLen), joint)
	if spoil >= 0 {
		f.Put(proof, spoil, f.Add(f.At(proof, spoil), f.FromUint64(1)))
	}
	inv := f.ToRaw(f.Inv(f.ToWeight(f.FromUint64(uint64(shares)))))
	query := randomVec(f, r, c.QueryRandLen)
	sum, one := make([]uint64, c.VerifierLen*l), make([]uint64, c.VerifierLen*l)
	meas, proof = slices.Clone(meas), slices.Clone(proof)
	for i := range shares {
		m, p := meas, proof
		if i < shares-1 {
			m, p = randomVec(f, r, c.MeasLen), randomVec(f, r, c.ProofLen)
			f.SubVec(meas, m)
			f.SubVec(proof, p)
		}
		if !c.Query(s, one, m, p, query, joint, inv) {
			return false
		}
		f.AddVec(sum, one)
	}
	return c.Decide(sum)
}

type sample struct {
	name      string
	c         *Circuit
	good, bad [][]int64
}

func samples(f field.Field) []sample {
	var out []sample
	add := func(name string, c *Circuit, good, bad [][]int64) {
		out = append(out, sample{name, c, good, bad})
	}
	add("count", NewCount(f), [][]int64{{0}, {1}}, [][]int64{{2}, {-1}, {1337}})
	for n := 1; n < 9; n++ {
		zero, bad := make([]int64, n), make([]int64, n)
		one := slices.Repeat([]int64{1}, n)
		bad[n-1] = -1
		add(fmt.Sprint("bits ", n), NewBits(f, n), [][]int64{zero, one}, [][]int64{bad})
		// Degrees 3 and 5 leave up to several values of the gadget polynomial out of the
		// proof.
		two := slices.Repeat([]int64{2}, n)
		bad = slices.Clone(two)
		bad[0] = 3
		add(fmt.Sprint("cubic ", n), NewPoly(f, n, []int64{0, 2, -3, 1}), [][]int64{zero, one, two}, [][]int64{bad})
		bad = slices.Clone(one)
		bad[n/2] = 2
		add(fmt.Sprint("quintic ", n), NewPoly(f, n, []int64{0, -1, 0, 0, 0, 1}), [][]int64{zero, one}, [][]int64{bad})
		for chunk := 1; chunk <= n+1; chunk++ {
			hot := slices.Clone(zero)
			hot[n-1] = 1
			add(fmt.Sprint("chunked ", n, chunk), NewChunked(f, n, chunk), [][]int64{zero, one, hot}, [][]int64{two, bad})
			wrong := [][]int64{zero, two}
			if n > 1 {
				wrong = append(wrong, one)
				split := slices.Clone(zero) // adds up to one, but not of bits
				split[0], split[1] = 2, -1
				wrong = append(wrong, split)
			}
			add(fmt.Sprint("one-hot ", n, chunk), NewOneHot(f, n, chunk), [][]int64{hot}, wrong)
			w := slices.Concat(one, []int64{1, 1})
			add(fmt.Sprint("weighted ", n, chunk), NewWeighted(f, n, []uint64{1, uint64(n) - 1}, chunk),
				[][]int64{slices.Concat(zero, []int64{0, 0}), w, slices.Concat(hot, []int64{1, 0})},
				[][]int64{slices.Concat(hot, []int64{0, 0}), slices.Concat(zero, []int64{1, 0}), slices.Concat(bad, []int64{1, 1})})
			// Groups of two bits that weigh 1 and 2: none, one of 1, one of 3, and what
			// only claims a total, or is not bits.
			none, last, all := make([]int64, 2*n), make([]int64, 2*n), make([]int64, 2*n)
			last[2*n-2] = 1
			all[0], all[1] = 1, 1
			add(fmt.Sprint("totalled ", n, chunk), NewTotalled(f, n, []uint64{1, 2}, chunk),
				[][]int64{slices.Concat(none, []int64{0, 0}), slices.Concat(last, []int64{1, 0}), slices.Concat(all, []int64{1, 1})},
				[][]int64{slices.Concat(none, []int64{1, 0}), slices.Concat(last, []int64{0, 0}), slices.Concat(last, []int64{0, 1}),
					slices.Concat(last, []int64{-1, 1}), slices.Concat(all, []int64{3, 0}), slices.Concat(bad, bad, []int64{-1, -1})})
		}
	}
	return out
}

func TestCircuits(t *testing.T) {
	for _, f := range fields {
		for _, s := range samples(f) {
			r := rand.New(rand.NewPCG(1, 1))
			for _, shares := range []int{1, 2, 3} {
				for _, m := range s.good {
					if !verify(s.c, r, shares, rawVec(f, m...), -1) {
						t.Errorf("field %d, %s: %d refused among %d", f.ID(), s.name, m, shares)
					}
				}
				for _, m := range s.bad {
					if verify(s.c, r, shares, rawVec(f, m...), -1) {
						t.Errorf("field %d, %s: %d accepted among %d", f.ID(), s.name, m, shares)
					}
				}
			}
			for i := range s.c.ProofLen {
				if verify(s.c, r, 2, rawVec(f, s.good[0]...), i) {
					t.Errorf("field %d, %s: accepted with proof element %d changed", f.ID(), s.name, i)
				}
			}
		}
	}
}

// A root of unity as test point would reveal a wire: Query must refuse every one.
func TestTestPoint(t *testing.T) {
	for _, f := range fields {
		c := NewChunked(f, 12, 3) // 4 calls: 8 points
		r := rand.New(rand.NewPCG(2, 2))
		query := make([]uint64, f.Limbs())
		verifier := make([]uint64, c.VerifierLen*f.Limbs())
		for i := range 9 {
			x := field.Exp(f, f.Root(3), field.Elem{uint64(i)})
			if i == 8 {
				x = f.Root(4)
			}
			f.Put(query, 0, f.ToRaw(x))
			ok := c.Query(c.NewScratch(), verifier, randomVec(f, r, 12), randomVec(f, r, c.ProofLen), query,
				randomVec(f, r, c.JointRandLen), f.FromUint64(1))
			if ok != (i == 8) {
				t.Errorf("field %d: test point %d: Query reports %v", f.ID(), i, ok)
			}
		}
	}
}

func TestChunkedProofLen(t *testing.T) {
	for n := 1; n < 40; n++ {
		for chunk := 1; chunk < n+3; chunk++ {
			if got, want := ChunkedProofLen(n, chunk), NewChunked(fields[0], n, chunk).ProofLen; got != want {
				t.Fatalf("ChunkedProofLen(%d, %d) = %d, want %d", n, chunk, got, want)
			}
		}
	}
}
