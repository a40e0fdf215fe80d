package party

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/backup"
	"github.com/starling-agg/starling/aggregator/internal/release"
	"github.com/starling-agg/starling/aggregator/internal/retire"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// BuryEvery is how often files that became needless are removed where that was not done at
// once, and their tombstones with them.
const BuryEvery = 5 * time.Second

// Stale is how old a reading may be before the store counts as one that does not answer.
const Stale = 30 * time.Second

// Common is what leader and helper offer alike to whoever runs them. Safe for concurrent
// use.
type Common struct{ p *Party }

// Common returns the party as both services offer it.
func (p *Party) Common() Common { return Common{p} }

// Handler serves DAP under the path of the base URL.
func (c Common) Handler() http.Handler { return c.p.Server }

// Keys says how the HPKE keys stand, the newest first.
func (c Common) Keys() []status.Key { return c.p.Keys.Status() }

// Offered is the encoded HpkeConfigList that clients are offered now, best first.
func (c Common) Offered() []byte {
	list, _ := c.p.Keys.List()
	return list
}

// Notary signs for the aggregator's owner; nil where no recipe names signing keys.
func (c Common) Notary() *keyset.Notary { return c.p.Server.Notary }

// ConfirmClock takes the machine's clock for right, which the service's Standing says is
// not plausible: what ends by time goes on. Call it before Run.
func (c Common) ConfirmClock(ctx context.Context) (time.Time, error) { return c.p.Steady.Confirm(ctx) }

// ErrDatabase: what the service has is in a database, whose backups are the database's.
var ErrDatabase = errors.New("what this aggregator has is in a database: back that up with PostgreSQL's own means (docs/operating.md, \"Several processes\")")

// Backup writes a backup of the service while it runs; see [backup.Send], and [ErrDatabase].
func (c Common) Backup(ctx context.Context, w io.Writer) error {
	if c.p.Local == nil {
		return ErrDatabase
	}
	return backup.Send(ctx, c.p.Local, c.p.opt.FS, c.p.opt.Clock, w)
}

// Registered lists the tasks that the store's registry has, in the order of their last
// changes.
func (c Common) Registered(ctx context.Context) (tasks []status.Registered, err error) {
	for after, page := uint64(0), recallPage; page == recallPage; {
		list, err := c.p.Store.Registrations(ctx, after, recallPage)
		if err != nil {
			return nil, err
		}
		page = len(list)
		for i := range list {
			r := &list[i]
			after = r.Change
			tasks = append(tasks, registered(r))
		}
	}
	return tasks, nil
}

func registered(r *store.Registration) status.Registered {
	v := status.Registered{
		Task: r.ID.Base64(), Form: "recipe", Source: [...]string{aggregator.Imported: "imported", aggregator.Typed: "typed", aggregator.InBand: "in band"}[r.Source],
		By: r.By, Added: r.Added, Begins: r.Begin, Ends: r.End, Sum: hex.EncodeToString(r.Sum[:]),
	}
	if r.Form == aggregator.Configuration {
		v.Form = "configuration"
	}
	if c := r.Closed; c != nil {
		v.Closed = &status.ClosedTask{At: c.At, By: c.By, Why: c.Why}
	}
	return v
}

// RegisteredTask is a task as the registry has it, with what it was made of and its terms;
// an *[aggregator.TaskError] where there is none.
func (c Common) RegisteredTask(ctx context.Context, id dap.TaskID) (v status.RegisteredTask, err error) {
	r, err := c.p.Store.Registration(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return v, &aggregator.TaskError{Fault: aggregator.TaskUnknown, Task: id, Detail: "nobody has added it"}
	}
	if err != nil {
		return v, err
	}
	return status.RegisteredTask{Registered: registered(r), Made: r.Made, Terms: r.Terms, Number: uint8(r.Form)}, nil
}

// Amend gives a task other terms, which count from when it is opened next: at the next
// start, where now is false. A task that is refused is an *[aggregator.TaskError].
func (c Common) Amend(ctx context.Context, in *aggregator.Provision) (now bool, err error) {
	return c.p.amend(ctx, in)
}

// Audit lists the violations of what must hold of the store and of the keys, in words;
// none is good.
func (c Common) Audit(ctx context.Context) ([]string, error) {
	faults, err := c.p.Store.Audit(ctx)
	if err != nil {
		return nil, err
	}
	more, err := c.p.Keys.Audit(ctx)
	if faults = append(faults, more...); err != nil {
		return faults, err
	}
	more, err = c.p.Data.Audit(ctx)
	return append(faults, more...), err
}

