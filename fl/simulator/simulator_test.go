package simulator

import (
	"context"
	"errors"
	"math"
	"math/big"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/fl/internal/stream"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/pine"
)

const dimension = 9

// options of a recipe for 200 devices and 3 rounds.
func options(t *testing.T, proof recipe.VectorProof) account.Options {
	t.Helper()
	q, err := recipe.NewVector(dimension, 1, 12, proof)
	if err != nil {
		t.Fatal(err)
	}
	return account.Options{
		Name: "A test", Query: q, Leader: "https://leader.example/", Helper: "https://helper.example/", MinBatch: 20, Rounds: 3,
		Kind: account.GaussianNoise, Epsilon: recipe.Decimal{Coefficient: 4}, Delta: recipe.Decimal{Coefficient: 1, Scale: 5},
		Population: &recipe.Population{Statement: "a test's", Expected: 200},
	}
}

// sampled has each device take part by a coin.
func sampled(t *testing.T, o account.Options) account.Options {
	t.Helper()
	var err error
	if o.Participation, err = recipe.ParseBernoulli("3/4"); err != nil {
		t.Fatal(err)
	}
	o.Rate = &recipe.Rate{Devices: 200, Units: 1}
	o.Relay = &recipe.Relay{URL: "https://relay.example/", Gateway: "https://gateway.example/"}
	return o
}

