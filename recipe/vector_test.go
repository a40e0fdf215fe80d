package recipe_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/pine"
)

func vectorOptions(q Vector) account.Options {
	return account.Options{
		Name: "Gradients", Query: q, Leader: "https://leader.example/", Helper: "https://helper.example/", MinBatch: 1000,
		Epsilon: Decimal{2, 0}, Delta: Decimal{1, 6},
	}
}

func mustVector(t *testing.T, dim uint32, norm float64, frac uint8, p VectorProof) Vector {
	t.Helper()
	q, err := NewVector(dim, norm, frac, p)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// vectorVariants join the recipes of TestRoundTrip.
func vectorVariants() map[string]*Recipe {
	list := map[string]*Recipe{}
	for name, q := range map[string]Vector{
		"pine32":    {Dimension: 1000, Bound: 1 << 10, FracBits: 10, Proof: Pine32, Rounding: RoundNearest},
		"pine40":    {Dimension: 262144, Bound: 1 << 14, FracBits: 14, Proof: Pine40, Rounding: RoundRandomly},
		"pine64":    {Dimension: 10, Bound: 1 << 24, FracBits: 24, Proof: Pine64, Rounding: RoundNearest},
		"pine128":   {Dimension: 10, Bound: 3, FracBits: 0, Proof: Pine128, Rounding: RoundNearest},
		"l2fixed16": {Dimension: 1000, Bound: 1 << 15, FracBits: 15, Proof: L2Fixed16, Rounding: RoundTowardsZero},
		"l2fixed32": {Dimension: 1000, Bound: 1 << 31, FracBits: 31, Proof: L2Fixed32, Rounding: RoundTowardsZero},
	} {
		r := doctor()
		r.Query, r.Noise, r.Claim = q, NoNoise{}, NoClaim{}
		list["vector "+name] = r
	}
	r := doctor()
	r.Query = Vector{Dimension: 1000, Bound: 5100, FracBits: 10, Proof: Pine40, Rounding: RoundRandomly}
	r.Randomizer, r.Noise, r.MinBatch = Gaussian{Rational{Num: 35001, Den: 2}, 1 << 10}, NoNoise{}, 1500
	r.Claim = ApproxDP{Decimal{2, 0}, Decimal{1, 6}, release.ReplaceOne, 1, 1}
	list["vector with noise"] = r
	shorter := *list["vector pine32"]
	shorter.Projection = &Projection{Entries: 1001, Seed: [32]byte{1}}
	list["vector projected"] = &shorter
	return list
}

// The bytes of the query are for ever, like those of the rest.
func TestVectorBytes(t *testing.T) {
	r := vectorVariants()["vector pine40"]
	b := mustAppend(t, r)
	const want = "07" + "000f" + "00040000" + "0000000000004000" + "0e" + "02" + "02"
	if !strings.Contains(hex.EncodeToString(b), want) {
		t.Errorf("%x does not hold %s", b, want)
	}
	for _, c := range []struct {
		from, to string
		want     UnknownError
	}{
		{"0e" + "02" + "02", "0e" + "07" + "02", UnknownError{"vector-proof", 7}},
		{"0e" + "02" + "02", "0e" + "02" + "04", UnknownError{"rounding", 4}},
	} {
		from, _ := hex.DecodeString("0000000000004000" + c.from)
		to, _ := hex.DecodeString("0000000000004000" + c.to)
		var unknown *UnknownError
		if _, err := Read(bytes.Replace(b, from, to, 1)); !errors.As(err, &unknown) || *unknown != c.want {
			t.Errorf("%s: %v, want %v", c.to, err, &c.want)
		}
	}
}

// A task of a vector has the VDAF that the query says, with the integer bound to the unit.
func TestVectorTask(t *testing.T) {
	for name, r := range vectorVariants() {
		q := r.Query.(Vector)
		task, err := r.Task()
		if err != nil {
			t.Fatal(err)
		}
		v, err := task.VDAF()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if v.Sizes().OutLen != q.Aggregates() {
			t.Errorf("%s: results of %d numbers, want %d", name, v.Sizes().OutLen, q.Aggregates())
		}
		want := map[VectorProof]uint32{Pine32: vdaf.IDPine32, Pine40: vdaf.IDPine40, Pine64: vdaf.IDPine64, Pine128: vdaf.IDPine128,
			L2Fixed16: vdaf.IDL2Vec16, L2Fixed32: vdaf.IDL2Vec32}[q.Proof]
		if v.ID() != want {
			t.Errorf("%s: VDAF %#x, want %#x", name, v.ID(), want)
		}
		if p, ok := v.(*pine.Pine); ok && (p.Params().Bound() != q.Bound || p.Params().FracBits != int(q.FracBits)) {
			t.Errorf("%s: parameters %+v for %+v", name, p.Params(), q)
		}
	}
}

// The noise is calibrated to the integer bound, twice it where one vector replaces
// another, over all rounds; the closed form of zCDP is computed here on its own.
func TestVectorNoise(t *testing.T) {
	for _, rounds := range []uint32{1, 30} {
		for _, bound := range []uint64{1 << 10, 12345} {
			o := vectorOptions(Vector{Dimension: 5000, Bound: bound, FracBits: 10, Proof: Pine64})
			o.Rounds = rounds
			r, err := account.New(o)
			if err != nil {
				t.Fatal(err)
			}
			noise := r.Noise.(DiscreteGaussian)
			if noise.Share != DrawsAll || r.Claim.(ApproxDP).HonestServers != 1 {
				t.Errorf("%+v, %+v", noise, r.Claim)
			}
			// delta(rho) of zCDP by optimizing over alpha: Canonne, Kamath and Steinke
			// 2020, corollary 13.
			delta := func(sensitivity, variance float64) float64 {
				rho, best := float64(rounds)*sensitivity*sensitivity/(2*variance), 1.0
				for a := 1.001; a < 5000; a *= 1.001 {
					best = min(best, math.Exp((a-1)*(a*rho-2)+(a-1)*math.Log1p(-1/a))/a)
				}
				return best
			}
			if d := delta(2*float64(bound), noise.Variance.Float()); d > 1e-6*1.01 {
				t.Errorf("rounds %d, bound %d: delta %g with the sensitivity of replacing", rounds, bound, d)
			}
			if d := delta(2*float64(bound), noise.Variance.Float()*0.98); d <= 1e-6 {
				t.Errorf("rounds %d, bound %d: more noise than is needed", rounds, bound)
			}
			g, err := account.Guarantee(r)
			if err != nil {
				t.Fatal(err)
			}
			if both, ok := account.BothHonest(r); !ok || !(both.Epsilon < g.Epsilon*0.8) {
				t.Errorf("with both servers honest %v, with one %v", both, g.Loss)
			}
			c, err := account.Contribution(r.Query)
			if err != nil {
				t.Fatal(err)
			}
			for n, want := range map[release.Neighbours]float64{release.AddRemove: 1, release.ReplaceOne: 2} {
				if s, err := c.Sensitivity(n); err != nil || s.L2 != want*float64(bound) {
					t.Errorf("%v: sensitivity %v, %v", n, s.L2, err)
				}
			}
		}
	}
}

// Each server draws half: results have half the variance, and one dishonest server leaves
// a weaker guarantee, which is shown.
func TestVectorHalf(t *testing.T) {
	q := Vector{Dimension: 5000, Bound: 1 << 10, FracBits: 10, Proof: Pine64}
	all, err := account.New(vectorOptions(q))
	if err != nil {
		t.Fatal(err)
	}
	o := vectorOptions(q)
	o.Share, o.HonestServers = DrawsHalf, 2
	half, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if x := half.NoiseVariance() / all.NoiseVariance(); math.Abs(x-0.5) > 1e-3 {
		t.Errorf("the variance is %v of that of drawing all, want half", x)
	}
	g, err := account.Guarantee(half)
	if err != nil || g.Epsilon > 2 {
		t.Fatalf("%v, %v", g, err)
	}
	if f, ok := g.Fallback(OneServerFails); !ok || !(f.Loss.Epsilon > 2.5 && f.Loss.Epsilon < 4) {
		t.Errorf("with one server: %+v", f)
	}
	if _, ok := account.BothHonest(half); ok {
		t.Error("two guarantees for both honest")
	}
	o.HonestServers = 1 // each half must be enough by itself
	one, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if x := one.NoiseVariance() / all.NoiseVariance(); math.Abs(x-1) > 1e-7 { // a proof of each takes its own last digits
		t.Errorf("the variance is %v of that of drawing all, want the same", x)
	}
}

func TestVectorRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Recipe, *Vector)
		field  string
	}{
		{"no dimension", func(_ *Recipe, q *Vector) { q.Dimension = 0 }, "query.dimension"},
		{"long", func(_ *Recipe, q *Vector) { q.Dimension = MaxElements + 1 }, "query.dimension"},
		{"no bound", func(_ *Recipe, q *Vector) { q.Bound = 0 }, "query.bound"},
		{"huge bound", func(_ *Recipe, q *Vector) { q.Bound = 1 << 50 }, "query.bound"},
		{"bits", func(_ *Recipe, q *Vector) { q.FracBits = 50 }, "query.frac_bits"},
		{"no proof", func(_ *Recipe, q *Vector) { q.Proof = 0 }, "query.proof"},
		{"no rounding", func(_ *Recipe, q *Vector) { q.Rounding = 0 }, "query.rounding"},
		{"rounding of the other kind", func(_ *Recipe, q *Vector) { q.Rounding = RoundTowardsZero }, "query.rounding"},
		{"norm wraps around", func(_ *Recipe, q *Vector) { q.Bound, q.Proof = 1<<16, Pine32 }, "query.proof"},
		{"fixed norm", func(_ *Recipe, q *Vector) {
			q.Bound, q.FracBits, q.Proof, q.Rounding = 1<<14, 15, L2Fixed16, RoundTowardsZero
		}, "query.bound"},
		{"fixed bits", func(_ *Recipe, q *Vector) {
			q.Bound, q.FracBits, q.Proof, q.Rounding = 1<<15, 14, L2Fixed16, RoundTowardsZero
		}, "query.bound"},
		{"fixed rounding", func(_ *Recipe, q *Vector) { q.Bound, q.FracBits, q.Proof = 1<<15, 15, L2Fixed16 }, "query.rounding"},
		{"fixed length", func(_ *Recipe, q *Vector) {
			*q = Vector{Dimension: 1 << 20, Bound: 1 << 15, FracBits: 15, Proof: L2Fixed16, Rounding: RoundTowardsZero}
		}, "query"},
		{"laplace", func(r *Recipe, _ *Vector) { r.Noise = DiscreteLaplace{Rational{Num: 1 << 20, Den: 1}} }, "noise"},
		{"people", func(r *Recipe, q *Vector) { q.Bound, q.Proof, r.Population.Expected = 1<<14, Pine32, 1<<17 }, "query.proof"},
	} {
		r := doctor()
		q := Vector{Dimension: 10, Bound: 1 << 10, FracBits: 15, Proof: Pine40, Rounding: RoundNearest}
		r.Noise, r.Claim = NoNoise{}, NoClaim{}
		c.change(r, &q)
		r.Query = q
		if r.Noise != (NoNoise{}) {
			r.Claim = doctor().Claim
		}
		var invalid *InvalidError
		if err := account.Validate(r); !errors.As(err, &invalid) || invalid.Field != c.field {
			t.Errorf("%s: %v, want %s", c.name, err, c.field)
		}
	}
	for _, norm := range []float64{0, -1, math.NaN(), math.Inf(1), 0x1p-20, 0x1p60} {
		if _, err := NewVector(10, norm, 15, Pine32); err == nil {
			t.Errorf("norm %v was taken", norm)
		}
	}
}

