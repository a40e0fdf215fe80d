package release

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
)

// A Rational is Num/Den; the zero value is not one.
type Rational struct{ Num, Den uint64 }

// NewRational returns num/den in lowest terms. It refuses zero in either place.
func NewRational(num, den uint64) (Rational, error) {
	if num == 0 || den == 0 {
		return Rational{}, fmt.Errorf("%w: %d/%d is not a positive fraction", ErrParameter, num, den)
	}
	g := gcd(num, den)
	return Rational{num / g, den / g}, nil
}

// Valid says whether the fraction is positive and in lowest terms.
func (r Rational) Valid() bool { return r.Num > 0 && r.Den > 0 && gcd(r.Num, r.Den) == 1 }

// Rat returns the exact value; 0 for the zero value and whatever has no denominator.
func (r Rational) Rat() *big.Rat {
	if r.Den == 0 {
		return new(big.Rat)
	}
	return new(big.Rat).SetFrac(new(big.Int).SetUint64(r.Num), new(big.Int).SetUint64(r.Den))
}

// Float returns the nearest float64; 0 for the zero value.
func (r Rational) Float() float64 {
	const exact = 1 << 53 // up to which a division of two float64s is the nearest
	if r.Den != 0 && r.Num <= exact && r.Den <= exact {
		return float64(r.Num) / float64(r.Den)
	}
	x, _ := r.Rat().Float64()
	return x
}

// FloatDown returns the greatest float64 that is not above the exact value.
func (r Rational) FloatDown() float64 {
	x, _ := r.Rat().Float64()
	if new(big.Rat).SetFloat64(x).Cmp(r.Rat()) > 0 {
		x = math.Nextafter(x, 0)
	}
	return x
}

// MarshalText is String.
func (r Rational) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

func (r Rational) String() string {
	if r.Den == 1 {
		return strconv.FormatUint(r.Num, 10)
	}
	return fmt.Sprintf("%d/%d", r.Num, r.Den)
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// root is the square root, for words.
func (r Rational) root() float64 { return math.Sqrt(r.Float()) }
