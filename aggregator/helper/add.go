package helper

import (
	"context"
	"fmt"

	"github.com/starling-agg/starling/aggregator"
)

// Add takes a task, which is durable and takes jobs when Add returns; made is false where
// the same one was there. A task that is refused is an *[aggregator.TaskError].
func (h *Helper) Add(ctx context.Context, in *aggregator.Provision) (made bool, err error) {
	if _, made, err = h.party.Add(ctx, in); err != nil {
		return made, fmt.Errorf("helper: %w", err)
	}
	return made, nil
}