// N*B + 12 sigma < q/2: exactly the last report that fits is let in.
func TestVectorRoom(t *testing.T) {
	for _, c := range []struct {
		noise    Noise
		variance float64 // of both servers' noise
	}{
		{NoNoise{}, 0},
		{DiscreteGaussian{Rational{Num: 1 << 40, Den: 1}, DrawsAll}, 1 << 41},
		{DiscreteGaussian{Rational{Num: 1 << 40, Den: 1}, DrawsHalf}, 1 << 40},
	} {
		r := doctor()
		r.Query = Vector{Dimension: 10, Bound: 1 << 14, FracBits: 15, Proof: Pine32, Rounding: RoundNearest}
		r.Noise = c.noise
		most, ok := r.MostReports()
		const q = 1<<32 - 1<<20 + 1
		wanted := func(n uint64) float64 { return float64(n)*(1<<14) + 12*math.Sqrt(c.variance) }
		if !ok || !(wanted(most) < q/2.) || wanted(most+1) < q/2.-1 {
			t.Errorf("%v: room for %d reports", c.noise, most)
		}
		for n, fits := range map[uint64]bool{most: true, most + 1: false} {
			r.Population.Expected = n
			if errs := r.RoomErrors(); (len(errs) == 0) != fits {
				t.Errorf("%v: %d reports: %v", c.noise, n, errs)
			}
		}
	}
	// Noise that alone is too wide leaves room for nobody.
	r := doctor()
	r.Query = Vector{Dimension: 10, Bound: 1, FracBits: 0, Proof: Pine32, Rounding: RoundNearest}
	r.Noise = DiscreteGaussian{Rational{Num: 1 << 60, Den: 1}, DrawsAll}
	if most, ok := r.MostReports(); !ok || most != 0 {
		t.Errorf("room for %d, %v", most, ok)
	}
	if _, ok := doctor().MostReports(); ok {
		t.Error("a histogram has a most of its own")
	}
}

