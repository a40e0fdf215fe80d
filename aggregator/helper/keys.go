package helper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/release"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/status"
)

// Keys says how the HPKE keys stand, the newest first.
func (h *Helper) Keys() []status.Key { return h.keys.Status() }

// stepKeys makes keys that are due, and destroys those that no job needs any more.
func (h *Helper) stepKeys(ctx context.Context) (bool, error) {
	worked, err := h.keys.Step(ctx, h.needsKey)
	return worked, errors.Join(err, h.lost.Expire(h.keys, h.opt.Log))
}

// needsKey counts the unfinished jobs that came while the key could still be used. Those that come later find it gone, whether it is
// or not: a leader must not be able to keep a key alive.
func (h *Helper) needsKey(ctx context.Context, _ uint8, ended time.Time) (why string, err error) {
	n, err := h.store.UnfinishedJobs(ctx, ended)
	if n == 0 || err != nil {
		return "", err
	}
	return fmt.Sprintf("%d aggregation jobs that came before its end are unfinished", n), nil
}

// stepDataKeys makes data keys that are due, and destroys those of a time of which
// nothing can be released any more.
func (h *Helper) stepDataKeys(ctx context.Context) (bool, error) {
	return h.data.Step(ctx, release.Needs(h.store, h.tasks))
}

// Offered is the encoded HpkeConfigList that clients are offered now, best first.
func (h *Helper) Offered() []byte {
	list, _ := h.keys.List()
	return list
}

// Notary signs for the aggregator's owner; nil where no recipe names signing keys.
func (h *Helper) Notary() *keyset.Notary { return h.srv.Notary }
