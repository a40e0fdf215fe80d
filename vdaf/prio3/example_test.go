package prio3_test

import (
	"crypto/rand"
	"fmt"
	"log"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// A whole private histogram: five clients, two aggregators, one collector.
func Example() {
	hist, err := prio3.NewHistogram(2, 4, prio3.OptimalChunk(4))
	if err != nil {
		log.Fatal(err)
	}
	ctx := []byte("example.com favourite season")
	var key [vdaf.VerifyKeySize]byte // the aggregators share it; clients must not know it
	rand.Read(key[:])

	// Each client splits its bucket into a share for the leader and one for the helper.
	buckets := []int{2, 0, 2, 3, 2}
	n := len(buckets)
	var reports [2]vdaf.Reports
	for _, bucket := range buckets {
		var nonce [vdaf.NonceSize]byte
		rand.Read(nonce[:])
		shares, err := hist.Shard(ctx, bucket, &nonce)
		if err != nil {
			log.Fatal(err)
		}
		for agg := range reports {
			r := &reports[agg]
			r.Nonces = append(r.Nonces, nonce)
			r.Public = append(r.Public, shares.Public)
			r.Inputs = append(r.Inputs, shares.Inputs[agg])
		}
	}

	// The aggregators verify the batch. Only verifier shares and messages pass between
	// them.
	errs := make([]error, n)
	states := make([]vdaf.State, 2)
	verifiers := make([][]byte, 2)
	for agg := range reports {
		states[agg] = hist.NewState(n)
		verifiers[agg] = make([]byte, n*hist.Sizes().VerifierShare)
		hist.VerifyInit(states[agg], &key, ctx, agg, &reports[agg], verifiers[agg], errs)
	}
	messages := make([]byte, n*hist.Sizes().VerifierMessage)
	hist.Combine(ctx, verifiers, messages, errs)

	// Each adds up what passed. An aggregate share alone says nothing.
	sums := make([]*vdaf.AggShare, 2)
	for agg, st := range states {
		hist.Check(st, messages, errs)
		sums[agg] = hist.NewAggShare()
		hist.Accumulate(st, nil, nil, sums[agg:agg+1], errs)
	}
	for i, err := range errs {
		if err != nil {
			fmt.Println("report", i, "refused:", err)
		}
	}

	// The collector gets both.
	result, err := hist.Unshard(sums)
	fmt.Println(result, err)
	// Output: [1 0 3 1] <nil>
}
