package calculator

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/amplify"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/dp/release"
)

// A Mechanism is a way to blur a release.
type Mechanism string

const (
	Gaussian         Mechanism = "gaussian"          // normal noise of standard deviation Sigma
	DiscreteGaussian Mechanism = "discrete-gaussian" // whole-number Gaussian noise of parameter Sigma
	Laplace          Mechanism = "laplace"           // Laplace noise of scale Scale
	DiscreteLaplace  Mechanism = "discrete-laplace"  // whole-number Laplace noise of scale Scale
	// CorrelatedGaussian is whole-number Gaussian noise of parameter Sigma that cancels over rounds (package dp/correlated);
	// Steps counts the rounds that a person takes part in, at least Bands apart.
	CorrelatedGaussian Mechanism = "correlated-gaussian"
	RR                 Mechanism = "rr"        // K-ary randomized response at Epsilon0, on the device
	RAPPOR             Mechanism = "rappor"    // one-hot bits, each flipped with probability 1/(e^Epsilon0+1), on the device
	ApproxDP           Mechanism = "approx-dp" // anything (Epsilon, Delta)-DP; in lists of events only
	ZCDP               Mechanism = "zcdp"      // anything Rho-zCDP; in lists of events only
)

// Mechanisms are those that a Question may ask about by itself.
var Mechanisms = []Mechanism{Gaussian, DiscreteGaussian, CorrelatedGaussian, Laplace, DiscreteLaplace, RR, RAPPOR}

const mechanismNames = "gaussian, discrete-gaussian, correlated-gaussian, laplace, discrete-laplace, rr, rappor"

func (m Mechanism) local() bool { return m == RR || m == RAPPOR }

// A Release is one mechanism, and how it is used.
type Release struct {
	Mechanism Mechanism `json:"mechanism"`
	// Sigma is required for the Gaussians and Scale for the Laplaces, in units of the sum.
	Sigma float64 `json:"sigma"`
	Scale float64 `json:"scale"`
	// Epsilon0 is required for RR and RAPPOR. For RAPPOR it is the epsilon of deletion; replacing an answer costs twice that.
	Epsilon0 float64 `json:"epsilon0"`
	// K is the number of answers of RR and RAPPOR; 2 if zero.
	K uint64 `json:"k"`
	// Sensitivity bounds what one record adds to the sum; 1 if zero. Whole for the discrete mechanisms, 1 for the others that
	// are no sums.
	Sensitivity float64 `json:"sensitivity"`
	// Bands and Rounds are of CorrelatedGaussian, both required: the strategy is the best of so many bands for prefix sums over
	// so many rounds.
	Bands  int `json:"bands"`
	Rounds int `json:"rounds"`
	// Epsilon and Delta are of ApproxDP, Rho of ZCDP.
	Epsilon float64 `json:"epsilon"`
	Delta   float64 `json:"delta"`
	Rho     float64 `json:"rho"`
	// Sampling is the probability with which a record takes part in a release, secretly; 0 means that all do.
	Sampling float64 `json:"sampling"`
	// Picks of Of: each record is in Picks of every Of releases, chosen at random and kept secret. 0 of 0: not so.
	Picks uint64 `json:"-"`
	Of    uint64 `json:"-"`
	// Steps is how many such releases (or runs of Of releases) there are; 1 if zero.
	Steps uint64 `json:"steps"`

	series *correlated.Strategy // of CorrelatedGaussian, once settled
}

// A Count says whether anyone who sees the releases also learns how many records took part.
type Count string

const (
	CountHidden Count = "hidden"
	CountPublic Count = "public"
)

// An LDP is a sense in which a device's report is differentially private.
type LDP string

const (
	Deletion    LDP = "deletion"    // against a report that says nothing
	Replacement LDP = "replacement" // against any other answer's report
)

// A Parameter is what a question may ask for in place of epsilon.
type Parameter string

const (
	SolveSigma    Parameter = "sigma"
	SolveScale    Parameter = "scale"
	SolveSampling Parameter = "sampling"
	SolveSteps    Parameter = "steps"
)

