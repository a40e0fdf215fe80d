package dap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"

	"golang.org/x/crypto/cryptobyte"
)

var (
	// ErrMalformed: the bytes are not the one valid encoding of the message, or a field cannot be encoded.
	ErrMalformed = errors.New("dap: malformed message")
	// ErrLimit: the message is well-formed so far, but larger than the caller's [Limits] allow.
	ErrLimit = errors.New("dap: message exceeds a limit")
)

// A coder walks the fields of a message in wire order and reads or writes each. One table of fields per message, its
// code method, serves both directions, so the two cannot disagree. The first failure sticks; later calls do nothing.
//
// Slices that it reads alias the input.
type coder struct {
	in      cryptobyte.String // reading: what is left
	out     []byte            // writing: what has been written
	writing bool
	dialect Dialect // of the messages that have any
	err     error
}

// message is a pointer to a T that has a table of fields.
type message[T any] interface {
	*T
	code(*coder)
}

// decode reads exactly one message that is the same in all dialects: trailing bytes are
// refused.
func decode[T any, P message[T]](b []byte) (T, error) { return decodeIn[T, P](Dialect{}, b) }

// decodeIn is decode in a dialect.
func decodeIn[T any, P message[T]](d Dialect, b []byte) (m T, err error) {
	if err := decodeInto(coder{dialect: d, in: b}, P(&m)); err != nil {
		return *new(T), err
	}
	return m, nil
}

// decodeInto is decode for a message whose reading depends on what it says already.
func decodeInto(c coder, m interface{ code(*coder) }) error {
	m.code(&c)
	if c.err == nil && len(c.in) > 0 {
		c.fail("trailing bytes")
	}
	return c.err
}

// encode appends m, which is the same in all dialects, to dst, or returns dst as it was
// and the reason.
func encode[T any, P message[T]](dst []byte, m P) ([]byte, error) {
	return encodeIn[T](Dialect{}, dst, m)
}

// encodeIn is encode in a dialect.
func encodeIn[T any, P message[T]](d Dialect, dst []byte, m P) ([]byte, error) {
	c := coder{dialect: d, out: dst, writing: true}
	m.code(&c)
	if c.err != nil {
		return dst, c.err
	}
	return c.out, nil
}

// run iterates over messages that follow one another to the end of b, at most limit of them. It stops after the first
// error. check may refuse what is decoded; nil allows all.
func run[T any, P message[T]](d Dialect, b []byte, limit int, check func(*T) error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		c := coder{dialect: d, in: b}
		var m T // one for all: it escapes
		for n := 0; len(c.in) > 0; n++ {
			m = *new(T)
			if n >= limit {
				yield(m, fmt.Errorf("%w: more than %d items", ErrLimit, limit))
				return
			}
			P(&m).code(&c)
			if c.err == nil && check != nil {
				c.err = check(&m)
			}
			if c.err != nil {
				yield(*new(T), fmt.Errorf("item %d: %w", n, c.err))
				return
			}
			if !yield(m, nil) {
				return
			}
		}
	}
}

// Collect gathers what one of this package's iterators yields: all of it, or the first error and nothing.
func Collect[T any](seq iter.Seq2[T, error]) ([]T, error) {
	var all []T
	for m, err := range seq {
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

func (c *coder) fail(what string) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s", ErrMalformed, what)
	}
}

// check refuses the message, in either direction, unless ok. (Where the reason is put together, fail is called instead:
// the concatenation would be paid for each time.)
func (c *coder) check(ok bool, what string) {
	if !ok {
		c.fail(what)
	}
}

func (c *coder) take(n int, what string) (b []byte) {
	if c.err == nil && !c.in.ReadBytes(&b, n) {
		c.fail(what + " is truncated")
	}
	return b[:len(b):len(b)] // so that appending to a field never writes into the next
}

func code8[T ~uint8](c *coder, v *T, what string) {
	if c.writing {
		c.out = append(c.out, byte(*v))
	} else if b := c.take(1, what); b != nil {
		*v = T(b[0])
	}
}

func code16[T ~uint16](c *coder, v *T, what string) {
	if c.writing {
		c.out = binary.BigEndian.AppendUint16(c.out, uint16(*v))
	} else if b := c.take(2, what); b != nil {
		*v = T(binary.BigEndian.Uint16(b))
	}
}

func code32[T ~uint32](c *coder, v *T, what string) {
	if c.writing {
		c.out = binary.BigEndian.AppendUint32(c.out, uint32(*v))
	} else if b := c.take(4, what); b != nil {
		*v = T(binary.BigEndian.Uint32(b))
	}
}

func code64[T ~uint64](c *coder, v *T, what string) {
	if c.writing {
		c.out = binary.BigEndian.AppendUint64(c.out, uint64(*v))
	} else if b := c.take(8, what); b != nil {
		*v = T(binary.BigEndian.Uint64(b))
	}
}

// fixed is an array of bytes.
func (c *coder) fixed(v []byte, what string) {
	if c.writing {
		c.out = append(c.out, v...)
	} else {
		copy(v, c.take(len(v), what))
	}
}

// The vectors: opaque bytes of least..2^n-1 length behind an n-bit length.
func (c *coder) vec8(v *[]byte, least int, what string)  { c.vec(v, 1, least, what) }
func (c *coder) vec16(v *[]byte, least int, what string) { c.vec(v, 2, least, what) }
func (c *coder) vec32(v *[]byte, least int, what string) { c.vec(v, 4, least, what) }

func (c *coder) vec(v *[]byte, prefix, least int, what string) {
	if c.err != nil {
		return
	}
	if c.writing {
		c.length(uint64(len(*v)), prefix, what)
		c.out = append(c.out, *v...)
	} else {
		var n uint64
		for _, b := range c.take(prefix, what) {
			n = n<<8 | uint64(b)
		}
		if n > uint64(len(c.in)) {
			c.fail(what + " is truncated")
			return
		}
		*v = c.take(int(n), what)
	}
	if len(*v) < least {
		c.fail(what + " is too short")
	}
}

func (c *coder) length(n uint64, prefix int, what string) {
	if n >= 1<<(8*prefix) {
		c.fail(what + " is too long")
	}
	for shift := 8 * (prefix - 1); shift >= 0; shift -= 8 {
		c.out = append(c.out, byte(n>>shift))
	}
}

// nested is a vector behind a 16-bit length whose content is itself a table of fields.
func (c *coder) nested(what string, body func(*coder)) {
	if c.err != nil {
		return
	}
	if c.writing {
		at := len(c.out)
		c.out = append(c.out, 0, 0)
		body(c)
		n := len(c.out) - at - 2
		if n > math.MaxUint16 {
			c.fail(what + " is too long")
		}
		binary.BigEndian.PutUint16(c.out[at:], uint16(n))
		return
	}
	var inner []byte
	c.vec16(&inner, 0, what)
	if c.err != nil {
		return
	}
	sub := coder{in: inner}
	body(&sub)
	if len(sub.in) > 0 {
		sub.fail(what + " has trailing bytes")
	}
	c.err = sub.err
}

// rest is what remains of the message.
func (c *coder) rest(v *[]byte) {
	if c.writing {
		c.out = append(c.out, *v...)
	} else if c.err == nil {
		*v, c.in = c.in, nil
	}
}

// raw runs body and, when reading, keeps in v the bytes that it consumed.
func (c *coder) raw(v *[]byte, body func()) {
	before := c.in
	body()
	if !c.writing && c.err == nil {
		n := len(before) - len(c.in)
		*v = before[:n:n]
	}
}
