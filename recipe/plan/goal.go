package plan

import (
	"errors"
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/vdaf/pine"
)

// A Randomizer is where the blur comes from.
type Randomizer string

const (
	Servers Randomizer = "servers" // noise of the two servers; one of them must be honest
	RR      Randomizer = "rr"      // each device names a wrong bucket now and then; nobody is trusted
	RAPPOR  Randomizer = "rappor"  // each device flips each bit of its bucket now and then; nobody is trusted
	// Noisy: each device adds noise to its vector, of which the sum over all has enough.
	// The servers must not put their shares together, and the devices must keep their
	// noise to themselves.
	Noisy Randomizer = "gaussian"
)

// A Goal is what is wanted.
type Goal struct {
	// Query is required. RR and RAPPOR know counts and histograms, Noisy knows vectors.
	Query recipe.Query
	// People is how many reports a batch is expected to hold; required, 2 to 10^9.
	People uint64
	// Population is how many people the People of each batch are drawn from, each by a
	// secret coin; 0 if all answer.
	Population uint64
	// CheckIn, if not nil, has people check in, each at a random slot of a round, in place of
	// Population and HideCount, which follow from it: People are those whose answers a slot
	// is expected to hold, and Rounds are those of all slots.
	CheckIn recipe.Participation
	// HideCount says that those not drawn send dummy reports, so that the number drawn
	// does not show. For Population only.
	HideCount bool
	// Within is the error that is wanted, as a part of the largest result that People
	// could give; 0 if it does not matter.
	Within float64
	// Confidence is how sure the error is to be kept, for each number of the result; 0.95
	// if zero.
	Confidence float64
	// Epsilon is the wanted loss over all rounds; 0 if it does not matter.
	Epsilon float64
	// Delta beside it; 1e-9 if zero.
	Delta float64
	// Rounds is in how many batches one person may be (with Population, may be drawn
	// for); 1 if zero.
	Rounds uint32
	// Batches, if not 0, is over how many batches the servers' noise is correlated, in
	// the order of time; Within is then of their mean. People, then, stay away Separation
	// rounds, 2 or more, from one answer to their next.
	Batches    uint64
	Separation uint64
	// Views are wider granularities in which each batch is released again, with the noise of a
	// round; People are those of a round. None when nil. For one round, and people who all
	// answer.
	Views *recipe.Views
	// Randomizer is Servers if empty, or for sums by group on another path than TwoServer the
	// better of QA and RandomizedGroup.
	Randomizer Randomizer
	// SumsAlone asks for no sizes of groups, for QA and RandomizedGroup.
	SumsAlone bool
	// Path is TwoServer if empty; on another, devices randomize.
	Path PathName
	// Speed is what vectors cost on some machine; with it, plans for vectors tell the
	// time of a report. Optional.
	Speed *pine.Speed
	// Unit is whose data is protected; recipe.DefaultUnit when nil.
	Unit *recipe.Unit
	// MinBatch is B. If zero, half of People or, for samples, what a sample falls short
	// of once in 10^9.
	MinBatch uint64
}

// ErrGoal is what every error about a goal matches.
var ErrGoal = errors.New("plan: the goal makes no sense")

func wrong(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrGoal, fmt.Sprintf(format, args...))
}

// MaxPeople bounds what is planned for.
const MaxPeople = 1_000_000_000

// Validate returns an error that matches ErrGoal if the goal makes no sense.
func (g *Goal) Validate() error {
	between := func(x, low, high float64) bool { return x > low && x < high }
	if g.CheckIn != nil {
		if g.HideCount != (g.Population != 0) {
			return wrong("how many people check in follows from their slots and their rate: neither a population nor dummies are stated")
		}
		c, ok := recipe.SlottingOf(g.CheckIn)
		switch {
		case !ok:
			return wrong("people take part by %v, which is no check-in", g.CheckIn)
		case c.Slots < 2 || c.Slots > recipe.MaxSlots || !(c.Rate.Valid() && c.Rate.Float() < 1):
			return wrong("people check in at one of %d slots and report at a rate of %s, want 2 to %d slots and a rate below 1", c.Slots, c.Rate, recipe.MaxSlots)
		}
		settled := *g
		settled.Population, settled.HideCount = g.checkedIn(), true
		if g.Population != 0 && g.Population != settled.Population {
			return wrong("%d people check in, and a population of %d is stated", settled.Population, g.Population)
		}
		g = &settled
	}
	switch {
	case g.Query == nil:
		return wrong("it has no query")
	case g.People < recipe.MinBatchFloor || g.People > MaxPeople:
		return wrong("%d people, want %d to %d", g.People, recipe.MinBatchFloor, MaxPeople)
	case g.Population != 0 && (g.Population < g.People || g.Population > MaxPeople):
		return wrong("%d people are drawn from %d, want as many or more, and at most %d", g.People, g.Population, MaxPeople)
	case g.HideCount && g.Population <= g.People:
		return wrong("dummy reports come from people who are not drawn, and all are")
	case g.Within == 0 && g.Epsilon == 0:
		return wrong("neither an accuracy nor a loss is wanted")
	case g.Within != 0 && !between(g.Within, 0, 1):
		return wrong("within %v of the largest result, want a part between 0 and 1", g.Within)
	case g.Confidence != 0 && !between(g.Confidence, 0, 1):
		return wrong("confidence %v, want a number between 0 and 1", g.Confidence)
	case g.Epsilon != 0 && !between(g.Epsilon, 0, 1e3):
		return wrong("epsilon %v, want a number above 0 and below 1000", g.Epsilon)
	case g.Delta != 0 && !between(g.Delta, 0, 1):
		return wrong("delta %v, want a number between 0 and 1", g.Delta)
	case g.Rounds > recipe.MaxRounds:
		return wrong("%d rounds, want at most %d", g.Rounds, recipe.MaxRounds)
	case g.SumsAlone && !g.asks():
		return wrong("sums without sizes are for sums by group on the path shuffled or direct")
	case g.MinBatch != 0 && (g.MinBatch < recipe.MinBatchFloor || g.MinBatch > g.People):
		return wrong("a least batch of %d, want %d to the %d people who are expected", g.MinBatch, recipe.MinBatchFloor, g.People)
	}
	if q, ok := g.Query.(interface{ Unplanned() string }); ok {
		return wrong("%s", q.Unplanned())
	}
	switch g.Randomizer {
	case "", Servers:
	case Noisy:
		if !g.hasRoomForNoise() {
			return wrong("noise of the devices' own is for vectors with a proof of package pine")
		}
		if g.Population != 0 {
			return wrong("noise of the devices' own is planned for people who all answer")
		}
	case Cloak: // checkPath says where
	case QA, RandomizedGroup:
		if !g.asks() {
			return wrong("%s is for sums by group on the path shuffled or direct", g.Randomizer)
		}
	case RR, RAPPOR:
		if g.buckets() == 0 {
			return wrong("%s is for counts and histograms", g.Randomizer)
		}
		if g.Population != 0 {
			return wrong("%s is planned for people who all answer", g.Randomizer)
		}
	default:
		return wrong("there is no randomizer %q", g.Randomizer)
	}
	if err := g.checkPath(); err != nil {
		return err
	}
	if err := g.checkSeries(); err != nil {
		return err
	}
	if err := g.checkViews(); err != nil {
		return err
	}
	// A recipe that asks the query says what is wrong with it.
	_, err := account.New(account.Options{Name: "plan", Query: g.Query, Leader: "https://leader.example/", Helper: "https://helper.example/",
		MinBatch: recipe.MinBatchFloor, Unit: g.Unit})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrGoal, err)
	}
	return nil
}

