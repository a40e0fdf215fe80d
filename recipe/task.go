package recipe

import (
	"errors"
	"fmt"

	"github.com/starling-agg/starling/dap"
)

// Task returns the DAP task of the recipe, a function of its bytes alone: task_info is the recipe's id, and everything
// else is copied from the choices. The task's id is [dap.TaskConfiguration.TaskID].
func (r *Recipe) Task() (*dap.TaskConfiguration, error) {
	id, err := r.ID()
	if err != nil {
		return nil, err
	}
	p, ok := r.Path.(TwoServer)
	if !ok {
		return nil, fmt.Errorf("recipe: path %v has no DAP task", r.Path)
	}
	vdaf, err := r.VDAF()
	if err != nil {
		return nil, err
	}
	config, err := vdaf.Append(nil)
	if err != nil {
		return nil, fmt.Errorf("recipe: task: %w", err)
	}
	t := dap.TaskConfiguration{
		TaskInfo:      id[:],
		Leader:        []byte(p.Leader),
		Helper:        []byte(p.Helper),
		TimePrecision: r.TimePrecision,
		MinBatchSize:  r.MinBatch,
		BatchMode:     p.BatchMode,
		VDAFType:      vdaf.Type(),
		VDAFConfig:    config,
	}
	if w, ok := r.Window.(Between); ok {
		length, ok := w.End.Sub(w.Start)
		if !ok {
			return nil, errors.New("recipe: task: the window ends before it starts")
		}
		t.Extensions, err = t.Extensions.WithTaskInterval(dap.Interval{Start: w.Start, Duration: length})
		if err != nil {
			return nil, fmt.Errorf("recipe: task: %w", err)
		}
	}
	task, err := dap.NewTaskConfiguration(t)
	if err != nil {
		return nil, fmt.Errorf("recipe: task: %w", err)
	}
	return task, nil
}

// VDAF returns the verifiable aggregation function that computes the query.
func (r *Recipe) VDAF() (dap.VDAFConfig, error) {
	switch q := r.Query.(type) {
	case Count:
		return dap.CountConfig{}, nil
	case Sum:
		return dap.SumConfig{MaxMeasurement: q.Max}, nil
	case Mean:
		return dap.SumConfig{MaxMeasurement: q.Max}, nil
	case Histogram:
		return dap.HistogramConfig{Length: q.Length, ChunkLength: q.Chunk}, nil
	case Multihot:
		return dap.MultihotCountVecConfig{Length: q.Length, MaxWeight: q.MaxWeight, ChunkLength: q.Chunk}, nil
	case SumVec:
		return dap.SumVecConfig{Length: q.Length, MaxMeasurement: q.Max, ChunkLength: q.Chunk}, nil
	}
	return nil, errors.New("recipe: the query is missing")
}

// ProofChunk returns the chunk length that makes the proof of a vector of n >= 1 field elements shortest: a proof has
// 2*chunk + 2*(P-1) + 1 elements, where P is the least power of two above the number of chunks (VDAF-18 section 7.3.3).
func ProofChunk(n uint64) uint32 {
	n = min(max(n, 1), MaxElements)
	best, shortest := n, uint64(1)<<63
	for p := uint64(2); p <= 2*n+1; p *= 2 {
		chunk := (n + p - 2) / (p - 1)
		if length := 2*chunk + 2*(p-1) + 1; length < shortest {
			best, shortest = chunk, length
		}
	}
	return uint32(best)
}
