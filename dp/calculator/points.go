package calculator

import (
	"errors"
	"math"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/amplify"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

// pointwise says whether a release is answered by a curve of package amplify.
func (q *Question) pointwise(r release.Release) bool {
	local := q.Direction == release.BothDirections && release.Local(r.Mechanism)
	switch s := r.Sampling.(type) {
	case release.Shuffle:
		return true
	case release.CheckIns:
		return local || s.Schedule == release.AveragedWindow
	case release.Allocation:
		return local && q.Neighbours == release.ReplaceOne
	}
	return false
}

// byPoints answers by a curve of package amplify. Curves do not compose, so several steps
// are the better of the optimal composition of points (epsilon, delta) of one, and of the
// privacy loss distribution behind the curve where there is one.
func (q *Question) byPoints(r release.Release, how effort) (release.Guarantee, error) {
	switch q.Method {
	case accountant.Auto, accountant.PLD, accountant.ClosedForm, Clones, BKMTT, EFMRTT:
	default:
		return release.Guarantee{}, refuse("--method auto, pld or closed-form, or for what is shuffled clones, bkmtt or efmrtt",
			"%s does not cover shuffling, check-ins or the allocation of local reports", q.Method)
	}
	var best release.Guarantee
	found := false
	var problem error
	try := func(g release.Guarantee, err error) {
		switch {
		case err != nil && (problem == nil || !errors.Is(err, release.ErrUnsupported)):
			problem = err
		case err == nil && (!found || g.Epsilon < best.Epsilon || g.Delta < best.Delta):
			best, found = g, true
		}
	}
	if q.Method != accountant.PLD {
		known := how.one
		if known == nil {
			known = func() (points, error) { return q.oneStep(r) }
		}
		one, err := known()
		if err != nil {
			return release.Guarantee{}, err
		}
		if r.Count == 1 {
			return q.read(r, one)
		}
		try(q.composePoints(one, r.Count))
	}
	if !q.formulaic() {
		try(q.byDistribution(r, how))
	}
	if r.Count > 1 && q.Method == accountant.Auto {
		// Without all this the releases are no worse protected; with many steps that
		// bound can be the better one.
		g, err := q.account([]release.Release{r.Sampled(nil)}, how)
		g.EpsilonLower, g.DeltaLower = 0, 0
		try(g, err)
	}
	if !found {
		return best, problem
	}
	return best, nil
}

// formulaic reports whether one step is to be bounded by a formula of a paper.
func (q *Question) formulaic() bool {
	return q.Method == accountant.ClosedForm || q.Method == BKMTT || q.Method == EFMRTT
}

// read asks one step's curve. Its lower bound is of binary randomized response, so it says
// nothing about other reports.
func (q *Question) read(r release.Release, one points) (g release.Guarantee, err error) {
	if q.Delta == 0 {
		g, err = one.delta(q.Epsilon)
	} else {
		g, err = one.epsilon(q.Delta)
	}
	m, _ := r.Mechanism.(release.Response)
	if s, _ := r.Sampling.(release.Shuffle); m.Answers != 2 && !s.Columns {
		g.EpsilonLower, g.DeltaLower = 0, 0
	}
	return g, err
}

// byDistribution composes the dominating pair of one step.
func (q *Question) byDistribution(r release.Release, how effort) (release.Guarantee, error) {
	theorem := ""
	switch s := r.Sampling.(type) {
	case release.Shuffle:
		if _, err := q.message(r.Mechanism, s); err != nil { // which knows why not
			return release.Guarantee{}, err
		}
		if q.Method == Clones {
			var err error
			if r, err = anyReport(r); err != nil {
				return release.Guarantee{}, err
			}
		}
		if s.Rate != 1 {
			kept, total, err := sampledFrom(s)
			if err != nil {
				return release.Guarantee{}, err
			}
			s.Rate = min(1, outward.Above(float64(kept)/float64(total)))
			r.Sampling = s
		}
	case release.CheckIns:
		switch {
		case s.Schedule == release.AveragedWindow:
			theorem = "averaged check-ins as an adaptive shuffle of all users (docs/proofs/check-ins.md, theorem 3); "
			var err error
			if r, err = anyReport(r); err != nil {
				return release.Guarantee{}, err
			}
			r.Sampling = release.Shuffle{People: s.People, Rate: 1}
		case q.Neighbours == release.ReplaceOne && s.Rate < 1:
			return release.Guarantee{}, refuse("--method auto, or --p0 1", "there is no privacy loss distribution for check-ins that may be left out")
		default:
			return q.account([]release.Release{r}, how)
		}
	case release.Allocation:
		theorem = "clone bound on the steps of an allocation (docs/proofs/check-ins.md, theorem 2); "
		var err error
		if r, err = anyReport(r); err != nil {
			return release.Guarantee{}, err
		}
		r.Sampling = release.Shuffle{People: s.Of, Rate: 1}
	}
	g, err := q.account([]release.Release{r}, how)
	g.EpsilonLower, g.DeltaLower = 0, 0
	g.Theorem = theorem + g.Theorem
	return g, err
}

// anyReport is a release without what is known of its randomizer beyond its epsilon.
func anyReport(r release.Release) (release.Release, error) {
	is, err := release.ReportOf(r.Mechanism).Premise()
	r.Mechanism = release.LocalDP{Epsilon0: is.Epsilon0}
	return r, err
}

// points are proved (epsilon, delta) of one step.
type points struct {
	epsilon, delta func(float64) (release.Guarantee, error)
	ladder         *ladder // nil where delta is not known
}

// A ladder is a curve at the epsilons rung^i, each computed once: the composition of many
// steps asks for points again and again, and where exactly they lie hardly matters.
type ladder struct {
	delta func(epsilon float64) (release.Guarantee, error)
	known map[int]release.Guarantee
}

const (
	rung = 1.0005
	// The ladder reaches from 10^-9 to 10^6.
	leastRung, mostRung = -41458, 27640
)

func (l *ladder) at(i int) (release.Guarantee, error) {
	if g, ok := l.known[i]; ok {
		return g, nil
	}
	g, err := l.delta(math.Pow(rung, float64(i)))
	if err == nil {
		l.known[i] = g
	}
	return g, err
}

// epsilon is the lowest point whose delta is at most this one. It looks at the same
// points first, whatever delta is.
func (l *ladder) epsilon(delta float64) (release.Guarantee, error) {
	low, high := leastRung, mostRung
	best, err := l.at(high)
	if err == nil && best.Delta > delta {
		err = release.ErrNoGuarantee
	}
	for err == nil && high-low > 1 {
		i := low + (high-low)/2
		var g release.Guarantee
		if g, err = l.at(i); g.Delta <= delta {
			best, high = g, i
		} else {
			low = i
		}
	}
	return best, err
}

var errNoFormula = refuse("--delta asks for epsilon; or --method auto", "the closed forms answer epsilon at a delta only")

// oneStep is what is known about one step, whatever the count.
func (q *Question) oneStep(r release.Release) (points, error) {
	var c *amplify.Curve
	var formula func(delta float64) (release.Guarantee, error)
	var err error
	switch s := r.Sampling.(type) {
	case release.CheckIns:
		c, formula, err = q.checkIns(r, amplify.CheckIn(s))
	case release.Allocation: // a secret one of the steps
		c, formula, err = q.checkIns(r, amplify.CheckIn{Schedule: release.FixedWindow, Slots: s.Of, Rate: 1})
	case release.Shuffle:
		if c, formula, err = q.shuffled(r.Mechanism, s); err != nil || s.Rate == 1 {
			break
		}
		if q.formulaic() {
			return points{}, refuse("--method auto", "the closed forms of shuffling are not sampled from")
		}
		var kept, total uint64
		if kept, total, err = sampledFrom(s); err == nil {
			c, err = amplify.WithoutReplacement(c, kept, total)
		}
	}
	if err != nil {
		return points{}, err
	}
	if q.formulaic() {
		return points{epsilon: formula, delta: func(float64) (release.Guarantee, error) { return release.Guarantee{}, errNoFormula }}, nil
	}
	return points{c.Epsilon, c.Delta, &ladder{c.Delta, map[int]release.Guarantee{}}}, nil
}

// checkIns is the curve of one run of check-ins, and its closed form.
func (q *Question) checkIns(r release.Release, in amplify.CheckIn) (*amplify.Curve, func(float64) (release.Guarantee, error), error) {
	report, share := release.ReportOf(r.Mechanism), 1.0
	if in.Schedule == release.AveragedWindow {
		share = 0.5 // half of delta for the sizes of the slots
	}
	c, err := in.Curve(report, q.Neighbours)
	return c, func(delta float64) (release.Guarantee, error) {
		if q.Neighbours != release.ReplaceOne {
			return release.Guarantee{}, refuse("--neighbours replace, or --method auto", "the theorems of paper 004 are about replace-one neighbours")
		}
		return in.Theorem(amplify.LocalDP{Report: report}, share*delta, share*delta)
	}, err
}

// message is what is shuffled.
func (q *Question) message(m release.Mechanism, s release.Shuffle) (release.Message, error) {
	if s.Columns {
		return s.Message(m)
	}
	if q.Neighbours != release.ReplaceOne {
		hint := "--neighbours replace"
		if _, ok := m.(release.RAPPOR); ok {
			hint += ", or zero-out for the sums of the columns"
		}
		return nil, refuse(hint, "no shuffling theorem here is about %v neighbours of %s", q.Neighbours, m.Name())
	}
	r := release.ReportOf(m)
	if q.Method == Clones {
		r = r.Any()
	}
	return r, nil
}

// shuffled is the curve of one batch through the shuffler, and its closed form.
func (q *Question) shuffled(of release.Mechanism, s release.Shuffle) (*amplify.Curve, func(float64) (release.Guarantee, error), error) {
	m, err := q.message(of, s)
	if err != nil {
		return nil, nil, err
	}
	c, err := amplify.Shuffle(m, s.People)
	return c, func(delta float64) (release.Guarantee, error) {
		switch r, rows := m.(release.Report); {
		case q.Method == EFMRTT:
			return amplify.ShuffleEFMRTT(m, s.People, delta)
		case q.Method == BKMTT && rows:
			return amplify.ShuffleBKMTT(amplify.LocalDP{Report: r}, s.People, delta)
		}
		g, err := amplify.ShuffleFOCS(m, s.People, delta)
		// The stronger closed form where it is proved.
		if s, problem := amplify.ShuffleSODA(m, s.People, delta); problem == nil && (err != nil || s.Epsilon < g.Epsilon) {
			return s, nil
		}
		return g, err
	}, err
}

// sampledFrom is the size of a sample that is shuffled, and of how many people it is one.
func sampledFrom(s release.Shuffle) (kept, total uint64, err error) {
	people := math.Floor(outward.Beneath(float64(s.People) / s.Rate))
	if people > amplify.MaxCount {
		return 0, 0, refuse("a larger --sampling", "%d reports at this rate are of more than 10^12 people", s.People)
	}
	return s.People, max(s.People, uint64(people)), nil
}

// composePoints is the optimal composition of count steps of one point, the best of some
// points.
func (q *Question) composePoints(p points, count uint64) (release.Guarantee, error) {
	steps := float64(count)
	var best release.Guarantee
	found := false
	var problem error
	try := func(one release.Guarantee, err error) {
		if err != nil {
			problem = err
			return
		}
		whole := []release.Release{release.Times(count, release.ApproxDP{Epsilon: one.Epsilon, Delta: one.Delta})}
		var g release.Guarantee
		if q.Delta == 0 {
			g, err = accountant.Delta(whole, q.Epsilon, q.Neighbours)
		} else {
			g, err = accountant.Epsilon(whole, q.Delta, q.Neighbours)
		}
		if err != nil {
			problem = err
			return
		}
		g.EpsilonLower, g.DeltaLower = 0, 0
		g.Theorem = one.Theorem + "; optimal composition (Kairouz, Oh and Viswanath 2015)"
		if !found || g.Epsilon < best.Epsilon || g.Delta < best.Delta {
			best, found = g, true
		}
	}
	if q.Delta != 0 {
		epsilon := p.epsilon
		if p.ladder != nil {
			epsilon = p.ladder.epsilon
		}
		for _, share := range []float64{0.97, 0.9, 0.75, 0.5, 0.25, 0.1, 0.03, 0.01, 1e-3} {
			try(epsilon(share * q.Delta / steps))
		}
	} else {
		// From all the loss in one step's epsilon, by a simple sum, to a little of it.
		for e := q.Epsilon / steps; e <= q.Epsilon; e *= 1.3 {
			try(p.delta(e))
		}
	}
	if !found {
		if problem == nil {
			problem = release.ErrNoGuarantee
		}
		return release.Guarantee{}, problem
	}
	return best, nil
}
