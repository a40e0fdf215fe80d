package recipe_test

import (
	"encoding/hex"
	"errors"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
)

// needles counts rare answers among 60,000 devices, with all that goes with coins.
func needles() *Recipe {
	return &Recipe{
		Name:          "Needles",
		Query:         Multihot{Length: 12, MaxWeight: 1, Chunk: 4},
		Randomizer:    NoRandomizer{},
		Participation: Importance{Default: Rational{Num: 1, Den: 100}, Other: Rational{Num: 1, Den: 2}},
		Path:          TwoServer{Leader: "https://leader.example/", Helper: "https://helper.example/", BatchMode: dap.TimeInterval},
		Noise:         DiscreteGaussian{Variance: Rational{Num: 9, Den: 1}, Share: DrawsAll},
		Claim: ApproxDP{
			Epsilon: Decimal{1, 0}, Delta: Decimal{1, 6}, Neighbours: release.AddRemove, HonestServers: 1, Rounds: 1,
		},
		MinBatch:      100,
		TimePrecision: 3600,
		Window:        NoWindow{},
		Rounds:        &Rounds{Units: 24, Grace: 300},
		Rate:          &Rate{Devices: 60000, Units: 24},
		Dummies:       &Dummies{Rate: Rational{Num: 1, Den: 128}, Senders: 50000, Allowance: 700},
		Cover:         &Cover{Rational{Num: 1, Den: 1}},
		KEM:           XWing,
		Relay:         &Relay{URL: "https://relay.example/", Gateway: "https://leader.example/gateway"},
	}
}

func targeted() *Recipe {
	r := needles()
	r.Participation, r.Cover, r.KEM = Bernoulli{Rational{Num: 1, Den: 10}}, nil, X25519
	r.Targeting = &Targeting{
		Clauses: []Clause{{Platform, []string{"ios", "linux"}}, {Language, []string{"de"}}},
		Certificate: Certificate{
			Recipe: ID{1}, Entry: Hash{2}, LowerBound: 50001, MinPopulation: 20000,
		},
	}
	return r
}

func sampledVariants() map[string]*Recipe {
	list := map[string]*Recipe{"needles": needles(), "targeted": targeted()}
	with := func(name string, change func(*Recipe)) {
		r := targeted()
		r.Targeting = nil
		change(r)
		list[name] = r
	}
	with("bernoulli", func(r *Recipe) {})
	with("bernoulli with some cover", func(r *Recipe) { r.Cover = &Cover{Rational{Num: 1, Den: 2}} })
	with("donation time", func(r *Recipe) { r.Participation = DonationTime{Rational{Num: 1, Den: 4}, 8, 3} })
	with("direct", func(r *Recipe) {
		r.Relay = nil
		c := r.Claim.(ApproxDP)
		c.Neighbours, c.Epsilon = release.ReplaceOne, Decimal{3, 0}
		r.Claim = c
	})
	with("krr", func(r *Recipe) {
		r.Query, r.Randomizer, r.Noise = Histogram{12, 4}, KRR{Decimal{3, 0}}, NoNoise{}
	})
	with("rappor", func(r *Recipe) {
		r.Query, r.Randomizer, r.Noise, r.MinBatch = Multihot{12, 12, 4}, RAPPOR{Decimal{3, 0}}, NoNoise{}, 3000
	})
	with("krr of all", func(r *Recipe) {
		r.Query, r.Randomizer, r.Noise = Histogram{12, 4}, KRR{Decimal{2, 0}}, NoNoise{}
		r.Participation, r.Dummies, r.MinBatch = Always{}, nil, 300
		r.Relay = nil
		c := r.Claim.(ApproxDP)
		c.Neighbours = release.ReplaceOne
		r.Claim = c
	})
	return list
}

