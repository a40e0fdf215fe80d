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

// NewWraps is the main circuit of PINE (draft-chen-cfrg-vdaf-pine-02, PineValid). Its elements are bits: of the squared
// norm v, of u, and for each test the bits of w and the bit g, least significant first; then the result S of each test. It
// checks that all bits are bits, v + u = B^2, g*(S - w + W-1) = 0 for each test, and that the g add up to tau. The joint
// randomness is three elements: for bits, for tests, and to combine the four.
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
	clear(wires)
	add := func(i, j int, power, even, odd field.Elem) { // pair j of call i
		k := f.At(s.w, 1+i)
		f.Put(wires, 2*j, f.Add(f.At(wires, 2*j), f.Mul(even, f.Mul(power, k))))
		f.Put(wires, 2*j+1, f.Add(f.At(wires, 2*j+1), f.Mul(odd, k)))
	}
	power := c.one
	for k := range w.bits {
		b := f.At(meas, k)
		add(k/c.chunk, k%c.chunk, power, b, f.Sub(b, one))
		power = f.Mul(power, rBit)
	}
	power = c.one
	var passes field.Elem
	for t := range w.Tests {
		gap, pass := c.test(meas, t, one)
		add(w.group+t/c.chunk, t%c.chunk, power, gap, pass)
		passes = f.Add(passes, pass)
		power = f.Mul(power, rTest)
	}
	c.addSeeds(s, wires, seeds)

	norm := f.Add(f.Dot(w.pow2[:w.NormBits*l], meas, 1), f.Dot(w.pow2[:w.NormBits*l], meas[w.NormBits*l:], 1))
	v := f.Sub(passes, f.Mul(f.ToWeight(w.passes), one))
	v = f.Add(f.Mul(v, rFinal), f.Sum(outs[2*w.group*l:], c.calls-w.group, 2))
	v = f.Add(f.Mul(v, rFinal), f.Sub(norm, f.Mul(f.ToWeight(w.bound2), one)))
	return f.Add(f.Mul(v, rFinal), f.Sum(outs, w.group, 2))
}

func (c *Circuit) proveWraps(s *Scratch, meas, proveRand, jointRand []uint64) {
	f, l, w := c.F, c.F.Limbs(), c.wraps
	rBit, rTest := f.ToWeight(f.At(jointRand, 0)), f.ToWeight(f.At(jointRand, 1))
	one := f.FromUint64(1)
	n := c.plan.P * l
	// Pair j of call i is at j*P + 1 + i.
	even, odd := make([]uint64, c.chunk*n), make([]uint64, c.chunk*n)
	put := func(i, j int, e, o field.Elem) {
		f.Put(even, j*c.plan.P+1+i, e)
		f.Put(odd, j*c.plan.P+1+i, o)
	}
	power := c.one
	for k := range w.bits {
		b := f.At(meas, k)
		put(k/c.chunk, k%c.chunk, f.Mul(b, power), f.Sub(b, one))
		power = f.Mul(power, rBit)
	}
	power = c.one
	for t := range w.Tests {
		gap, pass := c.test(meas, t, one)
		put(w.group+t/c.chunk, t%c.chunk, f.Mul(gap, power), pass)
		power = f.Mul(power, rTest)
	}
	c.multiplyPairs(s, even, odd, proveRand)
}

// multiplyPairs adds to s.y the products of all pairs of wires, laid out one after the other; their first values are set
// to the seeds. It uses up both.
func (c *Circuit) multiplyPairs(s *Scratch, even, odd, seeds []uint64) {
	f, n := c.F, c.plan.P*c.F.Limbs()
	for j := range c.chunk {
		e, o := even[j*n:(j+1)*n], odd[j*n:(j+1)*n]
		f.Put(e, 0, f.At(seeds, 2*j))
		f.Put(o, 0, f.At(seeds, 2*j+1))
		c.multiply(s.y, e, o)
	}
}
