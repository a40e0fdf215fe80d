package helper

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// stepKeys makes keys that are due, and destroys those that no job needs any more.
func (h *Helper) stepKeys(ctx context.Context) (bool, error) {
	worked, err := h.keys.Step(ctx, h.needsKey)
	return worked, errors.Join(err, h.lost.Expire(h.keys, h.opt.Log))
}

// needsKey counts the unfinished jobs that came while the key could still be used. Those
// that come later find it gone, whether it is or not: a leader must not be able to keep a
// key alive.
func (h *Helper) needsKey(ctx context.Context, _ uint8, ended time.Time) (why string, err error) {
	n, err := h.store.UnfinishedJobs(ctx, ended)
	if n == 0 || err != nil {
		return "", err
	}
	return fmt.Sprintf("%d aggregation jobs that came before its end are unfinished", n), nil
}
