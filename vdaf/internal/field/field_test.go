package field

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

var fields = []Field{Field64{}, Field128{}, Field32, Field40}

// moduli are from VDAF-18 section 6.1.2 and draft-chen-cfrg-vdaf-pine-02.
var moduli = map[ID]string{
	id32:  "4293918721",
	id40:  "1099489607681",
	id64:  "18446744069414584321",
	id128: "340282366920938462946865773367900766209",
}

var names = map[ID]string{id32: "Field32", id40: "Field40", id64: "Field64", id128: "Field128"}

func modulus(f Field) *big.Int {
	p, ok := new(big.Int).SetString(moduli[f.ID()], 10)
	if !ok {
		panic("no modulus")
	}
	return p
}

func montR(f Field) *big.Int {
	if f.ID() != id128 {
		return big.NewInt(1)
	}
	return new(big.Int).Lsh(big.NewInt(1), 128)
}

func toBig(e Elem) *big.Int {
	x := new(big.Int).SetUint64(e[1])
	return x.Lsh(x, 64).Add(x, new(big.Int).SetUint64(e[0]))
}

func fromBig(x *big.Int) Elem {
	var b [16]byte
	x.FillBytes(b[:])
	return Elem{binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[:8])}
}

// odd returns reduced elements near every boundary: of the field, of a limb, of a half
// limb, of the centre.
func odd(f Field) []Elem {
	p := modulus(f)
	var out []Elem
	seen := map[Elem]bool{}
	for _, k := range []uint{0, 1, 19, 20, 31, 32, 33, 39, 40, 62, 63, 64, 65, 66, 67, 96, 126, 127, 128} {
		for d := int64(-3); d <= 3; d++ {
			for _, s := range []int64{1, -1} {
				x := new(big.Int).Lsh(big.NewInt(s), k)
				x.Add(x, big.NewInt(d)).Mod(x, p)
				if e := fromBig(x); !seen[e] {
					seen[e] = true
					out = append(out, e)
				}
				half := new(big.Int).Rsh(p, 1)
				half.Add(half, big.NewInt(d*s))
				if e := fromBig(half); !seen[e] {
					seen[e] = true
					out = append(out, e)
				}
			}
		}
	}
	return out
}

// random draws from odd values and from the whole field alike.
func random(f Field, r *rand.Rand, odd []Elem) Elem {
	if r.IntN(3) == 0 {
		return odd[r.IntN(len(odd))]
	}
	for {
		e := Elem{r.Uint64() >> (64 - min(64, 8*f.Size()))}
		if f.Limbs() == 2 {
			e[1] = r.Uint64()
		}
		if f.Reduced(e[:f.Limbs()]) < 0 {
			return e
		}
	}
}

func randomVec(f Field, r *rand.Rand, n int) []uint64 {
	o := odd(f)
	v := make([]uint64, n*f.Limbs())
	for i := range n {
		f.Put(v, i, random(f, r, o))
	}
	return v
}

func TestOddPairs(t *testing.T) {
	for _, f := range fields {
		p := modulus(f)
		rInv := new(big.Int).ModInverse(montR(f), p)
		vals := odd(f)
		for _, a := range vals {
			x := toBig(a)
			for _, b := range vals {
				y := toBig(b)
				check := func(op string, got Elem, want *big.Int) {
					if toBig(got).Cmp(want.Mod(want, p)) != 0 {
						t.Fatalf("field %d: %x %s %x = %x, want %x", f.ID(), a, op, b, got, want)
					}
				}
				check("+", f.Add(a, b), new(big.Int).Add(x, y))
				check("-", f.Sub(a, b), new(big.Int).Sub(x, y))
				z := new(big.Int).Mul(x, y)
				check("*", f.Mul(a, b), z.Mul(z, rInv))
			}
			if got := f.ToRaw(f.ToWeight(a)); got != a {
				t.Fatalf("field %d: ToRaw(ToWeight(%x)) = %x", f.ID(), a, got)
			}
			w := f.ToWeight(a)
			if inv := f.Inv(w); !a.IsZero() && f.ToRaw(f.Mul(w, inv)) != (Elem{1}) {
				t.Fatalf("field %d: inverse of %x is wrong", f.ID(), a)
			}
			n, ok := f.Int64(a)
			c := new(big.Int).Set(x)
			if c.Cmp(new(big.Int).Rsh(p, 1)) > 0 {
				c.Sub(c, p)
			}
			if ok != c.IsInt64() || ok && n != c.Int64() {
				t.Fatalf("field %d: Int64(%x) = %d, %v, want %d", f.ID(), a, n, ok, c)
			}
			if ok && f.FromInt64(n) != a {
				t.Fatalf("field %d: FromInt64(%d) = %x, want %x", f.ID(), n, f.FromInt64(n), a)
			}
		}
		for _, n := range []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64} {
			want := new(big.Int).Mod(big.NewInt(n), p)
			if toBig(f.FromInt64(n)).Cmp(want) != 0 {
				t.Fatalf("field %d: FromInt64(%d) = %x", f.ID(), n, f.FromInt64(n))
			}
		}
		for _, n := range []uint64{0, p64 - 1, p64, p64 + 1, math.MaxUint64} {
			want := new(big.Int).SetUint64(n)
			if toBig(f.FromUint64(n)).Cmp(want.Mod(want, p)) != 0 {
				t.Fatalf("field %d: FromUint64(%d) = %x", f.ID(), n, f.FromUint64(n))
			}
		}
	}
}

