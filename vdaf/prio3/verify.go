package prio3

import (
	"crypto/subtle"
	"errors"
	"fmt"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/internal/flp"
	"github.com/starling-agg/starling/vdaf/internal/xof"
)

// state implements [vdaf.State]. The slices of one report are scratch; those of the batch
// hold capacity reports.
type state struct {
	v   *core
	cap int
	n   int // reports in the last batch

	outs  []uint64             // of the batch: output shares
	seeds [][xof.SeedSize]byte // of the batch: corrected joint randomness seeds

	meas, proofs, jointRand, queryRand, verifier []uint64
	flp                                          *flp.Scratch
	dealer                                       *dealer // nil but for [Columns]
}

func (s *state) Capacity() int { return s.cap }

// NewState implements [vdaf.VDAF].
func (v *core) NewState(capacity int) vdaf.State {
	c, l := v.c, v.c.F.Limbs()
	s := &state{
		v: v, cap: capacity,
		outs:      make([]uint64, capacity*v.outLen*l),
		meas:      make([]uint64, c.MeasLen*l),
		proofs:    make([]uint64, v.proofs*c.ProofLen*l),
		jointRand: make([]uint64, v.proofs*c.JointRandLen*l),
		queryRand: make([]uint64, v.proofs*c.QueryRandLen*l),
		verifier:  make([]uint64, v.proofs*c.VerifierLen*l),
		flp:       c.NewScratch(),
	}
	if c.JointRandLen > 0 {
		s.seeds = make([][xof.SeedSize]byte, capacity)
	}
	if v.values != nil {
		s.dealer = v.dealer()
	}
	return s
}

