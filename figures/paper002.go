package figures

import (
	"fmt"
	"math"
	"strconv"

	"github.com/starling-agg/starling/dp/local"
	"github.com/starling-agg/starling/internal/draw"
)

// groupBits is what all devices together send in figure 2 of paper 002.
const groupBits = 500

// A grouping is a panel of figure 2 of paper 002: the probabilities of the value 1 in the
// first and the second of two groups of values +-1.
type grouping struct {
	name string
	ones [2]float64
	any  bool // any distributions; ones does not matter
}

var groupings = []grouping{
	{name: "p_{1}(1) = 0.5, p_{2}(1) = 0.7", ones: [2]float64{0.5, 0.7}},
	{name: "p_{1}(1) = 0.3, p_{2}(1) = 0.7", ones: [2]float64{0.3, 0.7}},
	{name: "p_{1}(1) = 0.1, p_{2}(1) = 0.9", ones: [2]float64{0.1, 0.9}},
	{name: "any distributions", any: true},
}

// distributions are those of the values of each group, -1 first.
func (g grouping) distributions() [][]float64 {
	return [][]float64{{1 - g.ones[0], g.ones[0]}, {1 - g.ones[1], g.ones[1]}}
}

// lies returns the least probabilities of lies that hide the group to epsilon: lambda of
// question & answer, gamma and omega of the randomized group.
func (g grouping) lies(epsilon float64) (lambda, gamma, omega float64, err error) {
	least, most := 0.0, 1.0
	if g.any {
		lambda, err = local.QuestionLie(1, epsilon)
	} else {
		least = min(g.ones[0], 1-g.ones[0], g.ones[1], 1-g.ones[1])
		most = 1 - least
		lambda, err = local.QuestionLieFor(g.distributions(), epsilon)
	}
	if err != nil {
		return 0, 0, 0, err
	}
	gamma, omega, err = local.RandomGroupLies(2, 1, epsilon, least, most, 1)
	return lambda, gamma, omega, err
}

// groupUsers is how many devices have groupBits together, by scheme.
func groupUsers() (question, random float64, err error) {
	q, err := local.NewQuestionLying(2, 1, 0)
	if err != nil {
		return 0, 0, err
	}
	r, err := local.NewRandomGroup(2, 1, 0, 0)
	if err != nil {
		return 0, 0, err
	}
	return float64(groupBits / q.Bits()), float64(groupBits / r.Bits()), nil
}