// The bytes of what version 1 did not have at first are for ever, too.
func TestSampledGoldenBytes(t *testing.T) {
	got := hex.EncodeToString(mustAppend(t, targeted()))
	for _, want := range []string{
		"01" + "0000" + "02" + "0010" + "0000000000000001" + "000000000000000a", // no randomizer, bernoulli 1/10
		"0002" + "0067" + "0015" + "0001" + "000a" + "03" + hexOf("ios") + "05" + hexOf("linux") + "0005" + "0003" + "02" + hexOf("de") +
			"01" + strings.Repeat("00", 31) + "02" + strings.Repeat("00", 31) + "000000000000c351" + "0000000000004e20",
		"0004" + "0010" + "000000000000ea60" + "0000000000000018",
		"0005" + "0020" + "0000000000000001" + "0000000000000080" + "000000000000c350" + "00000000000002bc",
		"0008" + "0038" + "0016" + hexOf("https://relay.example/") + "001e" + hexOf("https://leader.example/gateway"),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the bytes\n%s\nlack\n%s", got, want)
		}
	}
	got = hex.EncodeToString(mustAppend(t, needles()))
	for _, want := range []string{
		"03" + "0020" + "0000000000000001" + "0000000000000064" + "0000000000000001" + "0000000000000002",
		"0006" + "0010" + "0000000000000001" + "0000000000000001" + "0007" + "0002" + "647a",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the bytes\n%s\nlack\n%s", got, want)
		}
	}
}

