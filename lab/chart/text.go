package chart

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/starling-agg/starling/internal/prose"
)

// minBar is the least number of columns left for bars.
const minBar = 10

// eighths are the blocks of one to seven eighths of a column.
var eighths = []rune("▏▎▍▌▋▊▉")

// WriteText writes a table of the histogram with bars, at most width columns wide (80 if
// below 50). Where plain is true it keeps to ASCII. Whiskers are drawn where an interval
// is wider than a column.
func (h *Histogram) WriteText(w io.Writer, width int, plain bool) error {
	if err := h.Validate(); err != nil {
		return err
	}
	if width < 50 {
		width = 80
	}
	rows := [][]string{{h.XLabel, "estimate", "95 % interval"}}
	if h.Truth != nil {
		rows[0] = append(rows[0], "truth")
	}
	most, more := 1.0, "…"
	if plain {
		more = "..."
	}
	for i, label := range h.Labels {
		low, high := h.interval(i)
		label = fit(label, more, float64((width-6)/3), func(s string) float64 { return float64(utf8.RuneCountInString(s)) })
		row := []string{label, prose.Count(h.Estimate[i]), prose.Count(low) + " to " + prose.Count(high)}
		if h.Truth != nil {
			row = append(row, prose.Count(h.Truth[i]))
		}
		rows = append(rows, row)
		most = max(most, high)
	}
	wide := make([]int, len(rows[0]))
	for _, row := range rows {
		for j, cell := range row {
			wide[j] = max(wide[j], utf8.RuneCountInString(cell))
		}
	}
	used := 2
	for _, n := range wide {
		used += n + 2
	}
	bar := max(minBar, width-used)
	var b strings.Builder
	for i, row := range rows {
		for j, cell := range row {
			b.WriteString(strings.Repeat(" ", 2+wide[j]-utf8.RuneCountInString(cell)))
			b.WriteString(cell)
		}
		if i > 0 {
			low, high := h.interval(i - 1)
			b.WriteString("  ")
			b.WriteString(strings.TrimRight(drawBar(h.Estimate[i-1]/most, low/most, high/most, bar, plain), " "))
		}
		b.WriteByte('\n')
	}
	_, err := fmt.Fprint(w, b.String())
	return err
}

// drawBar draws a bar of at most bar columns for a value, with the whisker from low to
// high, all as parts of the whole width.
func drawBar(value, low, high float64, bar int, plain bool) string {
	cells := make([]rune, bar)
	for i := range cells {
		cells[i] = ' '
	}
	length := max(0, value) * float64(bar)
	full := min(int(length), bar)
	block := '█'
	if plain {
		block = '#'
	}
	for i := range full {
		cells[i] = block
	}
	if part := int((length - float64(full)) * 8); !plain && part > 0 && full < bar {
		cells[full] = eighths[part-1]
	}
	from, to := int(math.Round(max(0, low)*float64(bar))), int(math.Round(max(0, high)*float64(bar)))
	to = min(to, bar-1)
	if to-from >= 2 {
		line, end := '─', '┤'
		if plain {
			line, end = '-', '|'
		}
		for i := from; i < to; i++ {
			if i >= full {
				cells[i] = line
			}
		}
		cells[to] = end
	}
	return string(cells)
}
