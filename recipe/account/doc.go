// Package account asks the accountant about recipes: what a recipe guarantees, what is
// left when an assumption fails, which noise gives what is wanted, and the certificate by
// which a device checks the guarantee without any of this. It is the only package of
// recipes that reaches package accountant: who makes, serves or shows recipes imports it,
// and a device does not.
//
// [Prover] opens recipes by the accountant. [Guarantee] recomputes a claim from the
// recipe's other choices. [New] makes a recipe whose claim is computed, and calibrates
// its noise. [Certify] proves the claim.
package account

import (
	"io"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/recipe"
)

// A subject is a recipe about which the accountant is asked.
type subject struct{ *recipe.Recipe }

// Validate returns every reason to refuse a recipe, as [recipe.Recipe.Validate] does, and
// once that is in order a *[recipe.ClaimError] for a claim that the choices do not bear
// out.
func Validate(r *recipe.Recipe) error {
	if err := r.Validate(); err != nil {
		return err
	}
	_, err := Guarantee(r)
	return err
}

// Guarantee computes what the recipe's choices give, at the delta of its claim, for the
// neighbours of [recipe.Recipe.Neighbours] (leader, helper and collector all see the number
// of reports). It returns a *[recipe.ClaimError], beside the guarantee, if the claim is
// better than that. A recipe without noise has no guarantee and may claim none.
func Guarantee(r *recipe.Recipe) (*recipe.Guarantee, error) { return subject{r}.guarantee() }

// LossIn returns what rounds of a recipe cost at delta in a situation, and the theorem that
// says so.
func LossIn(r *recipe.Recipe, s recipe.Situation, delta recipe.Decimal, rounds uint32, n release.Neighbours) (recipe.Loss, string, error) {
	return subject{r}.proved(s, delta, rounds, n)
}

// BothHonest returns the loss where both servers add their noise and keep it to
// themselves, although the claim needs one of them only: the stronger of the two
// guarantees of [recipe.DrawsAll]. For [recipe.DrawsHalf] it is the claim's own, and
// [recipe.OneServerFails] the other. It is false where there is no such second guarantee,
// or none that the accountant knows.
func BothHonest(r *recipe.Recipe) (recipe.Loss, bool) { return subject{r}.bothHonest() }

// ProvedBound returns what devices with a randomizer prove. It is false for recipes without
// [recipe.Gaussian] and [recipe.RAPPOR], and for those that are not valid.
func ProvedBound(r *recipe.Recipe) (recipe.ProvedBound, bool) { return subject{r}.provedBound() }

// LossAfter returns what a number of rounds have cost under the claim's delta and
// assumptions.
func LossAfter(r *recipe.Recipe, rounds uint32) (recipe.Loss, error) {
	return subject{r}.lossAfter(rounds)
}

// UnconditionalAfter returns what a number of rounds have cost where none of the recipe's
// conditions are counted on.
func UnconditionalAfter(r *recipe.Recipe, rounds uint32) (recipe.Loss, error) {
	return subject{r}.unconditionalAfter(rounds)
}

// Certify returns a certificate of the recipe's claim, for [recipe.Certified]: it stands
// behind the recipe in its file and is no part of it. It proves what is computed, or a
// little more, and never more than what is claimed. For a recipe that claims nothing, and
// where no proof of the claim is found, it returns an error that matches
// [recipe.ErrNoCertificate]. What [New] made has one.
func Certify(r *recipe.Recipe) ([]byte, error) { return subject{r}.certify() }

// Of returns what the accountant says of a recipe, for [recipe.Recipe.Describe] and
// [recipe.Recipe.JSON]. It fails where the guarantee cannot be computed.
func Of(r *recipe.Recipe) (recipe.Particulars, error) {
	g, refused := Guarantee(r)
	if g == nil {
		return recipe.Particulars{}, refused
	}
	return particulars(r, g, refused), nil
}

// About returns what the accountant says of a recipe that was checked.
func About(c *recipe.Checked) recipe.Particulars {
	return particulars(c.Recipe(), c.Guarantee(), nil)
}

func particulars(r *recipe.Recipe, g *recipe.Guarantee, refused error) recipe.Particulars {
	p := recipe.Particulars{Guarantee: g, Refused: refused}
	if l, ok := BothHonest(r); ok {
		p.BothHonest = &l
	}
	if b, ok := ProvedBound(r); ok {
		p.ProvedBound = &b
	}
	p.CheckIns = subject{r}.paper004()
	return p
}

// Describe writes the recipe for people, as [recipe.Recipe.Describe] does.
func Describe(r *recipe.Recipe, w io.Writer) error {
	said, err := Of(r)
	if err != nil {
		return err
	}
	return r.Describe(w, said)
}
