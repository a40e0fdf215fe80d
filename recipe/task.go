package recipe

import "github.com/starling-agg/starling/dap"

// Task returns the DAP task of the recipe, a function of its bytes alone: task_info is
// the recipe's id, and everything else is copied from the choices (min_batch_size is
// [Recipe.Threshold]). The task's id is [dap.TaskConfiguration.TaskID]. It fails with
// *[InvalidError] for a path that is not that of DAP.
func (r *Recipe) Task() (*dap.TaskConfiguration, error) { return r.on().task(r) }
