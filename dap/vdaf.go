package dap

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/pine"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// aggregators is the number of shares of every report in DAP.
const aggregators = 2

// NewVDAF makes the VDAF of a task from its vdaf_type and vdaf_configuration. It fails
// with [ErrMalformed] where [ReadVDAFConfig] does, and with [prio3.ErrParameter] or
// [pine.ErrParameter] where the VDAF would be too large or its proof unsound.
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
	case L1BoundSumConfig:
		return made(prio3.NewL1BoundSum(aggregators, int(c.Length), c.MaxValue, int(c.ChunkLength)))
	case PineConfig:
		return made(newPine(c))
	case L2VecConfig:
		return made(prio3.NewL2Vec(aggregators, int(c.Length), l2Widths[c.Width]))
	case ColumnsConfig:
		return made(prio3.NewColumns(aggregators, int(c.Groups), int(c.Largest), int(c.ChunkLength)))
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

var (
	pineFields = map[uint32]pine.Field{
		TypePine32: pine.Field32, TypePine40: pine.Field40, TypePine64: pine.Field64, TypePine128: pine.Field128,
	}
	l2Widths = map[uint32]int{TypeL2Vec16: 16, TypeL2Vec32: 32, TypeL2Vec64: 64}
)

// PineParams are the parameters of the VDAF that c configures, for whoever shards or
// decodes; Norm is Bound * 2^-FracBits. They may still be refused by
// [pine.Params.Validate].
func (v PineConfig) PineParams() pine.Params {
	return pine.Params{
		Field: pineFields[v.Field], Dimension: int(v.Dimension), FracBits: int(v.FracBits), Shares: aggregators,
		Norm: math.Ldexp(float64(v.Bound), -int(v.FracBits)),
	}
}

func newPine(c PineConfig) (*pine.Pine, error) {
	// A bound above MaxBound would be rounded on its way through a float64; below, it
	// comes out as it went in.
	if c.Bound > pine.MaxBound {
		return nil, fmt.Errorf("%w: a bound of %d units, want at most %d", pine.ErrParameter, c.Bound, uint64(pine.MaxBound))
	}
	return pine.New(c.PineParams())
}

// EntryBits is the number of bits of an entry.
func (v L2VecConfig) EntryBits() int { return l2Widths[v.Width] }
