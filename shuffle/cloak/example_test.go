package cloak_test

import (
	"fmt"

	"github.com/starling-agg/starling/shuffle/cloak"
)

func Example() {
	p, err := cloak.Modern(cloak.Options{Users: 1000, Honest: 900, Precision: 1 << 20, Epsilon: 1, Delta: 1e-6})
	if err != nil {
		fmt.Println(err)
		return
	}
	var shuffled []cloak.Message // in any order
	for range 1000 {
		messages, err := p.Encode([]float64{0.25})
		if err != nil {
			fmt.Println(err)
			return
		}
		shuffled = append(shuffled, messages...)
	}
	sums, err := p.Analyze(shuffled)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d messages a user, error %.1f\n", p.Messages(), p.RMS())
	fmt.Println("within 50 of 250:", sums[0].Sum > 200 && sums[0].Sum < 300)
	// Output:
	// 9 messages a user, error 1.5
	// within 50 of 250: true
}
