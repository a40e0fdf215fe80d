package sketch

import (
	"fmt"
	"slices"
)

// An Estimator is the best linear unbiased estimate of the bins of a tree, for noise of
// known variances. It is immutable.
type Estimator struct {
	tree     *Tree
	variance []float64 // of the noise of a node, of each level
	// up is the variance of each node's count as the sums of it and of all below tell it,
	// below the sum of that over its children, and before that over its elder siblings.
	up, below, before []float64
	top               float64 // below, of the root
}

// Estimator returns the one for noise that is independent over nodes, of mean 0 and, in
// level l, of variance variances[l-1]. These are in any unit, in which
// [Estimator.Variance] answers. It fails unless there is one for each level, between 1e-50
// and 1e50: products of these are numbers still.
func (t *Tree) Estimator(variances []float64) (*Estimator, error) {
	if len(variances) != t.Levels() {
		return nil, fmt.Errorf("%w: %d variances for %d levels", errShape, len(variances), t.Levels())
	}
	for _, v := range variances {
		if !(v >= 1e-50 && v <= 1e50) {
			return nil, fmt.Errorf("%w: a variance of %v", errShape, v)
		}
	}
	n := t.Nodes()
	e := &Estimator{tree: t, variance: append([]float64(nil), variances...), up: make([]float64, n), below: make([]float64, n), before: make([]float64, n)}
	for level := t.Levels() - 1; level >= 0; level-- {
		v := variances[level]
		for node := t.first[level]; node < t.first[level+1]; node++ {
			e.up[node] = v
			if level < t.Levels()-1 {
				e.below[node] = e.sumUp(t.children(level, node))
				e.up[node] = v * e.below[node] / (v + e.below[node])
			}
		}
	}
	e.top = e.sumUp(0, t.first[1])
	return e, nil
}

// even is the Estimator for noise of variance 1 in each node.
func (t *Tree) even() *Estimator {
	e, err := t.Estimator(slices.Repeat([]float64{1}, t.Levels()))
	if err != nil {
		panic("sketch: internal error: " + err.Error())
	}
	return e
}

// sumUp adds up the variances of siblings, and notes at each what came before.
func (e *Estimator) sumUp(low, high int) (sum float64) {
	for node := low; node < high; node++ {
		e.before[node] = sum
		sum += e.up[node]
	}
	return sum
}

// Bins returns the estimate of each bin, from the sums of all nodes and the number of
// people, which is what the bins add up to; they may be below 0. It fails unless there is
// a sum for each node.
func (e *Estimator) Bins(sums []int64, people uint64) ([]float64, error) {
	t := e.tree
	if len(sums) != t.Nodes() {
		return nil, fmt.Errorf("%w: %d sums for %d nodes", errShape, len(sums), t.Nodes())
	}
	x := make([]float64, len(sums))
	for node, s := range sums {
		x[node] = float64(s)
	}
	for level := t.Levels() - 2; level >= 0; level-- {
		v := e.variance[level]
		for node := t.first[level]; node < t.first[level+1]; node++ {
			below := 0.0
			for child, high := t.children(level, node); child < high; child++ {
				below += x[child]
			}
			x[node] = (x[node]*e.below[node] + below*v) / (v + e.below[node])
		}
	}
	e.share(x[:t.first[1]], e.up[:t.first[1]], float64(people), e.top)
	for level := range t.Levels() - 1 {
		for node := t.first[level]; node < t.first[level+1]; node++ {
			low, high := t.children(level, node)
			e.share(x[low:high], e.up[low:high], x[node], e.below[node])
		}
	}
	return x[t.first[t.Levels()-1]:], nil
}

// share moves siblings so that they add up to sum, each in proportion to its variance.
func (e *Estimator) share(x, variance []float64, sum, all float64) {
	for _, y := range x {
		sum -= y
	}
	for i, v := range variance {
		x[i] += v / all * sum
	}
}

// Variance is that of the sum of the estimated bins from low up to, not including, high.
//
// Given its parent's error, a node's is the error of [Estimator.up] less its part of the
// siblings' sum, plus its part of the parent's; the first difference is uncorrelated with
// all above. So the sum over the bins of a range below a node has an error of a times the
// node's plus one of variance r that is uncorrelated with it, and a and r follow from
// those of the children.
func (e *Estimator) Variance(low, high int) float64 {
	_, r := e.split(0, e.tree.first[1], e.top, 0, low, high)
	return r
}

// split returns a and r of the range below a parent whose children, from child up to end
// in a level, have variances that add up to all.
func (e *Estimator) split(child, end int, all float64, level, low, high int) (a, r float64) {
	t := e.tree
	for ; child < end; child++ {
		from, to := t.covers(level, child)
		childA, childR := 0.0, 0.0
		switch {
		case to <= low || high <= from:
		case low <= from && to <= high:
			childA = 1
		default:
			first, last := t.children(level, child)
			childA, childR = e.split(first, last, e.below[child], level+1, low, high)
		}
		a += childA * e.up[child]
		r += childR + childA*childA*e.up[child]
	}
	return a / all, r - a*a/all
}

// upTo is Variance of the first bins, in time that grows with the levels alone.
func (e *Estimator) upTo(bins int) float64 {
	t := e.tree
	if bins <= 0 || bins >= t.leaves {
		return 0
	}
	a, r := 0.0, 0.0 // of the first bin that is not among them
	for level := t.Levels() - 1; level >= 0; level-- {
		node, all := t.first[level]+bins/t.spans[level], e.top
		if level > 0 {
			all = e.below[t.first[level-1]+bins/t.spans[level-1]]
		}
		elder := e.before[node]
		r += elder + a*a*e.up[node]
		a = (elder + a*e.up[node])
		r -= a * a / all
		a /= all
	}
	return r
}
