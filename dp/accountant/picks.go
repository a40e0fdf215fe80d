package accountant

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

// Several picks of t steps: see docs/proofs/allocation.md. From above they are
// independent single picks of blocks; from below the exact likelihood ratio, an
// elementary symmetric polynomial of the steps' ratios, is merged into few values.

const (
	// maxPicked is up to how many picks are accounted for as one pair, with a bound from
	// below.
	maxPicked = 64
	// pickWork bounds the multiplications of one combination of two distributions of
	// several picks.
	pickWork = 1 << 22
	// pickError bounds the relative error that one combination adds: two sums of at most
	// sqrt(pickWork)/5 terms, and the 2k+4 operations of a term.
	pickError = (2*410 + 2*maxPicked + 4) * 0x1p-53

	picksTheorem = "several picks as independent picks of blocks (docs/proofs/allocation.md)"
)

// blocks returns the sizes of the blocks that stand for Picks of Steps, and how many
// there are of each: sizes that differ by at most one and add up to Steps.
func (a allocation) blocks() (long, short allocation, longs, shorts uint64) {
	long, short = a, a
	short.Steps, short.Picks = a.Steps/a.Picks, 1
	long.Steps, long.Picks = short.Steps+1, 1
	longs = a.Steps % a.Picks
	return long, short, longs, a.Picks - longs
}

// several returns the pair of several picks, whose step is x.
func (a allocation) several(x dominance, n release.Neighbours) (dominance, error) {
	if a.Picks > maxPicked {
		return dominance{}, fmt.Errorf("%w: sampling of an allocation of more than %d picks", release.ErrUnsupported, maxPicked)
	}
	long, short, longs, shorts := a.blocks()
	var above *atoms
	for _, b := range []struct {
		allocation
		times uint64
	}{{long, longs}, {short, shorts}} {
		if b.times == 0 {
			continue
		}
		d, err := b.dominating(n)
		if err != nil {
			return dominance{}, err
		}
		if above, err = timesPair(above, d.pair, b.times); err != nil {
			return dominance{}, err
		}
	}
	above.sort()
	above.a, above.b = above.loss[0], above.loss[0]
	below, err := pickedBelow(x.pair, a.Steps, int(a.Picks))
	if err != nil {
		return dominance{}, err
	}
	lower := pair(below)
	if g, ok := x.pair.(normalPair); ok {
		// The sum of the steps, a post-processing, moves by k mu with a deviation of
		// sqrt(t). With many picks that tells more than the few values that the ratio is
		// merged into.
		mu := g.mu * float64(a.Picks) / math.Sqrt(float64(a.Steps))
		if sum := (normalPair{mu * (1 - 4*outward.Formula)}); mu*mu > math.Log(below.secondMoment()) {
			lower = sum
		}
	}
	return dominance{pair: above, below: lower, attained: x.attained, slop: pickError * 2 * float64(bits.Len64(a.Steps)),
		theorem: allocationTheorem + "; " + picksTheorem}, nil
}

