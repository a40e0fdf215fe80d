package leader

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/edge"
	"github.com/starling-agg/starling/aggregator/internal/peer"
	"github.com/starling-agg/starling/aggregator/internal/release"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/dap"
)

const (
	// askAgainEvery is how long after the helper was asked for a share that it released
	// it is asked again: a collector that cannot open it comes again once an operator has
	// put a key right.
	askAgainEvery = time.Minute
	// askAgainFor is how long a collector's request waits for that.
	askAgainFor = 10 * time.Second
)

// again brings the answer of a collection up to date: both shares sealed to the key that
// the collector has by now. This leader's own is sealed again here; the helper is asked
// whether it has done so with its share, which it alone can. The release stays as it was:
// no aggregator draws noise for it, and a batch is closed once. A helper that does not
// answer changes nothing.
func (l *Leader) again(r *edge.Request, res *store.Resource) error {
	if res.State != store.Ready {
		return nil
	}
	own := func(response []byte, share dap.HpkeCiphertext) ([]byte, error) {
		resp, err := dap.ReadCollectionJobResp(response)
		if err != nil {
			return nil, err
		}
		resp.Leader = share
		return resp.Append(nil)
	}
	response, sealed, err := release.Again(r.Context(), l.store, l.data, r.Task, dap.RoleLeader, res, l.steady.Now(), own)
	switch {
	case errors.As(err, new(*datakey.GoneError)): // what was said before is as good as ever
		l.opt.Log.Error("a share cannot be sealed again", "task", res.Task, "why", err)
	case err != nil:
		return err
	default:
		res.Response = response
	}
	if sealed {
		l.opt.Log.Warn("a share was sealed again, to another key of the collector's", "task", res.Task)
	}
	if !l.asked.due(res.ID, l.steady.Now()) {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), askAgainFor)
	defer cancel()
	return l.helpersAgain(ctx, r.Task, res)
}

// helpersAgain takes over the helper's share if that was sealed again.
func (l *Leader) helpersAgain(ctx context.Context, t *task.Task, res *store.Resource) error {
	kept, err := l.store.Kept(ctx, res.Kind, res.Task, res.ID)
	if err != nil {
		return err
	}
	if kept.Peer == "" {
		return nil
	}
	resp, err := dap.ReadCollectionJobResp(res.Response)
	if err != nil {
		return err
	}
	reply, err := l.helper.Poll(ctx, peer.AggregateShare(t, res.ID), kept.Peer, 0)
	if err != nil || reply.Body == nil {
		l.opt.Log.LogAttrs(ctx, slog.LevelInfo, "the helper does not say whether its share was sealed again", slog.Any("task", t.ID), slog.Any("why", err))
		return nil
	}
	share, err := dap.ReadAggregateShare(reply.Body)
	if err != nil || len(share.Ciphertext.Payload) != len(resp.Helper.Payload) || same(share.Ciphertext, resp.Helper) {
		return nil
	}
	change := &store.Reseal{
		Task: res.Task, Kind: res.Kind, Resource: res.ID, Whose: store.Peers,
		From: digest(resp.Helper), To: digest(share.Ciphertext), Former: res.Response, Now: l.steady.Now(),
	}
	resp.Helper = share.Ciphertext
	if change.Response, err = resp.Append(nil); err != nil {
		return err
	}
	switch err := l.store.Reseal(ctx, change); {
	case errors.Is(err, store.ErrDifferent): // another request was first
		res.Response, _, err = release.Current(ctx, l.store, res)
		return err
	case err != nil:
		return err
	}
	l.opt.Log.Warn("the helper has sealed its share again, to another key of the collector's", "task", res.Task)
	res.Response = change.Response
	return nil
}

func same(a, b dap.HpkeCiphertext) bool {
	return a.ConfigID == b.ConfigID && bytes.Equal(a.Enc, b.Enc) && bytes.Equal(a.Payload, b.Payload)
}

// digest names a ciphertext in the ledger.
func digest(c dap.HpkeCiphertext) [sha256.Size]byte {
	b := append([]byte{c.ConfigID, byte(len(c.Enc) >> 8), byte(len(c.Enc))}, c.Enc...)
	return sha256.Sum256(append(b, c.Payload...))
}

// askedAgain is when, in this life of the process, the helper was last asked for shares
// that it had released, by the resource. Safe for concurrent use; the zero value is
// ready.
type askedAgain struct {
	mu sync.Mutex
	at map[string]time.Time
}

// due says whether the helper may be asked, which is then noted. A clock that was put
// back asks.
func (a *askedAgain) due(id string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, asked := a.at[id]
	if since := now.Sub(last); asked && since >= 0 && since < askAgainEvery {
		return false
	}
	if a.at == nil {
		a.at = make(map[string]time.Time)
	}
	a.at[id] = now
	return true
}

func (a *askedAgain) forget(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.at, id)
}
