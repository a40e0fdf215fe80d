package figures

import (
	"math"
	"strconv"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/amplify"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/draw"
	"github.com/starling-agg/starling/internal/outward"
)

// A claim is a number of an example of paper 000 and what comes out here.
type claim struct {
	example string
	what    string
	states  string  // in the paper's words; empty for what the paper does not say
	value   float64 // rounded up
	method  string
	// differs says why the two differ; empty if they do not.
	differs string
}

// claims computes examples 3 to 6 of paper 000.
func claims() ([]claim, error) {
	var problem error
	must := func(g release.Guarantee, err error) release.Guarantee {
		if err != nil && problem == nil {
			problem = err
		}
		return g
	}
	value := func(v float64, err error) float64 {
		must(release.Guarantee{}, err)
		return v
	}
	curve := func(c *amplify.Curve, err error) func(delta float64) float64 {
		if err != nil {
			must(release.Guarantee{}, err)
			return func(float64) float64 { return math.NaN() }
		}
		return func(delta float64) float64 { return must(c.Epsilon(delta)).Epsilon }
	}
	const sigma, rate, rounds, delta = 5.1, 0.02, 2500, 1e-8
	sum := release.One(release.Gaussian{Sigma: sigma, Contribution: release.OneHot()})
	sampled := sum.Sampled(release.Poisson{Rate: rate})
	epsilon := func(m accountant.Method, r release.Release, count uint64, delta float64) float64 {
		return must(accountant.Options{Method: m}.Epsilon(release.Repeated([]release.Release{r}, count), delta, release.AddRemove)).Epsilon
	}
	calibrated, _, err := accountant.CalibrateGaussian(1, delta, release.OneHot(), release.AddRemove, 1)
	must(release.Guarantee{}, err)
	const local, batch, shuffleDelta = 4, 10_000, 1e-10
	general := curve(amplify.Shuffle(release.AnyReport(local), batch))(shuffleDelta)
	stronger := curve(amplify.Shuffle(release.ColumnsOf(local), batch))(shuffleDelta)
	closed := must(amplify.ShuffleSODA(release.ColumnsOf(local), batch, shuffleDelta)).Epsilon
	amplified := func(e float64) float64 { return must(accountant.PoissonSampledApproxDP(e, shuffleDelta, rate)).Epsilon }
	all := []claim{
		{"3", "σ for (1, 10^{−8}), textbook formula", "7", value(accountant.ClassicalGaussianSigma(1, delta, 1)),
			"closed form", "7 is rounded up generously"},
		{"3", "σ for (1, 10^{−8}), numerically", "5.1", calibrated, "analytic Gaussian",
			"5.1 is rounded down; Starling rounds σ up"},
		{"3", "ε of σ = 5.1 at 10^{−8}", "1", epsilon(accountant.Auto, sum, 1, delta), "analytic Gaussian",
			"the same, seen from the other side"},
		{"4", "ε_{0} = 4, B = 10,000, at 10^{−10}; RAPPOR's sums", "0.61", stronger, "stronger clone, exact sum", "0.61 is rounded up"},
		{"4", "the same, any randomizer", "0.61", general, "clone, exact sum",
			"the theorem behind 0.61 has an erratum: it holds for some randomizers only"},
		{"4", "the same, the paper's closed form", "", closed, "footnote 3",
			"outside the formula's range, where it proves ε_{0} and no more"},
		{"5", "one round, q = 0.02, by the amplification theorem", "0.034", must(accountant.PoissonSampledApproxDP(1, delta, rate)).Epsilon,
			"closed form", "rounded up; it is at δ = 2 · 10^{−10}"},
		{"5", "one round, whole curve, at 10^{−8}", "", epsilon(accountant.PLD, sampled, 1, delta), "pld",
			"the paper uses one point of the curve"},
		{"5", "2,500 rounds, at 10^{−8}", "0.8", epsilon(accountant.PLD, sampled, rounds, delta), "pld",
			"0.8 is not reached by any accounting: the lower bound is within 0.1 % of this"},
		{"5", "the same, by moments, as the paper says", "0.8", epsilon(accountant.RDP, sampled, rounds, delta), "rdp",
			"0.8 is what moments give at 10^{−5}"},
		{"5", "the same, by moments, at 10^{−5}", "", epsilon(accountant.RDP, sampled, rounds, 1e-5), "rdp", "so the paper's δ is a slip"},
		{"5", "δ of 2,500 rounds at ε = 0.8", "10^{−8}", must(accountant.Options{Method: accountant.PLD}.Delta(
			release.Repeated([]release.Release{sampled}, rounds), 0.8, release.AddRemove)).Delta, "pld", "as above"},
		{"5", "2,500 rounds without amplification", "above 100", epsilon(accountant.Auto, sum, rounds, delta), "analytic Gaussian", ""},
		{"5", "each in 50 known rounds", "8.3", epsilon(accountant.Auto, sum, 50, delta), "analytic Gaussian", "8.3 is rounded down"},
		{"6", "q = 0.02 of example 4's 0.61, at 2 · 10^{−12}", "below 0.02", amplified(0.61), "closed form", ""},
		{"6", "the same, any randomizer", "below 0.02", amplified(general), "closed form", "from 0.894 in place of 0.61"},
	}
	return all, problem
}

func examples(Options, *budget) (*output, error) {
	all, err := claims()
	if err != nil {
		return nil, err
	}
	out := &output{title: "Examples 3 to 6, recomputed", rows: [][]string{{"example", "quantity", "paper", "value", "method", "difference"}}}
	t := table{
		title:    out.title,
		subtitle: "Paper 000. Values are rounded up in their last digit",
		caption: "Sampled values hold for adding or removing one person, where nobody learns the exact number of reports; paper 000 leaves this " +
			"condition unsaid. Example 4's sums are those of RAPPOR's columns, for replacing one report by that of no value.",
		head:    []string{"", "quantity", "paper", "here", "by", "difference"},
		widths:  []float64{18, 252, 70, 76, 108, 200},
		numbers: []bool{false, false, true, true, false, false},
		bold:    3,
	}
	for _, c := range all {
		out.rows = append(out.rows, []string{c.example, draw.Plain(c.what), draw.Plain(c.states), number(c.value), c.method,
			draw.Plain(c.differs)})
		t.rows = append(t.rows, []string{c.example, c.what, c.states, ceiling(c.value, 5), c.method, c.differs})
	}
	out.picture = t.picture()
	return out, nil
}

// ceiling writes a value above zero with a number of significant digits, rounded up.
func ceiling(v float64, digits int) string {
	places := digits - 1 - int(math.Floor(math.Log10(v)))
	if v < 1e-3 {
		unit := math.Pow10(places - digits + 2)
		return power(outward.Whole(v*unit) / unit)
	}
	unit := math.Pow10(places)
	return strconv.FormatFloat(outward.Whole(v*unit)/unit, 'f', places, 64)
}
