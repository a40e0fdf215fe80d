package recipe

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/starling-agg/starling/dap"
)

// Rounds divide time for a recipe. In a round a device decides once, its report carries
// the first unit of the round, and nothing is released of a round before its end and the
// grace. A recipe without them has rounds of one unit and no grace.
type Rounds struct {
	// Units is the length of a round in units of TimePrecision: 1 to MaxRoundUnits, and
	// at most MaxRound in all. Round n begins with unit n*Units.
	Units uint64 `json:"units"`
	// Grace in seconds after the end of a round, at most MaxGrace: reports that were sent
	// in the round may still come.
	Grace uint32 `json:"grace"`
}

// Bounds of [Rounds], and what account.New takes.
const (
	MaxRoundUnits = 1 << 32
	// MaxRound is 100 years, in seconds: what is never over is never released.
	MaxRound = 100 * 366 * 86400
	// MaxGrace is a week, in seconds.
	MaxGrace = 7 * 86400
	// MaxBatches bounds what [Recipe.Batches] cuts.
	MaxBatches = 1 << 16
	// DefaultGrace is the grace of a recipe with a relay: three tries of a device, a
	// minute apart, the time in which a gateway mixes, and two minutes more.
	DefaultGrace = 5 * time.Minute
)

// Round is the number of the round in which time unit t lies.
func (r *Recipe) Round(t dap.Time) uint64 { return uint64(t) / r.RoundUnits() }

// RoundUnits is the length of a round in units of TimePrecision. Where devices
// wait for slots a round is all of them together.
func (r *Recipe) RoundUnits() uint64 {
	if r.Rounds == nil {
		return 1
	}
	return max(1, r.Rounds.Units)
}

// BatchUnits is the length, in units of TimePrecision, of what is released together at
// least: a round, or a slot ([Recipe.Slotted]). Report times are multiples of it.
func (r *Recipe) BatchUnits() uint64 {
	if s, ok := r.Slotted(); ok {
		return max(1, uint64(s.Length))
	}
	return r.RoundUnits()
}

// ReportTime is the time that a report of time unit t carries: the first unit of its
// round, or of its slot, so that the number of reports is known of the whole and of no
// part.
func (r *Recipe) ReportTime(t dap.Time) dap.Time { return t - t%dap.Time(r.BatchUnits()) }

// Grace is how long after its end nothing of a round is released.
func (r *Recipe) Grace() time.Duration {
	if r.Rounds == nil {
		return 0
	}
	return time.Duration(r.Rounds.Grace) * time.Second
}

// MaxSending is for how long a device that answers at the end of a round may go on trying
// so that its report still counts: the grace; without end where the leader selects
// batches, which are not of rounds.
func (r *Recipe) MaxSending() time.Duration {
	if r.on().leaderSelected() {
		return math.MaxInt64
	}
	return r.Grace()
}

// Alone says that each round is released alone, or each slot where there are any: a person
// may be in more than one, devices toss coins, whose dummies are counted for one, or a
// shuffler mixes a round. With [Views] exactly the spans of these are released besides,
// whoever is in how many rounds. Else a batch may be any number of whole rounds, as a
// person is in one.
func (r *Recipe) Alone() bool {
	return r.Sampled() || r.DecisionRounds() > 1 || !r.on().joins() || r.Views != nil
}

// DecisionRounds is how often a device may decide: the claim's rounds, or 1 where nothing
// is claimed.
func (r *Recipe) DecisionRounds() uint32 {
	if claim, ok := r.Claim.(ApproxDP); ok {
		return claim.Rounds
	}
	return 1
}

// A BatchError is an interval of which leader and helper release nothing, and what they
// would.
type BatchError struct {
	// Asked is the interval; Whole the least run of whole rounds, or slots, around it;
	// First the first of these.
	Asked, Whole, First dap.Interval
	// Alone is [Recipe.Alone]: each of them is a batch, and no two are.
	Alone bool
	what  string // round or slot
	views []Granularity
	unit  dap.TimePrecision
}

func (e *BatchError) Error() string {
	rule, ask := fmt.Sprintf("a batch is whole %ss", e.what), e.Whole
	if e.Alone {
		rule, ask = "a batch is exactly one "+e.what, e.First
	}
	for i, g := range e.views {
		if i > 0 {
			rule += fmt.Sprintf(", or %d from a multiple of %d on (%s)", g.Rounds, g.Rounds, g.Name)
		}
	}
	at := func(t dap.Time) string {
		instant, err := e.unit.Begin(t)
		if err != nil {
			return fmt.Sprintf("unit %d", t)
		}
		return instant.Format(time.RFC3339)
	}
	end, _ := ask.End()
	last, _ := e.Whole.End()
	text := fmt.Sprintf("recipe: %s: ask for %s to %s", rule, at(ask.Start), at(end))
	if end != last {
		text += fmt.Sprintf(", and so on, one after the other, to %s", at(last))
	}
	return text
}

// Batches cuts an interval into those that leader and helper release, one after the
// other: each round or slot where these are released alone, else the whole; of recipes with
// [Views] those of the view of one round, see [Recipe.BatchesOf]. It fails with a
// *[BatchError] where the interval is not of whole rounds.
func (r *Recipe) Batches(asked dap.Interval) ([]dap.Interval, error) {
	units := r.BatchUnits()
	n, whole := asked.Split(units)
	switch {
	case !whole:
		return nil, r.CheckBatch(asked)
	case !r.Alone():
		return []dap.Interval{asked}, nil
	case n > MaxBatches:
		return nil, fmt.Errorf("recipe: %d rounds at once, want at most %d", n, MaxBatches)
	}
	return cut(asked.Start, n, units), nil
}

