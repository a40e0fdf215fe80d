// Package wire reads and writes messages in TLS presentation syntax (RFC 8446 section 3)
// from one table of fields per message. A table is a function that names the fields in
// their order to a [Coder]; it serves both directions, so that the two cannot disagree:
//
//	// struct {
//	//     uint8 config_id; opaque enc<1..2^16-1>; opaque payload<1..2^32-1>;
//	// } HpkeCiphertext;
//	func (m *HpkeCiphertext) code(c *wire.Coder) {
//		c.Uint8(&m.ConfigID, "config_id")
//		c.Vec16(&m.Enc, 1, "enc")
//		c.Vec32(&m.Payload, 1, "ciphertext")
//	}
//
// A table that only names fields takes exactly one encoding of a message, the one that it
// writes: lengths have one form, and nothing may follow. A table checks other rules, such
// as an order, in both directions ([Coder.Check]) or when it reads ([Coder.CheckRead]).
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A Coder walks the fields of a message in wire order and reads or writes each. The first
// failure sticks; later calls do nothing.
//
// Byte strings that it reads alias the input. While it writes it changes nothing of the
// message, so that many may write one.
type Coder struct {
	b         []byte // reading: what is left; writing: what has been written
	writing   bool
	malformed error
	err       error
}

// Reader returns a coder that reads b. Its failures wrap malformed.
func Reader(b []byte, malformed error) Coder { return Coder{b: b, malformed: malformed} }

// Writer returns a coder that appends to dst. Its failures wrap malformed.
func Writer(dst []byte, malformed error) Coder {
	return Coder{b: dst, writing: true, malformed: malformed}
}

// Read reads exactly one message by its table: bytes that follow it are refused. Failures
// wrap malformed, and leave the message partly read.
func Read(b []byte, malformed error, table func(*Coder)) error {
	c := Reader(b, malformed)
	table(&c)
	return c.End()
}

// Append appends a message by its table, or returns dst as it was and the reason, which
// wraps malformed.
func Append(dst []byte, malformed error, table func(*Coder)) ([]byte, error) {
	c := Writer(dst, malformed)
	table(&c)
	if c.err != nil {
		return dst, c.err
	}
	return c.b, nil
}

// MustAppend is [Append] by a table that cannot fail, such as one of fixed sizes. It panics
// where the table does.
func MustAppend(dst []byte, table func(*Coder)) []byte {
	c := Writer(dst, errInternal)
	if table(&c); c.err != nil {
		panic(c.err.Error())
	}
	return c.b
}

var errInternal = errors.New("wire: internal error")

// Writing says whether the coder writes.
func (c *Coder) Writing() bool { return c.writing }

// Err returns the first failure.
func (c *Coder) Err() error { return c.err }

// Abort has the coder fail with an error of the caller's own, unless it has failed before.
func (c *Coder) Abort(err error) {
	if c.err == nil {
		c.err = err
	}
}

// Bytes returns what has been written, or what is left to be read.
func (c *Coder) Bytes() []byte { return c.b }

// More says whether anything is left to be read, in the vector that is being read or in
// the message.
func (c *Coder) More() bool { return !c.writing && c.err == nil && len(c.b) > 0 }

// End ends the reading of a message, refuses what is left of it, and returns the first
// failure.
func (c *Coder) End() error {
	if c.More() {
		c.Fail("trailing bytes")
	}
	return c.err
}

// Fail refuses the message, in either direction.
func (c *Coder) Fail(what string) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s", c.malformed, what)
	}
}

// Check refuses the message, in either direction, unless ok. (Where the reason is put
// together, Fail is called instead: the concatenation would be paid for each time.)
func (c *Coder) Check(ok bool, what string) {
	if !ok {
		c.Fail(what)
	}
}

// CheckRead refuses a message that is read, unless ok. A writer is trusted to keep to it.
func (c *Coder) CheckRead(ok bool, what string) {
	if !ok && !c.writing {
		c.Fail(what)
	}
}

// take reads n bytes; nil, and never otherwise, after a failure.
func (c *Coder) take(n int, what string) []byte {
	if c.err != nil {
		return nil
	}
	if n > len(c.b) {
		c.Fail(what + " is truncated")
		return nil
	}
	b := c.b[:n:n] // so that appending to a field never writes into the next
	c.b = c.b[n:]
	return b
}

// Uint8 is a number of 8 bits. A named type is converted: (*uint8)(&m.Mode).
func (c *Coder) Uint8(v *uint8, what string) {
	if c.writing {
		c.b = append(c.b, *v)
	} else if b := c.take(1, what); b != nil {
		*v = b[0]
	}
}

// Bool is 8 bits: 0 or 1.
func (c *Coder) Bool(v *bool, what string) {
	var n uint8
	if *v {
		n = 1
	}
	if c.Uint8(&n, what); !c.writing {
		c.Check(n <= 1, what+" is neither 0 nor 1")
		*v = n == 1
	}
}

// Uint16 is a number of 16 bits.
func (c *Coder) Uint16(v *uint16, what string) {
	if c.writing {
		c.b = binary.BigEndian.AppendUint16(c.b, *v)
	} else if b := c.take(2, what); b != nil {
		*v = binary.BigEndian.Uint16(b)
	}
}

// Uint32 is a number of 32 bits.
func (c *Coder) Uint32(v *uint32, what string) {
	if c.writing {
		c.b = binary.BigEndian.AppendUint32(c.b, *v)
	} else if b := c.take(4, what); b != nil {
		*v = binary.BigEndian.Uint32(b)
	}
}

// Uint64 is a number of 64 bits.
func (c *Coder) Uint64(v *uint64, what string) {
	if c.writing {
		c.b = binary.BigEndian.AppendUint64(c.b, *v)
	} else if b := c.take(8, what); b != nil {
		*v = binary.BigEndian.Uint64(b)
	}
}

