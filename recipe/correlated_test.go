package recipe_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/dp/release"
)

func mustSeries(t testing.TB, bands int, separation, rounds uint64) correlated.Series {
	t.Helper()
	s, err := correlated.SquareRoot(bands, 8)
	if err != nil {
		t.Fatal(err)
	}
	return correlated.Series{Strategy: s, Separation: separation, Rounds: rounds}
}

// running is a recipe with correlated noise: a histogram every hour, a device at most
// four times and every fifth hour.
func running(t testing.TB) *Recipe {
	r := doctor()
	r.Noise = CorrelatedGaussian{Variance: Rational{Num: 400, Den: 1}, Series: mustSeries(t, 4, 5, 24)}
	c := r.Claim.(ApproxDP)
	c.Rounds = 4
	r.Claim = c
	return r
}

func TestCorrelatedBytes(t *testing.T) {
	r := running(t)
	if err := account.Validate(r); err != nil {
		t.Fatal(err)
	}
	b := mustAppend(t, r)
	// Tag, length, 400/1, separation 5, 24 batches, 8 bits, coefficients 1/2, 3/8, 5/16.
	const want = "04" + "0027" + "0000000000000190" + "0000000000000001" + "00000005" + "00000018" + "08" + "000c" + "00000080" + "00000060" + "00000050"
	if !strings.Contains(hex.EncodeToString(b), want) {
		t.Fatalf("%x does not hold %s", b, want)
	}
	got, err := Read(b)
	if err != nil || got.Noise != r.Noise {
		t.Fatalf("read %+v, %v", got, err)
	}
	negative := running(t)
	s, err := correlated.New(8, []int32{-128, 3})
	if err != nil {
		t.Fatal(err)
	}
	negative.Noise = CorrelatedGaussian{Variance: Rational{Num: 400, Den: 1}, Series: correlated.Series{Strategy: s, Separation: 5, Rounds: 24}}
	if got, err := Read(mustAppend(t, negative)); err != nil || got.Noise != negative.Noise {
		t.Errorf("negative coefficients: %+v, %v", got, err)
	}
	for name, bad := range map[string]string{
		"last coefficient 0": strings.Replace(want, "00000060"+"00000050", "00000060"+"00000000", 1),
		"above 1":            strings.Replace(want, "00000080", "00000101", 1),
		"17 bits":            strings.Replace(want, "00000018"+"08", "00000018"+"11", 1),
		"too many batches":   strings.Replace(want, "00000018", "00010001", 1),
		"half a coefficient": strings.Replace(strings.Replace(want, "000c"+"00000080", "000a"+"0080", 1), "0027", "0025", 1),
		"longer":             strings.Replace(want, "0027", "0028", 1) + "00",
	} {
		raw, err := hex.DecodeString(strings.Replace(hex.EncodeToString(b), want, bad, 1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Read(raw); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.Noise = CorrelatedGaussian{Variance: Rational{Num: 400, Den: 1}, Series: mustSeries(t, 4, 1<<32, 24)}
	if _, err := r.Append(nil); err == nil {
		t.Error("a separation of 2^32 was written")
	}
	r.Noise = CorrelatedGaussian{Variance: Rational{Num: 400, Den: 1}}
	if _, err := r.Append(nil); err == nil {
		t.Error("noise without a strategy was written")
	}
}

func TestCorrelatedRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Recipe, *CorrelatedGaussian)
		field  string
	}{
		{"no variance", func(_ *Recipe, n *CorrelatedGaussian) { n.Variance = Rational{} }, "noise.variance"},
		{"little variance", func(_ *Recipe, n *CorrelatedGaussian) { n.Variance = Rational{Num: 1, Den: 1 << 19} }, "noise"},
		{"much variance", func(_ *Recipe, n *CorrelatedGaussian) { n.Variance = Rational{Num: 1 << 50, Den: 1} }, "noise"},
		{"close rounds", func(_ *Recipe, n *CorrelatedGaussian) { n.Series.Separation = 3 }, "noise"},
		{"no batches", func(_ *Recipe, n *CorrelatedGaussian) { n.Series.Rounds = 0 }, "noise"},
		{"independent", func(_ *Recipe, n *CorrelatedGaussian) { n.Series = mustSeries(t, 1, 5, 24) }, "noise.coefficients"},
		{"leader selected", func(r *Recipe, _ *CorrelatedGaussian) {
			p := r.Path.(TwoServer)
			p.BatchMode = dap.LeaderSelected
			r.Path = p
		}, "path.batch_mode"},
		{"coins", func(r *Recipe, _ *CorrelatedGaussian) { r.Participation = Bernoulli{Rational{Num: 1, Den: 2}} }, "participation"},
		{"both servers", func(r *Recipe, _ *CorrelatedGaussian) {
			c := r.Claim.(ApproxDP)
			c.HonestServers = 2
			r.Claim = c
		}, "claim.honest_servers"},
		{"device noise too", func(r *Recipe, _ *CorrelatedGaussian) { r.Randomizer = KRR{Decimal{1, 0}} }, "noise"},
	} {
		r := running(t)
		n := r.Noise.(CorrelatedGaussian)
		c.change(r, &n)
		r.Noise = n
		var found bool
		for _, err := range unjoin(account.Validate(r)) {
			var invalid *InvalidError
			found = found || errors.As(err, &invalid) && invalid.Field == c.field
		}
		if !found {
			t.Errorf("%s: %v, want %s", c.name, account.Validate(r), c.field)
		}
	}
}

func unjoin(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		return j.Unwrap()
	}
	return []error{err}
}