// TaskIDs are all tasks, in order.
func (p *Party) TaskIDs() []dap.TaskID { return p.Tasks.IDs() }

// OpenTasks are the tasks that are open, in the order of their ids. To list them is not to
// use them.
func (p *Party) OpenTasks() []*task.Task {
	return slices.SortedFunc(slices.Values(p.Tasks.Opened()), func(a, b *task.Task) int { return slices.Compare(a.ID[:], b.ID[:]) })
}

// Retired reports whether a task is retired.
func (p *Party) Retired(ctx context.Context, t dap.TaskID) (bool, error) {
	state, err := p.Store.TaskState(ctx, t)
	return state.Retired, err
}

// RetiresAt is when a task is retired, or zero.
func (p *Party) RetiresAt(ctx context.Context, t *task.Task) (time.Time, error) {
	state, err := p.Store.TaskState(ctx, t.ID)
	at, _ := retire.At(t.End(0), state.Closed, p.opt.Limits.ClockSkew, p.opt.Retention)
	return at, err
}

// Ends says whether a task is ever retired, by its end and its closing.
func (p *Party) Ends(end, closed time.Time) bool {
	_, ends := retire.At(end, closed, p.opt.Limits.ClockSkew, p.opt.Retention)
	return ends
}

// Retire ends the tasks that are due, and erases what is kept of them.
func (p *Party) Retire(ctx context.Context) (more bool, err error) {
	if err := p.Steady.Step(ctx); err != nil {
		return false, err
	}
	p.retiring.Lock()
	defer p.retiring.Unlock()
	now, r := p.Steady.Now(), &p.retired
	if err := p.endViews(ctx, now); err != nil {
		return false, err
	}
	if age := now.Sub(r.at); r.tasks == p.Tasks.Len() && age >= 0 && age < retire.Every && (r.next.IsZero() || now.Before(r.next)) {
		return false, nil
	}
	more, next, err := retire.Pass(ctx, p.Store, p.Tasks, now, p.opt.Limits.ClockSkew, p.opt.Retention, p.opt.Log)
	if *r = (pass{now, next, p.Tasks.Len()}); more || err != nil {
		r.tasks = -1
	}
	return more, err
}

// endViews destroys, every minute, what views are drawn from whose time is over. A collection
// that is under way is waited for.
func (p *Party) endViews(ctx context.Context, now time.Time) error {
	if age := now.Sub(p.viewed); age >= 0 && age < retire.Every {
		return nil
	}
	list, err := p.Store.Viewed(ctx)
	if err != nil {
		return err
	}
	for _, id := range list {
		t := p.Tasks.Get(id)
		if t == nil {
			continue // it is not provisioned any more, and nothing of it is released
		}
		ended := t.Ended(now, p.opt.Limits.ClockSkew)
		if ended == 0 {
			continue
		}
		if err := p.Store.EndViews(ctx, id, ended); errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrNotFound) {
			continue
		} else if err != nil {
			return err
		}
	}
	p.viewed = now
	return nil
}

// pass is what the last look at all tasks for those that end has found.
type pass struct {
	at, next time.Time // of the look, and of the next end
	tasks    int       // how many there were; -1: something is left to do
}

// Bury removes files that became needless, where that was not done at once.
func (p *Party) Bury(ctx context.Context) (bool, error) { return false, p.Store.Bury(ctx) }

// StepDataKeys makes data keys that are due, and destroys those of a time of which nothing
// can be released any more; in a database it does the same for what the secrets of tasks lie
// under.
func (p *Party) StepDataKeys(ctx context.Context) (bool, error) {
	worked, err := p.Data.Step(ctx, release.Needs(p.Store, p.Store, p.Tasks))
	if err != nil || p.Shared == nil {
		return worked, err
	}
	more, err := p.Shared.StepSecrets(ctx)
	return worked || more, err
}

// End is the end of each pass, the same at both services: needless files go, then stepKeys
// runs, then the data keys' turn comes, marks that are needless, what others changed in the
// registry, and tasks that nobody uses. worked is what the pass has done before it.
func (p *Party) End(ctx context.Context, worked bool, stepKeys func(context.Context) (bool, error)) (bool, error) {
	for _, step := range []func(context.Context) (bool, error){p.Bury, stepKeys, p.StepDataKeys, p.forgetMarks, p.Follow, p.GiveUp} {
		more, err := step(ctx)
		if worked = worked || more; err != nil {
			return worked, err
		}
	}
	return worked, nil
}

// Unmarked says whether nothing tells that the store was put back: it is a database's, and
// there is no place of marks.
func (p *Party) Unmarked() bool { return p.opt.Database != nil && p.opt.Database.Marks == nil }
