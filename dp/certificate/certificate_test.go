package certificate_test

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dp/accountant"
	. "github.com/starling-agg/starling/dp/certificate"
	"github.com/starling-agg/starling/dp/release"
)

func certify(t testing.TB, list []release.Release, delta float64, n release.Neighbours) *Certificate {
	t.Helper()
	c, err := accountant.Certify(list, delta, n)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	return c
}

func gauss(sigma float64, count uint64) release.Release {
	return release.Times(count, release.Gaussian{Sigma: sigma, Contribution: release.Signed(1)})
}

func sampled(sigma, q float64, count uint64) []release.Release {
	return []release.Release{gauss(sigma, count).Sampled(release.Poisson{Rate: q})}
}

// honest returns one certificate by a formula and one with laws.
func honest(t testing.TB) (formula, laws *Certificate) {
	b := honestBytes(t)
	formula, laws = new(Certificate), new(Certificate)
	if err := formula.UnmarshalBinary(b[0]); err != nil {
		t.Fatal(err)
	}
	if err := laws.UnmarshalBinary(b[1]); err != nil {
		t.Fatal(err)
	}
	return formula, laws
}

var kept [2][]byte

func honestBytes(t testing.TB) [2][]byte {
	t.Helper()
	if kept[0] == nil {
		kept = [2][]byte{
			encode(t, certify(t, []release.Release{gauss(5, 40)}, 1e-9, release.AddRemove)),
			encode(t, certify(t, append(sampled(2, .05, 50), release.One(release.ApproxDP{Epsilon: .1, Delta: 1e-9})),
				1e-7, release.AddRemove)),
		}
	}
	return kept
}

