package recipe

import (
	"fmt"

	"github.com/starling-agg/starling/dp/sketch"
)

// Distinct asks each device for a text; the answer is how many different ones there are,
// from how many cells are empty ([sketch.CountDistinct]). It takes whole-number Laplace
// noise, or none: Gaussian noise leaves nothing of what tells a cell of one device from an
// empty one. One device changes the answer by about as much as an empty cell tells.
type Distinct struct{ Keyed }

func (q Distinct) String() string {
	return fmt.Sprintf("each device gives a text, which a public hash puts into one of %d cells; the result is how many different texts there are", q.Width)
}

// noiseOfCells is what the estimate knows of noise.
func noiseOfCells(n Spread) sketch.DistinctNoise {
	return sketch.DistinctNoise{Scale: n.Scale, Draws: n.Draws}
}

// expected says how far off the number is, at most, where all texts are different.
func (q Distinct) expected(r *Recipe) string {
	texts := min(r.usual(), uint64(q.Width))
	return fmt.Sprintf("a device marks 1 of %d cells; of %d different texts the number is off by about %.3g, with probability 95 %%",
		q.Width, texts, Normal95*noiseOfCells(r.Blurred(r.usual())).Expected(int(q.Width), int(texts)))
}

// Tabulate has one cell, below detection where the noise leaves no bound from above.
func (q Distinct) Tabulate(n Spread, sums []int64, reports uint64, asked []string) (*Table, error) {
	if len(sums) != int(q.Width) {
		return nil, fmt.Errorf("%d sums for %d cells", len(sums), q.Width)
	}
	d, err := sketch.CountDistinct(sums, noiseOfCells(n), reports, Normal95)
	if err != nil {
		return nil, err
	}
	c := Cell{sketch.Value, d.Keys, d.Deviation, [2]float64{d.Low, d.High}}
	if !d.Detected {
		c.State = sketch.BelowDetection
	}
	return one("different texts", c, asked), nil
}

// laplaced refuses noise that hides whether a cell is empty.
func (v *validator) laplaced(r *Recipe) {
	if _, ok := r.Query.(Distinct); ok && r.Noise != nil && r.Noise.norm() == 2 {
		v.add("noise", "leaves nothing of whether a cell is empty, which the number of different texts is told by: want discrete-laplace")
	}
}

func (Distinct) query() uint8 { return tagDistinct }

func readDistinct(d *decoder) Query { return Distinct{readKeyed(d)} }

func parseDistinct(s string) (Query, error) {
	q, err := parseKeyed(s)
	return Distinct{q}, err
}

func (q Distinct) withChunk() Query { return Distinct{q.chunked()} }
