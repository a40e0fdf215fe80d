package recipe

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"

	"github.com/starling-agg/starling/dp/certificate"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

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

// atMost says whether x is a number and not above bound, exactly.
func atMost(x float64, bound *big.Rat) bool {
	return !math.IsNaN(x) && !math.IsInf(x, 0) && new(big.Rat).SetFloat64(x).Cmp(bound) <= 0
}

// A Release is what one proof of a certificate must be about.
type Release struct {
	release.Term
	// Neighbours that the proof tells apart.
	Neighbours release.Neighbours
	// Where Rho is not nil the term's Mu, a rho of zCDP or a response's loss, may be any
	// that is not below it. Mu and Fail of a shuffled release are the certificate's own,
	// and so is Dummies where DummyRate is not 0: the number of devices that are sure to
	// be free to send a dummy, but for the Miss in each round, when each of the Others is
	// with probability Free.
	Rho        *big.Rat
	Others     uint64
	Free, Miss float64
	// Square is, where it is not nil, what the square of the term's Mu must not be below:
	// of noise on vectors as rounded Gaussian noise (docs/proofs/rounded-gaussians.md).
	Square *big.Rat
	// Watched is the loss of a response that is released beside, once a round: whether a
	// device reports, to who watches it. 0 is none.
	Watched float64
	// Redrawn is what a round spends of delta on reports that a device draws again, More
	// what all rounds add to epsilon for it.
	Redrawn, More float64
	Rounds        uint32

	hidden bool // who reports
}

// Pure describes the release by its pure loss alone, where it has one: as a response among
// two answers, which is less private than any other release of that loss. A proof may be
// of that as well, and is where the pure loss of all rounds is as good as what the release
// itself gives.
func (w Release) Pure() (Release, bool) {
	var loss *big.Rat
	switch w.Family {
	case release.FamilyDiscreteLaplace:
		loss = new(big.Rat).SetFrac(new(big.Int).SetUint64(w.Den), new(big.Int).SetUint64(w.Num))
		loss.Mul(loss, new(big.Rat).SetInt(new(big.Int).SetUint64(w.Shift)))
	case release.FamilyShuffled: // what every report gives by itself
		loss = new(big.Rat).SetFloat64(w.Local)
		loss.Add(loss, new(big.Rat).SetFloat64(2*w.Redraw))
	default:
		return w, false
	}
	t := release.Term{Family: release.FamilyResponse, Answers: 2, Count: w.Count, Sample: w.Sample, Rate: w.Rate, DummyRate: w.DummyRate}
	w.Term, w.Rho = t, loss
	return w, true
}

// Beside are the terms that stand behind the release's own.
func (w Release) Beside() []release.Term {
	if w.Watched == 0 {
		return nil
	}
	return []release.Term{{Family: release.FamilyResponse, Count: uint64(w.Rounds), Mu: w.Watched, Answers: 2, Rate: 1}}
}

// Spent is what all rounds cost of delta beside what the certificate proves.
func (w Release) Spent() float64 { return outward.Up((w.Miss + w.Redrawn) * float64(w.Rounds)) }

// matches says whether terms are the release's, with what stands behind it.
func (w Release) matches(terms []release.Term) bool {
	if len(terms) == 0 || !slices.Equal(terms[1:], w.Beside()) {
		return false
	}
	pure, ok := w.Pure()
	return w.is(terms[0]) || ok && pure.is(terms[0])
}

func (w Release) is(t release.Term) bool {
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

// Releases describes to the checker what the recipe's certificate must prove, from the
// recipe alone: first the guarantee and, where that has conditions, second the loss on
// none of them, unless a formula of the recipe says it ([Recipe.OwnNoise]). The second
// has no Family where no proof of it can be made. The error matches [ErrNoCertificate].
func (r *Recipe) Releases() ([]Release, error) {
	claim, ok := r.Claim.(ApproxDP)
	if !ok || r.Exact() {
		return nil, fmt.Errorf("%w: nothing is claimed", ErrNoCertificate)
	}
	first, err := r.guaranteed(claim)
	if err != nil {
		return nil, err
	}
	if len(r.Conditions()) == 0 {
		return []Release{first}, nil
	}
	if _, local := r.Randomizer.(LocalRandomizer); local {
		return []Release{first}, nil
	}
	second, err := r.plain(claim)
	if err != nil {
		second = Release{Neighbours: r.KnownNeighbours(), Rounds: claim.Rounds}
	}
	return []Release{first, second}, nil
}

// guaranteed describes what the guarantee is about.
func (r *Recipe) guaranteed(claim ApproxDP) (Release, error) {
	w := Release{
		Term: release.Term{Count: uint64(claim.Rounds), Rate: 1}, Neighbours: r.Neighbours(), Rounds: claim.Rounds, hidden: r.Amplified(),
	}
	var err error
	if r.Randomized() {
		err = r.Randomizer.certify(&w, r, claim)
	} else {
		err = w.noisy(r, r.HonestServers(claim))
	}
	if err != nil || !w.hidden {
		return w, err
	}
	c, err := r.CoinRates()
	if err != nil {
		return w, fmt.Errorf("%w: %w", ErrNoCertificate, err)
	}
	if w.Count != uint64(claim.Rounds) || w.Family == release.FamilyZCDP {
		return w, fmt.Errorf("%w of a sample with this noise", ErrNoCertificate)
	}
	w.Sample, w.Rate, w.DummyRate = release.SamplePoisson, c.Rate, c.Dummy
	w.Others, w.Free, w.Miss = r.Dummies.Senders-1, c.Free, claim.Delta.FloatDown()/float64(claim.Rounds)*MissShare
	return w, nil
}

// plain describes what is left where it is known who sent what, and where devices add
// noise of their own what one of them gives by itself.
func (r *Recipe) plain(claim ApproxDP) (Release, error) {
	w := Release{Term: release.Term{Count: uint64(claim.Rounds), Rate: 1}, Neighbours: r.KnownNeighbours(), Rounds: claim.Rounds}
	w.Watched = r.Watched()
	if z, ok := r.Randomizer.(aloner); ok {
		return w, z.alone(&w, r, claim)
	}
	return w, w.noisy(r, r.HonestServers(claim))
}

// An aloner is a randomizer whose noise a proof must be about where nothing else protects.
type aloner interface {
	// alone describes the noise of one device's reports, to who reads them.
	alone(w *Release, r *Recipe, claim ApproxDP) error
}

// rounded describes noise of so many draws on vectors of bounded norm as continuous noise of 4 less in variance. That differs by a
// factor of at most e^(1e-17), for which the square of the distance is a little larger.
func (w *Release) rounded(bound uint64, variance *big.Rat, draws uint64) error {
	if variance.Cmp(big.NewRat(8, 1)) < 0 || draws > 1<<32 {
		return fmt.Errorf("%w of this little noise on vectors", ErrNoCertificate)
	}
	distance := new(big.Rat).SetInt(new(big.Int).SetUint64(bound))
	if w.Neighbours == release.ReplaceOne {
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
	if w.Neighbours != release.ReplaceOne {
		times = 1
	}
	return r.Noise.certify(w, r, r.Query.moved(times), honest)
}
