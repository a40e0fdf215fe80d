package local

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"testing"
)

// Reference values: the project's specification of the accounting, section 3; the numbers
// are its rows.
func TestReferenceGroups(t *testing.T) {
	near(t, "55a", must(QuestionLie(1, 1))(t), .2689414, 1e-7)
	near(t, "55b", must(QuestionLie(2, 1))(t), .5246331, 1e-7)
	near(t, "55c", must(QuestionLieBetween(1, .5, .3, .7))(t), .1938517, 1e-7)
	near(t, "55d", must(QuestionLieBetween(2, 1, .1, .4))(t), .1723536, 1e-7)
	near(t, "56a", QuestionAlpha(1, 2, 0, 1), 1, 1e-6)
	near(t, "56b", QuestionAlpha(1, 2, .2689414, 1), 8.3653888, 1e-5) // the lie is given to seven digits only
	near(t, "56b, exact lie", QuestionAlpha(1, 2, 1/(1+math.E), 1), 8.3653888, 1e-6)
	near(t, "56c", QuestionAlpha(2, 3, .2, 2.68), 11.5117355, 1e-6)
	two := [][]float64{{.5, .5}, {.7, .3}}
	near(t, "57a", must(QuestionEpsilon(two, 0))(t), .5108256, 1e-7)
	near(t, "57b", must(QuestionEpsilon(two, .2))(t), .2744368, 1e-7)
	four := [][]float64{{.1, .2, .3, .4}, {.25, .25, .25, .25}}
	near(t, "57c", must(QuestionEpsilon(four, .2))(t), .5798185, 1e-7)
	near(t, "58a", RandomGroupAlpha(1, 2, .3, 0, 1), 1.0408163, 1e-6)
	near(t, "58b", RandomGroupAlpha(2, 3, .4, .1, 2.68), 6.9117160, 1e-6)
	near(t, "59a", must(RandomGroupEpsilon(two, .3, 0))(t), 1.1837701, 1e-7)
	near(t, "59b", must(RandomGroupEpsilon(two, .3, .2))(t), 1.0624092, 1e-7)
	near(t, "59c", must(RandomGroupEpsilon(append(four, []float64{.4, .1, .1, .4}), .4, .1))(t), 1.5173226, 1e-7)
	// A distribution's least lie is that at which it costs what was asked.
	for _, laws := range [][][]float64{two, four} {
		for _, e := range []float64{.05, .2, .4} {
			l := must(QuestionLieFor(laws, e))(t)
			near(t, "lie for distributions", must(QuestionEpsilon(laws, l))(t), e, 1e-11)
		}
	}
	near(t, "no lie needed", must(QuestionLieFor(two, .52))(t), 0, 0)
}

// Question & answer, over all tables of two groups and two or four values.
func TestQuestionLaw(t *testing.T) {
	for _, c := range []struct {
		groups, m int
		lambda    float64
	}{{2, 1, .2}, {3, 1, .4}, {2, 2, .3}, {2, 1, 0}} {
		q := must(NewQuestionLying(c.groups, c.m, c.lambda))(t)
		script := []draw{coin(q.response.lie), die(2*c.m - 1)}
		values := valuesOf(c.m)
		for _, seed := range []byte{0, 1, 2, 3} {
			var laws []law
			for g := range c.groups {
				for _, v := range values {
					l := lawOf(t, q, script, func(q *Question) any { return must(q.Randomize(Query{Recipe: [32]byte{seed}}, g, v))(t) })
					for _, other := range laws {
						if c.lambda > 0 {
							bounded(t, "question", l, other, q.Epsilon(Replacement), false)
						}
					}
					laws = append(laws, l)
				}
			}
		}
		// Mean and variance of one device's estimate are over its lie, here exactly, and
		// its table, here by the law of uniform permutations: the rows are independent,
		// so a wrong row's value is uniform (TestRows holds that).
		r := q.response
		for _, v := range values {
			hit, miss, _ := r.rates()
			first, second := 0.0, 0.0
			for _, said := range values {
				p := miss
				if said == v {
					p = hit
				}
				first += p * float64(said)
				second += p * float64(said*said)
			}
			c2 := q.scale()
			near(t, "question: mean", c2*first, float64(v), 1e-12)
			near(t, "question: variance", c2*c2*(second)-float64(v*v), q.Variance(1, float64(v*v)), 1e-9*c2*c2)
		}
		for _, meanSquare := range []float64{1, meanSquareOf(c.m)} {
			k := float64(c.groups)
			near(t, "question: alpha", k*q.Variance(1/k, meanSquare),
				QuestionAlpha(c.m, c.groups, r.lie.float(), meanSquare), 1e-9)
		}
	}
}

