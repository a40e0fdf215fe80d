package calculator

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/amplify"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

// An Answer is a guarantee with what was asked for.
type Answer struct {
	release.Guarantee
	// Question is as it was understood, with what followed from the rest filled in, and the answer to Solve.
	Question Question
	// Assumptions must hold for the guarantee to be true.
	Assumptions []string
}

// Answer answers the question. Its errors are *[Error].
func (q Question) Answer() (*Answer, error) {
	q.Events = append([]Release(nil), q.Events...)
	if err := q.settle(); err != nil {
		return nil, explain(err)
	}
	var g release.Guarantee
	var err error
	if q.Solve != "" {
		g, err = q.solve()
	} else {
		g, err = q.guarantee()
	}
	if err != nil {
		return nil, explain(err)
	}
	return &Answer{Guarantee: g, Question: q, Assumptions: q.assumptions()}, nil
}

// guarantee is epsilon at q.Delta or, if that is zero, delta at q.Epsilon. The question is settled.
func (q *Question) guarantee() (release.Guarantee, error) {
	switch {
	case q.ShuffleN != 0 || q.Direction == release.BothDirections && q.Mechanism.local() && (q.CheckIn != 0 || q.Of != 0 && q.Neighbours == release.ReplaceOne):
		return q.byPoints()
	case q.Population != 0:
		return q.ofPopulation()
	}
	list, err := q.releases()
	if err != nil {
		return release.Guarantee{}, err
	}
	return q.account(list)
}

// account asks the accountant what the question asks.
func (q *Question) account(list []release.Release) (release.Guarantee, error) {
	o := accountant.Options{Method: q.Method, Tolerance: q.tolerance, Orders: q.Orders, Direction: q.Direction}
	if q.Method == Clones {
		o.Method = accountant.Auto // on another message
	}
	var g release.Guarantee
	var err error
	cost, epsilon, delta := q.nearly()
	switch {
	case q.Delta == 0:
		g, err = o.Delta(list, max(0, q.Epsilon-epsilon), q.Neighbours)
		g.Epsilon, g.Delta = q.Epsilon, min(1, g.Delta*delta)
	default:
		g, err = o.Epsilon(list, q.Delta/delta, q.Neighbours)
		g.Epsilon, g.Delta = g.Epsilon+epsilon, q.Delta
	}
	if errors.Is(err, release.ErrUnsupported) && q.Mechanism == DiscreteGaussian && q.mixes() && q.Sigma > 1e4 {
		err = refuse("--mechanism gaussian for the idealised noise, or coarser units of the sum",
			"discrete Gaussian noise of sigma %v has too many outcomes for a privacy loss distribution", q.Sigma)
	}
	if cost {
		g.EpsilonLower, g.DeltaLower = 0, 0
		g.Theorem += "; sum of two discrete Gaussians (docs/proofs/discrete-gaussian-sums.md, section 2)"
	}
	return g, err
}

// smooth reports whether two servers' discrete Gaussian noise is taken for a discrete Gaussian, at a cost: for the methods that
// know no other law. Privacy loss distributions and the formulas know the sum itself.
func (q *Question) smooth(sigma float64) bool {
	return q.Honest == 2 && sigma >= 1.5 && slices.Contains([]accountant.Method{accountant.RDP, accountant.ZCDPMethod, accountant.SimpleZCDP}, q.Method)
}

// nearly is what it costs to take the sum of two servers' discrete Gaussian noise for one discrete Gaussian of twice the
// variance: at most that much more epsilon, and a factor of delta.
func (q *Question) nearly() (cost bool, epsilon, delta float64) {
	releases := q.Events
	if len(releases) == 0 {
		releases = []Release{q.Release}
	}
	total := 0.0
	for _, r := range releases {
		if r.Mechanism == DiscreteGaussian && q.smooth(r.Sigma) {
			// docs/proofs/discrete-gaussian-sums.md, section 2: S_2, with exp(-pi^2 sigma^2) below 10^-9.
			x := math.Exp(-math.Pi * math.Pi * r.Sigma * r.Sigma)
			total += 4.001 * x * float64(r.Steps) * float64(max(1, r.Of, q.Window))
			cost = true
		}
	}
	return cost, 2 * total, math.Exp(total)
}

// mixes reports whether discrete Gaussian noise is only part of a question, so that its own formulas are of no use.
func (q *Question) mixes() bool {
	return len(q.Events) > 1 || q.Sampling > 0 || q.Of > 0 || q.CheckIn != 0 || q.Method != accountant.Auto && q.Method != accountant.ClosedForm ||
		len(q.Events) == 1 && (q.Events[0].Sampling > 0 || q.Events[0].Of > 0)
}