// The guarantee is that of the event worked out by hand, whatever the number of batches;
// the claim is held to it.
func TestCorrelatedGuarantee(t *testing.T) {
	r := running(t)
	g, err := account.Guarantee(r)
	if err != nil {
		t.Fatal(err)
	}
	// One bucket of a histogram for another moves the sum by sqrt 2; |c|^2 = 1 + 1/4 +
	// 9/64 + 25/256.
	norm := 1 + 1.0/4 + 9.0/64 + 25.0/256
	want, err := accountant.Epsilon([]release.Release{release.One(release.ZCDP{Rho: 4 * norm * 2 / (2 * 400)})}, 1e-9, release.ReplaceOne)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(g.Epsilon-want.Epsilon) > 1e-9 || g.Rounds != 4 || g.Neighbours != release.ReplaceOne {
		t.Errorf("%+v, want epsilon %v", g, want.Epsilon)
	}
	text := strings.Join(g.Assumptions, "\n")
	for _, words := range []string{"at most 4 rounds", "at least 5 rounds apart (5 hours), which the device itself sees to", "one of the leader and the helper"} {
		if !strings.Contains(text, words) {
			t.Errorf("assumptions %q do not say %q", text, words)
		}
	}
	if _, ok := account.BothHonest(r); ok {
		t.Error("two honest servers are counted")
	}
	if f, ok := g.Fallback(ServersCollude); !ok || f.Loss.Finite() {
		t.Errorf("fallbacks %+v", g.Fallbacks)
	}
	last := 0.0
	for k := uint32(1); k <= 4; k++ {
		l, err := account.LossAfter(r, k)
		if err != nil || !(l.Epsilon > last) {
			t.Fatalf("after %d rounds: %v, %v", k, l, err)
		}
		last = l.Epsilon
	}
	if last != g.Epsilon {
		t.Errorf("the ledger charges %v, the recipe says %v", last, g.Epsilon)
	}
	if rule := r.DeviceRule(); rule != (DeviceRule{4, 5}) {
		t.Errorf("device rule %+v", rule)
	}
	if rule := doctor().DeviceRule(); rule != (DeviceRule{1, 1}) {
		t.Errorf("device rule %+v without correlated noise", rule)
	}
	c := r.Claim.(ApproxDP)
	c.Epsilon = Decimal{1, 1}
	r.Claim = c
	var claim *ClaimError
	if err := account.Validate(r); !errors.As(err, &claim) {
		t.Errorf("a claim of 0.1: %v", err)
	}
}

// account.New calibrates: within the claim, and a hair less noise is not. Vectors and
// their room as well.
func TestNewCorrelated(t *testing.T) {
	for name, q := range map[string]Query{"histogram": Histogram{Length: 21}, "vector": Vector{Dimension: 1000, Bound: 1 << 12, FracBits: 12}} {
		o := account.Options{
			Name: "Running means", Query: q, Leader: "https://leader.example/", Helper: "https://helper.example/", MinBatch: 1000,
			Epsilon: Decimal{2, 0}, Delta: Decimal{1, 8}, Rounds: 3, Kind: account.CorrelatedNoise, Series: mustSeries(t, 8, 10, 100),
		}
		r, err := account.New(o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		n := r.Noise.(CorrelatedGaussian)
		g, err := account.Guarantee(r)
		if err != nil || g.Epsilon > 2 || g.Epsilon < 1.999 || n.Series != o.Series {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
		e := n.Errors(100)
		if got, want := r.NoiseVariance(), 2*e.Round[99]; got != want || got < 2*n.Variance.Float() {
			t.Errorf("%s: noise variance %v, want %v", name, got, want)
		}
		if most, ok := r.MostReports(); name == "vector" && (!ok || most < 1000) {
			t.Errorf("room for %d reports, %v", most, ok)
		}
		if independent := 100 * n.Independent(); e.Prefix[99] > independent/4 {
			t.Errorf("%s: the sum has variance %v, with independent noise %v", name, e.Prefix[99], independent)
		}
		o.Series.Separation = 7
		var invalid *InvalidError
		if _, err := account.New(o); !errors.As(err, &invalid) || invalid.Field != "noise" {
			t.Errorf("%s: too close: %v", name, err)
		}
	}
}

func TestCorrelatedDescribed(t *testing.T) {
	r := running(t)
	var b strings.Builder
	if err := describe(r, &b); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(b.String()), " ")
	for _, words := range []string{
		"of which later batches take back a part", "each reaching 4 batches, for up to 24 batches in the order of time",
		"over all of up to 24 batches together, with its reports in at most 4 of them",
		"in the sum over all 24", "correlated-noise.md",
	} {
		if !strings.Contains(text, words) {
			t.Errorf("%s\ndoes not say %q", b.String(), words)
		}
	}
	raw, err := marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var out struct {
		Noise struct {
			Type   string
			Params struct {
				Variance           string
				Separation, Rounds int
				Bits               int
				Coefficients       []int
			}
		}
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	if p := out.Noise.Params; out.Noise.Type != "correlated-gaussian" || p.Variance != "400" || p.Separation != 5 || p.Rounds != 24 || p.Bits != 8 || len(p.Coefficients) != 3 {
		t.Errorf("JSON %+v", out)
	}
	for units, want := range map[uint64]string{1: "60 minutes", 2: "2 hours", 50: "2.083 days"} {
		if got := Duration(units, 3600); got != want {
			t.Errorf("%d hours are written %q", units, got)
		}
	}
	if got := Duration(30, 1); got != "30 seconds" {
		t.Errorf("30 seconds are written %q", got)
	}
}
