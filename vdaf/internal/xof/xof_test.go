package xof

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/starling-agg/starling/vdaf/internal/field"
)

// turbo is TurboSHAKE128 of a whole message, written from the definition: a byte-wise
// sponge.
func turbo(msg []byte, n int) []byte {
	msg = append(bytes.Clone(msg), separator)
	for len(msg)%rate != 0 {
		msg = append(msg, 0)
	}
	msg[len(msg)-1] ^= 0x80
	var s [25]uint64
	var out []byte
	for len(msg) > 0 {
		for i := range words {
			s[i] ^= binary.LittleEndian.Uint64(msg[8*i:])
		}
		permuteGo(&s)
		msg = msg[rate:]
	}
	for len(out) < n {
		for i := range words {
			out = binary.LittleEndian.AppendUint64(out, s[i])
		}
		permuteGo(&s)
	}
	return out[:n]
}

// RFC 9861 section 5: TurboSHAKE128 of the empty message, D = 1Fh, covers the permutation
// and the padding but with another separator; it is run on the permutation directly.
func TestPermutation(t *testing.T) {
	var s [25]uint64
	s[0] = 0x1F
	s[words-1] ^= 1 << 63
	permute(&s)
	var out []byte
	for i := range 4 {
		out = binary.LittleEndian.AppendUint64(out, s[i])
	}
	const want = "1e415f1c5983aff2169217277d17bb538cd945a397ddec541f1ce41af2c1b74c"
	if hex.EncodeToString(out) != want {
		t.Fatalf("TurboSHAKE128 of nothing is %x", out)
	}
}

func TestPermuteMatchesReference(t *testing.T) {
	var a, b [25]uint64
	for i := range a {
		a[i] = uint64(i) * 0x9E3779B97F4A7C15
	}
	b = a
	for range 100 {
		permute(&a)
		permuteGo(&b)
		if a != b {
			t.Fatal("permute and permuteGo differ")
		}
	}
}

// Every length of context shifts the binder to another offset in its lane and block.
func TestAbsorbOffsets(t *testing.T) {
	tag := [8]byte{1, 2, 3, 4, 5, 6, 7, 8}
	seed := bytes.Repeat([]byte{9}, SeedSize)
	data := make([]byte, 8*100)
	for i := range data {
		data[i] = byte(i*i>>3 + i)
	}
	v := make([]uint64, 100)
	for i := range v {
		v[i] = binary.LittleEndian.Uint64(data[8*i:])
	}
	for ctxLen := range 2 * rate {
		ctx := bytes.Repeat([]byte{0xAA}, ctxLen)
		msg := binary.LittleEndian.AppendUint16(nil, uint16(8+ctxLen))
		msg = append(msg, tag[:]...)
		msg = append(msg, ctx...)
		msg = append(msg, SeedSize)
		msg = append(msg, seed...)
		msg = append(msg, 7)
		msg = append(msg, data...)
		want := turbo(msg, 3*rate+5)

		var x, y XOF
		x.Init(&tag, ctx, seed)
		x.AbsorbByte(7)
		y = x
		x.Absorb(data)
		y.AbsorbWords(v[:ctxLen%7])
		y.AbsorbWords(v[ctxLen%7 : 50])
		y.AbsorbWords(v[50:])
		got := make([]byte, len(want))
		x.Read(got)
		if !bytes.Equal(got, want) {
			t.Fatalf("context of %d bytes: Absorb differs", ctxLen)
		}
		w := make([]uint64, 70)
		y.Words(w[:3])
		y.Words(w[3:])
		if b := (field.Field64{}).Append(nil, w); !bytes.Equal(b[:len(want)], want) {
			t.Fatalf("context of %d bytes: AbsorbWords or Words differs", ctxLen)
		}
	}
}

// Expand must drop candidates exactly as the specification does, in first, last and
// adjacent places. Streams with rejections are too rare to find, so the state is preset:
// the stream then starts with the state's own words.
func TestExpandRejects(t *testing.T) {
	for _, f := range []field.Field{field.Field64{}, field.Field128{}} {
		l := f.Limbs()
		for mask := range 64 {
			var x XOF
			x.squeezed = true
			for i := range x.s {
				x.s[i] = uint64(i + 1)
				if mask>>(i/l)&1 == 1 && i/l < 6 {
					x.s[i] = 1<<64 - 1 // not reduced in either field
				}
			}
			y := x
			dst := make([]uint64, 14*l)
			x.Expand(f, dst)
			stream := make([]uint64, 40*l)
			y.Words(stream)
			var want []uint64
			for i := 0; len(want) < len(dst); i += l {
				if f.Reduced(stream[i:i+l]) < 0 {
					want = append(want, stream[i:i+l]...)
				}
			}
			for i := range dst {
				if dst[i] != want[i] {
					t.Fatalf("field %d, mask %06b: word %d is %x, want %x", f.ID(), mask, i, dst[i], want[i])
				}
			}
		}
	}
}

func BenchmarkPermute(b *testing.B) {
	var s [25]uint64
	for b.Loop() {
		permute(&s)
	}
}
