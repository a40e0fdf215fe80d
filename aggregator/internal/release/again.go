package release

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/dap"
)

// KeyOf is the data key of a batch whose reports have that span.
func KeyOf(ctx context.Context, keys *datakey.Set, t *task.Task, span dap.Interval) (*datakey.Key, error) {
	at, err := timeOf(t, span)
	if err != nil {
		return nil, err
	}
	return keys.At(ctx, at)
}

// timeOf is the time that says which data key a batch belongs to: of its last report, in a
// leader-selected task of its first one.
func timeOf(t *task.Task, span dap.Interval) (time.Time, error) {
	unit := span.Start
	if end, ok := span.End(); ok && t.Mode() == dap.TimeInterval {
		unit = end - 1
	}
	at, err := t.Precision().Begin(unit)
	if err != nil {
		return at, fmt.Errorf("release: %w", err)
	}
	return at, nil
}

// Needs says what data keys are needed for: what lies under them, and every task that is
// not retired and has reports of their time, or may have.
func Needs(r store.Releases, s store.Tasks, tasks *task.Table) datakey.Needs {
	return func(ctx context.Context, key datakey.Record) (string, error) {
		n, err := r.KeptUnder(ctx, key.Serial)
		if err != nil {
			return "", err
		}
		if n > 0 {
			return fmt.Sprintf("%d noised shares lie under it", n), nil
		}
		known, err := s.Tasks(ctx)
		if err != nil {
			return "", err
		}
		for _, id := range known {
			if h, ok := tasks.Head(id); ok && !meets(h, &key) {
				continue
			}
			state, err := s.TaskState(ctx, id)
			if err != nil {
				return "", err
			}
			if !state.Retired {
				return fmt.Sprintf("task %v is kept, and what was reported to it in that time may be asked for", id), nil
			}
		}
		return "", nil
	}
}

// meets says whether a report of a task may be of a key's time.
func meets(h task.Head, key *datakey.Record) bool {
	return (h.Begin.IsZero() || h.Begin.Before(key.Until)) && (h.End.IsZero() || key.Serial == 1 || h.End.After(key.From))
}

// boxAAD says which share it is that lies under a data key.
func boxAAD(t *task.Task, kind store.Kind, resource string) []byte {
	b := append([]byte{byte(kind)}, t.ID[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(len(resource)))
	return append(b, resource...)
}

// A Store has what was released, and the resources that it was released to.
type Store interface {
	store.Releases
	Resource(ctx context.Context, kind store.Kind, task dap.TaskID, id string) (*store.Resource, error)
}

// Again is the answer of a resource that was released. Where the collector's key is
// another by now than the one that this aggregator's share is sealed to, the same share
// is first sealed to that one, which the ledger records; replace puts it in the place of
// the former one. The share is as it was released: nothing is drawn, and nothing is asked
// of the batch. A *[datakey.GoneError] means that the former answer is all there is.
func Again(ctx context.Context, s Store, keys *datakey.Set, t *task.Task, role dap.Role, res *store.Resource, now time.Time,
	replace func(response []byte, share dap.HpkeCiphertext) ([]byte, error)) (response []byte, again bool, err error) {
	kept, err := s.Kept(ctx, res.Kind, res.Task, res.ID)
	if err != nil {
		return nil, false, err
	}
	if kept.To == t.SealedTo {
		return res.Response, false, nil
	}
	key, err := keys.By(kept.Key)
	if err != nil {
		return nil, false, err
	}
	defer key.Wipe()
	share, err := key.Open(boxAAD(t, res.Kind, res.ID), kept.Box)
	if err != nil {
		return nil, false, err
	}
	defer clear(share)
	ct, err := seal(t, role, kept.Asked, share)
	if err != nil {
		return nil, false, err
	}
	if response, err = replace(res.Response, ct); err != nil {
		return nil, false, fmt.Errorf("release: seal again: %w", err)
	}
	err = s.Reseal(ctx, &store.Reseal{
		Task: res.Task, Kind: res.Kind, Resource: res.ID, Whose: store.Own, From: kept.To, To: t.SealedTo,
		Former: res.Response, Response: response, Now: now,
	})
	if errors.Is(err, store.ErrDifferent) { // another request was first
		return Current(ctx, s, res)
	}
	return response, err == nil, err
}

// Current is the answer that is stored now, which somebody else has put there.
func Current(ctx context.Context, s Store, res *store.Resource) (response []byte, again bool, err error) {
	now, err := s.Resource(ctx, res.Kind, res.Task, res.ID)
	if err != nil {
		return nil, false, err
	}
	return now.Response, false, nil
}
