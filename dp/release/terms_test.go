package release

import (
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"
)

// TestTerms: what certificates say of each release, worked out by hand.
func TestTerms(t *testing.T) {
	three, half := Rational{3, 1}, Rational{1, 2}
	for name, tc := range map[string]struct {
		r    Release
		n    Neighbours
		want Term
	}{
		"gaussian":              {Times(3, Gaussian{Sigma: 4, Contribution: Signed(1)}), ReplaceOne, Term{Family: FamilyGaussian, Mu: 0.5, Count: 3, Rate: 1}},
		"laplace":               {One(Laplace{Scale: 4, Contribution: Interval(1)}), ReplaceOne, Term{Family: FamilyLaplace, Mu: 0.25, Count: 1, Rate: 1}},
		"one-hot":               {One(DiscreteGaussian{Variance: Rational{7, 3}, Contribution: OneHot()}), ReplaceOne, Term{Family: FamilyDiscreteGaussian, Num: 7, Den: 3, Shift: 1, Coordinates: 2, Honest: 1, Count: 1, Rate: 1}},
		"two servers":           {One(DiscreteGaussian{Variance: Rational{7, 1}, Contribution: Interval(5), Honest: 2}), AddRemove, Term{Family: FamilyDiscreteGaussian, Num: 7, Den: 1, Shift: 5, Coordinates: 1, Honest: 2, Count: 1, Rate: 1}},
		"narrow, many":          {Times(5, DiscreteGaussian{Variance: half, Contribution: OneHot()}), ReplaceOne, Term{Family: FamilyDiscreteGaussian, Num: 1, Den: 2, Shift: 1, Coordinates: 1, Honest: 1, Count: 10, Rate: 1}},
		"a vector":              {One(DiscreteGaussian{Variance: Rational{9, 1}, Contribution: Ball(9, 3)}), ReplaceOne, Term{Family: FamilyZCDP, Mu: 2, Count: 1, Rate: 1}},
		"two servers' vector":   {One(DiscreteGaussian{Variance: Rational{9, 1}, Contribution: Ball(9, 3), Honest: 2}), AddRemove, Term{Family: FamilyZCDP, Mu: 0.25, Count: 1, Rate: 1}},
		"a bounded total":       {One(DiscreteGaussian{Variance: Rational{9, 1}, Contribution: Simplex(9, 3)}), ReplaceOne, Term{Family: FamilyZCDP, Mu: 1, Count: 1, Rate: 1}},
		"correlated":            {Times(4, CorrelatedGaussian{Variance: Rational{40, 1}, Norm2: Rational{5, 4}, Contribution: Ball(1000, 4)}), AddRemove, Term{Family: FamilyZCDP, Mu: 0.25, Count: 4, Rate: 1}},
		"discrete laplace":      {Times(2, DiscreteLaplace{Scale: three, Contribution: OneHot()}), ReplaceOne, Term{Family: FamilyDiscreteLaplace, Num: 3, Den: 1, Shift: 1, Count: 4, Rate: 1}},
		"laplace on a total":    {One(DiscreteLaplace{Scale: three, Contribution: Simplex(9, 6)}), ReplaceOne, Term{Family: FamilyResponse, Mu: 2, Answers: 2, Count: 2, Rate: 1}},
		"an answer replaced":    {One(Response{2, 9}), ReplaceOne, Term{Family: FamilyResponse, Mu: 2, Answers: 9, Count: 1, Rate: 1}},
		"an answer or none":     {One(Response{2, 9}), ZeroOut, Term{Family: FamilyResponse, Mu: 2, Answers: 2, Count: 1, Rate: 1}},
		"bits":                  {Times(3, RAPPOR{2, 9}), ReplaceOne, Term{Family: FamilyResponse, Mu: 2, Answers: 2, Count: 6, Rate: 1}},
		"approx-dp":             {One(ApproxDP{2, 1e-9}), AddRemove, Term{Family: FamilyResponse, Mu: 2, Fail: 1e-9, Answers: 2, Count: 1, Rate: 1}},
		"any report":            {One(LocalDP{2, 0}), ReplaceOne, Term{Family: FamilyResponse, Mu: 2, Answers: 2, Count: 1, Rate: 1}},
		"zcdp":                  {Times(3, ZCDP{0.25}), AddRemove, Term{Family: FamilyZCDP, Mu: 0.25, Count: 3, Rate: 1}},
		"coins":                 {One(Response{2, 9}).Sampled(Poisson{Rate: 0.25, Dummies: 9, DummyRate: 0.5}), ZeroOut, Term{Family: FamilyResponse, Sample: SamplePoisson, Mu: 2, Answers: 2, Count: 1, Rate: 0.25, Dummies: 9, DummyRate: 0.5}},
		"coins of everybody":    {One(Response{2, 9}).Sampled(Poisson{Rate: 1}), ReplaceOne, Term{Family: FamilyResponse, Mu: 2, Answers: 9, Count: 1, Rate: 1}},
		"a fixed sample":        {Times(7, Gaussian{Sigma: 4, Contribution: Signed(1)}).Sampled(Fixed{0.5}), ReplaceOne, Term{Family: FamilyGaussian, Sample: SampleFixed, Mu: 0.5, Count: 7, Rate: 0.5}},
		"messages":              {Times(4, Shuffled{Message: ResponseReport(2, 9), People: 30}), ReplaceOne, Term{Family: FamilyShuffled, Local: 2, Answers: 9, Reports: 30, Chance: 1, Count: 4, Rate: 1}},
		"messages, redrawn":     {One(Shuffled{Message: ColumnsOf(2), People: 30, Redraw: 1e-12}), ZeroOut, Term{Family: FamilyShuffled, Local: 2, Answers: 2, Reports: 30, Redraw: 1e-12, Chance: 1, Count: 1, Rate: 1}},
		"messages of a sample":  {Times(2, Shuffled{Message: ColumnsOf(2), People: 30}).Sampled(Poisson{Rate: 0.25, DummyRate: 0.5}), AddRemove, Term{Family: FamilyShuffled, Sample: SamplePoisson, Local: 2, Answers: 2, Reports: 30, Chance: 1, Count: 2, Rate: 0.25, DummyRate: 0.5}},
		"more places than half": {One(DiscreteGaussian{Variance: Rational{7, 3}, Contribution: MultiHotOf(5, 4)}), AddRemove, Term{Family: FamilyDiscreteGaussian, Num: 7, Den: 3, Shift: 1, Coordinates: 4, Honest: 1, Count: 1, Rate: 1}},
		"shuffled":              {One(Response{2, 9}).Sampled(Shuffle{People: 3000, Rate: 1}), ReplaceOne, Term{Family: FamilyShuffled, Local: 2, Answers: 9, Reports: 3000, Chance: 1, Count: 1, Rate: 1}},
		"columns":               {One(RAPPOR{2, 9}).Sampled(Shuffle{People: 1 << 40, Rate: 1, Columns: true}), ZeroOut, Term{Family: FamilyShuffled, Local: 2, Answers: 2, Reports: MaxReports, Chance: 1, Count: 1, Rate: 1}},
		"rows":                  {One(RAPPOR{2, 9}).Sampled(Shuffle{People: 30, Rate: 1}), ReplaceOne, Term{Family: FamilyShuffled, Local: 4, Reports: 30, Chance: 1, Count: 1, Rate: 1}},
		"an allocation":         {One(Response{2, 9}).Sampled(Allocation{Picks: 1, Of: 30, Rate: 1}), AddRemove, Term{Family: FamilyCheckedIn, Local: 2, Reports: 30, Chance: 1, Count: 1, Rate: 1}},
		"check-ins":             {One(Response{2, 9}).Sampled(CheckIns{Slots: 30, Rate: 0.5}), AddRemove, Term{Family: FamilyCheckedIn, Local: 2, Reports: 30, Chance: 0.5, Count: 1, Rate: 1}},
		"check-ins, replaced":   {One(Response{2, 9}).Sampled(CheckIns{Slots: 30, Rate: 1}), ReplaceOne, Term{Family: FamilyShuffled, Local: 2, Reports: 30, Chance: 1, Count: 1, Rate: 1}},
	} {
		got, err := tc.r.Term(tc.n)
		mu := got.Mu
		got.Mu = tc.want.Mu
		if err != nil || got != tc.want || mu < tc.want.Mu || mu > tc.want.Mu*(1+1e-11) {
			got.Mu = mu
			t.Errorf("%s: %v, %v; want %v", name, got, err, tc.want)
		}
	}
	// Vectors that are sampled, and those whose noise is of many devices, stand for
	// continuous noise of 4 less in variance.
	all, err := Times(3, DiscreteGaussian{Variance: Rational{104, 25}, Contribution: Ball(9, 5), Honest: 25, Rounded: true}).Term(ReplaceOne)
	if err == nil {
		t.Errorf("draws of less than 8: %v", all)
	}
	all, err = Times(3, DiscreteGaussian{Variance: Rational{8, 1}, Contribution: Ball(9, 5), Honest: 13, Rounded: true}).Term(ReplaceOne)
	if err != nil || all.Family != FamilyGaussian || all.Count != 3 || all.Mu <= 1 || all.Mu > 1+1e-9 {
		t.Errorf("the noise of 13 devices: %v, %v", all, err)
	}
	got, err := Times(3, DiscreteGaussian{Variance: Rational{104, 1}, Contribution: Ball(9, 5)}).Sampled(Poisson{Rate: 0.5}).Term(AddRemove)
	if err != nil || got.Family != FamilyGaussian || got.Count != 3 || got.Mu <= 0.5 || got.Mu > 0.5*(1+1e-9) {
		t.Errorf("a sampled vector: %v, %v", got, err)
	}
}