// Hostile recipes: each is refused with the reason that tells what is wrong.
func TestSampledRefuses(t *testing.T) {
	claim := func(r *Recipe, change func(*ApproxDP)) {
		c := r.Claim.(ApproxDP)
		change(&c)
		r.Claim = c
	}
	type changes map[string]struct {
		change func(*Recipe)
		field  string
	}
	check := func(make func() *Recipe, list changes) {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			c := list[name]
			t.Run(name, func(t *testing.T) { // TestRoundTrip validates what is changed here
				r := make()
				c.change(r)
				err := account.Validate(r)
				if !invalidAt(err, c.field) {
					t.Errorf("%v, want one about %s", err, c.field)
				}
			})
		}
	}
	check(needles, changes{
		"no coin":                    {func(r *Recipe) { r.Participation = Bernoulli{} }, "participation.rate"},
		"without dummies":            {func(r *Recipe) { r.Dummies = nil }, "dummies"},
		"importance without cover":   {func(r *Recipe) { r.Cover = nil }, "cover"},
		"importance without relay":   {func(r *Recipe) { r.Relay = nil }, "relay"},
		"relay at the leader":        {func(r *Recipe) { r.Relay.URL = "https://leader.example/relay" }, "relay.url"},
		"relay at the helper":        {func(r *Recipe) { r.Relay.URL = "https://helper.example:444/" }, "relay.url"},
		"relay in the clear":         {func(r *Recipe) { r.Relay.URL = "http://relay.example/" }, "relay.url"},
		"importance always":          {func(r *Recipe) { r.Participation = Importance{Rational{Num: 1, Den: 100}, Rational{Num: 1, Den: 1}} }, "participation.other"},
		"importance upside down":     {func(r *Recipe) { r.Participation = Importance{Rational{Num: 1, Den: 2}, Rational{Num: 1, Den: 3}} }, "participation.default"},
		"importance never":           {func(r *Recipe) { r.Participation = Importance{Rational{}, Rational{Num: 1, Den: 3}} }, "participation.default"},
		"importance of two":          {func(r *Recipe) { r.Query = Multihot{12, 2, 4} }, "participation"},
		"cover too rare":             {func(r *Recipe) { r.Cover.Rate = Rational{Num: 1, Den: 3} }, "cover.rate"},
		"cover above one":            {func(r *Recipe) { r.Cover.Rate = Rational{Num: 3, Den: 2} }, "cover.rate"},
		"cover that leaves no coin":  {func(r *Recipe) { r.Cover.Rate = Rational{Num: 1, Den: 2} }, "participation.rate"},
		"no rate":                    {func(r *Recipe) { r.Rate = nil }, "rate"},
		"few dummies":                {func(r *Recipe) { r.Dummies.Rate = Rational{Num: 0, Den: 1} }, "dummies.rate"},
		"dummies for all":            {func(r *Recipe) { r.Dummies.Rate = Rational{Num: 3, Den: 4} }, "dummies.rate"},
		"more senders than devices":  {func(r *Recipe) { r.Dummies.Senders = 60001 }, "dummies.senders"},
		"more senders than people":   {func(r *Recipe) { r.Population = &Population{"We.", 1000} }, "dummies.senders"},
		"nobody to hide behind":      {func(r *Recipe) { r.Dummies.Senders = 1 }, "dummies.senders"},
		"allowance too small":        {func(r *Recipe) { r.Dummies.Allowance = 500 }, "dummies.allowance"},
		"batch below its floor":      {func(r *Recipe) { r.MinBatch = SampledBatchFloor - 1 }, "min_batch"},
		"batch that never fills":     {func(r *Recipe) { r.MinBatch = 1000 }, "min_batch"},
		"replace neighbours":         {func(r *Recipe) { claim(r, func(c *ApproxDP) { c.Neighbours = release.ReplaceOne }) }, "claim.neighbours"},
		"unknown KEM":                {func(r *Recipe) { r.KEM = 0x20 }, "hpke_suite"},
		"histogram that has no zero": {func(r *Recipe) { r.Query, r.Participation = Histogram{12, 4}, Bernoulli{Rational{Num: 1, Den: 10}} }, "query"},
		"quantiles of a sample": {func(r *Recipe) {
			r.Query, r.Participation = Quantiles{0, 9, 1, 4, 4}, Bernoulli{Rational{Num: 1, Den: 10}}
		}, "query"},
		"groups of a sample": {func(r *Recipe) {
			r.Query, r.Participation = GroupSums{0, 9, 2, 4}, Bernoulli{Rational{Num: 1, Den: 10}}
		}, "query"},
		"hierarchy of a sample": {func(r *Recipe) {
			r.Query, r.Participation = tree(t, "a,b"), Bernoulli{Rational{Num: 1, Den: 10}}
		}, "query"},
		"noise of both": {func(r *Recipe) { r.Randomizer = RAPPOR{Decimal{4, 0}} }, "noise"},
		"everybody":     {func(r *Recipe) { r.Participation = Bernoulli{Rational{Num: 1, Den: 1}} }, "participation.rate"},
	})
	check(func() *Recipe { return sampledVariants()["donation time"] }, changes{
		"one slot":       {func(r *Recipe) { r.Participation = DonationTime{Rational{Num: 1, Den: 2}, 1, 3} }, "participation.slots"},
		"too many slots": {func(r *Recipe) { r.Participation = DonationTime{Rational{Num: 1, Den: 2}, MaxSlots + 1, 3} }, "participation.slots"},
		"no length":      {func(r *Recipe) { r.Participation = DonationTime{Rational{Num: 1, Den: 2}, 8, 0} }, "participation.length"},
		"above one":      {func(r *Recipe) { r.Participation = DonationTime{Rational{Num: 3, Den: 2}, 8, 3} }, "participation.rate"},
	})
	check(func() *Recipe { return sampledVariants()["rappor"] }, changes{
		"weight bound too small": {func(r *Recipe) { r.Query = Multihot{12, 5, 4} }, "query.max_weight"},
		"epsilon of zero":        {func(r *Recipe) { r.Randomizer = RAPPOR{} }, "randomizer.epsilon0"},
		"epsilon without blur":   {func(r *Recipe) { r.Randomizer = RAPPOR{Decimal{33, 0}} }, "randomizer.epsilon0"},
		"on a histogram":         {func(r *Recipe) { r.Query = Histogram{12, 4} }, "query"},
	})
	check(func() *Recipe { return sampledVariants()["krr"] }, changes{
		"on a vector":   {func(r *Recipe) { r.Query = Multihot{12, 12, 4} }, "query"},
		"of one bucket": {func(r *Recipe) { r.Query = Histogram{1, 1} }, "query"},
	})
	certificate := func(change func(*Certificate)) func(*Recipe) {
		return func(r *Recipe) { change(&r.Targeting.Certificate) }
	}
	clauses := func(list ...Clause) func(*Recipe) { return func(r *Recipe) { r.Targeting.Clauses = list } }
	check(targeted, changes{
		"at one person":           {certificate(func(c *Certificate) { c.LowerBound, c.MinPopulation = 1, 0 }), "targeting.min_population"},
		"at too few":              {certificate(func(c *Certificate) { c.LowerBound = 20000 }), "targeting.lower_bound"},
		"without a histogram":     {certificate(func(c *Certificate) { c.Recipe = ID{} }), "targeting.certificate"},
		"without a log entry":     {certificate(func(c *Certificate) { c.Entry = Hash{} }), "targeting.certificate"},
		"at a device":             {clauses(Clause{0x8001, []string{"4711"}}), "targeting.clauses"},
		"at the sick":             {clauses(Clause{0x8006, []string{"flu"}}), "targeting.clauses"},
		"by an unknown attribute": {clauses(Clause{77, []string{"x"}}), "targeting.clauses"},
		"by nothing":              {clauses(), "targeting.clauses"},
		"by too much": {clauses(Clause{1, []string{"a"}}, Clause{2, []string{"a"}}, Clause{3, []string{"a"}}, Clause{4, []string{"a"}}),
			"targeting.clauses"},
		"twice":                 {clauses(Clause{Platform, []string{"a"}}, Clause{Platform, []string{"a"}}), "targeting.clauses"},
		"values in disorder":    {clauses(Clause{Platform, []string{"b", "a"}}), "targeting.values"},
		"no values":             {clauses(Clause{Platform, nil}), "targeting.values"},
		"values that hide text": {clauses(Clause{Platform, []string{"a\u202e"}}), "targeting.values"},
		"no coin":               {func(r *Recipe) { r.Participation = Bernoulli{} }, "participation.rate"},
		"rate near one":         {func(r *Recipe) { r.Participation = Bernoulli{Rational{Num: 2, Den: 3}} }, "participation.rate"},
		"everybody who fits":    {func(r *Recipe) { r.Participation, r.Dummies = Always{}, nil }, "participation.rate"},
		"in the open":           {func(r *Recipe) { r.Relay = nil }, "relay"},
		"senders do not fit":    {func(r *Recipe) { r.Dummies.Senders = 50002 }, "dummies.senders"},
		"batch does not fit":    {func(r *Recipe) { r.MinBatch = 50002 }, "min_batch"},
	})

	r := needles()
	claim(r, func(c *ApproxDP) { c.Epsilon = Decimal{5, 1} })
	var refused *ClaimError
	if err := account.Validate(r); !errors.As(err, &refused) {
		t.Errorf("an epsilon that the rate does not bear out: %v", err)
	}
	r = needles()
	r.Participation = Importance{Rational{Num: 1, Den: 100}, Rational{Num: 9, Den: 10}} // more people, same claim
	r.Dummies.Allowance, r.Participation = 700, Importance{Rational{Num: 1, Den: 50}, Rational{Num: 9, Den: 10}}
	if err := account.Validate(r); !errors.As(err, &refused) {
		t.Errorf("a rate that the epsilon does not bear out: %v", err)
	}
}

