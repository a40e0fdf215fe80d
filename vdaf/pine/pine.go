package pine

import (
	"fmt"
	"math"
	"sync"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/internal/field"
	"github.com/starling-agg/starling/vdaf/internal/flp"
	"github.com/starling-agg/starling/vdaf/internal/xof"
)

// Pine is one instance. It is immutable and safe for concurrent use.
type Pine struct {
	shape
	p      Params // zero in tests' instances of other profiles, but for FracBits
	id     uint32
	shares int
	f      field.Field
	aes    bool
	prof   *profile

	norm *flp.Circuit // on the first normLen elements of a measurement
	main *flp.Circuit // on all from element dim on, and the tests' results

	headLen int // elements that the tests' randomness is bound to: the vector and its norm
	measLen int // elements of a measurement share
	normLen int
	inv     field.Elem   // 1/shares, raw
	limbs   []field.Elem // weights 2^(32*i): a test's result is put together of products of 32-bit pieces
	pool    *sync.Pool   // of *sums
	sizes   vdaf.Sizes
}

// New returns the instance for p. Errors are [ErrParameter].
func New(p Params) (*Pine, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	p = p.withDefaults()
	i := fields[p.Field]
	v := newPine(i.f, i.id, i.aes, p.Shares, p.shape(), profile18)
	v.p = p
	return v, nil
}

func newPine(f field.Field, id uint32, aes bool, shares int, s shape, prof *profile) *Pine {
	v := &Pine{shape: s, id: id, shares: shares, f: f, aes: aes, prof: prof}
	v.normLen = s.dim + s.normBits()
	v.headLen = s.dim + 2*s.normBits()
	v.measLen = s.dim + s.bits()
	v.norm = flp.NewSquares(f, s.dim, s.normBits(), s.normChunk)
	v.main = flp.NewWraps(f, flp.Wraps{NormBits: s.normBits(), TestBits: s.testBits(), Tests: s.tests, Passes: s.passes,
		Range: testRange(s.bound), Bound: s.bound, Chunk: s.chunk})
	v.inv = f.ToRaw(f.Inv(f.ToWeight(f.FromUint64(uint64(shares)))))
	w := f.ToWeight(f.FromUint64(1))
	for range ceilDiv(f.Size(), pieceSize(f)) {
		v.limbs = append(v.limbs, w)
		w = f.Mul(w, f.ToWeight(f.FromUint64(1<<32)))
	}
	v.pool = &sync.Pool{New: func() any {
		n := v.verifierLen() * f.Limbs()
		return &sums{make([]uint64, n), make([]uint64, n)}
	}}
	v.sizes = s.sizes(f.Size(), shares, prof)
	return v
}

// pieceSize is the number of bytes of an element that one pass of the tests takes, few
// enough that sums of MaxDimension pieces fit an int64: elements of 5 bytes in one,
// longer ones by 4.
func pieceSize(f field.Field) int {
	if f.Size() <= 5 {
		return f.Size()
	}
	return 4
}

// normLens and mainLens are the proof and verifier lengths of one proof of each circuit,
// in elements.
func (s shape) normLens() (proof, verifier int) {
	return flp.ProofLen(s.normChunk, ceilDiv(s.dim, s.normChunk)), 2 + s.normChunk
}

func (s shape) mainLens() (proof, verifier int) {
	return flp.ProofLen(2*s.chunk, ceilDiv(s.bits(), s.chunk)+ceilDiv(s.tests, s.chunk)), 2 + 2*s.chunk
}

// sizes are the lengths of all encodings, without building anything.
func (s shape) sizes(elem, shares int, prof *profile) vdaf.Sizes {
	np, nv := s.normLens()
	mp, mv := s.mainLens()
	helper := 3
	if prof.splitSeeds {
		helper++
	}
	return vdaf.Sizes{
		Public:          2 * shares * prof.seed,
		LeaderInput:     (s.dim+s.bits()+s.normProofs*np+s.proofs*mp)*elem + 2*prof.seed,
		HelperInput:     helper * prof.seed,
		VerifierShare:   (s.normProofs*nv+s.proofs*mv)*elem + 2*prof.seed,
		VerifierMessage: 2 * prof.seed,
		AggShare:        s.dim * elem,
		OutLen:          s.dim,
	}
}

// proofsLen and verifierLen are the lengths of all proofs of a report, in elements.
func (v *Pine) proofsLen() int { return v.normProofs*v.norm.ProofLen + v.proofs*v.main.ProofLen }
func (v *Pine) verifierLen() int {
	return v.normProofs*v.norm.VerifierLen + v.proofs*v.main.VerifierLen
}

