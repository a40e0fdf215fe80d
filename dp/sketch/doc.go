// Package sketch answers many questions from one noisy sum: counts of any range and all
// quantiles at once, by a hierarchical histogram; tables that add up; frequent
// strings; distinct keys and the norm of their counts.
//
//	t, err := sketch.New(1000, 10)            // 1000 bins, and 110 nodes above them
//	marks := t.Marks(offset, 1)               // what one person adds: a node a level
//	e, err := t.Estimator([]float64{v, v, v}) // variances of the noise, by level
//	bins, err := e.Bins(sums, people)         // 1000 numbers that add up to people
//	deciles := e.Quantiles(bins, shares, 1.96)
//
// A [Tree] of branching b (b = 2 is the dyadic one) stands over the bins. One person adds
// 1 to one node of each level, so that a range is a sum of few nodes where it would be
// one of many bins: O(b log n) noises instead of O(n). With L levels that is L in the L1
// norm and sqrt(L) in the L2 norm, and the most that one person who replaces another
// changes is twice and sqrt(2) times that, where their paths part at the top.
//
// The root has no node: how many people there are is public and exact, so it is given to
// [Estimator.Bins] as a constraint and no noise is spent on it.
//
// # Consistency
//
// A node and the sum of its children are two measurements of one count. [Estimator.Bins]
// returns the least squares fit of the bins to all sums, each weighted by the inverse of
// its noise's variance, under the constraint: the best linear unbiased estimate, by one
// pass up and one down (Hay, Rastogi, Miklau and Suciu, "Boosting the accuracy of
// differentially private histograms through consistency", VLDB 2010, for equal variances
// and full trees; Honaker, "Efficient use of differentially private binary trees", 2015,
// for weights). It is post-processing and costs no privacy.
// [Estimator.Variance] is the exact variance of the fitted count of a range, which needs
// second moments alone, so it holds for noise of any distribution that is independent,
// centred and of the variances given.
//
// # Branching
//
// [Branching] compares trees by the variance predicted of the counts that quantiles are
// read from (Qardaji, Yang and Li, "Understanding hierarchical methods for differentially
// private histograms", VLDB 2013, who find about 16 for range queries after consistency).
//
// # Hierarchies
//
// [Fit] is that estimate for any rooted tree, whose nodes have names of their own: tables
// by country and by region add up.
//
// # Strings
//
// [Strings] counts strings that nobody listed beforehand. Cells of hashed beginnings are
// added up, and a search walks down those that are frequent ([Strings.Search]).
//
// # Moments
//
// From a row of hashed cells [Repeats] tells the L2 norm of how many have each key, and
// [CountDistinct] how many keys there are, as far as noise lets that be told.
//
// docs/proofs/sketches.md has the theorems, docs/bench/sketches.md the figures.
//
// The package is pure: no randomness, clock or goroutine.
package sketch
