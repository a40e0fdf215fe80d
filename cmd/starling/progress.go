//go:build !lean

package main

import (
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/starling-agg/starling/internal/prose"
	"github.com/starling-agg/starling/lab"
)

// A progress shows how far long work is, on stderr: a line that redraws itself on a
// terminal, else one line a phase.
type progress struct {
	e *env

	mu    sync.Mutex // guards below
	drawn int        // letters of the line that stands on the terminal
}

func newProgress(e *env) *progress { return &progress{e: e} }

func (p *progress) show(s lab.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	width := 0
	if p.e.watched {
		width = p.e.columns() - 1
	}
	if line := progressLine(s, width); s.Over {
		p.clear()
		fmt.Fprintln(p.e.stderr, line)
	} else {
		p.draw(line)
	}
}

// tell shows a line that is worth watching and not worth keeping.
func (p *progress) tell(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draw(line)
}

// draw redraws the line on a terminal and is silent elsewhere.
func (p *progress) draw(line string) {
	if p.e.watched {
		if max := p.e.columns() - 1; utf8.RuneCountInString(line) > max {
			line = string([]rune(line)[:max])
		}
		p.clear()
		fmt.Fprint(p.e.stderr, line)
		p.drawn = utf8.RuneCountInString(line)
	}
}

// end takes the line away, so that what follows begins at the margin.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

func (p *progress) clear() {
	if p.drawn > 0 {
		fmt.Fprintf(p.e.stderr, "\r%s\r", strings.Repeat(" ", p.drawn))
		p.drawn = 0
	}
}

// progressLine says the five facts: phase of phases, done of total for each party, rate,
// time left. Where that is wider than width, and width is not 0, the last parties go first.
func progressLine(s lab.Progress, width int) string {
	for {
		line := wholeLine(s)
		if width == 0 || utf8.RuneCountInString(line) <= width || len(s.Counts) == 0 {
			return line
		}
		s.Counts = s.Counts[:len(s.Counts)-1]
	}
}

func wholeLine(s lab.Progress) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%d/%d] %s", s.Phase, s.Phases, s.Name)
	if s.Over {
		fmt.Fprintf(&b, " %.1f s", s.Took.Seconds())
		return b.String()
	}
	for _, c := range s.Counts {
		fmt.Fprintf(&b, "  %s %s/%s", c.Party, prose.Count(float64(c.Done)), prose.Count(float64(c.Total)))
	}
	if s.Rate > 0 {
		fmt.Fprintf(&b, "  %s/s", prose.Count(s.Rate))
	}
	if s.Left > 0 {
		fmt.Fprintf(&b, "  %s left", s.Left.Round(time.Second))
	}
	return b.String()
}
