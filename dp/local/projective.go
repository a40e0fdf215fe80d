package local

import (
	"io"
	"math"
	"math/big"
	"math/bits"
)

// maxField bounds q.
const maxField = 4096

// maxVectors bounds q^t, the size of the table that Projective's estimator works in.
const maxVectors = 1 << 24

// Projective is the projective geometry response (Feldman, Nelson, Nguyen and Talwar,
// "Private Frequency Estimation via Projective Geometry", 2022): values and answers are
// the points of the projective space of dimension t-1 over the field of q elements, q
// prime. An answer lies in the hyperplane orthogonal to the value's vector with e^epsilon
// times the probability of any other. It takes log2 of K bits, K = (q^t-1)/(q-1), and is
// about as accurate as RAPPOR's optimised form. It is epsilon-LDP for replacement and
// safe for concurrent use.
type Projective struct {
	k        int
	q, t     uint64
	points   uint64   // K
	meet     uint64   // points of a hyperplane, (q^(t-1)-1)/(q-1)
	both     uint64   // points of two, (q^(t-2)-1)/(q-1)
	powers   []uint64 // powers[i] = q^i, i <= t
	base     []uint64 // base[i] = powers[0] + ... + powers[i-1], the first point with i elements after the one
	inverse  []uint64 // in the field
	reciproc uint64   // floor(2^64/q) + 1
	outside  probability
	anywhere probability // of a uniform point to lie outside of a hyperplane, to 2^-64
	epsilon  float64
	prime    uint64 // of the exact Fourier transform; q divides prime-1
	rotation []uint64
	src      io.Reader
}

// NewProjective returns a randomizer for k >= 2 values, over the prime field whose size
// is nearest e^epsilon+1 in ratio and in the smallest dimension with room for k. It
// refuses what would need more than 2^24 vectors.
func NewProjective(k int, epsilon float64) (*Projective, error) {
	if err := checkEpsilon(epsilon); err != nil {
		return nil, err
	}
	if err := checkValues(k); err != nil {
		return nil, err
	}
	want := min(math.Exp(epsilon)+1, maxField)
	best, distance := uint64(2), math.Inf(1)
	for q := uint64(2); q <= maxField; q++ {
		d := math.Abs(math.Log(float64(q) / want))
		if d < distance && big.NewInt(int64(q)).ProbablyPrime(10) {
			best, distance = q, d
		}
	}
	t := uint64(2)
	for power(best, t) <= maxVectors && (power(best, t)-1)/(best-1) < uint64(k) {
		t++
	}
	return NewProjectiveOver(k, epsilon, best, t)
}

// NewProjectiveOver is NewProjective over the field of q elements, q prime, in dimension
// t >= 2.
func NewProjectiveOver(k int, epsilon float64, q, t uint64) (*Projective, error) {
	if err := checkEpsilon(epsilon); err != nil {
		return nil, err
	}
	if err := checkValues(k); err != nil {
		return nil, err
	}
	if q < 2 || q > maxField || !big.NewInt(int64(q)).ProbablyPrime(10) {
		return nil, parameter("field size", float64(q), "a prime up to 4096")
	}
	if t < 2 || t > 24 || power(q, t) > maxVectors {
		return nil, parameter("dimension", float64(t), "2 or more, with at most 2^24 vectors")
	}
	p := &Projective{k: k, q: q, t: t, epsilon: epsilon, src: system}
	p.points, p.meet, p.both = (power(q, t)-1)/(q-1), (power(q, t-1)-1)/(q-1), (power(q, t-2)-1)/(q-1)
	if uint64(k) > p.points {
		return nil, parameter("number of values", float64(k), "at most the number of points")
	}
	sum := uint64(0)
	for i := range t + 1 {
		p.powers = append(p.powers, power(q, i))
		p.base = append(p.base, sum)
		sum += p.powers[i]
	}
	p.reciproc = math.MaxUint64/q + 1
	p.inverse = make([]uint64, q)
	for a := uint64(1); a < q; a++ {
		p.inverse[a] = powerMod(a, q-2, q)
	}
	p.outside = lie(math.Exp(epsilon)*float64(p.meet), float64(p.points-p.meet))
	anywhere, _ := bits.Div64(p.points-p.meet, 0, p.points)
	p.anywhere = probability(anywhere)
	p.transformOver()
	return p, nil
}

