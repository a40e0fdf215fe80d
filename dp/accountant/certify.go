package accountant

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/certificate"
)

// Certify returns a certificate, for package certificate to check on the device, of an epsilon at delta that is close to (within
// 1 % of) that of Epsilon. It covers continuous and discrete Gaussian and Laplace releases (bounded in each coordinate), randomized
// response, pure and approximate DP, what is sampled of these (Poisson for AddRemove and ZeroOut, FixedSample for ReplaceOne), their
// compositions of up to 64 kinds, and zCDP. Other events give ErrUnsupported.
func Certify(e Event, delta float64, n Neighbours) (*certificate.Certificate, error) {
	g, err := Epsilon(e, delta, n)
	if err != nil {
		return nil, err
	}
	leaves, err := flatten(nil, e, 1)
	if err != nil {
		return nil, err
	}
	c := &certificate.Certificate{Delta: delta, Neighbours: certificate.Neighbours(n)}
	parts := make([]certified, len(leaves))
	rho, concentrated := 0.0, true
	for i, l := range leaves {
		if parts[i], err = certify(l, n); err != nil {
			return nil, err
		}
		c.Terms = append(c.Terms, parts[i].Term)
		concentrated = concentrated && parts[i].Mechanism == certificate.ZCDP
		rho += parts[i].Mu
	}
	if concentrated && len(parts) > 1 {
		c.Terms, parts = []certificate.Term{{Mechanism: certificate.ZCDP, Count: 1, Mu: up(rho), Rate: 1}}, parts[:1]
	}
	var refused error
	claim := func(room float64) { c.Epsilon = g.Epsilon*(1+room) + 1e-6*room }
	if len(parts) == 1 {
		for _, room := range []float64{1e-9, 1e-7, 1e-5, 1e-3} { // the checker's bounds on its own rounding
			if claim(room); c.Check() == nil {
				return c, nil
			}
		}
		refused = c.Check()
	}
	for _, room := range []float64{1e-3, 3e-3, 1e-2} {
		if claim(room); concentrated {
			break
		}
		if refused = prove(c, parts); refused == nil {
			return c, nil
		}
	}
	return nil, fmt.Errorf("%w: no certificate was found: %w", ErrUnsupported, refused)
}

// A certified leaf is a term with its pair, of which there are count after what adds up has been added up.
type certified struct {
	certificate.Term
	pair  pair
	count uint64
}

// certify describes a leaf to the checker.
func certify(l leaf, n Neighbours) (c certified, err error) {
	c.Count, c.count, c.Rate = l.count, l.count, 1
	switch x := l.event.(type) {
	case Gaussian:
		c.Mechanism, c.count = certificate.Gaussian, 1
		c.Mu, err = x.mu(n, 1)
		c.pair = normalPair{c.Mu * math.Sqrt(float64(l.count))}
		return c, err
	case Laplace:
		c.Mechanism = certificate.Laplace
		c.Mu, err = x.mu(n)
		c.pair = laplacePair{c.Mu}
		return c, err
	case RandomizedResponse:
		c.Mechanism, c.Mu, c.Answers = certificate.RandomizedResponse, x.Epsilon0, x.K
		c.pair = responsePair(x.Epsilon0, float64(x.K))
		return c, x.check()
	case ApproxDP:
		c.Mechanism, c.Mu, c.Fail, c.Answers = certificate.RandomizedResponse, max(x.Epsilon, 1e-9), x.Delta, 2
		c.pair = approxPair(c.Mu, c.Fail)
		return c, nil
	case ZCDP:
		c.Mechanism, c.Mu = certificate.ZCDP, x.Rho
		return c, nil
	case Correlated:
		c.Mechanism = certificate.ZCDP
		c.Mu, err = x.Rho(n)
		return c, err
	case DiscreteLaplace:
		s, err := x.Contribution.Sensitivity(n)
		rate := float64(x.Scale.Den) / float64(x.Scale.Num)
		if err != nil || x.Contribution.kind == ball || s.Max > maxAtoms || rate*s.Max > 500 {
			break
		}
		c.Mechanism, c.Num, c.Den, c.Shift = certificate.DiscreteLaplace, x.Scale.Num, x.Scale.Den, uint64(s.Max)
		c.Count *= s.Coordinates
		c.count = c.Count
		c.pair = discreteLaplacePair(rate, s.Max)
		return c, nil
	case DiscreteGaussian:
		return c, c.gaussian(x, n)
	case Sampled:
		if n != ReplaceOne && x.Count == CountHidden {
			c, err := certify(leaf{x.Event, 1}, n)
			if err == nil && c.Count == 1 && c.pair != nil {
				c.pair, c.Rate, c.Sampling = poisson{c.pair, x.Rate}, x.Rate, certificate.PoissonSample
				c.Count, c.count = l.count, l.count
				return c, nil
			}
		}
	case FixedSample:
		if n == ReplaceOne {
			c, err := certify(leaf{x.Event, 1}, n)
			if err == nil && c.Count == 1 && c.pair != nil && x.Rate < 1 {
				c.pair, c.Rate, c.Sampling = newFixed(c.pair, x.Rate), x.Rate, certificate.FixedSample
				c.Count, c.count = l.count, l.count
				return c, nil
			}
		}
	}
	return c, fmt.Errorf("%w: no certificate for %T and %v neighbours", ErrUnsupported, l.event, n)
}

