package sketch

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Bounds of a [Strings].
const (
	MaxLetters  = 64
	MaxAlphabet = 255
	// MaxChildren bounds by how many beginnings a search goes on from each.
	MaxChildren = 1 << 16
	// FrequentRoom is how many cells a row has for each frequent string where rare ones are
	// like noise; in narrower rows those that are nearly frequent stand in too many cells for
	// the bound on false finds (docs/bench/sketches.md).
	FrequentRoom = 512
	// mostTests bounds the beginnings that are looked at in one row: the frequent ones
	// first.
	mostTests = 1 << 22
)

// ErrStrings is matched by every error about the shape of a sketch of strings, and by a
// search that it is not made for.
var ErrStrings = errors.New("sketch: no such sketch of strings")

// A Strings is a sketch that counts strings, of which it finds the frequent ones without a
// list of them. Each row has Width cells. One person marks a cell of each row: that of the
// first Step letters of their string, of the first 2*Step, and so on, and Checks times, by
// other hashes, that of the whole string.
//
// A search goes down the tree of beginnings, and on from those alone whose cell is above
// what noise reaches. Of all ways at one price it needs the fewest marks a person; see
// docs/bench/sketches.md for the others.
type Strings struct {
	// Alphabet is how many letters there are. A string is numbers from 1 to Alphabet, and
	// 0 behind its end.
	Alphabet int
	Letters  int // the most of a string, 1 to MaxLetters
	Step     int // letters that a row tells more than the row before, 1 to Letters
	Checks   int // rows of whole strings, 1 to 4; 2 or more for a search
	Width    int // cells of a row, 2 or more; rows * Width is at most MaxLeaves
	Hash     Hash
}

// Validate fails unless the sketch is within its bounds.
func (s Strings) Validate() error {
	switch {
	case s.Alphabet < 1 || s.Alphabet > MaxAlphabet || s.Letters < 1 || s.Letters > MaxLetters || s.Step < 1 || s.Step > s.Letters ||
		s.Checks < 1 || s.Checks > 4 || s.Width < 2 || s.Width > MaxLeaves/s.Rows():
		return fmt.Errorf("%w: %+v", ErrStrings, s)
	}
	return nil
}

// levels is the number of lengths of beginnings.
func (s Strings) levels() int { return (s.Letters + s.Step - 1) / s.Step }

// Rows is how many cells one person marks.
func (s Strings) Rows() int { return s.levels() - 1 + s.Checks }

// Cells is the number of cells of all rows.
func (s Strings) Cells() int { return s.Rows() * s.Width }

// children bounds how many beginnings go on from one, in float64 as it may be huge.
func (s Strings) children() float64 { return math.Pow(float64(s.Alphabet), float64(s.Step)) * 1.1 }

// Searches says whether frequent strings can be found, and not only asked for.
func (s Strings) Searches() bool {
	return s.Checks >= 2 && math.Pow(float64(s.Alphabet+1), float64(s.Step)) <= MaxChildren
}

// ends is how many letters a row tells.
func (s Strings) ends(row int) int { return min((row+1)*s.Step, s.Letters) }

// Holds says whether the letters are a string, in time that depends on how many there are
// alone.
func (s Strings) Holds(letters []uint64) bool {
	ok := len(letters) == s.Letters
	ended, bad := uint64(0), uint64(0)
	for _, x := range letters {
		over, zero := (uint64(s.Alphabet)-x)>>63, (x-1)>>63 // of x below 2^32
		bad |= over | x>>32 | ended&(1-zero)
		ended |= zero
	}
	return ok && bad == 0
}

// key is the beginning of a string that a row hashes.
func (s Strings) key(row int, letters []byte) []byte { return letters[:s.ends(row)] }

// cell is where a string is in all cells.
func (s Strings) cell(row int, letters []byte) int {
	return row*s.Width + int(s.Hash.Cell(uint32(row), s.key(row, letters), uint64(s.Width)))
}

