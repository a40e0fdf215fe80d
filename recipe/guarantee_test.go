package recipe_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
)

func TestValidateRefuses(t *testing.T) {
	path := func(leader, helper string) func(*Recipe) {
		return func(r *Recipe) { r.Path = TwoServer{leader, helper, dap.TimeInterval} }
	}
	claim := func(change func(*ApproxDP)) func(*Recipe) {
		return func(r *Recipe) {
			c := r.Claim.(ApproxDP)
			change(&c)
			r.Claim = c
		}
	}
	const helper = "https://helper.example/"
	for _, c := range []struct {
		name   string
		change func(*Recipe)
		fields []string
	}{
		{"no name", func(r *Recipe) { r.Name = "" }, []string{"name"}},
		{"long name", func(r *Recipe) { r.Name = strings.Repeat("n", MaxName+1) }, []string{"name"}},
		{"name of two lines", func(r *Recipe) { r.Name = "a\nb" }, []string{"name"}},
		{"name with direction override", func(r *Recipe) { r.Name = "a\u202eb" }, []string{"name"}},
		{"name that is not UTF-8", func(r *Recipe) { r.Name = "a\xff" }, []string{"name"}},
		{"name with white space around", func(r *Recipe) { r.Name = " a" }, []string{"name"}},
		{"long description", func(r *Recipe) { r.Description = strings.Repeat("d", MaxDescription+1) }, []string{"description"}},
		{"description with a bell", func(r *Recipe) { r.Description = "\a" }, []string{"description"}},
		{"no choices", func(r *Recipe) { *r = Recipe{Name: "n", MinBatch: 10, TimePrecision: 1} },
			[]string{"query", "randomizer", "participation", "path", "noise", "claim", "window"}},
		{"sum of nothing", func(r *Recipe) { r.Query = Sum{} }, []string{"query.max"}},
		{"mean beyond bounds", func(r *Recipe) { r.Query = Mean{Max: MaxMeasurement + 1} }, []string{"query.max"}},
		{"empty histogram", func(r *Recipe) { r.Query = Histogram{} }, []string{"query.length"}},
		{"huge histogram", func(r *Recipe) { r.Query = Histogram{MaxElements + 1, 1} }, []string{"query.length"}},
		{"chunk above length", func(r *Recipe) { r.Query = Histogram{5, 6} }, []string{"query.chunk"}},
		{"weight above length", func(r *Recipe) { r.Query = Multihot{5, 6, 2} }, []string{"query.max_weight"}},
		{"no weight", func(r *Recipe) { r.Query = Multihot{5, 0, 2} }, []string{"query.max_weight"}},
		{"vector of too many bits", func(r *Recipe) { r.Query = SumVec{MaxElements, 2, 1} }, []string{"query.length"}},
		{"vector chunk", func(r *Recipe) { r.Query = SumVec{3, 3, 7} }, []string{"query.chunk"}},
		{"l1 of nothing", func(r *Recipe) { r.Query = L1BoundSum{3, 0, 1} }, []string{"query.max"}},
		{"l1 beyond bounds", func(r *Recipe) { r.Query = L1BoundSum{3, MaxMeasurement + 1, 1} }, []string{"query.max"}},
		{"l1 of no place", func(r *Recipe) { r.Query = L1BoundSum{0, 5, 1} }, []string{"query.length"}},
		{"l1 of too many bits", func(r *Recipe) { r.Query = L1BoundSum{MaxElements, 1, 1} }, []string{"query.length"}},
		{"l1 chunk", func(r *Recipe) { r.Query = L1BoundSum{3, 3, 9} }, []string{"query.chunk"}},
		{"quantiles of one bin", func(r *Recipe) { r.Query = Quantiles{0, 9, 10, 2, 2} }, []string{"query.width"}},
		{"quantiles of no width", func(r *Recipe) { r.Query = Quantiles{0, 9, 0, 2, 2} }, []string{"query.width"}},
		{"quantiles of nothing", func(r *Recipe) { r.Query = Quantiles{9, 9, 1, 2, 2} }, []string{"query.min"}},
		{"quantiles beyond bounds", func(r *Recipe) { r.Query = Quantiles{0, MaxMeasurement + 1, 1 << 20, 2, 2} }, []string{"query.max"}},
		{"quantiles without branching", func(r *Recipe) { r.Query = Quantiles{0, 9, 1, 1, 2} }, []string{"query.branching"}},
		{"quantiles of too much branching", func(r *Recipe) { r.Query = Quantiles{0, 9, 2, 6, 2} }, []string{"query.branching"}},
		{"quantiles of too many bins", func(r *Recipe) { r.Query = Quantiles{0, MaxElements - 1, 1, 2, 2} }, []string{"query.width"}},
		{"quantiles of far too many bins", func(r *Recipe) { r.Query = Quantiles{0, MaxMeasurement, 1, 2, 2} }, []string{"query.width"}},
		{"quantiles chunk", func(r *Recipe) { r.Query = Quantiles{0, 3, 1, 2, 9} }, []string{"query.chunk"}},
		{"groups of one kind", func(r *Recipe) { r.Query = GroupSums{0, 9, 1, 2} }, []string{"query.groups"}},
		{"groups of too many bits", func(r *Recipe) { r.Query = GroupSums{0, 9, MaxElements / 8, 2} }, []string{"query.groups"}},
		{"groups without end", func(r *Recipe) { r.Query = GroupSums{0, 9, math.MaxUint32, 2} }, []string{"query.groups"}},
		{"groups of nothing", func(r *Recipe) { r.Query = GroupSums{9, 9, 2, 2} }, []string{"query.max"}},
		{"groups of falling values", func(r *Recipe) { r.Query = GroupSums{9, 3, 2, 2} }, []string{"query.max"}},
		{"groups beyond bounds", func(r *Recipe) { r.Query = GroupSums{0, MaxMeasurement + 1, 2, 2} }, []string{"query.max"}},
		{"groups far below bounds", func(r *Recipe) { r.Query = GroupSums{math.MinInt64, math.MaxInt64, 2, 2} }, []string{"query.min"}},
		{"groups of too wide a range", func(r *Recipe) { r.Query = GroupSums{-1, MaxMeasurement, 2, 2} }, []string{"query.max"}},
		{"groups chunk", func(r *Recipe) { r.Query = GroupSums{0, 3, 2, 11} }, []string{"query.chunk"}},
		{"relative URL", path("/leader", helper), []string{"path.leader"}},
		{"URL with user", path("https://a@leader.example/", helper), []string{"path.leader"}},
		{"URL with query", path("https://leader.example/?a", helper), []string{"path.leader"}},
		{"URL with space", path("https://leader.example/ a", helper), []string{"path.leader"}},
		{"URL outside ASCII", path("https://leader.example/é", helper), []string{"path.leader"}},
		{"long URL", path("https://leader.example/"+strings.Repeat("a", MaxURL), helper), []string{"path.leader"}},
		{"plain http", path("http://leader.example/", helper), []string{"path.leader"}},
		{"http to a name like loopback", path("http://127.0.0.1.example/", helper), []string{"path.leader"}},
		{"one server twice", path(helper, helper), []string{"path.helper"}},
		{"batch mode", func(r *Recipe) { r.Path = TwoServer{"https://leader.example/", helper, 3} }, []string{"path.batch_mode"}},
		{"no noise share", func(r *Recipe) { r.Noise = DiscreteGaussian{Variance: Rational{Num: 50, Den: 1}} }, []string{"noise.share"}},
		{"tiny noise", func(r *Recipe) { r.Noise = DiscreteGaussian{Rational{Num: 1, Den: 5}, DrawsAll} }, []string{"noise"}},
		{"unreduced noise", func(r *Recipe) { r.Noise = DiscreteGaussian{Rational{Num: 100, Den: 2}, DrawsAll} }, []string{"noise"}},
		{"huge noise", func(r *Recipe) { r.Noise = DiscreteLaplace{Rational{Num: 1 << 41, Den: 1}} }, []string{"noise"}},
		{"noise without claim", func(r *Recipe) { r.Claim = NoClaim{} }, []string{"claim"}},
		{"no epsilon", claim(func(c *ApproxDP) { c.Epsilon = Decimal{} }), []string{"claim.epsilon"}},
		{"no delta", claim(func(c *ApproxDP) { c.Delta = Decimal{} }), []string{"claim.delta"}},
		{"delta of one", claim(func(c *ApproxDP) { c.Delta = Decimal{1, 0} }), []string{"claim.delta"}},
		{"neighbours", claim(func(c *ApproxDP) { c.Neighbours = release.AddRemove }), []string{"claim.neighbours"}},
		{"no honest server", claim(func(c *ApproxDP) { c.HonestServers = 0 }), []string{"claim.honest_servers"}},
		{"no round", claim(func(c *ApproxDP) { c.Rounds = 0 }), []string{"claim.rounds"}},
		{"batch of one", func(r *Recipe) { r.MinBatch = 1 }, []string{"min_batch"}},
		{"no precision", func(r *Recipe) { r.TimePrecision = 0 }, []string{"time_precision"}},
		{"precision of years", func(r *Recipe) { r.TimePrecision = MaxTimePrecision + 1 }, []string{"time_precision", "window.end"}},
		{"empty window", func(r *Recipe) { r.Window = Between{5, 5} }, []string{"window.end"}},
		{"window beyond time", func(r *Recipe) { r.Window = Between{5, math.MaxUint64} }, []string{"window.end"}},
		{"more than can be accounted for", func(r *Recipe) {
			r.Noise, r.Query = DiscreteLaplace{Rational{Num: 1, Den: 1}}, Multihot{1000, 500, 40}
			claim(func(c *ApproxDP) { c.Rounds = MaxRounds })(r)
		}, []string{"guarantee"}},
		{"empty population", func(r *Recipe) { r.Population = &Population{} }, []string{"population.statement"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := doctor()
			c.change(r)
			err := account.Validate(r)
			if err == nil {
				t.Fatal("accepted")
			}
			var got []string
			reasons := []error{err}
			if list, ok := err.(interface{ Unwrap() []error }); ok {
				reasons = list.Unwrap()
			}
			for _, e := range reasons {
				var invalid *InvalidError
				if !errors.As(e, &invalid) {
					t.Fatalf("untyped reason %v", e)
				}
				if !slices.Contains(got, invalid.Field) {
					got = append(got, invalid.Field)
				}
			}
			if !slices.Equal(got, c.fields) {
				t.Errorf("reasons %v, want %v (%v)", got, c.fields, err)
			}
		})
	}
}

