package recipe

import (
	"errors"
	"fmt"
	"math"
	"math/big"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/certificate"
)

// CertificateRoom is by how much, relative to the claim, the epsilon of a certificate may be above it. Noise is calibrated to the
// claim almost exactly, and the checker rounds outward more than the accountant. Every device holds the recipe to the claim
// itself by the accountant, too.
const CertificateRoom = 1e-3

// ErrNoCertificate: no certificate can be made for a recipe of this kind, although its guarantee is computed and holds.
var ErrNoCertificate = errors.New("recipe: no certificate")

// A CertificateError is why a certificate does not prove what a recipe claims.
type CertificateError struct {
	// Problem says it in words.
	Problem string
	// Err is what package certificate found, a *certificate.Error, or nil where the proof is of something else.
	Err error
}

func (e *CertificateError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("recipe: certificate %s: %v", e.Problem, e.Err)
	}
	return "recipe: certificate " + e.Problem
}

// Unwrap returns Err.
func (e *CertificateError) Unwrap() error { return e.Err }

// Certify returns a certificate of the recipe's claim, for [Recipe.CheckCertificate], in the encoding of package certificate. It
// travels beside the recipe and is no part of it. Recipes whose servers add all the noise, to reports of everyone, have one. For
// others, and where the accountant finds none within [CertificateRoom] of the claim, it returns an error that matches [ErrNoCertificate]: what
// coins, dummies and shuffling give is computed by every device, but not yet proved in a form that it could check without the
// accountant.
func (r *Recipe) Certify() ([]byte, error) {
	if _, err := r.certifiable(); err != nil {
		return nil, err
	}
	claim := r.Claim.(ApproxDP)
	e, err := event(r.Query, r.Noise, r.honest(claim))
	if err != nil {
		return nil, err
	}
	e = accountant.SelfCompose{Event: e, Count: uint64(claim.Rounds)}
	c, err := accountant.Certify(e, claim.Delta.FloatDown(), accountant.ReplaceOne)
	if errors.Is(err, accountant.ErrUnsupported) {
		return nil, fmt.Errorf("%w: %w", ErrNoCertificate, err)
	} else if err != nil {
		return nil, fmt.Errorf("recipe: certify: %w", err)
	}
	if most := claim.Epsilon.FloatDown(); c.Epsilon > most {
		exact := *c
		if exact.Epsilon = most; exact.Check() == nil {
			c = &exact
		}
	}
	b, err := c.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("recipe: certify: %w", err)
	}
	if _, err := r.CheckCertificate(b); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoCertificate, err)
	}
	return b, nil
}

// CheckCertificate returns what b proves if it is a certificate of the recipe's claim: about the recipe's noise, contributions and
// rounds for replace-one neighbours, no weaker than what is claimed but for [CertificateRoom], and with a proof that holds. It does
// not ask the accountant. The error is a *[CertificateError], or matches [ErrNoCertificate] where the recipe is of a kind that has none.
func (r *Recipe) CheckCertificate(b []byte) (Loss, error) {
	want, err := r.certifiable()
	if err != nil {
		return NoPrivacy, err
	}
	var c certificate.Certificate
	if err := c.UnmarshalBinary(b); err != nil {
		return NoPrivacy, &CertificateError{"cannot be read", err}
	}
	claim := r.Claim.(ApproxDP)
	most := new(big.Rat).SetFloat64(CertificateRoom)
	most.Mul(most.Add(most, big.NewRat(1, 1)), claim.Epsilon.Rat())
	switch {
	case c.Neighbours != certificate.Replace:
		return NoPrivacy, &CertificateError{"is about other neighbours", nil}
	case len(c.Terms) != 1:
		return NoPrivacy, &CertificateError{fmt.Sprintf("is about %d kinds of release, not 1", len(c.Terms)), nil}
	case !want.matches(c.Terms[0]):
		return NoPrivacy, &CertificateError{fmt.Sprintf("is about the release %+v, the recipe's is %+v", c.Terms[0], want.Term), nil}
	case !atMost(c.Epsilon, most) || !atMost(c.Delta, claim.Delta.Rat()):
		return NoPrivacy, &CertificateError{fmt.Sprintf("proves epsilon %v and delta %v, the recipe claims %v and %v", c.Epsilon, c.Delta, claim.Epsilon,
			claim.Delta), nil}
	}
	if err := c.Check(); err != nil {
		return NoPrivacy, &CertificateError{"does not hold", err}
	}
	return Loss{c.Epsilon, c.Delta}, nil
}

