package aggregator

import (
	"math"
	"math/big"
	"testing"
)

// atMost returns P(X <= r) of r = 0, ..., n for X ~ Bin(n, p), each to a hundred digits.
func atMost(n int64, p float64) []*big.Float {
	f := func(x float64) *big.Float { return new(big.Float).SetPrec(600).SetFloat64(x) }
	q := f(1)
	q.Sub(q, f(p)) // exact
	term := f(1)
	for range n {
		term.Mul(term, q)
	}
	sums := []*big.Float{new(big.Float).Copy(term)}
	for r := int64(1); r <= n; r++ {
		term.Mul(term, f(p)).Quo(term, q)
		term.Mul(term, f(float64(n-r+1))).Quo(term, f(float64(r)))
		sums = append(sums, f(0).Add(sums[r-1], term))
	}
	return sums
}

// TestRateAgainstExactTails: a batch is told as of too few devices, or of more than their
// coins have them, exactly where chance does so once in 2^40: never where it does so more
// often, and but for a part in 10^9 always where it does so less.
func TestRateAgainstExactTails(t *testing.T) {
	alarm := big.NewFloat(FalseAlarm)
	least := new(big.Float).Mul(alarm, big.NewFloat(1-1e-9))
	for _, p := range []float64{0.5, 0.25, 0.1, 0.9, 2e-3, 1 - 0x1p-20, 0x1p-40} {
		for _, n := range []int64{1, 2, 39, 40, 41, 300, 2000} {
			below := atMost(n, p)
			r := Rate{Senders: uint64(n), Least: p, Most: p}
			few, many := 0, 0
			judge := func(what string, x int64, said bool, odds *big.Float) {
				if said && odds.Cmp(alarm) > 0 || !said && odds.Cmp(least) <= 0 {
					t.Errorf("%d of %d at %v: %s is %v, which chance brings with probability %v", x, n, p, what, said, odds)
				}
			}
			for x := range n + 1 {
				judge("too few", x, r.Few(uint64(x)), below[x])
				above := big.NewFloat(1)
				if x > 0 {
					above = new(big.Float).SetPrec(600).Sub(below[n], below[x-1])
				}
				judge("too many", x, r.Many(uint64(x), uint64(n)), above)
				if r.Few(uint64(x)) {
					few++
				}
				if r.Many(uint64(x), uint64(n)) {
					many++
				}
			}
			if n == 2000 && p >= 0.1 && few == 0 || n == 2000 && p <= 0.9 && many == 0 {
				t.Errorf("of %d at %v %d numbers are too few and %d too many", n, p, few, many)
			}
			if !r.Many(uint64(n)+1, uint64(n)) || r.Few(uint64(n)) || r.Few(uint64(n)+1) {
				t.Errorf("%d at %v: more than all are not too many, or all too few", n, p)
			}
		}
	}
}

// TestRateOfMany: of a thousand million devices, at what is once in 2^40, which is 7.04
// deviations.
func TestRateOfMany(t *testing.T) {
	const n, p = 1e9, 0.2
	r, sigma := Rate{Senders: n, Least: p, Most: p}, math.Sqrt(n*p*(1-p))
	for _, c := range []struct {
		deviations float64
		few, many  bool
	}{{-7.1, true, false}, {-7, false, false}, {0, false, false}, {7, false, false}, {7.1, false, true}} {
		reports := uint64(n*p + c.deviations*sigma)
		if few, many := r.Few(reports), r.Many(reports, n); few != c.few || many != c.many {
			t.Errorf("%v deviations: too few %v, too many %v", c.deviations, few, many)
		}
	}
}

// TestRateAtTheEnds: coins that always fall alike, and no rate at all.
func TestRateAtTheEnds(t *testing.T) {
	all := Rate{Senders: 100, Least: 1, Most: 1}
	if !all.Few(99) || all.Few(100) || all.Many(100, 100) || !all.Many(101, 100) {
		t.Error("of devices that always send as many are wanted as there are")
	}
	none := Rate{Senders: 100}
	if none.Few(0) || none.Many(0, 100) || !none.Many(1, 100) {
		t.Error("of devices that never send none are wanted")
	}
	for _, c := range []struct {
		reports uint64
		flood   bool
	}{{0, false}, {40, false}, {41, true}} {
		if got := (&Rate{Most: 0.2}).Flood(c.reports, 100); got != c.flood {
			t.Errorf("%d reports of 100 devices that send at 0.2: a flood %v", c.reports, got)
		}
	}
	for _, bad := range []Rate{{Senders: math.MaxUint64}, {Least: -1}, {Least: 0.5, Most: 0.4}, {Most: 1.1}, {Least: math.NaN(), Most: 1}, {Most: math.NaN()}} {
		if bad.Validate() == nil {
			t.Errorf("%+v passes", bad)
		}
	}
}
