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

// ErrNoCertificate: no certificate can be made for a recipe of this kind, although its
// guarantee is computed and holds.
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
	// Err is what package certificate found, a *certificate.Error, or nil where the proof
	// is of something else.
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

// A Statement is what one proof of a certificate must say.
type Statement struct {
	// Terms of all rounds, as [release.Terms] states them: first that of the answers. None
	// where no proof can be made. Of shuffled reports Mu and Fail are the certificate's
	// own, and so is Dummies where DummyRate is not 0: the number of devices that are sure
	// to be free to send a dummy, but for the miss of the round's Senders.
	Terms []release.Term
	// Neighbours that the proof tells apart.
	Neighbours release.Neighbours
	// Round is what each of Rounds tells.
	Round  Disclosure
	Rounds uint32
}

// Spent is what all rounds cost of delta beside what the certificate proves.
func (w Statement) Spent() float64 { return outward.Up(w.Round.Spent() * float64(w.Rounds)) }

// More is what all rounds add to epsilon beside.
func (w Statement) More() float64 { return w.Round.More(w.Rounds) }

// Pure is the statement of the answers by their loss alone, where they have one.
func (w Statement) Pure() (Statement, bool) {
	if len(w.Terms) == 0 {
		return w, false
	}
	t, ok := w.Terms[0].Pure()
	w.Terms = slices.Concat([]release.Term{t}, w.Terms[1:])
	return w, ok
}

// matches says whether a certificate's terms are those of the statement.
func (w Statement) matches(terms []release.Term) bool {
	if len(terms) == 0 || len(terms) != len(w.Terms) {
		return false
	}
	pure, ok := w.Pure()
	return w.are(terms) || ok && pure.are(terms)
}

// are says whether these are the terms, but for what is the certificate's own.
func (w Statement) are(terms []release.Term) bool {
	for i, t := range terms {
		if w.Terms[i].Family == release.FamilyShuffled {
			if t.Mu != terms[0].Mu || t.Fail != terms[0].Fail { // one point, at whatever rates
				return false
			}
			t.Mu, t.Fail = 0, 0
		}
		if c := w.Round.Senders; c != nil && w.Terms[i].DummyRate > 0 {
			if t.Dummies == 0 || !(certificate.Fewer(t.Dummies, c.Others, c.Free) <= c.Miss) {
				return false
			}
			t.Dummies = 0
		}
		if t != w.Terms[i] {
			return false
		}
	}
	return true
}

// Statements describes to the checker what the recipe's certificate must prove, from the
// recipe alone: first the guarantee and, where that counts on numbers of devices, whoever
// counts these, second the loss on none of them, unless a formula of the recipe says it
// ([Recipe.OwnNoise]). The error matches [ErrNoCertificate].
func (r *Recipe) Statements() ([]Statement, error) {
	claim, ok := r.Claim.(ApproxDP)
	if !ok || r.Exact() {
		return nil, fmt.Errorf("%w: nothing is claimed", ErrNoCertificate)
	}
	round, err := r.Disclosure(r.situation(claim), claim.Delta, claim.Rounds)
	first := Statement{Neighbours: r.Neighbours(), Round: round, Rounds: claim.Rounds}
	if err == nil {
		err = first.state()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoCertificate, err)
	}
	if _, local := r.Randomizer.(LocalRandomizer); local || len(r.said()) == 0 {
		return []Statement{first}, nil
	}
	second := Statement{Neighbours: r.KnownNeighbours(), Rounds: claim.Rounds}
	if second.Round, err = r.plain(claim); err != nil || second.state() != nil {
		second = Statement{Neighbours: second.Neighbours, Rounds: claim.Rounds}
	}
	return []Statement{first, second}, nil
}

// plain is what a round tells where it is known who sent what, and where devices add noise
// of their own what one of them gives by itself.
func (r *Recipe) plain(claim ApproxDP) (Disclosure, error) {
	if x, ok, err := r.ReportDisclosure(claim.Delta); ok {
		return r.seen(x), err
	}
	if r.Randomized() { // what one device sends hides nothing by itself
		return Disclosure{}, release.ErrNoGuarantee
	}
	return r.Disclosure(Situation{Servers: r.HonestServers(claim)}, claim.Delta, claim.Rounds)
}

// state states all rounds.
func (w *Statement) state() (err error) {
	all := slices.Concat(w.Round.Releases, w.Round.Beside)
	w.Terms, err = release.Terms(release.Repeated(all, uint64(w.Rounds)), w.Neighbours)
	return err
}
