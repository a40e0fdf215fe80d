package figures

import (
	"fmt"
	"math"
	"strconv"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/amplify"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/draw"
)

// shufflingDelta is that of paper 004, figure 2.
const shufflingDelta = 1e-6

// shuffling is figure 2 of paper 004.
func shuffling(Options, *budget) (*output, error) {
	users := []struct {
		n     uint64
		color draw.Color
	}{{1e3, draw.Vermilion}, {1e4, draw.Orange}, {1e5, draw.Green}, {1e6, draw.Blue}}
	const steps = 45
	out := &output{title: "Shuffling, by three proofs",
		rows: [][]string{{"n", "epsilon0", "bound", "epsilon"}}}
	identity := curve{stroke: draw.Stroke{Color: draw.Pale, Width: 2.2}}
	var p panel
	for _, u := range users {
		ours := curve{stroke: draw.Stroke{Color: u.color, Width: 1.9}, label: "n = " + power(float64(u.n))}
		old := curve{stroke: draw.Stroke{Color: u.color, Width: 1.5, Dashes: []float64{1.5, 2.5}}}
		exact := rings{color: u.color}
		for i := range steps + 1 {
			e0 := 0.1 + 0.9*float64(i)/steps
			theorem, err := amplify.ShuffleBKMTT(amplify.LocalDP{Report: release.AnyReport(e0)}, u.n, shufflingDelta)
			if err != nil {
				return nil, err
			}
			before, err := amplify.ShuffleEFMRTT(release.AnyReport(e0), u.n, shufflingDelta)
			if err != nil {
				return nil, err
			}
			for _, l := range []struct {
				c    *curve
				name string
				g    release.Guarantee
			}{{&ours, "Theorem 5.1", theorem}, {&old, "EFMRTT19", before}} {
				out.rows = append(out.rows, []string{strconv.FormatUint(u.n, 10), number(e0), l.name, number(l.g.Epsilon)})
				// A bound that is not below epsilon0 says nothing; the paper cuts the
				// curve there.
				if l.g.Epsilon < e0 {
					l.c.x, l.c.y = append(l.c.x, e0), append(l.c.y, l.g.Epsilon)
				}
			}
		}
		for _, e0 := range []float64{0.25, 0.5, 0.75, 1} {
			c, err := amplify.Shuffle(release.AnyReport(e0), u.n)
			if err != nil {
				return nil, err
			}
			g, err := c.Epsilon(shufflingDelta)
			if err != nil {
				return nil, err
			}
			exact.x, exact.y = append(exact.x, e0), append(exact.y, g.Epsilon)
			out.rows = append(out.rows, []string{strconv.FormatUint(u.n, 10), number(e0), "clones, exact sum", number(g.Epsilon)})
		}
		p.curves = append(p.curves, ours, old)
		p.rings = append(p.rings, exact)
	}
	for i := range steps + 1 {
		e0 := 0.1 + 0.9*float64(i)/steps
		identity.x, identity.y = append(identity.x, e0), append(identity.y, e0)
	}
	p.curves = append([]curve{identity}, p.curves...)
	m := multiples{
		title:    out.title,
		subtitle: "Paper 004, figure 2. n users, each with an ε_{0}-DP local randomizer, shuffled; δ = 10^{−6}",
		caption: "Curves end where they reach the grey line, above which shuffling would gain nothing. The rings are not in the paper: " +
			"the clone bound of Feldman, McMillan and Talwar (2021), summed exactly, which is what Starling claims.",
		panels: [][]panel{{p}},
		x: axis{low: 0.1, high: 1, ticks: []float64{0.2, 0.4, 0.6, 0.8, 1}, label: "ε_{0} of each user's randomizer",
			format: func(v float64) string { return strconv.FormatFloat(v, 'g', 2, 64) }},
		y: decades(5e-4, 1.3, "ε after shuffling", 6),
		legend: []key{
			{name: "Theorem 5.1", stroke: draw.Stroke{Color: draw.Ink, Width: 1.9}},
			{name: "EFMRTT19, theorem 7", stroke: draw.Stroke{Color: draw.Ink, Width: 1.5, Dashes: []float64{1.5, 2.5}}},
			{name: "no amplification", stroke: identity.stroke},
			{name: "clones, exact sum", ring: draw.Ink},
		},
		panelHeight: 320, right: 62,
	}
	last := func(i int) string {
		y := p.rings[i].y
		return strconv.FormatFloat(y[len(y)-1], 'g', 3, 64)
	}
	m.words = m.subtitle + fmt.Sprintf(". At ε_{0} = 1 the exact clone bounds are %s, %s, %s and %s for 10^{3} to 10^{6} users. ", last(0), last(1), last(2), last(3)) + m.caption
	out.picture = m.picture()
	return out, nil
}

// A source is a row of table 1 of paper 004.
type source struct {
	name   string
	states string
	// exponent is k in e^(k epsilon0), the growth that the paper states.
	exponent float64
	// bound is epsilon at delta for n one-user updates; +Inf where it does not apply.
	bound func(e0 float64, n uint64, delta float64) (release.Guarantee, error)
	// tight is the best that Starling proves for the same; nil if that is bound itself.
	tight func(e0 float64, n uint64, delta float64) (release.Guarantee, error)
}

