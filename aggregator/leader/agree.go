package leader

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/agreement"
	"github.com/starling-agg/starling/aggregator/internal/lease"
	"github.com/starling-agg/starling/aggregator/internal/peer"
	"github.com/starling-agg/starling/aggregator/internal/permit"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// A partner is a helper under one token, and the tasks with it: what one exchange is about.
type partner struct {
	peer.Comparison
	urgent atomic.Bool // its exchange is due now
	joined atomic.Bool // a task came since the last

	failed int       // tries in a row, or exchanges after which something differed
	next   time.Time // of the next exchange

	ids []dap.TaskID      // rising; replaced as a whole
	own agreement.Service // but for the clock
}

// partners are all of a leader's. One exchange runs at a time.
type partners struct {
	mu    sync.Mutex // held while exchanges run; guards failed and next
	set   sync.Mutex // guards ids, own, list and found; nothing is waited for under it
	list  []*partner // in the order in which they came
	found map[partnerKey]*partner

	soon chan struct{} // an exchange is wanted now
	wake func()
}

type partnerKey struct{ url, secret string }

// ready prepares a task that is opened: what its requests carry, and that it is compared
// with its helper's at once.
func (l *Leader) ready(book *agreement.Book, t *task.Task) {
	t.Fence = book.Fence(t.ID)
	p := l.join(t)
	p.joined.Store(true)
	p.urgent.Store(true)
	l.partners.wake()
}

// givenUp lets go of what ready and the work on a task have kept of it.
func (l *Leader) givenUp(t *task.Task) {
	l.partners.leave(t)
	l.mending.forget(t.ID)
	l.rates.forget(t.ID)
}

// join puts a task among those of its helper, and says which that is.
func (l *Leader) join(t *task.Task) *partner {
	l.partners.set.Lock()
	defer l.partners.set.Unlock()
	k := partnerKey{t.Helper.String(), t.PeerSecret}
	p := l.partners.found[k]
	if p == nil {
		p = &partner{Comparison: peer.Comparison{Client: l.helper, Helper: t.Helper, Secret: t.PeerSecret, Task: t.ID}}
		p.own.Skew = uint32(l.opt.Limits.ClockSkew / time.Second)
		if l.partners.found == nil {
			l.partners.found = make(map[partnerKey]*partner)
		}
		l.partners.found[k], l.partners.list = p, append(l.partners.list, p)
	}
	at, there := slices.BinarySearchFunc(p.ids, t.ID, func(a, b dap.TaskID) int { return slices.Compare(a[:], b[:]) })
	if !there {
		p.ids = slices.Insert(slices.Clone(p.ids), at, t.ID)
	}
	size, reports := l.largestJob(t)
	p.own.JobBytes, p.own.JobReports = max(p.own.JobBytes, size), max(p.own.JobReports, reports)
	return p
}

// leave takes a task that is given up out of what is compared.
func (p *partners) leave(t *task.Task) {
	p.set.Lock()
	defer p.set.Unlock()
	k := partnerKey{t.Helper.String(), t.PeerSecret}
	with := p.found[k]
	if with == nil {
		return
	}
	with.ids = slices.DeleteFunc(slices.Clone(with.ids), func(id dap.TaskID) bool { return id == t.ID })
	if len(with.ids) == 0 {
		delete(p.found, k)
		p.list = slices.DeleteFunc(p.list, func(x *partner) bool { return x == with })
	}
}

// now are the partners there are.
func (p *partners) now() []*partner {
	p.set.Lock()
	defer p.set.Unlock()
	return slices.Clone(p.list)
}

// about is what an exchange with one of them is about.
func (p *partners) about(with *partner) ([]dap.TaskID, agreement.Service) {
	p.set.Lock()
	defer p.set.Unlock()
	return with.ids, with.own
}

// frame is more than DAP and HPKE add to what a report brings into a job, in bytes.
const frame = 256

// largestJob bounds the aggregation jobs that this leader makes of a task, about: in bytes
// and in reports.
func (l *Leader) largestJob(t *task.Task) (size uint64, reports uint32) {
	s := t.VDAF.Sizes()
	report := s.Public + s.LeaderInput + s.HelperInput + frame
	most, bytes := l.opt.most().Reports, int(l.opt.most().Bytes)
	if report >= segment.LargeReport {
		bytes = min(bytes, segment.LargeBytes)
	}
	n := min(max(bytes/report, 1), most)
	return uint64(n * (s.Public + s.HelperInput + s.VerifierShare + frame)), uint32(n)
}

// agree compares this leader with the helpers whose turn it is; see package agreement.
// The outcome stands on the board, and an error that agree returns is the store's.
func (l *Leader) agree(ctx context.Context) (bool, error) {
	if !l.partners.mu.TryLock() {
		return false, nil // one is under way
	}
	defer l.partners.mu.Unlock()
	for _, p := range l.partners.now() {
		if !p.urgent.Swap(false) && l.opt.Clock.Now().Before(p.next) {
			continue
		}
		if err := l.agreeWith(ctx, p); err != nil {
			return false, err
		}
	}
	return false, nil
}

func (l *Leader) agreeWith(ctx context.Context, p *partner) error {
	ids, own := l.partners.about(p)
	if len(ids) == 0 {
		return nil // they were given up
	}
	p.Task = ids[0]
	if p.joined.Swap(false) {
		p.failed = 0
	}
	l.bring(ctx, ids)
	freed, err := l.book.Exchange(ctx, &p.Comparison, ids, own, l.opt.Clock.Now)
	switch {
	case errors.Is(err, store.ErrUnknown) || ctx.Err() != nil:
		return err
	case err != nil:
		freed |= l.book.Fail(ids, err)
	}
	// One that does not answer is asked again soon, and then as rarely as any; so is one that
	// holds something else, for whoever gives both a task gives it to one of them first.
	wait := l.opt.Agree
	differ := slices.ContainsFunc(ids, func(id dap.TaskID) bool { return !l.book.Agrees(id) })
	if p.failed++; err == nil && !differ || errors.Is(err, agreement.ErrSilent) {
		p.failed = 0
	} else {
		wait = min(wait, lease.Backoff(p.failed, l.opt.Idle, wait))
	}
	p.next = l.opt.Clock.Now().Add(wait)
	if freed&permit.Verify != 0 {
		l.wakeJobs()
	}
	if freed&permit.Release != 0 {
		l.wakeCollect()
	}
	return nil
}

// bring offers those tasks to the helper that the leader advertises and that it may not have:
// any request about a task does, and the question how far the helper is changes nothing else.
// A helper of ours has the task before the two are compared, or says that it will not;
// another's has no such resource, and takes the task with its first job.
func (l *Leader) bring(ctx context.Context, ids []dap.TaskID) {
	for _, id := range ids {
		t := l.tasks.Peek(id)
		if t == nil || t.Advert == "" || l.book.Agrees(id) {
			continue
		}
		var p status.Peer
		err := l.helper.Progress(ctx, t, &p)
		var refused *peer.Refused
		switch {
		case errors.As(err, new(*peer.Retry)):
			return // it is away, or takes no more now
		case errors.As(err, &refused) && refused.Problem.Type == dap.ProblemInvalidTask:
			l.book.Refused(id, l.opt.Clock.Now())
		}
	}
}

// agreeNow has the task's helper asked at once: it did not look into a request, since it
// holds something else.
func (l *Leader) agreeNow(id dap.TaskID) {
	if t := l.tasks.Get(id); t != nil {
		l.join(t).urgent.Store(true)
		l.partners.wake()
	}
}