// cut are n intervals of a number of units, one after the other.
func cut(start dap.Time, n, units uint64) []dap.Interval {
	list := make([]dap.Interval, n)
	for i := range list {
		list[i] = dap.Interval{Start: start + dap.Time(uint64(i)*units), Duration: dap.Duration(units)}
	}
	return list
}

// BatchesOf cuts an interval into the batches of a view, one after the other. It fails with
// a *[BatchError] where the interval is not of whole spans.
func (r *Recipe) BatchesOf(g Granularity, asked dap.Interval) ([]dap.Interval, error) {
	units := r.ViewUnits(g)
	n, whole := asked.Split(units)
	switch {
	case !whole:
		return nil, r.batchError(asked, units)
	case n > MaxBatches:
		return nil, fmt.Errorf("recipe: %d batches of the view %s at once, want at most %d", n, g.Name, MaxBatches)
	}
	return cut(asked.Start, n, units), nil
}

// CheckBatch says with a *[BatchError] that leader and helper release no batch of that
// interval, which is a valid one.
func (r *Recipe) CheckBatch(asked dap.Interval) error {
	units := r.BatchUnits()
	n, whole := asked.Split(units)
	if whole && (n == 1 || !r.Alone()) {
		return nil
	}
	if _, ok := r.ViewOf(asked); ok {
		return nil
	}
	return r.batchError(asked, units)
}

// batchError says of an interval what would be asked for in its place, of batches of a
// number of units.
func (r *Recipe) batchError(asked dap.Interval, units uint64) *BatchError {
	e := &BatchError{Asked: asked, Alone: r.Alone(), what: "round", views: r.Granularities(), unit: r.TimePrecision}
	if _, ok := r.Slotted(); ok {
		e.what = "slot"
	}
	first := func(t dap.Time) dap.Time { return t - t%dap.Time(units) }
	end, _ := asked.End()
	e.First = dap.Interval{Start: first(asked.Start), Duration: dap.Duration(units)}
	e.Whole = e.First
	e.Whole.Duration += dap.Duration(first(end-1) - e.First.Start)
	return e
}

func (v *validator) rounds(r *Recipe) {
	if s := r.Rounds; s != nil {
		v.between("round.units", s.Units, 1, MaxRoundUnits)
		if hi, seconds := bits.Mul64(s.Units, uint64(r.TimePrecision)); hi != 0 || seconds > MaxRound {
			v.add("round.units", "is %d units of %d seconds, want at most %d seconds in all", s.Units, r.TimePrecision, MaxRound)
		}
		v.between("round.grace", uint64(s.Grace), 0, MaxGrace)
		if *s == (Rounds{Units: 1}) {
			v.add("round", "is what it is where it is left out: one unit and no grace")
		}
	}
	units := r.RoundUnits()
	if rate := r.Rate; rate != nil && rate.Units != units {
		v.add("rate.units", "is %d, but a round has %d", rate.Units, units)
	}
	if s, ok := r.Slotted(); ok && s.Units() != units {
		v.add("round.units", "is %d, want the %d slots of %d units", units, s.Count, s.Length)
	}
	if w, ok := r.Window.(Between); ok && (uint64(w.Start)%units != 0 || uint64(w.End)%units != 0) {
		v.add("window", "is from unit %d to %d, which is not of whole rounds of %d", w.Start, w.End, units)
	}
	if r.on().leaderSelected() && r.Alone() {
		v.add("path.batch_mode", "is leader-selected, which may put several reports of one person into a batch: it goes with one round "+
			"for each person and no coins")
	}
}

// describeRounds says what is released, and when.
func (r *Recipe) describeRounds() string {
	length := duration(r.BatchUnits(), r.TimePrecision)
	what := "a round is " + length
	if s, ok := r.Slotted(); ok {
		what = fmt.Sprintf("a round is %s, %d slots of %s", duration(r.RoundUnits(), r.TimePrecision), s.Count, length)
	}
	if r.on().leaderSelected() {
		return what + "; the leader releases reports of any rounds together"
	}
	released := "rounds are released after their end, alone or several together"
	if r.Alone() {
		released = "each is released alone, after its end"
	}
	if r.Views != nil {
		released = "each is released once in each view, after the end of that view's span"
	}
	if g := r.Grace(); g > 0 {
		released += fmt.Sprintf(" and %v of grace", g)
	}
	return what + "; " + released
}

// once is the assumption about how often one unit is reported of, where it is known who
// does.
func (r *Recipe) once(rounds uint32) string {
	if rounds == 1 && !r.Sampled() && r.Views == nil {
		return fmt.Sprintf("one %s has one report at most, in one round", r.PrivacyUnit().Name)
	}
	text := fmt.Sprintf("one %s has one report in each of at most %s", r.PrivacyUnit().Name, count(uint64(rounds), "round", "rounds"))
	if rounds == 1 && r.Views != nil {
		text = fmt.Sprintf("one %s has one report at most, in one round", r.PrivacyUnit().Name)
	}
	if n, ok := r.Correlated(); ok {
		text += fmt.Sprintf(", any two of these at least %s apart (%s), which the device itself sees to",
			count(n.Series.Separation, "round", "rounds"), duration(n.Series.Separation*r.RoundUnits(), r.TimePrecision))
	}
	if r.Views != nil {
		return text + "; each round is released once in each view, after the end of that view's span, which " + r.on().keepers()
	}
	return text + "; each round is released alone, after its end, which " + r.on().keepers()
}
