package figures

import (
	"math"
	"strconv"
	"strings"

	"github.com/starling-agg/starling/internal/draw"
)

// The page, in points.
const (
	pageWidth = 760
	edge      = 18 // left and right of text
)

var (
	titleFace = draw.Face{Size: 16, Bold: true}
	underFace = draw.Face{Size: 11}
	headFace  = draw.Face{Size: 10, Bold: true}
	textFace  = draw.Face{Size: 9.5}
	noteFace  = draw.Face{Size: 8.5}
)

// An axis maps values to 0..1.
type axis struct {
	low, high float64
	log       bool
	ticks     []float64
	label     string
	format    func(float64) string
}

func (a axis) at(v float64) float64 {
	if a.log {
		return math.Log(v/a.low) / math.Log(a.high/a.low)
	}
	return (v - a.low) / (a.high - a.low)
}

// decades is a logarithmic axis with at most most ticks at powers of ten.
func decades(low, high float64, label string, most int) axis {
	a := axis{low: low, high: high, log: true, label: label, format: power}
	first, last := int(math.Ceil(math.Log10(low)-1e-9)), int(math.Floor(math.Log10(high)+1e-9))
	step := 1
	for (last-first)/step+1 > most {
		step++
	}
	for e := first; e <= last; e++ {
		if e%step == 0 {
			a.ticks = append(a.ticks, math.Pow10(e))
		}
	}
	return a
}

// power writes 1000 as 10^{3} and 5000 as 5 × 10^{3}, in the markup of package draw.
func power(v float64) string {
	e := math.Floor(math.Log10(v) + 1e-9)
	digits := "^{" + strings.Replace(strconv.Itoa(int(e)), "-", "−", 1) + "}"
	m := strconv.FormatFloat(v/math.Pow(10, e), 'g', 3, 64)
	switch {
	case v == 1:
		return "1"
	case m == "1":
		return "10" + digits
	}
	return m + " × 10" + digits
}

// A curve is drawn through its points, in the order of x.
type curve struct {
	name   string
	stroke draw.Stroke
	x, y   []float64
	// label stands at its right end, if not empty.
	label string
}

// rings are points marked by a ring.
type rings struct {
	color draw.Color
	x, y  []float64
}

// A panel is one pair of axes.
type panel struct {
	curves []curve
	rings  []rings
	note   string // in the upper right corner, which falling curves leave free
}

// A key is an entry of the legend.
type key struct {
	name   string
	stroke draw.Stroke // none: a ring
	ring   draw.Color
}

// multiples are panels of the same axes in rows and columns.
type multiples struct {
	title, subtitle, caption string
	words                    string // the picture for who does not see it
	columns, rows            []string
	panels                   [][]panel
	x, y                     axis
	legend                   []key
	panelHeight              float64
	right                    float64 // room for labels of curves
}

// frame draws what all pictures share and returns where the body begins.
func frame(c draw.Canvas, height float64, title, subtitle, caption string) (top float64) {
	c.Text(draw.Point{X: edge, Y: height - 26}, draw.Left, titleFace, draw.Ink, title)
	y := height - 43
	for _, line := range underFace.Wrap(subtitle, pageWidth-2*edge) {
		c.Text(draw.Point{X: edge, Y: y}, draw.Left, underFace, draw.Grey, line)
		y -= 14
	}
	lines := textFace.Wrap(caption, pageWidth-2*edge)
	bottom := 14 + 13*float64(len(lines))
	c.Line(draw.Stroke{Color: draw.Faint, Width: 0.6}, draw.Point{X: edge, Y: bottom}, draw.Point{X: pageWidth - edge, Y: bottom})
	for i, line := range lines {
		c.Text(draw.Point{X: edge, Y: bottom - 14 - 13*float64(i)}, draw.Left, textFace, draw.Grey, line)
	}
	return y
}

// frameHeight is how much of a page's height the frame takes.
func frameHeight(subtitle, caption string) float64 {
	return 43 + 14*float64(len(underFace.Wrap(subtitle, pageWidth-2*edge))) + 14 +
		13*float64(len(textFace.Wrap(caption, pageWidth-2*edge)))
}