func valuesOf(m int) (values []int) {
	for i := range uint64(2 * m) {
		values = append(values, valueAt(i, m))
	}
	return values
}

func TestRandomGroupLaw(t *testing.T) {
	for _, c := range []struct {
		groups, m    int
		gamma, omega float64
	}{{2, 1, .3, .2}, {3, 2, .4, .1}, {4, 1, .6, .45}} {
		r := must(NewRandomGroup(c.groups, c.m, c.gamma, c.omega))(t)
		script := []draw{coin(r.gamma.lie), die(c.groups - 1), coin(r.omega.lie), die(2*c.m - 1), die(2 * c.m)}
		uniform := law{}
		for g := range c.groups {
			for _, v := range valuesOf(c.m) {
				uniform[fmt.Sprint([]int{g, v})] = big.NewRat(1, int64(2*c.m*c.groups))
			}
		}
		var laws []law
		for g := range c.groups {
			for _, v := range valuesOf(c.m) {
				l := lawOf(t, r, script, func(r *RandomGroup) any {
					a, b, err := r.Randomize(g, v)
					if err != nil {
						t.Fatal(err)
					}
					return []int{a, b}
				})
				for _, other := range laws {
					bounded(t, "randomized group", l, other, r.Epsilon(Replacement), false)
				}
				laws = append(laws, l)
				bounded(t, "randomized group, deletion", l, uniform, r.Epsilon(Deletion), true)
				for h := range c.groups {
					want, held := 0.0, 0.0
					if h == g {
						want, held = float64(v), 1
					}
					estimate := func(key string) GroupEstimate {
						var a, b int
						if _, err := fmt.Sscanf(key, "[%d %d]", &a, &b); err != nil {
							t.Fatal(err)
						}
						sum := r.NewSum()
						if err := r.Add(sum, a, b); err != nil {
							t.Fatal(err)
						}
						return sum.Estimate()[h]
					}
					got, variance := mean(l, func(key string) float64 { return estimate(key).Sum.Value })
					size, spread := mean(l, func(key string) float64 { return estimate(key).Size.Value })
					_, both := mean(l, func(key string) float64 { return estimate(key).Sum.Value + estimate(key).Size.Value })
					covariance, _ := mean(l, func(key string) float64 { return estimate(key).covariance })
					near(t, "randomized group: size", size, held, 1e-12)
					near(t, "randomized group: variance of size", spread, r.gamma.Variance(held), 1e-9)
					near(t, "randomized group: covariance", covariance, (both-variance-spread)/2, 1e-9)
					near(t, "randomized group: mean", got, want, 1e-12)
					near(t, "randomized group: variance", variance, r.Variance(held, float64(v*v)), 1e-9)
				}
			}
		}
		k := float64(c.groups)
		near(t, "randomized group: alpha", k*r.Variance(1/k, 1.7),
			RandomGroupAlpha(c.m, c.groups, r.gamma.lie.float(), r.omega.lie.float(), 1.7), 1e-9)
	}
}

// mixed is the law of an answer whose value has its group's law.
func mixed(values []int, weights []float64, of func(value int) law) law {
	out := law{}
	for i, v := range values {
		w := new(big.Rat).SetFloat64(weights[i])
		for key, p := range of(v) {
			if out[key] == nil {
				out[key] = new(big.Rat)
			}
			out[key].Add(out[key], new(big.Rat).Mul(w, p))
		}
	}
	return out
}

