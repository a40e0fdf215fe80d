// Package search finds where a cost falls to a budget, with few looks at a cost that is
// slow to compute.
package search

import "math"

// Options say where and how finely to look.
type Options struct {
	// Guess is where to look first. It should be near; it need not be inside the bounds.
	// Required, above 0.
	Guess float64
	// Low and High bound the answer. Required, 0 < Low < High.
	Low, High float64
	// Precision is how far above the least x the answer may lie, relative to it.
	// Required, above 0 and below 1.
	Precision float64
	// Budget is what the cost must not exceed. Required, above 0.
	Budget float64
}

// Least returns an x between Low and High at which the cost was seen to be within the
// budget, and at most Precision above the least such x. The cost must fall as x grows; it
// may be 0 or +Inf. It is false, with High, if the cost at High is above the budget. An
// error of cost ends the search.
//
// It works on logarithms, in which costs are nearly straight, by the Illinois variant of
// false position.
func Least(o Options, cost func(x float64) (float64, error)) (float64, bool, error) {
	const far = 5 // beyond e^5 a cost is too far from the budget to extrapolate from
	over := func(x float64) (float64, error) {
		c, err := cost(math.Exp(x))
		return min(max(math.Log(c/o.Budget), -far), far), err
	}
	bottom, top := math.Log(o.Low), math.Log(o.High)
	high := min(max(math.Log(o.Guess), bottom), top)
	fHigh, err := over(high)
	if err != nil {
		return 0, false, err
	}
	low, fLow := high, fHigh
	for step := 0.02; fHigh > 0; step *= 3 {
		if high >= top {
			return o.High, false, nil
		}
		low, fLow = high, fHigh
		high = min(high+max(step, 0.8*fHigh), top)
		if fHigh, err = over(high); err != nil {
			return 0, false, err
		}
	}
	for step := 0.02; fLow <= 0; step *= 3 {
		if low <= bottom {
			return o.Low, true, nil
		}
		high, fHigh = low, fLow
		low = max(low-max(step, -0.8*fLow), bottom)
		if fLow, err = over(low); err != nil {
			return 0, false, err
		}
	}
	side := 0 // which end moved last: where one moves twice, the weight of the other is halved
	for range 100 {
		if high-low <= o.Precision {
			break
		}
		// Aim a little beyond the root, so that the upper end, which is the answer, moves.
		x := (low*fHigh-high*fLow)/(fHigh-fLow) + o.Precision/3
		x = min(max(x, low+o.Precision/2), high-o.Precision/2)
		f, err := over(x)
		if err != nil {
			return 0, false, err
		}
		if f > 0 {
			low, fLow = x, f
			if side > 0 {
				fHigh /= 2
			}
			side = 1
		} else {
			high, fHigh = x, f
			if side < 0 {
				fLow /= 2
			}
			side = -1
		}
	}
	return min(math.Exp(high), o.High), true, nil
}
