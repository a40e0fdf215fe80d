package recipe_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/starling-agg/starling/recipe"
)

// birds asks which of three birds was seen, by name.
func birds(labels ...string) *Recipe {
	r := doctor()
	r.Query, r.Labels = Histogram{Length: 3, Chunk: 2}, labels
	return r
}

// The names of buckets stand in the recipe, so in its id: who exchanges two of them asks
// something else.
func TestLabels(t *testing.T) {
	r := birds("robin", "wren", "Zaunkönig")
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []byte("\x00\x11\x00\x16\x05robin\x04wren\x0aZaunkönig"); !bytes.HasSuffix(b, want) {
		t.Errorf("%q does not end in %q", b, want)
	}
	again, err := Read(b)
	if err != nil || !slices.Equal(again.Labels, r.Labels) {
		t.Fatalf("%v, %v", again, err)
	}
	if err := again.Validate(); err != nil {
		t.Error(err)
	}
	ids := map[ID]bool{}
	for _, r := range []*Recipe{r, birds("wren", "robin", "Zaunkönig"), birds()} {
		id, err := r.ID()
		if err != nil {
			t.Fatal(err)
		}
		ids[id] = true
	}
	if len(ids) != 3 {
		t.Errorf("%d ids for three recipes", len(ids))
	}
	for text, want := range map[string]uint32{"robin": 0, "wren": 1, "Zaunkönig": 2, "Zaunko\u0308nig": 2, "2": 2, "0": 0} {
		if got, ok := r.Bucket(text); !ok || got != want {
			t.Errorf("%q is bucket %d, %v; want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{"Robin", "3", "-1", "", "1.0", " wren"} {
		if got, ok := r.Bucket(text); ok {
			t.Errorf("%q is bucket %d", text, got)
		}
	}
	if r.Label(1) != "wren" || birds().Label(1) != "1" || r.Label(3) != "3" {
		t.Errorf("labels %q, %q, %q", r.Label(1), birds().Label(1), r.Label(3))
	}
	var said strings.Builder
	if err := describe(r, &said); err != nil || !strings.Contains(said.String(), "robin; wren; Zaunkönig") {
		t.Errorf("%s, %v", said.String(), err)
	}
	js, err := marshal(r)
	if err != nil || !strings.Contains(string(js), `"labels":["robin","wren","Zaunkönig"]`) {
		t.Errorf("%s, %v", js, err)
	}
}

// Names that cannot be told apart, or hide something, are refused, and so is each encoding
// that no recipe has.
func TestLabelsRefused(t *testing.T) {
	many, count := make([]string, MaxLabels+1), birds()
	for i := range many {
		many[i] = fmt.Sprintf("n%d", i)
	}
	count.Query, count.Labels = Multihot{Length: 3, MaxWeight: 1, Chunk: 2}, []string{"a", "b", "c"}
	for name, r := range map[string]*Recipe{
		"another query":             count,
		"two names":                 birds("a", "b"),
		"four names":                birds("a", "b", "c", "d"),
		"no name at all":            birds([]string{}...),
		"too many":                  birds(many...),
		"one name twice":            birds("a", "b", "a"),
		"an empty name":             birds("a", "", "c"),
		"a long name":               birds("a", strings.Repeat("b", MaxLabel+1), "c"),
		"a line feed":               birds("a", "b\nc", "d"),
		"a right-to-left override":  birds("a", "\u202eb", "c"),
		"a zero byte":               birds("a", "b\x00", "c"),
		"an escape":                 birds("a", "\x1b[2Kb", "c"),
		"white space at an end":     birds("a", "b ", "c"),
		"no UTF-8":                  birds("a", "\xff", "c"),
		"not in NFC":                birds("a", "o\u0308", "c"),
		"another bucket's number":   birds("a", "b", "1"),
		"another's, with a nought":  birds("a", "b", "01"),
		"two that NFC makes to one": birds("a", "\u212b", "\u00c5"),
	} {
		if name == "no name at all" {
			r.Labels = []string{}
		}
		var invalid *InvalidError
		if err := r.Validate(); !errors.As(err, &invalid) || !strings.HasPrefix(invalid.Field, "labels") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := birds("0", "1", "2019").Validate(); err != nil {
		t.Errorf("numbers that are nobody else's: %v", err)
	}
	good, err := birds("a", "b", "c").Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	body := "\x00\x11\x00\x06\x01a\x01b\x01c"
	for name, other := range map[string]string{
		"an empty list":  "\x00\x11\x00\x00",
		"a name cut off": "\x00\x11\x00\x05\x01a\x01b\x02",
		"too many names": "\x00\x11\x04\x02" + strings.Repeat("\x01a", MaxLabels+1),
	} {
		b := bytes.Replace(good, []byte(body), []byte(other), 1)
		at := len(good) - len(body)
		for i := at; i >= 2; i-- { // the length of all extensions stands somewhere before
			if n := int(good[i-2])<<8 | int(good[i-1]); n == len(good)-i {
				n += len(other) - len(body)
				b[i-2], b[i-1] = byte(n>>8), byte(n)
				break
			}
		}
		if _, err := Read(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
