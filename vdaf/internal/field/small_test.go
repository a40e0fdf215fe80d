package field

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

// The one reduction of a small field, at multiples of the modulus and at the largest sum
// it is documented for.
func TestReduceSmall(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for _, f := range []*Small{Field32, Field40} {
		p := modulus(f)
		m := new(big.Int).Lsh(big.NewInt(1), 64+f.k)
		if m.Div(m, p).Uint64() != f.m || !m.IsUint64() || p.Uint64() != f.p || p.BitLen() != int(f.k)+1 {
			t.Fatalf("field %d: constants disagree", f.id)
		}
		top := new(big.Int).Lsh(big.NewInt(1), 63+f.k)
		for i := range 200000 {
			x := new(big.Int)
			if i%2 == 0 { // next to a multiple of p, where the quotient is least sure
				x.SetUint64(r.Uint64()>>r.IntN(64)).Mul(x, p).Add(x, big.NewInt(int64(r.IntN(5)-2)))
			} else {
				x.SetUint64(r.Uint64()).Lsh(x, 63).Add(x, new(big.Int).SetUint64(r.Uint64())).Mod(x, top)
				x.Rsh(x, uint(r.IntN(x.BitLen()+1)))
			}
			if x.Sign() < 0 || x.Cmp(top) >= 0 {
				continue
			}
			e := fromBig(x)
			if got := reduceSmall(e[1], e[0], f.p, f.m, f.k); new(big.Int).SetUint64(got).Cmp(new(big.Int).Mod(x, p)) != 0 {
				t.Fatalf("field %d: %x reduces to %x", f.id, x, got)
			}
		}
		// 2^22 products of the largest elements stay in bounds.
		sum := new(big.Int).Sub(p, big.NewInt(1))
		if sum.Mul(sum, sum).Lsh(sum, 22); sum.Cmp(top) >= 0 {
			t.Fatalf("field %d: 2^22 products overflow", f.id)
		}
	}
}

func TestRows(t *testing.T) {
	for _, f := range fields {
		r := rand.New(rand.NewPCG(8, uint64(f.ID())))
		for _, chunk := range []int{1, 2, 5, tile - 1, tile, tile + 1, 2*tile + 3} {
			for _, n := range []int{1, chunk - 1, chunk, chunk + 1, 3*chunk - 1, 3 * chunk, 5*chunk + 1} {
				if n < 1 {
					continue
				}
				calls := (n + chunk - 1) / chunk
				w, a := randomVec(f, r, calls), randomVec(f, r, n)
				got := make([]uint64, chunk*f.Limbs())
				f.Rows(got, w, a, chunk)
				for j := range chunk {
					var want Elem
					for i := range calls {
						if at := i*chunk + j; at < n {
							want = f.Add(want, f.Mul(f.At(w, i), f.At(a, at)))
						}
					}
					if f.At(got, j) != want {
						t.Fatalf("field %d: %d elements by %d: column %d is %x, want %x", f.ID(), n, chunk, j, f.At(got, j), want)
					}
				}
			}
		}
	}
}

func TestTernary(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	coefficient := [4]int64{-1, 0, 0, 1}
	for _, n := range []int{0, 64, 128, 640} {
		for _, rows := range []int{0, 1, 7, 100} {
			stride := n/4 + r.IntN(3)
			codes := make([]byte, rows*stride+16)
			v := make([]int64, n)
			for i := range codes {
				codes[i] = byte(r.Uint32())
			}
			for i := range v {
				v[i] = r.Int64N(1<<41) - 1<<40
			}
			want := make([]int64, rows)
			for i := range want {
				want[i] = r.Int64N(100)
			}
			got := slices.Clone(want)
			for i := range want {
				for j, x := range v {
					want[i] += coefficient[codes[i*stride+j/4]>>(2*(j%4))&3] * x
				}
			}
			Ternary(got, v, codes, stride)
			if !slices.Equal(got, want) {
				t.Fatalf("%d rows of %d: %d, want %d", rows, n, got, want)
			}
		}
	}
}

// BenchmarkTernary is 100 rows of 262,144 entries: the wrap-around tests of one report.
func BenchmarkTernary(b *testing.B) {
	const n, rows = 1 << 18, 100
	r := rand.New(rand.NewPCG(9, 9))
	v, sums := make([]int64, n), make([]int64, rows)
	stride := n/4 + 64
	codes := make([]byte, rows*stride)
	for i := range codes {
		codes[i] = byte(r.Uint32())
	}
	for b.Loop() {
		Ternary(sums, v, codes, stride)
	}
}

func BenchmarkRows(b *testing.B) {
	for _, f := range fields {
		b.Run(names[f.ID()], func(b *testing.B) {
			const chunk, calls = 514, 510
			r := rand.New(rand.NewPCG(10, 10))
			w, a := randomVec(f, r, calls), randomVec(f, r, chunk*calls)
			dst := make([]uint64, chunk*f.Limbs())
			for b.Loop() {
				f.Rows(dst, w, a, chunk)
			}
		})
	}
}

func TestAddProducts(t *testing.T) {
	for _, f := range fields {
		r := rand.New(rand.NewPCG(11, uint64(f.ID())))
		for n := range 9 {
			for step := 1; step < 4; step++ {
				a, b, dst := randomVec(f, r, n), randomVec(f, r, n), randomVec(f, r, n*step)
				got := slices.Clone(dst)
				f.AddProducts(got, a, b, step)
				for i := range n {
					f.Put(dst, i*step, f.Add(f.At(dst, i*step), f.Mul(f.At(a, i), f.At(b, i))))
				}
				if !slices.Equal(got, dst) {
					t.Fatalf("field %d: %d products, step %d: differ", f.ID(), n, step)
				}
			}
		}
	}
}
