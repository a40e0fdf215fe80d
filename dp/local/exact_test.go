package local

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dp/local/internal/twin"
)

// These tests drive the randomizers themselves through every sequence of outcomes of
// their draws, and hold the law of the answers, in rational numbers, against what is
// stated. That the two kinds of draw have the stated outcomes is TestDraws.

// A draw of a script is a coin (n = 0, of probability p) or a uniform integer below n.
type draw struct {
	p probability
	n uint64
}

func coin(p probability) draw { return draw{p: p} }
func die(n int) draw          { return draw{n: uint64(n)} }

// paths calls visit with the words of every sequence of outcomes, and its probability.
func paths(script []draw, visit func(words []uint64, weight *big.Rat)) {
	words := make([]uint64, len(script))
	var walk func(i int, weight *big.Rat)
	walk = func(i int, weight *big.Rat) {
		if i == len(script) {
			visit(words, weight)
			return
		}
		d := script[i]
		if d.n > 0 {
			for v := range d.n {
				hi := new(big.Int).Lsh(big.NewInt(int64(2*v+1)), 63)
				words[i] = hi.Quo(hi, big.NewInt(int64(d.n))).Uint64() // the middle of its words
				walk(i+1, new(big.Rat).Mul(weight, big.NewRat(1, int64(d.n))))
			}
			return
		}
		p := exact(d.p)
		if d.p > 0 {
			words[i] = uint64(d.p) - 1
			walk(i+1, new(big.Rat).Mul(weight, p))
		}
		words[i] = uint64(d.p)
		walk(i+1, new(big.Rat).Mul(weight, p.Sub(big.NewRat(1, 1), p)))
	}
	walk(0, big.NewRat(1, 1))
}

// exact returns p as a rational number.
func exact(p probability) *big.Rat {
	return new(big.Rat).SetFrac(new(big.Int).SetUint64(uint64(p)), new(big.Int).Lsh(big.NewInt(1), 64))
}

// scripted hands out words, and then fails.
type scripted struct {
	words []uint64
	pos   int
}

func (s *scripted) Read(b []byte) (int, error) {
	if s.pos == len(s.words) {
		return 0, io.ErrUnexpectedEOF
	}
	n := 0
	for ; n+8 <= len(b); n += 8 {
		// A source may ask for more than it draws; no answer reads beyond the script.
		w := uint64(0)
		if s.pos < len(s.words) {
			w = s.words[s.pos]
			s.pos++
		}
		binary.LittleEndian.PutUint64(b[n:], w)
	}
	return n, nil
}

// A law has the probability of each answer.
type law map[string]*big.Rat

// lawOf plays every path of the script. An answer of nil is thrown away, as a rejection
// would.
func lawOf[R any](t *testing.T, r R, script []draw, answer func(R) any) law {
	t.Helper()
	out, total := law{}, new(big.Rat)
	paths(script, func(words []uint64, weight *big.Rat) {
		a := answer(twin.WithSource(r, &scripted{words: words}).(R))
		if a == nil {
			return
		}
		key := fmt.Sprint(a)
		if out[key] == nil {
			out[key] = new(big.Rat)
		}
		out[key].Add(out[key], weight)
		total.Add(total, weight)
	})
	for _, p := range out {
		p.Quo(p, total)
	}
	return out
}

// expAtMost returns a rational number that is at most e^x and hardly less: a partial sum,
// rounded down, of a series of positive terms.
func expAtMost(x float64) *big.Rat {
	const prec = 300
	down := func() *big.Float { return new(big.Float).SetPrec(prec).SetMode(big.ToZero) }
	sum, term := down().SetInt64(1), down().SetInt64(1)
	for i := int64(1); i < 400; i++ {
		term.Mul(term, down().SetFloat64(x))
		term.Quo(term, down().SetInt64(i))
		sum.Add(sum, term)
	}
	v, _ := sum.Rat(nil)
	return v
}

