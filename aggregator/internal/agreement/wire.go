package agreement

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dap"
)

// Version is the first byte of every message here.
const Version = 1

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
	return fmt.Sprintf("agreement: a message of version %d, where %d is known here", e.Version, Version)
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
	Service Service
	Root    Digest
	Entries []Entry // tasks rising
}

// Root is over the digests of tasks, in the order of their ids; it is no secret what is
// under it, so it needs no key.
func Root(entries []Entry) Digest {
	var b cryptobyte.Builder
	b.AddBytes([]byte("root\x00"))
	for i := range entries {
		b.AddBytes(entries[i].Task[:])
		b.AddBytes(entries[i].Digest[:])
	}
	return Key{[]byte(domain)}.digest("root", b.BytesOrPanic())
}

// Append encodes the message.
//
//	struct {
//	  uint8 version = 1;
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
//	} Facts;
func (m *Message) Append(dst []byte) ([]byte, error) {
	if len(m.Entries) > MaxTasks {
		return nil, fmt.Errorf("agreement: %d tasks in one message", len(m.Entries))
	}
	b := cryptobyte.NewBuilder(dst)
	b.AddUint8(Version)
	b.AddUint64(m.Service.Now)
	b.AddUint64(uint64(m.Service.Offset))
	b.AddUint32(m.Service.Skew)
	b.AddUint64(m.Service.JobBytes)
	b.AddUint32(m.Service.JobReports)
	b.AddBytes(m.Root[:])
	b.AddUint24LengthPrefixed(func(b *cryptobyte.Builder) {
		for i := range m.Entries {
			e := &m.Entries[i]
			b.AddBytes(e.Task[:])
			b.AddUint8(uint8(e.State))
			b.AddBytes(e.Digest[:])
			b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
				if e.Facts != nil {
					e.Facts.append(b)
				}
			})
		}
	})
	return b.Bytes()
}

func (f *Facts) append(b *cryptobyte.Builder) {
	f.bound(b)
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		for _, k := range f.Keys {
			b.AddUint8(k.ID)
			b.AddBytes(k.Digest[:])
		}
	})
	b.AddUint64(f.Ledger.Releases)
	b.AddBytes(f.Ledger.Sum[:])
	b.AddUint64(f.Seen)
}

// ReadMessage reads exactly one message and copies what it keeps. It fails with
// [ErrMessage] and *[VersionError].
func ReadMessage(body []byte) (*Message, error) {
	in, err := open(body)
	if err != nil {
		return nil, err
	}
	m := new(Message)
	var offset uint64
	var entries cryptobyte.String
	if !in.ReadUint64(&m.Service.Now) || !in.ReadUint64(&offset) || !in.ReadUint32(&m.Service.Skew) || !in.ReadUint64(&m.Service.JobBytes) ||
		!in.ReadUint32(&m.Service.JobReports) || !in.CopyBytes(m.Root[:]) || !in.ReadUint24LengthPrefixed(&entries) || !in.Empty() {
		return nil, fmt.Errorf("%w: cut off or too long", ErrMessage)
	}
	m.Service.Offset = int64(offset)
	for !entries.Empty() {
		var e Entry
		var facts cryptobyte.String
		if !entries.CopyBytes(e.Task[:]) || !entries.ReadUint8((*uint8)(&e.State)) || !entries.CopyBytes(e.Digest[:]) ||
			!entries.ReadUint16LengthPrefixed(&facts) {
			return nil, fmt.Errorf("%w: an entry is cut off", ErrMessage)
		}
		if !facts.Empty() {
			if e.Facts, err = readFacts(facts); err != nil {
				return nil, err
			}
		}
		n := len(m.Entries)
		switch {
		case n == MaxTasks:
			return nil, fmt.Errorf("%w: more than %d tasks", ErrMessage, MaxTasks)
		case n > 0 && slices.Compare(m.Entries[n-1].Task[:], e.Task[:]) >= 0:
			return nil, fmt.Errorf("%w: tasks are not in order", ErrMessage)
		case e.State >= states:
			return nil, fmt.Errorf("%w: a task in state %d", ErrMessage, e.State)
		case e.State != Held && (e.Digest != Digest{} || e.Facts != nil):
			return nil, fmt.Errorf("%w: facts of a task that nobody holds", ErrMessage)
		}
		m.Entries = append(m.Entries, e)
	}
	return m, nil
}

