package recipe

import (
	"fmt"
	"math"
	"math/big"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/amplify"
	"github.com/starling-agg/starling/internal/outward"
)

// A situation is which assumptions hold.
type situation struct {
	servers int  // that keep their noise to themselves; 1 or 2
	hidden  bool // who reports
	half    bool // half of the devices that the guarantee counts on are dishonest
	free    bool // the number of reports tells nothing: no guarantee, but where to begin to look for one
}

// The shares of delta that are kept for what events leave out, or passed on to a randomizer's shuffling.
const (
	missShare    = 1e-3
	shuffleShare = 0.25
)

// release is one round in a situation, and the delta that it costs beside.
func (r *Recipe) release(s situation, delta Decimal, rounds uint32, n accountant.Neighbours) (accountant.Event, float64, error) {
	per := delta.FloatDown() / float64(rounds)
	var e accountant.Event
	var spent float64
	var err error
	switch z := r.Randomizer.(type) {
	case NoRandomizer:
		e, err = event(r.Query, r.Noise, s.servers)
	case Gaussian:
		e, spent, err = r.noisySum(z, s, delta.FloatDown())
	default:
		e, err = r.shuffled(s, per*shuffleShare)
	}
	if err != nil {
		return nil, 0, err
	}
	if !r.sampled() {
		return e, spent, nil
	}
	if !s.hidden {
		if p, ok := r.Participation.(Importance); ok {
			// Who sees that a device reports, and cannot tell reports from dummies, sees a randomized response to
			// whether its answer is the default.
			if seen := r.seen(p); seen > 0 {
				e = accountant.Compose{accountant.ApproxDP{Epsilon: seen}, e}
			}
		}
		return e, spent, nil
	}
	c, err := r.coins(s, per*missShare)
	if err != nil {
		return nil, 0, err
	}
	if s.free {
		return accountant.Sampled{Event: e, Rate: c.rate, Count: accountant.CountHidden}, spent, nil
	}
	return accountant.Sampled{
		Event: accountant.Compose{accountant.DummyCount{N: c.senders, Rate: c.dummy}, e},
		Rate:  c.rate,
		Count: accountant.CountHidden,
	}, spent + per*missShare, nil
}

// seen is what a device's reporting, or not, tells about its answer: 0 for nothing.
func (r *Recipe) seen(p Importance) float64 {
	rare, usual := r.uploaded(p.Other.Rat()), r.uploaded(p.Default.Rat())
	if seen := math.Max(math.Log(rare/usual), math.Log((1-usual)/(1-rare))); seen > 0 {
		return outward.Up(seen) + outward.Underflow
	}
	return 0
}

// shuffled is what the sum of locally randomized reports gives with nothing from the servers: each sum is a function of
// the shuffled reports of MinBatch honest devices. Delta is that of the theorem; what redraws cost is added to it.
func (r *Recipe) shuffled(s situation, delta float64) (accountant.Event, error) {
	n := r.MinBatch
	if s.half {
		n = max(1, n/2)
	}
	var message accountant.Message
	var odds float64
	switch z := r.Randomizer.(type) {
	case KRR:
		message = accountant.ReportOf(accountant.RandomizedResponse{Epsilon0: up(z.Epsilon0), K: uint64(r.Query.(Histogram).Length)})
	case RAPPOR:
		message = accountant.ColumnsOf(accountant.RAPPOR{Epsilon0: up(z.Epsilon0)})
		var err error
		q := r.Query.(Multihot)
		if odds, err = z.overweight(q.Length, q.MaxWeight); err != nil {
			return nil, &InvalidError{"guarantee", fmt.Sprintf("cannot be computed: %v", err)}
		}
	default:
		return nil, &InvalidError{"randomizer", "has no bound"}
	}
	curve, err := amplify.Shuffle(message, n)
	if err != nil {
		return nil, &InvalidError{"guarantee", fmt.Sprintf("cannot be computed: %v", err)}
	}
	g, err := curve.Epsilon(delta)
	if err != nil {
		return nil, &InvalidError{"guarantee", fmt.Sprintf("cannot be computed: %v", err)}
	}
	if odds == 0 {
		return accountant.ApproxDP{Epsilon: g.Epsilon, Delta: delta}, nil
	}
	// Theorem 2 of docs/proofs/device-noise.md.
	again := float64(n) * odds
	total := outward.Up((delta + again*math.Exp(g.Epsilon)) / (1 - again))
	if !(again < 0.5 && total < 1) {
		return nil, &InvalidError{"guarantee", "is lost to reports that are drawn again"}
	}
	return accountant.ApproxDP{Epsilon: g.Epsilon + 2*odds, Delta: total}, nil
}

