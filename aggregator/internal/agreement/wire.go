package agreement

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/wire"
)

// Versions of [Message], its first byte: a helper answers in that of the question, and a
// leader whose helper does not know the newest asks again in the oldest, so that either may
// be changed for a newer one before the other.
const (
	Oldest = 1
	Newest = 2 // has what is closed: Closing
)

// partVersion is the first byte of every [Part].
const partVersion = 1

// Limits of messages.
const (
	// MaxTasks is how many tasks one message lists; whoever has more sends more messages.
	MaxTasks = 1024
	// MaxPrints is how many releases one message lists.
	MaxPrints = 1 << 16
	// MaxMessage bounds a message, in bytes.
	MaxMessage = 8 << 20

	maxParts = 1 << 8
)

// ErrMessage is a message that is malformed, or not in its one encoding.
var ErrMessage = errors.New("agreement: malformed message")

// A VersionError is a message of another version.
type VersionError struct{ Version uint8 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("agreement: a message of version %d, where %d to %d are known here", e.Version, Oldest, Newest)
}

// A Service is what an aggregator says of itself, whatever the task.
type Service struct {
	// Now is its clock, in milliseconds since 1970.
	Now uint64
	// Offset is how far the other's clock is ahead of its own at least, in milliseconds:
	// what the leader has measured, with all doubt taken off. 0 at the helper.
	Offset int64
	// Skew is the clock skew that it allows, in seconds.
	Skew uint32
	// JobBytes and JobReports are of the largest aggregation job that it sends, at the
	// leader, or takes, at the helper.
	JobBytes   uint64
	JobReports uint32
}

// A State is what an aggregator has of a task.
type State uint8

// States. A task that is not Held has no digest and no facts.
const (
	Held    State = iota // it takes part in it
	Unknown              // it does not, or not with a leader of that token
	Retired              // it did, and has erased all but the ledger

	states
)

// An Entry is a task in a message. Facts are there where they are asked for.
type Entry struct {
	Task   dap.TaskID
	State  State
	Digest Digest
	Facts  *Facts
}

// A Message is either side's of an exchange.
//
// The leader's begins it without entries: Root is over all tasks that it has with that
// helper, [Root]. If the helper's differs, the leader lists them, and the helper's answer
// has those in which they differ, with its facts; the leader sends its own then.
type Message struct {
	Version uint8
	Service Service
	Root    Digest
	Entries []Entry // tasks rising
}

// Root is over the digests of tasks, in the order of their ids; it is no secret what is
// under it, so it needs no key.
func Root(entries []Entry) Digest {
	return Key{[]byte(domain)}.digest("root", wire.MustAppend(nil, func(c *wire.Coder) {
		c.Const("root\x00", "")
		wire.Items(c, &entries, func(_ int, e *Entry) {
			c.Fixed(e.Task[:], "task")
			c.Fixed(e.Digest[:], "digest")
		})
	}))
}

// Append encodes the message.
//
//	struct {
//	  uint8 version;   // 1 or 2
//	  uint64 now; int64 offset; uint32 skew; uint64 job_bytes; uint32 job_reports;
//	  opaque root[16];
//	  Entry entries<0..2^24-1>;
//	} Message;
//	struct { opaque task[32]; uint8 state; opaque digest[16]; Facts facts<0..2^16-1>; } Entry;
//	struct {
//	  opaque config[16], collector[16], calendar[16], noise[16];
//	  uint16 wire; uint8 framing; uint32 closed_in;
//	  struct { uint8 id; opaque digest[16]; } keys<0..2^16-1>;
//	  uint64 releases; opaque sum[32];
//	  uint64 seen;
//	  select (version) { case 1: {}; case 2: Closing closing; }
//	} Facts;
//	struct { uint8 state; opaque why<0..2^16-1>; } Closing;
func (m *Message) Append(dst []byte) ([]byte, error) { return wire.Append(dst, ErrMessage, m.code) }

func (m *Message) code(c *wire.Coder) {
	if c.Uint8(&m.Version, "version"); c.Err() == nil && (m.Version < Oldest || m.Version > Newest) {
		c.Abort(&VersionError{m.Version})
	}
	c.Uint64(&m.Service.Now, "now")
	c.Int64(&m.Service.Offset, "offset")
	c.Uint32(&m.Service.Skew, "skew")
	c.Uint64(&m.Service.JobBytes, "job_bytes")
	c.Uint32(&m.Service.JobReports, "job_reports")
	c.Fixed(m.Root[:], "root")
	c.Nested24("entries", func() {
		wire.Items(c, &m.Entries, func(i int, e *Entry) {
			if i == MaxTasks {
				c.Fail(fmt.Sprintf("more than %d tasks", MaxTasks))
			}
			e.code(c, m.Version)
			c.Check(i == 0 || slices.Compare(m.Entries[i-1].Task[:], e.Task[:]) < 0, "tasks are not in order")
		})
	})
}

