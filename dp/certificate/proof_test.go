package certificate_test

import (
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/accountant"
	. "github.com/starling-agg/starling/dp/certificate"
	"github.com/starling-agg/starling/dp/release"
)

// TestProofOfFewerReleases: what a certificate of 12 releases says of some of them is what
// the accountant says of so many, and of all of them what is claimed.
func TestProofOfFewerReleases(t *testing.T) {
	const all, delta = 12, 1e-7
	one := release.Interval(1)
	for name, c := range map[string]struct {
		release    release.Release
		neighbours release.Neighbours
		room       float64
	}{
		"a formula":            {release.One(release.Gaussian{Sigma: 5, Contribution: one}), release.ReplaceOne, 1e-4},
		"rounded noise":        {release.One(release.DiscreteGaussian{Variance: release.Rational{Num: 30, Den: 1}, Contribution: one}), release.ReplaceOne, 1e-4},
		"laws":                 {release.One(release.DiscreteLaplace{Scale: release.Rational{Num: 7, Den: 1}, Contribution: one}), release.ReplaceOne, 5e-3},
		"laws of two ways":     {release.One(release.Gaussian{Sigma: 2, Contribution: one}).Sampled(release.Poisson{Rate: 0.1}), release.AddRemove, 5e-3},
		"randomized responses": {release.One(release.Response{Epsilon0: 0.5, Answers: 4}), release.ReplaceOne, 5e-3},
	} {
		made, err := accountant.Certify(release.Repeated([]release.Release{c.release}, all), delta, c.neighbours)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		p, err := made.Open()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for part := uint64(1); part <= all; part++ {
			want, err := accountant.Epsilon(release.Repeated([]release.Release{c.release}, part), delta, c.neighbours)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Epsilon(part, all, delta); !(got >= want.Epsilon*(1-1e-9) && got <= want.Epsilon*(1+c.room)) {
				t.Errorf("%s: %d of %d: epsilon %v, the accountant says %v", name, part, all, got, want.Epsilon)
			}
		}
		// The least epsilon is a claim that holds, and a smaller one is not.
		if made.Epsilon = p.Epsilon(all, all, delta); made.Check() != nil {
			t.Errorf("%s: epsilon %v: %v", name, made.Epsilon, made.Check())
		}
		if made.Epsilon *= 1 - 3e-5; made.Check() == nil {
			t.Errorf("%s: epsilon %v holds too", name, made.Epsilon)
		}
	}
	// Where some mass is out of the laws' reach, no epsilon has a delta below it.
	broken := &Certificate{Claim: Claim{Epsilon: 1, Delta: 0.1, Neighbours: release.ReplaceOne}, Terms: []release.Term{{Family: release.FamilyResponse, Mu: 0.1, Fail: 0.01,
		Answers: 2, Count: 2, Rate: 1}}}
	if err := accountant.Prove(broken); err != nil {
		t.Fatal(err)
	}
	p, err := broken.Open()
	if err != nil {
		t.Fatal(err)
	}
	if e := p.Epsilon(1, 2, 1e-3); !math.IsInf(e, 1) {
		t.Errorf("epsilon %v at a delta below the failures", e)
	}
	// Releases that a formula adds up have one law together, which tells nothing of some of
	// them; nor does one of a number that cannot be divided.
	mixed := []release.Release{
		release.Times(12, release.Gaussian{Sigma: 9, Contribution: one}), release.Times(12, release.Response{Epsilon0: 0.1, Answers: 2}),
	}
	made, err := accountant.Certify(mixed, 1e-7, release.ReplaceOne)
	if err != nil {
		t.Fatal(err)
	}
	if p, err = made.Open(); err != nil {
		t.Fatal(err)
	}
	if all, some := p.Epsilon(1, 1, 1e-7), p.Epsilon(1, 12, 1e-7); !(all <= made.Epsilon) || !math.IsInf(some, 1) {
		t.Errorf("all give epsilon %v, claimed %v; one of twelve %v", all, made.Epsilon, some)
	}
	if e := p.Epsilon(1, 5, 1e-7); !math.IsInf(e, 1) {
		t.Errorf("a fifth of twelve gives epsilon %v", e)
	}
}

// TestFarClaims: a claim of an epsilon beyond what float64 holds e to the power of is
// answered, whatever its releases, and no panic.
func TestFarClaims(t *testing.T) {
	noise := release.Term{Family: release.FamilyDiscreteGaussian, Honest: 1, Count: 1, Num: 9, Den: 1, Shift: 1, Coordinates: 1}
	for _, sample := range []release.Sample{release.SampleEveryone, release.SamplePoisson, release.SampleFixed} {
		c := Certificate{Claim: Claim{Delta: 1e-9, Neighbours: release.AddRemove}, Terms: []release.Term{noise}}
		if c.Terms[0].Sample, c.Terms[0].Rate = sample, 0.1; sample == release.SampleEveryone {
			c.Terms[0].Rate = 1
		}
		if sample == release.SampleFixed {
			c.Neighbours = release.ReplaceOne
		}
		for _, epsilon := range []float64{600, 709, 800, 1e6} {
			if c.Epsilon = epsilon; c.Check() != nil {
				t.Errorf("%v at epsilon %v: %v", sample, epsilon, c.Check())
			}
		}
	}
}
