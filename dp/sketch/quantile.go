package sketch

import "math"

// A Quantile is the bin in which the least number lies that no less than a share of the
// people have or have less than. Low and High are the ends of its confidence interval,
// bins that are in it.
type Quantile struct {
	Bin, Low, High int
	// Detected is false where people are too few for the noise to tell any bin from
	// others: the interval is all bins.
	Detected bool
}

// roundoff bounds what float64 loses of a count of 2^31 people over all passes: ranks
// that are nearer than this are one.
const roundoff = 1e-5

// Quantiles returns a quantile for each share, above 0 and below 1, of bins as
// [Estimator.Bins] returns them.
//
// The bin is read from the cumulative counts made monotone: the least squares fit among
// rising sequences (isotonic regression by pooling adjacent violators; Barlow et al.
// 1972), kept within 0 and the number of people.
//
// The interval turns the error of a rank into one of a bin by inverting tests, as
// Woodruff (1952) does: it holds each bin that can have the rank inside it if no
// cumulative count is off by more than reach times the root of its variance
// ([Estimator.Variance]). The true bin is fixed, and is left out only if the count up to
// its begin is too high or the one up to its end too low: if each of the two has
// probability at most p, the interval holds it with probability 1 - 2p. For 95 % and
// normal noise reach is 1.96.
func (e *Estimator) Quantiles(bins []float64, shares []float64, reach float64) []Quantile {
	n := len(bins)
	cumulative, off := make([]float64, n+1), make([]float64, n+1) // of the bins before each
	for k, x := range bins {
		cumulative[k+1], off[k+1] = cumulative[k]+x, reach*math.Sqrt(max(0, e.upTo(k+1)))
	}
	people := cumulative[n]
	monotone := rising(cumulative)
	list := make([]Quantile, len(shares))
	for i, share := range shares {
		rank := share*people - roundoff
		q := Quantile{Bin: n - 1, Low: n - 1}
		for k := n - 1; k >= 0; k-- {
			if monotone[k+1] >= rank {
				q.Bin = k
			}
			if cumulative[k+1]+off[k+1] >= rank {
				q.Low = k
			}
		}
		for k := range n {
			if cumulative[k]-off[k] < rank {
				q.High = k
			}
		}
		// The fit may leave the interval where the noise is as large as the counts.
		q.Low, q.High = min(q.Low, q.Bin), max(q.High, q.Bin)
		q.Detected = q.Low > 0 || q.High < n-1
		list[i] = q
	}
	return list
}

// rising is the least squares fit of x among sequences that rise from its first element
// to its last and stay within the two.
func rising(x []float64) []float64 {
	type block struct {
		sum   float64
		count int
	}
	var blocks []block
	for _, y := range x[1 : len(x)-1] {
		b := block{y, 1}
		for len(blocks) > 0 {
			last := blocks[len(blocks)-1]
			if last.sum*float64(b.count) < b.sum*float64(last.count) {
				break
			}
			b = block{last.sum + b.sum, last.count + b.count}
			blocks = blocks[:len(blocks)-1]
		}
		blocks = append(blocks, b)
	}
	first, last := x[0], x[len(x)-1]
	out := []float64{first}
	for _, b := range blocks {
		for range b.count {
			out = append(out, min(max(b.sum/float64(b.count), first), last))
		}
	}
	return append(out, last)
}