// Every lie about a certificate that holds is refused, for the reason that it deserves.
func TestTampered(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, tc := range []struct {
		name   string
		lie    func(c *Certificate)
		reason Reason
	}{
		{"a smaller epsilon", func(c *Certificate) { c.Epsilon *= .99 }, Unproved},
		{"a smaller delta", func(c *Certificate) { c.Delta *= .9 }, Unproved},
		{"epsilon NaN", func(c *Certificate) { c.Epsilon = nan }, BadClaim},
		{"epsilon infinite", func(c *Certificate) { c.Epsilon = inf }, BadClaim},
		{"epsilon negative", func(c *Certificate) { c.Epsilon = -1 }, BadClaim},
		{"delta 0", func(c *Certificate) { c.Delta = 0 }, BadClaim},
		{"delta 1", func(c *Certificate) { c.Delta = 1 }, BadClaim},
		{"delta NaN", func(c *Certificate) { c.Delta = nan }, BadClaim},
		{"no neighbours", func(c *Certificate) { c.Neighbours = 0 }, BadClaim},
		{"no terms", func(c *Certificate) { c.Terms = nil }, Malformed},
		{"more releases", func(c *Certificate) { c.Terms[0].Count++ }, Unproved},
		{"no releases", func(c *Certificate) { c.Terms[0].Count = 0 }, BadTerm},
		{"mu NaN", func(c *Certificate) { c.Terms[0].Mu = nan }, BadTerm},
		{"mu infinite", func(c *Certificate) { c.Terms[0].Mu = inf }, BadTerm},
		{"an unknown mechanism", func(c *Certificate) { c.Terms[0].Family = 99 }, BadTerm},
		{"a parameter of another mechanism", func(c *Certificate) { c.Terms[0].Shift = 1 }, BadTerm},
		{"a rate NaN", func(c *Certificate) { c.Terms[0].Rate = nan }, BadTerm},
		{"a rate above 1", func(c *Certificate) { c.Terms[0].Rate = 1.5 }, BadTerm},
	} {
		formula, laws := honest(t)
		for _, c := range []*Certificate{formula, laws} {
			refused(t, tc.name, c, tc.lie, tc.reason)
		}
	}
	for _, tc := range []struct {
		name   string
		lie    func(c *Certificate)
		reason Reason
	}{
		{"less distance than there is", func(c *Certificate) { c.Terms[0].Mu *= 1.01 }, Unproved},
		{"laws beside a formula", func(c *Certificate) { c.Step, c.Laws = 1, make([]Law, 1) }, BadLaw},
		{"masses beside a formula", func(c *Certificate) { c.Masses = make([]float32, 1) }, Malformed},
		{"Laplace, said to be Gaussian", func(c *Certificate) { c.Terms[0].Family = release.FamilyLaplace }, Malformed},
	} {
		c, _ := honest(t)
		refused(t, tc.name, c, tc.lie, tc.reason)
	}
	for _, tc := range []struct {
		name   string
		lie    func(c *Certificate)
		reason Reason
	}{
		{"more distance than the law is of", func(c *Certificate) { c.Terms[0].Mu *= 1.01 }, NotDominating},
		{"a higher rate than the law is of", func(c *Certificate) { c.Terms[0].Rate *= 1.01 }, NotDominating},
		{"a failure left out", func(c *Certificate) { c.Terms[1].Fail *= 2 }, NotDominating},
		{"a more private mechanism's laws", func(c *Certificate) { copyLaw(c, 1, 0) }, NotDominating},
		{"directions swapped", func(c *Certificate) {
			n := c.Laws[0].Size + c.Laws[1].Size
			c.Laws = append(c.Laws[2:4:4], c.Laws[:2]...)
			c.Masses = append(slices.Clone(c.Masses[n:]), c.Masses[:n]...)
		}, NotDominating},
		{"no second direction", func(c *Certificate) { c.Laws = c.Laws[:2] }, Malformed},
		{"a direction twice", func(c *Certificate) {
			n := c.Laws[0].Size + c.Laws[1].Size
			c.Laws = append(c.Laws[:2:2], c.Laws[:2]...)
			c.Masses = append(c.Masses[:n:n], c.Masses[:n]...)
		}, NotDominating},
		{"a law left out", func(c *Certificate) { c.Laws = c.Laws[:3] }, Malformed},
		{"masses left out", func(c *Certificate) { c.Masses = c.Masses[:len(c.Masses)-1] }, Malformed},
		{"masses of no law", func(c *Certificate) { c.Laws[2].Size-- }, Malformed},
		{"sizes that overflow", func(c *Certificate) { c.Laws[0].Size = 1 << 31; c.Laws[1].Size = 1 << 31 }, Malformed},
		{"a law of nothing", func(c *Certificate) { c.Laws[1].Size += c.Laws[0].Size; c.Laws[0].Size = 0 }, BadLaw},
		{"losses rounded inwards", func(c *Certificate) { c.Laws[0].Origin -= c.Step / 100 }, NotDominating},
		{"masses rounded inwards", func(c *Certificate) {
			m := c.Masses[:c.Laws[0].Size] // what goes from the top half goes to the bottom
			for i := len(m) / 2; i < len(m); i++ {
				m[0] += m[i]*1e-3 + 1e-12
				m[i] *= 1 - 1e-3
			}
		}, NotDominating},
		{"truncated masses", func(c *Certificate) {
			m := c.Masses[:c.Laws[0].Size]
			for i := len(m) / 2; i < len(m); i++ {
				m[0] += m[i]
				m[i] = 0
			}
			m[0] += 2e-7
		}, NotDominating},
		{"mass that is lost", func(c *Certificate) { c.Masses[3] = 0 }, BadLaw},
		{"an infinite loss made finite", func(c *Certificate) {
			c.Masses[c.Laws[0].Size+c.Laws[1].Size-1] += float32(c.Laws[1].Infinite)
			c.Laws[1].Infinite = 0
		}, NotDominating},
		{"a mass NaN", func(c *Certificate) { c.Masses[0] = float32(nan) }, BadLaw},
		{"a mass infinite", func(c *Certificate) { c.Masses[0] = float32(inf) }, BadLaw},
		{"a negative mass", func(c *Certificate) { c.Masses[0] = -1e-9 }, BadLaw},
		{"infinite NaN", func(c *Certificate) { c.Laws[0].Infinite = nan }, BadLaw},
		{"origin NaN", func(c *Certificate) { c.Laws[0].Origin = nan }, BadLaw},
		{"origin infinite", func(c *Certificate) { c.Laws[0].Origin = math.Inf(-1) }, BadLaw},
		{"a step of NaN", func(c *Certificate) { c.Step = nan }, Malformed},
		{"a larger step", func(c *Certificate) { c.Step *= 1.01 }, 0},
		{"a smaller step", func(c *Certificate) { c.Step *= .99 }, NotDominating},
		{"too many kinds of release", func(c *Certificate) {
			for len(c.Terms) < 65 {
				c.Terms = append(c.Terms, c.Terms[0])
			}
		}, Malformed},
		{"too many releases to add up", func(c *Certificate) {
			for len(c.Terms) < 9 {
				t := c.Terms[0]
				t.Count = 1 << 30
				c.Terms = append(c.Terms, t)
			}
			for len(c.Laws) < 18 {
				c.Laws = append(c.Laws, Law{})
			}
		}, Malformed},
		{"replace-one", func(c *Certificate) { c.Neighbours = release.ReplaceOne }, BadTerm},
		{"a fixed sample", func(c *Certificate) { c.Terms[0].Sample = release.SampleFixed }, BadTerm},
		{"everyone at a rate", func(c *Certificate) { c.Terms[0].Sample = release.SampleEveryone }, BadTerm},
		{"rho beside laws", func(c *Certificate) {
			c.Terms[1] = release.Term{Family: release.FamilyZCDP, Count: 1, Mu: 1e-3, Rate: .5}
		}, BadTerm},
	} {
		_, c := honest(t)
		refused(t, tc.name, c, tc.lie, tc.reason)
	}
}