func invalidAt(err error, field string) bool {
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		return slices.ContainsFunc(list.Unwrap(), func(e error) bool { return invalidAt(e, field) })
	}
	var invalid *InvalidError
	return errors.As(err, &invalid) && invalid.Field == field
}

func TestTargetingHolds(t *testing.T) {
	s := targeted().Targeting
	for _, c := range []struct {
		of   map[Attribute]string
		want bool
	}{
		{map[Attribute]string{Platform: "ios", Language: "de"}, true},
		{map[Attribute]string{Platform: "linux", Language: "de", Channel: "beta"}, true},
		{map[Attribute]string{Platform: "android", Language: "de"}, false},
		{map[Attribute]string{Platform: "ios"}, false},
		{nil, false},
	} {
		if s.Holds(c.of) != c.want {
			t.Errorf("%v: %v", c.of, !c.want)
		}
	}
}

// hockey is delta(epsilon) between two laws on the same outcomes, in both directions.
func hockey(p, q []float64, epsilon float64) float64 {
	a, b := 0.0, 0.0
	for i := range p {
		a += max(0, p[i]-math.Exp(epsilon)*q[i])
		b += max(0, q[i]-math.Exp(epsilon)*p[i])
	}
	return max(a, b)
}

// The whole mechanism, enumerated: what leader and collector see (number of reports and
// noisy sum) when one person among few has the answer 1 against having none stays within
// what is claimed, own dummies and cover included.
func TestSampledGuaranteeHolds(t *testing.T) {
	const sigma2, senders = 4, 150
	gauss := make([]float64, 61) // of -30..30
	sum := 0.0
	for i := range gauss {
		gauss[i] = math.Exp(-float64((i-30)*(i-30)) / (2 * sigma2))
		sum += gauss[i]
	}
	for i := range gauss {
		gauss[i] /= sum
	}
	for _, c := range []struct {
		p       Participation
		cover   float64
		dummies Rational
	}{
		{Bernoulli{Rational{Num: 1, Den: 5}}, 1, Rational{Num: 1, Den: 2}},
		{Bernoulli{Rational{Num: 1, Den: 5}}, 1, Rational{Num: 1, Den: 10}},
		{Bernoulli{Rational{Num: 1, Den: 5}}, 0.5, Rational{Num: 1, Den: 3}},
		{Importance{Rational{Num: 1, Den: 10}, Rational{Num: 2, Den: 5}}, 1, Rational{Num: 1, Den: 3}},
	} {
		r := needles()
		r.Query, r.Participation, r.Noise = Count{}, c.p, DiscreteGaussian{Rational{Num: sigma2, Den: 1}, DrawsAll}
		r.Dummies = &Dummies{Rate: c.dummies, Senders: senders}
		r.Cover = &Cover{Rational{Num: 1, Den: 1}}
		if c.cover != 1 {
			r.Cover = &Cover{Rational{Num: 1, Den: 2}}
		}
		answer, none := r.Chances(OtherAnswer), r.Chances(NoAnswer)
		others := r.Chances(DefaultAnswer)
		f := func(x interface{ Float64() (float64, bool) }) float64 { v, _ := x.Float64(); return v }
		// Every other honest device holds the answer 0; cover coins are drawn in secret.
		up := f(others.Cover) * (f(others.Report) + (1-f(others.Report))*f(others.Dummy))
		count := make([]float64, senders+1) // law of the others' reports; the last is never reached by senders-1
		count[0] = 1
		for range senders - 1 {
			for k := senders; k >= 0; k-- {
				count[k] *= 1 - up
				if k > 0 {
					count[k] += up * count[k-1]
				}
			}
		}
		joint := func(report, dummy float64) []float64 {
			var law []float64
			for k := range count {
				before := 0.0
				if k > 0 {
					before = count[k-1]
				}
				for x := range gauss {
					shifted := 0.0
					if x > 0 {
						shifted = gauss[x-1]
					}
					law = append(law, (1-report-dummy)*count[k]*gauss[x]+dummy*before*gauss[x]+report*before*shifted)
				}
			}
			return law
		}
		chance := func(c Chances) (report, dummy float64) {
			report = f(c.Cover) * f(c.Report)
			return report, f(c.Cover) * (1 - f(c.Report)) * f(c.Dummy)
		}
		p, q := joint(chance(answer)), joint(chance(none))
		for _, delta := range []Decimal{{1, 1}, {1, 2}, {1, 4}} {
			l, _, err := account.LossIn(r, Situation{Servers: 1, Hidden: true}, delta, 1, release.AddRemove)
			if err != nil {
				t.Fatal(err)
			}
			if !l.Finite() {
				continue // the count of so few hides it no better
			}
			got := hockey(p, q, l.Epsilon)
			if got > delta.Float() {
				t.Errorf("%v, dummies %v: delta is %v at %v", c.p, c.dummies, got, l)
			}
			// And not absurdly loose: at a tenth of epsilon the mechanism breaks the
			// delta, unless that is near 0.
			if tight := hockey(p, q, l.Epsilon/10); l.Epsilon > 0.5 && tight < delta.Float()/1e3 {
				t.Errorf("%v, dummies %v: delta is %v at a tenth of %v: the bound is idle", c.p, c.dummies, tight, l)
			}
		}
	}
}