// groups is figure 2 of paper 002.
func groups(o Options, _ *budget) (*output, error) {
	const from, to, steps = 0.05, 8.0, 120
	asked, told, err := groupUsers()
	if err != nil {
		return nil, err
	}
	out := &output{title: "Sums by a secret group, by question or at random",
		rows: [][]string{{"p1", "p2", "epsilon", "scheme", "users", "lie_value", "lie_group", "normalised_error"}}}
	m := multiples{
		title: out.title,
		subtitle: fmt.Sprintf("Paper 002, figure 2. Two groups, values ±1, %d bits from all devices together: %v devices for question & answer, %v for the randomized group",
			groupBits, asked, told),
		caption: "The squared error of both sums over n^{2}, at the least lies that hide the group to ε. Dashed: the value is lied about too (λ, λ_{vl} > 0); " +
			"the paper's λ_{vl} is not known, here it is that of the least error. In the corner: which has the smaller error. Right: for any distributions of the values.",
		y:           decades(1e-3, 30, "normalised mean square error", 6),
		x:           axis{low: from, high: to, log: true, ticks: []float64{0.1, 0.3, 1, 3}, label: "ε, for the group", format: number},
		panelHeight: 260,
		legend: []key{
			{name: "question & answer", stroke: draw.Stroke{Color: draw.Blue, Width: 1.9}},
			{name: "randomized group", stroke: draw.Stroke{Color: draw.Vermilion, Width: 1.9}},
			{name: "values hidden too", stroke: draw.Stroke{Color: draw.Ink, Width: 1.6, Dashes: valuesHidden}},
		},
		panels: make([][]panel, 1),
	}
	m.words = m.subtitle + ". "
	for _, g := range groupings {
		m.columns = append(m.columns, g.name)
		question, random := split{color: draw.Blue}, split{color: draw.Vermilion}
		first, last := 0.0, 0.0 // where question & answer has the smaller error
		for i := range steps + 1 {
			epsilon := from * math.Pow(to/from, float64(i)/steps)
			lambda, gamma, omega, err := g.lies(epsilon)
			if err != nil {
				return nil, err
			}
			q := local.QuestionAlpha(1, 2, lambda, 1) / asked
			r := local.RandomGroupAlpha(1, 2, gamma, omega, 1) / told
			question.add(epsilon, q, lambda > 0)
			random.add(epsilon, r, omega > 0)
			if q < r {
				if last = epsilon; first == 0 {
					first = epsilon
				}
			}
			ones := [2]string{number(g.ones[0]), number(g.ones[1])}
			if g.any {
				ones = [2]string{"any", "any"}
			}
			out.rows = append(out.rows,
				[]string{ones[0], ones[1], number(epsilon), "QA", number(asked), number(lambda), "0", number(q)},
				[]string{ones[0], ones[1], number(epsilon), "RG", number(told), number(omega), number(gamma), number(r)})
		}
		note := "RG for all ε"
		switch {
		case first == from:
			note = "Q&A up to ε = " + strconv.FormatFloat(last, 'g', 2, 64)
		case first > 0:
			note = fmt.Sprintf("Q&A for ε from %.2g to %.2g", first, last)
		}
		m.words += draw.Plain(g.name) + ": " + note + ". "
		drawn := panel{curves: append(question.curves, random.curves...), note: note}
		if o.Measured {
			q, r := rings{color: draw.Blue}, rings{color: draw.Vermilion}
			for _, epsilon := range groupEpsilons {
				asks, tells, err := measuredGroups(g, epsilon, o.runs(groupRuns))
				if err != nil {
					return nil, err
				}
				q.x, q.y, r.x, r.y = append(q.x, epsilon), append(q.y, asks), append(r.x, epsilon), append(r.y, tells)
				ones := [2]string{number(g.ones[0]), number(g.ones[1])}
				if g.any {
					ones = [2]string{"any", "any"}
				}
				out.rows = append(out.rows, []string{ones[0], ones[1], number(epsilon), "QA measured", number(asked), "", "", number(asks)},
					[]string{ones[0], ones[1], number(epsilon), "RG measured", number(told), "", "", number(tells)})
			}
			drawn.rings = []rings{q, r}
		}
		m.panels[0] = append(m.panels[0], drawn)
	}
	if o.Measured {
		m.caption += fmt.Sprintf(" Rings: the mean of %d runs of the answers and the estimates themselves, made just now.", o.runs(groupRuns))
		m.legend = append(m.legend, key{name: "measured", ring: draw.Ink})
	}
	m.words += m.caption
	out.picture = m.picture()
	return out, nil
}

var valuesHidden = []float64{4, 2.5}

// A split is a curve that is dashed in parts.
type split struct {
	color  draw.Color
	curves []curve
	dashed bool
}

func (s *split) add(x, y float64, dashed bool) {
	if len(s.curves) == 0 || dashed != s.dashed {
		next := curve{stroke: draw.Stroke{Color: s.color, Width: 1.9}}
		if dashed {
			next.stroke.Dashes = valuesHidden
		}
		if n := len(s.curves); n > 0 { // it goes on from where the last one ends
			last := s.curves[n-1]
			next.x, next.y = last.x[len(last.x)-1:], last.y[len(last.y)-1:]
		}
		s.curves, s.dashed = append(s.curves, next), dashed
	}
	c := &s.curves[len(s.curves)-1]
	c.x, c.y = append(c.x, x), append(c.y, y)
}
