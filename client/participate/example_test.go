package participate_test

import (
	"fmt"

	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/recipe"
)

// A device keeps an account over all recipes and pays before it tosses.
func Example() {
	ledger, err := participate.MemoryLedger(participate.LedgerOptions{MaxEpsilon: 4, MaxDelta: 1e-5})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ledger.Close()
	fmt.Println(ledger.Spent().Epsilon, "of", ledger.Budget().MaxEpsilon)

	// When it takes part, in a fixed window of four slots, is drawn in secret.
	slots := participate.CheckIns{Window: release.FixedWindow, Slots: 4, P0: recipe.Rational{Num: 1, Den: 1}}
	slot, ok := slots.Draw(0)
	fmt.Println(slot < 4, ok)
	// Output:
	// 0 of 4
	// true true
}
