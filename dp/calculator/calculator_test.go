package calculator

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
)

func gauss(sigma float64) Line { return Line{Mechanism: release.NameGaussian, Sigma: sigma} }

// TestRefusals: what has no answer is refused, with the reason and what to ask instead.
func TestRefusals(t *testing.T) {
	sampled := gauss(5)
	sampled.Sampling = 0.1
	allocated := gauss(5)
	allocated.Picks, allocated.Of = 1, 10
	rr := Line{Mechanism: release.NameResponse, Epsilon0: 1}
	for name, c := range map[string]struct {
		q    Ask
		want string // in the problem
	}{
		"nothing":               {Ask{}, "neither delta nor epsilon"},
		"no mechanism":          {Ask{Delta: 1e-6}, "no mechanism"},
		"unknown mechanism":     {Ask{Line: Line{Mechanism: "magic"}, Delta: 1e-6}, "no mechanism"},
		"only in lists":         {Ask{Line: Line{Mechanism: release.NameZCDP}, Delta: 1e-6}, "needs rho"},
		"both":                  {Ask{Line: gauss(1), Delta: 1e-6, Epsilon: 1}, "nothing is asked"},
		"delta of one":          {Ask{Line: gauss(1), Delta: 1}, "delta is 1"},
		"negative delta":        {Ask{Line: gauss(1), Delta: -0.5}, "delta is -0.5"},
		"NaN delta":             {Ask{Line: gauss(1), Delta: math.NaN()}, "delta is NaN"},
		"NaN epsilon":           {Ask{Line: gauss(1), Epsilon: math.NaN()}, "epsilon is NaN"},
		"no sigma":              {Ask{Line: Line{Mechanism: release.NameGaussian}, Delta: 1e-6}, "needs sigma"},
		"negative sigma":        {Ask{Line: gauss(-1), Delta: 1e-6}, "sigma is -1"},
		"infinite sigma":        {Ask{Line: gauss(math.Inf(1)), Delta: 1e-6}, "sigma is +Inf"},
		"sigma of laplace":      {Ask{Line: Line{Mechanism: release.NameLaplace, Sigma: 1, Scale: 1}, Delta: 1e-6}, "takes no sigma"},
		"k of gaussian":         {Ask{Line: Line{Mechanism: release.NameGaussian, Sigma: 1, K: 3}, Delta: 1e-6}, "number of answers"},
		"one answer":            {Ask{Line: Line{Mechanism: release.NameResponse, Epsilon0: 1, K: 1}, Delta: 1e-6}, "says nothing"},
		"sensitivity of rr":     {Ask{Line: Line{Mechanism: release.NameResponse, Epsilon0: 1, Sensitivity: 2}, Delta: 1e-6}, "no sensitivity"},
		"half a count":          {Ask{Line: Line{Mechanism: release.NameDiscreteGaussian, Sigma: 3, Sensitivity: 0.5}, Delta: 1e-6}, "whole numbers"},
		"rate above one":        {Ask{Line: Line{Mechanism: release.NameGaussian, Sigma: 1, Sampling: 1.5}, Delta: 1e-6}, "sampling rate"},
		"allocation":            {Ask{Line: Line{Mechanism: release.NameGaussian, Sigma: 1, Picks: 3, Of: 2}, Delta: 1e-6}, "3 of 2"},
		"public zero-out":       {Ask{Line: sampled, Count: CountPublic, Neighbours: release.ZeroOut, Delta: 1e-6}, "single that person out"},
		"public check-in":       {Ask{Line: gauss(5), CheckIn: release.FixedWindow, Window: 9, Neighbours: release.ReplaceOne, Delta: 1e-6}, "presence only"},
		"too many outcomes":     {Ask{Line: Line{Mechanism: release.NameDiscreteGaussian, Sigma: 1e6, Sampling: 0.1}, Delta: 1e-6}, "too many outcomes"},
		"public allocation":     {Ask{Line: allocated, Count: CountPublic, Delta: 1e-6}, "single that person out"},
		"public add-remove":     {Ask{Line: gauss(1), Count: CountPublic, Neighbours: release.AddRemove, Delta: 1e-6}, "differ in the count"},
		"public list":           {Ask{Lines: []Line{allocated}, Count: CountPublic, Delta: 1e-6}, "while the count"},
		"hidden population":     {Ask{Line: gauss(1), Population: 5, Delta: 1e-6}, "population"},
		"sampled, and hidden":   {Ask{Line: sampled, Population: 5, Delta: 1e-6}, "while the count is public"},
		"unknown count":         {Ask{Line: gauss(1), Count: "vague", Delta: 1e-6}, "the count is"},
		"replaced allocation":   {Ask{Line: allocated, Neighbours: release.ReplaceOne, Delta: 1e-6}, "allocation"},
		"replaced, at a rate":   {Ask{Line: Line{Mechanism: release.NameResponse, Epsilon0: 1, Sampling: 0.1, Picks: 1, Of: 9}, Delta: 1e-6}, "presence only"},
		"shuffled gaussian":     {Ask{Line: gauss(1), ShuffleN: 100, Delta: 1e-6}, "pure local privacy"},
		"shuffled zero-out":     {Ask{Line: rr, ShuffleN: 100, Neighbours: release.ZeroOut, Delta: 1e-6}, "no shuffling theorem"},
		"shuffled by rdp":       {Ask{Line: rr, ShuffleN: 100, Method: accountant.RDP, Delta: 1e-6}, "does not cover"},
		"formula for delta":     {Ask{Line: rr, ShuffleN: 100, Method: accountant.ClosedForm, Epsilon: 0.5}, "epsilon at a delta"},
		"sampled and shuffled":  {Ask{Line: Line{Mechanism: release.NameResponse, Epsilon0: 1, Sampling: 0.1}, ShuffleN: 100, Delta: 1e-6}, "their number shows"},
		"check-in of nothing":   {Ask{Line: rr, CheckIn: release.FixedWindow, Delta: 1e-6}, "number of slots"},
		"window alone":          {Ask{Line: rr, Window: 5, Delta: 1e-6}, "for check-ins"},
		"average of whom":       {Ask{Line: rr, CheckIn: release.AveragedWindow, Window: 5, Delta: 1e-6}, "number of people"},
		"averaged gaussian":     {Ask{Line: gauss(1), CheckIn: release.AveragedWindow, Window: 5, ShuffleN: 9, Delta: 1e-6}, "pure local privacy"},
		"check-in and sample":   {Ask{Line: sampled, CheckIn: release.FixedWindow, Window: 5, Delta: 1e-6}, "do not combine"},
		"ldp of servers":        {Ask{Line: gauss(1), LDP: Deletion, Delta: 1e-6}, "no report of a device"},
		"ldp against relation":  {Ask{Line: rr, LDP: Deletion, Neighbours: release.ReplaceOne, Delta: 1e-6}, "contradict"},
		"servers of devices":    {Ask{Line: rr, Honest: 2, Delta: 1e-6}, "two servers add noise to sums"},
		"three honest servers":  {Ask{Line: gauss(1), Honest: 3, Delta: 1e-6}, "honest servers"},
		"solve for nothing":     {Ask{Line: gauss(1), Solve: "wisdom", Epsilon: 1, Delta: 1e-6}, "cannot solve"},
		"solve without epsilon": {Ask{Line: gauss(0), Solve: SolveSigma, Delta: 1e-6}, "needs epsilon and delta"},
		"solve what is given":   {Ask{Line: gauss(1), Solve: SolveSigma, Epsilon: 1, Delta: 1e-6}, "both given"},
		"sigma of rr":           {Ask{Line: rr, Solve: SolveSigma, Epsilon: 1, Delta: 1e-6}, "takes no sigma"},
		"no step is enough":     {Ask{Line: gauss(1), Solve: SolveSteps, Epsilon: 0.1, Delta: 1e-6}, "one step alone"},
		"no rate is enough":     {Ask{Line: gauss(0.5), Solve: SolveSampling, Epsilon: 1e-6, Delta: 1e-12}, "no sampling rate"},
		"beside a list":         {Ask{Line: rr, Lines: []Line{rr}, Delta: 1e-6}, "beside a list"},
		"shuffled list":         {Ask{Lines: []Line{rr}, ShuffleN: 5, Delta: 1e-6}, "do not go with"},
		"bad list":              {Ask{Lines: []Line{{Mechanism: release.NameGaussian}}, Delta: 1e-6}, "event 1: gaussian needs sigma"},
		"zcdp by rr":            {Ask{Line: rr, Method: "guess", Delta: 1e-6}, "guess"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := c.q.Answer()
			var refused *Error
			if !errors.As(err, &refused) {
				t.Fatalf("answered %+v, %v; want a refusal", a, err)
			}
			if !strings.Contains(err.Error(), c.want) || refused.Hint == "" {
				t.Errorf("error %q, hint %q; want %q in the error, and a hint", err, refused.Hint, c.want)
			}
		})
	}
}

