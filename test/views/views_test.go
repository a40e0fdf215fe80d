// Package views holds what a leader and a helper see against what a simulator makes that knows the number of reports and the
// released sum alone (paper 000, theorem 5).
package views

import (
	"crypto/rand"
	"fmt"
	"math"
	"math/big"
	mathrand "math/rand/v2"
	"slices"
	"testing"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
)

const (
	leader, helper = 0, 1
	aggregators    = 2
)

// A view is all that one aggregator sees of one batch, with the other's released share if it colludes with the collector.
type view struct {
	rows  [][]byte // a report each: public and own input share, both verifier shares, their sum, and the message
	own   *vdaf.AggShare
	other *vdaf.AggShare // with the other's noise
}

// protocol runs what the parties run on the measurements, as the servers do with reports that were opened. The view is of
// party who; noise is the other's.
func protocol(t *testing.T, v vdaf.VDAF, c vdaf.Client[[]bool], key *[vdaf.VerifyKeySize]byte, who int, measurements [][]bool, noise []int64) view {
	t.Helper()
	const ctx = "views"
	n, sizes := len(measurements), v.Sizes()
	inputs := [aggregators]*vdaf.Reports{{}, {}}
	for _, m := range measurements {
		var nonce [vdaf.NonceSize]byte
		rand.Read(nonce[:])
		shares, err := c.Shard([]byte(ctx), m, &nonce)
		if err != nil {
			t.Fatal(err)
		}
		for agg, in := range inputs {
			in.Nonces, in.Public = append(in.Nonces, nonce), append(in.Public, shares.Public)
			in.Inputs = append(in.Inputs, shares.Inputs[agg])
		}
	}
	errs := make([]error, n)
	states := [aggregators]vdaf.State{v.NewState(n), v.NewState(n)}
	verifiers := [][]byte{make([]byte, n*sizes.VerifierShare), make([]byte, n*sizes.VerifierShare)}
	for agg, st := range states {
		v.VerifyInit(st, key, []byte(ctx), agg, inputs[agg], verifiers[agg], errs)
	}
	messages := make([]byte, n*sizes.VerifierMessage)
	v.Combine([]byte(ctx), verifiers, messages, errs)
	shares := [aggregators]*vdaf.AggShare{v.NewAggShare(), v.NewAggShare()}
	for agg, st := range states {
		v.Check(st, messages, errs)
		v.Accumulate(st, nil, nil, shares[agg:agg+1], errs)
	}
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := shares[1-who].AddSigned(noise); err != nil {
		t.Fatal(err)
	}
	out := view{own: shares[who], other: shares[1-who]}
	for i := range n {
		a := verifiers[leader][i*sizes.VerifierShare:][:sizes.VerifierShare]
		b := verifiers[helper][i*sizes.VerifierShare:][:sizes.VerifierShare]
		row := slices.Concat(inputs[who].Public[i], inputs[who].Inputs[i], a, b, addElements(a, b),
			messages[i*sizes.VerifierMessage:][:sizes.VerifierMessage])
		out.rows = append(out.rows, row)
	}
	return out
}

// modulus of the 128-bit field of Prio3MultihotCountVec (VDAF-18 section 6.1).
var modulus, _ = new(big.Int).SetString("340282366920938462946865773367900766209", 10)

// addElements adds vectors of little-endian field elements: the verifier in the clear, which zero knowledge is about.
func addElements(a, b []byte) []byte {
	const size = 16
	var out []byte
	for i := 0; i+size <= len(a); i += size { // what is left over at the end is the part of the joint randomness
		x, y := slices.Clone(a[i:i+size]), slices.Clone(b[i:i+size])
		slices.Reverse(x)
		slices.Reverse(y)
		s := new(big.Int).Add(new(big.Int).SetBytes(x), new(big.Int).SetBytes(y))
		e := s.Mod(s, modulus).FillBytes(make([]byte, size))
		slices.Reverse(e)
		out = append(out, e...)
	}
	return out
}

// simulate makes a view from the number of reports and the released sum alone: the protocol on zeros, with the sum put into
// the other's share, which is uniform but for what it adds up to.
func simulate(t *testing.T, v vdaf.VDAF, c vdaf.Client[[]bool], key *[vdaf.VerifyKeySize]byte, who, count int, aggregate []int64) view {
	t.Helper()
	zeros := make([][]bool, count)
	for i := range zeros {
		zeros[i] = make([]bool, len(aggregate))
	}
	return protocol(t, v, c, key, who, zeros, aggregate)
}

