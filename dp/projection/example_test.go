package projection_test

import (
	"fmt"

	"github.com/starling-agg/starling/dp/projection"
)

// A vector of one large number among 1,024 is sent as 256 numbers and found again.
func Example() {
	seed := [32]byte{1} // public, and the same for all who are summed
	p, err := projection.New(1024, 256, seed)
	if err != nil {
		panic(err)
	}
	x := make([]float64, 1024)
	x[700] = 1
	y := p.Apply(x)
	estimate := p.Transpose(y)
	largest := 0
	for i, v := range estimate {
		if v > estimate[largest] {
			largest = i
		}
	}
	fmt.Printf("%d numbers sent; number %d is %.2f\n", len(y), largest, estimate[largest])
	fmt.Printf("the estimate is %.2f times the vector's length off\n", projection.Error(1024, 256))
	// Output:
	// 256 numbers sent; number 700 is 1.00
	// the estimate is 1.73 times the vector's length off
}