// coins are a round's coins as the accountant takes them, rounded to the side that protects less.
type coins struct {
	rate    float64 // with which an answer is reported, to who knows the cover coins
	senders uint64  // other honest devices that do not report, at least, in each slot, but for the miss
	dummy   float64 // with which each of them sends a dummy
}

// coins counts those of the other honest devices whose coins leave them free to send a dummy. Who covers and in which slot
// is taken as known, for these coins depend on no answer: see docs/proofs/coins.md.
func (r *Recipe) coins(s situation, miss float64) (coins, error) {
	c, free, err := r.coinRates()
	if err != nil {
		return c, err
	}
	others := r.Dummies.Senders - 1
	if s.half {
		others /= 2
	}
	n := uint64(0)
	if others > 0 {
		n, err = amplify.MinimumBatch(others, free, miss)
	}
	if err != nil {
		return c, &InvalidError{"dummies.senders", fmt.Sprintf("cannot be counted on: %v", err)}
	}
	if n == 0 {
		return c, &InvalidError{"dummies.senders", fmt.Sprintf("is %d, too few to hide one answer", r.Dummies.Senders)}
	}
	c.senders = n
	return c, nil
}

// coinRates returns coins but for their number, and the probability with which one of the others is free to send a dummy in a slot.
func (r *Recipe) coinRates() (c coins, free float64, err error) {
	_, most := r.reportRates()
	c = coins{rate: ratUp(new(big.Rat).Quo(most, r.coverRate())), dummy: r.Dummies.Rate.floatDown()}
	if !(c.rate < 1) {
		return c, 0, &InvalidError{"participation.rate", "reports every answer that is covered, so that no coin hides it"}
	}
	_, unlikely, _ := slotWeights(r.slots())
	covered, _ := r.coverRate().Float64()
	return c, outward.Down(covered * unlikely * (1 - c.rate)), nil
}

// dummyAllowance is an upper quantile of the dummies of a batch when all devices of the stated rate decide.
func dummyAllowance(r *Recipe) (uint64, error) {
	least, _ := r.reportRates()
	c, _ := r.coverRate().Float64()
	s, _ := least.Float64()
	likely, _, _ := slotWeights(r.slots())
	return upperQuantile(r.Rate.Devices, min(1, outward.Up(likely*(c-s)*r.Dummies.Rate.Float())), DummyMiss)
}

// up is the least float64 that is not below.
func up(d Decimal) float64 { return ratUp(d.Rat()) }

func ratUp(x *big.Rat) float64 {
	f, _ := x.Float64()
	if new(big.Rat).SetFloat64(f).Cmp(x) < 0 {
		f = math.Nextafter(f, math.Inf(1))
	}
	return f
}

// proved is the loss of all rounds in a situation.
func (r *Recipe) proved(s situation, delta Decimal, rounds uint32, n accountant.Neighbours) (Loss, string, error) {
	e, spent, err := r.release(s, delta, rounds, n)
	if err != nil {
		return Loss{}, "", err
	}
	l, theorem, err := loss(e, rounds, delta, spent*float64(rounds), n)
	return r.redrawn(l, rounds), theorem, err
}

// honest is how many servers' noise counts for the claim.
func (r *Recipe) honest(claim ApproxDP) int {
	if gauss, ok := r.Noise.(DiscreteGaussian); !ok || gauss.Share == DrawsAll {
		return 1 // one server's draw is all that is stated; the other's is post-processing
	}
	return int(claim.HonestServers)
}

// compute is the guarantee at the claim's delta, servers and rounds.
func (r *Recipe) compute(claim ApproxDP) (*Guarantee, error) {
	honest := r.honest(claim)
	s, n := situation{servers: honest, hidden: r.amplified()}, r.Neighbours()
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
	g := &Guarantee{Loss: total, PerRound: per, Rounds: claim.Rounds, Neighbours: n, Theorem: theorem}
	g.Assumptions = r.assumptions(honest, claim.Rounds)
	if g.Fallbacks, err = r.fallbacks(s, claim); err != nil {
		return nil, err
	}
	g.Conditions, g.Unconditional, g.UnconditionalNeighbours = r.Conditions(), g.Loss, n
	if len(g.Conditions) > 0 {
		if g.Unconditional, err = r.unconditional(claim, claim.Delta, claim.Rounds); err != nil {
			return nil, err
		}
		g.UnconditionalNeighbours = r.knownNeighbours()
	}
	unit := r.PrivacyUnit()
	g.Unit, g.PerPerson, g.Person = unit.Name, unit.PerPerson, g.Unconditional
	if unit.PerPerson > 1 {
		g.Person, err = Group(unit.PerPerson, claim.Delta, func(delta Decimal) (Loss, error) {
			return r.unconditional(claim, delta, claim.Rounds)
		})
	}
	return g, err
}