// What hides the group for known laws of the values: the worst answer of every table, and
// of the randomized group.
func TestGroupEpsilon(t *testing.T) {
	for _, laws := range [][][]float64{{{.0625, .9375}, {.5, .5}}, {{.25, .75}, {.75, .25}, {.5, .5}},
		{{.125, .25, .5, .125}, {.25, .25, .25, .25}}} {
		groups, m := len(laws), len(laws[0])/2
		values := valuesOf(m)
		worst := func(of []law) (ratio float64) {
			for g, a := range of {
				for h, b := range of {
					for key := range a {
						if g != h {
							f, _ := new(big.Rat).Quo(a[key], b[key]).Float64()
							ratio = max(ratio, math.Log(f))
						}
					}
				}
			}
			return ratio
		}

		const lambda, gamma, omega = .25, .375, .03125
		q := must(NewQuestionLying(groups, m, lambda))(t)
		found := 0.0
		for seed := range 60 {
			var of []law
			for g := range groups {
				of = append(of, mixed(values, laws[g], func(v int) law {
					return lawOf(t, q, []draw{coin(q.response.lie), die(2*m - 1)}, func(q *Question) any {
						return must(q.Randomize(Query{Recipe: [32]byte{byte(seed)}}, g, v))(t)
					})
				}))
			}
			found = max(found, worst(of))
		}
		near(t, "question", must(QuestionEpsilon(laws, lambda))(t), found, 1e-9)

		r := must(NewRandomGroup(groups, m, gamma, omega))(t)
		script := []draw{coin(r.gamma.lie), die(groups - 1), coin(r.omega.lie), die(2*m - 1), die(2 * m)}
		var of []law
		for g := range groups {
			of = append(of, mixed(values, laws[g], func(v int) law {
				return lawOf(t, r, script, func(r *RandomGroup) any {
					a, b, err := r.Randomize(g, v)
					if err != nil {
						t.Fatal(err)
					}
					return []int{a, b}
				})
			}))
		}
		near(t, "randomized group", must(RandomGroupEpsilon(laws, gamma, omega))(t), worst(of), 1e-9)
	}
	certain := [][]float64{{0, 1}, {.5, .5}}
	for name, e := range map[string]float64{
		"question":             must(QuestionEpsilon(certain, 0))(t),
		"group, all truth":     must(RandomGroupEpsilon(certain, 0, .1))(t),
		"group, true value":    must(RandomGroupEpsilon(certain, .1, 0))(t),
		"group, all true":      must(RandomGroupEpsilon(certain, 0, 0))(t),
		"randomizer, truthful": must(NewRandomGroup(2, 1, 0, 0))(t).Epsilon(Deletion),
		"response, truthful":   must(NewResponseLying(2, 0))(t).Epsilon(Deletion),
		"response":             must(NewResponseLying(2, 0))(t).Epsilon(Replacement),
		"unknown relation":     must(NewResponse(2, 1))(t).Epsilon(0),
	} {
		if !math.IsInf(e, 1) {
			t.Errorf("%s: epsilon %v, want +Inf", name, e)
		}
	}
}

// rows plays every list of exchanges of a row of n values, and returns what is in its
// columns.
func rows(t *testing.T, n uint64) (all [][]uint64) {
	t.Helper()
	script := make([]draw, n-1)
	for i := range script {
		script[i] = die(i + 2)
	}
	paths(script, func(words []uint64, _ *big.Rat) {
		row := make([]uint64, n)
		for column := range n {
			row[column] = newSource(&scripted{words: words}, len(words)).indexIn(column, n)
		}
		for index := range n {
			column := newSource(&scripted{words: words}, len(words)).columnOf(index, n)
			if row[column] != index {
				t.Fatalf("row %v: index %d in column %d", row, index, column)
			}
		}
		all = append(all, row)
	})
	return all
}

// Up to six values, exhausted: as many lists of exchanges as permutations, all equally
// likely, and each permutation comes of exactly one; columns and indexes are inverse.
func TestRowsAreUniform(t *testing.T) {
	for n, permutations := range map[uint64]int{2: 2, 4: 24, 6: 720} {
		seen := map[string]bool{}
		all := rows(t, n)
		for _, row := range all {
			held := make([]bool, n)
			for _, index := range row {
				if index >= n || held[index] {
					t.Fatalf("%v is no permutation", row)
				}
				held[index] = true
			}
			seen[fmt.Sprint(row)] = true
		}
		if len(all) != permutations || len(seen) != permutations {
			t.Errorf("%d values: %d lists make %d permutations, want %d", n, len(all), len(seen), permutations)
		}
	}
}

