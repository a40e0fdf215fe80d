package plan_test

import (
	"fmt"

	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/plan"
)

// Each of 21 buckets within 1 % of 20,000 people, in 95 of 100 cases.
func Example() {
	p, err := plan.Make(plan.Goal{Query: recipe.Histogram{Length: 21}, People: 20000, Within: 0.01})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("sigma^2 %v on each server, at least %d reports\n", p.Variance, p.MinBatch)
	fmt.Printf("epsilon %.4f, delta %.0e\n", p.Loss.Epsilon, p.Loss.Delta)
	// Output:
	// sigma^2 104127/20 on each server, at least 10000 reports
	// epsilon 0.0983, delta 1e-09
}
