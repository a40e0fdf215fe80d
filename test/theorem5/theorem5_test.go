package theorem5

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"testing"
	"testing/cryptotest"

	"github.com/starling-agg/starling/vdaf"
)

// Each of three groups has so many reports: of a 0, of a 1, simulated. bins are what a
// statistic is cut into.
//
// Power: were a tenth of one group's values of one statistic in one bin, the statistic
// would be of noncentrality 16 * 2/3 * reports * 0.1^2 = 213 with 32 degrees of freedom.
// At 1e-8, about what each of the statistics of a view gets of 1e-6, the limit is 97, and
// the leak is missed with a probability below 1e-5.
const (
	reports = 2000
	bins    = 17
	level   = 1e-6
)

// statistics cuts everything that the adversary can compute of a report, one element at a
// time, into bins: every element of its own shares and of what the other server said, the
// whole verifier, and how pairs of its wires lie to each other.
func (v *view) statistics(k *kind, agg int) map[string][bins]int {
	out := make(map[string][bins]int)
	add := func(x *big.Int, of *big.Int, format string, a ...any) {
		name := fmt.Sprintf(format, a...)
		low, high := out[name+", low"], out[name+", high"]
		low[new(big.Int).Mod(x, big.NewInt(bins)).Int64()]++
		high[new(big.Int).Div(new(big.Int).Mul(x, big.NewInt(bins)), of).Int64()]++
		out[name+", low"], out[name+", high"] = low, high
	}
	all := func(es []*big.Int, what string) {
		for i, e := range es {
			add(e, k.p, "%s %d", what, i)
		}
	}
	word := new(big.Int).Lsh(big.NewInt(1), 64)
	bytes := func(b []byte, what string) {
		for i := 0; i+8 <= len(b); i += 8 {
			add(new(big.Int).SetUint64(binary.LittleEndian.Uint64(b[i:])), word, "%s %d", what, i)
		}
	}
	for i := range v.nonces {
		seeds := v.inputs[i]
		if agg == 0 {
			n := len(seeds) - k.seed
			all(k.elements(seeds[:n]), "input share")
			seeds = seeds[n:]
		}
		bytes(seeds, "seed")
		bytes(v.public[i], "public share")
		all(v.out[i], "output share")
		own, other := k.elements(v.own[i][:len(v.own[i])-k.seed]), k.elements(v.other[i][:len(v.other[i])-k.seed])
		all(other, "other verifier")
		whole := k.combine(own, other, (*big.Int).Add)
		all(whole[1:], "verifier")
		for j := 1; j+1 < len(whole); j++ {
			all(k.combine(whole[j:j+1], whole[j+1:j+2], (*big.Int).Sub), fmt.Sprintf("difference %d", j))
			all(k.combine(whole[j:j+1], whole[j+1:j+2], (*big.Int).Mul), fmt.Sprintf("product %d", j))
		}
		all(k.combine(v.out[i][:1], whole[1:2], (*big.Int).Add), "output share and wire")
		all(k.combine(v.out[i][:1], other[:1], (*big.Int).Add), "output share and other verifier")
	}
	return out
}

// distinguish looks for a statistic by which the groups differ, by chi-square for
// homogeneity, and returns the names of those that could come about with a probability of
// level only, over all statistics together.
func distinguish(t *testing.T, groups ...map[string][bins]int) (found []string) {
	t.Helper()
	names := slices.Sorted(maps.Keys(groups[0]))
	for _, name := range names {
		chi := 0.0
		for j := range bins {
			total := 0
			for _, g := range groups {
				total += g[name][j]
			}
			if total == 0 {
				continue
			}
			want := float64(total) / float64(len(groups))
			for _, g := range groups {
				d := float64(g[name][j]) - want
				chi += d * d / want
			}
		}
		if tail(chi, (bins-1)*(len(groups)-1)) < level/float64(len(names)) {
			found = append(found, name)
		}
	}
	return found
}

// tail is the probability that chi-square with an even number of degrees of freedom is x
// or more.
func tail(x float64, df int) float64 {
	term, sum := 1.0, 1.0
	for i := 1; i < df/2; i++ {
		term *= x / 2 / float64(i)
		sum += term
	}
	return math.Exp(-x/2) * sum
}

func TestTail(t *testing.T) {
	// The 0.999 quantile of 32 degrees of freedom is 62.487, the median of 2 is 2 ln 2.
	if p := tail(62.487, 32); math.Abs(p-1e-3) > 1e-6 {
		t.Errorf("tail is %g", p)
	}
	if p := tail(2*math.Ln2, 2); math.Abs(p-0.5) > 1e-12 {
		t.Errorf("tail is %g", p)
	}
}

