package leader

import (
	"context"

	"github.com/starling-agg/starling/aggregator/internal/lease"
	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

// An intake makes uploads durable, has rows name them, and keeps them until their jobs end.
// There are two: the [logs] of one process, which has all that it keeps in its own
// directory, and the group commits of [replicas] on one database. All else of a leader is
// the same on both.
//
// It is safe for concurrent use, but for start and takeBack.
type intake interface {
	// put makes reports durable and returns then, with those that are refused named in their
	// order; nil where none is. It fails with segment.ErrBusy where it has no room for them,
	// and with store.ErrUnknown where they may be kept: whoever sends them again does no harm.
	// Reports may be reused when it returns.
	put(ctx context.Context, entries []segment.Entry) ([]segment.Refusal, error)
	// state says whether a batch bucket takes uploads, as the store's BatchState does.
	state(ctx context.Context, task dap.TaskID, bucket dap.Time) (store.BatchState, error)
	// settle has rows name all that this process has acknowledged, and says whether there was
	// any. See segment.Blocks for what its error is about.
	settle(ctx context.Context) (worked bool, err error)
	// unnamed is what this process has acknowledged, or is about to, and no row names;
	// unnamedOf are the reports among it of a task; mayHave says whether any may be there, of
	// an earlier life too.
	unnamed() segment.InboxStats
	unnamedOf(task segment.TaskID) uint64
	mayHave(task segment.TaskID) bool
	// broken says why uploads fail until a restart, and behind why some that are acknowledged
	// do not come to be named; nil where that is not so.
	broken() error
	behind() error

	// lives fails with store.ErrCutOff where this process was held dead by others since it had
	// that life: there may be reports that are sealed to keys which it did not have.
	lives(ctx context.Context, life string) error

	// files has the objects of slices. place names a new one, for slices of a size in bytes
	// that are moved there, and discard removes it where no row has come to name it.
	files() payload.Store
	place(size int64) string
	discard(ctx context.Context, object string) error
	// tidies says whether it is this process that moves slices now: of several one does.
	tidies(ctx context.Context) (bool, error)

	// start begins the workers of the intake's own.
	start(r *lease.Runner)
	// expire empties what is lost and opens to no key any more.
	expire(ctx context.Context) error
	// takeBack puts in again what is lost; see [Leader.TakeBack].
	takeBack(ctx context.Context) (files int, reports uint64, err error)
	// close lets uploads under way become durable, and refuses later ones.
	close() error
}

// TakeBack puts in again, as work, the acknowledged reports in lost files, whose rows or
// logs are gone: a report that was aggregated before is rejected as a replay. A file that
// is not whole, or of no task that is provisioned here, stays where it is. TakeBack
// returns the numbers of files and reports taken back; call it before [Leader.Run]. With a
// database there are no such files.
func (l *Leader) TakeBack(ctx context.Context) (files int, reports uint64, err error) {
	return l.intake.takeBack(ctx)
}

// openIntake opens the one of the engine that the party stands on.
func (l *Leader) openIntake(ctx context.Context) (err error) {
	if l.party.Shared != nil {
		l.intake, err = l.openReplicas()
	} else {
		l.intake, err = l.openLogs(ctx)
	}
	return err
}
