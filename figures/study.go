package figures

import (
	"github.com/starling-agg/starling/internal/outward"
)

// A study is one panel of the error curves: what does not change along a curve.
type study struct {
	people   float64 // N
	alphabet float64 // K
	tasks    uint64  // T
	// rare is g, the fraction of people with a value other than the default; 0 for a
	// uniform histogram.
	rare float64
}

// rate is the probability with which a person's report is in a task's sample if tasks
// take m reports each: for rare values, of the people who hold one, the larger of the two
// rates.
func (s study) rate(m float64) float64 {
	if s.rare == 0 {
		return min(m/s.people, 1)
	}
	return min(m/(2*s.rare*s.people), 1)
}

// releases is in how many releases of AGG a person can be.
func (s study) releases(m float64) float64 {
	return outward.Whole(float64(s.tasks) * m / s.people)
}

// sampling is the error of a uniform sample of m reports, without noise. Cells are
// estimates of superpopulation frequencies: asking everyone leaves an error too.
func (s study) sampling(m float64) float64 {
	if s.rare == 0 {
		return (1 - 1/s.alphabet) / m
	}
	return s.rare / m
}

// importance is the error of a sample that prefers rare values, without noise; that of
// sampling if there are none.
func (s study) importance(m float64) float64 {
	if s.rare == 0 {
		return s.sampling(m)
	}
	return s.rare / (s.rate(m) * s.people)
}

// aggregated is the error of AGG with noise sigma on the counts.
func (s study) aggregated(m, sigma float64) float64 {
	return s.sampling(m) + s.alphabet*sigma*sigma/(m*m)
}

// secret is the error of SAMPAGG with noise sigma on the counts.
func (s study) secret(m, sigma float64) float64 {
	kept := s.rate(m) * s.people // the divisor that makes the estimate unbiased
	return s.importance(m) + s.alphabet*sigma*sigma/(kept*kept)
}
