package party

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/dap"
)

// recallPage is how many registrations are read at one time.
const recallPage = 1000

// summary is what was noted of the store's tasks beside their heads.
type summary struct {
	kems   map[uint16]bool // that devices of live tasks seal to
	signed []dap.TaskID    // live ones whose recipes name signing keys
	live   []dap.TaskID    // in the order of their last changes
}

// openTasks opens those of the options, takes over those of the configuration, and notes
// those that the store has: each is opened when it is first asked for. The newest are
// opened at once, so that what is wrong with them is known at the start; and all whose
// recipes name signing keys, for the keys are opened next.
func (p *Party) openTasks(ctx context.Context, configured *task.Table, imported []aggregator.Provision) error {
	for _, t := range configured.Opened() {
		if err := p.use(ctx, t); err != nil {
			return fmt.Errorf("provision: %w", err)
		}
	}
	if err := p.take(ctx, imported); err != nil {
		return err
	}
	if err := p.recall(ctx); err != nil {
		return err
	}
	now := p.noted.live[max(0, len(p.noted.live)-max(0, p.opt.Limits.HotTasks)):]
	for _, id := range slices.Concat(p.noted.signed, now) {
		if _, err := p.Tasks.Find(id); err != nil {
			return fmt.Errorf("task %v, which is in the store: %w", id, err)
		}
	}
	p.noted.live, p.noted.signed = nil, nil
	return nil
}

// take takes over what stands in the configuration, all of it or nothing, where the store
// has no task, and else holds it to what the store has.
func (p *Party) take(ctx context.Context, in []aggregator.Provision) error {
	first, err := p.Store.Registrations(ctx, 0, 1)
	if err != nil || len(in) == 0 {
		return err
	}
	var list []store.Provision
	for i := range in {
		w, err := p.judge(&in[i], true)
		if err != nil {
			return err
		}
		r := p.registration(&in[i], w)
		if len(first) == 0 {
			list = append(list, store.Provision{Task: w.Stored(p.opt.Limits.ClockSkew), Registration: r, Most: p.opt.Quota.Tasks})
			continue
		}
		switch there, err := p.Store.Registration(ctx, w.ID); {
		case errors.Is(err, store.ErrNotFound):
			return &aggregator.TaskError{Fault: aggregator.TaskUnknown, Task: w.ID, Detail: "the configuration is imported once, by the first start of a store"}
		case err != nil:
			return err
		case there.Sum != r.Sum || there.Tenant != r.Tenant || !sameTerms(there, r.Terms):
			return &aggregator.TaskError{Fault: aggregator.TaskDiffers, Task: w.ID, Detail: p.differs(ctx, &r)}
		}
		p.opt.Log.Info("a task stands in the configuration, and in the store: the line may go", "task", w.ID)
	}
	if len(list) == 0 {
		return nil
	}
	if _, err := p.Store.Register(ctx, list...); tooMany(err) != nil {
		return tooMany(err)
	} else if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	p.opt.Log.Info("the tasks of the configuration were imported into the store", "tasks", len(list))
	return nil
}

// sameTerms says whether terms of a configuration are those that a task has, or those that
// it came with: an unchanged configuration fits a task that was changed since.
func sameTerms(there *store.Registration, terms []byte) bool {
	return there.First == sha256.Sum256(terms) || string(there.Terms) == string(terms)
}

// recall notes the tasks that the store has.
func (p *Party) recall(ctx context.Context) error {
	p.noted.kems = make(map[uint16]bool)
	for after, page := uint64(0), recallPage; page == recallPage; {
		list, err := p.Store.Registrations(ctx, after, recallPage)
		if err != nil {
			return err
		}
		page = len(list)
		for i := range list {
			r := &list[i]
			after = r.Change
			p.follower.change = after
			gone, err := p.Retired(ctx, r.ID)
			if err != nil {
				return err
			}
			if gone { // what it was made of goes with it
				continue
			}
			p.Tasks.Note(r.ID, task.Head{Begin: r.Begin, End: r.End})
			p.noted.live = append(p.noted.live, r.ID)
			if r.KEM != 0 && r.Closed == nil {
				p.noted.kems[r.KEM] = true
			}
			if r.Signed {
				p.noted.signed = append(p.noted.signed, r.ID)
			}
		}
	}
	if len(p.noted.live) > 0 && p.opt.Provide == nil {
		return errors.New("the store has tasks, and there is no provider to make them again")
	}
	return nil
}

// reopen makes the working form of a task that was noted. A task that could not be opened a
// moment ago is not tried again yet: strangers may ask.
func (p *Party) reopen(ctx context.Context, id dap.TaskID) error {
	now := p.opt.Clock.Now()
	if err := p.failed.lately(id, now); err != nil {
		return err
	}
	err := p.remake(ctx, id)
	if err != nil {
		p.opt.Log.Error("a task cannot be opened, and waits: its reports and results are kept", "task", id, "error", err)
		p.failed.put(id, now, err)
	}
	return err
}

func (p *Party) remake(ctx context.Context, id dap.TaskID) error {
	r, err := p.Store.Registration(ctx, id)
	if err != nil {
		return err
	}
	t, err := p.opt.Provide(ctx, r.Form, r.Made, r.Terms)
	if err != nil {
		return err
	}
	if err := p.opt.CheckIssuer(&t); err != nil {
		return err
	}
	w, err := task.New(&t, p.role)
	if err != nil {
		return err
	}
	if w.ID != id {
		return fmt.Errorf("it was made again with the id %v", w.ID)
	}
	p.terms.Store(id, sha256.Sum256(r.Terms))
	return p.use(ctx, w)
}

// failures are the tasks that could not be opened of late. Safe for concurrent use.
type failures struct {
	mu sync.Mutex
	m  map[dap.TaskID]failure
}

type failure struct {
	at  time.Time
	err error
}

// againAfter is how long a task that could not be opened is not tried again.
const againAfter = 5 * time.Second

func (f *failures) lately(id dap.TaskID, now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last, ok := f.m[id]; ok && now.Sub(last.at).Abs() < againAfter {
		return last.err
	}
	delete(f.m, id)
	return nil
}

func (f *failures) put(id dap.TaskID, now time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.m == nil {
		f.m = make(map[dap.TaskID]failure)
	}
	f.m[id] = failure{now, err}
}
