package p256

import (
	"bytes"
	"crypto/ecdh"
	"errors"
	"math/big"
	"math/rand/v2"
	"testing"

	"filippo.io/nistec"
)

// scalarOf is a number below n as a scalar, 0 too.
func scalarOf(x *big.Int) Scalar {
	var s Scalar
	for i := range s.limbs {
		s.limbs[i] = new(big.Int).Rsh(x, uint(64*i)).Uint64()
	}
	return s
}

func (x Scalar) big() *big.Int { return new(big.Int).SetBytes(x.Append(nil)) }

func TestScalarsAgainstBig(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 256))
	values := drawValues(r, bigN, 3000)
	for i, a := range values {
		b := values[(i*11+5)%len(values)]
		x, y := scalarOf(a), scalarOf(b)
		check := func(what string, got Scalar, want *big.Int) {
			t.Helper()
			if want.Mod(want, bigN); got.big().Cmp(want) != 0 {
				t.Fatalf("%s of %x and %x is %x, not %x", what, a, b, got.big(), want)
			}
		}
		check("sum", x.Add(y), new(big.Int).Add(a, b))
		check("difference", x.Sub(y), new(big.Int).Sub(a, b))
		check("negative", x.Neg(), new(big.Int).Neg(a))
		check("product", x.Mul(y), new(big.Int).Mul(a, b))
		if (x.IsZero() == 1) != (a.Sign() == 0) || (x.Equal(y) == 1) != (a.Cmp(b) == 0) {
			t.Fatalf("%x and %x are compared wrongly", a, b)
		}
		if i%10 == 0 {
			check("inverse", x.Invert(), new(big.Int).Exp(a, new(big.Int).Sub(bigN, big.NewInt(2)), bigN))
		}
		again, err := ReadScalar(x.Append(nil))
		if a.Sign() == 0 {
			if !errors.Is(err, ErrScalar) {
				t.Fatalf("zero: %v", err)
			}
		} else if err != nil || again != x {
			t.Fatalf("%x is read as %v, %v", a, again, err)
		}
	}
	for d := range int64(3) {
		if _, err := ReadScalar(bytes32(new(big.Int).Add(bigN, big.NewInt(d)))[:]); !errors.Is(err, ErrScalar) {
			t.Errorf("n + %d: %v", d, err)
		}
	}
	for _, b := range [][]byte{nil, make([]byte, 31), make([]byte, 33), bytes.Repeat([]byte{0xff}, 32)} {
		if _, err := ReadScalar(b); !errors.Is(err, ErrScalar) {
			t.Errorf("%x: %v", b, err)
		}
	}
}

// TestDraws: a short scalar has all of its 128 bits, and a random one is never 0, whichever
// multiple of the order was drawn.
func TestDraws(t *testing.T) {
	short := []byte{0xf1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	source := bytes.NewReader(append(bytes.Clone(short), 17))
	if got := ShortScalar(source); got.big().Cmp(new(big.Int).SetBytes(short)) != 0 || source.Len() != 1 {
		t.Errorf("a short scalar is %x, with %d bytes left of 1", got.big(), source.Len())
	}
	all := bytes.NewBuffer(nil)
	for _, x := range []*big.Int{new(big.Int), bigN, new(big.Int).Lsh(bigN, 128), big.NewInt(5)} {
		all.Write(x.FillBytes(make([]byte, 48)))
	}
	if got := RandomScalar(all); got != ScalarOf(5) || all.Len() != 0 {
		t.Errorf("a random scalar after three that are 0 is %x", got.big())
	}
}

// TestElementsAgainstNistec: encodings are those of another implementation, both ways.
func TestElementsAgainstNistec(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 256))
	taken := 0
	for range 400 {
		b := make([]byte, ElementSize)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		b[0] = 2 + byte(r.IntN(2))
		want, wantErr := nistec.NewP256Point().SetBytes(b)
		e, err := ReadElement(b)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%x: %v, and by nistec %v", b, err, wantErr)
		}
		if err != nil {
			if !errors.Is(err, ErrElement) {
				t.Fatal(err)
			}
			continue
		}
		taken++
		if !bytes.Equal(e.Append(nil), b) || !bytes.Equal(e.Point().p.Bytes(), want.Bytes()) {
			t.Fatalf("%x is read as %x", b, e.Append(nil))
		}
		minus := e.Neg()
		if b[0] ^= 1; !bytes.Equal(minus.Append(nil), b) {
			t.Fatalf("the negative of %x is %x", b, minus.Append(nil))
		}
	}
	if taken < 100 || taken > 300 {
		t.Fatalf("%d of 400 were points", taken)
	}
}

