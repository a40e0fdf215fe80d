package recipe

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
)

// A Query says what is computed. Each has a file of its own, with all that there is to
// say of it: [Count], [Sum], [Mean], [Histogram], [Multihot], [SumVec], [L1BoundSum],
// [Quantiles], [GroupSums], [Hierarchy], [HeavyHitters], [Distinct], [Norm] and [Vector].
type Query interface {
	fmt.Stringer

	// Form is how an answer is given.
	Form() Form
	// Wanted says what is an answer, as "a number from 0 to 5".
	Wanted() string
	// Holds says whether these are the numbers of an answer, of every form but [Reals], in
	// time that depends on how many there are alone.
	Holds(numbers []uint64) bool
	// Add adds the numbers of a record to those of a sum, which stays an answer, in time
	// that depends on how many there are alone. It leaves [Bucket] and [Reals] as they
	// are.
	Add(sum, record []uint64)
	// MadeUp makes up the numbers of an answer, each value twice as likely as the next,
	// up to the largest: coins returns how many tails came before the first head. It is
	// nil for [Reals].
	MadeUp(coins func() uint64) []uint64

	// Aggregates is the number of integers that a collection returns, before noise is
	// accounted for.
	Aggregates() int
	// VDAFConfig is the configuration of the verifiable aggregation function that
	// computes it.
	VDAFConfig() dap.VDAFConfig
	// Contribution is what one report can add to the aggregate.
	Contribution() release.Contribution

	// Largest is the most that one report can add to one number of the aggregate.
	Largest() float64
	// Unit is what 1 of the aggregate stands for in the result.
	Unit() float64
	// Averages says that the result is a mean: the sum over the number of reports.
	Averages() bool
	// Counts says that each number of the result is how many have a property.
	Counts() bool
	// Choices is how many answers there are of which each device gives one, in counts of
	// answers; 0 for other queries.
	Choices() uint64
	// Part says what one number of the result is, as "the sum".
	Part() string

	query() uint8
	append(b *cryptobyte.Builder)
	// params are those of the JSON form, nil for none.
	params() any
	validate(v *validator)
	// withChunk fills in the chunk length of the proof that makes reports shortest.
	withChunk() Query
	// spread bounds the variance that answers whose sum is x have beside their number.
	spread(x, answers float64) float64
}

// Marked is a Query whose answers are encoded as zeros and ones, which
// Prio3MultihotCountVec takes.
type Marked interface {
	Query
	// Marks are the ones that encode the numbers of an answer, in time that depends on how
	// many there are alone.
	Marks(numbers []uint64) []bool
}

// Encoded is a Query whose answers are encoded as other whole numbers, which
// Prio3L1BoundSum takes.
type Encoded interface {
	Query
	// Encode returns the numbers that encode those of an answer, in time that depends on
	// how many there are alone.
	Encode(numbers []uint64) []uint64
}

// A Form is how the answer to a query is given: as one number, but for [Numbers] and
// [Reals], of which there are as many as the query has places, [Grouped], which is two, and
// [Text].
type Form uint8

const (
	YesOrNo Form = iota + 1 // 1 or 0
	Number
	Bucket // from 0 on
	Numbers
	Reals   // finite numbers that need not be whole
	Grouped // a number, in two's complement as it may be below 0, and a group from 0 on
	Text    // the numbers that a [Tabled] query spells a text by
)

// A queryKind is how a query is read from its bytes and, behind the name that is typed,
// made of its numbers, or parsed where these are not all from 0 on.
type queryKind struct {
	tag     uint8
	read    func(d *decoder) Query
	typed   string
	numbers int
	make    func(n []uint64) Query
	parse   func(rest string) (Query, error)
}

// queries are those that this version knows.
var queries = []queryKind{
	{tagCount, func(*decoder) Query { return Count{} }, "count", 0, func([]uint64) Query { return Count{} }, nil},
	{tagSum, func(d *decoder) Query { return Sum{d.u64("max")} }, "sum", 1, func(n []uint64) Query { return Sum{n[0]} }, nil},
	{tagMean, func(d *decoder) Query { return Mean{d.u64("max")} }, "mean", 1, func(n []uint64) Query { return Mean{n[0]} }, nil},
	{tagHistogram, readHistogram, "histogram", 1, func(n []uint64) Query { return Histogram{Length: uint32(n[0])} }, nil},
	{tagMultihot, readMultihot, "multihot", 2, func(n []uint64) Query { return Multihot{Length: uint32(n[0]), MaxWeight: n[1]} }, nil},
	{tagSumVec, readSumVec, "sumvec", 2, func(n []uint64) Query { return SumVec{Length: uint32(n[0]), Max: n[1]} }, nil},
	{tagL1BoundSum, readL1BoundSum, "l1", 2, func(n []uint64) Query { return L1BoundSum{Length: uint32(n[0]), Max: n[1]} }, nil},
	{tagQuantiles, readQuantiles, "quantiles", 4, typedQuantiles, nil},
	{tagVector, readVector, "vector", 0, nil, parseVector},
	{tagGroupSums, readGroupSums, "groups", 0, nil, parseGroupSums},
	{tagHierarchy, readHierarchy, "hierarchy", 0, nil, parseHierarchy},
	{tagHitters, readHitters, "hitters", 0, nil, parseHitters},
	{tagDistinct, readDistinct, "distinct", 0, nil, parseDistinct},
	{tagNorm, readNorm, "norm", 0, nil, parseNorm},
}

