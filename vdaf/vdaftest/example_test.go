package vdaftest_test

import (
	"fmt"
	"log"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
	"github.com/starling-agg/starling/vdaf/vdaftest"
)

// With its randomness chosen, sharding gives the same shares every time.
func ExampleShard() {
	count, err := prio3.NewCount(2)
	if err != nil {
		log.Fatal(err)
	}
	var nonce [vdaf.NonceSize]byte
	rand := make([]byte, 2*vdaf.SeedSize) // RAND_SIZE of Prio3Count with two shares
	rand[0] = 7
	a, err := vdaftest.Shard(count, []byte("context"), true, &nonce, rand)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(a.Inputs[1][0], len(a.Inputs[0]))
	// Output: 7 48
}
