package pine

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/starling-agg/starling/vdaf"
)

// BenchmarkReport is the work of each role on one report, of the smallest and of a large
// dimension, at the finest precision of each field for norm 1 (24 bits for the larger
// two). The constants in fields come from it.
func BenchmarkReport(b *testing.B) {
	for _, f := range []struct {
		f    Field
		frac int
	}{{Field32, 15}, {Field40, 19}, {Field64, 24}, {Field128, 24}} {
		for _, d := range []int{64, 1 << 18} {
			v := must(New(Params{Field: f.f, Dimension: d, FracBits: f.frac, Norm: 1}))
			x := make([]float64, d)
			r := rand.New(rand.NewPCG(1, 1))
			for i := range x {
				x[i] = r.NormFloat64() / 600
			}
			var nonce [vdaf.NonceSize]byte
			var shares *vdaf.Shares
			name := fmt.Sprintf("Field%d/%d", f.f, d)
			b.Run(name+"/client", func(b *testing.B) {
				for b.Loop() {
					e, err := Encode(v, x, Encoding{Clip: true, Randomized: true})
					if err != nil {
						b.Fatal(err)
					}
					if shares, err = v.ShardIntegers(testCtx, e, &nonce); err != nil {
						b.Fatal(err)
					}
				}
			})
			for agg, role := range []string{"leader", "helper"} {
				b.Run(name+"/"+role, func(b *testing.B) {
					in := vdaf.Reports{Nonces: [][16]byte{nonce}, Public: [][]byte{shares.Public},
						Inputs: [][]byte{shares.Inputs[agg]}}
					st, errs := v.NewState(1), make([]error, 1)
					out := make([]byte, v.Sizes().VerifierShare)
					for b.Loop() {
						v.VerifyInit(st, &testKey, testCtx, agg, &in, out, errs)
					}
					if errs[0] != nil {
						b.Fatal(errs[0])
					}
				})
			}
		}
	}
}
