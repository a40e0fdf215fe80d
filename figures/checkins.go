package figures

import (
	"fmt"
	"math"
	"strconv"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/fl/checkin"
	"github.com/starling-agg/starling/internal/draw"
)

// Of the convex problem that check-ins are measured by.
const (
	checkedClients = 4000
	checkedEntries = 20
	checkedSigma   = 0.5
	checkedLean    = 0.5
	checkedSeeds   = 10
)

// checkIns measures the protocols of paper 004 as they are stated: excess risk by theorem
// 3.5's and 4.2's step sizes, and dummy updates.
func checkIns(o Options, _ *budget) (*output, error) {
	out := &output{title: "Random check-ins, as they run", rows: [][]string{{"protocol", "clients", "slots", "p0", "runs", "updates", "dummy_updates",
		"dummy_updates_expected", "largest_slot", "excess_risk_mean", "excess_risk_standard_error", "theorem_rate_without_constants"}}}
	type way struct {
		name   string
		stroke draw.Stroke
		slots  []int
		of     func(m int) checkin.Options
	}
	few := []int{40, 100, 250, 600, 1500, 4000}
	ways := []way{
		{"fixed windows (algorithm 1)", draw.Stroke{Color: draw.Blue, Width: 1.9}, few, func(m int) checkin.Options {
			return checkin.Options{Schedule: release.FixedWindow, Slots: m, Rate: 1}
		}},
		{"averages (algorithm 2)", draw.Stroke{Color: draw.Vermilion, Width: 1.9}, few, func(m int) checkin.Options {
			return checkin.Options{Schedule: release.AveragedWindow, Slots: m, Rate: 1}
		}},
		{"sliding windows", draw.Stroke{Color: draw.Green, Width: 1.9}, few[:5], func(m int) checkin.Options {
			return checkin.Options{Schedule: release.SlidingWindow, Slots: m, Rate: 1}
		}},
		{"repeated runs (corollary 3.3)", draw.Stroke{Color: draw.Orange, Width: 1.9}, few[:5], func(m int) checkin.Options {
			return checkin.Options{Schedule: release.FixedWindow, Slots: m, Rate: float64(m) / checkedClients, Runs: checkedClients / m}
		}},
	}
	var p panel
	var legend []key
	least, most := math.Inf(1), 0.0
	for _, w := range ways {
		c := curve{name: w.name, stroke: w.stroke}
		stated := curve{stroke: draw.Stroke{Color: w.stroke.Color, Width: 1.2, Dashes: []float64{1.5, 2.5}}}
		for _, m := range w.slots {
			options := w.of(m)
			options.Clients, options.Dimension, options.Sigma, options.Lean = checkedClients, checkedEntries, checkedSigma, checkedLean
			played, err := together(o.runs(checkedSeeds), func(seed int) (*checkin.Result, error) {
				of := options
				of.Seed = uint64(seed + 1)
				return checkin.Play(of)
			})
			if err != nil {
				return nil, err
			}
			var excess []float64
			for _, r := range played {
				excess = append(excess, r.Excess)
			}
			last := played[len(played)-1]
			mean, deviation := moments(excess)
			rate, ok := options.Theorem()
			row := []string{w.name, strconv.Itoa(checkedClients), strconv.Itoa(m), number(options.Rate), strconv.Itoa(max(1, options.Runs)), strconv.Itoa(last.Updates),
				strconv.Itoa(last.Dummies), number(expectedDummies(options)), strconv.Itoa(last.Largest), number(mean), number(deviation / math.Sqrt(float64(len(excess)))), ""}
			if ok {
				row[11] = number(rate)
				stated.x, stated.y = append(stated.x, float64(m)), append(stated.y, rate)
			}
			out.rows = append(out.rows, row)
			c.x, c.y = append(c.x, float64(m)), append(c.y, mean)
			least, most = min(least, mean), max(most, mean, rate)
		}
		p.curves = append(p.curves, c, stated)
		legend = append(legend, key{name: w.name, stroke: w.stroke})
	}
	legend = append(legend, key{name: "the theorem's rate", stroke: draw.Stroke{Color: draw.Ink, Width: 1.2, Dashes: []float64{1.5, 2.5}}})
	m := multiples{
		title:    out.title,
		subtitle: fmt.Sprintf("Paper 004, theorems 3.5 and 4.2, corollary 3.3. %d clients, a linear loss over the unit ball of %d dimensions; mean of %d runs", checkedClients, checkedEntries, checkedSeeds),
		caption: "The excess population risk of the last model, by the theorems' step sizes, against m, the slots of a run or of a window; each client adds Gaussian noise " +
			"of deviation 1/2 to each entry. Dotted: the theorems' rates without constants and logarithms; none where they state none, because 1 - 2 exp(-n p_{0}/m) is not above 0 (a sliding " +
			"window and repeated runs have n p_{0} = m, where it is 0.26). One client of a slot of algorithm 1 is used and the others are thrown away; a mean has them all. The table has the dummies beside " +
			"propositions 3.4 and 4.4.",
		panels:      [][]panel{{p}},
		x:           axis{low: 30, high: 5000, log: true, ticks: []float64{40, 100, 250, 600, 1500, 4000}, label: "slots m", format: func(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }},
		y:           decades(least/1.5, most*1.5, "excess risk", 6),
		legend:      legend,
		panelHeight: 320, right: 20,
	}
	m.words = m.subtitle + ". " + m.caption
	out.picture = m.picture()
	return out, nil
}

// expectedDummies is by proposition 3.4, and for sliding windows by 4.4: before its bound.
func expectedDummies(o checkin.Options) float64 {
	n, m := float64(o.Clients), float64(o.Slots)
	if o.Schedule == release.SlidingWindow {
		return (n - m + 1) * math.Pow(1-1/m, m)
	}
	return float64(max(1, o.Runs)) * m * math.Pow(1-o.Rate/m, n)
}

// moments are the mean and the deviation of a sample.
func moments(list []float64) (mean, deviation float64) {
	for _, x := range list {
		mean += x / float64(len(list))
	}
	for _, x := range list {
		deviation += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(deviation / float64(max(1, len(list)-1)))
}
