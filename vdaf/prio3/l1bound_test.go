package prio3

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/internal/derand"
	"github.com/starling-agg/starling/vdaf/internal/field"
	"github.com/starling-agg/starling/vdaf/vdaftest"
)

var writeVectors = flag.Bool("write-vectors", false, "write testdata/refused anew")

// A refused is a report that must be refused at one step, and how it comes to be.
type refused struct {
	step  string
	agg   int                             // of verify_init and verify_next
	meas  func(f field.Field, m []uint64) // of the encoded measurement, before it is shared
	share func(*vdaf.Shares)
	msg   func([]byte) // of the verifier message
}

// refusals are of vectors of three elements whose sum is at most 5, so that they and
// their total have three bits each, which weigh 1, 2 and 2. The measurement is 1, 2, 0.
func refusals() map[string]refused {
	const combine, init, next = "verifier_shares_to_message", "verify_init", "verify_next"
	set := func(at int, to int64) func(field.Field, []uint64) {
		return func(f field.Field, m []uint64) { f.Put(m, at, f.FromInt64(to)) }
	}
	flip := func(part *[]byte, at int) { *part = bytes.Clone(*part); (*part)[at] ^= 1 }
	return map[string]refused{
		// Bits all, and a total within the bound that is not the sum.
		"bad_total": {step: combine, meas: set(9, 0)},
		// Each element and the total within the bound; the sum is 15.
		"bad_sum": {step: combine, meas: func(f field.Field, m []uint64) {
			for i := range 9 {
				f.Put(m, i, f.FromUint64(1))
			}
		}},
		// The sum as claimed, with an element of -2, and with one of 3 in a bit.
		"bad_negative_element": {step: combine, meas: func(f field.Field, m []uint64) {
			f.Put(m, 6, f.FromInt64(-2)) // the third element
			f.Put(m, 9, f.FromInt64(-1)) // total of 1
		}},
		"bad_element_bit": {step: combine, meas: func(f field.Field, m []uint64) {
			f.Put(m, 0, f.FromUint64(3)) // for 1 and 2
			f.Put(m, 4, f.FromUint64(0)) // of the second element
			f.Put(m, 3, f.FromUint64(0))
		}},
		// The sum is 15 and the total says so, in a bit of 15.
		"bad_total_bit": {step: combine, meas: func(f field.Field, m []uint64) {
			for i := range 9 {
				f.Put(m, i, f.FromUint64(1))
			}
			f.Put(m, 9, f.FromUint64(15))
			f.Put(m, 10, f.FromUint64(0))
			f.Put(m, 11, f.FromUint64(0))
		}},
		"bad_wire_seed":    {step: combine, share: func(s *vdaf.Shares) { flip(&s.Inputs[0], 12*16) }},
		"bad_gadget_poly":  {step: combine, share: func(s *vdaf.Shares) { flip(&s.Inputs[0], len(s.Inputs[0])-32-16) }},
		"bad_helper_seed":  {step: combine, share: func(s *vdaf.Shares) { flip(&s.Inputs[1], 0) }},
		"bad_helper_blind": {step: combine, share: func(s *vdaf.Shares) { flip(&s.Inputs[1], 32) }},
		"bad_leader_blind": {step: combine, share: func(s *vdaf.Shares) { flip(&s.Inputs[0], len(s.Inputs[0])-1) }},
		"bad_public_share": {step: combine, share: func(s *vdaf.Shares) { flip(&s.Public, 0) }},
		"bad_message":      {step: next, agg: 0, msg: func(m []byte) { m[7] ^= 1 }},
		"bad_not_reduced":  {step: init, agg: 0, share: func(s *vdaf.Shares) { copy(s.Inputs[0][16:], bytes.Repeat([]byte{0xff}, 16)) }},
		"bad_short_leader": {step: init, agg: 0, share: func(s *vdaf.Shares) { s.Inputs[0] = s.Inputs[0][16:] }},
		"bad_long_helper":  {step: init, agg: 1, share: func(s *vdaf.Shares) { s.Inputs[1] = append(bytes.Clone(s.Inputs[1]), 0) }},
		"bad_short_public": {step: init, agg: 0, share: func(s *vdaf.Shares) { s.Public = s.Public[:32] }},
	}
}

