package account

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"

	"github.com/starling-agg/starling/dp/amplify"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
	"github.com/starling-agg/starling/recipe"
)

// guarantee computes what the recipe's choices give, at the delta of its claim, for the
// neighbours of [Recipe.Neighbours] (leader, helper and collector all see the number of
// reports). It returns a *[ClaimError], beside the guarantee, if the claim is better than
// that. A recipe without noise has no guarantee and may claim none.
func (r subject) guarantee() (*recipe.Guarantee, error) {
	claim, claimed := r.Claim.(recipe.ApproxDP)
	if r.Exact() {
		g := r.WithoutNoise()
		if claimed {
			return g, &recipe.ClaimError{Claimed: claim, Computed: recipe.NoPrivacy}
		}
		return g, nil
	}
	if !claimed {
		return nil, &recipe.InvalidError{Field: "claim", Problem: "is missing although noise is added: state epsilon and delta"}
	}
	g, err := r.compute(claim)
	if err != nil {
		return nil, err
	}
	if !g.Finite() || new(big.Rat).SetFloat64(g.Epsilon).Cmp(claim.Epsilon.Rat()) > 0 {
		return g, &recipe.ClaimError{Claimed: claim, Computed: g.Loss}
	}
	return g, nil
}

// compute is the guarantee at the claim's delta, servers and rounds.
func (r subject) compute(claim recipe.ApproxDP) (*recipe.Guarantee, error) {
	honest := r.HonestServers(claim)
	s, n := recipe.Situation{Servers: honest, Hidden: r.Amplified()}, r.Neighbours()
	total, theorem, err := r.proved(s, claim.Delta, claim.Rounds, n)
	if err != nil {
		return nil, err
	}
	per := total
	if claim.Rounds > 1 {
		if per, _, err = r.proved(s, claim.Delta, 1, n); err != nil {
			return nil, err
		}
	}
	total, per = r.OrThin(total), r.OrThin(per)
	g := &recipe.Guarantee{Loss: total, PerRound: per, Rounds: claim.Rounds, Neighbours: n, Theorem: theorem}
	g.Assumptions = r.Assumptions(honest, claim.Rounds)
	if g.Fallbacks, err = r.fallbacks(s, claim); err != nil {
		return nil, err
	}
	g.Conditions, g.Unconditional, g.UnconditionalNeighbours = r.Conditions(), g.Loss, n
	if len(g.Conditions) > 0 {
		if g.Unconditional, err = r.known(claim, claim.Delta, claim.Rounds); err != nil {
			return nil, err
		}
		g.UnconditionalNeighbours = r.KnownNeighbours()
	}
	unit := r.PrivacyUnit()
	g.Unit, g.PerPerson, g.Person = unit.Name, unit.PerPerson, g.Unconditional
	if unit.PerPerson > 1 {
		g.Person, err = recipe.Group(unit.PerPerson, claim.Delta, func(delta recipe.Decimal) (recipe.Loss, error) {
			return r.unconditional(claim, delta, claim.Rounds)
		})
	}
	return g, err
}

// releases returns what the accountant is asked about in place of a disclosure: as many
// senders of dummies as are sure to be free, and of shuffled reports a point of their curve
// at each round's share of delta.
func (r subject) releases(x recipe.Disclosure, delta recipe.Decimal, rounds uint32) ([]release.Release, error) {
	list := slices.Concat(x.Beside, x.Releases)
	for i := range list {
		if m, ok := list[i].Mechanism.(release.Shuffled); ok {
			point, err := r.shuffled(m, delta.FloatDown()/float64(rounds)*recipe.ShuffleShare)
			if err != nil {
				return nil, err
			}
			list[i].Mechanism = point
		}
		if coins, ok := list[i].Sampling.(release.Poisson); ok && x.Senders != nil {
			var err error
			if coins.Dummies, err = r.senders(*x.Senders); err != nil {
				return nil, err
			}
			list[i].Sampling = coins
		}
	}
	return list, nil
}

// shuffled is a point of the curve of shuffled reports, by the theorem at delta; what
// redraws cost is added to it.
func (r subject) shuffled(m release.Shuffled, delta float64) (release.ApproxDP, error) {
	var none release.ApproxDP
	g, err := bounds.once(shuffling{m.Message, m.People, delta}, func() (release.Guarantee, error) {
		curve, err := amplify.Shuffle(m.Message, m.People)
		if err != nil {
			return release.Guarantee{}, err
		}
		return curve.Epsilon(delta)
	})
	if err != nil {
		return none, &recipe.InvalidError{Field: "guarantee", Problem: fmt.Sprintf("cannot be computed: %v", err)}
	}
	if m.Redraw == 0 {
		return release.ApproxDP{Epsilon: g.Epsilon, Delta: delta}, nil
	}
	// Theorem 2 of docs/proofs/device-noise.md.
	again := float64(m.People) * m.Redraw
	total := outward.Up((delta + again*math.Exp(g.Epsilon)) / (1 - again))
	if !(again < 0.5 && total < 1) {
		return none, &recipe.InvalidError{Field: "guarantee", Problem: "is lost to reports that are drawn again"}
	}
	return release.ApproxDP{Epsilon: g.Epsilon + 2*m.Redraw, Delta: total}, nil
}