func (m multiples) picture() draw.Picture {
	const left, gap, footing = 66, 14, 44
	legend := 8 + 14*float64(len(m.legendLines(left)))
	heading, rowHeading := 4.0, 0.0
	if len(m.columns) > 0 {
		heading = 18
	}
	if len(m.rows) > 0 {
		rowHeading = 20
	}
	n := float64(len(m.panels))
	height := frameHeight(m.subtitle, m.caption) + legend + heading + n*m.panelHeight + (n-1)*gap + footing
	return draw.Picture{
		Width: pageWidth, Height: height, Title: m.title, Words: m.words,
		Draw: func(c draw.Canvas) {
			top := frame(c, height, m.title, m.subtitle, m.caption)
			for i, line := range m.legendLines(left) {
				drawLegend(c, line, draw.Point{X: left, Y: top - 6 - 14*float64(i)})
			}
			top -= legend
			columns := float64(len(m.panels[0]))
			width := (pageWidth - edge - left - rowHeading - m.right - (columns-1)*gap) / columns
			for i, name := range m.columns {
				c.Text(draw.Point{X: left + (float64(i)+0.5)*width + float64(i)*gap, Y: top - 12}, draw.Middle, headFace, draw.Ink, name)
			}
			top -= heading
			y := top
			for r, row := range m.panels {
				y = top - float64(r+1)*m.panelHeight - float64(r)*gap
				if len(m.rows) > 0 {
					c.Turned(draw.Point{X: pageWidth - edge, Y: y + m.panelHeight/2}, headFace, draw.Ink, m.rows[r])
				}
				for i, p := range row {
					b := box{draw.Point{X: left + float64(i)*(width+gap), Y: y}, width, m.panelHeight}
					b.grid(c, m.x, m.y, i == 0, r == len(m.panels)-1)
					b.panel(c, m.x, m.y, p)
				}
			}
			c.Turned(draw.Point{X: 22, Y: (top + y) / 2}, textFace, draw.Grey, m.y.label)
			c.Text(draw.Point{X: left + (columns*width+(columns-1)*gap)/2, Y: y - 30}, draw.Middle, textFace, draw.Grey, m.x.label)
		},
	}
}

func ring(c draw.Canvas, at draw.Point, color draw.Color) {
	c.Dot(at, 3.1, color)
	c.Dot(at, 1.6, draw.White)
}

// keyWidth is the room of an entry of the legend, with that before the next.
func keyWidth(k key) float64 { return 28 + textFace.Width(k.name) + 18 }

// legendLines are the legend's entries in lines that fit the page; one at least.
func (m multiples) legendLines(left float64) [][]key {
	lines, x := [][]key{nil}, left
	for _, k := range m.legend {
		if x > left && x+keyWidth(k)-18 > pageWidth-edge {
			lines, x = append(lines, nil), left
		}
		lines[len(lines)-1] = append(lines[len(lines)-1], k)
		x += keyWidth(k)
	}
	return lines
}

func drawLegend(c draw.Canvas, line []key, at draw.Point) {
	for _, k := range line {
		if k.stroke.Width > 0 {
			c.Line(k.stroke, draw.Point{X: at.X, Y: at.Y + 3}, draw.Point{X: at.X + 22, Y: at.Y + 3})
		} else {
			ring(c, draw.Point{X: at.X + 11, Y: at.Y + 3}, k.ring)
		}
		c.Text(draw.Point{X: at.X + 28, Y: at.Y}, draw.Left, textFace, draw.Ink, k.name)
		at.X += keyWidth(k)
	}
}

// A box is where a panel stands.
type box struct {
	corner        draw.Point // lower left
	width, height float64
}

func (b box) point(x, y float64) draw.Point {
	return draw.Point{X: b.corner.X + x*b.width, Y: b.corner.Y + y*b.height}
}

func (b box) grid(c draw.Canvas, x, y axis, first, last bool) {
	hair := draw.Stroke{Color: draw.Faint, Width: 0.6}
	for _, t := range y.ticks {
		v := y.at(t)
		c.Line(hair, b.point(0, v), b.point(1, v))
		if first {
			p := b.point(0, v)
			c.Text(draw.Point{X: p.X - 6, Y: p.Y - 3.2}, draw.Right, textFace, draw.Grey, y.format(t))
		}
	}
	for _, t := range x.ticks {
		v := x.at(t)
		c.Line(hair, b.point(v, 0), b.point(v, 1))
		if last {
			p, anchor := b.point(v, 0), draw.Middle
			switch { // labels at the ends stay below their own panel
			case v < 0.01:
				p.X, anchor = p.X-4, draw.Left
			case v > 0.99:
				p.X, anchor = p.X+4, draw.Right
			}
			c.Text(draw.Point{X: p.X, Y: p.Y - 13}, anchor, textFace, draw.Grey, x.format(t))
		}
	}
	c.Line(draw.Stroke{Color: draw.Pale, Width: 0.8}, b.point(0, 1), b.point(0, 0), b.point(1, 0))
}

