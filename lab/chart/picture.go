package chart

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/starling-agg/starling/internal/draw"
	"github.com/starling-agg/starling/internal/prose"
)

// The picture's size in points.
const (
	pictureWidth = 760
	panelHeight  = 330 // with the truth known, the upper panel of two
	deltaHeight  = 120
	marginLeft   = 66
	marginRight  = 18
	barPart      = 0.72 // of a bucket's place
)

// small is the type of numbers and notes, plain that of axes.
var (
	small = draw.Face{Size: 9.5}
	plain = draw.Face{Size: 10}
)

// WritePNG writes the picture as PNG.
func (h *Histogram) WritePNG(w io.Writer) error {
	if err := h.Validate(); err != nil {
		return err
	}
	return h.picture().WritePNG(w)
}

// WriteSVG writes the picture as SVG, with the figures in words for readers who do not
// see it.
func (h *Histogram) WriteSVG(w io.Writer) error {
	if err := h.Validate(); err != nil {
		return err
	}
	return h.picture().WriteSVG(w)
}

func (h *Histogram) picture() draw.Picture {
	height := h.height()
	return draw.Picture{Width: pictureWidth, Height: height, Title: h.Title, Words: h.words(),
		Draw: func(c draw.Canvas) { h.draw(pen{c}, height) }}
}

// words is the text alternative of the picture.
func (h *Histogram) words() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. Bar chart of %s by %s, estimates with 95 %% intervals:", h.Subtitle, h.YLabel, h.XLabel)
	for i, label := range h.Labels {
		low, high := h.interval(i)
		fmt.Fprintf(&b, " %s: %s (%s to %s)", label, prose.Count(h.Estimate[i]), prose.Count(low), prose.Count(high))
		if h.Truth != nil {
			fmt.Fprintf(&b, ", truth %s", prose.Count(h.Truth[i]))
		}
		b.WriteByte(';')
	}
	b.WriteByte(' ')
	b.WriteString(h.Caption)
	return b.String()
}

// captionLines breaks the caption to the picture's width.
func (h *Histogram) captionLines() []string {
	return small.Wrap(h.Caption, pictureWidth-2*marginRight)
}

func (h *Histogram) height() float64 {
	height := 62.0 + panelHeight + 44 + float64(13*len(h.captionLines())) + 18
	if h.Truth != nil {
		height += deltaHeight + 34
	}
	return height
}

// A pen draws on a canvas, in plain coordinates.
type pen struct{ draw.Canvas }

func (p pen) line(x1, y1, x2, y2, width float64, c draw.Color) {
	p.Line(draw.Stroke{Color: c, Width: width}, draw.Point{X: x1, Y: y1}, draw.Point{X: x2, Y: y2})
}

func (p pen) rect(x1, y1, x2, y2 float64, c draw.Color) {
	p.Rect(draw.Point{X: x1, Y: y1}, draw.Point{X: x2, Y: y2}, c)
}

func (p pen) text(x, y float64, a draw.Anchor, f draw.Face, c draw.Color, s string) {
	p.Text(draw.Point{X: x, Y: y}, a, f, c, s)
}

// whisker draws an interval with its two caps.
func (p pen) whisker(x, low, high, cap float64) {
	p.line(x, low, x, high, 1.1, draw.Ink)
	p.line(x-cap, low, x+cap, low, 1.1, draw.Ink)
	p.line(x-cap, high, x+cap, high, 1.1, draw.Ink)
}

func (h *Histogram) draw(p pen, height float64) {
	p.text(marginRight, height-26, draw.Left, draw.Face{Size: 16, Bold: true}, draw.Ink, h.Title)
	p.text(marginRight, height-43, draw.Left, draw.Face{Size: 11}, draw.Grey, h.Subtitle)

	top := height - 62
	h.counts(p, top-panelHeight, top)
	bottom := top - panelHeight - 44
	if h.Truth != nil {
		h.differences(p, bottom-deltaHeight+6, bottom+6)
		bottom -= deltaHeight + 34
	}
	lines := h.captionLines()
	p.line(marginRight, bottom+2, pictureWidth-marginRight, bottom+2, 0.6, draw.Faint)
	for i, line := range lines {
		p.text(marginRight, bottom-12-float64(13*i), draw.Left, small, draw.Grey, line)
	}
}

