package recipe_test

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dp/certificate"
	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

func pureOptions(q Query) account.Options {
	return account.Options{
		Name: "Pure", Query: q, Leader: "https://leader.example/", Helper: "https://helper.example/", MinBatch: 100,
		Kind: account.LaplaceNoise, Epsilon: Decimal{1, 0}, Pure: true,
	}
}

// TestPureClaims: Laplace noise is calibrated to a delta of 0, by the largest loss of all
// rounds: twice the contribution, for each number, over the scale. The accountant and the
// certificate say the same to the last bit, and rounds cost in proportion.
func TestPureClaims(t *testing.T) {
	for _, tc := range []struct {
		q        Query
		rounds   uint32
		distance int64 // by which one answer moves the sum that replaces another
	}{
		{Count{}, 1, 1}, {Sum{Max: 1000}, 8, 1000}, {Mean{Max: 7}, 3, 7}, {Histogram{Length: 21}, 2, 2}, {Multihot{Length: 40, MaxWeight: 3}, 1, 6},
		{Multihot{Length: 4, MaxWeight: 3}, 1, 4}, {SumVec{Length: 10, Max: 3}, 2, 30}, {L1BoundSum{Length: 30, Max: 15}, 2, 30},
		{Quantiles{Max: 99, Width: 1, Branching: 5}, 2, 6}, {GroupSums{Min: -5, Max: 10, Groups: 4}, 2, 30}, {Quantiles{Max: 1, Width: 1, Branching: 2}, 1, 2},
		{Quantiles{Max: 99, Width: 1, Branching: 5}, 2, 6}, {Quantiles{Max: 1, Width: 1, Branching: 2}, 1, 2},
		{tree(t, "a(b,c),d(e,f)"), 2, 4},
	} {
		o := pureOptions(tc.q)
		o.Rounds = tc.rounds
		r, err := account.New(o)
		if err != nil {
			t.Errorf("%v: %v", tc.q, err)
			continue
		}
		claim := r.Claim.(ApproxDP)
		if claim.Delta != (Decimal{}) || claim.Epsilon != o.Epsilon {
			t.Errorf("%v: claims %v", tc.q, claim)
		}
		scale := r.Noise.(DiscreteLaplace).Scale.Rat()
		lost := new(big.Rat).Quo(big.NewRat(tc.distance*int64(tc.rounds), 1), scale)
		if off, _ := new(big.Rat).Sub(big.NewRat(1, 1), lost).Float64(); off < 0 || off > 1e-4 {
			t.Errorf("%v: noise of scale %v loses %v", tc.q, scale, lost.FloatString(9))
		}
		b := mustCertify(t, r)
		believed, err := Open(mustAppend(t, r), Certified(b))
		if err != nil {
			t.Fatal(err)
		}
		computed, err := account.Guarantee(r)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := lost.Float64()
		for who, l := range map[string]Loss{"a certificate": believed.Guarantee().Loss, "the accountant": computed.Loss, "nobody's word": computed.Unconditional} {
			if l.Delta != 0 || math.Abs(l.Epsilon-want) > 1e-12 || new(big.Rat).SetFloat64(l.Epsilon).Cmp(big.NewRat(1, 1)) > 0 {
				t.Errorf("%v: %s says %v, want %v", tc.q, who, l, want)
			}
		}
		first, err := believed.LossAfter(1)
		if want := want / float64(tc.rounds); err != nil || first.Delta != 0 || math.Abs(first.Epsilon-want) > 1e-12 {
			t.Errorf("%v: a round costs %v, %v; want %v", tc.q, first, err, want)
		}
		var shown strings.Builder
		if err := account.Describe(r, &shown); err != nil || !strings.Contains(shown.String(), ", delta 0, over ") || !strings.Contains(shown.String(), ", always.") {
			t.Errorf("%v: %v:\n%s", tc.q, err, shown.String())
		}
	}
}

