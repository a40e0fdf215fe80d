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

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/vdaf/pine"
)

func noisyOptions(dim uint32, frac uint8) account.Options {
	return account.Options{
		Name: "Gradients", Query: Vector{Dimension: dim, Bound: 1 << frac, FracBits: frac}, Randomizer: Gaussian{},
		Leader: "https://leader.example/", Helper: "https://helper.example/", MinBatch: 2000, Epsilon: Decimal{4, 0}, Delta: Decimal{1, 6},
	}
}

// The bytes of the randomizer are for ever.
func TestDeviceNoiseBytes(t *testing.T) {
	b := mustAppend(t, vectorVariants()["vector with noise"])
	const want = "02" + "0018" + "00000000000088b9" + "0000000000000002" + "0000000000000400"
	if !strings.Contains(hex.EncodeToString(b), want) {
		t.Errorf("%x does not hold %s", b, want)
	}
	from, _ := hex.DecodeString(want)
	to := bytes.Clone(from)
	to[10] = 0xb8 // 35000/2 is not in lowest terms
	if _, err := Read(bytes.Replace(b, from, to, 1)); !errors.Is(err, ErrMalformed) {
		t.Errorf("%v", err)
	}
}

// account.New calibrates the noise to the sum of what B-1 devices draw, proves the least
// bound, and charges redraws to delta. The loss is computed here on its own.
func TestDeviceNoise(t *testing.T) {
	for _, rounds := range []uint32{1, 20} {
		o := noisyOptions(5000, 14)
		o.Rounds = rounds
		r, err := account.New(o)
		if err != nil {
			t.Fatal(err)
		}
		q, z := r.Query.(Vector), r.Randomizer.(Gaussian)
		if z.Clip != 1<<14 || r.Noise != (NoNoise{}) || r.Claim.(ApproxDP).Neighbours != release.ReplaceOne {
			t.Fatalf("%+v, %+v, %+v", q, z, r.Claim)
		}
		least, err := pine.NoisyBound(1<<14, 5000, math.Sqrt(z.Variance.Float()), TailBits)
		if err != nil || q.Bound < least || float64(q.Bound) > 1.01*float64(least) {
			t.Errorf("%d rounds: proves %d, want about %d", rounds, q.Bound, least)
		}
		if rounds == 1 && q.Bound != least {
			t.Errorf("proves %d where %d is the least", q.Bound, least)
		}
		delta := func(variance float64) float64 {
			rho, best := float64(rounds)*math.Pow(2<<14, 2)/(2*1999*variance), 1.0
			for a := 1.001; a < 5000; a *= 1.001 {
				best = min(best, math.Exp((a-1)*(a*rho-4)+(a-1)*math.Log1p(-1/a))/a)
			}
			// of which account.New makes redraws cost a hundredth at most
			return best + 2000*float64(rounds)*math.Exp2(-TailBits)/1e9
		}
		if d := delta(z.Variance.Float()); d > 1e-6 {
			t.Errorf("%d rounds: delta %g", rounds, d)
		}
		if d := delta(z.Variance.Float() * 0.98); d <= 1e-6 {
			t.Errorf("%d rounds: more noise than is needed", rounds)
		}
		g, err := account.Guarantee(r)
		if err != nil || g.Epsilon > 4 || g.Epsilon < 3.9 {
			t.Fatalf("%v, %v", g, err)
		}
		b, ok := account.ProvedBound(r)
		if !ok || b.Bound != q.Bound || b.Answer != z.Clip || b.Ratio != float64(q.Bound)/(1<<14) || b.Redraw > math.Exp2(-TailBits) || !(b.Redraw > 0) ||
			!(b.Delta >= 1999*b.Redraw) || b.Delta*float64(rounds) > 1e-6/50 {
			t.Errorf("%d rounds: %+v", rounds, b)
		}
		half, ok := g.Fallback(HalfAreDishonest)
		if !ok || !(half.Loss.Epsilon > g.Epsilon*1.3 && half.Loss.Epsilon < g.Epsilon*2.2) {
			t.Errorf("half dishonest: %+v", half)
		}
		alone, ok := g.Fallback(ServersCollude)
		if !ok || !(alone.Loss.Epsilon > 100*g.Epsilon) || !alone.Loss.Finite() {
			t.Errorf("alone: %+v", alone)
		}
		if last, err := account.LossAfter(r, rounds); err != nil || last != g.Loss {
			t.Errorf("the last round costs %v, %v", last, err)
		}
	}
}