// TestExactDistances: a loss is the least float64 that is not below the exact one.
func TestExactDistances(t *testing.T) {
	m := DiscreteGaussian{Variance: Rational{1000003, 7}, Contribution: Ball(5, 12345)}
	got, err := One(m).Term(ReplaceOne)
	exact := big.NewRat(4*12345*12345*7, 2*1000003)
	if err != nil || new(big.Rat).SetFloat64(got.Mu).Cmp(exact) < 0 || new(big.Rat).SetFloat64(math.Nextafter(got.Mu, 0)).Cmp(exact) >= 0 {
		t.Errorf("rho %v, %v, of %v", got.Mu, err, exact)
	}
}

// TestDistancesRoundUp: of noise that is any number, as of whole numbers, a distance over
// the noise is never stated below itself, and one beyond all numbers is no panic.
func TestDistancesRoundUp(t *testing.T) {
	for size := 1.; size < 50; size++ {
		exact := new(big.Rat).Quo(big.NewRat(2, 1), new(big.Rat).SetFloat64(size))
		for _, m := range []Mechanism{Laplace{Scale: size, Contribution: Signed(1)}, Gaussian{Sigma: size, Contribution: Ball(9, 1)}} {
			if got, err := One(m).Term(ReplaceOne); err != nil || new(big.Rat).SetFloat64(got.Mu).Cmp(exact) < 0 || got.Mu > math.Nextafter(2/size, 3) {
				t.Errorf("%v: %v, %v", m, got.Mu, err)
			}
		}
	}
	for _, m := range []Mechanism{
		Laplace{Scale: 1e-300, Contribution: Interval(1e300)}, Gaussian{Sigma: 1e-300, Contribution: Ball(9, 1e300)},
		Gaussian{Sigma: 1, Contribution: Vector(1e12, 1e308)}, DiscreteGaussian{Variance: Rational{9, 1}, Contribution: Ball(9, 1e200)},
		CorrelatedGaussian{Variance: Rational{9, 1}, Norm2: Rational{1, 1}, Contribution: Ball(9, 1e200)},
	} {
		if got, err := One(m).Term(ReplaceOne); err == nil && !math.IsInf(got.Mu, 1) {
			t.Errorf("%v: %v", m, got)
		}
	}
}

