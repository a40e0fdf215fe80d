package release

import (
	"fmt"
	"math"
)

// A Shape says between which records a [Contribution] lies.
type Shape uint8

// The shapes. The zero value is none of them.
const (
	ShapeOnes   Shape = iota + 1 // Max in at most Coordinates, of any number of them
	ShapeBox                     // each of Coordinates in [0, Max]
	ShapeSigned                  // one number in [-Max, Max]
	ShapeBall                    // Coordinates of Euclidean norm at most Max
	// Coordinates that are whole, from 0 on, and add up to at most Max
	ShapeSimplex
)

// A Contribution bounds what one person's record adds to the sum that is released. Make
// one with OneHot, MultiHot, Interval, Vector, Signed, Ball or Simplex; the zero value is
// refused.
type Contribution struct {
	Shape       Shape
	Coordinates uint64
	Max         float64
	// Places is how many coordinates a vector of ShapeOnes has; 0 where that is not said.
	Places uint64
}

// OneHot is 1 in one coordinate: a histogram to which each person adds one.
func OneHot() Contribution { return MultiHot(1) }

// MultiHot is 1 in at most k coordinates.
func MultiHot(k uint64) Contribution {
	return Contribution{Shape: ShapeOnes, Coordinates: k, Max: 1}
}

// MultiHotOf is 1 in at most k of places coordinates: where k is more than half of them,
// the ones of two people coincide in some.
func MultiHotOf(places, k uint64) Contribution {
	c := MultiHot(min(k, places))
	c.Places = places
	return c
}

// Interval is one number in [0, max]; a count is Interval(1).
func Interval(max float64) Contribution { return Vector(1, max) }

// Vector is length numbers, each in [0, max].
func Vector(length uint64, max float64) Contribution {
	return Contribution{Shape: ShapeBox, Coordinates: length, Max: max}
}

// Signed is one number in [-max, max].
func Signed(max float64) Contribution {
	return Contribution{Shape: ShapeSigned, Coordinates: 1, Max: max}
}

// Ball is a vector of length numbers and of Euclidean norm at most radius.
func Ball(length uint64, radius float64) Contribution {
	return Contribution{Shape: ShapeBall, Coordinates: length, Max: radius}
}

// Simplex is a vector of length whole numbers from 0 on that add up to at most bound, a
// whole number.
func Simplex(length uint64, bound float64) Contribution {
	return Contribution{Shape: ShapeSimplex, Coordinates: length, Max: bound}
}

// Anywhere says whether records may differ by any vector within the norms of the
// sensitivity, not by Max in each of Coordinates at once.
func (c Contribution) Anywhere() bool { return c.Shape == ShapeBall || c.Shape == ShapeSimplex }

// A Sensitivity bounds the difference of the sums over two neighbouring data sets:
// Coordinates may differ, each by at most Max; L1 and L2 bound the norms of the
// difference.
type Sensitivity struct {
	Coordinates uint64
	Max, L1, L2 float64
}

// maxCoordinates keeps sums and products of two of them exact in a float64.
const maxCoordinates = 1_000_000_000_000

// Sensitivity returns how far apart neighbours are. It fails with ErrParameter.
func (c Contribution) Sensitivity(n Neighbours) (Sensitivity, error) {
	if n < AddRemove || n > ZeroOut {
		return Sensitivity{}, &ParameterError{"neighbours", float64(n), "AddRemove, ReplaceOne or ZeroOut"}
	}
	if c.Shape < ShapeOnes || c.Shape > ShapeSimplex {
		return Sensitivity{}, fmt.Errorf("%w: the contribution of one person is not stated", ErrParameter)
	}
	if !(c.Max > 0) || math.IsInf(c.Max, 0) {
		return Sensitivity{}, &ParameterError{"contribution", c.Max, "a positive number"}
	}
	if c.Coordinates == 0 || c.Coordinates > maxCoordinates {
		return Sensitivity{}, &ParameterError{"number of coordinates", float64(c.Coordinates), "1 to 10^12"}
	}
	coords, m := c.Coordinates, c.Max
	if n == ReplaceOne {
		switch c.Shape {
		case ShapeOnes:
			coords *= 2 // one person's ones go, another's come, and none need coincide
			if c.Places > 0 {
				coords = min(coords, c.Places)
			}
		case ShapeSigned, ShapeBall:
			m *= 2
		case ShapeBox: // two values of [0, max] differ by at most max
		}
	}
	switch c.Shape {
	case ShapeSimplex:
		s := Sensitivity{Coordinates: coords, Max: m, L1: m, L2: m}
		if n == ReplaceOne && coords > 1 { // docs/proofs/bounded-totals.md, theorem 1
			s.L1, s.L2 = 2*m, up(math.Sqrt2*m)
		}
		return s, nil
	case ShapeBall:
		return Sensitivity{Coordinates: coords, Max: m, L1: up(math.Sqrt(float64(coords)) * m), L2: m}, nil
	}
	k := float64(coords)
	return Sensitivity{Coordinates: coords, Max: m, L1: up(k * m), L2: up(math.Sqrt(k) * m)}, nil
}

// margin is more than float64 loses, relatively, of a formula of a few operations: that of
// package outward, which is not imported here.
const margin = 1e-12

// rounding is more than float64 loses, relatively, of a number that goes through a few
// operations: likewise that of package outward.
const rounding = 4e-15

func up(x float64) float64 { return x * (1 + margin) }
