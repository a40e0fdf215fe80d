package xof

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/starling-agg/starling/vdaf/internal/field"
)

// HMAC is XofHmacSha256Aes128 (draft-chen-cfrg-vdaf-pine-02,
// poc/xof_hmac_sha256_aes128.py): with h the HMAC-SHA256 of the input under the seed, the
// stream is AES-128 in counter mode, key h[:16], first counter block h[16:], of which the
// last eight bytes count. Where processors have instructions for both it is many times
// faster than TurboSHAKE128.
//
// One stream: Init, then any number of Absorb calls for the binder, then reads. A stream
// allocates a few hundred bytes. The zero HMAC is ready for Init.
type HMAC struct {
	mac    hash.Hash // while absorbing
	block  cipher.Block
	ctr    cipher.Stream
	iv     [aes.BlockSize]byte
	left   uint64 // bytes until the counter returns to zero, if below 2^64
	far    bool   // it does not within 2^64 bytes
	buffer []byte
}

// expandChunk is the number of candidates that Expand reads at a time.
const expandChunk = 1024

// Init starts a stream for a domain separation tag (given in two parts) and a seed: what
// is hashed begins with the tag's length in two little-endian bytes, as in
// XofTurboShake128.
func (x *HMAC) Init(tag *[8]byte, ctx, seed []byte) {
	n := len(tag) + len(ctx)
	if n > 1<<16-1 {
		panic("xof: internal error: domain separation tag too long")
	}
	x.Start(seed)
	x.Absorb([]byte{byte(n), byte(n >> 8)})
	x.Absorb(tag[:])
	x.Absorb(ctx)
}

// Start starts a stream of which nothing but the seed is fixed.
func (x *HMAC) Start(seed []byte) {
	x.mac = hmac.New(sha256.New, seed)
	x.ctr = nil
}

// AbsorbByte adds one byte to the binder.
func (x *HMAC) AbsorbByte(b byte) { x.mac.Write([]byte{b}) }

// Absorb adds bytes to the binder.
func (x *HMAC) Absorb(b []byte) { x.mac.Write(b) }

func (x *HMAC) open(h []byte) {
	block, err := aes.NewCipher(h[:16])
	if err != nil {
		panic("xof: internal error: " + err.Error())
	}
	x.block = block
	copy(x.iv[:], h[16:])
	blocks := -binary.BigEndian.Uint64(h[24:])
	x.left = blocks * aes.BlockSize
	x.far = blocks == 0 || blocks >= 1<<60
	x.ctr = cipher.NewCTR(block, x.iv[:])
}

// Read fills b with the next bytes of the stream.
func (x *HMAC) Read(b []byte) {
	if x.ctr == nil {
		x.open(x.mac.Sum(nil))
	}
	clear(b)
	if !x.far && uint64(len(b)) >= x.left { // 1 in 2^40 streams of 16 MB: the standard library would carry into the nonce
		x.ctr.XORKeyStream(b[:x.left], b[:x.left])
		b = b[x.left:]
		clear(x.iv[8:])
		x.ctr = cipher.NewCTR(x.block, x.iv[:])
		x.far = true
	}
	x.left -= uint64(len(b))
	x.ctr.XORKeyStream(b, b)
}

// Expand fills dst with raw elements of f: candidates that are not reduced are passed over.
func (x *HMAC) Expand(f field.Field, dst []uint64) {
	l, size := f.Limbs(), f.Size()
	if len(x.buffer) < expandChunk*size {
		x.buffer = make([]byte, expandChunk*size)
	}
	for len(dst) > 0 {
		n := min(expandChunk, len(dst)/l)
		b, part := x.buffer[:n*size], dst[:n*l]
		x.Read(b)
		f.Load(part, b)
		for at := 0; ; {
			i := f.Reduced(part[at:])
			if i < 0 {
				break
			}
			at += i * l
			copy(part[at:], part[at+l:])
			part = part[:len(part)-l]
		}
		dst = dst[len(part):]
	}
}
