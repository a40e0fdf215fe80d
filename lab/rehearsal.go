package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/deploy"
)

const (
	// rehearsing is the step before the start in which a few devices visit parties that are
	// thrown away, which tells how long all of them take.
	rehearsing = "rehearse"
	// rehearsed are as many devices as keep the attester busy for a while, or of a small lab a
	// part of them.
	rehearsed, rehearsedPart = 6 * visiting, 8
	// slack is by how much longer the visits may take than by the rehearsal, and spare is
	// added for all that does not grow with their number.
	slack = 1.1
	spare = 2 * time.Second
	// restarts is how often a lab begins anew with a later epoch, because the machine became
	// slower and its epoch began before all devices had visited.
	restarts = 3
)

// A tempo is how fast the machine is.
type tempo struct {
	start time.Duration // of all parties, until devices have what the log says
	visit time.Duration // of many at a time, each
	slack float64
}

// until is how long start and visits of a number of devices take, and some more.
func (t tempo) until(devices int) time.Duration {
	return spare + time.Duration(t.slack*float64(t.start+time.Duration(devices)*t.visit))
}

// longer is the tempo after a start in a time, and visits that took longer, done of them in
// another.
func (t tempo) longer(start time.Duration, done uint64, in time.Duration) tempo {
	t.start = max(t.start, start)
	t.visit = max(t.visit, in/time.Duration(max(1, done)))
	t.slack *= 1.5
	return t
}

// A lateError is why a lab begins anew: its epoch began before all devices had visited.
// Devices without credentials sit it out, and those that have some are too few to be
// counted.
type lateError struct {
	done  uint64 // visits
	in    time.Duration
	cause error
}

func (e *lateError) Error() string {
	return fmt.Sprintf("the epoch began when %d devices had visited, in %.1f s: %v", e.done, e.in.Seconds(), e.cause)
}

func (e *lateError) Unwrap() error { return e.cause }

// rehearse plays the start of a lab and the visits of a few devices, with parties, recipe and
// files that are thrown away.
func (f *frame) rehearse(ctx context.Context, pose poser) error {
	o := f.o
	o.Keep, o.Log, o.Progress = "", nil, func(Progress) {}
	o.counted = min(rehearsed, o.counted/rehearsedPart)
	x := newFrame(o)
	x.tempo = tempo{start: time.Duration(shortEpoch) * time.Second / 2, slack: 1} // nobody waits for its epoch
	if err := x.run(ctx, pose, act{enrolling, x.visits}); err != nil {
		return err
	}
	f.tempo = tempo{x.took(starting), x.counting.steady, slack}
	return nil
}

// counted plays a lab whose devices are counted: after a rehearsal, and anew with a later
// epoch where the machine became slower since. A directory to keep that is not empty is
// refused before.
func (f *frame) counted(ctx context.Context, pose poser, acts ...act) error {
	if f.o.Keep != "" && !vacant(f.o.Keep) {
		return fmt.Errorf("lab: %w: %s", deploy.ErrNotEmpty, f.o.Keep)
	}
	if err := f.step(rehearsing, func() error { return f.rehearse(ctx, pose) }); err != nil {
		return err
	}
	return f.inTime(ctx, pose, acts...)
}

// took is how long a step took.
func (f *frame) took(step string) time.Duration {
	return time.Duration(f.seconds[step] * float64(time.Second))
}

// inTime plays a lab with an epoch by its tempo, until one does not begin too early.
func (f *frame) inTime(ctx context.Context, pose poser, acts ...act) error {
	return f.retried(ctx, func() error { return f.run(ctx, pose, acts...) })
}

// retried runs a lab whose epoch begins by its tempo, until one does not begin too early.
func (f *frame) retried(ctx context.Context, run func() error) error {
	for after := f.phase; ; {
		err := run()
		late := new(lateError)
		if !errors.As(err, &late) || ctx.Err() != nil {
			return err
		}
		if f.again == restarts {
			return fmt.Errorf("%w; run the lab again when the machine has less to do, or with fewer devices", err)
		}
		f.again++
		f.tempo, f.phase, f.client = f.tempo.longer(f.took(starting), late.done, late.in), after, nil
	}
}
