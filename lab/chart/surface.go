package chart

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"math"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/vgimg"
)

// A surface takes the few shapes that a picture is made of. Coordinates are points from the lower left corner.
type surface interface {
	rect(x0, y0, x1, y1 vg.Length, c color.NRGBA)
	line(x0, y0, x1, y1, width vg.Length, c color.NRGBA)
	dot(x, y, r vg.Length, c color.NRGBA)
	// text writes s with its anchor at x: 0 is its left end, 0.5 its middle, 1 its right end.
	text(x, y vg.Length, anchor float64, f face, c color.NRGBA, s string)
	// turned writes s upwards, centred on (x, y).
	turned(x, y vg.Length, f face, c color.NRGBA, s string)
}

// raster draws pixels.
type raster struct{ *vgimg.Canvas }

func (p raster) rect(x0, y0, x1, y1 vg.Length, c color.NRGBA) {
	var path vg.Path
	path.Move(vg.Point{X: x0, Y: y0})
	path.Line(vg.Point{X: x1, Y: y0})
	path.Line(vg.Point{X: x1, Y: y1})
	path.Line(vg.Point{X: x0, Y: y1})
	path.Close()
	p.SetColor(c)
	p.Fill(path)
}

func (p raster) line(x0, y0, x1, y1, width vg.Length, c color.NRGBA) {
	var path vg.Path
	path.Move(vg.Point{X: x0, Y: y0})
	path.Line(vg.Point{X: x1, Y: y1})
	p.SetColor(c)
	p.SetLineWidth(width)
	p.Stroke(path)
}

func (p raster) dot(x, y, r vg.Length, c color.NRGBA) {
	var path vg.Path
	path.Move(vg.Point{X: x + r, Y: y})
	path.Arc(vg.Point{X: x, Y: y}, r, 0, 2*math.Pi)
	path.Close()
	p.SetColor(c)
	p.Fill(path)
}

func (p raster) text(x, y vg.Length, anchor float64, f face, c color.NRGBA, s string) {
	if s == "" {
		return
	}
	p.SetColor(c)
	p.FillString(f.font(), vg.Point{X: x - vg.Length(anchor)*f.width(s), Y: y}, s)
}

func (p raster) turned(x, y vg.Length, f face, c color.NRGBA, s string) {
	p.Push()
	p.Translate(vg.Point{X: x, Y: y})
	p.Rotate(math.Pi / 2)
	p.text(0, 0, 0.5, f, c, s)
	p.Pop()
}

// vector writes SVG elements; SVG counts y downwards.
type vector struct {
	b      bytes.Buffer
	height vg.Length
}

func (v *vector) y(y vg.Length) float64 { return float64(v.height - y) }

func hex(c color.NRGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }

func (v *vector) rect(x0, y0, x1, y1 vg.Length, c color.NRGBA) {
	fmt.Fprintf(&v.b, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"/>\n",
		float64(min(x0, x1)), v.y(max(y0, y1)), math.Abs(float64(x1-x0)), math.Abs(float64(y1-y0)), hex(c))
}

func (v *vector) line(x0, y0, x1, y1, width vg.Length, c color.NRGBA) {
	fmt.Fprintf(&v.b, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" stroke=\"%s\" stroke-width=\"%.2f\"/>\n",
		float64(x0), v.y(y0), float64(x1), v.y(y1), hex(c), float64(width))
}

func (v *vector) dot(x, y, r vg.Length, c color.NRGBA) {
	fmt.Fprintf(&v.b, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"%.2f\" fill=\"%s\"/>\n", float64(x), v.y(y), float64(r), hex(c))
}

func (v *vector) text(x, y vg.Length, anchor float64, f face, c color.NRGBA, s string) {
	v.write(x, y, anchor, f, c, s, "")
}

func (v *vector) turned(x, y vg.Length, f face, c color.NRGBA, s string) {
	v.write(x, y, 0.5, f, c, s, fmt.Sprintf(" transform=\"rotate(-90 %.2f %.2f)\"", float64(x), v.y(y)))
}

func (v *vector) write(x, y vg.Length, anchor float64, f face, c color.NRGBA, s, more string) {
	if s == "" {
		return
	}
	if f.bold {
		more += ` font-weight="bold"`
	}
	end := map[float64]string{0: "start", 0.5: "middle", 1: "end"}[anchor]
	fmt.Fprintf(&v.b, "<text x=\"%.2f\" y=\"%.2f\" font-size=\"%g\" text-anchor=\"%s\" fill=\"%s\"%s>%s</text>\n",
		float64(x), v.y(y), f.size, end, hex(c), more, html.EscapeString(s))
}