func TestLoopbackMayBePlain(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]"} {
		r := doctor()
		r.Path = TwoServer{"http://" + host + ":8080/", "http://" + host + ":8081/", dap.TimeInterval}
		if err := account.Validate(r); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// A claim holds from the computed epsilon on, and not below it.
func TestClaim(t *testing.T) {
	r := doctor()
	g, err := account.Guarantee(r)
	if err != nil {
		t.Fatal(err)
	}
	// One answer replaced moves two buckets by one: zCDP with rho = 2/(2*50) is an upper
	// bound, and a Gaussian mechanism at L2 distance sqrt(2) of sigma sqrt(50) is close
	// by.
	if simple, _ := accountant.SimpleZCDPEpsilon(0.02, 1e-9); !(g.Epsilon > 1 && g.Epsilon < simple) {
		t.Errorf("epsilon is %v, want between 1 and the textbook bound %v", g.Epsilon, simple)
	}
	if g.Theorem == "" || g.Neighbours != release.ReplaceOne || g.Rounds != 1 || g.PerRound != g.Loss || g.Delta != 1e-9 {
		t.Errorf("guarantee %+v", g)
	}
	least, err := DecimalAbove(g.Epsilon, 6)
	if err != nil {
		t.Fatal(err)
	}
	claim := r.Claim.(ApproxDP)
	claim.Epsilon = least
	r.Claim = claim
	if err := account.Validate(r); err != nil {
		t.Errorf("the computed epsilon, rounded up, is refused: %v", err)
	}
	below, err := DecimalAbove(g.Epsilon*0.999, 6)
	if err != nil || below.FloatDown() >= g.Epsilon {
		t.Fatal(below, err)
	}
	claim.Epsilon = below
	r.Claim = claim
	var refused *ClaimError
	if err := account.Validate(r); !errors.As(err, &refused) || refused.Computed != g.Loss {
		t.Errorf("a claim of %s below %v: %v", below, g.Epsilon, err)
	}
}

