package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/starling-agg/starling/aggregator/internal/store"
)

// ErrFault is what the caller of a call hears that a fault struck: one of the suite's, or
// one that a harness has in its failpoints.
var ErrFault = errors.New("storetest: fault")

// Faults are drawn for the calls that change something. One in faultOdds calls is not
// made; as many are made, and the caller hears [store.ErrUnknown], as it does of half as
// many that are not made.
const faultOdds = 12

// reads are the calls that faults spare: to ask again is all that there is to do about
// them.
var reads = []string{"Counts", "Batches", "Resource", "PendingResources", "ReleasesAfter", "Ledger", "LogFate", "BegunLogs", "BeginLogs",
	"Registration", "Registrations"}

// faulty returns the handle behind faults, drawn from rng.
func faulty(e store.Engine, rng *rand.Rand, on func() bool) store.Engine {
	var mu sync.Mutex
	return &via{
		do: func(method string, call func(store.Engine) error) error {
			mu.Lock()
			n := rng.IntN(2 * faultOdds)
			mu.Unlock()
			if !on() || slices.Contains(reads, method) {
				return call(e)
			}
			switch n {
			case 0, 1:
				return fmt.Errorf("%w: not done", ErrFault)
			case 2:
				return fmt.Errorf("%w: %w, not done", ErrFault, store.ErrUnknown)
			case 3, 4:
				if err := call(e); err != nil {
					return err
				}
				return fmt.Errorf("%w: %w, done", ErrFault, store.ErrUnknown)
			}
			return call(e)
		},
		close: e.Close,
	}
}