// Int64 is a number of 64 bits in two's complement.
func (c *Coder) Int64(v *int64, what string) {
	n := uint64(*v)
	if c.Uint64(&n, what); !c.writing {
		*v = int64(n)
	}
}

// Fixed is an array of bytes.
func (c *Coder) Fixed(v []byte, what string) {
	if c.writing {
		c.b = append(c.b, v...)
	} else {
		copy(v, c.take(len(v), what))
	}
}

// Const is bytes that are always the same: a magic, a version. A message that has others
// in their place is refused for the reason given.
func (c *Coder) Const(s, otherwise string) {
	if c.writing {
		c.b = append(c.b, s...)
	} else if c.err == nil && (len(c.b) < len(s) || string(c.b[:len(s)]) != s) {
		c.Fail(otherwise)
	} else if c.err == nil {
		c.b = c.b[len(s):]
	}
}

// Vec8 is a vector: least to 2^8-1 bytes behind their length.
func (c *Coder) Vec8(v *[]byte, least int, what string) { c.vec(v, 1, least, what) }

// Vec16 is a vector: least to 2^16-1 bytes behind their length.
func (c *Coder) Vec16(v *[]byte, least int, what string) { c.vec(v, 2, least, what) }

// Vec24 is a vector: least to 2^24-1 bytes behind their length.
func (c *Coder) Vec24(v *[]byte, least int, what string) { c.vec(v, 3, least, what) }

// Vec32 is a vector: least to 2^32-1 bytes behind their length.
func (c *Coder) Vec32(v *[]byte, least int, what string) { c.vec(v, 4, least, what) }

func (c *Coder) vec(v *[]byte, prefix, least int, what string) {
	if c.err != nil {
		return
	}
	if c.writing {
		c.length(uint64(len(*v)), prefix, what)
		c.b = append(c.b, *v...)
	} else {
		var n uint64
		for _, b := range c.take(prefix, what) {
			n = n<<8 | uint64(b)
		}
		if n > uint64(len(c.b)) {
			c.Fail(what + " is truncated")
			return
		}
		*v = c.take(int(n), what)
	}
	if len(*v) < least {
		c.Fail(what + " is too short")
	}
}

// Text8 is a vector of at most 2^8-1 bytes, which are copied into a string.
func (c *Coder) Text8(v *string, what string) { c.text(v, 1, what) }

// Text16 is a vector of at most 2^16-1 bytes, which are copied into a string.
func (c *Coder) Text16(v *string, what string) { c.text(v, 2, what) }

func (c *Coder) text(v *string, prefix int, what string) {
	if c.writing {
		c.length(uint64(len(*v)), prefix, what)
		c.b = append(c.b, *v...)
		return
	}
	var b []byte
	c.vec(&b, prefix, 0, what)
	*v = string(b)
}

// Length writes the length of a vector, in prefix bytes, whose content the caller
// appends by itself.
func (c *Coder) Length(n uint64, prefix int, what string) { c.length(n, prefix, what) }

func (c *Coder) length(n uint64, prefix int, what string) {
	if n >= 1<<(8*prefix) {
		c.Fail(what + " is too long")
	}
	for shift := 8 * (prefix - 1); shift >= 0; shift -= 8 {
		c.b = append(c.b, byte(n>>shift))
	}
}

// Nested16 is a vector behind 16 bits of length whose content is a table of fields.
func (c *Coder) Nested16(what string, table func()) { c.nested(2, what, table) }

// Nested24 is a vector behind 24 bits of length whose content is a table of fields.
func (c *Coder) Nested24(what string, table func()) { c.nested(3, what, table) }

// Nested32 is a vector behind 32 bits of length whose content is a table of fields.
func (c *Coder) Nested32(what string, table func()) { c.nested(4, what, table) }

func (c *Coder) nested(prefix int, what string, table func()) {
	if c.err != nil {
		return
	}
	if c.writing {
		at := len(c.b)
		c.b = append(c.b, 0, 0, 0, 0)[:at+prefix]
		table()
		n := len(c.b) - at - prefix
		if uint64(n) >= 1<<(8*prefix) {
			c.Fail(what + " is too long")
		}
		for i := range prefix {
			c.b[at+i] = byte(n >> (8 * (prefix - 1 - i)))
		}
		return
	}
	var inner []byte
	if c.vec(&inner, prefix, 0, what); c.err != nil {
		return
	}
	rest := c.b
	c.b = inner
	table()
	if c.More() {
		c.Fail(what + " has trailing bytes")
	}
	c.b = rest
}

// Rest is what remains of the message, or of the vector that it is in.
func (c *Coder) Rest(v *[]byte) {
	if c.writing {
		c.b = append(c.b, *v...)
	} else if c.err == nil {
		*v, c.b = c.b, nil
	}
}

// Raw runs a table and, when reading, keeps in v the bytes that it consumed.
func (c *Coder) Raw(v *[]byte, table func()) {
	before := c.b
	table()
	if !c.writing && c.err == nil {
		n := len(before) - len(c.b)
		*v = before[:n:n]
	}
}

// Items is a list without a length of its own: items up to the end of the message, or of
// the vector that it is in. The table of item i may look at those before it.
func Items[T any](c *Coder, v *[]T, table func(i int, item *T)) {
	if c.writing {
		for i := range *v {
			table(i, &(*v)[i])
		}
		return
	}
	for c.More() {
		left := len(c.b)
		*v = append(*v, *new(T))
		i := len(*v) - 1
		if table(i, &(*v)[i]); c.err != nil {
			*v = (*v)[:i]
		} else if len(c.b) == left {
			panic("wire: internal error: an item of no bytes")
		}
	}
}
