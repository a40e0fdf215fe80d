package account

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/recipe"
)

// Options make a recipe whose claim is computed, for [New].
type Options struct {
	// Name (required) and Description tell people what is asked.
	Name, Description string
	// Population says who is asked; optional.
	Population *recipe.Population
	// Query is required. A zero chunk length becomes the one that makes reports shortest,
	// and a MaxWeight of zero under RAPPOR the least that RAPPOR keeps to; see [Gaussian]
	// for what noise of the devices' own makes of a Vector.
	Query recipe.Query
	// Leader and Helper are base URLs; required where Path is nil.
	Leader, Helper string
	// Path is that of the two servers Leader and Helper when nil.
	Path recipe.Path
	// BatchMode is dap.TimeInterval when zero.
	BatchMode dap.BatchMode
	// MinBatch is B; required.
	MinBatch uint64
	// TimePrecision in seconds; one hour when zero.
	TimePrecision dap.TimePrecision
	// RoundUnits is the length of a round in units of TimePrecision; when zero, what Rate
	// or DonationTime say, or 1.
	RoundUnits uint64
	// Grace after the end of a round, in whole seconds; when zero, [DefaultGrace] with a
	// Relay and none without. Negative is none.
	Grace time.Duration
	// Window is no limit when nil. It is of whole rounds.
	Window recipe.Window

	// Noise is what the servers add. When nil, it is calibrated to Epsilon and Kind, or
	// there is none if Epsilon is zero too.
	Noise recipe.Noise
	// Epsilon is the wanted total loss when Noise is nil, and otherwise the claim; when
	// it is zero the claim is what is computed, rounded up to four digits.
	Epsilon recipe.Decimal
	// Kind of calibrated noise; GaussianNoise when empty.
	Kind NoiseKind
	// Series is how noise of kind CorrelatedNoise is correlated; required for that kind.
	Series correlated.Series
	// Share of calibrated Gaussian noise that each server draws; DrawsAll when zero. With
	// DrawsHalf and HonestServers 2 there is half the variance in results, and one
	// dishonest server leaves half the noise.
	Share recipe.NoiseShare
	// Delta of the claim; 10^-9 when zero, unless it is to be zero: Pure.
	Delta recipe.Decimal
	// Pure is a claim of delta 0, which whole-number Laplace noise gives. Delta is zero.
	Pure bool
	// Rounds is in how many rounds one unit may have a report, one in each, or a device
	// toss its coins; 1 when zero.
	Rounds uint32
	// HonestServers that the claim needs; the least that the path allows when zero.
	HonestServers uint8

	// Randomizer is none when nil. With one, servers add no noise, and Epsilon is only a
	// claim unless a [Gaussian] of no variance is to be calibrated to it.
	Randomizer recipe.Randomizer
	// Participation is Always when nil. All others need Rate, and amplify only with Relay.
	Participation recipe.Participation
	Rate          *recipe.Rate
	Relay         *recipe.Relay
	// Dummies of a sampled recipe; when nil, all of Rate.Devices are counted on as
	// senders, at the least rate that hides the count at about one per cent of epsilon,
	// or 1/2.
	Dummies *recipe.Dummies
	// Cover is none when nil, and every device for [Importance].
	Cover     *recipe.Cover
	Targeting *recipe.Targeting
	KEM       recipe.KEM
	// DAP is the draft of DAP that the task speaks; 18 when zero.
	DAP dap.Version
	// Oversized lets reports be larger than aggregators take, to measure them; else they
	// are a *[TooLargeError].
	Oversized bool
	// Unit is whose data the guarantee protects; DefaultUnit when nil.
	Unit *recipe.Unit
	// Projection of a [Vector], whose Dimension is what is sent; none when nil.
	Projection *recipe.Projection
	// ServerKeys are none when nil.
	ServerKeys *recipe.ServerKeys
	// Tokens and Log are none when nil.
	Tokens *recipe.Tokens
	Log    *recipe.Log
	// Labels name the buckets of a Histogram; none when nil.
	Labels []string
	// Views are none when nil. A view without a parameter has the noise of a round's own
	// release, which is calibrated to what all views tell together.
	Views *recipe.Views
	// Training is none when nil.
	Training *recipe.Training
}

// New makes a valid recipe, or says all that is wrong with it as [Recipe.Validate] does,
// or with *[TooLargeError] that nobody would take its reports.
func New(o Options) (*recipe.Recipe, error) {
	if err := withDeviceNoise(&o); err != nil {
		return nil, err
	}
	return recipe.WithProof(o.Query, func(q recipe.Query) (*recipe.Recipe, error) {
		o := o
		o.Query = q
		return newRecipe(o)
	})
}