// ofPopulation answers for samples by a coin each out of a population, whose sizes show: sampling without replacement at
// the upper quantile of the sizes.
func (q *Question) ofPopulation() (release.Guarantee, error) {
	whole := q.Delta
	if whole == 0 {
		all := *q
		all.Population = 0
		g, err := all.guarantee()
		if err != nil {
			return release.Guarantee{}, err
		}
		whole = min(max(g.Delta, 1e-98), 1)
	}
	var best release.Guarantee
	found := false
	var problem error
	// What is spent on larger samples is not left for the releases; a wide range of it does nearly as well.
	for _, part := range []float64{0.3, 0.03, 0.003} {
		g, err := q.ofSample(part * whole)
		switch {
		case err != nil:
			problem = err
		case !found || g.Epsilon < best.Epsilon || g.Delta < best.Delta:
			best, found = g, true
		}
	}
	if !found {
		return best, problem
	}
	return best, nil
}

// ofSample is ofPopulation where any sample is larger than accounted for with probability at most miss.
func (q *Question) ofSample(miss float64) (release.Guarantee, error) {
	kept, err := q.quantile(miss / float64(q.Steps))
	if err != nil {
		return release.Guarantee{}, err
	}
	all := *q
	all.Population = 0
	all.Sampling = min(1, outward.Above(float64(kept)/float64(q.Population)))
	miss = outward.Up(miss)
	if q.Delta != 0 {
		all.Delta -= miss
	}
	g, err := all.guarantee()
	if err != nil {
		return release.Guarantee{}, err
	}
	g.EpsilonLower, g.DeltaLower = 0, 0
	g.Delta = min(1, g.Delta+miss)
	if q.Delta != 0 {
		g.Delta = q.Delta
	}
	g.Theorem += "; exact binomial quantile of the number sampled"
	return g, nil
}

// quantile is the most that are sampled of the population, except with probability miss.
func (q *Question) quantile(miss float64) (uint64, error) {
	// P(X > N - B) = P(N - X < B), and N - X is binomial too.
	rest, err := amplify.MinimumBatch(q.Population, 1-q.Sampling, miss)
	return q.Population - rest, err
}

// releases is everything that is released.
func (q *Question) releases() ([]release.Release, error) {
	if len(q.Events) == 0 {
		r, err := q.Release.stated(q)
		return []release.Release{r}, err
	}
	all := make([]release.Release, len(q.Events))
	for i := range q.Events {
		var err error
		if all[i], err = q.Events[i].stated(q); err != nil {
			return nil, fmt.Errorf("event %d: %w", i+1, err)
		}
	}
	return all, nil
}

// stated is one release as the accountant knows it, with everything around it but
// shuffling.
func (r *Release) stated(q *Question) (release.Release, error) {
	m, err := r.once(q)
	out := release.Times(r.Steps, m)
	sampled := r.Sampling > 0
	switch {
	case err != nil:
		return out, err
	case sampled && q.Neighbours == release.ReplaceOne && (q.Count == CountPublic || r.Mechanism != Gaussian):
		// Without replacement, if the count shows. If not, a coin each is no worse (docs/accounting.md).
		return out.Sampled(release.Fixed{Rate: r.Sampling}), nil
	case r.Of > 0 && sampled:
		return out.Sampled(release.Allocation{Picks: r.Picks, Of: r.Of, Rate: r.Sampling}), nil
	case r.Of > 0:
		return out.Sampled(release.Allocation{Picks: r.Picks, Of: r.Of, Rate: 1}), nil
	case q.CheckIn == amplify.AveragedWindow:
		return out, refuse("--mechanism rr or rappor", "averaged check-ins are accounted for with pure local privacy only")
	case q.CheckIn != 0:
		// Windows that are cut short or a server that chooses among the clients of a slot
		// only post-process (docs/proofs/check-ins.md).
		return out.Sampled(release.CheckIns{Slots: q.Window, Rate: q.P0}), nil
	case sampled:
		return out.Sampled(release.Poisson{Rate: r.Sampling}), nil
	}
	return out, nil
}

