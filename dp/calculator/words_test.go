package calculator

import (
	"math"
	"strconv"
	"testing"
)

// Six digits of a number are on its safe side, however small it is.
func TestSixDigitsOfSmallNumbers(t *testing.T) {
	for _, x := range []float64{1, 0.1, 5.1003088, 1e-9, 2.0 / 3, 1e-300, 9.99999951e-301, 1e-320, 5e-324, 123456789, 1e300} {
		up, err1 := strconv.ParseFloat(above(x), 64)
		down, err2 := strconv.ParseFloat(below6(x), 64)
		if err1 != nil || err2 != nil || !(up >= x*(1-1e-12) && down <= x*(1+1e-12)) || math.Abs(up-down) > 1.1e-5*x {
			t.Errorf("%v is written %s rounded up and %s rounded down", x, above(x), below6(x))
		}
	}
}
