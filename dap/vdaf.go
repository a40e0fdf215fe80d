package dap

import (
	"fmt"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// aggregators is the number of shares of every report in DAP.
const aggregators = 2

// NewVDAF makes the VDAF of a task from its vdaf_type and vdaf_configuration. It fails with [ErrMalformed] where
// [ReadVDAFConfig] does, and with [prio3.ErrParameter] where the VDAF would be too large.
func NewVDAF(vdafType uint32, config []byte) (vdaf.VDAF, error) {
	c, err := ReadVDAFConfig(vdafType, config)
	if err != nil {
		return nil, err
	}
	switch c := c.(type) {
	case CountConfig:
		return made(prio3.NewCount(aggregators))
	case SumConfig:
		return made(prio3.NewSum(aggregators, c.MaxMeasurement))
	case SumVecConfig:
		return made(prio3.NewSumVec(aggregators, int(c.Length), c.MaxMeasurement, int(c.ChunkLength)))
	case HistogramConfig:
		return made(prio3.NewHistogram(aggregators, int(c.Length), int(c.ChunkLength)))
	case MultihotCountVecConfig:
		return made(prio3.NewMultihotCountVec(aggregators, int(c.Length), int(c.MaxWeight), int(c.ChunkLength)))
	}
	panic(fmt.Sprintf("dap: internal error: no VDAF for %T", c))
}

// made keeps a nil pointer from becoming a VDAF that is not nil.
func made[V vdaf.VDAF](v V, err error) (vdaf.VDAF, error) {
	if err != nil {
		return nil, fmt.Errorf("dap: task's VDAF: %w", err)
	}
	return v, nil
}

// VDAF makes the VDAF of the task; see [NewVDAF].
func (t *TaskConfiguration) VDAF() (vdaf.VDAF, error) { return NewVDAF(t.VDAFType, t.VDAFConfig) }