// A row is the same for whoever computes it, and another if any part of its name is.
func TestRowsOfOneQuery(t *testing.T) {
	q := must(NewQuestionLying(3, 8, 0))(t)
	of := func(query Query, group int) string {
		row := make([]int, 16)
		for column := range row {
			row[column] = valueAt(q.table(query).of(group).indexIn(uint64(column), 16), 8)
		}
		return fmt.Sprint(row)
	}
	base := Query{Recipe: [32]byte{1}, Nonce: [16]byte{2}}
	// Frozen: devices and servers of different versions must agree.
	if got, want := of(base, 1), "[-6 -5 7 -3 -8 4 2 -1 8 3 5 -2 1 -4 -7 6]"; got != want {
		t.Errorf("row 1 is %s, want %s", got, want)
	}
	seen := map[string]bool{}
	for _, query := range []Query{base, {Recipe: [32]byte{31: 1}, Nonce: base.Nonce}, {Recipe: base.Recipe, Nonce: [16]byte{15: 2}}} {
		for group := range 3 {
			seen[of(query, group)] = true
		}
	}
	if len(seen) != 9 {
		t.Errorf("nine rows are %d", len(seen))
	}
	// Without lies the column of the answer has the value in the row of the group.
	for g := range 3 {
		for _, v := range valuesOf(8) {
			column := must(q.Randomize(base, g, v))(t)
			sum := q.NewSum()
			if err := q.Add(sum, base, column); err != nil || sum.values[g] != int64(v) {
				t.Errorf("group %d, value %d: column %d adds %v, %v", g, v, column, sum.values, err)
			}
		}
	}
}

// ratio returns the largest ratio of the probabilities of an answer under two laws.
func ratio(a, b law) *big.Rat {
	worst := new(big.Rat)
	for key := range a {
		if b[key] == nil {
			return nil
		}
		if r := new(big.Rat).Quo(a[key], b[key]); r.Cmp(worst) > 0 {
			worst = r
		}
	}
	return worst
}

// Every answer of tiny schemes, made for an epsilon, under every group with every
// distribution of the values that the condition allows (its corners): no ratio exceeds
// e^epsilon, in rational numbers, and the worst comes to it.
func TestGroupPrivacy(t *testing.T) {
	corners := func(m int, conditional bool) (all [][]float64, least, most float64) {
		if !conditional {
			for i := range 2 * m {
				p := make([]float64, 2*m)
				p[i] = 1
				all = append(all, p)
			}
			return all, 0, 1
		}
		if m == 1 {
			return [][]float64{{.25, .75}, {.75, .25}}, .25, .75
		}
		for i := range 4 {
			for j := range 4 {
				if p := []float64{.125, .125, .125, .125}; i != j {
					p[i], p[j] = .5, .25
					all = append(all, p)
				}
			}
		}
		return all, .125, .5
	}
	check := func(name string, groups, m int, epsilon float64, conditional bool, of func(group, value int) law) {
		t.Helper()
		values, worst := valuesOf(m), new(big.Rat)
		distributions, _, _ := corners(m, conditional)
		laws := make([][]law, groups)
		for g := range laws {
			each := make(map[int]law)
			for _, v := range values {
				each[v] = of(g, v)
			}
			for _, p := range distributions {
				laws[g] = append(laws[g], mixed(values, p, func(v int) law { return each[v] }))
			}
		}
		for g := range groups {
			for h := range groups {
				if g == h {
					continue
				}
				for _, a := range laws[g] {
					for _, b := range laws[h] {
						r := ratio(a, b)
						if r == nil {
							t.Fatalf("%s: an answer rules a group out", name)
						}
						if r.Cmp(worst) > 0 {
							worst = r
						}
					}
				}
			}
		}
		f, _ := worst.Float64()
		if worst.Cmp(expAtMost(epsilon)) > 0 || math.Log(f) < epsilon*(1-1e-6) {
			t.Errorf("%s, k %d, m %d, conditional %v: the worst ratio is e^%v, want e^%v", name, groups, m, conditional, math.Log(f), epsilon)
		}
	}
	for _, c := range []struct {
		groups, m int
		epsilon   float64
	}{{2, 1, .25}, {2, 1, 1}, {3, 1, 2}, {2, 2, .5}, {2, 2, 1}} {
		for _, conditional := range []bool{false, true} {
			_, least, most := corners(c.m, conditional)
			lambda := must(QuestionLieBetween(c.m, c.epsilon, least, most))(t)
			q := must(NewQuestionLying(c.groups, c.m, lambda))(t)
			ask := func(q *Question) func(group, value int) law {
				return func(group, value int) law {
					return lawOf(t, q, []draw{coin(q.response.lie), die(2*c.m - 1)}, func(q *Question) any {
						return must(q.Randomize(Query{Nonce: [16]byte{3}}, group, value))(t)
					})
				}
			}
			if lambda > 0 {
				check("question", c.groups, c.m, c.epsilon, conditional, ask(q))
			}
			if !conditional {
				check("question for epsilon", c.groups, c.m, c.epsilon, false, ask(must(NewQuestion(c.groups, c.m, c.epsilon))(t)))
			}
			gamma, omega, err := RandomGroupLies(c.groups, c.m, c.epsilon, least, most, 1)
			if err != nil {
				t.Fatal(err)
			}
			r := must(NewRandomGroup(c.groups, c.m, gamma, omega))(t)
			script := []draw{coin(r.gamma.lie), die(c.groups - 1), coin(r.omega.lie), die(2*c.m - 1), die(2 * c.m)}
			check("randomized group", c.groups, c.m, c.epsilon, conditional, func(group, value int) law {
				return lawOf(t, r, script, func(r *RandomGroup) any {
					a, b, err := r.Randomize(group, value)
					if err != nil {
						t.Fatal(err)
					}
					return []int{a, b}
				})
			})
		}
	}
}

