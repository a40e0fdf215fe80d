package certificate

import (
	"bytes"
	"encoding/binary"
)

// MaxSize bounds the bytes of a certificate.
const MaxSize = 1 << 20

type head struct {
	Magic             [4]byte
	Epsilon, Delta    float64
	Neighbours        Neighbours
	Step              float64
	Terms, Directions uint8
}

var magic = [4]byte{'S', 'P', 'C', 1}

// MarshalBinary returns the encoding of c: the fields in the order of their declarations, big-endian, lists after their lengths.
func (c *Certificate) MarshalBinary() (b []byte, err error) {
	if len(c.Terms) > maxTerms || len(c.Directions) > 2 {
		return nil, fail(Malformed, "%d terms, %d directions", len(c.Terms), len(c.Directions))
	}
	put := func(v any) { b, err = binary.Append(b, binary.BigEndian, v) } // no error for data of fixed size
	put(head{magic, c.Epsilon, c.Delta, c.Neighbours, c.Step, uint8(len(c.Terms)), uint8(len(c.Directions))})
	put(c.Terms)
	for _, d := range c.Directions {
		put(d.Hints)
		for _, l := range d.Laws {
			put([]float64{l.Origin, l.Infinite})
			put(uint32(len(l.Masses)))
			put(l.Masses)
		}
	}
	return b, err
}

// UnmarshalBinary reads what MarshalBinary writes, and nothing else, in memory proportional to len(b). Errors are Malformed *Errors.
func (c *Certificate) UnmarshalBinary(b []byte) error {
	r, err := bytes.NewReader(b), error(nil)
	read := func(v any) {
		if err == nil {
			err = binary.Read(r, binary.BigEndian, v)
		}
	}
	var h head
	if read(&h); err != nil || len(b) > MaxSize || h.Magic != magic || h.Terms > maxTerms || h.Directions > 2 {
		return fail(Malformed, "%d bytes are no certificate", len(b))
	}
	*c = Certificate{h.Epsilon, h.Delta, h.Neighbours, make([]Term, h.Terms), h.Step, make([]Direction, h.Directions)}
	read(c.Terms)
	for i := range c.Directions {
		d := &c.Directions[i]
		read(&d.Hints)
		d.Laws = make([]Law, h.Terms)
		for j := range d.Laws {
			l, n := &d.Laws[j], uint32(0)
			read(&l.Origin)
			read(&l.Infinite)
			if read(&n); int64(n) > int64(r.Len()/4) {
				return fail(Malformed, "a law of %d masses", n)
			}
			l.Masses = make([]float32, n)
			read(l.Masses)
		}
	}
	if again, err2 := c.MarshalBinary(); err != nil || err2 != nil || !bytes.Equal(again, b) {
		return fail(Malformed, "not the encoding of a certificate")
	}
	return nil
}