// Marks are the cells of a string that Holds, in time that does not depend on it.
func (s Strings) Marks(letters []uint64) []bool {
	marks, b := make([]bool, s.Cells()), make([]byte, len(letters))
	for i, x := range letters {
		b[i] = byte(x)
	}
	for row := range s.Rows() {
		mark(marks[row*s.Width:(row+1)*s.Width], s.Hash.Cell(uint32(row), s.key(row, b), uint64(s.Width)))
	}
	return marks
}

// A Found is a string with its count: an estimate of mean the count, over the hash and the
// noise, if no frequent string shares its cells, and its standard deviation, of noise and
// of rare strings in the same cells. Clean is false of a string that is asked for where
// all its cells are those of frequent ones: its count is what these leave, and is off by
// what their estimates are.
type Found struct {
	Letters   []byte
	Count     float64
	Deviation float64
	Clean     bool
	cells     int // that the count is the mean of
}

// A Search is what was found.
type Search struct {
	Found []Found // the most frequent first
	// Threshold is the least estimate of a string that is found.
	Threshold float64
	// Tests is how many strings were compared with it.
	Tests int
	// Cut: there were more beginnings than are looked at, and rare ones were left out.
	Cut bool
}

// A row is what is known of the noise and of rare strings in the cells of one.
type row struct {
	mean, deviation float64
}

// background estimates the mean and the deviation of cells without a frequent string, from
// those that are not above what these two reach.
func background(sums []int64, n Noise, total uint64) (row, bool) {
	w := float64(len(sums))
	r := row{float64(total) / w, math.Hypot(n.Deviation, math.Sqrt(float64(total)/w))}
	z := n.reach(1, 1/(4*w))
	for range 20 {
		sum, square, count := 0.0, 0.0, 0.0
		for _, c := range sums {
			if x := float64(c); x <= r.mean+z*r.deviation {
				sum, square, count = sum+x, square+x*x, count+1
			}
		}
		if count < w/2 { // of a sketch that is full nothing is told
			return r, false
		}
		mean := sum / count
		next := row{mean, math.Sqrt(max(n.Deviation*n.Deviation, (square-sum*mean)/max(1, count-1)))}
		if math.Abs(next.deviation-r.deviation) < 1e-9*r.deviation {
			return next, true
		}
		r = next
	}
	return r, true
}

// Search finds the frequent strings of a batch of people from the sums of all cells. The
// probability that it finds any of which there are none is at most wrong, for noise as it
// is said and cells of rare strings as the cells show them (docs/proofs/sketches.md,
// Theorem 3), which rows with less than [FrequentRoom] for each found do not have; so is
// the expected part of such strings among those that are found. Each string in asked, of
// Letters letters, is estimated besides, in the same order. It fails unless there is a
// sum for each cell.
func (s Strings) Search(sums []int64, n Noise, people uint64, wrong float64, asked [][]byte) (*Search, []Found, error) {
	if err := s.Validate(); err != nil {
		return nil, nil, err
	}
	if len(sums) != s.Cells() || !(wrong > 0 && wrong < 1) {
		return nil, nil, fmt.Errorf("%w: %d sums for %d cells, false finds %v", ErrStrings, len(sums), s.Cells(), wrong)
	}
	rows, told := make([]row, s.Rows()), true
	for i := range rows {
		ok := false
		rows[i], ok = background(sums[i*s.Width:(i+1)*s.Width], n, people)
		told = told && ok
	}
	out := &Search{Threshold: math.Inf(1)}
	if s.Searches() && told {
		s.search(out, sums, rows, n, wrong)
	}
	list := make([]Found, len(asked))
	for i, letters := range asked {
		list[i] = s.estimate(sums, rows, letters, s.occupied(out.Found))
	}
	return out, list, nil
}

// pass is the probability with which noise lets a beginning pass that nobody has: so small
// that beginnings of noise die out.
func (s Strings) pass() float64 { return min(.02, 1/(4*s.children())) }

