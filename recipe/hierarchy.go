package recipe

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/text/unicode/norm"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/dp/sketch"
)

// Bounds of a [Hierarchy].
const (
	MaxPlaces = 4096
	MaxDepth  = 16
)

// Hierarchy asks each device for a leaf of a tree of places with names, as a region in a
// country or an hour in a day; the answer is how many there are at each place of every
// level ([Recipe.Table]), which add up. A device marks its leaf and every place above it
// (Prio3MultihotCountVec, whose weight bound is the levels). A device that does not follow
// may mark as many places elsewhere, once each.
type Hierarchy struct {
	// Places are depth first, each before those below it.
	Places []TreePlace
	// Floor is the least count that is shown; of what is less, and of all below it, the
	// table says that it is suppressed. It is for readers: privacy is the noise's, and what
	// is suppressed beside siblings that are shown can be worked out.
	Floor uint32
	Chunk uint32 // of the proof, 1 to the places + bits(levels)
}

// A TreePlace is a node of a [Hierarchy].
type TreePlace struct {
	Depth uint8  // 1 at the top
	Label string // in UTF-8 in normal form NFC, 1 to MaxLabel bytes, without "/"
	// Rest: it holds everything else below its parent, and for answers that name no place
	// there. It is a leaf and the last of its siblings.
	Rest bool
}

func (q Hierarchy) String() string {
	levels, leaves := q.levels(), 0
	for i := range q.Places {
		if q.leaf(i) {
			leaves++
		}
	}
	text := fmt.Sprintf("each device names one of %s of a tree; the result is how many devices are at each of its %s, in %s that add up",
		count(uint64(leaves), "leaf", "leaves"), count(uint64(len(q.Places)), "place", "places"), count(uint64(levels), "level", "levels"))
	if q.Floor > 0 {
		text += fmt.Sprintf("; what is counted less than %d times is not shown", q.Floor)
	}
	return text
}

// levels is the number of the deepest.
func (q Hierarchy) levels() (most int) {
	for _, p := range q.Places {
		most = max(most, int(p.Depth))
	}
	return most
}

// leaf says whether nothing is below a place.
func (q Hierarchy) leaf(i int) bool {
	return i+1 == len(q.Places) || q.Places[i+1].Depth <= q.Places[i].Depth
}

// leaves are the places without any below them, by their numbers.
func (q Hierarchy) leaves() (list []int) {
	for i := range q.Places {
		if q.leaf(i) {
			list = append(list, i)
		}
	}
	return list
}

// parents are those of all places, -1 at the top. It fails unless depths begin with 1 and
// rise by 1 at most.
func (q Hierarchy) parents() ([]int, error) {
	list, above := make([]int, len(q.Places)), []int{-1}
	for i, p := range q.Places {
		if p.Depth < 1 || int(p.Depth) > len(above) {
			return nil, fmt.Errorf("recipe: place %d has depth %d below one of depth %d", i, p.Depth, len(above)-1)
		}
		above = above[:p.Depth]
		list[i] = above[p.Depth-1]
		above = append(above, i)
	}
	return list, nil
}

// path is the name of a place behind those of all above it.
func (q Hierarchy) path(parents []int, i int) string {
	parts := []string{q.Places[i].Label}
	for i = parents[i]; i >= 0; i = parents[i] {
		parts = append(parts, q.Places[i].Label)
	}
	slices.Reverse(parts)
	return strings.Join(parts, "/")
}

// Form is [Text].
func (Hierarchy) Form() Form { return Text }

func (q Hierarchy) Wanted() string {
	return "the path of a leaf, as " + q.example()
}

// example is the path of the first leaf.
func (q Hierarchy) example() string {
	parents, err := q.parents()
	if leaves := q.leaves(); err == nil && len(leaves) > 0 {
		return q.path(parents, leaves[0])
	}
	return "north/east"
}

// Spell finds the leaf that a path names, from the top, with "/" between names. Names
// that are not there go to the place of everything else beside them.
func (q Hierarchy) Spell(text string) ([]uint64, bool) {
	i := q.find(norm.NFC.String(text), true)
	if i < 0 {
		return nil, false
	}
	leaf := uint64(0)
	for j := range i {
		if q.leaf(j) {
			leaf++
		}
	}
	return []uint64{leaf}, true
}

// find is the place that a path names, or with rest the leaf that it belongs to; -1 if none.
func (q Hierarchy) find(path string, rest bool) int {
	parts := strings.Split(path, "/")
	at, next := -1, 0 // a place, and the first below it
	for depth := 1; ; depth++ {
		if at >= 0 && (q.leaf(at) || !rest && len(parts) < depth) {
			if len(parts) < depth || rest && q.Places[at].Rest {
				return at
			}
			return -1
		}
		found := -1
		for i := next; i < len(q.Places) && int(q.Places[i].Depth) >= depth; i++ {
			p := q.Places[i]
			if int(p.Depth) == depth && (len(parts) >= depth && p.Label == parts[depth-1] || rest && p.Rest) {
				found = i // the rest is last
				break
			}
		}
		if found < 0 {
			return -1
		}
		at, next = found, found+1
	}
}

