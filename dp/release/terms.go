package release

import (
	"errors"
	"fmt"
	"math"
	"math/big"
)

// Terms states a list of releases for a relation of neighbours, as certificates do: equal
// ones as one, in the order of the list. It fails with ErrUnsupported where certificates
// have no word for a release. Of shuffled releases and check-ins Mu and Fail are left to be
// chosen, a point of the curve.
func Terms(list []Release, n Neighbours) ([]Term, error) {
	var terms []Term
	at := make(map[Release]int)
	for _, r := range list {
		t, err := r.Term(n)
		if err != nil {
			return nil, err
		}
		kind := r
		kind.Count = 0
		if i, ok := at[kind]; ok {
			terms[i].Count += t.Count
			continue
		}
		at[kind] = len(terms)
		terms = append(terms, t)
	}
	if len(terms) == 0 {
		return nil, fmt.Errorf("%w: nothing is released", ErrParameter)
	}
	return terms, nil
}

// Term states one release. Distances and losses are rounded up: of whole contributions and
// fractions to the float64 next above the exact value.
func (r Release) Term(n Neighbours) (Term, error) {
	if r.Count == 0 || r.Count > MaxCount {
		return Term{}, &ParameterError{"number of releases", float64(r.Count), "1 to 2^40"}
	}
	t := Term{Rate: 1, Count: 1}
	var err error
	switch s := r.Sampling.(type) {
	case nil:
		err = t.everyone(r.Mechanism, n)
	case Poisson:
		switch {
		case s.Rate == 1 && s.Dummies == 0:
			err = t.everyone(r.Mechanism, n)
		case n == ReplaceOne || s.Rate == 1:
			err = r.unsupported(n)
		default:
			err = t.sampled(r, n)
			t.Sample, t.Rate, t.Dummies, t.DummyRate = SamplePoisson, s.Rate, s.Dummies, s.DummyRate
		}
	case Fixed:
		if n != ReplaceOne || !(s.Rate < 1) {
			err = r.unsupported(n)
			break
		}
		err = t.sampled(r, n)
		t.Sample, t.Rate = SampleFixed, s.Rate
	case Allocation:
		err = t.allocated(r, s, n)
	case CheckIns:
		err = t.checkedIn(r, s, n)
	case Shuffle:
		err = t.shuffled(r, s, n)
	default:
		err = r.unsupported(n)
	}
	if err != nil {
		return Term{}, err
	}
	if t.Count > MaxCount/r.Count {
		return Term{}, &ParameterError{"number of releases", float64(t.Count) * float64(r.Count), "1 to 2^40"}
	}
	t.Count *= r.Count
	return t, nil
}

func (r Release) unsupported(n Neighbours) error {
	return fmt.Errorf("%w: no certificate for %T of %T and %v neighbours", ErrUnsupported, r.Sampling, r.Mechanism, n)
}

