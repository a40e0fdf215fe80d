package pine

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/internal/field"
)

// liar makes reports that should be refused, by the steps of an honest client with lies
// between.
type liar struct {
	v *Pine
	r *rand.Rand
}

func (a *liar) sharding(nonce *[vdaf.NonceSize]byte) *sharding {
	seeds := make([]byte, a.v.randSize())
	for i := range seeds {
		seeds[i] = byte(a.r.Uint32())
	}
	return a.v.newSharding(testCtx, nonce, seeds)
}

// norm writes bits that make v the true squared norm, or a claim, modulo what the bits
// hold; u what remains of B^2.
func (a *liar) norm(s *sharding, v *big.Int) {
	b2 := new(big.Int).SetUint64(a.v.bound)
	u := b2.Mul(b2, b2).Sub(b2, v)
	m := new(big.Int).Lsh(big.NewInt(1), uint(a.v.normBits()))
	words := func(x *big.Int) (hi, lo uint64) {
		var b [16]byte
		new(big.Int).Mod(x, m).FillBytes(b[:])
		return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	}
	vh, vl := words(v)
	uh, ul := words(u)
	s.putNorm(vh, vl, uh, ul)
}

// claimAll claims that every test passed, with the low bits of what the test gave.
func (a *liar) claimAll(s *sharding) {
	v, f := a.v, a.v.f
	n := v.testBits()
	for t := range v.tests {
		e := f.Add(f.At(s.meas, v.measLen+t), f.FromUint64(testRange(v.bound)-1))
		s.putBits(v.headLen+t*(n+1), 0, e[0]&(1<<n-1), n)
		f.Put(s.meas, v.headLen+t*(n+1)+n, field.Elem{1})
	}
}

func put(s *sharding, i int, x *big.Int) {
	q := modulus(s.v.f)
	var b [16]byte
	new(big.Int).Mod(x, q).FillBytes(b[:])
	s.v.f.Put(s.meas, i, field.Elem{binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[:8])})
}

func modulus(f field.Field) *big.Int {
	top := f.Sub(field.Elem{}, f.FromUint64(1))
	q := new(big.Int).SetUint64(top[1])
	return q.Lsh(q, 64).Add(q, new(big.Int).SetUint64(top[0])).Add(q, big.NewInt(1))
}

// honest fills a vector at the bound or a little below.
func (a *liar) honest() []int64 {
	e := make([]int64, a.v.dim)
	for i := range e {
		e[i] = a.r.Int64N(int64(a.v.bound/8)) - int64(a.v.bound/16)
	}
	clip(e, a.v.bound)
	return e
}

