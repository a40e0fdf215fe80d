package party

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/verify"
	"github.com/starling-agg/starling/dap"
)

const (
	// lackEvery is how often the issuer is asked again for a key that it had not.
	lackEvery = 10 * time.Second
	// mostLacking bounds the epochs that are remembered, whatever times reports have.
	mostLacking = 64
)

// lacking are the key epochs of tasks whose issuer's key is not here, though credentials of
// them may have been given out: their reports are left to processes that have it, and the
// others go on. Safe for concurrent use; the zero value is ready.
type lacking struct {
	mu sync.Mutex
	of map[lackedKey]lack
}

type lackedKey struct {
	task  dap.TaskID
	epoch uint64
}

type lack struct {
	from, to dap.Time
	why      string
	next     time.Time // when the issuer is asked again
}

// Lacks takes note of a job's error, and says whether it is that a key of the issuer's is not
// here, and claims leave its like.
func (p *Party) Lacks(task dap.TaskID, err error) bool {
	var missing *verify.KeyError
	if !errors.As(err, &missing) {
		return false
	}
	x, key := &p.lacking, lackedKey{task, missing.Epoch}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.of == nil {
		x.of = make(map[lackedKey]lack)
	}
	if _, known := x.of[key]; !known && len(x.of) >= mostLacking {
		return false
	}
	words := missing.Err.Error()
	x.of[key] = lack{missing.From, missing.To, words[:min(len(words), mostWords)], p.opt.Clock.Now().Add(lackEvery)}
	return true
}

// Lacking is what claims leave, since the issuer's key of it is not here. Keys that may have
// come since are asked for.
func (p *Party) Lacking(ctx context.Context) (list []store.Except) {
	x, now := &p.lacking, p.opt.Clock.Now()
	var due []lackedKey
	x.mu.Lock()
	for key, l := range x.of {
		if wait := l.next.Sub(now); wait <= 0 || wait > lackEvery { // one that is far off is another clock's
			l.next = now.Add(lackEvery)
			x.of[key] = l
			due = append(due, key)
		}
	}
	x.mu.Unlock()
	for _, key := range due {
		t := p.Tasks.Get(key.task)
		here := t == nil || t.Credentials == nil
		if !here {
			_, _, err := p.opt.Issuer.Verifier(ctx, t.Credentials.Deployment, key.epoch)
			here = err == nil || errors.Is(err, aggregator.ErrNoIssuerKey)
		}
		if here {
			x.mu.Lock()
			delete(x.of, key)
			x.mu.Unlock()
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for key, l := range x.of {
		list = append(list, store.Except{Task: key.task, From: l.from, To: l.to})
	}
	slices.SortFunc(list, func(a, b store.Except) int { // engines remember what they found with a list
		return cmp.Or(bytes.Compare(a.Task[:], b.Task[:]), cmp.Compare(a.From, b.From))
	})
	return list
}

// lacksKeys are the key epochs whose issuer's key is not here, and why.
func (p *Party) lacksKeys() map[string]string {
	x := &p.lacking
	x.mu.Lock()
	defer x.mu.Unlock()
	var m map[string]string
	for key, l := range x.of {
		if m == nil {
			m = make(map[string]string)
		}
		m[strconv.FormatUint(key.epoch, 10)] = l.why
	}
	return m
}
