package flp

// Prove writes a proof (raw, ProofLen elements) that meas, a whole measurement, satisfies
// the circuit. proveRand and jointRand are raw. Every step is a fixed pattern of field
// operations.
func (c *Circuit) Prove(s *Scratch, proof, meas, proveRand, jointRand []uint64) {
	f, l := c.F, c.F.Limbs()
	n := c.plan.P * l
	if s.even == nil {
		s.even, s.odd = make([]uint64, max(n, c.size*l)), make([]uint64, n)
	}
	if c.kind == kindSquares {
		c.proveSquares(s, proof, meas, proveRand[:c.arity*l])
		return
	}
	clear(s.y)

	switch c.kind {
	case kindPoly:
		wire := s.even[:c.size*l]
		clear(wire)
		copy(wire, proveRand[:l])
		copy(wire[l:], meas)
		c.extend(wire)
		for k := range c.size {
			f.Put(s.y, k, c.evalPoly(f.At(wire, k)))
		}
	case kindCount:
		even, odd := s.even[:n], s.odd[:n]
		copy(even, proveRand[:l])
		copy(odd, proveRand[l:2*l])
		f.Put(even, 1, f.At(meas, 0))
		f.Put(odd, 1, f.At(meas, 0))
		c.multiply(s.y, even, odd)
	case kindChunked:
		one := f.FromUint64(1)
		for i := range c.calls {
			f.Put(s.r, i, f.ToWeight(f.At(jointRand, i)))
		}
		copy(s.run, s.r)
		for j := range c.chunk {
			even, odd := s.even[:n], s.odd[:n]
			clear(even)
			clear(odd)
			copy(even, proveRand[2*j*l:(2*j+1)*l])
			copy(odd, proveRand[(2*j+1)*l:(2*j+2)*l])
			for i := range c.calls {
				at := i*c.chunk + j
				if at >= c.MeasLen {
					f.Put(odd, 1+i, f.Sub(f.FromUint64(0), one))
					continue
				}
				m := f.At(meas, at)
				f.Put(even, 1+i, f.Mul(m, f.At(s.run, i)))
				f.Put(odd, 1+i, f.Sub(m, one))
			}
			c.multiply(s.y, even, odd)
			f.MulVec(s.run, s.r)
		}
	case kindWraps:
		c.proveWraps(s, meas, proveRand, jointRand)
	case kindBounded:
		c.proveBounded(s, meas, proveRand, jointRand)
	}
	c.finish(s, proof, proveRand)
}

// finish writes the proof of seeds and values of the gadget polynomial.
func (c *Circuit) finish(s *Scratch, proof, seeds []uint64) {
	f, l := c.F, c.F.Limbs()
	copy(proof, seeds[:c.arity*l])
	if c.kind != kindPoly {
		// multiply leaves raw*raw = raw/R.
		f.ScaleVec(s.y, s.y, f.ToWeight(c.one))
	}
	copy(proof[c.arity*l:], s.y[:c.polyLen*l])
}

// multiply adds the product of two polynomials, given by p values each, to the 2p values
// in y: even points are products of the values themselves, odd ones of the values moved
// to the coset. It uses up a and b.
func (c *Circuit) multiply(y, a, b []uint64) {
	c.addProducts(y, a, b)
	c.coset(a)
	c.coset(b)
	c.addProducts(y[c.F.Limbs():], a, b)
}

// addProducts adds the product of values at the p-th roots of unity to every other
// element of y.
func (c *Circuit) addProducts(y, a, b []uint64) { c.F.AddProducts(y, a, b, 2) }

// coset turns values at the p-th roots of unity into values at s times them, s the
// primitive 2p-th root.
func (c *Circuit) coset(v []uint64) {
	c.F.DIF(v, c.plan.Itw)
	c.F.MulVec(v, c.shift)
	c.F.DIT(v, c.plan.Tw)
}

// extend turns p values at the p-th roots of unity, at the front of v, into size values
// at the size-th roots.
func (c *Circuit) extend(v []uint64) {
	f, l := c.F, c.F.Limbs()
	n := c.plan.P * l
	low := v[:n]
	f.DIF(low, c.plan.Itw)
	c.plan.Permute(f, low)
	f.ScaleVec(low, low, c.plan.InvP)
	c.bigPlan.Permute(f, v)
	f.DIT(v, c.bigPlan.Tw)
}