// The lazy sums hold any number of terms: the largest elements, many times, against big
// integers.
func TestLazySums(t *testing.T) {
	for _, f := range fields {
		r := rand.New(rand.NewPCG(1, uint64(f.ID())))
		p := modulus(f)
		rInv := new(big.Int).ModInverse(montR(f), p)
		top := fromBig(new(big.Int).Sub(p, big.NewInt(1)))
		for _, n := range []int{0, 1, 2, 3, 17, 1000, 4097} {
			for _, step := range []int{1, 2, 3} {
				for _, largest := range []bool{false, true} {
					w, a := randomVec(f, r, n), randomVec(f, r, n*step)
					if largest {
						for i := range n {
							f.Put(w, i, top)
							f.Put(a, i*step, top)
						}
					}
					dot, sum := new(big.Int), new(big.Int)
					for i := range n {
						x := toBig(f.At(a, i*step))
						sum.Add(sum, x)
						dot.Add(dot, x.Mul(x, toBig(f.At(w, i))))
					}
					dot.Mul(dot, rInv).Mod(dot, p)
					if got := f.Dot(w, a, step); toBig(got).Cmp(dot) != 0 {
						t.Fatalf("field %d: Dot of %d, step %d, largest %v: %x, want %x", f.ID(), n, step, largest, got, dot)
					}
					if got := f.Sum(a, n, step); toBig(got).Cmp(sum.Mod(sum, p)) != 0 {
						t.Fatalf("field %d: Sum of %d, step %d, largest %v: %x, want %x", f.ID(), n, step, largest, got, sum)
					}
				}
			}
		}
	}
	// fold64 and fold128 take carries that no test of a feasible length reaches.
	p := modulus(Field64{})
	for _, c := range []uint64{0, 1, 1<<32 - 1} {
		x := new(big.Int).SetUint64(c)
		x.Lsh(x, 128).Add(x, toBig(Elem{1<<64 - 1, 1<<64 - 1}))
		if got := fold64(c, 1<<64-1, 1<<64-1); toBig(Elem{got}).Cmp(x.Mod(x, p)) != 0 {
			t.Fatalf("fold64 with carry %d = %x, want %x", c, got, x)
		}
	}
	p = modulus(Field128{})
	rInv := new(big.Int).ModInverse(montR(Field128{}), p)
	const m = 1<<64 - 1
	for _, c := range []uint64{0, 1, 1<<32 - 1} {
		// The second has R-1 as its Montgomery quotient, which makes the largest value
		// before the last subtraction.
		for _, low := range [][2]uint64{{m, m}, {1, ph128}, {0, 0}} {
			x := new(big.Int).SetUint64(c)
			x.Lsh(x, 128).Add(x, toBig(Elem{m, m}))
			x.Lsh(x, 128).Add(x, toBig(low))
			r0, r1 := fold128(low[0], low[1], m, m, c)
			if x.Mul(x, rInv).Mod(x, p); toBig(Elem{r0, r1}).Cmp(x) != 0 {
				t.Fatalf("fold128 of %x with carry %d = %x %x, want %x", low, c, r0, r1, x)
			}
		}
	}
}

