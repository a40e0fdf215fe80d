package local

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"

	"github.com/starling-agg/starling/dp/local/internal/twin"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/internal/outward"
)

// A probability is a multiple of 2^-64 below 1. A draw by it is one comparison of 64
// uniform bits.
type probability uint64

// float returns p, to half an ulp.
func (p probability) float() float64 { return float64(p) * 0x1p-64 }

// not returns 1-p, to half an ulp.
func (p probability) not() float64 {
	if p == 0 {
		return 1
	}
	return (-p).float()
}

// exactly returns the least probability that is at least x, for an x in [0, 1).
func exactly(x float64) probability { return probability(math.Ceil(x * 0x1p64)) }

// atLeast returns a probability that is at least x and hardly more, for an x in [0, 1)
// that was computed with a relative error below that of outward.Above.
func atLeast(x float64) probability {
	x = math.Ceil(outward.Above(x) * 0x1p64)
	if x >= 0x1p64 {
		return math.MaxUint64
	}
	return probability(x)
}

// atMost returns a probability that is at most x and hardly less.
func atMost(x float64) probability {
	return probability(min(math.Floor(outward.Beneath(x)*0x1p64), 0x1.fffffffffffffp63))
}

// lie returns the probability other/(truth + other), rounded up, as a sum that keeps its
// precision on both sides of 1/2.
func lie(truth, other float64) probability {
	if other <= truth {
		return atLeast(other / (truth + other))
	}
	return -atMost(truth / (truth + other))
}

// A source hands out uniform bits from r. It is local to one call.
type source struct {
	r    io.Reader
	buf  [256]byte
	pos  int
	size int // bytes asked of r at a time
}

// newSource prepares for about n 64-bit draws.
func newSource(r io.Reader, n int) *source {
	s := &source{r: r, size: min(256, 8*max(1, n))}
	s.pos = s.size
	return s
}

// wipe forgets the bits, which tell the truth from the answer.
func (s *source) wipe() { clear(s.buf[:]); s.pos = s.size }

// fill reads all of b.
func fill(r io.Reader, b []byte) {
	if _, err := io.ReadFull(r, b); err != nil {
		// Neither crypto/rand nor an expanded seed ends; only a test's reader can.
		panic("local: internal error: the source of random bits failed: " + err.Error())
	}
}

// uint64 returns 64 uniform bits.
func (s *source) uint64() uint64 {
	if s.pos == s.size {
		fill(s.r, s.buf[:s.size])
		s.pos = 0
	}
	v := binary.LittleEndian.Uint64(s.buf[s.pos:])
	s.pos += 8
	return v
}

// below is 1 with probability exactly p, else 0, without a branch.
func (s *source) below(p probability) uint64 {
	_, borrow := bits.Sub64(s.uint64(), uint64(p), 0)
	return borrow
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

// choose returns a if bit is 1 and b if it is 0.
func choose(bit, a, b uint64) uint64 { return b ^ (-bit & (a ^ b)) }

// equal is 1 if a = b, else 0.
func equal(a, b uint64) uint64 {
	d := a ^ b
	return ((d | -d) >> 63) ^ 1
}

// logUp returns at least the natural logarithm of x, for an x that was computed with a
// relative error below 10^-15.
func logUp(x float64) float64 {
	l := math.Log(x)
	return l + 1e-15*math.Abs(l) + 2e-15
}

func init() {
	twin.WithNoise = func(gaussian any, with func(*noise.DiscreteGaussian) *noise.DiscreteGaussian) any {
		c := *gaussian.(*Gaussian)
		c.noise = with(c.noise)
		return &c
	}
	twin.WithSource = func(randomizer any, r io.Reader) any {
		switch v := randomizer.(type) {
		case *Response:
			c := *v
			c.src = r
			return &c
		case *RAPPOR:
			c := *v
			c.src = r
			return &c
		case *Projective:
			c := *v
			c.src = r
			return &c
		case *Question:
			c := *v
			c.response = twin.WithSource(v.response, r).(*Response)
			return &c
		case *RandomGroup:
			c := *v
			c.src = r
			return &c
		case *Rounding:
			c := *v
			c.src = r
			return &c
		}
		panic(fmt.Sprintf("local: internal error: no twin for %T", randomizer))
	}
}

var system io.Reader = rand.Reader