// The lies of the randomized group have about the least error: no other pair on a grid
// that hides the group as well has less.
func TestRandomGroupLies(t *testing.T) {
	for _, c := range []struct {
		groups, m                  int
		epsilon, least, most, mean float64
	}{{2, 1, .5, 0, 1, 1}, {2, 1, 3, 0, 1, 1}, {5, 2, 1, 0, 1, 2.5}, {2, 1, .3, .3, .7, 1}, {3, 2, 2, .1, .4, 2}, {2, 1, math.Log(3) / 2, .25, .75, 1}, {1000, 1, .01, 0, 1, 1}} {
		gamma, omega, err := RandomGroupLies(c.groups, c.m, c.epsilon, c.least, c.most, c.mean)
		if err != nil {
			t.Fatal(err)
		}
		// The distributions that reach the bounds.
		v := 2 * c.m
		laws := make([][]float64, c.groups)
		for g := range laws {
			laws[g] = make([]float64, v)
			for i := range laws[g] {
				laws[g][i] = (1 - c.most - c.least) / float64(max(1, v-2))
			}
			laws[g][g%2], laws[g][1-g%2] = c.most, c.least
		}
		if e := must(RandomGroupEpsilon(laws, gamma, omega))(t); e > c.epsilon*(1+2e-12)+1e-14 {
			t.Errorf("%+v: epsilon %v", c, e)
		}
		if c.groups > 10 {
			continue // the grid would take long
		}
		best := RandomGroupAlpha(c.m, c.groups, gamma, omega, c.mean)
		const steps = 200
		for i := range steps {
			for j := range steps {
				g, w := (float64(i)+.5)/steps, float64(j)/steps*(1-1/float64(v))
				if e := must(RandomGroupEpsilon(laws, g, w))(t); e <= c.epsilon {
					if a := RandomGroupAlpha(c.m, c.groups, g, w, c.mean); a < best*(1-1e-6) {
						t.Fatalf("%+v: (%v, %v) has alpha %v, but (%v, %v) has %v", c, gamma, omega, best, g, w, a)
					}
				}
			}
		}
	}
}