// everyone states one release about all records.
func (t *Term) everyone(m Mechanism, n Neighbours) error {
	refuse := func() error { return Release{Mechanism: m}.unsupported(n) }
	switch m := m.(type) {
	case Gaussian:
		s, err := m.Contribution.Sensitivity(n)
		if err != nil {
			return err
		}
		t.Family = FamilyGaussian
		t.Mu, err = over(s.L2, "sigma", m.deviation())
		return err
	case Laplace:
		s, err := m.Contribution.Sensitivity(n)
		if err != nil {
			return err
		}
		if s.Coordinates > 1 || m.Honest > 1 {
			return refuse()
		}
		t.Family = FamilyLaplace
		t.Mu, err = over(s.Max, "scale", m.Scale)
		return err
	case Response:
		t.Family, t.Mu, t.Answers = FamilyResponse, m.Epsilon0, 2
		if n == ReplaceOne {
			t.Answers = m.Answers
		}
		return checkResponse(m.Epsilon0, m.Answers)
	case RAPPOR:
		t.Family, t.Mu, t.Answers = FamilyResponse, m.Epsilon0, 2
		if n == ReplaceOne {
			t.Count = 2
		}
		return checkResponse(m.Epsilon0, 2)
	case ApproxDP:
		t.Family, t.Mu, t.Fail, t.Answers = FamilyResponse, max(m.Epsilon, 1e-9), m.Delta, 2
		return m.check()
	case LocalDP:
		if n != ReplaceOne {
			return refuse()
		}
		t.Family, t.Mu, t.Fail, t.Answers = FamilyResponse, m.Epsilon0, m.Delta0, 2
		_, _, err := ReportOf(m).Approx()
		return err
	case ZCDP:
		t.Family, t.Mu = FamilyZCDP, m.Rho
		return positive("rho", m.Rho)
	case CorrelatedGaussian:
		if !m.Variance.Valid() || m.Norm2.Num == 0 || m.Norm2.Den == 0 { // the norm as it is added up
			return fmt.Errorf("%w: sigma^2 is %v and the squared norm %v, want positive fractions", ErrParameter, m.Variance, m.Norm2)
		}
		d, err := m.Contribution.squared(n)
		if err != nil {
			return err
		}
		t.Family, t.Mu = FamilyZCDP, Above(d.Mul(d, m.Norm2.Rat()).Quo(d, twice(m.Variance.Rat())))
		return nil
	case DiscreteLaplace:
		return t.discreteLaplace(m, n, refuse)
	case DiscreteGaussian:
		return t.discreteGaussian(m, n, refuse)
	case Shuffled:
		return t.messages(m, n, refuse)
	}
	return refuse()
}

func (t *Term) discreteLaplace(m DiscreteLaplace, n Neighbours, refuse func() error) error {
	s, err := m.Contribution.Sensitivity(n)
	if err != nil {
		return err
	}
	if !m.Scale.Valid() || s.Max != math.Trunc(s.Max) {
		return fmt.Errorf("%w: scale %v on contributions of %v", ErrParameter, m.Scale, s.Max)
	}
	if m.Honest > 1 || m.Contribution.Shape == ShapeBall || s.Max > MaxShift || s.Max/m.Scale.Float() > MaxLoss {
		return refuse()
	}
	if m.Contribution.Shape == ShapeSimplex { // docs/proofs/bounded-totals.md
		loss := new(big.Rat).SetFloat64(s.Max)
		t.Family, t.Mu, t.Answers = FamilyResponse, Above(loss.Quo(loss, m.Scale.Rat())), 2
		t.Count = uint64(s.L1 / s.Max)
		return nil
	}
	t.Family, t.Num, t.Den, t.Shift = FamilyDiscreteLaplace, m.Scale.Num, m.Scale.Den, uint64(s.Max)
	t.Count = s.Coordinates
	return nil
}

func (t *Term) discreteGaussian(m DiscreteGaussian, n Neighbours, refuse func() error) error {
	s, err := m.Contribution.Sensitivity(n)
	if err != nil {
		return err
	}
	v, honest := m.Variance.Rat(), int64(max(1, m.Honest))
	if !m.Variance.Valid() || s.Max != math.Trunc(s.Max) {
		return fmt.Errorf("%w: sigma^2 %v on contributions of %v", ErrParameter, m.Variance, s.Max)
	}
	if m.Rounded && m.Contribution.Anywhere() {
		return t.rounded(m, n)
	}
	// Below, a sum of draws is too far from one draw to be taken for it: with zCDP always,
	// and else where the checker counts each coordinate as a release.
	least := int64(1)
	if m.Contribution.Anywhere() {
		least = roundingVariance
	}
	if honest > math.MaxUint8 || honest > 1 && v.Cmp(big.NewRat(least, 1)) < 0 {
		return refuse()
	}
	if m.Contribution.Anywhere() { // rho = distance^2/(2 variance)
		d, err := m.Contribution.squared(n)
		if err != nil {
			return err
		}
		t.Family, t.Mu = FamilyZCDP, Above(d.Quo(d, v.Mul(v, big.NewRat(2*honest, 1))))
		return nil
	}
	if s.Max > MaxShift {
		return refuse()
	}
	t.Family, t.Num, t.Den, t.Shift = FamilyDiscreteGaussian, m.Variance.Num, m.Variance.Den, uint64(s.Max)
	t.Coordinates, t.Honest = s.Coordinates, uint8(honest)
	if v.Cmp(big.NewRat(1, 1)) < 0 { // each coordinate is a release
		t.Count, t.Coordinates = s.Coordinates, 1
	}
	return nil
}

