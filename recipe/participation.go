package recipe

import (
	"fmt"
	"math"
	"math/big"

	"github.com/starling-agg/starling/internal/binomial"
	"github.com/starling-agg/starling/internal/outward"
)

// Bernoulli: each device decides by a secret coin of its own, the same for every answer.
type Bernoulli struct {
	// Rate is the probability of reporting, below 1.
	Rate Rational
}

// Importance: each device decides by a secret coin whose bias depends on its answer, so that the rare answers are the
// better sampled ("counting needles", paper 000 section 3.1). The default answer is the zero vector of a [Multihot] of
// weight 1. Who sees a device upload learns about its answer, so [Cover] and [Dummies] go with it.
type Importance struct {
	// Default is the probability of reporting the zero vector; Other that of any other answer, not below it. Below 1.
	Default, Other Rational
}

// DonationTime: each device waits for a random slot, and decides by a coin when it comes (paper 000, appendix A). Slot i of
// 0..Slots-1 has probability (1-1/Slots)^i / Slots; with the rest a device leaves out the whole round.
type DonationTime struct {
	// Rate is the probability of reporting in the slot, below 1.
	Rate Rational
	// Slots is 2 to MaxSlots. Each is a batch of its own.
	Slots uint32
	// Length of a slot in units of the recipe's TimePrecision, 1 or more.
	Length uint32
}

func (Bernoulli) participation() uint8    { return tagBernoulli }
func (Importance) participation() uint8   { return tagImportance }
func (DonationTime) participation() uint8 { return tagDonationTime }

func (p Bernoulli) String() string {
	return fmt.Sprintf("each device decides by a secret coin; %s of them report", p.Rate)
}
func (p Importance) String() string {
	return fmt.Sprintf("each device decides by a secret coin; %s of those with nothing to tell report, and %s of the others", p.Default, p.Other)
}
func (p DonationTime) String() string {
	return fmt.Sprintf("each device waits for a random one of %d slots, if it draws one, and then decides by a secret coin; %s report",
		p.Slots, p.Rate)
}

// Dummies are reports of no answer, sent by devices whose coin said not to report: without them the number of reports
// would tell whether one more person answered.
type Dummies struct {
	// Rate is the probability that a device whose coin said no sends a dummy; above 0, at most 1/2.
	Rate Rational `json:"rate"`
	// Senders is how many honest devices decide in a round at least: those that the guarantee counts on.
	Senders uint64 `json:"senders"`
	// Allowance is an upper quantile of the dummies in a batch. DAP's minimum batch size is MinBatch + Allowance, so that
	// MinBatch answers are in it but for a probability of [DummyMiss].
	Allowance uint64 `json:"allowance"`
}

// DummyMiss is the probability with which a batch may hold more dummies than the allowance.
const DummyMiss = 1e-9

// Cover hides from who watches a device's network whether it reports: the device uploads one request of one size with a
// probability that does not depend on its answer, holding a report or a no-op that the gateway drops.
type Cover struct {
	// Rate is that probability, not below any rate of reporting, at most 1. The guarantee takes the coin as known to all, so
	// that a rate below 1 gives away that much amplification.
	Rate Rational `json:"rate"`
}

// Rate is how many devices take part, for the aggregators, which hold a batch that is too large to be honest.
type Rate struct {
	// Devices decide, whether for or against reporting, in each Units; for [DonationTime] in each round of all slots.
	Devices uint64 `json:"devices"`
	// Units of the recipe's TimePrecision.
	Units uint64 `json:"units"`
}

// Relay sends reports through oblivious HTTP (RFC 9458), so that who receives them does not know who sent them.
type Relay struct {
	// URL of the relay's resource, and Gateway of the gateway behind it. The relay must
	// not be run by a server's owner, which Validate sees as far as names tell.
	URL     string `json:"url"`
	Gateway string `json:"gateway"`
}

// KEM is what encrypts reports to the servers and the gateway.
type KEM uint16

const (
	// X25519 is DHKEM(X25519, HKDF-SHA256), the default.
	X25519 KEM = 0
	// XWing is ML-KEM-768 with X25519: who records a report today cannot open it with a later quantum computer.
	XWing KEM = 0x647a
)

