package client

import (
	"os"
	"testing"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dap/daptest"
)

// speaks is the draft of the recipes of this pass.
var speaks dap.Version

func TestMain(m *testing.M) {
	plan := daptest.Plan{
		Dialects: []dap.Dialect{{Version: dap.Draft18}, {Version: dap.Draft19}},
	}
	os.Exit(daptest.Run(m, plan, func(d dap.Dialect, run func() int) int {
		speaks = d.Version
		return run()
	}))
}
