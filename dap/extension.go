package dap

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"
)

// Codepoints of extensions. Task, report, aggregation job and collection job extensions
// are four separate registries; the drafts define none for reports or collection jobs,
// and the one of ours is taken from the end of the numbers.
const (
	ExtTaskInterval          = 1 // task: an Interval (section 4.2.3)
	ExtLeaderSelectedBatchID = 1 // aggregation job: a BatchID (section 5.2.2)
	// ExtPresentation is of a report, private, and ours: a presentation of a credential to
	// the aggregator that the share is sealed to (anonymity/arc), bound to that share. Only
	// tasks of recipes with credentials know it, and they want it.
	ExtPresentation = 0xff01
)

// Extensions is a list of {type u16, data<0..2^16-1>} of any of the four kinds, kept in
// its encoding, so that reading one from a stranger allocates nothing. The zero value is
// the empty list. A list that was read is well framed, but may be out of order or hold
// unknown types, because parties answer those differently:
//
//	                   not increasing       unknown type
//	task               refuse the task      refuse the task
//	report             invalid_message      invalid_message, or unsupported_extension in draft 19 (that report only)
//	aggregation job    invalidMessage       unsupportedExtension
//	collection job     invalidExtension     unsupportedExtension
type Extensions struct{ b []byte } // at most 65535 bytes, well framed

// With returns the list with one more extension at its end. Types must increase strictly.
func (e Extensions) With(typ uint16, data []byte) (Extensions, error) {
	for last := range e.All() {
		if typ <= last {
			return e, fmt.Errorf("%w: extension types must increase", ErrMalformed)
		}
	}
	if len(data) > math.MaxUint16 || len(e.b)+4+len(data) > math.MaxUint16 {
		return e, fmt.Errorf("%w: extensions are too long", ErrMalformed)
	}
	b := slices.Grow(slices.Clone(e.b), 4+len(data))
	b = binary.BigEndian.AppendUint16(b, typ)
	b = binary.BigEndian.AppendUint16(b, uint16(len(data)))
	return Extensions{append(b, data...)}, nil
}

// All iterates over types and data in wire order. The data aliases the list.
func (e Extensions) All() iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for b := e.b; len(b) > 0; {
			end := 4 + int(binary.BigEndian.Uint16(b[2:]))
			if !yield(binary.BigEndian.Uint16(b), b[4:end:end]) {
				return
			}
			b = b[end:]
		}
	}
}

// Len is the number of extensions.
func (e Extensions) Len() (n int) {
	for b := e.b; len(b) > 0; n++ {
		b = b[4+int(binary.BigEndian.Uint16(b[2:])):]
	}
	return n
}

// Get returns the data of the first extension of that type.
func (e Extensions) Get(typ uint16) ([]byte, bool) {
	for t, data := range e.All() {
		if t == typ {
			return data, true
		}
	}
	return nil, false
}

// Increasing says whether the types increase strictly, which all four kinds of list must.
func (e Extensions) Increasing() bool {
	last := -1
	for t := range e.All() {
		if int(t) <= last {
			return false
		}
		last = int(t)
	}
	return true
}

// Unknown lists the types that are not in known, in wire order; nil if there are none.
func (e Extensions) Unknown(known ...uint16) (types []uint16) {
	for t := range e.All() {
		if !slices.Contains(known, t) {
			types = append(types, t)
		}
	}
	return types
}

// Disjoint says whether no type is in both lists, each of which must be increasing. A
// report's public and private lists must be, although each is ordered on its own (section
// 4.4.3).
func (e Extensions) Disjoint(o Extensions) bool {
	a, b := e.b, o.b
	for len(a) > 0 && len(b) > 0 {
		switch s, t := binary.BigEndian.Uint16(a), binary.BigEndian.Uint16(b); {
		case s == t:
			return false
		case s < t:
			a = a[4+int(binary.BigEndian.Uint16(a[2:])):]
		default:
			b = b[4+int(binary.BigEndian.Uint16(b[2:])):]
		}
	}
	return true
}

// Format prints the number of extensions and not their data, which may hold a token.
func (e Extensions) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "%d extensions", e.Len()) }

// Append appends the list behind its 16-bit length.
func (e Extensions) Append(dst []byte) ([]byte, error) { return encode(dst, &e) }

// ReadExtensions reads exactly one list with its length. It aliases b.
func ReadExtensions(b []byte) (Extensions, error) { return decode[Extensions](b) }

func (e *Extensions) code(c *coder) {
	c.Vec16(&e.b, 0, "extensions")
	if c.Writing() || c.Err() != nil {
		return
	}
	if len(e.b) == 0 {
		e.b = nil
	}
	for b := e.b; len(b) > 0 && c.Err() == nil; {
		if len(b) < 4 || 4+int(binary.BigEndian.Uint16(b[2:])) > len(b) {
			c.Fail("an extension is truncated")
			return
		}
		b = b[4+int(binary.BigEndian.Uint16(b[2:])):]
	}
}
