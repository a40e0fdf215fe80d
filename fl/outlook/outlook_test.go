package outlook

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/starling-agg/starling/fl/simulator"
	"github.com/starling-agg/starling/internal/binomial"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

func bernoulli(t *testing.T, rate string) recipe.Participation {
	t.Helper()
	p, err := recipe.ParseBernoulli(rate)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestNoiseIsThatOfRounds: simulated rounds of vectors of zeros have the deviation and the
// numbers of reports that are foretold. At 30 rounds of 200 entries the deviation is within
// 6.5 % (five standard errors), which fails by chance once in 10^6; seeds are fixed.
func TestNoiseIsThatOfRounds(t *testing.T) {
	const rounds, devices, dimension = 30, 600, 200
	for name, p := range map[string]recipe.Participation{"always": nil, "coins": bernoulli(t, "1/2")} {
		r, err := Options{Dimension: dimension, Devices: devices, Participation: p, Rounds: rounds}.Recipe()
		if err != nil {
			t.Fatal(err)
		}
		o, err := Of(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := simulator.New(r, simulator.Options{Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		var squares, reports float64
		for range rounds {
			sum, err := s.Round(t.Context(), devices, func(_ int, buf []float64) (simulator.Report, error) {
				clear(buf)
				return simulator.Report{Vector: buf}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range sum.Estimate {
				squares += x * x / devices / devices
			}
			reports += float64(sum.Reports)
		}
		if got := math.Sqrt(squares / rounds / dimension); math.Abs(got/o.Deviation-1) > 0.065 {
			t.Errorf("%s: noise of %.4g in the mean, foretold is %.4g", name, got, o.Deviation)
		}
		if got := reports / rounds; math.Abs(got-o.Reports) > 5*math.Sqrt(o.Reports/rounds) {
			t.Errorf("%s: %.1f reports a round, foretold are %.1f", name, got, o.Reports)
		}
		perServer, err := r.Noise.(recipe.DiscreteGaussian).PerServer()
		if err != nil {
			t.Fatal(err)
		}
		if want := math.Sqrt(perServer.Float()) / (1 << fracBits); math.Abs(o.Sigma/want-1) > 1e-6 {
			t.Errorf("%s: each server draws %.6g, want %.6g", name, o.Sigma, want)
		}
		if got, want := o.Signal*o.Deviation*math.Sqrt(dimension), 1.0; math.Abs(got-want) > 1e-12 {
			t.Errorf("%s: signal %g", name, o.Signal)
		}
	}
}

// TestSpent: the last point is the recipe's own guarantee, and costs only grow.
func TestSpent(t *testing.T) {
	r, err := Options{Dimension: 100, Devices: 5000, Participation: bernoulli(t, "1/10"), Rounds: 20}.Recipe()
	if err != nil {
		t.Fatal(err)
	}
	o, err := Of(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	g, err := account.Guarantee(r)
	if err != nil {
		t.Fatal(err)
	}
	last := o.Spent[len(o.Spent)-1]
	if o.Epsilon == nil || *o.Epsilon != g.Loss.Epsilon || last != (Point{20, g.Loss.Epsilon}) || *o.Epsilon > 4 {
		t.Errorf("%v of %v, want %g", last, o.Spent, g.Loss.Epsilon)
	}
	for i, p := range o.Spent[1:] {
		if p.Epsilon <= o.Spent[i].Epsilon || p.Rounds <= o.Spent[i].Rounds {
			t.Errorf("%v after %v", p, o.Spent[i])
		}
	}
	if !(*o.BothHonest < *o.Epsilon && *o.Epsilon < *o.Known) {
		t.Errorf("both honest %g, one %g, who reports is known %g", *o.BothHonest, *o.Epsilon, *o.Known)
	}
}

// TestFewer: the odds of a skipped round are those of the binomial sum.
func TestFewer(t *testing.T) {
	for _, c := range []struct {
		least, n uint64
		p        float64
	}{{20, 40, 0.5}, {1, 40, 0.05}, {30, 40, 0.5}, {41, 40, 0.5}, {500, 1000, 0.53}} {
		want := 0.0
		for k := range c.least {
			want += binomial.Mass(float64(c.n), float64(k), c.p)
		}
		if got := fewer(c.least, c.n, c.p); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v: %g, want %g", c, got, want)
		}
	}
	if fewer(5, 4, 1) != 1 || fewer(4, 4, 1) != 0 {
		t.Error("where all send, a round is skipped only if there are too few")
	}
}

// TestMake: a plan has what another choice would bring, and says what cannot be.
func TestMake(t *testing.T) {
	p, err := Make(Options{Dimension: 50, Devices: 4000, Participation: bernoulli(t, "1/8"), Rounds: 10}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Instead) != 4 || p.Instead[0].Signal < 1.9*p.Signal || p.Instead[1].Sigma >= p.Sigma || p.Instead[2].Answers != 4000 {
		t.Errorf("%+v", p.Instead)
	}
	var b bytes.Buffer
	if err := p.WriteText(&b, 80); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"500 answers", "Instead", "twice the devices", "if one server is honest"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in %s", want, &b)
		}
	}
	for _, line := range strings.Split(b.String(), "\n") {
		if len(line) > 80 && strings.HasPrefix(line, "  ") {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	if strings.Contains(b.String(), "skipped, though") || strings.Contains(b.String(), "Little will be learned") {
		t.Errorf("warns of nothing:\n%s", &b)
	}
	j, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"sigma", "expected_answers", "skipped", "signal_to_noise", "spent", "instead", "round_seconds"} {
		if !bytes.Contains(j, []byte(`"`+key+`":`)) {
			t.Errorf("no key %s", key)
		}
	}
	few, err := Make(Options{Dimension: 100000, Devices: 300, Rounds: 10, Participation: bernoulli(t, "1/2"), MinBatch: 90}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b.Reset(); few.WriteText(&b, 0) != nil || !strings.Contains(b.String(), "Little will be learned") || !strings.Contains(b.String(), "will be skipped, though") {
		t.Errorf("warns not:\n%s", &b)
	}
	for name, o := range map[string]Options{
		"no devices":    {Dimension: 10},
		"no numbers":    {Devices: 100},
		"few to sample": {Dimension: 10, Devices: 30, Participation: bernoulli(t, "1/10")},
	} {
		if _, err := Make(o, nil); !errors.As(err, new(*recipe.InvalidError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRecipesOfOthers: only a vector recipe with noise and a rate has an outlook.
func TestRecipesOfOthers(t *testing.T) {
	count, err := account.New(account.Options{Name: "x", Query: recipe.Count{}, Leader: "https://leader.example/", Helper: "https://helper.example/",
		MinBatch: 20, Epsilon: recipe.Decimal{Coefficient: 1}, Rate: &recipe.Rate{Devices: 100, Units: 1}})
	if err != nil {
		t.Fatal(err)
	}
	rateless, err := Options{Dimension: 10, Devices: 100}.Recipe()
	if err != nil {
		t.Fatal(err)
	}
	rateless.Rate = nil
	for name, r := range map[string]*recipe.Recipe{"count": count, "no rate": rateless} {
		if _, err := Of(r, nil); !errors.Is(err, ErrRecipe) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
