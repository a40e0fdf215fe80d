package recipe_test

import (
	"slices"
	"strings"
	"testing"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"

	"github.com/starling-agg/starling/dp/release"
)

// tossing is a recipe of coins whose devices are counted: 5,000 send the 2,500 reports of a
// batch less than once in 2^40, and of a device alone its coins tell ln(1.3).
func tossing(t testing.TB) *Recipe {
	t.Helper()
	r := needles()
	r.Participation, r.Cover = Bernoulli{Rational{Num: 1, Den: 10}}, nil
	r.Claim = ApproxDP{Epsilon: Decimal{5, 1}, Delta: Decimal{1, 6}, Neighbours: release.AddRemove, HonestServers: 1, Rounds: 1}
	r.Rate, r.Dummies = &Rate{Devices: 10000, Units: 24}, &Dummies{Rate: Rational{Num: 1, Den: 4}, Senders: 5000}
	var err error
	if r.Dummies.Allowance, err = r.DummyAllowance(); err != nil {
		t.Fatal(err)
	}
	if r.Threshold() != 2604 { // docs/proofs/tokens.md
		t.Errorf("a batch is of %d reports", r.Threshold())
	}
	return pose(t, r, 5000)
}

// blurring is a recipe without coins whose devices are counted and blur their answers.
func blurring(t testing.TB, z Randomizer) *Recipe {
	t.Helper()
	o := account.Options{Name: "Blur", Query: Histogram{Length: 4}, Randomizer: z, MinBatch: 1000, Epsilon: Decimal{2, 0},
		Leader: "https://leader.example/", Helper: "https://helper.example/"}
	if _, ok := z.(Gaussian); ok {
		o.Query = vectorVariants()["vector pine32"].Query
	}
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return pose(t, r, 1000)
}

// pose has a recipe count devices, and stand in a log.
func pose(t testing.TB, r *Recipe, cohort uint64) *Recipe {
	t.Helper()
	o := counted(t)
	r.Tokens, r.Log, r.ServerKeys, r.Relay = o.Tokens, o.Log, o.ServerKeys, o.Relay
	r.Tokens.MinCohort = cohort
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestCounted: the devices that a guarantee counts on are nobody's word but the attester's
// if credentials, a log and a cohort of as many count them, and where coins are tossed the
// coins bear it out. Then the loss that is charged and printed first is that of the claim.
// Without any one of these it is the author's word again, and printed as that.
func TestCounted(t *testing.T) {
	coins := func() *Recipe { return tossing(t) }
	blur := func() *Recipe { return blurring(t, KRR{Decimal{2, 0}}) }
	vectors := func() *Recipe { return blurring(t, Gaussian{}) }
	for name, c := range map[string]struct {
		of     func() *Recipe
		change func(*Recipe)
		stays  string // a part of a condition
		why    string // a part of the reason, where there are tokens
	}{
		"coins":               {coins, nil, "", ""},
		"coins, no tokens":    {coins, func(r *Recipe) { r.Tokens = nil }, "at least 5000 devices", ""},
		"coins, no log":       {coins, func(r *Recipe) { r.Log = nil }, "at least 5000 devices", "no log shows"},
		"coins, small cohort": {coins, func(r *Recipe) { r.Tokens.MinCohort-- }, "at least 5000 devices", "fewer than the 5000"},
		"coins, two rounds": {coins, func(r *Recipe) {
			c := r.Claim.(ApproxDP)
			c.Rounds = 2
			r.Claim = c
		}, "at least 5000 devices", "would add up"},
		"coins, few dummies": {coins, func(r *Recipe) {
			r.Dummies.Rate = Rational{Num: 1, Den: 8} // ln(1.7)
			r.Dummies.Allowance = must(r.DummyAllowance())
		}, "at least 5000 devices", "tells more than is claimed, epsilon 0.5307"},
		"coins, many senders": {coins, func(r *Recipe) { r.Dummies.Senders, r.Tokens.MinCohort = 8000, 8000 }, "at least 8000 devices", "may well send"},
		"coins of a person with two": {coins, func(r *Recipe) {
			r.Unit = &Unit{Name: "phone", Records: 1, Reduce: FirstRecord, PerPerson: 2}
		}, "at least 5000 devices", "would add up"},
		"blur":                  {blur, nil, "", ""},
		"blur, no tokens":       {blur, func(r *Recipe) { r.Tokens = nil }, "at least 1000 reports", ""},
		"blur, no log":          {blur, func(r *Recipe) { r.Log = nil }, "at least 1000 reports", "no log shows"},
		"blur, small cohort":    {blur, func(r *Recipe) { r.Tokens.MinCohort-- }, "at least 1000 reports", "fewer than the 1000"},
		"vectors":               {vectors, nil, "", ""},
		"vectors, no tokens":    {vectors, func(r *Recipe) { r.Tokens = nil }, "at least 1000 reports", ""},
		"vectors, no log":       {vectors, func(r *Recipe) { r.Log = nil }, "at least 1000 reports", "no log shows"},
		"vectors, small cohort": {vectors, func(r *Recipe) { r.Tokens.MinCohort-- }, "at least 1000 reports", "fewer than the 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.of()
			if c.change != nil {
				c.change(r)
			}
			if err := r.Validate(); err != nil {
				t.Fatal(err)
			}
			g, err := account.Guarantee(r)
			if err != nil {
				t.Fatal(err)
			}
			open, err := account.UnconditionalAfter(r, g.Rounds)
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			if err := describe(r, &text); err != nil {
				t.Fatal(err)
			}
			words := strings.Join(strings.Fields(text.String()), " ")
			_, left := g.Fallback(AttesterFails)
			moved := strings.Contains(strings.Join(g.Assumptions, "\n"), "the attester vouches for devices, each once")
			if c.stays == "" {
				if len(g.Conditions) > 0 || g.Unconditional != g.Loss || open != g.Loss || g.UnconditionalNeighbours != g.Neighbours || !moved || !left {
					t.Errorf("conditions %q, unconditional %v, charged %v, of %v; moved %v, with a fallback %v", g.Conditions, g.Unconditional, open, g.Loss, moved, left)
				}
				if !strings.Contains(words, "Guarantee "+g.Loss.String()) || strings.Contains(words, "nobody here has counted") ||
					!strings.Contains(words, "on nobody's word but the attester's") || !strings.Contains(words, "if the attester vouches for what is no device") {
					t.Errorf("printed: %s", words)
				}
				return
			}
			if len(g.Conditions) == 0 || !strings.Contains(g.Conditions[0], c.stays) || !(g.Unconditional.Epsilon > g.Epsilon) || open != g.Unconditional || moved || left {
				t.Errorf("conditions %q, unconditional %v, charged %v, of %v; moved %v, with a fallback %v", g.Conditions, g.Unconditional, open, g.Loss, moved, left)
			}
			if !strings.Contains(words, "nobody here has counted") || strings.Contains(words, "on nobody's word but the attester's") ||
				r.Tokens != nil && (!strings.Contains(words, "stay the author's word: ") || !strings.Contains(words, c.why)) {
				t.Errorf("printed: %s", words)
			}
		})
	}
}

