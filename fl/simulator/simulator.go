package simulator

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/fl/internal/stream"
	"github.com/starling-agg/starling/fl/simulator/internal/twin"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/pine"
)

// ErrRecipe is for recipes that the simulator does not play, wrapped with the reason.
var ErrRecipe = errors.New("simulator: it plays vector recipes of two servers with proofs of package pine, whose devices round to nearest and answer always or by " +
	"one coin, and whose servers add the noise")

// A BudgetError says that the rounds are over that a recipe's guarantee covers.
type BudgetError struct{ Rounds uint32 }

func (e *BudgetError) Error() string {
	return fmt.Sprintf("simulator: the guarantee covers %d rounds, and all are spent", e.Rounds)
}

// A TooFewError says that a round had too few reports: nothing of it is released.
type TooFewError struct {
	Count uint64 // reports that hold, dummies among them
	Least uint64 // the recipe's threshold
}

func (e *TooFewError) Error() string {
	return fmt.Sprintf("simulator: a round of %d reports, at least %d are needed", e.Count, e.Least)
}

// Options are how a simulation departs from the running system; the zero value does not.
type Options struct {
	// Seed of coins and noise.
	Seed uint64
	// Unvalidated takes reports of any norm, as servers would that verify no proofs.
	Unvalidated bool
	// Insistent are how many devices, the first ones, report in every round whatever their
	// coins say, and however soon after another.
	Insistent int
	// NoiseScale, if it is not 0/0, has the servers' noise be that part of what the recipe
	// says, above 0 and at most 1: what is left of it in the mean of a cohort that is
	// larger by 1 over that, where the signal is about the same (the noise_scale of
	// pfl-research). It says how a model of many devices would turn out, whose guarantee the recipe
	// has; the devices that are there would not have it.
	NoiseScale recipe.Rational
}

func (o *Options) always(device int) bool { return device < o.Insistent }

// A Simulator plays the rounds of one recipe, one after another. It is not safe for
// concurrent use.
type Simulator struct {
	recipe   *recipe.Recipe
	options  Options
	vdaf     *pine.Pine
	encoding pine.Encoding
	sampler  noise.Sampler
	leader   noise.Key
	helper   noise.Key
	rounds   uint32 // covered by the guarantee; 0 where the recipe has none
	spent    uint32
	report   coin // of an answer
	dummy    coin // of a dummy, where that said no
	// deviation is that of both servers' noise in a number, where rounds have noise of their
	// own.
	deviation float64
	series    *series      // nil where they have
	choices   twin.Choices // of tests
}

// A series is noise that is correlated over rounds, and what later rounds need of earlier.
type series struct {
	rule     correlated.Series
	errors   func(rounds int) correlated.Errors
	released uint64
	spans    []correlated.Span // of the last releases, the latest first
	past     [2][][]int64      // the noise of both servers in these, in finer units
}

func init() {
	twin.Choose = func(x any, c twin.Choices) {
		s := x.(*Simulator)
		if c.Draw != nil {
			s.choices.Draw = c.Draw
		}
		if c.Decide != nil {
			s.choices.Decide = c.Decide
		}
	}
}

// New returns the simulator of a recipe, which has been checked. Errors wrap ErrRecipe.
func New(r *recipe.Recipe, o Options) (*Simulator, error) {
	q, ok := r.Vector()
	if !ok {
		return nil, fmt.Errorf("%w: the query is another", ErrRecipe)
	}
	config, ok := q.VDAFConfig().(dap.PineConfig)
	if !ok || r.Projection != nil || r.Randomized() || r.ByAnswer() || r.Slots() != 1 ||
		r.Cover != nil || q.Encoding().Randomized {
		return nil, ErrRecipe
	}
	if _, err := r.Task(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRecipe, err)
	}
	chances := r.Chances(recipe.OtherAnswer)
	s := &Simulator{recipe: r, encoding: q.Encoding(), options: o, rounds: Covered(r), report: newCoin(chances.Report), dummy: newCoin(chances.Dummy)}
	var err error
	if s.vdaf, err = pine.New(config.PineParams()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRecipe, err)
	}
	drawn, err := o.scaled(r.Noise)
	if err != nil {
		return nil, fmt.Errorf("simulator: %w", err)
	}
	if s.sampler, err = drawn.Sampler(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRecipe, err)
	}
	stream.New(o.Seed, "noise of the leader", 0).Read(s.leader[:])
	stream.New(o.Seed, "noise of the helper", 0).Read(s.helper[:])
	scaled := *r
	scaled.Noise = drawn
	if n, ok := scaled.Correlated(); ok {
		s.series = &series{rule: n.Series, errors: n.Errors}
	}
	s.deviation = drawn.Spread().Deviation
	return s, nil
}