// power returns q^t, or more than maxVectors if that is larger.
func power(q, t uint64) uint64 {
	v := uint64(1)
	for range t {
		if v *= q; v > maxVectors {
			return maxVectors + 1
		}
	}
	return v
}

func powerMod(a, e, m uint64) uint64 {
	r := uint64(1)
	for ; e > 0; e >>= 1 {
		if e&1 == 1 {
			r = mulMod(r, a, m)
		}
		a = mulMod(a, a, m)
	}
	return r
}

func mulMod(a, b, m uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return bits.Rem64(hi, lo, m)
}

// transformOver picks a prime above 2^61 with a q-th root of unity, and the powers of the
// root.
func (p *Projective) transformOver() {
	c := (uint64(1)<<61)/p.q + 1
	for ; ; c++ {
		if p.prime = c*p.q + 1; new(big.Int).SetUint64(p.prime).ProbablyPrime(10) {
			break
		}
	}
	root := uint64(1)
	for g := uint64(2); root == 1; g++ {
		root = powerMod(g, c, p.prime)
	}
	p.rotation = make([]uint64, p.q)
	p.rotation[0] = 1
	for i := uint64(1); i < p.q; i++ {
		p.rotation[i] = mulMod(p.rotation[i-1], root, p.prime)
	}
}

// Values returns the number of values.
func (p *Projective) Values() int { return p.k }

// Space returns the size of the field and the dimension.
func (p *Projective) Space() (q, t uint64) { return p.q, p.t }

// Answers returns the number of possible answers, K.
func (p *Projective) Answers() int { return int(p.points) }

// Epsilon returns a local epsilon of what is drawn, rounded up. For replacement it is the
// one asked for; for deletion the reference is a uniform answer.
func (p *Projective) Epsilon(about Relation) float64 {
	switch about {
	case Replacement:
		return p.epsilon
	case Deletion:
		in, out := p.rates()
		return min(p.epsilon, max(logUp(in*float64(p.points)), logUp(1/(out*float64(p.points)))))
	}
	return math.Inf(1)
}

// rates returns the probabilities of each answer in the hyperplane of the value and of
// each other one.
func (p *Projective) rates() (in, out float64) {
	return p.outside.not() / float64(p.meet), p.outside.float() / float64(p.points-p.meet)
}

// divide returns x/q and x%q for x < 2^30, without a division: the reciprocal is off by
// at most q <= 2^12 in 2^64.
func (p *Projective) divide(x uint64) (quotient, remainder uint64) {
	quotient, _ = bits.Mul64(x, p.reciproc)
	return quotient, x - quotient*p.q
}

// vector writes the canonical vector of a point: zeros, a one, then any elements. Points
// count up by the number of elements after the one, then by their value in base q. It
// returns where the one is, and does not branch on the point.
func (p *Projective) vector(dst []uint64, point uint64) (lead uint64) {
	tail := uint64(0)
	for _, b := range p.base[1:p.t] {
		tail += 1 ^ below(point, b)
	}
	first := uint64(0)
	for i, b := range p.base[:p.t] {
		first |= b & -equal(uint64(i), tail)
	}
	lead = p.t - 1 - tail
	rest := point - first // below q^tail
	for i := range p.t {
		at := p.t - 1 - i
		rest, dst[at] = p.divide(rest)
		dst[at] |= equal(at, lead)
	}
	return lead
}

