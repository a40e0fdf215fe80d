package recipe

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dp/local"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/dp/sketch"
)

// This file is the common ground of [QA] and [RandomizedGroup], by which devices blur
// number and group themselves (docs/proofs/groups.md).

// GroupAsks is what answers to [SumsByGroup] that devices blur are about.
type GroupAsks uint8

const (
	// AskSums: every answer is about the number; by [QA] the result has no sizes.
	AskSums GroupAsks = 1
	// AskSizes: of sizes too, and so of means.
	AskSizes GroupAsks = 2
)

func (a GroupAsks) String() string { return nameOf("group-asks", uint16(a)) }

// SumsByGroup is a [Query] for sums by group: [GroupSums].
type SumsByGroup interface {
	Query
	// Numbers are what devices blur, with sizes or without, as package local has it.
	Numbers(sizes bool) local.GroupNumbers
	// Forecast turns variances over the number of reports into errors of a batch, within so
	// many deviations.
	Forecast(e local.NumberErrors, deviations float64, reports uint64) GroupErrors

	words(result string) string
}

// A GroupRandomizer blurs number and group of [SumsByGroup]. Servers add no noise, and there
// are no proofs.
type GroupRandomizer interface {
	LocalRandomizer
	// Local0 is the local epsilon, and At the same randomizer at another one.
	Local0() Decimal
	At(epsilon0 Decimal) GroupRandomizer
	// Bits is how long an answer is, without the nonce of a question.
	Bits(q SumsByGroup) int
	// Rounded is m: a number is rounded at random to one of 2m values.
	Rounded() uint32
	// Errors are those of a batch, at most, whatever the answers are.
	Errors(q SumsByGroup, deviations float64, reports uint64) (GroupErrors, error)
	// moments are sums and sizes by a tally's numbers.
	moments(r *Recipe, sums []int64, reports uint64) (each []sketch.GroupMoments, all sketch.GroupMoments, err error)
	// tellsSizes says whether the result has sizes of groups.
	tellsSizes() bool
	// Hint says what is known on conditions that nobody checks; it may be empty.
	Hint(q SumsByGroup) string
}

// blursGroups returns how devices blur the answers to sums by group, if they do.
func (r *Recipe) blursGroups() (GroupRandomizer, SumsByGroup, bool) {
	z, ok := r.Randomizer.(GroupRandomizer)
	q, is := r.Query.(SumsByGroup)
	return z, q, ok && is
}

// groupsOf is the number of groups.
func groupsOf(q SumsByGroup) int { return q.Numbers(false).Groups }

// asked refuses what is not asked for sums by group without proofs.
func (v *validator) asked(r *Recipe, epsilon Decimal, asks GroupAsks, levels uint32) (q SumsByGroup, ok bool) {
	if p := r.Path; p != nil && p.Proofs() {
		v.add("randomizer", "is %s, whose answers an analyzer adds up: want the path shuffled or direct", nameOf("randomizer", uint16(r.Randomizer.randomizer())))
	}
	if q, ok = r.Query.(SumsByGroup); !ok {
		if r.Query != nil {
			v.add("query", "is not groups, which %s needs", nameOf("randomizer", uint16(r.Randomizer.randomizer())))
		}
		return q, false
	}
	if !v.local(r, epsilon) {
		return q, false
	}
	if asks != AskSums && asks != AskSizes {
		v.add("randomizer.asks", "is %d, want %d or %d", asks, AskSums, AskSizes)
		return q, false
	}
	a := q.Numbers(asks == AskSizes)
	if err := a.Check(); err != nil {
		v.add("query", "has sums that devices cannot blur: %v", err)
		return q, false
	}
	return q, v.between("randomizer.levels", uint64(levels), 1, uint64(a.MaxLevels()))
}

