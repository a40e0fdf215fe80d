package client

import (
	"os"
	"testing"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dap/daptest"
)

// speaks is the draft of the recipes of this pass.
var speaks dap.Version

func TestMain(m *testing.M) { os.Exit(daptest.Drafts(m, &speaks)) }
