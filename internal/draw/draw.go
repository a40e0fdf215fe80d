// Package draw draws the few shapes that this project's pictures are made of, as PNG and
// as SVG.
//
// The colours are of Okabe and Ito's palette, which people with any of the common kinds
// of colour blindness can tell apart; pictures still vary width, dashes or marks where
// two curves cross. The fonts are inside the binary. SVG is written here and not by a
// library, so that no picture brings in a module under terms that the project did not
// choose.
package draw

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"io"
	"strings"
	"sync"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/font/liberation"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/vgimg"
)

// A Color is opaque unless A says otherwise.
type Color = color.NRGBA

// The palette.
var (
	Blue      = color.NRGBA{0x00, 0x72, 0xb2, 0xff}
	Sky       = color.NRGBA{0x56, 0xb4, 0xe9, 0xff}
	Green     = color.NRGBA{0x00, 0x9e, 0x73, 0xff}
	Orange    = color.NRGBA{0xe6, 0x9f, 0x00, 0xff}
	Vermilion = color.NRGBA{0xd5, 0x5e, 0x00, 0xff}
	Purple    = color.NRGBA{0xcc, 0x79, 0xa7, 0xff}
	Ink       = color.NRGBA{0x22, 0x26, 0x2b, 0xff}
	Grey      = color.NRGBA{0x5c, 0x64, 0x6e, 0xff}
	Pale      = color.NRGBA{0xa8, 0xaf, 0xb8, 0xff}
	Faint     = color.NRGBA{0xe4, 0xe7, 0xeb, 0xff}
	White     = color.NRGBA{0xff, 0xff, 0xff, 0xff}
)

// dpi is the number of pixels of a PNG for each inch (72 points).
const dpi = 160

// A Point is in points from the lower left corner.
type Point struct{ X, Y float64 }

// A Stroke is how a line is drawn: its width in points, and the lengths of dashes and
// gaps, none for a solid line.
type Stroke struct {
	Color  Color
	Width  float64
	Dashes []float64
}

// A Face is the sans-serif font at a size in points.
type Face struct {
	Size float64
	Bold bool
}

var fonts = sync.OnceValue(func() *font.Cache { return font.NewCache(liberation.Collection()) })

func (f Face) font() font.Face {
	d := font.Font{Typeface: "Liberation", Variant: "Sans"}
	if f.Bold {
		d.Weight = xfont.WeightBold
	}
	return fonts().Lookup(d, vg.Length(f.Size))
}

// small is the size of a raised or lowered text relative to the text around it; it stands
// raise or -lower sizes above.
const (
	small = 0.72
	raise = 0.36
	lower = 0.16
)

// A run is a part of a text: on the base line, raised or lowered.
type run struct {
	text string
	rise float64 // in sizes of the face
}

func (r run) face(f Face) Face {
	if r.rise != 0 {
		f.Size *= small
	}
	return f
}

// runs splits a text at ^{...} and _{...}. Fonts lack most of the raised characters of
// Unicode, a raised minus above all.
func runs(s string) (all []run) {
	for s != "" {
		at := strings.IndexAny(s, "^_")
		for at >= 0 && !strings.HasPrefix(s[at+1:], "{") {
			next := strings.IndexAny(s[at+1:], "^_")
			if next < 0 {
				at = -1
				break
			}
			at += 1 + next
		}
		end := -1
		if at >= 0 {
			end = strings.IndexByte(s[at:], '}')
		}
		if end < 0 {
			return append(all, run{s, 0})
		}
		if at > 0 {
			all = append(all, run{s[:at], 0})
		}
		rise := raise
		if s[at] == '_' {
			rise = -lower
		}
		all = append(all, run{s[at+2 : at+end], rise})
		s = s[at+end+1:]
	}
	return all
}