// gaussian describes discrete Gaussian noise. Where it is wide, coordinates and releases add up; else each coordinate is a release.
func (c *certified) gaussian(g DiscreteGaussian, n Neighbours) error {
	s, err := g.Contribution.Sensitivity(n)
	if err != nil {
		return err
	}
	honest := max(1, g.Honest)
	if g.Contribution.kind == ball {
		c.Mechanism = certificate.ZCDP
		c.Mu, err = g.Rho(n)
		return err
	}
	v := g.Sigma2.Float()
	if s.Max > 1<<40 || honest > 255 || honest > 1 && v < minSmoothVariance || s.Coordinates > maxCount/c.Count {
		return fmt.Errorf("%w: no certificate for this use of discrete Gaussian noise", ErrUnsupported)
	}
	c.Mechanism, c.Num, c.Den, c.Shift = certificate.DiscreteGaussian, g.Sigma2.Num, g.Sigma2.Den, uint64(s.Max)
	c.Coordinates, c.Honest = s.Coordinates, uint8(honest)
	if v < minSmoothVariance {
		c.Count, c.Coordinates = c.Count*s.Coordinates, 1
	}
	k := float64(s.Coordinates) * float64(c.Count)
	c.count = 1
	if v < minSmoothVariance {
		k, c.count = 1, c.Count
	}
	if v *= float64(honest); 30*math.Sqrt(k*v)+2*k*s.Max <= maxAtoms {
		l := &lattice{k: k, d: s.Max, s2: v, v: k * v, pmf: gaussianPMF(k * v)}
		c.pair = l.pair()
	}
	return nil
}

// prove adds laws to c that show its claim, on the coarsest grid that does.
func prove(c *certificate.Certificate, parts []certified) error {
	terms := make([]term, len(parts))
	count, ways := 0.0, []bool{false}
	for i, p := range parts {
		if p.pair == nil {
			return fmt.Errorf("%w: no laws for this use of the mechanism", ErrUnsupported)
		}
		terms[i] = term{dominance{pair: p.pair}, p.count}
		count += float64(p.count)
		if p.Sampling == certificate.PoissonSample {
			ways = []bool{false, true}
		}
	}
	q := question{tail: max(c.Delta*1e-4/count, 1e-280)}
	h, err := q.firstStep(terms)
	if err != nil {
		return err
	}
	for h *= 2.5; ; h /= 2 { // a tenth of the accuracy is a fourth of the bytes
		c.Step, c.Directions = snap(terms, h), nil
		for _, added := range ways {
			d, err := direction(terms, c, q.tail, added, count)
			if err != nil {
				return err
			}
			c.Directions = append(c.Directions, d)
		}
		if err = c.Check(); err == nil {
			return nil
		}
		if h < c.Step/8 || len(c.Directions[0].Laws[0].Masses) > 1<<14 {
			c.Step, c.Directions = 0, nil
			return err
		}
	}
}

