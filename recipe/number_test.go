package recipe_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	. "github.com/starling-agg/starling/recipe"
)

func TestDecimal(t *testing.T) {
	for _, c := range []struct {
		in, out string
		want    Decimal
	}{
		{"0", "0", Decimal{}},
		{"0.000", "0", Decimal{}},
		{"1", "1", Decimal{1, 0}},
		{"10", "10", Decimal{10, 0}},
		{"1.50", "1.5", Decimal{15, 1}},
		{".5", "0.5", Decimal{5, 1}},
		{"1e-9", "1e-9", Decimal{1, 9}},
		{"12.5E-10", "1.25e-9", Decimal{125, 11}},
		{"0.00012", "0.00012", Decimal{12, 5}},
		{"2e3", "2000", Decimal{2000, 0}},
		{"18446744073709551615", "18446744073709551615", Decimal{math.MaxUint64, 0}},
		{"1e-40", "1e-40", Decimal{1, 40}},
	} {
		got, err := ParseDecimal(c.in)
		if err != nil || got != c.want || got.String() != c.out {
			t.Errorf("ParseDecimal(%q) = %v (%q), %v; want %v", c.in, got, got.String(), err, c.want)
		}
		if back, err := ParseDecimal(got.String()); err != nil || back != got {
			t.Errorf("%v written and read is %v, %v", got, back, err)
		}
	}
	for _, s := range []string{"", ".", "-1", "+1", "1,5", "0x1", "1e", "1e-41", "18446744073709551616", "NaN", "inf", "1e999", "1 "} {
		if d, err := ParseDecimal(s); err == nil {
			t.Errorf("ParseDecimal(%q) = %v", s, d)
		}
	}
}

func TestDecimalAbove(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		x := math.Exp(rng.Float64()*60 - 40)
		digits := 1 + rng.IntN(15)
		d, err := DecimalAbove(x, digits)
		if err != nil {
			t.Fatalf("DecimalAbove(%v, %d): %v", x, digits, err)
		}
		exact := new(big.Rat).SetFloat64(x)
		if d.Rat().Cmp(exact) < 0 {
			t.Fatalf("DecimalAbove(%v, %d) = %v is below", x, digits, d)
		}
		limit := new(big.Rat).SetFloat64(x * (1 + 1.1*math.Pow10(1-digits)))
		if d.Rat().Cmp(limit) > 0 {
			t.Fatalf("DecimalAbove(%v, %d) = %v is far above", x, digits, d)
		}
		if f := d.FloatDown(); new(big.Rat).SetFloat64(f).Cmp(d.Rat()) > 0 {
			t.Fatalf("FloatDown(%v) = %v is above", d, f)
		}
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), -1} {
		if d, err := DecimalAbove(x, 4); err == nil {
			t.Errorf("DecimalAbove(%v) = %v", x, d)
		}
	}
	if d, err := DecimalAbove(9.9996, 4); err != nil || d != (Decimal{10, 0}) {
		t.Errorf("DecimalAbove(9.9996, 4) = %v, %v", d, err)
	}
}

func TestRational(t *testing.T) {
	for in, want := range map[string]Rational{
		"5": {Num: 5, Den: 1}, "26.01": {Num: 2601, Den: 100}, "10/4": {Num: 5, Den: 2}, "0.25": {Num: 1, Den: 4}, "2.5e1": {Num: 25, Den: 1},
	} {
		if got, err := ParseRational(in); err != nil || got != want {
			t.Errorf("ParseRational(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, s := range []string{"", "0", "1/0", "0/1", "-1/2", "a/b", "1/2/3", "1e-20"} {
		if got, err := ParseRational(s); err == nil {
			t.Errorf("ParseRational(%q) = %v", s, got)
		}
	}
	if s := (Rational{Num: 5, Den: 2}).String(); s != "5/2" {
		t.Error(s)
	}
}
