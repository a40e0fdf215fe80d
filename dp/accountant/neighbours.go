package accountant

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

// Neighbours says which two data sets a guarantee makes hard to tell apart.
type Neighbours = release.Neighbours

// The relations of neighbours; see package release.
const (
	AddRemove  = release.AddRemove
	ReplaceOne = release.ReplaceOne
	ZeroOut    = release.ZeroOut
)

// ParseNeighbours reads add-remove, replace or zero-out.
func ParseNeighbours(s string) (Neighbours, error) {
	n, err := release.ParseNeighbours(s)
	if err != nil {
		return 0, fmt.Errorf("%w: neighbours %q, want add-remove, replace or zero-out", ErrParameter, s)
	}
	return n, nil
}

type contributionKind uint8

const (
	oneHot contributionKind = iota + 1
	interval
	signed
	ball
	simplex
)

// A Contribution bounds what one person's record adds to the sum that is released. Make one with OneHot, MultiHot,
// Interval, Vector, Signed, Ball or Simplex; the zero value is refused.
type Contribution struct {
	kind   contributionKind
	coords uint64
	max    float64
}

// OneHot is 1 in one coordinate: a histogram to which each person adds one.
func OneHot() Contribution { return MultiHot(1) }

// MultiHot is 1 in at most k coordinates.
func MultiHot(k uint64) Contribution { return Contribution{oneHot, k, 1} }

// Interval is one number in [0, max]; a count is Interval(1).
func Interval(max float64) Contribution { return Vector(1, max) }

// Vector is length numbers, each in [0, max].
func Vector(length uint64, max float64) Contribution { return Contribution{interval, length, max} }

// Signed is one number in [-max, max].
func Signed(max float64) Contribution { return Contribution{signed, 1, max} }

// Ball is a vector of length numbers and of Euclidean norm at most radius.
func Ball(length uint64, radius float64) Contribution { return Contribution{ball, length, radius} }

// Simplex is a vector of length whole numbers from 0 on that add up to at most bound, a
// whole number.
func Simplex(length uint64, bound float64) Contribution { return Contribution{simplex, length, bound} }

// anywhere says whether records may differ by any vector within the norms of the
// sensitivity, not by Max in each of Coordinates at once.
func (c Contribution) anywhere() bool { return c.kind == ball || c.kind == simplex }

// A Sensitivity bounds the difference of the sums over two neighbouring data sets: Coordinates may differ, each by at
// most Max; L1 and L2 bound the norms of the difference.
type Sensitivity struct {
	Coordinates uint64
	Max, L1, L2 float64
}

// Sensitivity returns how far apart neighbours are.
func (c Contribution) Sensitivity(n Neighbours) (Sensitivity, error) {
	if n < AddRemove || n > ZeroOut {
		return Sensitivity{}, parameter("neighbours", float64(n), "AddRemove, ReplaceOne or ZeroOut")
	}
	if c.kind == 0 {
		return Sensitivity{}, fmt.Errorf("%w: the contribution of one person is not stated", ErrParameter)
	}
	if !(c.max > 0) || math.IsInf(c.max, 0) {
		return Sensitivity{}, parameter("contribution", c.max, "a positive number")
	}
	if c.coords == 0 || c.coords > maxCount/2 {
		return Sensitivity{}, parameter("number of coordinates", float64(c.coords), "1 to 10^12")
	}
	coords, m := c.coords, c.max
	if n == ReplaceOne {
		switch c.kind {
		case oneHot:
			coords *= 2 // one person's ones go, another's come, and none need coincide
		case signed, ball:
			m *= 2
		case interval: // two values of [0, max] differ by at most max
		}
	}
	if c.kind == simplex {
		s := Sensitivity{Coordinates: coords, Max: m, L1: m, L2: m}
		if n == ReplaceOne && coords > 1 { // docs/proofs/bounded-totals.md, theorem 1
			s.L1, s.L2 = 2*m, outward.Up(math.Sqrt2*m)
		}
		return s, nil
	}
	if c.kind == ball {
		return Sensitivity{Coordinates: coords, Max: m, L1: outward.Up(math.Sqrt(float64(coords)) * m), L2: m}, nil
	}
	k := float64(coords)
	return Sensitivity{Coordinates: coords, Max: m, L1: outward.Up(k * m), L2: outward.Up(math.Sqrt(k) * m)}, nil
}