// point returns the point of a vector that is not zero, scaling it to its canonical form.
func (p *Projective) point(v []uint64) uint64 {
	lead := 0
	for v[lead] == 0 {
		lead++
	}
	scale := p.inverse[v[lead]]
	tail := len(v) - 1 - lead
	index, base := uint64(0), uint64(0)
	for _, x := range v[lead+1:] {
		index = index*p.q + x*scale%p.q
	}
	for i := range tail {
		base += p.powers[i]
	}
	return base + index
}

// Randomize returns the answer, 0..Answers()-1, for x in 0..k-1 or NoValue, for which it is
// uniform.
func (p *Projective) Randomize(x int) (int, error) {
	if x < NoValue || x >= p.k {
		return 0, parameter("value", float64(x), "NoValue, or 0 to the number of values less one")
	}
	s := newSource(p.src, 3)
	defer s.wipe()
	hidden, y := make([]uint64, p.t), make([]uint64, p.t)
	defer clear(hidden)
	none := equal(uint64(x+1), 0)
	lead := p.vector(hidden, choose(none, 0, uint64(x)))
	// The product is zero in the hyperplane, and a uniform other element outside; without
	// a value, the side is that of a uniform point and any hyperplane, here the first
	// point's. All elements of y but the one that meets the leading one of x are uniform,
	// not all zero in the hyperplane, and that one makes the product what it must be.
	outside := s.below(probability(choose(none, uint64(p.anywhere), uint64(p.outside))))
	product := choose(outside, 1+s.uniform(p.q-1), 0)
	inside := 1 ^ outside
	rest, dot := inside+s.uniform(p.powers[p.t-1]-inside), uint64(0)
	for i := range y {
		filled := equal(uint64(i), lead)
		next, e := p.divide(rest)
		rest, y[i] = choose(filled, rest, next), choose(filled, 0, e)
		dot += hidden[i] * y[i] // in all below 24 * 2^24
	}
	_, dot = p.divide(dot)
	_, fill := p.divide(product + p.q - dot)
	for i := range y {
		y[i] |= fill & -equal(uint64(i), lead)
	}
	return int(p.point(y)), nil
}

// weights returns alpha and beta of the estimator, sum of alpha [y in H(x)] + beta, and
// the variances that a report adds for a device with another value and one with the
// value.
func (p *Projective) weights() (alpha, beta, other, own float64) {
	perIn, perOut := p.rates()
	in, miss, _ := p.Meets()
	alpha = 1 / ((perIn - perOut) * float64(p.meet-p.both))
	return alpha, -alpha * miss, alpha * alpha * miss * (1 - miss), alpha * alpha * in * p.outside.float()
}

// Variance returns the variance that each report adds to an estimated count if held is
// the fraction of devices with that value.
func (p *Projective) Variance(held float64) float64 {
	_, _, other, own := p.weights()
	return held*own + (1-held)*other
}

// Estimate returns, from how many answers were each point, how many devices held each
// value. With H the counts, spread over all multiples of each point, its Fourier
// transform at x is q N(x) - n, where N(x) counts the answers in the hyperplane of x. It
// is taken exactly, modulo a prime, in about K q log_q K multiplications and q^t words of
// memory.
func (p *Projective) Estimate(answers []uint64) ([]Estimate, error) {
	meeting, total, err := p.meeting(answers)
	if err != nil {
		return nil, err
	}
	alpha, beta, other, own := p.weights()
	out := make([]Estimate, p.k)
	n := float64(total)
	for x := range out {
		value := alpha*float64(meeting[x]) + beta*n
		held := min(n, max(0, value))
		out[x] = Estimate{value, held*own + (n-held)*other}
	}
	return out, nil
}

// Meeting returns, from how many answers were each point, how many lie in the hyperplane of
// each value.
func (p *Projective) Meeting(answers []uint64) ([]uint64, error) {
	meeting, _, err := p.meeting(answers)
	return meeting, err
}

// Meets returns the probabilities that an answer lies in the hyperplane of a value: that
// of a device with the value, with another one, and with none.
func (p *Projective) Meets() (own, other, none float64) {
	perIn, perOut := p.rates()
	other = perIn*float64(p.both) + perOut*float64(p.meet-p.both)
	return p.outside.not(), other, float64(p.meet) / float64(p.points)
}

