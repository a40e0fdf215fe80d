package release

import (
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"testing"
)

// TestNamesOfTerms: each family and sample has a name of its own, and no other number is
// one.
func TestNamesOfTerms(t *testing.T) {
	seen := map[string]bool{}
	named := func(v interface {
		fmt.Stringer
		MarshalText() ([]byte, error)
	}) {
		b, err := v.MarshalText()
		if err != nil || string(b) != v.String() || len(b) == 0 || seen[string(b)] {
			t.Errorf("%d is %q, %v", v, b, err)
		}
		seen[string(b)] = true
	}
	for f := FamilyGaussian; f <= FamilyCheckedIn; f++ {
		named(f)
	}
	for s := SampleEveryone; s <= SampleFixed; s++ {
		named(s)
	}
	for _, f := range []Family{0, FamilyCheckedIn + 1, 255} {
		if b, err := f.MarshalText(); !errors.Is(err, ErrParameter) || f.String() != fmt.Sprintf("Family(%d)", uint8(f)) {
			t.Errorf("family %d is written as %q, %v, and said as %v", uint8(f), b, err, f)
		}
	}
	if b, err := (SampleFixed + 1).MarshalText(); !errors.Is(err, ErrParameter) || (SampleFixed+1).String() != "Sample(3)" {
		t.Errorf("a sample that there is not is %q, %v", b, err)
	}
}

// TestWordsOfTerms: no parameter of a term is left out of its words.
func TestWordsOfTerms(t *testing.T) {
	of := reflect.TypeFor[Term]()
	for i := range of.NumField() {
		one := Term{Family: FamilyGaussian, Count: 1, Rate: 1}
		without := one.String()
		switch f := reflect.ValueOf(&one).Elem().Field(i); f.Kind() {
		case reflect.Float64:
			f.SetFloat(0.25)
		default:
			f.SetUint(2)
		}
		if got := one.String(); got == without {
			t.Errorf("%s is not in %q", of.Field(i).Name, got)
		}
	}
	got := Term{Family: FamilyDiscreteGaussian, Count: 3, Num: 5, Den: 2, Shift: 7, Coordinates: 2, Honest: 1, Rate: 1}.String()
	if want := "3 of discrete-gaussian, parameter 5/2, shift 7, coordinates 2, honest servers 1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if strings.Contains(got, "rate") {
		t.Errorf("everybody's rate is in %q", got)
	}
}

// TestNearestFloat: also where the parts of a fraction are no float64s themselves.
func TestNearestFloat(t *testing.T) {
	for _, r := range []Rational{{1, 3}, {1 << 53, 3}, {1<<53 + 1, 1}, {1<<64 - 1, 1<<53 + 1}, {3, 1<<64 - 1}, {1<<60 + 1<<7 + 1, 3}} {
		want, _ := new(big.Rat).SetFrac(new(big.Int).SetUint64(r.Num), new(big.Int).SetUint64(r.Den)).Float64()
		if got := r.Float(); got != want {
			t.Errorf("%v is %v, the nearest is %v", r, got, want)
		}
	}
	if got := (Rational{}).Float(); got != 0 {
		t.Errorf("the zero value is %v", got)
	}
}
