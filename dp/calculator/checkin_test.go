package calculator

import (
	"fmt"
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
)

// slotLaws are the laws of what one slot publishes about the input C = 1 and about the
// input -1, on the same outcomes. Continuous ones are put into bins, which is
// post-processing.
func slotLaws(r Line) (one, other []float64) {
	bins := func(cdf func(x float64) float64, reach float64) {
		between := func(a, b float64) float64 { // by the tail that is small
			if a > 0 {
				return cdf(-a) - cdf(-b)
			}
			return cdf(b) - cdf(a)
		}
		const width = 0.01
		for x := -reach; x < reach; x += width {
			one, other = append(one, between(x-1, x+width-1)), append(other, between(x+1, x+width+1))
		}
	}
	masses := func(weight func(z float64) float64, reach float64) {
		total := 0.0
		for z := -reach; z <= reach; z++ {
			total += weight(z)
		}
		for z := -reach; z <= reach; z++ {
			one, other = append(one, weight(z-1)/total), append(other, weight(z+1)/total)
		}
	}
	switch r.Mechanism {
	case release.NameGaussian:
		bins(func(x float64) float64 { return math.Erfc(-x/r.Sigma/math.Sqrt2) / 2 }, 8*r.Sigma+2)
	case release.NameLaplace:
		bins(func(x float64) float64 {
			tail := math.Exp(-math.Abs(x)/r.Scale) / 2
			if x > 0 {
				return 1 - tail
			}
			return tail
		}, 20*r.Scale+2)
	case release.NameDiscreteGaussian:
		masses(func(z float64) float64 { return math.Exp(-z * z / (2 * r.Sigma * r.Sigma)) }, math.Ceil(12*r.Sigma))
	case release.NameDiscreteLaplace:
		masses(func(z float64) float64 { return math.Exp(-math.Abs(z) / r.Scale) }, math.Ceil(40*r.Scale))
	case release.NameRAPPOR:
		stay := 1 / (1 + math.Exp(-r.Epsilon0))
		for _, bits := range [][2]bool{{true, false}, {false, true}, {true, true}, {false, false}} {
			p, q := 1.0, 1.0
			for i, b := range bits {
				if b == (i == 0) { // as the one-hot vector of the person's answer has it
					p, q = p*stay, q*(1-stay)
				} else {
					p, q = p*(1-stay), q*stay
				}
			}
			one, other = append(one, p), append(other, q)
		}
	}
	return one, other
}

// checkedIn bounds, from below, delta(epsilon) of a person who says 1 and checks in to
// one of window slots, against not checking in, where all others and all dummies say -1,
// and she is taken with probability taken if she is in a slot. Long windows are looked at
// through one bit of each slot, which is post-processing.
func checkedIn(one, other []float64, window int, taken, epsilon float64) float64 {
	here := make([]float64, len(one))
	for i := range here {
		here[i] = taken*one[i] + (1-taken)*other[i]
	}
	e := math.Exp(epsilon)
	switch window {
	case 1:
		add, remove := 0.0, 0.0
		for i, p := range here {
			remove += max(0, p-e*other[i])
			add += max(0, other[i]-e*p)
		}
		return max(add, remove)
	case 2:
		here, other := merge(here, other, 300)
		add, remove := 0.0, 0.0
		for i := range here {
			for j := range here {
				p, q := (here[i]*other[j]+other[i]*here[j])/2, other[i]*other[j]
				remove += max(0, p-e*q)
				add += max(0, q-e*p)
			}
		}
		return max(add, remove)
	}
	best := 0.0
	a, b := 0.0, 0.0
	for i := len(here) - 1; i > 0; i-- { // the bit says that the outcome is i or above
		a, b = a+here[i], b+other[i]
		if !(b > 1e-300 && a < 1 && b < 1) {
			continue
		}
		add, remove := 0.0, 0.0
		q := math.Pow(1-b, float64(window)) // of x ones
		for x := range window + 1 {
			p := q * (float64(x)*a/b + float64(window-x)*(1-a)/(1-b)) / float64(window)
			remove += max(0, p-e*q)
			add += max(0, q-e*p)
			q *= float64(window-x) / float64(x+1) * b / (1 - b)
		}
		best = max(best, add, remove)
	}
	return best
}

