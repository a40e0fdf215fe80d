package amplify_test

import (
	"fmt"

	"github.com/starling-agg/starling/dp/amplify"
	"github.com/starling-agg/starling/dp/release"
)

// Ten thousand people each send one answer of a 4-LDP randomizer through a shuffler.
func ExampleShuffle() {
	c, err := amplify.Shuffle(release.AnyReport(4), 10_000)
	if err != nil {
		fmt.Println(err)
		return
	}
	g, err := c.Epsilon(1e-10)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(g)
	// Output:
	// (0.893913, 1e-10)-DP, replace neighbours, by clone bound, summed exactly (Feldman, McMillan and Talwar, FOCS 2021, theorem 3.1)
}

// A client checks in at one of a thousand slots; its update is 1-LDP. What the paper
// states, and what holds.
func ExampleCheckIn() {
	c := amplify.CheckIn{Schedule: release.FixedWindow, Slots: 1000, Rate: 1}
	paper, err := c.Theorem(amplify.LocalDP{Report: release.AnyReport(1)}, 1e-6, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	curve, err := c.Curve(release.AnyReport(1), release.ReplaceOne)
	if err != nil {
		fmt.Println(err)
		return
	}
	tight, err := curve.Epsilon(1e-6)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%.4f %.4f\n", paper.Epsilon, tight.Epsilon)
	// Output: 0.4749 0.1824
}

// How often must each of a hundred thousand idle devices send a dummy for the count to be
// (1, 1e-6)-DP?
func ExampleDummyProbability() {
	q, _, err := amplify.DummyProbability(100_000, 1, 1e-6)
	fmt.Printf("%.3g %v\n", q, err)
	// Output: 0.000341 <nil>
}
