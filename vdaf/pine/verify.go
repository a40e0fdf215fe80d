package pine

import (
	"crypto/subtle"
	"fmt"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/internal/flp"
	"github.com/starling-agg/starling/vdaf/internal/xof"
)

// state implements [vdaf.State]. The slices of one report are scratch; those of the batch
// grow as they are needed.
type state struct {
	v   *Pine
	cap int
	n   int // reports in the last batch

	outs  [][]byte                 // of the batch: encoded output shares
	seeds [][2 * xof.SeedSize]byte // of the batch: corrected seeds of the tests and of the proofs

	meas, proofs, jointRand, queryRand, verifier []uint64
	enc                                          []byte // a helper's measurement share
	norm, main                                   *flp.Scratch
	tester                                       *tester
}

func (s *state) Capacity() int { return s.cap }

// NewState implements [vdaf.VDAF].
func (v *Pine) NewState(capacity int) vdaf.State {
	l := v.f.Limbs()
	return &state{
		v: v, cap: capacity,
		outs:      make([][]byte, capacity),
		seeds:     make([][2 * xof.SeedSize]byte, capacity),
		meas:      make([]uint64, (v.measLen+v.tests)*l),
		proofs:    make([]uint64, v.proofsLen()*l),
		jointRand: make([]uint64, v.proofs*v.main.JointRandLen*l),
		queryRand: make([]uint64, (v.normProofs*v.norm.QueryRandLen+v.proofs*v.main.QueryRandLen)*l),
		verifier:  make([]uint64, v.verifierLen()*l),
		norm:      v.norm.NewScratch(),
		main:      v.main.NewScratch(),
		tester:    newTester(v),
	}
}

// state checks that st was made by v.
func (v *Pine) state(st vdaf.State) *state {
	s, ok := st.(*state)
	if !ok || s.v != v {
		panic("pine: state of another VDAF")
	}
	return s
}

var (
	errPublic    = fmt.Errorf("%w: public share of wrong length", vdaf.ErrDecode)
	errInput     = fmt.Errorf("%w: input share of wrong length", vdaf.ErrDecode)
	errReduced   = fmt.Errorf("%w: input share has an element that is not reduced", vdaf.ErrDecode)
	errVerifier  = fmt.Errorf("%w: verifier share has an element that is not reduced", vdaf.ErrDecode)
	errTestPoint = fmt.Errorf("%w: test point is a root of unity", vdaf.ErrVerify)
	errProof     = fmt.Errorf("%w: proof does not hold", vdaf.ErrVerify)
	errJointRand = fmt.Errorf("%w: joint randomness differs", vdaf.ErrVerify)
)

// VerifyInit implements [vdaf.VDAF].
func (v *Pine) VerifyInit(st vdaf.State, key *[vdaf.VerifyKeySize]byte, ctx []byte, agg int, in *vdaf.Reports,
	shares []byte, errs []error) {
	s := v.state(st)
	n, size := len(errs), v.sizes.VerifierShare
	if n > s.cap || len(in.Nonces) != n || len(in.Public) != n || len(in.Inputs) != n || len(shares) != n*size ||
		agg < 0 || agg >= v.shares {
		panic("pine: VerifyInit: lengths do not agree")
	}
	s.n = n
	for i := range n {
		if errs[i] == nil {
			errs[i] = v.verifyInit(s, i, key, ctx, agg, &in.Nonces[i], in.Public[i], in.Inputs[i],
				shares[i*size:i*size:(i+1)*size])
		}
	}
}

// verifyInit is VerifyInit for report i; dst is empty with room for its verifier share.
func (v *Pine) verifyInit(s *state, i int, key *[vdaf.VerifyKeySize]byte, ctx []byte, agg int,
	nonce *[vdaf.NonceSize]byte, public, input, dst []byte) error {
	f, l := v.f, v.f.Limbs()
	if len(ctx) > maxCtx {
		return errContext
	}
	if len(public) != v.sizes.Public {
		return errPublic
	}
	meas, enc, err := v.open(s, ctx, agg, input)
	if err != nil {
		return err
	}

	// The client's claim for our own parts is not used: ours replace it.
	var parts [2 * xof.SeedSize]byte
	half, size := v.shares*v.prof.seed, v.prof.seed
	v.part(usageTestPart, ctx, agg, v.blind(input, 0), nonce, meas[:v.headLen*l], enc[:v.headLen*f.Size()], parts[:size])
	v.part(usageVerifyPart, ctx, agg, v.blind(input, 1), nonce, meas, enc, parts[size:2*size])
	seeds := s.seeds[i][:2*size]
	for kind, usage := range []uint16{usageTestSeed, usageVerifySeed} {
		all := public[kind*half : (kind+1)*half]
		v.seedOf(usage, ctx, seeds[kind*size:(kind+1)*size], all[:agg*size], parts[kind*size:(kind+1)*size],
			all[(agg+1)*size:])
	}
	s.tester.run(ctx, seeds[:size], meas, s.meas[v.measLen*l:])
	v.jointRand(ctx, seeds[size:], s.jointRand)
	v.queryRand(ctx, key, nonce, s.queryRand)
	if !v.query(s) {
		return errTestPoint
	}
	dst = f.Append(dst, s.verifier)
	copy(dst[len(dst):cap(dst)], parts[:2*size])
	s.outs[i] = append(s.outs[i][:0], enc[:v.dim*f.Size()]...)
	return nil
}

