package account

import (
	"errors"
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/amplify"
	"github.com/starling-agg/starling/dp/certificate"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
	"github.com/starling-agg/starling/recipe"
)

// certify returns a certificate of the recipe's claim, for [Recipe.CheckCertificate], in
// the encoding of package certificate. It travels beside the recipe and is no part of it.
// For a recipe that claims nothing, and where no proof is found within [CertificateRoom]
// of the claim, it returns an error that matches [ErrNoCertificate].
func (r subject) certify() ([]byte, error) {
	want, err := r.Certifiable()
	if err != nil {
		return nil, err
	}
	claim := r.Claim.(recipe.ApproxDP)
	c := certificate.Certificate{
		Claim: certificate.Claim{Delta: outward.Down(claim.Delta.FloatDown() - want.Spent()), Neighbours: r.Neighbours()},
		Terms: []release.Term{want.Term},
	}
	t := &c.Terms[0]
	if want.Rho != nil {
		t.Mu = outward.Rat(want.Rho)
	} else if want.Square != nil {
		f, _ := want.Square.Float64()
		t.Mu = outward.Above(math.Sqrt(f))
	}
	if t.DummyRate > 0 {
		// As many as are free but for the miss, by the accountant's quantile or a little less.
		if t.Dummies, err = amplify.MinimumBatch(want.Others, want.Free, want.Miss); err != nil {
			return nil, fmt.Errorf("%w: %w", recipe.ErrNoCertificate, err)
		}
		for range 10 {
			if t.Dummies > 1 && certificate.Fewer(t.Dummies, want.Others, want.Free) > want.Miss {
				t.Dummies--
			}
		}
	}
	if t.Family == release.FamilyShuffled {
		// The checker's bound on one round is a little above the accountant's.
		fail := claim.Delta.FloatDown() / float64(claim.Rounds) * recipe.ShuffleShare
		e, err := r.shuffled(Situation{}, fail)
		if err != nil {
			return nil, err
		}
		t.Mu, fail = e.Epsilon, e.Delta
		bad := new(certificate.Error)
		for slack := 1e-3; slack < 0.1; slack *= 3 {
			c.Epsilon, t.Fail = 0, fail*(1+slack)
			if errors.As(c.Check(), &bad) && bad.Reason != certificate.BadTerm {
				break
			}
		}
	}
	// The claim itself, and if rounding is in the way a little more.
	if c.Epsilon = claim.Epsilon.FloatDown() - want.More; accountant.Prove(&c) != nil {
		c.Epsilon += claim.Epsilon.FloatDown() * recipe.CertificateRoom * (1 - certificate.Room)
		if err := accountant.Prove(&c); err != nil {
			return nil, fmt.Errorf("%w: %w", recipe.ErrNoCertificate, err)
		}
	}
	// a formula may prove more than is claimed
	if low := 0.0; len(c.Laws) == 0 && t.Family != release.FamilyShuffled {
		for high := c.Epsilon; high-low > 1e-4*high; {
			if c.Epsilon = (low + high) / 2; c.Check() == nil {
				high = c.Epsilon
			} else {
				low = c.Epsilon
			}
			c.Epsilon = high
		}
	}
	b, err := c.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("recipe: certify: %w", err)
	}
	if _, err := r.CheckCertificate(b); err != nil {
		return nil, fmt.Errorf("%w: %w", recipe.ErrNoCertificate, err)
	}
	return b, nil
}
