package collector

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// coinRecipe has dummies, and a relay that no test here goes through.
func coinRecipe(t *testing.T, q recipe.Query, change func(*account.Options)) *recipe.Recipe {
	t.Helper()
	o := account.Options{
		DAP:  speaks,
		Name: "test", Query: q, MinBatch: 20, TimePrecision: 3600,
		Leader: "https://leader.example/v1/", Helper: "https://helper.example/",
		Noise:         recipe.DiscreteGaussian{Variance: recipe.Rational{Num: 9, Den: 1}, Share: recipe.DrawsAll},
		Delta:         recipe.Decimal{Coefficient: 1, Scale: 6},
		Participation: recipe.Bernoulli{Rate: recipe.Rational{Num: 1, Den: 4}},
		Rate:          &recipe.Rate{Devices: 2000, Units: 24},
		Dummies:       &recipe.Dummies{Rate: recipe.Rational{Num: 1, Den: 8}, Senders: 2000, Allowance: 400},
		Relay:         &recipe.Relay{URL: "https://relay.example/", Gateway: "https://leader.example/gateway"},
	}
	if change != nil {
		change(&o)
	}
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// draw plays so many devices by the definitions alone: shares of them have each answer,
// value is what an answer adds. The noise is rounded normal noise of a given deviation,
// or the difference of exponentials where laplace is above 0.
func draw(rng *rand.Rand, r *recipe.Recipe, shares []float64, value float64, devices int, deviation, laplace float64) ([]int64, uint64) {
	sums, reports := make([]int64, len(shares)), uint64(0)
	chance := func(kind recipe.Answer) (out [3]float64) {
		c := r.Chances(kind)
		for i, p := range []*big.Rat{c.Cover, c.Report, c.Dummy} {
			out[i], _ = p.Float64()
		}
		return out
	}
	usual, rare := chance(recipe.DefaultAnswer), chance(recipe.OtherAnswer)
	for i := range devices {
		place, at := -1, float64(i)/float64(devices)
		for j, s := range shares {
			if place < 0 && at < s {
				place = j
			}
			at -= s
		}
		p := rare
		if place < 0 {
			p = usual
		}
		switch {
		case rng.Float64() >= p[0]:
			continue
		case rng.Float64() >= p[1]:
			if rng.Float64() >= p[2] {
				continue
			}
			place = -1
		}
		reports++
		if z, ok := r.Randomizer.(recipe.RAPPOR); ok {
			lie := 1 / (1 + math.Exp(z.Epsilon0.Float()))
			for j := range sums {
				if (j == place) != (rng.Float64() < lie) {
					sums[j]++
				}
			}
		} else if place >= 0 {
			sums[place] += int64(value)
		}
	}
	for j := range sums {
		noise := deviation * rng.NormFloat64()
		if laplace > 0 {
			noise = laplace * (rng.ExpFloat64() - rng.ExpFloat64() + rng.ExpFloat64() - rng.ExpFloat64())
		}
		sums[j] += int64(math.Round(noise))
	}
	return sums, reports
}

// TestIntervalsOfCoins draws batches by the definitions of the coins with a fixed seed:
// the 95 % intervals hold what all devices would have answered at least 95 times in 100,
// and are no wider than it takes. A run's share of hits has a standard deviation of at
// most 0.7 %; the limits are 5 of them and more away from 95 %, or above it for what is a
// bound only.
func TestIntervalsOfCoins(t *testing.T) {
	const devices, runs = 2000, 800
	hot := recipe.Multihot{Length: 3, MaxWeight: 1}
	shares := []float64{0.3, 0.01, 0}
	for _, c := range []struct {
		name               string
		r                  *recipe.Recipe
		shares             []float64
		value              float64
		deviation, laplace float64
		most               float64
	}{
		{"bernoulli", coinRecipe(t, hot, nil), shares, 1, math.Sqrt(18), 0, 0.985},
		{"needles", coinRecipe(t, hot, func(o *account.Options) {
			o.Participation = recipe.Importance{Default: recipe.Rational{Num: 1, Den: 10}, Other: recipe.Rational{Num: 1, Den: 2}}
		}), []float64{0.02, 0.01, 0}, 1, math.Sqrt(18), 0, 0.985},
		{"laplace", coinRecipe(t, hot, func(o *account.Options) {
			o.Noise = recipe.DiscreteLaplace{Scale: recipe.Rational{Num: 20, Den: 1}}
		}), shares, 1, 0, 20, 0.985},
		{"rappor", coinRecipe(t, recipe.Multihot{Length: 3, MaxWeight: 3}, func(o *account.Options) {
			o.Randomizer, o.Noise = recipe.RAPPOR{Epsilon0: recipe.Decimal{Coefficient: 2}}, nil
		}), shares, 1, 0, 0, 0.985},
		{"no noise", coinRecipe(t, hot, func(o *account.Options) {
			o.Noise, o.Relay, o.Delta = recipe.NoNoise{}, nil, recipe.Decimal{}
		}), []float64{0.3, 0.01, 0.001}, 1, 0, 0, 1},
		{"mean", coinRecipe(t, recipe.Mean{Max: 7}, nil), []float64{0.4}, 7, math.Sqrt(18), 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, uint64(len(c.name))))
			collector := newLeader(t, c.r).collector(c.r, nil)
			held, devicesFound := make([]int, len(c.shares)), 0.0
			for range runs {
				sums, reports := draw(rng, c.r, c.shares, c.value, devices, c.deviation, c.laplace)
				result, err := collector.result(dap.Query{}, &dap.CollectionJobResp{ReportCount: reports, Interval: dap.Interval{Start: start, Duration: 1}}, sums)
				if err != nil {
					t.Fatal(err)
				}
				s := result.Sampled
				if s == nil || result.SamplingStderr != nil || s.Threshold != c.r.Threshold() || s.Threshold != s.MinBatch+s.DummiesAllowed ||
					math.Abs(s.Answers+s.Dummies-float64(reports)) > 1e-6*float64(reports) {
					t.Fatalf("%d reports: %+v", reports, s)
				}
				devicesFound += s.Devices / runs
				if mean, _ := result.Mean(); math.Abs(mean[0]*s.Devices-result.Estimate[0]) > 1e-9*(1+math.Abs(result.Estimate[0])) {
					t.Fatalf("the mean over %v devices is %v of %v", s.Devices, mean[0], result.Estimate[0])
				}
				for i, share := range c.shares {
					truth := math.Ceil(share*devices) * c.value
					if _, ok := c.r.Query.(recipe.Mean); ok {
						truth /= devices
					}
					if in := result.Interval95[i]; in[0] <= truth && truth <= in[1] {
						held[i]++
					}
				}
			}
			for i, n := range held {
				if got := float64(n) / runs; got < 0.93 || got > c.most {
					t.Errorf("place %d: the interval holds the truth %.1f times in 100", i, 100*got)
				}
			}
			if math.Abs(devicesFound/devices-1) > 0.02 {
				t.Errorf("%v devices on average, of %d", devicesFound, devices)
			}
		})
	}
}
