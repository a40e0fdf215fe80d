package calculator

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/dp/release"
)

// A Line is one release as flags and lists of events write it: under every key that some
// mechanism has. Its own mechanism says which of them are wanted.
type Line struct {
	Mechanism string `json:"mechanism"` // a name of package release
	// Sigma is required for the Gaussians and Scale for the Laplaces, in units of the sum.
	Sigma float64 `json:"sigma"`
	Scale float64 `json:"scale"`
	// Epsilon0 is required for rr and rappor. For rappor it is the epsilon of deletion;
	// replacing an answer costs twice that.
	Epsilon0 float64 `json:"epsilon0"`
	// K is the number of answers of rr and rappor; 2 if zero.
	K uint64 `json:"k"`
	// Sensitivity bounds what one record adds to the sum; 1 if zero. Whole for the discrete
	// mechanisms, 1 for those that are no sums.
	Sensitivity float64 `json:"sensitivity"`
	// Bands and Rounds are of correlated-gaussian, both required: the strategy is the best
	// of that number of bands for prefix sums over that number of rounds.
	Bands  int `json:"bands"`
	Rounds int `json:"rounds"`
	// Epsilon and Delta are of approx-dp, Rho of zcdp.
	Epsilon float64 `json:"epsilon"`
	Delta   float64 `json:"delta"`
	Rho     float64 `json:"rho"`
	// Sampling is the probability with which a record takes part in a release, secretly; 0
	// means that all do.
	Sampling float64 `json:"sampling"`
	// Picks of Of: each record is in Picks of every Of releases, chosen at random and kept
	// secret. 0 of 0: not so.
	Picks uint64 `json:"-"`
	Of    uint64 `json:"-"`
	// Steps is how many such releases (or runs of Of releases) there are; 1 if zero.
	Steps uint64 `json:"steps"`
}

// A kind is what a line needs for one mechanism, and how the mechanism is made of it.
type kind struct {
	name string
	key  string // what it cannot do without, of keys
	// make is given a line in order; solve says that the key's value is looked for, so that
	// any will do.
	make func(l *Line, honest int, solve bool) (release.Mechanism, error)
}

// kinds are the mechanisms that questions may name, in the order of the help.
var kinds = []kind{
	{release.NameGaussian, "sigma", func(l *Line, honest int, _ bool) (release.Mechanism, error) {
		return release.Gaussian{Sigma: l.Sigma, Contribution: l.contribution(), Honest: honest}, nil
	}},
	{release.NameDiscreteGaussian, "sigma", func(l *Line, honest int, solve bool) (release.Mechanism, error) {
		v, err := l.variance(solve)
		return release.DiscreteGaussian{Variance: v, Contribution: l.contribution(), Honest: honest}, err
	}},
	{release.NameCorrelatedGaussian, "bands and rounds", func(l *Line, _ int, solve bool) (release.Mechanism, error) {
		v, err := l.variance(solve)
		if err != nil {
			return nil, err
		}
		s, err := correlated.Optimize(l.Bands, l.Rounds, seriesBits)
		if err != nil {
			return nil, &Error{Err: err, Hint: "fewer --bands"}
		}
		num, den := s.Norm2()
		return release.CorrelatedGaussian{Variance: v, Norm2: release.Rational{Num: num, Den: den}, Contribution: l.contribution(),
			Bands: l.Bands, Rounds: l.Rounds, Improvement: s.Improvement(l.Rounds)}, nil
	}},
	{release.NameLaplace, "scale", func(l *Line, honest int, _ bool) (release.Mechanism, error) {
		return release.Laplace{Scale: l.Scale, Contribution: l.contribution(), Honest: honest}, nil
	}},
	{release.NameDiscreteLaplace, "scale", func(l *Line, honest int, solve bool) (release.Mechanism, error) {
		m := release.DiscreteLaplace{Contribution: l.contribution(), Honest: honest}
		var err error
		if !solve {
			m.Scale, err = rationalBelow(l.Scale)
		}
		return m, err
	}},
	{release.NameResponse, "epsilon0", func(l *Line, _ int, _ bool) (release.Mechanism, error) {
		return release.Response{Epsilon0: l.Epsilon0, Answers: l.K}, nil
	}},
	{release.NameRAPPOR, "epsilon0", func(l *Line, _ int, _ bool) (release.Mechanism, error) {
		return release.RAPPOR{Epsilon0: l.Epsilon0, Answers: l.K}, nil
	}},
	{release.NameApproxDP, "epsilon", func(l *Line, _ int, _ bool) (release.Mechanism, error) {
		return release.ApproxDP{Epsilon: l.Epsilon, Delta: l.Delta}, nil
	}},
	{release.NameZCDP, "rho", func(l *Line, _ int, _ bool) (release.Mechanism, error) {
		return release.ZCDP{Rho: l.Rho}, nil
	}},
}

const mechanismNames = "gaussian, discrete-gaussian, correlated-gaussian, laplace, discrete-laplace, rr, rappor"

// keys are what mechanisms cannot do without, in the order in which they are asked for.
var keys = []struct {
	name    string
	example string
	given   func(l *Line) bool
}{
	{"sigma", "--sigma 5.1, in units of --sensitivity 1", func(l *Line) bool { return l.Sigma != 0 }},
	{"bands and rounds", "--bands 8 --rounds 100: a person's rounds are at least 8 apart", func(l *Line) bool { return l.Bands != 0 || l.Rounds != 0 }},
	{"scale", "--scale 2, in units of --sensitivity 1", func(l *Line) bool { return l.Scale != 0 }},
	{"epsilon0", "--epsilon0 1", func(l *Line) bool { return l.Epsilon0 != 0 }},
	{"epsilon", "an epsilon", func(l *Line) bool { return l.Epsilon != 0 || l.Mechanism == release.NameApproxDP && l.Delta != 0 }},
	{"rho", "a rho", func(l *Line) bool { return l.Rho != 0 }},
}