func TestClaimWithoutNoise(t *testing.T) {
	r := doctor()
	r.Noise = NoNoise{}
	var refused *ClaimError
	if err := account.Validate(r); !errors.As(err, &refused) || refused.Computed != NoPrivacy {
		t.Errorf("a claim without noise: %v", err)
	}
	r.Claim = NoClaim{}
	g, err := account.Guarantee(r)
	if err != nil || g.Finite() {
		t.Errorf("guarantee without noise: %+v, %v", g, err)
	}
}

func TestGuaranteeOrder(t *testing.T) {
	epsilon := func(change func(*Recipe)) float64 {
		r := doctor()
		r.Claim = ApproxDP{Decimal{1000, 0}, Decimal{1, 9}, release.ReplaceOne, 1, 1}
		change(r)
		g, err := account.Guarantee(r)
		if err != nil {
			t.Fatal(err)
		}
		if !(g.Epsilon > 0) || !g.Finite() {
			t.Fatalf("epsilon %v", g.Epsilon)
		}
		return g.Epsilon
	}
	honest := func(n uint8) func(*Recipe) {
		return func(r *Recipe) {
			c := r.Claim.(ApproxDP)
			c.HonestServers = n
			r.Claim = c
			r.Noise = DiscreteGaussian{Rational{Num: 100, Den: 1}, DrawsHalf}
		}
	}
	all := epsilon(func(*Recipe) {})
	if half := epsilon(honest(1)); half != all {
		t.Errorf("half of 100 is %v, 50 is %v", half, all)
	}
	if both := epsilon(honest(2)); !(both < all) {
		t.Errorf("both servers' halves give %v, one's %v", both, all)
	}
	rounds := func(n uint32) float64 {
		return epsilon(func(r *Recipe) {
			c := r.Claim.(ApproxDP)
			c.Rounds = n
			r.Claim = c
		})
	}
	if two, four := rounds(2), rounds(4); !(all < two && two < four && four < 4*all) {
		t.Errorf("1, 2 and 4 rounds give %v, %v, %v", all, two, four)
	}
	wide := epsilon(func(r *Recipe) { r.Query = Multihot{21, 4, 7} })
	full := epsilon(func(r *Recipe) { r.Query = Multihot{21, 21, 7} })
	vec := epsilon(func(r *Recipe) { r.Query = SumVec{21, 1, 7} })
	if !(all < wide && wide < full && full == vec) {
		t.Errorf("histogram, 4 of 21, 21 of 21, vector give %v, %v, %v, %v", all, wide, full, vec)
	}
}

