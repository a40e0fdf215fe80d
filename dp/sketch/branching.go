package sketch

import "math"

// A Norm is that in which noise must cover what one person adds.
type Norm int

const (
	L1 Norm = 1 // Laplace noise: its scale is proportional to the levels
	L2 Norm = 2 // Gaussian noise: its standard deviation is, to their root
)

const (
	widest = 64  // branchings up to here are all compared, of wider ones some
	probes = 256 // cumulative counts that the variance is averaged over, at most
)

// Branching returns the branching over leaves bins, at least 2, that gives cumulative
// counts the least mean variance ([Tree.RankVariance]) at one privacy loss, by noise that
// is the same in all levels. Besides all up to 64 it compares, for each number of levels,
// the least branching that has it: leaves themselves, a tree of one level, among them.
func Branching(leaves int, norm Norm) int {
	best, least := 0, math.Inf(1)
	try := func(b int) {
		t, err := New(leaves, b)
		if err != nil {
			return
		}
		if v := t.RankVariance() * math.Pow(float64(t.Levels()), 3-float64(norm)); v < least {
			best, least = b, v
		}
	}
	for b := 2; b <= min(leaves, widest); b++ {
		try(b)
	}
	for levels := 1; ; levels++ {
		b := int(math.Ceil(math.Pow(float64(leaves), 1/float64(levels)) - roundoff))
		if b <= widest {
			break
		}
		try(b)
	}
	return best
}

// RankVariance is the mean variance of cumulative counts, at places spread evenly over the
// bins, for noise of variance 1 in each node.
func (t *Tree) RankVariance() float64 {
	ones := make([]float64, t.Levels())
	for i := range ones {
		ones[i] = 1
	}
	e, err := t.Estimator(ones)
	if err != nil {
		panic("sketch: internal error: " + err.Error())
	}
	n := min(t.leaves-1, probes)
	sum := 0.0
	for i := range n {
		sum += e.upTo(1 + i*(t.leaves-1)/n)
	}
	return sum / float64(n)
}