func sources() []source {
	clones := func(e0 float64, n uint64, delta float64) (release.Guarantee, error) {
		c, err := amplify.Shuffle(release.AnyReport(e0), n)
		if err != nil {
			return release.Guarantee{}, err
		}
		return c.Epsilon(delta)
	}
	checkIn := func(n uint64) amplify.CheckIn {
		return amplify.CheckIn{Schedule: release.FixedWindow, Slots: n, Rate: 1}
	}
	return []source{
		{"None", "ε_{0}", 0, func(e0 float64, _ uint64, delta float64) (release.Guarantee, error) {
			return release.Guarantee{Epsilon: e0}, nil
		}, nil},
		{"Uniform subsampling", "exp(ε_{0}) / √n", 1, subsampling, subsamplingExact},
		{"Shuffling (EFMRTT19)", "exp(3 ε_{0}) / √n", 3, func(e0 float64, n uint64, delta float64) (release.Guarantee, error) {
			return amplify.ShuffleEFMRTT(release.AnyReport(e0), n, delta)
		}, clones},
		{"Shuffling (theorem 5.1)", "exp(2.5 ε_{0}) / √n", 2.5, func(e0 float64, n uint64, delta float64) (release.Guarantee, error) {
			return amplify.ShuffleBKMTT(amplify.LocalDP{Report: release.AnyReport(e0)}, n, delta)
		}, clones},
		{"Random check-ins, fixed window (theorem 3.2)", "exp(1.5 ε_{0}) / √n", 1.5, func(e0 float64, n uint64, delta float64) (release.Guarantee, error) {
			return checkIn(n).Theorem(amplify.LocalDP{Report: release.AnyReport(e0)}, delta, 0)
		}, func(e0 float64, n uint64, delta float64) (release.Guarantee, error) {
			c, err := checkIn(n).Curve(release.AnyReport(e0), release.ReplaceOne)
			if err != nil {
				return release.Guarantee{}, err
			}
			return c.Epsilon(delta)
		}},
	}
}

// subsampling is n steps that each use one of n users: amplification to ln(1 + (e^e0 -
// 1)/n), then advanced composition.
func subsampling(e0 float64, n uint64, delta float64) (release.Guarantee, error) {
	step := math.Log1p(math.Expm1(e0) / float64(n))
	return accountant.AdvancedComposition(step, 0, n, delta, release.ReplaceOne)
}

// subsamplingExact composes the n amplified steps exactly.
func subsamplingExact(e0 float64, n uint64, delta float64) (release.Guarantee, error) {
	step := math.Log1p(math.Expm1(e0) / float64(n))
	return accountant.Epsilon([]release.Release{release.Times(n, release.ApproxDP{Epsilon: step})}, delta, release.ReplaceOne)
}

// amplification is table 1 of paper 004 with numbers.
func amplification(Options, *budget) (*output, error) {
	const n, far = 1_000_000, 1_000_000_000_000
	out := &output{title: "Five ways to hide one user among n", rows: [][]string{{"source", "paper_exponent_epsilon0",
		"exponent_epsilon0", "exponent_n", "epsilon_at_epsilon0_1", "epsilon_at_epsilon0_2", "tightest_at_epsilon0_2"}}}
	t := table{
		title:    out.title,
		subtitle: "Paper 004, table 1, with numbers. n updates by n users, one each; δ = 10^{−6}",
		caption: "The paper states growth and hides logarithms. Growth here is measured on the formulas behind it: ε between ε_{0} = 3 and 4, and n " +
			"between 10^{11} and 10^{12}, where the leading term leads. ε_{0} itself is no amplification. The last column is what Starling proves: " +
			"exact compositions, the clone bound, and for check-ins the clone bound with n slots. Check-ins pay by dummy updates, which the others do not have.",
		head: []string{"source", "paper", "measured growth of ε", "ε_{0} = 1, n = 10^{6}", "ε_{0} = 2, n = 10^{6}",
			"ε_{0} = 2, tightest here"},
		widths:  []float64{232, 92, 148, 84, 84, 84},
		numbers: []bool{false, false, false, true, true, true},
		bold:    5,
	}
	for _, s := range sources() {
		var problem error
		at := func(bound func(float64, uint64, float64) (release.Guarantee, error), e0 float64, n uint64) float64 {
			g, err := bound(e0, n, shufflingDelta)
			if err != nil && problem == nil {
				problem = fmt.Errorf("%s: %w", s.name, err)
			}
			return g.Epsilon
		}
		tight := s.tight
		if tight == nil {
			tight = s.bound
		}
		inEpsilon := math.Log(at(s.bound, 4, far) / at(s.bound, 3, far))
		inUsers := math.Log10(at(s.bound, 3, far) / at(s.bound, 3, far/10))
		one, two, best := at(s.bound, 1, n), at(s.bound, 2, n), at(tight, 2, n)
		if problem != nil {
			return nil, problem
		}
		growth := fmt.Sprintf("exp(%.2f ε_{0}) · n^{−%.2f}", inEpsilon, -inUsers)
		if s.exponent == 0 {
			growth, inEpsilon = "ε_{0}", 0
		}
		t.rows = append(t.rows, []string{s.name, s.states, growth, ceiling(one, 3), ceiling(two, 3), ceiling(best, 3)})
		out.rows = append(out.rows, []string{s.name, number(s.exponent), number(inEpsilon), number(inUsers), number(one), number(two), number(best)})
	}
	out.picture = t.picture()
	return out, nil
}