// Plain is a text without the braces of its markup and with a plain minus, as in "10^-6".
func Plain(s string) string {
	var b strings.Builder
	for _, r := range runs(s) {
		if r.rise > 0 {
			b.WriteByte('^')
		}
		b.WriteString(r.text)
	}
	return strings.ReplaceAll(b.String(), "−", "-")
}

// Width is how wide s is in points.
func (f Face) Width(s string) (w float64) {
	for _, r := range runs(s) {
		font := r.face(f).font()
		w += float64(font.Width(r.text))
	}
	return w
}

// Wrap breaks a text into lines of at most limit points; a longer word has a line to
// itself.
func (f Face) Wrap(s string, limit float64) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		next := strings.TrimSpace(line + " " + word)
		if line != "" && f.Width(next) > limit {
			lines, next = append(lines, line), word
		}
		line = next
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// Where a text is anchored.
type Anchor uint8

const (
	Left Anchor = iota
	Middle
	Right
)

// A Canvas takes shapes; later ones cover earlier ones.
type Canvas interface {
	Rect(a, b Point, c Color)
	// Line draws a line through at least two points.
	Line(s Stroke, through ...Point)
	Dot(centre Point, radius float64, c Color)
	// Text writes s on the base line at p; ^{x} raises x and _{x} lowers it.
	Text(p Point, a Anchor, f Face, c Color, s string)
	// Turned writes s upwards, its middle at p.
	Turned(p Point, f Face, c Color, s string)
}

// A Picture is what is drawn on a canvas of its size in points.
type Picture struct {
	Width, Height float64
	// Title and Words are the alternative for who does not see the picture. They may have
	// the markup of Canvas.Text.
	Title, Words string
	Draw         func(Canvas)
}

// WritePNG writes the picture at 160 pixels an inch.
func (p Picture) WritePNG(w io.Writer) error {
	c := vgimg.NewWith(vgimg.UseWH(vg.Length(p.Width), vg.Length(p.Height)), vgimg.UseDPI(dpi),
		vgimg.UseBackgroundColor(White))
	p.Draw(raster{c})
	if _, err := (vgimg.PngCanvas{Canvas: c}).WriteTo(w); err != nil {
		return fmt.Errorf("draw: write PNG: %w", err)
	}
	return nil
}

// WriteSVG writes the picture with its title and its words.
func (p Picture) WriteSVG(w io.Writer) error {
	v := &vector{height: p.Height}
	fmt.Fprintf(&v.b, `<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 %g %g" width="%g" height="%g" `+
		`font-family="Liberation Sans, Arial, Helvetica, sans-serif">`+"\n<title>%s</title>\n<desc>%s</desc>\n",
		p.Width, p.Height, p.Width, p.Height, html.EscapeString(Plain(p.Title)), html.EscapeString(Plain(p.Words)))
	v.Rect(Point{}, Point{p.Width, p.Height}, White)
	p.Draw(v)
	v.b.WriteString("</svg>\n")
	if _, err := w.Write(v.b.Bytes()); err != nil {
		return fmt.Errorf("draw: write SVG: %w", err)
	}
	return nil
}

// raster draws pixels.
type raster struct{ *vgimg.Canvas }

func at(p Point) vg.Point { return vg.Point{X: vg.Length(p.X), Y: vg.Length(p.Y)} }

func (r raster) Rect(a, b Point, c Color) {
	var path vg.Path
	path.Move(at(a))
	path.Line(at(Point{b.X, a.Y}))
	path.Line(at(b))
	path.Line(at(Point{a.X, b.Y}))
	path.Close()
	r.SetColor(c)
	r.Fill(path)
}

func (r raster) Line(s Stroke, through ...Point) {
	if len(through) < 2 {
		return
	}
	var path vg.Path
	path.Move(at(through[0]))
	for _, p := range through[1:] {
		path.Line(at(p))
	}
	dashes := make([]vg.Length, len(s.Dashes))
	for i, d := range s.Dashes {
		dashes[i] = vg.Length(d)
	}
	r.SetColor(s.Color)
	r.SetLineWidth(vg.Length(s.Width))
	r.SetLineDash(dashes, 0)
	r.Stroke(path)
	r.SetLineDash(nil, 0)
}

