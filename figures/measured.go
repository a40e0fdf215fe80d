package figures

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"io"
	"math"

	"github.com/starling-agg/starling/dp/local"
	"github.com/starling-agg/starling/shuffle/cloak"
)

// This file measures what the figures of papers 001 and 002 draw by formula: the running
// encoders and analyzers, with fresh randomness at each call.

// cloakRuns are how many sums are measured of how many users; of more users it would take
// minutes.
var cloakRuns = []struct {
	n    uint64
	runs int
}{{100, 200}, {1_000, 60}, {10_000, 60}, {100_000, 4}}

// groupEpsilons are where figure 2 of paper 002 is measured, groupRuns times each.
var groupEpsilons = []float64{0.15, 0.4, 1, 2.5, 6}

const groupRuns = 100

// runs is a number of runs, of which a test takes fewer.
func (o *Options) runs(n int) int { return max(1, n/max(1, o.thin)) }

// uniform draws made-up values in [0, 1).
func uniform(from *bufio.Reader) float64 {
	var b [8]byte
	io.ReadFull(from, b[:]) // never fails
	return float64(binary.LittleEndian.Uint64(b[:])>>11) / (1 << 53)
}

// measuredCloak is the root mean squared error of sums of values of n users each, which a
// modern cloak encodes and analyzes. Mixing changes no sum, and is left out.
func measuredCloak(n uint64, runs int) (cost, error) {
	p, err := cloak.Modern(cloak.Options{Users: n, Honest: n * cloakTrust / 10, Precision: cloakPrecision, Epsilon: cloakEpsilon, Delta: cloakDelta})
	if err != nil {
		return cost{}, err
	}
	values, squares := bufio.NewReader(rand.Reader), 0.0
	for range runs {
		messages, exact := make([]cloak.Message, 0, int(n)*p.Messages()), 0.0
		for range n {
			x := uniform(values)
			list, err := p.Encode([]float64{x})
			if err != nil {
				return cost{}, err
			}
			messages, exact = append(messages, list...), exact+x
		}
		sums, err := p.Analyze(messages)
		if err != nil {
			return cost{}, err
		}
		off := float64(sums[0].Units)/cloakPrecision - exact
		squares += off * off
	}
	c, err := modernCost(p)
	c.rms = math.Sqrt(squares / float64(runs))
	return c, err
}

// measuredGroups is the mean of the squared errors of both sums over n^2, of answers that
// devices make by either scheme, half of them in each group.
func measuredGroups(g grouping, epsilon float64, runs int) (question, random float64, err error) {
	lambda, gamma, omega, err := g.lies(epsilon)
	if err != nil {
		return 0, 0, err
	}
	asks, err := local.NewQuestionLying(2, 1, lambda)
	if err != nil {
		return 0, 0, err
	}
	tells, err := local.NewRandomGroup(2, 1, gamma, omega)
	if err != nil {
		return 0, 0, err
	}
	ones := g.ones
	if g.any {
		ones = [2]float64{0.5, 0.5} // the error is the same for all
	}
	asked, told, err := groupUsers()
	if err != nil {
		return 0, 0, err
	}
	values := bufio.NewReader(rand.Reader)
	measure := func(n float64, sum *local.GroupSum, answer func(sum *local.GroupSum, group, value int) error) (float64, error) {
		var exact [2]float64
		for i := range int(n) {
			group, value := i%2, -1
			if uniform(values) < ones[group] {
				value = 1
			}
			exact[group] += float64(value)
			if err := answer(sum, group, value); err != nil {
				return 0, err
			}
		}
		total := 0.0
		for i, e := range sum.Estimate() {
			off := (e.Sum.Value - exact[i]) / n
			total += off * off
		}
		return total, nil
	}
	for range runs {
		q, err := measure(asked, asks.NewSum(), func(sum *local.GroupSum, group, value int) error {
			var query local.Query
			rand.Read(query.Nonce[:])
			column, err := asks.Randomize(query, group, value)
			if err != nil {
				return err
			}
			return asks.Add(sum, query, column)
		})
		if err != nil {
			return 0, 0, err
		}
		r, err := measure(told, tells.NewSum(), func(sum *local.GroupSum, group, value int) error {
			group, value, err := tells.Randomize(group, value)
			if err != nil {
				return err
			}
			return tells.Add(sum, group, value)
		})
		if err != nil {
			return 0, 0, err
		}
		question, random = question+q/float64(runs), random+r/float64(runs)
	}
	return question, random, nil
}
