package certificate_test

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dp/accountant"
	. "github.com/starling-agg/starling/dp/certificate"
)

func certify(t testing.TB, e accountant.Event, delta float64, n accountant.Neighbours) *Certificate {
	t.Helper()
	c, err := accountant.Certify(e, delta, n)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	return c
}

func gauss(sigma float64) accountant.Event {
	return accountant.Gaussian{Sigma: sigma, Contribution: accountant.Signed(1)}
}

func sampled(sigma, q float64, count uint64) accountant.Event {
	return accountant.SelfCompose{
		Event: accountant.Sampled{Event: gauss(sigma), Rate: q, Count: accountant.CountHidden}, Count: count}
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
			encode(t, certify(t, accountant.SelfCompose{Event: gauss(5), Count: 40}, 1e-9, accountant.AddRemove)),
			encode(t, certify(t, accountant.Compose{sampled(2, .05, 50), accountant.ApproxDP{Epsilon: .1, Delta: 1e-9}},
				1e-7, accountant.AddRemove)),
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
		{"an unknown mechanism", func(c *Certificate) { c.Terms[0].Mechanism = 99 }, BadTerm},
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
		{"laws beside a formula", func(c *Certificate) { c.Step, c.Directions = 1, make([]Direction, 1) }, Malformed},
		{"Laplace, said to be Gaussian", func(c *Certificate) { c.Terms[0].Mechanism = Laplace }, Malformed},
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
		{"a more private mechanism's laws", func(c *Certificate) { c.Directions[0].Laws[1] = c.Directions[0].Laws[0] }, NotDominating},
		{"directions swapped", func(c *Certificate) {
			c.Directions[0].Laws, c.Directions[1].Laws = c.Directions[1].Laws, c.Directions[0].Laws
		}, NotDominating},
		{"no second direction", func(c *Certificate) { c.Directions = c.Directions[:1] }, Malformed},
		{"a direction twice", func(c *Certificate) { c.Directions[1] = c.Directions[0] }, Malformed},
		{"a law left out", func(c *Certificate) { c.Directions[1].Laws = c.Directions[1].Laws[:1] }, Malformed},
		{"losses rounded inwards", func(c *Certificate) { c.Directions[0].Laws[0].Origin -= c.Step / 100 }, NotDominating},
		{"masses rounded inwards", func(c *Certificate) {
			m := c.Directions[0].Laws[0].Masses // what goes from the top half goes to the bottom
			for i := len(m) / 2; i < len(m); i++ {
				m[0] += m[i]*1e-3 + 1e-12
				m[i] *= 1 - 1e-3
			}
		}, NotDominating},
		{"truncated masses", func(c *Certificate) {
			l := &c.Directions[0].Laws[0]
			for _, p := range l.Masses[len(l.Masses)/2:] {
				l.Masses[0] += p
			}
			l.Masses[0] += 2e-7
			l.Masses = l.Masses[:len(l.Masses)/2]
		}, NotDominating},
		{"mass that is lost", func(c *Certificate) { c.Directions[0].Laws[0].Masses[3] = 0 }, BadLaw},
		{"an infinite loss made finite", func(c *Certificate) {
			l := &c.Directions[0].Laws[1]
			l.Masses[len(l.Masses)-1] += float32(l.Infinite)
			l.Infinite = 0
		}, NotDominating},
		{"a mass NaN", func(c *Certificate) { c.Directions[0].Laws[0].Masses[0] = float32(nan) }, BadLaw},
		{"a mass infinite", func(c *Certificate) { c.Directions[0].Laws[0].Masses[0] = float32(inf) }, BadLaw},
		{"a negative mass", func(c *Certificate) { c.Directions[0].Laws[0].Masses[0] = -1e-9 }, BadLaw},
		{"infinite NaN", func(c *Certificate) { c.Directions[0].Laws[0].Infinite = nan }, BadLaw},
		{"origin NaN", func(c *Certificate) { c.Directions[0].Laws[0].Origin = nan }, BadLaw},
		{"origin infinite", func(c *Certificate) { c.Directions[0].Laws[0].Origin = math.Inf(-1) }, BadLaw},
		{"a step of NaN", func(c *Certificate) { c.Step = nan }, Malformed},
		{"a larger step", func(c *Certificate) { c.Step *= 1.01 }, 0},
		{"a smaller step", func(c *Certificate) { c.Step *= .99 }, NotDominating},
		{"tilt NaN", func(c *Certificate) { c.Directions[0].Tilt = nan }, BadWindow},
		{"order below tilt", func(c *Certificate) { c.Directions[0].Order = 0 }, BadWindow},
		{"a huge window", func(c *Certificate) { c.Directions[0].LogSize = 40 }, BadWindow},
		{"a window above epsilon", func(c *Certificate) { c.Directions[0].First += 1 << 20 }, BadWindow},
		{"a window too short", func(c *Certificate) { c.Directions[0].LogSize -= 3 }, 0},
		{"replace-one", func(c *Certificate) { c.Neighbours = Replace }, BadTerm},
		{"a fixed sample", func(c *Certificate) { c.Terms[0].Sampling = FixedSample }, BadTerm},
		{"everyone at a rate", func(c *Certificate) { c.Terms[0].Sampling = Everyone }, BadTerm},
		{"rho beside laws", func(c *Certificate) { c.Terms[1] = Term{Mechanism: ZCDP, Count: 1, Mu: 1e-3, Rate: .5} }, BadTerm},
	} {
		_, c := honest(t)
		refused(t, tc.name, c, tc.lie, tc.reason)
	}
}

