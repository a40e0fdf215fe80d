package recipe

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"math"
	"slices"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dp/local"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/dp/sketch"
)

// QA is question & answer on [SumsByGroup] (paper 002; [local.Question]): a public hash of
// the recipe and of a fresh nonce deals each device a table that has, for each group, the
// 2 Levels values in an order of its own; the device rounds its number to a value at
// random, lies now and then, and names the column in which the row of its group has what
// it says. A report is the nonce and that column. Where sizes are asked for, one half of
// all nonces ask for the group alone.
type QA struct {
	groupBlur
	// Epsilon0 is the local epsilon for replacement, of group and number together, whatever
	// their distributions are. account.New calibrates it to Options.Epsilon where it is zero.
	Epsilon0 Decimal
	// Levels is m, at most as large as the numbers, and at most 32768 over the number of
	// groups. account.New chooses it where it is zero.
	Levels uint32
	Asks   GroupAsks
}

// NonceSize is that of the nonce of a report, in bytes.
const NonceSize = 16

func (z QA) String() string {
	about := "; of sizes nothing is asked"
	if z.Asks == AskSizes {
		about = "; half of the devices, as their nonces fall, answer about their group alone"
	}
	return fmt.Sprintf("a public table of a fresh nonce has the %d values that a number is rounded to at random, for each group in an order of its own, and "+
		"the device names the column of its value or, with probability %.4g, of another%s (question & answer, epsilon %s)", 2*uint64(z.Levels), z.lie(), about, z.Epsilon0)
}

// lie is lambda of the distribution-free bound; NaN where there is none.
func (z QA) lie() float64 {
	l, err := local.QuestionLie(int(min(z.Levels, math.MaxInt32)), z.Epsilon0.FloatDown())
	if err != nil {
		return math.NaN()
	}
	return l
}

func (QA) randomizer() uint8 { return tagQA }

func (z QA) append(b *cryptobyte.Builder) { addAsked(b, z.Epsilon0, z.Levels, z.Asks) }

func readQA(d *decoder) Randomizer {
	return QA{Epsilon0: d.decimal("epsilon0"), Levels: d.u32("levels"), Asks: GroupAsks(d.known("group-asks"))}
}

func parseQA(s string) (Randomizer, error) {
	e, levels, asks, err := parseAsked(s)
	return QA{Epsilon0: e, Levels: levels, Asks: asks}, err
}

func (z QA) params() any {
	return map[string]any{"epsilon0": z.Epsilon0.String(), "levels": z.Levels, "asks": z.Asks.String()}
}

func (z QA) validate(v *validator, r *Recipe) {
	if q, ok := v.asked(r, z.Epsilon0, z.Asks, z.Levels); ok {
		if _, _, err := z.questions(q); err != nil {
			v.add("randomizer", "cannot be drawn: %v", err)
		}
	}
}

func (z QA) round(r *Recipe, s Situation, _ float64) (Disclosure, error) { return r.reports(z, s) }

// Local is a report of which nothing but its epsilon is known.
func (z QA) Local(Query) (release.Message, float64, error)   { return anyReport(z.Epsilon0) }
func (z QA) whole(q Query) (release.Message, float64, error) { return z.Local(q) }

// Fit chooses how many values numbers are rounded to.
func (z QA) Fit(q Query, _ float64) (LocalRandomizer, Query) {
	if sums, ok := q.(SumsByGroup); ok && z.Levels == 0 {
		if plan, err := local.PlanNumbers(sums.Numbers(z.Asks == AskSizes), local.ByQuestion, z.Epsilon0.FloatDown(), 0); err == nil {
			z.Levels = uint32(plan.Levels)
		}
	}
	return z, q
}

// Local0 is Epsilon0.
func (z QA) Local0() Decimal { return z.Epsilon0 }

// At is the same question at another epsilon.
func (z QA) At(epsilon0 Decimal) GroupRandomizer { z.Epsilon0 = epsilon0; return z }

func (z QA) tellsSizes() bool { return z.Asks == AskSizes }

// Rounded is Levels.
func (z QA) Rounded() uint32 { return z.Levels }

// questions are the one about numbers, and the one about groups alone.
func (z QA) questions(q SumsByGroup) (value, size *local.Question, err error) {
	groups, e := q.Numbers(z.Asks == AskSizes).Groups, z.Epsilon0.FloatDown()
	if value, err = local.NewQuestion(groups, int(min(z.Levels, math.MaxInt32)), e); err != nil {
		return nil, nil, err
	}
	size, err = local.NewQuestion(groups, 1, e)
	return value, size, err
}

// Bits is how many an answer has beside its nonce.
func (z QA) Bits(q SumsByGroup) int {
	if v, _, err := z.questions(q); err == nil {
		return v.Bits()
	}
	return 0
}

// Errors are those of both questions.
func (z QA) Errors(q SumsByGroup, deviations float64, reports uint64) (GroupErrors, error) {
	v, _, err := z.questions(q)
	if err != nil {
		return GroupErrors{}, err
	}
	e, err := v.Errors(q.Numbers(z.Asks == AskSizes))
	return q.Forecast(e, deviations, reports), err
}

