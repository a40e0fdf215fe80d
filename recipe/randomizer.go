package recipe

import (
	"fmt"
	"strings"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dp/local"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/binomial"
)

// A Randomizer is what the device does to its answer before anyone sees it. Each has a
// file of its own, with all that there is to say of it: [NoRandomizer], [Gaussian], and
// [Cloak], and those that are a [LocalRandomizer], [KRR], [RAPPOR], [PGR], [QA] and
// [RandomizedGroup].
type Randomizer interface {
	fmt.Stringer
	randomizer() uint8
	append(b *cryptobyte.Builder)
	// params are those of the JSON form, nil for none.
	params() any
	validate(v *validator, r *Recipe)
	// conditions are those of [Recipe.Conditions] about reports.
	conditions(r *Recipe) []string
	// given is the query as people answer it, of which q is what they send.
	given(q Query) Query
	// Proves returns what devices prove about what they send, a norm or a number of ones,
	// and the most that an answer has of it before it is randomized; false where these are
	// the same.
	Proves(q Query) (bound, answer uint64, ok bool)
	// round is what a round tells of which all reports are counted: one of those that share
	// delta.
	round(r *Recipe, s Situation, delta float64) (Disclosure, error)
	// gaussian is the variance of Gaussian noise of one device, 0/0 for none.
	gaussian() Rational
	// counts turns sums of what was sent into one for each place of an answer.
	counts(sums []int64) ([]int64, error)
	// exact says whether nothing is blurred: results carry no noise of devices.
	exact() bool
	// blurs completes p by what an estimate has to undo.
	blurs(p *probabilities, q Query)
}

// A LocalRandomizer makes of each answer a message that is private by itself. Servers add
// no noise to sums of them.
type LocalRandomizer interface {
	Randomizer
	// Local returns what is proved of a place of one report in a sum of many, and a bound
	// on the probability that a device draws again.
	Local(q Query) (m release.Message, redraw float64, err error)
	// whole is the like of a report that is read by itself.
	whole(q Query) (m release.Message, redraw float64, err error)
	// Fit returns randomizer and query with what they leave open chosen, for redraws that
	// are as rare as odds.
	Fit(q Query, odds float64) (LocalRandomizer, Query)
}

// A PlaceRandomizer is a LocalRandomizer of answers that name a place, whose reports are
// counted place by place: all but a [GroupRandomizer].
type PlaceRandomizer interface {
	LocalRandomizer
	// code is how a report is one message.
	code(q Query) (reportCode, error)
	// Blur returns the randomizer of a place: of the bucket of a [Histogram], for which
	// it returns a bucket, of yes or no as 1 or 0, or of the one that is set of a
	// [Multihot], for which it returns zeros and ones; [NoPlace] for neither. It does not
	// branch on the place.
	Blur(q Query) (func(place int) ([]uint64, error), error)
}

// A VectorRandomizer adds noise to the vector of each device, which the sum over all
// devices has enough of.
type VectorRandomizer interface {
	Randomizer
	// Noised returns what makes of a vector of the query's length whole numbers with
	// noise, in the query's units.
	Noised(q Query) (func(x []float64) ([]int64, error), error)
	// report is what one report tells who reads it.
	report(r *Recipe, delta float64) (Disclosure, error)
}

// NoPlace is that of a device without an answer.
const NoPlace = local.NoValue

// Randomized says whether devices blur their answers.
func (r *Recipe) Randomized() bool { return r.Randomizer == nil || !r.Randomizer.exact() }

// randomizers are those that this version knows, with how each is read from its bytes and,
// behind its name, from a flag; in the order of their numbers.
var randomizers = []struct {
	tag   uint8
	read  func(d *decoder) Randomizer
	parse func(s string) (Randomizer, error)
}{
	{tagRandomizerNone, func(*decoder) Randomizer { return NoRandomizer{} }, nil},
	{tagDeviceGaussian, readGaussian, parseGaussian},
	{tagKRR, func(d *decoder) Randomizer { return KRR{d.decimal("epsilon0")} },
		func(s string) (Randomizer, error) { e, err := ParseDecimal(s); return KRR{e}, err }},
	{tagRAPPOR, func(d *decoder) Randomizer { return RAPPOR{d.decimal("epsilon0")} },
		func(s string) (Randomizer, error) { e, err := ParseDecimal(s); return RAPPOR{e}, err }},
	{tagPGR, readPGR, parsePGR},
	{tagQA, readQA, parseQA},
	{tagRandomizedGroup, readRandomizedGroup, parseRandomizedGroup},
	{tagCloak, readCloak, parseCloak},
}

