package accountant

import (
	"math"
	"math/bits"
	"sync"
)

// An fft transforms real sequences of length n = 2^k >= 4.
type fft struct {
	n       int
	twiddle []complex128 // e^(-2 pi i j/n), j < n/2
	// those of each round of half from the second on, side by side: reading far apart
	// costs more than the sums
	rounds [][]complex128
	order  []int32 // bit reversal of n/2
}

var plans sync.Map // int -> *fft

// plan returns the transform of length n, a power of two of at least 4.
func plan(n int) *fft {
	if p, ok := plans.Load(n); ok {
		return p.(*fft)
	}
	f := &fft{n: n, twiddle: make([]complex128, n/2), order: make([]int32, n/2)}
	for j := range f.twiddle {
		s, c := math.Sincos(2 * math.Pi * float64(j) / float64(n))
		f.twiddle[j] = complex(c, -s)
	}
	for size := 4; size <= n/2; size *= 2 {
		round := make([]complex128, size/2)
		for j := range round {
			round[j] = f.twiddle[j*(n/size)]
		}
		f.rounds = append(f.rounds, round)
	}
	k := bits.TrailingZeros(uint(n / 2))
	for i := range f.order {
		f.order[i] = int32(bits.Reverse32(uint32(i)) >> (32 - k))
	}
	plans.Store(n, f)
	return f
}

// half transforms x, of length n/2, in place.
func (f *fft) half(x []complex128) {
	m := f.n / 2
	for i, j := range f.order {
		if int32(i) < j {
			x[i], x[j] = x[j], x[i]
		}
	}
	// The first two rounds have trivial factors.
	for i := 0; i+1 < m; i += 2 {
		x[i], x[i+1] = x[i]+x[i+1], x[i]-x[i+1]
	}
	for _, round := range f.rounds {
		h := len(round)
		for base := 0; base < m; base += 2 * h {
			lo, hi := x[base:][:len(round)], x[base+h:][:len(round)]
			for j, w := range round {
				v := hi[j]
				re := real(v)*real(w) - imag(v)*imag(w)
				im := real(v)*imag(w) + imag(v)*real(w)
				u := lo[j]
				lo[j] = complex(real(u)+re, imag(u)+im)
				hi[j] = complex(real(u)-re, imag(u)-im)
			}
		}
	}
}

// forward returns the coefficients 0 .. n/2 of x.
func (f *fft) forward(x []float64) []complex128 {
	m := f.n / 2
	z := make([]complex128, m+1)
	for i := range m {
		z[i] = complex(x[2*i], x[2*i+1])
	}
	f.half(z[:m])
	z[m] = z[0]
	for j := 0; j <= m/2; j++ {
		a, b := z[j], z[m-j]
		even := half(a + conj(b))
		odd := half(a - conj(b))
		w := f.root(j)
		odd = complex(imag(odd), -real(odd)) * w // -i odd w
		z[j] = even + odd
		z[m-j] = conj(even - odd)
	}
	return z
}

// inverse returns the sequence with coefficients z, and uses z up.
func (f *fft) inverse(z []complex128) []float64 {
	m := f.n / 2
	for j := 0; j <= m/2; j++ {
		a, b := z[j], z[m-j]
		even := half(a + conj(b))
		odd := half(a-conj(b)) * conj(f.root(j))
		odd = complex(-imag(odd), real(odd)) // i odd
		// Conjugated, because the backward transform is the conjugate of the forward one
		// of the conjugate.
		z[j] = conj(even + odd)
		if j < m-j {
			z[m-j] = even - odd
		}
	}
	f.half(z[:m])
	x := make([]float64, f.n)
	s := 1 / float64(m)
	for i := range m {
		x[2*i] = real(z[i]) * s
		x[2*i+1] = -imag(z[i]) * s
	}
	return x
}

// root returns e^(-2 pi i j/n), j <= n/2.
func (f *fft) root(j int) complex128 {
	if j == len(f.twiddle) {
		return -1
	}
	return f.twiddle[j]
}

// fftError bounds the error of a computed coefficient of a transform of length n, in
// units of the sum of the absolute values that went in: each of the log2(n) + 1 rounds
// adds at most 16 units of rounding, half of them from twiddle factors (Higham 2002,
// section 24.1; docs/proofs/certificates.md, section 3).
func fftError(n int) float64 { return 16 * 0x1p-53 * float64(bits.Len(uint(n))+1) }

func conj(z complex128) complex128 { return complex(real(z), -imag(z)) }

// power returns z^n.
func power(z complex128, n uint64) complex128 {
	r := complex(1, 0)
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			r *= z
		}
		z *= z
	}
	return r
}

func half(z complex128) complex128 { return complex(real(z)/2, imag(z)/2) }
