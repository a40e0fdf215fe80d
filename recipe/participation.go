package recipe

import (
	"fmt"
	"math/big"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/binomial"
	"github.com/starling-agg/starling/internal/outward"
)

// Participation is how a device decides whether to answer. Each has a file of its own, with
// all that there is to say of it: [Always], [Bernoulli], [Importance], [CheckIn] and
// [DonationTime].
type Participation interface {
	fmt.Stringer
	// Units is the length of a round in units of the recipe's TimePrecision, where the
	// participation fixes it; else 0.
	Units() uint64
	participation() uint8
	append(b *cryptobyte.Builder)
	// params are those of the JSON form, nil for none.
	params() any
	validate(v *validator, r *Recipe)
	// rates are the least and the largest probability, over all answers, of reporting
	// once a slot has come.
	rates() (least, most *big.Rat)
	// byAnswer says that these differ.
	byAnswer() bool
}

// participations are those that this version knows, with how each is read from its bytes;
// in the order of their numbers.
var participations = []struct {
	tag  uint8
	read func(d *decoder) Participation
}{
	{tagAlways, func(*decoder) Participation { return Always{} }},
	{tagBernoulli, readBernoulli},
	{tagImportance, readImportance},
	{tagCheckInFixed, readCheckIn(release.FixedWindow)},
	{tagCheckInAveraged, readCheckIn(release.AveragedWindow)},
	{tagCheckInSliding, readCheckIn(release.SlidingWindow)},
	{tagDonationTime, readDonationTime},
}

func readParticipation(tag uint8, d *decoder) (Participation, bool) {
	for _, p := range participations {
		if p.tag == tag {
			return p.read(d), true
		}
	}
	return nil, false
}

// Always answers whenever it is asked.
type Always struct{}

func (Always) String() string                { return "every device that is asked answers" }
func (Always) Units() uint64                 { return 0 }
func (Always) participation() uint8          { return tagAlways }
func (Always) append(*cryptobyte.Builder)    {}
func (Always) params() any                   { return nil }
func (Always) validate(*validator, *Recipe)  {}
func (Always) rates() (least, most *big.Rat) { return big.NewRat(1, 1), big.NewRat(1, 1) }
func (Always) byAnswer() bool                { return false }

// Dummies are reports of no answer, sent by devices whose coin said not to report:
// without them the number of reports would tell whether one more person answered.
type Dummies struct {
	// Rate is the probability that a device whose coin said no sends a dummy; above 0, at
	// most 1/2.
	Rate Rational `json:"rate"`
	// Senders is how many honest devices decide in a round at least: those that the
	// guarantee counts on. Of a sliding [CheckIn], how many have each slot that a device
	// may draw in their windows.
	Senders uint64 `json:"senders"`
	// Allowance is an upper quantile of the dummies in a batch. DAP's minimum batch size
	// is MinBatch + Allowance, so that MinBatch answers are in it but for a probability
	// of [DummyMiss].
	Allowance uint64 `json:"allowance"`
}

// ParseDummies reads rate, senders and allowance of [Dummies], as in 1/8:5000:720.
func ParseDummies(s string) (*Dummies, error) {
	rates, n, err := colons(s, 3, 1)
	if err != nil {
		return nil, err
	}
	return &Dummies{Rate: rates[0], Senders: n[0], Allowance: n[1]}, nil
}

// DummyMiss is the probability with which a batch may hold more dummies than the allowance.
const DummyMiss = 1e-9

// Cover hides from who watches a device's network whether it reports: the device uploads
// one request of one size with a probability that does not depend on its answer, holding
// a report or a no-op that the gateway drops.
type Cover struct {
	// Rate is that probability, not below any rate of reporting, at most 1. The guarantee
	// takes the coin as known to all, so that a rate below 1 gives away that much
	// amplification.
	Rate Rational `json:"rate"`
}

// Rate is how many devices take part, for the aggregators, which hold a batch that is too
// large to be honest.
type Rate struct {
	// Devices decide, whether for or against reporting, in each Units; where they wait for
	// slots in each round of all slots.
	Devices uint64 `json:"devices"`
	// Units of the recipe's TimePrecision.
	Units uint64 `json:"units"`
}

// Relay sends reports through oblivious HTTP (RFC 9458), so that who receives them does
// not know who sent them.
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
	// XWing is ML-KEM-768 with X25519: who records a report today cannot open it with a
	// later quantum computer.
	XWing KEM = 0x647a
)

func (k KEM) String() string {
	if k == X25519 {
		return "x25519"
	}
	return nameOf("kem", uint16(k))
}

// Sampled says whether devices decide by coins.
func (r *Recipe) Sampled() bool { return r.Participation != nil && r.Participation != Always{} }

// ByAnswer says whether a device's coin depends on its answer.
func (r *Recipe) ByAnswer() bool { return r.Participation != nil && r.Participation.byAnswer() }

// Amplified says whether sampling counts for the guarantee: who receives a report must
// not see who sent it. It never does of [SharedSum], whose units have one coin together: who
// knows the others of a site sees from their sum how it fell (docs/proofs/units.md).
func (r *Recipe) Amplified() bool { return r.Sampled() && r.Relay != nil && r.Shares() == 0 }

