package recipe

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/text/unicode/norm"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/dp/sketch"
)

const (
	// FalseFinds bounds the probability that noise puts any string that nobody has into a
	// table of [HeavyHitters]. Rare strings put more there where rows are narrow
	// ([sketch.FrequentRoom]).
	FalseFinds = 0.05
	// hitterCells is the most cells of a sketch that is planned from what is typed: a report
	// has 16 bytes for each.
	hitterCells = 1 << 17
)

// HeavyHitters asks each device for a string of letters of an alphabet; the answer is which
// strings are frequent, without a list of them, and how frequent others are that the
// collector asks for. Devices mark a cell of each row of a sketch ([sketch.Strings],
// Prio3MultihotCountVec, whose weight bound is the rows). A device that does not follow may
// mark as many cells elsewhere, once each: it adds at most 1 to the count of any string, and
// as many that work together as the threshold has reports invent one.
type HeavyHitters struct {
	Alphabet string // its letters, each once, in UTF-8 in normal form NFC
	Letters  uint8  // the most of a string; of longer ones the first count
	Step     uint8  // letters that a row tells more than the row before
	Checks   uint8  // rows of whole strings
	Width    uint32 // cells of a row
	Seed     uint64 // of the hash
	Chunk    uint32 // of the proof, 1 to the cells + bits(rows)
}

func (q HeavyHitters) String() string {
	how := "the result is which of them are frequent, and how many have each"
	if !q.sketch().Searches() {
		how = "the result is how many have each that is asked for"
	}
	return fmt.Sprintf("each device gives a text of up to %s out of %q; %s", count(uint64(q.Letters), "letter", "letters"), q.Alphabet, how)
}

// sketch is that of the letters' numbers.
func (q HeavyHitters) sketch() sketch.Strings {
	return sketch.Strings{Alphabet: len([]rune(q.Alphabet)), Letters: int(q.Letters), Step: int(q.Step), Checks: int(q.Checks), Width: int(q.Width),
		Hash: sketch.Hash{Seed: q.Seed}}
}

// size is how many cells and rows there are, nothing where there is no such sketch.
func (q HeavyHitters) size() (cells, rows int) {
	s := q.sketch()
	if s.Validate() != nil {
		return 0, 0
	}
	return s.Cells(), s.Rows()
}

// Form is [Text].
func (HeavyHitters) Form() Form { return Text }

func (q HeavyHitters) Wanted() string {
	return fmt.Sprintf("a text of letters out of %q, of which the first %d count", q.Alphabet, q.Letters)
}

// Spell numbers the letters of a text. One that the alphabet has not is no answer.
func (q HeavyHitters) Spell(text string) ([]uint64, bool) {
	alphabet, letters := []rune(q.Alphabet), make([]uint64, q.Letters)
	for i, c := range []rune(norm.NFC.String(text)) {
		x := slices.Index(alphabet, c)
		if x < 0 {
			return nil, false
		}
		if i < len(letters) {
			letters[i] = uint64(x) + 1
		}
	}
	return letters, true
}

// text is that of the numbers of its letters.
func (q HeavyHitters) text(letters []byte) string {
	alphabet, text := []rune(q.Alphabet), ""
	for _, x := range letters {
		if x > 0 {
			text += string(alphabet[x-1])
		}
	}
	return text
}

// Holds says whether these are the numbers of a text's letters.
func (q HeavyHitters) Holds(x []uint64) bool { return q.sketch().Holds(x) }

// Add leaves the sum as it is: texts have none.
func (HeavyHitters) Add(_, _ []uint64) {}

// MadeUp is most often a text of the first letter.
func (q HeavyHitters) MadeUp(coins func() uint64) []uint64 {
	letters := make([]uint64, q.Letters)
	for i := range min(int(1+coins()), len(letters)) {
		letters[i] = 1 + min(coins(), uint64(q.sketch().Alphabet-1))
	}
	return letters
}

// Aggregates is the number of cells.
func (q HeavyHitters) Aggregates() int {
	cells, _ := q.size()
	return cells
}

// Marks are the cells of a text.
func (q HeavyHitters) Marks(numbers []uint64) []bool { return q.sketch().Marks(numbers) }

// VDAFConfig is that of Prio3MultihotCountVec.
func (q HeavyHitters) VDAFConfig() dap.VDAFConfig {
	cells, rows := q.size()
	return dap.MultihotCountVecConfig{Length: uint32(cells), MaxWeight: uint64(rows), ChunkLength: q.Chunk}
}

// Contribution is 1 in as many cells as there are rows: of two texts that begin differently
// nearly all hash to two cells of each.
func (q HeavyHitters) Contribution() release.Contribution {
	cells, rows := q.size()
	return release.MultiHotOf(uint64(cells), uint64(rows))
}

