package xof

import (
	"bytes"
	"crypto/aes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/starling-agg/starling/vdaf/internal/field"
)

// hmacStream is the XOF written from its definition: one block of AES after another.
func hmacStream(h []byte, n int) []byte {
	block, err := aes.NewCipher(h[:16])
	if err != nil {
		panic(err)
	}
	in, out := bytes.Clone(h[16:]), make([]byte, 0, n+16)
	for len(out) < n {
		out = append(out, make([]byte, 16)...)
		block.Encrypt(out[len(out)-16:], in)
		binary.BigEndian.PutUint64(in[8:], binary.BigEndian.Uint64(in[8:])+1)
	}
	return out[:n]
}

func TestHMAC(t *testing.T) {
	tag := [8]byte{1, 2, 3, 4, 5, 6, 7, 8}
	seed, ctx := bytes.Repeat([]byte{9}, SeedSize), bytes.Repeat([]byte{3}, 300)
	m := hmac.New(sha256.New, seed)
	m.Write([]byte{308 & 255, 308 >> 8})
	m.Write(tag[:])
	m.Write(ctx)
	m.Write([]byte{7, 'a', 'b'})
	want := hmacStream(m.Sum(nil), 100000)

	var x HMAC
	for range 2 { // the second time over a used one
		x.Init(&tag, ctx, seed)
		x.AbsorbByte(7)
		x.Absorb([]byte("ab"))
		var got []byte
		for n := 1; len(got) < len(want)-n; n = n*3/2 + 1 {
			b := make([]byte, n)
			x.Read(b)
			got = append(got, b...)
		}
		if !bytes.Equal(got, want[:len(got)]) {
			t.Fatal("Read differs from the definition")
		}
	}
	for _, f := range []field.Field{field.Field32, field.Field40, field.Field64{}, field.Field128{}} {
		l, size := f.Limbs(), f.Size()
		for _, n := range []int{1, 2, 1000, 3000} {
			x.Init(&tag, ctx, seed)
			x.Absorb([]byte{7, 'a', 'b'})
			got := make([]uint64, n*l)
			x.Expand(f, got)
			var w []uint64
			one := make([]uint64, l)
			for at := 0; len(w) < n*l; at += size {
				if f.Decode(one, want[at:at+size]) {
					w = append(w, one...)
				}
			}
			if !slices.Equal(got, w) {
				t.Errorf("field %d: Expand of %d differs from the definition", f.ID(), n)
			}
		}
	}
}

// The counter is eight bytes wide: it returns to zero and does not carry into the other
// eight.
func TestHMACCounterWraps(t *testing.T) {
	h := bytes.Repeat([]byte{0xFF}, 32)
	for _, blocks := range []uint64{0, 1, 2, 5, 1 << 60, 1<<60 - 1} {
		binary.BigEndian.PutUint64(h[24:], -blocks)
		want := hmacStream(h, 200)
		for _, cut := range []int{0, 1, 16, 31, 32, 79, 80, 81, 200} {
			var x HMAC
			x.open(h)
			got := make([]byte, 200)
			x.Read(got[:cut])
			x.Read(got[cut:])
			if !bytes.Equal(got, want) {
				t.Errorf("%d blocks before zero, cut at %d: stream differs", blocks, cut)
			}
		}
	}
}

// Expand must drop candidates in first, last and adjacent places: two fields' worth of a
// stream that is searched for.
func TestHMACExpandRejects(t *testing.T) {
	var tag [8]byte
	rejected := 0
	for s := range 200 {
		seed := make([]byte, SeedSize)
		binary.LittleEndian.PutUint64(seed, uint64(s))
		var x, y HMAC
		x.Init(&tag, nil, seed)
		y.Init(&tag, nil, seed)
		got, b := make([]uint64, 2000), make([]byte, 4*2100)
		x.Expand(field.Field32, got)
		y.Read(b)
		i := 0
		for at := 0; i < len(got); at += 4 {
			c := uint64(binary.LittleEndian.Uint32(b[at:]))
			if c >= 1<<32-1<<20+1 {
				rejected++
				continue
			}
			if got[i] != c {
				t.Fatalf("seed %d: element %d is %d, want %d", s, i, got[i], c)
			}
			i++
		}
	}
	if rejected < 40 { // about 98 are expected, 40 or fewer with odds below 1e-10
		t.Errorf("only %d candidates were rejected", rejected)
	}
}