// bounded fails unless every answer has probabilities within e^epsilon under a and b,
// exactly, and comes close to it if tight.
func bounded(t *testing.T, name string, a, b law, epsilon float64, tight bool) {
	t.Helper()
	if len(a) != len(b) {
		t.Errorf("%s: %d answers under one input, %d under the other", name, len(a), len(b))
		return
	}
	limit := expAtMost(epsilon)
	worst := 0.0
	for key, p := range a {
		q := b[key]
		if q == nil {
			t.Errorf("%s: only one input gives %s", name, key)
			return
		}
		for _, r := range []*big.Rat{new(big.Rat).Quo(p, q), new(big.Rat).Quo(q, p)} {
			if r.Cmp(limit) > 0 {
				f, _ := r.Float64()
				t.Errorf("%s: answer %s has ratio e^%v, want at most e^%v", name, key, math.Log(f), epsilon)
			}
			f, _ := r.Float64()
			worst = max(worst, math.Log(f))
		}
	}
	if tight && worst < epsilon*(1-1e-6)-1e-12 {
		t.Errorf("%s: the largest ratio is e^%v, stated is e^%v", name, worst, epsilon)
	}
}

// mean returns the expectation and the variance of f under the law of one answer, given
// the answers' values.
func mean(l law, f func(key string) float64) (m, v float64) {
	first, second := new(big.Rat), new(big.Rat)
	for key, p := range l {
		x := new(big.Rat).SetFloat64(f(key))
		first.Add(first, new(big.Rat).Mul(p, x))
		second.Add(second, x.Mul(x, x).Mul(x, p))
	}
	second.Sub(second, new(big.Rat).Mul(first, first))
	m, _ = first.Float64()
	v, _ = second.Float64()
	return m, v
}

var epsilons = []float64{MinEpsilon, .1, math.Ln2, 1, 3, 10, MaxEpsilon}

// A coin is true for exactly p of the 2^64 words, a die's outcomes have equally many
// words each.
func TestDraws(t *testing.T) {
	word := func(w ...uint64) *source { return newSource(&scripted{words: w}, len(w)) }
	for _, p := range []probability{0, 1, 2, 1 << 63, 1<<63 - 1, 1<<63 + 1, math.MaxUint64} {
		if p > 0 && word(uint64(p)-1).below(p) != 1 {
			t.Errorf("%d words of coin %d: too few", p, p)
		}
		if word(uint64(p)).below(p) != 0 || word(math.MaxUint64).below(p) != 0 {
			t.Errorf("coin %d: too many words", p)
		}
	}
	for _, n := range []uint64{1, 2, 3, 7, 10, 1 << 16, 1<<24 - 1, 1<<63 + 1, math.MaxUint64} {
		modulus := new(big.Int).Lsh(big.NewInt(1), 64)
		each := new(big.Int).Quo(modulus, new(big.Int).SetUint64(n)).Uint64() // words of each outcome; 2^64 for n = 1
		reject := -n % n                                                      // words thrown away
		for _, v := range []uint64{0, 1, n / 2, n - 1} {
			if v >= n || n == 1 {
				continue
			}
			// The words with product in [v 2^64 + reject, (v+1) 2^64), and no others,
			// give v at once.
			low := new(big.Int).Mul(new(big.Int).SetUint64(v), modulus)
			first := new(big.Int).Add(low, new(big.Int).SetUint64(reject+n-1))
			first.Quo(first, new(big.Int).SetUint64(n))
			last := first.Uint64() + each - 1
			if got := word(first.Uint64(), 0).uniform(n); got != v {
				t.Errorf("n = %d: first word of %d gives %d", n, v, got)
			}
			if got := word(last, 0).uniform(n); got != v {
				t.Errorf("n = %d: last word of %d gives %d", n, v, got)
			}
			// The words around them are of other outcomes, or thrown away: then the
			// second word decides.
			other := uint64(math.MaxUint64) // gives n-1
			if v == n-1 {
				other = (reject + n - 1) / n // gives 0
			}
			if last != math.MaxUint64 && word(last+1, other).uniform(n) == v {
				t.Errorf("n = %d: outcome %d has a word too many at its end", n, v)
			}
			if first.Sign() > 0 && word(first.Uint64()-1, other).uniform(n) == v {
				t.Errorf("n = %d: outcome %d has a word too many at its start", n, v)
			}
		}
	}
}

func TestResponseLaw(t *testing.T) {
	for _, e := range epsilons {
		for _, k := range []int{2, 3, 5} {
			r := must(NewResponse(k, e))(t)
			checkResponse(t, r, e)
			checkResponse(t, must(NewOptionalResponse(k-1, e))(t), e)
		}
	}
	lying := must(NewResponseLying(4, .3))(t)
	checkResponse(t, lying, lying.Epsilon(Replacement))
}

