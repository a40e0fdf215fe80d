package local

import (
	"crypto/sha3"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/starling-agg/starling/internal/outward"
)

// QuestionLie returns the least probability lambda of a lie at which question & answer
// hides the group to epsilon, whatever the distributions of the values:
// (2m-1)/(2m-1+e^epsilon), rounded up. It then is epsilon-LDP for group and value
// together. (Paper 002, remark on lambda.)
func QuestionLie(m int, epsilon float64) (float64, error) {
	return QuestionLieBetween(m, epsilon, 0, 1)
}

// QuestionLieBetween is QuestionLie on a condition: it holds only if each value has a
// probability from least to most in every group, which no draw enforces, and it then
// hides the group alone, not the value. With D = most - least e^epsilon it is
// (2m-1)D/(2mD+e^epsilon-1), rounded up, and 0 if D <= 0. (Paper 002 drops the
// parenthesis around D in the numerator; docs/proofs/groups.md, theorem 3.)
func QuestionLieBetween(m int, epsilon, least, most float64) (float64, error) {
	if err := checkGroups(2, m); err != nil {
		return 0, err
	}
	if err := checkEpsilon(epsilon); err != nil {
		return 0, err
	}
	if err := checkBetween(least, most, m); err != nil {
		return 0, err
	}
	return lieBetween(m, epsilon, least, most), nil
}

// QuestionLieFor is QuestionLieBetween for known distributions, as QuestionEpsilon has
// them: the least lambda, rounded up, at which QuestionEpsilon is at most epsilon.
func QuestionLieFor(distributions [][]float64, epsilon float64) (float64, error) {
	values, err := checkDistributions(distributions)
	if err != nil {
		return 0, err
	}
	if err := checkEpsilon(epsilon); err != nil {
		return 0, err
	}
	lambda := 0.0
	for _, p := range farthest(distributions) {
		lambda = max(lambda, lieBetween(int(values)/2, epsilon, p[1], p[0]))
	}
	return lambda, nil
}

// lieBetween is QuestionLieBetween for any epsilon above 0. It grows with D.
func lieBetween(m int, epsilon, least, most float64) float64 {
	other := least * math.Exp(epsilon)
	d, v := most-other+outward.Off(most, other), float64(2*m)
	if d <= 0 {
		return 0
	}
	return outward.Above((v - 1) * d / (v*d + math.Expm1(epsilon)))
}

// A Question is question & answer: the device looks up a table with a row for each group,
// a permutation of the 2m values, and names the column in which its group's row holds its
// value, or a lie. A value that it always gives as 1, with m = 1, asks for the sizes of
// the groups. It is safe for concurrent use.
type Question struct {
	groups, m int
	response  *Response
}

// NewQuestion returns question & answer for a number of groups and values +-1..+-m that
// is epsilon-LDP, for replacement, for group and value together.
func NewQuestion(groups, m int, epsilon float64) (*Question, error) {
	if err := checkGroups(groups, m); err != nil {
		return nil, err
	}
	r, err := NewResponse(2*m, epsilon)
	if err != nil {
		return nil, err
	}
	return &Question{groups, m, r}, nil
}

// NewQuestionLying is NewQuestion for a probability lambda of a lie, at least 0 and below
// (2m-1)/(2m).
func NewQuestionLying(groups, m int, lambda float64) (*Question, error) {
	if err := checkGroups(groups, m); err != nil {
		return nil, err
	}
	r, err := NewResponseLying(2*m, lambda)
	if err != nil {
		return nil, err
	}
	return &Question{groups, m, r}, nil
}

// A Query names the table of one device in one collection. Both parts are public. Privacy
// does not depend on them; that the estimates are as stated does: the nonce must be fresh
// for each answer, and not of the device's own choice.
type Query struct {
	// Recipe is the identifier of the recipe, or of any other agreement on the question.
	Recipe [32]byte
	// Nonce is the device's own, as a report ID is.
	Nonce [16]byte
}

const (
	rowDomain  = "starling question row"
	sizeDomain = "starling question of size"
)

