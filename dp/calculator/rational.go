package calculator

import (
	"math/big"

	"github.com/starling-agg/starling/dp/release"
)

// below is x^power as a fraction of 64-bit numbers, rounded down by less than one part in
// 2^40. x^power is between 2^-10 and 2^60.
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

// squareBelow is sigma^2 as a fraction, rounded down by less than one part in 2^40.
func squareBelow(sigma float64) (release.Rational, error) {
	if !(sigma >= 0.5 && sigma <= 1<<30) {
		return release.Rational{}, &release.ParameterError{Parameter: "sigma of discrete Gaussian noise", Value: sigma, Want: "0.5 to 2^30"}
	}
	return below(sigma, 2), nil
}

// rationalBelow is x as a fraction, rounded down by less than one part in 2^40.
func rationalBelow(x float64) (release.Rational, error) {
	if !(x >= 1e-3 && x <= 1<<40) {
		return release.Rational{}, &release.ParameterError{Parameter: "scale of discrete Laplace noise", Value: x, Want: "0.001 to 2^40"}
	}
	return below(x, 1), nil
}