// unconditional is the loss of a number of rounds that counts on none of
// [Recipe.Conditions], for neighbours of whom it is known who sent what: where devices blur
// their answers it is what one report gives by itself, whoever else reports.
func (r *Recipe) unconditional(claim ApproxDP, delta Decimal, rounds uint32) (Loss, error) {
	if r.Randomizer == (NoRandomizer{}) {
		l, _, err := r.proved(situation{servers: r.honest(claim)}, delta, rounds, r.knownNeighbours())
		return l, err
	}
	l, err := r.ownNoise(delta, rounds)
	if p, ok := r.Participation.(Importance); ok && err == nil {
		l.Epsilon = outward.Above(l.Epsilon + float64(rounds)*r.seen(p))
	}
	return l, err
}

func (r *Recipe) assumptions(honest int, rounds uint32) []string {
	var list []string
	if r.amplified() {
		list = append(list,
			fmt.Sprintf("one device decides in at most %s, once in each; each round is released alone, after its end, which leader "+
				"and helper each see to", count(uint64(rounds), "round", "rounds")),
			"the relay keeps from the gateway and the servers who sent what and when, and nobody watches devices' networks")
		if name := r.PrivacyUnit().Name; name != UnitDevice {
			list[0] += fmt.Sprintf(", and no two devices answer for one %s", name)
		}
		if r.Cover != nil {
			list[len(list)-1] = "the relay keeps from the gateway and the servers who sent what and when"
		}
	} else {
		list = append(list,
			"it need not be hidden that a person takes part, only what they answer",
			r.once(rounds))
	}
	if r.Randomizer != (NoRandomizer{}) {
		return append(list, "the leader and the helper do not put their shares together")
	}
	if honest == 1 {
		return append(list,
			"one of the leader and the helper, whichever it is, adds its noise and keeps its share and its noise to itself")
	}
	return append(list, "the leader and the helper both add their noise and keep their shares and their noise to themselves")
}

func (r *Recipe) fallbacks(s situation, claim ApproxDP) ([]Fallback, error) {
	var list []Fallback
	add := func(kind FallbackKind, s situation, n accountant.Neighbours, when, note string) error {
		l, _, err := r.proved(s, claim.Delta, claim.Rounds, n)
		if err == nil {
			list = append(list, Fallback{kind, when, l, note})
		}
		return err
	}
	if s.hidden {
		seen := s
		seen.hidden = false
		note := fmt.Sprintf("sampling counts for nothing: for %v neighbours", r.knownNeighbours())
		if _, ok := r.Participation.(Importance); ok {
			note += ", with what the device's reporting tells about its answer"
		}
		err := add(RelayColludes, seen, r.knownNeighbours(),
			"the relay and whoever receives reports put together what they see", note)
		if err != nil {
			return nil, err
		}
		edge := Fallback{EdgeWatched, "someone who sees the result watches a device's network", list[0].Loss, note}
		if r.Cover != nil {
			l, _, err := r.proved(s, claim.Delta, claim.Rounds, r.Neighbours())
			if err != nil {
				return nil, err
			}
			edge.Loss, edge.Note = l, "cover hides there whether a request holds a report"
		}
		list = append(list, edge)
		half := s
		half.half = true
		if err := add(HalfAreDishonest, half, r.Neighbours(), "half of the devices are dishonest",
			"fewer dummies hide the number of answers"); err != nil {
			return nil, err
		}
	} else if r.Randomizer != (NoRandomizer{}) {
		half := s
		half.half = true
		if err := add(HalfAreDishonest, half, r.Neighbours(), "half of the devices are dishonest", r.fewer()); err != nil {
			return nil, err
		}
	}
	if s.servers == 2 {
		one := s
		one.servers = 1
		if err := add(OneServerFails, one, r.Neighbours(), "one of the two servers gives its noise away, or adds none",
			"only the other server's half of the noise is left"); err != nil {
			return nil, err
		}
	}
	together := Fallback{
		Kind: ServersCollude,
		When: "the leader and the helper put their shares together",
		Loss: NoPrivacy,
		Note: "they can read every answer, because devices add no noise of their own",
	}
	if r.Randomizer != (NoRandomizer{}) {
		together.Note = fmt.Sprintf("the device's own noise is left, for %v neighbours who take part", r.knownNeighbours())
		var err error
		if together.Loss, err = r.ownNoise(claim.Delta, claim.Rounds); err != nil {
			return nil, err
		}
	}
	return append(list, together), nil
}

