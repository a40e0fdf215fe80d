package cloak_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/starling-agg/starling/shuffle/cloak"
	"github.com/starling-agg/starling/shuffle/cloak/cloaktest"
)

func params(t testing.TB, construct func(cloak.Options) (*cloak.Params, error), o cloak.Options) *cloak.Params {
	t.Helper()
	p, err := construct(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// sum encodes the values of users, shuffles and analyzes them.
func sum(t testing.TB, p *cloak.Params, rng *rand.Rand, values [][]float64) []cloak.Estimate {
	t.Helper()
	var all []cloak.Message
	for _, v := range values {
		messages, err := p.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, messages...)
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	estimates, err := p.Analyze(all)
	if err != nil {
		t.Fatal(err)
	}
	return estimates
}

// Numbers of messages by the published formula; ours are no more for the same distance.
func TestPublishedMessages(t *testing.T) {
	for _, r := range []struct {
		n           uint64
		bits, sigma float64
		want        int
	}{{1e4, 32, 40, 12}, {1e3, 32, 40, 16}, {1e6, 64, 80, 15}, {1e4, 64, 80, 21}, {100, 32, 40, 24}} {
		if got := cloak.PublishedMessages(r.n, r.bits, r.sigma); got != r.want {
			t.Errorf("%+v: %d messages", r, got)
		}
	}
	for _, n := range []uint64{20, 100, 600, 3_000, 10_000, 100_000} {
		for _, delta := range []float64{1e-3, 1e-9} {
			p := params(t, cloak.Modern, cloak.Options{Users: n, Precision: 1000, Epsilon: 1, Delta: delta})
			published := cloak.PublishedMessages(n, math.Log2(float64(p.Modulus())), math.Log2((1+math.E)/delta))
			if p.Messages() > published || p.Messages() < published/2 {
				t.Errorf("%d users, delta %v: %d messages, %d published", n, delta, p.Messages(), published)
			}
		}
	}
}

// Parameters of the paper's lemmas, and its error.
func TestPaper(t *testing.T) {
	for _, r := range []struct {
		n, k     uint64
		messages int
		modulus  float64
	}{{100, 1e3, 67, 3039092619303}, {1000, 1e4, 76, 39639637901249}} {
		o := cloak.Options{Users: r.n, Precision: r.k, Epsilon: 1, Delta: 1e-6}
		p := params(t, cloak.SumPreserving, o)
		if p.Messages() != r.messages || math.Abs(float64(p.Modulus())/r.modulus-1) > 1e-9 || p.Modulus()%2 == 0 {
			t.Errorf("%+v: %d messages, modulus %d", r, p.Messages(), p.Modulus())
		}
		if p = params(t, cloak.SingleUser, o); p.Messages() < r.messages || p.Messages() > r.messages+1 {
			t.Errorf("%+v: %d messages with noise", r, p.Messages())
		}
		if r.n == 1000 && math.Abs(p.RMS()-166.22498) > 1e-4 {
			t.Errorf("%+v: error %v", r, p.RMS())
		}
	}
	var e *cloak.RangeError
	if _, err := cloak.SingleUser(cloak.Options{Users: 1000, Precision: 1, Epsilon: 10, Delta: 0.1}); !errors.As(err, &e) {
		t.Errorf("noise of p = 0: %v", err)
	}
	for _, construct := range []func(cloak.Options) (*cloak.Params, error){cloak.Modern, cloak.SingleUser} {
		if _, err := construct(cloak.Options{Users: 9, Precision: 1 << 30, Entries: 1 << 11, Epsilon: 1, Delta: 0.1}); !errors.As(err, &e) {
			t.Errorf("noise beyond all samplers: %v", err)
		}
	}
	// With half of the users delta holds, and with few of them not.
	o := cloak.Options{Users: 1000, Honest: 500, Precision: 1e4, Epsilon: 1, Delta: 1e-6}
	params(t, cloak.SingleUser, o)
	o.Honest = 50
	if _, err := cloak.SingleUser(o); !errors.As(err, &e) {
		t.Errorf("50 honest users: %v", err)
	}
}

// What 10,000 users send for a number of 20 bits, and the error.
func TestModern(t *testing.T) {
	for _, r := range []struct {
		honest uint64
		most   int
	}{{10_000, 8}, {9_000, 8}, {5_000, 8}} {
		p := params(t, cloak.Modern, cloak.Options{Users: 10_000, Honest: r.honest, Precision: 1 << 20, Epsilon: 1, Delta: 1e-6})
		want := math.Sqrt(2 * 10_000 / float64(r.honest))
		if p.Messages() > r.most || p.RMS() < want*(1-1e-9) || p.RMS() > want*1.0001 || p.Unlike() > 1e-6 {
			t.Errorf("%d honest: %d messages, error %v of %v", r.honest, p.Messages(), p.RMS(), want)
		}
	}
	// More of delta, fewer users, more entries: never cheaper.
	base := cloak.Options{Users: 2_000, Precision: 1 << 10, Epsilon: 1, Delta: 1e-6}
	at := params(t, cloak.Modern, base)
	for name, change := range map[string]func(*cloak.Options){
		"delta":   func(o *cloak.Options) { o.Delta = 1e-12 },
		"honest":  func(o *cloak.Options) { o.Honest = 50 },
		"entries": func(o *cloak.Options) { o.Entries = 1000 },
		"epsilon": func(o *cloak.Options) { o.Epsilon = 20 },
	} {
		o := base
		change(&o)
		if p := params(t, cloak.Modern, o); p.Messages() <= at.Messages() {
			t.Errorf("%s: %d messages, %d before", name, p.Messages(), at.Messages())
		}
	}
	o := base
	if o.Entries = 3; math.Abs(params(t, cloak.Modern, o).RMS()/at.RMS()-3) > 1e-3 {
		t.Error("the noise of three entries is not three times that of one")
	}
}

// Without noise, sums of values that need no rounding are exact.
func TestExactSums(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, k := range []uint64{1, 7, 1 << 20, 1 << 32} {
		p := cloaktest.Seeded(params(t, cloak.SumPreserving, cloak.Options{Users: 12, Precision: k, Entries: 3, Epsilon: 1, Delta: 1e-6}), [32]byte{1})
		values, want := make([][]float64, 12), make([]float64, 3)
		for i := range values {
			for entry := range want {
				x := float64(rng.Uint64N(k+1)) / float64(k)
				if k == 7 {
					x = float64(rng.Uint64N(2))
				}
				values[i] = append(values[i], x)
				want[entry] += x
			}
		}
		for entry, e := range sum(t, p, rng, values) {
			if math.Abs(e.Sum-want[entry]) > 1e-12 || e.Unlike {
				t.Errorf("k = %d: entry %d is %v, want %v", k, entry, e, want[entry])
			}
		}
	}
}

// Rounding has no bias: 2^14 values of 0.3 in units of 1/4, that is 1.2, are 1 or 2; false
// reject rate 1e-6 (Bernstein).
func TestRounding(t *testing.T) {
	const n, x = 1 << 14, 0.3
	p := cloaktest.Seeded(params(t, cloak.SumPreserving, cloak.Options{Users: 2, Precision: 4, Epsilon: 20, Delta: 0.5}), [32]byte{2})
	up := 0.0
	for range n / 2 {
		s := sum(t, p, rand.New(rand.NewPCG(0, 0)), [][]float64{{x}, {x}})[0].Sum * 4
		if s != 2 && s != 3 && s != 4 {
			t.Fatalf("twice 1.2 is %v", s)
		}
		up += s - 2
	}
	l := math.Log(2e6)
	if math.Abs(up-n*0.2) > math.Sqrt(2*n*0.2*0.8*l)+l {
		t.Errorf("%v of %v are rounded up, want a fifth", up, n)
	}
}

// The mean squared error of encoding, shuffling and analyzing is what RMS says: 2,000
// runs, within 3.3 standard errors (99.9 %; the fourth moment of a Laplace variable is 6
// variances squared), with a fixed seed.
func TestMeasuredError(t *testing.T) {
	const n, runs = 40, 2_000
	rng := rand.New(rand.NewPCG(3, 4))
	for _, honest := range []uint64{n, n / 2} {
		p := cloaktest.Seeded(params(t, cloak.Modern, cloak.Options{Users: n, Honest: honest, Precision: 100, Epsilon: 1, Delta: 0.01}), [32]byte{3})
		values, want := make([][]float64, n), 0.0
		for i := range values {
			x := 0.3 + 0.4*rng.Float64()
			values[i] = []float64{x}
			want += x
		}
		mse, bias := 0.0, 0.0
		for range runs {
			off := sum(t, p, rng, values)[0].Sum - want
			bias += off / runs
			mse += off * off / runs
		}
		v := p.RMS() * p.RMS()
		if math.Abs(mse/v-1) > 3.3*math.Sqrt(5.0/runs) || math.Abs(bias) > 4.9*math.Sqrt(v/runs) {
			t.Errorf("%d honest: mean squared error %v, want %v; bias %v", honest, mse, v, bias)
		}
	}
}

// One user in 10 ln(1/delta)/n adds noise: 2^12 encodings, false-reject rate 1e-6
// (Bernstein).
func TestPreRandomizer(t *testing.T) {
	const n, runs = 100, 1 << 12
	p := cloaktest.Seeded(params(t, cloak.SingleUser, cloak.Options{Users: n, Precision: 1 << 20, Epsilon: 1, Delta: 0.1}), [32]byte{4})
	noisy := 0.0
	for range runs {
		messages, err := p.Encode([]float64{0})
		if err != nil {
			t.Fatal(err)
		}
		total := uint64(0)
		for _, m := range messages {
			total = (total + m.Residues[0]) % p.Modulus()
		}
		if total != 0 {
			noisy++
		}
	}
	rate, l := 10*math.Log(10)/n, math.Log(2e6)
	if math.Abs(noisy-runs*rate) > math.Sqrt(2*runs*rate*(1-rate)*l)+l {
		t.Errorf("%v of %v add noise, want %v", noisy, runs, rate)
	}
}

// Each message by itself is uniform, whatever the value: 2^13 encodings, the first and the
// last message in 16 cells; false-reject rate 1e-6 each (Laurent and Massart).
func TestMessagesAreUniform(t *testing.T) {
	const runs, cells = 1 << 13, 16
	p := cloaktest.Seeded(params(t, cloak.Modern, cloak.Options{Users: 300, Precision: 3, Epsilon: 1, Delta: 0.01}), [32]byte{5})
	var counts [2][cells]float64
	for range runs {
		messages, err := p.Encode([]float64{1})
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range []cloak.Message{messages[0], messages[len(messages)-1]} {
			counts[i][m.Residues[0]*cells/p.Modulus()]++
		}
	}
	for i, c := range counts {
		stat := 0.0
		for cell, seen := range c {
			low := math.Ceil(float64(cell) * float64(p.Modulus()) / cells)
			high := math.Ceil(float64(cell+1) * float64(p.Modulus()) / cells)
			e := runs * (high - low) / float64(p.Modulus())
			stat += (seen - e) * (seen - e) / e
		}
		l := math.Log(1e6)
		if stat > cells-1+2*math.Sqrt((cells-1)*l)+2*l {
			t.Errorf("message %d: chi-square %v", i, stat)
		}
	}
}

// What algorithm 2 makes of a sum: 2 users, k = 3, N = 31 or above.
func TestEstimates(t *testing.T) {
	p := params(t, cloak.SumPreserving, cloak.Options{Users: 2, Precision: 3, Epsilon: 1, Delta: 0.01})
	messages := make([]cloak.Message, 2*p.Messages())
	for i := range messages {
		messages[i].Residues = []uint64{0}
	}
	n := p.Modulus()
	for z, want := range map[uint64]cloak.Estimate{
		0: {}, 1: {Sum: 1.0 / 3, Units: 1}, 6: {Sum: 2, Units: 6}, 7: {Sum: 2, Units: 7}, 12: {Sum: 2, Units: 12}, 13: {Unlike: true},
		n - 7: {Unlike: true}, n - 6: {Units: -6}, n - 1: {Units: -1},
	} {
		messages[0].Residues[0] = z
		if got, err := p.Analyze(messages); err != nil || got[0] != want {
			t.Errorf("sum %d: %+v, %v", z, got, err)
		}
	}
	if want := float64(n-18) / float64(n); p.Unlike() != want {
		t.Errorf("a random sum is unlike with probability %v, want %v", p.Unlike(), want)
	}
}

func TestHostileMessages(t *testing.T) {
	p := cloaktest.Seeded(params(t, cloak.Modern, cloak.Options{Users: 3, Precision: 10, Entries: 2, Epsilon: 1, Delta: 0.01}), [32]byte{6})
	var good []cloak.Message
	for range 3 {
		messages, err := p.Encode([]float64{0, 1})
		if err != nil {
			t.Fatal(err)
		}
		good = append(good, messages...)
	}
	if _, err := p.Analyze(good); err != nil {
		t.Fatal(err)
	}
	var count *cloak.CountError
	var message *cloak.MessageError
	for name, c := range map[string]struct {
		spoil  func([]cloak.Message) []cloak.Message
		target any
	}{
		"none":         {func([]cloak.Message) []cloak.Message { return nil }, &count},
		"one lost":     {func(m []cloak.Message) []cloak.Message { return m[1:] }, &count},
		"one twice":    {func(m []cloak.Message) []cloak.Message { return append(m, m[0]) }, &count},
		"moved":        {func(m []cloak.Message) []cloak.Message { m[0].Block = 1; return m }, &count},
		"no block":     {func(m []cloak.Message) []cloak.Message { m[4].Block = 2; return m }, &message},
		"far block":    {func(m []cloak.Message) []cloak.Message { m[4].Block = math.MaxUint32; return m }, &message},
		"modulus":      {func(m []cloak.Message) []cloak.Message { m[4].Residues = []uint64{p.Modulus()}; return m }, &message},
		"far residue":  {func(m []cloak.Message) []cloak.Message { m[4].Residues = []uint64{math.MaxUint64}; return m }, &message},
		"short":        {func(m []cloak.Message) []cloak.Message { m[4].Residues = nil; return m }, &message},
		"long":         {func(m []cloak.Message) []cloak.Message { m[4].Residues = []uint64{0, 0}; return m }, &message},
		"another user": {func(m []cloak.Message) []cloak.Message { return append(m, m[:2*p.Messages()]...) }, &count},
	} {
		if _, err := p.Analyze(c.spoil(slices.Clone(good))); err == nil || !errors.As(err, c.target) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if message.Index != 4 || count.Want != uint64(3*p.Messages()) {
		t.Errorf("%+v, %+v", message, count)
	}
}

func TestHostileValues(t *testing.T) {
	p := params(t, cloak.Modern, cloak.Options{Users: 3, Precision: 10, Epsilon: 1, Delta: 0.01})
	var e *cloak.RangeError
	for _, x := range [][]float64{nil, {}, {0, 0}, {math.NaN()}, {-0.1}, {math.Inf(1)}, {math.Nextafter(1, 2)}, {-math.SmallestNonzeroFloat64}} {
		if _, err := p.Encode(x); !errors.As(err, &e) {
			t.Errorf("values %v: %v", x, err)
		}
	}
	for _, x := range []float64{0, math.Copysign(0, -1), 1, math.SmallestNonzeroFloat64, math.Nextafter(1, 0)} {
		if _, err := p.Encode([]float64{x}); err != nil {
			t.Errorf("value %v: %v", x, err)
		}
	}
	good := cloak.Options{Users: 10, Precision: 10, Epsilon: 1, Delta: 0.01}
	for name, spoil := range map[string]func(*cloak.Options){
		"one user":      func(o *cloak.Options) { o.Users = 1 },
		"many users":    func(o *cloak.Options) { o.Users = 1<<32 + 1 },
		"one honest":    func(o *cloak.Options) { o.Honest = 1 },
		"more honest":   func(o *cloak.Options) { o.Honest = 11 },
		"no precision":  func(o *cloak.Options) { o.Precision = 0 },
		"precise":       func(o *cloak.Options) { o.Precision = 1<<32 + 1 },
		"no entries":    func(o *cloak.Options) { o.Entries = -1 },
		"entries":       func(o *cloak.Options) { o.Entries = 1<<20 + 1 },
		"none changed":  func(o *cloak.Options) { o.Changed = -1 },
		"more changed":  func(o *cloak.Options) { o.Entries, o.Changed = 3, 4 },
		"moved":         func(o *cloak.Options) { o.Entries, o.Changed, o.Moved = 3, 2, 21 },
		"no block":      func(o *cloak.Options) { o.Block = -1 },
		"block":         func(o *cloak.Options) { o.Entries, o.Block = 3, 4 },
		"epsilon":       func(o *cloak.Options) { o.Epsilon = 0 },
		"epsilon NaN":   func(o *cloak.Options) { o.Epsilon = math.NaN() },
		"epsilon large": func(o *cloak.Options) { o.Epsilon = 21 },
		"delta":         func(o *cloak.Options) { o.Delta = 0 },
		"delta one":     func(o *cloak.Options) { o.Delta = 1 },
		"delta NaN":     func(o *cloak.Options) { o.Delta = math.NaN() },
		"both large":    func(o *cloak.Options) { o.Users, o.Precision = 1<<32, 1<<32 },
	} {
		o := good
		spoil(&o)
		for _, construct := range []func(cloak.Options) (*cloak.Params, error){cloak.Modern, cloak.SingleUser, cloak.SumPreserving} {
			if p, err := construct(o); !errors.As(err, &e) || p != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// Only a seed makes messages again.
func TestSeeds(t *testing.T) {
	p := params(t, cloak.Modern, cloak.Options{Users: 3, Precision: 10, Epsilon: 1, Delta: 0.01})
	encode := func(p *cloak.Params) []cloak.Message {
		m, err := p.Encode([]float64{0.5})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	same := func(a, b []cloak.Message) bool {
		return slices.EqualFunc(a, b, func(x, y cloak.Message) bool { return x.Block == y.Block && slices.Equal(x.Residues, y.Residues) })
	}
	a, b := encode(cloaktest.Seeded(p, [32]byte{1})), encode(cloaktest.Seeded(p, [32]byte{1}))
	if !same(a, b) || same(a, encode(cloaktest.Seeded(p, [32]byte{2}))) {
		t.Error("a seed is not what determines the messages")
	}
	if same(encode(p), encode(p)) {
		t.Error("two encodings are equal")
	}
}

func BenchmarkEncode(b *testing.B) {
	p := params(b, cloak.Modern, cloak.Options{Users: 10_000, Honest: 9_000, Precision: 1 << 20, Epsilon: 1, Delta: 1e-6})
	for b.Loop() {
		if _, err := p.Encode([]float64{0.25}); err != nil {
			b.Fatal(err)
		}
	}
}
