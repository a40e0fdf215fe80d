package recipe

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/starling-agg/starling/internal/prose"
)

// WritePaths writes the table of paths for who has to choose one: who sees what, who is
// trusted, and how much noise is in a result. Width is how many columns it may take, 108 if
// 0 or more.
func WritePaths(w io.Writer, width int) error {
	const name, gap = 12, 2
	each := (prose.Columns(width, 108) - name - 3*gap) / 3
	var b strings.Builder
	row := func(cells ...string) {
		lines := [][]string{{cells[0]}}
		rows := 1
		for _, cell := range cells[1:] {
			lines = append(lines, prose.Wrap(cell, each))
			rows = max(rows, len(lines[len(lines)-1]))
		}
		for i := range rows {
			var line strings.Builder
			for j, cell := range lines {
				wide := each
				if j == 0 {
					wide = name
				}
				text := ""
				if i < len(cell) {
					text = cell[i]
				}
				fmt.Fprintf(&line, "%-*s", wide+gap, text)
			}
			b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		}
	}
	row("Path", "Who sees what", "Who is trusted", "Noise in a result")
	for _, p := range paths {
		r := p.none.row()
		row(slices.Concat([]string{nameOf("path", uint16(p.tag))}, r[:])...)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// describeLacks says, before anything else, what the path does not give.
func (r *Recipe) describeLacks(line func(string, string, ...any)) {
	list := r.on().lacks(r)
	if m, err := r.Messenger(); err == nil {
		list = append(list, m.spoils)
	}
	for i, what := range list {
		label := ""
		if i == 0 {
			label = "Not given"
		}
		line(label, "- %s", what)
	}
}

// describeMessages says what a contribution is.
func (r *Recipe) describeMessages(line func(string, string, ...any)) {
	m, err := r.Messenger()
	if err != nil {
		return
	}
	line("", "a contribution is %s of %s", count(uint64(m.messages), "message", "messages"), count(uint64(m.size), "byte", "bytes"))
}
