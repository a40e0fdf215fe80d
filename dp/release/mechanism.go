package release

import (
	"fmt"
	"math/big"
)

// A Mechanism is what blurs a release, with its parameters: noise on a sum, a report that
// a device randomizes, or anything of which a bound is proved. The mechanisms of this
// package are the only ones.
type Mechanism interface {
	// Name is what flags and lists of releases call the mechanism.
	Name() string
	// String describes it in words that follow "a release".
	String() string

	mechanism()
}

// Names of mechanisms.
const (
	NameGaussian           = "gaussian"
	NameDiscreteGaussian   = "discrete-gaussian"
	NameCorrelatedGaussian = "correlated-gaussian"
	NameLaplace            = "laplace"
	NameDiscreteLaplace    = "discrete-laplace"
	NameResponse           = "rr"
	NameRAPPOR             = "rappor"
	NameApproxDP           = "approx-dp"
	NameZCDP               = "zcdp"
	NameLocalDP            = "local-dp"
	NameShuffled           = "shuffled"
)

// Noise on sums is drawn by each of two servers, or by each of many devices. Honest is
// how many of the draws nobody else knows: 1, also if 0, unless more of those who draw
// are trusted. The noise of the others is post-processing.

// Gaussian is normal noise of standard deviation Sigma in each coordinate.
type Gaussian struct {
	Sigma        float64
	Contribution Contribution
	Honest       int
}

// DiscreteGaussian is whole-number noise of parameter Variance, drawn as dp/noise draws it.
// The contribution is whole numbers.
type DiscreteGaussian struct {
	Variance     Rational
	Contribution Contribution
	Honest       int
	// Rounded says that noise on vectors of bounded norm is stated as rounded normal noise
	// also where nothing is sampled, as the noise of many devices has to be
	// (docs/proofs/rounded-gaussians.md).
	Rounded bool
}

// CorrelatedGaussian is whole-number noise that cancels over rounds, as dp/correlated draws
// it. A release is one participation of a person: everything that all rounds tell about
// that one contribution.
type CorrelatedGaussian struct {
	// Variance is that of the independent draws behind the noise.
	Variance Rational
	// Norm2 is the squared norm of a column of the strategy, 1 or more.
	Norm2        Rational
	Contribution Contribution
	// Bands and Rounds are the strategy's. A person's rounds are at least Bands apart.
	Bands, Rounds int
	// Improvement is how many times smaller the errors of sums over rounds are than with
	// independent noise of the same guarantee; for words, and 0 where it is not known.
	Improvement float64
}

// Laplace is Laplace noise of scale Scale on one number.
type Laplace struct {
	Scale        float64
	Contribution Contribution
	Honest       int
}

// DiscreteLaplace is whole-number Laplace noise of scale Scale in each coordinate.
type DiscreteLaplace struct {
	Scale        Rational
	Contribution Contribution
	Honest       int
}

// Response is k-ary randomized response: one answer of Answers, the true one e^Epsilon0
// times as likely as each other.
type Response struct {
	Epsilon0 float64
	Answers  uint64
}

// RAPPOR is a vector of Answers bits, one of which is set, each flipped with probability
// 1/(e^Epsilon0 + 1). Saying nothing is the vector in which none is set, one bit away;
// saying another thing is two bits away.
type RAPPOR struct {
	Epsilon0 float64
	Answers  uint64
}

// ApproxDP is anything that is (Epsilon, Delta)-DP for the relation asked about.
type ApproxDP struct{ Epsilon, Delta float64 }

// ZCDP is anything that is Rho-zCDP for the relation asked about.
type ZCDP struct{ Rho float64 }

// LocalDP is a report of any randomizer that is (Epsilon0, Delta0)-DP for replacing its
// input. It says nothing of sending none.
type LocalDP struct{ Epsilon0, Delta0 float64 }

// Shuffled is the messages of People honest people, the person's own included, of which
// nobody knows who sent which. Neighbours are those of a message, of which another, or
// one of nobody, takes the place of the person's. Redraw is the probability with which a
// device draws again (docs/proofs/device-noise.md, theorem 2). It is a mechanism, and not
// a [Shuffle] of one, where the people are those that a sample takes.
type Shuffled struct {
	Message Message
	People  uint64
	Redraw  float64
}

func (Gaussian) mechanism()           {}
func (DiscreteGaussian) mechanism()   {}
func (CorrelatedGaussian) mechanism() {}
func (Laplace) mechanism()            {}
func (DiscreteLaplace) mechanism()    {}
func (Response) mechanism()           {}
func (RAPPOR) mechanism()             {}
func (ApproxDP) mechanism()           {}
func (ZCDP) mechanism()               {}
func (LocalDP) mechanism()            {}
func (Shuffled) mechanism()           {}

