package calculator

import (
	"math"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/dp/release"
)

func series(sigma float64) Line {
	return Line{Mechanism: release.NameCorrelatedGaussian, Sigma: sigma, Bands: 8, Rounds: 100, Steps: 4}
}

// The answer is that of zCDP at k |c|^2 L2^2/(2 sigma^2), with the strategy's own norm.
func TestCorrelatedGaussian(t *testing.T) {
	s, err := correlated.Optimize(8, 100, 8)
	if err != nil {
		t.Fatal(err)
	}
	num, den := s.Norm2()
	for n, l2 := range map[release.Neighbours]float64{release.AddRemove: 1, release.ReplaceOne: 2} {
		want, err := accountant.Epsilon([]release.Release{release.One(release.ZCDP{Rho: 4 * float64(num) / float64(den) * l2 * l2 / (2 * 900)})}, 1e-9, n)
		if err != nil {
			t.Fatal(err)
		}
		q := Ask{Line: series(30), Neighbours: n, Delta: 1e-9}
		a, err := q.Answer()
		if err != nil || math.Abs(a.Epsilon-want.Epsilon) > 1e-9*want.Epsilon {
			t.Errorf("%v neighbours: %+v, %v; want epsilon %v", n, a, err, want.Epsilon)
		}
	}
	q := Ask{Line: series(0), Epsilon: 1, Delta: 1e-9, Solve: SolveSigma}
	a, err := q.Answer()
	if err != nil {
		t.Fatal(err)
	}
	check := Ask{Line: series(a.Solved), Delta: 1e-9}
	if b, err := check.Answer(); err != nil || b.Epsilon > 1 || b.Epsilon < 0.9999 {
		t.Errorf("solved sigma %v gives %v, %v", a.Solved, b.Epsilon, err)
	}
	// Beside other events.
	list, err := ReadEvents(strings.NewReader(`[{"mechanism": "correlated-gaussian", "sigma": 30, "bands": 8, "rounds": 100, "count": 4},
		{"mechanism": "zcdp", "rho": 0.001}]`))
	if err != nil {
		t.Fatal(err)
	}
	mixed := Ask{Lines: list, Delta: 1e-9}
	both, err := mixed.Answer()
	if err != nil || both.Epsilon <= 0.585 || both.Epsilon > 0.75 {
		t.Errorf("mixed: %+v, %v", both, err)
	}
}

func TestCorrelatedGaussianRefusals(t *testing.T) {
	for name, change := range map[string]func(*Ask){
		"no bands":         func(q *Ask) { q.Bands, q.Rounds = 0, 0 },
		"no rounds":        func(q *Ask) { q.Rounds = 0 },
		"too many bands":   func(q *Ask) { q.Bands = 65 },
		"sampled":          func(q *Ask) { q.Sampling = 0.5 },
		"allocated":        func(q *Ask) { q.Picks, q.Of = 1, 10 },
		"check-ins":        func(q *Ask) { q.CheckIn, q.Window = release.FixedWindow, 10 },
		"both servers":     func(q *Ask) { q.Honest = 2 },
		"shuffled":         func(q *Ask) { q.ShuffleN = 100 },
		"broken numbers":   func(q *Ask) { q.Sensitivity = 0.5 },
		"bands of another": func(q *Ask) { q.Mechanism = release.NameDiscreteGaussian },
	} {
		q := Ask{Line: series(30), Delta: 1e-9}
		change(&q)
		a, err := q.Answer()
		if refused, ok := err.(*Error); !ok || refused.Hint == "" {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
}