// senders is how many of the other honest devices are free to send a dummy at least, in
// each slot, but for the miss. The devices that cover, and their slots, are taken as
// known, for these coins depend on no answer: see docs/proofs/coins.md.
func (r subject) senders(s recipe.Senders) (n uint64, err error) {
	if s.Others > 0 {
		n, err = amplify.MinimumBatch(s.Others, s.Free, s.Miss)
	}
	if err != nil {
		return 0, &recipe.InvalidError{Field: "dummies.senders", Problem: fmt.Sprintf("cannot be counted on: %v", err)}
	}
	if n == 0 {
		return 0, &recipe.InvalidError{Field: "dummies.senders", Problem: fmt.Sprintf("is %d, too few to hide one answer", r.Dummies.Senders)}
	}
	return n, nil
}

// proved is the loss of all rounds in a situation.
func (r subject) proved(s recipe.Situation, delta recipe.Decimal, rounds uint32, n release.Neighbours) (recipe.Loss, string, error) {
	x, err := r.Disclosure(s, delta, rounds)
	if errors.Is(err, release.ErrNoGuarantee) {
		return recipe.NoPrivacy, "", nil
	} else if err != nil {
		return recipe.Loss{}, "", err
	}
	return r.disclosed(x, delta, rounds, n)
}

// disclosed is the loss of a number of rounds of which each tells the same.
func (r subject) disclosed(x recipe.Disclosure, delta recipe.Decimal, rounds uint32, n release.Neighbours) (recipe.Loss, string, error) {
	list, err := r.releases(x, delta, rounds)
	if err != nil {
		return recipe.Loss{}, "", err
	}
	l, theorem, err := loss(list, rounds, delta, x.Spent()*float64(rounds), n)
	if l.Finite() {
		l.Epsilon += x.More(rounds)
	}
	if x.Theorem != "" {
		theorem = x.Theorem + "; " + theorem
	}
	return l, theorem, err
}

// unconditional is the loss of a number of rounds that counts on none of
// [Recipe.Conditions], for neighbours of whom it is known who sent what: where devices blur
// their answers it is what one report gives by itself, whoever else reports.
func (r subject) unconditional(claim recipe.ApproxDP, delta recipe.Decimal, rounds uint32) (recipe.Loss, error) {
	if len(r.Conditions()) == 0 {
		return r.conditional(claim, delta, rounds)
	}
	return r.known(claim, delta, rounds)
}

// conditional is the loss of a number of rounds that counts on the conditions, if any.
func (r subject) conditional(claim recipe.ApproxDP, delta recipe.Decimal, rounds uint32) (recipe.Loss, error) {
	l, _, err := r.proved(recipe.Situation{Servers: r.HonestServers(claim), Hidden: r.Amplified()}, delta, rounds, r.Neighbours())
	return r.OrThin(l), err
}

// known is the loss of a number of rounds whatever others do, and where it is known who
// sent what.
func (r subject) known(claim recipe.ApproxDP, delta recipe.Decimal, rounds uint32) (recipe.Loss, error) {
	if !r.Randomized() {
		l, _, err := r.proved(recipe.Situation{Servers: r.HonestServers(claim)}, delta, rounds, r.KnownNeighbours())
		return l, err
	}
	l, err := r.ownNoise(delta, rounds)
	if err == nil && r.ByAnswer() {
		l.Epsilon = outward.Above(l.Epsilon + float64(rounds)*r.Watched())
	}
	return l, err
}

func (r subject) fallbacks(s recipe.Situation, claim recipe.ApproxDP) ([]recipe.Fallback, error) {
	var list []recipe.Fallback
	add := func(kind recipe.FallbackKind, s recipe.Situation, n release.Neighbours, when, note string) error {
		l, _, err := r.proved(s, claim.Delta, claim.Rounds, n)
		if err == nil {
			list = append(list, recipe.Fallback{Kind: kind, When: when, Loss: l, Note: note})
		}
		return err
	}
	if s.Hidden {
		seen := s
		seen.Hidden = false
		note := fmt.Sprintf("sampling counts for nothing: for %v neighbours", r.KnownNeighbours())
		if r.ByAnswer() {
			note += ", with what the device's reporting tells about its answer"
		}
		err := add(recipe.RelayColludes, seen, r.KnownNeighbours(),
			"the relay and whoever receives reports put together what they see", note)
		if err != nil {
			return nil, err
		}
		edge := recipe.Fallback{Kind: recipe.EdgeWatched, When: "someone who sees the result watches a device's network", Loss: list[0].Loss, Note: note}
		if r.Cover != nil {
			l, _, err := r.proved(s, claim.Delta, claim.Rounds, r.Neighbours())
			if err != nil {
				return nil, err
			}
			edge.Loss, edge.Note = l, "cover hides there whether a request holds a report"
		}
		list = append(list, edge)
		half := s
		half.Half = true
		if err := add(recipe.HalfAreDishonest, half, r.Neighbours(), "half of the devices are dishonest",
			"fewer dummies hide the number of answers"); err != nil {
			return nil, err
		}
	} else if r.Randomized() && r.CountsOnDevices() {
		half := s
		half.Half = true
		if err := add(recipe.HalfAreDishonest, half, r.Neighbours(), "half of the devices are dishonest", r.fewer()); err != nil {
			return nil, err
		}
	}
	if ok, _ := r.Counted(); ok {
		l, err := r.known(claim, claim.Delta, claim.Rounds)
		if err != nil {
			return nil, err
		}
		list = append(list, recipe.Fallback{Kind: recipe.AttesterFails, When: "the attester vouches for what is no device, or does not follow the recipe", Loss: l,
			Note: fmt.Sprintf("other devices count for nothing: for %v neighbours of whom it is known who sent what", r.KnownNeighbours())})
	}
	if s.Servers == 2 {
		one := s
		one.Servers = 1
		if err := add(recipe.OneServerFails, one, r.Neighbours(), "one of the two servers gives its noise away, or adds none",
			"only the other server's half of the noise is left"); err != nil {
			return nil, err
		}
	}
	for _, f := range r.Failures() {
		if !r.Randomized() {
			f.Note += ", because devices add no noise of their own"
		} else if l, err := r.ownNoise(claim.Delta, claim.Rounds); err != nil {
			return nil, err
		} else if l.Finite() {
			f.Loss, f.Note = l, fmt.Sprintf("the device's own noise is left, for %v neighbours who take part", r.KnownNeighbours())
		}
		list = append(list, f)
	}
	return list, nil
}