// timesPair returns a pair above that of x, if not nil, and times independent outcomes of
// y.
func timesPair(x *atoms, y pair, times uint64) (*atoms, error) {
	if z, ok := y.(*atoms); ok {
		all, err := z.power(times)
		if err != nil || x == nil {
			return all, err
		}
		return mixed(x, all)
	}
	// A block of one step, which has no atoms; there is a longer block before.
	if g, ok := y.(normalPair); ok { // several are one
		return mixed(x, normalPair{outward.Up(g.mu * math.Sqrt(float64(times)))})
	}
	var err error
	for range times {
		if x, err = mixed(x, y); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// A symmetric is a distribution, under Q, of the means s_1 .. s_k of the products of 1 ..
// k different likelihood ratios among those of some steps: s_j = e_j/C(steps, j), e_j the
// elementary symmetric polynomial. Cell i has mass q[i] and the values s[i*k:], and
// stands for all outcomes that were merged into it, at their mean.
type symmetric struct {
	steps uint64
	k     int
	q, s  []float64
}

// pickedBelow returns a pair below that of k picks of t steps x: the ratio is s_k of all
// steps. It is affine in the values of any part of the steps, so merging a part's
// outcomes at their mean replaces the ratio by a conditional expectation of itself.
func pickedBelow(x pair, t uint64, k int) (*atoms, error) {
	size := int(math.Sqrt(pickWork)) / (k + 3)
	lo, hi := x.reach(spreadTail)
	h := (hi - lo) / float64(size)
	if !(hi-lo < 1400 && h > 1e-12) {
		return nil, fmt.Errorf("%w: allocation of steps whose losses spread this widely or this little", release.ErrUnsupported)
	}
	b, err := spreadBins(x, h, int(math.Floor(lo/h)), size+1)
	if err != nil {
		return nil, err
	}
	// Outcomes that Q or P never has are merged with those that are the most telling.
	last := len(b.p) - 1
	b.p[last] += b.pInf
	b.q[0] += b.qInf
	one := &symmetric{steps: 1, k: k}
	p, q := 0.0, 0.0
	for i := range b.p {
		p, q = p+b.p[i], q+b.q[i]
		if q == 0 && i < last {
			continue // with the next
		}
		if q == 0 { // nothing above: with the last cell
			one.s[len(one.s)-k] += p / one.q[len(one.q)-1]
			break
		}
		one.q = append(one.q, q)
		s := make([]float64, k) // of one step: no products of two
		s[0] = p / q
		one.s = append(one.s, s...)
		p, q = 0, 0
	}
	all := one
	for bit := 62; bit >= 0; bit-- {
		if t>>bit <= 1 {
			continue
		}
		all = all.with(all, t, size)
		if t>>bit&1 == 1 {
			all = all.with(one, t, size)
		}
	}
	out := &atoms{}
	for i, q := range all.q {
		if v := all.s[i*k+k-1]; q > 0 && v > 0 {
			out.loss, out.p, out.q = append(out.loss, math.Log(v)), append(out.p, q*v), append(out.q, q)
		} else {
			out.qInf += q
		}
	}
	out.sort()
	out.a, out.b = out.loss[0], out.loss[0]
	return out, nil
}

// secondMoment is that of the likelihood ratio under Q.
func (a *atoms) secondMoment() float64 {
	sum := 0.0
	for i, l := range a.loss {
		sum += a.p[i] * math.Exp(l)
	}
	return sum
}

// chances returns the probabilities that 0 .. k of k picks of t fall on m given steps,
// from the likeliest outwards.
func chances(m, t uint64, k int) []float64 {
	w := make([]float64, k+1)
	n := float64(t - m)
	lo, hi := max(0, k-int(min(t-m, uint64(k)))), int(min(m, uint64(k)))
	mode := min(max(int(float64(k+1)*(float64(m)+1)/(float64(t)+2)), lo), hi)
	rise := func(j int) float64 { // w[j+1]/w[j]
		x := float64(j)
		return (float64(m) - x) * (float64(k) - x) / ((x + 1) * (n - float64(k) + x + 1))
	}
	w[mode] = 1
	for j := mode; j < hi; j++ {
		w[j+1] = w[j] * rise(j)
	}
	for j := mode; j > lo; j-- {
		w[j-1] = w[j] / rise(j-1)
	}
	sum := 0.0
	for _, v := range w {
		sum += v
	}
	for j := range w {
		w[j] /= sum
	}
	return w
}

// with returns the distribution of x's steps and y's, independent, of t in all, in at
// most size cells. Outcomes are merged where the ratio that is expected of all t steps is
// about the same.
func (x *symmetric) with(y *symmetric, t uint64, size int) *symmetric {
	k := x.k
	out := &symmetric{steps: x.steps + y.steps, k: k, q: make([]float64, size), s: make([]float64, size*k)}
	// s_j of the union is the mean of s_i(x) s_(j-i)(y) over how many, i, of j picks fall
	// on x.
	split := make([][]float64, k+1)
	for j := range split {
		if uint64(j) <= out.steps {
			split[j] = chances(x.steps, out.steps, j)
		}
	}
	expected := chances(out.steps, t, k)
	value := func(s []float64) float64 { // of all t steps, the others at their mean of 1
		v := expected[0]
		for j, w := range expected[1:] {
			v += w * s[j]
		}
		return v
	}
	s := make([]float64, k)
	join := func(a, b []float64) {
		for j := 1; j <= k; j++ {
			s[j-1] = 0
			for i, w := range split[j] {
				if w == 0 {
					continue
				}
				if i > 0 {
					w *= a[i-1]
				}
				if i < j {
					w *= b[j-i-1]
				}
				s[j-1] += w
			}
		}
	}
	low, high := x.q0(), x.end()
	join(x.cell(low), y.cell(y.q0()))
	from := math.Log(max(value(s), 1e-300))
	join(x.cell(high), y.cell(y.end()))
	scale := float64(size-1) / max(math.Log(value(s))-from, 1e-300)
	// Row by row, so that no sum has more than size terms.
	rowQ, rowS := make([]float64, size), make([]float64, size*k)
	for a, p := range x.q {
		if p == 0 {
			continue
		}
		first, last := size, -1
		for b, q := range y.q {
			m := p * q
			if m == 0 {
				continue
			}
			join(x.cell(a), y.cell(b))
			i := int(min(max((math.Log(value(s))-from)*scale, 0), float64(size-1)))
			first, last = min(first, i), max(last, i)
			rowQ[i] += m
			to := rowS[i*k : i*k+k]
			for j, v := range s {
				to[j] += m * v
			}
		}
		for i := first; i <= last; i++ {
			out.q[i] += rowQ[i]
			rowQ[i] = 0
			for j := i * k; j < i*k+k; j++ {
				out.s[j] += rowS[j]
				rowS[j] = 0
			}
		}
	}
	for i, q := range out.q {
		for j := range k {
			if q > 0 {
				out.s[i*k+j] /= q
			}
		}
	}
	return out
}

func (x *symmetric) cell(i int) []float64 { return x.s[i*x.k : (i+1)*x.k] }

// q0 returns the first cell that counts, end the last: beyond either less than
// spreadTail, of P, which is about the mean of s_1.
func (x *symmetric) q0() int {
	i := 0
	for sum := 0.0; i < len(x.q)-1; i++ {
		if sum += x.q[i] * (1 + x.s[i*x.k]); sum > spreadTail {
			break
		}
	}
	return i
}

func (x *symmetric) end() int {
	i := len(x.q) - 1
	for sum := 0.0; i > 0; i-- {
		if sum += x.q[i] * (1 + x.s[i*x.k]); sum > spreadTail {
			break
		}
	}
	return i
}