// merge puts neighbouring outcomes together until there are at most n.
func merge(p, q []float64, n int) (a, b []float64) {
	size := (len(p) + n - 1) / n
	a, b = make([]float64, (len(p)+size-1)/size), make([]float64, (len(p)+size-1)/size)
	for i := range p {
		a[i/size] += p[i]
		b[i/size] += q[i]
	}
	return a, b
}

// TestCheckInsReplaceInputs: whoever does not check in leaves the slot to another's input
// or to a dummy's, which may be twice the sensitivity away. The claim was made for once
// the sensitivity, and all of these were wrong. Where CI is not true, the first window of
// each mechanism is asked.
func TestCheckInsReplaceInputs(t *testing.T) {
	for row, tc := range []struct {
		r       Line
		windows []uint64
	}{
		{Line{Mechanism: release.NameGaussian, Sigma: 1}, []uint64{1, 2, 100}},
		{Line{Mechanism: release.NameGaussian, Sigma: 0.5}, []uint64{1}},
		{Line{Mechanism: release.NameDiscreteGaussian, Sigma: 1}, []uint64{1, 2, 50}},
		{Line{Mechanism: release.NameDiscreteGaussian, Sigma: 2}, []uint64{2}},
		{Line{Mechanism: release.NameLaplace, Scale: 1}, []uint64{1, 2}},
		{Line{Mechanism: release.NameLaplace, Scale: 0.5}, []uint64{20}},
		{Line{Mechanism: release.NameDiscreteLaplace, Scale: 1}, []uint64{1, 2}},
		{Line{Mechanism: release.NameDiscreteLaplace, Scale: 0.5}, []uint64{20}},
		{Line{Mechanism: release.NameRAPPOR, Epsilon0: 1, K: 2}, []uint64{1, 2}},
		{Line{Mechanism: release.NameRAPPOR, Epsilon0: 3, K: 2}, []uint64{1, 10}},
	} {
		if row%2 == 1 && !patient() { // these have the mechanism of the row above
			continue
		}
		one, other := slotLaws(tc.r)
		for i, m := range tc.windows {
			if i > 0 && !patient() {
				continue
			}
			for _, n := range []release.Neighbours{release.AddRemove, release.ZeroOut} {
				for _, how := range []release.Schedule{release.FixedWindow, release.SlidingWindow} {
					const delta = 1e-6
					name := fmt.Sprintf("%s, %v window of %d, %v", tc.r.Mechanism, how, m, n)
					a, err := Ask{Line: tc.r, CheckIn: how, Window: m, Neighbours: n, Delta: delta}.Answer()
					if err != nil {
						t.Errorf("%s: %v", name, err)
						continue
					}
					for _, taken := range []float64{0.5, 1} {
						if d := checkedIn(one, other, int(m), taken, a.Epsilon); d > delta*(1+1e-6) {
							t.Errorf("%s: epsilon %v is claimed, where delta is at least %.3g if she is taken with probability %v", name, a.Epsilon, d, taken)
						}
					}
					// The bounds are not far from what was attacked, where that was not
					// looked at through one bit.
					if d := checkedIn(one, other, int(m), 1, 0.93*a.Epsilon); m == 1 && !(d > delta) {
						t.Errorf("%s: epsilon %v is claimed, and a twentieth less would hold", name, a.Epsilon)
					}
					if d := checkedIn(one, other, int(m), 1, a.EpsilonLower*0.99); m == 1 && !(d > delta) {
						t.Errorf("%s: nothing below %v is said to hold, and a hundredth less does", name, a.EpsilonLower)
					}
				}
			}
		}
	}
}

// TestCheckInsForReplacedAnswers: pure noise on the device is covered by the clone bound
// on the slots.
func TestCheckInsForReplacedAnswers(t *testing.T) {
	ask := func(r Line) float64 {
		a, err := Ask{Line: r, CheckIn: release.FixedWindow, Window: 500, Neighbours: release.ReplaceOne, Method: accountant.PLD, Delta: 1e-6}.Answer()
		if err != nil {
			t.Fatal(err)
		}
		return a.Epsilon
	}
	laplace := ask(Line{Mechanism: release.NameLaplace, Scale: 2})
	if any := ask(Line{Mechanism: release.NameResponse, Epsilon0: 1, K: 9}); math.Abs(laplace-any) > 1e-6 {
		t.Errorf("Laplace noise at distance 2 of scale 2 costs %v, a report at epsilon 1 %v", laplace, any)
	}
}
