package participate

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/wire"
	"github.com/starling-agg/starling/recipe"
)

// DrawsFile is the name, beside the ledger, of the slots that were drawn and not yet
// taken. It is replaced as a whole, so that a slot that was taken or is over is gone from
// it; the mark knows it by its digest, so that no older one takes its place.
const DrawsFile = "draws"

const (
	drawsMagic = "starling draws v2"
	maxDraws   = 1 << 14 // recipes and rounds at a time
	drawSize   = len(recipe.ID{}) + 8 + 8 + 4
)

// ErrNoDraw: the device has drawn no slot that it could still wait for.
var ErrNoDraw = errors.New("participate: no slot was drawn, or its round is over")

// noSlot is the draw of a device that sits a round out, and what is left of one that was
// taken: the file does not tell the two apart.
const noSlot = 1<<32 - 1

// A drawKey names what was drawn for.
type drawKey struct {
	recipe recipe.ID
	round  uint64
}

func (k drawKey) compare(o drawKey) int {
	return cmp.Or(slices.Compare(k.recipe[:], o.recipe[:]), cmp.Compare(k.round, o.round))
}

// A draw is the slot of a round that a device waits for, or noSlot.
type draw struct {
	slot uint32
	end  int64 // of the round, in seconds since 1970
}

// A salt keeps the mark's digest of a file that is gone from telling, by trying all
// slots, which one was in it.
type salt [32]byte

// A drawsFile is
//
//	struct {
//	  opaque magic[17];          // "starling draws v2"
//	  opaque salt[32];           // drawn anew for each file
//	  struct {
//	    opaque recipe_id[32];
//	    uint64 round;
//	    uint64 end;              // of the round, in seconds since 1970
//	    uint32 slot;             // 2^32-1 is none
//	  } draws[...];              // in rising order of recipe_id and round
//	};
type drawsFile struct {
	salt salt
	list []keyedDraw
}

type keyedDraw struct {
	drawKey
	draw
}

func (f *drawsFile) code(c *wire.Coder) {
	c.Const(drawsMagic, "not a starling file of draws of version 2")
	c.Fixed(f.salt[:], "salt")
	wire.Items(c, &f.list, func(i int, d *keyedDraw) {
		c.Fixed(d.recipe[:], "recipe id")
		c.Uint64(&d.round, "round")
		c.Int64(&d.end, "end")
		c.Uint32(&d.slot, "slot")
		c.Check(d.end >= 0 && d.end < 1<<62, "end is out of bounds")
		c.Check(i == 0 || f.list[i-1].compare(d.drawKey) < 0, "draws are out of order")
	})
}

func appendDraws(dst []byte, salt salt, draws map[drawKey]draw) ([]byte, error) {
	f := drawsFile{salt: salt}
	for _, k := range slices.SortedFunc(maps.Keys(draws), drawKey.compare) {
		f.list = append(f.list, keyedDraw{k, draws[k]})
	}
	return wire.Append(dst, errRecord, f.code)
}

func readDraws(file []byte) (salt, map[drawKey]draw, error) {
	var f drawsFile
	if err := wire.Read(file, errRecord, f.code); err != nil {
		return salt{}, nil, err
	}
	draws := make(map[drawKey]draw)
	for _, d := range f.list {
		draws[d.drawKey] = d.draw
	}
	return f.salt, draws, nil
}

// loadDraws reads the file, if there is one, and holds it against the mark.
func (l *Ledger) loadDraws() error {
	b, err := disk.ReadFile(l.fsys, DrawsFile, int64(len(drawsMagic)+len(salt{})+maxDraws*drawSize))
	switch found := digest(sha256.Sum256(b)); {
	case errors.Is(err, fs.ErrNotExist):
		l.drawsAre = digest{}
	case err != nil:
		return fmt.Errorf("%s: %w", DrawsFile, err)
	default:
		l.drawsAre = found
		if _, l.draws, err = readDraws(b); err != nil {
			return fmt.Errorf("%s: %w", DrawsFile, err)
		}
	}
	if l.drawsAre != l.mark.after && l.drawsAre != l.mark.before {
		return fmt.Errorf("%s is not the file that %s names", DrawsFile, MarkFile)
	}
	return nil
}

// settleDraws ends a change that did not reach the disk, or whose file was put back to
// the one before it, which looks the same: the slot that it was about is not to be had
// any more, whether it was to be drawn or to be taken.
func (l *Ledger) settleDraws() error {
	if l.drawsAre == l.mark.after {
		return nil
	}
	after := maps.Clone(l.draws)
	if d, ok := after[l.mark.changed]; ok {
		after[l.mark.changed] = draw{slot: noSlot, end: d.end}
	}
	return l.replaceDraws(l.mark.changed, after)
}

// remember writes down a slot, in a file of the same size whatever it is. It is durable
// on return.
func (l *Ledger) remember(k drawKey, d draw, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.setDraw(k, d, now)
}

// setDraw changes one draw and drops those whose round is over. A failure leaves it
// unknown which slots are written down, and ends the ledger.
func (l *Ledger) setDraw(k drawKey, d draw, now time.Time) error {
	if l.broken != nil {
		return fmt.Errorf("%w: %w", ErrLedger, l.broken)
	}
	after := maps.Clone(l.draws)
	maps.DeleteFunc(after, func(_ drawKey, d draw) bool { return d.end <= now.Unix() })
	if after[k] = d; len(after) > maxDraws {
		return fmt.Errorf("%w: more than %d slots at a time", ErrLedger, maxDraws)
	}
	return l.replaceDraws(k, after)
}

// replaceDraws writes the file anew: first the mark that names it, with the draw that
// changes, then the file. The change holds from the mark on, and can be seen from the
// file on.
func (l *Ledger) replaceDraws(changed drawKey, after map[drawKey]draw) error {
	if l.fsys != nil {
		var fresh salt
		rand.Read(fresh[:]) // never fails
		b, err := appendDraws(nil, fresh, after)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrLedger, err)
		}
		m := l.mark
		m.before, m.after, m.changed = l.drawsAre, sha256.Sum256(b), changed
		if err := l.setMark(m); err != nil {
			return err
		}
		if err := disk.WriteFile(l.fsys, DrawsFile, b); err != nil {
			l.broken = err
			return fmt.Errorf("%w: %w", ErrLedger, err)
		}
		l.drawsAre = m.after
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

// take says whether a slot is still there, and durably ends it: it is taken once, by this
// life of the device or another. A device that had none writes the same bytes.
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

// again writes a draw down as it is.
func (l *Ledger) again(k drawKey, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, ok := l.draws[k]
	if !ok {
		return nil
	}
	return l.setDraw(k, d, now)
}