// fewer says what dishonest devices take away.
func (r subject) fewer() string {
	if _, _, noisy := r.noisyVectors(); noisy {
		return "there is less noise in the sum"
	}
	if _, ok := r.Randomizer.(recipe.LocalRandomizer); ok {
		return "fewer reports to hide among"
	}
	return "there is less noise in the sum, and less to hide among, than the theorem needs"
}

// ownNoise is what the device's own noise gives, in a number of rounds, against who reads
// its reports and knows whose they are.
func (r subject) ownNoise(delta recipe.Decimal, rounds uint32) (recipe.Loss, error) {
	if x, ok, err := r.ReportDisclosure(delta); ok {
		if err != nil {
			return recipe.Loss{}, err
		}
		l, _, err := r.disclosed(x, delta, rounds, release.ReplaceOne)
		return l, err
	}
	if z, ok := r.Randomizer.(recipe.LocalRandomizer); ok {
		return r.OwnNoise(z, delta, rounds)
	}
	return recipe.NoPrivacy, nil
}

// bothHonest is the loss where both servers add their noise and keep it to themselves,
// although the claim needs one of them only: the stronger of the two guarantees of
// [DrawsAll]. For [DrawsHalf] it is the claim's own, and [OneServerFails] the other. It
// is false where there is no such second guarantee, or none that the accountant knows.
func (r subject) bothHonest() (recipe.Loss, bool) {
	claim, ok := r.Claim.(recipe.ApproxDP)
	if _, correlated := r.Correlated(); !ok || !r.Noisy() || correlated || r.HonestServers(claim) > 1 {
		return recipe.Loss{}, false
	}
	both := recipe.Situation{Servers: 2, Hidden: r.Amplified()}
	l, _, err := r.proved(both, claim.Delta, claim.Rounds, r.Neighbours())
	if err != nil || !l.Finite() {
		return l, false
	}
	if !r.Noise.AddsUp() {
		one := both
		one.Servers = 1
		if alone, _, err := r.proved(one, claim.Delta, claim.Rounds, r.Neighbours()); err == nil && l.Epsilon >= alone.Epsilon {
			return recipe.Loss{}, false
		}
	}
	return l, true
}

// lossAfter is the loss of the first rounds, 1 up to the claim's, in which a device
// decides: what its ledger charges in all once it has decided so often. It is NoPrivacy
// for a recipe without noise.
func (r subject) lossAfter(rounds uint32) (recipe.Loss, error) {
	return r.after(rounds, func(claim recipe.ApproxDP) (recipe.Loss, error) {
		return r.conditional(claim, claim.Delta, rounds)
	})
}

// unconditionalAfter is the like that counts on none of [Recipe.Conditions]: what the
// rounds cost even where it is known who sent what. It is [Recipe.LossAfter] for a recipe
// without conditions.
func (r subject) unconditionalAfter(rounds uint32) (recipe.Loss, error) {
	return r.after(rounds, func(claim recipe.ApproxDP) (recipe.Loss, error) { return r.unconditional(claim, claim.Delta, rounds) })
}

func (r subject) after(rounds uint32, loss func(recipe.ApproxDP) (recipe.Loss, error)) (recipe.Loss, error) {
	claim, ok := r.Claim.(recipe.ApproxDP)
	if r.Exact() || !ok {
		return recipe.NoPrivacy, nil
	}
	if rounds == 0 || rounds > claim.Rounds {
		return recipe.Loss{}, &recipe.InvalidError{Field: "claim.rounds", Problem: fmt.Sprintf("are %d, not %d", claim.Rounds, rounds)}
	}
	return loss(claim)
}