// Holds says whether it is the number of a leaf.
func (q Hierarchy) Holds(x []uint64) bool {
	n := len(q.leaves())
	return len(x) == 1 && n > 0 && within(x, uint64(n)-1)
}

// Add leaves the sum as it is: leaves have none.
func (Hierarchy) Add(_, _ []uint64) {}

// MadeUp is most often the first leaf.
func (q Hierarchy) MadeUp(coins func() uint64) []uint64 {
	return []uint64{min(coins(), uint64(len(q.leaves()))-1)}
}

// Aggregates is the number of places.
func (q Hierarchy) Aggregates() int { return len(q.Places) }

// Marks says of each place whether the leaf is there or below it, in time that does not
// depend on the leaf.
func (q Hierarchy) Marks(numbers []uint64) []bool {
	parents, err := q.parents()
	if err != nil {
		return nil
	}
	marks, leaf := make([]bool, len(q.Places)), uint64(0)
	for i := range marks {
		if q.leaf(i) {
			_, below := bits.Sub64(0, leaf^numbers[0], 0) // 0 where they are the same
			marks[i] = below == 0
			leaf++
		}
	}
	for i := len(marks) - 1; i >= 0; i-- {
		if p := parents[i]; p >= 0 {
			marks[p] = marks[p] != marks[i] // one at most is set
		}
	}
	return marks
}

// VDAFConfig is that of Prio3MultihotCountVec.
func (q Hierarchy) VDAFConfig() dap.VDAFConfig {
	return dap.MultihotCountVecConfig{Length: uint32(len(q.Places)), MaxWeight: uint64(q.levels()), ChunkLength: q.Chunk}
}

// Contribution is 1 in as many places as there are levels: a device marks one of each.
func (q Hierarchy) Contribution() release.Contribution {
	return release.MultiHotOf(uint64(len(q.Places)), uint64(q.levels()))
}

func (Hierarchy) Largest() float64 { return 1 }
func (Hierarchy) Unit() float64    { return 1 }
func (Hierarchy) Averages() bool   { return false }
func (Hierarchy) Counts() bool     { return true }
func (Hierarchy) Choices() uint64  { return 0 }
func (Hierarchy) Part() string     { return "each count" }

// fit is that of counts, in units of the noise's variance, which is that of each sum.
func (q Hierarchy) fit() (*sketch.Fit, []int, error) {
	parents, err := q.parents()
	if err != nil {
		return nil, nil, err
	}
	f, err := sketch.NewFit(parents, slices.Repeat([]float64{1}, len(parents)))
	return f, parents, err
}

// FitVariance is the largest variance of a count, over that of the noise in each sum.
func (q Hierarchy) FitVariance() float64 {
	f, _, err := q.fit()
	if err != nil {
		return 1
	}
	return f.LargestVariance()
}

// expected says how many places a device marks, and the largest error of a count.
func (q Hierarchy) expected(r *Recipe) string {
	n := r.Blurred(r.usual())
	return fmt.Sprintf("a device marks at most %d of %d places; the noise puts each count off by at most %.3g, with probability 95 %%",
		q.levels(), len(q.Places), interval(n, 0, deviation(n, q.FitVariance()))[1])
}

func (Hierarchy) whole() string { return "tables of a secret sample are not estimated" }

// Tabulate has a cell for each place in its order, whose counts are the least squares fit of
// the released sums to one another and to the number of reports, with exact variances.
func (q Hierarchy) Tabulate(n Spread, sums []int64, reports uint64, asked []string) (*Table, error) {
	f, parents, err := q.fit()
	if err != nil {
		return nil, err
	}
	counts, err := f.Counts(sums, reports)
	if err != nil {
		return nil, err
	}
	t := new(Table)
	for i, v := range f.Variances() {
		c := cell(n, counts[i], deviation(n, v))
		above := parents[i] >= 0 && t.Rows[parents[i]].Cell.State == sketch.Suppressed
		if above || q.Floor > 0 && c.Estimate < float64(q.Floor) {
			c = empty(sketch.Suppressed)
		}
		t.Rows = append(t.Rows, TableRow{q.path(parents, i), int(q.Places[i].Depth), c})
	}
	for _, text := range asked {
		row := TableRow{Label: text, Cell: empty(sketch.None)}
		if i := q.find(norm.NFC.String(text), false); i >= 0 {
			row = t.Rows[i]
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}

func (Hierarchy) query() uint8 { return tagHierarchy }

// restBit marks the depth of a place that holds everything else.
const restBit = 0x80

func (q Hierarchy) append(b *cryptobyte.Builder) {
	b.AddUint32(q.Floor)
	b.AddUint32(q.Chunk)
	for _, p := range q.Places {
		if p.Depth >= restBit {
			b.SetError(errors.New("a place is too deep"))
		}
		if p.Rest {
			p.Depth |= restBit
		}
		b.AddUint8(p.Depth)
		b.AddUint8LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(p.Label)) })
	}
}

