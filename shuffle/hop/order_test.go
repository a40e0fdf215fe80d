package hop_test

import (
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/starling-agg/starling/shuffle/analyzer"
	"github.com/starling-agg/starling/shuffle/hop/hoptest"
	"github.com/starling-agg/starling/shuffle/onion"
)

func seeded(n uint64) *rand.ChaCha8 {
	var seed [32]byte
	binary.BigEndian.PutUint64(seed[:], n)
	return rand.NewChaCha8(seed)
}

// TestOutputOrder: records leave a hop in the order that is drawn for them, and hop 2 draws
// another: what arrives at the analyzer is the orders of both, one after the other.
func TestOutputOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, false, 1)
		b.s.Messages = 1 // no order of the device's
		b.random = map[onion.Role]io.Reader{onion.First: seeded(5), onion.Second: seeded(6)}
		b.mustRun()
		defer b.stopAll()
		n := b.round()
		for d := range 20 {
			b.contribute(b.envelope(n, d))
		}
		var came arrivals
		b.tallyWith(came.tally)
		b.flushed(n)
		got := came.take()
		first, second := hoptest.Order(20, seeded(5)), hoptest.Order(20, seeded(6))
		for place := range got {
			if want := int(first[second[place]]); got[place] != want {
				t.Errorf("device %d is at %d, want %d", got[place], place, want)
			}
		}
		if len(got) != 20 {
			t.Errorf("%d messages", len(got))
		}
	})
}

// TestDirectOrder: behind no hop an analyzer's tally has contributions in an order of the
// analyzer's own, each time the same, and the messages of each together.
func TestDirectOrder(t *testing.T) {
	in(t, true, func(t *testing.T, b *bench) {
		n := b.round()
		b.contribute(b.envelopes(n, 0, 30)...)
		var first, second arrivals
		b.tallyWith(func(x *analyzer.Batch) ([]byte, error) {
			second.tally(x)
			return first.tally(x)
		})
		b.flushed(n)
		got, again := first.take(), second.take()
		b.holdDevices(n, upTo(30)...)
		if slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != 30 || !slices.Equal(got, again) {
			t.Errorf("%v, then %v", got, again)
		}
	})
}

// TestArrivalLeavesNoTrace ties the order in which contributions arrive to that in which
// messages leave, at hop 1, at hop 2 and through both, with the crypto/rand that products
// have (the order of the other hop is known, and undone). For 40 rounds of 60
// contributions it adds up, over all contributions, the product of where one arrived and
// where it left, each centred: under independence the sum has mean 0 and a known
// variance, and it fails at 5.5 standard deviations, by the normal with a probability of
// 4e-8 for each of the three. It finds in at least 999 of 1,000 cases a hop that leaves one
// contribution in three in its place, or moves none out of its third of the batch: the
// power is measured below on such orders.
func TestArrivalLeavesNoTrace(t *testing.T) {
	const rounds, n = 40, 60
	score := func(order []int) (sum float64) {
		mid := float64(n-1) / 2
		for place, arrived := range order {
			sum += (float64(arrived) - mid) * (float64(place) - mid)
		}
		return sum
	}
	// The variance of the sum for a uniform order is (sum of squares)^2 / (n-1).
	squares := float64(n) * (n*n - 1) / 12
	limit := 5.5 * math.Sqrt(rounds) * squares / math.Sqrt(n-1)
	for way, known := range map[string]onion.Role{"hop 1": onion.Second, "hop 2": onion.First, "both": 0} {
		total, fixed := 0.0, 0
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, false, 1)
			b.s.Messages = 1
			b.random = map[onion.Role]io.Reader{known: seeded(8)}
			b.mustRun()
			defer b.stopAll()
			var came arrivals
			b.tallyWith(came.tally)
			replay := seeded(8)
			for range rounds {
				round := b.round()
				b.contribute(b.envelopes(round, 0, n)...)
				b.flushed(round)
				got := came.take()
				if len(got) != n {
					t.Fatalf("%d messages", len(got))
				}
				undone := make([]int, n)
				order := hoptest.Order(n, replay)
				for place, arrived := range got {
					switch known {
					case onion.First: // got[place] = order[second[place]]
						undone[place] = slices.Index(order, uint32(arrived))
					case onion.Second: // got[place] = first[order[place]]
						undone[order[place]] = arrived
					default:
						undone[place] = arrived
					}
				}
				total += score(undone)
				for place, arrived := range undone {
					if place == arrived {
						fixed++
					}
				}
			}
		})
		if math.Abs(total) > limit {
			t.Errorf("%s: %.0f, at most %.0f", way, total, limit)
		}
		// As many stay in their place as would of themselves, as a Poisson of mean 40:
		// above 80 or below 12 with a probability of 7e-8.
		if fixed < 12 || fixed > 80 {
			t.Errorf("%s: %d of %d contributions are where they arrived", way, fixed, rounds*n)
		}
	}
	// The power, on hops that mix badly.
	rng := rand.New(seeded(3))
	for name, bad := range map[string]func() []int{
		"one in three stays": func() []int {
			order, free := make([]int, n), []int{}
			for i := range order {
				if order[i] = i; i%3 != 0 {
					free = append(free, i)
				}
			}
			rng.Shuffle(len(free), func(i, j int) { order[free[i]], order[free[j]] = order[free[j]], order[free[i]] })
			return order
		},
		"none goes far": func() []int {
			order := make([]int, n)
			for i := range order {
				order[i] = i
			}
			for at := 0; at < n; at += n / 3 {
				rng.Shuffle(n/3, func(i, j int) { order[at+i], order[at+j] = order[at+j], order[at+i] })
			}
			return order
		},
	} {
		found := 0
		for range 1000 {
			sum := 0.0
			for range rounds {
				sum += score(bad())
			}
			if math.Abs(sum) > limit {
				found++
			}
		}
		if found < 999 {
			t.Errorf("%s: found in %d of 1,000", name, found)
		}
	}
}