func made(t *testing.T, o account.Options) *recipe.Recipe {
	t.Helper()
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func simulate(t *testing.T, r *recipe.Recipe, o Options) *Simulator {
	t.Helper()
	s, err := New(r, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// vectorOf is what a device of the tests has: some are longer than the bound.
func vectorOf(device int, buf []float64) {
	s := stream.New(99, "test", uint64(device))
	for i := range buf {
		buf[i] = s.Normal() * float64(device%5+1) / 8
	}
}

func honest(device int, buf []float64) (Report, error) {
	vectorOf(device, buf)
	return Report{Vector: buf}, nil
}

// spoiled are devices whose proof is of another vector than they send: the simulator has
// them send one that is over the bound.
func spoiled(device int) bool { return device%10 == 7 }

// Leader and helper of package pine, on shares and proofs of the same vectors and with the
// same noise, come to the same integers, and reject the reports that the simulator rejects.
func TestLikeProofs(t *testing.T) {
	ctx, key := []byte("a test"), [vdaf.VerifyKeySize]byte{1}
	for _, proof := range []recipe.VectorProof{recipe.Pine32, recipe.Pine40, recipe.Pine64} {
		const devices = 40
		r := made(t, options(t, proof))
		q, _ := r.Vector()
		sim := simulate(t, r, Options{Seed: 5})
		sum, err := sim.Round(t.Context(), devices, func(device int, buf []float64) (Report, error) {
			vectorOf(device, buf)
			if !spoiled(device) {
				return Report{Vector: buf}, nil
			}
			units, err := pine.Encode(sim.vdaf, buf, q.Encoding())
			units[0] += int64(2 * q.Bound)
			return Report{Units: units}, err
		})
		if err != nil {
			t.Fatal(err)
		}
		v, err := pine.New(q.VDAFConfig().(dap.PineConfig).PineParams())
		if err != nil {
			t.Fatal(err)
		}
		var in [2]vdaf.Reports
		for device := range devices {
			x := make([]float64, dimension)
			vectorOf(device, x)
			units, err := pine.Encode(v, x, q.Encoding())
			if err != nil {
				t.Fatal(err)
			}
			nonce := [vdaf.NonceSize]byte{byte(device)}
			shares, err := v.ShardIntegers(ctx, units, &nonce)
			if err != nil {
				t.Fatal(err)
			}
			if spoiled(device) { // its first entry is larger than what was proved
				add(shares.Inputs[0][:int(v.Params().Field)/8], 2*q.Bound)
			}
			for agg := range in {
				in[agg].Nonces = append(in[agg].Nonces, nonce)
				in[agg].Public = append(in[agg].Public, shares.Public)
				in[agg].Inputs = append(in[agg].Inputs, shares.Inputs[agg])
			}
		}
		verify := make([]error, devices)
		states, shares := [2]vdaf.State{}, [][]byte{}
		for agg := range in {
			states[agg] = v.NewState(devices)
			shares = append(shares, make([]byte, devices*v.Sizes().VerifierShare))
			v.VerifyInit(states[agg], &key, ctx, agg, &in[agg], shares[agg], verify)
		}
		msgs := make([]byte, devices*v.Sizes().VerifierMessage)
		v.Combine(ctx, shares, msgs, verify)
		var aggregates [2]*vdaf.AggShare
		for agg := range in {
			v.Check(states[agg], msgs, verify)
			aggregates[agg] = v.NewAggShare()
			v.Accumulate(states[agg], nil, nil, []*vdaf.AggShare{aggregates[agg]}, verify)
		}
		if err := sim.noise(aggregates, 0); err != nil {
			t.Fatal(err)
		}
		want, err := v.Unshard(aggregates[:])
		if err != nil || !slices.Equal(sum.Raw, want) {
			t.Errorf("%v: %v\nwant %v, %v", proof, sum.Raw, want, err)
		}
		for device, err := range verify {
			if (err != nil) != spoiled(device) {
				t.Errorf("%v: device %d: %v", proof, device, err)
			}
		}
		if sum.Reports != devices-4 || sum.Unsent != (Unsent{Norm: 4}) || sum.Dummies != 0 {
			t.Errorf("%+v", sum)
		}
		for i, x := range sum.Raw {
			if sum.Estimate[i] != q.Real(x) {
				t.Errorf("entry %d: %g of %d", i, sum.Estimate[i], x)
			}
		}
	}
}

// add adds x to a little-endian number.
func add(number []byte, x uint64) {
	for i := range number {
		x += uint64(number[i])
		number[i] = byte(x)
		x >>= 8
	}
}

// Both servers' noise is in the sum, each with the recipe's variance: of 200 empty rounds
// of 9 entries the mean square is 2 sigma^2 give or take 6 standard deviations. Another
// round and another seed have other noise, and the same the same.
func TestNoise(t *testing.T) {
	o := options(t, recipe.Pine32)
	o.Rounds = 200
	r := made(t, o)
	play := func(seed uint64, rounds int) (all []int64) {
		s := simulate(t, r, Options{Seed: seed})
		for range rounds {
			sum, err := s.Round(t.Context(), 20, func(_ int, buf []float64) (Report, error) {
				clear(buf)
				return Report{Vector: buf}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, sum.Raw...)
		}
		return all
	}
	all := play(1, 200)
	squares := 0.0
	for _, x := range all {
		squares += float64(x) * float64(x)
	}
	sampler, err := r.Noise.Sampler()
	if err != nil {
		t.Fatal(err)
	}
	n := float64(len(all))
	if got := squares / (n * 2 * sampler.Variance()); math.Abs(got-1) > 6*math.Sqrt(2/n) {
		t.Errorf("variance is %g of what two servers add", got)
	}
	if slices.Equal(all[:9], all[9:18]) || slices.Equal(play(2, 1), all[:9]) || !slices.Equal(play(1, 2), all[:18]) {
		t.Error("noise is no function of seed and round")
	}
}

// Coins fall as often as the recipe says, dummies count and add nothing, and the estimate
// undoes the coins: within 6 standard deviations, for a fixed seed.
func TestCoins(t *testing.T) {
	r := made(t, sampled(t, options(t, recipe.Pine32)))
	s := simulate(t, r, Options{Seed: 3})
	const devices = 3000
	var asked atomic.Int64
	decided := s.decide(devices, 0)
	sum, shares, err := s.collect(t.Context(), devices, 0, func(_ int, buf []float64) (Report, error) {
		asked.Add(1)
		clear(buf)
		buf[0] = 0.5
		return Report{Vector: buf}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	answers := float64(asked.Load())
	if p := 0.75; math.Abs(answers-devices*p) > 6*math.Sqrt(devices*p*(1-p)) {
		t.Errorf("%g answers of %d devices", answers, devices)
	}
	p := r.Dummies.Rate.Float()
	if left := devices - answers; math.Abs(float64(sum.Dummies)-left*p) > 6*math.Sqrt(left*p*(1-p)) || sum.Dummies == 0 {
		t.Errorf("%d dummies of %g devices, at %g", sum.Dummies, left, p)
	}
	if sum.Reports != uint64(answers)+sum.Dummies {
		t.Errorf("%+v", sum)
	}
	raw, err := s.vdaf.Unshard(shares[:])
	if err != nil || raw[0] != int64(answers)<<11 || raw[1] != 0 {
		t.Errorf("%v, %v", raw, err)
	}
	e, err := r.Estimate(raw, sum.Reports)
	if err != nil || math.Abs(e.Values[0]-answers*0.5/0.75) > 1e-9 {
		t.Errorf("%v, %v", e.Values[0], err)
	}
	if slices.Equal(decided, s.decide(devices, 1)) || !slices.Equal(decided, s.decide(devices, 0)) {
		t.Error("coins are no function of the round")
	}
}

func TestCoinOdds(t *testing.T) {
	for _, c := range []struct {
		p    *big.Rat
		u    uint64
		want bool
	}{{big.NewRat(1, 1), math.MaxUint64, true}, {new(big.Rat), 0, false}, {big.NewRat(1, 2), 1<<63 - 1, true}, {big.NewRat(1, 2), 1 << 63, false}} {
		if got := newCoin(c.p).falls(c.u); got != c.want {
			t.Errorf("%v: %v", c, got)
		}
	}
}

// What is wrong with a vector is counted by its reason, and the rest of the round goes on.
func TestBadVectors(t *testing.T) {
	s := simulate(t, made(t, options(t, recipe.Pine32)), Options{})
	sum, err := s.Round(t.Context(), 40, func(device int, buf []float64) (Report, error) {
		r, err := honest(device, buf)
		switch device {
		case 0:
			r.Vector[3] = math.NaN()
		case 1:
			r.Vector[8] = math.Inf(-1)
		case 2:
			r.Vector = r.Vector[:8]
		case 3:
			r.Vector = nil
		case 4:
			r.Units = make([]int64, 10)
		case 5:
			r.Units = []int64{math.MinInt64, 0, 0, 0, 0, 0, 0, 0, 0}
		case 6:
			r.Units = []int64{1 << 12, 1, 0, 0, 0, 0, 0, 0, 0}
		case 7:
			r.Units = []int64{-1 << 12, 0, 0, 0, 0, 0, 0, 0, 0}
		}
		return r, err
	})
	if err != nil || sum.Unsent != (Unsent{Shape: 3, NotFinite: 2, Norm: 2}) || sum.Reports != 33 {
		t.Errorf("%+v, %v", sum, err)
	}
}

// A round below the threshold is not released, and spent; more than the field has room for
// is refused; and what a device fails with ends the round.
func TestRoundsThatEnd(t *testing.T) {
	r := made(t, options(t, recipe.Pine32))
	s := simulate(t, r, Options{})
	for _, devices := range []int{0, 19} {
		few := new(TooFewError)
		if sum, err := s.Round(t.Context(), devices, honest); !errors.As(err, &few) || few.Count != uint64(devices) || few.Least != 20 || sum == nil || sum.Raw != nil {
			t.Errorf("%d devices: %v, %v", devices, sum, err)
		}
	}
	if sum, err := s.Round(t.Context(), 20, honest); err != nil || sum.Raw == nil || s.Rounds() != 3 {
		t.Errorf("%v, %v", sum, err)
	}
	over := new(BudgetError)
	if sum, err := s.Round(t.Context(), 20, honest); !errors.As(err, &over) || over.Rounds != 3 || sum != nil || s.Rounds() != 3 {
		t.Errorf("%v, %v", sum, err)
	}
	fault := errors.New("a fault")
	if _, err := simulate(t, r, Options{}).Round(t.Context(), 20, func(device int, buf []float64) (Report, error) {
		if device == 11 {
			return Report{}, fault
		}
		return honest(device, buf)
	}); !errors.Is(err, fault) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := simulate(t, r, Options{}).Round(ctx, 20, honest); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	most, _ := r.MostReports()
	if sum, err := simulate(t, r, Options{}).Round(t.Context(), int(most)+1, func(int, []float64) (Report, error) {
		return Report{Units: make([]int64, dimension)}, nil
	}); err == nil || sum != nil {
		t.Errorf("%d reports were taken", most+1)
	}
}

// Sums are the same whether integers are added up first or not, also where they would not
// fit.
func TestTally(t *testing.T) {
	s := simulate(t, made(t, options(t, recipe.Pine64)), Options{Unvalidated: true})
	big := []int64{math.MaxInt64, math.MinInt64 + 1, 1 << 62, -1 << 62, 5, 0, 0, 0, 0}
	sum := &tally{share: s.vdaf.NewAggShare()}
	want := s.vdaf.NewAggShare()
	for i := range 9 {
		x := slices.Clone(big)
		if i == 4 {
			x[8] = math.MinInt64
		}
		if err := errors.Join(sum.add(x), want.AddSigned(x)); err != nil {
			t.Fatal(err)
		}
	}
	if err := sum.flush(); err != nil || !slices.Equal(sum.share.Append(nil), want.Append(nil)) {
		t.Errorf("another sum, %v", err)
	}
}

func TestOver(t *testing.T) {
	for _, c := range []struct {
		units []int64
		bound uint64
		want  bool
	}{
		{[]int64{3, -4}, 5, false}, {[]int64{3, -4, 1}, 5, true}, {nil, 0, false}, {[]int64{-1}, 0, true},
		{[]int64{1 << 40, 1 << 40}, 1 << 41, false}, {slices.Repeat([]int64{math.MinInt64}, 4), 1, true}, {slices.Repeat([]int64{1 << 62}, 16), 1<<63 + 1, true},
	} {
		if got := over(c.units, c.bound); got != c.want {
			t.Errorf("%v, %d: %v", c.units, c.bound, got)
		}
	}
}

// Recipes that it does not play are refused.
func TestRefusesRecipes(t *testing.T) {
	of := func(change func(*account.Options)) *recipe.Recipe {
		o := options(t, 0)
		change(&o)
		return made(t, o)
	}
	for name, r := range map[string]*recipe.Recipe{
		"a histogram":          of(func(o *account.Options) { o.Query = recipe.Histogram{Length: 4} }),
		"an older proof":       of(func(o *account.Options) { o.Query = l2Fixed(t) }),
		"a projection":         of(func(o *account.Options) { o.Projection = &recipe.Projection{Entries: 20, Seed: [32]byte{1}} }),
		"noise of the devices": of(func(o *account.Options) { o.Randomizer, _ = recipe.ParseRandomizer("gaussian") }),
		"random rounding": of(func(o *account.Options) {
			q := o.Query.(recipe.Vector)
			q.Rounding = recipe.RoundRandomly
			o.Query = q
		}),
	} {
		if _, err := New(r, Options{}); !errors.Is(err, ErrRecipe) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func l2Fixed(t *testing.T) recipe.Query {
	q, err := recipe.NewVector(dimension, 1, 15, recipe.L2Fixed16)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// correlatedRecipe has three bands, for devices that take turns over as many rounds.
func correlatedRecipe(t *testing.T) *recipe.Recipe {
	t.Helper()
	strategy, err := correlated.Optimize(3, 40, 8)
	if err != nil {
		t.Fatal(err)
	}
	o := options(t, recipe.Pine32)
	o.Kind, o.Rounds, o.Series = account.CorrelatedNoise, 14, correlated.Series{Strategy: strategy, Separation: 3, Rounds: 40}
	return made(t, o)
}

// With correlated noise devices take turns, the sums over rounds stray as little as package
// correlated says and single rounds as much, and the series ends with its last round, not
// with the last one of a device. 39 rounds of nothing, of 9 entries, in ten simulations: a
// mean of 90 squares of normal numbers is between 1/3 and 2 but once in 10^7.
func TestCorrelated(t *testing.T) {
	r := correlatedRecipe(t)
	n, _ := r.Correlated()
	forecast := n.Errors(39)
	round, prefix := 0.0, 0.0
	const seeds = 10
	for seed := range uint64(seeds) {
		s := simulate(t, r, Options{Seed: seed})
		var asked [120]int
		sums := make([]float64, dimension)
		for turn := range 40 {
			var mu sync.Mutex
			sum, err := s.Round(t.Context(), 120, func(device int, buf []float64) (Report, error) {
				mu.Lock()
				defer mu.Unlock()
				asked[device]++
				if device%3 != turn%3 {
					t.Errorf("device %d in round %d", device, turn)
				}
				clear(buf)
				return Report{Vector: buf}, nil
			})
			if err != nil || sum.Reports != 40 {
				t.Fatal(sum, err)
			}
			for i, x := range sum.Raw {
				if sums[i] += float64(x); turn == 38 {
					round += float64(x) * float64(x) / (2 * forecast.Round[38] * dimension * seeds)
					prefix += sums[i] * sums[i] / (2 * forecast.Prefix[38] * dimension * seeds)
				}
			}
		}
		over := new(BudgetError)
		if _, err := s.Round(t.Context(), 120, honest); !errors.As(err, &over) || over.Rounds != 40 {
			t.Error(err)
		}
		for device, times := range asked {
			if want := (40 - device%3 + 2) / 3; times != want {
				t.Errorf("device %d was asked %d times", device, times)
			}
		}
	}
	if round < 1./3 || round > 2 || prefix < 1./3 || prefix > 2 {
		t.Errorf("a round strays by %.2f of what is forecast, and all of them by %.2f", round, prefix)
	}
}

// A round that is skipped is not released: the noise after it leans on the releases before
// it as far as no device can be in both, which is what the servers' stores count.
func TestCorrelatedSkips(t *testing.T) {
	r := correlatedRecipe(t)
	s := simulate(t, r, Options{Seed: 1})
	zeros := func(_ int, buf []float64) (Report, error) { clear(buf); return Report{Vector: buf}, nil }
	few := new(TooFewError)
	for _, devices := range []int{120, 0, 120, 120, 120} {
		if _, err := s.Round(t.Context(), devices, zeros); err != nil && !(devices == 0 && errors.As(err, &few)) {
			t.Fatal(err)
		}
	}
	want := []correlated.Span{{First: 4, Last: 4}, {First: 3, Last: 3}}
	if s.series.released != 4 || !slices.Equal(s.series.spans, want) || len(s.series.past[0]) != 2 || s.Rounds() != 5 {
		t.Errorf("%+v", s.series)
	}
}

// A part of the noise is that part, and the signal is told in its units.
func TestNoiseScale(t *testing.T) {
	r := made(t, options(t, recipe.Pine32))
	whole := r.Noise.Spread().Deviation
	var snr [2]float64
	for i, scale := range []recipe.Rational{{}, {Num: 1, Den: 8}} {
		s := simulate(t, r, Options{Seed: 1, NoiseScale: scale})
		part := whole
		if i == 1 {
			part /= 8
		}
		if math.Abs(s.deviation/part-1) > 1e-3 || math.Abs(math.Sqrt(2*s.sampler.Variance())/part-1) > 1e-3 {
			t.Errorf("scale %v: deviation %g, want %g", scale, s.deviation, part)
		}
		sum, err := s.Round(t.Context(), 40, func(_ int, buf []float64) (Report, error) {
			clear(buf)
			buf[2] = 0.5
			return Report{Vector: buf}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		snr[i] = sum.SNR
		if want := 40 * 0.5 * 4096 / (part * 3); math.Abs(sum.SNR/want-1) > 1e-3 {
			t.Errorf("scale %v: signal to noise %g, want %g", scale, sum.SNR, want)
		}
	}
	for _, scale := range []recipe.Rational{{Num: 3, Den: 2}, {Num: 1}, {Den: 1}, {Num: 1, Den: 1 << 40}} {
		if _, err := New(r, Options{NoiseScale: scale}); err == nil {
			t.Errorf("scale %v was taken", scale)
		}
	}
}
