package aggregator

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// NewVDAF makes the two-party VDAF of a task configuration.
func NewVDAF(cfg *dap.TaskConfiguration) (vdaf.VDAF, error) {
	params, err := dap.ReadVDAFConfig(cfg.VDAFType, cfg.VDAFConfig)
	if err != nil {
		return nil, err
	}
	const shares = 2
	switch p := params.(type) {
	case dap.CountConfig:
		return prio3.NewCount(shares)
	case dap.SumConfig:
		return prio3.NewSum(shares, p.MaxMeasurement)
	case dap.SumVecConfig:
		return prio3.NewSumVec(shares, int(p.Length), p.MaxMeasurement, int(p.ChunkLength))
	case dap.HistogramConfig:
		return prio3.NewHistogram(shares, int(p.Length), int(p.ChunkLength))
	case dap.MultihotCountVecConfig:
		if p.MaxWeight > math.MaxInt32 {
			return nil, fmt.Errorf("aggregator: maximum weight %d is too large", p.MaxWeight)
		}
		return prio3.NewMultihotCountVec(shares, int(p.Length), int(p.MaxWeight), int(p.ChunkLength))
	}
	return nil, fmt.Errorf("aggregator: no VDAF of type %#x", cfg.VDAFType)
}