func refused(t *testing.T, name string, c *Certificate, lie func(c *Certificate), reason Reason) {
	t.Helper()
	lie(c)
	var e *Error
	if err := c.Check(); !errors.As(err, &e) || reason != 0 && e.Reason != reason || e.Error() == "" {
		t.Errorf("%s: %v, reason %d wanted", name, err, reason)
	}
}

// The reference: what the curves of single releases are, by sums over outcomes that know nothing of them.
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
	dg := func(num, den, shift uint64) Term {
		return Term{Mechanism: DiscreteGaussian, Honest: 1, Count: 1, Num: num, Den: den, Shift: shift, Coordinates: 1, Rate: 1}
	}
	dl := func(num, den, shift uint64) Term {
		return Term{Mechanism: DiscreteLaplace, Count: 1, Num: num, Den: den, Shift: shift, Rate: 1}
	}
	for _, tc := range []struct {
		term Term
		pmf  func(int) float64
	}{
		{dg(1, 2, 1), gaussian(.5)}, {dg(100, 1, 7), gaussian(100)}, {dg(2500, 1, 3), gaussian(2500)},
		{dl(5, 2, 1), laplace(2.5)}, {dl(5, 2, 6), laplace(2.5)}, {dl(20, 1, 9), laplace(20)},
	} {
		for _, rate := range []float64{1, .5, .02} {
			term, n := tc.term, AddRemove
			if term.Rate = rate; rate < 1 {
				term.Sampling = PoissonSample
			}
			for _, l := range []float64{0, .01, .1, .4, 1, 1.7} {
				want := max(brute(tc.pmf, int(term.Shift), rate, l, false), brute(tc.pmf, int(term.Shift), rate, l, true))
				if want < 1e-15 {
					continue
				}
				c := Certificate{Epsilon: l, Delta: want*(1+1e-9) + 1e-12, Neighbours: n, Terms: []Term{term}}
				if err := c.Check(); err != nil {
					t.Errorf("%+v at %v: %v", term, l, err)
				}
				if c.Delta = want * (1 - 1e-9); c.Check() == nil {
					t.Errorf("%+v at %v: a delta of %v, which is too small, is proved", term, l, c.Delta)
				}
			}
		}
	}
	// Where sums give way to integrals, and for two coordinates and two servers: against the sum over the sum of draws.
	for _, tc := range []struct {
		term Term
		v    float64
		tol  float64
	}{
		{Term{Mechanism: DiscreteGaussian, Honest: 1, Count: 1, Num: 1<<18 + 1, Den: 1, Shift: 1 << 9, Coordinates: 1, Rate: 1}, 1<<18 + 1, 1e-3},
		{Term{Mechanism: DiscreteGaussian, Honest: 2, Count: 1, Num: 8, Den: 1, Shift: 3, Coordinates: 1, Rate: 1}, 16, 1e-9},
	} {
		sigma, s := math.Sqrt(tc.v), float64(tc.term.Shift)
		for _, l := range []float64{0, .5, 2} {
			sum, theta := 0.0, 0.0
			for z := -math.Ceil(30 * sigma); z < 30*sigma; z++ {
				p := math.Exp(-z * z / (2 * tc.v))
				theta += p
				sum += max(0, math.Exp(-(z-s)*(z-s)/(2*tc.v))-math.Exp(l)*p)
			}
			c := Certificate{Epsilon: l, Delta: sum / theta * (1 + tc.tol), Neighbours: AddRemove, Terms: []Term{tc.term}}
			if err := c.Check(); err != nil {
				t.Errorf("%+v at %v: %v", tc.term, l, err)
			}
			if c.Delta = sum / theta * (1 - 1e-9); c.Check() == nil {
				t.Errorf("%+v at %v: a delta of %v, which is too small, is proved", tc.term, l, c.Delta)
			}
		}
	}
	// zCDP: reference values of the notes' row 30.
	for _, r := range []struct{ rho, delta, want float64 }{{.1, 1e-6, 2.1419389}, {1, 1e-6, 7.7662166}, {.005, 1e-8, .5235561}} {
		c := Certificate{Epsilon: r.want * (1 + 1e-5), Delta: r.delta, Neighbours: Replace,
			Terms: []Term{{Mechanism: ZCDP, Count: 1, Mu: r.rho, Rate: 1}}}
		if err := c.Check(); err != nil {
			t.Error(err)
		}
		if c.Epsilon = r.want * (1 - 1e-6); c.Check() == nil {
			t.Errorf("%v-zCDP: %v is proved", r.rho, c.Epsilon)
		}
	}
}

// The checker stands alone, and is short enough to be read by whoever relies on it.
func TestStandsAlone(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(out)); len(got) != 1 || !strings.HasSuffix(got[0], "/dp/certificate") {
		t.Errorf("it depends on %v", got)
	}
	lines := 0
	for _, f := range sources(t) {
		for line := range strings.Lines(f) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				lines++
			}
		}
	}
	if lines >= 500 {
		t.Errorf("%d lines of code, want fewer than 500", lines)
	}
}

// The checker is small enough to be read: fewer than 500 lines of code, and nothing of this module beneath it.
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
		if strings.Contains(string(text), "starling-agg") {
			t.Errorf("%s imports or names this module", name)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				lines++
			}
		}
	}
	if lines < 100 || lines >= 500 {
		t.Errorf("%d lines of code", lines)
	}
}