// fewer says what dishonest devices take away.
func (r *Recipe) fewer() string {
	if _, ok := r.Randomizer.(Gaussian); ok {
		return "there is less noise in the sum"
	}
	return "fewer reports to hide among"
}

// ownNoise is what the device's own noise gives, in a number of rounds, against who reads
// its reports and knows whose they are.
func (r *Recipe) ownNoise(delta Decimal, rounds uint32) (Loss, error) {
	local := func(epsilon0 Decimal) Loss { return Loss{outward.Above(up(epsilon0) * float64(rounds)), delta.Float()} }
	switch z := r.Randomizer.(type) {
	case Gaussian:
		return r.alone(z, delta, rounds)
	case KRR:
		return local(z.Epsilon0), nil
	case RAPPOR:
		// What is drawn again is that under every value, but less often under none.
		q := r.Query.(Multihot)
		odds, err := z.overweight(q.Length, q.MaxWeight)
		l := local(z.Epsilon0)
		l.Epsilon += 2 * odds * float64(rounds)
		return l, err
	}
	return NoPrivacy, nil
}

// BothHonest is the loss where both servers add their noise and keep it to themselves, although the claim needs one of them
// only: the stronger of the two guarantees of [DrawsAll]. For [DrawsHalf] it is the claim's own, and [OneServerFails] the other.
// It is false where there is no such second guarantee, or none that the accountant knows.
func (r *Recipe) BothHonest() (Loss, bool) {
	claim, ok := r.Claim.(ApproxDP)
	gauss, isGauss := r.Noise.(DiscreteGaussian)
	_, isLaplace := r.Noise.(DiscreteLaplace)
	if !ok || !isGauss && !isLaplace || gauss.Share == DrawsHalf && claim.HonestServers > 1 {
		return Loss{}, false
	}
	both := situation{servers: 2, hidden: r.amplified()}
	l, _, err := r.proved(both, claim.Delta, claim.Rounds, r.Neighbours())
	if err != nil || !l.Finite() {
		return l, false
	}
	if isLaplace { // of a sum of two such draws less may be known than of one
		one := both
		one.servers = 1
		if alone, _, err := r.proved(one, claim.Delta, claim.Rounds, r.Neighbours()); err == nil && l.Epsilon >= alone.Epsilon {
			return Loss{}, false
		}
	}
	return l, true
}

// LossAfter is the loss of the first rounds, 1 up to the claim's, in which a device decides: what its ledger charges in all
// once it has decided so often. It is NoPrivacy for a recipe without noise.
func (r *Recipe) LossAfter(rounds uint32) (Loss, error) {
	return r.after(rounds, func(claim ApproxDP) (Loss, error) {
		l, _, err := r.proved(situation{servers: r.honest(claim), hidden: r.amplified()}, claim.Delta, rounds, r.Neighbours())
		return l, err
	})
}

// UnconditionalAfter is the like that counts on none of [Recipe.Conditions]: what the
// rounds cost even where it is known who sent what. It is [Recipe.LossAfter] for a recipe
// without conditions.
func (r *Recipe) UnconditionalAfter(rounds uint32) (Loss, error) {
	return r.after(rounds, func(claim ApproxDP) (Loss, error) { return r.unconditional(claim, claim.Delta, rounds) })
}

func (r *Recipe) after(rounds uint32, loss func(ApproxDP) (Loss, error)) (Loss, error) {
	claim, ok := r.Claim.(ApproxDP)
	if r.exact() || !ok {
		return NoPrivacy, nil
	}
	if rounds == 0 || rounds > claim.Rounds {
		return Loss{}, &InvalidError{"claim.rounds", fmt.Sprintf("are %d, not %d", claim.Rounds, rounds)}
	}
	return loss(claim)
}

// DecisionRounds is how often a device may decide: the claim's rounds, or 1 where nothing is claimed.
func (r *Recipe) DecisionRounds() uint32 {
	if claim, ok := r.Claim.(ApproxDP); ok {
		return claim.Rounds
	}
	return 1
}
