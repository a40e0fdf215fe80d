package local_test

import (
	"errors"
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

// Does a measure help? Each of 20,000 people says yes or no, 1 or -1, and is in one of
// three groups that nobody is to learn. A second question, of which the value is 1, asks
// for the sizes of the groups. The true means are 0.6, 0.4 and 0.2.
func ExampleQuestion() {
	asked, err := local.NewQuestion(3, 1, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	device := localtest.Seeded(asked, [32]byte{1}) // so that the output is the same each time
	sums, sizes := asked.NewSum(), asked.NewSum()
	ask := func(sum *local.GroupSum, query local.Query, group, value int) error {
		column, err := device.Randomize(query, group, value)
		if err != nil {
			return err
		}
		return asked.Add(sum, query, column) // on the server
	}
	for i := range 20_000 {
		group, value := i%3, 1
		if i%10 < 2+group {
			value = -1
		}
		query := local.Query{Nonce: [16]byte{byte(i), byte(i >> 8)}}
		again := local.Query{Nonce: [16]byte{byte(i), byte(i >> 8), 1}}
		if err := errors.Join(ask(sums, query, group, value), ask(sizes, again, group, 1)); err != nil {
			fmt.Println(err)
			return
		}
	}
	estimates, err := sums.EstimateWithSizes(sizes)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d bit an answer, epsilon %v for each of two\n", asked.Bits(), asked.Epsilon(local.Replacement))
	for g, e := range estimates {
		mean, low, high := e.Mean(2)
		fmt.Printf("group %d: sum %.0f, size %.0f, mean %.2f, %.2f to %.2f\n", g, e.Sum.Value, e.Size.Value, mean, low, high)
	}
	// Output:
	// 1 bit an answer, epsilon 1 for each of two
	// group 0: sum 3428, size 6695, mean 0.51, 0.42 to 0.62
	// group 1: sum 2787, size 6778, mean 0.41, 0.32 to 0.51
	// group 2: sum 1761, size 6358, mean 0.28, 0.18 to 0.38
}