func answer(t *testing.T, q Ask) *Answer {
	t.Helper()
	a, err := q.Answer()
	if err != nil {
		t.Fatalf("%+v: %v", q, err)
	}
	return a
}

// TestPublicCount: with a public count, the claim is never below what sampling without
// replacement at a sure size gives, holds at distance 2C, and approaches it as the
// population grows.
func TestPublicCount(t *testing.T) {
	const q, delta = 0.02, 1e-8
	r := gauss(5.1)
	r.Sampling = q
	sure := release.One(release.Gaussian{Sigma: 5.1, Contribution: release.Signed(1)}).Sampled(release.Fixed{Rate: q})
	want, err := accountant.Epsilon([]release.Release{sure}, delta, release.ReplaceOne)
	if err != nil {
		t.Fatal(err)
	}
	last := math.Inf(1)
	for _, people := range []uint64{1e4, 1e6, 1e9} {
		a := answer(t, Ask{Line: r, Count: CountPublic, Population: people, Delta: delta})
		if a.Neighbours != release.ReplaceOne || a.Epsilon < want.EpsilonLower || a.Epsilon > last {
			t.Errorf("%d people: %v; a sure size gives %v", people, a.Guarantee, want.Epsilon)
		}
		last = a.Epsilon
		// Asked the other way round.
		b := answer(t, Ask{Line: r, Count: CountPublic, Population: people, Epsilon: a.Epsilon})
		if b.Delta < 0.9*delta || b.Delta > 1.5*delta {
			t.Errorf("%d people: delta %v at epsilon %v, want about %v", people, b.Delta, a.Epsilon, delta)
		}
	}
	if last > 1.01*want.Epsilon {
		t.Errorf("a thousand million people give %v, a sure size %v", last, want.Epsilon)
	}
	hidden := answer(t, Ask{Line: r, Delta: delta})
	if hidden.Epsilon >= want.Epsilon {
		t.Errorf("hiding the count gives %v, no better than showing it: %v", hidden.Epsilon, want.Epsilon)
	}
	plain := answer(t, Ask{Line: gauss(5.1), Count: CountPublic, Delta: delta})
	r.Steps = 100
	many := answer(t, Ask{Line: r, Count: CountPublic, Population: 1e6, Delta: delta})
	plain100 := answer(t, Ask{Line: Line{Mechanism: release.NameGaussian, Sigma: 5.1, Steps: 100}, Count: CountPublic, Delta: delta})
	if plain.Epsilon < want.Epsilon || many.Epsilon > plain100.Epsilon || many.Epsilon < last {
		t.Errorf("one release of all %v, of a sample %v; a hundred %v and %v", plain.Epsilon, last, plain100.Epsilon, many.Epsilon)
	}
}

