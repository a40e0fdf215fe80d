package journal

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/internal/wire"
)

// Sizes in bytes of what names things.
const (
	KeySize   = 16 // of a gateway key's name
	RelaySize = 8  // of a relay's name
	IDSize    = 16 // of a report's name
)

// A Route says where an upload goes: the target's base URL by which it is configured, the
// path below that, and the media type. Uploads of one task to one target have the same
// route.
type Route struct{ Target, Path, Media string }

// A Group counts the requests for one route in a round with tokens of one round, covers
// included.
type Group struct {
	Route Route
	// Of is the round of the tokens by which all of them were let in; zero where the task asks
	// for none. A device has one token for each round, so that requests of one round are devices,
	// and those of two are not.
	Of       uint64
	Requests uint32
	Bytes    uint64 // of the encapsulated requests
}

// A Claim is what one key opened in a round for one relay: fingerprints of all requests,
// ids of the reports in them.
type Claim struct {
	Key    [KeySize]byte
	Relay  [RelaySize]byte
	Prints []uint64
	IDs    [][IDSize]byte
}

// An Item is an upload. Body is given to [Journal.Log] and not kept; [Journal.Bodies]
// reads it.
type Item struct {
	Group int
	Body  []byte

	offset, size int64 // of the body in the round's file
}

// A Round is what came between two ticks.
type Round struct {
	Number uint64
	Closed time.Time
	// Passed is how much time the gateway had seen pass when it was closed
	// ([Journal.Passed]): what it is kept for is counted from there, and not by the clock
	// on the wall.
	Passed time.Duration
	Groups []Group
	Claims []Claim
	Items  []Item
}

const (
	roundMagic = "starling round v4"
	// maxRound bounds a round's file, in bytes.
	maxRound = 2 << 30
)

var errRound = errors.New("journal: malformed round")

// head encodes all of a round but the bodies and the checksum:
//
//	opaque magic[17] = "starling round v4";
//	uint64 number, closed; (nanoseconds since 1970) uint64 passed; (nanoseconds)
//	{opaque target<0..2^16-1>, path<0..2^16-1>, media<0..2^16-1>; uint64 of;
//	 uint32 requests; uint64 bytes} groups<0..2^32-1>;
//	{opaque key[16], relay[8]; uint64 prints<0..2^32-1>; opaque ids[16]<0..2^32-1>}
//	 claims<0..2^32-1>;
//	{uint32 group, size} items<0..2^32-1>;
//
// The bodies follow, and the SHA-256 of the [Journal.State] of the directory and all that:
// the round of another gateway is none here.
func (r *Round) head() ([]byte, error) { return wire.Append(nil, errRound, r.code) }

func (r *Round) code(c *wire.Coder) {
	c.Const(roundMagic, "wrong magic")
	c.Uint64(&r.Number, "number")
	closed := r.Closed.UnixNano()
	if c.Int64(&closed, "closed"); !c.Writing() {
		r.Closed = time.Unix(0, closed)
	}
	codePassed(c, &r.Passed)
	c.Nested32("groups", func() {
		wire.Items(c, &r.Groups, func(_ int, g *Group) {
			g.Route.code(c)
			c.Uint64(&g.Of, "of")
			c.Uint32(&g.Requests, "requests")
			c.Uint64(&g.Bytes, "bytes")
		})
	})
	c.Nested32("claims", func() {
		wire.Items(c, &r.Claims, func(_ int, x *Claim) { x.code(c) })
	})
	c.Nested32("items", func() {
		wire.Items(c, &r.Items, func(_ int, it *Item) {
			codeInt(c, &it.Group, "group")
			size := uint32(len(it.Body))
			if c.Uint32(&size, "size"); !c.Writing() {
				it.size = int64(size)
			}
		})
	})
}

// codeInt is a number of 32 bits that is an index here.
func codeInt(c *wire.Coder, v *int, what string) {
	n := uint32(*v)
	if c.Uint32(&n, what); !c.Writing() {
		*v = int(n)
	}
}

// codePassed is a time that has passed, in nanoseconds.
func codePassed(c *wire.Coder, d *time.Duration) {
	c.Int64((*int64)(d), "passed")
	c.CheckRead(*d >= 0, "passed is out of bounds")
}

// readRound reads the file of a round. The round does not alias the file; bodies are left
// out.
func readRound(state [32]byte, file []byte) (*Round, error) {
	if len(file) < sha256.Size {
		return nil, errRound
	}
	content, sum := file[:len(file)-sha256.Size], file[len(file)-sha256.Size:]
	h := sha256.New()
	h.Write(state[:])
	h.Write(content)
	if !bytes.Equal(h.Sum(nil), sum) {
		return nil, fmt.Errorf("%w: wrong checksum", errRound)
	}
	if newer(content, roundMagic+"\n") {
		return nil, &StateError{What: IsNewer, Newer: true}
	}
	r := &Round{}
	c := wire.Reader(content, errRound)
	if r.code(&c); c.Err() != nil {
		return nil, c.Err()
	}
	at, end := int64(len(content)-len(c.Bytes())), int64(len(content))
	for i := range r.Items {
		it := &r.Items[i]
		if it.Group >= len(r.Groups) || it.size > end-at {
			return nil, fmt.Errorf("%w: an item of no group, or cut off", errRound)
		}
		it.offset = at
		at += it.size
	}
	if at != end {
		return nil, fmt.Errorf("%w: trailing bytes", errRound)
	}
	return r, nil
}

func (r *Route) code(c *wire.Coder) {
	c.Text16(&r.Target, "target")
	c.Text16(&r.Path, "path")
	c.Text16(&r.Media, "media")
}

func (x *Claim) code(c *wire.Coder) {
	c.Fixed(x.Key[:], "key")
	c.Fixed(x.Relay[:], "relay")
	c.Nested32("prints", func() {
		wire.Items(c, &x.Prints, func(_ int, p *uint64) { c.Uint64(p, "print") })
	})
	c.Nested32("ids", func() {
		wire.Items(c, &x.IDs, func(_ int, id *[IDSize]byte) { c.Fixed(id[:], "id") })
	})
}

// Append encodes a claim as one record of a log.
func (x *Claim) Append(dst []byte) ([]byte, error) { return wire.Append(dst, errClaim, x.code) }

var errClaim = errors.New("journal: malformed claim")

// ReadClaim reads what Append wrote.
func ReadClaim(b []byte) (*Claim, error) {
	x := &Claim{}
	if err := wire.Read(b, errClaim, x.code); err != nil {
		return nil, err
	}
	return x, nil
}

// Size is the length of the body, in bytes.
func (it *Item) Size() int64 { return it.size }
