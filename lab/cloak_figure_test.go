package lab

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/recipe/recipetest"
)

var writeCloak = flag.Bool("write-cloak", false, "write the tables in docs/bench/cloak.md anew, of batches up to 100,000 contributions, in some minutes")

// overCloak is a recipe behind a shuffler, whose parties are those of a lab.
func overCloak(t testing.TB, o account.Options) *recipe.Recipe {
	t.Helper()
	m, err := deploy.LoopbackMixers(false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	front, err := deploy.LoopbackFront()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(front.Close)
	o.Name, o.Path, o.Relay = "Test", m.Path(true), &recipe.Relay{URL: front.RelayURL(), Gateway: front.GatewayURL()}
	o.TimePrecision = dap.TimePrecision(60)
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// seed is of some numbers.
func seed(numbers ...uint64) (s [32]byte) {
	for i, n := range numbers {
		binary.LittleEndian.PutUint64(s[8*i:], n)
	}
	return s
}

// overall adds the messages of a batch of answers up, mixed.
func overall(t testing.TB, r *recipe.Recipe, m *recipe.Messenger, rng *rand.Rand, n int, answer func(i int) []uint64) recipe.Tally {
	t.Helper()
	var all [][]byte
	for i := range n {
		messages, err := m.Messages(answer(i))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, messages...)
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	tally, err := m.Tally(all)
	if err != nil {
		t.Fatal(err)
	}
	return tally
}

// TestCloakFigure measures how far the running encoder and analyzer of a recipe are off, of a
// number of 20 bits and of a histogram of 20 buckets, at epsilon 1 and delta 10^-6 with 9 of
// 10 devices counted on. The mean square over all runs is to be within the interval that it
// has with probability 99.9 % if the theorem is right, of a normal sum of squares; and of no
// more runs or buckets is the error beyond the 99.9 % interval of one than a binomial of
// 1/1000 allows but once in 10^6. With -write-cloak it writes what batches of up to 100,000
// show; without it fewer with fixed seeds are held to 6.5 of these deviations, which is once
// in 10^6 and less (a squared Laplace variable has a heavy tail, of which the margin is for).
func TestCloakFigure(t *testing.T) {
	type batch struct{ n, runs int }
	sums, buckets := []batch{{100, 500}, {1000, 20}}, []batch{{100, 15}}
	margin := 6.5
	if *writeCloak {
		sums, buckets = []batch{{100, 2000}, {1000, 1000}, {10_000, 200}, {100_000, 40}}, []batch{{100, 100}, {1000, 50}, {10_000, 20}, {100_000, 6}}
		margin = 3.29
	}
	play := func(name string, q recipe.Query, list []batch, answer func(rng *rand.Rand) []uint64) {
		text := "| n | honest | messages | bytes, sealed | runs | numbers | error | by theorem 3 | quotient | 99.9 % of quotients | beyond 99.9 % of one |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
		for _, b := range list {
			honest := uint64(b.n * 9 / 10)
			r := overCloak(t, account.Options{Query: q, MinBatch: uint64(b.n), Epsilon: decimal("1"), Delta: decimal("0.000001"),
				Randomizer: recipe.Cloak{Kind: recipe.ModernCloak, Honest: honest}})
			m, err := recipetest.Messenger(r, seed(1, uint64(b.n), uint64(q.Aggregates())))
			if err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(uint64(b.n), uint64(q.Aggregates())))
			squares, said, beyond, numbers := 0.0, 0.0, 0, 0
			for range b.runs {
				exact := make([]float64, q.Aggregates())
				tally := overall(t, r, m, rng, b.n, func(int) []uint64 {
					x := answer(rng)
					if q.Form() == recipe.Bucket {
						exact[x[0]]++
					} else {
						exact[0] += float64(x[0])
					}
					return x
				})
				e, err := r.Estimate(tally.Sums, tally.Reports)
				if err != nil {
					t.Fatal(err)
				}
				reach := e.StdDev[0] / math.Sqrt2 * math.Log(1000) * 1.05 // of one Laplace variable; of n/h a little less
				for i, x := range exact {
					off := e.Values[i] - x
					squares, said, numbers = squares+off*off, said+e.StdDev[i]*e.StdDev[i], numbers+1
					if math.Abs(off) > reach {
						beyond++
					}
				}
			}
			quotient, deviation := math.Sqrt(squares/said), math.Sqrt(5/float64(numbers))
			low, high := math.Sqrt(max(0, 1-margin*deviation)), math.Sqrt(1+margin*deviation)
			if quotient < low || quotient > high {
				t.Errorf("%s, n = %d: the error is %v of what the theorem says", name, b.n, quotient)
			}
			if most := float64(numbers) / 1000; float64(beyond) > most+5*math.Sqrt(most)+5 {
				t.Errorf("%s, n = %d: %d of %d are beyond the interval of 99.9 %%", name, b.n, beyond, numbers)
			}
			z := r.Randomizer.(recipe.Cloak)
			messages, _, bytes := z.Sizes(q)
			largest := q.Largest()
			text += fmt.Sprintf("| %d | %d | %d | %d | %d | %d | %.4f | %.4f | %.3f | %.3f to %.3f | %d |\n", b.n, honest, messages, bytes, b.runs, numbers,
				math.Sqrt(squares/float64(numbers))/largest, math.Sqrt(said/float64(numbers))/largest, quotient, low, high, beyond)
		}
		if *writeCloak {
			disktest.HoldTable(t, filepath.Join("..", "docs", "bench", "cloak.md"), name, text, true)
		}
		t.Logf("%s:\n%s", name, strings.TrimSpace(text))
	}
	play("sums", recipe.Sum{Max: 1 << 20}, sums, func(rng *rand.Rand) []uint64 { return []uint64{rng.Uint64N(1<<20 + 1)} })
	play("histograms", recipe.Histogram{Length: 20}, buckets, func(rng *rand.Rand) []uint64 { return []uint64{min(rng.Uint64N(20), rng.Uint64N(20))} })
}