func copyLaw(c *Certificate, to, from int) {
	at := func(i int) (n uint32) {
		for _, l := range c.Laws[:i] {
			n += l.Size
		}
		return n
	}
	c.Masses = slices.Replace(c.Masses, int(at(to)), int(at(to+1)), slices.Clone(c.Masses[at(from):at(from+1)])...)
	c.Laws[to] = c.Laws[from]
}

func refused(t *testing.T, name string, c *Certificate, lie func(c *Certificate), reason Reason) {
	t.Helper()
	lie(c)
	var e *Error
	if err := c.Check(); !errors.As(err, &e) || reason != 0 && e.Reason != reason || e.Error() == "" {
		t.Errorf("%s: %v, reason %d wanted", name, err, reason)
	}
}

// The reference: what the curves of single releases are, by sums over outcomes that know
// nothing of them.
func TestFormulas(t *testing.T) {
	gaussian := func(v float64) func(int) float64 {
		theta := 0.0
		for y := -2000; y <= 2000; y++ {
			theta += math.Exp(-float64(y) * float64(y) / (2 * v))
		}
		return func(y int) float64 { return math.Exp(-float64(y)*float64(y)/(2*v)) / theta }
	}
	laplace := func(b float64) func(int) float64 {
		a := math.Exp(-1 / b)
		return func(y int) float64 { return math.Exp(-math.Abs(float64(y))/b) * (1 - a) / (1 + a) }
	}
	brute := func(p func(int) float64, shift int, rate, l float64, added bool) float64 {
		sum := 0.0
		for y := -2000; y <= 2000; y++ {
			a, b := rate*p(y-shift)+(1-rate)*p(y), p(y)
			if added {
				a, b = b, a
			}
			sum += max(0, a-math.Exp(l)*b)
		}
		return sum
	}
	dg := func(num, den, shift uint64) release.Term {
		return release.Term{Family: release.FamilyDiscreteGaussian, Honest: 1, Count: 1, Num: num, Den: den, Shift: shift, Coordinates: 1, Rate: 1}
	}
	dl := func(num, den, shift uint64) release.Term {
		return release.Term{Family: release.FamilyDiscreteLaplace, Count: 1, Num: num, Den: den, Shift: shift, Rate: 1}
	}
	for _, tc := range []struct {
		term release.Term
		pmf  func(int) float64
	}{
		{dg(1, 2, 1), gaussian(.5)}, {dg(100, 1, 7), gaussian(100)}, {dg(2500, 1, 3), gaussian(2500)},
		{dl(5, 2, 1), laplace(2.5)}, {dl(5, 2, 6), laplace(2.5)}, {dl(20, 1, 9), laplace(20)},
	} {
		for _, rate := range []float64{1, .5, .02} {
			term, n := tc.term, release.AddRemove
			if term.Rate = rate; rate < 1 {
				term.Sample = release.SamplePoisson
			}
			for _, l := range []float64{0, .01, .1, .4, 1, 1.7} {
				want := max(brute(tc.pmf, int(term.Shift), rate, l, false), brute(tc.pmf, int(term.Shift), rate, l, true))
				if want < 1e-15 {
					continue
				}
				c := Certificate{Claim: Claim{l, want*(1+1e-9) + 1e-12, n}, Terms: []release.Term{term}}
				if err := c.Check(); err != nil {
					t.Errorf("%+v at %v: %v", term, l, err)
				}
				if c.Delta = want * (1 - 1e-9); c.Check() == nil {
					t.Errorf("%+v at %v: a delta of %v, which is too small, is proved", term, l, c.Delta)
				}
			}
		}
	}
	// Where sums give way to integrals, and for two coordinates and two servers: against
	// the sum over the sum of draws.
	for _, tc := range []struct {
		term release.Term
		v    float64
		tol  float64
	}{
		{release.Term{Family: release.FamilyDiscreteGaussian, Honest: 1, Count: 1, Num: 1<<18 + 1, Den: 1, Shift: 1 << 9, Coordinates: 1, Rate: 1}, 1<<18 + 1, 1e-3},
		{release.Term{Family: release.FamilyDiscreteGaussian, Honest: 2, Count: 1, Num: 8, Den: 1, Shift: 3, Coordinates: 1, Rate: 1}, 16, 1e-9},
	} {
		sigma, s := math.Sqrt(tc.v), float64(tc.term.Shift)
		for _, l := range []float64{0, .5, 2} {
			sum, theta := 0.0, 0.0
			for z := -math.Ceil(30 * sigma); z < 30*sigma; z++ {
				p := math.Exp(-z * z / (2 * tc.v))
				theta += p
				sum += max(0, math.Exp(-(z-s)*(z-s)/(2*tc.v))-math.Exp(l)*p)
			}
			c := Certificate{Claim: Claim{l, sum / theta * (1 + tc.tol), release.AddRemove}, Terms: []release.Term{tc.term}}
			if err := c.Check(); err != nil {
				t.Errorf("%+v at %v: %v", tc.term, l, err)
			}
			if c.Delta = sum / theta * (1 - 1e-9); c.Check() == nil {
				t.Errorf("%+v at %v: a delta of %v, which is too small, is proved", tc.term, l, c.Delta)
			}
		}
	}
	// Narrow noise of many servers on many coordinates is a discrete Gaussian but for a
	// factor of e^(+-6.7): the proof asks for e^6.7 times the curve at a loss of 13.4
	// less.
	narrow := release.Term{Family: release.FamilyDiscreteGaussian, Honest: 255, Count: 1, Num: 1, Den: 1, Shift: 1, Coordinates: 1e4, Rate: 1}
	refused(t, "narrow noise", &Certificate{Claim: Claim{53.4, .1, release.AddRemove}, Terms: []release.Term{narrow}}, func(*Certificate) {}, Unproved)
	// zCDP: reference values of the notes' row 30.
	for _, r := range []struct{ rho, delta, want float64 }{{.1, 1e-6, 2.1419389}, {1, 1e-6, 7.7662166}, {.005, 1e-8, .5235561}} {
		c := Certificate{Claim: Claim{r.want * (1 + 1e-5), r.delta, release.ReplaceOne},
			Terms: []release.Term{{Family: release.FamilyZCDP, Count: 1, Mu: r.rho, Rate: 1}}}
		if err := c.Check(); err != nil {
			t.Error(err)
		}
		if c.Epsilon = r.want * (1 - 1e-6); c.Check() == nil {
			t.Errorf("%v-zCDP: %v is proved", r.rho, c.Epsilon)
		}
	}
}