// Name implements [Mechanism], as do its siblings.
func (Gaussian) Name() string           { return NameGaussian }
func (DiscreteGaussian) Name() string   { return NameDiscreteGaussian }
func (CorrelatedGaussian) Name() string { return NameCorrelatedGaussian }
func (Laplace) Name() string            { return NameLaplace }
func (DiscreteLaplace) Name() string    { return NameDiscreteLaplace }
func (Response) Name() string           { return NameResponse }
func (RAPPOR) Name() string             { return NameRAPPOR }
func (ApproxDP) Name() string           { return NameApproxDP }
func (ZCDP) Name() string               { return NameZCDP }
func (LocalDP) Name() string            { return NameLocalDP }
func (Shuffled) Name() string           { return NameShuffled }

// on says what noise is added to.
func on(c Contribution) string {
	return fmt.Sprintf(" on a sum to which each person adds at most %.6g", c.Max)
}

func (m Gaussian) String() string {
	return fmt.Sprintf("with Gaussian noise of standard deviation %.6g%s", m.Sigma, on(m.Contribution))
}

func (m DiscreteGaussian) String() string {
	return fmt.Sprintf("with whole-number Gaussian noise of sigma %.6g%s", m.Variance.root(), on(m.Contribution))
}

func (m CorrelatedGaussian) String() string {
	better := ""
	if m.Improvement != 0 {
		better = fmt.Sprintf(" (sums over rounds have %.3g times smaller errors than with independent noise of the same guarantee)", m.Improvement)
	}
	return fmt.Sprintf("of %d with whole-number Gaussian noise of sigma %.6g that cancels over rounds in %d bands%s%s",
		m.Rounds, m.Variance.root(), m.Bands, better, on(m.Contribution))
}

func (m Laplace) String() string {
	return fmt.Sprintf("with Laplace noise of scale %.6g%s", m.Scale, on(m.Contribution))
}

func (m DiscreteLaplace) String() string {
	return fmt.Sprintf("with whole-number Laplace noise of scale %.6g%s", m.Scale.Float(), on(m.Contribution))
}

func (m Response) String() string {
	return fmt.Sprintf("of randomized response over %d answers at local epsilon %.6g", m.Answers, m.Epsilon0)
}

func (m RAPPOR) String() string {
	return fmt.Sprintf("of RAPPOR over %d answers at deletion epsilon %.6g", m.Answers, m.Epsilon0)
}

func (m ApproxDP) String() string {
	return fmt.Sprintf("known to be (%.6g, %.3g)-differentially private", m.Epsilon, m.Delta)
}

func (m ZCDP) String() string { return fmt.Sprintf("known to be %.6g-zCDP", m.Rho) }

func (m LocalDP) String() string {
	return fmt.Sprintf("of any report that is (%.6g, %.3g)-differentially private for replacing an answer", m.Epsilon0, m.Delta0)
}

func (m Shuffled) String() string {
	return fmt.Sprintf("of the reports of %d people, shuffled", m.People)
}

// Local reports whether a mechanism runs on a device, on one person's answer.
func Local(m Mechanism) bool {
	switch m.(type) {
	case Response, RAPPOR, LocalDP:
		return true
	}
	return false
}

// Concentrated returns the rho at which one release is zero-concentrated DP for a relation
// of neighbours (Canonne, Kamath and Steinke 2020, theorem 14): squared distance/(2
// variance). One of the sum of k reports of a person is k^2 times that. ErrUnsupported for
// the noise of several honest servers, which is no discrete Gaussian to the last digit.
func (m DiscreteGaussian) Concentrated(n Neighbours) (*big.Rat, error) {
	if m.Honest > 1 || m.Rounded {
		return nil, fmt.Errorf("%w: the zCDP of noise that several draw", ErrUnsupported)
	}
	if !m.Variance.Valid() {
		return nil, fmt.Errorf("%w: sigma^2 is %v, want a positive fraction", ErrParameter, m.Variance)
	}
	d, err := m.Contribution.squared(n)
	if err != nil {
		return nil, err
	}
	return d.Quo(d, twice(m.Variance.Rat())), nil
}

// HonestDraws returns how many draws of a mechanism's noise nobody else knows: 1 or more,
// and 0 for a mechanism that draws no noise on sums, or correlated noise.
func HonestDraws(m Mechanism) int {
	switch m := m.(type) {
	case Gaussian:
		return max(1, m.Honest)
	case DiscreteGaussian:
		return max(1, m.Honest)
	case Laplace:
		return max(1, m.Honest)
	case DiscreteLaplace:
		return max(1, m.Honest)
	}
	return 0
}
