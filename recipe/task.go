package recipe

import (
	"errors"
	"fmt"

	"github.com/starling-agg/starling/dap"
)

// Task returns the DAP task of the recipe, a function of its bytes alone: task_info is
// the recipe's id, and everything else is copied from the choices (min_batch_size is
// [Recipe.Threshold]). The task's id is [dap.TaskConfiguration.TaskID].
func (r *Recipe) Task() (*dap.TaskConfiguration, error) {
	id, err := r.ID()
	if err != nil {
		return nil, err
	}
	p, ok := r.Path.(TwoServer)
	if !ok {
		return nil, fmt.Errorf("recipe: path %v has no DAP task", r.Path)
	}
	function, err := r.VDAFConfig()
	if err != nil {
		return nil, err
	}
	config, err := function.Append(nil)
	if err != nil {
		return nil, fmt.Errorf("recipe: task: %w", err)
	}
	t := dap.TaskConfiguration{
		Version:       r.DAP,
		TaskInfo:      id[:],
		Leader:        []byte(p.Leader),
		Helper:        []byte(p.Helper),
		TimePrecision: r.TimePrecision,
		MinBatchSize:  r.Threshold(),
		BatchMode:     p.BatchMode,
		VDAFType:      function.Type(),
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
