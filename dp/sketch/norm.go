package sketch

import (
	"fmt"
	"math"
)

// A Moment is an estimate with its standard deviation.
type Moment struct{ Value, Deviation float64 }

// Repeats estimates the sum of the squared counts of all keys, one of each of people, from
// the noisy sums of a row of cells that a [Hash] makes of them: the second moment, whose root
// is the L2 norm of the counts. Over the hash and the noise it is unbiased, and its variance
// is at most the stated one's mean (docs/proofs/sketches.md, Theorem 5). fourth is the mean
// of the noise's fourth power. It fails unless there are two cells or more.
func Repeats(sums []int64, n Noise, fourth float64, people uint64) (Moment, error) {
	w, total := float64(len(sums)), float64(people)
	if len(sums) < 2 {
		return Moment{}, fmt.Errorf("%w: a row of %d cells", errShape, len(sums))
	}
	v, square := n.Deviation*n.Deviation, 0.0
	for _, x := range sums {
		square += float64(x) * float64(x)
	}
	square -= w * v // that of the cells, without noise
	second := (square - total*total/w) * w / (w - 1)
	// Noise adds 4v to each square of a cell and fourth - v^2 for each cell; the hash twice
	// the square of what collides, which is no more than the moment.
	variance := 4*v*max(0, square) + w*(fourth-v*v)
	part := w / (w - 1)
	return Moment{second, math.Sqrt(part*part*variance + 2*math.Pow(max(0, second), 2)/(w-1))}, nil
}

// DistinctNoise is what [Distinct] knows of noise: that each cell has as much as Draws draws
// of discrete Laplace noise of that scale, P(y) proportional to exp(-|y|/Scale); no draws are
// no noise. Two servers add 2; of users who add a share of 1/h each n are n/h draws, and that
// need not be whole.
type DistinctNoise struct {
	Scale float64
	Draws float64 // 0 to MaxDraws
}

// MaxDraws is the most noise that [CountDistinct] undoes, and maxSeries the largest scale of
// draws that are not 1 or 2, whose weights are many.
const (
	MaxDraws  = 64
	maxSeries = 100
)

func (n DistinctNoise) valid() bool {
	few := n.Draws == 0 || n.Draws == 1 || n.Draws == 2
	return n.Draws == 0 || n.Draws > 0 && n.Draws <= MaxDraws && n.Scale > 0 && n.Scale < 1e6 && (few || n.Scale <= maxSeries)
}

// series are the coefficients of (1 - q x)^power up to where they are nothing, q < 1.
func series(q, power float64) []float64 {
	out := []float64{1}
	for j, x, most := 1, 1.0, 1.0; ; j++ {
		x *= q * (float64(j-1) - power) / float64(j)
		if most = max(most, math.Abs(x)); math.Abs(x) < 1e-17*most && float64(j) > math.Abs(power) {
			return out
		}
		out = append(out, x)
	}
}

// around is how much a series has in common with itself, moved by -reach to reach.
func around(c []float64, reach int, scale float64) []float64 {
	out := make([]float64, 2*reach+1)
	for y := range reach + 1 {
		sum := 0.0
		for i := 0; i+y < len(c); i++ {
			sum += c[i] * c[i+y]
		}
		out[reach+y], out[reach-y] = scale*sum, scale*sum
	}
	return out
}

// weights are those of the cells' sums around 0 in an unbiased estimate of whether a cell is
// empty: the coefficients of 1 over the noise's characteristic function, which of discrete
// Laplace noise is a power of a trigonometric polynomial. They end behind as many as there
// are draws, where these are whole.
func (n DistinctNoise) weights() []float64 {
	if n.Draws == 0 {
		return []float64{1}
	}
	q := math.Exp(-1 / n.Scale)
	c := series(q, n.Draws)
	return around(c, len(c)-1, math.Pow(1-q, -2*n.Draws))
}

// probabilities are those of each sum of the draws that has a weight.
func (n DistinctNoise) probabilities() []float64 {
	reach := len(n.weights()) / 2
	q := math.Exp(-1 / n.Scale)
	out := make([]float64, 2*reach+1)
	for i := range out {
		y := math.Abs(float64(i - reach))
		at := (1 - q) / (1 + q)
		switch n.Draws {
		case 0:
			out[i] = 1
		case 1:
			out[i] = at * math.Pow(q, y)
		case 2: // sum over a of q^(|a| + |y-a|)
			out[i] = at * at * math.Pow(q, y) * (y + 1 + 2*q*q/(1-q*q))
		default: // the difference of two negative binomial variables
			return around(series(q, -n.Draws), reach, math.Pow(1-q, 2*n.Draws))
		}
	}
	return out
}

// Expected bounds the standard deviation of [CountDistinct] in a row of width cells with the
// given number of keys: the noise of a cell is at most that of an empty one.
func (n DistinctNoise) Expected(width, keys int) float64 {
	w, t := float64(width), float64(keys)/float64(width)
	each := 0.0
	if n.Draws > 0 {
		for i, p := range n.probabilities() {
			each += p * n.weights()[i] * n.weights()[i]
		}
	}
	return math.Sqrt(w*each+w*(math.Exp(-t)-(1+t)*math.Exp(-2*t))) / math.Exp(-t)
}

// Distinct is how many keys there are among people who have one each.
type Distinct struct {
	Keys      float64
	Deviation float64
	Low, High float64 // with the probability of the reach that is asked for
	// Detected is false where the noise leaves no bound: all cells may be full.
	Detected bool
}

// CountDistinct estimates how many keys people have, from the noisy sums of a row of cells
// that a [Hash] makes of them: from how many cells are empty, which is estimated without
// bias (docs/proofs/sketches.md, Theorem 6), as linear counting does (Whang, Vander-Zanden
// and Taylor 1990). The interval holds with the probability of a normal variable's reach.
// It fails unless there are two cells or more, and noise is as [DistinctNoise] wants it.
func CountDistinct(sums []int64, n DistinctNoise, people uint64, reach float64) (Distinct, error) {
	if len(sums) < 2 || !n.valid() {
		return Distinct{}, fmt.Errorf("%w: a row of %d cells with noise %+v", errShape, len(sums), n)
	}
	weights, w := n.weights(), float64(len(sums))
	empty, square := 0.0, 0.0
	for _, x := range sums {
		if i := x + int64(len(weights)/2); i >= 0 && i < int64(len(weights)) {
			empty += weights[i]
			square += weights[i] * weights[i]
		}
	}
	// The cells' noises are independent: the sum of squares is no less than its variance, on
	// average.
	noise := 0.0
	if n.Draws > 0 {
		noise = square
	}
	keys := func(empty float64) float64 { // by the mean of empty cells
		return math.Log(min(1, max(0, empty)/w)) / math.Log1p(-1/w)
	}
	spread := func(keys float64) float64 { // of empty cells, by the hash
		t := keys / w
		return w * (math.Exp(-t) - (1+t)*math.Exp(-2*t))
	}
	d := Distinct{Keys: keys(max(empty, 1)), Detected: true}
	all := math.Sqrt(noise + spread(d.Keys))
	slope := -math.Log1p(-1/w) * max(empty, 1) // of empty cells by keys
	d.Deviation = all / slope
	most := float64(people)
	d.Low, d.High = min(keys(empty+reach*all), most), keys(empty-reach*all)
	if empty-reach*all < 1 {
		d.High, d.Detected = most, false
	}
	d.High = min(d.High, most)
	if people > 0 {
		d.Low, d.High = max(d.Low, 1), max(d.High, 1)
	}
	d.Keys = min(max(d.Keys, d.Low), d.High)
	return d, nil
}