func TestHostileElements(t *testing.T) {
	g := generator.Append(nil)
	uncompressed := nistec.NewP256Point().SetGenerator().Bytes()
	overP := append([]byte{2}, bytes32(new(big.Int).Add(bigP, big.NewInt(5)))[:]...) // 5 is an x of the curve
	five := append([]byte{2}, bytes32(big.NewInt(5))[:]...)
	if _, err := ReadElement(five); err != nil {
		t.Fatalf("x = 5: %v", err)
	}
	for what, b := range map[string][]byte{
		"nothing":                     nil,
		"identity, one byte":          {0},
		"identity, in full length":    make([]byte, ElementSize),
		"uncompressed":                uncompressed,
		"uncompressed, cut":           uncompressed[:ElementSize],
		"hybrid":                      append([]byte{6}, g[1:]...),
		"x off the curve":             append([]byte{2}, bytes32(big.NewInt(1))[:]...),
		"x not below p":               overP,
		"x = p":                       append([]byte{3}, bytes32(bigP)[:]...),
		"x of ones":                   append([]byte{2}, bytes.Repeat([]byte{0xff}, 32)...),
		"too short":                   g[:32],
		"too long":                    append(bytes.Clone(g), 0),
		"sign byte of another scheme": append([]byte{0x0a}, g[1:]...),
	} {
		if _, err := ReadElement(b); !errors.Is(err, ErrElement) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// sumOf is what a product must be, by nistec.
func sumOf(t *testing.T, k []Scalar, e []Element) []byte {
	t.Helper()
	s := nistec.NewP256Point()
	for i := range k {
		s.Add(s, &Mul(k[i], e[i].Point()).p)
	}
	return s.BytesCompressed()
}

func (s *Sum) bytes() []byte {
	if s.IsIdentity() {
		return []byte{0}
	}
	e, _ := VartimeElements([]*Sum{s})
	return e[0].Append(nil)
}

func drawTerms(r *rand.Rand, n int) (k []Scalar, e []Element) {
	values := drawValues(r, bigN, n)
	var b [16]byte
	for i := range n {
		s := scalarOf(values[i])
		if i%3 == 0 { // as the factors of a batch
			s.limbs[2], s.limbs[3] = 0, 0
		}
		k = append(k, s)
		for j := range b {
			b[j] = byte(r.Uint32())
		}
		e = append(e, HashToGroup(b[:], "test"))
	}
	return k, e
}

// TestProductAgainstNistec compares both ways of a product with constant-time
// multiplications, with equal and opposite points among them, which meet every exception
// of the formulas.
func TestProductAgainstNistec(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 256))
	for _, n := range []int{0, 1, 2, 3, 5, 20, 95, 96, 130} {
		k, e := drawTerms(r, n)
		for i := range n / 4 {
			j := r.IntN(n)
			switch e[j], k[j] = e[i], k[i]; i % 3 {
			case 0:
				e[j] = e[i].Neg()
			case 1:
				k[j] = k[i].Neg()
			}
		}
		want := sumOf(t, k, e)
		for name, f := range map[string]func([]Scalar, []Element) *Sum{"Straus": straus, "Pippenger": pippenger, "product": VartimeProduct} {
			if got := f(k, e).bytes(); !bytes.Equal(got, want) {
				t.Fatalf("%s of %d terms is %x, not %x", name, n, got, want)
			}
		}
	}
	// Small multiples of one point, of which every sum is known.
	g := Generator()
	for a := range uint64(40) {
		for b := range uint64(40) {
			k := []Scalar{ScalarOf(a), ScalarOf(b).Neg()}
			e := []Element{g, g}
			got := straus(k, e)
			again := pippenger(k, e)
			if want := sumOf(t, k[:1], e[:1]); b == 0 && !bytes.Equal(got.bytes(), want) {
				t.Fatalf("%d G is %x", a, got.bytes())
			}
			if got.IsIdentity() != (a == b) || !bytes.Equal(got.bytes(), again.bytes()) {
				t.Fatalf("%d G - %d G", a, b)
			}
		}
	}
}

// TestNaf: the digits make up the scalar, for windows at all places.
func TestDigits(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 256))
	for _, a := range append(drawValues(r, bigN, 500), oddValues(bigN)...) {
		k := scalarOf(a)
		sum := new(big.Int)
		digits := naf(k)
		last := -oddDigits
		for i, d := range digits {
			if d == 0 {
				continue
			}
			if d%2 == 0 || i-last < oddDigits || d > 15 || d < -15 {
				t.Fatalf("%x: digit %d at %d, the last at %d", a, d, i, last)
			}
			last = i
			sum.Add(sum, new(big.Int).Lsh(big.NewInt(int64(d)), uint(i)))
		}
		if sum.Cmp(a) != 0 {
			t.Fatalf("%x is written as %x", a, sum)
		}
		for width := 4; width <= 12; width++ {
			all := make([]int16, 256/width+1)
			signedDigits(all, k, width)
			sum.SetInt64(0)
			for i, d := range all {
				if d > 1<<(width-1) || d < -(1<<(width-1)) {
					t.Fatalf("%x: digit %d of width %d", a, d, width)
				}
				sum.Add(sum, new(big.Int).Lsh(big.NewInt(int64(d)), uint(i*width)))
			}
			if sum.Cmp(a) != 0 {
				t.Fatalf("%x is written as %x in width %d", a, sum, width)
			}
		}
	}
}