func (HeavyHitters) Largest() float64 { return 1 }
func (HeavyHitters) Unit() float64    { return 1 }
func (HeavyHitters) Averages() bool   { return false }
func (HeavyHitters) Counts() bool     { return true }
func (HeavyHitters) Choices() uint64  { return 0 }
func (HeavyHitters) Part() string     { return "the count of each text" }

// FitVariance is that of a count, over that of the noise in each cell.
func (q HeavyHitters) FitVariance() float64 { return 1 / float64(max(1, q.Checks)) }

// detects is the least count of a text that a search among the reports finds with
// probability 95 %, where their texts are all rare.
func (q HeavyHitters) detects(n Spread, reports uint64) float64 {
	s, noise := q.sketch(), noiseOf(n)
	noise.Deviation = math.Hypot(noise.Deviation, math.Sqrt(float64(reports)/float64(s.Width)))
	most := float64(s.Width) / (2 * math.Pow(float64(s.Alphabet), float64(s.Step)))
	return s.Detects(noise, int(max(1, most)), FalseFinds, .95)
}

func (HeavyHitters) whole() string { return "texts of a secret sample are not counted" }

// expected says how many cells a device marks, and which counts are found.
func (q HeavyHitters) expected(r *Recipe) string {
	reports := r.usual()
	n := r.Blurred(reports)
	cells, rows := q.size()
	if cells == 0 {
		return ""
	}
	text := fmt.Sprintf("a device marks %d of %d cells; noise and rare texts put each count off by about %.3g", rows, cells,
		interval(n, 0, math.Sqrt(q.FitVariance())*math.Hypot(n.Deviation, math.Sqrt(float64(reports)/float64(q.Width))))[1])
	if q.sketch().Searches() {
		text += fmt.Sprintf("; of %d reports, a text that %d have is found with probability 95 %%; noise has any found that nobody has with probability %g %% at most, ",
			reports, uint64(math.Ceil(q.detects(n, reports))), 100*FalseFinds)
		if roomy := q.Width / sketch.FrequentRoom; roomy > 0 {
			text += fmt.Sprintf("and where more than %d texts are frequent rare ones have more found", roomy)
		} else {
			text += fmt.Sprintf("and rare texts have more found, as a row has fewer than %d cells", sketch.FrequentRoom)
		}
	}
	return text
}

// A Search is how texts were found in a sketch.
type Search struct {
	// Threshold is the least count of a text that is found, but for those that share a cell
	// with another.
	Threshold float64 `json:"threshold"`
	// FalseFinds is the probability that noise has any text found that nobody has, at most.
	FalseFinds float64 `json:"false_finds"`
	// Narrow: rows have less than [sketch.FrequentRoom] for each text that is found, so that
	// rare texts, too, have some found that nobody has.
	Narrow bool `json:"narrow,omitempty"`
	// Cut: there were more beginnings of texts than are looked at, and rare ones were left
	// out.
	Cut bool `json:"cut,omitempty"`
}

// Tabulate has a cell for each text that is found, the most frequent first, whose counts are
// above the threshold and so a little too high where they are near it; and for each text
// that is asked for.
func (q HeavyHitters) Tabulate(n Spread, sums []int64, reports uint64, asked []string) (*Table, error) {
	s := q.sketch()
	var spelled [][]byte
	at := make([]int, len(asked))
	for i, text := range asked {
		at[i] = -1
		if numbers, ok := q.Spell(text); ok {
			letters := make([]byte, len(numbers))
			for j, x := range numbers {
				letters[j] = byte(x)
			}
			at[i] = len(spelled)
			spelled = append(spelled, letters)
		}
	}
	found, counts, err := s.Search(sums, noiseOf(n), reports, FalseFinds, spelled)
	if err != nil {
		return nil, err
	}
	t := new(Table)
	if s.Searches() {
		t.Search = &Search{min(found.Threshold, math.MaxFloat64), FalseFinds, len(found.Found)*sketch.FrequentRoom > s.Width, found.Cut}
	}
	for _, f := range found.Found {
		c := cell(n, f.Count, f.Deviation)
		c.State = sketch.Value
		t.Rows = append(t.Rows, TableRow{q.text(f.Letters), 1, c})
	}
	for i, text := range asked {
		if at[i] < 0 {
			t.Rows = append(t.Rows, TableRow{Label: text, Cell: empty(sketch.None)})
			continue
		}
		f := counts[at[i]]
		c := cell(n, f.Count, f.Deviation)
		if !f.Clean {
			c.State = sketch.BelowDetection
		}
		t.Rows = append(t.Rows, TableRow{text, 1, c})
	}
	return t, nil
}

func (HeavyHitters) query() uint8 { return tagHitters }