// TestCountedThin: a claim that a round of too few devices bears out alone is of no less
// than that round tells; and one that even this round does not bear out counts nothing.
func TestCountedThin(t *testing.T) {
	r := tossing(t)
	r.Noise = DiscreteGaussian{Variance: Rational{Num: 900, Den: 1}, Share: DrawsAll}
	r.Claim = ApproxDP{Epsilon: Decimal{3, 1}, Delta: Decimal{1, 6}, Neighbours: release.AddRemove, HonestServers: 1, Rounds: 1}
	g, err := account.Guarantee(r)
	if err != nil || len(g.Conditions) > 0 || !(g.Epsilon >= 0.26236426 && g.Epsilon < 0.262365) {
		t.Fatalf("%+v, %v", g, err)
	}
	x, err := OpenFile(fileOf(t, r))
	if err != nil {
		t.Fatal(err)
	}
	if l := x.Guarantee(); l.Loss != g.Loss || l.Unconditional != g.Loss || len(l.Conditions) > 0 {
		t.Errorf("certified: %v, %v, %q", l.Loss, l.Unconditional, l.Conditions)
	}
	r.Claim = ApproxDP{Epsilon: Decimal{26, 2}, Delta: Decimal{1, 6}, Neighbours: release.AddRemove, HonestServers: 1, Rounds: 1}
	if g, err = account.Guarantee(r); err != nil || len(g.Conditions) != 1 || !(g.Epsilon < 0.26) {
		t.Errorf("%+v, %v", g, err)
	}
}

// TestCountedTargeting: how many have the attributes that a recipe asks for is in no
// credential: leader and helper log it, or it is the author's word.
func TestCountedTargeting(t *testing.T) {
	r := tossing(t)
	r.Targeting = targeted().Targeting
	h, err := r.Targeting.Census().Hash()
	if err != nil {
		t.Fatal(err)
	}
	r.Targeting.Certificate.Entry = h
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	const logged = "at least 50001 devices have the attributes that it asks for, as leader and helper have both logged"
	if got := r.Conditions(); len(got) != 0 || !slices.Contains(r.Assumptions(1, 1), logged) {
		t.Errorf("%q, %q", got, r.Assumptions(1, 1))
	}
	r.Log, r.Tokens = nil, nil
	if got := r.Conditions(); len(got) != 2 || !strings.Contains(got[1], "have the attributes") || slices.Contains(r.Assumptions(1, 1), logged) {
		t.Errorf("without a log: %q", got)
	}
}

// TestCountedBehindCoins: that no more devices decide than the author says, so that enough
// of the reports are answers, is in no credential.
func TestCountedBehindCoins(t *testing.T) {
	r := tossing(t)
	r.Noise, r.Randomizer, r.Query = NoNoise{}, KRR{Decimal{5, 1}}, Histogram{Length: 4, Chunk: 2}
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	if got := r.Conditions(); len(got) != 3 {
		t.Errorf("%q", got)
	}
}

// TestCountedCertificate: a certificate that was made of a recipe serves whether its
// devices are counted or not.
func TestCountedCertificate(t *testing.T) {
	for name, r := range map[string]*Recipe{"coins": tossing(t), "blur": blurring(t, KRR{Decimal{2, 0}}), "vectors": blurring(t, Gaussian{})} {
		with, err := r.Statements()
		if err != nil {
			t.Fatal(err)
		}
		r.Log = nil
		without, err := r.Statements()
		if err != nil || len(with) != len(without) {
			t.Errorf("%s: %d statements, and %d of devices that are not counted, %v", name, len(with), len(without), err)
		}
	}
}
