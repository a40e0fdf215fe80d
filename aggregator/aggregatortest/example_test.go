package aggregatortest_test

import (
	"fmt"

	"github.com/starling-agg/starling/aggregator/aggregatortest"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/dap"
)

// Leader and helper of a test take three rounds, and the helper gives a wrong word about every report in its second answer.
func ExampleRounds() {
	lie := func(role dap.Role, step uint16, _ dap.ReportID) bool { return role == dap.RoleHelper && step == 1 }
	l := leader.Options{Rounds: aggregatortest.Rounds(3, lie)}
	h := helper.Options{Rounds: aggregatortest.Rounds(3, lie)}
	fmt.Println(l.Rounds(nil).Rounds(), h.Rounds(nil).Rounds())
	// Output: 3 3
}
