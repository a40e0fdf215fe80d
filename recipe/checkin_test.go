package recipe_test

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"strings"
	"sync"
	"testing"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

var half = Rational{Num: 1, Den: 2}

// checkIns are recipes of each schedule: 40,000 devices, eight slots of an hour, and noise
// of variance 4.
func checkIns(t *testing.T) map[release.Schedule]*Recipe {
	t.Helper()
	list, err := checkedIn()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

var checkedIn = sync.OnceValues(func() (map[release.Schedule]*Recipe, error) {
	list := make(map[release.Schedule]*Recipe)
	for s := release.FixedWindow; s <= release.SlidingWindow; s++ {
		p := CheckIn{Schedule: s, Rate: half, Slots: 8, Length: 1}
		if s == release.SlidingWindow {
			p.Window = 4
		}
		o := account.Options{
			Name: "x", Query: Multihot{Length: 4, MaxWeight: 1}, Leader: "https://l.example/", Helper: "https://h.example/", MinBatch: 50,
			Noise: EachDraws(Rational{Num: 4, Den: 1}), Delta: Decimal{1, 6}, Rate: &Rate{40000, 8}, Relay: &Relay{"https://r.example/", "https://g.example/"},
			Participation: p,
		}
		r, err := account.New(o)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", s, err)
		}
		list[s] = r
	}
	return list, nil
})

// TestCheckInBytes: the bytes are for ever, and so are the words of the JSON form.
func TestCheckInBytes(t *testing.T) {
	for s, want := range map[release.Schedule]string{
		release.FixedWindow:    "04" + "0018" + "00000000000000010000000000000002" + "00000008" + "00000001",
		release.AveragedWindow: "05" + "0018" + "00000000000000010000000000000002" + "00000008" + "00000001",
		release.SlidingWindow:  "06" + "001c" + "00000000000000010000000000000002" + "00000008" + "00000004" + "00000001",
	} {
		r := checkIns(t)[s]
		b := mustAppend(t, r)
		if !strings.Contains(hex.EncodeToString(b), want) {
			t.Errorf("%v: the bytes lack %s", s, want)
		}
		again, err := Read(b)
		if err != nil || again.Participation != r.Participation {
			t.Errorf("%v: read as %v, %v", s, again.Participation, err)
		}
		said, err := account.Of(r)
		if err != nil {
			t.Fatal(err)
		}
		j, err := r.JSON(said)
		if err != nil || !strings.Contains(string(j), `"checkin-`+s.String()+`"`) || strings.Contains(string(j), `"window":4`) != (s == release.SlidingWindow) {
			t.Errorf("%v: %v, %s", s, err, j)
		}
	}
}

// TestCheckInRefuses: what is out of bounds is refused with its field.
func TestCheckInRefuses(t *testing.T) {
	for field, changes := range map[string][]func(*CheckIn){
		"participation.rate":   {func(p *CheckIn) { p.Rate = Rational{Num: 1, Den: 1} }, func(p *CheckIn) { p.Rate = Rational{} }},
		"participation.slots":  {func(p *CheckIn) { p.Slots = 1 }, func(p *CheckIn) { p.Slots = MaxSlots + 1 }},
		"participation.length": {func(p *CheckIn) { p.Length = 0 }, func(p *CheckIn) { p.Length = 1<<20 + 1 }},
		"participation.window": {func(p *CheckIn) { p.Window = 1 }, func(p *CheckIn) { p.Window = 9 }, func(p *CheckIn) { p.Schedule = release.FixedWindow }},
		"round.units":          {func(p *CheckIn) { p.Length = 2 }},
	} {
		for i, change := range changes {
			r := *checkIns(t)[release.SlidingWindow]
			p := r.Participation.(CheckIn)
			change(&p)
			r.Participation = p
			if err := r.Validate(); !invalidAt(err, field) {
				t.Errorf("%s, %d: %v", field, i, err)
			}
		}
	}
	// Who watches a device's network sees in which slot it sends, cover or not.
	covered := *checkIns(t)[release.FixedWindow]
	if covered.Cover = &(Cover{Rational{Num: 1, Den: 1}}); !invalidAt(covered.Validate(), "cover") {
		t.Errorf("with cover: %v", covered.Validate())
	}
	// A certificate has one term of shuffled reports, and slots have rates of their own.
	blurred := *checkIns(t)[release.FixedWindow]
	blurred.Query, blurred.Randomizer, blurred.Noise = Histogram{Length: 4, Chunk: 2}, KRR{Epsilon0: Decimal{1, 0}}, NoNoise{}
	if !invalidAt(blurred.Validate(), "randomizer") {
		t.Errorf("blurred on the device: %v", blurred.Validate())
	}
	if blurred.Relay = nil; invalidAt(blurred.Validate(), "randomizer") {
		t.Errorf("blurred on the device without a relay: %v", blurred.Validate())
	}
	// Without dummies the numbers of slots are public, and nothing is claimed.
	r := *checkIns(t)[release.FixedWindow]
	if r.Dummies = nil; !invalidAt(r.Validate(), "dummies") {
		t.Errorf("without dummies: %v", r.Validate())
	}
}

