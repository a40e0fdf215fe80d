package flp

import "github.com/starling-agg/starling/vdaf/internal/field"

// Wraps are the parameters of NewWraps.
type Wraps struct {
	NormBits int    // of each of the two halves of the norm's range check
	TestBits int    // of a test's shifted result
	Tests    int    // r
	Passes   int    // tau, at most r
	Range    uint64 // W, a power of two: a test passes if its result is above -W and at most W
	Bound    uint64 // B, the bound of the norm
	Chunk    int
}

// wraps is what kindWraps needs beside chunk.
type wraps struct {
	Wraps
	bits   int // bits checked
	group  int // calls for bits; those for tests follow
	pow2   []uint64
	bound2 field.Elem // B^2
	shift  field.Elem // W-1
	passes field.Elem // tau
}

// NewWraps is the main circuit of PINE (draft-chen-cfrg-vdaf-pine-02, PineValid). Its
// elements are bits: of the squared norm v, of u, and for each test the bits of w and the
// bit g, least significant first; then the result S of each test. It checks that all bits
// are bits, v + u = B^2, g*(S - w + W-1) = 0 for each test, and that the g add up to tau.
// The joint randomness is three elements: for bits, for tests, and to combine the four.
func NewWraps(f field.Field, p Wraps) *Circuit {
	w := &wraps{Wraps: p, bits: 2*p.NormBits + p.Tests*(p.TestBits+1)}
	w.group = calls(w.bits, p.Chunk)
	w.pow2 = powersOfTwo(f, max(p.NormBits, p.TestBits))
	b := f.FromUint64(p.Bound)
	w.bound2 = f.Mul(f.ToWeight(b), b)
	w.shift, w.passes = f.FromUint64(p.Range-1), f.FromUint64(uint64(p.Passes))
	c := &Circuit{F: f, kind: kindWraps, MeasLen: w.bits + p.Tests, JointRandLen: 3, arity: 2 * p.Chunk, degree: 2,
		calls: w.group + calls(p.Tests, p.Chunk), evalLen: 1, chunk: p.Chunk, wraps: w}
	return c.build()
}

// test returns S - w + (W-1)*one and g of test t. one is 1 or a share of it.
func (c *Circuit) test(meas []uint64, t int, one field.Elem) (gap, pass field.Elem) {
	f, l, w := c.F, c.F.Limbs(), c.wraps
	at := 2*w.NormBits + t*(w.TestBits+1)
	gap = f.Sub(f.At(meas, w.bits+t), f.Dot(w.pow2[:w.TestBits*l], meas[at*l:], 1))
	return f.Add(gap, f.Mul(f.ToWeight(w.shift), one)), f.At(meas, at+w.TestBits)
}

func (c *Circuit) queryWraps(s *Scratch, wires, seeds, outs, meas, jointRand []uint64, one field.Elem) field.Elem {
	f, l, w := c.F, c.F.Limbs(), c.wraps
	rBit, rTest := f.ToWeight(f.At(jointRand, 0)), f.ToWeight(f.At(jointRand, 1))
	rFinal := f.ToWeight(f.At(jointRand, 2))
	if s.row == nil {
		s.row = make([]uint64, c.chunk*l)
		s.entries = [2][]uint64{make([]uint64, c.pairsLen()*l), make([]uint64, c.pairsLen()*l)}
	}
	even, odd := s.entries[0], s.entries[1]
	passes := c.pairs(even, odd, meas, rBit, rTest, one)
	for parity, v := range [][]uint64{even, odd} {
		f.Rows(s.row, s.w[l:(1+c.calls)*l], v, c.chunk)
		for j := range c.chunk {
			f.Put(wires, 2*j+parity, f.At(s.row, j))
		}
	}
	c.addSeeds(s, wires, seeds)

	norm := f.Add(f.Dot(w.pow2[:w.NormBits*l], meas, 1), f.Dot(w.pow2[:w.NormBits*l], meas[w.NormBits*l:], 1))
	v := f.Sub(passes, f.Mul(f.ToWeight(w.passes), one))
	v = f.Add(f.Mul(v, rFinal), f.Sum(outs[2*w.group*l:], c.calls-w.group, 2))
	v = f.Add(f.Mul(v, rFinal), f.Sub(norm, f.Mul(f.ToWeight(w.bound2), one)))
	return f.Add(f.Mul(v, rFinal), f.Sum(outs, w.group, 2))
}

func (c *Circuit) pairsLen() int { return c.wraps.group*c.chunk + c.wraps.Tests }

// pairs writes all inputs of the gadget, chunk pairs to a call, and returns the sum of
// the g. one is 1 or a share of it.
func (c *Circuit) pairs(even, odd, meas []uint64, rBit, rTest, one field.Elem) (passes field.Elem) {
	f, l, w := c.F, c.F.Limbs(), c.wraps
	start := w.group * c.chunk
	clear(even[w.bits*l : start*l])
	clear(odd[w.bits*l : start*l])
	// even is the powers of rBit times the bits, odd the bits less one: by doubling, in
	// the field's own loops.
	f.Put(even, 0, c.one)
	f.Put(odd, 0, f.Sub(field.Elem{}, one))
	power := rBit // to the n
	for n := 1; n < w.bits; n *= 2 {
		m := min(n, w.bits-n)
		f.ScaleVec(even[n*l:(n+m)*l], even[:m*l], power)
		copy(odd[n*l:(n+m)*l], odd)
		power = f.Mul(power, power)
	}
	f.AddVec(odd[:w.bits*l], meas[:w.bits*l])
	f.MulVec(even[:w.bits*l], meas[:w.bits*l])
	power = c.one
	for t := range w.Tests {
		gap, pass := c.test(meas, t, one)
		f.Put(even, start+t, f.Mul(gap, power))
		f.Put(odd, start+t, pass)
		passes = f.Add(passes, pass)
		power = f.Mul(power, rTest)
	}
	return passes
}

func (c *Circuit) proveWraps(s *Scratch, meas, proveRand, jointRand []uint64) {
	f, l := c.F, c.F.Limbs()
	rBit, rTest := f.ToWeight(f.At(jointRand, 0)), f.ToWeight(f.At(jointRand, 1))
	e, o := make([]uint64, c.pairsLen()*l), make([]uint64, c.pairsLen()*l)
	c.pairs(e, o, meas, rBit, rTest, f.FromUint64(1))
	even, odd := s.even[:c.plan.P*l], s.odd[:c.plan.P*l]
	for j := range c.chunk {
		clear(even)
		clear(odd)
		f.Put(even, 0, f.At(proveRand, 2*j))
		f.Put(odd, 0, f.At(proveRand, 2*j+1))
		for i := 0; i*c.chunk+j < c.pairsLen(); i++ {
			f.Put(even, 1+i, f.At(e, i*c.chunk+j))
			f.Put(odd, 1+i, f.At(o, i*c.chunk+j))
		}
		c.multiply(s.y, even, odd)
	}
}
