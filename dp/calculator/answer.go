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
	// Question is the one that was answered: of its releases the guarantee is true, with
	// the answer to Solve in them.
	Question Question
	// Solved is the value of Question.Solve, on its safe side; 0 if nothing was solved for.
	Solved float64
	// Assumptions must hold for the guarantee to be true.
	Assumptions []string
}

// Answer answers the question. Its errors are *[Error].
func (q Question) Answer() (*Answer, error) {
	if err := q.check(); err != nil {
		return nil, explain(err)
	}
	found := trial{question: q}
	var err error
	if q.Solve != "" {
		found, err = q.solve()
	} else {
		found.g, err = q.guarantee(effort{})
	}
	if err != nil {
		return nil, explain(err)
	}
	return &Answer{Guarantee: found.g, Question: found.question, Solved: found.at, Assumptions: found.question.assumptions()}, nil
}

// An effort is how closely an answer is computed. The zero value is the default.
type effort struct {
	tolerance float64 // of the accountant, relative; its default if 0
	// one, if not nil, knows one step of a release that is answered by points, whatever the
	// count of the release.
	one func() (points, error)
}

// guarantee is epsilon at q.Delta or, if that is zero, delta at q.Epsilon.
func (q *Question) guarantee(how effort) (release.Guarantee, error) {
	if len(q.Releases) > 1 {
		return q.account(q.Releases, how)
	}
	r := q.Releases[0]
	if s, ok := r.Sampling.(release.CountedPoisson); ok {
		return q.ofPopulation(r, s, how)
	}
	if q.pointwise(r) {
		return q.byPoints(r, how)
	}
	return q.account(q.Releases, how)
}

// account asks the accountant about a list of releases what the question asks.
func (q *Question) account(list []release.Release, how effort) (release.Guarantee, error) {
	o := accountant.Options{Method: q.Method, Tolerance: how.tolerance, Orders: q.Orders, Direction: q.Direction}
	if q.Method == Clones {
		o.Method = accountant.Auto // on another message
	}
	list, cost := joined(list, q.Method)
	var g release.Guarantee
	var err error
	switch {
	case q.Delta == 0:
		g, err = o.Delta(list, max(0, q.Epsilon-2*cost), q.Neighbours)
		g.Epsilon, g.Delta = q.Epsilon, min(1, g.Delta*math.Exp(cost))
	default:
		g, err = o.Epsilon(list, q.Delta/math.Exp(cost), q.Neighbours)
		g.Epsilon, g.Delta = g.Epsilon+2*cost, q.Delta
	}
	if errors.Is(err, release.ErrUnsupported) {
		err = q.tooWide(list, err)
	}
	if cost > 0 {
		g.EpsilonLower, g.DeltaLower = 0, 0
		g.Theorem += "; sum of two discrete Gaussians (docs/proofs/discrete-gaussian-sums.md, section 2)"
	}
	return g, err
}

// joined returns a list with two servers' discrete Gaussian noise taken for one discrete
// Gaussian of twice the variance, for the methods that know no other distribution, and what
// that costs: twice as much epsilon at most, and its exponential as a factor of delta.
// Privacy loss distributions and the formulas know the sum itself.
func joined(list []release.Release, m accountant.Method) (_ []release.Release, cost float64) {
	if !slices.Contains([]accountant.Method{accountant.RDP, accountant.ZCDPMethod, accountant.SimpleZCDP}, m) {
		return list, 0
	}
	list = slices.Clone(list)
	for i, r := range list {
		m, ok := r.Mechanism.(release.DiscreteGaussian)
		v := m.Variance.Float()
		if !ok || m.Honest != 2 || v < 2.25 {
			continue
		}
		// docs/proofs/discrete-gaussian-sums.md, section 2: S_2, with exp(-pi^2 sigma^2)
		// below 10^-9.
		cost += 4.001 * math.Exp(-math.Pi*math.Pi*v) * float64(r.Count) * steps(r.Sampling)
		m.Variance.Num, m.Honest = 2*m.Variance.Num, 1
		list[i].Mechanism = m
	}
	return list, cost
}

// steps is how many results one of a sampling stands for.
func steps(s release.Sampling) float64 {
	switch s := s.(type) {
	case release.Allocation:
		return float64(s.Of)
	case release.CheckIns:
		return float64(s.Slots)
	}
	return 1
}

