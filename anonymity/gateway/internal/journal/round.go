package journal

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/crypto/cryptobyte"
)

// Sizes in bytes of what names things.
const (
	KeySize   = 16 // of a gateway key's name
	RelaySize = 8  // of a relay's name
	IDSize    = 16 // of a report's name
)

// A Route says where an upload goes: the target's base URL by which it is configured, the
// path below that, and the media type. What goes one way and is of one task has the same
// route.
type Route struct{ Target, Path, Media string }

// A Group is what came for one route in a round, covers included.
type Group struct {
	Route    Route
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
	// Passed is how much time the gateway had seen pass when it was closed ([Journal.Passed]):
	// what it is kept for is counted from there, and not by the clock on the wall.
	Passed time.Duration
	Groups []Group
	Claims []Claim
	Items  []Item
}

const (
	roundMagic = "starling round v3"
	// MaxRound bounds a round's file, in bytes.
	MaxRound = 2 << 30
)

var errRound = errors.New("journal: malformed round")

// head encodes all of a round but the bodies and the checksum:
//
//	opaque magic[17] = "starling round v3"; uint64 number, closed; (nanoseconds since 1970) uint64 passed; (nanoseconds)
//	{opaque target<0..2^16-1>, path<0..2^16-1>, media<0..2^16-1>; uint32 requests; uint64 bytes} groups<0..2^32-1>;
//	{opaque key[16], relay[8]; uint64 prints<0..2^32-1>; opaque ids[16]<0..2^32-1>} claims<0..2^32-1>;
//	{uint32 group, size} items<0..2^32-1>;
//
// The bodies follow, and the SHA-256 of the [Journal.State] of the directory and all that:
// the round of another gateway is none here.
func (r *Round) head() ([]byte, error) {
	b := cryptobyte.NewBuilder([]byte(roundMagic))
	b.AddUint64(r.Number)
	b.AddUint64(uint64(r.Closed.UnixNano()))
	b.AddUint64(uint64(r.Passed))
	b.AddUint32LengthPrefixed(func(b *cryptobyte.Builder) {
		for _, g := range r.Groups {
			addRoute(b, g.Route)
			b.AddUint32(g.Requests)
			b.AddUint64(g.Bytes)
		}
	})
	b.AddUint32LengthPrefixed(func(b *cryptobyte.Builder) {
		for _, c := range r.Claims {
			c.add(b)
		}
	})
	b.AddUint32LengthPrefixed(func(b *cryptobyte.Builder) {
		for _, it := range r.Items {
			b.AddUint32(uint32(it.Group))
			b.AddUint32(uint32(len(it.Body)))
		}
	})
	return b.Bytes()
}

// readRound reads the file of a round. What it returns does not alias the file; bodies
// are left out.
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
	rest, ok := bytes.CutPrefix(content, []byte(roundMagic))
	if !ok {
		return nil, fmt.Errorf("%w: wrong magic", errRound)
	}
	r := &Round{}
	s := cryptobyte.String(rest)
	var closed, passed uint64
	var groups, claims, items cryptobyte.String
	if !s.ReadUint64(&r.Number) || !s.ReadUint64(&closed) || !s.ReadUint64(&passed) || passed > math.MaxInt64 ||
		!read32(&s, &groups) || !read32(&s, &claims) || !read32(&s, &items) {
		return nil, errRound
	}
	r.Closed, r.Passed = time.Unix(0, int64(closed)), time.Duration(passed)
	for !groups.Empty() {
		var g Group
		if !readRoute(&groups, &g.Route) || !groups.ReadUint32(&g.Requests) || !groups.ReadUint64(&g.Bytes) {
			return nil, errRound
		}
		r.Groups = append(r.Groups, g)
	}
	for !claims.Empty() {
		var c Claim
		if !c.read(&claims) {
			return nil, errRound
		}
		r.Claims = append(r.Claims, c)
	}
	at, end := int64(len(content)-len(s)), int64(len(content))
	for !items.Empty() {
		var group, size uint32
		if !items.ReadUint32(&group) || !items.ReadUint32(&size) || int(group) >= len(r.Groups) || int64(size) > end-at {
			return nil, errRound
		}
		r.Items = append(r.Items, Item{Group: int(group), offset: at, size: int64(size)})
		at += int64(size)
	}
	if at != end {
		return nil, errRound
	}
	return r, nil
}

func addRoute(b *cryptobyte.Builder, r Route) {
	for _, s := range []string{r.Target, r.Path, r.Media} {
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(s)) })
	}
}

func readRoute(s *cryptobyte.String, r *Route) bool {
	for _, to := range []*string{&r.Target, &r.Path, &r.Media} {
		var v cryptobyte.String
		if !s.ReadUint16LengthPrefixed(&v) {
			return false
		}
		*to = string(v)
	}
	return true
}

func (c *Claim) add(b *cryptobyte.Builder) {
	b.AddBytes(c.Key[:])
	b.AddBytes(c.Relay[:])
	b.AddUint32LengthPrefixed(func(b *cryptobyte.Builder) {
		for _, p := range c.Prints {
			b.AddUint64(p)
		}
	})
	b.AddUint32LengthPrefixed(func(b *cryptobyte.Builder) {
		for _, id := range c.IDs {
			b.AddBytes(id[:])
		}
	})
}

func (c *Claim) read(s *cryptobyte.String) bool {
	var prints, ids cryptobyte.String
	if !s.CopyBytes(c.Key[:]) || !s.CopyBytes(c.Relay[:]) || !read32(s, &prints) || !read32(s, &ids) {
		return false
	}
	for !prints.Empty() {
		var p uint64
		if !prints.ReadUint64(&p) {
			return false
		}
		c.Prints = append(c.Prints, p)
	}
	for !ids.Empty() {
		var id [IDSize]byte
		if !ids.CopyBytes(id[:]) {
			return false
		}
		c.IDs = append(c.IDs, id)
	}
	return true
}

// Append encodes a claim as one record of a log.
func (c *Claim) Append(dst []byte) ([]byte, error) {
	b := cryptobyte.NewBuilder(dst)
	c.add(b)
	return b.Bytes()
}

// ReadClaim reads what Append wrote.
func ReadClaim(b []byte) (*Claim, error) {
	s, c := cryptobyte.String(b), &Claim{}
	if !c.read(&s) || !s.Empty() {
		return nil, errors.New("journal: malformed claim")
	}
	return c, nil
}

// read32 reads a string behind a length of 32 bits, for which cryptobyte has a writer only.
func read32(s, out *cryptobyte.String) bool {
	var n uint32
	return s.ReadUint32(&n) && uint64(n) <= uint64(len(*s)) && s.ReadBytes((*[]byte)(out), int(n))
}

// Size is the length of the body, in bytes.
func (it *Item) Size() int64 { return it.size }
