package watch

import (
	"context"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/status"
)

// DataKeys says how the data keys stand, with the time at which each task is retired; zero
// where it never is.
func DataKeys(ctx context.Context, keys *datakey.Set, s store.Watch, tasks *task.Table, at func(*task.Task) time.Time) (*status.DataKeys, error) {
	k := new(status.DataKeys)
	k.Kept, k.Oldest, k.Newest = keys.Kept()
	for id, t := range tasks.All() {
		if !at(t).IsZero() {
			continue
		}
		state, err := s.TaskState(ctx, id)
		if err != nil {
			return nil, err
		}
		if !state.Retired {
			k.Endless++
		}
	}
	return k, nil
}
