package correlated

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/internal/outward"
)

// A Series is a strategy in use: what a server must know to draw, and what a guarantee
// rests on.
type Series struct {
	Strategy Strategy
	// Separation is the least distance in rounds between two participations of one
	// device: one in round s, the next not before s + Separation. At least the strategy's
	// bands.
	Separation uint64
	// Rounds is the number of releases, at most; 1 to MaxRounds.
	Rounds uint64
}

// Validate says whether the series can be drawn: it fails with [ErrStrategy] where the
// separation is too short or the recurrence would make too much of a draw over Rounds
// rounds.
func (s Series) Validate() error {
	b := s.Strategy.Bands()
	switch {
	case b == 0:
		return fmt.Errorf("%w: no strategy", ErrStrategy)
	case s.Separation < uint64(b):
		return fmt.Errorf("%w: a separation of %d rounds, want at least the %d bands", ErrStrategy, s.Separation, b)
	case s.Rounds < 1 || s.Rounds > MaxRounds:
		return fmt.Errorf("%w: %d rounds, want 1 to %d", ErrStrategy, s.Rounds, MaxRounds)
	}
	if gain := s.Strategy.gain(int(s.Rounds)); !(gain <= maxGain) {
		return fmt.Errorf("%w: noise grows %.3g times over %d rounds, want at most %d", ErrStrategy, gain, s.Rounds, maxGain)
	}
	return nil
}

// A Span is the rounds that one release covers, both ends included.
type Span struct{ First, Last uint64 }

// An OrderError: a release comes too late, for a later round was released; or it covers
// rounds in two of which one device may be; or the series has ended. Nothing may be
// released.
type OrderError struct {
	Asked Span
	// Last is the last round released; valid if Late.
	Last uint64
	Late bool
	// Separation is the series', if the span is too long for it.
	Separation uint64
	// Rounds is the series', if it has ended.
	Rounds uint64
}

func (e *OrderError) Error() string {
	switch {
	case e.Late:
		return fmt.Sprintf("correlated: round %d comes after round %d was released: rounds are released in the order of time", e.Asked.First, e.Last)
	case e.Separation > 0:
		return fmt.Sprintf("correlated: rounds %d to %d in one release, want at most %d: a device could be in it twice", e.Asked.First, e.Asked.Last,
			e.Separation)
	}
	return fmt.Sprintf("correlated: all %d releases of the series were made", e.Rounds)
}

// Next says on how many of the earlier releases, of which latest are the last ones, the
// latest first, the release of next leans: those that no device can be in if it is in
// next, and at most b-1. released is their number in all. It fails with an [*OrderError]
// if next may not be released.
func (s Series) Next(next Span, released uint64, latest []Span) (lean int, err error) {
	switch {
	case released >= s.Rounds:
		return 0, &OrderError{Asked: next, Rounds: s.Rounds}
	case next.Last < next.First || next.Last-next.First >= s.Separation:
		return 0, &OrderError{Asked: next, Separation: s.Separation}
	case len(latest) > 0 && next.First <= latest[0].Last:
		return 0, &OrderError{Asked: next, Last: latest[0].Last, Late: true}
	}
	for _, before := range latest[:min(len(latest), s.Strategy.Bands()-1)] {
		if next.Last-before.First >= s.Separation {
			break
		}
		lean++
	}
	return lean, nil
}

// inverse returns the first n coefficients of 1/c(x), the first column of the inverse of C.
func inverse(c []float64, n int) []float64 {
	h := make([]float64, n)
	h[0] = 1
	for t := 1; t < n; t++ {
		sum := 0.0
		for j := 1; j < len(c) && j <= t; j++ {
			sum += c[j] * h[t-j]
		}
		h[t] = -sum
	}
	return h
}

// prefixes turns a sequence into its running sums, in place: multiplication by 1/(1-x).
func prefixes(h []float64) []float64 {
	for t := 1; t < len(h); t++ {
		h[t] += h[t-1]
	}
	return h
}

// gainError bounds the relative error of gain's sum, generously: its entries come from a
// recurrence over all rounds.
const gainError = 1e-6

// gain bounds the absolute sum of the inverse's first column, so |w| <= gain (|z| + 1/2)
// in units of 2^-k.
func (s Strategy) gain(rounds int) float64 {
	sum := 0.0
	for _, h := range inverse(s.real(), rounds) {
		sum += math.Abs(h)
	}
	return outward.Widened(sum, gainError)
}

// Errors are variances of what one server adds, round by round.
type Errors struct {
	// Round is of what is added to each round: Round[t-1] to round t.
	Round []float64
	// Prefix is of what is added to the sum over all rounds up to each.
	Prefix []float64
}

// Forecast returns the variances over the given number of consecutive rounds, for draws
// of variance sigma2 in squared units of the sum. Roundings are counted as if uniform and
// independent.
func (s Strategy) Forecast(sigma2 float64, rounds int) Errors {
	e := Errors{Round: make([]float64, rounds), Prefix: make([]float64, rounds)}
	if rounds == 0 || s.bands == 0 {
		return e
	}
	h := inverse(s.real(), rounds)
	fine, whole := 0.0, 0.0
	if s.bits > 0 {
		fine, whole = math.Ldexp(1, -2*int(s.bits))/12, 1.0/12
	}
	accumulate := func(into, by []float64, rounding func(t int) float64) {
		sum := 0.0
		for t, x := range by {
			sum += x * x
			into[t] = sum*(sigma2+fine) + rounding(t)
		}
	}
	accumulate(e.Round, h, func(int) float64 { return whole })
	accumulate(e.Prefix, prefixes(h), func(t int) float64 { return whole * float64(t+1) })
	return e
}

// MeanPrefix is the mean of the prefixes' variances.
func (e Errors) MeanPrefix() float64 {
	sum := 0.0
	for _, v := range e.Prefix {
		sum += v
	}
	return sum / float64(max(1, len(e.Prefix)))
}

// Improvement is how much smaller the standard error of prefix sums is (root mean square
// over all of them, of the given rounds) than with independent noise under the same
// guarantee, for a device that takes part equally often either way.
func (s Strategy) Improvement(rounds int) float64 {
	if s.bands == 0 || rounds < 1 {
		return 1
	}
	return math.Sqrt(float64(rounds+1) / 2 / objective(s.real(), rounds, nil))
}
