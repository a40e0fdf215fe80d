package lab

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/starling-agg/starling/dp/sketch"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

var writeSketches = flag.Bool("write-sketches", false, "write the tables in docs/bench/sketches.md anew, from 200 runs")

// deviationOf is that of a sum of the query's at epsilon 1 and delta 10^-6.
func deviationOf(t *testing.T, q recipe.Query) float64 {
	t.Helper()
	noise, err := account.Calibrate(q, account.GaussianNoise, decimal("1"), decimal("0.000001"), 1)
	if err != nil {
		t.Fatal(err)
	}
	return noise.Spread().Deviation
}

// TestSketchesFigure writes docs/bench/sketches.md, which takes minutes; without
// -write-sketches it plays the first table three times, and wants the search that is planned
// to find more than recovery by buckets.
func TestSketchesFigure(t *testing.T) {
	runs := 3
	if *writeSketches {
		runs = figureRuns
		figureHierarchy(t)
		figureDistinct(t)
		figureStrings(t, "wide", runs, 1<<18)
	}
	found := figureStrings(t, "strings", runs, 1<<17)
	if found[0] < found[len(found)-1]+1 {
		t.Errorf("%v found", found)
	}
}

func hold(t *testing.T, name, table string) {
	t.Helper()
	if *writeSketches {
		disktest.HoldTable(t, filepath.Join("..", "docs", "bench", "sketches.md"), name, table, true)
	}
	t.Logf("%s:\n%s", name, table)
}

// A way finds strings: their letters, and how often.
type way struct {
	words        string
	marks, cells int
	find         func(sums []int64, deviation float64) map[string]float64
	cellsOf      func(letters []byte) []int
}

const letters8 = 8

// figureStrings compares ways to the frequent among 20,000 strings of 8 letters, whose counts
// are 2,000 over their rank. It returns how many each finds on average.
func figureStrings(t *testing.T, name string, runs, cells int) (mean []float64) {
	const people = 20000
	r := rand.New(rand.NewPCG(91, 92))
	counts := make(map[string]int64)
	left := int64(people)
	for rank := int64(1); left > 0; rank++ {
		letters := make([]byte, letters8)
		for i := range letters {
			letters[i] = byte(1 + r.IntN(26))
		}
		n := min(left, max(1, 2000/rank))
		counts[string(letters)] += n
		left -= n
	}
	searched := func(words string, s sketch.Strings) way {
		return way{words, s.Rows(), s.Cells(), func(sums []int64, deviation float64) map[string]float64 {
			got, _, err := s.Search(sums, sketch.Noise{Deviation: deviation}, people, recipe.FalseFinds, nil)
			if err != nil {
				t.Fatal(err)
			}
			out := make(map[string]float64)
			for _, f := range got.Found {
				out[string(f.Letters)] = f.Count
			}
			return out
		}, func(letters []byte) (list []int) {
			x := make([]uint64, len(letters))
			for i, c := range letters {
				x[i] = uint64(c)
			}
			for i, m := range s.Marks(x) {
				if m {
					list = append(list, i)
				}
			}
			return list
		}}
	}
	best, err := sketch.PlanStrings(26, letters8, 20, cells, 2, sketch.Hash{})
	if err != nil {
		t.Fatal(err)
	}
	if name == "strings" { // narrower than the plan has it
		best.Width = 64 * 20
	}
	one := best
	one.Step = 3 - best.Step // 1 or 2, the other one
	one.Width = best.Cells() / one.Rows()
	three := best
	three.Checks, three.Width = 3, best.Cells()/(best.Rows()+1)
	if best.Step == 1 { // rows of more letters were too narrow for their children
		one = best
	}
	note, other := " (planned)", ""
	if name == "strings" {
		note = ""
	}
	if one == best {
		other = ", drawn again"
	}
	ways := []way{
		searched(fmt.Sprintf("beginnings, letters a row %d%s", best.Step, note), best), searched(fmt.Sprintf("beginnings, letters a row %d%s", one.Step, other), one),
		searched(fmt.Sprintf("beginnings, letters a row %d, 3 checks", best.Step), three), buckets(best.Cells()),
	}
	if name == "wide" {
		roomy := sketch.Strings{Alphabet: 26, Letters: letters8, Step: 1, Checks: 2, Width: 20 * sketch.FrequentRoom}
		ways = append(ways, searched(fmt.Sprintf("beginnings, letters a row 1, %d cells a frequent string", sketch.FrequentRoom), roomy))
	}
	table := "| way | marks | cells | deviation of a sum | found | of them nobody's | least count found in 95 % | mean error of a count |\n|---|---:|---:|---:|---:|---:|---:|---:|\n"
	for _, w := range ways {
		deviation := deviationOf(t, recipe.Multihot{Length: uint32(w.cells), MaxWeight: uint64(w.marks)})
		still := make([]int64, w.cells)
		for letters, n := range counts {
			for _, i := range w.cellsOf([]byte(letters)) {
				still[i] += n
			}
		}
		found, wrong, off, hits := 0.0, 0.0, 0.0, make(map[string]int)
		for range runs {
			sums := slices.Clone(still)
			for i := range sums {
				sums[i] += int64(math.Round(deviation * r.NormFloat64()))
			}
			for letters, count := range w.find(sums, deviation) {
				n := counts[letters]
				if n == 0 {
					wrong += 1 / float64(runs)
				} else {
					off += math.Abs(count - float64(n))
					found++
				}
				hits[letters]++
			}
		}
		// The least count above which every string is found in 95 % of runs.
		least := int64(people)
		for letters, n := range counts {
			if hits[letters]*100 >= 95*runs {
				least = min(least, n)
			}
		}
		mean = append(mean, found/float64(runs))
		table += fmt.Sprintf("| %s | %d | %d | %.1f | %.1f | %.2f | %d | %.1f |\n", w.words, w.marks, w.cells, deviation, found/float64(runs), wrong, least, off/max(1, found))
	}
	hold(t, name, table)
	return mean
}

