package flp

import "github.com/starling-agg/starling/vdaf/internal/field"

// Query writes one aggregator's verifier share (raw, VerifierLen elements) for its shares
// of a measurement and a proof. queryRand and jointRand are raw; invShares is the raw
// inverse of the number of shares. It reports false where the test point is a root of
// unity, for which the proof would leak a wire.
func (c *Circuit) Query(s *Scratch, verifier, meas, proof, queryRand, jointRand []uint64, invShares field.Elem) bool {
	f, l := c.F, c.F.Limbs()

	seeds, y := proof[:c.arity*l], s.y
	wires, check := verifier[l:(1+c.arity)*l], verifier[(1+c.arity)*l:]

	t := f.ToWeight(f.At(queryRand, c.QueryRandLen-1))
	tp := c.squares(s, t)
	if tp == c.one {
		return false
	}
	c.complete(y, proof[c.arity*l:])

	// The gadget polynomial at t, by residue r of the index modulo 2^log: those points
	// are w^r times the p-th roots, so their weights are the Lagrange weights at t/w^r
	// times (1/2^log) * prod_i (1 + ((t/w^r)^p)^(2^i)). r = 0 comes last to leave the
	// weights at t itself in s.w.
	var g field.Elem
	for r := 1<<c.log - 1; r >= 0; r-- {
		v := tp
		if r > 0 {
			c.squares(s, f.Mul(t, c.unshift[r]))
			v = f.Mul(tp, c.rootP[r])
		} else if c.log > 0 {
			c.squares(s, t)
		}
		f.Lagrange(s.w, c.plan.Itw, s.ts, c.plan.InvP)
		scale := c.invStep
		for range c.log {
			scale = f.Mul(scale, f.Add(c.one, v))
			v = f.Mul(v, v)
		}
		g = f.Add(g, f.Mul(f.Dot(s.w, y[r*l:], 1<<c.log), scale))
	}
	f.Put(check, 0, g)

	var v field.Elem
	outs := y[l<<c.log:] // the gadget's output of call k is outs[k<<log]
	switch c.kind {
	case kindCount:
		m := f.At(meas, 0)
		wm := f.Mul(m, f.At(s.w, 1))
		f.Put(wires, 0, f.Add(wm, f.Mul(f.At(seeds, 0), f.At(s.w, 0))))
		f.Put(wires, 1, f.Add(wm, f.Mul(f.At(seeds, 1), f.At(s.w, 0))))
		v = f.Sub(f.At(outs, 0), m)
	case kindPoly:
		wm := f.Dot(s.w[l:(1+c.calls)*l], meas, 1)
		f.Put(wires, 0, f.Add(wm, f.Mul(f.At(seeds, 0), f.At(s.w, 0))))
		if c.evalLen == 1 {
			v = f.At(outs, 0)
		} else {
			v = f.ToWeight(f.Dot(queryRand[:c.evalLen*l], outs, 1<<c.log))
		}
	case kindChunked:
		c.weights(s, jointRand)
		// Every odd wire of every call is its element less 1/shares, padding included.
		bias := f.Sub(field.Elem{}, f.Mul(invShares, f.Sum(s.w[l:], c.calls, 1)))
		f.Columns(wires, seeds, meas, s.w[:(1+c.calls)*l], s.run, s.r, bias, c.chunk)
		v = f.Sum(outs, c.calls, 1<<c.log)
		if c.evalLen > 1 {
			v = f.Mul(v, f.ToWeight(f.At(queryRand, 0)))
			v = f.Add(v, f.Mul(c.linear(meas, invShares), f.ToWeight(f.At(queryRand, 1))))
		}
	case kindSquares:
		v = c.querySquares(s, wires, seeds, outs, meas)
	case kindWraps:
		v = c.queryWraps(s, wires, seeds, outs, meas, jointRand, invShares)
	case kindBounded:
		v = c.queryBounded(s, wires, seeds, outs, meas, queryRand, jointRand, invShares)
	}
	f.Put(verifier, 0, v)
	return true
}

// squares sets s.ts to the weights x^(2^i) and returns x^p.
func (c *Circuit) squares(s *Scratch, x field.Elem) field.Elem {
	for i := range s.ts {
		s.ts[i] = x
		x = c.F.Mul(x, x)
	}
	return x
}

// complete sets y to all values of the gadget polynomial whose first polyLen are vals.
func (c *Circuit) complete(y, vals []uint64) {
	l := c.F.Limbs()
	vals = vals[:c.polyLen*l]
	copy(y, vals)
	for m := range c.size - c.polyLen {
		c.F.Put(y, c.polyLen+m, c.F.Dot(c.missing[m*c.polyLen*l:(m+1)*c.polyLen*l], vals, 1))
	}
}

// weights sets s.r to the joint randomness as weights and s.run to s.w times it: the
// coefficients of the first column.
func (c *Circuit) weights(s *Scratch, jointRand []uint64) {
	f, l := c.F, c.F.Limbs()
	for i := range c.calls {
		r := f.ToWeight(f.At(jointRand, i))
		f.Put(s.r, i, r)
	}
	copy(s.run, s.w[l:])
	f.MulVec(s.run, s.r)
}

// linear is the value of the linear equation on a share of the measurement.
func (c *Circuit) linear(meas []uint64, invShares field.Elem) field.Elem {
	f, l := c.F, c.F.Limbs()
	if c.groups > 0 {
		var v field.Elem
		bits := len(c.group) / l
		for j := range bits {
			bit := f.Sub(f.Sum(meas[j*l:], c.groups, bits), f.At(meas, c.groups*bits+j))
			v = f.Add(v, f.Mul(bit, f.At(c.group, j)))
		}
		return v
	}
	v := f.Sum(meas, c.sumLen, 1)
	if len(c.tail) > 0 {
		v = f.Add(v, f.Dot(c.tail, meas[c.sumLen*l:], 1))
	}
	if c.sumOne {
		v = f.Sub(v, invShares)
	}
	return v
}

// Decide reports whether a whole verifier (the sum of all shares) accepts.
func (c *Circuit) Decide(verifier []uint64) bool {
	f, l := c.F, c.F.Limbs()
	wires := verifier[l : (1+c.arity)*l]
	g := c.gadget(wires)
	diff := f.Sub(g, f.At(verifier, 1+c.arity))
	return f.At(verifier, 0).IsZero() && diff.IsZero()
}

// gadget evaluates the gadget on raw wires.
func (c *Circuit) gadget(wires []uint64) field.Elem {
	f := c.F
	if c.kind == kindPoly {
		return c.evalPoly(f.At(wires, 0))
	}
	if c.kind == kindSquares {
		return f.ToWeight(f.Dot(wires, wires, 1))
	}
	var sum field.Elem
	for j := range c.arity / 2 {
		sum = f.Add(sum, f.Mul(f.At(wires, 2*j), f.At(wires, 2*j+1)))
	}
	return f.ToWeight(sum)
}

// evalPoly evaluates the gadget polynomial of kindPoly at a raw element.
func (c *Circuit) evalPoly(x field.Elem) field.Elem {
	f := c.F
	x = f.ToWeight(x)
	v := c.poly[len(c.poly)-1]
	for i := len(c.poly) - 2; i >= 0; i-- {
		v = f.Add(f.Mul(v, x), c.poly[i])
	}
	return f.ToRaw(v)
}
