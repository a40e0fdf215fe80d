package draw

import (
	"bytes"
	"encoding/xml"
	"image/color"
	"image/png"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestRuns(t *testing.T) {
	for s, want := range map[string][]run{
		"":              nil,
		"plain":         {{"plain", 0}},
		"10^{-6}":       {{"10", 0}, {"-6", raise}},
		"a_{0} b":       {{"a", 0}, {"0", -lower}, {" b", 0}},
		"^{x}_{y}":      {{"x", raise}, {"y", -lower}},
		"snake_case^2":  {{"snake_case^2", 0}},
		"a_b^{2}":       {{"a_b", 0}, {"2", raise}},
		"open ^{ended":  {{"open ^{ended", 0}},
		"10^{3} 10^{4}": {{"10", 0}, {"3", raise}, {" 10", 0}, {"4", raise}},
	} {
		if got := runs(s); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
	if got := Plain("ε_{0} at 10^{−6}"); got != "ε0 at 10^-6" {
		t.Errorf("Plain: %q", got)
	}
	f := Face{Size: 10}
	if a, b := f.Width("10^{6}"), f.Width("106"); !(a < b && a > f.Width("10")) {
		t.Errorf("raised digits take %v points, full ones %v", a, b)
	}
}

func TestWrap(t *testing.T) {
	f := Face{Size: 10}
	const text = "one two three four averyveryverylongword five"
	limit := f.Width("one two three")
	lines := f.Wrap(text, limit)
	if strings.Join(lines, " ") != text {
		t.Errorf("%q", lines)
	}
	for _, l := range lines {
		if f.Width(l) > limit && strings.Contains(l, " ") {
			t.Errorf("%q is too long", l)
		}
	}
}

func picture() Picture {
	return Picture{Width: 100, Height: 50, Title: "A <title>", Words: "10^{2} & more",
		Draw: func(c Canvas) {
			c.Rect(Point{30, 20}, Point{10, 10}, Blue)
			c.Line(Stroke{Color: Vermilion, Width: 4}, Point{50, 0}, Point{50, 50})
			c.Line(Stroke{Color: Green, Width: 4, Dashes: []float64{5, 5}}, Point{60, 0}, Point{60, 50})
			c.Line(Stroke{Color: Ink, Width: 9}, Point{1, 1}) // nothing to draw
			c.Dot(Point{80, 40}, 5, Green)
			c.Text(Point{70, 10}, Middle, Face{8, true}, Ink, "10^{2} < 3")
			c.Text(Point{70, 10}, Right, Face{8, false}, Ink, "")
			c.Turned(Point{95, 25}, Face{8, false}, Ink, "up")
		}}
}

func TestPNG(t *testing.T) {
	var b bytes.Buffer
	if err := picture().WritePNG(&b); err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	pixel := func(x, y float64) color.NRGBA { // points, from below
		return color.NRGBAModel.Convert(img.At(int(x*dpi/72), int((50-y)*dpi/72))).(color.NRGBA)
	}
	for _, c := range []struct {
		x, y float64
		want color.NRGBA
	}{
		{20, 15, Blue}, {20, 25, White}, {5, 15, White}, {50, 30, Vermilion}, {80, 42, Green}, {80, 33, White}, {1, 1, White},
	} {
		if got := pixel(c.x, c.y); got != c.want {
			t.Errorf("at %v, %v: %v, want %v", c.x, c.y, got, c.want)
		}
	}
	dashes := map[color.NRGBA]int{}
	for y := 1.0; y < 50; y++ {
		dashes[pixel(60, y)]++
	}
	if dashes[Green] < 15 || dashes[White] < 15 {
		t.Errorf("dashes: %v", dashes)
	}
}

func TestSVG(t *testing.T) {
	var b bytes.Buffer
	if err := picture().WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	svg := b.String()
	count := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		tok, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := tok.(xml.StartElement); ok {
			count[s.Name.Local]++
		}
	}
	for name, want := range map[string]int{"rect": 2, "polyline": 2, "circle": 1, "text": 2, "tspan": 2, "title": 1, "desc": 1} {
		if count[name] != want {
			t.Errorf("%d elements %s, want %d", count[name], name, want)
		}
	}
	for _, want := range []string{"<title>A &lt;title&gt;</title>", "<desc>10^2 &amp; more</desc>", `stroke-dasharray="5 5"`,
		`x="10.0" y="30.0" width="20.0" height="10.0"`, `text-anchor="middle"`, `rotate(-90 95.0 25.0)`} {
		if !strings.Contains(svg, want) {
			t.Errorf("the SVG has no %s:\n%s", want, svg)
		}
	}
}

func TestWriteErrors(t *testing.T) {
	for _, write := range []func(io.Writer) error{picture().WritePNG, picture().WriteSVG} {
		if err := write(full{}); err == nil {
			t.Error("a failed write was not reported")
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// Colours that stand for different things lie apart; that the common kinds of colour
// blindness keep them apart is what Okabe and Ito chose them for.
func TestPalette(t *testing.T) {
	all := []Color{Blue, Sky, Green, Orange, Vermilion, Purple, Grey, Ink}
	for i, a := range all {
		for _, b := range all[:i] {
			d := math.Sqrt(sq(a.R, b.R) + sq(a.G, b.G) + sq(a.B, b.B))
			if d < 40 {
				t.Errorf("%v and %v are %.0f apart", a, b, d)
			}
		}
	}
}

func sq(a, b uint8) float64 { d := float64(a) - float64(b); return d * d }
