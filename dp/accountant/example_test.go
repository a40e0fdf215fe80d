package accountant_test

import (
	"fmt"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
)

// A histogram to which each person adds one, released with the noise of one honest server.
func ExampleCalibrateDiscreteGaussian() {
	sigma2, g, err := accountant.CalibrateDiscreteGaussian(1, 1e-8, release.OneHot(), release.ReplaceOne, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("sigma^2 =", sigma2)
	fmt.Println(g)
	// Output:
	// sigma^2 = 3405487/65536
	// (1, 1e-08)-DP, replace neighbours, by exact curve of a product of discrete Gaussians (docs/proofs/discrete-gaussian-sums.md)
}