func TestVectors(t *testing.T) {
	for _, f := range fields {
		r := rand.New(rand.NewPCG(2, uint64(f.ID())))
		for n := range 20 {
			a, b := randomVec(f, r, n), randomVec(f, r, n)
			k := random(f, r, odd(f))
			ops := []struct {
				name string
				run  func(dst []uint64)
				one  func(x, y Elem) Elem
			}{
				{"AddVec", func(d []uint64) { f.AddVec(d, b) }, f.Add},
				{"SubVec", func(d []uint64) { f.SubVec(d, b) }, f.Sub},
				{"MulVec", func(d []uint64) { f.MulVec(d, b) }, f.Mul},
				{"ScaleVec", func(d []uint64) { f.ScaleVec(d, d, k) }, func(x, _ Elem) Elem { return f.Mul(x, k) }},
			}
			for _, op := range ops {
				d := slices.Clone(a)
				op.run(d)
				for i := range n {
					if f.At(d, i) != op.one(f.At(a, i), f.At(b, i)) {
						t.Fatalf("field %d: %s differs at %d of %d", f.ID(), op.name, i, n)
					}
				}
			}
			// Aliased: every operand the same memory.
			for name, run := range map[string]func(d []uint64){
				"AddVec": func(d []uint64) { f.AddVec(d, d) },
				"SubVec": func(d []uint64) { f.SubVec(d, d) },
				"MulVec": func(d []uint64) { f.MulVec(d, d) },
			} {
				d, c := slices.Clone(a), slices.Clone(a)
				run(d)
				switch name {
				case "AddVec":
					f.AddVec(c, a)
				case "SubVec":
					f.SubVec(c, a)
				case "MulVec":
					f.MulVec(c, a)
				}
				if !slices.Equal(c, d) {
					t.Fatalf("field %d: aliased %s differs", f.ID(), name)
				}
			}
		}
	}
}

// naive evaluates the polynomial with the given raw values at the p-th roots of unity at
// the weight t, by the definition of the Lagrange basis.
func naive(f Field, vals []uint64, log int, t Elem) Elem {
	p := 1 << log
	w, one := f.Root(log), f.ToWeight(Elem{1})
	x := make([]Elem, p)
	x[0] = one
	for i := 1; i < p; i++ {
		x[i] = f.Mul(x[i-1], w)
	}
	var sum Elem
	for k := range p {
		l := one
		for j := range p {
			if j != k {
				l = f.Mul(l, f.Mul(f.Sub(t, x[j]), f.Inv(f.Sub(x[k], x[j]))))
			}
		}
		sum = f.Add(sum, f.Mul(f.At(vals, k), l))
	}
	return sum
}

func powers(f Field, t Elem, log int) []Elem {
	ts := make([]Elem, log)
	for i := range ts {
		ts[i] = t
		t = f.Mul(t, t)
	}
	return ts
}

func TestLagrangeAndTransforms(t *testing.T) {
	for _, f := range fields {
		r := rand.New(rand.NewPCG(3, uint64(f.ID())))
		l := f.Limbs()
		for log := range 6 {
			p := 1 << log
			pl := NewPlan(f, log)
			vals := randomVec(f, r, p)
			at := random(f, r, odd(f))
			ws := make([]uint64, p*l)
			f.Lagrange(ws, pl.Itw, powers(f, at, log), pl.InvP)
			if got, want := f.Dot(ws, vals, 1), naive(f, vals, log, at); got != want {
				t.Fatalf("field %d: p = %d: value is %x, want %x", f.ID(), p, got, want)
			}

			// To the coset and on to its values: each must be the polynomial at s*w^k.
			c := slices.Clone(vals)
			f.DIF(c, pl.Itw)
			f.MulVec(c, pl.Shift(f))
			f.DIT(c, pl.Tw)
			x := f.Root(log + 1)
			for k := range p {
				if got, want := f.At(c, k), naive(f, vals, log, x); got != want {
					t.Fatalf("field %d: p = %d: coset value %d is %x, want %x", f.ID(), p, k, got, want)
				}
				x = f.Mul(x, f.Root(log))
			}
		}
	}
}