// Question & answer wins where epsilon is small and something is known of the values, or
// groups are many, the randomized group where epsilon is large (paper 002, section IV);
// bits count for the former.
func TestPlanGroups(t *testing.T) {
	for _, c := range []struct {
		o    GroupOptions
		want GroupScheme
	}{
		{GroupOptions{Groups: 2, Largest: 1, Epsilon: .5, Least: .3, Most: .7, ByBits: true}, ByQuestion},
		{GroupOptions{Groups: 2, Largest: 1, Epsilon: .8, Least: .3, Most: .7}, ByQuestion},
		{GroupOptions{Groups: 2, Largest: 1, Epsilon: .5}, ByRandomGroup},
		{GroupOptions{Groups: 4, Largest: 1, Epsilon: .5}, ByRandomGroup},
		{GroupOptions{Groups: 4, Largest: 1, Epsilon: .5, ByBits: true}, ByQuestion},
		{GroupOptions{Groups: 2, Largest: 1, Epsilon: 6}, ByRandomGroup},
		{GroupOptions{Groups: 2, Largest: 1, Epsilon: 6, ByBits: true}, ByRandomGroup},
		{GroupOptions{Groups: 64, Largest: 2, Epsilon: .2, ByBits: true}, ByQuestion},
		{GroupOptions{Groups: 8, Largest: 2, Epsilon: .1, Least: .2, Most: .3}, ByQuestion},
	} {
		plans, err := PlanGroups(c.o)
		if err != nil {
			t.Fatal(err)
		}
		if plans[0].Scheme != c.want || plans[1].Scheme == c.want {
			t.Errorf("%+v: %+v", c.o, plans)
		}
		for _, p := range plans {
			bits := map[GroupScheme]int{ByQuestion: 1, ByRandomGroup: 2}
			if c.o.Groups == 2 && p.Bits != bits[p.Scheme] {
				t.Errorf("%+v: %d bits", c.o, p.Bits)
			}
			if p.Lie < 0 || p.Stray < 0 || !(p.Alpha > 0) || (p.Stray == 0) != (p.Scheme == ByQuestion) {
				t.Errorf("%+v: %+v", c.o, p)
			}
		}
		if a, b := plans[0].Alpha, plans[1].Alpha; c.o.ByBits {
			if a*float64(plans[0].Bits) > b*float64(plans[1].Bits) {
				t.Errorf("%+v: the first plan has the larger error", c.o)
			}
		} else if a > b {
			t.Errorf("%+v: the first plan has the larger error", c.o)
		}
	}
	// Without a condition and for small epsilon the errors are as 4 to k.
	for _, k := range []int{2, 4, 16} {
		for _, m := range []int{1, 3} {
			plans := must(PlanGroups(GroupOptions{Groups: k, Largest: m, Epsilon: .003}))(t)
			question, random := plans[0], plans[1]
			if question.Scheme != ByQuestion {
				question, random = random, question
			}
			near(t, "errors, question by random group", question.Alpha/random.Alpha, 4/float64(k), .01)
		}
	}
	// Rows 55 and 56: epsilon 1 for two groups of two values.
	plans, err := PlanGroups(GroupOptions{Groups: 2, Largest: 1, Epsilon: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range plans {
		if p.Scheme == ByQuestion {
			near(t, "55a", p.Lie, .2689414, 1e-7)
			near(t, "56b", p.Alpha, 8.3653888, 1e-6)
		}
	}
	if ByQuestion.String() == ByRandomGroup.String() || GroupScheme(9).String() != "GroupScheme(9)" {
		t.Error("schemes are named alike")
	}
}

func TestGroupBits(t *testing.T) {
	for _, c := range []struct{ groups, m, question, random int }{{2, 1, 1, 2}, {3, 1, 1, 3}, {3, 2, 2, 4}, {2, 3, 3, 4}, {1000, 4, 3, 13}} {
		q, r := must(NewQuestion(c.groups, c.m, 1))(t), must(NewRandomGroup(c.groups, c.m, .1, .1))(t)
		if q.Bits() != c.question || r.Bits() != c.random {
			t.Errorf("k %d, m %d: %d and %d bits, want %d and %d", c.groups, c.m, q.Bits(), r.Bits(), c.question, c.random)
		}
	}
}

func TestGroupRefusals(t *testing.T) {
	var errs []error
	add := func(_ any, err error) { errs = append(errs, err) }
	lies := func(groups, m int, epsilon, least, most, meanSquare float64) {
		_, _, err := RandomGroupLies(groups, m, epsilon, least, most, meanSquare)
		errs = append(errs, err)
	}
	nan := math.NaN()
	for _, c := range []struct{ groups, m int }{{-1, 1}, {0, 1}, {1, 1}, {1<<16 + 1, 1}, {2, 0}, {2, -1}, {2, 1<<16 + 1}, {1 << 16, 1 << 16}} {
		add(NewQuestion(c.groups, c.m, 1))
		add(NewQuestionLying(c.groups, c.m, .1))
		add(NewRandomGroup(c.groups, c.m, .1, .1))
		lies(c.groups, c.m, 1, 0, 1, 1)
		add(PlanGroups(GroupOptions{Groups: c.groups, Largest: c.m, Epsilon: 1}))
	}
	for _, e := range []float64{nan, 0, -1, 33, math.Inf(1)} {
		add(NewQuestion(2, 1, e))
		add(QuestionLieBetween(1, e, .1, .9))
		add(QuestionLieFor([][]float64{{.5, .5}, {.5, .5}}, e))
		lies(2, 1, e, 0, 1, 1)
		add(PlanGroups(GroupOptions{Groups: 2, Largest: 1, Epsilon: e}))
	}
	for _, between := range [][2]float64{{-.1, .5}, {.5, .4}, {nan, 1}, {0, nan}, {0, 1.1},
		{.6, .65}, {0, .4}, {.3, .8}} {
		add(QuestionLieBetween(1, 1, between[0], between[1]))
		lies(2, 1, 1, between[0], between[1], 1)
		add(PlanGroups(GroupOptions{Groups: 2, Largest: 1, Epsilon: 1, Least: between[0], Most: between[1]}))
	}
	for _, square := range []float64{nan, .5, 4.1} {
		lies(2, 2, 1, 0, 1, square)
	}
	add(QuestionLie(0, 1))
	add(QuestionLie(1<<17, 1))
	// What a device, or one that is hostile, may hand in.
	q, r := must(NewQuestion(3, 2, 1))(t), must(NewRandomGroup(3, 2, .1, .1))(t)
	for _, member := range [][2]int{{-1, 1}, {3, 1}, {0, 0}, {0, 3}, {0, -3}, {math.MaxInt, 1}, {0, math.MinInt}} {
		add(q.Randomize(Query{}, member[0], member[1]))
		_, _, err := r.Randomize(member[0], member[1])
		add(nil, err)
		sum := r.NewSum()
		add(nil, r.Add(sum, member[0], member[1]))
		if sum.n != 0 {
			t.Error("a refused answer was counted")
		}
	}
	for _, column := range []int{-1, 4, math.MaxInt, math.MinInt} {
		sum := q.NewSum()
		add(nil, q.Add(sum, Query{}, column))
		if sum.n != 0 {
			t.Error("a refused answer was counted")
		}
	}
	// Sums of other schemes.
	add(nil, q.Add(r.NewSum(), Query{}, 0))
	add(nil, q.Add(must(NewQuestion(2, 2, 1))(t).NewSum(), Query{}, 0))
	add(nil, q.Add(must(NewQuestion(3, 2, 2))(t).NewSum(), Query{}, 0))
	add(nil, r.Add(q.NewSum(), 0, 1))
	add(nil, r.Add(must(NewRandomGroup(3, 2, .2, .1))(t).NewSum(), 0, 1))
	sizes := must(NewQuestion(3, 1, 1))(t)
	add(q.NewSum().EstimateWithSizes(q.NewSum()))
	add(q.NewSum().EstimateWithSizes(r.NewSum()))
	add(r.NewSum().EstimateWithSizes(sizes.NewSum()))
	add(q.NewSum().EstimateWithSizes(must(NewQuestion(2, 1, 1))(t).NewSum()))
	more := sizes.NewSum()
	if err := sizes.Add(more, Query{}, 1); err != nil {
		t.Fatal(err)
	}
	add(q.NewSum().EstimateWithSizes(more))
	for i, err := range errs {
		if !errors.Is(err, ErrParameter) {
			t.Errorf("refusal %d: got %v", i, err)
		}
	}
}
