package localtest

import (
	"slices"
	"testing"

	"github.com/starling-agg/starling/dp/local"
)

// The same seed gives the same answers, and another seed others; the randomizer itself is
// left alone.
func TestSeeds(t *testing.T) {
	r, err := local.NewResponse(1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	g, err := local.NewGaussian(local.GaussianOptions{Length: 8, ClipNorm: 1, Units: 1, Sigma2Num: 1 << 20, Sigma2Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	draw := func(r *local.Response, g *local.Gaussian) []int64 {
		out, err := g.Randomize(make([]float64, 8))
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			a, err := r.Randomize(3)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, int64(a))
		}
		return out
	}
	one, two := [32]byte{1}, [32]byte{2}
	a := draw(Seeded(r, one), SeededGaussian(g, one))
	if b := draw(Seeded(r, one), SeededGaussian(g, one)); !slices.Equal(a, b) {
		t.Errorf("one seed gives %v and %v", a, b)
	}
	if b := draw(Seeded(r, two), SeededGaussian(g, two)); slices.Equal(a[:8], b[:8]) || slices.Equal(a[8:], b[8:]) {
		t.Errorf("two seeds give %v", a)
	}
	if b := draw(r, g); slices.Equal(a[:8], b[:8]) || slices.Equal(a[8:], b[8:]) {
		t.Errorf("no seed gives %v as well", a)
	}
}