// tooWide says in words why noise has no answer: its own formulas are of no use where it
// is sampled, and a distribution of losses lists all outcomes.
func (q *Question) tooWide(list []release.Release, err error) error {
	if len(list) > 1 {
		return err
	}
	m, ok := list[0].Mechanism.(release.DiscreteGaussian)
	formula := list[0].Sampling == nil && (q.Method == accountant.Auto || q.Method == accountant.ClosedForm)
	if sigma := math.Sqrt(m.Variance.Float()); ok && !formula && sigma > 1e4 {
		return refuse("--mechanism gaussian for the idealised noise, or coarser units of the sum",
			"discrete Gaussian noise of sigma %.6g has too many outcomes for a privacy loss distribution", sigma)
	}
	return err
}

// ofPopulation answers for samples by a coin each out of a population, whose sizes show:
// sampling without replacement at the upper quantile of the sizes.
func (q *Question) ofPopulation(r release.Release, s release.CountedPoisson, how effort) (release.Guarantee, error) {
	whole := q.Delta
	if whole == 0 {
		g, err := q.account([]release.Release{r.Sampled(release.Fixed{Rate: s.Rate})}, how)
		if err != nil {
			return release.Guarantee{}, err
		}
		whole = min(max(g.Delta, 1e-98), 1)
	}
	var best release.Guarantee
	found := false
	var problem error
	// Delta spent on larger samples is not left for the releases; a wide range of it does
	// nearly as well.
	for _, part := range []float64{0.3, 0.03, 0.003} {
		g, err := q.ofSample(r, s, part*whole, how)
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

// ofSample is ofPopulation where any sample is larger than accounted for with probability
// at most miss.
func (q *Question) ofSample(r release.Release, s release.CountedPoisson, miss float64, how effort) (release.Guarantee, error) {
	// P(X > N - B) = P(N - X < B), and N - X is binomial too.
	rest, err := amplify.MinimumBatch(s.People, 1-s.Rate, miss/float64(r.Count))
	if err != nil {
		return release.Guarantee{}, err
	}
	rate := min(1, outward.Above(float64(s.People-rest)/float64(s.People)))
	if r.Sampling = nil; rate > 0 {
		r.Sampling = release.Fixed{Rate: rate}
	}
	sure := *q
	miss = outward.Up(miss)
	if q.Delta != 0 {
		sure.Delta -= miss
	}
	g, err := sure.account([]release.Release{r}, how)
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

// assumptions are what the guarantee stands on.
func (q *Question) assumptions() []string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	var central, both, secret, shuffled bool
	for _, r := range q.Releases {
		_, run := r.Sampling.(release.Allocation)
		_, mixed := r.Sampling.(release.Shuffle)
		c, slots := r.Sampling.(release.CheckIns)
		_, series := r.Mechanism.(release.CorrelatedGaussian)
		draws := release.HonestDraws(r.Mechanism)
		central = central || (draws > 0 || series) && !mixed && !(slots && c.Schedule == release.AveragedWindow)
		both = both || draws == 2
		secret = secret || sampled(r.Sampling) || run
		shuffled = shuffled || mixed
	}
	if central && both {
		add("both servers add this noise and keep it, and their shares, to themselves")
	} else if central {
		add("at least one server adds this noise and keeps it, and its share, to itself; what the other adds is not counted")
	}
	people := uint64(0)
	for _, r := range q.Releases {
		switch m := r.Mechanism.(type) {
		case release.CorrelatedGaussian:
			add("each person's device takes part in at most %d rounds, any two of them at least %d apart", r.Count, m.Bands)
		}
		switch s := r.Sampling.(type) {
		case release.CountedPoisson:
			people = s.People
		case release.Shuffle:
			add("the %d people whose reports are shuffled are honest, and nobody links a report to its sender", s.People)
			if s.Columns {
				add("only the sums of the columns are released, never whole rows")
			}
		case release.CheckIns:
			if s.Schedule == release.AveragedWindow {
				add("who checked in when is seen by the server only")
			} else {
				add("who checked in when is seen by the server only, and an empty slot is filled by a dummy update")
			}
		}
	}
	if secret {
		add("nobody learns which releases a person took part in")
		if q.Count == CountHidden {
			add("the number of records in a release stays hidden; what hides it (dummy reports, say) is charged on its own")
		}
	}
	if secret && q.Count == CountPublic && !shuffled {
		if people != 0 {
			add("the sample is drawn from at least %d people, each by a coin of their own", people)
		} else {
			add("each sample has a fixed size, and is never a larger part of the honest people than this")
		}
	}
	return list
}
