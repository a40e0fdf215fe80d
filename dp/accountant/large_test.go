package accountant

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

// bigPrecision is of the reference below, in bits: delta may be the difference of two
// numbers that agree in 60 digits.
const bigPrecision = 600

func bigFloat(x float64) *big.Float { return new(big.Float).SetPrec(bigPrecision).SetFloat64(x) }

// bigExp returns e^x, by the series of e^(x/2^k).
func bigExp(x *big.Float) *big.Float {
	k := max(0, x.MantExp(nil)+20)
	y := new(big.Float).SetPrec(bigPrecision).SetMantExp(x, -k)
	sum, term := bigFloat(1), bigFloat(1)
	for n := 1; term.Sign() != 0 && term.MantExp(nil) > -bigPrecision; n++ {
		term.Mul(term, y).Quo(term, bigFloat(float64(n)))
		sum.Add(sum, term)
	}
	for range k {
		sum.Mul(sum, sum)
	}
	return sum
}

// bigMills returns the Mills ratio (1-Phi(x))/phi(x): by the series of Phi for x < 20,
// else by the continued fraction.
func bigMills(x *big.Float) *big.Float {
	if v, _ := x.Float64(); v >= 20 {
		t := new(big.Float).Copy(x)
		for n := 2000; n >= 1; n-- { // each of which is worth x^2/(2n) bits or so
			t.Quo(bigFloat(float64(n)), t).Add(t, x)
		}
		return t.Quo(bigFloat(1), t)
	}
	square := new(big.Float).Mul(x, x)
	sum, term := new(big.Float).Copy(x), new(big.Float).Copy(x)
	for n := 3; term.Sign() != 0 && term.MantExp(nil) > -bigPrecision; n += 2 {
		term.Mul(term, square).Quo(term, bigFloat(float64(n)))
		sum.Add(sum, term)
	}
	// (1-Phi)/phi = sqrt(pi/2) e^(x^2/2) - sum.
	pi, _ := new(big.Float).SetPrec(bigPrecision).SetString("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798214808651" +
		"328230664709384460955058223172535940812848111745028410270193852110555964462294895493038196")
	root := new(big.Float).Sqrt(pi.Quo(pi, bigFloat(2)))
	return root.Sub(root.Mul(root, bigExp(square.Quo(square, bigFloat(2)))), sum)
}

// bigGaussianDelta returns delta(epsilon) of N(0,1) against N(mu,1), as gaussianDelta does.
func bigGaussianDelta(mu *big.Float, epsilon float64) *big.Float {
	t := new(big.Float).Quo(bigFloat(epsilon), mu)
	t.Sub(t, new(big.Float).Quo(mu, bigFloat(2)))
	d := new(big.Float).Sub(bigMills(t), bigMills(new(big.Float).Add(t, mu)))
	density := bigExp(t.Mul(t, t).Quo(t, bigFloat(-2)))
	d.Mul(d, density)
	scale, _ := new(big.Float).SetPrec(bigPrecision).SetString("0.398942280401432677939946059934381868475858631164934657665925829670657925899301838501252333907306936430302558863")
	return d.Mul(d, scale)
}

func TestBigGaussianDelta(t *testing.T) {
	for _, tc := range []struct{ mu, epsilon, want float64 }{
		{1, 1, 0.126936737507}, // Balle and Wang 2018
		{0.2, 0, 2*(1-math.Erfc(-0.1/math.Sqrt2)/2) - 1},
		{1, 40, 0},
	} {
		got, _ := bigGaussianDelta(bigFloat(tc.mu), tc.epsilon).Float64()
		if math.Abs(got-math.Abs(tc.want)) > 1e-12 {
			t.Errorf("mu %v, epsilon %v: %v, want %v", tc.mu, tc.epsilon, got, tc.want)
		}
		lo, hi := gaussianDelta(tc.mu, tc.epsilon)
		if got < lo || got > hi {
			t.Errorf("mu %v, epsilon %v: %v is outside [%v, %v]", tc.mu, tc.epsilon, got, lo, hi)
		}
	}
}

