package edge

import (
	"time"

	"github.com/starling-agg/starling/aggregator/status"
)

// KeyAge is how old the key is that clients are offered; zero where it is the operator's.
func KeyAge(keys []status.Key, now time.Time) time.Duration {
	for i := range keys {
		if k := &keys[i]; k.State == status.KeyCurrent {
			return max(0, now.Sub(k.Created))
		}
	}
	return 0
}