// Beside a count of dummies: against the sum over all counts and outcomes.
func TestDummies(t *testing.T) {
	for _, tc := range []struct {
		n          uint64
		q, rate, v float64
		shift      int
	}{{6, .3, .2, 4, 1}, {1, .5, .5, 9, 2}, {40, .04, .9, 1, 1}, {300, .4, .05, 25, 3}, {3000, .5, .4, 4, 1}} {
		theta := 0.0
		for y := -200; y <= 200; y++ {
			theta += math.Exp(-float64(y*y) / (2 * tc.v))
		}
		noise := func(y int) float64 { return math.Exp(-float64(y*y)/(2*tc.v)) / theta }
		count := func(x int) float64 {
			if x < 0 || x > int(tc.n) {
				return 0
			}
			a, _ := math.Lgamma(float64(tc.n) + 1)
			b, _ := math.Lgamma(float64(x) + 1)
			c, _ := math.Lgamma(float64(int(tc.n)-x) + 1)
			return math.Exp(a - b - c + float64(x)*math.Log(tc.q) + float64(int(tc.n)-x)*math.Log1p(-tc.q))
		}
		for _, l := range []float64{0, .05, .2, .6} {
			removed, added := 0.0, 0.0
			for x := 0; x <= int(tc.n)+1; x++ {
				for y := -60; y <= 60; y++ {
					q := count(x) * noise(y)
					p := tc.rate*count(x-1)*noise(y-tc.shift) + (1-tc.rate)*q
					removed += max(0, p-math.Exp(l)*q)
					added += max(0, q-math.Exp(l)*p)
				}
			}
			want := max(removed, added)
			if want < 1e-12 {
				continue
			}
			c := Certificate{Claim: Claim{l, want*(1+2e-3) + 1e-15, release.AddRemove}, Terms: []release.Term{{Family: release.FamilyDiscreteGaussian, Sample: release.SamplePoisson,
				Honest: 1, Count: 1, Num: uint64(tc.v), Den: 1, Shift: uint64(tc.shift), Coordinates: 1, Rate: tc.rate, Dummies: tc.n, DummyRate: tc.q}}}
			if err := c.Check(); err != nil {
				t.Errorf("%+v at %v: %v, the truth is %v", tc, l, err, want)
			}
			if c.Delta = want * (1 - 1e-9); c.Check() == nil {
				t.Errorf("%+v at %v: a delta of %v, which is too small, is proved", tc, l, c.Delta)
			}
		}
	}
	// The number of senders.
	for _, tc := range []struct {
		k, n uint64
		q    float64
	}{{2, 5, .4}, {1, 30, .1}, {30, 30, .5}, {0, 4, .2}, {5, 4, .2}} {
		want := 0.0
		for x := range tc.k {
			if c := 1.0; x <= tc.n {
				for i := range x {
					c *= float64(tc.n-i) / float64(i+1)
				}
				want += c * math.Pow(tc.q, float64(x)) * math.Pow(1-tc.q, float64(tc.n-x))
			}
		}
		if got := Fewer(tc.k, tc.n, tc.q); got < want || got > want*(1+1e-8)+1e-40 {
			t.Errorf("fewer than %d of %d at %v: %v, want %v", tc.k, tc.n, tc.q, got, want)
		}
	}
	for _, q := range []float64{-1, 2, math.NaN(), math.Inf(1)} {
		if Fewer(1, 1<<30, q) != 1 || Fewer(1, math.MaxUint64, .5) != 1 {
			t.Errorf("an answer for a probability of %v", q)
		}
	}
}

