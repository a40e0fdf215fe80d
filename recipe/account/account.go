package account

import (
	"fmt"
	"math"
	"math/big"

	"github.com/starling-agg/starling/dp/amplify"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
	"github.com/starling-agg/starling/recipe"
)

// A Situation is which assumptions hold.
type Situation struct {
	Servers int  // that keep their noise to themselves; 1 or 2
	Hidden  bool // who reports
	Half    bool // half of the devices that the guarantee counts on are dishonest
	// the number of reports tells nothing: no guarantee, but where to begin to look for
	// one
	Free bool
}

// guarantee computes what the recipe's choices give, at the delta of its claim, for the
// neighbours of [Recipe.Neighbours] (leader, helper and collector all see the number of
// reports). It returns a *[ClaimError], beside the guarantee, if the claim is better than
// that. A recipe without noise has no guarantee and may claim none.
func (r subject) guarantee() (*recipe.Guarantee, error) {
	claim, claimed := r.Claim.(recipe.ApproxDP)
	if r.Exact() {
		g := recipe.WithoutNoise()
		g.Unit, g.PerPerson, g.Person = r.PrivacyUnit().Name, r.PrivacyUnit().PerPerson, recipe.NoPrivacy
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
	s, n := Situation{Servers: honest, Hidden: r.Amplified()}, r.Neighbours()
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
	g := &recipe.Guarantee{Loss: total, PerRound: per, Rounds: claim.Rounds, Neighbours: n, Theorem: theorem}
	g.Assumptions = r.Assumptions(honest, claim.Rounds)
	if g.Fallbacks, err = r.fallbacks(s, claim); err != nil {
		return nil, err
	}
	g.Conditions, g.Unconditional, g.UnconditionalNeighbours = r.Conditions(), g.Loss, n
	if len(g.Conditions) > 0 {
		if g.Unconditional, err = r.unconditional(claim, claim.Delta, claim.Rounds); err != nil {
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

// releases returns what one round releases in a situation, and the delta that it costs
// beside.
func (r subject) releases(s Situation, delta recipe.Decimal, rounds uint32) ([]release.Release, float64, error) {
	per := delta.FloatDown() / float64(rounds)
	var m release.Mechanism
	var spent float64
	var err error
	switch z, q, noisy := r.noisyVectors(); {
	case !r.Randomized():
		m, err = mechanism(r.Query, r.Noise, s.Servers)
	case noisy:
		m, spent, err = r.noisySum(z, q, s, delta.FloatDown())
	default:
		m, err = r.shuffled(s, per*recipe.ShuffleShare)
	}
	if err != nil {
		return nil, 0, err
	}
	one := release.One(m)
	if !r.Sampled() {
		return []release.Release{one}, spent, nil
	}
	if !s.Hidden {
		// Who sees that a device reports, and cannot tell reports from dummies, may see a
		// randomized response to whether its answer is the default.
		if seen := r.Watched(); seen > 0 {
			return []release.Release{release.One(release.ApproxDP{Epsilon: seen}), one}, spent, nil
		}
		return []release.Release{one}, spent, nil
	}
	c, err := r.coins(s, per*recipe.MissShare)
	if err != nil {
		return nil, 0, err
	}
	if s.Free {
		return []release.Release{one.Sampled(release.Poisson{Rate: c.Rate})}, spent, nil
	}
	return []release.Release{one.Sampled(release.Poisson{Rate: c.Rate, Dummies: c.senders, DummyRate: c.Dummy})}, spent + per*recipe.MissShare, nil
}

// shuffled is what the sum of locally randomized reports gives with nothing from the
// servers: each sum is a function of the shuffled reports of MinBatch honest devices.
// Delta is that of the theorem; what redraws cost is added to it.
func (r subject) shuffled(s Situation, delta float64) (release.ApproxDP, error) {
	var none release.ApproxDP
	n := r.MinBatch
	if s.Half {
		n = max(1, n/2)
	}
	z, ok := r.Randomizer.(recipe.LocalRandomizer)
	if !ok {
		return none, &recipe.InvalidError{Field: "randomizer", Problem: "has no bound"}
	}
	message, odds, err := z.Local(r.Query)
	if err != nil {
		return none, &recipe.InvalidError{Field: "guarantee", Problem: fmt.Sprintf("cannot be computed: %v", err)}
	}
	curve, err := amplify.Shuffle(message, n)
	if err != nil {
		return none, &recipe.InvalidError{Field: "guarantee", Problem: fmt.Sprintf("cannot be computed: %v", err)}
	}
	g, err := curve.Epsilon(delta)
	if err != nil {
		return none, &recipe.InvalidError{Field: "guarantee", Problem: fmt.Sprintf("cannot be computed: %v", err)}
	}
	if odds == 0 {
		return release.ApproxDP{Epsilon: g.Epsilon, Delta: delta}, nil
	}
	// Theorem 2 of docs/proofs/device-noise.md.
	again := float64(n) * odds
	total := outward.Up((delta + again*math.Exp(g.Epsilon)) / (1 - again))
	if !(again < 0.5 && total < 1) {
		return none, &recipe.InvalidError{Field: "guarantee", Problem: "is lost to reports that are drawn again"}
	}
	return release.ApproxDP{Epsilon: g.Epsilon + 2*odds, Delta: total}, nil
}

// coins are a round's coins as the accountant takes them, and of the other honest devices that
// do not report how many there are at least, in each slot, but for the miss.
type coins struct {
	recipe.Coins
	senders uint64
}

// coins counts those of the other honest devices whose coins leave them free to send a
// dummy. Who covers and in which slot is taken as known, for these coins depend on no
// answer: see docs/proofs/coins.md.
func (r subject) coins(s Situation, miss float64) (coins, error) {
	rates, err := r.CoinRates()
	c := coins{Coins: rates}
	if err != nil {
		return c, err
	}
	others := r.Dummies.Senders - 1
	if s.Half {
		others /= 2
	}
	n := uint64(0)
	if others > 0 {
		n, err = amplify.MinimumBatch(others, c.Free, miss)
	}
	if err != nil {
		return c, &recipe.InvalidError{Field: "dummies.senders", Problem: fmt.Sprintf("cannot be counted on: %v", err)}
	}
	if n == 0 {
		return c, &recipe.InvalidError{Field: "dummies.senders", Problem: fmt.Sprintf("is %d, too few to hide one answer", r.Dummies.Senders)}
	}
	c.senders = n
	return c, nil
}

// proved is the loss of all rounds in a situation.
func (r subject) proved(s Situation, delta recipe.Decimal, rounds uint32, n release.Neighbours) (recipe.Loss, string, error) {
	list, spent, err := r.releases(s, delta, rounds)
	if err != nil {
		return recipe.Loss{}, "", err
	}
	l, theorem, err := loss(list, rounds, delta, spent*float64(rounds), n)
	return r.redrawn(l, rounds), theorem, err
}

// unconditional is the loss of a number of rounds that counts on none of
// [Recipe.Conditions], for neighbours of whom it is known who sent what: where devices blur
// their answers it is what one report gives by itself, whoever else reports.
func (r subject) unconditional(claim recipe.ApproxDP, delta recipe.Decimal, rounds uint32) (recipe.Loss, error) {
	if !r.Randomized() {
		l, _, err := r.proved(Situation{Servers: r.HonestServers(claim)}, delta, rounds, r.KnownNeighbours())
		return l, err
	}
	l, err := r.ownNoise(delta, rounds)
	if err == nil && r.ByAnswer() {
		l.Epsilon = outward.Above(l.Epsilon + float64(rounds)*r.Watched())
	}
	return l, err
}

func (r subject) fallbacks(s Situation, claim recipe.ApproxDP) ([]recipe.Fallback, error) {
	var list []recipe.Fallback
	add := func(kind recipe.FallbackKind, s Situation, n release.Neighbours, when, note string) error {
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
	} else if r.Randomized() {
		half := s
		half.Half = true
		if err := add(recipe.HalfAreDishonest, half, r.Neighbours(), "half of the devices are dishonest", r.fewer()); err != nil {
			return nil, err
		}
	}
	if s.Servers == 2 {
		one := s
		one.Servers = 1
		if err := add(recipe.OneServerFails, one, r.Neighbours(), "one of the two servers gives its noise away, or adds none",
			"only the other server's half of the noise is left"); err != nil {
			return nil, err
		}
	}
	together := recipe.Fallback{
		Kind: recipe.ServersCollude,
		When: "the leader and the helper put their shares together",
		Loss: recipe.NoPrivacy,
		Note: "they can read every answer, because devices add no noise of their own",
	}
	if r.Randomized() {
		together.Note = fmt.Sprintf("the device's own noise is left, for %v neighbours who take part", r.KnownNeighbours())
		var err error
		if together.Loss, err = r.ownNoise(claim.Delta, claim.Rounds); err != nil {
			return nil, err
		}
	}
	return append(list, together), nil
}

// fewer says what dishonest devices take away.
func (r subject) fewer() string {
	if _, _, noisy := r.noisyVectors(); noisy {
		return "there is less noise in the sum"
	}
	return "fewer reports to hide among"
}

// ownNoise is what the device's own noise gives, in a number of rounds, against who reads
// its reports and knows whose they are.
func (r subject) ownNoise(delta recipe.Decimal, rounds uint32) (recipe.Loss, error) {
	if z, q, ok := r.noisyVectors(); ok {
		return r.alone(z, q, delta, rounds)
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
	both := Situation{Servers: 2, Hidden: r.Amplified()}
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
		l, _, err := r.proved(Situation{Servers: r.HonestServers(claim), Hidden: r.Amplified()}, claim.Delta, rounds, r.Neighbours())
		return l, err
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
