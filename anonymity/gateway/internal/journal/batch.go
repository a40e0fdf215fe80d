package journal

import (
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
//	uint8 kind = 6, totals;  uint64 passed; Counts counts
//	uint8 kind = 7, known;   Route route
//
// Counts are in counts.go. Those of a batch that was given up stand behind it.
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

func appendTotals(passed time.Duration, c Counts) ([]byte, error) {
	w := cryptobyte.NewBuilder([]byte{kindTotals})
	w.AddUint64(uint64(passed))
	c.add(w)
	return w.Bytes()
}

// played is what a log says so far.
type played struct {
	batches map[uint64]*Batch
	passed  time.Duration
	counts  Counts
	known   map[Route]bool
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
		var counts Counts
		if !s.ReadUint64(&passed) || passed > math.MaxInt64 || kind == kindTotals && !counts.read(&s) || !s.Empty() {
			return errRecord
		}
		l.passed = max(l.passed, time.Duration(passed))
		if kind == kindTotals { // of all that stands before
			l.counts = counts
		}
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
