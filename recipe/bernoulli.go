package recipe

import (
	"fmt"
	"math/big"

	"golang.org/x/crypto/cryptobyte"
)

// Bernoulli: each device decides by a secret coin of its own, the same for every answer.
type Bernoulli struct {
	// Rate is the probability of reporting, below 1.
	Rate Rational
}

// ParseBernoulli reads the rate of a [Bernoulli], as in 1/10.
func ParseBernoulli(s string) (Participation, error) {
	q, err := ParseRational(s)
	return Bernoulli{q}, err
}

func (p Bernoulli) String() string {
	return fmt.Sprintf("each device decides by a secret coin; %s of them report", p.Rate)
}

// Units is 0: a round may be of any length.
func (Bernoulli) Units() uint64 { return 0 }

func (Bernoulli) participation() uint8 { return tagBernoulli }

func (p Bernoulli) append(b *cryptobyte.Builder) { addRational(b, p.Rate) }

func readBernoulli(d *decoder) Participation { return Bernoulli{d.rational("rate")} }

func (p Bernoulli) params() any { return map[string]string{"rate": p.Rate.String()} }

func (p Bernoulli) validate(v *validator, _ *Recipe) {
	v.chance("participation.rate", p.Rate, "below 1")
}

func (p Bernoulli) rates() (least, most *big.Rat) { return p.Rate.Rat(), p.Rate.Rat() }
func (Bernoulli) byAnswer() bool                  { return false }
