package recipe

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/internal/search"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// Options make a recipe whose claim is computed, for [New].
type Options struct {
	// Name (required) and Description tell people what is asked.
	Name, Description string
	// Population says who is asked; optional.
	Population *Population
	// Query is required. A zero chunk length becomes the one that makes reports shortest, and a MaxWeight of zero under
	// RAPPOR the least that RAPPOR keeps to; see [Gaussian] for what noise of the devices' own makes of a Vector.
	Query Query
	// Leader and Helper are base URLs; required.
	Leader, Helper string
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
	Window Window

	// Noise is what the servers add. When nil, it is calibrated to Epsilon and Kind, or there is none if Epsilon is
	// zero too.
	Noise Noise
	// Epsilon is the wanted total loss when Noise is nil, and otherwise the claim; when it is zero the claim is what is
	// computed, rounded up to four digits.
	Epsilon Decimal
	// Kind of calibrated noise; GaussianNoise when empty.
	Kind NoiseKind
	// Series is how noise of kind CorrelatedNoise is correlated; required for that kind.
	Series correlated.Series
	// Share of calibrated Gaussian noise that each server draws; DrawsAll when zero. With DrawsHalf and HonestServers 2 there is
	// half the variance in results, and one dishonest server leaves half the noise.
	Share NoiseShare
	// Delta of the claim; 10^-9 when zero.
	Delta Decimal
	// Rounds is in how many rounds one unit may have a report, one in each, or a device
	// toss its coins; 1 when zero.
	Rounds uint32
	// HonestServers that the claim needs; 1 when zero.
	HonestServers uint8

	// Randomizer is none when nil. With one, servers add no noise, and Epsilon is only a claim unless a [Gaussian] of no
	// variance is to be calibrated to it.
	Randomizer Randomizer
	// Participation is Always when nil. All others need Rate, and amplify only with Relay.
	Participation Participation
	Rate          *Rate
	Relay         *Relay
	// Dummies of a sampled recipe; when nil, all of Rate.Devices are counted on as senders, at the least rate that hides
	// the count at about one per cent of epsilon, or 1/2.
	Dummies *Dummies
	// Cover is none when nil, and every device for [Importance].
	Cover     *Cover
	Targeting *Targeting
	KEM       KEM
	// DAP is the draft of DAP that the task speaks; 18 when zero.
	DAP dap.Version
	// Oversized lets reports be larger than aggregators take, to measure them; else they are a *[TooLargeError].
	Oversized bool
	// Unit is whose data the guarantee protects; DefaultUnit when nil.
	Unit *Unit
	// Projection of a [Vector], whose Dimension is what is sent; none when nil.
	Projection *Projection
	// ServerKeys are none when nil.
	ServerKeys *ServerKeys
}

// New makes a valid recipe, or says all that is wrong with it as [Recipe.Validate] does, or with *[TooLargeError] that nobody would
// take its reports.
func New(o Options) (*Recipe, error) {
	if err := withDeviceNoise(&o); err != nil {
		return nil, err
	}
	if q, ok := o.Query.(Vector); ok {
		return withProof(q, func(q Query) (*Recipe, error) {
			o := o
			o.Query = q
			return newRecipe(o)
		})
	}
	return newRecipe(o)
}

func newRecipe(o Options) (*Recipe, error) {
	if o.BatchMode == 0 {
		o.BatchMode = dap.TimeInterval
	}
	if o.TimePrecision == 0 {
		o.TimePrecision = 3600
	}
	if o.Window == nil {
		o.Window = NoWindow{}
	}
	if o.Delta == (Decimal{}) {
		o.Delta = Decimal{1, 9}
	}
	if o.Rounds == 0 {
		o.Rounds = 1
	}
	if o.HonestServers == 0 {
		o.HonestServers = 1
	}
	if o.Share == 0 {
		o.Share = DrawsAll
	}
	if o.Kind == "" {
		o.Kind = GaussianNoise
	}
	if o.Randomizer == nil {
		o.Randomizer = NoRandomizer{}
	}
	if o.Participation == nil {
		o.Participation = Always{}
	}
	r := &Recipe{
		Name:          o.Name,
		Description:   o.Description,
		Query:         withChunk(o.Query),
		Randomizer:    o.Randomizer,
		Participation: o.Participation,
		Path:          TwoServer{Leader: o.Leader, Helper: o.Helper, BatchMode: o.BatchMode},
		Noise:         NoNoise{},
		Claim:         NoClaim{},
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
	}
	if _, ok := r.Participation.(Importance); ok && r.Cover == nil {
		r.Cover = &Cover{Rational{1, 1}}
	}
	// The accountant is asked only about a recipe that is sound as it stands.
	v := validator{early: true}
	v.all(r)
	if err := errors.Join(v.errs...); err != nil {
		return nil, err
	}
	if r.sampled() && o.Rate != nil && o.Dummies == nil {
		if err := r.defaultDummies(Rational{1, 2}); err != nil {
			return nil, err
		}
	}
	if err := r.fill(&o); err != nil {
		return nil, err
	}
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if _, err := r.UploadBytes(); err != nil && !o.Oversized {
		return nil, err
	}
	return r, nil
}