// TestShuffledSamples is example 6 of paper 000, as far as a public count allows it.
func TestShuffledSamples(t *testing.T) {
	r := Line{Mechanism: release.NameResponse, Epsilon0: 4}
	one := answer(t, Ask{Line: r, ShuffleN: 10000, Delta: 1e-10})
	r.Sampling = 0.02
	a := answer(t, Ask{Line: r, ShuffleN: 10000, Count: CountPublic, Delta: 0.02 * 1e-10})
	// 10,000 of 500,000, less one for the arithmetic.
	if want := math.Log1p(0.02 * math.Expm1(one.Epsilon)); a.Epsilon > want*(1+1e-5) || a.Epsilon < 0.9*want {
		t.Errorf("epsilon %v, want at most and nearly %v", a.Epsilon, want)
	}
}

// TestMonotone: less noise, more steps, a larger sample and a smaller delta never help.
func TestMonotone(t *testing.T) {
	base := Line{Mechanism: release.NameGaussian, Sigma: 2, Sampling: 0.1, Steps: 10}
	more := func(change func(*Ask)) Ask {
		q := Ask{Line: base, Delta: 1e-6}
		change(&q)
		return q
	}
	epsilon := answer(t, Ask{Line: base, Delta: 1e-6}).Epsilon
	for name, q := range map[string]Ask{
		"noise":       more(func(q *Ask) { q.Sigma = 1.9 }),
		"steps":       more(func(q *Ask) { q.Steps = 11 }),
		"sampling":    more(func(q *Ask) { q.Sampling = 0.11 }),
		"delta":       more(func(q *Ask) { q.Delta = 5e-7 }),
		"sensitivity": more(func(q *Ask) { q.Sensitivity = 1.05 }),
		"relation":    more(func(q *Ask) { q.Neighbours = release.ReplaceOne }),
		"rdp":         more(func(q *Ask) { q.Method = accountant.RDP }),
	} {
		if a := answer(t, q); a.Epsilon < epsilon*(1+1e-3) {
			t.Errorf("%s: epsilon %v, and %v without", name, a.Epsilon, epsilon)
		}
	}
	if two := answer(t, more(func(q *Ask) { q.Honest = 2 })); two.Epsilon > epsilon {
		t.Errorf("two honest servers give %v, one %v", two.Epsilon, epsilon)
	}
	// A sample of everybody is no sample.
	all := answer(t, more(func(q *Ask) { q.Sampling = 1 }))
	none := answer(t, more(func(q *Ask) { q.Sampling = 0 }))
	if all.Guarantee != none.Guarantee || len(all.Assumptions) != 1 {
		t.Errorf("a sample of all gives %v under %v, everybody %v", all.Guarantee, all.Assumptions, none.Guarantee)
	}
}