// OfSize says whether the device of this query is asked for its group alone, by the
// question of m = 1 that it answers with the value 1, and else for its value: one half of
// all nonces each, by the first bit of cSHAKE128 of recipe and nonce.
func (q Query) OfSize() bool {
	h := sha3.NewCSHAKE128(nil, []byte(sizeDomain))
	_, _ = h.Write(q.Recipe[:]) // never fails
	_, _ = h.Write(q.Nonce[:])
	var first [1]byte
	_, _ = h.Read(first[:])
	return first[0]>>7 == 1
}

// tables deals the rows of a query, one after the other.
type tables struct {
	named *sha3.SHAKE // recipe and nonce are written
	row   sha3.SHAKE
	s     source
}

func (q *Question) table(query Query) *tables {
	t := &tables{named: sha3.NewCSHAKE128(nil, []byte(rowDomain))}
	_, _ = t.named.Write(query.Recipe[:]) // never fails
	_, _ = t.named.Write(query.Nonce[:])
	t.s = *newSource(&t.row, 2*q.m-1)
	return t
}

// of returns the draws of a row: those of Fisher and Yates, with rejection, from
// cSHAKE128 of recipe, nonce and the row's number in four bytes, most significant first.
// They are read before the next row is asked for.
func (t *tables) of(group int) *source {
	var number [4]byte
	binary.BigEndian.PutUint32(number[:], uint32(group))
	t.row = *t.named
	_, _ = t.row.Write(number[:])
	t.s.pos = t.s.size
	return &t.s
}

// The i-th draw of a row, 1 <= i < n, is a uniform integer j in 0..i, and exchanges i and
// j. All exchanges in turn take a column to the index of its value; in reverse, an index
// to its column. Each permutation of 0..n-1 has exactly one such list of exchanges.

// indexIn returns the index of the value in a column of a row, of n. It keeps no row.
func (s *source) indexIn(column, n uint64) uint64 {
	at := column
	for i := uint64(1); i < n; i++ {
		switch j := s.uniform(i + 1); at {
		case i:
			at = j
		case j:
			at = i
		}
	}
	return at
}

// columnOf returns the column of a row, of n, in which the value of this index is,
// without a branch or an address that depends on it.
func (s *source) columnOf(index, n uint64) uint64 {
	draws := make([]uint64, n)
	for i := uint64(1); i < n; i++ {
		draws[i] = s.uniform(i + 1)
	}
	at := index
	for i := n - 1; i >= 1; i-- {
		at = choose(equal(at, i), draws[i], choose(equal(at, draws[i]), i, at))
	}
	clear(draws) // they tell the group
	return at
}

// Randomize returns the answer, a column 0..2m-1, of a device of this group with this
// value, to the query. Only the row of its own group is computed. That a draw of the row
// is repeated, which happens with probability m^2/2^63 at most, may show.
func (q *Question) Randomize(query Query, group, value int) (int, error) {
	if err := checkMember(group, value, q.groups, q.m); err != nil {
		return 0, err
	}
	s := newSource(q.response.src, 2)
	defer s.wipe()
	said := q.response.answer(s, indexOf(value, q.m))
	row := q.table(query).of(group)
	defer row.wipe()
	return int(row.columnOf(said, uint64(2*q.m))), nil
}

// Bits returns the length of an answer, the least number of bits that hold a column.
func (q *Question) Bits() int { return bits.Len(uint(2*q.m - 1)) }

// Lie returns lambda, as it is drawn.
func (q *Question) Lie() float64 { return q.response.LieProbability() }

// scale is c = (2m-1)/(2m-2m lambda-1), one over the difference of truth and lie.
func (q *Question) scale() float64 {
	_, _, gap := q.response.rates()
	return 1 / gap
}

// Epsilon returns a local epsilon for group and value together, rounded up; that of the
// randomized response inside. For deletion the reference is a uniform column.
func (q *Question) Epsilon(about Relation) float64 { return q.response.Epsilon(about) }

// Variance returns the variance that each report adds to an estimated sum if held is the
// fraction of devices in that group and meanSquare is E v^2 over them.
func (q *Question) Variance(held, meanSquare float64) float64 {
	c := q.scale()
	own := c*c*q.response.secondMoment(q.m, meanSquare) - meanSquare
	return held*own + (1-held)*c*c*meanSquareOf(q.m)
}

// NewSum returns an empty sum of answers.
func (q *Question) NewSum() *GroupSum {
	_, _, gap := q.response.rates()
	return newSum(q.groups, q.m, gap, 1, 1)
}