var attacks = []struct {
	name string
	make func(a *liar, trial int, nonce *[vdaf.NonceSize]byte) *vdaf.Shares
}{
	{"norm 1 % over the bound", func(a *liar, trial int, nonce *[vdaf.NonceSize]byte) *vdaf.Shares {
		s := a.sharding(nonce)
		e := make([]int64, a.v.dim)
		e[trial%len(e)] = int64(a.v.bound + a.v.bound/100 + 1)
		e[(trial+1)%len(e)] = a.r.Int64N(10)
		sum := new(big.Int)
		for i, x := range e {
			put(s, i, big.NewInt(x))
			sum.Add(sum, new(big.Int).Mul(big.NewInt(x), big.NewInt(x)))
		}
		if trial%2 == 1 { // claim to be just at the bound, instead of an overflowing u
			sum.SetUint64(a.v.bound)
			sum.Mul(sum, sum)
		}
		a.norm(s, sum)
		s.test()
		if !s.putTests() {
			panic("the tests should pass")
		}
		return s.finish()
	}},
	{"squared norm wraps around the field", func(a *liar, trial int, nonce *[vdaf.NonceSize]byte) *vdaf.Shares {
		// A square root modulo q of a small square's residue class: an entry that is huge
		// but squares to v <= B^2.
		s := a.sharding(nonce)
		q := modulus(a.v.f)
		for {
			v := new(big.Int).SetUint64(1 + a.r.Uint64N(a.v.bound))
			x := new(big.Int).ModSqrt(v, q)
			if x == nil || x.Cmp(new(big.Int).SetUint64(4*a.v.bound)) < 0 ||
				new(big.Int).Sub(q, x).Cmp(new(big.Int).SetUint64(4*a.v.bound)) < 0 {
				continue
			}
			put(s, trial%a.v.dim, x)
			a.norm(s, v)
			break
		}
		s.test()
		if s.putTests() {
			panic("a vector that wraps passes the tests")
		}
		a.claimAll(s)
		return s.finish()
	}},
	{"tests claimed falsely", func(a *liar, trial int, nonce *[vdaf.NonceSize]byte) *vdaf.Shares {
		s := a.sharding(nonce)
		hi, lo := uint64(0), uint64(0)
		for i, x := range a.honest() {
			put(s, i, big.NewInt(x))
			h, l := bits.Mul64(abs(x), abs(x))
			var c uint64
			lo, c = bits.Add64(lo, l, 0)
			hi += h + c
		}
		v := new(big.Int).SetUint64(hi)
		a.norm(s, v.Lsh(v, 64).Add(v, new(big.Int).SetUint64(lo)))
		s.test()
		if !s.putTests() {
			panic("the tests should pass")
		}
		n := a.v.testBits()
		at := a.v.headLen + a.r.IntN(a.v.tests)*(n+1)
		f := a.v.f
		switch trial % 4 {
		case 0: // another result than the aggregators will compute
			f.Put(s.meas, at, f.Sub(f.FromUint64(1), f.At(s.meas, at)))
		case 1: // one pass less
			f.Put(s.meas, at+n, field.Elem{})
		case 2: // two passes instead of one, and none in another test
			f.Put(s.meas, at+n, field.Elem{2})
			f.Put(s.meas, a.v.headLen+(at-a.v.headLen+n+1)%(a.v.tests*(n+1))+n, field.Elem{})
		case 3: // the right sum from bits that are none
			f.Put(s.meas, at, f.Add(f.At(s.meas, at), f.FromUint64(2)))
			f.Put(s.meas, at+1, f.Sub(f.At(s.meas, at+1), f.FromUint64(1)))
		}
		return s.finish()
	}},
	{"valid proof for another nonce", func(a *liar, trial int, nonce *[vdaf.NonceSize]byte) *vdaf.Shares {
		other := *nonce
		other[trial%len(other)] ^= byte(1 << (trial / 16 % 8))
		s, err := a.v.ShardIntegers(testCtx, a.honest(), &other)
		if err != nil {
			panic(err)
		}
		return s
	}},
}

// trials is how often TestAttacks tries each attack over each field. The gate runs the
// 1,000 that docs/pine.md states.
var trials = flag.Int("trials", 40, "how many trials TestAttacks makes of each attack")

// Each attack is refused in every trial over every field. The odds that any is accepted
// are below 2^-80 (docs/pine.md). Each batch has an honest report too, which is accepted.
func TestAttacks(t *testing.T) {
	for _, f := range allFields {
		v := small(f, 8, 2)
		for k, attack := range attacks {
			t.Run(fmt.Sprintf("Field%d/%s", f, attack.name), func(t *testing.T) {
				t.Parallel()
				a := &liar{v, rand.New(rand.NewPCG(uint64(k), uint64(f)))}
				refused, honest, accepted := 0, 0, 0
				for trial := 0; trial < *trials; {
					n := min(20, *trials-trial)
					b := newBatch(v, n+1)
					for range n {
						nonce := nonceOf(trial)
						b.add(attack.make(a, trial, &nonce), nonce)
						trial++
					}
					nonce := nonceOf(trial)
					b.add(must(v.ShardIntegers(testCtx, a.honest(), &nonce)), nonce)
					honest++
					b.run()
					for _, err := range b.errs[:n] {
						if errors.Is(err, vdaf.ErrVerify) {
							refused++
						}
					}
					if b.errs[n] == nil {
						accepted++
					}
				}
				if refused != *trials || refused == 0 || accepted != honest {
					t.Errorf("%d of %d refused, and %d of %d honest reports accepted", refused, *trials, accepted, honest)
				}
				t.Logf("%d of %d refused", refused, *trials)
			})
		}
	}
}