// last is the first row of whole strings.
func (s Strings) last() int { return s.levels() - 1 }

// mean is that of the whole strings' rows of how far a string's cells are above the
// background, and the deviation of that.
func (s Strings) mean(sums []int64, rows []row, letters []byte) (above, deviation float64) {
	for r := s.last(); r < s.Rows(); r++ {
		above += float64(sums[s.cell(r, letters)]) - rows[r].mean
		deviation = math.Hypot(deviation, rows[r].deviation)
	}
	k := float64(s.Checks)
	return above / k, deviation / k
}

func (s Strings) search(out *Search, sums []int64, rows []row, n Noise, wrong float64) {
	type beginning struct {
		letters []byte
		above   float64
	}
	alive := []beginning{{make([]byte, s.Letters), 0}}
	z := n.reach(1, s.pass())
	low := func(r int) float64 { return rows[r].mean + z*rows[r].deviation }
	for level := range s.levels() {
		from, to := 0, s.ends(level)
		if level > 0 {
			from = s.ends(level - 1)
		}
		if most := max(1, mostTests/int(math.Pow(float64(s.Alphabet+1), float64(to-from)))); len(alive) > most {
			out.Cut = true
			slices.SortFunc(alive, func(a, b beginning) int {
				if a.above != b.above {
					return map[bool]int{true: -1, false: 1}[a.above > b.above]
				}
				return slices.Compare(a.letters, b.letters)
			})
			alive = alive[:most]
		}
		var next []beginning
		tests := 0
		for _, b := range alive {
			s.each(b.letters, from, to, func(letters []byte) {
				tests++
				above := math.Inf(1)
				for r := level; r <= level || level == s.last() && r < s.Rows(); r++ {
					c := float64(sums[s.cell(r, letters)])
					if c <= low(r) {
						return
					}
					above = min(above, c-rows[r].mean)
				}
				next = append(next, beginning{slices.Clone(letters), above})
			})
		}
		alive, out.Tests = next, tests
	}
	// Whole strings: the mean of their cells is above what noise reaches in any of the
	// tests, and so is that of those that are no other's.
	var all []Found
	for _, b := range alive {
		above, deviation := s.mean(sums, rows, b.letters)
		if above > s.threshold(n, s.Checks, out.Tests, wrong)*deviation {
			all = append(all, Found{Letters: b.letters, Count: above})
		}
	}
	occupied := s.occupied(all)
	for _, f := range all {
		if e := s.estimate(sums, rows, f.Letters, occupied); e.Clean && e.Count > s.threshold(n, e.cells, out.Tests, wrong)*e.Deviation {
			out.Found = append(out.Found, e)
		}
	}
	_, deviation := s.mean(sums, rows, make([]byte, s.Letters))
	out.Threshold = s.threshold(n, s.Checks, out.Tests, wrong) * deviation
	slices.SortFunc(out.Found, func(a, b Found) int {
		if a.Count != b.Count {
			return map[bool]int{true: -1, false: 1}[a.Count > b.Count]
		}
		return slices.Compare(a.Letters, b.Letters)
	})
}

// threshold is how many deviations the mean of some cells of a string that nobody has is
// above none in any of the tests, and for any choice of its cells, with probability at most
// wrong.
func (s Strings) threshold(n Noise, cells, tests int, wrong float64) float64 {
	choices := float64(int(1)<<s.Checks - 1)
	return n.reach(cells, wrong/choices/float64(max(1, tests)))
}

// occupied are the strings in each cell of whole strings.
func (s Strings) occupied(list []Found) map[int][]Found {
	out := make(map[int][]Found)
	for _, f := range list {
		for r := s.last(); r < s.Rows(); r++ {
			at := s.cell(r, f.Letters)
			out[at] = append(out[at], f)
		}
	}
	return out
}

