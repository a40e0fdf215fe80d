package prio3

import (
	"crypto/rand"
	"fmt"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/internal/derand"
	"github.com/starling-agg/starling/vdaf/internal/xof"
)

// randSize is the randomness of one sharding in bytes (RAND_SIZE).
func (v *core) randSize() int {
	n := v.shares
	if v.c.JointRandLen > 0 {
		n *= 2
	}
	return n * xof.SeedSize
}

// fresh draws the randomness of one sharding.
func (v *core) fresh() derand.Rand {
	b := make([]byte, v.randSize())
	rand.Read(b) // never fails
	return derand.New(b)
}

// shard splits an encoded measurement and proves it (VDAF-18 section 7.2.1). The order of
// seeds in r is the specification's: share (and blind) of each helper, then the leader's
// blind, then the prover's seed. The Shard methods of all types end here.
//
// Step 2 of one report: from measurement, to one share per aggregator.
func (v *core) shard(ctx []byte, meas []uint64, nonce *[vdaf.NonceSize]byte, r derand.Rand) (*vdaf.Shares, error) {
	c, f, l := v.c, v.c.F, v.c.F.Limbs()
	seeds := r.Bytes()
	if len(seeds) != v.randSize() {
		return nil, fmt.Errorf("prio3: %d bytes of randomness, want %d", len(seeds), v.randSize())
	}
	if len(ctx) > maxCtx {
		return nil, errContext
	}
	next := func() []byte {
		s := seeds[:xof.SeedSize]
		seeds = seeds[xof.SeedSize:]
		return s
	}
	joint := c.JointRandLen > 0
	out := &vdaf.Shares{Inputs: make([][]byte, v.shares)}
	parts := make([][xof.SeedSize]byte, v.shares)

	leader := append([]uint64(nil), meas...)
	share := make([]uint64, max(c.MeasLen, v.proofs*c.ProofLen)*l)
	for agg := 1; agg < v.shares; agg++ {
		seed := next()
		m := share[:c.MeasLen*l]
		v.expandMeas(ctx, agg, seed, m)
		f.SubVec(leader, m)
		out.Inputs[agg] = append([]byte(nil), seed...)
		if joint {
			blind := next()
			v.jointRandPart(ctx, agg, blind, m, nonce, &parts[agg])
			out.Inputs[agg] = append(out.Inputs[agg], blind...)
		}
	}
	jointRand := make([]uint64, v.proofs*c.JointRandLen*l)
	var blind []byte
	if joint {
		blind = next()
		v.jointRandPart(ctx, 0, blind, leader, nonce, &parts[0])
		var x xof.XOF
		v.startSeed(&x, ctx)
		for i := range parts {
			x.Absorb(parts[i][:])
			out.Public = append(out.Public, parts[i][:]...)
		}
		var seed [xof.SeedSize]byte
		x.Seed(&seed)
		v.expandAll(usageJointRand, ctx, seed[:], jointRand)
	}

	proveRand := make([]uint64, v.proofs*c.ProveRandLen*l)
	v.expandAll(usageProveRand, ctx, next(), proveRand)
	proofs := make([]uint64, v.proofs*c.ProofLen*l)
	s := c.NewScratch()
	for k := range v.proofs {
		c.Prove(s, at(proofs, k, c.ProofLen*l), meas, at(proveRand, k, c.ProveRandLen*l),
			at(jointRand, k, c.JointRandLen*l))
	}
	for agg := 1; agg < v.shares; agg++ {
		p := share[:len(proofs)]
		v.expandProofs(ctx, agg, out.Inputs[agg][:xof.SeedSize], p)
		f.SubVec(proofs, p)
	}
	b := make([]byte, 0, v.sizes.LeaderInput)
	b = f.Append(f.Append(b, leader), proofs)
	out.Inputs[0] = append(b, blind...)
	return out, nil
}