// TestFixedAgainstMul: one point times odd and random scalars, as another way has it.
func TestFixedAgainstMul(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 256))
	_, e := drawTerms(r, 2)
	for _, e := range []Element{generator, e[1]} {
		f, p := NewFixed(e), e.Point()
		for _, a := range append(drawValues(r, bigN, 400), oddValues(bigN)...) {
			k := scalarOf(a)
			got, ok := f.Mul(k)
			want, wantOK := Mul(k, p).Element()
			if ok != wantOK || ok && !got.Equal(&want) {
				t.Fatalf("%x times a point is %x, not %x", a, got.Append(nil), want.Append(nil))
			}
			// Added to itself, to its opposite and to nothing.
			twice, minus, none := new(Sum), new(Sum), new(Sum)
			f.VartimeAdd(none, k)
			f.VartimeAdd(twice, k)
			f.VartimeAdd(twice, k)
			f.VartimeAdd(minus, k.Neg())
			f.VartimeAdd(minus, k)
			if !bytes.Equal(none.bytes(), sumOf(t, []Scalar{k}, []Element{e})) || !bytes.Equal(twice.bytes(), sumOf(t, []Scalar{k, k}, []Element{e, e})) || !minus.IsIdentity() {
				t.Fatalf("%x times a point is added as %x", a, none.bytes())
			}
		}
		for n := range uint64(70) { // every digit, and the carries
			got, _ := f.Mul(ScalarOf(n))
			if want, ok := Mul(ScalarOf(n), p).Element(); ok && !got.Equal(&want) {
				t.Fatalf("%d times a point", n)
			}
		}
	}
}

func TestPoints(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 256))
	k, e := drawTerms(r, 4)
	for i := range k {
		p := Mul(k[i], e[i].Point())
		if q, ok := p.Sub(p).Element(); ok {
			t.Fatalf("P - P is %v", q)
		}
		minus := e[i].Neg()
		if _, ok := p.Add(Mul(k[i], minus.Point())).Element(); ok {
			t.Fatal("P + (-P) is not the identity")
		}
		got, ok := MulBase(k[i]).Element()
		private, err := ecdh.P256().NewPrivateKey(k[i].Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		if x := got.x.bytes(); !ok || !bytes.Equal(x[:], private.PublicKey().Bytes()[1:33]) {
			t.Fatalf("%x G has x = %x", k[i].big(), x)
		}
		if !e[i].Equal(&e[i]) || e[i].Equal(&minus) {
			t.Fatal("elements are compared wrongly")
		}
	}
	if _, ok := MulBase(Scalar{}).Element(); ok {
		t.Fatal("0 G is not the identity")
	}
	if _, ok := VartimeElements([]*Sum{{}}); ok {
		t.Fatal("the identity is an element")
	}
}

// FuzzElement: what is read is written as it was.
func FuzzElement(f *testing.F) {
	g := Generator()
	f.Add(g.Append(nil), bytes32(big.NewInt(1))[:])
	f.Add(make([]byte, ElementSize), bytes32(bigN)[:])
	f.Fuzz(func(t *testing.T, b, s []byte) {
		if e, err := ReadElement(b); err == nil && !bytes.Equal(e.Append(nil), b) {
			t.Errorf("%x is written as %x", b, e.Append(nil))
		}
		if x, err := ReadScalar(s); err == nil && !bytes.Equal(x.Append(nil), s) {
			t.Errorf("%x is written as %x", s, x.Append(nil))
		}
	})
}

// BenchmarkProduct finds from how many terms on sorting pays (sortedTerms), beside the
// unit of all figures, one multiplication in constant time.
func BenchmarkProduct(b *testing.B) {
	r := rand.New(rand.NewPCG(8, 256))
	k, e := drawTerms(r, 1792)
	p := e[1].Point()
	b.Run("unit", func(b *testing.B) {
		for b.Loop() {
			Mul(k[1], p)
		}
	})
	b.Run("base", func(b *testing.B) {
		for b.Loop() {
			MulBase(k[1])
		}
	})
	b.Run("hash", func(b *testing.B) {
		for b.Loop() {
			HashToGroup([]byte("a message"), "test")
		}
	})
	b.Run("read", func(b *testing.B) {
		enc := e[1].Append(nil)
		for b.Loop() {
			if _, err := ReadElement(enc); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("affine", func(b *testing.B) {
		for b.Loop() {
			p.Element()
		}
	})
	for _, n := range []int{2, 3, 64, 96, 128, 1792} {
		b.Run("straus/"+big.NewInt(int64(n)).String(), func(b *testing.B) {
			for b.Loop() {
				straus(k[:n], e[:n])
			}
		})
		b.Run("pippenger/"+big.NewInt(int64(n)).String(), func(b *testing.B) {
			for b.Loop() {
				pippenger(k[:n], e[:n])
			}
		})
	}
}
