package calculator_test

import (
	"fmt"

	"github.com/starling-agg/starling/dp/calculator"
	"github.com/starling-agg/starling/dp/release"
)

// A secret fiftieth of the people in each of 2,500 releases.
func Example() {
	a, err := calculator.Ask{
		Line:  calculator.Line{Mechanism: release.NameGaussian, Sigma: 5.1, Sampling: 0.02, Steps: 2500},
		Delta: 1e-8,
	}.Answer()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("epsilon %.3f by %s\n", a.Epsilon, a.Method)
	// Output: epsilon 1.020 by pld
}

// The least noise for a wanted guarantee.
func Example_solve() {
	a, err := calculator.Ask{
		Line:  calculator.Line{Mechanism: release.NameGaussian},
		Solve: calculator.SolveSigma, Epsilon: 1, Delta: 1e-8,
	}.Answer()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("sigma %.4f\n", a.Solved)
	// Output: sigma 5.1003
}