func open(body []byte) (in cryptobyte.String, err error) {
	var version uint8
	if in = cryptobyte.String(body); len(body) > MaxMessage || !in.ReadUint8(&version) {
		return nil, fmt.Errorf("%w: of %d bytes", ErrMessage, len(body))
	}
	if version != Version {
		return nil, &VersionError{version}
	}
	return in, nil
}

func readFacts(in cryptobyte.String) (*Facts, error) {
	f := new(Facts)
	var keys cryptobyte.String
	if !in.CopyBytes(f.Config[:]) || !in.CopyBytes(f.Collector[:]) || !in.CopyBytes(f.Calendar[:]) || !in.CopyBytes(f.Noise[:]) ||
		!in.ReadUint16(&f.Wire) || !in.ReadUint8((*uint8)(&f.Framing)) || !in.ReadUint32(&f.ClosedIn) ||
		!in.ReadUint16LengthPrefixed(&keys) ||
		!in.ReadUint64(&f.Ledger.Releases) || !in.CopyBytes(f.Ledger.Sum[:]) || !in.ReadUint64(&f.Seen) || !in.Empty() {
		return nil, fmt.Errorf("%w: facts are cut off or too long", ErrMessage)
	}
	for !keys.Empty() {
		var k VerifyKey
		if !keys.ReadUint8(&k.ID) || !keys.CopyBytes(k.Digest[:]) {
			return nil, fmt.Errorf("%w: a verification key is cut off", ErrMessage)
		}
		if n := len(f.Keys); n > 0 && f.Keys[n-1].ID >= k.ID {
			return nil, fmt.Errorf("%w: verification keys are not in order", ErrMessage)
		}
		f.Keys = append(f.Keys, k)
	}
	if len(f.Keys) == 0 {
		return nil, fmt.Errorf("%w: no verification key", ErrMessage)
	}
	return f, nil
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

// Parts is into how many bits' worth of parts ledgers of so many releases are cut, and false
// where they are too long to be compared.
func Parts(releases uint64) (bits uint8, ok bool) {
	for releases > MaxPrints/2 { // hashes do not fall evenly
		releases, bits = (releases+1)/2, bits+1
	}
	return bits, 1<<bits <= maxParts
}

// Append encodes the part.
//
//	struct { uint8 version = 1; uint8 bits; uint8 index; uint64 prints<0..2^24-1>; } Part;
func (p *Part) Append(dst []byte) ([]byte, error) {
	if len(p.Prints) > MaxPrints {
		return nil, fmt.Errorf("agreement: %d releases in one message", len(p.Prints))
	}
	b := cryptobyte.NewBuilder(dst)
	b.AddUint8(Version)
	b.AddUint8(p.Bits)
	b.AddUint8(p.Index)
	b.AddUint24LengthPrefixed(func(b *cryptobyte.Builder) {
		for _, x := range p.Prints {
			b.AddUint64(uint64(x))
		}
	})
	return b.Bytes()
}

// ReadPart reads exactly one part and copies what it keeps. It fails with [ErrMessage] and
// *[VersionError].
func ReadPart(body []byte) (*Part, error) {
	in, err := open(body)
	if err != nil {
		return nil, err
	}
	p := new(Part)
	var prints cryptobyte.String
	if !in.ReadUint8(&p.Bits) || !in.ReadUint8(&p.Index) || !in.ReadUint24LengthPrefixed(&prints) || !in.Empty() ||
		len(prints)%8 != 0 || len(prints) > 8*MaxPrints {
		return nil, fmt.Errorf("%w: cut off or too long", ErrMessage)
	}
	if 1<<min(p.Bits, 9) > maxParts || int(p.Index) >= 1<<p.Bits {
		return nil, fmt.Errorf("%w: part %d of 2^%d", ErrMessage, p.Index, p.Bits)
	}
	p.Prints = make([]Print, 0, len(prints)/8)
	for !prints.Empty() {
		var x uint64
		prints.ReadUint64(&x) // their length is a multiple of 8
		if n := len(p.Prints); n > 0 && p.Prints[n-1] >= Print(x) {
			return nil, fmt.Errorf("%w: releases are not in order", ErrMessage)
		}
		if !p.Has(Print(x)) {
			return nil, fmt.Errorf("%w: a release of another part", ErrMessage)
		}
		p.Prints = append(p.Prints, Print(x))
	}
	return p, nil
}

// Millis is a time as messages have it.
func Millis(t time.Time) uint64 { return uint64(max(t.UnixMilli(), 0)) }
