package pine_test

import (
	"crypto/rand"
	"fmt"
	"log"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/pine"
)

// What an upload will cost, before anything is built.
func ExamplePlan() {
	c, err := pine.Plan(pine.Params{Field: pine.Field32, Dimension: 262144, FracBits: 15, Norm: 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d bytes, %.2f times 4 bytes an entry\n", c.Upload, c.PlaintextRatio)
	fmt.Printf("at most %d clients of norm %d/2^15\n", c.MaxClients, c.Bound)
	fmt.Printf("soundness: tests %.0f bits, main proofs %.0f, norm proofs %.0f\n", c.Soundness.Tests, c.Soundness.Main,
		c.Soundness.Norm)
	// Output:
	// 1092272 bytes, 1.04 times 4 bytes an entry
	// at most 65520 clients of norm 32768/2^15
	// soundness: tests 100 bits, main proofs 104, norm proofs 110
}

// A private sum of gradients: two clients, of which one has a gradient that is too long
// and is clipped.
func Example() {
	v, err := pine.New(pine.Params{Field: pine.Field64, Dimension: 3, FracBits: 24, Norm: 1})
	if err != nil {
		log.Fatal(err)
	}
	ctx := []byte("example.com gradients")
	var key [vdaf.VerifyKeySize]byte // the aggregators share it; clients must not know it
	rand.Read(key[:])

	gradients := [][]float32{{0.5, -0.25, 0.125}, {300, 0, -400}}
	n := len(gradients)
	var reports [2]vdaf.Reports
	for _, g := range gradients {
		var nonce [vdaf.NonceSize]byte
		rand.Read(nonce[:])
		e, err := pine.Encode(v, g, pine.Encoding{Clip: true})
		if err != nil {
			log.Fatal(err)
		}
		shares, err := v.ShardIntegers(ctx, e, &nonce)
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

	errs := make([]error, n)
	states := make([]vdaf.State, 2)
	verifiers := make([][]byte, 2)
	for agg := range reports {
		states[agg] = v.NewState(n)
		verifiers[agg] = make([]byte, n*v.Sizes().VerifierShare)
		v.VerifyInit(states[agg], &key, ctx, agg, &reports[agg], verifiers[agg], errs)
	}
	messages := make([]byte, n*v.Sizes().VerifierMessage)
	v.Combine(ctx, verifiers, messages, errs)
	sums := make([]*vdaf.AggShare, 2)
	for agg, st := range states {
		v.Check(st, messages, errs)
		sums[agg] = v.NewAggShare()
		v.Accumulate(st, nil, nil, sums[agg:agg+1], errs)
	}
	sum, err := v.Unshard(sums)
	if err != nil {
		log.Fatal(err)
	}
	for _, x := range v.Reals(sum) {
		fmt.Printf("%.3f ", x)
	}
	fmt.Println(errs)
	// Output: 1.100 -0.250 -0.675 [<nil> <nil>]
}
