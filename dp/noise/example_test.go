package noise_test

import (
	"fmt"

	"github.com/starling-agg/starling/dp/noise"
)

func ExampleNewDiscreteGaussian() {
	g, err := noise.NewDiscreteGaussian(655360*655360, 1) // sigma = 655360
	if err != nil {
		fmt.Println(err)
		return
	}
	histogram := make([]int64, 21)
	g.Sample(histogram)
	fmt.Printf("%d buckets, standard deviation %.0f\n", len(histogram), 655360.0)
	fmt.Printf("one draw is beyond %d with probability at most 1e-9\n", g.Tail(1e-9))
	// Output:
	// 21 buckets, standard deviation 655360
	// one draw is beyond 4289121 with probability at most 1e-9
}
