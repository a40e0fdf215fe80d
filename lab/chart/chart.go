// Package chart draws a private histogram: estimates with their 95 % intervals beside the
// truth where it is known, as PNG or SVG and as text for a terminal.
//
// Server noise is small beside the counts of a large batch, so its whiskers would be a
// hair on top of the bars. Where the truth is known a second panel therefore shows
// estimate minus truth on a scale of its own. The colours are of Okabe and Ito's palette,
// which people with any of the common kinds of colour blindness can tell apart; the fonts
// are inside the binary.
package chart

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/starling-agg/starling/internal/prose"
)

// Z is the number of standard errors on either side of an estimate that hold 95 % of a
// normal distribution.
const Z = 1.959963984540054

// maxBuckets is what a picture can show legibly.
const maxBuckets = 64

// A Histogram is what is drawn. Its slices have one entry for each bucket, in order.
type Histogram struct {
	Title    string // what was asked; one line
	Subtitle string // of whom, and how many answered; one line
	XLabel   string // what a bucket is
	YLabel   string // what is counted
	Labels   []string
	Estimate []float64
	// Interval holds what is true with 95 %, low and high, the estimate between them.
	Interval [][2]float64
	// Sampled says that Interval is of sampling too, and not of noise alone.
	Sampled bool
	// Truth is what a lab alone knows. Nil where it is not known.
	Truth []float64
	// Caption is the guarantee in words; it is broken into lines.
	Caption string
}

// Validate says what is wrong with the histogram.
func (h *Histogram) Validate() error {
	n := len(h.Labels)
	if n == 0 || n > maxBuckets {
		return fmt.Errorf("chart: %d buckets; want 1 to %d", n, maxBuckets)
	}
	if len(h.Estimate) != n || len(h.Interval) != n || (h.Truth != nil && len(h.Truth) != n) {
		return errors.New("chart: labels, estimates, intervals and truth differ in length")
	}
	for i := range n {
		low, high := h.interval(i)
		if !finite(low) || !finite(high) || !(low <= h.Estimate[i] && h.Estimate[i] <= high) || (h.Truth != nil && !finite(h.Truth[i])) {
			return fmt.Errorf("chart: bucket %d is not a finite number within a finite interval", i)
		}
	}
	return nil
}

// BelowZero says why an estimate of a count is below zero; empty where none is.
func (h *Histogram) BelowZero() string {
	for _, v := range h.Estimate {
		if math.Round(v) < 0 {
			return "An estimate may be below zero where few or none are: noise goes both ways, and cutting it off would make every sum of estimates too large."
		}
	}
	return ""
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// interval returns the bounds of bucket i's 95 % interval.
func (h *Histogram) interval(i int) (low, high float64) {
	return h.Interval[i][0], h.Interval[i][1]
}

// ticks returns about n round values that span low to high, both covered.
func ticks(low, high float64, n int) []float64 {
	if high <= low {
		high = low + 1
	}
	raw := (high - low) / float64(n)
	step := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, f := range []float64{1, 2, 5, 10} {
		if step*f >= raw {
			step *= f
			break
		}
	}
	var t []float64
	for k := math.Floor(low / step); ; k++ {
		t = append(t, k*step)
		if k*step >= high {
			return t
		}
	}
}

// fit cuts a label that is too long, by a measure of text, and puts more behind it.
func fit(label, more string, width float64, measure func(string) float64) string {
	if measure(label) <= width {
		return label
	}
	letters := []rune(label)
	for len(letters) > 1 && measure(string(letters)+more) > width {
		letters = letters[:len(letters)-1]
	}
	return strings.TrimSpace(string(letters)) + more
}

// drawn is Count with a true minus, as pictures have it.
func drawn(x float64) string { return strings.Replace(prose.Count(x), "-", "\u2212", 1) }

// signed is drawn with a plus where it is due.
func signed(x float64) string {
	if math.Round(x) > 0 {
		return "+" + drawn(x)
	}
	return drawn(x)
}