// TestPureLosses: what each term loses at most, and the response that stands for it.
func TestPureLosses(t *testing.T) {
	coins := Term{Family: FamilyDiscreteLaplace, Num: 3, Den: 2, Shift: 5, Count: 7, Sample: SamplePoisson, Rate: 0.25, Dummies: 4, DummyRate: 0.5}
	for name, tc := range map[string]struct {
		t    Term
		loss *big.Rat // nil for none
	}{
		"laplace":     {Term{Family: FamilyLaplace, Mu: 0.25, Count: 1, Rate: 1}, big.NewRat(1, 4)},
		"a sample":    {coins, big.NewRat(10, 3)},
		"a response":  {Term{Family: FamilyResponse, Mu: 2, Answers: 2, Count: 3, Rate: 1}, big.NewRat(2, 1)},
		"redrawn":     {Term{Family: FamilyShuffled, Local: 2, Redraw: 0.125, Reports: 9, Count: 1, Rate: 1}, big.NewRat(9, 4)},
		"approximate": {Term{Family: FamilyResponse, Mu: 2, Fail: 1e-9, Answers: 2, Count: 3, Rate: 1}, nil},
		"gaussian":    {Term{Family: FamilyGaussian, Mu: 2, Count: 3, Rate: 1}, nil},
		"zcdp":        {Term{Family: FamilyZCDP, Mu: 2, Count: 3, Rate: 1}, nil},
		"no scale":    {Term{Family: FamilyDiscreteLaplace, Den: 1, Shift: 1, Count: 3, Rate: 1}, nil},
		"not a loss":  {Term{Family: FamilyLaplace, Mu: math.NaN(), Count: 3, Rate: 1}, nil},
		"no report":   {Term{Family: FamilyShuffled, Local: math.Inf(1), Count: 3, Rate: 1}, nil},
	} {
		loss, ok := tc.t.Loss()
		if ok != (tc.loss != nil) || ok && loss.Cmp(tc.loss) != 0 {
			t.Errorf("%s: %v, %v; want %v", name, loss, ok, tc.loss)
		}
		pure, ok := tc.t.Pure()
		if want := tc.loss != nil && tc.t.Family != FamilyResponse; ok != want {
			t.Errorf("%s: stated by its loss: %v", name, ok)
		}
		if ok && (pure.Family != FamilyResponse || pure.Answers != 2 || pure.Count != tc.t.Count || new(big.Rat).SetFloat64(pure.Mu).Cmp(tc.loss) < 0 ||
			new(big.Rat).SetFloat64(math.Nextafter(pure.Mu, 0)).Cmp(tc.loss) >= 0) {
			t.Errorf("%s: %v", name, pure)
		}
	}
	want := Term{Family: FamilyResponse, Answers: 2, Count: 7, Sample: SamplePoisson, Rate: 0.25, Dummies: 4, DummyRate: 0.5}
	if got, _ := coins.Pure(); got.Mu < 10./3 || got.Mu > 3.3333333333333344 {
		t.Errorf("a sample loses %v", got.Mu)
	} else if got.Mu = 0; got != want {
		t.Errorf("a sample: %v, want %v", got, want)
	}
}

