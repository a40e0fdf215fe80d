package participate

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/disk"
	"github.com/starling-agg/starling/recipe"
)

// DrawsFile is the name, beside the ledger, of the slots that were drawn and not yet taken. It is replaced as a whole, so
// that a slot that was taken or is over is gone from it.
const DrawsFile = "draws"

const (
	drawsMagic = "starling draws v1"
	maxDraws   = 1 << 14 // recipes and rounds at a time
	drawSize   = len(recipe.ID{}) + 8 + 8 + 4
)

// ErrNoDraw: the device has drawn no slot that it could still wait for.
var ErrNoDraw = errors.New("participate: no slot was drawn, or its round is over")

// noSlot is the draw of a device that sits a round out, and what is left of one that was taken: the file does not tell the
// two apart.
const noSlot = 1<<32 - 1

// A drawKey names what was drawn for.
type drawKey struct {
	recipe recipe.ID
	round  uint64
}

func (k drawKey) compare(o drawKey) int {
	return cmp.Or(slices.Compare(k.recipe[:], o.recipe[:]), cmp.Compare(k.round, o.round))
}

// A draw is a slot of a recipe with donation times, or noSlot.
type draw struct {
	slot uint32
	end  int64 // of the round, in seconds since 1970
}

// appendDraws writes
//
//	struct {
//	  opaque magic[17];          // "starling draws v1"
//	  struct {
//	    opaque recipe_id[32];
//	    uint64 round;
//	    uint64 end;              // of the round, in seconds since 1970
//	    uint32 slot;             // 2^32-1 is none
//	  } draws[...];              // in rising order of recipe_id and round
//	};
func appendDraws(dst []byte, draws map[drawKey]draw) ([]byte, error) {
	b := cryptobyte.NewBuilder(append(dst, drawsMagic...))
	for _, k := range slices.SortedFunc(maps.Keys(draws), drawKey.compare) {
		b.AddBytes(k.recipe[:])
		b.AddUint64(k.round)
		b.AddUint64(uint64(draws[k].end))
		b.AddUint32(draws[k].slot)
	}
	return b.Bytes()
}

func readDraws(file []byte) (map[drawKey]draw, error) {
	s := cryptobyte.String(file)
	var magic []byte
	if !s.ReadBytes(&magic, len(drawsMagic)) || string(magic) != drawsMagic {
		return nil, errRecord
	}
	draws := make(map[drawKey]draw)
	var last drawKey
	for !s.Empty() {
		var k drawKey
		var d draw
		var end uint64
		if !s.CopyBytes(k.recipe[:]) || !s.ReadUint64(&k.round) || !s.ReadUint64(&end) || !s.ReadUint32(&d.slot) ||
			end >= 1<<62 || len(draws) > 0 && last.compare(k) >= 0 {
			return nil, errRecord
		}
		d.end = int64(end)
		draws[k], last = d, k
	}
	return draws, nil
}

// openDraws reads the file, if there is one.
func (l *Ledger) openDraws() error {
	b, err := disk.ReadFile(l.fsys, DrawsFile, int64(len(drawsMagic)+maxDraws*drawSize))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		l.draws, err = readDraws(b)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrLedger, DrawsFile, err)
	}
	return nil
}

// remember writes down a slot, in a file of the same size whatever it is. It is durable on return.
func (l *Ledger) remember(k drawKey, d draw, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.setDraw(k, d, now)
}

// setDraw changes one draw and drops those whose round is over. A failure leaves it unknown which slots are written down,
// and ends the ledger.
func (l *Ledger) setDraw(k drawKey, d draw, now time.Time) error {
	if l.broken != nil {
		return fmt.Errorf("%w: %w", ErrLedger, l.broken)
	}
	after := maps.Clone(l.draws)
	maps.DeleteFunc(after, func(_ drawKey, d draw) bool { return d.end <= now.Unix() })
	if after[k] = d; len(after) > maxDraws {
		return fmt.Errorf("%w: more than %d slots at a time", ErrLedger, maxDraws)
	}
	if l.fsys != nil {
		b, err := appendDraws(nil, after)
		if err == nil {
			err = disk.WriteFile(l.fsys, DrawsFile, b)
		}
		if err != nil {
			l.broken = err
			return fmt.Errorf("%w: %w", ErrLedger, err)
		}
	}
	l.draws = after
	return nil
}

// drawn returns the earliest draw of a recipe whose round is not over.
func (l *Ledger) drawn(id recipe.ID, now time.Time) (drawKey, draw, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range slices.SortedFunc(maps.Keys(l.draws), drawKey.compare) {
		if d := l.draws[k]; k.recipe == id && d.end > now.Unix() {
			return k, d, true
		}
	}
	return drawKey{}, draw{}, false
}

// take says whether a slot is still there, and durably ends it: it is taken once, by this life of the device or another.
// What is written is the same for a device that had none.
func (l *Ledger) take(k drawKey, now time.Time) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, ok := l.draws[k]
	if !ok {
		return false, nil
	}
	err := l.setDraw(k, draw{slot: noSlot, end: d.end}, now)
	return err == nil && d.slot != noSlot, err
}
