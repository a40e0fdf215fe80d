package train

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/starling-agg/starling/internal/draw"
)

// The page, in points.
const (
	pageWidth, pageHeight = 760, 420
	left, right           = 60, 64 // of the axes
	bottom, top           = 92, 72
)

var (
	titleFace = draw.Face{Size: 16, Bold: true}
	textFace  = draw.Face{Size: 9.5}
	underFace = draw.Face{Size: 11}
)

// WritePNG draws accuracy and epsilon against rounds.
func (r *Report) WritePNG(w io.Writer) error { return r.picture().WritePNG(w) }

// WriteSVG is WritePNG with the picture in words beside it.
func (r *Report) WriteSVG(w io.Writer) error { return r.picture().WriteSVG(w) }

// WriteTable writes the curve.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	b.WriteString("round,accuracy,epsilon\n")
	for _, p := range r.Curve {
		fmt.Fprintf(&b, "%d,%s,%s\n", p.Round, strconv.FormatFloat(p.Accuracy, 'g', 6, 64), strconv.FormatFloat(p.Epsilon, 'g', 6, 64))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Subject is what was trained, of what, in one line.
func (r *Report) Subject() string {
	return fmt.Sprintf("%s on the images of %s: %d devices, %d numbers each", r.Model, r.Data, r.Devices, r.Dimension)
}

// Caption is the guarantee in words.
func (r *Report) Caption() string {
	rounds := func(n int) string {
		if n == 1 {
			return "1 round"
		}
		return fmt.Sprintf("%d rounds", n)
	}
	s := fmt.Sprintf("Epsilon %.3g, delta %.3g after %s, neighbours %s, where one of two servers is honest; both add all of the noise", r.Epsilon, r.Delta,
		rounds(r.Rounds), r.Neighbours)
	if r.Sample != "1" {
		s += fmt.Sprintf("; each device reports in a round with probability %s, by a coin that nobody sees", r.Sample)
	}
	s += "."
	if r.BothHonest != nil {
		s += fmt.Sprintf(" All rounds cost %.3g if both servers are honest", *r.BothHonest)
		if r.Unsampled != nil && r.Sample != "1" {
			s += fmt.Sprintf(", and %.3g where it is known who reports", *r.Unsampled)
		}
		s += "."
	}
	if r.Correlated > 0 {
		s += fmt.Sprintf(" Each device reports in one round of %d, and later rounds take back a part of the noise.", r.Correlated)
	}
	if r.AdaptiveClip > 0 {
		s += fmt.Sprintf(" The clipping norm follows the %g quantile of updates, by a bit in each report.", r.AdaptiveClip)
	}
	if r.NoiseScale != "" {
		s += fmt.Sprintf(" NOISE SCALED by %s: what a larger cohort's mean would have, whose epsilon this is; these %d devices would not have it.", r.NoiseScale, r.Devices)
	}
	if r.Skipped > 0 {
		s += fmt.Sprintf(" %s had too few reports and were not released.", rounds(r.Skipped))
	}
	if r.Attackers > 0 {
		s += fmt.Sprintf(" %d attackers sent more than the bound", r.Attackers)
		if r.Unvalidated {
			s += ", and no server checked."
		} else {
			s += fmt.Sprintf(": %d reports rejected.", r.Unsent.Norm)
		}
	}
	s += " Accuracy is on test images that no device has."
	if r.Real {
		return s + " All parties ran, on one machine."
	}
	return s + " The simulator computes the integers of the running system."
}

func (r *Report) picture() draw.Picture {
	title := fmt.Sprintf("%.1f %% of %d test images right", 100*r.Accuracy, r.TestImages)
	var words strings.Builder
	fmt.Fprintf(&words, "%s. Accuracy and epsilon after each round: ", r.Subject())
	for i, p := range r.Curve {
		if i%5 == 0 || i == len(r.Curve)-1 {
			fmt.Fprintf(&words, "round %d: %.1f %% and %.3g; ", p.Round, 100*p.Accuracy, p.Epsilon)
		}
	}
	words.WriteString(r.Caption())
	return draw.Picture{Width: pageWidth, Height: pageHeight, Title: title, Words: words.String(), Draw: func(c draw.Canvas) { r.draw(c, title) }}
}

func (r *Report) draw(c draw.Canvas, title string) {
	c.Text(draw.Point{X: 18, Y: pageHeight - 28}, draw.Left, titleFace, draw.Ink, title)
	c.Text(draw.Point{X: 18, Y: pageHeight - 46}, draw.Left, underFace, draw.Grey, r.Subject())
	const width, height = pageWidth - left - right, pageHeight - bottom - top
	last := float64(max(1, r.Curve[len(r.Curve)-1].Round))
	most := 0.0
	for _, p := range r.Curve {
		if !math.IsInf(p.Epsilon, 0) {
			most = max(most, p.Epsilon)
		}
	}
	most = max(1, math.Ceil(most))
	at := func(x, y float64) draw.Point {
		return draw.Point{X: left + x/last*width, Y: bottom + min(max(y, 0), 1)*height}
	}
	for i := range 6 {
		y := float64(i) / 5
		c.Line(draw.Stroke{Color: draw.Faint, Width: 0.6}, at(0, y), at(last, y))
		c.Text(draw.Point{X: left - 6, Y: at(0, y).Y - 3}, draw.Right, textFace, draw.Blue, fmt.Sprintf("%d %%", 20*i))
		c.Text(draw.Point{X: left + width + 6, Y: at(0, y).Y - 3}, draw.Left, textFace, draw.Vermilion, strconv.FormatFloat(y*most, 'g', 3, 64))
	}
	for i := range 5 {
		x := math.Round(last * float64(i) / 4)
		c.Text(draw.Point{X: at(x, 0).X, Y: bottom - 14}, draw.Middle, textFace, draw.Grey, strconv.Itoa(int(x)))
	}
	c.Text(draw.Point{X: left + width/2, Y: bottom - 30}, draw.Middle, textFace, draw.Grey, "rounds")
	accuracy, epsilon := make([]draw.Point, len(r.Curve)), make([]draw.Point, len(r.Curve))
	for i, p := range r.Curve {
		accuracy[i], epsilon[i] = at(float64(p.Round), p.Accuracy), at(float64(p.Round), p.Epsilon/most)
	}
	if len(r.Curve) > 1 {
		c.Line(draw.Stroke{Color: draw.Vermilion, Width: 1.2, Dashes: []float64{5, 3}}, epsilon...)
		c.Line(draw.Stroke{Color: draw.Blue, Width: 2}, accuracy...)
	}
	c.Turned(draw.Point{X: 18, Y: bottom + height/2}, textFace, draw.Blue, "accuracy")
	c.Turned(draw.Point{X: pageWidth - 10, Y: bottom + height/2}, textFace, draw.Vermilion, "epsilon spent (dashed)")
	for i, line := range textFace.Wrap(r.Caption(), pageWidth-36) {
		c.Text(draw.Point{X: 18, Y: bottom - 48 - 12*float64(i)}, draw.Left, textFace, draw.Grey, line)
	}
}