// Shuffled reports and check-ins: against the sums over all numbers of clones, ones or
// answers, by their definitions.
func TestShuffled(t *testing.T) {
	choose := func(n, k int) float64 {
		a, _ := math.Lgamma(float64(n) + 1)
		b, _ := math.Lgamma(float64(k) + 1)
		c, _ := math.Lgamma(float64(n-k) + 1)
		return math.Exp(a - b - c)
	}
	binomial := func(n, k int, q float64) float64 {
		return choose(n, k) * math.Pow(q, float64(k)) * math.Pow(1-q, float64(n-k))
	}
	clones := func(e0, q, chance float64, n int, l float64) (sum float64) {
		al := 1 / (1 + math.Exp(-e0))
		for c := 0; c <= n; c++ {
			for a := 0; a <= c; a++ {
				f := func(al float64) float64 {
					return 1 - chance + 2*chance/(float64(n)*q)*(al*float64(a)+(1-al)*float64(c-a))
				}
				sum += binomial(n, c, q) * binomial(c, a, .5) * max(0, f(al)-math.Exp(l)*f(1-al))
			}
		}
		return sum
	}
	answers := func(e0 float64, k, n int, l float64) (sum float64) {
		each := 1 / (math.Exp(e0) + float64(k) - 1)
		for a := 0; a <= n; a++ {
			for b := 0; a+b <= n; b++ {
				for r := 0; a+b+r <= n; r++ {
					p := choose(n, a) * choose(n-a, b) * choose(n-a-b, r) * math.Pow(each, float64(a+b)) * math.Pow(float64(k-2)*each, float64(r)) *
						math.Pow(1-float64(k)*each, float64(n-a-b-r))
					sum += p / float64(n) * max(0, math.Expm1(e0)*(float64(a)-math.Exp(l)*float64(b))-float64(a+b+r)*math.Expm1(l))
				}
			}
		}
		return sum
	}
	checkedIn := func(e0, chance float64, n int, l float64) float64 {
		removed, added := 0.0, 0.0
		for x := 0; x <= n; x++ {
			s := 1 - chance + chance/float64(n)*(float64(x)*math.Exp(e0)+float64(n-x)*math.Exp(-e0))
			p := binomial(n, x, 1/(1+math.Exp(e0)))
			removed += p * max(0, s-math.Exp(l))
			added += p * max(0, 1-s*math.Exp(l))
		}
		return max(removed, added)
	}
	for _, l := range []float64{0.01, .1, .4, .8} {
		for _, e0 := range []float64{.5, 1, 2.5} {
			for _, n := range []int{1, 2, 7, 30} {
				for _, tc := range []struct {
					term release.Term
					want float64
				}{
					{release.Term{Family: release.FamilyShuffled, Chance: 1}, clones(e0, math.Exp(-e0), 1, n, l)},
					{release.Term{Family: release.FamilyShuffled, Chance: .3}, clones(e0, math.Exp(-e0), .3, n, l)},
					{release.Term{Family: release.FamilyShuffled, Chance: 1, Answers: 2}, clones(e0, 2/(math.Exp(e0)+1), 1, n, l)},
					{release.Term{Family: release.FamilyShuffled, Chance: 1, Answers: 3}, answers(e0, 3, n, l)},
					{release.Term{Family: release.FamilyShuffled, Chance: 1, Answers: 10}, answers(e0, 10, n, l)},
					{release.Term{Family: release.FamilyCheckedIn, Chance: 1}, checkedIn(e0, 1, n, l)},
					{release.Term{Family: release.FamilyCheckedIn, Chance: .2}, checkedIn(e0, .2, n, l)},
				} {
					if tc.want < 1e-13 {
						continue
					}
					tc.term.Count, tc.term.Rate, tc.term.Mu, tc.term.Local, tc.term.Reports = 1, 1, l, e0, uint64(n)
					tc.term.Fail = tc.want * (1 + 2e-5)
					c := Certificate{Claim: Claim{l * (1 + 1e-12), tc.term.Fail * (1 + 1e-9), release.ReplaceOne}, Terms: []release.Term{tc.term}}
					if err := c.Check(); err != nil {
						t.Errorf("%+v: %v, the truth is %v", tc.term, err, tc.want)
					}
					refused(t, "too small a failure", &c, func(c *Certificate) { c.Terms[0].Fail = tc.want * (1 - 1e-9) }, BadTerm)
					refused(t, "too small a delta", &c, func(c *Certificate) { c.Terms[0].Fail, c.Delta = tc.term.Fail, tc.want*(1-1e-9) }, Unproved)
				}
			}
		}
	}
	// References of the notes, rows 32, 33, 35 and 41.
	for _, tc := range []struct {
		term    release.Term
		epsilon float64
		delta   float64
	}{
		{release.Term{Family: release.FamilyShuffled, Local: 4, Reports: 1e4}, .8939133, 1e-10},
		{release.Term{Family: release.FamilyShuffled, Local: 1, Reports: 1e5, Answers: 2}, .0124299, 1e-6},
		{release.Term{Family: release.FamilyShuffled, Local: 4, Reports: 1e6, Answers: 2}, .0540172, 1e-10},
		{release.Term{Family: release.FamilyShuffled, Local: 4, Reports: 1e4, Answers: 10}, .5588605, 1e-10},
		{release.Term{Family: release.FamilyShuffled, Local: 2, Reports: 2e4, Answers: 16}, .0606437, 1e-8},
		{release.Term{Family: release.FamilyCheckedIn, Local: 1, Reports: 1e3, Chance: .1}, .0102265, 1e-6},
		{release.Term{Family: release.FamilyShuffled, Local: 1, Reports: 1e3, Chance: .1}, .0152674, 1e-6},
	} {
		tc.term.Count, tc.term.Rate, tc.term.Mu, tc.term.Fail = 1, 1, tc.epsilon*(1+5e-4), tc.delta
		if tc.term.Chance == 0 {
			tc.term.Chance = 1
		}
		c := Certificate{Claim: Claim{tc.term.Mu * (1 + 1e-9), tc.delta * (1 + 1e-9), release.ReplaceOne}, Terms: []release.Term{tc.term}}
		if err := c.Check(); err != nil {
			t.Errorf("%+v: %v", tc.term, err)
		}
		refused(t, "a smaller epsilon than is true", &c, func(c *Certificate) { c.Terms[0].Mu = tc.epsilon * (1 - 1e-3) }, BadTerm)
	}
}

