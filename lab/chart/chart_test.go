package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/starling-agg/starling/internal/draw"
	"github.com/starling-agg/starling/internal/prose"
)

func sample() *Histogram {
	truth := []float64{6308, 3817, 2797, 1884, 1345, 968, 689, 531, 408, 287, 206, 190, 118, 109, 82, 59, 56, 33, 37, 35, 231}
	off := []float64{3, -12, 7, 1, -5, 14, -2, 0, 9, -8, 4, 3, -11, 6, -1, 2, 8, -6, 5, -14, 10}
	h := &Histogram{
		Title:    "Visits to a doctor in a year",
		Subtitle: "RAND Health Insurance Experiment, 20,190 reports; each was sealed on its device and never opened alone",
		XLabel:   "visits", YLabel: "people", Truth: truth,
		Caption: "Guarantee: epsilon 1.0, delta 1e-6 for replacing any one report, if at least one of the two servers " +
			"is honest. Each server added discrete Gaussian noise of its own before the sum was released.",
	}
	for i, t := range truth {
		h.Labels = append(h.Labels, map[bool]string{true: "20+", false: prose.Count(float64(i))}[i == 20])
		h.Estimate = append(h.Estimate, t+off[i])
		h.Interval = append(h.Interval, [2]float64{t + off[i] - 8.5*Z, t + off[i] + 8.5*Z})
	}
	return h
}

