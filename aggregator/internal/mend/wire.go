package mend

import (
	"errors"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dap"
)

// Path is where a helper takes part in mending, below tasks/{task}/.
const Path = "starling_replay"

// Media labels the messages.
const Media = "application/vnd.starling.replay"

// Limits of the messages.
const (
	PageSize = 1 << 14 // entries
	MaxNeeds = 64

	idSize    = 16
	entrySize = idSize + 1
	needSize  = 32 + 2*idSize + 8

	// MaxMessage is the length of the longest message, in bytes.
	MaxMessage = 32 + idSize + PageSize*entrySize
)

// ErrMessage is about a message that is none.
var ErrMessage = errors.New("mend: malformed message")

// An Entry is a report id that its sender aggregated. Marked are those of which the
// receiver may know that it has not aggregated them.
type Entry struct {
	ID     dap.ReportID
	Marked bool
}

// A Need is a run that is damaged, and from which id on entries are wanted for it.
type Need struct {
	Sum        [32]byte
	Next, High dap.ReportID
	IDs        uint64
}

// AppendNeeds appends at most MaxNeeds of the needs.
func AppendNeeds(b []byte, needs []Need) []byte {
	for _, n := range needs[:min(len(needs), MaxNeeds)] {
		b = append(b, n.Sum[:]...)
		b = append(b, n.Next[:]...)
		b = append(b, n.High[:]...)
		c := cryptobyte.NewBuilder(b)
		c.AddUint64(n.IDs)
		b = c.BytesOrPanic()
	}
	return b
}

// ReadNeeds reads all of b.
func ReadNeeds(b []byte) ([]Need, error) {
	if len(b) > MaxNeeds*needSize {
		return nil, ErrMessage
	}
	var needs []Need
	for s := cryptobyte.String(b); !s.Empty(); {
		var n Need
		if !s.CopyBytes(n.Sum[:]) || !s.CopyBytes(n.Next[:]) || !s.CopyBytes(n.High[:]) || !s.ReadUint64(&n.IDs) ||
			compare(n.Next, n.High) > 0 || n.IDs == 0 {
			return nil, ErrMessage
		}
		needs = append(needs, n)
	}
	return needs, nil
}

// AppendAsk appends the request for the ids from low to high.
func AppendAsk(b []byte, low, high dap.ReportID) []byte {
	return append(append(b, low[:]...), high[:]...)
}

// ReadAsk reads all of b.
func ReadAsk(b []byte) (low, high dap.ReportID, err error) {
	s := cryptobyte.String(b)
	if !s.CopyBytes(low[:]) || !s.CopyBytes(high[:]) || !s.Empty() || compare(low, high) > 0 {
		return low, high, ErrMessage
	}
	return low, high, nil
}

// AppendPage appends entries.
func AppendPage(b []byte, entries []Entry) []byte {
	for _, e := range entries {
		b = append(b, e.ID[:]...)
		if e.Marked {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	return b
}

// ReadPage reads all of b: at most PageSize entries, ascending.
func ReadPage(b []byte) ([]Entry, error) {
	if len(b) > PageSize*entrySize || len(b)%entrySize != 0 {
		return nil, ErrMessage
	}
	entries := make([]Entry, 0, len(b)/entrySize)
	for s := cryptobyte.String(b); !s.Empty(); {
		var e Entry
		var mark uint8
		if !s.CopyBytes(e.ID[:]) || !s.ReadUint8(&mark) || mark > 1 {
			return nil, ErrMessage
		}
		if n := len(entries); n > 0 && compare(entries[n-1].ID, e.ID) >= 0 {
			return nil, ErrMessage
		}
		e.Marked = mark == 1
		entries = append(entries, e)
	}
	return entries, nil
}

// A Gift is a page for the run of that SHA-256, of ids from From on.
type Gift struct {
	Sum  [32]byte
	From dap.ReportID
	Page []Entry
}

// Append appends the gift's bytes.
func (g *Gift) Append(b []byte) []byte {
	return AppendPage(append(append(b, g.Sum[:]...), g.From[:]...), g.Page)
}

// ReadGift reads all of b.
func ReadGift(b []byte) (g Gift, err error) {
	s := cryptobyte.String(b)
	if !s.CopyBytes(g.Sum[:]) || !s.CopyBytes(g.From[:]) {
		return g, ErrMessage
	}
	g.Page, err = ReadPage(s)
	return g, err
}

// Outcome is what became of a gift.
type Outcome uint8

const (
	Go     Outcome = iota // give the next page, from the id that stands beside it
	Mended                // the run is whole, or no run of that SHA-256 is damaged
	Unlike                // the ids are not those of the run
)

// AppendOutcome appends the answer to a gift.
func AppendOutcome(b []byte, o Outcome, next dap.ReportID) []byte {
	return append(append(b, byte(o)), next[:]...)
}

// ReadOutcome reads all of b.
func ReadOutcome(b []byte) (o Outcome, next dap.ReportID, err error) {
	s := cryptobyte.String(b)
	if !s.ReadUint8((*uint8)(&o)) || !s.CopyBytes(next[:]) || !s.Empty() || o > Unlike {
		return o, next, ErrMessage
	}
	return o, next, nil
}