// Hint is what an answer tells of the group where each value is about as likely as any
// other: the tighter bound of paper 002, which holds on a condition.
func (z QA) Hint(SumsByGroup) string {
	const around = 0.5
	each := 1 / float64(2*z.Levels)
	e, err := local.QuestionEpsilonBetween(int(z.Levels), z.lie(), (1-around)*each, (1+around)*each)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("conditional, and charged nowhere: if in each group each of the %d values had a probability within half of %.3g, which nobody checks, "+
		"an answer would tell the group, and not the number, by epsilon %s alone", 2*z.Levels, each, Above(e))
}

// A tally of questions has, group by group, the sums of what is said about numbers and
// those of the squares and, where sizes are asked for, those of what is said about groups,
// and then the number of answers about numbers.
func (z QA) tallied(q SumsByGroup) int {
	if z.Asks == AskSizes {
		return 3*groupsOf(q) + 1
	}
	return 2 * groupsOf(q)
}

func (z QA) messenger(r *Recipe) (*Messenger, error) {
	q, ok := r.Query.(SumsByGroup)
	if !ok {
		return nil, errNoGroups
	}
	value, size, err := z.questions(q)
	if err != nil {
		return nil, err
	}
	rounding, err := local.NewRounding(q.Numbers(z.Asks == AskSizes).Largest(), int(z.Levels))
	if err != nil {
		return nil, err
	}
	return z.messengerBy(r, q, value, size, rounding, rand.Read)
}

// messengerBy is that of questions; nonces are drawn by draw.
func (z QA) messengerBy(r *Recipe, q SumsByGroup, value, size *local.Question, rounding *local.Rounding, draw func([]byte) (int, error)) (*Messenger, error) {
	id, err := r.ID()
	if err != nil {
		return nil, err
	}
	sizes, numbers := z.Asks == AskSizes, q.Numbers(z.Asks == AskSizes)
	// at is the query of a message, and whether it is about the group alone.
	at := func(b []byte) (local.Query, bool) {
		x := local.Query{Recipe: id, Nonce: [NonceSize]byte(b)}
		return x, sizes && x.OfSize()
	}
	blur := func(b []byte, answer []uint64) error {
		if _, err := draw(b[:NonceSize]); err != nil {
			return err
		}
		x, ofSize := at(b)
		number, group := int64(answer[0]), int(answer[1])
		asked, said, err := size, 1, error(nil)
		if !ofSize {
			asked = value
			if said, err = rounding.Randomize(numbers.Rounded(number)); err != nil {
				return err
			}
		}
		column, err := asked.Randomize(x, group, said)
		putNumber(b[NonceSize:], uint64(column))
		return err
	}
	add := func(messages [][]byte) (list []int64, reports uint64, err error) {
		// Of messages with one nonce the first in the order of bytes counts, whatever the
		// order they came in: honest nonces differ, and tables are independent only then.
		messages = slices.Clone(messages)
		slices.SortFunc(messages, bytes.Compare)
		values, groups := value.NewSum(), size.NewSum()
		for i, b := range messages {
			if i > 0 && bytes.Equal(b[:NonceSize], messages[i-1][:NonceSize]) {
				continue
			}
			x, ofSize := at(b)
			asked, sum := value, values
			if ofSize {
				asked, sum = size, groups
			}
			if asked.Add(sum, x, int(number(b[NonceSize:]))) != nil {
				continue // no column of the table
			}
			reports++
		}
		list = values.Numbers()
		if sizes {
			list = append(list, groups.Numbers()[:groupsOf(q)]...)
			list = append(list, int64(values.Reports()))
		}
		return list, reports, nil
	}
	weight, told := numbers.Scale(int(z.Levels)).Step*float64(z.Levels)/(1-2*float64(z.Levels)*value.Lie()/float64(2*z.Levels-1)), 0.0
	if sizes { // the other half counts for as many
		weight, told = 2*weight, 2/(1-2*size.Lie())
		weight = max(weight, told*math.Abs(numbers.Scale(1).Middle))
	}
	return groupMessenger(r, NonceSize+bytesFor(2*uint64(z.Levels)), z.tallied(q), spoiled(weight, told, sizes), blur, add), nil
}

func (z QA) moments(r *Recipe, sums []int64, reports uint64) (each []sketch.GroupMoments, all sketch.GroupMoments, err error) {
	q, ok := r.Query.(SumsByGroup)
	if !ok {
		return nil, all, errNoGroups
	}
	if err := tallied(sums, z.tallied(q)); err != nil {
		return nil, all, err
	}
	value, size, err := z.questions(q)
	if err != nil {
		return nil, all, err
	}
	groups, n := groupsOf(q), reports
	if z.Asks == AskSizes {
		x := sums[3*groups]
		if x < 0 || uint64(x) > reports {
			return nil, all, fmt.Errorf("recipe: %d of %d answers are about numbers", x, reports)
		}
		n = uint64(x)
	}
	values, err := value.ReadSum(n, sums[:2*groups])
	if err != nil {
		return nil, all, err
	}
	var asked *local.GroupSum
	if z.Asks == AskSizes {
		said := slices.Clone(sums[2*groups : 3*groups])
		for range groups {
			said = append(said, int64(reports-n)) // the squares of 1
		}
		if asked, err = size.ReadSum(reports-n, said); err != nil {
			return nil, all, err
		}
	}
	return values.Moments(asked, q.Numbers(z.Asks == AskSizes).Scale(int(z.Levels)))
}
