// Package xof implements XofTurboShake128 (VDAF-18 section 6.2.1): TurboSHAKE128 (RFC
// 9861) over a length-prefixed domain separation tag, a seed and a binder, read as bytes,
// as seeds or as field elements by rejection. [HMAC] does the same with HMAC-SHA256 and
// AES-128.
//
// Work depends on lengths only, except that Expand reveals how many candidates were at or
// above the modulus: the odds are below 2^-11 an element (Field32), 2^-15 (Field40),
// 2^-32 (Field64) and 2^-59 (Field128), whatever the seed.
package xof

import (
	"encoding/binary"

	"github.com/starling-agg/starling/vdaf/internal/field"
)

// SeedSize is the length of a seed in bytes.
const SeedSize = 32

const (
	rate  = 168 // bytes of a block of TurboSHAKE128
	words = rate / 8
	// separator is the domain byte D of TurboSHAKE.
	separator = 1
)

// XOF is one stream: Init, then any number of Absorb calls for the binder, then reads. It
// holds no pointers and may be copied, to share a common prefix.
type XOF struct {
	s        [25]uint64
	pos      int // bytes into the block
	squeezed bool
}

// Init starts a stream for a domain separation tag (given in two parts) and a seed.
func (x *XOF) Init(tag *[8]byte, ctx, seed []byte) {
	*x = XOF{}
	n := len(tag) + len(ctx)
	if n > 1<<16-1 || len(seed) > 255 {
		panic("xof: internal error: domain separation tag or seed too long")
	}
	x.s[0] = uint64(n) // two bytes, little-endian
	x.pos = 2
	x.Absorb(tag[:])
	x.Absorb(ctx)
	x.AbsorbByte(byte(len(seed)))
	x.Absorb(seed)
}

// AbsorbByte adds one byte to the binder.
func (x *XOF) AbsorbByte(b byte) {
	x.s[x.pos>>3] ^= uint64(b) << (x.pos & 7 * 8)
	if x.pos++; x.pos == rate {
		permute(&x.s)
		x.pos = 0
	}
}

// Absorb adds bytes to the binder.
func (x *XOF) Absorb(b []byte) {
	for len(b) >= 8 {
		x.absorb(binary.LittleEndian.Uint64(b))
		b = b[8:]
	}
	for _, c := range b {
		x.AbsorbByte(c)
	}
}

// AbsorbWords adds the little-endian bytes of the words of v: the encoding of a vector of
// field elements.
func (x *XOF) AbsorbWords(v []uint64) {
	if x.pos&7 != 0 {
		x.absorbShifted(v)
		return
	}
	for len(v) > 0 {
		at := x.pos >> 3
		n := min(words-at, len(v))
		for i, w := range v[:n] {
			x.s[at+i] ^= w
		}
		v = v[n:]
		if x.pos += 8 * n; x.pos == rate {
			permute(&x.s)
			x.pos = 0
		}
	}
}

// absorbShifted is AbsorbWords where words straddle lanes.
func (x *XOF) absorbShifted(v []uint64) {
	sh := uint(x.pos & 7 * 8)
	at := x.pos >> 3
	for len(v) > 0 {
		n := min(words-at, len(v))
		var carry uint64
		for i, w := range v[:n] {
			x.s[at+i] ^= w<<(sh&63) | carry
			carry = w >> ((64 - sh) & 63)
		}
		v = v[n:]
		if at += n; at == words {
			permute(&x.s)
			at = 0
		}
		x.s[at] ^= carry
	}
	x.pos = at<<3 | x.pos&7
}

func (x *XOF) absorb(w uint64) {
	at, sh := x.pos>>3, uint(x.pos&7*8)
	x.s[at] ^= w << sh
	if x.pos += 8; x.pos >= rate {
		permute(&x.s)
		x.pos -= rate
	}
	// The part that did not fit goes to the next lane; for sh = 0 the shift by 64 leaves
	// zero.
	x.s[x.pos>>3] ^= w >> (64 - sh)
}

// pad closes the input. Afterwards pos counts bytes read of the block.
func (x *XOF) pad() {
	if x.squeezed {
		return
	}
	x.s[x.pos>>3] ^= separator << (x.pos & 7 * 8)
	x.s[words-1] ^= 1 << 63
	permute(&x.s)
	x.pos, x.squeezed = 0, true
}

// Words reads len(dst) little-endian words. It may follow only reads of whole words.
func (x *XOF) Words(dst []uint64) {
	x.pad()
	if x.pos&7 != 0 {
		panic("xof: internal error: words read after a part of a word")
	}
	for len(dst) > 0 {
		if x.pos == rate {
			permute(&x.s)
			x.pos = 0
		}
		n := copy(dst, x.s[x.pos>>3:words])
		dst = dst[n:]
		x.pos += 8 * n
	}
}

// Read fills b with the next bytes of the stream.
func (x *XOF) Read(b []byte) {
	x.pad()
	for len(b) > 0 {
		if x.pos == rate {
			permute(&x.s)
			x.pos = 0
		}
		if x.pos&7 == 0 && len(b) >= 8 {
			n := min(words-x.pos>>3, len(b)>>3)
			for i, w := range x.s[x.pos>>3:][:n] {
				binary.LittleEndian.PutUint64(b[8*i:], w)
			}
			b = b[8*n:]
			x.pos += 8 * n
			continue
		}
		b[0] = byte(x.s[x.pos>>3] >> (x.pos & 7 * 8))
		b = b[1:]
		x.pos++
	}
}

// Seed reads one seed (derive_seed).
func (x *XOF) Seed(seed *[SeedSize]byte) {
	var w [SeedSize / 8]uint64
	x.Words(w[:])
	for i, v := range w {
		binary.LittleEndian.PutUint64(seed[8*i:], v)
	}
}

// Expand fills dst with raw elements of f (next_vec): candidates that are not reduced are
// passed over.
func (x *XOF) Expand(f field.Field, dst []uint64) {
	x.Words(dst)
	l := f.Limbs()
	for {
		i := f.Reduced(dst)
		if i < 0 {
			return
		}
		copy(dst[i*l:], dst[(i+1)*l:])
		x.Words(dst[len(dst)-l:])
		dst = dst[i*l:]
	}
}
