package accountant

import "math"

// A grid is a measure on the losses origin, origin + h, ...: p[i] is the probability
// under P. Mass missing from one is at +infinity (inf) or at -infinity.
type grid struct {
	h, origin float64
	p         []float64
	inf       float64
}

// binned is a pair cut into the intervals (origin + i h, origin + (i+1) h], i = 0 .. n-1,
// and the two ends.
type binned struct {
	h, origin float64
	p, q      []float64
	at        []float64 // P-mass of the atoms at the ends of the intervals, n + 1 of them
	pLow      float64   // P(loss <= origin), without -infinity
	pHigh     float64   // P(loss > origin + n h), without +infinity
	pInf      float64
}

// maxBins bounds the intervals of one pair.
const maxBins = 1 << 22

// bin cuts x into intervals of width h, one end of which is the anchor, leaving at most
// tail on each side outside.
func bin(x pair, h, tail float64) (*binned, bool) {
	lo, hi := x.reach(tail)
	anchor, _ := x.anchors()
	a, b := math.Floor((lo-anchor)/h), math.Ceil((hi-anchor)/h)
	if !(b-a < maxBins && math.Abs(a) < 1<<40 && math.Abs(b) < 1<<40) {
		return nil, false
	}
	if b <= a {
		b = a + 1
	}
	n := int(b - a)
	edges := make([]float64, n+3)
	edges[0] = math.Inf(-1)
	for i := 0; i <= n; i++ {
		edges[i+1] = anchor + (a+float64(i))*h
	}
	edges[n+2] = math.Inf(1)
	// Where the losses end at a grid point, rounding must leave none beyond it: they
	// would count as infinite.
	for i, end := range map[int]float64{1: lo, n + 1: hi} {
		if math.Abs(edges[i]-end) <= massError/2 {
			edges[i] = end
		}
	}
	p, q := make([]float64, n+2), make([]float64, n+2)
	x.masses(edges, p, q)
	at := make([]float64, n+1)
	x.points(func(loss, pm, qm float64) {
		place := (loss - edges[1]) / h
		if near := math.Round(place); near >= 0 && near <= float64(n) && math.Abs(place-near)*h <= massError/2 {
			at[int(near)] += pm
			return
		}
		i := int(min(max(math.Ceil(place), 0), float64(n+1)))
		p[i] += pm
		q[i] += qm
	})
	inf, _ := x.infinite()
	return &binned{h, edges[1], p[1 : n+1], q[1 : n+1], at, p[0], p[n+1], inf}, true
}

// split returns how much of interval i's P-mass goes to its upper end so that both masses
// are kept ("connect the dots"; Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022):
// the curve of the result is the chord of the true one between the ends.
func (b *binned) split(i int) float64 {
	y, ok := b.ratio(i)
	if !ok {
		return b.p[i]
	}
	return b.p[i] * min(max((1-1/y)/-math.Expm1(-b.h), 0), 1)
}

// ratio returns P-mass over Q-mass of interval i in units of e^l of its lower end, which
// lies between 1 and e^h. It is not known where the Q-mass is too small for float64 to
// hold all digits of it, as for losses above 700.
func (b *binned) ratio(i int) (y float64, ok bool) {
	const widest = 600
	p, q := b.p[i], b.q[i]
	if p < leastNormal || q < leastNormal || b.h > widest {
		return 0, false
	}
	// The logarithms cancel: the quotient alone may overflow.
	return math.Exp(math.Log(p) - math.Log(q) - b.origin - float64(i)*b.h), true
}

// upper returns a measure whose curve lies above the pair's everywhere and meets it at
// the grid points.
func (b *binned) upper() grid {
	n := len(b.p)
	g := grid{h: b.h, origin: b.origin, p: make([]float64, n+1), inf: b.pInf + b.pHigh}
	copy(g.p, b.at)
	g.p[0] += b.pLow // up to the first point
	for i, p := range b.p {
		v := b.split(i)
		g.p[i+1] += v
		g.p[i] += p - v
	}
	return g
}

