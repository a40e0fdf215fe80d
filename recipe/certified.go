package recipe

import (
	"fmt"
	"math"
	"math/big"

	"github.com/starling-agg/starling/dp/certificate"
	"github.com/starling-agg/starling/internal/outward"
)

// Certified returns a prover that believes the certificate of one recipe, once it has
// checked it, and asks no accountant. It fails with *[CertificateError], or matching
// [ErrNoCertificate] where the recipe is of a kind that has none.
//
// The guarantee is the claim of the certificate's first proof, which is not above the
// recipe's, and fewer rounds cost what as many copies of one round's distribution give.
// Its Fallbacks are empty: to say what is left when an assumption fails, one asks the
// accountant.
func Certified(certificate []byte) Prover { return certified(certificate) }

type certified []byte

// Prove implements [Prover].
func (b certified) Prove(r *Recipe) (Proof, error) {
	claim, ok := r.Claim.(ApproxDP)
	if !ok && !r.Exact() {
		return nil, &InvalidError{"claim", "is missing although noise is added: state epsilon and delta"}
	}
	statements, err := r.Statements()
	if err != nil {
		return nil, err
	}
	proofs, err := splitCertificate(b, len(statements))
	if err != nil {
		return nil, err
	}
	p := &certifiedProof{recipe: r, claim: claim}
	most := claim.Epsilon.Rat()
	if p.first, err = statements[0].check(proofs[0], claim, most); err != nil {
		return nil, err
	}
	if len(statements) > 1 && len(proofs[1]) > 0 {
		if p.second, err = statements[1].check(proofs[1], claim, nil); err != nil {
			return nil, err
		}
	}
	return p, p.settle()
}

// CheckCertificate returns what b proves if it is a certificate of the recipe's claim:
// about the recipe's noise, coins, dummies, contributions and rounds for its neighbours,
// no weaker than what is claimed, and with proofs that hold. It fails as the prover of
// [Certified] does.
func (r *Recipe) CheckCertificate(b []byte) (Loss, error) {
	p, err := Certified(b).Prove(r)
	if err != nil {
		return NoPrivacy, err
	}
	return p.Guarantee().Loss, nil
}

// A line is one proof that was checked.
type line struct {
	Statement
	claimed certificate.Claim
	proof   *certificate.Proof
	alone   *certificate.Proof // of the release without what stands beside it; nil where nothing does
}

// check returns the proof that b is, of an epsilon that is at most most unless that is
// nil.
func (w Statement) check(b []byte, claim ApproxDP, most *big.Rat) (*line, error) {
	var c certificate.Certificate
	if err := c.UnmarshalBinary(b); err != nil {
		return nil, &CertificateError{"cannot be read", err}
	}
	left := new(big.Rat).Sub(claim.Delta.Rat(), new(big.Rat).SetFloat64(w.Spent()))
	if most == nil {
		most = new(big.Rat).SetUint64(1 << 62)
	}
	most = new(big.Rat).Sub(most, new(big.Rat).SetFloat64(w.More()))
	switch {
	case c.Neighbours != w.Neighbours:
		return nil, &CertificateError{"is about other neighbours", nil}
	case !w.matches(c.Terms):
		return nil, &CertificateError{fmt.Sprintf("is about %v, and the recipe releases %v", c.Terms, w.Terms), nil}
	case !atMost(c.Epsilon, most) || !atMost(c.Delta, left):
		return nil, &CertificateError{fmt.Sprintf("proves epsilon %v and delta %v, the recipe claims %v and %v", c.Epsilon, c.Delta, claim.Epsilon,
			claim.Delta), nil}
	}
	p, err := c.Open()
	if err == nil {
		err = p.Holds()
	}
	if err != nil {
		return nil, &CertificateError{"does not hold", err}
	}
	l := &line{Statement: w, claimed: c.Claim, proof: p}
	if len(w.Terms) > 1 && len(w.Round.Beside) > 0 { // not where several views are released
		alone := certificate.Certificate{Claim: c.Claim, Terms: c.Terms[:1]}
		l.alone, _ = alone.Open() // nil where that is no formula
	}
	return l, nil
}