func (e *Entry) code(c *wire.Coder, version uint8) {
	c.Fixed(e.Task[:], "task")
	c.Uint8((*uint8)(&e.State), "state")
	c.Fixed(e.Digest[:], "digest")
	c.Nested16("facts", func() {
		if c.More() {
			e.Facts = new(Facts)
		}
		if e.Facts != nil {
			e.Facts.code(c, version)
		}
	})
	c.Check(e.State < states, "unknown state of a task")
	c.Check(e.State == Held || e.Digest == Digest{} && e.Facts == nil, "facts of a task that nobody holds")
}

func (f *Facts) code(c *wire.Coder, version uint8) {
	f.bound(c)
	c.Nested16("verification keys", func() { f.codeKeys(c) })
	c.Check(len(f.Keys) > 0, "no verification key")
	f.Ledger.code(c)
	c.Uint64(&f.Seen, "seen")
	if version >= 2 {
		f.Closing.code(c)
	}
}

func (x *Closing) code(c *wire.Coder) {
	c.Uint8((*uint8)(&x.State), "state of a closing")
	c.Text16(&x.Why, "reason of a closing")
	c.Check(x.State < closings, "unknown state of a closing")
	c.Check(x.State != Live || *x == Closing{}, "a closing of a task that is live")
	c.Check(len(x.Why) <= maxWhy, "a reason without end")
}

// bound is what has to be the same at both, whatever they are asked.
func (f *Facts) bound(c *wire.Coder) {
	c.Fixed(f.Config[:], "config")
	c.Fixed(f.Collector[:], "collector")
	c.Fixed(f.Calendar[:], "calendar")
	c.Fixed(f.Noise[:], "noise")
	c.Uint16(&f.Wire, "wire")
	c.Uint8((*uint8)(&f.Framing), "framing")
	c.Uint32(&f.ClosedIn, "closed_in")
}

func (f *Facts) codeKeys(c *wire.Coder) {
	wire.Items(c, &f.Keys, func(i int, k *VerifyKey) {
		c.Uint8(&k.ID, "id of a verification key")
		c.Fixed(k.Digest[:], "digest of a verification key")
		c.Check(i == 0 || f.Keys[i-1].ID < k.ID, "verification keys are not in order")
	})
}

func (t *Tally) code(c *wire.Coder) {
	c.Uint64(&t.Releases, "releases")
	c.Fixed(t.Sum[:], "sum")
}

// ReadMessage reads exactly one message and copies what it keeps. It fails with
// [ErrMessage] and *[VersionError].
func ReadMessage(body []byte) (*Message, error) {
	m := new(Message)
	if err := read(body, m.code); err != nil {
		return nil, err
	}
	return m, nil
}

func read(body []byte, table func(*wire.Coder)) error {
	if len(body) > MaxMessage {
		return fmt.Errorf("%w: of %d bytes", ErrMessage, len(body))
	}
	return wire.Read(body, ErrMessage, table)
}

// A Part is one of 2^Bits equal parts of a ledger: the prints whose first bits are Index,
// rising.
type Part struct {
	Bits   uint8 // 8 at most
	Index  uint8 // below 2^Bits
	Prints []Print
}

// Has says whether a print belongs to the part.
func (p *Part) Has(x Print) bool { return uint64(x)>>(64-p.Bits) == uint64(p.Index) }

// Parts returns by how many bits ledgers of a number of releases are cut into parts, and
// false where they are too long to be compared.
func Parts(releases uint64) (bits uint8, ok bool) {
	for releases > MaxPrints/2 { // hashes do not fall evenly
		releases, bits = (releases+1)/2, bits+1
	}
	return bits, 1<<bits <= maxParts
}

// Append encodes the part.
//
//	struct { uint8 version = 1; uint8 bits; uint8 index; uint64 prints<0..2^24-1>; } Part;
func (p *Part) Append(dst []byte) ([]byte, error) { return wire.Append(dst, ErrMessage, p.code) }

func (p *Part) code(c *wire.Coder) {
	version := uint8(partVersion)
	if c.Uint8(&version, "version"); c.Err() == nil && version != partVersion {
		c.Abort(&VersionError{version})
	}
	c.Uint8(&p.Bits, "bits")
	c.Uint8(&p.Index, "index")
	if 1<<min(p.Bits, 9) > maxParts || int(p.Index) >= 1<<p.Bits {
		c.Fail(fmt.Sprintf("part %d of 2^%d", p.Index, p.Bits))
	}
	c.Nested24("prints", func() {
		wire.Items(c, &p.Prints, func(i int, x *Print) {
			c.Uint64((*uint64)(x), "print")
			c.Check(i < MaxPrints, "too many releases")
			c.Check(i == 0 || p.Prints[i-1] < *x, "releases are not in order")
			c.Check(p.Has(*x), "a release of another part")
		})
	})
}

// ReadPart reads exactly one part and copies what it keeps. It fails with [ErrMessage] and
// *[VersionError].
func ReadPart(body []byte) (*Part, error) {
	p := new(Part)
	if err := read(body, p.code); err != nil {
		return nil, err
	}
	return p, nil
}

// Millis is a time as messages have it.
func Millis(t time.Time) uint64 { return uint64(max(t.UnixMilli(), 0)) }