// scaled is noise of NoiseScale times the deviation.
func (o *Options) scaled(n recipe.Noise) (recipe.Noise, error) {
	if o.NoiseScale == (recipe.Rational{}) {
		return n, nil
	}
	scale := o.NoiseScale.Rat()
	if !o.NoiseScale.Valid() || scale.Cmp(big.NewRat(1, 1)) > 0 {
		return nil, fmt.Errorf("a noise scale of %s, want above 0, at most 1", o.NoiseScale)
	}
	if n.Spread().Scale != 0 || n.Parameter().Num == 0 { // of Laplace noise, or none
		return nil, errors.New("a noise scale goes with Gaussian noise, whose parameter is its variance")
	}
	of := scale.Mul(scale, scale)
	of.Mul(of, n.Parameter().Rat())
	// Rounded to a multiple of 2^-16, which is far finer than what is drawn.
	const fine = 1 << 16
	num := new(big.Int).Quo(new(big.Int).Mul(of.Num(), big.NewInt(fine)), of.Denom())
	if !num.IsUint64() || num.Sign() == 0 {
		return nil, fmt.Errorf("a noise scale of %s leaves no noise that can be drawn", o.NoiseScale)
	}
	variance, err := recipe.NewRational(num.Uint64(), fine)
	return n.Sized(variance), err
}

// dimension is the length of vectors.
func (s *Simulator) dimension() int { return s.vdaf.Params().Dimension }

// Rounds that were played, whatever their ends.
func (s *Simulator) Rounds() uint32 { return s.spent }

// A Report is what a device answers with.
type Report struct {
	// Vector of the recipe's dimension, in units of its entries. The device clips it.
	Vector []float64
	// Units are sent in place of it by a device that does as it likes: any integers, in
	// units of 2^-FracBits.
	Units []int64
}

// An Answer is asked for the report of a device, from several goroutines. buf has the
// recipe's dimension, is the device's alone until its report is taken, and may be what
// Report.Vector is; it comes with whatever another device left in it.
type Answer func(device int, buf []float64) (Report, error)

// Unsent counts the reports that count for nothing, by the reason.
type Unsent struct {
	// Shape and NotFinite are vectors of another length, and with entries that are no
	// numbers: the device's own software refuses them, and sends nothing.
	Shape     int `json:"shape"`
	NotFinite int `json:"not_finite"`
	// Norm are reports over the recipe's bound, which both servers reject.
	Norm int `json:"norm"`
	// Late are devices that had no report before the round was over, which count in no other:
	// never in a simulation.
	Late int `json:"late"`
}

// Add adds another round's.
func (u *Unsent) Add(v Unsent) {
	u.Shape, u.NotFinite, u.Norm, u.Late = u.Shape+v.Shape, u.NotFinite+v.NotFinite, u.Norm+v.Norm, u.Late+v.Late
}

// A Sum is what a round releases, and what became of its reports.
type Sum struct {
	// Raw is the noised sum in units of 2^-FracBits, one for each entry.
	Raw []int64
	// Estimate is of the sum over all devices, reporting or not, in units of the entries.
	Estimate []float64
	// Reports that hold, of which Dummies are of no answer.
	Reports, Dummies uint64
	Unsent           Unsent
	// SNR is the norm of the sum that was reported over that of the noise, as it is
	// expected: what is told of a simulation, for nobody knows it of a private sum.
	SNR float64
}

// Round plays one round of a number of devices. Where a device's coin lets it, answer is
// asked for its report.
//
// Errors are *BudgetError and *TooFewError, what answer returns, and the context's. A Sum
// comes with a *TooFewError too, without Raw and Estimate.
func (s *Simulator) Round(ctx context.Context, devices int, answer Answer) (*Sum, error) {
	if s.rounds > 0 && s.spent >= s.rounds {
		return nil, &BudgetError{s.rounds}
	}
	round := s.spent
	s.spent++
	out, shares, err := s.collect(ctx, devices, round, answer)
	if err != nil {
		return nil, err
	}
	if least := s.recipe.Threshold(); out.Reports < least {
		return out, &TooFewError{out.Reports, least}
	}
	if most, ok := s.recipe.MostReports(); ok && out.Reports > most {
		return nil, fmt.Errorf("simulator: a round of %d reports, and sums have room for %d", out.Reports, most)
	}
	exact, err := s.vdaf.Unshard(shares[:])
	if err != nil {
		return nil, fmt.Errorf("simulator: %w", err)
	}
	out.SNR = norm(exact) / (s.strays() * math.Sqrt(float64(len(exact))))
	if err := s.noise(shares, round); err != nil {
		return nil, err
	}
	if out.Raw, err = s.vdaf.Unshard(shares[:]); err != nil {
		return nil, fmt.Errorf("simulator: %w", err)
	}
	e, err := s.recipe.Estimate(out.Raw, out.Reports)
	if err != nil {
		return nil, fmt.Errorf("simulator: %w", err)
	}
	out.Estimate = e.Values
	return out, nil
}

