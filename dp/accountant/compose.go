package accountant

import (
	"math"

	"github.com/starling-agg/starling/internal/outward"
)

// A part is count compositions of one grid.
type part struct {
	grid
	count uint64
}

// A composed is the curve of a composition, at the points origin, origin + h, ...
type composed struct {
	h, origin float64
	delta     []float64
	base      float64 // delta of infinite losses, and of what lies beyond the window
	size      int     // length of the window, in steps
}

// logMoment returns ln sum p e^(lambda loss) over the finite losses.
func (g grid) logMoment(lambda float64) float64 {
	// Horner's rule in e^-(lambda h), from the bottom: the largest term keeps weight one.
	top := len(g.p) - 1
	s := 0.0
	if lambda >= 0 {
		r := math.Exp(-lambda * g.h)
		for _, p := range g.p {
			s = s*r + p
		}
		return math.Log(s) + lambda*(g.origin+float64(top)*g.h)
	}
	r := math.Exp(lambda * g.h)
	for i := top; i >= 0; i-- {
		s = s*r + g.p[i]
	}
	return math.Log(s) + lambda*g.origin
}

// logMoment of the sum.
func logMoment(parts []part, lambda float64) float64 {
	k := 0.0
	for _, p := range parts {
		k += float64(p.count) * p.logMoment(lambda)
	}
	return k
}

// tilt returns p e^(lambda loss)/M(lambda), a probability distribution, with its mean and
// variance.
func (g grid) tilt(lambda float64) (w []float64, mean, variance float64) {
	const resync = 64
	shift := g.logMoment(lambda)
	w = make([]float64, len(g.p))
	r, f := math.Exp(lambda*g.h), 0.0
	var sum, first, second float64
	center := float64(len(g.p)) / 2
	for i, p := range g.p {
		if i%resync == 0 {
			f = math.Exp(lambda*(g.origin+float64(i)*g.h) - shift)
		}
		v := p * f
		if p == 0 {
			v = 0
		}
		w[i] = v
		x := float64(i) - center
		sum += v
		first += v * x
		second += v * x * x
		f *= r
	}
	m := first / sum
	return w, g.origin + (m+center)*g.h, max(0, second/sum-m*m) * g.h * g.h
}

// errTooFine says that the transform would be too long.
type errTooFine struct{}

func (errTooFine) Error() string {
	return "accountant: the composition does not fit the longest transform"
}

const (
	maxTransform = 1 << 22
	// negligible is ln of a bound on powers that are taken for 0, and leftOut what that
	// and the other factors may come to.
	negligible = -60
	leftOut    = 1e-26
	// maxEnd is how far a window is extended to the end of the losses without asking what
	// it costs, in steps.
	maxEnd = 1 << 16
	// logWrap is ln of the (tilted) probability that may fall outside the window and wrap
	// around.
	logWrap = -17
)

// A convolution is that of parts, tilted and modulo a window, with bounds on its errors.
type convolution struct {
	h, lowest float64
	g         []float64 // tilted masses; that of loss lowest + i h is at i modulo the length
	first     int       // the window's first index
	size      int       // and its length, in steps; some more fit
	noise     float64   // bounds the error of each entry of g
	k         float64   // ln of the moment: g e^(k - lambda loss) are probabilities
	keep      float64   // ln of the probability that no loss is infinite
	outside   float64   // bounds the probability of losses above the window
	wrapped   float64   // bounds the tilted mass from outside the window, wherever it landed
}