func TestPNG(t *testing.T) {
	h := sample()
	var b bytes.Buffer
	if err := h.WritePNG(&b); err != nil {
		t.Fatal(err)
	}
	if path := os.Getenv("STARLING_CHART"); path != "" {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	img, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	if w := img.Bounds().Dx(); w < 1200 {
		t.Errorf("the picture is %d pixels wide", w)
	}
	// The bar of the first bucket must be about 6308/968 times as high as the sixth's.
	a, b6 := columnHeight(h, img, 0), columnHeight(h, img, 5)
	if ratio := float64(a) / float64(b6); math.Abs(ratio-6311.0/982) > 0.4 {
		t.Errorf("bars of %d and %d pixels: ratio %.2f, want %.2f", a, b6, ratio, 6311.0/982)
	}
}

// columnHeight counts the pixels of a bar's colour on a line beside its whisker.
func columnHeight(h *Histogram, img image.Image, bucket int) int {
	x, half := h.centre(bucket)
	px := int((x + 0.8*half) * float64(img.Bounds().Dx()) / pictureWidth)
	n := 0
	for y := range img.Bounds().Dy() {
		if color.NRGBAModel.Convert(img.At(px, y)) == draw.Blue {
			n++
		}
	}
	return n
}

func TestSVG(t *testing.T) {
	h := sample()
	h.Title = `Visits <b> & "more"`
	var b bytes.Buffer
	if err := h.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for d := xml.NewDecoder(&b); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"Visits &lt;b&gt; &amp; &#34;more&#34;</title>", " 20+: 241 (224 to 258), truth 231;", "Guarantee:"} {
		if !strings.Contains(text, want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
}

func TestText(t *testing.T) {
	h := sample()
	for _, plain := range []bool{false, true} {
		var b strings.Builder
		if err := h.WriteText(&b, 100, plain); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
		if len(lines) != 22 {
			t.Fatalf("%d lines, want 22:\n%s", len(lines), b.String())
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > 100 {
				t.Errorf("%d columns: %s", n, line)
			}
			if plain && strings.ContainsFunc(line, func(r rune) bool { return r > 126 }) {
				t.Errorf("not ASCII: %s", line)
			}
		}
		if f := strings.Fields(lines[1]); !slices.Equal(f[:6], []string{"0", "6,311", "6,294", "to", "6,328", "6,308"}) {
			t.Errorf("first bucket: %q", f)
		}
	}
	h.Interval[5] = [2]float64{h.Estimate[5] - 1800, h.Estimate[5] + 1800}
	var b strings.Builder
	if err := h.WriteText(&b, 100, true); err != nil {
		t.Fatal(err)
	}
	if line := strings.Split(b.String(), "\n")[6]; !strings.Contains(line, "#-") || !strings.HasSuffix(line, "|") {
		t.Errorf("a wide interval shows no whisker: %s", line)
	}
}

func TestDrawBar(t *testing.T) {
	for _, c := range []struct {
		value, low, high float64
		want             string
	}{
		{0, 0, 0, ""}, {1, 1, 1, "██████████"}, {0.55, 0.55, 0.55, "█████▌"}, {-0.3, -0.4, -0.2, ""},
		{0.5, 0.3, 0.7, "█████──┤"}, {2, 2, 2, "██████████"}, {-0.1, -0.5, 0.3, "───┤"}, {0.97, 0.5, 1.5, "█████████┤"},
	} {
		if got := strings.TrimRight(drawBar(c.value, c.low, c.high, 10, false), " "); got != c.want {
			t.Errorf("%+v: got %q, want %q", c, got, c.want)
		}
	}
}

func TestValidate(t *testing.T) {
	for name, spoil := range map[string]func(*Histogram){
		"empty":          func(h *Histogram) { *h = Histogram{} },
		"short estimate": func(h *Histogram) { h.Estimate = h.Estimate[1:] },
		"short truth":    func(h *Histogram) { h.Truth = h.Truth[1:] },
		"NaN":            func(h *Histogram) { h.Estimate[3] = math.NaN() },
		"empty interval": func(h *Histogram) { h.Interval[3][1] = h.Interval[3][0] - 1 },
		"beside it":      func(h *Histogram) { h.Interval[3][0] = h.Estimate[3] + 1 },
		"no interval":    func(h *Histogram) { h.Interval = nil },
		"infinite truth": func(h *Histogram) { h.Truth[0] = math.Inf(1) },
		"too many":       func(h *Histogram) { h.Labels = make([]string, maxBuckets+1) },
	} {
		h := sample()
		spoil(h)
		if h.WritePNG(io.Discard) == nil || h.WriteSVG(io.Discard) == nil || h.WriteText(io.Discard, 80, true) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	// Odd but sound: one bucket, nothing counted, all below zero.
	for _, est := range []float64{0, -5} {
		h := &Histogram{Labels: []string{"only"}, Estimate: []float64{est}, Interval: [][2]float64{{est, est}}}
		if err := h.WritePNG(io.Discard); err != nil {
			t.Errorf("estimate %v: %v", est, err)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      []float64
	}{
		{0, 6328, []float64{0, 2000, 4000, 6000, 8000}}, {0, 1, []float64{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1}},
		{-31, 31, []float64{-40, -20, 0, 20, 40}}, {0, 0, []float64{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1}},
	} {
		if got := ticks(c.low, c.high, 5); !slices.Equal(got, c.want) {
			t.Errorf("ticks(%v, %v) = %v, want %v", c.low, c.high, got, c.want)
		}
	}
}

// TestMinus: a picture writes minus signs, not hyphens.
func TestMinus(t *testing.T) {
	for x, want := range map[float64][2]string{-1234: {"\u22121,234", "\u22121,234"}, -0.2: {"0", "0"}, 0: {"0", "0"}, 7: {"7", "+7"}} {
		if got := [2]string{drawn(x), signed(x)}; got != want {
			t.Errorf("%v is drawn as %q, want %q", x, got, want)
		}
	}
}

// Names of any length leave room for the numbers and bars beside them.
func TestLongLabels(t *testing.T) {
	long := "a bucket with a name of the greatest length that there may be at all"
	h := &Histogram{Title: "t", XLabel: "bucket", YLabel: "reports", Labels: []string{long, "short", "鳥鳥鳥鳥鳥鳥鳥鳥鳥鳥鳥鳥鳥鳥鳥鳥鳥鳥鳥鳥鳥鳥"},
		Estimate: []float64{10, 20, 30}, Interval: [][2]float64{{5, 15}, {15, 25}, {25, 35}}}
	for _, plain := range []bool{false, true} {
		var b strings.Builder
		if err := h.WriteText(&b, 60, plain); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 60 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
		if more := map[bool]string{false: "a bucket with a n…", true: "a bucket with a..."}[plain]; !strings.Contains(b.String(), more) || !strings.Contains(b.String(), " short ") {
			t.Errorf("no %q in\n%s", more, b.String())
		}
	}
	if got := fit(long, "…", 100, small.Width); small.Width(got) > 100 || !strings.HasSuffix(got, "…") || len(got) < 10 {
		t.Errorf("in 100 points: %q, %.1f wide", got, small.Width(got))
	}
	if err := h.WritePNG(io.Discard); err != nil {
		t.Error(err)
	}
}

// TestTruthOutside: the axis reaches a true count far above its estimate, and goes no
// further than the estimates where no truth is known.
func TestTruthOutside(t *testing.T) {
	h := sample()
	h.Truth[3] = 50_000
	for _, known := range []bool{true, false} {
		if !known {
			h.Truth = nil
		}
		var b bytes.Buffer
		if err := h.WriteSVG(&b); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(b.String(), ">60,000</text>"); got != known {
			t.Errorf("truth known: %v; the axis goes up to 60,000: %v", known, got)
		}
	}
}

func TestSigned(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 5: "+5", -5: "\u22125"} {
		if got := signed(x); got != want {
			t.Errorf("signed(%v) = %q, want %q", x, got, want)
		}
	}
}
