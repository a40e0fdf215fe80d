package recipe_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
	. "github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/vdaf/pine"
)

// shared is a recipe about one of up to n persons of a site.
func shared(t *testing.T, dimension uint32, bits uint8, n uint32) *Recipe {
	t.Helper()
	q, err := NewVector(dimension, 1, bits, 0)
	if err != nil {
		t.Fatal(err)
	}
	o := vectorOptions(q)
	o.Rounds, o.MinBatch = 40, 3
	o.Unit = &Unit{Name: "person", Records: n, Reduce: SharedSum}
	if n == 0 {
		o.Unit = nil
	}
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSharedNoise: noise is calibrated to a share of the bound and what rounding adds, the
// certificate is about that, and the guarantee says who is trusted.
func TestSharedNoise(t *testing.T) {
	const dimension, bits, n = 650, 20, 100
	r := shared(t, dimension, bits, n)
	q, _ := r.Vector()
	share := float64(q.Bound)/n + 6 + 2*math.Ceil(math.Sqrt(dimension))
	c := r.Contribution()
	if c.Shape != release.ShapeBall || c.Max > share || c.Max < share-1 {
		t.Errorf("%+v, want %v", c, share)
	}
	if n := r.KnownNeighbours(); n != release.ZeroOut {
		t.Error(n)
	}
	whole := shared(t, dimension, bits, 0)
	// Half the distance as for replaced records, and a hundredth of the bound.
	want := math.Pow(share/(2*float64(q.Bound)), 2)
	if got := r.NoiseVariance() / whole.NoiseVariance(); math.Abs(got/want-1) > 0.01 {
		t.Errorf("variance %v of that of whole reports, want %v", got, want)
	}
	g, err := account.Guarantee(r)
	if err != nil || g.Epsilon > 2.001 || g.Neighbours != release.ZeroOut || g.Unit != "person" {
		t.Fatalf("%+v, %v", g, err)
	}
	if !strings.Contains(strings.Join(g.Assumptions, "\n"), "a person trusts its own site, and no other, to cut what it adds to a 100th part of the bound") {
		t.Errorf("%q", g.Assumptions)
	}
	certificate, err := account.Certify(r)
	if err != nil {
		t.Fatal(err)
	}
	loss, err := r.CheckCertificate(certificate)
	if err != nil || loss.Epsilon < 1.9 || loss.Epsilon > 2.001 {
		t.Errorf("%v, %v", loss, err)
	}
	if _, err := whole.CheckCertificate(certificate); err == nil {
		t.Error("the certificate of a share proves a whole report")
	}
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Read(b)
	if err != nil || again.Shares() != n || *again.Unit != *r.Unit {
		t.Errorf("%+v, %v", again, err)
	}
}

// TestSharedMoves: what a device makes of the sum of a site with a person and without them
// is no further apart than the recipe counts on, at every length, however it rounds.
func TestSharedMoves(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, dimension := range []uint32{3, 40, 650} {
		for _, bits := range []uint8{8, 14} {
			r := shared(t, dimension, bits, 7)
			q, _ := r.Vector()
			v, err := pine.New(q.VDAFConfig().(dap.PineConfig).PineParams())
			if err != nil {
				t.Fatal(err)
			}
			most, worst := r.Contribution().Max, 0.0
			for range 300 {
				direction := func(norm float64) []float64 {
					x := make([]float64, dimension)
					s := 0.0
					for i := range x {
						x[i] = random.NormFloat64()
						s += x[i] * x[i]
					}
					for i := range x {
						x[i] *= norm / math.Sqrt(s)
					}
					return x
				}
				without := direction(q.Norm() * []float64{0, 0.3, 6. / 7, 1}[random.IntN(4)])
				person := direction(q.Norm() / 7)
				with := make([]float64, dimension)
				for i := range with {
					with[i] = without[i] + person[i]
				}
				a, err := pine.Encode(v, without, pine.Encoding{Clip: true})
				if err != nil {
					t.Fatal(err)
				}
				b, err := pine.Encode(v, with, pine.Encoding{Clip: true})
				if err != nil {
					t.Fatal(err)
				}
				s := 0.0
				for i := range a {
					s += float64((a[i] - b[i]) * (a[i] - b[i]))
				}
				worst = max(worst, math.Sqrt(s))
			}
			if worst > most || worst < most/3 {
				t.Errorf("dimension %d, %d places: moved by %v, and %v is counted on", dimension, bits, worst, most)
			}
		}
	}
}

// TestSharedRounds: with few binary places a person moves a report by more than its bound,
// as entries on the edge of two multiples fall apart; the recipe counts on that.
func TestSharedRounds(t *testing.T) {
	const dimension, bits = 1638, 5
	r := shared(t, dimension, bits, 2)
	q, _ := r.Vector()
	v, err := pine.New(q.VDAFConfig().(dap.PineConfig).PineParams())
	if err != nil {
		t.Fatal(err)
	}
	var x [2][]float64
	var e [2][]int64
	for i := range x {
		for j := range dimension {
			x[i] = append(x[i], math.Ldexp([]float64{0.51, 0.49}[(i+j)%2], -bits))
		}
		if e[i], err = pine.Encode(v, x[i], pine.Encoding{Clip: true}); err != nil {
			t.Fatal(err)
		}
	}
	person, moved := 0.0, 0.0
	for j := range dimension {
		person += math.Pow(x[0][j]-x[1][j], 2)
		moved += float64((e[0][j] - e[1][j]) * (e[0][j] - e[1][j]))
	}
	if math.Sqrt(person) > q.Norm()/2 || math.Sqrt(moved) <= float64(q.Bound) {
		t.Fatalf("a person of %v moves a report by %v", math.Sqrt(person), math.Sqrt(moved))
	}
	if most := r.Contribution().Max; math.Sqrt(moved) > most {
		t.Errorf("moved by %v, and %v is counted on", math.Sqrt(moved), most)
	}
}

// TestSharedRefused: shares are of a bound on a length, under the servers' noise.
func TestSharedRefused(t *testing.T) {
	for name, change := range map[string]func(*Recipe){
		"one":         func(r *Recipe) { r.Unit.Records = 1 },
		"too many":    func(r *Recipe) { r.Unit.Records = MaxShares + 1 },
		"a count":     func(r *Recipe) { r.Query = Count{} },
		"fine places": func(r *Recipe) { q, _ := r.Vector(); q.FracBits, q.Bound = 24, 1<<24+1; r.Query = q },
		"views":       func(r *Recipe) { r.Views = &Views{} },
		"projected":   func(r *Recipe) { r.Projection = &Projection{} },
		"by answer":   func(r *Recipe) { r.Participation = Importance{Rational{Num: 1, Den: 100}, Rational{Num: 1, Den: 2}} },
	} {
		r := shared(t, 40, 14, 5)
		change(r)
		if err := r.Validate(); err == nil || !strings.Contains(err.Error(), "unit.re") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSharedCoins: the coin of a site decides for all of its people at once, so that who
// knows the others of a site sees the coin in their sum, and it hides nothing. What such
// an adversary tells apart, by where a sum of their report is, is within the claim.
func TestSharedCoins(t *testing.T) {
	const n = 100
	q, err := NewVector(650, 1, 20, 0)
	if err != nil {
		t.Fatal(err)
	}
	o := vectorOptions(q)
	o.MinBatch, o.Unit = SampledBatchFloor, &Unit{Name: "person", Records: n, Reduce: SharedSum}
	o.Relay = &Relay{URL: "https://relay.example/", Gateway: "https://gateway.example/"}
	o.Rate = &Rate{Devices: 100_000, Units: 1}
	const rate = 0.05
	if o.Participation, err = ParseBernoulli("1/20"); err != nil {
		t.Fatal(err)
	}
	r, err := account.New(o)
	if err != nil {
		t.Fatal(err)
	}
	g, err := account.Guarantee(r)
	if err != nil {
		t.Fatal(err)
	}
	above := func(x float64) float64 { return math.Erfc(x/math.Sqrt2) / 2 }
	sigma, share := math.Sqrt(r.NoiseVariance()), r.Contribution().Max
	others, worst := float64(q.Bound)-share, 0.0
	for x := others - 8*sigma; x < others+share+8*sigma; x += sigma / 50 {
		with := (1-rate)*above(x/sigma) + rate*above((x-others-share)/sigma)
		without := (1-rate)*above(x/sigma) + rate*above((x-others)/sigma)
		worst = max(worst, with-math.Exp(g.Epsilon)*without)
	}
	if worst > g.Delta || g.Neighbours != release.ZeroOut {
		t.Errorf("delta %v at epsilon %v, %v neighbours; %v is claimed", worst, g.Epsilon, g.Neighbours, g.Delta)
	}
}
