package figures

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"

	"github.com/starling-agg/starling/internal/draw"
	"github.com/starling-agg/starling/shuffle/cloak"
)

// Figure 1 of paper 001 is a table without numbers; here they are for this guarantee, and
// values of this precision. Of the users of our own protocol, cloakTrust of 10 are honest.
const (
	cloakEpsilon   = 1
	cloakDelta     = 1e-6
	cloakPrecision = 1 << 20
	cloakTrust     = 9
)

// A cost is what a protocol takes of n users, for one sum.
type cost struct {
	messages float64 // that a user sends
	bits     float64 // of each
	rms      float64
	unlike   float64 // the probability that a random share is seen; 0 where nobody looks
}

// A protocol is a row of figure 1 of paper 001.
type protocol struct {
	name, neighbours string
	kind             string // growth, with constants 1; published; or proved
	cost             func(n uint64) (cost, error)
}

func protocols() []protocol {
	ours := func(construct func(cloak.Options) (*cloak.Params, error), trust uint64) func(uint64) (cost, error) {
		return func(n uint64) (cost, error) {
			p, err := construct(cloak.Options{Users: n, Honest: n * trust / 10, Precision: cloakPrecision, Epsilon: cloakEpsilon, Delta: cloakDelta})
			if err != nil {
				return cost{}, err
			}
			return modernCost(p)
		}
	}
	modern := ours(cloak.Modern, cloakTrust)
	return []protocol{
		{"Cheu et al., ℓ = ε√n", "single user", "growth", func(n uint64) (cost, error) {
			l := math.Ceil(cloakEpsilon * math.Sqrt(float64(n)))
			return cost{messages: l, bits: 1, rms: math.Sqrt(float64(n))/l + math.Log(1/cloakDelta)/cloakEpsilon}, nil
		}},
		{"Balle et al.", "single user", "growth", func(n uint64) (cost, error) {
			return cost{messages: 1, bits: math.Ceil(math.Log2(float64(n))),
				rms: math.Pow(float64(n), 1.0/6) * math.Cbrt(math.Log(1/cloakDelta)) / math.Pow(cloakEpsilon, 2.0/3)}, nil
		}},
		{"Cloak, theorem 1", "single user", "proved", ours(cloak.SingleUser, 10)},
		{"Cloak, theorem 2", "same sum", "proved", ours(cloak.SumPreserving, 10)},
		{"Cloak, modern, published count", "single user", "published", func(n uint64) (cost, error) {
			c, err := modern(n)
			distance := math.Log2((1 + math.Exp(cloakEpsilon)) / cloakDelta)
			p := 3 * float64(n) * cloakPrecision
			c.messages = float64(cloak.PublishedMessages(n*cloakTrust/10, math.Log2(p), distance))
			return c, err
		}},
		{"Cloak, modern", "single user", "proved", modern},
	}
}

// modernCost is what parameters take, and the error that is proved of them.
func modernCost(p *cloak.Params) (cost, error) {
	return cost{float64(p.Messages()), float64(bits.Len64(p.Modulus())), p.RMS(), p.Unlike()}, nil
}

// cloaks is figure 1 of paper 001 with numbers.
func cloaks(o Options, _ *budget) (*output, error) {
	out := &output{title: "Sums by way of a shuffler", rows: [][]string{
		{"protocol", "neighbours", "kind", "n", "messages", "bits", "rms_error", "random_share_seen"}}}
	t := table{
		title:    out.title,
		subtitle: "Paper 001, figure 1, with numbers. n users with a number in [0, 1] each, to 20 bits; ε = 1, δ = 10^{−6}",
		caption: "Cells are the messages that a user sends × the bits of each; the error is the root of the mean squared error of the sum. Of Cheu et al. and Balle et al. the paper " +
			"states growth, which is drawn here with constants of 1. The others are parameters that a proof certifies: of the paper's lemmas where all users are " +
			"honest, and of Starling's own bound where 9 of 10 are. The published count is that of Balle, Bell, Gascón and Nissim (2020).",
		head:    []string{"protocol", "neighbours", "n = 10^{2}", "error", "n = 10^{4}", "error", "n = 10^{6}", "error"},
		widths:  []float64{196, 84, 84, 64, 84, 64, 84, 64},
		numbers: []bool{false, false, true, true, true, true, true, true},
		bold:    4,
	}
	for _, s := range protocols() {
		row := []string{s.name, s.neighbours}
		for _, n := range []uint64{100, 1_000, 10_000, 100_000, 1_000_000} {
			c, err := s.cost(n)
			if err != nil {
				return nil, err
			}
			out.rows = append(out.rows, []string{draw.Plain(s.name), s.neighbours, s.kind, strconv.FormatUint(n, 10),
				number(c.messages), number(c.bits), number(c.rms), number(c.unlike)})
			if n != 1_000 && n != 100_000 {
				row = append(row, grouped(uint64(c.messages))+" × "+number(c.bits), ceiling(c.rms, 3))
			}
		}
		t.rows = append(t.rows, row)
	}
	if o.Measured {
		row := []string{"Cloak, modern, measured", "single user"}
		for _, m := range cloakRuns {
			c, err := measuredCloak(m.n, o.runs(m.runs))
			if err != nil {
				return nil, err
			}
			out.rows = append(out.rows, []string{row[0], row[1], "measured", strconv.FormatUint(m.n, 10), number(c.messages), number(c.bits), number(c.rms), number(c.unlike)})
			if m.n != 1_000 && m.n != 100_000 {
				row = append(row, grouped(uint64(c.messages))+" × "+number(c.bits), strconv.FormatFloat(c.rms, 'f', 2, 64))
			}
		}
		t.rows = append(t.rows, append(row, "", "")) // of a million nothing is measured
		t.caption += fmt.Sprintf(" Measured is the root mean square of what encoder and analyzer gave just now, of %d sums of 100 users and %d of 10,000.",
			o.runs(cloakRuns[0].runs), o.runs(cloakRuns[2].runs))
	}
	out.picture = t.picture()
	return out, nil
}
