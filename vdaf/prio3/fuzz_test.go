package prio3

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/vdaftest"
)

// seeds calls add for every report of the vectors in testdata and fails if there are none.
func seeds(f *testing.F, add func(x *vdaftest.Vector, r *vdaftest.Report)) {
	paths, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil || len(paths) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, path := range paths {
		x, err := vdaftest.Read(path)
		if err != nil {
			f.Fatal(err)
		}
		for i := range x.Reports {
			add(x, &x.Reports[i])
		}
	}
}

// fuzzed are small instances of every shape: no joint randomness, one proof, several, a
// linear equation.
func fuzzed() []vdaf.VDAF {
	var vs []vdaf.VDAF
	for _, f := range fixtures(2) {
		vs = append(vs, f.v)
	}
	return append(vs, must(NewSum(2, 255)), must(NewHistogram(2, 20, 4)), must(NewSumVec(2, 5, 7, 4)), newHigherDegree(2),
		must(NewL2Vec(2, 3, 16)), must(NewL2Vec(2, 2, 64)))
}

// Hostile reports: any bytes give a verdict with a typed error, and never touch the good
// report beside them. Whatever length the input has, it is also tried cut or filled up to
// the right one, so that decoding is passed.
func FuzzVerifyInit(f *testing.F) {
	seeds(f, func(x *vdaftest.Vector, r *vdaftest.Report) {
		for agg, in := range r.InputShares[:2] {
			f.Add(uint8(agg), []byte(r.PublicShare), []byte(in))
		}
	})
	vs := fuzzed()
	fit := func(b []byte, n int) []byte {
		return append(bytes.Clone(b[:min(n, len(b))]), make([]byte, max(0, n-len(b)))...)
	}
	f.Fuzz(func(t *testing.T, agg uint8, public, input []byte) {
		for _, v := range vs {
			s, role := v.Sizes(), int(agg%2)
			inLen := []int{s.LeaderInput, s.HelperInput}[role]
			in := vdaf.Reports{
				Nonces: make([][vdaf.NonceSize]byte, 3),
				Public: [][]byte{public, make([]byte, s.Public), fit(public, s.Public)},
				Inputs: [][]byte{input, make([]byte, inLen), fit(input, inLen)},
			}
			st, shares, errs := v.NewState(3), make([]byte, 3*s.VerifierShare), make([]error, 3)
			v.VerifyInit(st, &testKey, testCtx, role, &in, shares, errs)
			right := len(public) == s.Public && len(input) == inLen
			if errs[0] != nil && !errors.Is(errs[0], vdaf.ErrDecode) || errs[0] == nil && !right || errs[1] != nil ||
				errs[2] != nil && (role == 1 || !errors.Is(errs[2], vdaf.ErrDecode)) {
				t.Fatalf("VDAF %#x: errors are %v", v.ID(), errs)
			}
			alone := make([]byte, s.VerifierShare)
			one := vdaf.Reports{Nonces: in.Nonces[1:2], Public: in.Public[1:2], Inputs: in.Inputs[1:2]}
			v.VerifyInit(st, &testKey, testCtx, role, &one, alone, errs[1:2])
			if !bytes.Equal(alone, shares[s.VerifierShare:2*s.VerifierShare]) {
				t.Fatalf("VDAF %#x: the outcome of a good report depends on its neighbours", v.ID())
			}
			// On through the rest: a verdict, no panic.
			v.VerifyInit(st, &testKey, testCtx, role, &in, shares, make([]error, 3))
			errs = make([]error, 3)
			msgs := make([]byte, 3*s.VerifierMessage)
			v.Combine(testCtx, [][]byte{shares, shares}, msgs, errs)
			v.Check(st, msgs, errs)
			v.Accumulate(st, nil, nil, []*vdaf.AggShare{v.NewAggShare()}, errs)
		}
	})
}

// A peer's verifier share is any bytes of the right length.
func FuzzCombine(f *testing.F) {
	seeds(f, func(x *vdaftest.Vector, r *vdaftest.Report) {
		f.Add([]byte(r.VerifierShares[0][0]), []byte(r.VerifierShares[0][1]))
	})
	vs := fuzzed()
	f.Fuzz(func(t *testing.T, a, b []byte) {
		for _, v := range vs {
			n := v.Sizes().VerifierShare
			if len(a) < n || len(b) < n {
				continue
			}
			errs := make([]error, 1)
			v.Combine(testCtx, [][]byte{a[:n], b[:n]}, make([]byte, v.Sizes().VerifierMessage), errs)
			if errs[0] != nil && !errors.Is(errs[0], vdaf.ErrDecode) && !errors.Is(errs[0], vdaf.ErrVerify) {
				t.Fatalf("VDAF %#x: error is %v", v.ID(), errs[0])
			}
		}
	})
}

// What decodes encodes to the same bytes.
func FuzzReadAggShare(f *testing.F) {
	seeds(f, func(x *vdaftest.Vector, r *vdaftest.Report) {
		for _, a := range x.AggShares {
			f.Add([]byte(a))
		}
	})
	vs := fuzzed()
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, v := range vs {
			a, err := v.ReadAggShare(b)
			switch {
			case err != nil && !errors.Is(err, vdaf.ErrDecode):
				t.Fatalf("VDAF %#x: error is %v", v.ID(), err)
			case err == nil && !bytes.Equal(a.Append(nil), b):
				t.Fatalf("VDAF %#x: %x encodes again as %x", v.ID(), b, a.Append(nil))
			}
		}
	})
}
