// Package projection shortens real vectors by a public random linear map, and lengthens
// sums of them again: less to send, for an error that is known beforehand.
//
//	p, err := projection.New(1024, 256, seed) // one public seed for all who are summed
//	y := p.Apply(x)                           // 256 numbers, sent
//	estimate := p.Transpose(sum)              // 1024 numbers again
//
// The map is a subsampled randomized Hadamard transform (Ailon and Chazelle 2006; Tropp
// 2011). Of a vector x of d numbers, each is multiplied by a random sign, zeros fill up
// to D, the least power of two at or above d, the Walsh-Hadamard transform H (all
// elements +-1) is taken, and m of the D rows are kept, drawn without replacement. Each
// element of the map A is +-1/sqrt(m), and a vector costs about D log D additions.
//
// # The estimate and its error
//
// A^T y estimates x from y = A x. Over signs and rows it is unbiased, as A^T A has a
// diagonal of ones and elsewhere mean zero. In row i and column j != k, A_ij A_ik is s_j
// s_k H_ij H_ik/m. Over all D rows the signs H_ij H_ik add up to zero, so over m rows
// drawn without replacement their sum has variance m (D-m)/(D-1); and the random signs s
// make the terms of different k uncorrelated. Hence, exactly,
//
//	Var (A^T A x)_j = (|x|^2 - x_j^2) (D-m)/(m (D-1)),
//
// where [Loss] is the last factor. Independent signs in all elements (Achlioptas 2003)
// would give 1/m. Noise of variance s^2 in each number of y adds s^2 to each of the
// estimate's, for a column of A has norm 1; so the servers' noise costs a projected
// vector as much as another one. |A x|^2 has mean |x|^2.
//
// The map is public: it has no part in any privacy guarantee, which rests on what is done
// to y. It is the same for all whose vectors are summed. Two projections with one seed
// make the same error twice.
package projection

import (
	"crypto/sha3"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
)

// MaxLength is the longest vector that is projected.
const MaxLength = 1 << 24

// domain is the customization of cSHAKE128 whose input is the seed and both lengths, as
// big-endian 32-bit numbers. Its output is the signs, a bit each from the lowest bit of
// the first byte, 1 for minus, up to a whole byte; then what draws rows.
const domain = "starling projection"

// ErrLength is matched by every error about a length.
var ErrLength = errors.New("projection: length out of range")

// A Projection is one map, from vectors of From numbers to vectors of To. It is immutable
// and safe for concurrent use.
type Projection struct {
	from, size int
	signs      []byte
	rows       []uint32 // rising
	scale      float64  // 1/sqrt(To)
}

// New returns the map that the public seed stands for. It fails with [ErrLength] unless 1
// <= to <= from <= MaxLength.
func New(from, to int, seed [32]byte) (*Projection, error) {
	if from < 1 || from > MaxLength || to < 1 || to > from {
		return nil, fmt.Errorf("%w: from %d to %d numbers, want 1 <= to <= from <= %d", ErrLength, from, to, MaxLength)
	}
	p := &Projection{from: from, size: padded(from), signs: make([]byte, (from+7)/8), scale: 1 / math.Sqrt(float64(to))}
	var lengths [8]byte
	binary.BigEndian.PutUint32(lengths[:4], uint32(from))
	binary.BigEndian.PutUint32(lengths[4:], uint32(to))
	x := sha3.NewCSHAKE128(nil, []byte(domain))
	x.Write(seed[:]) // never fails
	x.Write(lengths[:])
	read(x, p.signs)
	p.rows = choose(x, p.size, to)
	return p, nil
}

// padded is the least power of two at or above n.
func padded(n int) int { return 1 << bits.Len(uint(n-1)) }

func read(r io.Reader, b []byte) {
	if _, err := io.ReadFull(r, b); err != nil {
		panic("projection: internal error: cSHAKE ended: " + err.Error())
	}
}

// choose draws m of n rows, every set of them with the same odds (Floyd's method:
// Bentley, "A Sample of Brilliance", 1987).
func choose(r io.Reader, n, m int) []uint32 {
	taken := make([]uint64, (n+63)/64)
	for j := n - m; j < n; j++ {
		t := uniform(r, uint32(j)+1)
		if taken[t/64]>>(t%64)&1 == 1 {
			t = uint32(j)
		}
		taken[t/64] |= 1 << (t % 64)
	}
	rows := make([]uint32, 0, m)
	for i, word := range taken {
		for ; word != 0; word &= word - 1 {
			rows = append(rows, uint32(64*i+bits.TrailingZeros64(word)))
		}
	}
	return rows
}

// uniform returns a uniform number below n, from little-endian words of 32 bits (Lemire
// 2019).
func uniform(r io.Reader, n uint32) uint32 {
	var b [4]byte
	for {
		read(r, b[:])
		product := uint64(binary.LittleEndian.Uint32(b[:])) * uint64(n)
		if uint32(product) >= -n%n {
			return uint32(product >> 32)
		}
	}
}

// From is the length of the vectors that it takes.
func (p *Projection) From() int { return p.from }

// To is the length of the vectors that it gives.
func (p *Projection) To() int { return len(p.rows) }

// Apply returns A x. x has length From and is not changed.
func (p *Projection) Apply(x []float64) []float64 {
	if len(x) != p.from {
		panic(fmt.Sprintf("projection: internal error: a vector of %d numbers, want %d", len(x), p.from))
	}
	work := make([]float64, p.size)
	for i, e := range x {
		work[i] = p.sign(i) * e
	}
	hadamard(work)
	out := make([]float64, len(p.rows))
	for i, row := range p.rows {
		out[i] = work[row] * p.scale
	}
	clear(work)
	return out
}

// Transpose returns A^T y, the unbiased estimate of the vector, or sum of vectors, whose
// projection is y. y has length To and is not changed.
func (p *Projection) Transpose(y []float64) []float64 {
	if len(y) != len(p.rows) {
		panic(fmt.Sprintf("projection: internal error: a projected vector of %d numbers, want %d", len(y), len(p.rows)))
	}
	work := make([]float64, p.size)
	for i, row := range p.rows {
		work[row] = y[i] * p.scale
	}
	hadamard(work)
	for i := range p.from {
		work[i] *= p.sign(i)
	}
	return work[:p.from:p.from]
}

func (p *Projection) sign(i int) float64 { return 1 - 2*float64(p.signs[i/8]>>(i%8)&1) }

// hadamard is the Walsh-Hadamard transform in place, in natural order: element (i, j) of
// its matrix is -1 where i and j have an odd number of bits in common, else 1. The length
// is a power of two.
func hadamard(x []float64) {
	for half := 1; half < len(x); half *= 2 {
		for i := 0; i < len(x); i += 2 * half {
			low, high := x[i:i+half], x[i+half:i+2*half]
			for j, a := range low {
				b := high[j]
				low[j], high[j] = a+b, a-b
			}
		}
	}
}

// Loss is the variance that the projection adds to a number x_j of a vector x that is
// estimated, over |x|^2 - x_j^2: (D-m)/(m (D-1)). 1 <= to <= from.
func Loss(from, to int) float64 {
	d, m := float64(padded(from)), float64(to)
	if d == 1 {
		return 0
	}
	return (d - m) / (m * (d - 1))
}

// Error is the expected Euclidean distance (the root of its mean square) of the estimate
// from a vector of length 1, without noise.
func Error(from, to int) float64 { return math.Sqrt(Loss(from, to) * float64(from-1)) }