// TestListsOfTerms: equal releases are added up, others keep their order.
func TestListsOfTerms(t *testing.T) {
	a, b := Times(3, Response{1, 2}), Times(5, ZCDP{1})
	got, err := Terms([]Release{a, b, a.Sampled(Poisson{Rate: 0.5}), a}, AddRemove)
	if err != nil || len(got) != 3 || got[0].Count != 6 || got[1].Family != FamilyZCDP || got[2].Count != 3 {
		t.Errorf("%v, %v", got, err)
	}
	if r := Repeated([]Release{a, b}, 7); r[0].Count != 21 || r[1].Count != 35 || a.Count != 3 {
		t.Errorf("seven times: %v", r)
	}
	over := Repeated([]Release{Times(1<<40, ZCDP{1})}, 1<<30)
	if _, err := Terms(over, AddRemove); !errors.Is(err, ErrParameter) || over[0].Count != math.MaxUint64 {
		t.Errorf("2^70 releases: %v, %v", over, err)
	}
}

// TestReleasesWithoutTerm: certificates have no word for these, and broken ones are
// refused.
func TestReleasesWithoutTerm(t *testing.T) {
	noise := Gaussian{Sigma: 1, Contribution: Signed(1)}
	for name, tc := range map[string]struct {
		r    Release
		n    Neighbours
		want error
	}{
		"nothing":                  {One(nil), AddRemove, ErrUnsupported},
		"none":                     {Release{Mechanism: noise}, AddRemove, ErrParameter},
		"no relation":              {One(noise), 0, ErrParameter},
		"no sigma":                 {One(Gaussian{Contribution: Signed(1)}), AddRemove, ErrParameter},
		"sigma NaN":                {One(Gaussian{Sigma: math.NaN(), Contribution: Signed(1)}), AddRemove, ErrParameter},
		"no contribution":          {One(Gaussian{Sigma: 1}), AddRemove, ErrParameter},
		"laplace on two numbers":   {One(Laplace{Scale: 1, Contribution: Vector(2, 1)}), AddRemove, ErrUnsupported},
		"two servers' laplace":     {One(DiscreteLaplace{Scale: Rational{1, 1}, Contribution: OneHot(), Honest: 2}), AddRemove, ErrUnsupported},
		"laplace on a vector":      {One(DiscreteLaplace{Scale: Rational{9, 1}, Contribution: Ball(3, 5)}), AddRemove, ErrUnsupported},
		"no scale":                 {One(DiscreteLaplace{Contribution: OneHot()}), AddRemove, ErrParameter},
		"half a count":             {One(DiscreteGaussian{Variance: Rational{9, 1}, Contribution: Interval(0.5)}), AddRemove, ErrParameter},
		"no variance":              {One(DiscreteGaussian{Contribution: OneHot()}), AddRemove, ErrParameter},
		"narrow, of two servers":   {One(DiscreteGaussian{Variance: Rational{1, 2}, Contribution: OneHot(), Honest: 2}), AddRemove, ErrUnsupported},
		"two servers' vector":      {One(DiscreteGaussian{Variance: Rational{3, 1}, Contribution: Ball(9, 3), Honest: 2}), AddRemove, ErrUnsupported},
		"rounded, but too narrow":  {One(DiscreteGaussian{Variance: Rational{7, 1}, Contribution: Ball(9, 3), Rounded: true}), ReplaceOne, ErrUnsupported},
		"messages of nobody":       {One(Shuffled{Message: ResponseReport(1, 2)}), ReplaceOne, ErrUnsupported},
		"no message":               {One(Shuffled{People: 9}), ReplaceOne, ErrUnsupported},
		"answers or none":          {One(Shuffled{Message: ResponseReport(1, 2), People: 9}), ZeroOut, ErrUnsupported},
		"redrawn below never":      {One(Shuffled{Message: ColumnsOf(1), People: 9, Redraw: -1}), ZeroOut, ErrUnsupported},
		"messages of no epsilon":   {One(Shuffled{Message: ColumnsOf(0), People: 9}), ZeroOut, ErrParameter},
		"of many devices":          {One(DiscreteGaussian{Variance: Rational{9, 1}, Contribution: OneHot(), Honest: 256}), AddRemove, ErrUnsupported},
		"no strategy":              {One(CorrelatedGaussian{Variance: Rational{9, 1}, Contribution: OneHot()}), AddRemove, ErrParameter},
		"one answer":               {One(Response{1, 1}), AddRemove, ErrParameter},
		"bits at no epsilon":       {One(RAPPOR{0, 9}), AddRemove, ErrParameter},
		"any report, or none":      {One(LocalDP{1, 0}), AddRemove, ErrUnsupported},
		"coins, replaced":          {One(noise).Sampled(Poisson{Rate: 0.5}), ReplaceOne, ErrUnsupported},
		"dummies of everybody":     {One(noise).Sampled(Poisson{Rate: 1, Dummies: 5, DummyRate: 0.5}), AddRemove, ErrUnsupported},
		"coins over zcdp":          {One(ZCDP{1}).Sampled(Poisson{Rate: 0.5}), AddRemove, ErrUnsupported},
		"coins over two bits":      {One(DiscreteLaplace{Scale: Rational{1, 1}, Contribution: MultiHot(2)}).Sampled(Poisson{Rate: 0.5}), AddRemove, ErrUnsupported},
		"coins over little noise":  {One(DiscreteGaussian{Variance: Rational{7, 1}, Contribution: Ball(3, 5)}).Sampled(Poisson{Rate: 0.5}), AddRemove, ErrUnsupported},
		"a fixed sample, added":    {One(noise).Sampled(Fixed{0.5}), AddRemove, ErrUnsupported},
		"all of a fixed sample":    {One(noise).Sampled(Fixed{1}), ReplaceOne, ErrUnsupported},
		"a public random size":     {One(noise).Sampled(CountedPoisson{0.5, 100}), ReplaceOne, ErrUnsupported},
		"noise, allocated":         {One(noise).Sampled(Allocation{1, 10, 1}), AddRemove, ErrUnsupported},
		"averaged check-ins":       {One(Response{1, 2}).Sampled(CheckIns{AveragedWindow, 10, 1, 99}), ReplaceOne, ErrUnsupported},
		"two picks":                {One(Response{1, 2}).Sampled(Allocation{2, 10, 1}), AddRemove, ErrUnsupported},
		"two runs":                 {Times(2, Response{1, 2}).Sampled(Allocation{1, 10, 1}), AddRemove, ErrUnsupported},
		"an allocation, replaced":  {One(Response{1, 2}).Sampled(Allocation{1, 10, 1}), ReplaceOne, ErrUnsupported},
		"check-ins of noise":       {One(noise).Sampled(CheckIns{FixedWindow, 10, 1, 0}), AddRemove, ErrUnsupported},
		"check-ins of approx-dp":   {One(ApproxDP{1, 0}).Sampled(CheckIns{FixedWindow, 10, 1, 0}), AddRemove, ErrUnsupported},
		"perhaps, and replaced":    {One(Response{1, 2}).Sampled(CheckIns{FixedWindow, 10, 0.5, 0}), ReplaceOne, ErrUnsupported},
		"shuffled twice":           {Times(2, Response{1, 2}).Sampled(Shuffle{People: 10, Rate: 1}), ReplaceOne, ErrUnsupported},
		"shuffled, added":          {One(Response{1, 2}).Sampled(Shuffle{People: 10, Rate: 1}), AddRemove, ErrUnsupported},
		"a sample, shuffled":       {One(Response{1, 2}).Sampled(Shuffle{People: 10, Rate: 0.5}), ReplaceOne, ErrUnsupported},
		"shuffled among nobody":    {One(Response{1, 2}).Sampled(Shuffle{Rate: 1}), ReplaceOne, ErrUnsupported},
		"columns of answers":       {One(Response{1, 2}).Sampled(Shuffle{People: 10, Rate: 1, Columns: true}), ZeroOut, ErrUnsupported},
		"shuffled but not pure":    {One(LocalDP{1, 1e-9}).Sampled(Shuffle{People: 10, Rate: 1}), ReplaceOne, ErrUnsupported},
		"an allocation not pure":   {One(ApproxDP{1, 1e-9}).Sampled(Allocation{1, 10, 1}), AddRemove, ErrUnsupported},
		"more than can be counted": {Times(1<<40, RAPPOR{1, 2}), ReplaceOne, ErrParameter},
	} {
		if got, err := tc.r.Term(tc.n); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, tc.want)
		}
	}
	if got, err := Terms(nil, AddRemove); !errors.Is(err, ErrParameter) {
		t.Errorf("an empty list: %v, %v", got, err)
	}
}