// TestLargeLossesAreBracketed: whatever the loss of one release, lower <= truth <= upper.
// Losses above 600 once had a lower bound above the truth.
func TestLargeLossesAreBracketed(t *testing.T) {
	type row struct {
		sigma, delta float64
		steps        uint64
	}
	rows := []row{
		{0.02, 0.0182, 1},
		{0.00252612440493484, 0.01823962782735093, 10},
		{0.00252612440493484, 1e-12, 10},
		{1. / 700, 1e-6, 1},
		{1. / 40, 1e-200, 3},
	}
	rng := rand.New(rand.NewPCG(4, 1))
	for range 60 { // T 1 to 1000, mu 1 to 1250, delta 1e-15 to 0.5
		steps := uint64(math.Exp(rng.Float64() * math.Log(1000)))
		mu := math.Exp(rng.Float64() * math.Log(1250))
		rows = append(rows, row{math.Sqrt(float64(steps)) / mu, math.Exp(math.Log(1e-15) + rng.Float64()*math.Log(0.5e15)), steps})
	}
	answered := 0
	for _, r := range rows {
		mu := new(big.Float).Sqrt(bigFloat(float64(r.steps)))
		mu.Quo(mu, bigFloat(r.sigma))
		for _, m := range []Method{Auto, PLD} {
			e := selfCompose{gaussian{r.sigma, release.Signed(1)}, r.steps}
			g, err := Options{Method: m}.epsilon(e, r.delta, release.AddRemove)
			if errors.Is(err, release.ErrNoGuarantee) {
				if bigGaussianDelta(mu, 0.99*release.MaxEpsilon).Cmp(bigFloat(r.delta)) <= 0 {
					t.Errorf("%+v by %q: %v, but there is one", r, m, err)
				}
				continue
			}
			if m == PLD && errors.Is(err, release.ErrUnsupported) {
				continue // losses that spread over more than 10^6
			}
			if err != nil {
				t.Errorf("%+v by %q: %v", r, m, err)
				continue
			}
			answered++
			if bigGaussianDelta(mu, g.Epsilon).Cmp(bigFloat(r.delta)) > 0 {
				t.Errorf("%+v by %q: epsilon %v is below the truth", r, m, g.Epsilon)
			}
			if g.EpsilonLower > 0 && bigGaussianDelta(mu, g.EpsilonLower).Cmp(bigFloat(r.delta)) < 0 {
				t.Errorf("%+v by %q: lower bound %v is above the truth", r, m, g.EpsilonLower)
			}
			if !(g.EpsilonLower > 0.999*g.Epsilon-1e-9) {
				t.Errorf("%+v by %q: [%v, %v] is wide", r, m, g.EpsilonLower, g.Epsilon)
			}
		}
	}
	if answered < 120 {
		t.Errorf("%d of %d questions were answered", answered, 2*len(rows))
	}
}

// TestSampledLossAtAnyRate: ln(1 + q (e^epsilon - 1)) and its inverse, also where q
// e^epsilon is of the order of one and neither factor is a float64 by itself.
func TestSampledLossAtAnyRate(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	type row struct{ epsilon, q float64 }
	rows := []row{{705, 1e-306}, {701, 1e-300}, {699, 1e-304}, {740, 0x1p-1022}, {2000, 1e-300}, {1e6, 0.5}, {650, 1}, {1e-9, 1e-100}, {0.3, 0.02}}
	for range 200 {
		epsilon := math.Exp(rng.Float64()*14 - 4)
		rows = append(rows, row{epsilon, math.Exp(-rng.Float64() * min(epsilon+3, 708))})
	}
	for _, r := range rows {
		// x is e^truth - 1, and epsilon proves less than the truth if e^epsilon - 1 < x.
		rise := func(e float64) *big.Float { return new(big.Float).Sub(bigExp(bigFloat(e)), bigFloat(1)) }
		x := new(big.Float).Mul(bigFloat(r.q), rise(r.epsilon))
		g, err := PoissonSampledApproxDP(r.epsilon, 1e-9, r.q)
		if err != nil {
			t.Fatal(err)
		}
		if rise(g.Epsilon).Cmp(x) < 0 {
			t.Errorf("(%v, 1e-9)-DP at rate %v is said to be %v-DP, which is too little", r.epsilon, r.q, g.Epsilon)
		}
		if tight := g.Epsilon*(1-1e-9) - 1e-11; tight > 0 && rise(tight).Cmp(x) > 0 {
			t.Errorf("(%v, 1e-9)-DP at rate %v is said to be %v-DP, which is more than need be", r.epsilon, r.q, g.Epsilon)
		}
		l := sampledLoss(r.epsilon, r.q)
		if back := unsampledLoss(l, r.q); l > 1e-5 && math.Abs(back-r.epsilon) > 1e-9*r.epsilon {
			t.Errorf("loss %v at rate %v is %v, which comes from %v", r.epsilon, r.q, l, back)
		}
	}
}

// TestSubnormalNumbersAreRefused: the logarithm of one may be wrong, to the side of more
// privacy.
func TestSubnormalNumbersAreRefused(t *testing.T) {
	const tiny = 5e-324
	_, simple := SimpleZCDPEpsilon(0.1, tiny)
	_, renyi := Options{Method: RDP}.epsilon(gaussian{1, release.Signed(1)}, tiny, release.AddRemove)
	_, poisson := PoissonSampledApproxDP(740, 0, tiny)
	_, sampled := epsilonOf(poissonSample{gaussian{1, release.Signed(1)}, tiny}, 1e-9, release.AddRemove)
	_, fixed := epsilonOf(fixedSample{laplace{1, release.Signed(1)}, tiny}, 1e-9, release.ReplaceOne)
	for name, err := range map[string]error{"zCDP": simple, "Renyi": renyi, "Poisson": poisson, "sample": sampled, "fixed sample": fixed} {
		if !errors.Is(err, release.ErrParameter) {
			t.Errorf("%s: %v, want ErrParameter", name, err)
		}
	}
}
