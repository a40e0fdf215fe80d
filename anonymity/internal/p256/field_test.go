package p256

import (
	"crypto/elliptic"
	"math/big"
	"math/rand/v2"
	"testing"
)

var (
	bigP = elliptic.P256().Params().P
	bigN = elliptic.P256().Params().N
)

// odd values of a modulus of four limbs, of which many meet a carry.
func oddValues(m *big.Int) []*big.Int {
	var all []*big.Int
	for _, bit := range []uint{0, 1, 32, 63, 64, 95, 96, 127, 128, 191, 192, 224, 255} {
		for d := int64(-2); d <= 2; d++ {
			x := new(big.Int).Lsh(big.NewInt(1), bit)
			all = append(all, x.Add(x, big.NewInt(d)).Mod(x, m))
			y := new(big.Int).Sub(m, x)
			all = append(all, y.Mod(y, m))
		}
	}
	return all
}

// drawValues are odd values and random ones, by turns.
func drawValues(r *rand.Rand, m *big.Int, n int) []*big.Int {
	odd := oddValues(m)
	all := make([]*big.Int, n)
	for i := range all {
		if i%2 == 0 {
			all[i] = odd[r.IntN(len(odd))]
			continue
		}
		b := make([]byte, 40)
		for j := range b {
			b[j] = byte(r.Uint32())
		}
		all[i] = new(big.Int).Mod(new(big.Int).SetBytes(b), m)
	}
	return all
}

func bytes32(x *big.Int) *[32]byte {
	var b [32]byte
	x.FillBytes(b[:])
	return &b
}

func feOf(t *testing.T, x *big.Int) *fe {
	t.Helper()
	z := new(fe)
	if !z.setBytes(bytes32(x)) {
		t.Fatalf("%x is refused", x)
	}
	return z
}

func (x *fe) big() *big.Int {
	b := x.bytes()
	return new(big.Int).SetBytes(b[:])
}

func TestFieldAgainstBig(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 256))
	values := drawValues(r, bigP, 3000)
	for i, a := range values {
		b := values[(i*7+1)%len(values)]
		x, y := feOf(t, a), feOf(t, b)
		check := func(what string, got *fe, want *big.Int) {
			t.Helper()
			for j, limb := range got {
				if j == 3 && limb > prime[3] {
					t.Fatalf("%s of %x and %x is not reduced", what, a, b)
				}
			}
			if want.Mod(want, bigP); got.big().Cmp(want) != 0 {
				t.Fatalf("%s of %x and %x is %x, not %x", what, a, b, got.big(), want)
			}
		}
		check("sum", new(fe).add(x, y), new(big.Int).Add(a, b))
		check("difference", new(fe).sub(x, y), new(big.Int).Sub(a, b))
		check("negative", new(fe).neg(x), new(big.Int).Neg(a))
		check("product", new(fe).mul(x, y), new(big.Int).Mul(a, b))
		check("square", new(fe).square(x), new(big.Int).Mul(a, a))
		z := *x
		check("product onto the first", z.mul(&z, y), new(big.Int).Mul(a, b))
		z = *x
		check("product onto the second", z.mul(y, &z), new(big.Int).Mul(a, b))
		z = *x
		check("product with itself onto itself", z.mul(&z, &z), new(big.Int).Mul(a, a))
		z = *x
		check("square onto itself", z.square(&z), new(big.Int).Mul(a, a))
		check("pick of the first", new(fe).pick(x, y, 1), new(big.Int).Set(a))
		check("pick of the second", new(fe).pick(x, y, 0), new(big.Int).Set(b))
		if x.odd() != uint64(a.Bit(0)) {
			t.Fatalf("%x: the lowest bit is %d", a, x.odd())
		}
		if same := x.equal(y) == 1; same != (a.Cmp(b) == 0) {
			t.Fatalf("%x = %x: %v", a, b, same)
		}
		if i%10 == 0 {
			check("inverse", new(fe).invert(x), new(big.Int).Exp(a, new(big.Int).Sub(bigP, big.NewInt(2)), bigP))
			e := new(big.Int).Add(bigP, big.NewInt(1))
			check("root", new(fe).root(x), new(big.Int).Exp(a, e.Rsh(e, 2), bigP))
			check("quarter", new(fe).quarter(x), new(big.Int).Exp(a, e.Sub(e, big.NewInt(1)), bigP))
		}
	}
}