// wants says whether a mechanism needs a key's value.
func (k kind) wants(key string) bool {
	return k.key == key || k.name == release.NameCorrelatedGaussian && key == "sigma"
}

// noise says whether a mechanism is noise on sums.
func (k kind) noise() bool { return k.wants("sigma") || k.wants("scale") }

// discrete says whether that noise is whole numbers.
func (k kind) discrete() bool {
	return k.noise() && k.name != release.NameGaussian && k.name != release.NameLaplace
}

// of returns the kind of a line.
func kindOf(l *Line) (kind, error) {
	for _, k := range kinds {
		if k.name == l.Mechanism {
			return k, nil
		}
	}
	if l.Mechanism == "" {
		return kind{}, refuse("--mechanism gaussian --sigma 5.1, say", "no mechanism is named")
	}
	return kind{}, refuse("one of "+mechanismNames, "there is no mechanism %q", l.Mechanism)
}

// settle fills in what a line leaves to its mechanism, and refuses what that has no use
// for. Numbers are checked again, more closely, where they are used.
func (l *Line) settle(solve Parameter) error {
	if err := l.numbers(); err != nil {
		return err
	}
	k, err := kindOf(l)
	if err != nil {
		return err
	}
	for _, key := range keys {
		given := key.given(l) || string(solve) == key.name
		if wanted := k.wants(key.name); wanted && !given {
			return refuse(key.example, "%s needs %s", k.name, key.name)
		} else if given && !wanted {
			return refuse("leave it out", "%s takes no %s", k.name, key.name)
		}
	}
	if k.name == release.NameCorrelatedGaussian {
		if err := l.series(solve); err != nil {
			return err
		}
	}
	if err := l.answers(k); err != nil {
		return err
	}
	if err := l.sensitivity(k); err != nil {
		return err
	}
	if (l.Picks == 0) != (l.Of == 0) || l.Picks > l.Of {
		return refuse("--allocation 1/100: one of every 100 releases", "a record cannot be in %d of %d releases", l.Picks, l.Of)
	}
	if l.Steps == 0 {
		l.Steps = 1
	}
	if l.Sampling == 1 {
		l.Sampling = 0 // all take part
	}
	return nil
}

// numbers refuses what is none.
func (l *Line) numbers() error {
	for _, n := range []struct {
		name string
		v    float64
	}{{"sigma", l.Sigma}, {"scale", l.Scale}, {"epsilon0", l.Epsilon0}, {"sensitivity", l.Sensitivity},
		{"epsilon", l.Epsilon}, {"rho", l.Rho}, {"delta", l.Delta}, {"sampling", l.Sampling}} {
		if !(n.v >= 0) || math.IsInf(n.v, 1) {
			return refuse("a number above 0", "%s is %v", n.name, n.v)
		}
	}
	if l.Sampling > 1 {
		return refuse("--sampling 0.02 keeps one record in fifty", "the sampling rate is %v, want at most 1", l.Sampling)
	}
	return nil
}

// series checks the strategy of correlated noise.
func (l *Line) series(solve Parameter) error {
	if l.Bands < 1 || l.Bands > correlated.MaxBands || l.Rounds < 1 || l.Rounds > correlated.MaxRounds {
		return refuse(fmt.Sprintf("--bands 1 to %d and --rounds 1 to %d", correlated.MaxBands, correlated.MaxRounds),
			"%s has %d bands over %d rounds", l.Mechanism, l.Bands, l.Rounds)
	}
	if l.Sampling != 0 && l.Sampling != 1 || solve == SolveSampling || l.Of != 0 {
		return refuse("leave --sampling and --allocation out", "%s draws nothing from sampling: it is accounted for with everybody known", l.Mechanism)
	}
	return nil
}

// answers fills in the number of answers to choose from.
func (l *Line) answers(k kind) error {
	switch asked := k.wants("epsilon0"); {
	case l.K != 0 && !asked:
		return refuse("leave --k out", "%s has no number of answers", k.name)
	case asked && l.K == 0:
		l.K = 2
	case asked && l.K < 2:
		return refuse("--k 2 or more", "%s over %d answers says nothing", k.name, l.K)
	}
	return nil
}

// sensitivity fills in what one person adds to a sum.
func (l *Line) sensitivity(k kind) error {
	if l.Sensitivity != 0 && l.Sensitivity != 1 && !k.noise() {
		return refuse("leave --sensitivity out", "%s has no sensitivity", k.name)
	}
	if l.Sensitivity == 0 {
		l.Sensitivity = 1
	}
	if k.discrete() && l.Sensitivity != math.Trunc(l.Sensitivity) {
		return refuse("a whole --sensitivity, or the mechanism without discrete-", "%s adds whole numbers, and the sensitivity is %v", k.name, l.Sensitivity)
	}
	return nil
}

// contribution is one record's: it may be anything from -C to C, so replacing one moves
// the sum by 2C.
func (l *Line) contribution() release.Contribution { return release.Signed(l.Sensitivity) }

func (l *Line) variance(solve bool) (release.Rational, error) {
	if solve {
		return release.Rational{}, nil
	}
	return squareBelow(l.Sigma)
}

// seriesBits are the fractional bits of a strategy, as the planner takes them.
const seriesBits = 8