// deviceAttack is delta(epsilon) of the sum of n devices' integers, each with noise that
// is drawn again while it leaves the bound, for one device's x against y while the others
// hold 0; delta of it and of the way back, whichever is larger.
func deviceAttack(n int, sigma2 float64, x, y, bound int, epsilon float64) float64 {
	reach := bound + 1
	device := func(x int) []float64 {
		law, total := make([]float64, 2*reach+1), 0.0
		for i := range law {
			if v := i - reach; v >= -bound && v <= bound {
				law[i] = math.Exp(-float64((v-x)*(v-x)) / (2 * sigma2))
				total += law[i]
			}
		}
		for i := range law {
			law[i] /= total
		}
		return law
	}
	convolve := func(a, b []float64) []float64 {
		out := make([]float64, len(a)+len(b)-1)
		for i, p := range a {
			for j, q := range b {
				out[i+j] += p * q
			}
		}
		return out
	}
	with := func(x int) []float64 {
		law := device(x)
		for range n - 1 {
			law = convolve(law, device(0))
		}
		return law
	}
	return hockey(with(x), with(y), epsilon)
}

// Redraws are paid for: with bounds so tight that they are common, the exact curve of the
// mechanism stays below what the recipe states. The bounds are tighter than any valid
// recipe's.
func TestDeviceNoiseHolds(t *testing.T) {
	for _, c := range []struct {
		batch, clip, bound uint64
		sigma2             uint64
	}{{5, 2, 13, 8}, {5, 4, 17, 9}, {9, 2, 14, 8}, {3, 1, 12, 8}, {2, 2, 12, 8}, {7, 6, 20, 8}} {
		r := doctor()
		r.Query = Vector{Dimension: 1, Bound: c.bound, FracBits: 0, Proof: Pine40, Rounding: RoundNearest}
		r.Randomizer, r.Noise, r.MinBatch = Gaussian{Rational{Num: c.sigma2, Den: 1}, c.clip}, NoNoise{}, c.batch
		finite := 0
		for _, delta := range []Decimal{{3, 1}, {1, 1}, {3, 2}, {1, 2}} {
			l, _, err := account.LossIn(r, Situation{Servers: 1}, delta, 1, release.ReplaceOne)
			if err != nil {
				t.Fatal(err)
			}
			if !l.Finite() {
				continue
			}
			finite++
			// One of the batch's devices is the onlooker's own; the noise of the others
			// is what is left.
			got := deviceAttack(int(c.batch)-1, float64(c.sigma2), int(c.clip), -int(c.clip), int(c.bound), l.Epsilon)
			if got > delta.Float() {
				t.Errorf("%+v: delta %v at %v", c, got, l)
			}
			claim := r.Claim.(ApproxDP)
			claim.Delta = delta
			r.Claim = claim
			one, err := account.UnconditionalAfter(r, 1)
			if err != nil {
				t.Fatal(err)
			}
			if got := deviceAttack(1, float64(c.sigma2), int(c.clip), -int(c.clip), int(c.bound), one.Epsilon); got > delta.Float() {
				t.Errorf("%+v: one report reaches delta %v at %v", c, got, one)
			}
		}
		if finite == 0 {
			t.Errorf("%+v: nothing was compared", c)
		}
	}
}

// Redraws are charged: n times their odds to delta, which may be all of it, and ln
// 1/(1-odds) to epsilon.
func TestDeviceNoiseCharges(t *testing.T) {
	r := vectorVariants()["vector with noise"]
	q, z := r.Query.(Vector), r.Randomizer.(Gaussian)
	const n = 1499
	last := 0.0
	for _, bits := range []int{40, 24, 20, 16, 12, 11} {
		bound, err := pine.NoisyBound(z.Clip, int(q.Dimension), math.Sqrt(z.Variance.Float()), bits)
		if err != nil {
			t.Fatal(err)
		}
		q.Bound = bound
		r.Query = q
		odds, err := pine.NoisyOdds(z.Clip, int(q.Dimension), math.Sqrt(z.Variance.Float()), bound)
		if err != nil {
			t.Fatal(err)
		}
		delta := Decimal{1, 1}
		l, _, err := account.LossIn(r, Situation{Servers: 1}, delta, 1, release.ReplaceOne)
		if err != nil {
			t.Fatal(err)
		}
		if spent := n * odds; spent > 0.1 != !l.Finite() {
			t.Errorf("%d bits: %v where redraws cost %v", bits, l, spent)
		} else if l.Finite() {
			// No more is charged than two fifths over n times the odds: for delta, and
			// for inputs that are moved by their n-th part.
			m := release.DiscreteGaussian{Variance: z.Variance, Contribution: release.Ball(1000, float64(z.Clip)), Honest: n}
			one := []release.Release{release.One(m)}
			least, err1 := accountant.Epsilon(one, 0.1-spent, release.ReplaceOne)
			most, err2 := accountant.Epsilon(one, 0.1-spent*1.4, release.ReplaceOne)
			own := -math.Log1p(-odds)
			if err1 != nil || err2 != nil || l.Epsilon < least.Epsilon+own || l.Epsilon > most.Epsilon+own*1.01 || l.Epsilon <= last {
				t.Errorf("%d bits: %v, want %v to %v and %v more", bits, l, least.Epsilon, most.Epsilon, own)
			}
			last = l.Epsilon
		}
	}
}

func TestDeviceNoiseRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Recipe)
		field  string
	}{
		{"of a sum", func(r *Recipe) { r.Query = Sum{10} }, "query"},
		{"of real numbers", func(r *Recipe) { r.Query = Vector{10, 1 << 15, 15, L2Fixed16, RoundTowardsZero} }, "query.proof"},
		{"of both", func(r *Recipe) { r.Noise = DiscreteGaussian{Rational{Num: 1000, Den: 1}, DrawsAll} }, "noise"},
		{"none", func(r *Recipe) { r.Randomizer = Gaussian{Clip: 1 << 10} }, "randomizer.variance"},
		{"narrow", func(r *Recipe) { r.Randomizer = Gaussian{Rational{Num: 15, Den: 2}, 1 << 10} }, "randomizer.variance"},
		{"wide", func(r *Recipe) { r.Randomizer = Gaussian{Rational{Num: 1 << 63, Den: 1}, 1 << 10} }, "randomizer.variance"},
		{"no clip", func(r *Recipe) { r.Randomizer = Gaussian{Rational{Num: 35001, Den: 2}, 0} }, "randomizer.clip"},
		{"low bound", func(r *Recipe) { q := r.Query.(Vector); q.Bound = 1 << 10; r.Query = q }, "query.bound"},
		{"low by one", func(r *Recipe) {
			q := r.Query.(Vector)
			q.Bound, _ = pine.NoisyBound(1<<10, 1000, math.Sqrt(35001./2), TailBits)
			q.Bound--
			r.Query = q
		}, "query.bound"},
		{"neighbours", func(r *Recipe) { c := r.Claim.(ApproxDP); c.Neighbours = release.ZeroOut; r.Claim = c }, "claim.neighbours"},
		{"no claim", func(r *Recipe) { r.Claim = NoClaim{} }, "claim"},
		{"room", func(r *Recipe) { q := r.Query.(Vector); q.Proof, r.Population.Expected = Pine32, 1<<20; r.Query = q }, "query.proof"},
	} {
		r := vectorVariants()["vector with noise"]
		if err := account.Validate(r); err != nil {
			t.Fatal(err)
		}
		c.change(r)
		var invalid *InvalidError
		if err := account.Validate(r); !errors.As(err, &invalid) || invalid.Field != c.field {
			t.Errorf("%s: %v, want %s", c.name, err, c.field)
		}
	}
	r := vectorVariants()["vector with noise"]
	r.Claim = ApproxDP{Decimal{1, 1}, Decimal{1, 6}, release.ReplaceOne, 1, 1}
	var claim *ClaimError
	if err := account.Validate(r); !errors.As(err, &claim) {
		t.Errorf("epsilon 0.1: %v", err)
	}
	o := noisyOptions(10, 14)
	o.Epsilon = Decimal{}
	var invalid *InvalidError
	if _, err := account.New(o); !errors.As(err, &invalid) || invalid.Field != "randomizer.variance" {
		t.Errorf("neither noise nor epsilon: %v", err)
	}
	// Short vectors of many devices need less noise than can be accounted for: they get
	// the least that can.
	if r, err := account.New(noisyOptions(10, 2)); err != nil || r.Randomizer.(Gaussian).Variance != (Rational{Num: MinDeviceVariance, Den: 1}) {
		t.Errorf("%v", err)
	}
}

// Sums have room for N times what devices prove, noise and all: there is no tail beyond.
func TestDeviceNoiseRoom(t *testing.T) {
	r := vectorVariants()["vector with noise"]
	q := r.Query.(Vector)
	q.Proof = Pine32
	r.Query = q
	const field = 1<<32 - 1<<20 + 1
	if most, ok := r.MostReports(); !ok || most != (field-1)/2/q.Bound {
		t.Errorf("room for %d reports of %d units", most, q.Bound)
	}
}

