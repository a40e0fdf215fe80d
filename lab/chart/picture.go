package chart

import (
	"fmt"
	"html"
	"image/color"
	"io"
	"math"
	"strings"
	"sync"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/font/liberation"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/vgimg"
)

// The picture's size in points, and the PNG's pixels for each inch (72 points).
const (
	pictureWidth = 760
	panelHeight  = 330 // with the truth known, the upper panel of two
	deltaHeight  = 120
	pictureDPI   = 160
	marginLeft   = 66
	marginRight  = 18
)

var (
	blue      = color.NRGBA{0x00, 0x72, 0xb2, 0xff}
	vermilion = color.NRGBA{0xd5, 0x5e, 0x00, 0xff}
	ink       = color.NRGBA{0x22, 0x26, 0x2b, 0xff}
	grey      = color.NRGBA{0x5c, 0x64, 0x6e, 0xff}
	faint     = color.NRGBA{0xe4, 0xe7, 0xeb, 0xff}
	white     = color.NRGBA{0xff, 0xff, 0xff, 0xff}
)

var fonts = sync.OnceValue(func() *font.Cache { return font.NewCache(liberation.Collection()) })

// A face is the sans-serif font of the picture at a size in points.
type face struct {
	size float64
	bold bool
}

func (f face) font() font.Face {
	d := font.Font{Typeface: "Liberation", Variant: "Sans"}
	if f.bold {
		d.Weight = xfont.WeightBold
	}
	return fonts().Lookup(d, vg.Length(f.size))
}

func (f face) width(s string) vg.Length {
	font := f.font()
	return font.Width(s)
}

// WritePNG writes the picture as PNG.
func (h *Histogram) WritePNG(w io.Writer) error {
	if err := h.Validate(); err != nil {
		return err
	}
	width, height := h.size()
	c := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(pictureDPI), vgimg.UseBackgroundColor(white))
	h.draw(pen{raster{c}}, height)
	if _, err := (vgimg.PngCanvas{Canvas: c}).WriteTo(w); err != nil {
		return fmt.Errorf("chart: write PNG: %w", err)
	}
	return nil
}

// WriteSVG writes the picture as SVG, with the figures in words for readers who do not see it.
func (h *Histogram) WriteSVG(w io.Writer) error {
	if err := h.Validate(); err != nil {
		return err
	}
	width, height := h.size()
	v := &vector{height: height}
	fmt.Fprintf(&v.b, `<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" `+
		`font-family="Liberation Sans, Arial, Helvetica, sans-serif">`+"\n<title>%s</title>\n<desc>%s</desc>\n",
		float64(width), float64(height), float64(width), float64(height), html.EscapeString(h.Title), html.EscapeString(h.words()))
	pen{v}.rect(0, 0, width, height, white)
	h.draw(pen{v}, height)
	v.b.WriteString("</svg>\n")
	if _, err := w.Write(v.b.Bytes()); err != nil {
		return fmt.Errorf("chart: write SVG: %w", err)
	}
	return nil
}

// words is the text alternative of the picture.
func (h *Histogram) words() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. Bar chart of %s by %s, estimates with 95 %% intervals:", h.Subtitle, h.YLabel, h.XLabel)
	for i, label := range h.Labels {
		low, high := h.interval(i)
		fmt.Fprintf(&b, " %s: %s (%s to %s)", label, Count(h.Estimate[i]), Count(low), Count(high))
		if h.Truth != nil {
			fmt.Fprintf(&b, ", truth %s", Count(h.Truth[i]))
		}
		b.WriteByte(';')
	}
	b.WriteByte(' ')
	b.WriteString(h.Caption)
	return b.String()
}

