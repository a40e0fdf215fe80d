package watch

import (
	"context"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/status"
)

// DataKeys says how the data keys stand, and how many tasks are never retired. ends says of
// one whose last report can have come at a time, and that was closed at another, each zero
// for never, whether it will be.
func DataKeys(ctx context.Context, keys *datakey.Set, s store.Watch, tasks *task.Table, ends func(end, closed time.Time) bool) (*status.DataKeys, error) {
	k := new(status.DataKeys)
	k.Kept, k.Oldest, k.Newest = keys.Kept()
	for id, head := range tasks.Heads() {
		state, err := s.TaskState(ctx, id)
		if err != nil {
			return nil, err
		}
		if !state.Retired && !ends(head.End, state.Closed) {
			k.Endless++
		}
	}
	return k, nil
}
