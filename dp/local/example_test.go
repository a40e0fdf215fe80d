package local_test

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/local"
	"github.com/starling-agg/starling/dp/local/localtest"
)

// Three in ten of 100,000 people hold a secret; nobody's answer gives it away.
func ExampleResponse() {
	r, err := local.NewResponse(2, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	r = localtest.Seeded(r, [32]byte{1}) // so that the output is the same each time
	answers := make([]uint64, 2)
	for i := range 100_000 {
		secret := 0
		if i%10 < 3 {
			secret = 1
		}
		a, err := r.Randomize(secret)
		if err != nil {
			fmt.Println(err)
			return
		}
		answers[a]++
	}
	estimates, err := r.Estimate(answers)
	if err != nil {
		fmt.Println(err)
		return
	}
	e := estimates[1]
	fmt.Printf("epsilon %.3f, a lie with probability %.3f\n", r.Epsilon(local.Replacement), r.LieProbability())
	fmt.Printf("%.0f, standard error %.0f\n", e.Value, math.Sqrt(e.Variance))
	// Output:
	// epsilon 1.000, a lie with probability 0.269
	// 30146, standard error 303
}

// A report for a multi-hot proof has a bound on its weight; a dummy is a report for no
// value.
func ExampleRAPPOR_Bounded() {
	r, err := local.NewRAPPOR(1000, 4, local.Deletion, local.Symmetric)
	if err != nil {
		fmt.Println(err)
		return
	}
	r = r.Bounded()
	report, dummy := make([]bool, r.Values()), make([]bool, r.Values())
	if err := r.Randomize(report, 7); err != nil {
		fmt.Println(err)
		return
	}
	if err := r.Randomize(dummy, local.NoValue); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("at most %d of 1000 bits\n", r.MaxWeight())
	fmt.Printf("epsilon %.1f for deletion, %.1f for replacement\n", r.Epsilon(local.Deletion), r.Epsilon(local.Replacement))
	// Output:
	// at most 55 of 1000 bits
	// epsilon 4.0 for deletion, 8.0 for replacement
}
