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
	dialects := []dap.Dialect{{Version: dap.Draft18}, {Version: dap.Draft19}}
	inOne := map[string]int{"TestBlurredReports": 1}
	os.Exit(daptest.Run(m, dialects, inOne, func(d dap.Dialect, run func() int) int {
		speaks = d.Version
		return run()
	}))
}