// Paper 000, example 6: RAPPOR at 4 of 10,000 reports, sampled at 0.02 of a million.
// Hiding the count costs a little over the paper's 0.02. The dummies are those that
// account.New chooses, which takes twice as long as the rest of the test.
func TestExampleSix(t *testing.T) {
	r := targeted()
	r.Targeting, r.Noise = nil, NoNoise{}
	r.Query, r.Randomizer, r.MinBatch = Multihot{Length: 32, MaxWeight: 16, Chunk: 6}, RAPPOR{Decimal{4, 0}}, 10000
	r.Participation, r.Rate = Bernoulli{Rational{Num: 1, Den: 50}}, &Rate{1000000, 1}
	r.Dummies = &Dummies{Rate: Rational{Num: 41, Den: 16384}, Senders: 1000000, Allowance: 2755}
	r.Claim = ApproxDP{
		Epsilon: Decimal{3, 2}, Delta: Decimal{1, 10}, Neighbours: release.AddRemove, HonestServers: 1, Rounds: 1,
	}
	g, err := account.Guarantee(r)
	if err != nil {
		t.Fatal(err)
	}
	if g.Epsilon < 0.0166 || g.Epsilon > 0.03 {
		t.Errorf("%v", g.Loss)
	}
	f, ok := g.Fallback(RelayColludes)
	if !ok || f.Loss.Epsilon < 0.5 || f.Loss.Epsilon > 0.75 {
		t.Errorf("without sampling %v", f.Loss)
	}
	if f, ok = g.Fallback(ServersCollude); !ok || f.Loss.Epsilon < 4 || f.Loss.Epsilon > 4.0001 {
		t.Errorf("with both servers %v", f.Loss)
	}
	if e, ok := g.Fallback(EdgeWatched); !ok || e.Loss.Epsilon < 0.5 {
		t.Errorf("at the network's edge %v: nothing hides there who reports", e.Loss)
	}
}

