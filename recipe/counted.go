package recipe

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/internal/binomial"
	"github.com/starling-agg/starling/internal/outward"
)

// countMiss bounds the probability with which a result of a sampled round is released
// although fewer devices have decided in it than the guarantee counts on.
const countMiss = 0x1p-40

// Counted says whether the devices that the guarantee counts on are counted by
// credentials, and not the author's word: theorem 7 of docs/proofs/tokens.md, of which
// this checks the premises. Why is the first that is missing, empty where nothing is.
func (r *Recipe) Counted() (ok bool, why string) {
	claim, claims := r.Claim.(ApproxDP)
	sampled := r.Amplified() && r.Dummies != nil && r.Rate != nil
	blurs := r.Randomizer != nil && len(r.Randomizer.conditions(r)) > 0
	needs := r.MinBatch
	if sampled {
		needs = r.Dummies.Senders
	}
	switch t := r.Tokens; {
	case !claims || !sampled && !blurs || r.Amplified() != sampled:
		return false, "no number of devices is counted on"
	case t == nil:
		return false, "no credentials are shown"
	case !r.on().Proofs():
		return false, "that contributions are of devices is counted by each hop, and not that these follow the recipe"
	case r.Log == nil:
		return false, "no log shows that all devices have the same keys of the issuers"
	case t.MinCohort < needs:
		return false, fmt.Sprintf("devices show credentials when %d have some, fewer than the %d that it counts on", t.MinCohort, needs)
	case !sampled:
		return true, ""
	case blurs:
		return false, "that no more devices decide than the author says is not counted"
	}
	return r.countedSenders(claim)
}

// countedSenders is [Recipe.Counted] for devices that decide by coins: whether a round of
// too few is never released, and its number of reports tells no more than is claimed.
func (r *Recipe) countedSenders(claim ApproxDP) (ok bool, why string) {
	if r.Validate() != nil {
		return false, "the recipe is not valid" // and its numbers may be none to compute with
	}
	thin, err := r.thin()
	_, correlated := r.Correlated()
	_, most := r.Sends()
	s := r.Dummies.Senders
	switch {
	case err != nil || s == 0 || s > binomial.MaxCount:
		return false, "its coins are none to compute with"
	case claim.Rounds > 1 || correlated || r.PrivacyUnit().PerPerson > 1:
		return false, "what rounds of too few devices show by their number of reports would add up"
	case !(claim.Delta.FloatDown() >= countMiss):
		return false, "delta is below the probability with which a round of too few devices is released"
	case !atMost(thin, claim.Epsilon.Rat()):
		return false, fmt.Sprintf("in a round of too few devices the number of reports tells more than is claimed, epsilon %s", Above(thin))
	case !rare(r.Threshold(), s-1, most):
		return false, fmt.Sprintf("fewer than %d devices may well send the %d reports of a batch", s, r.Threshold())
	}
	return true, ""
}

// rare says whether n devices, each of which sends with probability p at most, send k
// reports with probability [countMiss] at most.
func rare(k, n uint64, p float64) bool {
	if k > n || p >= 1 {
		return k > n
	}
	_, odds := binomial.Tail(float64(k), float64(n), p, 1-p)
	return odds <= countMiss
}

// thin is what the number of reports tells of one device that decides where nobody else
// does, by its own coins: an epsilon.
func (r *Recipe) thin() (float64, error) {
	c, err := r.CoinRates()
	if err != nil || !(c.Dummy > 0) {
		return math.Inf(1), err
	}
	sent := outward.Above(math.Log1p(outward.Up(outward.Up(c.Rate*(1-c.Dummy)) / c.Dummy)))
	silent := outward.Above(-math.Log1p(-c.Rate))
	if _, ok := r.checkIn(); ok { // one without an answer sends fewer dummies
		none := outward.Down(outward.Down(1-c.Rate) * c.Dummy)
		sent = outward.Above(math.Log1p(outward.Up(c.Rate / none)))
		silent = outward.Above(-math.Log1p(-outward.Up(c.Rate / outward.Down(1-none))))
	}
	return max(sent, silent), nil
}

// OrThin is a loss of rounds that was proved of the devices that the guarantee counts on,
// or what is told in rounds of fewer, whichever is more, where these are counted by
// credentials ([Recipe.Counted]).
func (r *Recipe) OrThin(l Loss) Loss {
	if ok, _ := r.Counted(); !ok || !r.Amplified() {
		return l
	}
	thin, err := r.thin()
	if err != nil {
		return NoPrivacy
	}
	l.Epsilon = max(l.Epsilon, thin)
	return l
}

// counts is the assumption that is left of devices that are counted.
func (r *Recipe) counts() string {
	who := "the attester vouches for devices, each once, and all that it vouches for follow the recipe"
	if _, ok := r.Randomizer.(VectorRandomizer); ok {
		who += ", and all but one of them keep their noise to themselves"
	}
	if r.Amplified() {
		return who + fmt.Sprintf(": the %d that decide in a round are counted by the credentials of its reports, without %d of which "+
			"the leader or the helper, whichever is honest, releases nothing", r.Dummies.Senders, r.Threshold())
	}
	return who + fmt.Sprintf(": the %d whose reports are in a batch are counted by their credentials, by the leader or the helper, "+
		"whichever is honest", r.MinBatch)
}