// A Question asks for epsilon at Delta; or for delta at Epsilon, if Delta is zero; or for the value of the parameter
// Solve, which is then left zero, at which (Epsilon, Delta) holds.
type Question struct {
	Release
	// Events are a mixed composition, in place of Release.
	Events []Release

	// Population is how many people a sample is drawn from, by a coin each; it matters only where the count is public. If
	// zero, the sample of a public count has a fixed size, Sampling of the people.
	Population uint64
	// ShuffleN is the number of honest people whose reports are shuffled together in each step; 0: nothing is shuffled.
	// For averaged check-ins it is the number of people who check in.
	ShuffleN uint64
	// CheckIn, if not zero, says that each person checks in, with probability P0, at one random slot of Window.
	CheckIn amplify.Schedule
	Window  uint64
	P0      float64 // 1 if zero

	// Neighbours, Count and LDP: see the package comment for what follows if they are zero.
	Neighbours release.Neighbours
	Count      Count
	LDP        LDP
	// Honest is how many of two servers add the noise and keep it to themselves, 1 (also if zero) or 2.
	Honest int
	Method accountant.Method
	// Orders are the Renyi orders that the method rdp tries; accountant.DefaultOrders() if empty.
	Orders []float64
	// Direction, if not zero, asks about one direction only in which add-remove or
	// zero-out neighbours differ.
	Direction release.Direction

	Epsilon, Delta float64
	Solve          Parameter

	tolerance float64 // of the accountant, relative; its default if zero
	one       *points // of one step, while looking for their number
}

// An Error says why a question has no answer, and what to ask instead.
type Error struct {
	Problem string
	Hint    string // what to change, by the flags of starling account
	Err     error  // may be nil
	Event   int    // which of [Question.Events] makes no sense by itself, from 1; 0 if that is not what is wrong
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Problem
	}
	inner := strings.TrimPrefix(strings.TrimPrefix(e.Err.Error(), "accountant: "), "amplify: ")
	inner = strings.ReplaceAll(inner, "accountant.", "") // types' names
	if e.Problem == "" {
		return inner
	}
	return e.Problem + ": " + inner
}

func (e *Error) Unwrap() error { return e.Err }

func refuse(hint, format string, args ...any) error {
	return &Error{Problem: fmt.Sprintf(format, args...), Hint: hint}
}

// explain gives an error of the packages below a hint.
func explain(err error) error {
	var known *Error
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.Is(err, release.ErrNoGuarantee):
		return &Error{Err: err, Hint: "more noise, a larger --delta or fewer --steps"}
	case errors.Is(err, release.ErrUnsupported):
		return &Error{Err: err, Hint: "--method auto, or --neighbours add-remove, zero-out or replace"}
	case errors.Is(err, release.ErrParameter):
		return &Error{Err: err, Hint: "a number in that range"}
	}
	return &Error{Err: err, Hint: "ask a smaller question"}
}

// settle fills in what follows from the rest of the question, and refuses what makes no sense.
func (q *Question) settle() error {
	if q.Honest == 0 {
		q.Honest = 1
	}
	if q.Honest != 1 && q.Honest != 2 {
		return refuse("--servers-honest 1 or 2", "%d honest servers of two", q.Honest)
	}
	if q.Count != "" && q.Count != CountHidden && q.Count != CountPublic {
		return refuse("--count hidden or public", "the count is %q", q.Count)
	}
	if q.LDP != "" && q.LDP != Deletion && q.LDP != Replacement {
		return refuse("--ldp deletion or replacement", "the sense of local privacy is %q", q.LDP)
	}
	if err := q.asks(); err != nil {
		return err
	}
	if len(q.Events) > 0 {
		if err := q.settleEvents(); err != nil {
			return err
		}
	} else if err := q.Release.settle(q.Solve); err != nil {
		return err
	}
	if err := q.settleWays(); err != nil {
		return err
	}
	if err := q.settleRelation(); err != nil {
		return err
	}
	if err := q.settleMethod(); err != nil {
		return err
	}
	return q.settleServers()
}