// TestMechanisms: each has a name of its own and words with its parameters.
func TestMechanisms(t *testing.T) {
	seen := map[string]bool{}
	for _, tc := range []struct {
		m      Mechanism
		honest int
		local  bool
		words  string
	}{
		{Gaussian{Sigma: 5.1, Contribution: Signed(3)}, 1, false, "Gaussian noise of standard deviation 5.1 on a sum"},
		{DiscreteGaussian{Variance: Rational{9, 4}, Contribution: Signed(3), Honest: 2}, 2, false, "sigma 1.5 on a sum to which each person adds at most 3"},
		{CorrelatedGaussian{Variance: Rational{9, 4}, Norm2: Rational{1, 1}, Contribution: Signed(3), Bands: 8, Rounds: 100, Improvement: 2}, 0, false, "of 100 with whole-number Gaussian noise of sigma 1.5 that cancels over rounds in 8 bands (sums over rounds have 2 times smaller"},
		{Laplace{Scale: 7, Contribution: Signed(3), Honest: 1}, 1, false, "Laplace noise of scale 7"},
		{DiscreteLaplace{Scale: Rational{5, 2}, Contribution: Signed(3)}, 1, false, "whole-number Laplace noise of scale 2.5"},
		{Response{2, 9}, 0, true, "randomized response over 9 answers at local epsilon 2"},
		{RAPPOR{2, 9}, 0, true, "RAPPOR over 9 answers at deletion epsilon 2"},
		{ApproxDP{2, 1e-9}, 0, false, "(2, 1e-09)-differentially private"},
		{ZCDP{0.25}, 0, false, "0.25-zCDP"},
		{Shuffled{Message: ColumnsOf(2), People: 70}, 0, false, "of the reports of 70 people, shuffled"},
		{LocalDP{2, 1e-9}, 0, true, "(2, 1e-09)-differentially private for replacing"},
	} {
		if name := tc.m.Name(); name == "" || seen[name] || !strings.Contains(tc.m.String(), tc.words) {
			t.Errorf("%T is %q, %q; want %q", tc.m, name, tc.m, tc.words)
		}
		seen[tc.m.Name()] = true
		if HonestDraws(tc.m) != tc.honest || Local(tc.m) != tc.local {
			t.Errorf("%T: %d honest draws, local %v", tc.m, HonestDraws(tc.m), Local(tc.m))
		}
	}
}

