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
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/sealed"
)

// Add takes a task into the store, and then into use: it is durable before anybody can see
// it. made is false where the same task was there. A task that is refused is an
// *[aggregator.TaskError], one too many of its policy a *[store.FullError]; after any other
// error it may be in the store, and the same add again is harmless.
func (p *Party) Add(ctx context.Context, in *aggregator.Provision) (id dap.TaskID, made bool, err error) {
	w, err := p.judge(in, false)
	if err != nil {
		return id, false, err
	}
	p.adding.Lock()
	defer p.adding.Unlock()
	r := p.registration(in, w)
	n, err := p.Store.Register(ctx, store.Provision{Task: w.Stored(p.opt.Limits.ClockSkew), Registration: r, Quota: quota(in.Policy, r.Added), Most: p.opt.Quota.Tasks})
	switch {
	case tooMany(err) != nil:
		return w.ID, false, tooMany(err)
	case errors.Is(err, store.ErrEnded):
		return w.ID, false, p.ended(ctx, w.ID)
	case errors.Is(err, store.ErrDifferent):
		return w.ID, false, &aggregator.TaskError{Fault: aggregator.TaskDiffers, Task: w.ID, Detail: p.differs(ctx, &r)}
	case err != nil:
		return w.ID, false, fmt.Errorf("add a task: %w", err)
	}
	if err := p.cover(ctx, w); err != nil {
		return w.ID, n > 0, fmt.Errorf("add a task: %w", err)
	}
	if there, err := p.Tasks.Find(w.ID); err != nil {
		return w.ID, n > 0, fmt.Errorf("add a task: %w", err)
	} else if there == nil {
		p.terms.Store(w.ID, sha256.Sum256(in.Terms))
		if err := p.use(ctx, w); err != nil {
			return w.ID, n > 0, fmt.Errorf("add a task: %w", err)
		}
	}
	return w.ID, n > 0, nil
}

// tooMany says in words that a task is one more than the aggregator's quota; nil where
// that is not what is wrong.
func tooMany(err error) error {
	var full *store.FullError
	if !errors.As(err, &full) || full.Most == 0 {
		return nil
	}
	return &aggregator.TaskError{Fault: aggregator.TaskTooMany, Task: full.Task,
		Detail: fmt.Sprintf("%d are live, and no more may be (quota.tasks): starling task close ends one, or the quota is raised and a start reads it", full.Most)}
}

// quota is what a policy leaves for its leader's tasks; nil for none.
func quota(p *aggregator.TaskPolicy, now time.Time) *store.Quota {
	if p == nil {
		return nil
	}
	return &store.Quota{Now: now, Live: p.Tasks, Since: now.Add(-time.Hour), Added: p.TasksPerHour}
}

// amend gives a task other terms; see [Common.Amend].
func (p *Party) amend(ctx context.Context, in *aggregator.Provision) (now bool, err error) {
	w, err := p.judge(in, true)
	if err != nil {
		return false, err
	}
	p.adding.Lock()
	defer p.adding.Unlock()
	err = p.Store.Amend(ctx, w.ID, in.Terms)
	switch {
	case errors.Is(err, store.ErrEnded):
		return false, p.ended(ctx, w.ID)
	case errors.Is(err, store.ErrNotFound):
		return false, &aggregator.TaskError{Fault: aggregator.TaskUnknown, Task: w.ID, Detail: "nobody has added it"}
	case err != nil:
		return false, fmt.Errorf("amend a task: %w", err)
	}
	return p.Local == nil || !p.Tasks.IsOpen(w.ID), nil // replicas open it again when they hear of it
}

// registration is how a task goes into the store.
func (p *Party) registration(in *aggregator.Provision, w *task.Task) store.Registration {
	h := w.Head()
	return store.Registration{
		ID: w.ID, Form: in.Form, Made: in.Made, Sum: sha256.Sum256(in.Made), Terms: in.Terms, Tenant: in.Tenant, Source: in.Source,
		By: in.By, Added: p.opt.Clock.Now(), Begin: h.Begin, End: h.End, KEM: w.Suite.KEM, Signed: w.Deployment != nil,
	}
}

// cover has the aggregator's keys serve a task that is in the store.
func (p *Party) cover(ctx context.Context, w *task.Task) error {
	promise := time.Duration(0)
	if w.Deployment != nil {
		promise = p.Server.Notary.PromiseFor(w.Deployment)
	}
	if err := p.Keys.Cover(ctx, promise, suites(w)...); err != nil {
		return err
	}
	if w.Deployment != nil {
		p.Server.Notary.Join(w.Deployment)
	}
	return nil
}