// advantage is the largest of all statistics of a distinguisher, in standard deviations, and where. For each bit of a row it
// asks whether the bit goes with what the report measured, which is the secret, and whether it is one as often as simulated.
func advantage(real, simulated [][]byte, secret []bool) (worst float64, where string) {
	n, signs := float64(len(real)), 0.0
	for _, s := range secret {
		signs += sign(s)
	}
	look := func(z float64, format string, args ...any) {
		if z = math.Abs(z); z > worst {
			worst, where = z, fmt.Sprintf(format, args...)
		}
	}
	for bit := range 8 * len(real[0]) {
		at := func(row []byte) float64 { return float64(row[bit/8] >> (bit % 8) & 1) }
		with, ones, others := 0.0, 0.0, 0.0
		for i := range real {
			b := at(real[i])
			ones += b
			others += at(simulated[i])
			with += sign(secret[i]) * b
		}
		if p := (ones + others) / (2 * n); p > 0 && p < 1 {
			look((ones-others)/math.Sqrt(2*n*p*(1-p)), "bit %d against the simulation", bit)
		}
		if p := ones / n; p > 0 && p < 1 {
			look((with-p*signs)/math.Sqrt(n*p*(1-p)), "bit %d against the secret", bit)
		}
	}
	return worst, where
}

// Theorem 5: the views of leader and helper can be made from the number of reports and the released sum. The distinguisher
// knows each report's measurement, all reports in order, the verification key and the other's released share.
//
// Power: with 2,000 reports it finds a bit that goes with the measurement with a bias of 0.3 (13 standard deviations) but for
// a probability of 1e-9. False alarms: about 40,000 statistics a view at 7 standard deviations, below 1e-6 in all.
func TestViewsCanBeSimulated(t *testing.T) {
	const n, length, limit = 2000, 4, 7.0
	c, err := prio3.NewMultihotCountVec(aggregators, length, 1, 3)
	if err != nil {
		t.Fatal(err)
	}
	var v vdaf.VDAF = c
	var key [vdaf.VerifyKeySize]byte
	rand.Read(key[:])
	measurements, secret := make([][]bool, n), make([]bool, n)
	sums := make([]int64, length)
	rng := mathrand.New(mathrand.NewPCG(5, 5))
	for i := range measurements {
		// A needle in the second place, or no answer: what a dummy is.
		measurements[i], secret[i] = make([]bool, length), rng.IntN(2) == 1
		if secret[i] {
			measurements[i][1] = true
			sums[1]++
		}
	}
	noise := []int64{3, -2, 0, 5}
	released := make([]int64, length)
	for i := range released {
		released[i] = sums[i] + noise[i]
	}
	for who, name := range []string{"leader", "helper"} {
		real := protocol(t, v, c, &key, who, measurements, noise)
		simulated := simulate(t, v, c, &key, who, n, released)
		for _, w := range []view{real, simulated} {
			got, err := v.Unshard([]*vdaf.AggShare{w.own, w.other})
			if err != nil || !slices.Equal(got, released) {
				t.Errorf("%s: the shares of a view add up to %v, want %v (%v)", name, got, released, err)
			}
		}
		if len(real.rows) != len(simulated.rows) || len(real.rows[0]) != len(simulated.rows[0]) {
			t.Fatalf("%s: views of different shape", name)
		}
		if z, where := advantage(real.rows, simulated.rows, secret); z > limit {
			t.Errorf("%s: told apart by %s, at %.1f standard deviations", name, where, z)
		}

		// The distinguisher has the power that is claimed: a bit with a bias of 0.3 is found, wherever it is.
		leaky := make([][]byte, n)
		for i, row := range real.rows {
			leaky[i] = slices.Clone(row)
			if rng.Float64() < 0.3 {
				leaky[i][100] &^= 1
				if secret[i] {
					leaky[i][100] |= 1
				}
			}
		}
		if z, where := advantage(leaky, simulated.rows, secret); z < limit || where != "bit 800 against the secret" {
			t.Errorf("%s: a leak is not found: %s, at %.1f standard deviations", name, where, z)
		}
	}
}

func sign(b bool) float64 {
	if b {
		return 1
	}
	return -1
}
