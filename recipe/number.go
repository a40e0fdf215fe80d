package recipe

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

// A Rational is a positive fraction in lowest terms; the zero value is not one.
type Rational = release.Rational

// NewRational returns num/den in lowest terms. It refuses zero in either place.
func NewRational(num, den uint64) (Rational, error) {
	r, err := release.NewRational(num, den)
	if err != nil {
		return r, fmt.Errorf("recipe: %d/%d is not a positive fraction", num, den)
	}
	return r, nil
}

// ParseRational reads "26.01", "2601/100" or "5".
func ParseRational(s string) (Rational, error) {
	if num, den, ok := strings.Cut(s, "/"); ok {
		n, err1 := strconv.ParseUint(num, 10, 64)
		d, err2 := strconv.ParseUint(den, 10, 64)
		if err1 != nil || err2 != nil {
			return Rational{}, fmt.Errorf("recipe: %q is not a fraction of two integers", s)
		}
		return NewRational(n, d)
	}
	d, err := ParseDecimal(s)
	if err != nil {
		return Rational{}, err
	}
	if d.Scale > 19 {
		return Rational{}, fmt.Errorf("recipe: %q has more than 19 decimal places", s)
	}
	return NewRational(d.Coefficient, pow10(d.Scale))
}

// A Decimal is Coefficient * 10^-Scale, with Scale as small as it can be: the one
// encoding of its value.
type Decimal struct {
	Coefficient uint64
	Scale       uint8 // 0 to MaxScale
}

// MaxScale bounds a Decimal's places: 10^-40 is below any delta that means something.
const MaxScale = 40

// ParseDecimal reads an unsigned decimal such as "0.5", "12" or "1e-9". It is exact or
// fails.
func ParseDecimal(s string) (Decimal, error) {
	bad := func(why string) (Decimal, error) { return Decimal{}, fmt.Errorf("recipe: number %q: %s", s, why) }
	mantissa, exponent, hasExp := strings.Cut(strings.ToLower(s), "e")
	exp := 0
	if hasExp {
		e, err := strconv.Atoi(exponent)
		if err != nil || e > 2*MaxScale || e < -2*MaxScale {
			return bad("the exponent is not an integer in range")
		}
		exp = e
	}
	whole, frac, _ := strings.Cut(mantissa, ".")
	digits := whole + frac
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return bad("not an unsigned decimal")
	}
	if len(digits) > 60 {
		return bad("too many digits")
	}
	scale := len(frac) - exp
	digits = strings.TrimLeft(digits, "0")
	for scale > 0 && strings.HasSuffix(digits, "0") {
		digits, scale = digits[:len(digits)-1], scale-1
	}
	if digits == "" {
		return Decimal{}, nil
	}
	if scale < 0 {
		digits, scale = digits+strings.Repeat("0", -scale), 0
	}
	c, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return bad("more digits than 64 bits hold")
	}
	if scale > MaxScale {
		return bad("too many decimal places")
	}
	return Decimal{c, uint8(scale)}, nil
}

// DecimalAbove returns the least decimal of at most digits significant digits (1 to 15)
// that is not below x, so that a bound stays a bound when it is written down. x must be
// finite and not negative.
func DecimalAbove(x float64, digits int) (Decimal, error) {
	if !(x >= 0) || math.IsInf(x, 1) || digits < 1 || digits > 15 {
		return Decimal{}, fmt.Errorf("recipe: no decimal of %d digits stands above %v", digits, x)
	}
	d, err := ParseDecimal(strconv.FormatFloat(x, 'e', digits-1, 64))
	if err != nil {
		return Decimal{}, err
	}
	exact := new(big.Rat).SetFloat64(x)
	if d.Rat().Cmp(exact) >= 0 {
		return d, nil
	}
	// Rounded down: one unit in the last place more. FormatFloat wrote d as c *
	// 10^(e-digits+1).
	s := strconv.FormatFloat(x, 'e', digits-1, 64)
	mantissa, exponent, _ := strings.Cut(s, "e")
	c, err := strconv.ParseUint(strings.Replace(mantissa, ".", "", 1), 10, 64)
	if err != nil {
		return Decimal{}, err
	}
	e, err := strconv.Atoi(exponent)
	if err != nil {
		return Decimal{}, err
	}
	return ParseDecimal(fmt.Sprintf("%de%d", c+1, e-digits+1))
}

// Valid says whether the decimal is in its shortest form.
func (d Decimal) Valid() bool {
	return d.Scale <= MaxScale && (d.Scale == 0 || d.Coefficient%10 != 0)
}

// Rat returns the exact value.
func (d Decimal) Rat() *big.Rat {
	ten := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(d.Scale)), nil)
	return new(big.Rat).SetFrac(new(big.Int).SetUint64(d.Coefficient), ten)
}

// Float returns the nearest float64, for display.
func (d Decimal) Float() float64 {
	f, _ := d.Rat().Float64()
	return f
}

// FloatDown returns the greatest float64 that is not above the exact value: the safe
// direction for a delta that is handed to an accountant.
func (d Decimal) FloatDown() float64 {
	f := d.Float()
	if new(big.Rat).SetFloat64(f).Cmp(d.Rat()) > 0 {
		f = math.Nextafter(f, 0)
	}
	return f
}

func (d Decimal) String() string {
	digits := strconv.FormatUint(d.Coefficient, 10)
	switch s := int(d.Scale); {
	case s == 0:
		return digits
	case s < len(digits):
		return digits[:len(digits)-s] + "." + digits[len(digits)-s:]
	case s-len(digits) < 5:
		return "0." + strings.Repeat("0", s-len(digits)) + digits
	default:
		exp := len(digits) - 1 - s
		if len(digits) == 1 {
			return fmt.Sprintf("%se%d", digits, exp)
		}
		return fmt.Sprintf("%s.%se%d", digits[:1], digits[1:], exp)
	}
}

// pow10 returns 10^n for n <= 19.
func pow10(n uint8) uint64 {
	p := uint64(1)
	for range n {
		p *= 10
	}
	return p
}

// FloatUp is the least float64 that is not below.
func (d Decimal) FloatUp() float64 { return outward.Rat(d.Rat()) }

// colons reads parts with colons between them, the first of them fractions and the rest
// whole numbers.
func colons(s string, parts, fractions int) (rates []Rational, numbers []uint64, err error) {
	list := strings.Split(s, ":")
	if len(list) != parts {
		return nil, nil, fmt.Errorf("%q has %d parts, want %d with colons between them", s, len(list), parts)
	}
	for i, part := range list {
		if i < fractions {
			q, err := ParseRational(part)
			if err != nil {
				return nil, nil, err
			}
			rates = append(rates, q)
			continue
		}
		n, err := strconv.ParseUint(part, 10, 64)
		if err != nil {
			return nil, nil, fmt.Errorf("%q is not a whole number", part)
		}
		numbers = append(numbers, n)
	}
	return rates, numbers, nil
}
