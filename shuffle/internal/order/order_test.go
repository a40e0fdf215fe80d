package order

import (
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/starling-agg/starling/shuffle/internal/derand"
)

// seeded is a stream of randomness that a seed repeats.
func seeded(n uint64) derand.Rand {
	var seed [32]byte
	binary.BigEndian.PutUint64(seed[:], n)
	return derand.New(rand.NewChaCha8(seed))
}

// TestAllOrders: all 120 orders of five things come about as often as each other. Of
// 120,000 draws, chi-squared with 119 degrees of freedom is above 206 with a probability
// below 1e-6 (Laurent and Massart 2000, lemma 1: 119 + 2 sqrt(119 x) + 2 x with x = 13.9
// is 228; the bound used is that).
func TestAllOrders(t *testing.T) {
	counts := make(map[[5]uint32]int)
	r := seeded(1)
	const draws = 120_000
	for range draws {
		counts[[5]uint32(Draw(5, r))]++
	}
	x := 0.0
	for _, n := range counts {
		d := float64(n) - draws/120
		x += d * d / (draws / 120)
	}
	if len(counts) != 120 || x > 228 {
		t.Errorf("%d orders, chi-squared %.0f", len(counts), x)
	}
}

// TestPlaces: each of 40 things comes to each of 40 places as often as to others. In
// 40,000 draws each of 1,600 cells has 1,000 expected; one off by 200, which is 6.4
// standard deviations, has a probability below 1,600 * 2e-10.
func TestPlaces(t *testing.T) {
	const n, draws = 40, 40_000
	var counts [n][n]int
	r := seeded(2)
	for range draws {
		for place, thing := range Draw(n, r) {
			counts[thing][place]++
		}
	}
	for thing, places := range counts {
		for place, n := range places {
			if n < 800 || n > 1200 {
				t.Errorf("thing %d came to place %d %d times", thing, place, n)
			}
		}
	}
}

// TestDraw: an order has each thing once, whatever their number; no randomness is used
// twice, and the cryptographic source makes another each time.
func TestDraw(t *testing.T) {
	for n := range uint32(200) {
		seen := make([]bool, n)
		for _, thing := range Draw(n, seeded(uint64(n))) {
			if seen[thing] {
				t.Fatalf("%d things: %d twice", n, thing)
			}
			seen[thing] = true
		}
	}
	same := 0
	a, b := Draw(1000, derand.Rand{}), Draw(1000, derand.Rand{})
	for i := range a {
		if a[i] == b[i] {
			same++
		}
	}
	if same > 15 { // Poisson of mean 1: above 15 with a probability below 1e-13
		t.Errorf("two orders have %d of 1,000 in one place", same)
	}
}

// words is a stream of given words, and then ends.
type words []uint64

func (w *words) Read(b []byte) (int, error) {
	if len(*w) == 0 {
		return 0, io.EOF
	}
	binary.BigEndian.PutUint64(b, (*w)[0])
	*w = (*w)[1:]
	return 8, nil
}

// TestBelow: the words at the top that would make some remainders likelier are thrown away.
func TestBelow(t *testing.T) {
	whole := math.MaxUint64 - uint64(math.MaxUint64)%3
	w := words{math.MaxUint64, whole, whole - 1, 7}
	if got := below(3, &w); got != 2 || len(w) != 1 {
		t.Errorf("%d, %d words are left", got, len(w))
	}
}
