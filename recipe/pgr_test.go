package recipe_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/local"
	"github.com/starling-agg/starling/dp/local/localtest"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// projective asks for one of 21 buckets by projective geometry response of epsilon 2.
func projective(t *testing.T, change func(*account.Options)) *recipe.Recipe {
	t.Helper()
	o := account.Options{
		Name: "Ages", Query: recipe.Histogram{Length: 21}, Randomizer: recipe.PGR{Epsilon0: recipe.Decimal{Coefficient: 2}},
		Leader: "https://leader.example/", Helper: "https://helper.example/", MinBatch: 500,
	}
	if change != nil {
		change(&o)
	}
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestProjectiveRecipe: who asks for buckets gets the field nearest e^epsilon + 1 and a
// histogram of its points; bytes, task and JSON are of the points, and words of the
// buckets.
func TestProjectiveRecipe(t *testing.T) {
	r := projective(t, nil)
	z := recipe.PGR{Epsilon0: recipe.Decimal{Coefficient: 2}, Values: 21, Field: 7, Dimension: 3}
	if r.Randomizer != recipe.Randomizer(z) || r.Query.Aggregates() != 57 || r.Entries() != 21 {
		t.Fatalf("%+v of %+v", r.Randomizer, r.Query)
	}
	b := mustAppend(t, r)
	if want := "05" + "0010" + "000000000000000200" + "00000015" + "0007" + "03"; !strings.Contains(hex.EncodeToString(b), want) {
		t.Errorf("the randomizer is not %s in %x", want, b)
	}
	again, err := recipe.Read(b)
	if err != nil || again.Randomizer != r.Randomizer || !bytes.Equal(mustAppend(t, again), b) {
		t.Errorf("read back: %+v, %v", again, err)
	}
	if c, err := r.VDAFConfig(); err != nil || c.(dap.HistogramConfig).Length != 57 {
		t.Errorf("%+v, %v", c, err)
	}
	j, err := marshal(r)
	if err != nil || !bytes.Contains(j, []byte(`{"type":"pgr","params":{"dimension":3,"epsilon0":"2","field":7,"values":21}`)) {
		t.Errorf("%s, %v", j, err)
	}
	var out strings.Builder
	if err := describe(r, &out); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"each device names one of 21 buckets", "names one of 57 points", "projective geometry response, epsilon 2",
		"none from the servers; the devices' own is in every result",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}

// TestProjectiveGuarantee: without the crowd it is epsilon for replacement, with it less,
// and with more people less still; a certificate proves it.
func TestProjectiveGuarantee(t *testing.T) {
	last := 2.0
	for _, reports := range []uint64{500, 5000, 50000} {
		r := projective(t, func(o *account.Options) { o.MinBatch = reports })
		g, err := account.Guarantee(r)
		if err != nil {
			t.Fatal(err)
		}
		if !(g.Epsilon < last && g.Epsilon > 0) || g.Neighbours != release.ReplaceOne || !(g.Unconditional.Epsilon >= 2 && g.Unconditional.Epsilon < 2.0001) {
			t.Errorf("%d reports: %v, known %v; %v", reports, g.Loss, g.Unconditional, g.Neighbours)
		}
		if f, ok := g.Fallback(recipe.ServersCollude); !ok || f.Loss.Epsilon != g.Unconditional.Epsilon {
			t.Errorf("if the servers collude: %+v", f)
		}
		last = g.Epsilon
		c, err := account.Certify(r)
		if err != nil {
			t.Fatal(err)
		}
		proved, err := r.CheckCertificate(c)
		if err != nil || proved.Epsilon > g.Epsilon*1.01 {
			t.Errorf("the certificate proves %v, %v; the guarantee is %v", proved, err, g.Loss)
		}
		other := projective(t, func(o *account.Options) {
			o.MinBatch, o.Randomizer = reports, recipe.PGR{Epsilon0: recipe.Decimal{Coefficient: 21, Scale: 1}}
		})
		if _, err := other.CheckCertificate(c); err == nil {
			t.Error("the certificate is one of another epsilon, too")
		}
	}
}

// TestProjectiveRefused: spaces that there are not, that have no room, or that the query
// does not fit, and noise on top.
func TestProjectiveRefused(t *testing.T) {
	e := recipe.Decimal{Coefficient: 2}
	for name, c := range map[string]struct {
		change func(*recipe.Recipe)
		field  string
	}{
		"no prime":         {func(r *recipe.Recipe) { r.Randomizer = recipe.PGR{Epsilon0: e, Values: 21, Field: 8, Dimension: 3} }, "randomizer"},
		"a line":           {func(r *recipe.Recipe) { r.Randomizer = recipe.PGR{Epsilon0: e, Values: 2, Field: 7, Dimension: 1} }, "randomizer"},
		"huge":             {func(r *recipe.Recipe) { r.Randomizer = recipe.PGR{Epsilon0: e, Values: 21, Field: 4093, Dimension: 24} }, "randomizer"},
		"no room":          {func(r *recipe.Recipe) { r.Randomizer = recipe.PGR{Epsilon0: e, Values: 58, Field: 7, Dimension: 3} }, "randomizer"},
		"one value":        {func(r *recipe.Recipe) { r.Randomizer = recipe.PGR{Epsilon0: e, Values: 1, Field: 7, Dimension: 3} }, "randomizer"},
		"a larger one":     {func(r *recipe.Recipe) { r.Randomizer = recipe.PGR{Epsilon0: e, Values: 21, Field: 7, Dimension: 4} }, "query.length"},
		"the buckets":      {func(r *recipe.Recipe) { r.Query = recipe.WithChunk(recipe.Histogram{Length: 21}) }, "query.length"},
		"a count":          {func(r *recipe.Recipe) { r.Query = recipe.Count{} }, "query"},
		"no epsilon":       {func(r *recipe.Recipe) { r.Randomizer = recipe.PGR{Values: 21, Field: 7, Dimension: 3} }, "randomizer.epsilon0"},
		"noise":            {func(r *recipe.Recipe) { r.Noise = recipe.EachDraws(recipe.Rational{Num: 9, Den: 1}) }, "noise"},
		"labels of points": {func(r *recipe.Recipe) { r.Labels = slices.Repeat([]string{"x"}, 57) }, "labels"},
	} {
		r := projective(t, nil)
		c.change(r)
		if invalid := new(recipe.InvalidError); !errors.As(r.Validate(), &invalid) || invalid.Field != c.field {
			t.Errorf("%s: %v, want %s", name, r.Validate(), c.field)
		}
	}
	if _, err := projective(t, nil).Estimate(make([]int64, 21), 10); err == nil {
		t.Error("sums of as many places as there are buckets are estimated")
	}
	negative := make([]int64, 57)
	negative[3] = -1
	if _, err := projective(t, nil).Estimate(negative, 10); err == nil {
		t.Error("a negative number of one-hot reports is estimated")
	}
}

// TestProjectiveEstimate draws 60 batches of 4,000 devices with fixed seeds. Estimates
// are unbiased and have the variance that is said: each place's mean of 60 lies within 6
// of its deviations (false alarms: 2e-9 a place), and the sum of the squares of the 1,260
// normalised errors, which are nearly independent, within 6 of the deviations that it had
// were they normal, which with the constraint on their sum leaves less than 1e-6. Where
// the randomizer that is drawn is another one, the test sees it.
func TestProjectiveEstimate(t *testing.T) {
	const devices, batches, values = 4000, 60, 21
	r := projective(t, nil)
	z := r.Randomizer.(recipe.PGR)
	held := func(i int) int { return []int{0, 0, 0, 0, 1, 1, 20, i % values}[i%8] }
	var truth [values]float64
	for i := range devices {
		truth[held(i)]++
	}
	worst := func(epsilon float64) (mean, chi float64) {
		p, err := local.NewProjectiveOver(values, epsilon, uint64(z.Field), uint64(z.Dimension))
		if err != nil {
			t.Fatal(err)
		}
		var total, deviation [values]float64
		for b := range batches {
			var seed [32]byte
			binary.LittleEndian.PutUint64(seed[:], uint64(b))
			device := localtest.Seeded(p, seed)
			sums := make([]int64, r.Query.Aggregates())
			for i := range devices {
				y, err := device.Randomize(held(i))
				if err != nil {
					t.Fatal(err)
				}
				sums[y]++
			}
			e, err := r.Estimate(sums, devices)
			if err != nil {
				t.Fatal(err)
			}
			for x, v := range e.Values {
				total[x] += (v - truth[x]) / batches
				deviation[x] = math.Sqrt(r.ProjectiveVariance(truth[x], devices))
				chi += (v - truth[x]) * (v - truth[x]) / (deviation[x] * deviation[x])
			}
			if e.Devices != devices || e.Answers != devices || len(e.Values) != values {
				t.Fatalf("%v devices, %v answers, %d places", e.Devices, e.Answers, len(e.Values))
			}
		}
		for x := range total {
			mean = max(mean, math.Abs(total[x])*math.Sqrt(batches)/deviation[x])
		}
		const n = batches * values
		return mean, math.Abs(chi-n) / math.Sqrt(2*n)
	}
	if mean, chi := worst(2); mean > 6 || chi > 6 {
		t.Errorf("the worst mean is %.1f deviations off, and the squares %.1f", mean, chi)
	}
	if mean, _ := worst(1.5); mean < 6 {
		t.Errorf("another randomizer is told by %.1f deviations only", mean)
	}
}

// TestProjectiveDummies: from the reports that 10^9 devices are expected to send under
// coins, some of them dummies, the estimate is what went in, but for the rounding of
// sums.
func TestProjectiveDummies(t *testing.T) {
	half := recipe.Rational{Num: 1, Den: 2}
	r := projective(t, func(o *account.Options) {
		o.Participation, o.Rate, o.MinBatch = recipe.Bernoulli{Rate: half}, &recipe.Rate{Devices: 100_000, Units: 1}, 200
		o.Dummies = &recipe.Dummies{Rate: recipe.Rational{Num: 1, Den: 4}, Senders: 90_000, Allowance: 13_500}
		o.Relay = &recipe.Relay{URL: "https://relay.example/", Gateway: "https://leader.example/g"}
	})
	z := r.Randomizer.(recipe.PGR)
	p, err := local.NewProjectiveOver(int(z.Values), z.Epsilon0.FloatDown(), uint64(z.Field), uint64(z.Dimension))
	if err != nil {
		t.Fatal(err)
	}
	const devices = 1e9
	truth := map[int]float64{0: 0.5, 7: 0.3, 20: 0.2}
	own, _, none := p.Meets()
	points := p.Answers()
	sums := make([]int64, points)
	for y := range sums {
		one := make([]uint64, points)
		one[y] = 1
		meets, err := p.Meeting(one)
		if err != nil {
			t.Fatal(err)
		}
		expected := devices / 8. / float64(points) // a quarter of the half that does not report
		for x, share := range truth {
			chance := (1 - own) / (1 - none) / float64(points)
			if meets[x] == 1 {
				chance = own / none / float64(points)
			}
			expected += devices / 2 * share * chance
		}
		sums[y] = int64(math.Round(expected))
	}
	e, err := r.Estimate(sums, devices*5/8)
	if err != nil {
		t.Fatal(err)
	}
	for x, v := range e.Values {
		if math.Abs(v-devices*truth[x]) > 1000 {
			t.Errorf("bucket %d: %v, want %v", x, v, devices*truth[x])
		}
	}
	if math.Abs(e.Devices-devices) > 1 || math.Abs(e.Answers-devices/2) > 1 {
		t.Errorf("%v devices, %v answers", e.Devices, e.Answers)
	}
}

// TestProjectiveForecast: where all buckets are as frequent, the error of a forecast is
// below that of randomized response and that of RAPPOR with the same epsilon for
// replacement.
func TestProjectiveForecast(t *testing.T) {
	shares := make([]float64, 21)
	for i := range shares {
		shares[i] = 1. / 21
	}
	by := func(q recipe.Query, z recipe.Randomizer, shares []float64) float64 {
		r := projective(t, func(o *account.Options) { o.Query, o.Randomizer = q, z })
		return r.ForecastError(shares, 10000, true)
	}
	e, bit := recipe.Decimal{Coefficient: 2}, recipe.Decimal{Coefficient: 1} // of each of two bits
	pgr := func(shares []float64) float64 {
		return by(recipe.Histogram{Length: 21}, recipe.PGR{Epsilon0: e}, shares)
	}
	rappor := func(shares []float64) float64 {
		return by(recipe.Multihot{Length: 21}, recipe.RAPPOR{Epsilon0: bit}, shares)
	}
	response := by(recipe.Histogram{Length: 21}, recipe.KRR{Epsilon0: e}, shares)
	if got := pgr(shares); !(got < 0.95*response && got < 0.95*rappor(shares)) {
		t.Errorf("squared errors: %v by projective geometry, %v by randomized response, %v by RAPPOR", got, response, rappor(shares))
	}
}
