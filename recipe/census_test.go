package recipe_test

import (
	"encoding/hex"
	"errors"
	"slices"
	"testing"

	. "github.com/starling-agg/starling/recipe"
)

// TestCensus: a census has one encoding and one hash, which says all of it, and clauses that a
// recipe may have.
func TestCensus(t *testing.T) {
	c := targeted().Targeting.Census()
	b, err := c.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	const golden = "0100000000000000000000000000000000000000000000000000000000000000" +
		"0015" + "0001000a" + "03696f73" + "056c696e7578" + "00050003" + "026465" + "000000000000c351"
	if got := hex.EncodeToString(b); got != golden {
		t.Errorf("encoded as %s", got)
	}
	read, err := ReadCensus(b)
	if err != nil {
		t.Fatal(err)
	}
	h, err := c.Hash()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := read.Hash(); err != nil || again != h {
		t.Errorf("read back, its hash is %v, %v", again, err)
	}
	if got := c.String(); got != "of at least 50001 devices whose platform is ios or linux and whose language is de" {
		t.Error(got)
	}
	for i := range b {
		if _, err := ReadCensus(b[:i]); err == nil {
			t.Errorf("cut to %d bytes", i)
		}
	}
	if _, err := ReadCensus(append(slices.Clone(b), 0)); err == nil {
		t.Error("a byte behind it")
	}
	for name, change := range map[string]func(*Census){
		"another recipe": func(c *Census) { c.Recipe[31]++ },
		"another bound":  func(c *Census) { c.LowerBound-- },
		"fewer clauses":  func(c *Census) { c.Clauses = c.Clauses[:1] },
		"a value in another": func(c *Census) {
			c.Clauses = []Clause{{Platform, []string{"ios"}}, {Language, []string{"de", "linux"}}}
		},
	} {
		other := *c
		change(&other)
		if got, err := other.Hash(); err != nil || got == h {
			t.Errorf("%s: the hash is %v, %v", name, got, err)
		}
	}
	for name, clauses := range map[string][]Clause{
		"at nobody":      nil,
		"at a device":    {{0x8001, []string{"4711"}}},
		"without values": {{Platform, nil}},
		"in disorder":    {{Language, []string{"de"}}, {Platform, []string{"ios"}}},
	} {
		b, err := (&Census{Clauses: clauses, LowerBound: 1000}).Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = ReadCensus(b)
		if invalid, unknown := new(InvalidError), new(UnknownError); !errors.As(err, &invalid) && !errors.As(err, &unknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCertificateOfCensus: a recipe that stands in a log rests on its own census; on the
// command line it follows from the rest.
func TestCertificateOfCensus(t *testing.T) {
	r := targeted()
	r.Log = &Log{Origin: "log.example/2026"}
	if err := r.Validate(); !invalidAt(err, "targeting.certificate") {
		t.Errorf("another hash: %v", err)
	}
	h, err := r.Targeting.Census().Hash()
	if err != nil {
		t.Fatal(err)
	}
	r.Targeting.Certificate.Entry = h
	if err := r.Validate(); invalidAt(err, "targeting.certificate") {
		t.Errorf("its own: %v", err)
	}
	c, err := ParseCertificate(ID{1}.String() + ":50001:20000")
	if err != nil || c.Entry != (Hash{}) || c.LowerBound != 50001 || c.MinPopulation != 20000 {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err = ParseCertificate(ID{1}.String() + ":" + h.String() + ":50001:20000"); err != nil || c != r.Targeting.Certificate {
		t.Errorf("%+v, %v", c, err)
	}
	for _, s := range []string{"", ID{1}.String(), ID{1}.String() + ":1", ID{1}.String() + ":" + h.String()[1:] + ":1:1"} {
		if _, err := ParseCertificate(s); err == nil {
			t.Errorf("%q is read", s)
		}
	}
}
