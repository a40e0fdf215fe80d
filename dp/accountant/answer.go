package accountant

import (
	"errors"
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/release"
)

// A Method is a way to an answer.
type Method string

const (
	Auto       Method = ""            // the tightest that covers the event
	ClosedForm Method = "closed-form" // a formula
	PLD        Method = "pld"         // privacy loss distributions, composed numerically
	RDP        Method = "rdp"         // Renyi divergences
	ZCDPMethod Method = "zcdp"        // zero-concentrated DP
	SimpleZCDP Method = "zcdp-simple" // zero-concentrated DP by the textbook's conversion, for comparison
)

// Options say how to answer. The zero value is the default.
type Options struct {
	// Method restricts the answer to one method; the default is Auto.
	Method Method
	// Tolerance is how far apart the bounds on epsilon may be, relative to epsilon, where
	// computing longer helps; the default is 1e-4. It must lie between 1e-7 and 1.
	Tolerance float64
	// Orders are the Renyi orders that RDP tries, each above 1; the default is
	// DefaultOrders().
	Orders []float64
	// Direction restricts the answer to one direction; the default is the larger of both.
	// Where they differ, PLD alone knows them apart.
	Direction release.Direction
}

func (o *Options) validate() error {
	if o.Tolerance == 0 {
		o.Tolerance = 1e-4
	}
	if !(o.Tolerance >= 1e-7 && o.Tolerance <= 1) {
		return parameter("tolerance", o.Tolerance, "1e-7 to 1")
	}
	if o.Direction != release.BothDirections {
		if _, err := release.ParseDirection(string(o.Direction)); err != nil {
			return err
		}
	}
	switch o.Method {
	case Auto, ClosedForm, PLD, RDP, ZCDPMethod, SimpleZCDP:
		return nil
	}
	return fmt.Errorf("%w: method %q", release.ErrParameter, o.Method)
}

// apart reports whether the two directions of some leaf are told apart, which PLD alone
// does.
func (o *Options) apart(leaves []leaf, n release.Neighbours) (bool, error) {
	if o.Direction == release.BothDirections {
		return false, nil
	}
	if n == release.ReplaceOne {
		return false, fmt.Errorf("%w: a direction of replace-one neighbours", release.ErrUnsupported)
	}
	for _, l := range leaves {
		e, ok := l.event.(dominated)
		if !ok {
			continue
		}
		if d, err := e.dominating(n); err != nil || d.symmetric {
			continue
		}
		if o.Method != Auto && o.Method != PLD {
			return false, fmt.Errorf("%w: the directions apart by method %q; ask for pld", release.ErrUnsupported, o.Method)
		}
		return true, nil
	}
	return false, nil
}

// Epsilon returns the least epsilon that is proved for the releases at delta.
func Epsilon(list []release.Release, delta float64, n release.Neighbours) (release.Guarantee, error) {
	return Options{}.Epsilon(list, delta, n)
}

// Delta returns the least delta that is proved for the releases at epsilon.
func Delta(list []release.Release, epsilon float64, n release.Neighbours) (release.Guarantee, error) {
	return Options{}.Delta(list, epsilon, n)
}

// Epsilon returns the least epsilon that is proved for the releases at delta, which is 0
// for those that are each private without one, by a formula.
func (o Options) Epsilon(list []release.Release, delta float64, n release.Neighbours) (release.Guarantee, error) {
	if delta == 0 && (o.Method == Auto || o.Method == ClosedForm) {
		if err := o.validate(); err != nil {
			return release.Guarantee{}, err
		}
		return pureEpsilon(list, n)
	}
	e, err := eventOf(list)
	if err != nil {
		return release.Guarantee{}, err
	}
	return o.epsilon(e, delta, n)
}

// Delta returns the least delta that is proved for the releases at epsilon.
func (o Options) Delta(list []release.Release, epsilon float64, n release.Neighbours) (release.Guarantee, error) {
	e, err := eventOf(list)
	if err != nil {
		return release.Guarantee{}, err
	}
	return o.delta(e, epsilon, n)
}

func (o Options) epsilon(e event, delta float64, n release.Neighbours) (release.Guarantee, error) {
	if err := checkDelta(delta); err != nil {
		return release.Guarantee{}, err
	}
	g, err := o.answer(e, n, release.Guarantee{Delta: delta}, true)
	if picksMany(e) {
		g.EpsilonLower = 0
	}
	return g, err
}

func (o Options) delta(e event, epsilon float64, n release.Neighbours) (release.Guarantee, error) {
	if err := checkEpsilon(epsilon); err != nil {
		return release.Guarantee{}, err
	}
	g, err := o.answer(e, n, release.Guarantee{Epsilon: epsilon}, false)
	if picksMany(e) {
		g.DeltaLower = 0
	}
	return g, err
}