// after is what some of the rounds cost at a delta.
func (l *line) after(rounds uint32, delta Decimal) Loss {
	if l == nil {
		return NoPrivacy
	}
	left := delta.FloatDown() - l.Spent()
	all := rounds == l.Rounds && left >= l.claimed.Delta
	epsilon := l.claimed.Epsilon
	switch {
	case left < 0:
		return NoPrivacy
	case !all:
		part, whole := uint64(rounds), uint64(l.Rounds)
		epsilon = l.proof.Epsilon(part, whole, left)
		if l.alone != nil {
			epsilon = min(epsilon, outward.Above(l.alone.Epsilon(part, whole, left)+float64(rounds)*l.Terms[1].Mu))
		}
		if left >= l.claimed.Delta { // fewer rounds cost no more than all
			epsilon = min(epsilon, l.claimed.Epsilon)
		}
	}
	if math.IsInf(epsilon, 1) {
		return NoPrivacy
	}
	if more := l.More(); more > 0 {
		epsilon = outward.Above(epsilon + more)
	}
	return Loss{epsilon, delta.Float()}
}

type certifiedProof struct {
	recipe        *Recipe
	claim         ApproxDP
	first, second *line // second nil where there is none
	guarantee     Guarantee
}

// settle works out the guarantee.
func (p *certifiedProof) settle() (err error) {
	r := p.recipe
	unit, g := r.PrivacyUnit(), &p.guarantee
	*g = Guarantee{
		Rounds: p.claim.Rounds, Neighbours: r.Neighbours(), Theorem: "a certificate", Unit: unit.Name, PerPerson: unit.PerPerson,
		Assumptions: r.Assumptions(r.HonestServers(p.claim), p.claim.Rounds), Conditions: r.Conditions(),
	}
	g.Loss, g.UnconditionalNeighbours = p.after(p.claim.Rounds, p.claim.Delta), g.Neighbours
	if g.PerRound = g.Loss; p.claim.Rounds > 1 {
		g.PerRound = p.after(1, p.claim.Delta)
	}
	if len(g.Conditions) > 0 {
		g.UnconditionalNeighbours = r.KnownNeighbours()
	}
	if g.Unconditional, err = p.open(p.claim.Rounds, p.claim.Delta); err != nil {
		return err
	}
	if g.Person = g.Unconditional; unit.PerPerson > 1 {
		g.Person, err = Group(unit.PerPerson, p.claim.Delta, func(delta Decimal) (Loss, error) { return p.open(p.claim.Rounds, delta) })
	}
	return err
}

// after is what rounds cost.
func (p *certifiedProof) after(rounds uint32, delta Decimal) Loss {
	return p.recipe.OrThin(p.first.after(rounds, delta))
}

// open is what rounds cost on none of the conditions.
func (p *certifiedProof) open(rounds uint32, delta Decimal) (Loss, error) {
	z, local := p.recipe.Randomizer.(LocalRandomizer)
	switch {
	case len(p.guarantee.Conditions) == 0:
		return p.after(rounds, delta), nil
	case !local:
		return p.second.after(rounds, delta), nil
	}
	l, err := p.recipe.OwnNoise(z, delta, rounds)
	if err == nil && p.recipe.ByAnswer() {
		l.Epsilon = outward.Above(l.Epsilon + float64(rounds)*p.recipe.Watched())
	}
	return l, err
}

func (p *certifiedProof) Guarantee() *Guarantee { return &p.guarantee }

func (p *certifiedProof) After(rounds uint32) (Loss, error) {
	return p.after(rounds, p.claim.Delta), nil
}

func (p *certifiedProof) UnconditionalAfter(rounds uint32) (Loss, error) {
	return p.open(rounds, p.claim.Delta)
}

// OwnNoise returns what a local randomizer gives by itself, in a number of rounds, against
// who reads the reports and knows whose they are.
func (r *Recipe) OwnNoise(z LocalRandomizer, delta Decimal, rounds uint32) (Loss, error) {
	m, odds, err := r.on().message(z, r.Query)
	if err != nil {
		return NoPrivacy, err
	}
	is, err := m.Premise()
	if err != nil {
		return NoPrivacy, err
	}
	// Answers drawn again are so under every value, but less often under none.
	epsilon := outward.Above(is.Epsilon0*float64(rounds)) + 2*odds*float64(rounds)
	return Loss{Epsilon: epsilon, Delta: delta.Float()}, nil
}
