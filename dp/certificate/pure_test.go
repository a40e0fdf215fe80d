package certificate_test

import (
	"errors"
	"math"
	"testing"

	. "github.com/starling-agg/starling/dp/certificate"
	"github.com/starling-agg/starling/dp/release"
)

// pure is a certificate of delta 0: Laplace noise of scale 10/3 on ten numbers that move by
// 2, in 4 rounds, beside a response. Its loss is 4 * 10 * 2 * 3/10 + 3 * 0.25.
func pure() *Certificate {
	return &Certificate{
		Claim: Claim{Epsilon: 24.75, Neighbours: release.ReplaceOne},
		Terms: []release.Term{
			{Family: release.FamilyDiscreteLaplace, Num: 10, Den: 3, Shift: 2, Count: 40, Rate: 1},
			{Family: release.FamilyResponse, Mu: 0.25, Answers: 2, Count: 4 - 1, Rate: 1},
		},
	}
}

// TestPure: a claim of delta 0 is of the largest losses, added up to the last bit, and
// survives its encoding.
func TestPure(t *testing.T) {
	b, err := pure().MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var c Certificate
	if err := c.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	c.Terms[1].Count = 4
	p, err := c.Open()
	if err != nil {
		t.Fatal(err)
	}
	for _, delta := range []float64{0, 1e-9} {
		if got := p.Epsilon(1, 4, delta); got != 6.25 {
			t.Errorf("a fourth of it loses %v at delta %v", got, delta)
		}
	}
	if got := p.Epsilon(1, 3, 0); !math.IsInf(got, 1) {
		t.Errorf("a third of 40 releases loses %v", got)
	}
	// What is approximate has no loss at a delta of 0, and what is pure has.
	formula, laws := honest(t)
	for _, c := range []*Certificate{formula, laws} {
		p, err := c.Open()
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Epsilon(1, 1, 0); !math.IsInf(got, 1) {
			t.Errorf("%v lose %v at delta 0", c.Terms, got)
		}
	}
}

// TestPureTampered: whoever claims a delta of 0 of anything else, or less than is lost, is
// refused for the reason.
func TestPureTampered(t *testing.T) {
	for name, tc := range map[string]struct {
		lie    func(c *Certificate)
		reason Reason
	}{
		"an epsilon one bit less": {func(c *Certificate) { c.Epsilon = math.Nextafter(c.Epsilon, 0) }, Unproved},
		"a round more":            {func(c *Certificate) { c.Terms[0].Count += 10 }, Unproved},
		"a response that fails":   {func(c *Certificate) { c.Terms[1].Fail = 1e-30 }, BadClaim},
		"nothing":                 {func(c *Certificate) { c.Terms = nil }, BadClaim},
		"too many":                {func(c *Certificate) { c.Terms = make([]release.Term, 65); fill(c.Terms) }, BadClaim},
		"a sample":                {func(c *Certificate) { c.Terms[0].Sample, c.Terms[0].Rate = release.SampleFixed, 0.5 }, BadClaim},
		"laws":                    {func(c *Certificate) { c.Laws = make([]Law, 2) }, BadClaim},
		"a step":                  {func(c *Certificate) { c.Step = 1e-3 }, BadClaim},
		"masses":                  {func(c *Certificate) { c.Masses = make([]float32, 2) }, BadClaim},
		"a normal noise beside": {func(c *Certificate) {
			c.Terms[1] = release.Term{Family: release.FamilyGaussian, Mu: 1e-6, Count: 1, Rate: 1}
		}, BadClaim},
		"no scale":          {func(c *Certificate) { c.Terms[0].Num = 0 }, BadTerm},
		"a delta below all": {func(c *Certificate) { c.Delta = -1e-9 }, BadClaim},
	} {
		c := pure()
		tc.lie(c)
		bad := new(Error)
		if err := c.Check(); !errors.As(err, &bad) || bad.Reason != tc.reason {
			t.Errorf("%s: %v, want reason %d", name, err, tc.reason)
		}
	}
}

func fill(terms []release.Term) {
	for i := range terms {
		terms[i] = release.Term{Family: release.FamilyResponse, Mu: 0.01, Answers: 2, Count: 1, Rate: 1}
	}
}
