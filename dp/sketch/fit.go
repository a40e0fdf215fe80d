package sketch

import (
	"fmt"
	"math"
)

// A Fit is the best linear unbiased estimate of the counts of a rooted tree of any shape
// from a noisy sum at each node, under the constraint that the counts of siblings add up
// to that of their parent, and those at the top to the known total. It is immutable.
//
// It is found by one pass up, in which each count is told by its own sum and by what its
// children tell, each weighted by its inverse variance, and one pass down, which shares
// what siblings are off their parent by in proportion to their variances (docs/proofs/
// sketches.md, Theorem 1).
type Fit struct {
	parent   []int // of each node, -1 at the top
	variance []float64
	// up is the variance of each node's count as the sums of it and of all below tell it,
	// below the sum of that over its children, 0 of a leaf.
	up, below []float64
	top       float64 // below, of the root
}

// NewFit returns the estimate for the tree in which parent[i] is the parent of node i: a
// node before it, or -1 of nodes at the top, whose parent is the root. The noise of sums is
// independent over nodes, of mean 0 and, of node i, of variance variance[i], in any unit,
// in which [Fit.Variances] answers. It fails unless there are at most 2 * [MaxLeaves]
// nodes, parents come first, and variances are between 1e-50 and 1e50: products of these
// are numbers still.
func NewFit(parent []int, variance []float64) (*Fit, error) {
	n := len(parent)
	if n == 0 || n > 2*MaxLeaves || len(variance) != n {
		return nil, fmt.Errorf("%w: %d nodes with %d variances, want 1 to %d", errShape, n, len(variance), 2*MaxLeaves)
	}
	f := &Fit{parent: append([]int(nil), parent...), variance: append([]float64(nil), variance...), up: make([]float64, n), below: make([]float64, n)}
	for node := n - 1; node >= 0; node-- {
		p, v := parent[node], variance[node]
		if p < -1 || p >= node {
			return nil, fmt.Errorf("%w: node %d has parent %d, want one before it", errShape, node, p)
		}
		if !(v >= 1e-50 && v <= 1e50) {
			return nil, fmt.Errorf("%w: a variance of %v", errShape, v)
		}
		if f.up[node] = v; f.below[node] > 0 {
			f.up[node] = v * f.below[node] / (v + f.below[node])
		}
		*f.under(f.below, &f.top, node) += f.up[node]
	}
	return f, nil
}

// under is where numbers of the children of a node's parent are added up.
func (f *Fit) under(list []float64, root *float64, node int) *float64 {
	if p := f.parent[node]; p >= 0 {
		return &list[p]
	}
	return root
}

// Counts returns the estimate of each node, from the sums of all and the total of those at
// the top; they may be below 0. It fails unless there is a sum for each node.
func (f *Fit) Counts(sums []int64, total uint64) ([]float64, error) {
	if len(sums) != len(f.parent) {
		return nil, fmt.Errorf("%w: %d sums for %d nodes", errShape, len(sums), len(f.parent))
	}
	x, children, all := make([]float64, len(sums)), make([]float64, len(sums)), 0.0
	for node := len(x) - 1; node >= 0; node-- {
		x[node] = float64(sums[node])
		if below, v := f.below[node], f.variance[node]; below > 0 {
			x[node] = (x[node]*below + children[node]*v) / (v + below)
		}
		*f.under(children, &all, node) += x[node]
	}
	// From here on children is what they are off their parent by.
	all = float64(total) - all
	for node := range x {
		x[node] += f.up[node] / *f.under(f.below, &f.top, node) * *f.under(children, &all, node)
		children[node] = x[node] - children[node]
	}
	return x, nil
}

// Variances are those of the estimated counts of all nodes.
//
// Given its parent's error, a node's is that of what it and all below tell, less its part
// of the siblings' sum, plus its part of the parent's; the first difference is uncorrelated
// with all above.
func (f *Fit) Variances() []float64 {
	out, none := make([]float64, len(f.parent)), 0.0
	for node, up := range f.up {
		part := up / *f.under(f.below, &f.top, node)
		out[node] = max(0, up-part*up) + part*part**f.under(out, &none, node)
	}
	return out
}

// LargestVariance is the largest of [Fit.Variances].
func (f *Fit) LargestVariance() (most float64) {
	for _, v := range f.Variances() {
		most = math.Max(most, v)
	}
	return most
}