func (k KEM) String() string {
	if k == X25519 {
		return "x25519"
	}
	return nameOf("kem", uint16(k))
}

// Sampled says whether devices decide by coins.
func (r *Recipe) Sampled() bool {
	switch r.Participation.(type) {
	case nil, Always:
		return false
	}
	return true
}

// Amplified says whether sampling counts for the guarantee: who receives a report must
// not see who sent it.
func (r *Recipe) Amplified() bool { return r.Sampled() && r.Relay != nil }

// reportRates returns the least and the largest probability, over all answers, of reporting once a slot has come.
func (r *Recipe) reportRates() (least, most *big.Rat) {
	switch p := r.Participation.(type) {
	case Bernoulli:
		return p.Rate.Rat(), p.Rate.Rat()
	case Importance:
		return p.Default.Rat(), p.Other.Rat()
	case DonationTime:
		return p.Rate.Rat(), p.Rate.Rat()
	}
	return big.NewRat(1, 1), big.NewRat(1, 1)
}

// Slots is the number of slots of a round.
func (r *Recipe) Slots() uint32 {
	if p, ok := r.Participation.(DonationTime); ok {
		return p.Slots
	}
	return 1
}

func (r *Recipe) coverRate() *big.Rat {
	if r.Cover != nil {
		return r.Cover.Rate.Rat()
	}
	return big.NewRat(1, 1)
}

// Chances are the coins of a device with one answer, in the order of tossing, each exact. A device that has no slot
// ([DonationTime]) tosses none.
type Chances struct {
	// Cover is the probability of uploading anything; 1 without cover.
	Cover *big.Rat
	// Report is that of reporting the answer, given Cover.
	Report *big.Rat
	// Dummy is that of sending a dummy, given Cover and no report.
	Dummy *big.Rat
}

// Chances returns the coins of a device whose answer is the default one (the zero vector of [Importance]; else any),
// another one, or that has none to give.
func (r *Recipe) Chances(a Answer) Chances {
	c := Chances{Cover: r.coverRate(), Report: new(big.Rat), Dummy: new(big.Rat)}
	least, most := r.reportRates()
	switch a {
	case DefaultAnswer:
		c.Report.Quo(least, c.Cover)
	case OtherAnswer:
		c.Report.Quo(most, c.Cover)
	}
	if r.Dummies != nil {
		c.Dummy = r.Dummies.Rate.Rat()
	}
	return c
}

// An Answer is the kind of a device's answer, as far as its coins depend on it.
type Answer uint8

const (
	// NoAnswer: the device has nothing to report; it still sends dummies and cover.
	NoAnswer Answer = iota
	// DefaultAnswer is the zero vector of an [Importance] recipe.
	DefaultAnswer
	// OtherAnswer is any other answer.
	OtherAnswer
)

// uploaded returns the probability that a device whose answers report at the given rate sends a report or a dummy, once a
// slot has come.
func (r *Recipe) uploaded(rate *big.Rat) float64 {
	f, _ := rate.Float64()
	if r.Dummies == nil {
		return f
	}
	c, _ := r.coverRate().Float64()
	return f + (c-f)*r.Dummies.Rate.Float()
}

// slotWeights are the probabilities of the likeliest and the unlikeliest slot, and of any.
func slotWeights(m uint32) (most, least, any float64) {
	n := float64(m)
	if m == 1 {
		return 1, 1, 1
	}
	log := math.Log1p(-1 / n)
	return 1 / n, math.Exp((n-1)*log) / n, -math.Expm1(n * log)
}

// Expected returns the bounds of how many reports, dummies among them, come in the given number of time units if
// everybody is honest, whatever the answers. It is false for a recipe that states no [Rate].
func (r *Recipe) Expected(units uint64) (least, most float64, ok bool) {
	if r.Rate == nil || r.Rate.Units == 0 {
		return 0, 0, false
	}
	low, high := r.reportRates()
	_, _, any := slotWeights(r.Slots())
	n := float64(r.Rate.Devices) * float64(units) / float64(r.Rate.Units) * any
	return n * r.uploaded(low), n * r.uploaded(high), true
}

