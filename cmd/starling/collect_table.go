//go:build !lean

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dp/sketch"
	"github.com/starling-agg/starling/lab/chart"
	"github.com/starling-agg/starling/recipe"
)

// readLines reads the lines of a file that are not empty; none where no file is named.
func readLines(path string) (lines []string, err error) {
	if path == "" {
		return nil, nil
	}
	b, err := readSmall(path)
	if err != nil {
		return nil, ofInput(fmt.Errorf("--ask: %w", err), "name a file with a text in each line")
	}
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines, nil
}

// askTexts makes the table of a result anew, with cells for texts that are asked for besides.
func askTexts(r *recipe.Recipe, x *collector.Result, texts []string) (err error) {
	if x.Table == nil {
		return usageOf("collect", errors.New("--ask goes with a query that is answered by texts"))
	}
	x.Table, err = x.Of(r).Table(x.Raw, x.ReportCount, texts)
	return err
}

// addCell adds a cell that has an estimate to a histogram.
func addCell(h *chart.Histogram, label string, c recipe.Cell) {
	if c.Known() {
		h.Labels, h.Estimate, h.Interval = append(h.Labels, label), append(h.Estimate, c.Estimate), append(h.Interval, c.Interval95)
	}
}

// digits are a number to its last digit.
func digits(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// cellRows are the lines of a CSV file for the cells of groups or of a table.
func cellRows(x *collector.Result) [][]string {
	rows := [][]string{{"label", "level", "state", "estimate", "stderr", "low95", "high95"}}
	add := func(label, of string, c *recipe.Cell) {
		line := []string{label, of, string(c.State), "", "", "", ""}
		if c.Known() {
			line[3], line[4] = digits(c.Estimate), digits(c.Stderr)
		}
		if c.Bounded() {
			line[5], line[6] = digits(c.Interval95[0]), digits(c.Interval95[1])
		}
		rows = append(rows, line)
	}
	if x.Groups != nil {
		rows[0][0], rows[0][1] = "group", "of"
		x.Groups.Each(func(row *recipe.GroupRow, what string, c *recipe.Cell) { add(row.Group, what, c) })
		return rows
	}
	for i := range x.Table.Rows {
		row := &x.Table.Rows[i]
		add(row.Label, strconv.Itoa(row.Level), &row.Cell)
	}
	return rows
}

// cellWords are a cell's estimate, its interval and, where it is not a value, its state.
func cellWords(c *recipe.Cell) string {
	estimate, interval := "", ""
	if c.Known() {
		estimate = fmt.Sprintf("%.6g", c.Estimate)
	}
	if c.Bounded() {
		interval = fmt.Sprintf("%.6g to %.6g", c.Interval95[0], c.Interval95[1])
	}
	if c.State != sketch.Value {
		interval = strings.TrimPrefix(interval+", "+string(c.State), ", ")
	}
	return fmt.Sprintf("%12s  %s", estimate, interval)
}

// writeGroups writes the sum, the size and the mean of each group, and of all together.
func writeGroups(w io.Writer, t *recipe.GroupTable) {
	fmt.Fprintf(w, "%-20s %4s  %12s  %s\n", "group", "", "estimate", "95 % interval")
	t.Each(func(row *recipe.GroupRow, what string, c *recipe.Cell) {
		name := ""
		if what == "sum" {
			name = cmp.Or(row.Group, "all together")
		}
		fmt.Fprintf(w, "%-20s %4s  %s\n", name, what, cellWords(c))
	})
	fmt.Fprintln(w)
}

// writeCells writes a line for each cell of a table, lower levels further in.
func writeCells(w io.Writer, t *recipe.Table) {
	names, wide, seen := make([]string, len(t.Rows)), len("cell"), make(map[string]bool)
	for i, row := range t.Rows {
		names[i] = row.Label
		if row.Level > 1 && !seen[row.Label] { // what is before the last / stands above
			names[i] = strings.Repeat("  ", row.Level-1) + row.Label[strings.LastIndex(row.Label, "/")+1:]
		}
		seen[row.Label] = true
		wide = max(wide, utf8.RuneCountInString(names[i]))
	}
	fmt.Fprintf(w, "%-*s  %12s  %s\n", wide, "cell", "estimate", "95 % interval")
	for i := range t.Rows {
		fmt.Fprintf(w, "%-*s  %s\n", wide, names[i], cellWords(&t.Rows[i].Cell))
	}
	if s := t.Search; s != nil {
		fmt.Fprintf(w, "Texts are found from a count of %.0f on; that noise has any of these found that is nobody's has probability %g %% at most.\n", math.Ceil(s.Threshold), 100*s.FalseFinds)
		if s.Narrow {
			fmt.Fprintf(w, "Rows have fewer than %d cells for each of these: rare texts have more found that is nobody's.\n", sketch.FrequentRoom)
		}
		if s.Cut {
			fmt.Fprintln(w, "There were more beginnings of texts than are looked at, and rare ones were left out: more noise or liars than the recipe is made for.")
		}
	}
}