func checkResponse(t *testing.T, r *Response, e float64) {
	t.Helper()
	name := fmt.Sprintf("response of %d, %d answers, at %v", r.k, r.answers, e)
	if got := r.Epsilon(Replacement); got != e {
		t.Errorf("%s: states %v", name, got)
	}
	script := []draw{coin(r.lie), die(r.answers - 1), die(r.answers)}
	laws := map[int]law{}
	for x := NoValue; x < r.k; x++ {
		laws[x] = lawOf(t, r, script, func(r *Response) any { return must(r.Randomize(x))(t) })
	}
	optional := r.answers > r.k
	for x := range r.k {
		for y := range x {
			bounded(t, name, laws[x], laws[y], e, true)
		}
		bounded(t, name+", deletion", laws[x], laws[NoValue], r.Epsilon(Deletion), true)
		// One device: the estimate is 1 for its value and 0 for the others.
		for v := range r.k {
			_, _, gap := r.rates()
			one := func(key string) float64 {
				counts := make([]uint64, r.answers)
				counts[number(t, key)] = 1
				return must(r.Estimate(counts))(t)[v].Value
			}
			held := 0.0
			if x == v {
				held = 1
			}
			got, variance := mean(laws[x], one)
			near(t, name+": mean", got, held, 1e-12/gap)
			near(t, name+": variance", variance, r.Variance(held), 1e-9/gap/gap)
			got, _ = mean(laws[NoValue], one)
			want := 1 / float64(r.k)
			if optional {
				want = 0
			}
			near(t, name+": mean of a dummy", got, want, 1e-12/gap)
			if optional {
				continue
			}
			got, variance = mean(laws[NoValue], func(key string) float64 {
				counts := make([]uint64, r.answers)
				counts[number(t, key)] = 1
				return must(r.EstimateWithDummies(counts, Estimate{1, 0}))(t)[v].Value
			})
			near(t, name+": mean of a known dummy", got, 0, 1e-12/gap)
			counts := make([]uint64, r.answers)
			counts[0] = 1
			stated := must(r.EstimateWithDummies(counts, Estimate{1, 0}))(t)[v].Variance
			near(t, name+": variance of a dummy", variance, stated, 1e-9/gap/gap)
			more := must(r.EstimateWithDummies(counts, Estimate{1, 7}))(t)[v].Variance
			near(t, name+": variance of the dummies' number", more-stated, 7/float64(r.k*r.k), 1e-9*stated)
		}
	}
}