// lower returns a measure whose curve lies below the pair's everywhere. See
// docs/proofs/pld-bounds.md: where upper follows the chords of the true curve H, a
// function of x = e^epsilon, this one follows chords between points that lie c[i] below
// H, and c is so large that every chord stays below the corner that the tangents of H at
// its two ends form. Concave kinks that remain are cut off by the convex hull.
func (b *binned) lower() grid {
	n := len(b.p)
	m := append([]float64(nil), b.at...) // P-mass at point i
	gap := make([]float64, n)            // how far the chord over interval i lies above the corner
	at := make([]float64, n)             // where the corner is: 0 at the lower end, 1 at the upper
	inverse := 1 / math.Expm1(b.h)
	for i, p := range b.p {
		y, ok := b.ratio(i)
		if !ok { // all of it goes down: then there is no chord
			m[i] += p
			continue
		}
		v := b.split(i)
		m[i+1] += v
		m[i] += p - v
		// In units of e^l of the lower end, the corner is at p/q.
		t := min(max((y-1)*inverse, 0), 1)
		at[i] = t
		gap[i] = v * -math.Expm1(-b.h) * (1 - t)
	}
	m[n] += b.pHigh
	// Above the last point the curve is 0, so c ends with 0; where the mass above is too
	// small to carry the c before it, it moves down, along with the interval below it.
	for ; n > 1; n-- {
		c := gap[n-2]
		if at[n-1] < 1 {
			c = max(c, gap[n-1]/(1-at[n-1]))
		} else if gap[n-1] > 0 {
			c = math.Inf(1)
		}
		if c <= m[n]*-math.Expm1(-b.h) {
			break
		}
		m[n-1] += m[n]
	}
	m = m[:n+1]
	c := make([]float64, n+1)
	for i := 1; i < n; i++ {
		c[i] = max(gap[i-1], gap[i])
	}
	c[0] = gap[0]
	if at[n-1] < 1 {
		c[n-1] = max(c[n-1], gap[n-1]/(1-at[n-1]))
	}
	alpha, beta := inverse, inverse+1
	out := make([]float64, n+1)
	for i := range out {
		out[i] = m[i]
		if i < n {
			out[i] -= alpha * (c[i+1] - c[i])
		}
		if i > 0 {
			out[i] += beta * (c[i] - c[i-1])
		} else {
			out[i] += c[i]
		}
	}
	if !hull(out, b.h) {
		out = b.floor(n)
	}
	return grid{h: b.h, origin: b.origin, p: out, inf: b.pInf}
}

// floor moves every loss down to the grid, a simple lower bound.
func (b *binned) floor(n int) []float64 {
	out := make([]float64, n+1)
	for i, p := range b.at {
		out[min(i, n)] += p
	}
	for i, p := range b.p {
		out[min(i, n)] += p
	}
	out[n] += b.pHigh
	return out
}

// hull removes the points of negative mass: leaving out a kink at x between its
// neighbours moves its mass to them so that the curve is unchanged beyond. It fails if
// the last point ends up negative.
func hull(m []float64, h float64) bool {
	stack := make([]int, 0, len(m))
	for j := 0; j < len(m)-1; j++ {
		k := j + 1
		i := j
		for m[i] < 0 {
			mass := m[i]
			m[i] = 0
			if len(stack) == 0 {
				m[k] += mass // the left neighbour is x = 0
				break
			}
			left := stack[len(stack)-1]
			dl, dr := float64(i-left)*h, float64(k-i)*h
			// x_left/x_i (x_k - x_i)/(x_k - x_left) and x_k/x_i (x_i - x_left)/(x_k -
			// x_left)
			m[left] += mass * math.Expm1(dr) / math.Expm1(dl+dr)
			m[k] += mass * math.Expm1(-dl) / math.Expm1(-dl-dr)
			i = left
			if m[i] < 0 {
				stack = stack[:len(stack)-1]
			}
		}
		if m[j] > 0 {
			stack = append(stack, j)
		}
	}
	return m[len(m)-1] >= 0
}
