package helper

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/edge"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dap/taskprov"
	"github.com/starling-agg/starling/internal/service"
)

// brings are the leaders that may bring tasks, by their URLs.
type brings struct {
	by map[string]*bringer
}

// A bringer is one of them, and until when it brings nothing more: what a refusal cost the
// store is not paid again at once, however many requests come.
type bringer struct {
	*aggregator.TaskPolicy

	mu   sync.Mutex
	full time.Time
	told time.Time // when the log was last told of a task that is not taken
}

// fullFor is how long a leader waits that has as many live tasks as it may: one may be closed
// at any time.
const fullFor = 5 * time.Second

func newBrings(policies []aggregator.TaskPolicy) *brings {
	b := &brings{by: make(map[string]*bringer)}
	for i := range policies {
		b.by[policies[i].Leader] = &bringer{TaskPolicy: &policies[i]}
	}
	return b
}

// waits is how long the leader is to wait before it brings more.
func (b *bringer) waits(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.full.Sub(now)
}

// refuse tells the leader why its task is not taken, and the log once a second.
func (b *bringer) refuse(log *slog.Logger, id dap.TaskID, now time.Time, why string) error {
	b.mu.Lock()
	tell := now.Sub(b.told).Abs() >= time.Second
	if tell {
		b.told = now
	}
	b.mu.Unlock()
	if tell {
		log.Warn("a task that a leader brings is not taken", "task", id, "by", b.Name, "why", fmt.Sprintf("%.300s", why)) // of a configuration, which may be long
	}
	return edge.Refuse(dap.ProblemInvalidTask, why)
}

func (b *bringer) fill(until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.full = until
}

// bring implements [edge.Server.Bring]. A stranger's request costs a hash and the reading of
// a short message, and is answered as by a helper that takes no tasks in band; a leader is
// told why its task is not taken. Nothing of a refused task is kept.
func (h *Helper) bring(r *http.Request, id dap.TaskID, ad *taskprov.Advertisement) (*task.Task, error) {
	b, config := h.brings.of(ad)
	if b == nil {
		return nil, nil
	}
	secret, err := b.Token(id)
	if err != nil {
		return nil, err
	}
	if !task.NewToken(secret).Bears(r) {
		return nil, nil
	}
	service.Known(r)
	now := h.steady.Now()
	if ad.Framing != b.Framing {
		return nil, b.refuse(h.opt.Log, id, now, "it is advertised in another framing than this leader's")
	}
	if err := b.Allows(config, now); err != nil {
		return nil, b.refuse(h.opt.Log, id, now, err.Error())
	}
	switch state, err := h.store.TaskState(r.Context(), id); {
	case err == nil && (state.Retired || state.ClosedIn != 0 || !state.Closed.IsZero()):
		return nil, b.refuse(h.opt.Log, id, now, "it has ended here, for good")
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return nil, err
	case errors.Is(err, store.ErrNotFound):
		if wait := b.waits(now); wait > 0 {
			return nil, tooMany(wait)
		}
	}
	return h.take(r, id, b, ad.Config, now)
}

// take makes the task and adds it.
func (h *Helper) take(r *http.Request, id dap.TaskID, b *bringer, config []byte, now time.Time) (*task.Task, error) {
	ctx := r.Context()
	made, err := h.opt.Provide(ctx, aggregator.Configuration, config, b.Terms)
	if err != nil {
		return nil, err
	}
	fresh, err := h.Add(ctx, &aggregator.Provision{
		Task: made, Form: aggregator.Configuration, Made: config, Terms: b.Terms, Source: aggregator.InBand, By: b.Name, Policy: b.TaskPolicy,
	})
	var refused *aggregator.TaskError
	var full *store.FullError
	switch {
	case errors.As(err, &refused) && refused.Fault == aggregator.TaskTooMany: // it will not be for ever
		b.fill(now.Add(fullFor))
		return nil, tooMany(fullFor)
	case errors.As(err, &refused):
		return nil, b.refuse(h.opt.Log, id, now, refused.Error())
	case errors.As(err, &full):
		wait := fullFor
		if !full.Live {
			wait = max(time.Second, full.Free.Sub(now))
		}
		b.fill(now.Add(wait))
		return nil, tooMany(wait)
	case err != nil:
		return nil, err
	}
	if fresh {
		h.opt.Log.LogAttrs(ctx, slog.LevelInfo, "a leader brought a task", slog.Any("task", id), slog.String("by", b.Name))
	}
	return h.tasks.Get(id), nil
}

// of is whose task it may be, and its configuration; nil where no leader here brings it, or
// where the bytes are no configuration of the draft that the leader's tasks speak.
func (b *brings) of(ad *taskprov.Advertisement) (*bringer, *dap.TaskConfiguration) {
	any, err := dap.ReadTaskConfiguration(dap.Draft19, ad.Config)
	if err != nil {
		return nil, nil
	}
	by := b.by[string(any.Leader)]
	if by == nil {
		return nil, nil
	}
	config, err := dap.ReadTaskConfiguration(by.Version, ad.Config)
	if err != nil {
		return nil, nil
	}
	return by, config
}

// tooMany answers 429: what is too much now will not be, so that the leader comes again.
func tooMany(wait time.Duration) error {
	return &edge.Error{Problem: dap.Problem{Status: http.StatusTooManyRequests, Detail: "no further task of this leader is taken now"}, RetryAfter: wait}
}