// MostExpected is how many reports, dummies among them, come at most in one round, or in
// one slot, if everybody is honest. It is false for a recipe that states no [Rate].
func (r *Recipe) MostExpected() (float64, bool) {
	if r.Rate == nil {
		return 0, false
	}
	_, high := r.reportRates()
	likely, _, _ := slotWeights(r.Slots())
	return float64(r.Rate.Devices) * likely * r.uploaded(high), true
}

// Threshold is DAP's minimum batch size: MinBatch answers, and as many dummies as may be among the reports.
func (r *Recipe) Threshold() uint64 {
	if r.Dummies == nil {
		return r.MinBatch
	}
	return r.MinBatch + r.Dummies.Allowance
}

// MaxSlots bounds [DonationTime].
const MaxSlots = 4096

// Watched is what a device's reporting, or not, tells about its answer: 0 for nothing.
func (r *Recipe) Watched(p Importance) float64 {
	rare, usual := r.uploaded(p.Other.Rat()), r.uploaded(p.Default.Rat())
	if seen := math.Max(math.Log(rare/usual), math.Log((1-usual)/(1-rare))); seen > 0 {
		return outward.Up(seen) + outward.Underflow
	}
	return 0
}

// Coins are a round's coins as a guarantee takes them, rounded to the side that protects less.
type Coins struct {
	Rate  float64 // with which an answer is reported, to who knows the cover coins
	Dummy float64 // with which each device that is free to sends a dummy
	Free  float64 // the probability with which another device is free to, in a slot
}

// CoinRates returns the coins of a recipe that devices decide by.
func (r *Recipe) CoinRates() (Coins, error) {
	_, most := r.reportRates()
	c := Coins{Rate: outward.Rat(new(big.Rat).Quo(most, r.coverRate())), Dummy: r.Dummies.Rate.FloatDown()}
	if !(c.Rate < 1) {
		return c, &InvalidError{"participation.rate", "reports every answer that is covered, so that no coin hides it"}
	}
	_, unlikely, _ := slotWeights(r.Slots())
	covered, _ := r.coverRate().Float64()
	c.Free = outward.Down(covered * unlikely * (1 - c.Rate))
	return c, nil
}

// DummyAllowance is an upper quantile of the dummies of a batch when all devices of the
// stated rate decide.
func (r *Recipe) DummyAllowance() (uint64, error) {
	least, _ := r.reportRates()
	c, _ := r.coverRate().Float64()
	s, _ := least.Float64()
	likely, _, _ := slotWeights(r.Slots())
	return upperQuantile(r.Rate.Devices, min(1, outward.Up(likely*(c-s)*r.Dummies.Rate.Float())), DummyMiss)
}

func (v *validator) participation(r *Recipe) {
	chance := func(field string, x Rational, most *big.Rat, what string) {
		if !x.Valid() {
			v.add(field, "is not a positive fraction in lowest terms")
		} else if x.Rat().Cmp(most) >= 0 {
			v.add(field, "is %s, want %s", x, what)
		}
	}
	one := big.NewRat(1, 1)
	switch p := r.Participation.(type) {
	case Bernoulli:
		chance("participation.rate", p.Rate, one, "below 1")
	case Importance:
		chance("participation.default", p.Default, one, "below 1")
		chance("participation.other", p.Other, one, "below 1: a person whose answer is always reported hides behind no coin")
		if p.Default.Valid() && p.Other.Valid() && p.Default.Rat().Cmp(p.Other.Rat()) > 0 {
			v.add("participation.default", "is above that of other answers")
		}
		if q, ok := r.Query.(Multihot); !ok || q.MaxWeight != 1 {
			v.add("participation", "by the answer's importance needs a multihot query of weight 1, whose zero vector is the default")
		}
		if r.Cover == nil {
			v.add("cover", "is missing: under importance sampling, who sees a device upload learns about its answer")
		}
		if r.Relay == nil {
			v.add("relay", "is missing: under importance sampling, who knows the sender of a report learns about the answer")
		}
	case DonationTime:
		chance("participation.rate", p.Rate, one, "below 1")
		v.between("participation.slots", uint64(p.Slots), 2, MaxSlots)
		v.between("participation.length", uint64(p.Length), 1, 1<<20)
	}
	v.relay(r)
	if r.KEM != X25519 && !isKnown("kem", uint16(r.KEM)) {
		v.add("hpke_suite", "is KEM %#04x, want x25519 or x-wing", uint16(r.KEM))
	}
	if !r.DAP.Known() {
		v.add("dap", "is no draft that is spoken")
	}
	if rate := r.Rate; rate != nil {
		v.between("rate.devices", rate.Devices, 1, binomial.MaxCount)
		v.between("rate.units", rate.Units, 1, 1<<32)
	}
	if !r.Sampled() {
		if r.Dummies != nil {
			v.add("dummies", "make no sense where every device reports")
		}
		if r.Cover != nil {
			v.add("cover", "makes no sense where every device reports")
		}
		return
	}
	if len(v.errs) == 0 && !v.early {
		v.sampling(r)
	}
}