// sampled states a release that is sampled from: one result, of a family whose whole curve
// is known.
func (t *Term) sampled(r Release, n Neighbours) error {
	if m, ok := r.Mechanism.(DiscreteGaussian); ok && m.Contribution.Anywhere() {
		return t.rounded(m, n)
	}
	if err := t.everyone(r.Mechanism, n); err != nil {
		return err
	}
	if t.Count != 1 || t.Family == FamilyZCDP {
		return r.unsupported(n)
	}
	return nil
}

// roundingVariance is taken off a variance to tell discrete Gaussian noise on vectors from
// continuous noise (docs/proofs/rounded-gaussians.md). They differ by a factor of at most
// e^(1e-17), for which the square of the distance is a little larger.
const roundingVariance = 4

// rounded states discrete Gaussian noise on a vector of bounded norm as continuous noise of
// a little less variance.
func (t *Term) rounded(m DiscreteGaussian, n Neighbours) error {
	d, err := m.Contribution.squared(n)
	if err != nil {
		return err
	}
	if !m.Variance.Valid() || m.Variance.Rat().Cmp(big.NewRat(2*roundingVariance, 1)) < 0 || m.Honest > MaxDraws {
		return fmt.Errorf("%w: no certificate of this little noise on vectors", ErrUnsupported)
	}
	all := new(big.Rat).Mul(m.Variance.Rat(), big.NewRat(int64(max(1, m.Honest)), 1))
	d.Quo(d, all.Sub(all, big.NewRat(roundingVariance, 1)))
	square, _ := d.Mul(d, big.NewRat(1_000_000_001, 1_000_000_000)).Float64()
	mu := math.Sqrt(square)
	// Devices compute it again, to the bit: so the product is rounded by itself.
	t.Family, t.Mu = FamilyGaussian, mu+float64(rounding*mu)
	return nil
}

// messages states shuffled messages, of which another takes the place of the person's, or
// one of nobody.
func (t *Term) messages(m Shuffled, n Neighbours, refuse func() error) error {
	if m.Message == nil {
		return refuse()
	}
	p, err := m.Message.Premise()
	if err != nil {
		return err
	}
	if n != p.Neighbours && n != AddRemove || m.People == 0 || !(m.Redraw >= 0) {
		return refuse()
	}
	t.Family, t.Local, t.Reports, t.Chance = FamilyShuffled, p.Epsilon0, min(m.People, MaxReports), 1
	t.Answers, t.Redraw = p.Answers, m.Redraw
	return nil
}

// allocated states one pick of some steps of a pure release.
func (t *Term) allocated(r Release, s Allocation, n Neighbours) error {
	var epsilon0 float64
	switch m := r.Mechanism.(type) {
	case Response:
		epsilon0 = m.Epsilon0
	case ApproxDP:
		if epsilon0 = m.Epsilon; m.Delta != 0 {
			return r.unsupported(n)
		}
	default:
		return r.unsupported(n)
	}
	if n == ReplaceOne || s.Picks != 1 || s.Rate != 1 || r.Count != 1 || s.Of == 0 {
		return r.unsupported(n)
	}
	t.Family, t.Local, t.Reports, t.Chance = FamilyCheckedIn, epsilon0, s.Of, 1
	return nil
}

