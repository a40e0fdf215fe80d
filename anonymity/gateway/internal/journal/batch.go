package journal

import (
	"crypto/sha256"
	"errors"
	"math"
	"time"

	"golang.org/x/crypto/cryptobyte"
)

// A Member is a round's group in a batch.
type Member struct {
	Round uint64
	Group int
}

// A Ref names an item of a round.
type Ref struct {
	Round uint64
	Item  int
}

// A Batch is groups of one route that go to their target together, shuffled and cut into
// pieces, each one request. A piece that was split is its first half, and its second half
// is the last piece. Settled pieces are nil.
type Batch struct {
	Number  uint64
	Route   Route
	Members []Member
	Pieces  [][]Ref
	// GivenUp says that its groups were never cut: their time was over.
	GivenUp bool
}

// Split halves a piece and returns the number of its second half.
func (b *Batch) Split(piece int) int {
	p := b.Pieces[piece]
	half := len(p) / 2
	b.Pieces[piece] = p[:half:half]
	b.Pieces = append(b.Pieces, p[half:])
	return len(b.Pieces) - 1
}

// Kinds of records of the log.
const (
	kindCut     = 1
	kindSplit   = 2
	kindSettle  = 3
	kindGivenUp = 4
	kindPassed  = 5
	kindTotals  = 6
	kindKnown   = 7
	kindEnded   = 8
	kindOpened  = 9
)

var errRecord = errors.New("journal: malformed record")

// append encodes a batch as a record:
//
//	uint8 kind = 1; uint64 batch; Route route; {uint64 round; uint32 group} members<0..2^32-1>;
//	{ {uint64 round; uint32 item} piece<0..2^32-1> } pieces<0..2^32-1>
//
// One that was given up has kind 4, and no pieces. The other records are
//
//	uint8 kind = 2, split;   uint64 batch; uint32 piece
//	uint8 kind = 3, settled; uint64 batch; uint32 piece; Counts counts
//	uint8 kind = 5, passed;  uint64 passed (nanoseconds)
//	uint8 kind = 6, totals;  uint64 passed; Counts counts; uint64 next; uint64 live<0..2^32-1>
//	uint8 kind = 7, known;   Route route
//	uint8 kind = 8, ended;   uint64 round; Opened opened<0..2^32-1>
//	uint8 kind = 9, opened;  Opened opened
//
// with
//
//	struct { opaque key[16]; uint64 records; opaque chain[32]; } Opened;
//
// Totals say which of the rounds below next are not done; later ones are not done unless
// they are said to have ended. Counts are in counts.go. Those of a batch that was given up stand behind it.
func (b *Batch) append(dst []byte) ([]byte, error) {
	w := cryptobyte.NewBuilder(dst)
	kind := uint8(kindCut)
	if b.GivenUp {
		kind = kindGivenUp
	}
	w.AddUint8(kind)
	w.AddUint64(b.Number)
	addRoute(w, b.Route)
	w.AddUint32LengthPrefixed(func(w *cryptobyte.Builder) {
		for _, m := range b.Members {
			w.AddUint64(m.Round)
			w.AddUint32(uint32(m.Group))
		}
	})
	w.AddUint32LengthPrefixed(func(w *cryptobyte.Builder) {
		for _, p := range b.Pieces {
			w.AddUint32LengthPrefixed(func(w *cryptobyte.Builder) {
				for _, r := range p {
					w.AddUint64(r.Round)
					w.AddUint32(uint32(r.Item))
				}
			})
		}
	})
	return w.Bytes()
}

func appendSplit(batch uint64, piece int) []byte {
	w := cryptobyte.NewBuilder(nil)
	w.AddUint8(kindSplit)
	w.AddUint64(batch)
	w.AddUint32(uint32(piece))
	return w.BytesOrPanic() // fixed sizes
}