// account.New takes the smallest field in which sums have room, and says why where none
// has.
func TestVectorChoosesField(t *testing.T) {
	for _, c := range []struct {
		frac     uint8
		expected uint64
		want     VectorProof
	}{
		{10, 2000, Pine32}, {15, 2000, Pine32}, {15, 70000, Pine40}, {15, 1 << 26, Pine64}, {20, 2000, Pine64},
	} {
		o := vectorOptions(mustVector(t, 10000, 1, c.frac, 0))
		o.Population = &Population{Statement: "All.", Expected: c.expected}
		r, err := account.New(o)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
		} else if q := r.Query.(Vector); q.Proof != c.want || q.Rounding != RoundNearest {
			t.Errorf("%+v: %v, %v", c, q.Proof, q.Rounding)
		}
	}
	// Field32 with 15 bits and 2^16 clients has no room.
	o := vectorOptions(mustVector(t, 262144, 1, 15, Pine32))
	o.Population = &Population{Statement: "All.", Expected: 1 << 16}
	if _, err := account.New(o); err == nil || !strings.Contains(err.Error(), "has room for") {
		t.Errorf("%v, want a reason", err)
	}
	q, err := account.New(vectorOptions(mustVector(t, 100, 1, 15, L2Fixed16)))
	if err != nil || q.Query.(Vector).Rounding != RoundTowardsZero {
		t.Errorf("%v", err)
	}
}

