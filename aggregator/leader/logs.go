package leader

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/starling-agg/starling/aggregator/internal/lease"
	"github.com/starling-agg/starling/aggregator/internal/lost"
	"github.com/starling-agg/starling/aggregator/internal/party"
	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
)

// Directories of the leader, beside the store's.
const (
	slicesDir = "slices"
	inboxDir  = "inbox"
	runs      = "runs"
)

// logs is the intake of one process, to which its directory belongs: uploads are appended
// to a log, and the sorter has rows name what a log has once that is closed.
type logs struct {
	l      *Leader
	local  store.Embedded
	stored payload.Store
	inbox  *segment.Inbox
	sorter *segment.Sorter
	lost   *lost.Room
}

// openLogs looks through what no row names and takes over the logs of earlier lives.
func (l *Leader) openLogs(ctx context.Context) (_ *logs, err error) {
	in := &logs{l: l, local: l.party.Local, stored: payload.OpenFiles(l.opt.FS)}
	most := l.opt.most()
	waiting := &segment.Waiting{
		FS: l.opt.FS, Inbox: inboxDir, Committer: in.local, Rows: l.store.Slices, MaxBytes: int(most.Bytes), MaxReports: most.Reports,
	}
	in.lost = &lost.Room{
		FS: l.opt.FS, Newest: l.keys.Newest, Again: waiting.Holds, Failpoints: l.opt.Failpoints,
	}
	if err := in.lost.Open(ctx, l.store, l.opt.Log, slicesDir, runs); err != nil {
		return nil, fmt.Errorf("leader: %w", err)
	}
	aside, err := lost.List(l.opt.FS)
	if err != nil {
		return nil, fmt.Errorf("leader: %w", err)
	}
	unnamed := make([]string, len(aside))
	for i, f := range aside {
		unnamed[i] = f.Name
	}
	counted := committer{in.local, func(reports int64) {
		l.backlog.named.Add(reports)
		l.wakeJobs()
	}}
	in.inbox, err = segment.OpenInbox(ctx, l.opt.FS, counted, segment.InboxOptions{
		Dir: inboxDir, Unnamed: unnamed, MaxReport: int(l.opt.Limits.UploadBody), MaxInFlight: l.opt.Limits.InFlight,
		JobBytes: int(most.Bytes), JobReports: most.Reports,
		Log: disk.LogOptions{Clock: l.opt.Clock, Failpoints: l.opt.Failpoints, MaxRecord: 2 * int(l.opt.Limits.UploadBody)},
	})
	if err != nil {
		return nil, fmt.Errorf("leader: %w", err)
	}
	in.sorter, err = segment.NewSorter(in.inbox, segment.SorterOptions{
		Dir: slicesDir, Lost: in.lost, Latency: l.opt.Latency, Logger: l.opt.Log,
		MaxReports: most.Reports, MaxBytes: int(most.Bytes), Failpoints: l.opt.Failpoints,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("leader: %w", err), in.inbox.Close())
	}
	return in, nil
}

// committer says when slices have been named.
type committer struct {
	segment.Committer
	after func(reports int64)
}

func (c committer) CommitLog(ctx context.Context, log segment.Begun, s []segment.Slice, lost *segment.LogDamage, others []segment.Begun) error {
	err := c.Committer.CommitLog(ctx, log, s, lost, others)
	if err == nil {
		reports := int64(0)
		for i := range s {
			reports += int64(s[i].Count)
		}
		c.after(reports)
	}
	return err
}

func (in *logs) put(ctx context.Context, entries []segment.Entry) ([]segment.Refusal, error) {
	return nil, in.inbox.Put(ctx, entries)
}

func (in *logs) settle(ctx context.Context) (bool, error) {
	n, err := in.sorter.Sort(ctx)
	return n > 0, err
}

func (in *logs) unnamed() segment.InboxStats { return in.inbox.Stats() }

func (in *logs) unnamedOf(task segment.TaskID) uint64 { return in.inbox.Waiting(task) }

func (in *logs) mayHave(task segment.TaskID) bool { return in.inbox.May(task) }

func (in *logs) broken() error { return in.inbox.Err() }

