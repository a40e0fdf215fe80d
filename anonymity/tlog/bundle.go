package tlog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/padme"
	"github.com/starling-agg/starling/internal/wire"
	merkle "golang.org/x/mod/sumdb/tlog"
)

// A Bundle is the one file that devices fetch of a log: what holds now, and the proof of
// it. All fetch the same.
type Bundle struct {
	// Note is the signed checkpoint, with its cosignatures.
	Note []byte
	// Steps prove that the checkpoint continues those of bundles before, their sizes
	// rising.
	Steps []Step
	// Records are the entries that hold, their places rising, and behind them the active
	// set that lists them.
	Records []Record
}

// A Step proves that the tree of a bundle continues that of an earlier size.
type Step struct {
	Size  int64
	Proof []Hash
}

// A Record is an entry with the proof of its place.
type Record struct {
	Index int64
	Entry []byte
	Proof []Hash
}

// ErrBundle: malformed, or it does not hold together.
var ErrBundle = errors.New("tlog: bad bundle")

const (
	bundleMagic = "starling bundle v1\n"
	// MaxBundle bounds a bundle, in bytes, and MaxSteps the sizes that it continues.
	MaxBundle = 32 << 20
	MaxSteps  = 256
	// minBundle is the smallest padded bundle, in bytes.
	minBundle = 16 << 10
	maxPool   = 1 << 16
)

// Append appends the bundle's one encoding, in TLS syntax and padded with zeros to a size
// that many bundles share:
//
//	opaque magic[19] = "starling bundle v1\n"; opaque note<1..2^24-1>;
//	opaque hashes[32]<0..2^32-1>; all different, in the order in which proofs first name them
//	{int64 size; uint16 proof<0..2^16-1>} steps<0..2^24-1>; proofs name hashes by their number
//	{int64 index; opaque entry<1..2^24-1>; uint16 proof<0..2^16-1>} records<0..2^32-1>;
//	opaque zeros<0..2^32-1>;
//
// It fails with [ErrBundle].
func (b *Bundle) Append(dst []byte) ([]byte, error) {
	w := &pool{number: make(map[Hash]uint16)}
	for _, s := range b.Steps {
		w.add(s.Proof)
	}
	for _, r := range b.Records {
		w.add(r.Proof)
	}
	if len(w.hashes) > maxPool {
		return dst, fmt.Errorf("%w: more than %d hashes", ErrBundle, maxPool)
	}
	bare, err := wire.Append(nil, ErrBundle, func(c *wire.Coder) { b.code(c, w) })
	if err != nil {
		return dst, err
	}
	zeros := make([]byte, padme.Size(len(bare)+4, minBundle)-len(bare)-4)
	dst, err = wire.Append(append(dst, bare...), ErrBundle, func(c *wire.Coder) { c.Vec32(&zeros, 0, "zeros") })
	if err == nil && len(bare)+4+len(zeros) > MaxBundle {
		err = fmt.Errorf("%w: longer than %d bytes", ErrBundle, MaxBundle)
	}
	return dst, err
}

// A pool holds the hashes of a bundle once each.
type pool struct {
	hashes []Hash
	number map[Hash]uint16 // while writing
	named  int             // while reading: how many were named so far
}

func (w *pool) add(proof []Hash) {
	for _, h := range proof {
		if _, ok := w.number[h]; !ok {
			w.number[h] = uint16(len(w.hashes))
			w.hashes = append(w.hashes, h)
		}
	}
}

