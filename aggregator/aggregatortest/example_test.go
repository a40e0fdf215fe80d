package aggregatortest_test

import (
	"context"
	"fmt"

	"github.com/starling-agg/starling/aggregator/aggregatortest"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/internal/rounds"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/dap"
)

// Leader and helper of a test take three rounds, and the helper gives a wrong word about
// every report in its second answer.
func ExampleRounds() {
	lie := func(role dap.Role, step uint16, _ dap.ReportID) bool { return role == dap.RoleHelper && step == 1 }
	ctx := aggregatortest.Rounds(context.Background(), 3, lie)
	_, err := leader.New(ctx, leader.Options{})
	fmt.Println(err)
	_, err = helper.New(ctx, helper.Options{})
	fmt.Println(err)
	fmt.Println(rounds.For(ctx, nil).Rounds())
	// Output:
	// leader: no task
	// helper: no task
	// 3
}
