package leader

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-agg/starling/aggregator/internal/lease"
	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/segment"
)

// replicas is the intake of one process of several on one database: uploads of all tasks
// that come at about one time are one object, whose slices have rows before anything is
// acknowledged. So nothing is this process's alone, and whatever becomes of it another one
// has what it needs.
type replicas struct {
	*segment.Intake
	l       *Leader
	stored  payload.Store // rows, and what lies beside them
	came    chan struct{} // reports were named since company was looked for
	arrived func()
}

func (l *Leader) openReplicas() (*replicas, error) {
	if l.opt.Limits.UploadBody > payload.MaxObject/2 {
		return nil, fmt.Errorf("leader: limits: UploadBody of %d bytes, but with a database an upload has %d at most", l.opt.Limits.UploadBody, payload.MaxObject/2)
	}
	most := l.opt.most()
	in, err := segment.NewIntake(l.party.Shared, segment.IntakeOptions{
		Objects: l.party.Objects, MaxReport: int(l.opt.Limits.UploadBody), MaxInFlight: l.opt.Limits.InFlight,
		JobBytes: int(most.Bytes), JobReports: most.Reports, Clock: l.opt.Clock,
	})
	if err != nil {
		return nil, fmt.Errorf("leader: %w", err)
	}
	r := &replicas{Intake: in, l: l, stored: l.party.Shared.Payload()}
	r.came, r.arrived = lease.Signal()
	return r, nil
}

func (r *replicas) put(ctx context.Context, entries []segment.Entry) ([]segment.Refusal, error) {
	refused, err := r.Put(ctx, entries)
	if err != nil {
		return nil, err
	}
	named := int64(len(entries))
	for _, why := range refused {
		if why != 0 {
			named--
		}
	}
	if named > 0 {
		r.l.backlog.named.Add(named)
		r.arrived()
	}
	return refused, nil
}

// settle has nothing to do: rows name what is acknowledged.
func (r *replicas) settle(context.Context) (bool, error) { return false, nil }

func (r *replicas) unnamed() segment.InboxStats { return segment.InboxStats{InFlight: r.InFlight()} }

func (r *replicas) unnamedOf(segment.TaskID) uint64 { return 0 }

func (r *replicas) mayHave(segment.TaskID) bool { return false }

func (r *replicas) broken() error { return nil }

func (r *replicas) behind() error { return nil }

func (r *replicas) files() payload.Store { return r.stored }

func (r *replicas) place(size int64) string { return r.Place(size) }

func (r *replicas) discard(ctx context.Context, object string) error {
	return r.stored.Delete(ctx, object)
}

// start wakes the workers of jobs once reports had some time to gather, for a job of few
// costs as much as one of many; and reads what other processes were told to hold, or to let
// go on.
func (r *replicas) start(run *lease.Runner) {
	run.Go("reports that came", r.l.opt.Idle, r.came, func(ctx context.Context) (bool, error) {
		if err := r.l.sleep(ctx, r.l.opt.Latency); err == nil {
			r.l.wakeJobs()
		}
		return false, nil
	})
	run.Go("held tasks", r.l.opt.Idle, nil, func(ctx context.Context) (bool, error) { return false, r.l.readHolds(ctx) })
}

func (r *replicas) expire(context.Context) error { return nil }

// errNothingLost: what is acknowledged is in no file of the process.
var errNothingLost = errors.New("leader: what this leader has is in a database, and it keeps no lost files")

func (r *replicas) takeBack(context.Context) (int, uint64, error) { return 0, 0, errNothingLost }

func (r *replicas) close() error { return r.Close() }