// direction discretises the terms and chooses the hints.
func direction(terms []term, c *certificate.Certificate, tail float64, added bool, count float64) (certificate.Direction, error) {
	d := certificate.Direction{Hints: certificate.Hints{Added: added}}
	parts := make([]part, len(terms))
	least, highest, variance, h := 0.0, 0.0, 0.0, c.Step
	for i, t := range terms {
		x := t.pair
		if added {
			x = swapped{x}
		}
		b, ok := bin(x, h, tail)
		if !ok {
			return d, fmt.Errorf("%w: the losses spread too widely for a certificate", ErrUnsupported)
		}
		g := b.upper()
		// Losses far below zero hardly matter; without them the curve stays clear of 1, and a small shift of the losses lifts it
		// above the mechanism's by more than rounding.
		low, sum := 0, 0.0
		for ; low < len(g.p)-1 && sum+g.p[low] < 1e-4/count; low++ {
			sum += g.p[low]
		}
		g.p = g.p[low:]
		g.p[0] += sum
		g.origin += float64(low)*h + 2e-5*c.Epsilon/count
		for len(g.p) > 1 && g.p[len(g.p)-1] == 0 {
			g.p = g.p[:len(g.p)-1]
		}
		masses := narrow(&g)
		parts[i] = part{g, t.count}
		n := float64(t.count)
		least += n * g.origin
		highest += n * (g.origin + float64(len(g.p)-1)*h)
		d.Laws = append(d.Laws, certificate.Law{Origin: g.origin, Masses: masses, Infinite: g.inf})
	}
	d.Tilt, _ = tiltAt(parts, c.Epsilon)
	for _, p := range parts {
		_, _, v := p.tilt(d.Tilt)
		variance += float64(p.count) * v
	}
	low, high, _ := window(parts, d.Tilt, logMoment(parts, d.Tilt), math.Sqrt(variance), least, highest)
	low = min(low, c.Epsilon-2*h)
	d.First = uint64(max(0, (low-least)/h))
	need := uint64(max(0, (high-least)/h)) + 2 - min(d.First, uint64(max(0, (high-least)/h)))
	for d.LogSize = 2; 1<<d.LogSize < need; d.LogSize++ {
	}
	// The order for the tail above the window: the minimiser of Chernoff's bound there.
	above := least + (float64(d.First)+float64(uint64(1)<<d.LogSize))*h
	t := goldenIn(func(t float64) float64 {
		o := d.Tilt + math.Exp(t)
		return logMoment(parts, o) - o*above
	}, -5, math.Log(min(1e6, 40/h)), 40)
	d.Order = d.Tilt + math.Exp(t)
	return d, nil
}

// narrow rounds the masses of g to float32: each down, and what is left moves up to the next. The total is brought to just above
// one by a mass that is large enough for the difference to be nothing to it.
func narrow(g *grid) []float32 {
	g.inf *= 1 + 1e-12
	out, total, rest := make([]float32, len(g.p)), g.inf, 0.0
	for i, p := range g.p {
		if out[i] = float32(p + rest); float64(out[i]) > p+rest {
			out[i] = math.Nextafter32(out[i], 0)
		}
		rest += p - float64(out[i])
		total += float64(out[i])
	}
	if rest > 0 {
		out[len(out)-1] = math.Nextafter32(out[len(out)-1], 2)
	}
	missing, at := 1+float64(len(out)+8)*4e-16-total, 0
	for i, p := range out {
		if float64(p) > missing*0x1p23 && (p < out[at] || float64(out[at]) <= missing*0x1p23) {
			at = i
		}
	}
	for missing > 0 {
		p := math.Nextafter32(out[at], 2)
		missing -= float64(p) - float64(out[at])
		out[at] = p
	}
	for i, p := range out {
		g.p[i] = float64(p)
	}
	return out
}
