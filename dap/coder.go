package dap

import (
	"errors"
	"fmt"
	"iter"

	"github.com/starling-agg/starling/internal/wire"
)

var (
	// ErrMalformed: the bytes are not the one valid encoding of the message, or a field
	// cannot be encoded.
	ErrMalformed = errors.New("dap: malformed message")
	// ErrLimit: the message is well-formed so far, but larger than the caller's [Limits]
	// allow.
	ErrLimit = errors.New("dap: message exceeds a limit")
)

// A coder is what a table of fields works on: each message has one, its code method, that
// serves both directions.
type coder struct {
	wire.Coder
	dialect Dialect // of the messages that have any
}

func reader(d Dialect, b []byte) coder   { return coder{wire.Reader(b, ErrMalformed), d} }
func writer(d Dialect, dst []byte) coder { return coder{wire.Writer(dst, ErrMalformed), d} }

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
	if err := decodeInto(reader(d, b), P(&m)); err != nil {
		return *new(T), err
	}
	return m, nil
}

// decodeInto is decode for a message whose reading depends on what it says already.
func decodeInto(c coder, m interface{ code(*coder) }) error {
	m.code(&c)
	return c.End()
}

// encode appends m, which is the same in all dialects, to dst, or returns dst as it was
// and the reason.
func encode[T any, P message[T]](dst []byte, m P) ([]byte, error) {
	return encodeIn[T](Dialect{}, dst, m)
}

// encodeIn is encode in a dialect.
func encodeIn[T any, P message[T]](d Dialect, dst []byte, m P) ([]byte, error) {
	c := writer(d, dst)
	m.code(&c)
	if err := c.Err(); err != nil {
		return dst, err
	}
	return c.Bytes(), nil
}

// run iterates over messages that follow one another to the end of b, at most limit of
// them. It stops after the first error. check may refuse what is decoded; nil allows all.
func run[T any, P message[T]](d Dialect, b []byte, limit int, check func(*T) error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		c := reader(d, b)
		var m T // one for all: it escapes
		for n := 0; c.More(); n++ {
			m = *new(T)
			if n >= limit {
				yield(m, fmt.Errorf("%w: more than %d items", ErrLimit, limit))
				return
			}
			P(&m).code(&c)
			err := c.Err()
			if err == nil && check != nil {
				err = check(&m)
			}
			if err != nil {
				yield(*new(T), fmt.Errorf("item %d: %w", n, err))
				return
			}
			if !yield(m, nil) {
				return
			}
		}
	}
}

// Collect gathers what one of this package's iterators yields: all of it, or the first
// error and nothing.
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
