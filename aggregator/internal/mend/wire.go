package mend

import (
	"errors"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/wire"
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
	needs = needs[:min(len(needs), MaxNeeds)]
	return wire.MustAppend(b, codeNeeds(&needs))
}

// ReadNeeds reads all of b.
func ReadNeeds(b []byte) (needs []Need, err error) {
	err = wire.Read(b, ErrMessage, codeNeeds(&needs))
	return needs, err
}

func codeNeeds(needs *[]Need) func(*wire.Coder) {
	return func(c *wire.Coder) {
		wire.Items(c, needs, func(i int, n *Need) {
			c.CheckRead(i < MaxNeeds, "too many needs")
			c.Fixed(n.Sum[:], "sum")
			c.Fixed(n.Next[:], "next id")
			c.Fixed(n.High[:], "highest id")
			c.Uint64(&n.IDs, "ids")
			c.CheckRead(compare(n.Next, n.High) <= 0 && n.IDs > 0, "need of no ids")
		})
	}
}

// AppendAsk appends the request for the ids from low to high.
func AppendAsk(b []byte, low, high dap.ReportID) []byte {
	return wire.MustAppend(b, codeAsk(&low, &high))
}

// ReadAsk reads all of b.
func ReadAsk(b []byte) (low, high dap.ReportID, err error) {
	err = wire.Read(b, ErrMessage, codeAsk(&low, &high))
	return low, high, err
}

func codeAsk(low, high *dap.ReportID) func(*wire.Coder) {
	return func(c *wire.Coder) {
		c.Fixed(low[:], "lowest id")
		c.Fixed(high[:], "highest id")
		c.CheckRead(compare(*low, *high) <= 0, "request for no ids")
	}
}

// AppendPage appends entries.
func AppendPage(b []byte, entries []Entry) []byte {
	return wire.MustAppend(b, func(c *wire.Coder) { codePage(c, &entries) })
}

// ReadPage reads all of b: at most PageSize entries, ascending.
func ReadPage(b []byte) (entries []Entry, err error) {
	err = wire.Read(b, ErrMessage, func(c *wire.Coder) { codePage(c, &entries) })
	return entries, err
}

func codePage(c *wire.Coder, entries *[]Entry) {
	wire.Items(c, entries, func(i int, e *Entry) {
		c.CheckRead(i < PageSize, "page is too long")
		c.Fixed(e.ID[:], "id")
		c.Bool(&e.Marked, "mark")
		c.CheckRead(i == 0 || compare((*entries)[i-1].ID, e.ID) < 0, "ids do not rise")
	})
}

// A Gift is a page for the run of that SHA-256, of ids from From on.
type Gift struct {
	Sum  [32]byte
	From dap.ReportID
	Page []Entry
}

func (g *Gift) code(c *wire.Coder) {
	c.Fixed(g.Sum[:], "sum")
	c.Fixed(g.From[:], "first id")
	codePage(c, &g.Page)
}

// Append appends the gift's bytes.
func (g *Gift) Append(b []byte) []byte { return wire.MustAppend(b, g.code) }

// ReadGift reads all of b.
func ReadGift(b []byte) (g Gift, err error) {
	err = wire.Read(b, ErrMessage, g.code)
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
	return wire.MustAppend(b, codeOutcome(&o, &next))
}

// ReadOutcome reads all of b.
func ReadOutcome(b []byte) (o Outcome, next dap.ReportID, err error) {
	err = wire.Read(b, ErrMessage, codeOutcome(&o, &next))
	return o, next, err
}

func codeOutcome(o *Outcome, next *dap.ReportID) func(*wire.Coder) {
	return func(c *wire.Coder) {
		c.Uint8((*uint8)(o), "outcome")
		c.CheckRead(*o <= Unlike, "unknown outcome")
		c.Fixed(next[:], "next id")
	}
}