// reportRates returns the least and the largest probability, over all answers, of
// reporting once a slot has come.
func (r *Recipe) reportRates() (least, most *big.Rat) {
	if r.Participation == nil {
		return Always{}.rates()
	}
	return r.Participation.rates()
}

func (r *Recipe) coverRate() *big.Rat {
	if r.Cover != nil {
		return r.Cover.Rate.Rat()
	}
	return big.NewRat(1, 1)
}

// Chances are the coins of a device with one answer, in the order of tossing, each exact.
// A device that has no slot ([Recipe.Slotted]) tosses none.
type Chances struct {
	// Cover is the probability of uploading anything; 1 without cover.
	Cover *big.Rat
	// Report is that of reporting the answer, given Cover.
	Report *big.Rat
	// Dummy is that of sending a dummy, given Cover and no report.
	Dummy *big.Rat
}

// Chances returns the coins of a device whose answer is the default one (the zero vector
// of [Importance]; else any), another one, or that has none to give.
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
		if _, ok := r.checkIn(); ok && a == NoAnswer {
			// As often as one with an answer sends a dummy, so that none tells of an answer.
			s := new(big.Rat).Quo(most, c.Cover)
			c.Dummy.Mul(c.Dummy, s.Sub(big.NewRat(1, 1), s))
		}
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

// uploaded returns the probability that a device whose answers report at the given rate
// sends a report or a dummy, once a slot has come.
func (r *Recipe) uploaded(rate *big.Rat) float64 {
	f, _ := rate.Float64()
	if r.Dummies == nil {
		return f
	}
	c, _ := r.coverRate().Float64()
	return f + (c-f)*r.Dummies.Rate.Float()
}

// Expected returns the bounds of how many reports, dummies among them, come in the given
// number of time units if everybody is honest, whatever the answers. It is false for a
// recipe that states no [Rate].
func (r *Recipe) Expected(units uint64) (least, most float64, ok bool) {
	if r.Rate == nil || r.Rate.Units == 0 {
		return 0, 0, false
	}
	low, high := r.reportRates()
	_, _, any := r.slotWeights()
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
	likely, _, _ := r.slotWeights()
	return float64(r.Rate.Devices) * likely * r.uploaded(high), true
}

// Sends returns the bounds, rounded outward, of the probability with which a device that
// decides in a round sends a report or a dummy of it, or of one of its slots: least
// whatever it has to answer, be it nothing, and most with the answer most often reported.
func (r *Recipe) Sends() (least, most float64) {
	_, high := r.reportRates()
	likely, unlikely, _ := r.slotWeights()
	if s, ok := r.Slotted(); ok && s.Window > 0 {
		unlikely = 0 // where no window reaches
	}
	return outward.Down(unlikely * r.uploaded(new(big.Rat))), min(1, outward.Up(likely*r.uploaded(high)))
}

// Threshold is DAP's minimum batch size: MinBatch answers, and as many dummies as may be
// among the reports.
func (r *Recipe) Threshold() uint64 {
	if r.Dummies == nil {
		return r.MinBatch
	}
	return r.MinBatch + r.Dummies.Allowance
}

// Coins are a round's coins as a guarantee takes them, rounded to the side that protects
// less.
type Coins struct {
	Rate  float64 // with which an answer is reported, to those who know the cover coins
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
	_, unlikely, _ := r.slotWeights()
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
	likely, _, _ := r.slotWeights()
	return upperQuantile(r.Rate.Devices, min(1, outward.Up(likely*(c-s)*r.Dummies.Rate.Float())), DummyMiss)
}

// chance refuses what is no probability below 1, as want says.
func (v *validator) chance(field string, x Rational, want string) {
	if !x.Valid() {
		v.add(field, "is not a positive fraction in lowest terms")
	} else if x.Rat().Cmp(big.NewRat(1, 1)) >= 0 {
		v.add(field, "is %s, want %s", x, want)
	}
}

func (v *validator) participation(r *Recipe) {
	if r.Participation != nil {
		r.Participation.validate(v, r)
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
	} else if p, ok := r.Slotted(); ok && r.Rate.Units != p.Units() {
		v.add("rate.units", "is %d, want the %d slots of %d units", r.Rate.Units, p.Count, p.Length)
	}
	if r.Query.Form() == Bucket && !r.Randomized() {
		v.add("query", "cannot be zero, so that no dummy can be sent; use a multihot query of weight 1")
	}
	if r.MinBatch < SampledBatchFloor {
		v.add("min_batch", "is %d, want at least %d where the batch is a sample", r.MinBatch, SampledBatchFloor)
	}
	if _, ok := r.Randomizer.(LocalRandomizer); ok && r.Relay != nil {
		if _, ok := r.checkIn(); ok {
			v.add("randomizer", "on the device goes with check-ins only where no relay hides who sends: devices can check no proof of slots of different rates "+
				"with it; let devices decide by one coin, or the servers add noise")
		}
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
		if _, ok := r.checkIn(); ok {
			v.add("cover", "hides whether a device sends, and not in which slot, which check-ins keep secret")
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
