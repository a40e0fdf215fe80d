package certificate_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/starling-agg/starling/dp/accountant"
	. "github.com/starling-agg/starling/dp/certificate"
	"github.com/starling-agg/starling/dp/release"
)

func encode(t testing.TB, c *Certificate) []byte {
	t.Helper()
	b, err := c.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Neither cutting, adding nor changing one byte leaves a certificate of the same claim
// about the same terms; and there is but one encoding.
func TestBytes(t *testing.T) {
	formula, laws := honest(t)
	for _, want := range []*Certificate{formula, laws} {
		b := encode(t, want)
		var c Certificate
		if err := c.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		if err := c.Check(); err != nil {
			t.Error(err)
		}
		if again := encode(t, &c); !bytes.Equal(again, b) {
			t.Error("another encoding of the same certificate")
		}
		step := 1 + len(b)/200
		for n := 0; n < len(b); n += step {
			malformed(t, b[:n])
		}
		malformed(t, append(bytes.Clone(b), 0))
		for i := 0; i < len(b); i += step {
			x := bytes.Clone(b)
			x[i] ^= 0x40
			if err := c.UnmarshalBinary(x); err != nil {
				continue
			}
			if again := encode(t, &c); !bytes.Equal(again, x) {
				t.Fatalf("byte %d changed: a second encoding", i)
			}
		}
	}
	malformed(t, make([]byte, MaxSize+1))
	b := encode(t, laws)
	huge := bytes.Clone(b)
	copy(huge[len(huge)-30:], bytes.Repeat([]byte{0xff}, 30))
	var c Certificate
	if err := c.UnmarshalBinary(huge); err == nil && c.Check() == nil {
		t.Errorf("masses that are NaN")
	}
	if _, err := (&Certificate{Terms: make([]release.Term, 65)}).MarshalBinary(); !errors.As(err, new(*Error)) {
		t.Errorf("65 terms: %v", err)
	}
}

func malformed(t *testing.T, b []byte) {
	t.Helper()
	var c Certificate
	var e *Error
	if err := c.UnmarshalBinary(b); !errors.As(err, &e) || e.Reason != Malformed {
		t.Errorf("%d bytes: %v", len(b), err)
	}
}

// A decoded certificate is checked in bounded time, never proves an impossible claim, and
// has one encoding.
func FuzzCertificate(f *testing.F) {
	formula, laws := honest(f)
	seeds := 0
	for _, c := range []*Certificate{formula, laws} {
		b, err := c.MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)-1])
		seeds++
	}
	if seeds == 0 {
		f.Fatal("no seeds")
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var c Certificate
		if err := c.UnmarshalBinary(b); err != nil {
			return
		}
		again, err := c.MarshalBinary()
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%x reads, and is written as %x, %v", b, again, err)
		}
		for _, t := range c.Terms {
			if t.Dummies > 1<<20 || t.Reports > 1<<20 || t.Count > 1<<12 || len(c.Terms) > 8 {
				return // slow, though bounded
			}
		}
		var e *Error
		if err := c.Check(); err != nil && (!errors.As(err, &e) || e.Reason == 0) {
			t.Fatalf("an untyped error: %v", err)
		}
	})
}

func Example() {
	// The analyst has the accountant prove what 2,500 sampled Gaussian releases leak.
	c, err := accountant.Certify(sampled(5.1, .02, 2500), 1e-8, release.AddRemove)
	if err != nil {
		panic(err)
	}
	b, err := c.MarshalBinary()
	if err != nil {
		panic(err)
	}
	// The device reads the bytes, compares the terms and the claim with what it agreed
	// to, and checks the proof.
	var got Certificate
	if err := got.UnmarshalBinary(b); err != nil {
		panic(err)
	}
	agreed := release.Term{Family: release.FamilyGaussian, Sample: release.SamplePoisson, Count: 2500, Mu: got.Terms[0].Mu, Rate: .02}
	fmt.Println(len(got.Terms) == 1 && got.Terms[0] == agreed && agreed.Mu >= 1/5.1 && got.Epsilon < 1.03 && got.Delta == 1e-8)
	fmt.Println(got.Check())
	got.Epsilon = 1
	fmt.Println(got.Check() != nil)
	// Output:
	// true
	// <nil>
	// true
}

func BenchmarkCheck(b *testing.B) {
	c := certify(b, sampled(5.1, .02, 2500), 1e-8, release.AddRemove)
	b.ReportMetric(float64(len(encode(b, c))), "bytes")
	for b.Loop() {
		if err := c.Check(); err != nil {
			b.Fatal(err)
		}
	}
}
