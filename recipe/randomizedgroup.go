package recipe

import (
	"fmt"
	"math"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dp/local"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/dp/sketch"
)

// RandomizedGroup is the randomized group on [SumsByGroup] (paper 002, section IV;
// [local.RandomGroup]): the device rounds its number to one of 2 Levels values at random,
// and names its group and that value, or now and then another value, or another group with
// any value.
type RandomizedGroup struct {
	groupBlur
	// Epsilon0 bounds the local epsilon for replacement, of group and number together,
	// whatever their distributions are; that the two probabilities give it is checked.
	// account.New calibrates it to Options.Epsilon where it is zero.
	Epsilon0 Decimal
	// Levels is m, at most as large as the numbers, and at most 32768 over the number of
	// groups. account.New chooses it, with Stray and Lie, where it is zero.
	Levels uint32
	// Asks says whether numbers are taken from the middle of their range, and so sums need
	// sizes, or from 0.
	Asks GroupAsks
	// Stray is the probability of another group, and Lie that of another value where it is
	// not. account.New chooses both where they are zero.
	Stray, Lie Decimal
}

func (z RandomizedGroup) String() string {
	return fmt.Sprintf("the device rounds its number to one of %d values at random, and names its group and that value; with probability %s another group and "+
		"any value, and else with probability %s another value (randomized group, epsilon %s)", 2*uint64(z.Levels), z.Stray, z.Lie, z.Epsilon0)
}

func (RandomizedGroup) randomizer() uint8 { return tagRandomizedGroup }

func (z RandomizedGroup) append(b *cryptobyte.Builder) {
	addAsked(b, z.Epsilon0, z.Levels, z.Asks)
	addDecimal(b, z.Stray)
	addDecimal(b, z.Lie)
}

func readRandomizedGroup(d *decoder) Randomizer {
	return RandomizedGroup{Epsilon0: d.decimal("epsilon0"), Levels: d.u32("levels"), Asks: GroupAsks(d.known("group-asks")),
		Stray: d.decimal("stray"), Lie: d.decimal("lie")}
}

func parseRandomizedGroup(s string) (Randomizer, error) {
	e, levels, asks, err := parseAsked(s)
	return RandomizedGroup{Epsilon0: e, Levels: levels, Asks: asks}, err
}

func (z RandomizedGroup) params() any {
	return map[string]any{"epsilon0": z.Epsilon0.String(), "levels": z.Levels, "asks": z.Asks.String(), "stray": z.Stray.String(), "lie": z.Lie.String()}
}

func (z RandomizedGroup) validate(v *validator, r *Recipe) {
	q, ok := v.asked(r, z.Epsilon0, z.Asks, z.Levels)
	if !ok {
		return
	}
	if !z.Stray.Valid() || !z.Lie.Valid() {
		v.add("randomizer", "has probabilities that are no decimals in their shortest form")
		return
	}
	l, err := z.local(q)
	if err != nil {
		v.add("randomizer", "cannot be drawn: %v", err)
		return
	}
	if e := l.Epsilon(local.Replacement); !(e <= z.Epsilon0.FloatUp()) {
		v.add("randomizer.epsilon0", "is %s, and its probabilities give %s", z.Epsilon0, Above(e))
	}
	if a := q.Numbers(z.Asks == AskSizes); a.Sizes && math.IsInf(l.Errors(a).Size, 1) {
		v.add("randomizer.stray", "is %s, at which a device names its own group no more often than any other, and sizes are not told", z.Stray)
	}
}

// local is the randomizer as devices draw it.
func (z RandomizedGroup) local(q SumsByGroup) (*local.RandomGroup, error) {
	return local.NewRandomGroup(q.Numbers(z.Asks == AskSizes).Groups, int(min(z.Levels, math.MaxInt32)), z.Stray.FloatUp(), z.Lie.FloatUp())
}

func (z RandomizedGroup) round(r *Recipe, s Situation, _ float64) (Disclosure, error) {
	return r.reports(z, s)
}

// Local is a report of which nothing but its epsilon is known.
func (z RandomizedGroup) Local(Query) (release.Message, float64, error) {
	return anyReport(z.Epsilon0)
}
func (z RandomizedGroup) whole(q Query) (release.Message, float64, error) { return z.Local(q) }

// Fit chooses how many values numbers are rounded to, and both probabilities.
func (z RandomizedGroup) Fit(q Query, _ float64) (LocalRandomizer, Query) {
	sums, ok := q.(SumsByGroup)
	if !ok || z.Stray != (Decimal{}) || z.Lie != (Decimal{}) {
		return z, q
	}
	plan, err := local.PlanNumbers(sums.Numbers(z.Asks == AskSizes), local.ByRandomGroup, z.Epsilon0.FloatDown(), int(min(z.Levels, math.MaxInt32)))
	if err != nil || plan.Levels == 0 {
		return z, q
	}
	fitted := z
	fitted.Levels = uint32(plan.Levels)
	// Six digits, rounded up, leave group and value hidden a little better.
	const digits = 6
	if fitted.Stray, err = DecimalAbove(plan.Stray, digits); err == nil {
		fitted.Lie, err = DecimalAbove(plan.Lie, digits)
	}
	if err != nil {
		return z, q
	}
	return fitted, q
}

