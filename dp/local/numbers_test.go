package local

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/sketch"
)

// What a rounding says of every number, over all of its draws: a value next to where the
// number lies, never 0, the number itself on average, and 1 of variance at most.
func TestRoundingLaw(t *testing.T) {
	for _, c := range []struct {
		largest uint64
		m       int
	}{{1, 1}, {2, 1}, {5, 1}, {5, 2}, {7, 3}, {4, 4}, {6, 3}} {
		r := must(NewRounding(c.largest, c.m))(t)
		for number := -int64(c.largest); number <= int64(c.largest); number++ {
			l := lawOf(t, r, []draw{die(int(c.largest)), die(2)}, func(r *Rounding) any { return must(r.Randomize(number))(t) })
			at := float64(number) * float64(c.m) / float64(c.largest)
			value := func(key string) float64 { return float64(wholeOf(t, key)) }
			for key := range l {
				v := value(key)
				if v == 0 || math.Abs(v) > float64(c.m) || math.Abs(v-at) >= 1 && math.Abs(at) >= 1 || math.Abs(at) < 1 && math.Abs(v) != 1 {
					t.Errorf("%d of %d is rounded to %v of %d", number, c.largest, v, c.m)
				}
			}
			first, variance := mean(l, value)
			near(t, fmt.Sprintf("%d of %d to %d", number, c.largest, c.m), first, at, 1e-12)
			if !(variance <= 1+1e-12) || number != 0 && uint64(c.m) == c.largest && variance != 0 {
				t.Errorf("%d of %d has variance %v", number, c.largest, variance)
			}
		}
		for _, number := range []int64{int64(c.largest) + 1, -int64(c.largest) - 1, math.MinInt64, math.MaxInt64} {
			if _, err := r.Randomize(number); !errors.Is(err, ErrParameter) {
				t.Errorf("%d of %d: %v", number, c.largest, err)
			}
		}
	}
	for _, c := range []struct {
		largest uint64
		m       int
	}{{0, 1}, {1, 0}, {1, 2}, {1<<33 + 1, 1}, {1 << 30, 1<<16 + 1}, {5, -1}} {
		if _, err := NewRounding(c.largest, c.m); !errors.Is(err, ErrParameter) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if v, err := must(NewRounding(1<<33, 1<<16))(t).Randomize(-1 << 33); v != -1<<16 || err != nil {
		t.Errorf("the largest: %d, %v", v, err)
	}
}

func wholeOf(t *testing.T, key string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(key, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Half of all nonces ask for the group alone, others under another recipe: of 4,096 nonces
// no count is 5.5 deviations off, which two fair ones are with probability 8e-8. The first
// are frozen: devices and analyzers of other versions must agree.
func TestOfSize(t *testing.T) {
	const n = 4096
	var sizes, differ int
	first := ""
	for i := range n {
		q := queryOf(i)
		other := q
		other.Recipe[7] = 9
		if q.OfSize() {
			sizes++
		}
		if q.OfSize() != other.OfSize() {
			differ++
		}
		if i < 24 {
			first += map[bool]string{true: "1", false: "0"}[q.OfSize()]
		}
	}
	for _, x := range []int{sizes, differ} {
		if off := math.Abs(float64(x)-n/2) / math.Sqrt(n/4); off > 5.5 {
			t.Errorf("%d of %d", x, n)
		}
	}
	if want := "010110101001000110100011"; first != want {
		t.Errorf("the first nonces ask %s, want %s", first, want)
	}
}

// A crowd is devices that are asked for their numbers.
type crowd struct {
	GroupNumbers
	numbers []int64
	groups  []int
}

// crowdOf is of n devices in groups of which each has half as many as the one before.
func crowdOf(a GroupNumbers, n int, number func(i, g int) int64) crowd {
	c := crowd{GroupNumbers: a}
	for i := range n {
		g := 0
		for j := i; j&1 == 1 && g < a.Groups-1; j >>= 1 {
			g++
		}
		c.groups, c.numbers = append(c.groups, g), append(c.numbers, number(i, g))
	}
	return c
}

// truth is sum and size of each group, and of all.
func (c *crowd) truth() (sums, sizes []float64) {
	sums, sizes = make([]float64, c.Groups+1), make([]float64, c.Groups+1)
	for i, g := range c.groups {
		for _, at := range []int{g, c.Groups} {
			sums[at] += float64(c.numbers[i])
			sizes[at]++
		}
	}
	return sums, sizes
}

// off is by how many standard errors, at worst, the means of estimates are, how far their
// squared errors are from the stated variances, as a factor, at least and at most, and how
// many standard errors the covariances are.
type off struct{ mean, low, high, covariance float64 }

// check plays collections by ask, which returns the moments of one, and compares.
func (c *crowd) check(t *testing.T, collections int, ask func(i int) []sketch.GroupMoments) off {
	t.Helper()
	sums, sizes := c.truth()
	cells := make([]errorSum, 2*(c.Groups+1))
	product, stated, spread := make([]float64, c.Groups), make([]float64, c.Groups), make([]float64, c.Groups)
	for i := range collections {
		for g, m := range ask(i) {
			cells[2*g].add(m.Sum, sums[g], m.SumVariance)
			if g < c.Groups && c.Sizes {
				cells[2*g+1].add(m.Size, sizes[g], m.SizeVariance)
				product[g] += (m.Sum - sums[g]) * (m.Size - sizes[g])
				stated[g] += m.Covariance
				spread[g] += m.SumVariance * m.SizeVariance
			}
		}
	}
	worst := off{low: math.Inf(1)}
	for _, e := range cells {
		if e.n == 0 {
			continue
		}
		worst.mean = max(worst.mean, math.Abs(e.first)/math.Sqrt(e.second))
		worst.low, worst.high = min(worst.low, e.second/e.variance), max(worst.high, e.second/e.variance)
	}
	for g := range product {
		if c.Sizes {
			worst.covariance = max(worst.covariance, math.Abs(product[g]-stated[g])/math.Sqrt(2*spread[g]))
		}
	}
	return worst
}

// byQuestion asks all of a crowd by question & answer, of which q is what is estimated by
// and draws what is drawn.
func (c *crowd) byQuestion(t *testing.T, q, draws, size *Question, r *Rounding) func(i int) []sketch.GroupMoments {
	return func(run int) []sketch.GroupMoments {
		sum, sizes := q.NewSum(), size.NewSum()
		for i, g := range c.groups {
			query := queryOf(run*len(c.groups) + i)
			if c.Sizes && query.OfSize() {
				column := must(size.Randomize(query, g, 1))(t)
				if err := size.Add(sizes, query, column); err != nil {
					t.Fatal(err)
				}
				continue
			}
			column := must(draws.Randomize(query, g, must(r.Randomize(c.Rounded(c.numbers[i])))(t)))(t)
			if err := q.Add(sum, query, column); err != nil {
				t.Fatal(err)
			}
		}
		if !c.Sizes {
			sizes = nil
		}
		return momentsOf(t, sum, sizes, c.Scale(q.m))
	}
}

func (c *crowd) byRandomGroup(t *testing.T, l, draws *RandomGroup, r *Rounding) func(i int) []sketch.GroupMoments {
	return func(int) []sketch.GroupMoments {
		sum := l.NewSum()
		for i, g := range c.groups {
			group, value, err := draws.Randomize(g, must(r.Randomize(c.Rounded(c.numbers[i])))(t))
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Add(sum, group, value); err != nil {
				t.Fatal(err)
			}
		}
		return momentsOf(t, sum, nil, c.Scale(l.m))
	}
}

func momentsOf(t *testing.T, sum, sizes *GroupSum, of GroupScale) []sketch.GroupMoments {
	t.Helper()
	each, all, err := sum.Moments(sizes, of)
	if err != nil {
		t.Fatal(err)
	}
	return append(each, all)
}

// 400 collections of 240 devices, or 1,600 of 120: sums, sizes and the sum of all are right on average, to
// 6 standard errors; where all of a group have one number, squared errors are as stated,
// and else at most and no less than half, each to what 400 have by chance (6 deviations
// of a mean square, whose fourth moment is at most a quarter above a normal one's); and the
// covariances are. In all 130 figures at 6 deviations are a false alarm below 1e-6. Lies
// that are half as frequent as is estimated by are seen.
func TestMoments(t *testing.T) {
	for i, c := range []struct {
		a       GroupNumbers
		m       int
		epsilon float64
		random  bool
		same    bool // all of a group have one number
	}{
		{GroupNumbers{3, -5, 5, false}, 2, 1, false, true},
		{GroupNumbers{2, 0, 20, true}, 1, 1.5, false, true},
		{GroupNumbers{3, -20, 7, true}, 3, 3, false, false},
		{GroupNumbers{3, 0, 20, true}, 1, 2, true, true},
		{GroupNumbers{2, 4, 9, true}, 2, 3, true, false},
		{GroupNumbers{4, -3, 3, false}, 3, 2, true, false},
		{GroupNumbers{2, 0, 20, true}, 1, 12, false, true}, // hardly any lies
	} {
		collections, devices := 400, 240
		if c.epsilon > 10 {
			collections, devices = 1600, 120
		}
		slack := 6 * math.Sqrt(2.25/float64(collections))
		x := crowdOf(c.a, devices, func(i, g int) int64 {
			if c.same {
				i = g
			}
			return c.a.Min + int64(uint64(i*7+g*5)%uint64(c.a.Max-c.a.Min+1))
		})
		r := seeded(must(NewRounding(c.a.Largest(), c.m))(t), byte(10*i))
		var right, wrong off
		if c.random {
			p := must(PlanNumbers(c.a, ByRandomGroup, c.epsilon, c.m))(t)
			l := must(NewRandomGroup(c.a.Groups, c.m, p.Stray, p.Lie))(t)
			draws, rare := seeded(l, byte(10*i+1)), seeded(l, byte(10*i+2))
			gamma := *rare.gamma
			gamma.lie -= gamma.lie / 2
			rare.gamma = &gamma
			right, wrong = x.check(t, collections, x.byRandomGroup(t, l, draws, r)), x.check(t, collections, x.byRandomGroup(t, l, rare, r))
		} else {
			q := must(NewQuestion(c.a.Groups, c.m, c.epsilon))(t)
			size := seeded(must(NewQuestion(c.a.Groups, 1, c.epsilon))(t), byte(10*i+3))
			draws, rare := seeded(q, byte(10*i+1)), seeded(q, byte(10*i+2))
			rare.response.lie -= rare.response.lie / 2
			right, wrong = x.check(t, collections, x.byQuestion(t, q, draws, size, r)), x.check(t, collections, x.byQuestion(t, q, rare, size, r))
		}
		least := 0.5
		if c.same {
			least = 0.95
		}
		if right.mean > 6 || right.covariance > 6 || right.high > 1.05*(1+slack) || right.low < least*(1-slack) {
			t.Errorf("%+v: %+v", c, right)
		}
		if c.epsilon < 10 && wrong.mean < 6 && wrong.high < 1.05*(1+slack) {
			t.Errorf("%+v: other lies pass: %+v", c, wrong)
		}
	}
}

// What numbers a sum is read back of is what it was, and numbers of no answers are refused.
func TestReadSum(t *testing.T) {
	q, l := must(NewQuestion(3, 2, 1))(t), must(NewRandomGroup(3, 2, .3, .2))(t)
	asked, named := q.NewSum(), l.NewSum()
	for i := range 40 {
		if err := q.Add(asked, queryOf(i), i%4); err != nil {
			t.Fatal(err)
		}
		if err := l.Add(named, i%3, valueAt(uint64(i%4), 2)); err != nil {
			t.Fatal(err)
		}
	}
	numbers, counts := asked.Numbers(), named.Numbers()
	if again := must(q.ReadSum(40, numbers))(t); fmt.Sprint(again) != fmt.Sprint(asked) || again.Reports() != 40 || len(numbers) != 6 {
		t.Errorf("%v, was %v", again, asked)
	}
	if again := must(l.ReadSum(counts))(t); fmt.Sprint(again) != fmt.Sprint(named) || again.Reports() != 40 || len(counts) != 9 {
		t.Errorf("%v, was %v", again, named)
	}
	bad := func(list []int64, at int, x int64) []int64 {
		list = append([]int64(nil), list...)
		list[at] = x
		return list
	}
	for _, list := range [][]int64{nil, numbers[:5], append(numbers[:6:6], 0), bad(numbers, 0, 81), bad(numbers, 1, -81), bad(numbers, 2, math.MinInt64),
		bad(numbers, 3, 39), bad(numbers, 4, 161), bad(numbers, 5, -1), bad(numbers, 5, math.MaxInt64)} {
		if _, err := q.ReadSum(40, list); !errors.Is(err, ErrParameter) {
			t.Errorf("question: %v: %v", list, err)
		}
	}
	for _, list := range [][]int64{nil, counts[:8], bad(counts, 0, -1), bad(counts, 1, math.MaxInt64), bad(counts, 1, 1), bad(counts, 3, 99), bad(counts, 8, 99)} {
		if _, err := l.ReadSum(list); !errors.Is(err, ErrParameter) {
			t.Errorf("randomized group: %v: %v", list, err)
		}
	}
	one := must(NewQuestion(3, 1, 1))(t)
	if _, err := one.ReadSum(3, []int64{2, 1, 1, 3, 3, 3}); !errors.Is(err, ErrParameter) {
		t.Errorf("3 answers of 1 add up to 2: %v", err)
	}
	if _, err := q.ReadSum(1<<31, numbers); !errors.Is(err, ErrParameter) {
		t.Errorf("too many answers: %v", err)
	}
	// Sizes of another kind, and halves without answers.
	for name, sizes := range map[string]*GroupSum{"of numbers": asked, "of another number of groups": must(NewQuestion(2, 1, 1))(t).NewSum(), "of nobody": one.NewSum()} {
		if _, _, err := asked.Moments(sizes, GroupScale{1, 1}); !errors.Is(err, ErrParameter) {
			t.Errorf("sizes %s: %v", name, err)
		}
	}
	if _, _, err := q.NewSum().Moments(nil, GroupScale{1, 0}); !errors.Is(err, ErrParameter) {
		t.Errorf("of no answers: %v", err)
	}
	if _, _, err := named.Moments(one.NewSum(), GroupScale{1, 1}); !errors.Is(err, ErrParameter) {
		t.Errorf("sizes beside a randomized group: %v", err)
	}
}

// A plan has the m with the least error of all; the randomized group, lies with which group
// and value together are epsilon-LDP, and no other probabilities on a grid do better.
func TestPlanNumbers(t *testing.T) {
	for _, a := range []GroupNumbers{{2, 0, 20, true}, {4, -10, 10, false}, {16, 5, 12, true}, {3, -1, 1, false}} {
		for _, epsilon := range []float64{.1, 1, 3, 6} {
			for _, s := range []GroupScheme{ByQuestion, ByRandomGroup} {
				p := must(PlanNumbers(a, s, epsilon, 0))(t)
				for m := 1; m <= a.MaxLevels(); m++ {
					if other := must(PlanNumbers(a, s, epsilon, m))(t); other.Levels != m || other.weight(a) < p.weight(a) {
						t.Errorf("%+v, %v, epsilon %v: m %d is better than %d", a, s, epsilon, m, p.Levels)
					}
				}
				if s == ByQuestion {
					q := must(NewQuestion(a.Groups, p.Levels, epsilon))(t)
					if e, err := q.Errors(a); err != nil || e != p.Errors || q.Lie() != p.Lie || q.Bits() != p.Bits {
						t.Errorf("%+v: %+v, the question %+v, %v", a, p, e, err)
					}
					continue
				}
				l := must(NewRandomGroup(a.Groups, p.Levels, p.Stray, p.Lie))(t)
				if e := l.Epsilon(Replacement); e > epsilon || e < epsilon-1e-6 {
					t.Errorf("%+v: epsilon %v of %v", a, e, epsilon)
				}
				near(t, "errors of the randomizer", l.Errors(a).Sum/p.Errors.Sum, 1, 1e-9)
				const steps = 40
				for i := 1; i < steps; i++ {
					for j := 1; j < steps; j++ {
						r, err := NewRandomGroup(a.Groups, p.Levels, float64(i)/steps, float64(j)/steps*(1-1/float64(2*p.Levels)))
						if err != nil || r.Epsilon(Replacement) > epsilon {
							continue
						}
						if other := (&NumberPlan{Levels: p.Levels, Errors: r.Errors(a)}); other.weight(a) < p.weight(a)*(1-1e-9) {
							t.Errorf("%+v, epsilon %v: gamma %v, omega %v are better", a, epsilon, r.gamma.lie.float(), r.omega.lie.float())
						}
					}
				}
			}
		}
	}
	// Paper 002, section IV: question & answer for high privacy and many groups, the
	// randomized group for low privacy.
	for _, c := range []struct {
		groups  int
		epsilon float64
		want    GroupScheme
	}{{4, .3, ByQuestion}, {16, 1, ByQuestion}, {4, 2, ByRandomGroup}, {16, 6, ByRandomGroup}} {
		a := GroupNumbers{c.groups, 0, 20, true}
		q, r := must(PlanNumbers(a, ByQuestion, c.epsilon, 0))(t), must(PlanNumbers(a, ByRandomGroup, c.epsilon, 0))(t)
		if (q.Alpha < r.Alpha) != (c.want == ByQuestion) {
			t.Errorf("%+v: alpha %v and %v", c, q.Alpha, r.Alpha)
		}
	}
	// With values as they are and no sizes, alpha is theorem 1's at its worst.
	p := must(PlanNumbers(GroupNumbers{5, -3, 3, false}, ByQuestion, 1, 3))(t)
	near(t, "alpha", p.Alpha, QuestionAlpha(3, 5, p.Lie, 9)+1, 1e-9*p.Alpha)
	var errs []error
	add := func(_ any, err error) { errs = append(errs, err) }
	for _, a := range []GroupNumbers{{1, 0, 1, true}, {1 << 16, 0, 1, true}, {2, 1, 1, true}, {2, 5, 1, true}, {2, math.MinInt64, 0, false}, {2, 0, math.MaxInt64, false}} {
		add(PlanNumbers(a, ByQuestion, 1, 0))
	}
	good := GroupNumbers{2, 0, 5, true}
	add(PlanNumbers(good, 7, 1, 0))
	add(PlanNumbers(good, ByQuestion, 0, 0))
	add(PlanNumbers(good, ByQuestion, math.NaN(), 0))
	add(PlanNumbers(good, ByRandomGroup, 1, -1))
	add(PlanNumbers(good, ByRandomGroup, 1, 6))
	add(QuestionEpsilonBetween(0, .1, 0, 1))
	add(QuestionEpsilonBetween(1, .5, 0, 1))
	add(QuestionEpsilonBetween(1, .1, .6, 1))
	for i, err := range errs {
		if !errors.Is(err, ErrParameter) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// The errors of a plan bound the mean square of what is measured where groups are as large
// as one another, and are no more than double where all have the largest number.
func TestNumberErrors(t *testing.T) {
	const devices = 240
	for i, c := range []struct {
		a      GroupNumbers
		random bool
	}{{GroupNumbers{3, 0, 9, true}, false}, {GroupNumbers{3, 0, 9, true}, true}, {GroupNumbers{3, -4, 4, false}, false}, {GroupNumbers{3, -4, 4, false}, true}} {
		x := crowd{GroupNumbers: c.a}
		for i := range devices {
			x.groups, x.numbers = append(x.groups, i%3), append(x.numbers, c.a.Max)
		}
		r := seeded(must(NewRounding(c.a.Largest(), 2))(t), byte(100+i))
		var ask func(int) []sketch.GroupMoments
		var e NumberErrors
		if c.random {
			p := must(PlanNumbers(c.a, ByRandomGroup, 1.5, 2))(t)
			l := seeded(must(NewRandomGroup(3, 2, p.Stray, p.Lie))(t), byte(110+i))
			ask, e = x.byRandomGroup(t, l, l, r), l.Errors(c.a)
		} else {
			q := seeded(must(NewQuestion(3, 2, 1.5))(t), byte(110+i))
			ask, e = x.byQuestion(t, q, q, seeded(must(NewQuestion(3, 1, 1.5))(t), byte(120+i)), r), must(q.Errors(c.a))(t)
		}
		sums, sizes := x.truth()
		var sum, size, mean, total float64
		const runs = 300
		for run := range runs {
			list := ask(run)
			m := list[0]
			sum += (m.Sum - sums[0]) * (m.Sum - sums[0]) / runs / devices
			size += (m.Size - sizes[0]) * (m.Size - sizes[0]) / runs / devices
			d := m.Sum - float64(c.a.Max)*m.Size
			mean += d * d / runs / devices
			d = list[3].Sum - sums[3]
			total += d * d / runs / devices
		}
		slack := 6 * math.Sqrt(2.25/runs)
		check := func(what string, got, want float64) {
			if got > want*(1+slack) || got < want/2*(1-slack) {
				t.Errorf("%+v: %s has variance %v, at most %v", c, what, got, want)
			}
		}
		check("a sum", sum, e.Sum)
		check("the sum of all", total, e.Total)
		if c.a.Sizes {
			check("a size", size, e.Size)
			check("a mean", mean, e.Mean)
		}
	}
	// On the condition of the tighter bound the lies that it asks for give its epsilon.
	for _, c := range []struct {
		m           int
		least, most float64
	}{{1, .3, .7}, {2, .1, .4}, {3, 0, 1}} {
		l := must(QuestionLieBetween(c.m, .4, c.least, c.most))(t)
		near(t, "epsilon on a condition", must(QuestionEpsilonBetween(c.m, l, c.least, c.most))(t), .4, 1e-9)
	}
	if e := must(QuestionEpsilonBetween(2, 0, 0, 1))(t); !math.IsInf(e, 1) {
		t.Errorf("without lies: %v", e)
	}
}

// TestFewStray: where few answers of 300 name a group that nobody is in, its sum is 0 within
// 1.96 standard errors about as often as is said: of 4,000 sums 3,680 or more, where 3,770
// are expected and fewer have a probability below 1e-6. By what those answers show alone it
// was 82 and 86 in 100.
func TestFewStray(t *testing.T) {
	a, right := GroupNumbers{3, 0, 20, true}, 0
	for _, epsilon := range []float64{6, 8} {
		p := must(PlanNumbers(a, ByRandomGroup, epsilon, 0))(t)
		l := must(NewRandomGroup(a.Groups, p.Levels, p.Stray, p.Lie))(t)
		draws := seeded(l, byte(epsilon))
		right = 0
		for range 2000 {
			sum := l.NewSum()
			for range 300 {
				group, value, err := draws.Randomize(0, p.Levels)
				if err == nil {
					err = l.Add(sum, group, value)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			each, _, err := sum.Moments(nil, GroupScale{Step: 1})
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range each[1:] {
				if math.Abs(x.Sum) <= 1.96*math.Sqrt(x.SumVariance) {
					right++
				}
			}
		}
		if t.Logf("epsilon %v, %d values: %d of 4000", epsilon, 2*p.Levels, right); right < 3680 {
			t.Errorf("epsilon %v: %d of 4000 intervals are right", epsilon, right)
		}
	}
}