// answer completes g, which holds the question: epsilon at g.Delta, or delta at g.Epsilon.
func (o Options) answer(e event, n release.Neighbours, g release.Guarantee, wantEpsilon bool) (release.Guarantee, error) {
	if err := o.validate(); err != nil {
		return release.Guarantee{}, err
	}
	if err := checkNeighbours(n); err != nil {
		return release.Guarantee{}, err
	}
	leaves, err := flatten(nil, e, 1)
	if err != nil {
		return release.Guarantee{}, err
	}
	total := 0.0
	for _, l := range leaves {
		total += float64(l.count)
	}
	if total > maxCount {
		return release.Guarantee{}, parameter("number of releases", total, "at most 2*10^12")
	}
	g.Neighbours, g.Direction = n, o.Direction
	apart, err := o.apart(leaves, n)
	if err != nil {
		return release.Guarantee{}, err
	}
	var found []release.Guarantee
	var problem error // the most telling reason why a method failed
	try := func(m Method, f func() (release.Guarantee, error)) {
		if o.Method != Auto && o.Method != m || apart && m != PLD {
			return
		}
		r, err := f()
		if err == nil && !(r.Epsilon >= 0 && r.Delta >= 0) {
			err = fmt.Errorf("%w: the parameters are too extreme for float64", release.ErrUnsupported)
		}
		switch {
		case err == nil:
			found = append(found, r)
		case problem == nil || errors.Is(problem, release.ErrUnsupported):
			problem = err
		}
	}
	try(ClosedForm, func() (release.Guarantee, error) { return closedForm(leaves, g, wantEpsilon) })
	if errors.Is(problem, release.ErrParameter) {
		return release.Guarantee{}, problem
	}
	if len(found) == 0 || lower(found[0], wantEpsilon) == 0 && !settled(leaves) {
		try(PLD, func() (release.Guarantee, error) { return o.pld(leaves, g, wantEpsilon) })
	}
	if errors.Is(problem, release.ErrParameter) {
		return release.Guarantee{}, problem
	}
	if len(found) == 0 {
		try(RDP, func() (release.Guarantee, error) { return o.rdp(leaves, g, wantEpsilon) })
	}
	if o.Method == ZCDPMethod || o.Method == SimpleZCDP {
		try(o.Method, func() (release.Guarantee, error) { return concentrated(leaves, g, wantEpsilon, o.Method) })
	}
	most := ceiling(leaves, n)
	if len(found) == 0 {
		if problem == nil {
			problem = release.ErrUnsupported
		}
		if o.Method == Auto || errors.Is(problem, release.ErrNoGuarantee) {
			if pure, ok := purely(g, most, wantEpsilon); ok {
				return pure, nil
			}
		}
		return release.Guarantee{}, problem
	}
	best := found[0]
	for _, r := range found[1:] {
		low := max(best.EpsilonLower, r.EpsilonLower)
		lowDelta := max(best.DeltaLower, r.DeltaLower)
		if r.Epsilon < best.Epsilon || r.Delta < best.Delta {
			best = r
		}
		best.EpsilonLower, best.DeltaLower = min(low, best.Epsilon), min(lowDelta, best.Delta)
	}
	return below(best, most, wantEpsilon), nil
}

// settled reports whether a formula for the leaves is the best there is, even without a
// bound from below.
func settled(leaves []leaf) bool {
	switch e := leaves[0].event.(type) {
	case discreteGaussian: // unsampled vectors of bounded norm, L2 or L1, stay with zCDP, which certificates prove
		return len(leaves) == 1 && e.Contribution.Anywhere()
	case shuffled, approxDP, zcdp, correlated:
		return len(leaves) == 1
	}
	return false
}

func lower(g release.Guarantee, wantEpsilon bool) float64 {
	if wantEpsilon {
		return g.EpsilonLower
	}
	return g.DeltaLower
}

// closedForm answers by a formula, if there is one leaf that has it or there are only
// Gaussians.
func closedForm(leaves []leaf, g release.Guarantee, wantEpsilon bool) (release.Guarantee, error) {
	f, theorem, err := formula(leaves, g.Neighbours)
	if err != nil {
		return release.Guarantee{}, err
	}
	g.Theorem, g.Method = theorem, string(ClosedForm)
	if theorem == zcdpTheorem || theorem == correlatedTheorem {
		g.Method = "zcdp"
	}
	if !wantEpsilon {
		g.DeltaLower, g.Delta = f(g.Epsilon)
		return g, nil
	}
	g.EpsilonLower, g.Epsilon, err = f.epsilon(g.Delta)
	return g, err
}

func formula(leaves []leaf, n release.Neighbours) (curve, string, error) {
	if len(leaves) == 1 {
		if c, ok := leaves[0].event.(closed); ok {
			return c.exact(n, float64(leaves[0].count))
		}
		return nil, "", fmt.Errorf("%w: no formula for %s", release.ErrUnsupported, nameOf(leaves[0].event))
	}
	// Gaussians, whatever their sizes, are one Gaussian.
	sum := 0.0
	for _, l := range leaves {
		x, ok := l.event.(gaussian)
		if !ok {
			return nil, "", fmt.Errorf("%w: no formula for a mixed composition", release.ErrUnsupported)
		}
		mu, err := x.mu(n, float64(l.count))
		if err != nil {
			return nil, "", err
		}
		sum += mu * mu
	}
	return gaussian{1 / math.Sqrt(sum), release.Signed(1)}.exact(release.AddRemove, 1)
}