// checkViews refuses views whose cost is not a number of releases of equal noise.
func (g *Goal) checkViews() error {
	switch {
	case g.Views == nil:
		return nil
	case g.Population != 0 || g.Batches != 0 || g.Randomizer != "" && g.Randomizer != Servers || g.Path != "" && g.Path != TwoServer:
		return wrong("views are planned for noise of two servers, drawn for each batch alone, and people who all answer")
	case g.Rounds > 1:
		return wrong("views are planned for people who are in one round; a recipe of more counts reports that meet in a batch: starling recipe new")
	case len(g.Views.Wider) < 1 || len(g.Views.Wider) >= recipe.MaxViews:
		return wrong("%d views, want 2 to %d", 1+len(g.Views.Wider), recipe.MaxViews)
	}
	for _, v := range g.Views.Wider {
		if v.Parameter != (recipe.Rational{}) {
			return wrong("views are planned with the noise of a round, and that of %s is stated", v.Name)
		}
	}
	return nil
}

// checkedIn is how many people check in in a round, so that People report in a slot.
func (g *Goal) checkedIn() uint64 {
	c, _ := recipe.SlottingOf(g.CheckIn)
	return uint64(math.Ceil(float64(g.People) * float64(c.Slots) / c.Rate.Float()))
}

// releases is how many releases with noise one report is in: one in each view of each round.
func (g *Goal) releases() uint64 {
	n := uint64(max(1, g.Rounds))
	if g.Views != nil {
		n *= uint64(1 + len(g.Views.Wider))
	}
	return n
}

// settle fills in the defaults.
func (g *Goal) settle() {
	if g.CheckIn != nil {
		g.Population, g.HideCount = g.checkedIn(), true
	}
	if g.Confidence == 0 {
		g.Confidence = 0.95
	}
	if g.Delta == 0 {
		g.Delta = 1e-9
	}
	if g.Rounds == 0 {
		g.Rounds = 1
	}
	if g.Randomizer == "" && !g.asks() {
		g.Randomizer = Servers
	}
	if g.Path == "" {
		g.Path = TwoServer
	}
	if g.Population == g.People {
		g.Population = 0
	}
}

// buckets is how many answers there are to choose one from; 0 if that is not what is asked.
func (g *Goal) buckets() uint64 { return g.Query.Choices() }

// unit is whose data is protected.
func (g *Goal) unit() recipe.Unit {
	if g.Unit == nil {
		return recipe.DefaultUnit
	}
	return *g.Unit
}

// largest is the most that one person can add to one number of the result.
func (g *Goal) largest() float64 { return g.Query.Largest() }

// full is the largest result that n people can give, in the units of a sum.
func (g *Goal) full(n float64) float64 { return n * g.largest() }

// rate is q.
func (g *Goal) rate() float64 {
	if g.Population == 0 {
		return 1
	}
	return float64(g.People) / float64(g.Population)
}

// z is how many standard deviations a normal number stays within with probability c.
func z(c float64) float64 { return math.Sqrt2 * math.Erfinv(c) }

// sampleVariance bounds the variance that sampling adds to an estimate for n people, in
// squared units of a sum.
func (g *Goal) sampleVariance(n float64) float64 {
	if g.Population == 0 {
		return 0
	}
	// A share p estimated from a known number of people has variance p (1-p)/n; from a
	// hidden number, p/n.
	spread := 0.25
	if g.HideCount {
		spread = 1
	}
	return n * (1 - g.rate()) * spread * g.largest() * g.largest()
}

func (g *Goal) contribution() release.Contribution {
	c, _ := account.Contribution(g.Query) // Validate has seen it
	return c
}