// each goes over all strings that go on from a beginning of from letters to one of to.
func (s Strings) each(letters []byte, from, to int, do func(letters []byte)) {
	if from == to {
		do(letters)
		return
	}
	first, last := 0, s.Alphabet
	if from > 0 && letters[from-1] == 0 {
		last = 0
	}
	for x := first; x <= last; x++ {
		letters[from] = byte(x)
		s.each(letters, from+1, to, do)
	}
	letters[from] = 0
}

// estimate counts a string by its cells that are no frequent string's, if there are any.
func (s Strings) estimate(sums []int64, rows []row, letters []byte, frequent map[int][]Found) Found {
	f := Found{Letters: letters}
	rest, deviation := math.Inf(1), 0.0
	variance := 0.0
	for r := s.last(); r < s.Rows(); r++ {
		at, others := s.cell(r, letters), 0.0
		shared := false
		for _, other := range frequent[at] {
			if !slices.Equal(other.Letters, letters) {
				shared, others = true, others+other.Count
			}
		}
		above := float64(sums[at]) - rows[r].mean
		if shared {
			if above-others < rest {
				rest, deviation = above-others, rows[r].deviation*math.Sqrt2
			}
			continue
		}
		f.cells++
		f.Count += above
		variance += rows[r].deviation * rows[r].deviation
	}
	if f.cells == 0 {
		f.Count, f.Deviation = rest, deviation
		return f
	}
	f.Count, f.Deviation, f.Clean = f.Count/float64(f.cells), math.Sqrt(variance)/float64(f.cells), true
	return f
}

// Detects is the least count of a string that a search finds with probability found or
// more, for cells whose deviation is that of the noise: no more than its parts miss it
// together. It looks at children of most beginnings in each row.
func (s Strings) Detects(n Noise, most int, wrong, found float64) float64 {
	tests := int(float64(most) * s.children())
	final := s.threshold(n, s.Checks, tests, wrong) / math.Sqrt(float64(s.Checks))
	pass := n.reach(1, s.pass())
	missed := func(f float64) float64 {
		return float64(s.Rows())*upper(f-pass) + upper((f-final)*math.Sqrt(float64(s.Checks)))
	}
	low, high := final, final+100
	for range 60 {
		if mid := (low + high) / 2; missed(mid) > 1-found {
			low = mid
		} else {
			high = mid
		}
	}
	return high * n.Deviation
}

// upper is the probability of more than z standard deviations above the mean.
func upper(z float64) float64 { return math.Erfc(z/math.Sqrt2) / 2 }

// PlanStrings chooses Step and Width of a sketch that is to find up to most frequent strings,
// with two checks and in at most cells cells: the step with the least [Strings.Detects] at
// one price, by noise whose deviation is proportional to the root of the rows (norm 2) or to
// the rows (norm 1). A row has at least twice as many cells as beginnings are looked at times
// the frequent ones, so that the beginnings that collide with frequent ones die out. It fails
// where cells are too few.
func PlanStrings(alphabet, letters, most, cells, norm int, hash Hash) (Strings, error) {
	best, least := Strings{}, math.Inf(1)
	for step := 1; step <= letters; step++ {
		s := Strings{Alphabet: alphabet, Letters: letters, Step: step, Checks: 2, Width: 2, Hash: hash}
		if s.Validate() != nil || !s.Searches() || most < 1 {
			break
		}
		width := math.Ceil(2 * float64(most) * s.children())
		room := math.Floor(float64(min(cells, MaxLeaves)) / float64(s.Rows()))
		width = max(width, 64*float64(most), min(FrequentRoom*float64(most), room))
		if width*float64(s.Rows()) > float64(min(cells, MaxLeaves)) {
			break
		}
		s.Width = int(width)
		deviation := math.Pow(float64(s.Rows()), 1/float64(norm))
		if d := s.Detects(Noise{Deviation: deviation}, most, .05, .95); d < least {
			best, least = s, d
		}
	}
	if best.Width == 0 {
		return best, fmt.Errorf("%w: %d cells for %d frequent strings of %d letters out of %d", ErrStrings, cells, most, letters, alphabet)
	}
	return best, nil
}