// Add counts the answer of a device to its query: it adds the column to the sums. It
// takes time proportional to groups times m, and no memory.
func (q *Question) Add(sum *GroupSum, query Query, column int) error {
	if column < 0 || column >= 2*q.m {
		return parameter("column", float64(column), "0 to twice the largest value less one")
	}
	_, _, gap := q.response.rates()
	if err := sum.check(q.groups, q.m, gap, 1); err != nil {
		return err
	}
	table := q.table(query)
	for g := range sum.values {
		sum.add(g, valueAt(table.of(g).indexIn(uint64(column), uint64(2*q.m)), q.m))
	}
	sum.n++
	return nil
}

// QuestionAlpha is n times the normalised mean square error of question & answer, summed
// over the groups, for E v^2 = meanSquare (paper 002, theorem 1; docs/proofs/groups.md,
// theorem 1):
//
//	2m lambda E v^2/(2m-2m lambda-1) + (4m^2-1)(m+1)[(2m-1)(groups-1)+2m lambda]/(6(2m-2m lambda-1)^2)
func QuestionAlpha(m, groups int, lambda, meanSquare float64) float64 {
	f, k := float64(m), float64(groups)
	d := 2*f - 2*f*lambda - 1
	return 2*f*lambda*meanSquare/d + (4*f*f-1)*(f+1)*((2*f-1)*(k-1)+2*f*lambda)/(6*d*d)
}

// QuestionEpsilon returns how well question & answer hides the group if a device of group
// g has the value of index i (-m first) with probability distributions[g][i]: the largest
// ratio over different groups and any values of (2m(1-lambda)-1) p + lambda, rounded up;
// +Inf if one is 0. (Paper 002, equation 9.)
func QuestionEpsilon(distributions [][]float64, lambda float64) (float64, error) {
	values, err := checkDistributions(distributions)
	if err != nil {
		return 0, err
	}
	if !(lambda >= 0 && lambda < (values-1)/values) {
		return 0, parameter("probability of a lie", lambda, "0 or more and below (2m-1)/(2m)")
	}
	worst, weight := 0.0, values*(1-lambda)-1
	for _, p := range farthest(distributions) {
		if weight*p[1]+lambda == 0 {
			return math.Inf(1), nil
		}
		worst = max(worst, logUp((weight*p[0]+lambda)/(weight*p[1]+lambda)))
	}
	return outward.Up(worst), nil
}

// QuestionEpsilonBetween is QuestionEpsilon on the condition of [QuestionLieBetween]: how
// well lies of probability lambda hide the group, and not the value, if each value has a
// probability from least to most in every group, which no draw enforces.
func QuestionEpsilonBetween(m int, lambda, least, most float64) (float64, error) {
	if err := checkGroups(2, m); err != nil {
		return 0, err
	}
	if err := checkBetween(least, most, m); err != nil {
		return 0, err
	}
	values := float64(2 * m)
	if !(lambda >= 0 && lambda < (values-1)/values) {
		return 0, parameter("probability of a lie", lambda, "0 or more and below (2m-1)/(2m)")
	}
	weight := values*(1-lambda) - 1
	if weight*least+lambda == 0 {
		return math.Inf(1), nil
	}
	return outward.Up(logUp((weight*most + lambda) / (weight*least + lambda))), nil
}

// farthest returns pairs of the probabilities of a value in one group and of one in
// another, the larger first, among which are those of the largest ratio.
func farthest(distributions [][]float64) (pairs [][2]float64) {
	// The answers likeliest and least likely to be a group's, each with the runner-up of
	// another group.
	var most, least [2]struct {
		p     float64
		group int
	}
	least[0].p, least[1].p = math.Inf(1), math.Inf(1)
	for g, distribution := range distributions {
		if p := slices.Max(distribution); p > most[0].p {
			most[1], most[0].p, most[0].group = most[0], p, g
		} else if p > most[1].p {
			most[1].p, most[1].group = p, g
		}
		if p := slices.Min(distribution); p < least[0].p {
			least[1], least[0].p, least[0].group = least[0], p, g
		} else if p < least[1].p {
			least[1].p, least[1].group = p, g
		}
	}
	for _, a := range most {
		for _, b := range least {
			if a.group != b.group {
				pairs = append(pairs, [2]float64{a.p, b.p})
			}
		}
	}
	return pairs
}
