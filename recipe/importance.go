package recipe

import (
	"fmt"
	"math"
	"math/big"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/internal/outward"
)

// Importance: each device decides by a secret coin whose bias depends on its answer, so
// that the rare answers are the better sampled ("counting needles", paper 000 section
// 3.1). The default answer is the zero vector of a [Multihot] of weight 1. An observer of
// a device's uploads learns about its answer, so [Cover] and [Dummies] go with it.
type Importance struct {
	// Default is the probability of reporting the zero vector; Other that of any other
	// answer, not below it. Below 1.
	Default, Other Rational
}

// ParseImportance reads the two rates of an [Importance], as in 1/20:1/2, the default
// answer's first.
func ParseImportance(s string) (Participation, error) {
	rates, _, err := colons(s, 2, 2)
	if err != nil {
		return nil, err
	}
	return Importance{Default: rates[0], Other: rates[1]}, nil
}

func (p Importance) String() string {
	return fmt.Sprintf("each device decides by a secret coin; %s of those with nothing to tell report, and %s of the others", p.Default, p.Other)
}

// Units is 0: a round may be of any length.
func (Importance) Units() uint64 { return 0 }

func (Importance) participation() uint8 { return tagImportance }

func (p Importance) append(b *cryptobyte.Builder) {
	addRational(b, p.Default)
	addRational(b, p.Other)
}

func readImportance(d *decoder) Participation {
	return Importance{Default: d.rational("default"), Other: d.rational("other")}
}

func (p Importance) params() any {
	return map[string]string{"default": p.Default.String(), "other": p.Other.String()}
}

func (p Importance) validate(v *validator, r *Recipe) {
	v.chance("participation.default", p.Default, "below 1")
	v.chance("participation.other", p.Other, "below 1: a person whose answer is always reported hides behind no coin")
	if p.Default.Valid() && p.Other.Valid() && p.Default.Rat().Cmp(p.Other.Rat()) > 0 {
		v.add("participation.default", "is above that of other answers")
	}
	if q, ok := r.Query.(Multihot); !ok || q.MaxWeight != 1 {
		v.add("participation", "by the answer's importance needs a multihot query of weight 1, whose zero vector is the default")
	}
	if r.Cover == nil {
		v.add("cover", "is missing: under importance sampling, who sees a device upload learns about its answer")
	}
	if r.Relay == nil {
		v.add("relay", "is missing: under importance sampling, who knows the sender of a report learns about the answer")
	}
}

func (p Importance) rates() (least, most *big.Rat) { return p.Default.Rat(), p.Other.Rat() }
func (Importance) byAnswer() bool                  { return true }

// Watched is what a device's reporting, or not, tells about its answer: 0 for nothing.
func (r *Recipe) Watched() float64 {
	if !r.ByAnswer() {
		return 0
	}
	least, most := r.reportRates()
	rare, usual := r.uploaded(most), r.uploaded(least)
	if seen := math.Max(math.Log(rare/usual), math.Log((1-usual)/(1-rare))); seen > 0 {
		return outward.Up(seen) + outward.Underflow
	}
	return 0
}