// vector is the file of a refused report: the steps before the one that refuses it
// succeed, with the bytes that they make.
func (x refused) vector(t *testing.T) *vdaftest.Vector {
	t.Helper()
	v := must(NewL1BoundSum(2, 3, 5, 4))
	sizes := v.Sizes()
	run := func(n, from int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(from + i)
		}
		return b
	}
	ctx, nonce, random, key := []byte("some application"), run(16, 0), run(v.randSize(), 0), run(32, 0)
	meas := make([]uint64, v.c.MeasLen*v.c.F.Limbs())
	for i, n := range []uint64{1, 2, 0, 3} {
		encodeRange(v.c.F, at(meas, i, v.bits*v.c.F.Limbs()), n, 5)
	}
	if x.meas != nil {
		x.meas(v.c.F, meas)
	}
	shares, err := v.shard(ctx, meas, (*[16]byte)(nonce), derand.New(random))
	if err != nil {
		t.Fatal(err)
	}
	if x.share != nil {
		x.share(shares)
	}
	rep := vdaftest.Report{
		Measurement: json.RawMessage("[1,2,0]"), Nonce: nonce, Rand: random, PublicShare: shares.Public,
		InputShares: []vdaftest.Hex{shares.Inputs[0], shares.Inputs[1]}, VerifierShares: [][]vdaftest.Hex{{{}, {}}},
	}
	out := &vdaftest.Vector{
		Shares: 2, Length: 3, MaxValue: 5, ChunkLength: 4, Ctx: ctx, VerifyKey: key, AggParam: vdaftest.Hex{},
		AggShares: []vdaftest.Hex{}, AggResult: json.RawMessage("null"),
	}
	ends := func(op vdaftest.Operation) bool {
		op.Success = op.Operation != x.step || op.Operation != "verifier_shares_to_message" && op.AggregatorID != x.agg
		out.Operations = append(out.Operations, op)
		return !op.Success
	}
	states, errs := []vdaf.State{v.NewState(1), v.NewState(1)}, make([]error, 1)
	var all [][]byte
	steps := func() {
		for agg := range 2 {
			if ends(vdaftest.Operation{Operation: "verify_init", AggregatorID: agg}) {
				return
			}
			share := make([]byte, sizes.VerifierShare)
			in := vdaf.Reports{Nonces: [][16]byte{[16]byte(nonce)}, Public: [][]byte{shares.Public}, Inputs: [][]byte{shares.Inputs[agg]}}
			v.VerifyInit(states[agg], (*[32]byte)(key), ctx, agg, &in, share, errs)
			rep.VerifierShares[0][agg], all = share, append(all, share)
		}
		if x.msg == nil { // a message that was changed on its way is made by no step
			ends(vdaftest.Operation{Operation: "verifier_shares_to_message"})
			return
		}
		msg := make([]byte, sizes.VerifierMessage)
		v.Combine(ctx, all, msg, errs)
		x.msg(msg)
		rep.VerifierMessages = []vdaftest.Hex{msg}
		ends(vdaftest.Operation{Operation: "verify_next", Round: 1, AggregatorID: x.agg})
	}
	if steps(); errs[0] != nil {
		t.Fatalf("refused before its step: %v", errs[0])
	}
	out.Reports = []vdaftest.Report{rep}
	return out
}

// TestVectorL1BoundSumRefused runs vectors of ours, one for each way in which a report of
// Prio3L1BoundSum may be bad: each is refused at the step that its file names, and taken
// at the steps before. The draft has none. The files are what this test makes, so that
// another implementation can be held to them.
func TestVectorL1BoundSumRefused(t *testing.T) {
	dir := filepath.Join("testdata", "refused")
	var want []string
	for name, x := range refusals() {
		path := filepath.Join(dir, "Prio3L1BoundSum_"+name+".json")
		want = append(want, path)
		b, err := json.MarshalIndent(x.vector(t), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, '\n')
		if *writeVectors {
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%s is not what this test makes (%v); -write-vectors writes it", path, err)
		}
	}
	slices.Sort(want)
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || !slices.Equal(paths, want) {
		t.Fatalf("%q in testdata, %v; want %q", paths, err, want)
	}
	for _, name := range implementations(t) {
		onImplementation(t, name, func(t *testing.T) {
			if ran := runVectors(t, paths); ran != len(want) {
				t.Errorf("%d of %d files run", ran, len(want))
			}
		})
	}
}

// TestL1BoundSumExhausted takes every vector of three elements up to 6 against every
// bound up to 6: those that add up to it or less are sharded, verified and summed, all
// others refused by the client; and a client that shards them all the same, under a total
// of any value, is refused by the proof.
func TestL1BoundSumExhausted(t *testing.T) {
	var nonce [vdaf.NonceSize]byte
	verify := func(v *L1BoundSum, s *vdaf.Shares) (sum []int64, err error) {
		f := fixture{v: v, shard: func(int, *[16]byte) (*vdaf.Shares, error) { return s, nil }}
		b := newBatch(t, f, 1)
		b.init()
		aggs := b.finish()
		if b.errs[0] != nil {
			return nil, b.errs[0]
		}
		return v.Unshard(aggs)
	}
	for bound := uint64(1); bound <= 6; bound++ {
		v := must(NewL1BoundSum(2, 3, bound, 2))
		for n := range uint64(7 * 7 * 7) {
			m := []uint64{n % 7, n / 7 % 7, n / 49}
			s, err := v.Shard(testCtx, m, &nonce)
			fits := m[0]+m[1]+m[2] <= bound
			if fits != (err == nil) {
				t.Fatalf("bound %d: %d: %v", bound, m, err)
			}
			if fits {
				if sum, err := verify(v, s); err != nil || !slices.Equal(sum, []int64{int64(m[0]), int64(m[1]), int64(m[2])}) {
					t.Fatalf("bound %d: %d verifies to %d, %v", bound, m, sum, err)
				}
				continue
			}
			if slices.Max(m) > bound {
				continue // no bits make it
			}
			group := v.bits * v.c.F.Limbs()
			meas := make([]uint64, v.c.MeasLen*v.c.F.Limbs())
			for i, x := range m {
				encodeRange(v.c.F, at(meas, i, group), x, bound)
			}
			encodeRange(v.c.F, at(meas, 3, group), n%(bound+1), bound)
			if s, err = v.shard(testCtx, meas, &nonce, v.fresh()); err != nil {
				t.Fatal(err)
			}
			if sum, err := verify(v, s); err == nil {
				t.Fatalf("bound %d: %d verifies to %d", bound, m, sum)
			}
		}
	}
}