// TestL1BoundGuarantee: what adds up to a bound is C*sqrt(2) from any other, and C from
// none, however many places it has; a SumVec of that maximum needs noise for C at each of
// them. A device's guarantee must not be better than a histogram of one device's C
// answers gives, of which it is one, nor worse than C at one place and at another.
func TestL1BoundGuarantee(t *testing.T) {
	const most = 10
	calibrated := func(q Query, kind account.NoiseKind) float64 {
		n, err := account.Calibrate(q, kind, Decimal{1, 0}, Decimal{1, 9}, 1)
		if err != nil {
			t.Fatal(err)
		}
		return (&Recipe{Noise: n}).NoiseVariance()
	}
	few, many := calibrated(L1BoundSum{Length: 2, Max: most}, account.GaussianNoise), calibrated(L1BoundSum{Length: 1000, Max: most}, account.GaussianNoise)
	// two places of a sumvec: sqrt(2)*10 apart, by the exact law
	ball := calibrated(SumVec{Length: 2, Max: most}, account.GaussianNoise)
	if few != many || few < ball*(1-1e-5) || few > ball*1.3 {
		t.Errorf("variance %v for 2 places, %v for 1000; two places of a sumvec need %v", few, many, ball)
	}
	if vec := calibrated(SumVec{Length: 1000, Max: most}, account.GaussianNoise); vec < 300*many {
		t.Errorf("variance %v; a sumvec of 1000 places needs %v", many, vec)
	}
	// Replaced, 2C over the scale; the scale of epsilon 1 is 20.
	n, err := account.Calibrate(L1BoundSum{Length: 50, Max: most}, account.LaplaceNoise, Decimal{1, 0}, Decimal{1, 9}, 1)
	if err != nil || math.Abs(n.(DiscreteLaplace).Scale.Float()-20) > 0.01 {
		t.Errorf("%v, %v; want a scale of 20", n, err)
	}
	// Behind secret coins neighbours are C apart, and the count is hidden at their scale.
	o := account.Options{
		Name: "Credit", Query: L1BoundSum{Length: 8, Max: most}, Leader: "https://leader.example/", Helper: "https://helper.example/",
		MinBatch: 500, Epsilon: Decimal{1, 0}, Delta: Decimal{1, 6}, Participation: Bernoulli{Rational{Num: 1, Den: 10}},
		Rate: &Rate{Devices: 60000, Units: 24}, Relay: &Relay{URL: "https://relay.example/", Gateway: "https://leader.example/gateway"},
	}
	for _, kind := range []account.NoiseKind{account.GaussianNoise, account.LaplaceNoise} {
		o.Kind = kind
		r, err := account.New(o)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		g, err := account.Guarantee(r)
		if err != nil || g.Epsilon > 1 || g.Epsilon < 0.98 || g.Neighbours != release.AddRemove {
			t.Errorf("%s: %+v, %v", kind, g, err)
		}
		b, err := account.Certify(r)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if l, err := r.CheckCertificate(b); err != nil || l.Epsilon > 1.05 {
			t.Errorf("%s: %v, %v", kind, l, err)
		}
		// The certificate of this bound is none for a larger one.
		q := r.Query.(L1BoundSum)
		q.Max++
		r.Query = WithChunk(L1BoundSum{Length: q.Length, Max: q.Max})
		if _, err := r.CheckCertificate(b); !errors.As(err, new(*CertificateError)) {
			t.Errorf("%s: a larger bound passes: %v", kind, err)
		}
	}
}