// decision is what a device does in a round before anybody asks for its answer.
type decision uint8

const (
	nothing decision = iota
	reports
	dummies
)

// decide tosses the coins of all devices.
func (s *Simulator) decide(devices int, round uint32) []decision {
	all := make([]decision, devices)
	coins := stream.New(s.options.Seed, "coins", uint64(round))
	for i := range all {
		// Both are drawn whatever the first says, so that devices do not move each other's.
		reporting, covering := coins.Uint64(), coins.Uint64()
		if s.choices.Decide != nil {
			if answer, dummy := s.choices.Decide(i, round); answer {
				all[i] = reports
			} else if dummy {
				all[i] = dummies
			}
			continue
		}
		switch {
		case !Turn(s.recipe, i, round):
		case s.report.falls(reporting):
			all[i] = reports
		case s.dummy.falls(covering):
			all[i] = dummies
		}
	}
	return all
}

// Turn says whether a device takes part in a round, which is counted from 0: always, unless
// noise is correlated over rounds. Then device i has its turn in those that leave the
// remainder i over the recipe's separation, so that each keeps its distance.
func Turn(r *recipe.Recipe, device int, round uint32) bool {
	n, ok := r.Correlated()
	return !ok || uint64(device)%n.Series.Separation == uint64(round)%n.Series.Separation
}

// Covered is how many rounds the guarantee of a recipe covers; 0 where it has none.
func Covered(r *recipe.Recipe) uint32 {
	if n, ok := r.Correlated(); ok { // the claim counts the rounds of one device
		return uint32(n.Series.Rounds)
	}
	claim, _ := r.Claim.(recipe.ApproxDP)
	return claim.Rounds
}

// A coin falls with a probability, rounded down to a multiple of 2^-64.
type coin struct {
	always bool
	below  uint64
}

func newCoin(p *big.Rat) coin {
	x := new(big.Int).Lsh(p.Num(), 64)
	x.Quo(x, p.Denom())
	return coin{!x.IsUint64(), x.Uint64()}
}

func (c coin) falls(u uint64) bool { return c.always || u < c.below }

// collect sums the reports of a round, as aggregators do before they draw noise.
func (s *Simulator) collect(ctx context.Context, devices int, round uint32, answer Answer) (*Sum, [2]*vdaf.AggShare, error) {
	out := &Sum{}
	shares := [2]*vdaf.AggShare{s.vdaf.NewAggShare(), s.vdaf.NewAggShare()}
	decided := s.decide(devices, round)
	var (
		mu     sync.Mutex // guards out, shares and failed
		failed error
		next   atomic.Int64
		crew   sync.WaitGroup
	)
	for range min(runtime.GOMAXPROCS(0), max(1, devices)) {
		crew.Go(func() {
			mine, sum, buf := Sum{}, &tally{share: s.vdaf.NewAggShare()}, make([]float64, s.dimension())
			var err error
			for err == nil {
				i := int(next.Add(1)) - 1
				if i >= devices {
					break
				}
				if err = ctx.Err(); err == nil {
					err = s.one(&mine, sum, decided[i], i, buf, answer)
				}
			}
			if err != nil {
				next.Store(int64(devices)) // the others stop too
			}
			mu.Lock()
			defer mu.Unlock()
			// Which share a report is in does not matter for the sum of both.
			if err = errors.Join(err, sum.flush()); err == nil {
				err = shares[0].Merge(sum.share)
			}
			failed = errors.Join(failed, err)
			out.Reports += mine.Reports
			out.Dummies += mine.Dummies
			out.Unsent.Add(mine.Unsent)
		})
	}
	crew.Wait()
	return out, shares, failed
}

