package journal

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/internal/wire"
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

// A step is a record of the log:
//
//	uint8 kind = 1, cut;     uint64 batch; Route route;
//	                         {uint64 round; uint32 group} members<0..2^32-1>;
//	                         { {uint64 round; uint32 item} piece<0..2^32-1> }
//	                         pieces<0..2^32-1>
//	uint8 kind = 2, split;   uint64 batch; uint32 piece
//	uint8 kind = 3, settled; uint64 batch; uint32 piece; Counts counts
//	uint8 kind = 4, given up; as cut, without pieces; Counts counts
//	uint8 kind = 5, passed;  uint64 passed (nanoseconds)
//	uint8 kind = 6, totals;  uint64 passed; Counts counts; uint64 next;
//	                         uint64 live<0..2^32-1>
//	uint8 kind = 7, known;   Route route
//	uint8 kind = 8, ended;   uint64 round; Opened opened<0..2^32-1>
//	uint8 kind = 9, opened;  Opened opened
//
// with
//
//	struct { opaque key[16]; uint64 records; opaque chain[32]; } Opened;
//
// Totals say which of the rounds below next are not done; later ones are not done unless
// they are said to have ended. Counts are in counts.go.
type step struct {
	kind   uint8
	batch  Batch
	number uint64 // of a batch, or of a round that ended
	piece  int
	counts Counts
	passed time.Duration
	next   uint64
	live   []uint64 // rising
	route  Route
	opened []Opened
}

func (s *step) code(c *wire.Coder) {
	c.Uint8(&s.kind, "kind")
	switch s.kind {
	case kindCut:
		s.batch.code(c)
	case kindGivenUp:
		s.batch.code(c)
		c.CheckRead(len(s.batch.Pieces) == 0, "pieces of a batch that was given up")
		s.counts.code(c)
	case kindSplit, kindSettle:
		c.Uint64(&s.number, "batch")
		codeInt(c, &s.piece, "piece")
		if s.kind == kindSettle {
			s.counts.code(c)
		}
	case kindPassed:
		codePassed(c, &s.passed)
	case kindTotals:
		codePassed(c, &s.passed)
		s.counts.code(c)
		c.Uint64(&s.next, "next round")
		c.Nested32("live rounds", func() {
			wire.Items(c, &s.live, func(i int, n *uint64) {
				c.Uint64(n, "live round")
				c.CheckRead(*n < s.next && (i == 0 || s.live[i-1] < *n), "live rounds do not rise to the next")
			})
		})
	case kindKnown:
		s.route.code(c)
	case kindEnded:
		c.Uint64(&s.number, "round")
		c.Nested32("opened", func() {
			wire.Items(c, &s.opened, func(_ int, o *Opened) { o.code(c) })
		})
	case kindOpened:
		wire.Items(c, &s.opened, func(_ int, o *Opened) { o.code(c) })
		c.Check(len(s.opened) == 1, "not one key")
	default:
		c.Fail("unknown kind")
	}
}

func (b *Batch) code(c *wire.Coder) {
	c.Uint64(&b.Number, "batch")
	b.Route.code(c)
	c.Nested32("members", func() {
		wire.Items(c, &b.Members, func(_ int, m *Member) {
			c.Uint64(&m.Round, "round")
			codeInt(c, &m.Group, "group")
		})
	})
	c.Nested32("pieces", func() {
		wire.Items(c, &b.Pieces, func(_ int, piece *[]Ref) {
			c.Nested32("piece", func() {
				wire.Items(c, piece, func(_ int, r *Ref) {
					c.Uint64(&r.Round, "round")
					codeInt(c, &r.Item, "item")
				})
			})
		})
	})
}

func (b *Batch) append(dst []byte) ([]byte, error) {
	return wire.Append(dst, errRecord, (&step{kind: kindCut, batch: *b}).code)
}

func appendSplit(batch uint64, piece int) []byte {
	return wire.MustAppend(nil, (&step{kind: kindSplit, number: batch, piece: piece}).code)
}

func appendSettle(batch uint64, piece int, counts Counts) ([]byte, error) {
	return wire.Append(nil, errRecord, (&step{kind: kindSettle, number: batch, piece: piece, counts: counts}).code)
}

func appendGivenUp(b *Batch, counts Counts) ([]byte, error) {
	return wire.Append(nil, errRecord, (&step{kind: kindGivenUp, batch: *b, counts: counts}).code)
}

func appendKnown(r Route) ([]byte, error) {
	return wire.Append(nil, errRecord, (&step{kind: kindKnown, route: r}).code)
}

func appendPassed(d time.Duration) []byte {
	return wire.MustAppend(nil, (&step{kind: kindPassed, passed: d}).code)
}

// appendTotals encodes totals; live is in rising order.
func appendTotals(passed time.Duration, counts Counts, next uint64, live []uint64) ([]byte, error) {
	return wire.Append(nil, errRecord, (&step{kind: kindTotals, passed: passed, counts: counts, next: next, live: live}).code)
}

func appendEnded(round uint64, opened []Opened) ([]byte, error) {
	return wire.Append(nil, errRecord, (&step{kind: kindEnded, number: round, opened: opened}).code)
}

func appendOpened(o Opened) []byte {
	return wire.MustAppend(nil, (&step{kind: kindOpened, opened: []Opened{o}}).code)
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

func (o *Opened) code(c *wire.Coder) {
	c.Fixed(o.Key[:], "key")
	c.Uint64(&o.Records, "records")
	c.Fixed(o.Chain[:], "chain")
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
	var s step
	if err := wire.Read(record, errRecord, s.code); err != nil {
		return err
	}
	l.counts.Add(s.counts)
	switch s.kind {
	case kindCut, kindGivenUp:
		s.batch.GivenUp = s.kind == kindGivenUp
		l.batches[s.batch.Number] = &s.batch
	case kindSplit, kindSettle:
		b := l.batches[s.number]
		switch {
		case b == nil:
		case s.piece >= len(b.Pieces):
			return fmt.Errorf("%w: no such piece", errRecord)
		case s.kind == kindSplit:
			b.Split(s.piece)
		default:
			b.Pieces[s.piece] = nil
		}
	case kindPassed:
		l.passed = max(l.passed, s.passed)
	case kindTotals: // of all that stands before
		l.passed = max(l.passed, s.passed)
		l.counts, l.next, l.live, l.ended = s.counts, s.next, make(map[uint64]bool), make(map[uint64]bool)
		for _, n := range s.live {
			l.live[n] = true
		}
	case kindKnown:
		l.known[s.route] = true
	case kindEnded, kindOpened:
		if s.kind == kindEnded {
			l.ended[s.number] = true
		}
		for _, o := range s.opened {
			l.opened[o.Key] = o
		}
	}
	return nil
}
