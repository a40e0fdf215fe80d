package watch

import (
	"time"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// DataKeys says how the data keys stand, with the time at which each task is retired; zero
// where it never is.
func DataKeys(keys *datakey.Set, tasks map[dap.TaskID]*task.Task, retired func(dap.TaskID) bool, at func(*task.Task) time.Time) *status.DataKeys {
	k := new(status.DataKeys)
	k.Kept, k.Oldest, k.Newest = keys.Kept()
	for id, t := range tasks {
		if !retired(id) && at(t).IsZero() {
			k.Endless++
		}
	}
	return k
}
