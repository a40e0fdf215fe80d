package pine

import (
	"bytes"
	"errors"
	"testing"

	"github.com/starling-agg/starling/vdaf"
)

// Hostile reports: any bytes give a verdict with a typed error, and never touch the good
// report beside them. Whatever length the input has, it is also tried cut or filled up to
// the right one, so that decoding is passed.
func FuzzVerifyInit(f *testing.F) {
	var vs []*Pine
	var good []*vdaf.Shares
	for i, field := range allFields {
		v := small(field, 5, 2)
		nonce := nonceOf(i)
		s := must(v.Shard(testCtx, vectorOf(5, i), &nonce))
		for agg, in := range s.Inputs {
			f.Add(uint8(agg+2*i), s.Public, in)
		}
		vs, good = append(vs, v), append(good, s)
	}
	if len(vs) != 4 {
		f.Fatal("no seeds")
	}
	fit := func(b []byte, n int) []byte {
		return append(bytes.Clone(b[:min(n, len(b))]), make([]byte, max(0, n-len(b)))...)
	}
	f.Fuzz(func(t *testing.T, agg uint8, public, input []byte) {
		role, i := int(agg%2), int(agg/2%4)
		v := vs[i]
		z := v.Sizes()
		n := []int{z.LeaderInput, z.HelperInput}[role]
		in := vdaf.Reports{
			Nonces: [][vdaf.NonceSize]byte{nonceOf(1), nonceOf(i), nonceOf(3)},
			Public: [][]byte{public, good[i].Public, fit(public, z.Public)},
			Inputs: [][]byte{input, good[i].Inputs[role], fit(input, n)},
		}
		st, shares, errs := v.NewState(3), make([]byte, 3*z.VerifierShare), make([]error, 3)
		v.VerifyInit(st, &testKey, testCtx, role, &in, shares, errs)
		if errs[1] != nil {
			t.Fatalf("field %d: the good report is refused: %v", allFields[i], errs[1])
		}
		for _, err := range errs {
			if err != nil && !errors.Is(err, vdaf.ErrDecode) && !errors.Is(err, vdaf.ErrVerify) {
				t.Fatalf("error is %v", err)
			}
		}
		// What passes so far is refused in the end: the other aggregator's share is of
		// another report.
		other := make([]byte, 3*z.VerifierShare)
		msgs := make([]byte, 3*z.VerifierMessage)
		v.Combine(testCtx, [][]byte{shares, other}, msgs, errs)
		if errs[0] == nil || errs[1] == nil || errs[2] == nil {
			t.Fatalf("field %d: a verifier share alone is accepted", allFields[i])
		}
	})
}
