package amplify

import (
	"math"
	"testing"

	"github.com/starling-agg/starling/internal/binomial"
)

// TestGrid: what lies between two points of a grid is theirs by its distance, rounded up;
// added up value by value, and by tails where steps are wide.
func TestGrid(t *testing.T) {
	const mass, miss = 0.25, 1e-24
	for _, c := range []struct{ n, p, total, above float64 }{
		{50, 0.5, 10, 1e-10},
		{1000, 0.12, 200, 1e-10},
		{9686, 0.12, 1570, 1e-10},
		{1e4, 0.9, 3000, 1e-10},
		{968000, 0.125, 157000, 1e-10},
		{4e6, 0.125, 1e6, 1e-3}, // by tails
	} {
		var row karyRow
		row.grid(c.n, c.p, 1-c.p, mass, c.total, miss)
		last := len(row.mass) - 1
		if tails := c.above > 1e-10; tails != (row.step > fineStep) || last < 4 {
			t.Errorf("%+v: %d points, %v apart", c, last+1, row.step)
		}
		want, off := make([]float64, last+1), 0.0
		for r := row.first; r <= row.first+float64(last)*row.step; r++ {
			g, rel := binomial.PMF(r, c.n, c.p, 1-c.p)
			j, way := int((r-row.first)/row.step), math.Mod(r-row.first, row.step)/row.step
			off = max(off, rel)
			want[j] += mass * g * (1 - way)
			if way > 0 {
				want[j+1] += mass * g * way
			}
		}
		for j, w := range want {
			if w < 1e-18 && j != 0 && j != last { // of which tails have too few digits
				continue
			}
			if got := row.mass[j]; got < w || got > w*(1+off+c.above)+mass*1e-8*c.above {
				t.Errorf("%+v: point %d has %v, want %v", c, j, got, w)
			}
		}
	}
}