// TestRAPPOR: flipping with probability 1/(e^e0+1) costs twice as much under replacement.
func TestRAPPOR(t *testing.T) {
	r := Line{Mechanism: release.NameRAPPOR, Epsilon0: 1.5, K: 100}
	const none = 1e-300
	deletion := answer(t, Ask{Line: r, LDP: Deletion, Delta: none})
	replacement := answer(t, Ask{Line: r, LDP: Replacement, Delta: none})
	implied := answer(t, Ask{Line: r, Delta: none})
	if math.Abs(deletion.Epsilon-1.5) > 1e-9 || math.Abs(replacement.Epsilon-3) > 1e-9 || implied.Guarantee != replacement.Guarantee {
		t.Errorf("deletion %v, replacement %v, by default %v", deletion.Guarantee, replacement.Guarantee, implied.Guarantee)
	}
	if deletion.Neighbours != release.ZeroOut || replacement.Neighbours != release.ReplaceOne {
		t.Errorf("deletion is about %v, replacement about %v", deletion.Neighbours, replacement.Neighbours)
	}
}

// with puts a value in the place of what is asked for.
func (a Ask) with(p Parameter, x float64) Ask {
	switch p {
	case SolveSigma:
		a.Sigma = x
	case SolveScale:
		a.Scale = x
	case SolveSampling:
		a.Sampling = x
	case SolveSteps:
		a.Steps = uint64(x)
	}
	a.Solve, a.Epsilon = "", 0
	return a
}