// checkedIn states check-ins of pure reports.
func (t *Term) checkedIn(r Release, s CheckIns, n Neighbours) error {
	report := ReportOf(r.Mechanism)
	p, err := report.Premise()
	if err != nil {
		return err
	}
	if r.Count != 1 || n == ReplaceOne && s.Rate != 1 || s.Slots == 0 || s.Schedule == AveragedWindow {
		return r.unsupported(n)
	}
	t.Family, t.Local, t.Reports, t.Chance = FamilyCheckedIn, p.Epsilon0, s.Slots, s.Rate
	if n == ReplaceOne {
		t.Family = FamilyShuffled
	}
	return nil
}

// shuffled states shuffled reports.
func (t *Term) shuffled(r Release, s Shuffle, n Neighbours) error {
	m, err := s.Message(r.Mechanism)
	if err != nil {
		return err
	}
	refuse := func() error { return r.unsupported(n) }
	if n == AddRemove || r.Count != 1 || s.Rate != 1 {
		return refuse()
	}
	return t.messages(Shuffled{Message: m, People: s.People}, n, refuse)
}

// Message is what each person sends of a mechanism's results through a shuffle.
func (s Shuffle) Message(m Mechanism) (Message, error) {
	if !s.Columns {
		return ReportOf(m), nil
	}
	if m, ok := m.(RAPPOR); ok {
		return ColumnsOf(m.Epsilon0), nil
	}
	return nil, fmt.Errorf("%w: columns of %T", ErrUnsupported, m)
}

// deviation is the standard deviation of the sum of the honest draws, rounded down.
func (m Gaussian) deviation() float64 {
	if m.Honest <= 1 {
		return m.Sigma
	}
	return m.Sigma * math.Sqrt(float64(m.Honest)) * (1 - margin)
}

// squared is the square of the Euclidean distance of neighbours.
func (c Contribution) squared(n Neighbours) (*big.Rat, error) {
	s, err := c.Sensitivity(n)
	if err != nil {
		return nil, err
	}
	each := new(big.Rat).SetFloat64(s.Max)
	each.Mul(each, each)
	switch {
	case c.Shape == ShapeBall:
		return each, nil
	case c.Shape == ShapeSimplex:
		if n == ReplaceOne && c.Coordinates > 1 {
			twice(each)
		}
		return each, nil
	}
	return each.Mul(each, new(big.Rat).SetInt(new(big.Int).SetUint64(s.Coordinates))), nil
}

func twice(x *big.Rat) *big.Rat { return x.Mul(x, big.NewRat(2, 1)) }

// Above returns the least float64 that is not below x: +Inf beyond all that are finite.
func Above(x *big.Rat) float64 {
	f, _ := x.Float64()
	if !math.IsInf(f, 1) && new(big.Rat).SetFloat64(f).Cmp(x) < 0 {
		f = math.Nextafter(f, math.Inf(1))
	}
	return f
}

// over is the distance of neighbours in units of the noise, rounded up.
func over(distance float64, name string, unit float64) (float64, error) {
	if err := errors.Join(positive(name, unit), positive("contribution", distance)); err != nil {
		return 0, err
	}
	x := new(big.Rat).SetFloat64(distance)
	return Above(x.Quo(x, new(big.Rat).SetFloat64(unit))), nil
}

// check refuses what is no bound: a loss below 0 would pay for that of others.
func (m ApproxDP) check() error {
	switch {
	case !(m.Epsilon >= 0 && m.Epsilon <= MaxEpsilon):
		return &ParameterError{"epsilon", m.Epsilon, "0 to 10^6"}
	case !(m.Delta >= 0 && m.Delta < 1):
		return &ParameterError{"delta", m.Delta, "0 or more and below 1"}
	}
	return nil
}

// positive refuses what is no positive finite number.
func positive(name string, x float64) error {
	if x > 0 && !math.IsInf(x, 1) {
		return nil
	}
	return &ParameterError{name, x, "a positive number"}
}