// convolveParts convolves the parts under the tilt e^(lambda loss), on a window outside
// of which there is tilted mass of at most e^wrap on either side.
func convolveParts(parts []part, lambda, wrap float64) (*convolution, error) {
	h := parts[0].h
	k := 0.0
	mean, variance, lowest, highest := 0.0, 0.0, 0.0, 0.0
	keep := 0.0 // ln of the probability that no loss is infinite
	weights := make([][]float64, len(parts))
	for i, p := range parts {
		n := float64(p.count)
		w, m, v := p.tilt(lambda)
		weights[i] = w
		k += n * p.logMoment(lambda)
		mean += n * m
		variance += n * v
		lowest += n * p.origin
		highest += n * (p.origin + float64(len(p.p)-1)*h)
		keep += n * math.Log1p(-min(p.inf, 1))
	}
	low, high, outside := windowOf(parts, lambda, k, math.Sqrt(variance), lowest, highest, wrap)
	// A bound on what is above the window is no use where it is not small beside the
	// curve at the mean; losses that end nearby are then all taken.
	if curve := math.Exp(k - lambda*mean + discount(lambda)); lambda > 0 && outside > 1e-9*curve && highest-low < max(2*(high-low), maxEnd*h) {
		high, outside = highest+h, 0
	}
	need := (high-low)/h + 2
	if need > maxTransform {
		return nil, errTooFine{}
	}
	n := 4
	for float64(n) < need {
		n *= 2
	}
	first := int(math.Floor((low-lowest)/h)) - (n-int(need))/2 // the window's first index, counted from lowest
	f := plan(n)
	var product []complex128
	worst := make([]float64, n/2+1) // ln of the coefficients' bound, and their relative errors' sum
	errs := make([]float64, n/2+1)
	eps := fftError(n)
	for i, p := range parts {
		x := make([]float64, n)
		at := 0
		for _, v := range weights[i] {
			x[at] += v
			if at++; at == n {
				at = 0
			}
		}
		z := f.forward(x)
		c := float64(p.count)
		// Most coefficients of many releases are nothing: their powers are below
		// e^negligible, whatever the other factors do.
		least := math.Exp(negligible / c)
		for j, v := range z {
			if math.IsInf(worst[j], -1) {
				continue
			}
			m := real(v)*real(v) + imag(v)*imag(v)
			if a := least - eps; a > 0 && m < outward.Down(a*a) {
				worst[j], z[j] = math.Inf(-1), 0
				if product != nil {
					product[j] = 0
				}
				continue
			}
			// |z| is known up to eps; its power moves by at most c eps (|z|+eps)^(c-1), and by rounding. The factor of
			// the others is bounded the same way, so logarithms add.
			a := math.Sqrt(m) + eps
			worst[j] += c * math.Log(a)
			errs[j] += c * (eps/a + 4*0x1p-53)
			if z[j] = power(v, p.count); product != nil {
				product[j] *= z[j]
			}
		}
		if product == nil {
			product = z
		}
	}
	// The error of one entry of the inverse is at most the mean error of the
	// coefficients, plus the rounding.
	noise, size := 0.0, 0.0
	for j := range worst {
		twice := 2.0
		if j == 0 || j == n/2 {
			twice = 1
		}
		if math.IsInf(worst[j], -1) { // left out
			noise += twice * leftOut
			continue
		}
		a := math.Exp(min(worst[j], 0.1))
		noise += twice * a * math.Expm1(min(errs[j], 700))
		size += twice * a
	}
	noise = (noise + eps*size) / float64(n)
	return &convolution{h: h, lowest: lowest, g: f.inverse(product), first: first, size: int(need), noise: noise, k: k, keep: keep, outside: outside, wrapped: 2 * math.Exp(wrap)}, nil
}

// compose convolves the parts under the tilt e^(lambda loss). The tilt puts the mass
// where epsilon will be read, so that the rounding errors of the transform are small
// relative to delta there, however small delta is. The result is an upper bound, or a
// lower one, on the curve of the composition of the parts.
func compose(parts []part, lambda float64, upper bool) (*composed, error) {
	l, err := convolveParts(parts, lambda, logWrap)
	if err != nil {
		return nil, err
	}
	h, g, k, n, noise := l.h, l.g, l.k, len(l.g), l.noise
	// Read the tilted masses off, from the top down to losses of about zero, while
	// untilting.
	c := &composed{h: h, size: l.size}
	c.base = -math.Expm1(l.keep)
	if upper {
		c.base = outward.Up(c.base) + l.outside // what is above the window
	} else {
		c.base = outward.Down(c.base)
	}
	bottom := max(l.first, int(math.Floor(-l.lowest/h))-1)
	if bottom >= l.first+n {
		bottom = l.first
	}
	c.origin = l.lowest + float64(bottom)*h
	c.delta = make([]float64, l.first+n-bottom)
	const resync = 64
	mass, curve := 0.0, 0.0
	step, rise := math.Exp(-h), -math.Expm1(-h)
	r, weight := math.Exp(lambda*h), 0.0
	wrapped := math.Exp(logWrap)
	// The curve obeys C(l - h) = e^-h C(l) + (1 - e^-h) P(loss >= l), all terms positive.
	for i := len(c.delta) - 1; i >= 0; i-- {
		at := bottom + i
		if (len(c.delta)-1-i)%resync == 0 {
			weight = math.Exp(k - lambda*(l.lowest+float64(at)*h))
		}
		// First the curve at this point, from the mass above it; then the point's own mass.
		if i < len(c.delta)-1 {
			curve = step*curve + rise*mass
		}
		c.delta[i] = curve
		v := g[modulo(at, n)]
		if upper {
			v = max(v+noise, 0)
		} else {
			v = max(v-noise, 0)
		}
		mass += v * weight
		weight *= r
	}
	if !upper {
		// Mass may have wrapped in from outside: at most e^logWrap of the tilted mass,
		// wherever it landed.
		for i := range c.delta {
			c.delta[i] = max(0, c.delta[i]-wrapped*math.Exp(k-lambda*(c.origin+float64(i)*h)))
		}
	}
	// Rounding in the recursions.
	rel := outward.Summed(float64(n))
	for i := range c.delta {
		if upper {
			c.delta[i] = min(1, c.delta[i]*(1+rel)+c.base)
		} else {
			c.delta[i] = c.delta[i]*(1-rel) + c.base
		}
	}
	return c, nil
}

