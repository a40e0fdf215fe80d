package pine

import (
	"encoding/binary"

	"github.com/starling-agg/starling/vdaf/internal/field"
	"github.com/starling-agg/starling/vdaf/internal/flp"
	"github.com/starling-agg/starling/vdaf/internal/xof"
)

// The configuration of draft-chen-cfrg-vdaf-pine-01's vectors, which stand on VDAF-11:
// another framing, seeds of 16 bytes with TurboSHAKE128, a seed of its own for each
// helper's proofs, and gadget polynomials sent as coefficients. It exists in tests only.

// start01 begins a stream in that framing: length of the tag in one byte, tag of version
// 1 without class or context.
func start01(x *stream, id uint32, usage uint16, _, seed []byte) {
	tag := [8]byte{7, 1}
	binary.BigEndian.PutUint32(tag[2:], id)
	binary.BigEndian.PutUint16(tag[6:], usage)
	if x.aes {
		x.hmac.Start(seed)
		x.hmac.Absorb(tag[:])
		return
	}
	x.turbo = xof.XOF{}
	x.turbo.Absorb(tag[:])
	x.turbo.Absorb(seed)
}

// gadget returns the polynomial in a proof, its plan and room for all its values.
func gadget(c *flp.Circuit, proof []uint64) (poly, all []uint64, pl *field.Plan) {
	l := c.F.Limbs()
	poly = proof[c.ProveRandLen*l : c.ProofLen*l]
	log := 0
	for 1<<log < c.ProofLen-c.ProveRandLen {
		log++
	}
	all = make([]uint64, l<<log)
	copy(all, poly)
	return poly, all, field.NewPlan(c.F, log)
}

// toCoefficients turns the values at all 2p-th roots of unity but the last into
// coefficients. The last value makes the top coefficient zero: it is -w*sum_i y_i*w^i, w
// the root.
func toCoefficients(c *flp.Circuit, proof []uint64) {
	f := c.F
	poly, all, pl := gadget(c, proof)
	w := f.Root(pl.Log)
	x, last := w, field.Elem{}
	for i := range pl.P - 1 {
		last = f.Sub(last, f.Mul(f.At(all, i), x))
		x = f.Mul(x, w)
	}
	f.Put(all, pl.P-1, last)
	f.DIF(all, pl.Itw)
	pl.Permute(f, all)
	f.ScaleVec(all, all, pl.InvP)
	if !f.At(all, pl.P-1).IsZero() {
		panic("degree too high")
	}
	copy(poly, all)
}

func toValues(c *flp.Circuit, proof []uint64) {
	poly, all, pl := gadget(c, proof)
	pl.Permute(c.F, all)
	c.F.DIT(all, pl.Tw)
	copy(poly, all)
}

func profile01(seed int) *profile {
	return &profile{seed: seed, start: start01, splitSeeds: true, toWire: toCoefficients, fromWire: toValues}
}