// state checks that st was made by v.
func (v *core) state(st vdaf.State) *state {
	s, ok := st.(*state)
	if !ok || s.v != v {
		panic("prio3: state of another VDAF")
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
	errContext   = errors.New("prio3: context of more than 65527 bytes")
)

// VerifyInit implements [vdaf.VDAF].
func (v *core) VerifyInit(st vdaf.State, key *[vdaf.VerifyKeySize]byte, ctx []byte, agg int, in *vdaf.Reports,
	shares []byte, errs []error) {
	s := v.state(st)
	n, size := len(errs), v.sizes.VerifierShare
	if n > s.cap || len(in.Nonces) != n || len(in.Public) != n || len(in.Inputs) != n || len(shares) != n*size ||
		agg < 0 || agg >= v.shares {
		panic("prio3: VerifyInit: lengths do not agree")
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
func (v *core) verifyInit(s *state, i int, key *[vdaf.VerifyKeySize]byte, ctx []byte, agg int,
	nonce *[vdaf.NonceSize]byte, public, input, dst []byte) error {
	c, f, l := v.c, v.c.F, v.c.F.Limbs()
	if len(ctx) > maxCtx {
		return errContext
	}
	if len(public) != v.sizes.Public {
		return errPublic
	}
	if agg == 0 {
		if len(input) != v.sizes.LeaderInput {
			return errInput
		}
		m, p := c.MeasLen*f.Size(), v.proofs*c.ProofLen*f.Size()
		if !f.Decode(s.meas, input[:m]) || !f.Decode(s.proofs, input[m:m+p]) {
			return errReduced
		}
		input = input[m+p:]
	} else {
		if len(input) != v.sizes.HelperInput {
			return errInput
		}
		v.expandMeas(ctx, agg, input[:xof.SeedSize], s.meas)
		v.expandProofs(ctx, agg, input[:xof.SeedSize], s.proofs)
		input = input[xof.SeedSize:]
	}

	var part [xof.SeedSize]byte
	if c.JointRandLen > 0 {
		v.jointRandPart(ctx, agg, input, s.meas, nonce, &part)
		// The client's claim for our own part is not used: ours replaces it.
		var x xof.XOF
		v.startSeed(&x, ctx)
		x.Absorb(public[:agg*xof.SeedSize])
		x.Absorb(part[:])
		x.Absorb(public[(agg+1)*xof.SeedSize:])
		x.Seed(&s.seeds[i])
		v.expandAll(usageJointRand, ctx, s.seeds[i][:], s.jointRand)
	}
	v.queryRand(ctx, key, nonce, s.queryRand)

	for k := range v.proofs {
		if !c.Query(s.flp, at(s.verifier, k, c.VerifierLen*l), s.meas, at(s.proofs, k, c.ProofLen*l),
			at(s.queryRand, k, c.QueryRandLen*l), at(s.jointRand, k, c.JointRandLen*l), v.inv) {
			return errTestPoint
		}
	}
	dst = f.Append(dst, s.verifier)
	if c.JointRandLen > 0 {
		copy(dst[len(dst):cap(dst)], part[:])
	}
	out := at(s.outs, i, v.outLen*l)
	if s.dealer != nil {
		v.multiply(s.dealer, ctx, nonce, out, s.meas)
		return nil
	}
	v.truncate(out, s.meas)
	return nil
}

// at is the k-th run of n words of a.
func at(a []uint64, k, n int) []uint64 { return a[k*n : (k+1)*n] }

// truncate writes the output share of a measurement share.
func (v *core) truncate(out, meas []uint64) {
	if v.bits == 0 {
		copy(out, meas)
		return
	}
	f, n := v.c.F, v.bits*v.c.F.Limbs()
	for i := range v.outLen {
		f.Put(out, i, f.Dot(v.weights, meas[i*n:(i+1)*n], 1))
	}
}

// sums is scratch for Combine: a decoded verifier share and the sum of all.
type sums struct{ one, sum []uint64 }

// Combine implements [vdaf.VDAF].
func (v *core) Combine(ctx []byte, shares [][]byte, msgs []byte, errs []error) {
	n, size, msg := len(errs), v.sizes.VerifierShare, v.sizes.VerifierMessage
	if len(shares) != v.shares || len(msgs) != n*msg {
		panic("prio3: Combine: lengths do not agree")
	}
	for _, b := range shares {
		if len(b) != n*size {
			panic("prio3: Combine: lengths do not agree")
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

func (v *core) combine(s *sums, ctx []byte, shares [][]byte, i int, msg []byte) error {
	if len(ctx) > maxCtx {
		return errContext
	}
	c, f, size := v.c, v.c.F, v.sizes.VerifierShare
	end := v.proofs * c.VerifierLen * f.Size()
	clear(s.sum)
	for _, b := range shares {
		if !f.Decode(s.one, b[i*size:i*size+end]) {
			return errVerifier
		}
		f.AddVec(s.sum, s.one)
	}
	for k := range v.proofs {
		if !c.Decide(at(s.sum, k, c.VerifierLen*f.Limbs())) {
			return errProof
		}
	}
	if c.JointRandLen > 0 {
		var x xof.XOF
		v.startSeed(&x, ctx)
		for _, b := range shares {
			x.Absorb(b[i*size+end : (i+1)*size])
		}
		x.Seed((*[xof.SeedSize]byte)(msg))
	}
	return nil
}

// Check implements [vdaf.VDAF].
func (v *core) Check(st vdaf.State, msgs []byte, errs []error) {
	s, msg := v.state(st), v.sizes.VerifierMessage
	if len(errs) != s.n || len(msgs) != s.n*msg {
		panic("prio3: Check: lengths do not agree")
	}
	if v.c.JointRandLen == 0 {
		return
	}
	for i := range errs {
		if errs[i] == nil && subtle.ConstantTimeCompare(msgs[i*msg:(i+1)*msg], s.seeds[i][:]) == 0 {
			errs[i] = errJointRand
		}
	}
}

// Accumulate implements [vdaf.VDAF].
func (v *core) Accumulate(st vdaf.State, keep []bool, bucket []int32, aggs []*vdaf.AggShare, errs []error) {
	s := v.state(st)
	if len(errs) != s.n || keep != nil && len(keep) != s.n || bucket != nil && len(bucket) != s.n {
		panic("prio3: Accumulate: lengths do not agree")
	}
	for i := range errs {
		if errs[i] != nil || keep != nil && !keep[i] {
			continue
		}
		b := int32(0)
		if bucket != nil {
			b = bucket[i]
		}
		aggs[b].AddOut(v.c.F, at(s.outs, i, v.outLen*v.c.F.Limbs()))
	}
}