// Lies about what the certificate of coins, dummies and shuffled reports is about.
func TestTamperedCoins(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	noise := release.DiscreteGaussian{Variance: release.Rational{Num: 9, Den: 1}, Contribution: release.Interval(1)}
	sampled := []release.Release{release.One(noise).Sampled(release.Poisson{Rate: .1, Dummies: 5000, DummyRate: .1})}
	people := release.Shuffle{People: 3000, Rate: 1}
	coins := encode(t, certify(t, sampled, 1e-6, release.AddRemove))
	rounds := encode(t, certify(t, release.Repeated(sampled, 5), 1e-6, release.AddRemove))
	shuffled := encode(t, certify(t, []release.Release{release.One(release.Response{Epsilon0: 2, Answers: 5}).Sampled(people)}, 1e-6, release.ReplaceOne))
	people.Columns = true
	rappor := encode(t, certify(t, []release.Release{release.One(release.RAPPOR{Epsilon0: 2, Answers: 2}).Sampled(people)}, 1e-6, release.ZeroOut))
	for _, tc := range []struct {
		name   string
		of     [][]byte
		lie    func(t *release.Term)
		reason Reason
	}{
		{"a larger rate", [][]byte{coins}, func(t *release.Term) { t.Rate *= 1.05 }, Unproved},
		{"a larger rate", [][]byte{rounds}, func(t *release.Term) { t.Rate *= 1.05 }, NotDominating},
		{"less noise", [][]byte{coins}, func(t *release.Term) { t.Num-- }, Unproved},
		{"less noise", [][]byte{rounds}, func(t *release.Term) { t.Num-- }, NotDominating},
		{"far fewer dummies", [][]byte{coins}, func(t *release.Term) { t.Dummies = 100 }, Unproved},
		{"fewer dummies", [][]byte{rounds}, func(t *release.Term) { t.Dummies -= 500 }, NotDominating},
		{"far rarer dummies", [][]byte{coins}, func(t *release.Term) { t.DummyRate = .001 }, Unproved},
		{"one dummy", [][]byte{rounds}, func(t *release.Term) { t.Dummies = 1 }, NotDominating},
		{"no dummies at a rate", [][]byte{coins, rounds}, func(t *release.Term) { t.Dummies = 0 }, BadTerm},
		{"dummies at no rate", [][]byte{coins, rounds}, func(t *release.Term) { t.DummyRate = 0 }, BadTerm},
		{"a rate of dummies NaN", [][]byte{coins, rounds}, func(t *release.Term) { t.DummyRate = nan }, BadTerm},
		{"a rate of dummies infinite", [][]byte{coins, rounds}, func(t *release.Term) { t.DummyRate = inf }, BadTerm},
		{"a negative rate of dummies", [][]byte{coins, rounds}, func(t *release.Term) { t.DummyRate = -.1 }, BadTerm},
		{"everybody a dummy", [][]byte{coins, rounds}, func(t *release.Term) { t.DummyRate = 1 }, BadTerm},
		{"dummies beyond counting", [][]byte{coins, rounds}, func(t *release.Term) { t.Dummies = 1 << 60 }, BadTerm},
		{"dummies of everyone", [][]byte{coins, rounds}, func(t *release.Term) { t.Sample, t.Rate = release.SampleEveryone, 1 }, BadTerm},
		{"reports of noise", [][]byte{coins, rounds}, func(t *release.Term) { t.Reports = 10 }, BadTerm},
		{"a chance of noise", [][]byte{coins, rounds}, func(t *release.Term) { t.Chance = 1 }, BadTerm},
		{"an epsilon of noise", [][]byte{coins, rounds}, func(t *release.Term) { t.Local = 1 }, BadTerm},
		{"fewer reports", [][]byte{shuffled}, func(t *release.Term) { t.Reports -= 100 }, BadTerm},
		{"a louder report", [][]byte{shuffled}, func(t *release.Term) { t.Local *= 1.02 }, BadTerm},
		{"fewer answers", [][]byte{shuffled}, func(t *release.Term) { t.Answers = 2 }, 0},
		{"one answer", [][]byte{shuffled}, func(t *release.Term) { t.Answers = 1 }, BadTerm},
		{"any randomizer", [][]byte{shuffled}, func(t *release.Term) { t.Answers = 0 }, BadTerm},
		{"endless answers", [][]byte{shuffled}, func(t *release.Term) { t.Answers = 1 << 40 }, BadTerm},
		{"no reports", [][]byte{shuffled}, func(t *release.Term) { t.Reports = 0 }, BadTerm},
		{"reports beyond counting", [][]byte{shuffled}, func(t *release.Term) { t.Reports = 1 << 40 }, BadTerm},
		{"a report NaN", [][]byte{shuffled}, func(t *release.Term) { t.Local = nan }, BadTerm},
		{"a report in the clear", [][]byte{shuffled}, func(t *release.Term) { t.Local = inf }, BadTerm},
		{"a chance of answers", [][]byte{shuffled}, func(t *release.Term) { t.Chance = .5 }, BadTerm},
		{"no chance", [][]byte{shuffled}, func(t *release.Term) { t.Chance = 0 }, BadTerm},
		{"a chance NaN", [][]byte{shuffled}, func(t *release.Term) { t.Chance = nan }, BadTerm},
		{"a smaller epsilon than shuffling gives", [][]byte{shuffled}, func(t *release.Term) { t.Mu *= .99 }, BadTerm},
		{"a smaller failure", [][]byte{shuffled}, func(t *release.Term) { t.Fail *= .9 }, BadTerm},
		{"no failure", [][]byte{shuffled}, func(t *release.Term) { t.Fail = 0 }, BadTerm},
		{"a failure NaN", [][]byte{shuffled}, func(t *release.Term) { t.Fail = nan }, BadTerm},
		{"answers drawn again", [][]byte{shuffled}, func(t *release.Term) { t.Redraw = 1e-12 }, BadTerm},
		{"RAPPOR drawn again", [][]byte{rappor}, func(t *release.Term) { t.Redraw = 1e-6 }, BadTerm},
		{"RAPPOR drawn for ever", [][]byte{rappor}, func(t *release.Term) { t.Redraw = inf }, BadTerm},
		{"RAPPOR drawn again NaN", [][]byte{rappor}, func(t *release.Term) { t.Redraw = nan }, BadTerm},
		{"RAPPOR drawn less than never", [][]byte{rappor}, func(t *release.Term) { t.Redraw = -1e-9 }, BadTerm},
		{"noise drawn again", [][]byte{coins, rounds}, func(t *release.Term) { t.Redraw = 1e-9 }, BadTerm},
		{"check-ins", [][]byte{shuffled}, func(t *release.Term) { t.Family = release.FamilyCheckedIn }, BadTerm},
		{"two rounds", [][]byte{coins, shuffled}, func(t *release.Term) { t.Count = 2 }, Malformed},
	} {
		for _, b := range tc.of {
			var c Certificate
			if err := c.UnmarshalBinary(b); err != nil {
				t.Fatal(err)
			}
			refused(t, tc.name, &c, func(c *Certificate) { tc.lie(&c.Terms[0]) }, tc.reason)
		}
	}
}