func number(t *testing.T, key string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(key, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestRAPPORLaw(t *testing.T) {
	for _, e := range epsilons {
		for _, k := range []int{1, 2, 5} {
			for _, about := range []Relation{Replacement, Deletion} {
				for _, form := range []Form{Symmetric, Optimised} {
					checkRAPPOR(t, must(NewRAPPOR(k, e, about, form))(t), e)
				}
			}
		}
	}
}

func checkRAPPOR(t *testing.T, r *RAPPOR, e float64) {
	t.Helper()
	name := fmt.Sprintf("RAPPOR of %d at %v, flips %v, %v", r.k, e, r.hit.not(), r.miss.float())
	if got := r.Epsilon(r.relation); got != e {
		t.Errorf("%s: states %v", name, got)
	}
	laws := map[int]law{}
	for x := NoValue; x < r.k; x++ {
		script := make([]draw, r.k)
		for j := range script {
			script[j] = coin(r.miss)
		}
		if x >= 0 {
			script[x] = coin(r.hit)
		}
		laws[x] = lawOf(t, r, script, func(r *RAPPOR) any {
			dst := make([]bool, r.k)
			if err := r.Randomize(dst, x); err != nil {
				t.Fatal(err)
			}
			return dst
		})
	}
	gap := (r.hit - r.miss).float()
	for x := NoValue; x < r.k; x++ {
		for y := range max(x, 0) {
			bounded(t, name, laws[x], laws[y], r.Epsilon(Replacement), true)
		}
		if x >= 0 {
			bounded(t, name+", deletion", laws[x], laws[NoValue], r.Epsilon(Deletion), true)
		}
		for v := range r.k {
			held := 0.0
			if x == v {
				held = 1
			}
			got, variance := mean(laws[x], func(key string) float64 {
				sums := make([]uint64, r.k)
				for i, word := range fields(key) {
					if word == "true" {
						sums[i] = 1
					}
				}
				return must(r.Estimate(sums, 1))(t)[v].Value
			})
			near(t, name+": mean", got, held, 1e-12/gap)
			near(t, name+": variance", variance, r.Variance(held), 1e-9/gap/gap)
		}
	}
}

func TestProjectiveLaw(t *testing.T) {
	for _, e := range epsilons {
		for _, g := range []struct{ q, t uint64 }{{2, 2}, {2, 3}, {3, 2}, {3, 3}, {5, 2}} {
			p := must(NewProjectiveOver(2, e, g.q, g.t))(t)
			p.k = int(p.points)
			checkProjective(t, p, e)
		}
	}
}

func checkProjective(t *testing.T, p *Projective, e float64) {
	t.Helper()
	name := fmt.Sprintf("projective response over %d in %d dimensions at %v", p.q, p.t, e)
	uniform := big.NewRat(int64(p.points-p.meet), int64(p.points)) // of a point outside
	if off := new(big.Rat).Sub(exact(p.anywhere), uniform); off.Abs(off).Cmp(big.NewRat(1, 1<<62)) > 0 {
		t.Errorf("%s: a uniform point lies outside with probability %v", name, exact(p.anywhere))
	}
	laws := map[int]law{}
	for x := NoValue; x < p.k; x++ {
		l := law{}
		for _, outside := range []bool{false, true} {
			side, word := exact(p.outside), uint64(0)
			if x == NoValue {
				side.Set(uniform)
			}
			if !outside {
				side.Sub(big.NewRat(1, 1), side)
				word = math.MaxUint64
			}
			free := int(p.powers[p.t-1]) // vectors, of which the hyperplane has no use for zero
			if !outside {
				free--
			}
			part := lawOf(t, p, []draw{die(int(p.q - 1)), die(free)}, func(p *Projective) any {
				s := p.src.(*scripted)
				c := *p
				c.src = &scripted{words: append([]uint64{word}, s.words...)}
				return must(c.Randomize(x))(t)
			})
			for key, w := range part {
				if l[key] == nil {
					l[key] = new(big.Rat)
				}
				l[key].Add(l[key], w.Mul(w, side))
			}
		}
		laws[x] = l
	}
	for y := range p.points {
		if got := laws[NoValue][fmt.Sprint(y)]; got == nil || got.Cmp(big.NewRat(1, int64(p.points))) != 0 {
			t.Errorf("%s: no value gives point %d with probability %v", name, y, got)
		}
	}
	alpha, beta, _, _ := p.weights()
	for x := range p.k {
		for y := range x {
			bounded(t, name, laws[x], laws[y], e, true)
		}
		bounded(t, name+", deletion", laws[x], laws[NoValue], p.Epsilon(Deletion), true)
		for v := range p.k {
			held := 0.0
			if x == v {
				held = 1
			}
			got, variance := mean(laws[x], func(key string) float64 {
				counts := make([]uint64, p.points)
				counts[number(t, key)] = 1
				return must(p.Estimate(counts))(t)[v].Value
			})
			near(t, name+": mean", got, held, 1e-12*(1+alpha))
			near(t, name+": variance", variance, p.Variance(held), 1e-9*alpha*alpha)
		}
	}
	if beta >= 0 {
		t.Errorf("%s: beta is %v", name, beta)
	}
}

// The oracle catches a randomizer that is a hair too truthful.
func TestLawCatchesTooMuchTruth(t *testing.T) {
	r := must(NewResponse(3, 1))(t)
	c := *r
	c.lie -= 1 << 40 // 6*10^-8
	script := []draw{coin(c.lie), die(2), die(3)}
	a := lawOf(t, &c, script, func(r *Response) any { return must(r.Randomize(0))(t) })
	b := lawOf(t, &c, script, func(r *Response) any { return must(r.Randomize(1))(t) })
	if ratio := new(big.Rat).Quo(a["0"], b["0"]); ratio.Cmp(expAtMost(1)) <= 0 {
		t.Error("a lie of 6*10^-8 too little is within e")
	}
}

// fields splits what fmt prints for a slice.
func fields(key string) []string { return strings.Fields(strings.Trim(key, "[]")) }