// Params returns what New was given, defaults filled in.
func (v *Pine) Params() Params { return v.p }

// ID implements [vdaf.VDAF].
func (v *Pine) ID() uint32 { return v.id }

// Shares implements [vdaf.VDAF].
func (v *Pine) Shares() int { return v.shares }

// Sizes implements [vdaf.VDAF].
func (v *Pine) Sizes() vdaf.Sizes { return v.sizes }

// NewAggShare implements [vdaf.VDAF].
func (v *Pine) NewAggShare() *vdaf.AggShare { return vdaf.MakeAggShare(v.f, v.dim) }

// ReadAggShare implements [vdaf.VDAF].
func (v *Pine) ReadAggShare(b []byte) (*vdaf.AggShare, error) {
	return vdaf.ReadAggShare(v.f, v.dim, b)
}

// Unshard implements [vdaf.VDAF]: the sum of the integer vectors, in units of
// 2^-FracBits. It is right if no entry of the sum leaves half the field: as long as
// clients and noise are within [Cost].MaxClients and [Cost].Room.
func (v *Pine) Unshard(shares []*vdaf.AggShare) ([]int64, error) {
	if len(shares) != v.shares {
		return nil, fmt.Errorf("%w: %d aggregate shares, want %d", vdaf.ErrMismatch, len(shares), v.shares)
	}
	return vdaf.UnshardInt64(v.f, v.dim, shares)
}

// Reals turns a sum in units of 2^-FracBits, as Unshard returns it, into units of the
// entries.
func (v *Pine) Reals(sum []int64) []float64 {
	out := make([]float64, len(sum))
	for i, x := range sum {
		out[i] = math.Ldexp(float64(x), -v.p.FracBits)
	}
	return out
}

func (v *Pine) start(usage uint16, ctx, seed []byte) *stream {
	x := &stream{aes: v.aes}
	v.prof.start(x, v.id, usage, ctx, seed)
	return x
}

// expandMeas expands a helper's seed into its measurement share.
func (v *Pine) expandMeas(ctx []byte, agg int, seed []byte, dst []uint64) {
	x := v.start(usageMeasShare, ctx, seed)
	x.absorbByte(byte(agg))
	x.expand(v.f, dst)
}

// counts absorbs the numbers of proofs, to which all randomness of proofs is bound.
func (v *Pine) counts(x *stream) *stream {
	x.absorbByte(byte(v.normProofs))
	x.absorbByte(byte(v.proofs))
	return x
}

// expandProofs expands a helper's seed into its share of all proofs.
func (v *Pine) expandProofs(ctx []byte, agg int, seed []byte, dst []uint64) {
	x := v.counts(v.start(usageProofShare, ctx, seed))
	x.absorbByte(byte(agg))
	x.expand(v.f, dst)
}

func (v *Pine) proveRand(ctx, seed []byte, dst []uint64) {
	v.counts(v.start(usageProveRand, ctx, seed)).expand(v.f, dst)
}

func (v *Pine) queryRand(ctx []byte, key *[vdaf.VerifyKeySize]byte, nonce *[vdaf.NonceSize]byte, dst []uint64) {
	x := v.counts(v.start(usageQueryRand, ctx, key[:v.prof.seed]))
	x.absorb(nonce[:])
	x.expand(v.f, dst)
}

// jointRand expands the seed that all parts of the second kind make: three elements for
// each main proof.
func (v *Pine) jointRand(ctx, seed []byte, dst []uint64) {
	x := v.start(usageJointRand, ctx, seed)
	x.absorbByte(byte(v.proofs))
	x.expand(v.f, dst)
}

// part hashes one aggregator's measurement share, or the head of it, to part (of the
// length of a seed).
func (v *Pine) part(usage uint16, ctx []byte, agg int, blind []byte, nonce *[vdaf.NonceSize]byte, meas []uint64, enc,
	part []byte) {
	x := v.start(usage, ctx, blind)
	x.absorbByte(byte(agg))
	x.absorb(nonce[:])
	x.absorbVec(meas, enc)
	x.read(part)
}

var zeroSeed [xof.SeedSize]byte

// seedOf hashes the parts of all aggregators, in the order given.
func (v *Pine) seedOf(usage uint16, ctx []byte, seed []byte, parts ...[]byte) {
	x := v.start(usage, ctx, zeroSeed[:v.prof.seed])
	for _, p := range parts {
		x.absorb(p)
	}
	x.read(seed)
}

var (
	_ vdaf.VDAF              = (*Pine)(nil)
	_ vdaf.Client[[]float64] = (*Pine)(nil)
)