// code reads and writes all but the padding.
func (b *Bundle) code(c *wire.Coder, w *pool) {
	c.Const(bundleMagic, "not a starling bundle of version 1")
	c.Vec24(&b.Note, 1, "note")
	c.Check(len(b.Note) <= MaxNote, "the note is too long")
	c.Nested32("hashes", func() {
		wire.Items(c, &w.hashes, func(i int, h *Hash) {
			c.Check(i < maxPool, "too many hashes")
			c.Fixed(h[:], "hash")
		})
	})
	c.CheckRead(c.Err() != nil || different(w.hashes), "a hash stands twice")
	c.Nested24("steps", func() {
		wire.Items(c, &b.Steps, func(i int, s *Step) {
			c.Check(i < MaxSteps, "too many steps")
			c.Int64(&s.Size, "size")
			c.Check(s.Size > 0 && s.Size <= MaxSize && (i == 0 || b.Steps[i-1].Size < s.Size), "sizes do not rise")
			w.code(c, &s.Proof)
		})
	})
	c.Nested32("records", func() {
		wire.Items(c, &b.Records, func(i int, r *Record) {
			c.Check(i <= MaxActive, "too many records")
			c.Int64(&r.Index, "index")
			c.Check(r.Index >= 0 && r.Index < MaxSize && (i == 0 || b.Records[i-1].Index < r.Index), "records do not rise")
			c.Vec24(&r.Entry, 1, "entry")
			w.code(c, &r.Proof)
		})
	})
	c.CheckRead(w.named == len(w.hashes), "a hash that no proof names")
}

func different(hashes []Hash) bool {
	seen := make(map[Hash]bool, len(hashes))
	for _, h := range hashes {
		seen[h] = true
	}
	return len(seen) == len(hashes)
}

// code reads or writes a proof by the numbers of its hashes.
func (w *pool) code(c *wire.Coder, proof *[]Hash) {
	var numbers []uint16
	for _, h := range *proof {
		numbers = append(numbers, w.number[h])
	}
	c.Nested16("proof", func() {
		wire.Items(c, &numbers, func(_ int, n *uint16) { c.Uint16(n, "hash") })
	})
	c.Check(len(numbers) <= maxPath, "a proof that is too long")
	if c.Writing() || c.Err() != nil {
		return
	}
	for _, n := range numbers {
		if int(n) > w.named || int(n) >= len(w.hashes) {
			c.Fail("a proof names a hash that is not there, or out of turn")
			return
		}
		if int(n) == w.named {
			w.named++
		}
		*proof = append(*proof, w.hashes[n])
	}
}

