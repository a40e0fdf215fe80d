package calculator

import (
	"errors"
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
)

// An LDP is a sense in which a device's report is differentially private.
type LDP string

const (
	Deletion    LDP = "deletion"    // against a report that says nothing
	Replacement LDP = "replacement" // against any other answer's report
)

// An Ask is a question as flags state it: one release and what is around it, or a list,
// with much left to follow from the rest. Question says what it comes to.
type Ask struct {
	Line
	// Lines are a mixed composition, in place of Line.
	Lines []Line

	// Population is how many people a sample is drawn from, by a coin each; it matters only
	// where the count is public. If zero, the sample of a public count has a fixed size,
	// Sampling of the people.
	Population uint64
	// ShuffleN is the number of honest people whose reports are shuffled together in each
	// step; 0: nothing is shuffled. For averaged check-ins it is the number of people who
	// check in.
	ShuffleN uint64
	// CheckIn, if not zero, says that each person checks in, with probability P0, at one
	// random slot of Window.
	CheckIn release.Schedule
	Window  uint64
	P0      float64 // 1 if zero

	// Neighbours, Count and LDP: see the package comment for what follows if they are zero.
	Neighbours release.Neighbours
	Count      Count
	LDP        LDP
	// Honest is how many of two servers add the noise and keep it to themselves, 1 (also if
	// zero) or 2.
	Honest int

	// The rest is as in [Question].
	Method         accountant.Method
	Orders         []float64
	Direction      release.Direction
	Epsilon, Delta float64
	Solve          Parameter
}

// Answer answers the question that is asked. Its errors are *[Error].
func (a Ask) Answer() (*Answer, error) {
	q, err := a.Question()
	if err != nil {
		return nil, err
	}
	return q.Answer()
}

// Question fills in what follows from the rest, and refuses what makes no sense. Its errors
// are *[Error].
func (a Ask) Question() (Question, error) {
	q, err := a.question()
	return q, explain(err)
}

func (a Ask) question() (Question, error) {
	if a.Honest == 0 {
		a.Honest = 1
	}
	if a.Honest != 1 && a.Honest != 2 {
		return Question{}, refuse("--servers-honest 1 or 2", "%d honest servers of two", a.Honest)
	}
	if a.Count != "" && a.Count != CountHidden && a.Count != CountPublic {
		return Question{}, refuse("--count hidden or public", "the count is %q", a.Count)
	}
	if a.LDP != "" && a.LDP != Deletion && a.LDP != Replacement {
		return Question{}, refuse("--ldp deletion or replacement", "the sense of local privacy is %q", a.LDP)
	}
	q := Question{Method: a.Method, Orders: a.Orders, Direction: a.Direction, Epsilon: a.Epsilon, Delta: a.Delta, Solve: a.Solve}
	if err := q.asks(); err != nil {
		return Question{}, err
	}
	if err := a.unknown(); err != nil {
		return Question{}, err
	}
	lines, err := a.lines()
	if err != nil {
		return Question{}, err
	}
	if err := a.ways(); err != nil {
		return Question{}, err
	}
	if err := a.relation(); err != nil {
		return Question{}, err
	}
	q.Neighbours, q.Count = a.Neighbours, a.Count
	for i := range lines {
		r, err := a.release(&lines[i])
		if err != nil && len(a.Lines) > 0 {
			err = ofEvent(i, err)
		}
		if err != nil {
			return Question{}, err
		}
		q.Releases = append(q.Releases, r)
	}
	return q, nil
}

// unknown refuses to solve for what is given.
func (a *Ask) unknown() error {
	if a.Solve == "" {
		return nil
	}
	if len(a.Lines) > 0 {
		return refuse("leave --solve out", "a list of events has no %s to solve for", a.Solve)
	}
	given := map[Parameter]float64{SolveSigma: a.Sigma, SolveScale: a.Scale, SolveSampling: a.Sampling, SolveSteps: float64(a.Steps)}
	if given[a.Solve] != 0 {
		return refuse("leave one out", "%s is both given and to be solved for", a.Solve)
	}
	return nil
}

// lines are those that are asked about, settled.
func (a *Ask) lines() ([]Line, error) {
	if len(a.Lines) == 0 {
		err := a.Line.settle(a.Solve)
		return []Line{a.Line}, err
	}
	if a.Line != (Line{}) {
		return nil, refuse("put everything into the file, or leave --events out", "a mechanism is given beside a list of events")
	}
	if a.ShuffleN != 0 || a.CheckIn != 0 || a.Population != 0 {
		return nil, refuse("ask about them one by one, and put the results into the list as approx-dp",
			"shuffling, check-ins and populations do not go with a list of events")
	}
	lines, local := append([]Line(nil), a.Lines...), true
	for i := range lines {
		l := &lines[i]
		if err := l.settle(""); err != nil {
			return nil, ofEvent(i, err)
		}
		local = local && l.local() && l.Sampling == 0 && l.Of == 0
	}
	if local && a.Neighbours == 0 {
		a.Neighbours = release.ReplaceOne
	}
	return lines, nil
}

// ofEvent says which line of a list is refused.
func ofEvent(i int, err error) error {
	hint := "a number in that range"
	var known *Error
	if errors.As(err, &known) {
		hint = known.Hint
	}
	return &Error{Problem: fmt.Sprintf("event %d", i+1), Hint: hint, Err: err, Event: i + 1}
}

func (l *Line) local() bool {
	return l.Mechanism == release.NameResponse || l.Mechanism == release.NameRAPPOR
}

// sampled says whether not all records are in each release.
func (a *Ask) sampled() bool { return a.Sampling > 0 || a.Solve == SolveSampling }