// buckets recovers a string from the bucket that its hash is in: one cell for each letter at
// each place, of which the fullest spell it; a bucket is believed where each is above what
// noise reaches, and where what is spelled hashes to it.
func buckets(cells int) way {
	const symbols = 27
	n := cells / (letters8 * symbols)
	h := sketch.Hash{}
	at := func(bucket, place, symbol int) int { return (bucket*letters8+place)*symbols + symbol }
	return way{"letters of a bucket", letters8, n * letters8 * symbols, func(sums []int64, deviation float64) map[string]float64 {
		out := make(map[string]float64)
		for bucket := range n {
			letters, least, total := make([]byte, letters8), math.Inf(1), 0.0
			for place := range letters {
				cells := sums[at(bucket, place, 0):at(bucket, place+1, 0)]
				most, rest := 0, 0.0
				for symbol, x := range cells {
					if rest += float64(x); x > cells[most] {
						most = symbol
					}
				}
				letters[place] = byte(most)
				above := float64(cells[most]) - (rest-float64(cells[most]))/(symbols-1)
				least, total = min(least, above), total+above
			}
			// Of all buckets together noise makes none believed in 95 %.
			if least > 2.5*deviation && h.Cell(0, letters, uint64(n)) == uint64(bucket) {
				out[string(letters)] = total / letters8
			}
		}
		return out
	}, func(letters []byte) (list []int) {
		bucket := int(h.Cell(0, letters, uint64(n)))
		for place, c := range letters {
			list = append(list, at(bucket, place, int(c)))
		}
		return list
	}}
}