func newRecipe(o Options) (*recipe.Recipe, error) {
	if o.BatchMode == 0 {
		o.BatchMode = dap.TimeInterval
	}
	if o.TimePrecision == 0 {
		o.TimePrecision = 3600
	}
	if o.Window == nil {
		o.Window = recipe.NoWindow{}
	}
	o.Delta = o.delta()
	if o.Rounds == 0 {
		o.Rounds = 1
	}
	if o.Path == nil {
		o.Path = recipe.TwoServer{Leader: o.Leader, Helper: o.Helper, BatchMode: o.BatchMode}
	}
	if o.HonestServers == 0 {
		o.HonestServers, _ = o.Path.Honest()
	}
	if o.Share == 0 {
		o.Share = recipe.DrawsAll
	}
	if o.Kind == "" {
		o.Kind = GaussianNoise
	}
	if o.Randomizer == nil {
		o.Randomizer = recipe.NoRandomizer{}
	}
	if o.Participation == nil {
		o.Participation = recipe.Always{}
	}
	r := subject{&recipe.Recipe{
		Name:          o.Name,
		Description:   o.Description,
		Query:         recipe.WithChunk(o.Query),
		Randomizer:    o.Randomizer,
		Participation: o.Participation,
		Path:          o.Path,
		Noise:         recipe.NoNoise{},
		Claim:         recipe.NoClaim{},
		MinBatch:      o.MinBatch,
		TimePrecision: o.TimePrecision,
		Rounds:        o.rounds(),
		Window:        o.Window,
		Population:    o.Population,
		Targeting:     o.Targeting,
		Rate:          o.Rate,
		Dummies:       o.Dummies,
		Cover:         o.Cover,
		KEM:           o.KEM,
		DAP:           o.DAP,
		Relay:         o.Relay,
		Projection:    o.Projection,
		Unit:          o.unit(),
		ServerKeys:    o.ServerKeys,
		Tokens:        o.Tokens,
		Log:           o.Log,
		Labels:        o.Labels,
		Views:         o.views(recipe.NoNoise{}),
		Training:      o.Training,
	}}
	if r.ByAnswer() && r.Cover == nil {
		r.Cover = &recipe.Cover{Rate: recipe.Rational{Num: 1, Den: 1}}
	}
	// The accountant is asked only about a recipe that is sound as it stands.
	if err := r.Sound(false); err != nil {
		return nil, err
	}
	if err := r.pure(&o); err != nil {
		return nil, err
	}
	if r.Sampled() && o.Rate != nil && o.Dummies == nil {
		if err := r.defaultDummies(recipe.Rational{Num: 1, Den: 2}); err != nil {
			return nil, err
		}
	}
	stated := o.Epsilon != recipe.Decimal{} && (o.Noise != nil || r.Randomized())
	if err := r.fill(&o); err != nil {
		return nil, err
	}
	if err := Validate(r.Recipe); err != nil {
		return nil, err
	}
	if claim, ok := r.Claim.(recipe.ApproxDP); ok && stated {
		if _, err := r.proves(claim, claim.Epsilon.FloatDown()); err != nil {
			return nil, &recipe.InvalidError{Field: "claim.epsilon", Problem: fmt.Sprintf("is %s, so close to what the choices give that no proof of it is found: "+
				"claim a little more (%v)", claim.Epsilon, err)}
		}
	}
	if _, err := r.UploadBytes(); err != nil && !o.Oversized {
		return nil, err
	}
	return r.Recipe, nil
}

// pure refuses a delta of 0 before noise is calibrated to it that cannot give it.
func (r subject) pure(o *Options) (err error) {
	if o.Delta != (recipe.Decimal{}) || o.Noise == nil && o.Epsilon == (recipe.Decimal{}) && !r.Randomized() {
		return nil
	}
	trial := *r.Recipe
	if trial.Noise = o.Noise; o.Noise == nil {
		trial.Noise, err = o.unsized()
	}
	if why := trial.Impure(); err == nil && why != "" {
		err = &recipe.InvalidError{Field: "claim.delta", Problem: why}
	}
	return err
}

// rounds are those of the options, nil where they are one unit without grace.
func (o *Options) rounds() *recipe.Rounds {
	s := recipe.Rounds{Units: o.RoundUnits}
	if o.Participation != nil && s.Units == 0 {
		s.Units = o.Participation.Units()
	}
	if o.Rate != nil && s.Units == 0 {
		s.Units = o.Rate.Units
	}
	s.Units = max(1, s.Units)
	grace := o.Grace
	if grace == 0 && o.Relay != nil {
		grace = recipe.DefaultGrace
	}
	s.Grace = uint32(min(max(0, grace)/time.Second, math.MaxUint32))
	if s == (recipe.Rounds{Units: 1}) {
		return nil
	}
	return &s
}

// unit is the unit that is written, if any.
func (o *Options) unit() *recipe.Unit {
	if o.Unit == nil || *o.Unit == recipe.DefaultUnit {
		return nil
	}
	return o.Unit
}