// TestWordsOfReleases: counts, samples and runs in a sentence.
func TestWordsOfReleases(t *testing.T) {
	answer := Response{2, 9}
	const of = "of randomized response over 9 answers at local epsilon 2"
	for want, r := range map[string]Release{
		"one release " + of:                  One(answer),
		"50 releases " + of:                  Times(50, answer),
		"one person's round":                 One(CorrelatedGaussian{Variance: Rational{9, 1}, Contribution: Signed(1), Bands: 2, Rounds: 9}),
		"4 of one person's rounds of 9 with": Times(4, CorrelatedGaussian{Variance: Rational{9, 1}, Contribution: Signed(1), Bands: 2, Rounds: 9}),
		"one release " + of + ", about a secret random sample of 2 % of the people":                                              One(answer).Sampled(Poisson{Rate: 0.02}),
		"3 releases " + of + ", about a secret random sample of 50 % of the people":                                              Times(3, answer).Sampled(Fixed{0.5}),
		"one release " + of + ", about a secret random sample of 5 % of the people":                                              One(answer).Sampled(CountedPoisson{0.05, 100}),
		"one release in 9 steps " + of + ", each person in 2 of the 9, at random and in secret":                                  One(answer).Sampled(Allocation{2, 9, 1}),
		"3 releases in 9 steps each " + of + ", each person in 2 of the 9, at random":                                            Times(3, answer).Sampled(Allocation{2, 9, 1}),
		"one release in 9 steps " + of + ", about a secret random sample of 50 % of the people, each person in 2 of the 9":       One(answer).Sampled(Allocation{2, 9, 0.5}),
		"3 releases in 9 steps each " + of + ", each time about a secret random sample of 50 % of the people, each person in 2 ": Times(3, answer).Sampled(Allocation{2, 9, 0.5}),
		"one release " + of + ", shuffled among 70 people":                                                                       One(answer).Sampled(Shuffle{People: 70, Rate: 1}),
		"one release " + of + ", about a secret random sample of 50 % of the people, shuffled among 70 people":                   One(answer).Sampled(Shuffle{People: 70, Rate: 0.5}),
		"one release " + of + ", by people who check in with probability 0.5 at a random slot of a sliding window of 9":          One(answer).Sampled(CheckIns{SlidingWindow, 9, 0.5, 0}),
		"one release " + of + ", by 70 people who check in at random slots of 9, averaged":                                       One(answer).Sampled(CheckIns{AveragedWindow, 9, 1, 70}),
	} {
		if got := r.String(); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for s := FixedWindow; s <= SlidingWindow; s++ {
		if got, err := ParseSchedule(s.String()); err != nil || got != s {
			t.Errorf("%v is read as %v, %v", s, got, err)
		}
	}
	if _, err := ParseSchedule("weekly"); !errors.Is(err, ErrParameter) {
		t.Errorf("a weekly schedule: %v", err)
	}
}