// once is the mechanism by itself.
func (r *Release) once(q *Question) (release.Mechanism, error) {
	// A record may be anything from -C to C, so replacing one moves the sum by 2C.
	c := release.Signed(r.Sensitivity)
	switch r.Mechanism {
	case Gaussian:
		return release.Gaussian{Sigma: r.Sigma, Contribution: c, Honest: q.Honest}, nil
	case DiscreteGaussian:
		variance, err := squareBelow(r.Sigma)
		if err != nil {
			return nil, err
		}
		honest := q.Honest
		if q.smooth(r.Sigma) {
			variance.Num, honest = 2*variance.Num, 1 // see nearly
		}
		return release.DiscreteGaussian{Variance: variance, Contribution: c, Honest: honest}, nil
	case CorrelatedGaussian:
		variance, err := squareBelow(r.Sigma)
		if err != nil {
			return nil, err
		}
		num, den := r.series.Norm2()
		return release.CorrelatedGaussian{Variance: variance, Norm2: release.Rational{Num: num, Den: den}, Contribution: c, Bands: r.Bands, Rounds: r.Rounds}, nil
	case Laplace:
		return release.Laplace{Scale: r.Scale, Contribution: c, Honest: q.Honest}, nil
	case DiscreteLaplace:
		scale, err := rationalBelow(r.Scale)
		return release.DiscreteLaplace{Scale: scale, Contribution: c, Honest: q.Honest}, err
	case RR:
		return release.Response{Epsilon0: r.Epsilon0, Answers: r.K}, nil
	case RAPPOR:
		return release.RAPPOR{Epsilon0: r.Epsilon0, Answers: r.K}, nil
	case ApproxDP:
		return release.ApproxDP{Epsilon: r.Epsilon, Delta: r.Delta}, nil
	case ZCDP:
		return release.ZCDP{Rho: r.Rho}, nil
	}
	return nil, refuse("one of "+mechanismNames, "there is no mechanism %q", r.Mechanism)
}

// seriesBits are the fractional bits of a strategy, as the planner takes them.
const seriesBits = 8

// report is the mechanism as it is run on one person's input.
func (q *Question) report() (release.Report, error) {
	m, err := q.once(q)
	if err != nil {
		return release.Report{}, err
	}
	return release.ReportOf(m), nil
}

// columns reports whether only the sums of RAPPOR's columns are released, through a shuffler.
func (q *Question) columns() bool {
	return q.ShuffleN != 0 && q.CheckIn == 0 && q.Mechanism == RAPPOR && q.Neighbours == release.ZeroOut
}

// message is what is shuffled.
func (q *Question) message() (release.Message, error) {
	if q.columns() {
		return release.ColumnsOf(q.Epsilon0), nil
	}
	if q.Neighbours != release.ReplaceOne {
		hint := "--neighbours replace"
		if q.Mechanism == RAPPOR {
			hint += ", or zero-out for the sums of the columns"
		}
		return nil, refuse(hint, "no shuffling theorem here is about %v neighbours of %s", q.Neighbours, q.Mechanism)
	}
	r, err := q.report()
	if q.Method == Clones {
		return r.Any(), err
	}
	return r, err
}