// ReadBundle reads exactly one bundle, copies what it keeps, and verifies nothing:
// [Bundle.Open] does. It fails with [ErrBundle].
func ReadBundle(file []byte) (*Bundle, error) {
	if len(file) > MaxBundle {
		return nil, fmt.Errorf("%w: longer than %d bytes", ErrBundle, MaxBundle)
	}
	b, w := new(Bundle), new(pool)
	err := wire.Read(bytes.Clone(file), ErrBundle, func(c *wire.Coder) {
		b.code(c, w)
		left := len(c.Bytes())
		var zeros []byte
		c.Vec32(&zeros, 0, "zeros")
		bare := len(file) - left
		c.Check(len(file) == padme.Size(bare+4, minBundle) && len(bytes.Trim(zeros, "\x00")) == 0, "the padding")
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// MakeBundle puts a bundle together: under a signed checkpoint of a size, which the last
// of the places, the active set's, must be in. entry reads an entry, and tree the log's
// hashes; steps are sizes of bundles before.
func MakeBundle(note []byte, size int64, steps, places []int64, entry func(int64) ([]byte, error), tree merkle.HashReader) (*Bundle, error) {
	b := &Bundle{Note: note}
	for _, old := range steps {
		proof, err := ProveContinued(size, old, tree)
		if err != nil {
			return nil, err
		}
		b.Steps = append(b.Steps, Step{old, proof})
	}
	for _, i := range places {
		e, err := entry(i)
		if err != nil {
			return nil, err
		}
		proof, err := merkle.ProveRecord(size, i, tree)
		if err != nil {
			return nil, err
		}
		b.Records = append(b.Records, Record{i, e, proof})
	}
	return b, nil
}

// An Opened bundle was found good.
type Opened struct {
	Witnessed
	// Begin and End bound the period of which it says what holds.
	Begin, End time.Time
	// Entries are those that hold, by their places in the log. Their owners' signatures
	// are still to be looked at.
	Entries []Placed
	// Left is the signed checkpoint that was remembered, where the device was away for so
	// long that no proof leads from it, but from one before: to be kept, for who has both can
	// still find out whether the log has forked there. Else nil.
	Left []byte
}

// A Placed entry stands in a log.
type Placed struct {
	Index int64
	Leaf  Hash
	Entry Entry // of kind 0 where it is of a later version of entries
}

// Open verifies a bundle by a policy and by what the device remembers, without asking
// anybody; what the device is to remember from then on comes with it. Where the bundle
// has no proof from the size that is remembered, further gets one, from the log's tiles.
// Without further (nil) the proof may lead from a size before ([Memory.Rungs]), so far
// back that what lies between was seen within a quarter of the time for which the device
// was away.
//
// It fails as [Policy.Open], with *[StaleError], with [ErrBundle] where its parts do not
// fit, and as [Memory.Advance]; then the device goes on with what it has.
func (b *Bundle) Open(p *Policy, m Memory, now time.Time, further func(old int64, c *Checkpoint) ([]Hash, error)) (*Opened, Memory, error) {
	w, err := p.Open(b.Note, now)
	if err != nil {
		return nil, m, err
	}
	o, active, err := b.verify(w)
	if err != nil {
		return nil, m, err
	}
	if err := w.Fresh(now); err != nil {
		return nil, m, err
	}
	switch {
	case o.Begin.After(now.Add(Skew)):
		return nil, m, fmt.Errorf("%w: what holds from %s on", ErrBundle, o.Begin.Format(time.RFC3339))
	case now.Sub(o.End) > MaxAge:
		return nil, m, &StaleError{o.End, now}
	case w.Time.Sub(o.End) > max(o.End.Sub(o.Begin), Skew):
		// A log that goes on says with each period what holds: this one is kept back.
		return nil, m, fmt.Errorf("%w: what held until %s, under a checkpoint of %s", ErrBundle, o.End.Format(time.RFC3339), w.Time.Format(time.RFC3339))
	}
	next, left, err := m.advance(w, active, o.Begin, now, b.Steps, further)
	if err != nil {
		return nil, m, err
	}
	o.Left = left
	return o, next, nil
}

// verify holds all records to the checkpoint, and to the active set that is the last of
// them.
func (b *Bundle) verify(w *Witnessed) (*Opened, Placed, error) {
	bad := func(format string, args ...any) (*Opened, Placed, error) {
		return nil, Placed{}, fmt.Errorf("%w: %s", ErrBundle, fmt.Sprintf(format, args...))
	}
	o := &Opened{Witnessed: *w}
	for _, r := range b.Records {
		leaf := LeafHash(r.Entry)
		if r.Index >= w.Size || merkle.CheckRecord(r.Proof, w.Size, w.Root, r.Index, leaf) != nil {
			return bad("entry %d is not in the log", r.Index)
		}
		e, err := ReadEntry(r.Entry)
		if errors.Is(err, ErrLater) {
			e, err = Entry{}, nil // its place is proved; a device that stopped here could be stopped by every new version
		}
		if err != nil {
			return bad("entry %d: %v", r.Index, err)
		}
		o.Entries = append(o.Entries, Placed{r.Index, leaf, e})
	}
	if len(o.Entries) == 0 {
		return bad("it is empty")
	}
	last := o.Entries[len(o.Entries)-1]
	o.Entries = o.Entries[:len(o.Entries)-1]
	a, err := ReadActive(last.Entry)
	if err != nil {
		return bad("entry %d: %v", last.Index, err)
	}
	if !slices.EqualFunc(a.Entries, o.Entries, func(i int64, p Placed) bool { return i == p.Index }) {
		return bad("it does not have the %d entries that hold as entry %d of the log says, and no other", len(a.Entries), last.Index)
	}
	if slices.ContainsFunc(o.Entries, func(p Placed) bool { return p.Entry.Kind == KindActive }) {
		return bad("an active set holds by itself")
	}
	o.Begin, o.End = a.Begin, a.End
	return o, last, nil
}