// TestCheckInRates: the rates of slots are q/(m - q i) or above, of the groups no more than
// that of their last slot, and are all of the slots.
func TestCheckInRates(t *testing.T) {
	for _, slots := range []uint32{2, 3, 8, 9, 100} {
		r := *checkIns(t)[release.FixedWindow]
		r.Participation = CheckIn{Schedule: release.FixedWindow, Rate: half, Slots: slots, Length: 1}
		r.Dummies = &Dummies{Rate: Rational{Num: 1, Den: 4}, Senders: 40000}
		x, err := r.Disclosure(Situation{Servers: 1, Hidden: true}, Decimal{1, 6}, 3)
		if err != nil {
			t.Fatal(err)
		}
		q, at := 0.5/(1-0.5*0.25), uint64(0)
		for _, list := range x.Releases {
			got := list.Sampling.(release.Poisson)
			at += list.Count
			if want := q / (float64(slots) - q*float64(at-1)); got.Rate < want || got.Rate > want*(1+1e-12) || got.DummyRate != 0.25 {
				t.Errorf("%d slots: %v up to slot %d, want %v", slots, got, at, want)
			}
		}
		if at != uint64(slots) || len(x.Releases) > 8 {
			t.Errorf("%d slots of %d in %d groups", at, slots, len(x.Releases))
		}
		// Fewer may be free in any of the slots.
		if share := x.Senders.Miss * float64(slots) / (1e-6 / 3); x.Senders.Slots != slots || math.Abs(share-MissShare) > 1e-9 {
			t.Errorf("%d slots: %+v", slots, x.Senders)
		}
	}
}

// TestCheckInsEnumerated plays a round of few slots in full: a person who draws a slot and
// tosses the recipe's coins, with an answer and without one; others, whose dummies are as
// many as the law of the free says; of each slot the number of units and a response to
// whether the person's answer is in the sum. All views together stay within delta at the
// epsilon of the recipe's releases, both ways, and do not where the number of each slot is
// public.
func TestCheckInsEnumerated(t *testing.T) {
	const e0 = 1.5
	lie := 1 / (1 + math.Exp(e0))
	for _, c := range []struct {
		slots   uint32
		others  int // free to send dummies, in each slot
		s, d    Rational
		epsilon []float64
	}{
		{2, 12, half, half, []float64{0.3, 0.8, 1.2}},
		{3, 4, half, half, []float64{0.4, 0.9}},
		{2, 20, Rational{Num: 9, Den: 10}, Rational{Num: 1, Den: 3}, []float64{0.5, 1}},
		{3, 5, Rational{Num: 1, Den: 5}, half, []float64{0.1, 0.3}},
	} {
		r := *checkIns(t)[release.FixedWindow]
		r.Participation = CheckIn{Schedule: release.FixedWindow, Rate: c.s, Slots: c.slots, Length: 1}
		r.Dummies = &Dummies{Rate: c.d, Senders: 40000}
		x, err := r.Disclosure(Situation{Servers: 1, Hidden: true}, Decimal{1, 6}, 1)
		if err != nil {
			t.Fatal(err)
		}
		var list []release.Release
		for _, each := range x.Releases {
			coins := each.Sampling.(release.Poisson)
			coins.Dummies = uint64(c.others)
			list = append(list, release.Times(each.Count, release.Response{Epsilon0: e0, Answers: 2}).Sampled(coins))
		}
		// The law of a slot: unit adds to its number, and answer to its sum.
		d := c.d.Float()
		slot := func(unit, answer int) []float64 {
			law := make([]float64, 2*(c.others+2))
			for n := range c.others + 1 {
				p := math.Exp(lchoose(c.others, n)) * math.Pow(d, float64(n)) * math.Pow(1-d, float64(c.others-n))
				law[2*(n+unit)+answer] += p * (1 - lie)
				law[2*(n+unit)+1-answer] += p * lie
			}
			return law
		}
		empty, dummy, report := slot(0, 0), slot(1, 0), slot(1, 1)
		f := func(x *big.Rat) float64 { v, _ := x.Float64(); return v }
		view := func(kind Answer) []float64 {
			coins := r.Chances(kind)
			reports, dummies := f(coins.Report), (1-f(coins.Report))*f(coins.Dummy)
			size := 1
			for range c.slots {
				size *= len(empty)
			}
			law := make([]float64, size)
			for i := range law {
				for at := range c.slots {
					before, hers := 1.0, [3]float64{}
					rest := i
					for s := range c.slots {
						o := rest % len(empty)
						rest /= len(empty)
						if s == at {
							hers = [3]float64{empty[o], dummy[o], report[o]}
						} else {
							before *= empty[o]
						}
					}
					law[i] += before * ((1-reports-dummies)*hers[0] + dummies*hers[1] + reports*hers[2]) / float64(c.slots)
				}
			}
			return law
		}
		p, q := view(OtherAnswer), view(NoAnswer)
		for _, eps := range c.epsilon {
			bound, err := accountant.Delta(list, eps, release.AddRemove)
			if err != nil {
				t.Fatal(err)
			}
			if got := hockey(p, q, eps); got > bound.Delta {
				t.Errorf("%+v: delta is %v at %v, the bound is %v", c, got, eps, bound.Delta)
			} else if got < bound.Delta/40 {
				t.Errorf("%+v: delta is %v at %v, and the bound %v is idle", c, got, eps, bound.Delta)
			}
		}
	}
}