// Methods beside those of package accountant, for shuffled reports.
const (
	Clones accountant.Method = "clones" // the bound on any randomizer, whatever more is proved of this one
	BKMTT  accountant.Method = "bkmtt"  // the formula of Balle, Kairouz, McMahan, Thakkar and Thakurta 2020
	EFMRTT accountant.Method = "efmrtt" // the formula of Erlingsson and others 2019
)

// MethodNames are the methods that a Question may name.
const MethodNames = "auto, pld, rdp, zcdp, zcdp-simple, closed-form, clones, bkmtt or efmrtt"

// ParseMethod reads one of MethodNames. Its errors are *[Error].
func ParseMethod(s string) (accountant.Method, error) {
	switch m := accountant.Method(s); m {
	case "auto":
		return accountant.Auto, nil
	case accountant.PLD, accountant.RDP, accountant.ZCDPMethod, accountant.SimpleZCDP, accountant.ClosedForm, Clones, BKMTT, EFMRTT:
		return m, nil
	}
	return "", refuse("--method "+MethodNames, "--method is %q", s)
}

// maxOrders bounds a list of orders.
const maxOrders = 4096

// ParseOrders reads "integer", for accountant.IntegerOrders(), or a list of numbers above 1. Its errors are *[Error].
func ParseOrders(s string) ([]float64, error) {
	if s == "integer" {
		return accountant.IntegerOrders(), nil
	}
	const hint = "--orders integer, or a list as 1.5,2,16,64"
	var orders []float64
	for part := range strings.SplitSeq(s, ",") {
		a, err := strconv.ParseFloat(part, 64)
		if err != nil || !(a > 1 && a <= 1e6) {
			return nil, refuse(hint, "order %q is no number above 1 and at most 10^6", part)
		}
		if orders = append(orders, a); len(orders) > maxOrders {
			return nil, refuse(hint, "there are more than %d orders", maxOrders)
		}
	}
	return orders, nil
}

// settleMethod refuses methods, orders and directions for what they are not about.
func (q *Question) settleMethod() error {
	shuffled := q.ShuffleN != 0 && q.CheckIn == 0
	switch q.Method {
	case Clones, BKMTT, EFMRTT:
		if !shuffled {
			return refuse("--shuffle-n with the number of people, or --method auto, pld, rdp, zcdp, zcdp-simple or closed-form",
				"the method %s is about reports that are shuffled", q.Method)
		}
		if q.columns() && q.Method != EFMRTT {
			return refuse("--neighbours replace, or --method auto, closed-form or efmrtt", "the method %s is about whole reports, not about the sums of "+
				"RAPPOR's columns", q.Method)
		}
	}
	if len(q.Orders) > 0 && q.Method != accountant.RDP {
		return refuse("--method rdp", "the orders are those of Renyi divergences")
	}
	if q.Direction == release.BothDirections {
		return nil
	}
	switch {
	case q.Solve != "":
		return refuse("leave --direction or --solve out", "what one direction takes is no guarantee")
	case q.Neighbours == release.ReplaceOne:
		return refuse("--neighbours add-remove or zero-out, or leave --direction out", "replaced records are neither removed nor added")
	case shuffled:
		return refuse("leave --direction out", "the bounds on what is shuffled are the same in both directions")
	}
	return nil
}

// asks checks what is wanted.
func (q *Question) asks() error {
	if q.Solve == "" {
		switch {
		case q.Epsilon == 0 && q.Delta == 0:
			return refuse("--delta 1e-9 asks for epsilon, --epsilon 1 for delta", "neither delta nor epsilon is given")
		case q.Epsilon != 0 && q.Delta != 0:
			return refuse("leave one out, or add --solve sigma, sampling or steps", "both epsilon and delta are given, so nothing is asked")
		}
	}
	if q.Delta != 0 && !(q.Delta > 0 && q.Delta < 1) {
		return refuse("--delta 1e-9, say: well below one in the number of people", "delta is %v, want a number between 0 and 1", q.Delta)
	}
	if q.Epsilon != 0 && !(q.Epsilon > 0 && q.Epsilon <= 1e6) {
		return refuse("--epsilon 1, say", "epsilon is %v, want a number above 0 and at most 10^6", q.Epsilon)
	}
	switch q.Solve {
	case "":
		return nil
	case SolveSigma, SolveScale, SolveSampling, SolveSteps:
	default:
		return refuse("--solve sigma, scale, sampling or steps", "cannot solve for %q", q.Solve)
	}
	if q.Epsilon == 0 || q.Delta == 0 {
		return refuse("--epsilon 1 --delta 1e-9, say", "solving for %s needs epsilon and delta", q.Solve)
	}
	if len(q.Events) > 0 {
		return refuse("leave --solve out", "a list of events has no %s to solve for", q.Solve)
	}
	given := map[Parameter]float64{SolveSigma: q.Sigma, SolveScale: q.Scale, SolveSampling: q.Sampling, SolveSteps: float64(q.Steps)}
	if given[q.Solve] != 0 {
		return refuse("leave one out", "%s is both given and to be solved for", q.Solve)
	}
	return nil
}