// Tables of dummies are long; a certificate may not ask for very many of them.
func TestLongTables(t *testing.T) {
	c := Certificate{Claim: Claim{1, 1e-6, release.AddRemove}, Step: .01}
	for range 64 {
		c.Terms = append(c.Terms, release.Term{Family: release.FamilyResponse, Sample: release.SamplePoisson, Count: 1, Answers: 2, Mu: 1, Rate: .1, Dummies: 1 << 31, DummyRate: .5})
		c.Laws = append(c.Laws, Law{0, 1, 1}, Law{0, 1, 1})
		c.Masses = append(c.Masses, 1e-7, 1e-7)
	}
	refused(t, "64 tables", &c, func(*Certificate) {}, Malformed)
	refused(t, "4 tables", &c, func(c *Certificate) { c.Terms, c.Laws, c.Masses = c.Terms[:4], c.Laws[:8], c.Masses[:8] }, Unproved)
}

// The checker stands on the words of package release alone.
func TestStandsAlone(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(out)); len(got) != 2 || !strings.HasSuffix(got[0], "/dp/release") || !strings.HasSuffix(got[1], "/dp/certificate") {
		t.Errorf("it depends on %v", got)
	}
}

// The checker is small enough to be read: fewer than 580 lines of code, and no name of
// this module but of the words in which terms are stated.
func TestCheckerIsSmall(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(strings.ReplaceAll(string(text), "starling-agg/starling/dp/release\"", ""), "starling-agg") {
			t.Errorf("%s imports or names this module", name)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				lines++
			}
		}
	}
	if lines < 100 || lines >= 580 {
		t.Errorf("%d lines of code", lines)
	}
}
