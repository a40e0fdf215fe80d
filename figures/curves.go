package figures

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/internal/draw"
	"github.com/starling-agg/starling/internal/outward"
)

// A sheet is a figure of error curves: studies in rows and columns.
type sheet struct {
	title, subtitle, caption string
	columns, rows            []string
	studies                  [][]study
	from                     float64 // the least number of reports
	panelHeight              float64
}

// perDecade is how many points a calibrated curve has in each decade.
const perDecade = 10

// markedRates are where rings stand; 2 gN times them for rare values.
var markedRates = []float64{0.001, 0.01, 0.1}

// sizes are the numbers of reports at which curves are computed, perDecade in each decade
// and where a rate reaches one.
func (s study) sizes(from float64) []float64 {
	var all []float64
	steps := math.Round(math.Log10(s.people/from) * perDecade)
	for i := range int(steps) + 1 {
		all = append(all, from*math.Pow(s.people/from, float64(i)/steps))
	}
	all[len(all)-1] = s.people
	if s.rare > 0 {
		if kink := 2 * s.rare * s.people; kink > from && kink < s.people {
			all = append(all, kink)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// marked are the numbers of reports with a ring.
func (s study) marked(from float64) (all []float64) {
	for _, r := range markedRates {
		m := r * s.people
		if s.rare > 0 {
			m *= 2 * s.rare
		}
		if m >= outward.Down(from) {
			all = append(all, m)
		}
	}
	return all
}

// dense are sizes enough to show the steps of ceil(T M/N).
func (s study) dense(from float64) []float64 {
	const n = 120
	all := make([]float64, 0, 2*n)
	from *= 1.0001 // a curve does not begin with a step
	for i := range n + 1 {
		all = append(all, from*math.Pow(s.people/from, float64(i)/n))
	}
	for k := 1.0; k < 12; k++ { // both sides of the first steps
		if m := k * s.people / float64(s.tasks); m >= from && m < s.people {
			all = append(all, m, m*1.0001)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func curveJob(name string, f func(Options) sheet) job {
	return job{
		name:  name,
		needs: func(o Options) []need { return f(o).needs() },
		make:  func(o Options, b *budget) (*output, error) { return f(o).draw(b) },
	}
}

func (sh sheet) needs() []need {
	var all []need
	for _, row := range sh.studies {
		for _, s := range row {
			for _, m := range s.sizes(sh.from) {
				all = append(all, need{s.rate(m), s.tasks, accountant.RDP})
			}
			for _, m := range s.marked(sh.from) {
				all = append(all, need{s.rate(m), s.tasks, accountant.PLD})
			}
		}
	}
	return all
}

var (
	plainStroke   = draw.Stroke{Color: draw.Grey, Width: 1.2}
	preferStroke  = draw.Stroke{Color: draw.Grey, Width: 1.2, Dashes: []float64{4, 2.5}}
	aggStroke     = draw.Stroke{Color: draw.Vermilion, Width: 1.7}
	sampaggStroke = draw.Stroke{Color: draw.Blue, Width: 2}
)

// draw computes the curves and sets them.
func (sh sheet) draw(b *budget) (*output, error) {
	out := &output{title: sh.title}
	out.rows = [][]string{{"K", "T", "g", "M", "rate", "curve", "method", "sigma", "error"}}
	first := sh.studies[0][0]
	rare := first.rare > 0 || sh.studies[0][len(sh.studies[0])-1].rare > 0
	m := multiples{title: sh.title, subtitle: sh.subtitle, caption: sh.caption, columns: sh.columns, rows: sh.rows,
		panelHeight: sh.panelHeight}
	low, high := math.Inf(1), 0.0
	var words strings.Builder
	for _, row := range sh.studies {
		var panels []panel
		for _, s := range row {
			p, gain, err := sh.panel(s, b, func(size, rate float64, name, method string, sigma, v float64) {
				out.rows = append(out.rows, []string{number(s.alphabet), strconv.FormatUint(s.tasks, 10), number(s.rare),
					number(size), number(rate), name, method, number(sigma), number(v)})
				low, high = min(low, v), max(high, v)
			})
			if err != nil {
				return nil, err
			}
			panels = append(panels, p)
			fmt.Fprintf(&words, "K %s, T %d", number(s.alphabet), s.tasks)
			if s.rare > 0 {
				fmt.Fprintf(&words, ", g %s", number(s.rare))
			}
			fmt.Fprintf(&words, ": AGG has SAMPAGG's error %s; ", gain)
		}
		m.panels = append(m.panels, panels)
	}
	m.words = sh.subtitle + ". Expected squared error by number of reports. " + words.String() + sh.caption
	m.x = decades(sh.from, first.people, "reports to a task, M", 4)
	// An error above 10 is that of no estimate of a distribution any more.
	m.y = decades(low/1.6, min(high*1.6, 10), "expected squared error", 7)
	var plain []string
	if first.rare == 0 {
		plain = append(plain, "NONPRIV")
	}
	if rare {
		plain = append(plain, "NONPRIVUNIF")
	}
	m.legend = []key{{name: strings.Join(plain, ", "), stroke: plainStroke}}
	if rare {
		m.legend = append(m.legend, key{name: "NONPRIVIMPSAMP", stroke: preferStroke})
	}
	m.legend = append(m.legend, key{name: "AGG", stroke: aggStroke}, key{name: "SAMPAGG by RDP (moments)", stroke: sampaggStroke},
		key{name: "SAMPAGG by PLD", ring: draw.Blue})
	out.picture = m.picture()
	return out, nil
}

// panel computes one study; record takes each value. The gain says in words what sampling
// in secret is worth.
func (sh sheet) panel(s study, b *budget, record func(m, rate float64, name, method string, sigma, v float64)) (p panel, gain string, err error) {
	sampling, importance, agg, sampagg := curve{stroke: plainStroke}, curve{stroke: preferStroke}, curve{stroke: aggStroke},
		curve{stroke: sampaggStroke}
	sampling.name = "NONPRIV"
	if s.rare > 0 {
		sampling.name = "NONPRIVUNIF"
	}
	add := func(c *curve, m, v float64) { c.x, c.y = append(c.x, m), append(c.y, v) }
	for _, m := range s.sizes(sh.from) {
		add(&sampling, m, s.sampling(m))
		record(m, m/s.people, sampling.name, "", 0, s.sampling(m))
		if s.rare > 0 {
			add(&importance, m, s.importance(m))
			record(m, s.rate(m), "NONPRIVIMPSAMP", "", 0, s.importance(m))
		}
		sigma, err := b.secret(need{s.rate(m), s.tasks, accountant.RDP})
		if err != nil {
			return panel{}, "", err
		}
		add(&sampagg, m, s.secret(m, sigma))
		record(m, s.rate(m), "SAMPAGG", "rdp", sigma, s.secret(m, sigma))
	}
	for _, m := range s.dense(sh.from) {
		sigma := b.plain(s.releases(m))
		add(&agg, m, s.aggregated(m, sigma))
		record(m, m/s.people, "AGG", "analytic", sigma, s.aggregated(m, sigma))
	}
	r := rings{color: draw.Blue}
	for _, m := range s.marked(sh.from) {
		sigma, err := b.secret(need{s.rate(m), s.tasks, accountant.PLD})
		if err != nil {
			return panel{}, "", err
		}
		v := s.secret(m, sigma)
		r.x, r.y = append(r.x, m), append(r.y, v)
		record(m, s.rate(m), "SAMPAGG", "pld", sigma, v)
		// The note is about the second mark, or the only one.
		if len(r.x) == min(2, len(s.marked(sh.from))) {
			ratio := s.aggregated(m, b.plain(s.releases(m))) / v
			gain = fmt.Sprintf("× %s at M = %s", round(ratio), grouped(uint64(math.Round(m))))
		}
	}
	p.curves = []curve{sampling, agg, sampagg}
	if s.rare > 0 {
		p.curves = []curve{sampling, importance, agg, sampagg}
	}
	p.rings, p.note = []rings{r}, gain
	return p, gain, nil
}

// number writes a value for the CSV.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 9, 64) }

// round writes a ratio with two or three digits.
func round(v float64) string {
	if v < 10 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	unit := math.Pow(10, max(0, math.Floor(math.Log10(v))-2))
	return grouped(uint64(math.Round(v/unit) * unit))
}

const curveCaption = "In the corner: the error of AGG as a multiple of SAMPAGG's, at a ring. The paper's text does not say which N, K and " +
	"T its panels have: here they are options. SAMPAGG assumes that nobody learns the exact number of reports; dummy reports must " +
	"hide it."

func (o Options) privacy() string {
	return fmt.Sprintf("all tasks together (%s, %s)-DP, N = %s people", number(o.Epsilon), power(o.Delta), power(o.People))
}

// middle are the tasks of figures 2 and 3: three of four, else all.
func (o Options) middle() []uint64 {
	if len(o.Tasks) == 4 {
		return []uint64{o.Tasks[0], o.Tasks[2], o.Tasks[3]}
	}
	return o.Tasks
}

func taskName(t uint64) string {
	if t == 1 {
		return "one task"
	}
	return fmt.Sprintf("T = %s tasks", grouped(t))
}

func grouped(t uint64) string {
	s := strconv.FormatUint(t, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func figure1(o Options) sheet {
	k := o.Alphabets[0]
	return sheet{
		title:    "A secret sample costs less noise",
		subtitle: fmt.Sprintf("Paper 000, figure 1. One task, K = %s values, %s", power(k), o.privacy()),
		caption: "Left: everyone holds a value of a uniform distribution. Middle and right: only a fraction g of the people holds a " +
			"value other than the default, and the error is over those values. " + curveCaption,
		columns: []string{"uniform", "rare values, g = 0.1", "rare values, g = 0.01"},
		studies: [][]study{{{o.People, k, 1, 0}, {o.People, k, 1, 0.1}, {o.People, k, 1, 0.01}}},
		from:    o.People / 1000, panelHeight: 230,
	}
}

func figure2(o Options) sheet {
	k := o.Alphabets[0]
	sh := sheet{
		title:    "The more tasks share a budget, the more secrecy is worth",
		subtitle: fmt.Sprintf("Paper 000, figure 2. Uniform histogram, K = %s values, %s", power(k), o.privacy()),
		caption: "AGG has steps: a person is in ceil(T M/N) releases, and the noise is calibrated for as many. " +
			curveCaption,
		studies: make([][]study, 1), from: o.People / 1000, panelHeight: 230,
	}
	for _, t := range o.middle() {
		sh.columns = append(sh.columns, taskName(t))
		sh.studies[0] = append(sh.studies[0], study{o.People, k, t, 0})
	}
	return sh
}

func figure3(o Options) sheet {
	k := o.Alphabets[0]
	sh := sheet{
		title:    "Counting needles: prefer the rare values, in secret",
		subtitle: fmt.Sprintf("Paper 000, figure 3. K = %s values, a fraction g = 0.01 of the people holds one of them, %s", power(k), o.privacy()),
		caption: "Where M passes 2gN everyone with a rare value reports, nothing amplifies any more, and SAMPAGG is level. " +
			curveCaption,
		studies: make([][]study, 1), from: o.People / 10000, panelHeight: 230,
	}
	for _, t := range o.middle() {
		sh.columns = append(sh.columns, taskName(t))
		sh.studies[0] = append(sh.studies[0], study{o.People, k, t, 0.01})
	}
	return sh
}

// grid is all alphabets by all tasks.
func (o Options) grid(sh sheet, rare float64) sheet {
	for _, t := range o.Tasks {
		sh.columns = append(sh.columns, taskName(t))
	}
	for _, k := range o.Alphabets {
		sh.rows = append(sh.rows, "K = "+power(k))
		var row []study
		for _, t := range o.Tasks {
			row = append(row, study{o.People, k, t, rare})
		}
		sh.studies = append(sh.studies, row)
	}
	sh.panelHeight = 150
	return sh
}

func figure5(o Options) sheet {
	return o.grid(sheet{
		title:    "Uniform histograms, by alphabet and number of tasks",
		subtitle: "Paper 000, figure 5. " + strings.ToUpper(o.privacy()[:1]) + o.privacy()[1:],
		caption:  curveCaption,
		from:     o.People / 1000,
	}, 0)
}

func needles(o Options, rare float64) sheet {
	figure := map[float64]int{0.1: 6, 0.01: 7, 0.001: 8}[rare]
	return o.grid(sheet{
		title: fmt.Sprintf("Rare values, g = %s, by alphabet and number of tasks", number(rare)),
		subtitle: fmt.Sprintf("Paper 000, figure %d. A fraction g = %s of the people holds a value other than the default, %s",
			figure, number(rare), o.privacy()),
		caption: curveCaption,
		from:    o.People / 10000,
	}, rare)
}