// settle fills in a release and checks it. Numbers are checked again, more closely, where they are used.
func (r *Release) settle(solve Parameter) error {
	numbers := []struct {
		name string
		v    float64
	}{{"sigma", r.Sigma}, {"scale", r.Scale}, {"epsilon0", r.Epsilon0}, {"sensitivity", r.Sensitivity},
		{"epsilon", r.Epsilon}, {"rho", r.Rho}, {"delta", r.Delta}, {"sampling", r.Sampling}}
	for _, n := range numbers {
		if !(n.v >= 0) || math.IsInf(n.v, 1) {
			return refuse("a number above 0", "%s is %v", n.name, n.v)
		}
	}
	if r.Sampling > 1 {
		return refuse("--sampling 0.02 keeps one record in fifty", "the sampling rate is %v, want at most 1", r.Sampling)
	}
	var sigma, series, scale, epsilon0, pure, rho bool
	switch r.Mechanism {
	case Gaussian, DiscreteGaussian:
		sigma = true
	case CorrelatedGaussian:
		sigma, series = true, true
	case Laplace, DiscreteLaplace:
		scale = true
	case RR, RAPPOR:
		epsilon0 = true
	case ApproxDP:
		pure = true
	case ZCDP:
		rho = true
	case "":
		return refuse("--mechanism gaussian --sigma 5.1, say", "no mechanism is named")
	default:
		return refuse("one of "+mechanismNames, "there is no mechanism %q", r.Mechanism)
	}
	needs := []struct {
		name    string
		wanted  bool
		given   bool
		example string
	}{
		{"sigma", sigma, r.Sigma != 0 || solve == SolveSigma, "--sigma 5.1, in units of --sensitivity 1"},
		{"bands and rounds", series, r.Bands != 0 || r.Rounds != 0, "--bands 8 --rounds 100: a person's rounds are at least 8 apart"},
		{"scale", scale, r.Scale != 0 || solve == SolveScale, "--scale 2, in units of --sensitivity 1"},
		{"epsilon0", epsilon0, r.Epsilon0 != 0, "--epsilon0 1"},
		{"epsilon", pure, r.Epsilon != 0 || pure && r.Delta != 0, "an epsilon"},
		{"rho", rho, r.Rho != 0, "a rho"},
	}
	for _, n := range needs {
		switch {
		case n.wanted && !n.given:
			return refuse(n.example, "%s needs %s", r.Mechanism, n.name)
		case n.given && !n.wanted:
			return refuse("leave it out", "%s takes no %s", r.Mechanism, n.name)
		}
	}
	if series && (r.Bands < 1 || r.Bands > correlated.MaxBands || r.Rounds < 1 || r.Rounds > correlated.MaxRounds) {
		return refuse(fmt.Sprintf("--bands 1 to %d and --rounds 1 to %d", correlated.MaxBands, correlated.MaxRounds),
			"%s has %d bands over %d rounds", r.Mechanism, r.Bands, r.Rounds)
	}
	if series && (r.Sampling != 0 && r.Sampling != 1 || solve == SolveSampling || r.Of != 0) {
		return refuse("leave --sampling and --allocation out", "%s draws nothing from sampling: it is accounted for with everybody known", r.Mechanism)
	}
	if r.K != 0 && !epsilon0 {
		return refuse("leave --k out", "%s has no number of answers", r.Mechanism)
	}
	if epsilon0 && r.K == 0 {
		r.K = 2
	}
	if epsilon0 && r.K < 2 {
		return refuse("--k 2 or more", "%s over %d answers says nothing", r.Mechanism, r.K)
	}
	if r.Sensitivity != 0 && r.Sensitivity != 1 && !sigma && !scale {
		return refuse("leave --sensitivity out", "%s has no sensitivity", r.Mechanism)
	}
	if r.Sensitivity == 0 {
		r.Sensitivity = 1
	}
	if (r.Mechanism == DiscreteGaussian || r.Mechanism == DiscreteLaplace || series) && r.Sensitivity != math.Trunc(r.Sensitivity) {
		return refuse("a whole --sensitivity, or the mechanism without discrete-", "%s adds whole numbers, and the sensitivity is %v", r.Mechanism, r.Sensitivity)
	}
	if (r.Picks == 0) != (r.Of == 0) || r.Picks > r.Of {
		return refuse("--allocation 1/100: one of every 100 releases", "a record cannot be in %d of %d releases", r.Picks, r.Of)
	}
	if r.Steps == 0 {
		r.Steps = 1
	}
	if series && r.series == nil {
		s, err := correlated.Optimize(r.Bands, r.Rounds, seriesBits)
		if err != nil {
			return &Error{Err: err, Hint: "fewer --bands"}
		}
		r.series = &s
	}
	if r.Sampling == 1 {
		r.Sampling = 0 // all take part
	}
	return nil
}