func (r raster) Dot(centre Point, radius float64, c Color) {
	var path vg.Path
	path.Move(at(Point{centre.X + radius, centre.Y}))
	path.Arc(at(centre), vg.Length(radius), 0, 6.283185307179586)
	path.Close()
	r.SetColor(c)
	r.Fill(path)
}

func (r raster) Text(p Point, a Anchor, f Face, c Color, s string) {
	if s == "" {
		return
	}
	r.SetColor(c)
	p.X -= float64(a) / 2 * f.Width(s)
	for _, part := range runs(s) {
		face := part.face(f)
		r.FillString(face.font(), at(Point{p.X, p.Y + part.rise*f.Size}), part.text)
		p.X += face.Width(part.text)
	}
}

func (r raster) Turned(p Point, f Face, c Color, s string) {
	r.Push()
	r.Translate(at(p))
	r.Rotate(1.5707963267948966)
	r.Text(Point{}, Middle, f, c, s)
	r.Pop()
}

// vector writes SVG elements; SVG counts y downwards.
type vector struct {
	b      bytes.Buffer
	height float64
}

func (v *vector) y(p Point) float64 { return v.height - p.Y }

func hex(c Color) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }

func (v *vector) Rect(a, b Point, c Color) {
	fmt.Fprintf(&v.b, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n",
		min(a.X, b.X), v.height-max(a.Y, b.Y), max(a.X, b.X)-min(a.X, b.X), max(a.Y, b.Y)-min(a.Y, b.Y), hex(c))
}

func (v *vector) Line(s Stroke, through ...Point) {
	if len(through) < 2 {
		return
	}
	v.b.WriteString(`<polyline fill="none" stroke-linejoin="round" points="`)
	for i, p := range through {
		if i > 0 {
			v.b.WriteByte(' ')
		}
		fmt.Fprintf(&v.b, "%.1f,%.1f", p.X, v.y(p))
	}
	fmt.Fprintf(&v.b, `" stroke="%s" stroke-width="%.1f"`, hex(s.Color), s.Width)
	if len(s.Dashes) > 0 {
		fmt.Fprintf(&v.b, ` stroke-dasharray="%s"`, strings.Trim(fmt.Sprint(s.Dashes), "[]"))
	}
	v.b.WriteString("/>\n")
}

func (v *vector) Dot(centre Point, radius float64, c Color) {
	fmt.Fprintf(&v.b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\"/>\n", centre.X, v.y(centre), radius, hex(c))
}

func (v *vector) Text(p Point, a Anchor, f Face, c Color, s string) { v.text(p, a, f, c, s, "") }

func (v *vector) Turned(p Point, f Face, c Color, s string) {
	v.text(p, Middle, f, c, s, fmt.Sprintf(" transform=\"rotate(-90 %.1f %.1f)\"", p.X, v.y(p)))
}

func (v *vector) text(p Point, a Anchor, f Face, c Color, s, more string) {
	if s == "" {
		return
	}
	if f.Bold {
		more += ` font-weight="bold"`
	}
	if a != Left {
		more += [...]string{Middle: ` text-anchor="middle"`, Right: ` text-anchor="end"`}[a]
	}
	fmt.Fprintf(&v.b, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%g\" fill=\"%s\"%s>", p.X, v.y(p), f.Size, hex(c), more)
	before := 0.0
	for _, r := range runs(s) {
		text := html.EscapeString(r.text)
		if r.rise == 0 && before == 0 {
			v.b.WriteString(text)
			continue
		}
		fmt.Fprintf(&v.b, `<tspan dy="%.1f" font-size="%.1f">%s</tspan>`, (before-r.rise)*f.Size, r.face(f).Size, text)
		before = r.rise
	}
	v.b.WriteString("</text>\n")
}
