package party

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/dap"
)

// Add takes a task into the store, and then into use: it is durable before anybody can see
// it. ready prepares what the service has of it beside the party, and cannot fail. made is
// false where the same task was there. A task that is refused is an
// *[aggregator.TaskError], one too many of its policy a *[store.FullError]; after any other
// error it may be in the store, and the same add again is harmless.
func (p *Party) Add(ctx context.Context, in *aggregator.Provision, ready func(*task.Task)) (id dap.TaskID, made bool, err error) {
	w, err := p.judge(in)
	if err != nil {
		return id, false, err
	}
	r := store.Registration{
		ID: w.ID, Form: in.Form, Made: in.Made, Sum: sha256.Sum256(in.Made), Terms: in.Terms, Tenant: in.Tenant, Source: in.Source,
		By: in.By, Added: p.opt.Clock.Now(), End: w.End(0),
	}
	p.adding.Lock()
	defer p.adding.Unlock()
	n, err := p.Store.Register(ctx, store.Provision{Task: w.Stored(p.opt.Limits.ClockSkew), Registration: r, Quota: quota(in.Policy, r.Added)})
	switch {
	case errors.Is(err, store.ErrEnded):
		return w.ID, false, p.ended(ctx, w.ID)
	case errors.Is(err, store.ErrDifferent):
		return w.ID, false, &aggregator.TaskError{Fault: aggregator.TaskDiffers, Task: w.ID, Detail: p.differs(ctx, &r)}
	case err != nil:
		return w.ID, false, fmt.Errorf("add a task: %w", err)
	}
	if p.Tasks.Get(w.ID) == nil {
		if err := p.use(ctx, w, ready); err != nil {
			return w.ID, n > 0, fmt.Errorf("add a task: %w", err)
		}
	}
	return w.ID, n > 0, nil
}

// quota is what a policy leaves for its leader's tasks; nil for none.
func quota(p *aggregator.TaskPolicy, now time.Time) *store.Quota {
	if p == nil {
		return nil
	}
	return &store.Quota{Now: now, Live: p.Tasks, Since: now.Add(-time.Hour), Added: p.TasksPerHour}
}

// use makes a task that the store has one of the service.
func (p *Party) use(ctx context.Context, w *task.Task, ready func(*task.Task)) error {
	if err := p.Store.PutTask(ctx, w.Stored(p.opt.Limits.ClockSkew)); err != nil {
		return err
	}
	if err := p.Book.Add(ctx, w); err != nil {
		return err
	}
	ready(w)
	p.Tasks.Put(w) // last: from here on requests find it
	return nil
}

// judge makes the working form of a task that may be added, whatever the store has.
func (p *Party) judge(in *aggregator.Provision) (*task.Task, error) {
	w, err := task.New(&in.Task, p.role)
	if err != nil {
		return nil, &aggregator.TaskError{Fault: aggregator.TaskInvalid, Detail: err.Error()}
	}
	refuse := func(fault aggregator.TaskFault, format string, args ...any) (*task.Task, error) {
		return nil, &aggregator.TaskError{Fault: fault, Task: w.ID, Detail: fmt.Sprintf(format, args...)}
	}
	url := string(w.Config.Leader)
	if p.role == dap.RoleHelper {
		url = string(w.Config.Helper)
	}
	if url != p.opt.Base {
		return refuse(aggregator.TaskOfOthers, "its %v is %q, and this one is %q", p.role, url, p.opt.Base)
	}
	if now := p.Steady.Now(); w.Over(now, p.opt.Limits.ClockSkew) {
		return refuse(aggregator.TaskOver, "no report of it can come since %s", w.End(p.opt.Limits.ClockSkew).UTC().Format(time.RFC3339))
	}
	if _, err := p.opt.Limits.ForTasks([]aggregator.Task{in.Task}); err != nil {
		return refuse(aggregator.TaskTooLarge, "%v", err)
	}
	return w, nil
}

// ended says how a task ended that is to be added.
func (p *Party) ended(ctx context.Context, id dap.TaskID) error {
	e := &aggregator.TaskError{Fault: aggregator.TaskClosed, Task: id, Detail: "it ended here, and never opens again"}
	r, err := p.Store.Registration(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return e
	}
	if err != nil {
		return err
	}
	if c := r.Closed; c != nil {
		e.Detail = fmt.Sprintf("by %s at %s: %s", c.By, c.At.Format(time.RFC3339), c.Why)
	}
	return e
}

// differs says in what a task that is there differs from one that is to be added.
func (p *Party) differs(ctx context.Context, r *store.Registration) string {
	there, err := p.Store.Registration(ctx, r.ID)
	switch {
	case err != nil:
		return "it was provisioned with another configuration"
	case there.Sum != r.Sum:
		return fmt.Sprintf("it was made of a file with SHA-256 %x, and this one has %x", there.Sum, r.Sum)
	case there.Tenant != r.Tenant:
		return "it is of another tenant"
	}
	return fmt.Sprintf("its terms are %s, and these are %s", there.Terms, r.Terms)
}

// Close ends a task for new reports, for good. Again is harmless: the first closing holds,
// and is returned.
func (p *Party) Close(ctx context.Context, id dap.TaskID, by, why string) (store.Closing, error) {
	return p.Store.CloseTask(ctx, id, store.Closing{At: p.opt.Clock.Now(), By: by, Why: why})
}

// recallPage is how many registrations a start reads at one time.
const recallPage = 1000

// recall makes those tasks again that the store has and the options have not. Retired ones
// have nothing left that a service could do.
func (p *Party) recall(ctx context.Context, provide aggregator.Provider) error {
	for after, page := uint64(0), recallPage; page == recallPage; {
		list, err := p.Store.Registrations(ctx, after, recallPage)
		if err != nil {
			return err
		}
		page = len(list)
		for i := range list {
			after = list[i].Change
			if err := p.remake(ctx, list[i].ID, provide); err != nil {
				return fmt.Errorf("task %v, which is in the store: %w", list[i].ID, err)
			}
		}
	}
	return nil
}

func (p *Party) remake(ctx context.Context, id dap.TaskID, provide aggregator.Provider) error {
	if p.Tasks.Get(id) != nil {
		return nil
	}
	if gone, err := p.Retired(ctx, id); err != nil || gone {
		return err
	}
	if provide == nil {
		return errors.New("no provider makes it again")
	}
	r, err := p.Store.Registration(ctx, id)
	if err != nil {
		return err
	}
	t, err := provide(ctx, r.Form, r.Made, r.Terms)
	if err != nil {
		return err
	}
	w, err := task.New(&t, p.role)
	if err != nil {
		return err
	}
	if w.ID != id {
		return fmt.Errorf("it was made again with the id %v", w.ID)
	}
	p.Tasks.Put(w)
	return p.Store.PutTask(ctx, w.Stored(p.opt.Limits.ClockSkew))
}