// parseAsked reads an epsilon, and behind it how many values numbers are rounded to and
// whether sizes are asked for, of which each may be left out with all behind it.
func parseAsked(s string) (epsilon Decimal, levels uint32, asks GroupAsks, err error) {
	parts := strings.Split(s, ":")
	if len(parts) > 3 {
		return epsilon, 0, 0, fmt.Errorf("%q has %d parts, want at most 3: epsilon, the number of values on either side of 0, and sums or sizes", s, len(parts))
	}
	if parts[0] != "" { // else account.New chooses it
		if epsilon, err = ParseDecimal(parts[0]); err != nil {
			return epsilon, 0, 0, err
		}
	}
	asks = AskSizes
	if len(parts) > 1 && parts[1] != "" {
		n, err := strconv.ParseUint(parts[1], 10, 32)
		if err != nil || n == 0 {
			return epsilon, 0, 0, fmt.Errorf("%q is no number of values, 1 or more", parts[1])
		}
		levels = uint32(n)
	}
	if len(parts) > 2 {
		switch parts[2] {
		case "sums":
			asks = AskSums
		case "sizes":
		default:
			return epsilon, 0, 0, fmt.Errorf("%q is neither sums nor sizes", parts[2])
		}
	}
	return epsilon, levels, asks, nil
}

// groupMessenger is that of answers of one message each, which blur makes, and of which
// add adds up those of a batch: it returns how many it took.
func groupMessenger(r *Recipe, size, sums int, spoils string, blur func(b []byte, answer []uint64) error,
	add func(messages [][]byte) ([]int64, uint64, error)) *Messenger {
	m := &Messenger{given: r.Given(), least: r.MinBatch, messages: 1, size: size, sums: sums, whole: r.Whole(), spoils: spoils}
	m.encode = func(answer []uint64) ([][]byte, error) {
		b := make([]byte, size)
		if err := blur(b, answer); err != nil {
			return nil, fmt.Errorf("recipe: messages: %w", err)
		}
		return [][]byte{b}, nil
	}
	m.tally = func(messages [][]byte) (Tally, error) {
		var whole [][]byte
		for _, b := range messages {
			if len(b) == size {
				whole = append(whole, b)
			}
		}
		list, reports, err := add(whole)
		if err != nil {
			return Tally{}, fmt.Errorf("recipe: tally: %w", err)
		}
		return Tally{Sums: list, Reports: reports, Rejected: uint64(len(messages)) - reports}, nil
	}
	return m
}

// spoiled says how far one device that lies moves the sum of a group, and its size; about
// so far, where half of a batch are asked for either.
func spoiled(sum, size float64, halves bool) string {
	about := ""
	if halves {
		about = "about "
	}
	s := fmt.Sprintf("one device that lies counts as one report of any kind, which moves the sum of a group by %s%.4g at most, after the noise is undone", about, sum)
	if size > 0 {
		s += fmt.Sprintf(", and its size by %s%.4g", about, size)
	}
	return s
}

// tallied is whether a tally has as many numbers as wanted.
func tallied(sums []int64, want int) error {
	if len(sums) != want {
		return fmt.Errorf("recipe: %d numbers of sums by group, want %d", len(sums), want)
	}
	return nil
}

var errNoGroups = errors.New("recipe: an answer in a group to no query for sums by group")

// The methods of [LocalRandomizer] that all have.
type groupBlur struct{}

func (groupBlur) given(q Query) Query                          { return q }
func (groupBlur) Proves(Query) (bound, answer uint64, ok bool) { return 0, 0, false }
func (groupBlur) gaussian() Rational                           { return Rational{} }
func (groupBlur) exact() bool                                  { return false }
func (groupBlur) conditions(r *Recipe) []string                { return honestReports(r) }

// counts are none: sums by group are estimated by [Recipe.GroupTable].
func (groupBlur) counts([]int64) ([]int64, error) { return nil, errNoCounts }
func (groupBlur) blurs(*probabilities, Query)     {}

var errNoCounts = errors.New("recipe: answers in groups are not counted place by place")

// anyReport is a report of which nothing but its epsilon is known: the nonce and the table
// that it names are drawn before and beside the answer.
func anyReport(epsilon Decimal) (release.Message, float64, error) {
	return release.AnyReport(epsilon.FloatUp()), 0, nil
}

func addAsked(b *cryptobyte.Builder, epsilon Decimal, levels uint32, asks GroupAsks) {
	addDecimal(b, epsilon)
	b.AddUint32(levels)
	b.AddUint8(uint8(asks))
}
