package p256

import (
	"crypto/sha256"
	"encoding/binary"
)

// expand is expand_message_xmd of RFC 9380 section 5.3.1 with SHA-256: as many bytes as
// out has, at most 255 * 32, of a message and a domain separation tag of at most 255
// bytes.
func expand(out, msg []byte, tag string) {
	if len(tag) > 255 || len(out) > 255*sha256.Size {
		panic("p256: internal error: a domain separation tag, or what is asked of it, is too long")
	}
	suffix := append([]byte(tag), byte(len(tag)))
	h := sha256.New()
	h.Write(make([]byte, h.BlockSize()))
	h.Write(msg)
	h.Write(binary.BigEndian.AppendUint16(nil, uint16(len(out))))
	h.Write([]byte{0})
	h.Write(suffix)
	first := h.Sum(nil)
	block := make([]byte, sha256.Size)
	for i := byte(1); len(out) > 0; i++ {
		for j := range block {
			block[j] ^= first[j]
		}
		h.Reset()
		h.Write(block)
		h.Write([]byte{i})
		h.Write(suffix)
		block = h.Sum(block[:0])
		out = out[copy(out, block):]
	}
}

// HashToScalar is hash_to_field of RFC 9380 section 5.2 with one element of the field of
// scalars, L = 48. Constant time for messages of one length. A tag has at most 255 bytes.
func HashToScalar(msg []byte, tag string) Scalar {
	var b [wideSize]byte
	expand(b[:], msg, tag)
	return wideScalar(&b)
}

// HashToPoint is hash_to_curve of RFC 9380 with the suite P256_XMD:SHA-256_SSWU_RO_.
// Constant time for messages of one length. A tag has at most 255 bytes.
func HashToPoint(msg []byte, tag string) *Point {
	var b [2 * wideSize]byte
	expand(b[:], msg, tag)
	var u0, u1 fe
	u0.setWide((*[wideSize]byte)(b[:wideSize]))
	u1.setWide((*[wideSize]byte)(b[wideSize:]))
	p, q := simplifiedSWU(&u0), simplifiedSWU(&u1)
	return p.Point().Add(q.Point())
}

// HashToGroup is [HashToPoint] in affine coordinates. It panics for a message that is
// hashed to the identity, which nobody can find: of random ones it is one in 2^256.
func HashToGroup(msg []byte, tag string) Element {
	e, ok := HashToPoint(msg, tag).Element()
	if !ok {
		panic("p256: internal error: a message was hashed to the identity")
	}
	return e
}

var (
	// sswuZ is Z = -10 of the suite, and sswuRoot a square root of -Z.
	sswuZ, sswuRoot = sswuConstants()
	// minus3 is the curve's A.
	minus3 = small(3).negated()
)

func small(n uint64) fe {
	var b [32]byte
	binary.BigEndian.PutUint64(b[24:], n)
	return feMust(b)
}

func (x fe) negated() fe { return *x.neg(&x) }

func sswuConstants() (z, root fe) {
	ten := small(10)
	var again fe
	if again.square(root.root(&ten)).equal(&ten) == 0 {
		panic("p256: internal error: 10 has no square root")
	}
	return ten.negated(), root
}

// simplifiedSWU returns the point that u is mapped to (RFC 9380 section 6.6.2 and appendix
// F.2). Constant time.
func simplifiedSWU(u *fe) Element {
	var zu2, t, num, den, square, gxNum, gxDen fe
	zu2.mul(zu2.square(u), &sswuZ)
	t.add(t.square(&zu2), &zu2) // Z^2 u^4 + Z u^2
	num.mul(num.add(&t, &feOne), &curveB)
	den.pick(&sswuZ, t.neg(&t), t.equal(&fe{}))
	den.mul(&den, &minus3) // x1 = num/den
	// g(x1) = gxNum/gxDen with gxDen = den^3.
	square.square(&den)
	gxNum.square(&num)
	gxNum.add(&gxNum, t.mul(&square, &minus3))
	gxNum.mul(&gxNum, &num)
	gxDen.mul(&square, &den)
	gxNum.add(&gxNum, t.mul(&gxDen, &curveB))
	y1, inverse, is := ratioRoot(&gxNum, &gxDen)
	// The other candidate is x2 = Z u^2 x1, whose g has the root Z u^3 y1.
	var x2, y2, minus fe
	x2.mul(&zu2, &num)
	y2.mul(y2.mul(&zu2, u), &y1)
	var e Element
	e.x.pick(&num, &x2, is)
	e.x.mul(&e.x, square.mul(&square, &inverse)) // 1/den = den^2/gxDen
	e.y.pick(&y1, &y2, is)
	e.y.pick(minus.neg(&e.y), &e.y, u.odd()^e.y.odd())
	return e
}

// ratioRoot returns a square root of u/v and 1 if there is one, else a square root of Z
// u/v and 0 (RFC 9380 appendix F.2.1.2), and 1/v, for u and v other than 0; no point of
// P-256 has y = 0, so that u is not. Constant time.
//
// The power w that makes the root makes the inverse too: with t = u v^3, t w^2 is t to
// (p-1)/2, which is 1 if u/v has a root and -1 if not.
func ratioRoot(u, v *fe) (y, inverse fe, is uint64) {
	var uv, t, w, other, minus fe
	uv.mul(u, v)
	t.mul(t.square(v), &uv) // u v^3
	w.quarter(&t)
	y.mul(&w, &uv)
	other.mul(&y, &sswuRoot)
	t.mul(t.square(&y), v)
	is = t.equal(u)
	y.pick(&y, &other, is)
	inverse.mul(t.square(&w), inverse.mul(&uv, v)) // w^2 u v^2
	inverse.pick(&inverse, minus.neg(&inverse), is)
	return y, inverse, is
}
