package account

import (
	"errors"
	"fmt"
	"slices"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/amplify"
	"github.com/starling-agg/starling/dp/certificate"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
	"github.com/starling-agg/starling/recipe"
)

// near is by how much, relative to what was computed, a proof is looked for above it. A
// grid that is ten times finer takes about four times the bytes.
const near = 5e-4

// certify returns a certificate of the recipe's claim. It travels behind the recipe and is
// no part of it. For a recipe that claims nothing, and where no proof of the claim is
// found, it returns an error that matches [recipe.ErrNoCertificate].
func (r subject) certify() ([]byte, error) {
	statements, err := r.Statements()
	if err != nil {
		return nil, err
	}
	claim := r.Claim.(recipe.ApproxDP)
	first, err := r.prove(statements[0], claim.Epsilon.FloatDown(), func() (recipe.Loss, error) {
		l, _, err := r.proved(recipe.Situation{Servers: r.HonestServers(claim), Hidden: r.Amplified()}, claim.Delta, claim.Rounds, r.Neighbours())
		return l, err
	})
	if err != nil {
		return nil, err
	}
	proofs := make([][]byte, len(statements))
	if proofs[0], err = first.MarshalBinary(); err != nil {
		return nil, fmt.Errorf("recipe: certify: %w", err)
	}
	if len(statements) > 1 {
		if proofs[1], err = r.provePlain(statements[1], claim); err != nil {
			return nil, err
		}
	}
	b, err := recipe.AppendCertificate(nil, proofs...)
	if err != nil {
		return nil, err
	}
	if _, err := r.CheckCertificate(b); err != nil {
		return nil, fmt.Errorf("%w: %w", recipe.ErrNoCertificate, err)
	}
	return b, nil
}

// provePlain proves what is left on none of the conditions. Nothing is no error: a device
// takes it for what it is.
func (r subject) provePlain(w recipe.Statement, claim recipe.ApproxDP) ([]byte, error) {
	if len(w.Terms) == 0 {
		return nil, nil
	}
	l, err := r.unconditional(claim, claim.Delta, claim.Rounds)
	if err != nil || !l.Finite() {
		return nil, err
	}
	c, err := r.prove(w, 1.1*l.Epsilon, func() (recipe.Loss, error) { return l, nil })
	if errors.Is(err, recipe.ErrNoCertificate) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return c.MarshalBinary()
}

// prove returns a proof of an epsilon for the release that is at most limit, and close to
// what is computed if one is found.
func (r subject) prove(w recipe.Statement, limit float64, computed func() (recipe.Loss, error)) (*certificate.Certificate, error) {
	l, err := computed()
	if err != nil {
		return nil, err
	}
	limit -= w.More()
	c, err := r.proveWithin(w, limit)
	if target := outward.Widened(l.Epsilon, near) - w.More(); err == nil && c.Epsilon > target {
		// An epsilon far above the computed one was proved on too coarse a grid.
		if closer, err := r.proveWithin(w, target); err == nil {
			return closer, nil
		}
	}
	return c, err
}

// proveWithin returns a proof of an epsilon of at most limit.
func (r subject) proveWithin(w recipe.Statement, limit float64) (*certificate.Certificate, error) {
	var why error
	for _, way := range ways(w, limit) {
		c, err := r.proof(way, limit)
		if err == nil || !errors.Is(err, recipe.ErrNoCertificate) {
			return c, err
		}
		why = err
	}
	return nil, why
}

// ways are the descriptions of a release by which an epsilon may be proved, the one that
// is likelier to do first: the pure loss where that of all releases is within it.
func ways(w recipe.Statement, epsilon float64) []recipe.Statement {
	pure, ok := w.Pure()
	if !ok {
		return []recipe.Statement{w}
	}
	if t := pure.Terms[0]; t.Mu*float64(t.Count) <= outward.Above(epsilon) {
		return []recipe.Statement{pure, w}
	}
	return []recipe.Statement{w, pure}
}

// proof proves an epsilon for the release, or the least below it that the same
// distributions or the same formula show.
func (r subject) proof(w recipe.Statement, epsilon float64) (*certificate.Certificate, error) {
	if !(epsilon > 0) {
		return nil, fmt.Errorf("%w of an epsilon of %v", recipe.ErrNoCertificate, epsilon)
	}
	claim := r.Claim.(recipe.ApproxDP)
	c := &certificate.Certificate{
		Claim: certificate.Claim{Epsilon: epsilon, Delta: outward.Down(claim.Delta.FloatDown() - w.Spent()), Neighbours: w.Neighbours},
		Terms: slices.Clone(w.Terms),
	}
	if s := w.Round.Senders; s != nil {
		// As many as are free but for the miss, by the accountant's quantile or a little
		// less.
		free, err := amplify.MinimumBatch(s.Others, s.Free, s.Miss)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", recipe.ErrNoCertificate, err)
		}
		for range 10 {
			if free > 1 && certificate.Fewer(free, s.Others, s.Free) > s.Miss {
				free--
			}
		}
		for i := range c.Terms {
			if c.Terms[i].DummyRate > 0 {
				c.Terms[i].Dummies = free
			}
		}
	}
	if m, ok := w.Round.Releases[0].Mechanism.(release.Shuffled); ok && c.Terms[0].Family == release.FamilyShuffled {
		if err := r.shuffledTerm(m, c, claim); err != nil {
			return nil, err
		}
	}
	if err := accountant.Prove(c); err != nil {
		return nil, fmt.Errorf("%w: %w", recipe.ErrNoCertificate, err)
	}
	p, err := c.Open()
	if err != nil {
		return nil, fmt.Errorf("recipe: certify: %w", err)
	}
	c.Epsilon = p.Epsilon(1, 1, c.Delta)
	return c, nil
}

// shuffledTerm completes the terms of shuffled reports by a point of their curve. The
// checker's bound on one round is a little above the accountant's.
func (r subject) shuffledTerm(m release.Shuffled, c *certificate.Certificate, claim recipe.ApproxDP) error {
	point, err := r.shuffled(m, claim.Delta.FloatDown()/float64(claim.Rounds)*recipe.ShuffleShare)
	if err != nil {
		return err
	}
	bad := new(certificate.Error)
	for slack := 1e-3; slack < 0.1; slack *= 3 {
		for i := range c.Terms {
			if t := &c.Terms[i]; t.Family == release.FamilyShuffled {
				t.Mu, t.Fail = point.Epsilon, point.Delta*(1+slack)
			}
		}
		trial := *c
		trial.Epsilon = 0
		if errors.As(trial.Check(), &bad) && bad.Reason != certificate.BadTerm {
			break
		}
	}
	return nil
}
