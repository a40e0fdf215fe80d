package journal

import (
	"errors"

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
	kindCut    = 1
	kindSplit  = 2
	kindSettle = 3
)

var errRecord = errors.New("journal: malformed record")

// append encodes a batch as a record:
//
//	uint8 kind = 1; uint64 batch; Route route; {uint64 round; uint32 group} members<0..2^32-1>;
//	{ {uint64 round; uint32 item} piece<0..2^32-1> } pieces<0..2^32-1>
//
// The others are {uint8 kind = 2, split, or 3, settled; uint64 batch; uint32 piece}.
func (b *Batch) append(dst []byte) ([]byte, error) {
	w := cryptobyte.NewBuilder(dst)
	w.AddUint8(kindCut)
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

func appendStep(kind uint8, batch uint64, piece int) []byte {
	w := cryptobyte.NewBuilder(nil)
	w.AddUint8(kind)
	w.AddUint64(batch)
	w.AddUint32(uint32(piece))
	return w.BytesOrPanic() // fixed sizes
}

// play applies a record to the batches. Steps of a batch that is gone are those of one
// that was done.
func play(batches map[uint64]*Batch, record []byte) error {
	s := cryptobyte.String(record)
	var kind uint8
	var number uint64
	if !s.ReadUint8(&kind) || !s.ReadUint64(&number) {
		return errRecord
	}
	switch kind {
	case kindCut:
		b := &Batch{Number: number}
		var members, pieces cryptobyte.String
		if !readRoute(&s, &b.Route) || !read32(&s, &members) || !read32(&s, &pieces) || !s.Empty() {
			return errRecord
		}
		for !members.Empty() {
			var m Member
			var group uint32
			if !members.ReadUint64(&m.Round) || !members.ReadUint32(&group) {
				return errRecord
			}
			m.Group = int(group)
			b.Members = append(b.Members, m)
		}
		for !pieces.Empty() {
			var p cryptobyte.String
			if !read32(&pieces, &p) {
				return errRecord
			}
			var piece []Ref
			for !p.Empty() {
				var r Ref
				var item uint32
				if !p.ReadUint64(&r.Round) || !p.ReadUint32(&item) {
					return errRecord
				}
				r.Item = int(item)
				piece = append(piece, r)
			}
			b.Pieces = append(b.Pieces, piece)
		}
		batches[number] = b
		return nil
	case kindSplit, kindSettle:
		var piece uint32
		if !s.ReadUint32(&piece) || !s.Empty() {
			return errRecord
		}
		b := batches[number]
		if b == nil {
			return nil
		}
		if int(piece) >= len(b.Pieces) {
			return errRecord
		}
		if kind == kindSplit {
			b.Split(int(piece))
		} else {
			b.Pieces[piece] = nil
		}
		return nil
	}
	return errRecord
}