// Coins behind a relay amplify what the noise gives to vectors: the noise is calibrated
// to the claim with the dummies, and is far below what it takes without coins. Without a
// relay they save work only.
func TestVectorCoins(t *testing.T) {
	for _, noisy := range []bool{false, true} {
		o := vectorOptions(mustVector(t, 1000, 1, 14, 0))
		if noisy {
			o.Randomizer = Gaussian{}
		}
		whole, err := account.New(o)
		if err != nil {
			t.Fatal(err)
		}
		o.Participation, o.Rate, o.Rounds = Bernoulli{Rational{Num: 1, Den: 20}}, &Rate{Devices: 100000, Units: 1}, 2
		o.Relay = &Relay{URL: "https://relay.example/", Gateway: "https://leader.example/gateway"}
		r, err := account.New(o)
		if err != nil {
			t.Fatal(err)
		}
		g, err := account.Guarantee(r)
		if err != nil || g.Epsilon > 2 || g.Epsilon < 1.9 || g.Neighbours != release.AddRemove || !strings.Contains(g.Theorem, "rounded Gaussian") {
			t.Errorf("noisy devices %v: %+v, %v", noisy, g, err)
		}
		variance := func(r *Recipe) float64 {
			if z, ok := r.Randomizer.(Gaussian); ok {
				return z.Variance.Float()
			}
			return r.Noise.(DiscreteGaussian).Variance.Float()
		}
		if x := variance(r) / variance(whole); !(x < 0.2) { // of one round that everybody answers, for replacing
			t.Errorf("noisy devices %v: two rounds of coins take %v times the noise", noisy, x)
		}
		// It is what continuous noise of that variance gives, but for the count.
		sigma := math.Sqrt(variance(r))
		if noisy {
			sigma *= math.Sqrt(999)
		}
		smooth := release.Times(2, release.Gaussian{Sigma: sigma / (1 << 14), Contribution: release.Signed(1)}).Sampled(release.Poisson{Rate: 1. / 20})
		want, err := accountant.Epsilon([]release.Release{smooth}, 1e-6, release.AddRemove)
		if err != nil || g.Epsilon < want.EpsilonLower || g.Epsilon > want.Epsilon*1.03 {
			t.Errorf("noisy devices %v: %v, continuous noise %v, %v", noisy, g.Loss, want, err)
		}
		if f, ok := g.Fallback(RelayColludes); !ok || !(f.Loss.Epsilon > 3*g.Epsilon) {
			t.Errorf("noisy devices %v: without sampling %+v", noisy, f)
		}
		if f, ok := g.Fallback(HalfAreDishonest); !ok || !(f.Loss.Epsilon > g.Epsilon) || noisy && !(f.Loss.Epsilon > 1.2*g.Epsilon) {
			t.Errorf("noisy devices %v: half dishonest %+v", noisy, f)
		}
		// Batches are samples: there is room for all that report, not for all that decide.
		if q := r.Query.(Vector); !noisy && q.Proof != Pine32 {
			t.Errorf("noisy devices %v: %v", noisy, q.Proof)
		}
		e, err := r.Estimate(make([]int64, 1000), 6000)
		if err != nil || !(e.StdDev[0] > 0) || e.Weight*(1<<14) != 20 {
			t.Errorf("%+v, %v", e, err)
		}
		o.Relay = nil
		if _, err := account.New(o); err != nil {
			t.Errorf("coins that save work: %v", err)
		}
	}
}