// atMost says whether x is a number and not above bound, exactly.
func atMost(x float64, bound *big.Rat) bool {
	return !math.IsNaN(x) && !math.IsInf(x, 0) && new(big.Rat).SetFloat64(x).Cmp(bound) <= 0
}

// A release is what a certificate of a recipe must be about. Where rho is not nil the term's Mu may be any that is not below it.
type release struct {
	certificate.Term
	rho *big.Rat
}

func (w release) matches(t certificate.Term) bool {
	if w.rho == nil {
		return t == w.Term
	}
	if math.IsNaN(t.Mu) || math.IsInf(t.Mu, 0) || new(big.Rat).SetFloat64(t.Mu).Cmp(w.rho) < 0 {
		return false
	}
	t.Mu = 0
	return t == w.Term
}

// certifiable describes the recipe's releases to the checker, from the recipe alone.
func (r *Recipe) certifiable() (release, error) {
	var w release
	claim, ok := r.Claim.(ApproxDP)
	switch {
	case !ok || r.Noise == NoNoise{}:
		return w, fmt.Errorf("%w: the servers add no noise", ErrNoCertificate)
	case r.Randomizer != NoRandomizer{}:
		return w, fmt.Errorf("%w of what shuffling gives", ErrNoCertificate)
	case r.sampled():
		return w, fmt.Errorf("%w of what coins and dummies give", ErrNoCertificate)
	}
	t := &w.Term
	t.Count, t.Rate = uint64(claim.Rounds), 1
	// By how much replacing a report moves the sum: coordinates, each by at most shift.
	coordinates, shift, ball := uint64(1), uint64(1), false
	switch q := r.Query.(type) {
	case Count:
	case Sum:
		shift = q.Max
	case Mean:
		shift = q.Max
	case Histogram:
		coordinates = 2
	case Multihot:
		coordinates = min(2*q.MaxWeight, uint64(q.Length))
	case SumVec:
		coordinates, shift = uint64(q.Length), q.Max
	case Vector:
		shift, ball = q.Bound, true
	default:
		return w, fmt.Errorf("%w of this query", ErrNoCertificate)
	}
	switch n := r.Noise.(type) {
	case DiscreteLaplace:
		if ball {
			return w, fmt.Errorf("%w of Laplace noise on vectors of bounded norm", ErrNoCertificate)
		}
		t.Mechanism, t.Num, t.Den, t.Shift = certificate.DiscreteLaplace, n.Scale.Num, n.Scale.Den, shift
		t.Count *= coordinates
	case DiscreteGaussian:
		v, err := n.perServer()
		if err != nil {
			return w, fmt.Errorf("%w: %w", ErrNoCertificate, err)
		}
		honest := r.honest(claim)
		variance := new(big.Rat).SetFrac(new(big.Int).SetUint64(v.Num), new(big.Int).SetUint64(v.Den))
		if ball { // rho = distance^2/(2 variance), distance = 2 Bound
			distance := new(big.Rat).SetInt(new(big.Int).Lsh(new(big.Int).SetUint64(shift), 1))
			w.rho = new(big.Rat).Quo(distance.Mul(distance, distance), variance.Mul(variance, big.NewRat(2*int64(honest), 1)))
			t.Mechanism = certificate.ZCDP
			break
		}
		t.Mechanism, t.Num, t.Den, t.Shift = certificate.DiscreteGaussian, v.Num, v.Den, shift
		t.Coordinates, t.Honest = coordinates, uint8(honest)
		if variance.Cmp(big.NewRat(4, 1)) < 0 { // the checker counts coordinates as releases
			t.Count, t.Coordinates = t.Count*coordinates, 1
		}
	case CorrelatedGaussian: // rho = distance^2 |c|^2/(2 variance): docs/proofs/correlated-noise.md
		if ball {
			coordinates = 4 // (2 Bound)^2
		}
		distance2 := new(big.Int).Mul(new(big.Int).SetUint64(shift), new(big.Int).SetUint64(shift))
		distance2.Mul(distance2, new(big.Int).SetUint64(coordinates))
		norm := n.norm2()
		w.rho = new(big.Rat).Mul(new(big.Rat).SetInt(distance2), Rational(norm).Rat())
		w.rho.Quo(w.rho, new(big.Rat).Mul(n.Variance.Rat(), big.NewRat(2, 1)))
		t.Mechanism = certificate.ZCDP
	default:
		return w, fmt.Errorf("%w of this noise", ErrNoCertificate)
	}
	return w, nil
}