// byPoints answers by a curve of package amplify. Curves do not compose, so several steps are the better of the optimal
// composition of points (epsilon, delta) of one, and of the privacy loss distribution behind the curve where there is one.
func (q *Question) byPoints() (release.Guarantee, error) {
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
		one, err := q.onePoints()
		if err != nil {
			return release.Guarantee{}, err
		}
		if q.Steps == 1 {
			return q.read(one)
		}
		try(q.composePoints(one))
	}
	if !q.formulaic() {
		try(q.byDistribution())
	}
	if q.Steps > 1 && q.Method == accountant.Auto {
		// Without all this the releases are no worse protected; with many steps that bound can be the better one.
		plain := *q
		plain.ShuffleN, plain.CheckIn, plain.Sampling, plain.Picks, plain.Of = 0, 0, 0, 0, 0
		if list, err := plain.releases(); err == nil {
			g, err := plain.account(list)
			g.EpsilonLower, g.DeltaLower = 0, 0
			try(g, err)
		}
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

// read asks one step's curve. Its lower bound is of binary randomized response, so it says nothing about other reports.
func (q *Question) read(one points) (g release.Guarantee, err error) {
	if q.Delta == 0 {
		g, err = one.delta(q.Epsilon)
	} else {
		g, err = one.epsilon(q.Delta)
	}
	if !(q.Mechanism == RR && q.K == 2 || q.columns()) {
		g.EpsilonLower, g.DeltaLower = 0, 0
	}
	return g, err
}

// byDistribution composes the pair of laws that dominates one step.
func (q *Question) byDistribution() (release.Guarantee, error) {
	theorem := ""
	m, err := q.once(q)
	if err != nil {
		return release.Guarantee{}, err
	}
	is, err := release.ReportOf(m).Premise()
	anything := release.Times(q.Steps, release.LocalDP{Epsilon0: is.Epsilon0})
	var r release.Release
	switch {
	case q.CheckIn == 0 && q.ShuffleN != 0:
		if _, err := q.message(); err != nil { // which knows why not
			return release.Guarantee{}, err
		}
		if r = release.Times(q.Steps, m); q.Method == Clones {
			r = anything
		}
		s := release.Shuffle{People: q.ShuffleN, Rate: 1, Columns: q.columns()}
		if q.Sampling > 0 {
			kept, total, err := q.sampledFrom()
			if err != nil {
				return release.Guarantee{}, err
			}
			s.Rate = min(1, outward.Above(float64(kept)/float64(total)))
		}
		r.Sampling = s
	case q.CheckIn == amplify.AveragedWindow:
		theorem = "averaged check-ins as an adaptive shuffle of all users (docs/proofs/check-ins.md, theorem 3); "
		r = anything.Sampled(release.Shuffle{People: q.ShuffleN, Rate: 1})
	case q.CheckIn == 0 && q.Neighbours == release.ReplaceOne:
		theorem = "clone bound on the steps of an allocation (docs/proofs/check-ins.md, theorem 2); "
		r = anything.Sampled(release.Shuffle{People: q.Of, Rate: 1})
	case q.Neighbours == release.ReplaceOne && q.P0 < 1:
		return release.Guarantee{}, refuse("--method auto, or --p0 1", "there is no privacy loss distribution for check-ins that may be left out")
	default:
		list, err := q.releases()
		if err != nil {
			return release.Guarantee{}, err
		}
		return q.account(list)
	}
	if err != nil { // of the report
		return release.Guarantee{}, err
	}
	g, err := q.account([]release.Release{r})
	g.EpsilonLower, g.DeltaLower = 0, 0
	g.Theorem = theorem + g.Theorem
	return g, err
}

// points are proved (epsilon, delta) of one step.
type points struct {
	epsilon, delta func(float64) (release.Guarantee, error)
	ladder         *ladder // nil where delta is not known
}

// onePoints is oneStep, which does not depend on the number of steps, kept for the search for that number.
func (q *Question) onePoints() (points, error) {
	if q.one != nil {
		return *q.one, nil
	}
	one, err := q.oneStep()
	if err == nil && q.Solve == SolveSteps {
		q.one = &one
	}
	return one, err
}

// A ladder is a curve at the epsilons rung^i, each computed once: the composition of many steps asks for points again and
// again, and where exactly they lie hardly matters.
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

// epsilon is the lowest point whose delta is at most this one. It looks at the same points first, whatever delta is.
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

// oneStep is what is known about one step.
func (q *Question) oneStep() (points, error) {
	var c *amplify.Curve
	var formula func(delta float64) (release.Guarantee, error)
	var err error
	if q.CheckIn != 0 || q.Of != 0 {
		report, err := q.report()
		if err != nil {
			return points{}, err
		}
		in := amplify.CheckIn{Schedule: q.CheckIn, Slots: q.Window, P0: q.P0}
		if q.Of != 0 { // a secret one of q.Of steps
			in = amplify.CheckIn{Schedule: amplify.FixedWindow, Slots: q.Of, P0: 1}
		}
		share := 1.0
		if q.CheckIn == amplify.AveragedWindow {
			in.Users = q.ShuffleN
			share = 0.5 // half of delta for the sizes of the slots
		}
		formula = func(delta float64) (release.Guarantee, error) {
			if q.Neighbours != release.ReplaceOne {
				return release.Guarantee{}, refuse("--neighbours replace, or --method auto", "the theorems of paper 004 are about replace-one neighbours")
			}
			return in.Theorem(amplify.LocalDP{Report: report}, share*delta, share*delta)
		}
		c, err = in.Curve(report, q.Neighbours)
		if err != nil {
			return points{}, err
		}
	} else {
		c, formula, err = q.shuffled()
	}
	if err != nil {
		return points{}, err
	}
	if q.Sampling > 0 {
		if q.formulaic() {
			return points{}, refuse("--method auto", "the closed forms of shuffling are not sampled from")
		}
		kept, total, err := q.sampledFrom()
		if err != nil {
			return points{}, err
		}
		if c, err = amplify.WithoutReplacement(c, kept, total); err != nil {
			return points{}, err
		}
	} else if q.formulaic() {
		return points{epsilon: formula, delta: func(float64) (release.Guarantee, error) { return release.Guarantee{}, errNoFormula }}, nil
	}
	return points{c.Epsilon, c.Delta, &ladder{c.Delta, map[int]release.Guarantee{}}}, nil
}

// shuffled is the curve of one batch through the shuffler, and its closed form.
func (q *Question) shuffled() (*amplify.Curve, func(float64) (release.Guarantee, error), error) {
	m, err := q.message()
	if err != nil {
		return nil, nil, err
	}
	c, err := amplify.Shuffle(m, q.ShuffleN)
	return c, func(delta float64) (release.Guarantee, error) {
		switch r, rows := m.(release.Report); {
		case q.Method == EFMRTT:
			return amplify.ShuffleEFMRTT(m, q.ShuffleN, delta)
		case q.Method == BKMTT && rows:
			return amplify.ShuffleBKMTT(amplify.LocalDP{Report: r}, q.ShuffleN, delta)
		}
		g, err := amplify.ShuffleFOCS(m, q.ShuffleN, delta)
		// The stronger closed form where it is proved.
		if s, problem := amplify.ShuffleSODA(m, q.ShuffleN, delta); problem == nil && (err != nil || s.Epsilon < g.Epsilon) {
			return s, nil
		}
		return g, err
	}, err
}

// sampledFrom is the size of a sample that is shuffled, and of how many people it is one.
func (q *Question) sampledFrom() (kept, total uint64, err error) {
	people := math.Floor(outward.Beneath(float64(q.ShuffleN) / q.Sampling))
	if people > amplify.MaxCount {
		return 0, 0, refuse("a larger --sampling", "%d reports at this rate are of more than 10^12 people", q.ShuffleN)
	}
	return q.ShuffleN, max(q.ShuffleN, uint64(people)), nil
}

// composePoints is the optimal composition of q.Steps steps of one point, the best of some points.
func (q *Question) composePoints(p points) (release.Guarantee, error) {
	steps := float64(q.Steps)
	var best release.Guarantee
	found := false
	var problem error
	try := func(one release.Guarantee, err error) {
		if err != nil {
			problem = err
			return
		}
		whole := []release.Release{release.Times(q.Steps, release.ApproxDP{Epsilon: one.Epsilon, Delta: one.Delta})}
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

// assumptions are what the guarantee stands on.
func (q *Question) assumptions() []string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	releases := q.Events
	if len(releases) == 0 {
		releases = []Release{q.Release}
	}
	var central, secret bool
	for _, r := range releases {
		central = central || !r.Mechanism.local() && r.Mechanism != ApproxDP && r.Mechanism != ZCDP && q.ShuffleN == 0
		secret = secret || r.Sampling > 0 && r.Sampling < 1 || r.Of > 0
	}
	if central && q.Honest == 2 {
		add("both servers add this noise and keep it, and their shares, to themselves")
	} else if central {
		add("at least one server adds this noise and keeps it, and its share, to itself; what the other adds is not counted")
	}
	for _, r := range releases {
		if r.Mechanism == CorrelatedGaussian {
			add("each person's device takes part in at most %d rounds, any two of them at least %d apart", r.Steps, r.Bands)
		}
	}
	if q.ShuffleN != 0 && q.CheckIn == 0 {
		add("the %d people whose reports are shuffled are honest, and nobody links a report to its sender", q.ShuffleN)
		if q.Mechanism == RAPPOR && q.Neighbours == release.ZeroOut {
			add("only the sums of the columns are released, never whole rows")
		}
	}
	if q.CheckIn != 0 {
		add("who checked in when is seen by the server only, and an empty slot is filled by a dummy update")
		if q.CheckIn == amplify.AveragedWindow {
			list[len(list)-1] = "who checked in when is seen by the server only"
		}
	}
	if secret {
		add("nobody learns which releases a person took part in")
		if q.Count == CountHidden {
			add("the number of records in a release stays hidden; what hides it (dummy reports, say) is charged on its own")
		}
	}
	if secret && q.Count == CountPublic && q.ShuffleN == 0 {
		if q.Population != 0 {
			add("the sample is drawn from at least %d people, each by a coin of their own", q.Population)
		} else {
			add("each sample has a fixed size, and is never a larger part of the honest people than this")
		}
	}
	return list
}

// squareBelow is sigma^2 as a fraction, rounded down by less than one part in 2^40.
func squareBelow(sigma float64) (release.Rational, error) {
	if !(sigma >= 0.5 && sigma <= 1<<30) {
		return release.Rational{}, &release.ParameterError{Parameter: "sigma of discrete Gaussian noise", Value: sigma, Want: "0.5 to 2^30"}
	}
	return below(sigma, 2), nil
}

// rationalBelow is x as a fraction, rounded down by less than one part in 2^40.
func rationalBelow(x float64) (release.Rational, error) {
	if !(x >= 1e-3 && x <= 1<<40) {
		return release.Rational{}, &release.ParameterError{Parameter: "scale of discrete Laplace noise", Value: x, Want: "0.001 to 2^40"}
	}
	return below(x, 1), nil
}
