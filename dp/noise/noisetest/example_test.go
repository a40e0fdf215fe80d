package noisetest_test

import (
	"fmt"
	"testing"

	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/dp/noise/noisetest"
)

func Example() {
	g, err := noise.NewDiscreteGaussian(100, 1)
	if err != nil {
		panic(err)
	}
	a, b := make([]int64, 8), make([]int64, 8)
	noisetest.DiscreteGaussian(g, [32]byte{1}).Sample(a)
	noisetest.DiscreteGaussian(g, [32]byte{1}).Sample(b)
	fmt.Println(fmt.Sprint(a) == fmt.Sprint(b))
	// Output: true
}

// The stream of a seed is part of what tests elsewhere rely on, so it is held here.
func TestStreams(t *testing.T) {
	g, _ := noise.NewDiscreteGaussian(1<<40, 1)
	l, _ := noise.NewDiscreteLaplace(1<<20, 1)
	a, b := make([]int64, 3), make([]int64, 3)
	noisetest.DiscreteGaussian(g, [32]byte{7}).Sample(a)
	noisetest.DiscreteLaplace(l, [32]byte{7}).Sample(b)
	if got, want := fmt.Sprint(a, b), "[535113 1098356 -1034984] [3179672 605409 1633054]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
