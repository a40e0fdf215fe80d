package recipe

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/text/unicode/norm"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/dp/sketch"
)

// Keyed is what [Distinct] and [Norm] have in common: each device has a text, whichever,
// which a public hash puts into one of a row of cells that it marks
// (Prio3MultihotCountVec of weight 1). A device that does not follow marks another cell, or
// none.
type Keyed struct {
	Width uint32 // cells, 2 or more
	Seed  uint64 // of the hash
	Chunk uint32 // of the proof, 1 to Width + 1
}

// Form is [Text].
func (Keyed) Form() Form { return Text }

func (Keyed) Wanted() string { return "a text, whichever" }

// Spell is 64 bits of the SHA-256 of the text in normal form NFC.
func (Keyed) Spell(text string) ([]uint64, bool) {
	sum := sha256.Sum256([]byte(norm.NFC.String(text)))
	return []uint64{binary.BigEndian.Uint64(sum[:])}, true
}

// Holds says whether it is one number, whichever.
func (Keyed) Holds(x []uint64) bool { return len(x) == 1 }

// Add leaves the sum as it is: texts have none.
func (Keyed) Add(_, _ []uint64) {}

// MadeUp is most often 0.
func (Keyed) MadeUp(coins func() uint64) []uint64 { return []uint64{coins()} }

// Aggregates is the number of cells.
func (q Keyed) Aggregates() int { return int(q.Width) }

// Marks is the cell of a text, in time that does not depend on it.
func (q Keyed) Marks(numbers []uint64) []bool {
	var key [8]byte
	binary.BigEndian.PutUint64(key[:], numbers[0])
	return sketch.Hash{Seed: q.Seed}.Marks(0, key[:], int(q.Width))
}

// VDAFConfig is that of Prio3MultihotCountVec.
func (q Keyed) VDAFConfig() dap.VDAFConfig {
	return dap.MultihotCountVecConfig{Length: q.Width, MaxWeight: 1, ChunkLength: q.Chunk}
}

// Contribution is 1 in one cell.
func (q Keyed) Contribution() release.Contribution {
	return release.MultiHotOf(uint64(q.Width), 1)
}

func (Keyed) Largest() float64 { return 1 }
func (Keyed) Unit() float64    { return 1 }
func (Keyed) Averages() bool   { return false }
func (Keyed) Counts() bool     { return true }
func (Keyed) Choices() uint64  { return 0 }
func (Keyed) Part() string     { return "each cell" }

func (q Keyed) append(b *cryptobyte.Builder) {
	b.AddUint32(q.Width)
	b.AddUint64(q.Seed)
	b.AddUint32(q.Chunk)
}

func readKeyed(d *decoder) Keyed {
	return Keyed{Width: d.u32("width"), Seed: d.u64("seed"), Chunk: d.u32("chunk")}
}

// parseKeyed is of WIDTH or WIDTH:SEED.
func parseKeyed(s string) (q Keyed, err error) {
	width, seed, ok := strings.Cut(s, ":")
	if q.Width, err = number32(width); err == nil && ok {
		if q.Seed, err = strconv.ParseUint(seed, 10, 64); err != nil {
			return q, fmt.Errorf("%q is not a seed below 2^64", seed)
		}
	}
	return q, err
}

func (q Keyed) params() any {
	return map[string]uint64{"width": uint64(q.Width), "seed": q.Seed, "chunk": uint64(q.Chunk)}
}

func (q Keyed) validate(v *validator) {
	if v.between("query.width", uint64(q.Width), 2, MaxElements-1) {
		v.between("query.chunk", uint64(q.Chunk), 1, q.elements())
	}
}

// elements is the number of field elements that encode one answer.
func (q Keyed) elements() uint64 { return uint64(q.Width) + uint64(bits.Len(1)) }

func (q Keyed) chunked() Keyed {
	q.Chunk = chunk(q.Chunk, max(1, q.elements()))
	return q
}

func (Keyed) spread(x, _ float64) float64 { return x }

// Unplanned says why no plan is made from an error of the cells.
func (Keyed) Unplanned() string {
	return "what is made of the cells is not one of them: make the recipe, and recipe show says how far off it is"
}

func (Keyed) whole() string { return "texts of a secret sample are not counted" }

// one is a table of one number, and of texts that are asked for, of which it has none.
func one(label string, c Cell, asked []string) *Table {
	t := &Table{Rows: []TableRow{{label, 1, c}}}
	for _, text := range asked {
		t.Rows = append(t.Rows, TableRow{Label: text, Cell: empty(sketch.None)})
	}
	return t
}