// captionLines breaks the caption to the picture's width.
func (h *Histogram) captionLines() []string {
	f, limit := face{9.5, false}, vg.Length(pictureWidth-2*marginRight)
	var lines []string
	line := ""
	for _, word := range strings.Fields(h.Caption) {
		next := strings.TrimSpace(line + " " + word)
		if line != "" && f.width(next) > limit {
			lines, next = append(lines, line), word
		}
		line = next
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

func (h *Histogram) size() (width, height vg.Length) {
	height = 62 + panelHeight + 44 + vg.Length(13*len(h.captionLines())) + 18
	if h.Truth != nil {
		height += deltaHeight + 34
	}
	return pictureWidth, height
}

// A pen draws on a surface.
type pen struct{ surface }

// whisker draws an interval with its two caps.
func (p pen) whisker(x, low, high, cap vg.Length) {
	p.line(x, low, x, high, 1.1, ink)
	p.line(x-cap, low, x+cap, low, 1.1, ink)
	p.line(x-cap, high, x+cap, high, 1.1, ink)
}

func (h *Histogram) draw(p pen, height vg.Length) {
	p.text(marginRight, height-26, 0, face{16, true}, ink, h.Title)
	p.text(marginRight, height-43, 0, face{11, false}, grey, h.Subtitle)

	top := height - 62
	h.counts(p, top-panelHeight, top)
	bottom := top - panelHeight - 44
	if h.Truth != nil {
		h.differences(p, bottom-deltaHeight+6, bottom+6)
		bottom -= deltaHeight + 34
	}
	lines := h.captionLines()
	p.line(marginRight, bottom+2, pictureWidth-marginRight, bottom+2, 0.6, faint)
	for i, line := range lines {
		p.text(marginRight, bottom-12-vg.Length(13*i), 0, face{9.5, false}, grey, line)
	}
}

// scale maps values to heights.
type scale struct {
	low, high      float64
	bottom, height vg.Length
}

func (s scale) at(v float64) vg.Length {
	return s.bottom + vg.Length((v-s.low)/(s.high-s.low))*s.height
}

// axis draws the grid and the scale of a panel.
func (p pen) axis(s scale, at []float64, label string, write func(float64) string) {
	for _, v := range at {
		y := s.at(v)
		p.line(marginLeft, y, pictureWidth-marginRight, y, 0.6, faint)
		p.text(marginLeft-7, y-3.2, 1, face{9.5, false}, grey, write(v))
	}
	p.turned(24, s.bottom+s.height/2, face{10, false}, grey, label)
}

// centre is the middle of bucket i, and half the width of its bar.
func (h *Histogram) centre(i int) (x, half vg.Length) {
	slot := vg.Length(pictureWidth-marginLeft-marginRight) / vg.Length(len(h.Labels))
	return marginLeft + slot*(vg.Length(i)+0.5), slot * 0.36
}

// counts draws the upper panel: bars, whiskers, truth.
func (h *Histogram) counts(p pen, bottom, top vg.Length) {
	low, high := 0.0, 0.0
	for i := range h.Labels {
		l, u := h.interval(i)
		low, high = min(low, l), max(high, u)
		if h.Truth != nil {
			low, high = min(low, h.Truth[i]), max(high, h.Truth[i])
		}
	}
	if low > -0.02*high {
		low = 0 // noise just below zero does not earn a tick of its own
	}
	at := ticks(low, high*1.02, 6)
	s := scale{at[0], at[len(at)-1], bottom, top - bottom}
	p.axis(s, at, h.YLabel, drawn)
	for i, label := range h.Labels {
		x, half := h.centre(i)
		est := h.Estimate[i]
		p.rect(x-half, s.at(0), x+half, s.at(est), blue)
		l, u := h.interval(i)
		if h.Stderr[i] > 0 {
			p.whisker(x, s.at(l), s.at(u), min(half*0.5, 5))
		}
		mark := max(est, u)
		if h.Truth != nil {
			t := s.at(h.Truth[i])
			p.line(x-half-3, t, x+half+3, t, 1.6, vermilion)
			mark = max(mark, h.Truth[i])
		}
		if len(h.Labels) <= 24 {
			p.text(x, s.at(max(mark, 0))+4, 0.5, face{8.5, false}, ink, drawn(est))
		}
		p.text(x, bottom-13, 0.5, face{9.5, false}, ink, label)
	}
	p.line(marginLeft, s.at(0), pictureWidth-marginRight, s.at(0), 1, ink)
	p.text((marginLeft+pictureWidth-marginRight)/2, bottom-28, 0.5, face{10, false}, grey, h.XLabel)

	// The legend stands in the upper right corner, where histograms of counts are mostly empty.
	x, y := vg.Length(pictureWidth-marginRight-178), top-12
	p.rect(x-12, y-9-vg.Length(15*h.legends()), pictureWidth-marginRight, y+10, white) // below the topmost line of the grid
	p.rect(x, y-4, x+14, y+5, blue)
	p.text(x+22, y-3, 0, face{9.5, false}, ink, "private estimate, noise included")
	y -= 16
	p.whisker(x+7, y-5, y+5, 4)
	p.text(x+22, y-3, 0, face{9.5, false}, ink, "95 % interval of "+h.about())
	if h.Truth != nil {
		y -= 16
		p.line(x-1, y, x+15, y, 2, vermilion)
		p.text(x+22, y-3, 0, face{9.5, false}, ink, "truth, known in the lab alone")
	}
}

func (h *Histogram) legends() int {
	if h.Truth != nil {
		return 3
	}
	return 2
}

// differences draws the lower panel: estimate minus truth with whiskers, symmetric about zero.
func (h *Histogram) differences(p pen, bottom, top vg.Length) {
	most := 0.0
	for i := range h.Labels {
		l, u := h.interval(i)
		most = max(most, math.Abs(l-h.Truth[i]), math.Abs(u-h.Truth[i]))
	}
	at := ticks(-most*1.05, most*1.05, 5)
	s := scale{at[0], at[len(at)-1], bottom, top - bottom}
	p.axis(s, at, "difference", signed)
	p.line(marginLeft, s.at(0), pictureWidth-marginRight, s.at(0), 2, vermilion)
	for i := range h.Labels {
		x, half := h.centre(i)
		l, u := h.interval(i)
		if h.Stderr[i] > 0 {
			p.whisker(x, s.at(l-h.Truth[i]), s.at(u-h.Truth[i]), min(half*0.5, 5))
		}
		p.dot(x, s.at(h.Estimate[i]-h.Truth[i]), 3.4, blue)
	}
	p.text((marginLeft+pictureWidth-marginRight)/2, bottom-15, 0.5, face{10, false}, grey,
		"estimate minus truth, in "+h.YLabel+", on a scale of its own: "+h.cost())
}

// about is what the whiskers are about.
func (h *Histogram) about() string {
	if h.Sampled {
		return "noise and sampling"
	}
	return "the noise"
}

func (h *Histogram) cost() string {
	if h.Sampled {
		return "all the error of noise and sampling together"
	}
	return "all the error that privacy costs"
}