// rounds are those of the options, nil where they are one unit without grace.
func (o *Options) rounds() *Rounds {
	s := Rounds{Units: o.RoundUnits}
	if p, ok := o.Participation.(DonationTime); ok && s.Units == 0 {
		s.Units = uint64(p.Slots) * uint64(p.Length)
	} else if o.Rate != nil && s.Units == 0 {
		s.Units = o.Rate.Units
	}
	s.Units = max(1, s.Units)
	grace := o.Grace
	if grace == 0 && o.Relay != nil {
		grace = DefaultGrace
	}
	s.Grace = uint32(min(max(0, grace)/time.Second, math.MaxUint32))
	if s == (Rounds{Units: 1}) {
		return nil
	}
	return &s
}

// unit is the unit that is written, if any.
func (o *Options) unit() *Unit {
	if o.Unit == nil || *o.Unit == DefaultUnit {
		return nil
	}
	return o.Unit
}

// defaultDummies counts on all devices, at the rate.
func (r *Recipe) defaultDummies(rate Rational) error {
	r.Dummies = &Dummies{Rate: rate, Senders: r.Rate.Devices}
	if r.Targeting != nil {
		r.Dummies.Senders = min(r.Dummies.Senders, r.Targeting.Certificate.LowerBound)
	}
	allowance, err := dummyAllowance(r)
	r.Dummies.Allowance = allowance
	return err
}