func (q HeavyHitters) append(b *cryptobyte.Builder) {
	b.AddUint8(q.Letters)
	b.AddUint8(q.Step)
	b.AddUint8(q.Checks)
	b.AddUint32(q.Width)
	b.AddUint64(q.Seed)
	addBytes16(b, q.Alphabet)
	b.AddUint32(q.Chunk)
}

func readHitters(d *decoder) Query {
	return HeavyHitters{Letters: d.u8("letters"), Step: d.u8("step"), Checks: d.u8("checks"), Width: d.u32("width"), Seed: d.u64("seed"),
		Alphabet: string(d.bytes16("alphabet")), Chunk: d.u32("chunk")}
}

// parseHitters is of ALPHABET:LETTERS:MOST, which plans the sketch for up to MOST frequent
// texts, or of ALPHABET:LETTERS:STEP:CHECKS:WIDTH:SEED. An alphabet may hold ranges, as
// a-z0-9.
func parseHitters(text string) (Query, error) {
	parts := strings.Split(text, ":")
	alphabet, err := spread(parts[0])
	if err != nil {
		return nil, err
	}
	var n []uint64
	for _, part := range parts[1:] {
		x, err := strconv.ParseUint(part, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", part)
		}
		n = append(n, x)
	}
	switch len(n) {
	case 2:
		s, err := sketch.PlanStrings(len([]rune(alphabet)), int(min(n[0], sketch.MaxLetters+1)), int(min(n[1], sketch.MaxLeaves)), hitterCells, 2, sketch.Hash{})
		if err != nil {
			return nil, err
		}
		return HeavyHitters{Alphabet: alphabet, Letters: uint8(s.Letters), Step: uint8(s.Step), Checks: uint8(s.Checks), Width: uint32(s.Width)}, nil
	case 5:
		if n[0] > math.MaxUint8 || n[1] > math.MaxUint8 || n[2] > math.MaxUint8 || n[3] > math.MaxUint32 {
			return nil, fmt.Errorf("a number of %q is too large", text)
		}
		return HeavyHitters{alphabet, uint8(n[0]), uint8(n[1]), uint8(n[2]), uint32(n[3]), n[4], 0}, nil
	}
	return nil, fmt.Errorf("hitters takes an alphabet with 2 or 5 numbers behind it, as in %q", "hitters:a-z:12:20")
}

// spread writes ranges of letters out: a-e is abcde.
func spread(s string) (string, error) {
	in, out := []rune(norm.NFC.String(s)), []rune(nil)
	for i := 0; i < len(in); i++ {
		if i+2 < len(in) && in[i+1] == '-' {
			if in[i+2] < in[i] || in[i+2]-in[i] > sketch.MaxAlphabet {
				return "", fmt.Errorf("%q is no range of letters", string(in[i:i+3]))
			}
			for c := in[i]; c <= in[i+2]; c++ {
				out = append(out, c)
			}
			i += 2
			continue
		}
		out = append(out, in[i])
	}
	return string(out), nil
}

func (q HeavyHitters) params() any {
	return map[string]any{"alphabet": q.Alphabet, "letters": q.Letters, "step": q.Step, "checks": q.Checks, "width": q.Width, "seed": q.Seed, "chunk": q.Chunk}
}

func (q HeavyHitters) validate(v *validator) {
	v.text("query.alphabet", q.Alphabet, 1, 4*sketch.MaxAlphabet, false)
	letters := []rune(q.Alphabet)
	slices.Sort(letters)
	if len(slices.Compact(letters)) != len([]rune(q.Alphabet)) || !norm.NFC.IsNormalString(q.Alphabet) {
		v.add("query.alphabet", "has a letter twice, or is not in the normal form NFC of Unicode")
	}
	for _, c := range letters {
		// A letter that joins others would make texts that are spelled differently alike.
		if p := norm.NFC.PropertiesString(string(c)); !p.BoundaryBefore() || !p.BoundaryAfter() && p.CCC() != 0 {
			v.add("query.alphabet", "has the letter %U, which joins the one before it", c)
		}
	}
	if err := q.sketch().Validate(); err != nil {
		v.add("query.width", "makes no sketch: %v", err)
		return
	}
	switch elements := q.elements(); {
	case elements > MaxElements:
		v.add("query.width", "makes %d field elements, want at most %d", elements, MaxElements)
	default:
		v.between("query.chunk", uint64(q.Chunk), 1, elements)
	}
}

// elements is the number of field elements that encode one answer.
func (q HeavyHitters) elements() uint64 {
	cells, rows := q.size()
	return uint64(cells + bits.Len(uint(rows)))
}

func (q HeavyHitters) withChunk() Query {
	q.Chunk = chunk(q.Chunk, max(1, q.elements()))
	return q
}

func (HeavyHitters) spread(x, _ float64) float64 { return x }