func modulo(a, n int) int {
	if a %= n; a < 0 {
		a += n
	}
	return a
}

// windowOf returns an interval outside of which the tilted sum has probability at most
// e^wrap, by Chernoff's bound on either side, and a bound on the true probability above
// it.
func windowOf(parts []part, lambda, k, std, lowest, highest, wrap float64) (low, high, outside float64) {
	h := parts[0].h
	side := func(sign float64) (edge, logTail float64) {
		end := highest
		if sign < 0 {
			end = lowest
		}
		if !(std > 0) {
			return end, math.Inf(-1)
		}
		// Chernoff at s has probability e^wrap beyond (K(lambda+s) - K(lambda) - wrap)/s;
		// take the best s.
		beyond := func(t float64) float64 {
			s := sign * math.Exp(t)
			return sign * (logMoment(parts, lambda+s) - k - (wrap - 1)) / s
		}
		normal := math.Log(9.2 / std * math.Sqrt(wrap/logWrap))
		edge = sign * beyond(goldenIn(beyond, normal-5, min(normal+1, math.Log(20/h)), 16))
		if !(sign*(edge-end) < 0) {
			return end, math.Inf(-1)
		}
		return edge, wrap - 1
	}
	low, _ = side(-1)
	high, tail := side(1)
	// True mass above high is e^(k - lambda loss) times tilted mass there.
	outside = math.Exp(tail + k - lambda*high)
	if math.IsInf(tail, -1) {
		outside = 0
	}
	return low - h, high + h, outside
}

// at bounds delta(epsilon), between the points by the curve's chord in e^epsilon.
func (c *composed) at(epsilon float64) float64 {
	x := (epsilon - c.origin) / c.h
	switch {
	case !(x >= 0):
		return 1 // callers treat a lower bound of 1 as unknown
	case x >= float64(len(c.delta)-1): // which may be beyond any int
		return c.base
	}
	i := int(x)
	t := math.Expm1((x-float64(i))*c.h) / math.Expm1(c.h)
	return c.delta[i] + min(max(t, 0), 1)*(c.delta[i+1]-c.delta[i])
}

// epsilon returns where the curve falls to delta: +infinity if it never does, -infinity
// if it is below from the start.
func (c *composed) epsilon(delta float64) float64 {
	n := len(c.delta)
	if c.base > delta {
		return math.Inf(1)
	}
	for i := n - 2; i >= 0; i-- {
		if c.delta[i] > delta {
			t := (c.delta[i] - delta) / (c.delta[i] - c.delta[i+1])
			return c.origin + float64(i)*c.h + math.Log1p(min(t, 1)*math.Expm1(c.h))
		}
	}
	if c.origin <= 0 {
		return 0
	}
	return math.Inf(-1)
}

// tiltFor returns the tilt that suits the question "which epsilon at this delta", and the
// Chernoff bound on epsilon.
func tiltFor(parts []part, delta float64) (lambda, epsilon float64) {
	target := -math.Log(delta)
	f := func(t float64) float64 {
		l := math.Exp(t)
		return (logMoment(parts, l) + target + discount(l)) / l
	}
	t := goldenIn(f, math.Log(1e-4), largestTilt(parts), 24)
	return math.Exp(t), f(t)
}

// tiltAt returns the tilt for "which delta at this epsilon", and the Chernoff bound on ln
// delta.
func tiltAt(parts []part, epsilon float64) (lambda, logDelta float64) {
	f := func(t float64) float64 {
		l := math.Exp(t)
		return logMoment(parts, l) - l*epsilon + discount(l)
	}
	t := goldenIn(f, math.Log(1e-4), largestTilt(parts), 24)
	return math.Exp(t), f(t)
}

// discount is ln max over y > 0 of (1 - e^-y) e^(-l y): a loss y above epsilon counts for
// 1 - e^-y only.
func discount(l float64) float64 { return -l*math.Log1p(1/l) - math.Log1p(l) }

// largestTilt is ln of the largest tilt worth trying: beyond it, one step of the grid
// already changes the weight by half as much again.
func largestTilt(parts []part) float64 { return math.Log(min(1e5, 0.5/parts[0].h)) }

// goldenIn is goldenMin with fewer steps.
func goldenIn(f func(float64) float64, a, b float64, steps int) float64 {
	const r = 0.6180339887498949
	x, y := b-r*(b-a), a+r*(b-a)
	fx, fy := f(x), f(y)
	for range steps {
		if fx < fy {
			b, y, fy = y, x, fx
			x = b - r*(b-a)
			fx = f(x)
		} else {
			a, x, fx = x, y, fy
			y = a + r*(b-a)
			fy = f(y)
		}
	}
	return (a + b) / 2
}