// views are those of the options, with the round's noise where they state none.
func (o *Options) views(n recipe.Noise) *recipe.Views {
	if o.Views == nil {
		return nil
	}
	v := *o.Views
	v.Wider = slices.Clone(v.Wider)
	for i := range v.Wider {
		if v.Wider[i].Parameter == (recipe.Rational{}) {
			v.Wider[i].Parameter = n.Parameter()
		}
	}
	return &v
}

// delta of the claim.
func (o *Options) delta() recipe.Decimal {
	if o.Delta == (recipe.Decimal{}) && !o.Pure {
		return recipe.Decimal{Coefficient: 1, Scale: 9}
	}
	return o.Delta
}

// defaultDummies counts on all devices, at the rate.
func (r subject) defaultDummies(rate recipe.Rational) error {
	r.Dummies = &recipe.Dummies{Rate: rate, Senders: r.Rate.Devices}
	if s, ok := r.Slotted(); ok && s.Window > 0 {
		// Those who woke in the slot before it, if all wake evenly: the first slots are in
		// no other windows.
		r.Dummies.Senders = max(1, r.Rate.Devices/uint64(s.Count))
	}
	if r.Targeting != nil {
		r.Dummies.Senders = min(r.Dummies.Senders, r.Targeting.Certificate.LowerBound)
	}
	allowance, err := r.DummyAllowance()
	r.Dummies.Allowance = allowance
	return err
}

// fill completes noise, dummies and claim.
func (r subject) fill(o *Options) error {
	claim := recipe.ApproxDP{
		Epsilon: o.Epsilon, Delta: o.Delta, Neighbours: r.Neighbours(), HonestServers: o.HonestServers, Rounds: o.Rounds,
	}
	// Any positive claim lets the rest be checked.
	sound := func(settled bool) error {
		if claimed := claim; !r.Exact() {
			if claimed.Epsilon == (recipe.Decimal{}) {
				claimed.Epsilon = recipe.Decimal{Coefficient: 1, Scale: 0}
			}
			r.Claim = claimed
		}
		return r.Sound(settled)
	}
	noise, settle := o.Noise, o.Dummies == nil && r.Dummies != nil
	wanted := noise == nil && o.Epsilon != (recipe.Decimal{}) && !r.Randomized()
	if settle {
		if wanted && r.Amplified() {
			// How many dummies are enough depends on the noise, which they change by
			// about one per cent.
			n, err := r.calibrate(o, claim, true)
			if err != nil {
				return err
			}
			noise = n
		}
		if err := r.settleDummies(noise); err != nil {
			return err
		}
	}
	if err := sound(o.Views == nil); err != nil { // views have no noise yet
		return err
	}
	if wanted {
		n, err := r.calibrate(o, claim, false)
		if err != nil {
			return err
		}
		if o.Noise, err = r.settleNoise(o, n, claim); err != nil {
			return err
		}
	}
	if o.Noise != nil {
		r.Noise, r.Views = o.Noise, o.views(o.Noise)
	}
	if r.Exact() {
		if r.Claim = (recipe.NoClaim{}); o.Epsilon != (recipe.Decimal{}) {
			return errors.New("recipe: epsilon is claimed without noise")
		}
		return nil
	}
	if err := sound(true); err != nil {
		return err
	}
	if claim.Epsilon == (recipe.Decimal{}) {
		g, err := r.guarantee()
		if g == nil {
			return err
		}
		if claim.Epsilon, err = recipe.DecimalAbove(g.Epsilon, 4); err != nil {
			return err
		}
		if claim, err = r.settleClaim(claim, g.Epsilon); err != nil {
			return err
		}
	}
	r.Claim = claim
	return nil
}

// settleDummies chooses the rate of dummies: a count of 50 times the variance of the
// noise, per squared contribution, costs about one per cent of epsilon. Beside a
// randomizer, whose noise is the other reports', a variance of 2500 does.
func (r subject) settleDummies(noise recipe.Noise) error {
	c, err := r.contribution()
	if err != nil {
		return err
	}
	sensitivity, err := c.Sensitivity(release.AddRemove)
	if err != nil {
		return err
	}
	variance := 50 * sensitivity.L2 * sensitivity.L2
	if z, _, ok := r.noisyVectors(); ok {
		sensitivity.L2 = float64(z.Clip)
		variance = z.Variance.Float() * float64(r.Draws(false))
	}
	if noise != nil && noise.Stated() != 0 {
		variance = noise.Stated()
	}
	want := 50 * variance / (sensitivity.L2 * sensitivity.L2)
	const unit = 1 << 16
	rate := math.Ceil(unit * want / float64(max(1, r.Dummies.Senders)) * float64(r.Slots()))
	if s, ok := r.Slotted(); ok && !s.Geometric { // who reports sends none
		coins, err := r.CoinRates()
		if err != nil {
			return err
		}
		rate = math.Ceil(unit * want / (float64(max(1, r.Dummies.Senders)) * coins.Free))
	}
	q, err := recipe.NewRational(uint64(min(max(rate, 1), unit/2)), unit)
	if err != nil {
		return err
	}
	return r.defaultDummies(q)
}
