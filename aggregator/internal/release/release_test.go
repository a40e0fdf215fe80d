package release

import (
	"testing"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/dp/noise"
)

// TestDescribe: the ledger's words are exact, so that an auditor can compute from them.
func TestDescribe(t *testing.T) {
	g, err := noise.NewDiscreteGaussian(50, 4)
	if err != nil {
		t.Fatal(err)
	}
	l, err := noise.NewDiscreteLaplace(7, 2)
	if err != nil {
		t.Fatal(err)
	}
	for want, n := range map[string]noise.Sampler{
		"discrete gaussian, sigma^2 = 25/2": g, "discrete laplace, scale = 7/2": l, "no noise": noise.Zero{},
	} {
		if got := Describe(n); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	s, err := correlated.New(3, []int32{4, -2})
	if err != nil {
		t.Fatal(err)
	}
	series := &task.Task{Noise: g, Series: &aggregator.Series{Series: correlated.Series{Strategy: s, Separation: 7, Rounds: 9}, Units: 1}}
	const want = "discrete gaussian, sigma^2 = 25/2 in units of 2^-3; correlated over releases, c = [4 -2], separation 7"
	if got := describe(series); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
