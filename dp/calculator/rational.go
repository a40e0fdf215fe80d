package calculator

import (
	"math/big"

	"github.com/starling-agg/starling/dp/release"
)

// below is x^power as a fraction of 64-bit numbers, rounded down by less than one part in 2^40. x^power is between 2^-10
// and 2^60.
func below(x float64, power int) release.Rational {
	v := new(big.Rat).SetFloat64(x)
	exact := new(big.Rat).Set(v)
	for range power - 1 {
		exact.Mul(exact, v)
	}
	// As many bits as leave the numerator below 2^62.
	whole := new(big.Int).Quo(exact.Num(), exact.Denom())
	shift := uint(62 - whole.BitLen())
	if shift > 52 {
		shift = 52
	}
	num := new(big.Int).Lsh(exact.Num(), shift)
	num.Quo(num, exact.Denom())
	r := new(big.Rat).SetFrac(num, new(big.Int).Lsh(big.NewInt(1), shift))
	return release.Rational{Num: r.Num().Uint64(), Den: r.Denom().Uint64()}
}