func readHierarchy(d *decoder) Query {
	q := Hierarchy{Floor: d.u32("floor"), Chunk: d.u32("chunk")}
	for d.err == nil && !d.s.Empty() {
		depth := d.u8("depth")
		q.Places = append(q.Places, TreePlace{depth &^ restBit, string(d.bytes8("label")), depth&restBit != 0})
		if len(q.Places) > MaxPlaces {
			d.fail(fmt.Sprintf("more than %d places", MaxPlaces))
		}
	}
	return q
}

// parseHierarchy is of [FLOOR:]TREE, where a tree is names with commas between them, each
// with what is below it in brackets; a name behind * holds everything else.
func parseHierarchy(s string) (Query, error) {
	q := Hierarchy{}
	if floor, rest, ok := strings.Cut(s, ":"); ok {
		n, err := number32(floor)
		if err != nil {
			return nil, err
		}
		q.Floor, s = n, rest
	}
	depth, label := uint8(1), ""
	after := false // a bracket: no name is wanted here
	end := func() error {
		name, rest := strings.CutPrefix(strings.TrimSpace(label), "*")
		label = ""
		switch {
		case name == "" && after:
			return nil
		case name == "" || after:
			return fmt.Errorf("a name of the tree is missing or has no comma before it, after %d places", len(q.Places))
		case len(q.Places) == MaxPlaces:
			return fmt.Errorf("the tree has more than %d places", MaxPlaces)
		}
		q.Places = append(q.Places, TreePlace{depth, norm.NFC.String(name), rest})
		return nil
	}
	for _, c := range s {
		switch c {
		case '(', ',', ')':
			if c == '(' && after {
				return nil, errors.New("a bracket of the tree opens behind one that closes")
			}
			if err := end(); err != nil {
				return nil, err
			}
			after = c == ')'
			switch c {
			case '(':
				depth++
			case ')':
				depth--
			}
			if depth < 1 || depth > MaxDepth {
				return nil, fmt.Errorf("brackets of the tree do not match, or are more than %d deep", MaxDepth)
			}
		default:
			label += string(c)
		}
	}
	if err := end(); err != nil {
		return nil, err
	}
	if depth != 1 {
		return nil, errors.New("a bracket of the tree is not closed")
	}
	return q, nil
}

func (q Hierarchy) params() any {
	parents, err := q.parents()
	type place struct {
		Path string `json:"path"`
		Rest bool   `json:"rest,omitempty"`
	}
	list := make([]place, 0, len(q.Places))
	for i, p := range q.Places {
		if err == nil {
			list = append(list, place{q.path(parents, i), p.Rest})
		}
	}
	return map[string]any{"places": list, "floor": q.Floor, "chunk": q.Chunk}
}

func (q Hierarchy) validate(v *validator) {
	if !v.between("query.places", uint64(len(q.Places)), 2, MaxPlaces) {
		return
	}
	parents, err := q.parents()
	if err != nil || q.levels() > MaxDepth {
		v.add("query.places", "are no tree of at most %d levels, each place behind the one above it", MaxDepth)
		return
	}
	type name struct {
		parent int
		label  string
	}
	seen, children, rest := make(map[name]bool), make(map[int]int), make(map[int]bool)
	for i, p := range q.Places {
		field := fmt.Sprintf("query.places[%d]", i)
		v.text(field, p.Label, 1, MaxLabel, false)
		if !norm.NFC.IsNormalString(p.Label) || strings.Contains(p.Label, "/") {
			v.add(field, "is not in the normal form NFC of Unicode, or has a / in it")
		}
		up := parents[i]
		if seen[name{up, p.Label}] {
			v.add(field, "has the name of another place beside it")
		}
		if rest[up] {
			v.add(field, "stands behind the place of everything else")
		}
		if p.Rest && !q.leaf(i) {
			v.add(field, "is the place of everything else, and has others below it")
		}
		seen[name{up, p.Label}], rest[up] = true, rest[up] || p.Rest
		children[up]++
	}
	for i := -1; i < len(q.Places); i++ {
		if (i < 0 || !q.leaf(i)) && children[i] < 2 {
			v.add("query.places", "have one place alone below place %d, which says the same", i)
		}
	}
	v.between("query.floor", uint64(q.Floor), 0, math.MaxInt32)
	v.between("query.chunk", uint64(q.Chunk), 1, q.elements())
}

// elements is the number of field elements that encode one answer.
func (q Hierarchy) elements() uint64 {
	return uint64(len(q.Places) + bits.Len(uint(q.levels())))
}

func (q Hierarchy) withChunk() Query {
	q.Chunk = chunk(q.Chunk, max(1, q.elements()))
	return q
}

func (Hierarchy) spread(x, _ float64) float64 { return x }