// TestSolutions: what is solved for holds, and a little less does not.
func TestSolutions(t *testing.T) {
	for name, c := range map[string]struct {
		q     Ask
		worse func(x float64) float64
	}{
		"sigma": {Ask{Line: Line{Mechanism: release.NameGaussian, Sampling: 0.05, Steps: 50}, Solve: SolveSigma, Epsilon: 0.5, Delta: 1e-7},
			func(x float64) float64 { return x * 0.998 }},
		"discrete sigma": {Ask{Line: Line{Mechanism: release.NameDiscreteGaussian, Steps: 7}, Solve: SolveSigma, Epsilon: 0.5, Delta: 1e-7},
			func(x float64) float64 { return x * 0.9999 }},
		"replaced sigma": {Ask{Line: Line{Mechanism: release.NameGaussian}, Neighbours: release.ReplaceOne, Solve: SolveSigma, Epsilon: 0.5, Delta: 1e-7},
			func(x float64) float64 { return x * 0.9999 }},
		"scale": {Ask{Line: Line{Mechanism: release.NameDiscreteLaplace, Steps: 3}, Solve: SolveScale, Epsilon: 0.5, Delta: 1e-7},
			func(x float64) float64 { return x * 0.998 }},
		"sampling": {Ask{Line: Line{Mechanism: release.NameGaussian, Sigma: 4, Steps: 100}, Solve: SolveSampling, Epsilon: 0.5, Delta: 1e-7},
			func(x float64) float64 { return x * 1.002 }},
		"public sampling": {Ask{Line: gauss(4), Count: CountPublic, Solve: SolveSampling, Epsilon: 0.5, Delta: 1e-7},
			func(x float64) float64 { return x * 1.002 }},
		"steps": {Ask{Line: Line{Mechanism: release.NameGaussian, Sigma: 40}, Solve: SolveSteps, Epsilon: 1, Delta: 1e-7},
			func(x float64) float64 { return x + 1 }},
		"shuffled steps": {Ask{Line: Line{Mechanism: release.NameResponse, Epsilon0: 1}, ShuffleN: 10000, Solve: SolveSteps, Epsilon: 0.5, Delta: 1e-7},
			func(x float64) float64 { return x + 1 }},
		"allocated steps": {Ask{Line: Line{Mechanism: release.NameGaussian, Sigma: 2, Picks: 1, Of: 20}, Solve: SolveSteps, Epsilon: 2, Delta: 1e-6},
			func(x float64) float64 { return x + 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := answer(t, c.q)
			if a.Epsilon > c.q.Epsilon || a.Delta > c.q.Delta {
				t.Fatalf("the answer gives %v", a.Guarantee)
			}
			if b := answer(t, c.q.with(c.q.Solve, a.Solved)); b.Epsilon > c.q.Epsilon*(1+1e-9) {
				t.Errorf("asked again, the answer gives %v", b.Guarantee)
			}
			// The answer's own question, asked for epsilon, is the same.
			again := a.Question
			again.Solve, again.Epsilon = "", 0
			if b, err := again.Answer(); err != nil || b.Epsilon > c.q.Epsilon*(1+1e-9) {
				t.Errorf("the answered question gives %v, %v", b, err)
			}
			if b := answer(t, c.q.with(c.q.Solve, c.worse(a.Solved))); b.Epsilon <= c.q.Epsilon {
				t.Errorf("%v would have done: %v", c.worse(a.Solved), b.Guarantee)
			}
		})
	}
}