// TestPublicNumbersBreakCheckIns: at sigma 1 and 100 slots a slot that is known costs delta
// 0.15 at epsilon 0.858, where random allocation by itself has 10^-6: so allocation is
// counted on only where dummies hide the numbers of slots.
func TestPublicNumbersBreakCheckIns(t *testing.T) {
	one := release.One(release.Gaussian{Sigma: 1, Contribution: release.OneHot(), Honest: 1})
	known, err := accountant.Delta([]release.Release{one}, 0.858, release.AddRemove)
	if err != nil || known.DeltaLower < 0.02 {
		t.Errorf("a slot that is known: delta %v, %v", known.DeltaLower, err)
	}
}

// TestCheckInsAmplify: of one noise, a round of check-ins costs less than a slot that
// everybody knows, and than the coin alone would; each recipe has a certificate that a
// device checks, and says no more than the accountant.
func TestCheckInsAmplify(t *testing.T) {
	for s, r := range checkIns(t) {
		g, err := account.Guarantee(r)
		if err != nil {
			t.Fatal(err)
		}
		o := account.Options{
			Name: "x", Query: r.Query, Leader: "https://l.example/", Helper: "https://h.example/", MinBatch: 50, Noise: r.Noise, Delta: Decimal{1, 6},
			Rate: &Rate{5000, 1}, Relay: r.Relay, Participation: Bernoulli{half},
		}
		coin, err := account.New(o)
		if err != nil {
			t.Fatal(err)
		}
		alone, err := account.Guarantee(coin)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v: %v; the coin alone %v", s, g.Loss, alone.Loss)
		if most := map[release.Schedule]float64{release.SlidingWindow: 0.9}[s]; !(g.Epsilon < max(0.55, most)*alone.Epsilon) {
			t.Errorf("%v: epsilon %v, and %v by the coin alone", s, g.Epsilon, alone.Epsilon)
		}
		var relay float64
		for _, f := range g.Fallbacks {
			if f.Kind == RelayColludes {
				relay = f.Loss.Epsilon
			}
		}
		if !(relay > 1.5*g.Epsilon) {
			t.Errorf("%v: epsilon %v where the relay colludes, and %v", s, relay, g.Epsilon)
		}
		proof, err := account.Certify(r)
		if err != nil {
			t.Fatalf("%v: %v", s, err)
		}
		c, err := Open(mustAppend(t, r), Certified(proof))
		if err != nil {
			t.Fatalf("%v: %v", s, err)
		}
		if got := c.Guarantee().Epsilon; got < g.Epsilon*(1-1e-3) || got > g.Epsilon*1.01 || len(proof) > 64<<10 {
			t.Errorf("%v: certified %v in %d bytes, computed %v", s, got, len(proof), g.Epsilon)
		}
	}
}