// account.New chooses noise and dummies such that the claim holds and is not idle.
func TestNewSampled(t *testing.T) {
	base := account.Options{
		Name: "x", Query: Multihot{Length: 12, MaxWeight: 1}, Leader: "https://l.example/", Helper: "https://h.example/", MinBatch: 50,
		Epsilon: Decimal{1, 0}, Delta: Decimal{1, 6}, Rate: &Rate{20000, 1}, Relay: &Relay{"https://r.example/", "https://g.example/"},
	}
	for _, p := range []Participation{Bernoulli{Rational{Num: 1, Den: 10}}, Importance{Rational{Num: 1, Den: 100}, Rational{Num: 1, Den: 2}}} {
		o := base
		o.Participation = p
		r, err := account.New(o)
		if err != nil {
			t.Fatal(err)
		}
		g, err := account.Guarantee(r)
		if err != nil || g.Epsilon < 0.99 {
			t.Errorf("%v: %v, %v", p, g.Loss, err)
		}
		alone, _, err := account.LossIn(r, Situation{Servers: 1, Hidden: true, Free: true}, o.Delta, 1, r.Neighbours())
		if err != nil || alone.Epsilon < 0.95*g.Epsilon {
			t.Errorf("%v: the hidden count costs %v of %v", p, g.Epsilon-alone.Epsilon, g.Epsilon)
		}
	}
	for _, p := range []Participation{Bernoulli{}, Importance{}, DonationTime{}} {
		o := base
		o.Participation = p
		if _, err := account.New(o); !invalidAt(err, "participation.rate") && !invalidAt(err, "participation.default") {
			t.Errorf("%T without a rate: %v", p, err)
		}
	}
}

func TestSampledFallbacks(t *testing.T) {
	for _, name := range []string{"needles", "bernoulli with some cover", "donation time", "direct"} {
		r := sampledVariants()[name]
		g, err := account.Guarantee(r)
		if err != nil {
			t.Fatal(name, err)
		}
		relay, ok := g.Fallback(RelayColludes)
		if ok != r.Amplified() {
			t.Errorf("%s: a fallback for the relay: %v", name, ok)
		}
		if !ok {
			continue
		}
		edge, _ := g.Fallback(EdgeWatched)
		half, _ := g.Fallback(HalfAreDishonest)
		if !(relay.Loss.Epsilon > g.Epsilon) || half.Loss.Epsilon < g.Epsilon {
			t.Errorf("%s: %v, with the relay %v, with half %v", name, g.Loss, relay.Loss, half.Loss)
		}
		if want := relay.Loss; r.Cover == nil && edge.Loss != want || r.Cover != nil && edge.Loss != g.Loss {
			t.Errorf("%s: at the edge %v", name, edge.Loss)
		}
	}
}

