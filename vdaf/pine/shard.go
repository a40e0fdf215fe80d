package pine

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math/bits"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/internal/derand"
	"github.com/starling-agg/starling/vdaf/internal/field"
)

// errTests: an honest vector did not pass the tests, the odds of which are below 2^-100;
// other randomness mends it.
var errTests = errors.New("pine: internal error: wrap-around tests failed")

var errContext = errors.New("pine: context of more than 65527 bytes")

// maxCtx keeps the domain separation tag within its two length bytes.
const maxCtx = 1<<16 - 1 - 8

// randSize is the randomness of one sharding in bytes.
func (v *Pine) randSize() int {
	return (v.sizes.HelperInput/v.prof.seed*(v.shares-1) + 3) * v.prof.seed
}

// Shard implements [vdaf.Client]: Encode without clipping, rounded to nearest, then
// ShardIntegers.
func (v *Pine) Shard(ctx []byte, m []float64, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
	e, err := Encode(v, m, Encoding{})
	if err != nil {
		return nil, err
	}
	return v.ShardIntegers(ctx, e, nonce)
}

// ShardDerandomized is Shard with randomness given; see package vdaftest.
func (v *Pine) ShardDerandomized(ctx []byte, m []float64, nonce *[vdaf.NonceSize]byte, r derand.Rand) (*vdaf.Shares,
	error) {
	e, err := Encode(v, m, Encoding{})
	if err != nil {
		return nil, err
	}
	return v.shard(ctx, e, nonce, r)
}

// ShardIntegers shards a vector in units of 2^-FracBits, as [Encode] makes it, noise of
// the device's own included. It returns [ErrDimension] for another length and [ErrNorm]
// for a squared norm above [Params.Bound] squared.
func (v *Pine) ShardIntegers(ctx []byte, e []int64, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
	for range 3 {
		b := make([]byte, v.randSize())
		rand.Read(b) // never fails
		s, err := v.shard(ctx, e, nonce, derand.New(b))
		if err != errTests {
			return s, err
		}
	}
	return nil, errTests
}

func (v *Pine) shard(ctx []byte, e []int64, nonce *[vdaf.NonceSize]byte, r derand.Rand) (*vdaf.Shares, error) {
	if len(e) != v.dim {
		return nil, fmt.Errorf("%w: %d entries, want %d", ErrDimension, len(e), v.dim)
	}
	if len(r.Bytes()) != v.randSize() {
		return nil, fmt.Errorf("pine: %d bytes of randomness, want %d", len(r.Bytes()), v.randSize())
	}
	if len(ctx) > maxCtx {
		return nil, errContext
	}
	hi, lo, ok := squaredNorm(e, v.bound)
	if !ok {
		return nil, errNorm(v)
	}
	s := v.newSharding(ctx, nonce, r.Bytes())
	for i, x := range e {
		v.f.Put(s.meas, i, v.f.FromInt64(x))
	}
	bhi, blo := bits.Mul64(v.bound, v.bound)
	ulo, borrow := bits.Sub64(blo, lo, 0)
	uhi, _ := bits.Sub64(bhi, hi, borrow)
	s.putNorm(hi, lo, uhi, ulo)
	s.test()
	if !s.putTests() {
		return nil, errTests
	}
	return s.finish(), nil
}

// sharding is one report in the making. Its steps are apart so that tests can lie between
// them.
type sharding struct {
	v     *Pine
	ctx   []byte
	nonce *[vdaf.NonceSize]byte

	helpers [][]byte // seeds of each helper: its input share
	blinds  [2][]byte
	prove   []byte
	meas    []uint64 // the measurement; then the results of the tests, which are not sent
	parts   [2][]byte
}

// newSharding takes the seeds in their order: those of each helper, the leader's two
// blinds, the prover's.
func (v *Pine) newSharding(ctx []byte, nonce *[vdaf.NonceSize]byte, seeds []byte) *sharding {
	s := &sharding{v: v, ctx: ctx, nonce: nonce, meas: make([]uint64, (v.measLen+v.tests)*v.f.Limbs())}
	next := func(n int) []byte {
		b := seeds[:n]
		seeds = seeds[n:]
		return b
	}
	for range v.shares - 1 {
		s.helpers = append(s.helpers, next(v.sizes.HelperInput))
	}
	s.blinds[0], s.blinds[1] = next(v.prof.seed), next(v.prof.seed)
	s.prove = next(v.prof.seed)
	return s
}

// putNorm writes the bits of v, the squared norm, and of u, which with it makes B^2.
func (s *sharding) putNorm(vhi, vlo, uhi, ulo uint64) {
	n := s.v.normBits()
	s.putBits(s.v.dim, vhi, vlo, n)
	s.putBits(s.v.dim+n, uhi, ulo, n)
}

func (s *sharding) putBits(at int, hi, lo uint64, n int) {
	for i := range n {
		x := lo
		if i >= 64 {
			x = hi
		}
		s.v.f.Put(s.meas, at+i, field.Elem{x >> (i & 63) & 1})
	}
}