// open decodes or expands an input share into s.meas and s.proofs, and returns the
// measurement share and its encoding.
func (v *Pine) open(s *state, ctx []byte, agg int, input []byte) (meas []uint64, enc []byte, err error) {
	f := v.f
	meas = s.meas[:v.measLen*f.Limbs()]
	if agg == 0 {
		if len(input) != v.sizes.LeaderInput {
			return nil, nil, errInput
		}
		m, p := v.measLen*f.Size(), v.proofsLen()*f.Size()
		if !f.Decode(meas, input[:m]) || !f.Decode(s.proofs, input[m:m+p]) {
			return nil, nil, errReduced
		}
		return meas, input[:m], nil
	}
	if len(input) != v.sizes.HelperInput {
		return nil, nil, errInput
	}
	v.expandMeas(ctx, agg, input[:v.prof.seed], meas)
	v.expandProofs(ctx, agg, v.proofSeed(input), s.proofs)
	s.enc = f.Append(s.enc[:0], meas)
	return meas, s.enc, nil
}

// query writes the verifier shares of all proofs in s, and reports false where a test
// point is a root of unity.
func (v *Pine) query(s *state) bool {
	l := v.f.Limbs()
	proofs, rand, out, joint := s.proofs, s.queryRand, s.verifier, s.jointRand
	one := func(c *flp.Circuit, scratch *flp.Scratch, meas []uint64) bool {
		if v.prof.fromWire != nil {
			v.prof.fromWire(c, proofs)
		}
		ok := c.Query(scratch, out[:c.VerifierLen*l], meas, proofs[:c.ProofLen*l], rand[:c.QueryRandLen*l],
			joint[:c.JointRandLen*l], v.inv)
		proofs, rand, out = proofs[c.ProofLen*l:], rand[c.QueryRandLen*l:], out[c.VerifierLen*l:]
		joint = joint[c.JointRandLen*l:]
		return ok
	}
	for range v.normProofs {
		if !one(v.norm, s.norm, s.meas[:v.normLen*l]) {
			return false
		}
	}
	for range v.proofs {
		if !one(v.main, s.main, s.meas[v.dim*l:]) {
			return false
		}
	}
	return true
}

// sums is scratch for Combine: a decoded verifier share and the sum of all.
type sums struct{ one, sum []uint64 }

// Combine implements [vdaf.VDAF].
func (v *Pine) Combine(ctx []byte, shares [][]byte, msgs []byte, errs []error) {
	n, size, msg := len(errs), v.sizes.VerifierShare, v.sizes.VerifierMessage
	if len(shares) != v.shares || len(msgs) != n*msg {
		panic("pine: Combine: lengths do not agree")
	}
	for _, b := range shares {
		if len(b) != n*size {
			panic("pine: Combine: lengths do not agree")
		}
	}
	s := v.pool.Get().(*sums)
	defer v.pool.Put(s)
	for i := range n {
		if errs[i] == nil {
			errs[i] = v.combine(s, ctx, shares, i, msgs[i*msg:(i+1)*msg])
		}
	}
}

func (v *Pine) combine(s *sums, ctx []byte, shares [][]byte, i int, msg []byte) error {
	if len(ctx) > maxCtx {
		return errContext
	}
	f, l, size, seed := v.f, v.f.Limbs(), v.sizes.VerifierShare, v.prof.seed
	end := v.verifierLen() * f.Size()
	clear(s.sum)
	for _, b := range shares {
		if !f.Decode(s.one, b[i*size:i*size+end]) {
			return errVerifier
		}
		f.AddVec(s.sum, s.one)
	}
	rest := s.sum
	for k := range v.normProofs + v.proofs {
		c := v.norm
		if k >= v.normProofs {
			c = v.main
		}
		if !c.Decide(rest[:c.VerifierLen*l]) {
			return errProof
		}
		rest = rest[c.VerifierLen*l:]
	}
	for kind, usage := range []uint16{usageTestSeed, usageVerifySeed} {
		x := v.start(usage, ctx, zeroSeed[:seed])
		for _, b := range shares {
			x.absorb(b[i*size+end+kind*seed:][:seed])
		}
		x.read(msg[kind*seed : (kind+1)*seed])
	}
	return nil
}

// Check implements [vdaf.VDAF].
func (v *Pine) Check(st vdaf.State, msgs []byte, errs []error) {
	s, msg := v.state(st), v.sizes.VerifierMessage
	if len(errs) != s.n || len(msgs) != s.n*msg {
		panic("pine: Check: lengths do not agree")
	}
	for i := range errs {
		if errs[i] == nil && subtle.ConstantTimeCompare(msgs[i*msg:(i+1)*msg], s.seeds[i][:msg]) == 0 {
			errs[i] = errJointRand
		}
	}
}

// Accumulate implements [vdaf.VDAF].
func (v *Pine) Accumulate(st vdaf.State, keep []bool, bucket []int32, aggs []*vdaf.AggShare, errs []error) {
	s := v.state(st)
	if len(errs) != s.n || keep != nil && len(keep) != s.n || bucket != nil && len(bucket) != s.n {
		panic("pine: Accumulate: lengths do not agree")
	}
	out := s.meas[:v.dim*v.f.Limbs()]
	for i := range errs {
		if errs[i] != nil || keep != nil && !keep[i] {
			continue
		}
		b := int32(0)
		if bucket != nil {
			b = bucket[i]
		}
		v.f.Load(out, s.outs[i])
		aggs[b].AddOut(v.f, out)
	}
}
