package recipe

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/sketch"
)

// Norm asks each device for a text; the answer is the L2 norm of how many have each: the
// root of the sum of the squared counts ([sketch.Repeats]). Over the number of devices, and
// squared, it is the probability that two devices have the same text. A device changes it by
// 1 at most.
type Norm struct{ Keyed }

func (q Norm) String() string {
	return fmt.Sprintf("each device gives a text, which a public hash puts into one of %d cells; the result is the root of the summed squares of how many "+
		"have each text", q.Width)
}

// fourth is the mean of the fourth power of noise: three times the squared variance, and of
// d draws of Laplace noise of scale b (2 + cosh(1/b))/d times more.
func fourth(n sketch.Noise) float64 {
	excess := 0.0
	if n.Laplace > 0 {
		excess = (2 + math.Cosh(1/n.Laplace)) / n.Draws
	}
	return math.Pow(n.Deviation, 4) * (3 + excess)
}

// expected says how far off the squared norm is.
func (q Norm) expected(r *Recipe) string {
	reports := r.usual()
	noise, w, all := noiseOf(r.Blurred(reports)), float64(q.Width), float64(reports)
	v := noise.Deviation * noise.Deviation
	// Of texts that are all different the squared norm is the number of reports.
	off := Normal95 * math.Sqrt(4*v*(all+all*all/w)+w*(fourth(noise)-v*v)+2*all*all/w)
	return fmt.Sprintf("a device marks 1 of %d cells; of %d different texts the squared norm, %d, is off by about %.3g, with probability 95 %%, "+
		"and of one text by at most %.3g of itself", q.Width, reports, reports, off, Normal95*math.Sqrt(2/w+4*v/(all*all)))
}

// Tabulate has one cell; its interval is that of the squared norm, which is from the number
// of reports to its square.
func (q Norm) Tabulate(n Spread, sums []int64, reports uint64, asked []string) (*Table, error) {
	if len(sums) != int(q.Width) {
		return nil, fmt.Errorf("%d sums for %d cells", len(sums), q.Width)
	}
	noise := noiseOf(n)
	m, err := sketch.Repeats(sums, noise, fourth(noise), reports)
	if err != nil {
		return nil, err
	}
	all := float64(reports)
	root := func(square float64) float64 { return math.Sqrt(min(max(square, all), all*all)) }
	x := root(m.Value)
	c := Cell{sketch.Value, x, m.Deviation / (2 * max(x, 1)), [2]float64{root(m.Value - Normal95*m.Deviation), root(m.Value + Normal95*m.Deviation)}}
	if m.Value <= Normal95*m.Deviation {
		c.State = sketch.BelowDetection
	}
	return one("norm", c, asked), nil
}

func (Norm) query() uint8 { return tagNorm }

func readNorm(d *decoder) Query { return Norm{readKeyed(d)} }

func parseNorm(s string) (Query, error) {
	q, err := parseKeyed(s)
	return Norm{q}, err
}

func (q Norm) withChunk() Query { return Norm{q.chunked()} }