// suites are those of which a task needs a key.
func suites(w *task.Task) []sealed.Suite {
	if w.Suite == (sealed.Suite{}) {
		return nil
	}
	return []sealed.Suite{w.Suite}
}

// use makes a task that the store has one of the service.
func (p *Party) use(ctx context.Context, w *task.Task) error {
	if err := p.Store.PutTask(ctx, w.Stored(p.opt.Limits.ClockSkew)); err != nil {
		return err
	}
	if err := p.Book.Add(ctx, w); err != nil {
		return err
	}
	if p.ready != nil {
		p.ready(p.Book, w)
	}
	p.Tasks.Put(w) // last: from here on requests find it
	return nil
}

// judge makes the working form of a task that may be added, whatever the store has. One
// that was imported may be over.
func (p *Party) judge(in *aggregator.Provision, imported bool) (*task.Task, error) {
	err := p.opt.CheckIssuer(&in.Task)
	var w *task.Task
	if err == nil {
		w, err = task.New(&in.Task, p.role)
	}
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
	if now := p.Steady.Now(); !imported && w.Over(now, p.opt.Limits.ClockSkew) {
		return refuse(aggregator.TaskOver, "no report of it can come since %s", w.End(p.opt.Limits.ClockSkew).UTC().Format(time.RFC3339))
	}
	if _, err := p.opt.Limits.ForTasks([]aggregator.Task{in.Task}); err != nil {
		return refuse(aggregator.TaskTooLarge, "%v", err)
	}
	if imported { // keys are opened later, for all tasks
		return w, nil
	}
	if d := w.Deployment; d != nil {
		if p.Server.Notary == nil {
			return refuse(aggregator.TaskUnsigned, "%s", noSigner(p.role))
		}
		if err := p.Server.Notary.Fits(d); err != nil {
			return refuse(aggregator.TaskUnsigned, "%v", err)
		}
	}
	if !p.makesKeys() {
		if err := p.Keys.Cover(context.Background(), 0, suites(w)...); err != nil {
			return refuse(aggregator.TaskUnsealed, "%v: hpke_keys has to name one, or hpke_key_period have them made", err)
		}
	}
	return w, nil
}

// noSigner is said of a task whose recipe names an aggregator's root key, where that has no
// signing key.
func noSigner(role dap.Role) string {
	return fmt.Sprintf("its recipe names this %v's root key: starling key online makes a key that it vouches for, [signing] in the configuration names that, and a start reads it", role)
}

// makesKeys says whether the aggregator makes HPKE keys by itself.
func (p *Party) makesKeys() bool { return p.opt.KeySchedule != nil }

// ended says how a task ended that is to be added.
func (p *Party) ended(ctx context.Context, id dap.TaskID) error {
	e := &aggregator.TaskError{Fault: aggregator.TaskClosed, Task: id, Detail: "it ended here, or came after a backup that was restored, and never opens again"}
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

// closeToo closes a task that the other aggregator has closed.
func (p *Party) closeToo(ctx context.Context, id dap.TaskID, why string) error {
	other := "the helper"
	if p.role == dap.RoleHelper {
		other = "the leader"
	}
	_, err := p.Close(ctx, id, other, why)
	if errors.Is(err, store.ErrNotFound) { // it is of the options, which name it anew at each start
		p.opt.Log.Error("the other aggregator has closed a task that is not in the registry here", "task", id)
		return nil
	}
	if err == nil {
		p.opt.Log.Warn("a task was closed at the other aggregator, and is closed here too", "task", id, "by", other, "why", why)
	}
	return err
}

// Closing is how a task was closed; nil where it was not.
func (p *Party) Closing(ctx context.Context, id dap.TaskID) (*status.ClosedTask, error) {
	state, err := p.Store.TaskState(ctx, id)
	if err != nil || state.Closed.IsZero() {
		return nil, err
	}
	r, err := p.Store.Registration(ctx, id)
	if err != nil || r.Closed == nil {
		return nil, err
	}
	return &status.ClosedTask{At: r.Closed.At, By: r.Closed.By, Why: r.Closed.Why}, nil
}

// Close ends a task for new reports, for good. Again is harmless: the first closing holds,
// and is returned.
func (p *Party) Close(ctx context.Context, id dap.TaskID, by, why string) (store.Closing, error) {
	c, err := p.Store.CloseTask(ctx, id, store.Closing{At: p.opt.Clock.Now(), By: by, Why: why})
	p.States.forget(id)
	p.due()
	return c, err
}