func (v *validator) relay(r *Recipe) {
	if r.Relay == nil {
		return
	}
	v.url("relay.url", r.Relay.URL)
	v.url("relay.gateway", r.Relay.Gateway)
}

// sampling checks what goes with coins; all fields are in order by themselves.
func (v *validator) sampling(r *Recipe) {
	if r.Rate == nil {
		v.add("rate", "is missing: sampled recipes say how many devices decide")
	} else if p, ok := r.Participation.(DonationTime); ok && r.Rate.Units != uint64(p.Slots)*uint64(p.Length) {
		v.add("rate.units", "is %d, want the %d slots of %d units", r.Rate.Units, p.Slots, p.Length)
	}
	if r.Query.Form() == Bucket && !r.Randomized() {
		v.add("query", "cannot be zero, so that no dummy can be sent; use a multihot query of weight 1")
	}
	if r.MinBatch < SampledBatchFloor {
		v.add("min_batch", "is %d, want at least %d where the batch is a sample", r.MinBatch, SampledBatchFloor)
	}
	_, most := r.reportRates()
	if c := r.Cover; c != nil {
		if !c.Rate.Valid() || c.Rate.Rat().Cmp(big.NewRat(1, 1)) > 0 {
			v.add("cover.rate", "is not a probability in lowest terms")
		} else if c.Rate.Rat().Cmp(most) < 0 {
			v.add("cover.rate", "is below a rate of reporting")
		}
		if r.Relay == nil {
			v.add("cover", "needs a relay: nobody else could receive no-ops")
		}
	}
	d := r.Dummies
	if d == nil {
		v.add("dummies", "are missing: without them the number of reports tells whether one more person answered")
		return
	}
	if !d.Rate.Valid() || d.Rate.Rat().Cmp(big.NewRat(1, 2)) > 0 {
		v.add("dummies.rate", "is not a fraction in lowest terms, above 0 and at most 1/2")
	}
	v.between("dummies.senders", d.Senders, 1, binomial.MaxCount)
	v.between("dummies.allowance", d.Allowance, 0, MaxMinBatch)
	if len(v.errs) > 0 {
		return
	}
	if d.Senders > r.Rate.Devices {
		v.add("dummies.senders", "is %d, but only %d devices decide", d.Senders, r.Rate.Devices)
	}
	if p := r.Population; p != nil && p.Expected > 0 && d.Senders > p.Expected {
		v.add("dummies.senders", "is %d, but only %d people are expected", d.Senders, p.Expected)
	}
	allowance, err := r.DummyAllowance()
	if err != nil {
		v.add("dummies.allowance", "cannot be computed: %v", err)
	} else if d.Allowance < allowance {
		v.add("dummies.allowance", "is %d, but a batch may hold %d dummies", d.Allowance, allowance)
	}
	low, _, _ := r.Expected(r.Rate.Units)
	if per := low / float64(r.Slots()); float64(r.Threshold()) > per {
		v.add("min_batch", "and the dummies' allowance are %d, but only about %.0f reports are expected", r.Threshold(), per)
	}
}

// SampledBatchFloor is the least B of a recipe whose batches are samples.
const SampledBatchFloor = 20
