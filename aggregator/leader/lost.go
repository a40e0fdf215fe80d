package leader

import (
	"context"
	"fmt"
	"path"
	"slices"

	"github.com/starling-agg/starling/aggregator/internal/lost"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/dap"
)

// Directories of the leader, beside the store's.
const (
	slicesDir = "slices"
	inboxDir  = "inbox"
	runs      = "runs"
)

// TakeBack puts in again, as work, the acknowledged reports in lost files, whose rows or
// logs are gone: a report that was aggregated before is rejected as a replay. A file that
// is not whole, or of no task that is provisioned here, stays where it is. TakeBack
// returns the numbers of files and reports taken back; call it before [Leader.Run].
func (l *Leader) TakeBack(ctx context.Context) (files int, reports uint64, err error) {
	all, err := lost.List(l.opt.FS)
	if err != nil {
		return 0, 0, fmt.Errorf("leader: take back: %w", err)
	}
	for _, f := range all {
		var entries []segment.Entry
		var why error
		switch path.Dir(f.Name) {
		case slicesDir:
			entries, why = segment.ReadObject(ctx, l.files, f.Path)
		case inboxDir:
			entries, why = segment.ReadLog(l.opt.FS, f.Path)
		default:
			continue
		}
		if why != nil {
			l.opt.Log.Warn("a lost file stays where it is: it is damaged", "file", f.Path, "error", why)
			continue
		}
		n, err := l.takeFile(ctx, f, entries)
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
func (l *Leader) takeFile(ctx context.Context, f lost.File, entries []segment.Entry) (uint64, error) {
	for i := range entries {
		if !l.tasks.Has(entries[i].TaskID) {
			l.opt.Log.Warn("a lost file stays where it is: a task in it is not provisioned here", "file", f.Path, "task", dap.TaskID(entries[i].TaskID))
			return 0, nil
		}
	}
	if err := l.inbox.Put(ctx, entries); err != nil {
		return 0, err
	}
	return uint64(len(entries)), segment.Remove(l.opt.FS, f.Path)
}

// expire empties what is lost and opens to no key any more, and forgets the damage of logs
// that are not kept any more.
func (l *Leader) expire(ctx context.Context) error {
	if err := l.lost.Expire(l.keys, l.opt.Log); err != nil {
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
		if err := l.local.ForgetDamage(ctx, d.File); err != nil {
			return err
		}
	}
	return nil
}
