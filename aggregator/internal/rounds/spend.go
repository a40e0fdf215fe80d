package rounds

import (
	"context"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

// Spend gives each report of a job that holds the mark that it shows, and refuses those
// whose device has another report in the round. Nothing happens where the task counts no
// devices.
func Spend(ctx context.Context, s store.Spending, task dap.TaskID, j Job) error {
	list, at := j.Spends()
	if len(list) == 0 {
		return nil
	}
	spent, err := s.Spend(ctx, task, list)
	if err != nil {
		return err
	}
	for k, i := range at {
		if spent[k] {
			j.Spent(i)
		}
	}
	return nil
}