func (b box) panel(c draw.Canvas, x, y axis, p panel) {
	for _, l := range p.curves {
		var last draw.Point
		for _, piece := range clip(x, y, l.x, l.y) {
			points := make([]draw.Point, len(piece))
			for i, v := range piece {
				points[i] = b.point(v.X, v.Y)
			}
			c.Line(l.stroke, points...)
			last = points[len(points)-1]
		}
		if l.label != "" && last != (draw.Point{}) {
			at := draw.Point{X: last.X + 5, Y: last.Y - 3}
			if last.X < b.corner.X+0.99*b.width { // it ends inside: below its end
				at = draw.Point{X: last.X + 3, Y: last.Y - 14}
			}
			c.Text(at, draw.Left, textFace, l.stroke.Color, l.label)
		}
	}
	for _, r := range p.rings {
		for i := range r.x {
			if u, v := x.at(r.x[i]), y.at(r.y[i]); u >= 0 && u <= 1 && v >= 0 && v <= 1 {
				ring(c, b.point(u, v), r.color)
			}
		}
	}
	if p.note != "" {
		at := b.point(1, 1)
		at.X, at.Y = at.X-2, at.Y-10
		c.Rect(draw.Point{X: at.X - noteFace.Width(p.note) - 2, Y: at.Y - 3}, draw.Point{X: at.X + 1, Y: at.Y + 9}, draw.White)
		c.Text(at, draw.Right, noteFace, draw.Grey, p.note)
	}
}

// clip returns the pieces of a curve that lie inside the unit square, cut where it leaves
// through the bottom or the top.
func clip(x, y axis, xs, ys []float64) (pieces [][]draw.Point) {
	var piece []draw.Point
	end := func() {
		if len(piece) > 1 {
			pieces = append(pieces, piece)
		}
		piece = nil
	}
	const hair = 1e-9 // by which what lies on an edge may miss it
	inside := func(p draw.Point) bool { return p.Y >= 0 && p.Y <= 1 && p.X >= -hair && p.X <= 1+hair }
	var before draw.Point
	for i := range xs {
		p := draw.Point{X: x.at(xs[i]), Y: y.at(ys[i])}
		if math.IsNaN(p.Y) {
			end()
			before = p
			continue
		}
		if i > 0 && !math.IsNaN(before.Y) && inside(p) != inside(before) {
			out := before
			if inside(before) {
				out = p
			}
			border := min(max(out.Y, 0), 1)
			t := (border - before.Y) / (p.Y - before.Y)
			piece = append(piece, draw.Point{X: before.X + t*(p.X-before.X), Y: border})
			if inside(before) {
				end()
			}
		}
		if inside(p) {
			piece = append(piece, p)
		}
		before = p
	}
	end()
	return pieces
}

// A table is rows of text under a head.
type table struct {
	title, subtitle, caption string
	head                     []string
	widths                   []float64 // of the columns in points; they sum to pageWidth - 2 edge
	numbers                  []bool    // set right
	rows                     [][]string
	bold                     int // the column to stress, -1 for none
}

func (t table) picture() draw.Picture {
	const line, pad = 12.5, 7
	cells := func(row []string) (wrapped [][]string, height float64) {
		for i, s := range row {
			wrapped = append(wrapped, textFace.Wrap(s, t.widths[i]-10))
			height = max(height, line*float64(len(wrapped[i]))+pad)
		}
		return wrapped, height
	}
	body := 0.0
	for _, row := range append([][]string{t.head}, t.rows...) {
		_, h := cells(row)
		body += h
	}
	height := frameHeight(t.subtitle, t.caption) + body + 10
	var words strings.Builder
	for _, row := range t.rows {
		words.WriteString(strings.Join(row, ", "))
		words.WriteString("; ")
	}
	return draw.Picture{
		Width: pageWidth, Height: height, Title: t.title, Words: t.subtitle + ". " + words.String() + t.caption,
		Draw: func(c draw.Canvas) {
			y := frame(c, height, t.title, t.subtitle, t.caption) - 2
			for r, row := range append([][]string{t.head}, t.rows...) {
				wrapped, h := cells(row)
				x := float64(edge)
				for i, lines := range wrapped {
					face, color := textFace, draw.Ink
					if r == 0 {
						color = draw.Grey
					} else if i == t.bold {
						face.Bold = true
					}
					for j, s := range lines {
						p := draw.Point{X: x, Y: y - line*float64(j) - 10}
						if t.numbers[i] {
							p.X += t.widths[i] - 10
							c.Text(p, draw.Right, face, color, s)
						} else {
							c.Text(p, draw.Left, face, color, s)
						}
					}
					x += t.widths[i]
				}
				y -= h
				rule := draw.Stroke{Color: draw.Faint, Width: 0.6}
				if r == 0 {
					rule = draw.Stroke{Color: draw.Grey, Width: 0.8}
				}
				c.Line(rule, draw.Point{X: edge, Y: y + 3}, draw.Point{X: pageWidth - edge, Y: y + 3})
			}
		},
	}
}