func TestColumns(t *testing.T) {
	for _, f := range fields {
		r := rand.New(rand.NewPCG(4, uint64(f.ID())))
		l := f.Limbs()
		for _, n := range []int{1, 2, 5, 12, 13} {
			for chunk := 1; chunk <= n+2; chunk++ {
				calls := (n + chunk - 1) / chunk
				meas, seeds := randomVec(f, r, n), randomVec(f, r, 2*chunk)
				w, run, rs := randomVec(f, r, calls+1), randomVec(f, r, calls), randomVec(f, r, calls)
				bias := random(f, r, odd(f))
				got := make([]uint64, 2*chunk*l)
				start := slices.Clone(run)
				f.Columns(got, seeds, meas, w, run, rs, bias, chunk)
				for j := range chunk {
					e := f.Mul(f.At(w, 0), f.At(seeds, 2*j))
					o := f.Add(f.Mul(f.At(w, 0), f.At(seeds, 2*j+1)), bias)
					for i := range calls {
						if i*chunk+j >= n {
							continue
						}
						m, x := f.At(meas, i*chunk+j), f.At(start, i)
						for range j {
							x = f.Mul(x, f.At(rs, i))
						}
						e, o = f.Add(e, f.Mul(m, x)), f.Add(o, f.Mul(m, f.At(w, i+1)))
					}
					if f.At(got, 2*j) != e || f.At(got, 2*j+1) != o {
						t.Fatalf("field %d: %d elements, chunk %d: column %d differs", f.ID(), n, chunk, j)
					}
				}
			}
		}
	}
}

func TestRoots(t *testing.T) {
	for _, f := range fields {
		one := f.ToWeight(Elem{1})
		w := f.Root(f.MaxLog())
		for k := f.MaxLog(); k > 0; k-- {
			if f.Root(k) != w {
				t.Fatalf("field %d: Root(%d) is not the square of Root(%d)", f.ID(), k, k+1)
			}
			if w == one {
				t.Fatalf("field %d: Root(%d) has too small an order", f.ID(), k)
			}
			w = f.Mul(w, w)
		}
		if w != one {
			t.Fatalf("field %d: Root(MaxLog) has too large an order", f.ID())
		}
	}
}

func TestDecode(t *testing.T) {
	for _, f := range fields {
		p := modulus(f)
		for d := int64(-2); d <= 2; d++ {
			x := new(big.Int).Add(p, big.NewInt(d))
			e := fromBig(x)
			b := f.Append(nil, append(e[:f.Limbs():f.Limbs()], e[:f.Limbs()]...))
			dst := make([]uint64, 2*f.Limbs())
			if ok := f.Decode(dst, b); ok != (d < 0) {
				t.Errorf("field %d: Decode(p%+d) = %v", f.ID(), d, ok)
			}
			if f.Decode(dst, b[:len(b)-1]) || f.Decode(dst, append(b, 0)) {
				t.Errorf("field %d: Decode took a wrong length", f.ID())
			}
		}
		all := make([]byte, f.Size())
		for i := range all {
			all[i] = 0xFF
		}
		if f.Decode(make([]uint64, f.Limbs()), all) {
			t.Errorf("field %d: Decode took all ones", f.ID())
		}
	}
}

func BenchmarkColumns(b *testing.B) {
	for _, f := range fields {
		name := names[f.ID()]
		b.Run(name, func(b *testing.B) {
			r := rand.New(rand.NewPCG(5, 5))
			meas, seeds := randomVec(f, r, 1000), randomVec(f, r, 62)
			w, run, rs := randomVec(f, r, 34), randomVec(f, r, 33), randomVec(f, r, 33)
			wires := make([]uint64, 62*f.Limbs())
			for b.Loop() {
				f.Columns(wires, seeds, meas, w, run, rs, Elem{}, 31)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/elem")
		})
	}
}

func BenchmarkDot(b *testing.B) {
	for _, f := range fields {
		name := names[f.ID()]
		b.Run(name, func(b *testing.B) {
			r := rand.New(rand.NewPCG(6, 6))
			x, y := randomVec(f, r, 1000), randomVec(f, r, 1000)
			for b.Loop() {
				f.Dot(x, y, 1)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/elem")
		})
	}
}

func BenchmarkMulVec(b *testing.B) {
	for _, f := range fields {
		name := names[f.ID()]
		b.Run(name, func(b *testing.B) {
			r := rand.New(rand.NewPCG(6, 6))
			x, y := randomVec(f, r, 1000), randomVec(f, r, 1000)
			for b.Loop() {
				f.MulVec(x, y)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/elem")
		})
	}
}
