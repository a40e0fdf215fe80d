package accountant

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/starling-agg/starling/dp/certificate"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

// roomy is by how much more than certificate.Room a claim is above what is proved here
// where the checker works on a coarse grid.
const roomy = 1e-3

// Certify returns a certificate, for package certificate to check on the device, of an
// epsilon of the releases at delta that is close to (within 1 % of) that of Epsilon.
// ErrUnsupported is the answer to allocations of what is not pure DP, several rounds of
// shuffling, continuous Laplace noise on several coordinates, sums of Laplace noise,
// Poisson samples for ReplaceOne, and mixtures with zCDP.
func Certify(list []release.Release, delta float64, n release.Neighbours) (*certificate.Certificate, error) {
	g, err := Epsilon(list, delta, n)
	if err != nil {
		return nil, err
	}
	c := &certificate.Certificate{Claim: certificate.Claim{Delta: delta, Neighbours: n}}
	if c.Terms, err = release.Terms(list, n); err != nil {
		return nil, err
	}
	rho, concentrated := 0.0, true
	for i := range c.Terms {
		t := &c.Terms[i]
		if t.Family >= release.FamilyShuffled {
			if len(c.Terms) > 1 {
				return nil, fmt.Errorf("%w: no certificate for a composition with what is %v", release.ErrUnsupported, t.Family)
			}
			t.Mu, t.Fail = (outward.Widened(g.Epsilon, roomy)+certificate.Room)*(1-certificate.Room)-1e-14, delta*(1-certificate.Room)
		}
		concentrated = concentrated && t.Family == release.FamilyZCDP
		rho += t.Mu * float64(t.Count)
	}
	if concentrated && len(c.Terms) > 1 {
		c.Terms = []release.Term{{Family: release.FamilyZCDP, Count: 1, Mu: outward.Up(rho), Rate: 1}}
	}
	for _, room := range []float64{certificate.Room, 1e-7, 1e-5, roomy, 3e-3, 1e-2} {
		if room < roomy && !formulaic(c) {
			continue
		}
		c.Epsilon = outward.Widened(g.Epsilon, room) + 1e-6*room
		if err = Prove(c); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// Prove completes a certificate of which claim and terms are given, so that it checks. It
// returns ErrUnsupported if it finds no proof.
func Prove(c *certificate.Certificate) error {
	c.Step, c.Laws, c.Masses = 0, nil, nil
	err := c.Check()
	if err != nil && !formulaic(c) && len(c.Terms) > 0 && c.Delta > 0 {
		err = prove(c)
	}
	if err != nil {
		c.Step, c.Laws, c.Masses = 0, nil, nil
		return fmt.Errorf("%w: no certificate was found: %w", release.ErrUnsupported, err)
	}
	return nil
}

// formulaic says whether the checker takes no distributions, as one formula tells all.
func formulaic(c *certificate.Certificate) bool {
	return len(c.Terms) == 1 && folded(c.Terms[0]) == 1
}

// folded is the number of releases after the checker has added up what adds up.
func folded(t release.Term) uint64 {
	if t.Sample != release.SampleEveryone {
		return t.Count
	}
	switch t.Family {
	case release.FamilyGaussian, release.FamilyZCDP:
		return 1
	case release.FamilyDiscreteGaussian:
		if float64(t.Num)/float64(t.Den) >= minSmoothVariance {
			return 1
		}
	}
	return t.Count
}

// pairOf returns the pair of one release of a term, of all of them where they are folded
// into one.
func pairOf(t release.Term) (pair, error) {
	var x pair
	e0 := t.Mu
	switch t.Family {
	case release.FamilyGaussian:
		if t.Sample == release.SampleEveryone {
			e0 *= math.Sqrt(float64(t.Count))
		}
		x = normalPair{e0}
	case release.FamilyLaplace:
		x = laplacePair{e0}
	case release.FamilyResponse:
		x = responsePair(e0, float64(t.Answers))
		if t.Answers == 2 {
			x = approxPair(e0, t.Fail)
		}
	case release.FamilyDiscreteLaplace:
		x = discreteLaplacePair(float64(t.Den)/float64(t.Num), float64(t.Shift))
	case release.FamilyDiscreteGaussian:
		k, v, s := float64(t.Coordinates), float64(t.Num)/float64(t.Den), float64(t.Shift)
		if folded(t) < t.Count {
			k *= float64(t.Count)
		}
		if w := v * float64(t.Honest); 30*math.Sqrt(k*w)+2*k*s <= maxAtoms {
			l := newLattice(k, s, w)
			if l.pmf == nil {
				l.pmf = gaussianPMF(l.v)
			}
			x = l.pair()
		}
	case release.FamilyShuffled, release.FamilyCheckedIn:
		x = approxPair(e0, t.Fail)
	}
	if x == nil {
		return nil, fmt.Errorf("%w: no privacy loss distribution for this use of the mechanism", release.ErrUnsupported)
	}
	if t.Dummies > 0 {
		count, err := dummyCount{t.Dummies, t.DummyRate}.dominating(release.AddRemove)
		if err != nil {
			return nil, err
		}
		if x, err = mixed(count.pair.(*atoms), x); err != nil {
			return nil, err
		}
	}
	switch t.Sample {
	case release.SamplePoisson:
		x = poisson{x, t.Rate}
	case release.SampleFixed:
		x = newFixed(x, t.Rate)
	}
	return x, nil
}

// prove adds distributions to c that show its claim, on the coarsest grid that does.
func prove(c *certificate.Certificate) error {
	terms := make([]term, len(c.Terms))
	count, ways := 0.0, []bool{false}
	for i, t := range c.Terms {
		x, err := pairOf(t)
		if err != nil {
			return err
		}
		terms[i] = term{dominance{pair: x}, folded(t)}
		count += float64(terms[i].count)
		if t.Sample == release.SamplePoisson {
			ways = []bool{false, true}
		}
	}
	q := question{tail: max(c.Delta*1e-4/count, 1e-280)}
	h, err := q.firstStep(terms)
	if err != nil {
		return err
	}
	// Of epsilon: by how much losses move up, so that the distributions clear the
	// mechanism by more than rounding. Responses are on the grid, and to clear them takes
	// next to nothing.
	lift := 2e-5
	if !slices.ContainsFunc(c.Terms, func(t release.Term) bool { return t.Family != release.FamilyResponse }) {
		lift = 1e-12
	}
	h *= 2.5
	spare := 0.0 // of the mass that is infinite anyway, where losses that move up are not enough
	for first := h; ; {
		c.Step, c.Laws, c.Masses = snap(terms, h), nil, nil
		for _, added := range ways {
			if err := discretise(terms, c, q.tail, added, count, lift, spare); err != nil {
				return err
			}
		}
		bad := new(certificate.Error)
		if err = c.Check(); err == nil {
			return nil
		}
		if errors.As(err, &bad) && bad.Reason == certificate.NotDominating && lift < 1e-3 {
			lift *= 4 // dummies are put on blocks, here and there
			continue
		} else if errors.As(err, &bad) && bad.Reason == certificate.NotDominating && spare < 1e-2*c.Delta/count {
			spare = max(1e-3*c.Delta/count, 10*spare)
			continue
		}
		if h < first/64 || h < c.Step/8 || len(c.Masses) > 1<<13 {
			return err
		}
		h /= 2 // a tenth of the accuracy is a fourth of the bytes
	}
}

// discretise adds the privacy loss distributions of the terms to c.
func discretise(terms []term, c *certificate.Certificate, tail float64, added bool, count, lift, spare float64) error {
	for _, t := range terms {
		x := t.pair
		if added {
			x = swapped{x}
		}
		b, ok := bin(x, c.Step, tail)
		if !ok {
			return fmt.Errorf("%w: the losses spread too widely for a certificate", release.ErrUnsupported)
		}
		g := b.upper()
		// Losses far below zero hardly matter; without them the curve stays clear of 1,
		// and a small shift of the losses lifts it.
		low, sum := 0, 0.0
		for ; low < len(g.p)-1 && sum+g.p[low] < 1e-4/count; low++ {
			sum += g.p[low]
		}
		g.p = g.p[low:]
		g.p[0] += sum
		g.origin += float64(low)*c.Step + lift*c.Epsilon/count
		for len(g.p) > 1 && g.p[len(g.p)-1] == 0 {
			g.p = g.p[:len(g.p)-1]
		}
		g.inf += spare
		masses := narrow(&g)
		c.Laws = append(c.Laws, certificate.Law{Origin: g.origin, Infinite: g.inf, Size: uint32(len(masses))})
		c.Masses = append(c.Masses, masses...)
	}
	return nil
}

// narrow rounds the masses of g to float32: each down, and what is left moves up to the
// next. The total is brought to just above one by a mass that is large enough for the
// difference to be nothing to it.
func narrow(g *grid) []float32 {
	g.inf = outward.Up(g.inf)
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