// Local0 is Epsilon0.
func (z RandomizedGroup) Local0() Decimal { return z.Epsilon0 }

// At is the same randomizer at another epsilon.
func (z RandomizedGroup) At(epsilon0 Decimal) GroupRandomizer { z.Epsilon0 = epsilon0; return z }

func (RandomizedGroup) tellsSizes() bool { return true }

// Rounded is Levels.
func (z RandomizedGroup) Rounded() uint32 { return z.Levels }

// Bits is how many an answer has.
func (z RandomizedGroup) Bits(q SumsByGroup) int {
	if l, err := z.local(q); err == nil {
		return l.Bits()
	}
	return 0
}

// Errors are those of the randomizer.
func (z RandomizedGroup) Errors(q SumsByGroup, deviations float64, reports uint64) (GroupErrors, error) {
	l, err := z.local(q)
	if err != nil {
		return GroupErrors{}, err
	}
	return q.Forecast(l.Errors(q.Numbers(z.Asks == AskSizes)), deviations, reports), nil
}

// Hint is none.
func (RandomizedGroup) Hint(SumsByGroup) string { return "" }

func (z RandomizedGroup) messenger(r *Recipe) (*Messenger, error) {
	q, ok := r.Query.(SumsByGroup)
	if !ok {
		return nil, errNoGroups
	}
	l, err := z.local(q)
	if err != nil {
		return nil, err
	}
	rounding, err := local.NewRounding(q.Numbers(z.Asks == AskSizes).Largest(), int(z.Levels))
	if err != nil {
		return nil, err
	}
	return z.messengerBy(r, q, l, rounding), nil
}

// messengerBy is that of a randomizer. A report is the group times the number of values,
// and the index of the value, in as few bytes as hold it.
func (z RandomizedGroup) messengerBy(r *Recipe, q SumsByGroup, l *local.RandomGroup, rounding *local.Rounding) *Messenger {
	numbers, m := q.Numbers(z.Asks == AskSizes), int(z.Levels)
	values := uint64(2 * m)
	blur := func(b []byte, answer []uint64) error {
		v, err := rounding.Randomize(numbers.Rounded(int64(answer[0])))
		if err != nil {
			return err
		}
		group, said, err := l.Randomize(int(answer[1]), v)
		if err != nil {
			return err
		}
		index := said + m
		if said > 0 {
			index--
		}
		putNumber(b, uint64(group)*values+uint64(index))
		return nil
	}
	add := func(messages [][]byte) (list []int64, reports uint64, err error) {
		sum := l.NewSum()
		for _, b := range messages {
			x := number(b)
			if x >= values*uint64(groupsOf(q)) {
				continue
			}
			said := int(x%values) - m
			if said >= 0 {
				said++
			}
			if err := l.Add(sum, int(x/values), said); err != nil {
				return nil, 0, err
			}
			reports++
		}
		return sum.Numbers(), reports, nil
	}
	scale, gap := numbers.Scale(m), 1-2*float64(m)*z.Lie.FloatUp()/float64(2*m-1)
	tells, strays := 1-z.Stray.FloatUp(), z.Stray.FloatUp()/float64(groupsOf(q)-1)
	weight, told := scale.Step*float64(m)/(tells*gap), 0.0
	if numbers.Sizes {
		told = (1 - strays) / (tells - strays)
		weight += math.Abs(scale.Middle) * told
	}
	return groupMessenger(r, bytesFor(values*uint64(groupsOf(q))), 3*groupsOf(q), spoiled(weight, told, false), blur, add)
}

func (z RandomizedGroup) moments(r *Recipe, sums []int64, reports uint64) (each []sketch.GroupMoments, all sketch.GroupMoments, err error) {
	q, ok := r.Query.(SumsByGroup)
	if !ok {
		return nil, all, errNoGroups
	}
	if err := tallied(sums, 3*groupsOf(q)); err != nil {
		return nil, all, err
	}
	l, err := z.local(q)
	if err != nil {
		return nil, all, err
	}
	s, err := l.ReadSum(sums)
	if err != nil {
		return nil, all, err
	}
	if s.Reports() != reports {
		return nil, all, fmt.Errorf("recipe: sums by group of %d answers, want %d", s.Reports(), reports)
	}
	return s.Moments(nil, q.Numbers(z.Asks == AskSizes).Scale(int(z.Levels)))
}