// settleWays refuses ways of taking part that no theorem combines.
func (q *Question) settleWays() error {
	sampled := q.Sampling > 0 || q.Solve == SolveSampling
	average := q.CheckIn == amplify.AveragedWindow
	if q.CheckIn == 0 && (q.Window != 0 || q.P0 != 0) {
		return refuse("--checkin fixed, averaged or sliding", "a window and a check-in probability are for check-ins")
	}
	if q.CheckIn != 0 {
		switch {
		case q.Mechanism == CorrelatedGaussian:
			return refuse("leave --checkin out", "%s draws nothing from check-ins", q.Mechanism)
		case q.Window == 0:
			return refuse("--window 1000, say", "check-ins need the number of slots that a person chooses from")
		case q.P0 < 0 || q.P0 > 1 || math.IsNaN(q.P0):
			return refuse("--p0 1 or less", "the check-in probability is %v", q.P0)
		case average && q.ShuffleN == 0:
			return refuse("--shuffle-n with the number of people", "averaged check-ins need the number of people who check in")
		case !average && q.ShuffleN != 0:
			return refuse("one of --checkin and --shuffle-n", "%v check-ins are not shuffled", q.CheckIn)
		case q.Of != 0:
			return refuse("--checkin fixed already is one of --window slots", "check-ins and random allocation do not combine")
		case sampled:
			return refuse("--p0 is the probability of checking in at all", "check-ins and sampling do not combine")
		}
		if q.P0 == 0 {
			q.P0 = 1
		}
		if average && q.P0 != 1 {
			return refuse("--p0 1", "the theorem about averaged check-ins is for people who all check in")
		}
	}
	if q.ShuffleN != 0 && q.Of != 0 {
		return refuse("one of --shuffle-n and --allocation", "no theorem here combines shuffling and random allocation")
	}
	if q.ShuffleN != 0 && (q.Mechanism == Gaussian || q.Mechanism == DiscreteGaussian || q.Mechanism == CorrelatedGaussian) {
		return refuse("--mechanism rr, rappor, laplace or discrete-laplace", "the shuffling theorems are about pure local privacy, and Gaussian noise has none")
	}
	if q.Population != 0 && (!sampled || q.ShuffleN != 0) {
		return refuse("leave --population out", "the population only matters for sampling while the count is public")
	}
	return nil
}

