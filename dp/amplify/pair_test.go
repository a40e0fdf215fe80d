package amplify

import (
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

// delta is that of the pair, with what it leaves out.
func (p *Pair) delta(epsilon float64) float64 {
	sum := p.PInf
	for i, x := range p.P {
		sum += max(0, x-math.Exp(epsilon)*p.Q[i])
	}
	return sum
}

// TestPairsAgainstCurves: what composes over rounds is in one round the curve of one, or a
// little above where few sizes stand for many.
func TestPairsAgainstCurves(t *testing.T) {
	for _, c := range []struct {
		e0      float64
		n       uint64
		answers uint64
		loose   float64
	}{{1, 1, 3, 0}, {1, 10, 3, 0}, {2, 3, 4, 0}, {4, 1e4, 10, .05}, {2, 2e4, 16, .005}, {1, 1e3, 2, .001}, {4, 1e4, 2, .001}, {1, 1e3, 0, .001}} {
		is := release.Premise{Epsilon0: c.e0, Answers: c.answers, Neighbours: release.ReplaceOne}
		pair := ShuffledPair(is, c.n)
		upper := newCloneSum(c.e0, float64(c.n), clones(c.e0), 1).upper
		switch {
		case c.answers == 2:
			upper = newCloneSum(c.e0, float64(c.n), blanket(c.e0), 1).upper
		case c.answers > 2:
			upper = newKarySum(c.e0, float64(c.n), float64(c.answers)).upper
		}
		for _, e := range []float64{0, .01, .05, .1, .2, .5, .9} {
			e *= c.e0
			want := upper(e)
			if want < 1e-9 {
				continue
			}
			if got := pair.delta(e); got < want*(1-1e-4) || got > want*(1+c.loose+1e-8) {
				t.Errorf("%+v, epsilon %v: %v, and the curve has %v", c, e, got, want)
			}
		}
	}
	if _, ok := newKaryPair(1, 1e9, 3); ok {
		t.Error("a billion reports have too many outcomes")
	}
}
