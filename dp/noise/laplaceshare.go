package noise

import "math/bits"

// MaxShares is the largest number of users who share one draw of noise.
const MaxShares = 1 << 40

// A DiscreteLaplaceShare draws one user's share of discrete Laplace noise: the sum of the
// shares of h users has exactly the distribution of a [DiscreteLaplace] of scale t/s, and
// the sum of fewer says nothing of the others. A share is the difference of two negative
// binomial variables of shape 1/h. It is safe for concurrent use.
type DiscreteLaplaceShare struct {
	whole  DiscreteLaplace // its sum
	users  uint64
	blocks uint64 // of sizes of jumps
	parts  uint64 // of the Poisson number of jumps, of mean at most 1/2 each
	mean   ratio  // of a part
}

// NewDiscreteLaplaceShare returns a sampler of a share of one of the users, between 1 and
// 2^40, for a sum of scale t/s. It wants t and s as NewDiscreteLaplace does, or returns a
// *RangeError.
func NewDiscreteLaplaceShare(t, s, users uint64) (*DiscreteLaplaceShare, error) {
	whole, err := NewDiscreteLaplace(t, s)
	if err != nil {
		return nil, err
	}
	if users == 0 || users > MaxShares {
		return nil, &RangeError{"users", users, "1 to 2^40"}
	}
	d := &DiscreteLaplaceShare{whole: *whole, users: users}
	for !pastGeometric(whole.t, whole.s, d.blocks) {
		d.blocks++
	}
	d.parts = (4*d.blocks + users - 1) / users
	if d.blocks > 0 {
		d.mean = newRatio(2*d.blocks, users*d.parts)
	}
	return d, nil
}

// pastGeometric says whether 2^block s/t is at least maxGeometric.
func pastGeometric(t, s, block uint64) bool {
	hi, lo := bits.Mul64(s, 1<<block)
	wantHi, wantLo := bits.Mul64(t, maxGeometric)
	return hi > wantHi || hi == wantHi && lo >= wantLo
}

// Sample fills dst with independent shares.
//
// A negative binomial variable of shape r and a = exp(-s/t) is the sum over j >= 1 of j
// N_j, with independent Poisson variables N_j of means r a^j/j (its probability
// generating function is exp(r sum_j a^j (z^j - 1)/j)). So a share is a Poisson number of
// jumps. Those of sizes in [2^b, 2^(b+1)) are thinned from jumps of mean number r 2^-b for
// each size, which is r for each block: a jump of size j remains with probability 2^b/j
// exp(-j s/t). All decisions are exact. Blocks of jumps that remain with probability
// below exp(-16384) are left out, as [DiscreteLaplace] leaves out such draws. See
// docs/proofs/cloak.md, theorem 1.
func (d *DiscreteLaplaceShare) Sample(dst []int64) {
	var src source
	src.init(d.whole.src, len(dst))
	defer src.wipe()
	for i := range dst {
		dst[i] = 0
		if d.blocks == 0 {
			continue
		}
		for range d.parts {
			for range src.poisson(d.mean) {
				dst[i] += src.jump(d.whole.t, d.whole.s, d.blocks)
			}
		}
	}
}

// poisson draws a Poisson variable of mean f <= 1/2: a geometric one, which is n with
// probability (1-f) f^n, is kept with probability 1/n!.
func (src *source) poisson(f ratio) int {
	for {
		n := 0
		for src.bernoulli(f) {
			if n++; n == maxGeometric {
				panic("noise: internal error: the source of random bits is stuck")
			}
		}
		k := 2
		for k <= n && src.oneIn(k) {
			k++
		}
		if k > n {
			return n
		}
	}
}

// jump draws one jump before it is thinned, and returns 0 for those that do not remain.
func (src *source) jump(t, s, blocks uint64) int64 {
	negative := src.bit()
	low := uint64(1) << src.uniform(blocks)
	j := low + src.uniform(low)
	if j > low && !src.bernoulli(newRatio(low, j)) {
		return 0
	}
	hi, lo := bits.Mul64(j, s)
	whole, rem := bits.Div64(hi, lo, t) // j s/t < 2^15, by the number of blocks
	if !src.accept(whole, rem, t) {
		return 0
	}
	if negative {
		return -int64(j)
	}
	return int64(j)
}

// Variance returns the variance, 1/h of the sum's, to within a relative error of 1e-14.
func (d *DiscreteLaplaceShare) Variance() float64 { return d.whole.Variance() / float64(d.users) }

// Tail returns a k such that |y| > k has probability at most p, 0 < p < 1. The other
// shares are symmetric, so that the sum is beyond k with half the probability at least.
func (d *DiscreteLaplaceShare) Tail(p float64) int64 { return d.whole.Tail(p / 2) }

func (d *DiscreteLaplaceShare) sealed() {}