// meeting is Meeting, with the number of answers.
func (p *Projective) meeting(answers []uint64) (meeting []uint64, total uint64, err error) {
	if uint64(len(answers)) != p.points {
		return nil, 0, parameter("number of counts", float64(len(answers)), "the number of answers")
	}
	for _, c := range answers {
		if total += c; c > 1<<40 || total > 1<<40 {
			return nil, 0, parameter("number of answers", float64(total), "at most 2^40")
		}
	}
	table := make([]uint64, p.powers[p.t])
	v := make([]uint64, p.t)
	for y, c := range answers {
		if c == 0 {
			continue
		}
		p.vector(v, uint64(y))
		for m := uint64(1); m < p.q; m++ {
			at := uint64(0)
			for _, e := range v {
				_, e = p.divide(e * m)
				at = at*p.q + e
			}
			table[at] = c
		}
	}
	p.transform(table)
	meeting = make([]uint64, p.k)
	for x := range meeting {
		p.vector(v, uint64(x))
		at := uint64(0)
		for _, e := range v {
			at = at*p.q + e
		}
		meeting[x] = (table[at] + total) % p.prime / p.q // exact: q N(x)
	}
	return meeting, total, nil
}

// transform replaces the table, which is the same at all multiples of a vector, by its Fourier transform over the
// additive group of vectors. On the way, with some digits transformed (x) and the others not yet (y), it is the same at
// (x/c, cy) for all c but 0. So only those lines are transformed whose first digit that is not 0 is 1; the others are
// copies.
func (p *Projective) transform(table []uint64) {
	line := make([]uint64, p.q)
	for digit, step := range p.powers[:p.t] {
		for block := uint64(0); block < uint64(len(table)); block += step * p.q {
			for i := block; i < block+step; i++ {
				if source, _ := p.canonical(i, digit); source == i {
					p.transformLine(line, table[i:], step)
				}
			}
		}
		for block := uint64(0); block < uint64(len(table)); block += step * p.q {
			for i := block; i < block+step; i++ {
				source, c := p.canonical(i, digit)
				if source == i {
					continue
				}
				at := uint64(0) // b c
				for b := range p.q {
					table[i+b*step] = table[source+at*step]
					if at += c; at >= p.q {
						at -= p.q
					}
				}
			}
		}
	}
}

// canonical returns, for the line through index i along a digit, which is 0 in i, the
// line that has the same numbers and whose first digit that is not 0 is 1, and by what
// the places on i's line are multiplied there. Digits below are transformed.
func (p *Projective) canonical(i uint64, digit int) (source, c uint64) {
	scale := uint64(0) // of the digits transformed; that of the others is its inverse
	for d, rest := 0, i; rest > 0; d++ {
		var e uint64
		rest, e = p.divide(rest)
		if e == 0 {
			continue
		}
		if scale == 0 {
			if e == 1 {
				return i, 1
			}
			if scale = p.inverse[e]; d > digit {
				scale = e
			}
		}
		by := scale
		if d > digit {
			by = p.inverse[scale]
		}
		_, e = p.divide(e * by)
		source += e * p.powers[d]
	}
	return source, scale
}

// transformLine replaces the q numbers at multiples of step by their Fourier transform.
func (p *Projective) transformLine(line, table []uint64, step uint64) {
	for b := range line {
		var hi, lo, at uint64
		for a := range p.q {
			h, l := bits.Mul64(table[a*step], p.rotation[at])
			var carry uint64
			lo, carry = bits.Add64(lo, l, 0)
			hi, _ = bits.Add64(hi, h, carry)
			if hi >= 1<<62 {
				hi %= p.prime // 2^64 hi keeps its residue
			}
			if at += uint64(b); at >= p.q {
				at -= p.q
			}
		}
		line[b] = bits.Rem64(hi, lo, p.prime)
	}
	for b, v := range line {
		table[uint64(b)*step] = v
	}
}
