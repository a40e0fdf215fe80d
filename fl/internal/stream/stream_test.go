package stream

import (
	"bytes"
	"crypto/sha3"
	"encoding/binary"
	"math"
	"testing"
)

// A stream is SHAKE128 of all that it was made of, in whatever pieces it is read.
func TestStream(t *testing.T) {
	want := make([]byte, 5000)
	h := sha3.NewSHAKE128()
	h.Write(append(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64([]byte("starling fl simulation v1"), 7), 3), "coins"...))
	h.Read(want)
	s := New(7, "coins", 3)
	var got []byte
	for n := 1; len(got)+n <= len(want); n = n*5/3 + 1 {
		b := make([]byte, n)
		s.Read(b)
		got = append(got, b...)
	}
	if len(got) < 1024 || !bytes.Equal(got, want[:len(got)]) {
		t.Error("another stream")
	}
	first := binary.BigEndian.Uint64(want)
	if New(7, "coins", 3).Uint64() != first || New(8, "coins", 3).Uint64() == first || New(7, "coins", 4).Uint64() == first ||
		New(7, "dummies", 3).Uint64() == first {
		t.Error("seed, use or step do not count")
	}
}

// The mean of 200,000 normal numbers is within 6 of its standard deviations of 0, and so is
// that of their squares of 1; the seed is fixed, and one in 10^8 has numbers further off.
func TestNormal(t *testing.T) {
	const n = 200_000
	s := New(1, "normal", 0)
	var sum, squares, uniform float64
	for range n {
		x := s.Normal()
		sum += x
		squares += x * x
		u := s.Uniform()
		if !(u >= 0 && u < 1) {
			t.Fatal(u)
		}
		uniform += u
	}
	if math.Abs(sum) > 6*math.Sqrt(n) || math.Abs(squares-n) > 6*math.Sqrt(2*n) || math.Abs(uniform-n/2) > 6*math.Sqrt(n/12.) {
		t.Errorf("%g, %g, %g", sum/n, squares/n, uniform/n)
	}
}