func repeated(m int) []int { return slices.Repeat([]int{m}, reports) }

// aggregate is what the collector gets of so many reports of a 0 and a 1.
func aggregate(k *kind, zeros, ones int64) []int64 {
	if n := k.Sizes().OutLen; n > 1 {
		a := make([]int64, n)
		a[0], a[1] = zeros, ones
		return a
	}
	return []int64{ones}
}

func names(agg int) string { return [2]string{"leader", "helper"}[agg] }

// each runs f for both kinds and both adversaries.
func each(t *testing.T, f func(t *testing.T, k *kind, agg int)) {
	for name, k := range kinds(t) {
		for agg := range 2 {
			t.Run(name+" "+names(agg), func(t *testing.T) {
				cryptotest.SetGlobalRandom(t, uint64(5+agg))
				f(t, k, agg)
			})
		}
	}
}

// TestSimulatorIsAccepted: the product's own code verifies each simulated report
// (simulate fails otherwise), and the shares give the aggregate, whatever it is.
func TestSimulatorIsAccepted(t *testing.T) {
	each(t, func(t *testing.T, k *kind, agg int) {
		want := aggregate(k, 700, 1300)
		v := simulate(t, k, agg, 2000, want)
		sum := make([]*big.Int, len(want))
		for i := range sum {
			sum[i] = new(big.Int)
		}
		for _, o := range v.out {
			sum = k.combine(sum, o, (*big.Int).Add)
		}
		own, err := k.ReadAggShare(k.encode(sum))
		if err != nil {
			t.Fatal(err)
		}
		got, err := k.Unshard([]*vdaf.AggShare{own, v.share})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("the simulated shares give %v, %v, want %v", got, err, want)
		}
	})
}

// TestTheorem5: neither aggregator's view of reports, of which the distinguisher knows
// all answers, differs from what the simulator makes of their number and their sum, nor
// do the views of one answer and of the other.
func TestTheorem5(t *testing.T) {
	each(t, func(t *testing.T, k *kind, agg int) {
		zeros, ones := observe(t, k, agg, repeated(0)), observe(t, k, agg, repeated(1))
		made := simulate(t, k, agg, reports, aggregate(k, 0, reports))
		stats := []map[string][bins]int{zeros.statistics(k, agg), ones.statistics(k, agg), made.statistics(k, agg)}
		if found := distinguish(t, stats...); len(found) > 0 {
			t.Errorf("of %d statistics, these tell the views apart: %q", len(stats[0]), found)
		}
	})
}

// TestDistinguisherFindsLeaks plants leaks into a tenth of the reports of one answer: at
// the power stated above, each is found.
func TestDistinguisherFindsLeaks(t *testing.T) {
	leaks := map[string]func(k *kind, v *view, agg, i int) bool{
		"a share that is not masked": func(k *kind, v *view, _, i int) bool {
			v.out[i][0] = big.NewInt(1)
			return true
		},
		"wires without randomness": func(k *kind, v *view, _, i int) bool {
			n := len(v.own[i]) - k.seed
			own, other := k.elements(v.own[i][:n]), k.elements(v.other[i][:n])
			other[1] = k.combine([]*big.Int{big.NewInt(1)}, own[1:2], (*big.Int).Sub)[0]
			copy(v.other[i], k.encode(other))
			return true
		},
		"two wires with the same randomness": func(k *kind, v *view, _, i int) bool {
			n := len(v.own[i]) - k.seed
			own, other := k.elements(v.own[i][:n]), k.elements(v.other[i][:n])
			whole := k.combine(own, other, (*big.Int).Add)
			other[2] = k.combine(whole[1:2], own[2:3], (*big.Int).Sub)[0]
			copy(v.other[i], k.encode(other))
			return true
		},
		"a hint that follows from the answer": func(k *kind, v *view, agg, i int) bool {
			if k.seed == 0 {
				return false
			}
			clear(v.public[i][(1-agg)*k.seed:][:k.seed])
			return true
		},
	}
	each(t, func(t *testing.T, k *kind, agg int) {
		made := simulate(t, k, agg, reports, aggregate(k, 0, reports)).statistics(k, agg)
		zeros := observe(t, k, agg, repeated(0)).statistics(k, agg)
		for name, leak := range leaks {
			ones := observe(t, k, agg, repeated(1))
			planted := false
			for i := 0; i < reports; i += 10 {
				planted = leak(k, ones, agg, i)
			}
			if found := distinguish(t, zeros, ones.statistics(k, agg), made); planted && len(found) == 0 {
				t.Errorf("not found: %s", name)
			}
		}
	})
}