// split computes the parts of one kind of joint randomness over the first n elements, and
// returns the leader's share of them and its encoding.
func (s *sharding) split(kind int, usage uint16, n int) (leader []uint64, enc []byte) {
	v, f, l := s.v, s.v.f, s.v.f.Limbs()
	leader = append([]uint64(nil), s.meas[:n*l]...)
	share := make([]uint64, n*l)
	enc = make([]byte, 0, n*f.Size())
	s.parts[kind] = make([]byte, v.shares*v.prof.seed)
	part := func(agg int) []byte { return s.parts[kind][agg*v.prof.seed:][:v.prof.seed] }
	for agg := 1; agg < v.shares; agg++ {
		seeds := s.helpers[agg-1]
		v.expandMeas(s.ctx, agg, seeds[:v.prof.seed], share)
		f.SubVec(leader, share)
		enc = f.Append(enc[:0], share)
		v.part(usage, s.ctx, agg, v.blind(seeds, kind), s.nonce, share, enc, part(agg))
	}
	enc = f.Append(enc[:0], leader)
	v.part(usage, s.ctx, 0, s.blinds[kind], s.nonce, leader, enc, part(0))
	return leader, enc
}

// blind is one of the two blinds at the end of an input share: 0 for tests, 1 for the
// proofs.
func (v *Pine) blind(input []byte, kind int) []byte {
	return input[len(input)-(2-kind)*v.prof.seed:][:v.prof.seed]
}

// test runs the wrap-around tests that follow from the shares of vector and norm.
func (s *sharding) test() {
	v := s.v
	s.split(0, usageTestPart, v.headLen)
	seed := make([]byte, v.prof.seed)
	v.seedOf(usageTestSeed, s.ctx, seed, s.parts[0])
	newTester(v).run(s.ctx, seed, s.meas, s.meas[v.measLen*v.f.Limbs():])
}

// putTests writes the bits of each test, and reports whether enough passed. The results
// of tests that are out of range are written as zero.
func (s *sharding) putTests() bool {
	v, f := s.v, s.v.f
	n, w := v.testBits(), testRange(v.bound)
	passed := uint64(0)
	for t := range v.tests {
		e := f.Add(f.At(s.meas, v.measLen+t), f.FromUint64(w-1))
		over := e[1] | e[0]>>n
		g := 1 ^ (over|-over)>>63
		_, more := bits.Sub64(passed, uint64(v.passes), 0)
		lo := e[0] & -g
		g &= more
		passed += g
		at := v.headLen + t*(n+1)
		s.putBits(at, 0, lo, n)
		f.Put(s.meas, at+n, field.Elem{g})
	}
	return passed == uint64(v.passes)
}

// finish proves the measurement as it stands and makes the shares.
//
// The order of all proofs is: norm proofs first, then main proofs.
func (s *sharding) finish() *vdaf.Shares {
	v, f, l := s.v, s.v.f, s.v.f.Limbs()
	_, enc := s.split(1, usageVerifyPart, v.measLen)
	seed := make([]byte, v.prof.seed)
	v.seedOf(usageVerifySeed, s.ctx, seed, s.parts[1])
	jointRand := make([]uint64, v.proofs*v.main.JointRandLen*l)
	v.jointRand(s.ctx, seed, jointRand)

	proveRand := make([]uint64, (v.normProofs*v.norm.ProveRandLen+v.proofs*v.main.ProveRandLen)*l)
	v.proveRand(s.ctx, s.prove, proveRand)
	proofs := make([]uint64, v.proofsLen()*l)
	rest := proofs
	scratch := v.norm.NewScratch()
	randLen := v.normProofs * v.norm.ProveRandLen * l
	v.norm.ProveSquares(scratch, rest[:v.normProofs*v.norm.ProofLen*l], s.meas[:v.normLen*l], proveRand[:randLen])
	proveRand = proveRand[randLen:]
	for range v.normProofs {
		if v.prof.toWire != nil {
			v.prof.toWire(v.norm, rest)
		}
		rest = rest[v.norm.ProofLen*l:]
	}
	scratch = v.main.NewScratch()
	for k := range v.proofs {
		n := v.main.JointRandLen * l
		v.main.Prove(scratch, rest[:v.main.ProofLen*l], s.meas[v.dim*l:], proveRand[:v.main.ProveRandLen*l],
			jointRand[k*n:(k+1)*n])
		if v.prof.toWire != nil {
			v.prof.toWire(v.main, rest)
		}
		rest, proveRand = rest[v.main.ProofLen*l:], proveRand[v.main.ProveRandLen*l:]
	}

	out := &vdaf.Shares{Public: append(s.parts[0], s.parts[1]...), Inputs: make([][]byte, v.shares)}
	share := make([]uint64, len(proofs))
	for agg := 1; agg < v.shares; agg++ {
		v.expandProofs(s.ctx, agg, v.proofSeed(s.helpers[agg-1]), share)
		f.SubVec(proofs, share)
		out.Inputs[agg] = append([]byte(nil), s.helpers[agg-1]...)
	}
	b := make([]byte, 0, v.sizes.LeaderInput)
	b = f.Append(append(b, enc...), proofs)
	out.Inputs[0] = append(append(b, s.blinds[0]...), s.blinds[1]...)
	return out
}

// proofSeed is the seed of a helper's proofs in its input share.
func (v *Pine) proofSeed(input []byte) []byte {
	if v.prof.splitSeeds {
		input = input[v.prof.seed:]
	}
	return input[:v.prof.seed]
}
