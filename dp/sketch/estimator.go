package sketch

import (
	"fmt"
	"slices"
)

// An Estimator is the [Fit] of a tree, which knows the variance of any range of its bins
// too. It is immutable.
type Estimator struct {
	*Fit
	tree   *Tree
	before []float64 // the sum of up over a node's elder siblings
}

// Estimator returns the one for noise that is independent over nodes, of mean 0 and, in
// level l, of variance variances[l-1]. These are in any unit, in which
// [Estimator.Variance] answers. It fails unless there is one for each level, between 1e-50
// and 1e50.
func (t *Tree) Estimator(variances []float64) (*Estimator, error) {
	if len(variances) != t.Levels() {
		return nil, fmt.Errorf("%w: %d variances for %d levels", errShape, len(variances), t.Levels())
	}
	n := t.Nodes()
	parent, variance := make([]int, n), make([]float64, n)
	for level, v := range variances {
		for node := t.first[level]; node < t.first[level+1]; node++ {
			variance[node], parent[node] = v, -1
			if level > 0 {
				parent[node] = t.first[level-1] + (node-t.first[level])/t.branching
			}
		}
	}
	f, err := NewFit(parent, variance)
	if err != nil {
		return nil, err
	}
	e := &Estimator{Fit: f, tree: t, before: make([]float64, n)}
	for node := 1; node < n; node++ {
		if parent[node] == parent[node-1] {
			e.before[node] = e.before[node-1] + f.up[node-1]
		}
	}
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

// Bins returns the estimate of each bin, from the sums of all nodes and the number of
// people, which is what the bins add up to; they may be below 0. It fails unless there is
// a sum for each node.
func (e *Estimator) Bins(sums []int64, people uint64) ([]float64, error) {
	x, err := e.Counts(sums, people)
	if err != nil {
		return nil, err
	}
	return x[e.tree.first[e.tree.Levels()-1]:], nil
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
