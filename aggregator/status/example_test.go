package status_test

import (
	"fmt"

	"github.com/starling-agg/starling/aggregator/status"
)

func ExampleWhy() {
	task := status.Task{
		Phase: status.Running, MinBatch: 1000, Total: 400, Counts: status.Counts{Acknowledged: 400, Aggregated: 400},
		Batches: []status.Batch{{State: "open", Verified: 400}},
	}
	for _, r := range status.Why(&task) {
		fmt.Printf("%s: %s\n", r.Blocks, r.Do)
	}
	// Output: 400 verified reports, below the minimum of 1000: send more reports
}