// settleRelation chooses the relation, and whether the count shows.
func (q *Question) settleRelation() error {
	sampled := q.Sampling > 0 || q.Solve == SolveSampling
	local := q.Mechanism.local()
	shuffled := q.ShuffleN != 0
	if q.Count == "" {
		q.Count = CountHidden
		if shuffled && sampled {
			return refuse("--count public: the number shuffled is known", "the reports of a random sample are shuffled, and their number shows")
		}
	}
	if shuffled && sampled && q.Count == CountHidden {
		return refuse("--count public", "no theorem here samples before a shuffler while the count is hidden")
	}
	if q.LDP != "" && !local {
		return refuse("leave --ldp out", "%s is no report of a device", q.nameOfMechanism())
	}
	if n := q.Neighbours; n != 0 && q.LDP != "" && (n == release.ReplaceOne) != (q.LDP == Replacement) {
		return refuse("leave one out", "%v neighbours and local privacy of %s contradict each other", n, q.LDP)
	}
	if q.Neighbours == 0 {
		switch {
		case q.LDP == Deletion && (sampled || q.Of != 0):
			q.Neighbours = release.AddRemove
		case q.LDP == Deletion:
			q.Neighbours = release.ZeroOut
		case q.LDP == Replacement, q.Count == CountPublic, shuffled, local:
			q.Neighbours = release.ReplaceOne
		default:
			q.Neighbours = release.AddRemove
		}
	}
	if q.Count == CountPublic {
		if err := q.publicCount(sampled); err != nil {
			return err
		}
	}
	if q.Neighbours == release.ReplaceOne {
		return q.replaced()
	}
	return nil
}

// replaced refuses what no theorem covers for replace-one neighbours.
func (q *Question) replaced() error {
	if q.CheckIn != 0 && (q.Mechanism == Gaussian || q.Mechanism == DiscreteGaussian) {
		return refuse("--neighbours zero-out or add-remove", "check-ins of %s, which is not pure, are accounted for as random allocation, which hides "+
			"presence only", q.Mechanism)
	}
	if q.Of != 0 && (q.Sampling > 0 || q.Solve == SolveSampling) {
		return refuse("--neighbours add-remove or zero-out", "an allocation that a record takes part in with some probability hides presence only")
	}
	if q.Of == 0 && len(q.Events) == 0 || q.Mechanism.local() && q.Picks == 1 {
		return nil
	}
	allocated := q.Of != 0
	for _, e := range q.Events {
		allocated = allocated || e.Of != 0
	}
	if allocated {
		return refuse("--neighbours add-remove or zero-out", "random allocation of this kind hides presence, not what a record says: it has no theorem for "+
			"replace-one neighbours")
	}
	return nil
}

// publicCount refuses what a public count rules out.
func (q *Question) publicCount(sampled bool) error {
	const hide = "hide the count by dummy reports (charged on their own) and say --count hidden"
	allocated := q.Of != 0
	for _, e := range q.Events {
		sampled = sampled || e.Sampling > 0
		allocated = allocated || e.Of != 0
	}
	switch {
	case allocated:
		return &Error{Problem: "random allocation is not claimed while the count of each release is public: if all others hold -C and one " +
			"person C, the sum and the count together single that person out", Hint: hide, Err: nil}
	case q.Neighbours == release.AddRemove:
		return refuse("--neighbours replace or zero-out", "add-remove neighbours differ in the count, which is public")
	case !sampled:
		return nil
	case q.Neighbours != release.ReplaceOne:
		return refuse("--neighbours replace, or "+hide, "while the count is public a sample does not amplify as Poisson sampling does: if all "+
			"others hold -C and one person C, the sum and the count together single that person out; what is left is proved for replace-one "+
			"neighbours")
	}
	return nil
}

// settleServers refuses a second honest server where it is of no use that is proved.
func (q *Question) settleServers() error {
	if q.Honest == 1 {
		return nil
	}
	releases := q.Events
	if len(releases) == 0 {
		releases = []Release{q.Release}
	}
	for _, r := range releases {
		switch r.Mechanism {
		case Gaussian, DiscreteGaussian, Laplace, DiscreteLaplace:
		default:
			return refuse("--servers-honest 1", "two servers add noise to sums, not to %s", r.Mechanism)
		}
	}
	return nil
}

func (q *Question) nameOfMechanism() string {
	if len(q.Events) > 0 {
		return "a list of events"
	}
	return string(q.Mechanism)
}