// scale maps values to heights.
type scale struct {
	low, high      float64
	bottom, height float64
}

func (s scale) at(v float64) float64 {
	return s.bottom + (v-s.low)/(s.high-s.low)*s.height
}

// axis draws the grid and the scale of a panel.
func (p pen) axis(s scale, at []float64, label string, write func(float64) string) {
	for _, v := range at {
		y := s.at(v)
		p.line(marginLeft, y, pictureWidth-marginRight, y, 0.6, draw.Faint)
		p.text(marginLeft-7, y-3.2, draw.Right, small, draw.Grey, write(v))
	}
	p.Turned(draw.Point{X: 24, Y: s.bottom + s.height/2}, plain, draw.Grey, label)
}

// centre is the middle of bucket i, and half the width of its bar.
func (h *Histogram) centre(i int) (x, half float64) {
	slot := float64(pictureWidth-marginLeft-marginRight) / float64(len(h.Labels))
	return marginLeft + slot*(float64(i)+0.5), slot * barPart / 2
}

// counts draws the upper panel: bars, whiskers, truth.
func (h *Histogram) counts(p pen, bottom, top float64) {
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
		p.rect(x-half, s.at(0), x+half, s.at(est), draw.Blue)
		l, u := h.interval(i)
		if u > l {
			p.whisker(x, s.at(l), s.at(u), min(half*0.5, 5))
		}
		mark := max(est, u)
		if h.Truth != nil {
			t := s.at(h.Truth[i])
			p.line(x-half-3, t, x+half+3, t, 1.6, draw.Vermilion)
			mark = max(mark, h.Truth[i])
		}
		if len(h.Labels) <= 24 {
			p.text(x, s.at(max(mark, 0))+4, draw.Middle, draw.Face{Size: 8.5}, draw.Ink, drawn(est))
		}
		p.text(x, bottom-13, draw.Middle, small, draw.Ink, fit(label, "…", 2*half/barPart-2, small.Width))
	}
	p.line(marginLeft, s.at(0), pictureWidth-marginRight, s.at(0), 1, draw.Ink)
	p.text((marginLeft+pictureWidth-marginRight)/2, bottom-28, draw.Middle, plain, draw.Grey, h.XLabel)

	// The legend stands in the upper right corner, where histograms of counts are mostly
	// empty.
	x, y := float64(pictureWidth-marginRight-178), top-12
	p.rect(x-12, y-9-float64(15*h.legends()), pictureWidth-marginRight, y+10, draw.White) // below the topmost line of the grid
	p.rect(x, y-4, x+14, y+5, draw.Blue)
	p.text(x+22, y-3, draw.Left, small, draw.Ink, "private estimate, noise included")
	y -= 16
	p.whisker(x+7, y-5, y+5, 4)
	p.text(x+22, y-3, draw.Left, small, draw.Ink, "95 % interval of "+h.about())
	if h.Truth != nil {
		y -= 16
		p.line(x-1, y, x+15, y, 2, draw.Vermilion)
		p.text(x+22, y-3, draw.Left, small, draw.Ink, "truth, known in the lab alone")
	}
}

func (h *Histogram) legends() int {
	if h.Truth != nil {
		return 3
	}
	return 2
}

// differences draws the lower panel: estimate minus truth with whiskers, symmetric about
// zero.
func (h *Histogram) differences(p pen, bottom, top float64) {
	most := 0.0
	for i := range h.Labels {
		l, u := h.interval(i)
		most = max(most, math.Abs(l-h.Truth[i]), math.Abs(u-h.Truth[i]))
	}
	at := ticks(-most*1.05, most*1.05, 5)
	s := scale{at[0], at[len(at)-1], bottom, top - bottom}
	p.axis(s, at, "difference", signed)
	p.line(marginLeft, s.at(0), pictureWidth-marginRight, s.at(0), 2, draw.Vermilion)
	for i := range h.Labels {
		x, half := h.centre(i)
		l, u := h.interval(i)
		if u > l {
			p.whisker(x, s.at(l-h.Truth[i]), s.at(u-h.Truth[i]), min(half*0.5, 5))
		}
		p.Dot(draw.Point{X: x, Y: s.at(h.Estimate[i] - h.Truth[i])}, 3.4, draw.Blue)
	}
	p.text((marginLeft+pictureWidth-marginRight)/2, bottom-15, draw.Middle, plain, draw.Grey,
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