// Estimates are unbiased and as far off as stated: 400 simulated batches of each recipe;
// the mean of the normalised errors has a standard deviation of 1/20, and 6 of these
// reject with probability 2e-9; the sum of squares, chi-squared of 400, lies within 6
// standard deviations (0.42) of 1.
func TestEstimate(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	const devices, runs = 20000, 400
	shares := []float64{0.02, 0.01, 0.005}
	for _, name := range []string{"needles", "bernoulli", "rappor", "krr"} {
		r := sampledVariants()[name]
		if name == "krr" {
			r.Query = Histogram{4, 2} // the fourth is what is left
		} else if q := r.Query.(Multihot); true {
			q.Length = 3
			r.Query = q
		}
		mean, square, total, stated, missed, held := 0.0, 0.0, 0.0, 0.0, 0.0, 0
		for range runs {
			sums, reports := simulate(rng, r, shares, devices)
			e, err := r.Estimate(sums, reports)
			if err != nil {
				t.Fatal(err)
			}
			z := (e.Values[0] - shares[0]*devices) / e.StdDev[0]
			mean, square = mean+z/runs, square+z*z/runs
			total += e.Devices / runs
			for i, share := range shares {
				stated += e.StdDev[i] * e.StdDev[i] / (devices * devices) / runs
				missed += math.Pow(e.Values[i]/devices-share, 2) / runs
				if v := (float64(sums[i]) - e.Baseline) * e.Weight; math.Abs(v-e.Values[i]) > 1e-6*(1+math.Abs(v)) {
					t.Fatalf("%s: %v is not what baseline and weight make of it, %v", name, e.Values[i], v)
				}
				if in := e.Interval(i, 1.96); in[0] <= share*devices && share*devices <= in[1] {
					held++
				}
			}
		}
		if math.Abs(mean) > 0.3 || math.Abs(square-1) > 0.45 {
			t.Errorf("%s: normalised errors have mean %v and mean square %v", name, mean, square)
		}
		if math.Abs(total/devices-1) > 0.05 {
			t.Errorf("%s: estimated %v of %v devices", name, total, devices)
		}
		// 1,200 intervals, of which 95 % are to hold the truth: a standard deviation of
		// 0.7 %.
		if got := float64(held) / (runs * 3); got < 0.92 || got > 0.985 {
			t.Errorf("%s: intervals hold the truth %.1f times in 100", name, 100*got)
		}
		// The squared error, a mean of 1200 squares, has a relative standard deviation of
		// about 0.04.
		forecast := r.ForecastError(shares, devices, true)
		if math.Abs(missed/forecast-1) > 0.3 || math.Abs(stated/forecast-1) > 0.1 {
			t.Errorf("%s: squared error %v, stated %v, forecast %v", name, missed, stated, forecast)
		}
		if r.ForecastError(shares, devices, false) < forecast {
			t.Errorf("%s: a larger population is forecast to be estimated better", name)
		}
	}
	if _, err := needles().Estimate(make([]int64, 11), 5); err == nil {
		t.Error("sums of another query")
	}
	if _, err := needles().Estimate(make([]int64, 12), 0); err == nil {
		t.Error("no reports")
	}
}

// simulate draws a batch from the definitions alone. Device i has the answer of its
// share; the rest the default.
func simulate(rng *rand.Rand, r *Recipe, shares []float64, devices int) (sums []int64, reports uint64) {
	n := r.Query.Aggregates()
	sums = make([]int64, n)
	coin := func(p float64) bool { return rng.Float64() < p }
	p := r.Probabilities()
	var chances [3][3]float64
	for kind := range chances {
		c := r.Chances(Answer(kind))
		for k, x := range []*big.Rat{c.Cover, c.Report, c.Dummy} {
			chances[kind][k], _ = x.Float64()
		}
	}
	for i := range devices {
		place, at := -1, float64(i)/float64(devices)
		for j, s := range shares {
			if at < s {
				place = j
				break
			}
			at -= s
		}
		kind := OtherAnswer
		if _, ok := r.Participation.(Importance); ok && place < 0 {
			kind = DefaultAnswer
		}
		if _, ok := r.Query.(Histogram); ok && place < 0 {
			place = n - 1
		}
		cover, report, dummy := chances[kind][0], chances[kind][1], chances[kind][2]
		if !coin(cover) {
			continue
		}
		if !coin(report) {
			if !coin(dummy) {
				continue
			}
			place = -1
		}
		reports++
		switch r.Randomizer.(type) {
		case NoRandomizer:
			if place >= 0 {
				sums[place]++
			}
		case RAPPOR:
			for j := range sums {
				if (j == place) != coin(p.Lie()) {
					sums[j]++
				}
			}
		case KRR:
			if place < 0 || !coin(p.Keep()-p.Lie()) {
				place = rng.IntN(n)
			}
			sums[place]++
		}
	}
	for j := range sums {
		if sd := math.Sqrt(r.NoiseVariance()); sd > 0 {
			sums[j] += int64(math.Round(sd * rng.NormFloat64()))
		}
	}
	return sums, reports
}