func readQuery(tag uint8, d *decoder) (Query, bool) {
	for _, q := range queries {
		if q.tag == tag {
			return q.read(d), true
		}
	}
	return nil, false
}

// maxTyped keeps lengths that are typed where the numbers of a recipe hold them.
const maxTyped = 1 << 31

// ParseQuery reads a name with its numbers, as in count, sum:MAX, mean:MAX,
// histogram:LENGTH, multihot:LENGTH:WEIGHT, sumvec:LENGTH:MAX, l1:LENGTH:MAX,
// quantiles:MIN:MAX:WIDTH:BRANCHING, groups:MIN:MAX:GROUPS, hierarchy:TREE or
// hierarchy:FLOOR:TREE, hitters:ALPHABET:LETTERS:MOST or
// hitters:ALPHABET:LETTERS:STEP:CHECKS:WIDTH:SEED, distinct:WIDTH or distinct:WIDTH:SEED,
// norm:WIDTH or norm:WIDTH:SEED, and vector:LENGTH:NORM:BITS or
// vector:LENGTH:NORM:BITS:PROOF. A tree is names, each with what is below it in brackets:
// north(east,west,*other),south(a,b). The lengths of chunks are left to [WithChunk].
func ParseQuery(s string) (Query, error) {
	name, rest, _ := strings.Cut(s, ":")
	i := slices.IndexFunc(queries, func(q queryKind) bool { return q.typed == name })
	if i >= 0 && queries[i].parse != nil {
		return queries[i].parse(rest)
	}
	var n []uint64
	for _, part := range strings.Split(rest, ":") {
		if part == "" && rest == "" {
			break
		}
		v, err := strconv.ParseUint(part, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", part)
		}
		n = append(n, v)
	}
	if i < 0 {
		return nil, fmt.Errorf("%q is not a query; want count, sum, mean, histogram, multihot, sumvec, l1, quantiles, groups, hierarchy, hitters, distinct, norm or vector", s)
	}
	q := queries[i]
	if len(n) != q.numbers {
		return nil, fmt.Errorf("%s takes %s, as in %q", name, count(uint64(q.numbers), "number", "numbers"), name+strings.Repeat(":8", q.numbers))
	}
	made := q.make(n)
	if form := made.Form(); form != YesOrNo && form != Number && n[0] > maxTyped {
		return nil, fmt.Errorf("%d is too long", n[0])
	}
	return made, nil
}

// number32 reads a number of 32 bits.
func number32(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number below 2^32", s)
	}
	return uint32(n), nil
}

// WithChunk fills in the chunk length that makes reports shortest.
func WithChunk(q Query) Query {
	if q == nil {
		return nil
	}
	return q.withChunk()
}

func (v *validator) query(q Query) {
	if q == nil {
		v.add("query", "is missing")
		return
	}
	q.validate(v)
}

// Whole says whether results rest on every contribution's being an answer, as those do that
// count on how many there are. A device that has none then sends nothing.
func (r *Recipe) Whole() bool {
	_, ok := r.Query.(interface{ whole() string })
	return ok
}

// wholeBatch refuses coins where a result rests on the number of answers, which is known
// where each report is one.
func (v *validator) wholeBatch(r *Recipe) {
	if q, ok := r.Query.(interface{ whole() string }); ok && r.Sampled() {
		v.add("query", "needs all who are asked to report: %s", q.whole())
	}
}

// expectedErrors says how far off the numbers are that a query computes of those that are
// released; it is empty for other queries.
func (r *Recipe) expectedErrors() string {
	if q, ok := r.Query.(interface{ expected(r *Recipe) string }); ok {
		return q.expected(r)
	}
	return ""
}

// VDAFConfig returns the configuration of the verifiable aggregation function that computes
// the query.
func (r *Recipe) VDAFConfig() (dap.VDAFConfig, error) {
	if r.Query == nil {
		return nil, errors.New("recipe: the query is missing")
	}
	return r.Query.VDAFConfig(), nil
}