// figureHierarchy shows what the fit makes of the tables of a week's hours.
func figureHierarchy(t *testing.T) {
	text := ""
	for day := range 7 {
		text += fmt.Sprintf("%s%d(", map[bool]string{true: ",", false: ""}[day > 0], day)
		for hour := range 24 {
			text += fmt.Sprintf("%s%d", map[bool]string{true: ",", false: ""}[hour > 0], hour)
		}
		text += ")"
	}
	made, err := recipe.ParseQuery("hierarchy:" + text)
	if err != nil {
		t.Fatal(err)
	}
	q := made.(recipe.Hierarchy)
	r := rand.New(rand.NewPCG(93, 94))
	still, people := make([]int64, q.Aggregates()), uint64(0)
	for leaf := range uint64(168) {
		n := int64(20 + 100*r.Float64())
		for i, m := range q.Marks([]uint64{leaf}) {
			if m {
				still[i] += n
			}
		}
		people += uint64(n)
	}
	deviation := deviationOf(t, q)
	flat := deviationOf(t, recipe.Histogram{Length: 168})
	x := recipe.Recipe{Query: q, Noise: recipe.EachDraws(recipe.Rational{Num: uint64(deviation * deviation / 2 * 1000), Den: 1000})}
	var raw, fitted, held [2]float64
	apart := 0.0
	for range figureRuns {
		sums := slices.Clone(still)
		for i := range sums {
			sums[i] += int64(math.Round(deviation * r.NormFloat64()))
		}
		table, err := x.Table(sums, people, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range table.Rows {
			level, cells := c.Level-1, []float64{7, 168}[c.Level-1]*figureRuns
			raw[level] += math.Pow(float64(sums[i]-still[i]), 2) / cells
			fitted[level] += math.Pow(c.Cell.Estimate-float64(still[i]), 2) / cells
			if c.Cell.Interval95[0] <= float64(still[i]) && float64(still[i]) <= c.Cell.Interval95[1] {
				held[level] += 1 / cells
			}
			if level == 0 {
				below := 0.0
				for j := range 24 {
					below += float64(sums[i+1+j])
				}
				apart += math.Abs(below-float64(sums[i])) / 7 / figureRuns
			}
		}
	}
	table := "| table | as released | fitted | in 95 % intervals | histogram of hours alone |\n|---|---:|---:|---:|---:|\n"
	for i, name := range []string{"7 days", "168 hours"} {
		table += fmt.Sprintf("| %s | %.1f | %.1f | %.1f %% | %.1f |\n", name, math.Sqrt(raw[i]), math.Sqrt(fitted[i]), 100*held[i], flat*[]float64{math.Sqrt(24), 1}[i])
	}
	hold(t, "hierarchy", table+fmt.Sprintf("\nAs released, the hours of a day are %.0f off the day on average.\n", apart))
}

// figureDistinct shows what discrete Laplace noise leaves of the number of texts.
func figureDistinct(t *testing.T) {
	r := rand.New(rand.NewPCG(95, 96))
	table := "| epsilon | cells | texts | scale | deviation, measured | said | in 95 % intervals |\n|---:|---:|---:|---:|---:|---:|---:|\n"
	for _, c := range []struct {
		epsilon     string
		width, keys int
	}{{"1", 1 << 18, 50000}, {"2", 1 << 16, 20000}, {"2", 1 << 18, 50000}, {"4", 1 << 12, 2000}, {"4", 1 << 16, 20000}} {
		q := recipe.Distinct{Keyed: recipe.Keyed{Width: uint32(c.width)}}
		noise, err := account.Calibrate(q, account.LaplaceNoise, decimal(c.epsilon), decimal("0"), 1)
		if err != nil {
			t.Fatal(err)
		}
		b := 1 / (2 * math.Asinh(1/noise.Spread().Deviation))
		geometric := func() int64 { return int64(math.Floor(b * r.ExpFloat64())) }
		runs := figureRuns
		square, said, held := 0.0, 0.0, 0.0
		for range runs {
			sums := make([]int64, c.width)
			for i := range sums {
				a, b, c, d := geometric(), geometric(), geometric(), geometric()
				sums[i] = a - b + c - d
			}
			for range c.keys {
				sums[r.IntN(c.width)] += 1 + int64(3*r.ExpFloat64())
			}
			got, err := (&recipe.Recipe{Query: q, Noise: noise}).Table(sums, uint64(20*c.keys), nil)
			if err != nil {
				t.Fatal(err)
			}
			cell := got.Rows[0].Cell
			square += math.Pow(cell.Estimate-float64(c.keys), 2) / float64(runs)
			said += cell.Stderr / float64(runs)
			if cell.Interval95[0] <= float64(c.keys) && float64(c.keys) <= cell.Interval95[1] {
				held += 100 / float64(runs)
			}
		}
		table += fmt.Sprintf("| %s | %d | %d | %.3g | %.0f | %.0f | %.1f %% |\n", c.epsilon, c.width, c.keys, b, math.Sqrt(square), said, held)
	}
	hold(t, "distinct", table)
}