// TestSquaredOfAnything: numbers between p and 2^256 come up between two squarings.
func TestSquaredOfAnything(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 256))
	all := new(big.Int).Lsh(big.NewInt(1), 256)
	bound := new(big.Int).Add(all, bigP)
	inverse := new(big.Int).ModInverse(all, bigP)
	for i, a := range drawValues(r, all, 2000) {
		if i%3 == 0 { // among the highest
			a.Sub(all, a.Rsh(a, uint(32+i%200)))
			a.Sub(a, big.NewInt(1))
		}
		x := scalarOf(a).limbs
		t0, t1, t2, t3, c := squared(x[0], x[1], x[2], x[3])
		got := new(big.Int).SetUint64(c)
		for _, limb := range []uint64{t3, t2, t1, t0} {
			got.Or(got.Lsh(got, 64), new(big.Int).SetUint64(limb))
		}
		if got.Cmp(bound) >= 0 {
			t.Fatalf("%x squared is %x", a, got)
		}
		want := new(big.Int).Mul(a, a)
		want.Mod(want.Mul(want, inverse), bigP)
		if got.Mod(got, bigP).Cmp(want) != 0 {
			t.Fatalf("%x squared is %x, not %x", a, got, want)
		}
		for _, n := range []int{1, 2, 7} {
			z := fe(x)
			z.squares(&z, n)
			want := new(big.Int).Set(a)
			for range n {
				want.Mod(want.Mul(want.Mul(want, want), inverse), bigP)
			}
			if got := new(big.Int).SetBytes(Scalar{z}.Append(nil)); got.Cmp(want) != 0 {
				t.Fatalf("%x squared %d times is %x, not %x", a, n, got, want)
			}
		}
	}
}

func TestFieldRange(t *testing.T) {
	for _, x := range []*big.Int{bigP, new(big.Int).Add(bigP, big.NewInt(1)), new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1))} {
		if new(fe).setBytes(bytes32(x)) {
			t.Errorf("%x is taken", x)
		}
	}
	if !new(fe).setBytes(bytes32(new(big.Int).Sub(bigP, big.NewInt(1)))) {
		t.Error("p-1 is refused")
	}
}

func TestWideAgainstBig(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 256))
	for i := range 2000 {
		var b [48]byte
		for j := range b {
			if b[j] = byte(r.Uint32()); i%3 == 0 && r.IntN(2) == 0 {
				b[j] = 0xff
			}
		}
		if i == 0 {
			for j := range b {
				b[j] = 0xff
			}
		}
		want := new(big.Int).SetBytes(b[:])
		var z fe
		if z.setWide(&b); z.big().Cmp(new(big.Int).Mod(want, bigP)) != 0 {
			t.Fatalf("%x modulo p is %x", b, z.big())
		}
		s := wideScalar(&b)
		if got := new(big.Int).SetBytes(s.Append(nil)); got.Cmp(new(big.Int).Mod(want, bigN)) != 0 {
			t.Fatalf("%x modulo n is %x", b, got)
		}
	}
}

func BenchmarkField(b *testing.B) {
	x, y := feRR, feOne
	b.Run("mul", func(b *testing.B) {
		for b.Loop() {
			x.mul(&x, &y)
		}
	})
	b.Run("square", func(b *testing.B) {
		for b.Loop() {
			x.square(&x)
		}
	})
	b.Run("add", func(b *testing.B) {
		for b.Loop() {
			x.add(&x, &y)
		}
	})
	b.Run("invert", func(b *testing.B) {
		for b.Loop() {
			x.invert(&x)
		}
	})
}