func appendSettle(batch uint64, piece int, c Counts) ([]byte, error) {
	w := cryptobyte.NewBuilder(nil)
	w.AddUint8(kindSettle)
	w.AddUint64(batch)
	w.AddUint32(uint32(piece))
	c.add(w)
	return w.Bytes()
}

func appendGivenUp(b *Batch, c Counts) ([]byte, error) {
	record, err := b.append(nil)
	if err != nil {
		return nil, err
	}
	w := cryptobyte.NewBuilder(record)
	c.add(w)
	return w.Bytes()
}

func appendKnown(r Route) ([]byte, error) {
	w := cryptobyte.NewBuilder([]byte{kindKnown})
	addRoute(w, r)
	return w.Bytes()
}

func appendPassed(d time.Duration) []byte {
	w := cryptobyte.NewBuilder([]byte{kindPassed})
	w.AddUint64(uint64(d))
	return w.BytesOrPanic() // fixed sizes
}

// appendTotals encodes totals; live is in rising order.
func appendTotals(passed time.Duration, c Counts, next uint64, live []uint64) ([]byte, error) {
	w := cryptobyte.NewBuilder([]byte{kindTotals})
	w.AddUint64(uint64(passed))
	c.add(w)
	w.AddUint64(next)
	w.AddUint32LengthPrefixed(func(w *cryptobyte.Builder) {
		for _, n := range live {
			w.AddUint64(n)
		}
	})
	return w.Bytes()
}

func appendEnded(round uint64, opened []Opened) ([]byte, error) {
	w := cryptobyte.NewBuilder([]byte{kindEnded})
	w.AddUint64(round)
	w.AddUint32LengthPrefixed(func(w *cryptobyte.Builder) {
		for _, o := range opened {
			o.add(w)
		}
	})
	return w.Bytes()
}

func appendOpened(o Opened) []byte {
	w := cryptobyte.NewBuilder([]byte{kindOpened})
	o.add(w)
	return w.BytesOrPanic() // fixed sizes
}

// Opened is how far the log of what a key has opened has come: how many records it begins
// with, and what they chain to. The journal vouches for that log, which cannot by itself
// tell that it was cut.
type Opened struct {
	Key     [KeySize]byte
	Records uint64
	Chain   [sha256.Size]byte
}

// Add takes a record of the log into account.
func (o *Opened) Add(record []byte) {
	h := sha256.New()
	h.Write(o.Chain[:])
	h.Write(record)
	o.Records, o.Chain = o.Records+1, [sha256.Size]byte(h.Sum(nil))
}

func (o *Opened) add(w *cryptobyte.Builder) {
	w.AddBytes(o.Key[:])
	w.AddUint64(o.Records)
	w.AddBytes(o.Chain[:])
}

func (o *Opened) read(s *cryptobyte.String) bool {
	return s.CopyBytes(o.Key[:]) && s.ReadUint64(&o.Records) && s.CopyBytes(o.Chain[:])
}

// played is what a log says so far.
type played struct {
	batches map[uint64]*Batch
	passed  time.Duration
	counts  Counts
	known   map[Route]bool
	next    uint64          // of the totals
	live    map[uint64]bool // of the rounds below next
	ended   map[uint64]bool // since
	opened  map[[KeySize]byte]Opened
}

func newPlayed() *played {
	return &played{batches: make(map[uint64]*Batch), known: make(map[Route]bool), live: make(map[uint64]bool),
		ended: make(map[uint64]bool), opened: make(map[[KeySize]byte]Opened)}
}

// lives says whether a round that was acknowledged is not done.
func (l *played) lives(round uint64) bool {
	return (round >= l.next || l.live[round]) && !l.ended[round]
}

// first is the lowest number that a round may have that lives.
func (l *played) first() uint64 {
	first := l.next
	for n := range l.live {
		first = min(first, n)
	}
	return first
}