func TestDeviceNoiseDescribed(t *testing.T) {
	r, err := account.New(noisyOptions(10000, 12))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := describe(r, &b); err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"scales its vector to a length of at most 4096 units", "times an answer's", "drawn again", "of delta in each batch",
		"none from the servers; the devices' own is in every result", "all but one of those keep their noise", "there is less noise in the sum",
		"the device's own noise is left",
	} {
		if !strings.Contains(words, want) {
			t.Errorf("the description does not say %q:\n%s", want, &b)
		}
	}
	j, err := marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Randomizer struct {
			Type   string
			Params struct {
				Variance string
				Clip     uint64
			}
		}
		Proved ProvedBound `json:"proved_bound"`
	}
	if err := json.Unmarshal(j, &got); err != nil {
		t.Fatal(err)
	}
	if want, _ := account.ProvedBound(r); got.Randomizer.Type != "gaussian" || got.Randomizer.Params.Clip != 4096 || got.Proved != want || want.Ratio < 1 {
		t.Errorf("%s", j)
	}
}

// The least weight is exceeded with probability 2^-40, recipes of less are refused,
// account.New and large batches take more bits, and what is drawn again is charged and
// printed.
func TestRAPPORWeight(t *testing.T) {
	for _, c := range []struct {
		length   uint32
		epsilon0 Decimal
	}{{1, Decimal{1, 0}}, {32, Decimal{4, 0}}, {1000, Decimal{2, 0}}} {
		_, fit := RAPPOR{c.epsilon0}.Fit(Multihot{Length: c.length}, math.Exp2(-TailBits))
		got := fit.(Multihot).MaxWeight
		tail := func(w uint64) float64 { // P(Bernoulli(1-f) + Bin(length-1, f) > w), f = 1/(e^epsilon0 + 1)
			f, total := Flip(c.epsilon0), 0.0
			n := int(c.length) - 1
			for ones := range 2 {
				p := f
				if ones == 1 {
					p = 1 - f
				}
				for x := max(0, int(w)+1-ones); x <= n; x++ {
					a, _ := math.Lgamma(float64(n + 1))
					b, _ := math.Lgamma(float64(x + 1))
					d, _ := math.Lgamma(float64(n - x + 1))
					total += p * math.Exp(a-b-d+float64(x)*math.Log(f)+float64(n-x)*math.Log1p(-f))
				}
			}
			return total
		}
		if tail(got) > math.Exp2(-TailBits)*1.001 || got > 1 && tail(got-1) <= math.Exp2(-TailBits) {
			t.Errorf("%+v: weight %d, exceeded with probability %v, the one below with %v", c, got, tail(got), tail(got-1))
		}
	}
	o := account.Options{
		Name: "x", Query: Multihot{Length: 64}, Randomizer: RAPPOR{Decimal{3, 0}}, Leader: "https://l.example/", Helper: "https://h.example/",
		MinBatch: 5000, Delta: Decimal{1, 5},
	}
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	_, fit := RAPPOR{Decimal{3, 0}}.Fit(Multihot{Length: 64}, math.Exp2(-TailBits))
	least := fit.(Multihot).MaxWeight
	if r.Query.(Multihot).MaxWeight != least {
		t.Errorf("weight %d, want %d", r.Query.(Multihot).MaxWeight, least)
	}
	b, ok := account.ProvedBound(r)
	if !ok || b.Bound != least || b.Answer != 1 || b.Ratio != float64(least) || b.Redraw > math.Exp2(-TailBits) || b.Delta < 5000*b.Redraw ||
		b.Delta > 5000*b.Redraw*math.E {
		t.Errorf("%+v", b)
	}
	var text strings.Builder
	if err := describe(r, &text); err != nil || !strings.Contains(text.String(), "of delta in each") {
		t.Errorf("%v\n%s", err, &text)
	}
	q := r.Query.(Multihot)
	q.MaxWeight--
	r.Query = q
	var invalid *InvalidError
	if err := account.Validate(r); !errors.As(err, &invalid) || invalid.Field != "query.max_weight" {
		t.Errorf("one less: %v", err)
	}
	o.Delta = Decimal{1, 9} // of which 5000 redraws at 2^-40 would be more than all
	if r, err = account.New(o); err != nil {
		t.Fatal(err)
	}
	if b, _ := account.ProvedBound(r); b.Bound <= least || b.Delta > 1e-11 {
		t.Errorf("%+v", b)
	}
}
