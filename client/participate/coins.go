package participate

import (
	"crypto/rand"
	"math/big"
)

// coin is true with probability p exactly, 0 <= p <= 1: an integer below the denominator,
// uniform by rejection, against the numerator. How long it takes depends on the
// denominator and on bits that are thrown away, not on the outcome.
type coin func(p *big.Rat) bool

// secretly tosses with crypto/rand.
func secretly(p *big.Rat) bool {
	n, err := rand.Int(rand.Reader, p.Denom())
	if err != nil {
		panic("participate: internal error: crypto/rand failed: " + err.Error())
	}
	return n.Cmp(p.Num()) < 0
}

// outcome of a round.
type outcome uint8

const (
	nothing outcome = iota
	noOp
	dummy
	report
)

// toss tosses every coin, whether or not an earlier one has decided.
func (c coin) toss(p chances, covered bool) outcome {
	cover, answers, sends := c(p.Cover), c(p.Report), c(p.Dummy)
	switch {
	case !cover:
		return nothing
	case answers:
		return report
	case sends:
		return dummy
	case covered:
		return noOp
	}
	return nothing
}