// play applies a record. Steps of a batch that is gone are those of one that was done;
// what they counted counts.
func (l *played) play(record []byte) error {
	s := cryptobyte.String(record)
	var kind uint8
	if !s.ReadUint8(&kind) {
		return errRecord
	}
	switch kind {
	case kindCut, kindGivenUp:
		b, c, err := readBatch(&s, kind == kindGivenUp)
		if err != nil {
			return err
		}
		l.batches[b.Number] = b
		l.counts.Add(c)
		return nil
	case kindSplit, kindSettle:
		var number uint64
		var piece uint32
		var counts Counts
		if !s.ReadUint64(&number) || !s.ReadUint32(&piece) || kind == kindSettle && !counts.read(&s) || !s.Empty() {
			return errRecord
		}
		b := l.batches[number]
		if b != nil && int(piece) >= len(b.Pieces) {
			return errRecord
		}
		l.counts.Add(counts)
		switch {
		case b == nil:
		case kind == kindSplit:
			b.Split(int(piece))
		default:
			b.Pieces[piece] = nil
		}
		return nil
	case kindPassed, kindTotals:
		var passed uint64
		if !s.ReadUint64(&passed) || passed > math.MaxInt64 || kind == kindTotals && !l.readTotals(&s) || !s.Empty() {
			return errRecord
		}
		l.passed = max(l.passed, time.Duration(passed))
		return nil
	case kindEnded:
		var round uint64
		var list cryptobyte.String
		if !s.ReadUint64(&round) || !read32(&s, &list) || !s.Empty() {
			return errRecord
		}
		l.ended[round] = true
		for !list.Empty() {
			var o Opened
			if !o.read(&list) {
				return errRecord
			}
			l.opened[o.Key] = o
		}
		return nil
	case kindOpened:
		var o Opened
		if !o.read(&s) || !s.Empty() {
			return errRecord
		}
		l.opened[o.Key] = o
		return nil
	case kindKnown:
		var r Route
		if !readRoute(&s, &r) || !s.Empty() {
			return errRecord
		}
		l.known[r] = true
		return nil
	}
	return errRecord
}

// readTotals reads totals behind the time: they hold of all that stands before.
func (l *played) readTotals(s *cryptobyte.String) bool {
	var counts Counts
	var next uint64
	var list cryptobyte.String
	if !counts.read(s) || !s.ReadUint64(&next) || !read32(s, &list) {
		return false
	}
	live, last := make(map[uint64]bool), uint64(0)
	for !list.Empty() {
		var n uint64
		if !list.ReadUint64(&n) || n >= next || len(live) > 0 && n <= last {
			return false
		}
		live[n], last = true, n
	}
	l.counts, l.next, l.live, l.ended = counts, next, live, make(map[uint64]bool)
	return true
}

// readBatch reads a batch behind its kind.
func readBatch(s *cryptobyte.String, givenUp bool) (b *Batch, c Counts, err error) {
	b = &Batch{GivenUp: givenUp}
	var members, pieces cryptobyte.String
	if !s.ReadUint64(&b.Number) || !readRoute(s, &b.Route) || !read32(s, &members) || !read32(s, &pieces) ||
		givenUp && (!pieces.Empty() || !c.read(s)) || !s.Empty() {
		return nil, nil, errRecord
	}
	for !members.Empty() {
		var m Member
		var group uint32
		if !members.ReadUint64(&m.Round) || !members.ReadUint32(&group) {
			return nil, nil, errRecord
		}
		m.Group = int(group)
		b.Members = append(b.Members, m)
	}
	for !pieces.Empty() {
		var p cryptobyte.String
		if !read32(&pieces, &p) {
			return nil, nil, errRecord
		}
		var piece []Ref
		for !p.Empty() {
			var r Ref
			var item uint32
			if !p.ReadUint64(&r.Round) || !p.ReadUint32(&item) {
				return nil, nil, errRecord
			}
			r.Item = int(item)
			piece = append(piece, r)
		}
		b.Pieces = append(b.Pieces, piece)
	}
	return b, c, nil
}