func TestFallbacks(t *testing.T) {
	r := variants()["both honest"]
	g, err := account.Guarantee(r)
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Fallbacks) != 2 || !(g.Fallbacks[0].Loss.Epsilon > g.Epsilon) || g.Fallbacks[1].Loss != NoPrivacy {
		t.Errorf("fallbacks %+v of %v", g.Fallbacks, g.Loss)
	}
}

func TestCalibrate(t *testing.T) {
	for _, c := range []struct {
		q       Query
		kind    account.NoiseKind
		epsilon string
		Rounds  uint32
	}{
		{Histogram{21, 7}, account.GaussianNoise, "1", 1},
		{Histogram{21, 7}, account.GaussianNoise, "0.25", 4},
		{Count{}, account.GaussianNoise, "2", 1},
		{Histogram{21, 7}, account.LaplaceNoise, "1", 1},
		{Sum{10}, account.LaplaceNoise, "0.5", 3},
	} {
		eps, err := ParseDecimal(c.epsilon)
		if err != nil {
			t.Fatal(err)
		}
		n, err := account.Calibrate(c.q, c.kind, eps, Decimal{1, 9}, c.Rounds)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		r := doctor()
		r.Query, r.Noise = c.q, n
		r.Claim = ApproxDP{Epsilon: Decimal{1000, 0}, Delta: Decimal{1, 9}, HonestServers: 1, Rounds: c.Rounds}
		g, err := account.Guarantee(r)
		if err != nil {
			t.Fatal(err)
		}
		if want := eps.FloatDown(); g.Epsilon > want || g.Epsilon < 0.99*want {
			t.Errorf("%+v: noise %v gives %v", c, n, g.Epsilon)
		}
	}
	for _, c := range []struct {
		kind    account.NoiseKind
		epsilon Decimal
		delta   Decimal
		Rounds  uint32
	}{
		{"uniform", Decimal{1, 0}, Decimal{1, 9}, 1},
		{account.GaussianNoise, Decimal{}, Decimal{1, 9}, 1},
		{account.GaussianNoise, Decimal{1, 0}, Decimal{}, 1},
		{account.LaplaceNoise, Decimal{1, 0}, Decimal{1, 0}, 1},
		{account.LaplaceNoise, Decimal{1, 0}, Decimal{1, 9}, 0},
	} {
		var invalid *InvalidError
		if _, err := account.Calibrate(Count{}, c.kind, c.epsilon, c.delta, c.Rounds); !errors.As(err, &invalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestNew(t *testing.T) {
	base := account.Options{
		Name: "n", Query: Histogram{Length: 21}, Leader: "https://leader.example/", Helper: "https://helper.example/", MinBatch: 100,
	}
	r, err := account.New(base)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := r.Noise.(NoNoise); !ok || r.Query.(Histogram).Chunk != 3 || r.TimePrecision != 3600 {
		t.Errorf("defaults: %+v", r)
	}
	o := base
	o.Epsilon = Decimal{1, 0}
	if r, err = account.New(o); err != nil {
		t.Fatal(err)
	}
	if g, err := account.Guarantee(r); err != nil || g.Epsilon > 1 || g.Epsilon < 0.99 {
		t.Errorf("calibrated to 1: %+v, %v", g, err)
	}
	o = base
	o.Noise = DiscreteGaussian{Rational{Num: 50, Den: 1}, DrawsAll}
	if r, err = account.New(o); err != nil {
		t.Fatal(err)
	}
	claim := r.Claim.(ApproxDP)
	if g, err := account.Guarantee(r); err != nil || claim.Epsilon.FloatDown() > g.Epsilon*1.001 {
		t.Errorf("claim %s for %+v, %v", claim.Epsilon, g, err)
	}
	for name, change := range map[string]func(*account.Options){
		"nothing":            func(o *account.Options) { *o = account.Options{} },
		"no query":           func(o *account.Options) { o.Query = nil },
		"exact with epsilon": func(o *account.Options) { o.Noise, o.Epsilon = NoNoise{}, Decimal{1, 0} },
		"claim below noise": func(o *account.Options) {
			o.Noise, o.Epsilon = DiscreteGaussian{Rational{Num: 50, Den: 1}, DrawsAll}, Decimal{1, 1}
		},
		"unknown kind": func(o *account.Options) { o.Kind, o.Epsilon = "x", Decimal{1, 0} },
		"bad delta": func(o *account.Options) {
			o.Noise, o.Delta = DiscreteGaussian{Rational{Num: 50, Den: 1}, DrawsAll}, Decimal{2, 0}
		},
	} {
		o := base
		change(&o)
		if r, err := account.New(o); err == nil {
			t.Errorf("%s: made %+v", name, r)
		}
	}
}

// TestLossWords: a loss in words is never less than the loss, and a number of few digits
// is written as it is.
func TestLossWords(t *testing.T) {
	for _, c := range []struct {
		loss Loss
		want string
	}{
		{Loss{1, 1e-9}, "epsilon 1, delta 1e-9"},
		{Loss{0.1, 1e-6}, "epsilon 0.1, delta 1e-6"},
		{Loss{math.Nextafter(1, 2), math.Nextafter(1e-9, 1)}, "epsilon 1.001, delta 1.001e-9"},
		{Loss{0.99991, 2.5e-7}, "epsilon 1, delta 2.5e-7"},
		{Loss{0, 0}, "epsilon 0, delta 0"},
		{NoPrivacy, "no differential privacy"},
	} {
		if got := c.loss.String(); got != c.want {
			t.Errorf("%v is written as %q, want %q", [2]float64{c.loss.Epsilon, c.loss.Delta}, got, c.want)
		}
	}
}
