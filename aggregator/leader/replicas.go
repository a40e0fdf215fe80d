package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/lease"
	"github.com/starling-agg/starling/aggregator/internal/party"
	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

const (
	// tidyLease is for how long one process of several has the turn to move slices.
	tidyLease = 5 * time.Minute
	// strayEvery is how often a part of what lies in object storage is looked at.
	strayEvery = time.Minute
)

// replicas is the intake of one process of several on one database: uploads of all tasks
// that come at about one time are one object, whose slices have rows before anything is
// acknowledged. So nothing is this process's alone, and whatever becomes of it another one
// has what it needs.
type replicas struct {
	*segment.Intake
	l       *Leader
	stored  payload.Store // rows, and what lies beside them
	states  bucketStates
	came    chan struct{} // reports were named since company was looked for
	arrived func()
}

func (l *Leader) openReplicas() (*replicas, error) {
	if l.opt.Limits.UploadBody > payload.MaxObject/2 {
		return nil, fmt.Errorf("leader: limits: UploadBody of %d bytes, but with a database an upload has %d at most", l.opt.Limits.UploadBody, payload.MaxObject/2)
	}
	most := l.opt.most()
	in, err := segment.NewIntake(l.party.Shared, segment.IntakeOptions{
		Objects: l.party.Objects, RowBytes: l.party.RowBytes, MaxReport: int(l.opt.Limits.UploadBody), MaxInFlight: l.opt.Limits.InFlight,
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

// A bucketStates remembers how batch buckets stand, so that an upload costs no statement for
// each: as long as the store's answer may be old, and a closed one for ever. Reports that it
// lets through, and should not, the transaction refuses that names them. Safe for
// concurrent use; the zero value is ready.
type bucketStates struct {
	mu sync.Mutex
	m  map[bucket]seenBucket
}

type bucket struct {
	task dap.TaskID
	at   dap.Time
}

type seenBucket struct {
	store.BatchState
	at time.Time
}

// maxBuckets is how many answers are kept: a hundred bytes each.
const maxBuckets = 10_000

func (r *replicas) state(ctx context.Context, task dap.TaskID, at dap.Time) (store.BatchState, error) {
	s, b, now := &r.states, bucket{task, at}, r.l.opt.Clock.Now()
	s.mu.Lock()
	last, ok := s.m[b]
	s.mu.Unlock()
	if age := now.Sub(last.at); ok && (last.BatchState == store.Closed || age >= 0 && age < party.Fresh) {
		return last.BatchState, nil
	}
	state, err := r.l.store.BatchState(ctx, task, store.Batch{Start: at})
	if err != nil {
		return state, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil || len(s.m) >= maxBuckets {
		s.m = make(map[bucket]seenBucket)
	}
	s.m[b] = seenBucket{state, now}
	return state, nil
}

// settle has nothing to do: rows name what is acknowledged.
func (r *replicas) settle(context.Context) (bool, error) { return false, nil }

func (r *replicas) unnamed() segment.InboxStats { return segment.InboxStats{InFlight: r.InFlight()} }

func (r *replicas) unnamedOf(segment.TaskID) uint64 { return 0 }

func (r *replicas) mayHave(segment.TaskID) bool { return false }

func (r *replicas) broken() error { return nil }

func (r *replicas) behind() error { return nil }

func (r *replicas) lives(ctx context.Context, life string) error {
	return r.l.party.Shared.Lives(ctx, life)
}

func (r *replicas) files() payload.Store { return r.stored }

func (r *replicas) place(size int64) string { return r.Place(size) }

func (r *replicas) discard(ctx context.Context, object string) error {
	return r.stored.Delete(ctx, object)
}

// tidies takes turns with the other processes, by a lease.
func (r *replicas) tidies(ctx context.Context) (bool, error) {
	return r.l.party.Shared.Turn(ctx, postgres.ChoreLeftover, tidyLease)
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
	run.Go("objects without a row", strayEvery, nil, func(ctx context.Context) (bool, error) { return false, r.l.party.Shared.SweepStrays(ctx) })
	run.Go("held tasks", r.l.opt.Idle, nil, func(ctx context.Context) (bool, error) { return false, r.l.readHolds(ctx) })
}

func (r *replicas) expire(context.Context) error { return nil }

// errNothingLost: what is acknowledged is in no file of the process.
var errNothingLost = errors.New("leader: what this leader has is in a database, and it keeps no lost files")

func (r *replicas) takeBack(context.Context) (int, uint64, error) { return 0, 0, errNothingLost }

func (r *replicas) close() error { return r.Close() }

// beat tells the other processes on the database how this one stands.
func (l *Leader) beat(ctx context.Context) (bool, error) {
	return false, l.party.Beat(ctx, l.replica())
}

// replica is how this process stands.
func (l *Leader) replica() status.Replica {
	ready := l.Readiness()
	return status.Replica{Takes: len(ready.Take.Reasons) == 0, NotTaking: ready.Take.Words(), Claims: int(l.claims.Load()),
		Refused: l.srv.Refused(), Rates: l.rates.all(l.opt.Clock.Now())}
}