func (in *logs) behind() error {
	if n := in.sorter.Stats().Damaged; n > 0 {
		return fmt.Errorf("acknowledged reports lie in %d logs that are damaged: starling doctor", n)
	}
	if s := in.inbox.Stats(); s.ClosedLogs > 0 && in.l.opt.Clock.Now().Sub(s.Oldest) > party.Stale {
		return errors.New("acknowledged reports cannot be sorted; the log says why")
	}
	return nil
}

// lives is for others to say: the keys are this process's.
func (*logs) lives(context.Context, string) error { return nil }

func (in *logs) files() payload.Store { return in.stored }

func (in *logs) place(int64) string { return segment.ObjectName(slicesDir) }

// state is answered from memory.
func (in *logs) state(ctx context.Context, task dap.TaskID, bucket dap.Time) (store.BatchState, error) {
	return in.l.store.BatchState(ctx, task, store.Batch{Start: bucket})
}

func (in *logs) tidies(context.Context) (bool, error) { return true, nil }

func (in *logs) discard(_ context.Context, object string) error {
	return segment.Remove(in.l.opt.FS, object)
}

func (in *logs) start(r *lease.Runner) {
	idle := in.l.opt.Idle
	r.Go("sorter", idle, nil, func(ctx context.Context) (bool, error) {
		if err := in.sorter.Run(ctx); ctx.Err() == nil {
			return false, err
		}
		return false, nil
	})
	// A failed sync ends the inbox for good: what the disk has of it, only a restart tells.
	r.Go("inbox", idle, nil, func(context.Context) (bool, error) {
		if err := in.inbox.Err(); err != nil {
			return false, fmt.Errorf("%w: %w", store.ErrUnknown, err)
		}
		return false, nil
	})
}

func (in *logs) close() error { return in.inbox.Close() }

func (in *logs) takeBack(ctx context.Context) (files int, reports uint64, err error) {
	l := in.l
	all, err := lost.List(l.opt.FS)
	if err != nil {
		return 0, 0, fmt.Errorf("leader: take back: %w", err)
	}
	for _, f := range all {
		var entries []segment.Entry
		var why error
		switch path.Dir(f.Name) {
		case slicesDir:
			entries, why = segment.ReadObject(ctx, in.stored, f.Path)
		case inboxDir:
			entries, why = segment.ReadLog(l.opt.FS, f.Path)
		default:
			continue
		}
		if why != nil {
			l.opt.Log.Warn("a lost file stays where it is: it is damaged", "file", f.Path, "error", why)
			continue
		}
		n, err := in.takeFile(ctx, f, entries)
		if err != nil {
			return files, reports, fmt.Errorf("leader: take back %s: %w", f.Path, err)
		}
		if n > 0 {
			files, reports = files+1, reports+n
		}
	}
	return files, reports, l.store.Bury(ctx)
}

// takeFile uploads the reports of a lost file once more, and removes it when they are
// durable.
func (in *logs) takeFile(ctx context.Context, f lost.File, entries []segment.Entry) (uint64, error) {
	l := in.l
	for i := range entries {
		if !l.tasks.Has(entries[i].TaskID) {
			l.opt.Log.Warn("a lost file stays where it is: a task in it is not provisioned here", "file", f.Path, "task", dap.TaskID(entries[i].TaskID))
			return 0, nil
		}
	}
	if err := in.inbox.Put(ctx, entries); err != nil {
		return 0, err
	}
	return uint64(len(entries)), segment.Remove(l.opt.FS, f.Path)
}

// expire empties what is lost and opens to no key any more, and forgets the damage of logs
// that are not kept any more.
func (in *logs) expire(ctx context.Context) error {
	l := in.l
	if err := in.lost.Expire(l.keys, l.opt.Log); err != nil {
		return err
	}
	damages, err := l.store.Damages(ctx)
	if len(damages) == 0 || err != nil {
		return err
	}
	files, err := lost.List(l.opt.FS)
	if err != nil {
		return err
	}
	for _, d := range damages {
		if slices.ContainsFunc(files, func(f lost.File) bool { return f.Name == d.File }) {
			continue
		}
		if _, err := l.opt.FS.Stat(d.File); err == nil {
			continue // it is about to be set aside
		}
		if err := in.local.ForgetDamage(ctx, d.File); err != nil {
			return err
		}
	}
	return nil
}
