package sketch

import "math"

const (
	widest = 64  // branchings up to here are all compared, of wider ones some
	probes = 256 // cumulative counts whose variances are averaged to compare trees
)

// Branching returns the branching over leaves bins that gives cumulative counts the least
// mean variance ([Tree.RankVariance]) at one privacy loss, by noise that is the same in
// all levels: with L of them the standard deviation of Laplace noise, which covers norm
// 1, is proportional to L, and that of Gaussian noise, which covers norm 2, to sqrt(L).
// Besides all up to 64 it compares, for each number of levels, the least branching that
// has it: leaves themselves, a tree of one level, among them. It is 0 where there is no
// tree.
func Branching(leaves, norm int) int {
	best, least := 0, math.Inf(1)
	try := func(b int) {
		t, err := New(leaves, b)
		if err != nil {
			return
		}
		v := t.probed()
		if v *= math.Pow(float64(t.Levels()), 3-float64(norm)); v < least {
			best, least = b, v
		}
	}
	for b := 2; b <= min(leaves, widest); b++ {
		try(b)
	}
	for levels := 1; leaves <= MaxLeaves; levels++ {
		b := int(math.Ceil(math.Pow(float64(leaves), 1/float64(levels)) - roundoff))
		if b <= widest {
			break
		}
		try(b)
	}
	return best
}

// RankVariance is the mean and the largest variance of cumulative counts over all bins, for
// noise of variance 1 in each node.
func (t *Tree) RankVariance() (mean, largest float64) {
	e := t.even()
	for bins := 1; bins < t.leaves; bins++ {
		v := e.upTo(bins)
		mean, largest = mean+v/float64(t.leaves-1), max(largest, v)
	}
	return mean, largest
}

// probed is the mean of RankVariance over at most 256 places, which go round by the golden
// ratio: evenly spaced ones would all lie where nodes of the upper levels end.
func (t *Tree) probed() (mean float64) {
	if t.leaves-1 <= probes {
		mean, _ = t.RankVariance()
		return mean
	}
	e := t.even()
	for i := range probes {
		_, at := math.Modf(float64(i) * math.Phi)
		mean += e.upTo(1+int(at*float64(t.leaves-1))) / probes
	}
	return mean
}