// one takes what one device sends, if anything.
func (s *Simulator) one(out *Sum, sum *tally, d decision, device int, buf []float64, answer Answer) error {
	if d != reports && !s.options.always(device) {
		if d == dummies { // all zeros
			out.Reports++
			out.Dummies++
		}
		return nil
	}
	report, err := answer(device, buf)
	if err != nil {
		return fmt.Errorf("device %d: %w", device, err)
	}
	units := report.Units
	if units == nil {
		units, err = pine.Encode(s.vdaf, report.Vector, s.encoding)
		switch {
		case errors.Is(err, pine.ErrDimension):
			out.Unsent.Shape++
			return nil
		case errors.Is(err, pine.ErrNotFinite):
			out.Unsent.NotFinite++
			return nil
		case err != nil:
			return fmt.Errorf("device %d: %w", device, err)
		}
	}
	switch {
	case len(units) != sum.share.Len():
		out.Unsent.Shape++
		return nil
	case !s.options.Unvalidated && over(units, s.vdaf.Params().Bound()):
		out.Unsent.Norm++
		return nil
	}
	out.Reports++
	return sum.add(units)
}

// A tally sums integer vectors in the field of a share. It adds up integers first, as long as
// they fit: the same sum for less work.
type tally struct {
	share *vdaf.AggShare
	units []int64 // not in share yet
	load  uint64  // bounds the absolute values in units
}

func (t *tally) add(units []int64) error {
	largest := uint64(0)
	for _, x := range units {
		largest = max(largest, uint64(max(x, -x)))
	}
	if t.units == nil {
		t.units = make([]int64, len(units))
	}
	if t.load+largest > math.MaxInt64 || t.load+largest < largest {
		if err := t.flush(); err != nil {
			return err
		}
	}
	if largest > math.MaxInt64 {
		return t.share.AddSigned(units)
	}
	t.load += largest
	for i, x := range units {
		t.units[i] += x
	}
	return nil
}

// flush adds what is not in the share yet.
func (t *tally) flush() error {
	if t.load == 0 {
		return nil
	}
	err := t.share.AddSigned(t.units)
	clear(t.units)
	t.load = 0
	return err
}

// over reports whether the squared norm of integers is over the square of a bound.
func over(units []int64, bound uint64) bool {
	var high, low uint64
	for _, x := range units {
		m := uint64(max(x, -x))
		h, l := bits.Mul64(m, m)
		var carry uint64
		low, carry = bits.Add64(low, l, 0)
		if high, carry = bits.Add64(high, h, carry); carry != 0 {
			return true
		}
	}
	h, l := bits.Mul64(bound, bound)
	return high > h || high == h && low > l
}

// strays is the deviation of both servers' noise in a number of the next release.
func (s *Simulator) strays() float64 {
	if x := s.series; x != nil {
		e := x.errors(int(min(x.released+1, x.rule.Rounds)))
		return math.Sqrt(2 * e.Round[len(e.Round)-1])
	}
	return s.deviation
}

func norm(v []int64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	return math.Sqrt(sum)
}

// noise adds to each share what its server draws.
func (s *Simulator) noise(shares [2]*vdaf.AggShare, round uint32) error {
	draws := [2][]int64{make([]int64, s.dimension()), make([]int64, s.dimension())}
	which := binary.BigEndian.AppendUint32(nil, round)
	var both sync.WaitGroup
	for i, key := range []*noise.Key{&s.leader, &s.helper} {
		both.Go(func() {
			if s.choices.Draw != nil {
				s.choices.Draw(i, round, draws[i])
				return
			}
			key.Sample(s.sampler, draws[i], which)
		})
	}
	both.Wait()
	if s.series != nil {
		if err := s.series.correlate(&draws, round); err != nil {
			return fmt.Errorf("simulator: %w", err)
		}
	}
	for i, share := range shares {
		if err := share.AddSigned(draws[i]); err != nil {
			return fmt.Errorf("simulator: %w", err)
		}
	}
	return nil
}

// correlate makes the noise of a round of what both servers drew, as their stores do: it
// leans on the releases before that the rule says, and is kept for those after.
func (x *series) correlate(draws *[2][]int64, round uint32) error {
	rule, span := x.rule, correlated.Span{First: uint64(round), Last: uint64(round)}
	lean, err := rule.Next(span, x.released, x.spans)
	if err != nil {
		return err
	}
	keep := max(1, rule.Strategy.Bands()-1) // one always, to know the order by
	for server, drawn := range draws {
		w, err := rule.Strategy.Next(x.past[server][:lean], drawn)
		if err != nil {
			return err
		}
		x.past[server] = latest(x.past[server], w, keep)
		rule.Strategy.Round(draws[server], w)
	}
	x.spans = latest(x.spans, span, keep)
	x.released++
	return nil
}

// latest is a list with one more at its front, and at most n long.
func latest[T any](list []T, first T, n int) []T {
	list = append([]T{first}, list...)
	return list[:min(n, len(list))]
}
