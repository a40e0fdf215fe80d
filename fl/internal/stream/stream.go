// Package stream draws the numbers of a simulation: all that is random in one follows from
// its seed, so that it can be run again.
//
// A stream is SHAKE128 of the seed and of what the numbers are for. It is for simulations
// alone: a device tosses its coins with crypto/rand.
package stream

import (
	"crypto/sha3"
	"encoding/binary"
	"math"
)

const domain = "starling fl simulation v1"

// A Stream is the random numbers of one use in a simulation. It is not safe for concurrent
// use.
type Stream struct {
	from *sha3.SHAKE
	buf  [1024]byte
	left int // bytes of buf that are not used yet
}

// New returns the stream of a seed for one use, at one step.
func New(seed uint64, use string, step uint64) *Stream {
	b := binary.BigEndian.AppendUint64([]byte(domain), seed)
	b = binary.BigEndian.AppendUint64(b, step)
	h := sha3.NewSHAKE128()
	h.Write(append(b, use...))
	return &Stream{from: h}
}

// Read fills b.
func (s *Stream) Read(b []byte) {
	for len(b) > 0 {
		if s.left == 0 {
			s.from.Read(s.buf[:])
			s.left = len(s.buf)
		}
		n := copy(b, s.buf[len(s.buf)-s.left:])
		b, s.left = b[n:], s.left-n
	}
}

// Uint64 is uniform.
func (s *Stream) Uint64() uint64 {
	var b [8]byte
	s.Read(b[:])
	return binary.BigEndian.Uint64(b[:])
}

// Uniform is in [0, 1), a multiple of 2^-53.
func (s *Stream) Uniform() float64 { return float64(s.Uint64()>>11) / (1 << 53) }

// Normal has mean 0 and variance 1, by the method of Box and Muller.
func (s *Stream) Normal() float64 {
	u, v := s.Uniform(), s.Uniform()
	return math.Sqrt(-2*math.Log1p(-u)) * math.Cos(2*math.Pi*v)
}
