package recipe

import (
	"errors"
	"fmt"
	"math"
	"math/big"

	"github.com/starling-agg/starling/dp/certificate"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

// CertificateRoom is by how much, relative to the claim, the epsilon of a certificate may be above it. Noise is calibrated to the
// claim almost exactly, and the checker rounds outward more than the accountant. Every device holds the recipe to the claim
// itself by the accountant, too.
const CertificateRoom = 1e-3

// ErrNoCertificate: no certificate can be made for a recipe of this kind, although its guarantee is computed and holds.
var ErrNoCertificate = errors.New("recipe: no certificate")

// The shares of delta that are kept for what events leave out, or passed on to a
// randomizer's shuffling.
const (
	MissShare    = 1e-3
	ShuffleShare = 0.25
)

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

// CheckCertificate returns what b proves if it is a certificate of the recipe's claim: about the recipe's noise, coins, dummies,
// contributions and rounds for its neighbours, no weaker than what is claimed but for [CertificateRoom], and with a proof that holds.
// It does not ask the accountant. The error is a *[CertificateError], or matches [ErrNoCertificate] where the recipe is of a kind that
// has none.
func (r *Recipe) CheckCertificate(b []byte) (Loss, error) {
	want, err := r.Certifiable()
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
	most.Sub(most, new(big.Rat).SetFloat64(want.More))
	left := new(big.Rat).Sub(claim.Delta.Rat(), new(big.Rat).SetFloat64(want.Spent()))
	switch {
	case c.Neighbours != r.Neighbours():
		return NoPrivacy, &CertificateError{"is about other neighbours", nil}
	case len(c.Terms) != 1:
		return NoPrivacy, &CertificateError{fmt.Sprintf("is about %d kinds of release, not 1", len(c.Terms)), nil}
	case !want.matches(c.Terms[0]):
		return NoPrivacy, &CertificateError{fmt.Sprintf("is about the release %+v, the recipe's is %+v", c.Terms[0], want.Term), nil}
	case !atMost(c.Epsilon, most) || !atMost(c.Delta, left):
		return NoPrivacy, &CertificateError{fmt.Sprintf("proves epsilon %v and delta %v, the recipe claims %v and %v", c.Epsilon, c.Delta, claim.Epsilon,
			claim.Delta), nil}
	}
	if err := c.Check(); err != nil {
		return NoPrivacy, &CertificateError{"does not hold", err}
	}
	return Loss{c.Epsilon + want.More, claim.Delta.Float()}, nil
}

// atMost says whether x is a number and not above bound, exactly.
func atMost(x float64, bound *big.Rat) bool {
	return !math.IsNaN(x) && !math.IsInf(x, 0) && new(big.Rat).SetFloat64(x).Cmp(bound) <= 0
}

// A Release is what a certificate of a recipe must be about.
type Release struct {
	release.Term
	// Where rho is not nil the term's Mu, a rho of zCDP or a response's loss, may be any
	// that is not below it. Mu and Fail of a shuffled release are the certificate's own,
	// and so is Dummies where DummyRate is not 0: the number of devices that are sure to
	// be free to send a dummy, but for the miss in each round, when each of the others is
	// with probability free.
	Rho        *big.Rat
	Others     uint64
	Free, Miss float64
	// square is, where it is not nil, what the square of the term's Mu must not be below: of noise on vectors as rounded Gaussian
	// noise (docs/proofs/rounded-gaussians.md).
	Square *big.Rat
	// redrawn is what a round spends of delta on reports that a device draws again, more what all rounds add to epsilon for it.
	Redrawn, More float64
	Rounds        uint32
}

// Spent is what all rounds cost of delta beside what the certificate proves.
func (w Release) Spent() float64 { return outward.Up((w.Miss + w.Redrawn) * float64(w.Rounds)) }

func (w Release) matches(t release.Term) bool {
	if w.Rho != nil {
		if math.IsNaN(t.Mu) || math.IsInf(t.Mu, 0) || new(big.Rat).SetFloat64(t.Mu).Cmp(w.Rho) < 0 {
			return false
		}
		t.Mu = 0
	}
	if w.Square != nil {
		if !(t.Mu > 0) || math.IsInf(t.Mu, 0) {
			return false
		}
		if mu := new(big.Rat).SetFloat64(t.Mu); mu.Mul(mu, mu).Cmp(w.Square) < 0 {
			return false
		}
		t.Mu = 0
	}
	if w.Family == release.FamilyShuffled {
		t.Mu, t.Fail = 0, 0
	}
	if w.DummyRate > 0 {
		if t.Dummies == 0 || !(certificate.Fewer(t.Dummies, w.Others, w.Free) <= w.Miss) {
			return false
		}
		t.Dummies = 0
	}
	return t == w.Term
}

// Certifiable describes the recipe's releases to the checker, from the recipe alone.
func (r *Recipe) Certifiable() (Release, error) {
	claim, ok := r.Claim.(ApproxDP)
	if !ok || r.Exact() {
		return Release{}, fmt.Errorf("%w: nothing is claimed", ErrNoCertificate)
	}
	w := Release{Term: release.Term{Count: uint64(claim.Rounds), Rate: 1}, Rounds: claim.Rounds}
	if r.Randomized() {
		if err := r.Randomizer.certify(&w, r, claim); err != nil {
			return w, err
		}
	} else if err := w.noisy(r, r.HonestServers(claim)); err != nil {
		return w, err
	}
	switch {
	case r.Amplified():
		miss := claim.Delta.FloatDown() / float64(claim.Rounds) * MissShare
		c, err := r.CoinRates()
		if err != nil {
			return w, fmt.Errorf("%w: %w", ErrNoCertificate, err)
		}
		if w.Count != uint64(claim.Rounds) || w.Family == release.FamilyZCDP {
			return w, fmt.Errorf("%w of a sample with this noise", ErrNoCertificate)
		}
		w.Sample, w.Rate, w.DummyRate = release.SamplePoisson, c.Rate, c.Dummy
		w.Others, w.Free, w.Miss = r.Dummies.Senders-1, c.Free, miss
	case r.ByAnswer():
		return w, fmt.Errorf("%w of importance sampling that anybody may watch", ErrNoCertificate)
	}
	return w, nil
}

// rounded describes noise of so many draws on vectors of bounded norm as continuous noise of 4 less in variance. That differs by a
// factor of at most e^(1e-17), for which the square of the distance is a little larger.
func (w *Release) rounded(r *Recipe, bound uint64, variance *big.Rat, draws uint64) error {
	if variance.Cmp(big.NewRat(8, 1)) < 0 || draws > 1<<32 {
		return fmt.Errorf("%w of this little noise on vectors", ErrNoCertificate)
	}
	distance := new(big.Rat).SetInt(new(big.Int).SetUint64(bound))
	if r.Neighbours() == release.ReplaceOne {
		distance.Mul(distance, big.NewRat(2, 1))
	}
	all := new(big.Rat).Mul(variance, new(big.Rat).SetInt(new(big.Int).SetUint64(draws)))
	w.Square = new(big.Rat).Quo(distance.Mul(distance, distance), all.Sub(all, big.NewRat(4, 1)))
	w.Square.Mul(w.Square, big.NewRat(1_000_000_001, 1_000_000_000))
	w.Family = release.FamilyGaussian
	return nil
}

// squared is the squared distance of records that differ by shift in so many coordinates.
func squared(shift, coordinates uint64) *big.Rat {
	d := new(big.Int).SetUint64(shift)
	d.Mul(d, d)
	return new(big.Rat).SetInt(d.Mul(d, new(big.Int).SetUint64(coordinates)))
}

// noisy describes the servers' noise.
func (w *Release) noisy(r *Recipe, honest int) error {
	// By how much a report moves the sum: coordinates, each by at most shift. One report that replaces another moves twice as many
	// ones as one that comes or goes, and a vector twice as far.
	times := uint64(2)
	if r.Neighbours() != release.ReplaceOne {
		times = 1
	}
	return r.Noise.certify(w, r, r.Query.moved(times), honest)
}