func TestVectorDescribed(t *testing.T) {
	r, err := account.New(vectorOptions(mustVector(t, 10000, 2.5, 10, Pine40)))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := describe(r, &b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"10000 numbers", "length (L2 norm) at most 2.5", "If both servers add their noise", "has room for"} {
		if !strings.Contains(strings.Join(strings.Fields(b.String()), " "), want) {
			t.Errorf("the description does not say %q:\n%s", want, &b)
		}
	}
	j, err := marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Query struct {
			Type   string
			Params struct {
				Dimension, Bound uint64
				Norm             float64
				Proof, Rounding  string
			}
		}
		Both *Loss  `json:"guarantee_if_both_servers_are_honest"`
		Most uint64 `json:"most_reports"`
	}
	if err := json.Unmarshal(j, &got); err != nil {
		t.Fatal(err)
	}
	p := got.Query.Params
	if got.Query.Type != "vector" || p.Dimension != 10000 || p.Bound != 2560 || p.Norm != 2.5 || p.Proof != "pine40" || p.Rounding != "nearest" ||
		got.Both == nil || got.Most == 0 {
		t.Errorf("%s", j)
	}
	if back, err := ParseVectorProof(p.Proof); err != nil || back != Pine40 {
		t.Errorf("%v, %v", back, err)
	}
	if _, err := ParseVectorProof("l2fixed64"); err == nil || !strings.Contains(err.Error(), "64-bit integers") {
		t.Errorf("l2fixed64: %v", err)
	}
	if _, err := ParseVectorProof("pine33"); err == nil {
		t.Error("pine33 was taken")
	}
}

// Sums of numbers of both signs are estimated in units of the entries.
func TestVectorEstimate(t *testing.T) {
	r := vectorVariants()["vector pine32"]
	q := r.Query.(Vector)
	q.Dimension = 2
	r.Query = q
	r.Noise = DiscreteGaussian{Rational{Num: 1 << 19, Den: 1}, DrawsAll}
	e, err := r.Estimate([]int64{-512, 2048}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if e.Values[0] != -0.5 || e.Values[1] != 2 || e.StdDev[0] != 1 || e.StdDev[1] != 1 {
		t.Errorf("%+v", e)
	}
}

var _ dap.VDAFConfig = Vector{}.VDAFConfig()