// TestPureOfAPerson: a person with several units loses so many times as much, and nothing
// beside.
func TestPureOfAPerson(t *testing.T) {
	o := pureOptions(Count{})
	o.Unit = &Unit{Name: UnitDevice, Records: 1, Reduce: LastRecord, PerPerson: 3}
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	g, err := account.Guarantee(r)
	if err != nil || g.Person.Delta != 0 || g.Person.Epsilon < 3*g.Epsilon || g.Person.Epsilon > 3.0001 {
		t.Errorf("three devices: %v of %v, %v", g.Person, g.Loss, err)
	}
	if s := fmt.Sprint(g.Person); !strings.HasSuffix(s, "delta 0") {
		t.Errorf("a person loses %s", s)
	}
}

// TestPureRefused: where results may tell any amount with some chance, a delta of 0 is
// refused with the reason, by New and by who reads the recipe.
func TestPureRefused(t *testing.T) {
	relay := &Relay{URL: "https://relay.example/", Gateway: "https://leader.example/gateway"}
	for name, tc := range map[string]struct {
		change func(o *account.Options)
		why    string
	}{
		"gaussian":   {func(o *account.Options) { o.Kind = account.GaussianNoise }, "Gaussian noise lets a result tell any amount"},
		"stated":     {func(o *account.Options) { o.Noise = EachDraws(Rational{Num: 100, Den: 1}) }, "Gaussian noise lets a result tell any amount"},
		"randomized": {func(o *account.Options) { o.Query, o.Randomizer = Histogram{Length: 9}, KRR{Decimal{1, 0}} }, "reports that devices blur"},
		"coins": {func(o *account.Options) {
			o.Relay, o.Participation, o.Rate = relay, Bernoulli{Rational{Num: 1, Den: 10}}, &Rate{Devices: 100000, Units: 1}
		}, "dummies are too few"},
	} {
		o := pureOptions(Count{})
		tc.change(&o)
		if r, err := account.New(o); err == nil || !strings.Contains(err.Error(), tc.why) {
			t.Errorf("%s: %v, %v; want %q", name, r, err, tc.why)
		}
	}
	// A certificate with a delta is none for a recipe without, nor the other way round.
	pure, err := account.New(pureOptions(Count{}))
	if err != nil {
		t.Fatal(err)
	}
	o := pureOptions(Count{})
	o.Pure = false
	with, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"with a delta":       mustCertify(t, with),
		"with one after all": changed(t, mustCertify(t, pure), 0, func(c *certificate.Certificate) { c.Delta = 1e-30 }),
		"less than is lost":  changed(t, mustCertify(t, pure), 0, func(c *certificate.Certificate) { c.Epsilon *= 0.999 }),
		"more noise":         changed(t, mustCertify(t, pure), 0, func(c *certificate.Certificate) { c.Terms[0].Num++ }),
		"a smaller loss":     changed(t, mustCertify(t, pure), 0, func(c *certificate.Certificate) { c.Terms[0].Mu = math.Nextafter(c.Terms[0].Mu, 0) }),
	} {
		if err := check(pure, b); !errors.As(err, new(*CertificateError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	noisier := *pure
	noisier.Noise = EachDraws(Rational{Num: 100, Den: 1})
	if err := check(&noisier, mustCertify(t, pure)); err == nil {
		t.Error("a certificate of Laplace noise passes for Gaussian noise")
	}
	if err := noisier.Validate(); err == nil || !strings.Contains(err.Error(), "claim.delta") {
		t.Errorf("Gaussian noise at delta 0 is valid: %v", err)
	}
}

// TestLaplaceWords: a scale is said once where its four digits are all of it.
func TestLaplaceWords(t *testing.T) {
	for want, scale := range map[string]Rational{
		"of scale 2 to every": {Num: 2, Den: 1}, "of scale 2.5 (5/2) to every": {Num: 5, Den: 2}, "of scale 1.234e+04 (12345) to every": {Num: 12345, Den: 1},
	} {
		if got := (DiscreteLaplace{Scale: scale}).String(); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