func TestChancesAndThreshold(t *testing.T) {
	r := needles()
	if r.Threshold() != 800 {
		t.Errorf("threshold %d", r.Threshold())
	}
	task, err := r.Task()
	if err != nil || task.MinBatchSize != 800 {
		t.Errorf("DAP's minimum is %v, %v", task, err)
	}
	for a, want := range map[Answer]string{NoAnswer: "0/1", DefaultAnswer: "1/100", OtherAnswer: "1/2"} {
		if c := r.Chances(a); c.Report.RatString() != strings.TrimSuffix(want, "/1") || c.Cover.RatString() != "1" || c.Dummy.RatString() != "1/128" {
			t.Errorf("%v: %v", a, c)
		}
	}
	least, most, ok := r.Expected(24)
	if !ok || math.Abs(least-60000*(0.01+0.99/128)) > 1e-6 || math.Abs(most-60000*(0.5+0.5/128)) > 1e-6 {
		t.Errorf("expected %v to %v", least, most)
	}
	for _, c := range []struct {
		r           *Recipe
		least, most *big.Rat
	}{
		{r, big.NewRat(1, 128), big.NewRat(129, 256)},
		{func() *Recipe { // of 3 slots one has 1/3 at most, 4/27 at least
			r := needles()
			r.Participation, r.Cover = DonationTime{Rational{Num: 1, Den: 4}, 3, 8}, &Cover{Rational{Num: 1, Den: 2}}
			return r
		}(), big.NewRat(4, 27*2*128), big.NewRat(128+1, 3*4*128)},
		{doctor(), new(big.Rat), big.NewRat(1, 1)},
	} {
		least, most := c.r.Sends()
		for _, x := range []struct {
			got  float64
			want *big.Rat
			side int // of got, unless the two are equal and known exactly
		}{{least, c.least, -1}, {most, c.most, 1}} {
			want, exact := x.want.Float64()
			if side := new(big.Rat).SetFloat64(x.got).Cmp(x.want); side == -x.side || side == 0 && !exact || math.Abs(x.got-want) > 3e-12*want {
				t.Errorf("%v: sends with %v, want %v", c.r.Participation, x.got, x.want.RatString())
			}
		}
	}
	if _, _, ok := doctor().Expected(1); ok {
		t.Error("a recipe without a rate expects some")
	}
}

// A device's ledger reads the conditions of recipes that nobody has validated.
func TestConditionsOfInvalidRecipes(t *testing.T) {
	if n := len(needles().Conditions()); n != 1 {
		t.Errorf("%d conditions of a recipe with coins", n)
	}
	if n := len(targeted().Conditions()); n != 2 {
		t.Errorf("%d conditions of a targeted recipe", n)
	}
	for name, change := range map[string]func(*Recipe){
		"no dummies": func(r *Recipe) { r.Dummies = nil },
		"no rate":    func(r *Recipe) { r.Rate = nil },
		"no relay":   func(r *Recipe) { r.Relay = nil },
		"nothing":    func(r *Recipe) { *r = Recipe{} },
	} {
		r := targeted()
		change(r)
		if got := r.Conditions(); got != nil {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, z := range []Randomizer{KRR{Decimal{1, 0}}, RAPPOR{Decimal{1, 0}}, Gaussian{}} {
		r := targeted()
		r.Rate, r.Randomizer = nil, z
		if got := r.Conditions(); len(got) != 1 || !strings.Contains(got[0], "are of devices that follow the recipe") {
			t.Errorf("%v: %q", z, got)
		}
		if r = targeted(); r.Rate != nil {
			r.Randomizer = z
		}
		if got := r.Conditions(); len(got) != 4 {
			t.Errorf("%v behind coins: %q", z, got)
		}
	}
}
