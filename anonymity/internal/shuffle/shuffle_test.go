package shuffle

import "testing"

// TestUniform: all 24 orders of four things come about as often as each other. Of 24,000
// draws each should have 1,000; that one of them is off by more than 180, which is 5.8
// standard deviations, has a probability of 2e-7.
func TestUniform(t *testing.T) {
	counts := map[[4]int]int{}
	for range 24_000 {
		order := [4]int{0, 1, 2, 3}
		Uniform(4, func(i, j int) { order[i], order[j] = order[j], order[i] })
		counts[order]++
	}
	if len(counts) != 24 {
		t.Fatalf("%d orders", len(counts))
	}
	for order, n := range counts {
		if n < 1000-180 || n > 1000+180 {
			t.Errorf("%v came %d times", order, n)
		}
	}
	Uniform(1, func(i, j int) { t.Error("one thing was exchanged") })
}
