package cloak

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"

	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/shuffle/cloak/internal/twin"
)

// A Message is what a shuffler mixes: one of the residues into which the values of a block
// of entries are split. By itself it is uniformly random.
type Message struct {
	// Block is which of the blocks it is for, from 0.
	Block uint32
	// Residues are below the modulus, one for each entry of the block.
	Residues []uint64
}

// fixedBits is how many binary places of a value are read.
const fixedBits = 62

// Encode is algorithm 1 with the noise of the user's own: it returns Messages messages for
// each block, of the values of which there is one for every entry. Values are between 0 and 1,
// or the error is a *RangeError; they are read to 62 binary places and rounded at random
// to one of the two nearest multiples of 1/k, such that the expected value is the value.
//
// A user encodes once for one analysis: messages of a second encoding are a second user's.
func (p *Params) Encode(values []float64) ([]Message, error) {
	for _, x := range values {
		if !(x >= 0 && x <= 1) {
			return nil, &RangeError{"a value", x, "0 to 1"}
		}
	}
	src := &source{r: p.src}
	return p.encode(src, len(values), func(entry int) uint64 { return src.rounded(values[entry], p.precision) })
}

// EncodeUnits is Encode of values that are given in units of 1/k, from 0 to k, exactly.
func (p *Params) EncodeUnits(values []uint64) ([]Message, error) {
	for _, x := range values {
		if x > p.precision {
			return nil, &RangeError{"a value in units", float64(x), fmt.Sprintf("0 to %d", p.precision)}
		}
	}
	return p.encode(&source{r: p.src}, len(values), func(entry int) uint64 { return values[entry] })
}

// encode splits as many values as there are entries, each from 0 to k.
func (p *Params) encode(src *source, n int, value func(entry int) uint64) ([]Message, error) {
	if n != p.entries {
		return nil, &RangeError{"the number of values", float64(n), fmt.Sprint(p.entries)}
	}
	drawn := make([]int64, p.entries)
	defer clear(drawn)
	p.noise.Sample(drawn)
	messages, residues := make([]Message, 0, p.Blocks()*p.messages), make([]uint64, p.entries*p.messages)
	for block := range p.Blocks() {
		from, to := p.Block(block)
		first := len(messages)
		for range p.messages {
			messages = append(messages, Message{uint32(block), residues[: to-from : to-from]})
			residues = residues[to-from:]
		}
		for entry := from; entry < to; entry++ {
			y := p.add(value(entry), p.residue(src.sometimes(drawn[entry], p.rate)))
			for i := range p.messages - 1 {
				r := src.uniform(p.modulus)
				y = p.add(y, p.modulus-r)
				messages[first+i].Residues[entry-from] = r
			}
			messages[len(messages)-1].Residues[entry-from] = y
		}
	}
	return messages, nil
}

// add returns a+b modulo N, for a < N and b <= N.
func (p *Params) add(a, b uint64) uint64 {
	d, borrow := bits.Sub64(a+b, p.modulus, 0)
	return d + p.modulus&-borrow
}

// residue returns w modulo N. Division of 64-bit words takes some processors a time that
// depends on w: on noise, and on nobody's value.
func (p *Params) residue(w int64) uint64 {
	r := w % int64(p.modulus)
	return uint64(r + int64(p.modulus)&(r>>63))
}

// A source hands out uniform bits. It is local to one call.
type source struct {
	r   io.Reader
	buf [256]byte
	n   int // unread bytes, at the end of buf
}

func (s *source) uint64() uint64 {
	if s.n == 0 {
		if _, err := io.ReadFull(s.r, s.buf[:]); err != nil {
			// crypto/rand never fails; only a test's reader can end here.
			panic("cloak: internal error: the source of random bits failed: " + err.Error())
		}
		s.n = len(s.buf)
	}
	v := binary.LittleEndian.Uint64(s.buf[len(s.buf)-s.n:])
	s.n -= 8
	return v
}

// uniform returns a uniform residue below n. The number of words that it rejects is
// independent of the residue.
func (s *source) uniform(n uint64) uint64 {
	for mask := ^uint64(0) >> bits.LeadingZeros64(n); ; {
		if v := s.uint64() & mask; v < n {
			return v
		}
	}
}

// rounded returns x k, rounded at random to one of the two nearest integers.
func (s *source) rounded(x float64, k uint64) uint64 {
	hi, lo := bits.Mul64(uint64(int64(x*(1<<fixedBits))), k)
	const fraction = 1<<fixedBits - 1
	up := (lo&fraction + s.uint64()&fraction) >> fixedBits
	return hi<<(64-fixedBits) | lo>>fixedBits + up
}

// sometimes returns w with probability rate 2^-64, or always if rate is 0, and else 0.
func (s *source) sometimes(w int64, rate uint64) int64 {
	if rate == 0 {
		return w
	}
	_, below := bits.Sub64(s.uint64(), rate, 0)
	return w & -int64(below)
}

func init() {
	twin.With = func(params any, r io.Reader, sampler func(noise.Sampler) noise.Sampler) any {
		c := *params.(*Params)
		c.src, c.noise = r, sampler(c.noise)
		return &c
	}
}
