package release

import (
	"testing"

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
}
