package prio3

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/internal/field"
	"github.com/starling-agg/starling/vdaf/internal/flp"
	"github.com/starling-agg/starling/vdaf/internal/xof"
)

// Codepoints (VDAF-18 section 10). SumVecWithMultiproof has none of its own and uses the
// end of the private range, as the specification's test vectors do.
const (
	IDCount            = 0x00000001
	IDSum              = 0x00000002
	IDSumVec           = 0x00000003
	IDHistogram        = 0x00000004
	IDMultihotCountVec = 0x00000005
	IDL1BoundSum       = 0x00000007 // draft-ietf-ppm-l1-bound-sum-02
	IDMultiproof       = 0xFFFFFFFF
)

// Bounds on parameters, which bound what a constructor, a State (per report) or Shard
// allocates.
const (
	MaxShares = 255
	MinProofs = 3 // of a type with joint randomness over Field64
	MaxProofs = 255
	// MaxElements is the longest encoded measurement, in field elements: at most 64 MiB
	// of input share.
	MaxElements = 1 << 22
	// MaxProofElements is the length of all proofs of a report together. At the best
	// chunk length the longest measurement needs a thirtieth of it.
	MaxProofElements = 1 << 18
)

// ErrParameter: a constructor was given parameters outside their bounds.
var ErrParameter = errors.New("prio3: parameter out of bounds")

// Usages of the XOF (VDAF-18 section 7.2).
const (
	usageMeasShare     = 1
	usageProofShare    = 2
	usageJointRand     = 3
	usageProveRand     = 4
	usageQueryRand     = 5
	usageJointRandSeed = 6
	usageJointRandPart = 7
)

// maxCtx keeps the domain separation tag within its two length bytes.
const maxCtx = 1<<16 - 1 - 8

// core is everything of an instance but how a measurement is encoded. The types embed it.
type core struct {
	id     uint32
	shares int
	proofs int
	c      *flp.Circuit
	outLen int
	// bits > 0: an output element is the weighted sum of bits elements; otherwise it is
	// one of the first outLen.
	bits    int
	weights []uint64 // bits weights
	// values, if any, are those of a row of the table that an output is the product with,
	// in order, as weights; bits is 0 then.
	values []uint64

	inv   field.Elem // 1/shares, raw
	pool  *sync.Pool // of *sums
	sizes vdaf.Sizes
}

// newCore fills what follows from the circuit. weights, if any, make one output element
// of as many elements.
func newCore(id uint32, shares, proofs int, c *flp.Circuit, outLen int, weights []uint64) core {
	v := core{id: id, shares: shares, proofs: proofs, c: c, outLen: outLen, bits: len(weights)}
	f := c.F
	for _, w := range weights {
		e := f.ToWeight(f.FromUint64(w))
		v.weights = append(v.weights, e[:f.Limbs()]...)
	}
	v.inv = f.ToRaw(f.Inv(f.ToWeight(f.FromUint64(uint64(shares)))))
	n := proofs * c.VerifierLen * f.Limbs()
	v.pool = &sync.Pool{New: func() any { return &sums{make([]uint64, n), make([]uint64, n)} }}
	seed := 0
	if c.JointRandLen > 0 {
		seed = xof.SeedSize
	}
	v.sizes = vdaf.Sizes{
		Public:          shares * seed,
		LeaderInput:     (c.MeasLen+proofs*c.ProofLen)*f.Size() + seed,
		HelperInput:     xof.SeedSize + seed,
		VerifierShare:   proofs*c.VerifierLen*f.Size() + seed,
		VerifierMessage: seed,
		AggShare:        outLen * f.Size(),
		OutLen:          outLen,
	}
	return v
}

func checkShares(shares int) error {
	if shares < 2 || shares > MaxShares {
		return fmt.Errorf("%w: %d shares, want 2 to %d", ErrParameter, shares, MaxShares)
	}
	return nil
}

// ID implements [vdaf.VDAF].
func (v *core) ID() uint32 { return v.id }

// Shares implements [vdaf.VDAF].
func (v *core) Shares() int { return v.shares }

// Sizes implements [vdaf.VDAF].
func (v *core) Sizes() vdaf.Sizes { return v.sizes }

// NewAggShare implements [vdaf.VDAF].
func (v *core) NewAggShare() *vdaf.AggShare { return vdaf.MakeAggShare(v.c.F, v.outLen) }

// ReadAggShare implements [vdaf.VDAF].
func (v *core) ReadAggShare(b []byte) (*vdaf.AggShare, error) {
	return vdaf.ReadAggShare(v.c.F, v.outLen, b)
}

// Unshard implements [vdaf.VDAF]. (VDAF-18 section 7.2.5; the results of all types are
// the elements themselves.)
func (v *core) Unshard(shares []*vdaf.AggShare) ([]int64, error) {
	if len(shares) != v.shares {
		return nil, fmt.Errorf("%w: %d aggregate shares, want %d", vdaf.ErrMismatch, len(shares), v.shares)
	}
	return vdaf.UnshardInt64(v.c.F, v.outLen, shares)
}

// start begins the XOF stream of one usage.
func (v *core) start(x *xof.XOF, usage uint16, ctx, seed []byte) {
	var tag [8]byte // VDAF-18 section 6.2.3: version, class 0, algorithm, usage
	tag[0] = vdaf.Version
	binary.BigEndian.PutUint32(tag[2:], v.id)
	binary.BigEndian.PutUint16(tag[6:], usage)
	x.Init(&tag, ctx, seed)
}

// expandMeas expands a helper's seed into its measurement share.
func (v *core) expandMeas(ctx []byte, agg int, seed []byte, dst []uint64) {
	var x xof.XOF
	v.start(&x, usageMeasShare, ctx, seed)
	x.AbsorbByte(byte(agg))
	x.Expand(v.c.F, dst)
}

// expandProofs expands a helper's seed into its share of all proofs.
func (v *core) expandProofs(ctx []byte, agg int, seed []byte, dst []uint64) {
	var x xof.XOF
	v.start(&x, usageProofShare, ctx, seed)
	x.AbsorbByte(byte(v.proofs))
	x.AbsorbByte(byte(agg))
	x.Expand(v.c.F, dst)
}

// expandAll expands a seed that only the number of proofs is bound to: prove and joint
// randomness.
func (v *core) expandAll(usage uint16, ctx, seed []byte, dst []uint64) {
	var x xof.XOF
	v.start(&x, usage, ctx, seed)
	x.AbsorbByte(byte(v.proofs))
	x.Expand(v.c.F, dst)
}

func (v *core) queryRand(ctx []byte, key *[vdaf.VerifyKeySize]byte, nonce *[vdaf.NonceSize]byte, dst []uint64) {
	var x xof.XOF
	v.start(&x, usageQueryRand, ctx, key[:])
	x.AbsorbByte(byte(v.proofs))
	x.Absorb(nonce[:])
	x.Expand(v.c.F, dst)
}

// jointRandPart hashes one aggregator's measurement share.
func (v *core) jointRandPart(ctx []byte, agg int, blind []byte, meas []uint64, nonce *[vdaf.NonceSize]byte,
	part *[xof.SeedSize]byte) {
	var x xof.XOF
	v.start(&x, usageJointRandPart, ctx, blind)
	x.AbsorbByte(byte(agg))
	x.Absorb(nonce[:])
	x.AbsorbWords(meas)
	x.Seed(part)
}

// startSeed begins the hash of all joint randomness parts, which the caller absorbs.
func (v *core) startSeed(x *xof.XOF, ctx []byte) {
	var zero [xof.SeedSize]byte
	v.start(x, usageJointRandSeed, ctx, zero[:])
}