// fill completes noise, dummies and claim.
func (r *Recipe) fill(o *Options) error {
	claim := ApproxDP{
		Epsilon: o.Epsilon, Delta: o.Delta, Neighbours: r.Neighbours(), HonestServers: o.HonestServers, Rounds: o.Rounds,
	}
	// Any positive claim lets the rest be checked.
	sound := func() error {
		if claimed := claim; !r.exact() {
			if claimed.Epsilon == (Decimal{}) {
				claimed.Epsilon = Decimal{1, 0}
			}
			r.Claim = claimed
		}
		v := validator{}
		v.all(r)
		return errors.Join(v.errs...)
	}
	noise, settle := o.Noise, o.Dummies == nil && r.Dummies != nil
	wanted := noise == nil && o.Epsilon != (Decimal{}) && r.Randomizer == (NoRandomizer{})
	if settle {
		if wanted && r.amplified() {
			// How many dummies are enough depends on the noise, which they change by about one per cent.
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
	if err := sound(); err != nil {
		return err
	}
	if wanted {
		n, err := r.calibrate(o, claim, false)
		if err != nil {
			return err
		}
		o.Noise = n
	}
	if o.Noise != nil {
		r.Noise = o.Noise
	}
	if r.exact() {
		if r.Claim = (NoClaim{}); o.Epsilon != (Decimal{}) {
			return errors.New("recipe: epsilon is claimed without noise")
		}
		return nil
	}
	if err := sound(); err != nil {
		return err
	}
	if claim.Epsilon == (Decimal{}) {
		g, err := r.Guarantee()
		if g == nil {
			return err
		}
		if claim.Epsilon, err = DecimalAbove(g.Epsilon, 4); err != nil {
			return err
		}
	}
	r.Claim = claim
	return nil
}

// settleDummies chooses the rate of dummies: a count of 50 times the variance of the noise, per squared contribution,
// costs about one per cent of epsilon. Beside a randomizer, whose noise is the other reports', a variance of 2500 does.
func (r *Recipe) settleDummies(noise Noise) error {
	c, err := Contribution(r.Query)
	if err != nil {
		return err
	}
	sensitivity, err := c.Sensitivity(accountant.AddRemove)
	if err != nil {
		return err
	}
	if z, ok := r.Randomizer.(Gaussian); ok {
		sensitivity.L2 = float64(z.Clip)
	}
	variance := 50 * sensitivity.L2 * sensitivity.L2
	if z, ok := r.Randomizer.(Gaussian); ok {
		variance = z.Variance.Float() * float64(r.draws(situation{}))
	}
	switch n := noise.(type) {
	case DiscreteGaussian:
		variance = n.Variance.Float()
	case DiscreteLaplace:
		variance = 2 * n.Scale.Float() * n.Scale.Float()
	}
	want := 50 * variance / (sensitivity.L2 * sensitivity.L2)
	const unit = 1 << 16
	rate := math.Ceil(unit * want / float64(max(1, r.Dummies.Senders)) * float64(r.slots()))
	q, err := NewRational(uint64(min(max(rate, 1), unit/2)), unit)
	if err != nil {
		return err
	}
	return r.defaultDummies(q)
}

// calibrate is [Calibrate] for the recipe as it stands, with the noise divided as the options say. free is that of a
// [situation].
func (r *Recipe) calibrate(o *Options, claim ApproxDP, free bool) (Noise, error) {
	if o.Share == DrawsHalf && o.Kind != GaussianNoise {
		return nil, &InvalidError{"noise.share", "is half, which is for discrete-gaussian noise"}
	}
	trial := *r
	loss := func(n Noise) (Loss, error) {
		trial.Noise = n
		s := situation{servers: trial.honest(claim), hidden: r.amplified(), free: free}
		l, _, err := trial.proved(s, claim.Delta, claim.Rounds, trial.Neighbours())
		return l, err
	}
	if o.Kind == CorrelatedNoise {
		return CalibrateCorrelated(r.Query, o.Series, claim.Epsilon, claim.Delta, claim.Rounds)
	}
	if !r.amplified() {
		n, err := Calibrate(r.Query, o.Kind, claim.Epsilon, claim.Delta, claim.Rounds)
		if err != nil || o.Share == DrawsAll {
			return n, err
		}
		return divide(n.(DiscreteGaussian), claim, loss)
	}
	c, err := Contribution(r.Query)
	if err != nil {
		return nil, err
	}
	sensitivity, err := c.Sensitivity(accountant.AddRemove)
	if err != nil {
		return nil, err
	}
	unit, size, lowest, highest := uint64(1<<10), 1.0, 0.3, float64(1<<32)
	_, l1 := r.Query.(L1BoundSum)
	if _, ok := r.Query.(Vector); ok || l1 && o.Kind == GaussianNoise { // whose bound may be any, and whose accounting needs some noise to round
		size, lowest = sensitivity.L2*sensitivity.L2, 16
		highest = min(highest*size, 1<<60)
		if highest > 1<<52 {
			unit = 1
		}
	}
	var make func(units uint64) (Noise, error)
	switch o.Kind {
	case GaussianNoise:
		make = func(units uint64) (Noise, error) {
			v, err := NewRational(units, unit)
			return DiscreteGaussian{Variance: v, Share: o.Share}, err
		}
	case LaplaceNoise:
		make = func(units uint64) (Noise, error) {
			v, err := NewRational(units, unit)
			return DiscreteLaplace{Scale: v}, err
		}
	default:
		return nil, &InvalidError{"noise", fmt.Sprintf("kind %q is not %q or %q", o.Kind, GaussianNoise, LaplaceNoise)}
	}
	x, ok, err := search.Least(search.Options{
		Guess: 4 * size, Low: lowest, High: highest, Precision: 1e-3, Budget: claim.Epsilon.FloatDown(),
	}, func(x float64) (float64, error) {
		n, err := make(uint64(math.Ceil(x * float64(unit))))
		if err != nil {
			return 0, err
		}
		l, err := loss(n)
		return l.Epsilon, err
	})
	if err != nil {
		return nil, fmt.Errorf("recipe: calibrate: %w", err)
	}
	if !ok {
		return nil, fmt.Errorf("recipe: calibrate: %w", accountant.ErrNoGuarantee)
	}
	return make(uint64(math.Ceil(x * float64(unit))))
}

// divide turns noise of which each server draws all into noise of which each draws half, as strong for the servers that the
// claim needs honest: one honest server draws the stated variance, or two draw it together, but that their sum is no discrete
// Gaussian to the last digit.
func divide(n DiscreteGaussian, claim ApproxDP, loss func(Noise) (Loss, error)) (Noise, error) {
	n.Share = DrawsHalf
	if claim.HonestServers < 2 {
		v, err := NewRational(n.Variance.Num, n.Variance.Den)
		if err != nil {
			return nil, err
		}
		if v.Den%2 == 0 {
			v.Den /= 2
		} else if v.Num *= 2; v.Num < n.Variance.Num {
			return nil, fmt.Errorf("recipe: calibrate: %w", accountant.ErrNoGuarantee)
		}
		n.Variance = v
		return n, nil
	}
	for range 40 {
		l, err := loss(n)
		if err != nil || l.Epsilon <= claim.Epsilon.FloatDown() {
			return n, err
		}
		more := n.Variance.Num + max(1, n.Variance.Num>>16)
		if n.Variance, err = NewRational(more, n.Variance.Den); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("recipe: calibrate: %w", accountant.ErrNoGuarantee)
}

// withChunk fills in the chunk length that makes reports shortest.
func withChunk(q Query) Query {
	switch q := q.(type) {
	case Histogram:
		if q.Chunk == 0 {
			q.Chunk = optimalChunk(uint64(q.Length))
		}
		return q
	case Multihot:
		if q.Chunk == 0 {
			q.Chunk = optimalChunk(q.elements())
		}
		return q
	case SumVec:
		if q.Chunk == 0 {
			q.Chunk = optimalChunk(q.elements())
		}
		return q
	case L1BoundSum:
		if q.Chunk == 0 {
			q.Chunk = optimalChunk(q.elements())
		}
		return q
	}
	return q
}

func optimalChunk(elements uint64) uint32 {
	return uint32(prio3.OptimalChunk(int(min(elements, MaxElements))))
}