func TestEvents(t *testing.T) {
	list, err := ReadEvents(strings.NewReader(`[
		{"mechanism": "gaussian", "sigma": 5.1, "sampling": 0.02, "count": 2500},
		{"mechanism": "discrete-laplace", "scale": 20, "steps": 3, "count": 2},
		{"mechanism": "gaussian", "sigma": 4, "allocation": "1/10"},
		{"mechanism": "approx-dp", "epsilon": 0.1, "delta": 1e-10}]`))
	if err != nil {
		t.Fatal(err)
	}
	if list[0].Steps != 2500 || list[1].Steps != 6 || list[2].Of != 10 || list[3].Epsilon != 0.1 {
		t.Fatalf("read %+v", list)
	}
	a := answer(t, Ask{Lines: list, Delta: 1e-8})
	first := answer(t, Ask{Line: list[0], Delta: 1e-8})
	if a.Epsilon < first.Epsilon+0.1 || a.EpsilonLower > a.Epsilon || a.Method != "pld" {
		t.Errorf("all events give %v, the first alone %v", a.Guarantee, first.Guarantee)
	}
	// One kind of event in a list is that event, and the order does not matter.
	same := answer(t, Ask{Lines: list[:1], Delta: 1e-8})
	if same.Guarantee != first.Guarantee {
		t.Errorf("in a list %v, by itself %v", same.Guarantee, first.Guarantee)
	}
	for name, text := range map[string]string{
		"nothing":       "",
		"no list":       `{"mechanism": "gaussian"}`,
		"empty":         "[]",
		"unknown key":   `[{"mechanism": "gaussian", "sigma": 1, "simga": 2}]`,
		"two lists":     `[{"mechanism": "gaussian", "sigma": 1}] []`,
		"none of it":    `[{"mechanism": "gaussian", "sigma": 1, "count": 0}]`,
		"too many":      `[{"mechanism": "gaussian", "sigma": 1, "count": 99999999999999}]`,
		"overflow":      `[{"mechanism": "gaussian", "sigma": 1, "steps": 9223372036854775808, "count": 2}]`,
		"negative":      `[{"mechanism": "gaussian", "sigma": 1, "count": -1}]`,
		"allocation":    `[{"mechanism": "gaussian", "sigma": 1, "allocation": "5/3"}]`,
		"no allocation": `[{"mechanism": "gaussian", "sigma": 1, "allocation": "half"}]`,
		"long":          "[" + strings.Repeat(" ", MaxEventsBytes) + "]",
		"many":          "[" + strings.Repeat(`{"mechanism":"rr","epsilon0":1},`, MaxEvents) + `{"mechanism":"rr","epsilon0":1}]`,
	} {
		var refused *Error
		if list, err := ReadEvents(strings.NewReader(text)); !errors.As(err, &refused) || refused.Hint == "" {
			t.Errorf("%s: read %v, %v; want a refusal with a hint", name, list, err)
		}
	}
}

func TestJSON(t *testing.T) {
	b, err := json.Marshal(answer(t, Ask{Line: gauss(5.1), Delta: 1e-8}))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{"delta": 1e-8, "method": "closed-form", "neighbours": "add-remove", "count": "hidden"} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
	if low, high := got["epsilon_lower"].(float64), got["epsilon"].(float64); !(low <= high && low > 1 && high < 1.0001) {
		t.Errorf("epsilon is %v to %v", low, high)
	}
	if got["theorem"] == "" || got["sigma"] != nil {
		t.Errorf("%s", b)
	}
	b, err = json.Marshal(answer(t, Ask{Solve: SolveSigma, Line: Line{Mechanism: release.NameGaussian}, Epsilon: 1, Delta: 1e-8}))
	if err != nil || !strings.Contains(string(b), `"sigma":5.1003`) {
		t.Errorf("%s, %v: want sigma", b, err)
	}
}