// ways refuses ways of taking part that no theorem combines.
func (a *Ask) ways() error {
	average := a.CheckIn == release.AveragedWindow
	if a.CheckIn == 0 && (a.Window != 0 || a.P0 != 0) {
		return refuse("--checkin fixed, averaged or sliding", "a window and a check-in probability are for check-ins")
	}
	if a.CheckIn != 0 {
		switch {
		case a.Mechanism == release.NameCorrelatedGaussian:
			return refuse("leave --checkin out", "%s draws nothing from check-ins", a.Mechanism)
		case a.Window == 0:
			return refuse("--window 1000, say", "check-ins need the number of slots that a person chooses from")
		case a.P0 < 0 || a.P0 > 1 || math.IsNaN(a.P0):
			return refuse("--p0 1 or less", "the check-in probability is %v", a.P0)
		case average && a.ShuffleN == 0:
			return refuse("--shuffle-n with the number of people", "averaged check-ins need the number of people who check in")
		case !average && a.ShuffleN != 0:
			return refuse("one of --checkin and --shuffle-n", "%v check-ins are not shuffled", a.CheckIn)
		case a.Of != 0:
			return refuse("--checkin fixed already is one of --window slots", "check-ins and random allocation do not combine")
		case a.sampled():
			return refuse("--p0 is the probability of checking in at all", "check-ins and sampling do not combine")
		}
		if a.P0 == 0 {
			a.P0 = 1
		}
		if average && a.P0 != 1 {
			return refuse("--p0 1", "the theorem about averaged check-ins is for people who all check in")
		}
	}
	if a.ShuffleN != 0 && a.Of != 0 {
		return refuse("one of --shuffle-n and --allocation", "no theorem here combines shuffling and random allocation")
	}
	switch a.Mechanism {
	case release.NameGaussian, release.NameDiscreteGaussian, release.NameCorrelatedGaussian:
		if a.ShuffleN != 0 {
			return refuse("--mechanism rr, rappor, laplace or discrete-laplace", "the shuffling theorems are about pure local privacy, and Gaussian noise has none")
		}
	}
	if a.Population != 0 && (!a.sampled() || a.ShuffleN != 0 || a.Count != CountPublic) {
		return refuse("leave --population out, or say --count public", "the population only matters for sampling while the count is public")
	}
	return nil
}

// relation chooses the relation, and whether the count shows.
func (a *Ask) relation() error {
	sampled, local, shuffled := a.sampled(), a.local(), a.ShuffleN != 0
	if a.Count == "" {
		a.Count = CountHidden
		if shuffled && sampled {
			return refuse("--count public: the number shuffled is known", "the reports of a random sample are shuffled, and their number shows")
		}
	}
	if shuffled && sampled && a.Count == CountHidden {
		return refuse("--count public", "no theorem here samples before a shuffler while the count is hidden")
	}
	if a.LDP != "" && !local {
		name := a.Mechanism
		if len(a.Lines) > 0 {
			name = "a list of events"
		}
		return refuse("leave --ldp out", "%s is no report of a device", name)
	}
	if n := a.Neighbours; n != 0 && a.LDP != "" && (n == release.ReplaceOne) != (a.LDP == Replacement) {
		return refuse("leave one out", "%v neighbours and local privacy of %s contradict each other", n, a.LDP)
	}
	if a.Neighbours != 0 {
		return nil
	}
	switch {
	case a.LDP == Deletion && (sampled || a.Of != 0):
		a.Neighbours = release.AddRemove
	case a.LDP == Deletion:
		a.Neighbours = release.ZeroOut
	case a.LDP == Replacement, a.Count == CountPublic, shuffled, local:
		a.Neighbours = release.ReplaceOne
	default:
		a.Neighbours = release.AddRemove
	}
	return nil
}

// release states one line, settled, with everything around it.
func (a *Ask) release(l *Line) (release.Release, error) {
	k, err := kindOf(l)
	if err != nil {
		return release.Release{}, err
	}
	if a.Honest > 1 && (!k.noise() || k.name == release.NameCorrelatedGaussian) {
		return release.Release{}, refuse("--servers-honest 1", "two servers add noise to sums, not to %s", k.name)
	}
	m, err := k.make(l, a.Honest, a.Solve == SolveSigma || a.Solve == SolveScale)
	return release.Times(l.Steps, m).Sampled(a.sampling(l)), err
}

// sampling says how records come to be in a line's releases. A rate that is looked for is
// 0.
func (a *Ask) sampling(l *Line) release.Sampling {
	sampled, rate := l.Sampling > 0 || a.Solve == SolveSampling, l.Sampling
	if !sampled {
		rate = 1
	}
	switch {
	case a.CheckIn != 0:
		// Windows that are cut short or a server that chooses among the clients of a slot
		// only post-process (docs/proofs/check-ins.md).
		return release.CheckIns{Schedule: a.CheckIn, Slots: a.Window, Rate: a.P0, People: a.ShuffleN}
	case a.ShuffleN != 0:
		columns := l.Mechanism == release.NameRAPPOR && a.Neighbours == release.ZeroOut
		return release.Shuffle{People: a.ShuffleN, Rate: rate, Columns: columns}
	case l.Of != 0:
		return release.Allocation{Picks: l.Picks, Of: l.Of, Rate: rate}
	case !sampled:
		return nil
	case a.Neighbours != release.ReplaceOne:
		return release.Poisson{Rate: rate}
	case a.Count == CountPublic && a.Population != 0:
		return release.CountedPoisson{Rate: rate, People: a.Population}
	case a.Count == CountPublic || l.Mechanism != release.NameGaussian:
		// Without replacement, if the count shows. If not, a coin each is no worse
		// (docs/accounting.md).
		return release.Fixed{Rate: rate}
	}
	return release.Poisson{Rate: rate}
}
