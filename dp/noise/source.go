package noise

import (
	"encoding/binary"
	"io"
	"math/bits"
)

// maxBuffer is the most that a source reads ahead, in bytes.
const maxBuffer = 4096

// A source hands out uniform bits from r. It is local to one call of Sample, so the
// samplers may be shared.
type source struct {
	r    io.Reader
	buf  [maxBuffer]byte
	pos  int // next unread byte of buf[:end]
	end  int
	size int // bytes asked of r at a time
	pool uint64
	left uint // unread bits of pool
}

// init prepares s for about n draws, so that a single draw does not read (and throw away)
// a whole buffer.
func (s *source) init(r io.Reader, n int) {
	s.r = r
	s.size = maxBuffer
	if n < maxBuffer/64 {
		s.size = max(64, 64*n)
	}
}

// wipe forgets the bits, which determine the noise.
func (s *source) wipe() {
	clear(s.buf[:])
	s.pool, s.left, s.pos, s.end = 0, 0, 0, 0
}

// fill makes at least eight bytes available.
func (s *source) fill() {
	n := copy(s.buf[:], s.buf[s.pos:s.end])
	m := min(s.size, maxBuffer-n)
	if _, err := io.ReadFull(s.r, s.buf[n:n+m]); err != nil {
		// crypto/rand never fails; only a test's reader can end here.
		panic("noise: internal error: the source of random bits failed: " + err.Error())
	}
	s.pos, s.end = 0, n+m
}

// uint64 returns 64 uniform bits.
func (s *source) uint64() uint64 {
	if s.end-s.pos < 8 {
		s.fill()
	}
	v := binary.LittleEndian.Uint64(s.buf[s.pos:])
	s.pos += 8
	return v
}

// uint16 returns 16 uniform bits.
func (s *source) uint16() uint64 {
	if s.end-s.pos < 2 {
		s.fill()
	}
	v := binary.LittleEndian.Uint16(s.buf[s.pos:])
	s.pos += 2
	return uint64(v)
}

// bit returns one uniform bit.
func (s *source) bit() bool {
	if s.left == 0 {
		s.pool, s.left = s.uint64(), 64
	}
	b := s.pool&1 == 1
	s.pool >>= 1
	s.left--
	return b
}

// uniform returns a uniform integer in [0, n), n >= 1 (Lemire, "Fast Random Integer
// Generation in an Interval", 2019).
func (s *source) uniform(n uint64) uint64 {
	hi, lo := bits.Mul64(s.uint64(), n)
	if lo < n {
		for reject := -n % n; lo < reject; {
			hi, lo = bits.Mul64(s.uint64(), n)
		}
	}
	return hi
}