func readRandomizer(tag uint8, d *decoder) (Randomizer, bool) {
	for _, z := range randomizers {
		if z.tag == tag {
			return z.read(d), true
		}
	}
	return nil, false
}

// ParseRandomizer reads a name with its parameter, as in gaussian, gaussian:VARIANCE,
// krr:EPSILON, rappor:EPSILON, pgr:EPSILON, qa:EPSILON:LEVELS:ASKS,
// randomized-group:EPSILON:LEVELS:ASKS and cloak:KIND:USERS:HONEST:EPSILON.
func ParseRandomizer(s string) (Randomizer, error) {
	name, param, _ := strings.Cut(s, ":")
	var names []string
	for _, z := range randomizers {
		known := nameOf("randomizer", uint16(z.tag))
		if z.parse == nil {
			continue
		}
		if known == name {
			return z.parse(param)
		}
		names = append(names, known)
	}
	last := len(names) - 1
	return nil, fmt.Errorf("%q is not %s or %s", name, strings.Join(names[:last], ", "), names[last])
}

// NoRandomizer sends the true answer, in shares.
type NoRandomizer struct{}

func (NoRandomizer) String() string {
	return "the device sends its true answer, split in shares"
}

func (NoRandomizer) randomizer() uint8                            { return tagRandomizerNone }
func (NoRandomizer) append(*cryptobyte.Builder)                   {}
func (NoRandomizer) params() any                                  { return nil }
func (NoRandomizer) validate(*validator, *Recipe)                 {}
func (NoRandomizer) conditions(*Recipe) []string                  { return nil }
func (NoRandomizer) counts(sums []int64) ([]int64, error)         { return sums, nil }
func (NoRandomizer) gaussian() Rational                           { return Rational{} }
func (NoRandomizer) given(q Query) Query                          { return q }
func (NoRandomizer) Proves(Query) (bound, answer uint64, ok bool) { return 0, 0, false }

// round tells the sum with the servers' noise, in each view if there are several.
func (NoRandomizer) round(r *Recipe, s Situation, _ float64) (Disclosure, error) {
	if r.Views != nil {
		return r.viewed(s)
	}
	m, err := r.Noise.Mechanism(r.Contribution(), s.Servers)
	return Disclosure{Releases: []release.Release{release.One(m)}}, err
}

func (NoRandomizer) exact() bool { return true }

func (NoRandomizer) blurs(*probabilities, Query) {}

func (v *validator) randomizer(r *Recipe) {
	if r.Randomizer == nil {
		v.add("randomizer", "is missing")
		return
	}
	r.Randomizer.validate(v, r)
}

// maxEpsilon0 is where a local randomizer no longer blurs.
const maxEpsilon0 = 32

// local checks what all local randomizers have in common; false means that the epsilon is
// none, and nothing more can be said.
func (v *validator) local(r *Recipe, epsilon Decimal) bool {
	if epsilon.Coefficient == 0 || !epsilon.Valid() || epsilon.FloatDown() > maxEpsilon0 {
		v.add("randomizer.epsilon0", "is not a decimal above 0, at most %d, in its shortest form", maxEpsilon0)
		return false
	}
	if r.Noisy() {
		v.add("noise", "is added by devices and servers; choose one")
	}
	return true
}

// honestReports is the condition of messages that hide among one another.
func honestReports(r *Recipe) []string {
	if !r.on().mixes() {
		return nil
	}
	return []string{fmt.Sprintf("at least %d reports of each batch are of devices that follow the recipe", r.MinBatch)}
}

// TailOdds is how rare redraws have to be in batches of the given reports: 2^-TailBits,
// and less where a batch is so large, or delta so small, that they would cost more than
// about a hundredth of delta.
func TailOdds(reports uint64, rounds uint32, delta float64) float64 {
	return min(1./(1<<TailBits), delta/(200*float64(max(reports, 1))*float64(max(rounds, 1))))
}

// upperQuantile returns the least u for which Bin(n, p) exceeds u with probability at
// most miss.
func upperQuantile(n uint64, p, miss float64) (uint64, error) {
	if n == 0 || p <= 0 {
		return 0, nil
	}
	if p >= 1 {
		return n, nil
	}
	if n > binomial.MaxCount || !(miss > 0 && miss < 1) {
		return 0, fmt.Errorf("of %d devices with a miss of %v", n, miss)
	}
	return n - binomial.Fewest(n, 1-p, miss), nil // P(n - X < b) <= miss
}