// TestRationals: fractions are below, and near.
func TestRationals(t *testing.T) {
	for _, x := range []float64{0.5, 0.7, 1, 5.1, 10, 1e6 / 7, 1 << 30} {
		for power := 1; power <= 2; power++ {
			want := math.Pow(x, float64(power))
			if got := below(x, power).Float(); got > want*(1+4e-16) || got < want*(1-1e-12) {
				t.Errorf("%v^%d is %v, want %v or a little less", x, power, got, want)
			}
		}
	}
	if got := below(10, 2); got != (release.Rational{Num: 100, Den: 1}) {
		t.Errorf("10^2 is %v", got)
	}
}

func TestSixDigits(t *testing.T) {
	for _, c := range []struct {
		x         float64
		up, below string
	}{
		{1e-8, "1e-08", "1e-08"}, {1.00000001, "1.00001", "1"}, {1.23456789, "1.23457", "1.23456"}, {123456.5, "123457", "123456"},
		{0.02, "0.02", "0.02"}, {0, "0", "0"}, {0.3, "0.3", "0.3"},
	} {
		if above(c.x) != c.up || below6(c.x) != c.below {
			t.Errorf("%v is written %s and %s, want %s and %s", c.x, above(c.x), below6(c.x), c.up, c.below)
		}
	}
}

// Looking for a number of steps computes a point of one step's curve once, and far fewer
// than there are trials: k-ary curves are slow. What is found holds.
func TestLadder(t *testing.T) {
	asked := map[float64]int{}
	l := &ladder{known: map[int]release.Guarantee{}, delta: func(e float64) (release.Guarantee, error) {
		asked[e]++
		return release.Guarantee{Epsilon: e, Delta: math.Exp(-e * e * 1e4)}, nil
	}}
	for i := range 200 {
		delta := 1e-8 / (1e4 * (1 + 1e-7*float64(i)))
		g, err := l.epsilon(delta)
		want := math.Sqrt(-math.Log(delta) / 1e4)
		if err != nil || g.Delta > delta || !(g.Epsilon >= want && g.Epsilon <= 1.0006*want) {
			t.Fatalf("at %v: %v, %v; want epsilon %v", delta, g, err, want)
		}
	}
	if len(asked) > 25 {
		t.Errorf("%d points were computed for nearly the same question", len(asked))
	}
	for e, n := range asked {
		if n > 1 {
			t.Errorf("%d times at %v", n, e)
		}
	}
	if g, err := l.epsilon(0); err != nil && !errors.Is(err, release.ErrNoGuarantee) || err == nil && g.Delta > 0 {
		t.Errorf("at delta 0: %v, %v", g, err)
	}
}

// The noise of both servers, whatever its law, is worth more than one's, and no more than
// the better of two guesses.
func TestTwoServers(t *testing.T) {
	for name, r := range map[string]Line{
		"laplace": {Mechanism: release.NameLaplace, Scale: 4}, "discrete laplace": {Mechanism: release.NameDiscreteLaplace, Scale: 3},
		"narrow": {Mechanism: release.NameDiscreteGaussian, Sigma: 0.8}, "wide": {Mechanism: release.NameDiscreteGaussian, Sigma: 5}, "gaussian": {Mechanism: release.NameGaussian, Sigma: 2},
	} {
		for _, rate := range []float64{0, 0.05} {
			for _, steps := range []uint64{1, 20} {
				r.Sampling, r.Steps = rate, steps
				one := answer(t, Ask{Line: r, Delta: 1e-6})
				two := answer(t, Ask{Line: r, Delta: 1e-6, Honest: 2})
				if !(two.Epsilon < one.Epsilon && two.Epsilon > one.Epsilon/3 && two.EpsilonLower > two.Epsilon*0.99) {
					t.Errorf("%s at rate %v, %d steps: %v to %v for two, %v for one", name, rate, steps, two.EpsilonLower, two.Epsilon, one.Epsilon)
				}
			}
		}
	}
}
