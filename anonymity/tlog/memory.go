package tlog

import (
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/internal/wire"
)

// A Memory is what a device remembers of its log. The zero value is that of a device that
// has seen none. It is a value: [Bundle.Open] gives the next, which the device makes
// durable before it acts on the bundle.
type Memory struct {
	// Checkpoint is the largest that was seen, and Note is that with its signatures.
	Checkpoint Checkpoint
	Note       []byte
	// Time is the latest that a quorum of witnesses has said, or zero.
	Time time.Time
	// Begin is that of the last period whose active set was seen, and Active that entry's
	// leaf hash.
	Begin  time.Time
	Active Hash
}

// Errors of what contradicts a memory, to branch on with errors.Is.
var (
	// ErrOrigin: of another log than the one that is remembered.
	ErrOrigin = errors.New("tlog: the checkpoint is of another log than was seen before")
	// ErrClock: the device's clock is before what witnesses have said, and may have been
	// put back to make something old hold again.
	ErrClock = errors.New("tlog: the clock is before a time that witnesses have signed")
	// ErrRolledBack is what every *RolledBackError matches.
	ErrRolledBack = errors.New("tlog: the log was longer before")
	// ErrFork is what every *ForkError matches.
	ErrFork = errors.New("tlog: the log shows two trees")
	// ErrGap: no proof leads from what is remembered to what is given. It may be a fork,
	// and may be that the device was away for long.
	ErrGap = errors.New("tlog: no proof that the log continues what was seen")
	// ErrMemory: what was remembered is damaged.
	ErrMemory = errors.New("tlog: what was remembered of the log is damaged")
)

// A RolledBackError: the log has shown more than it shows now.
type RolledBackError struct{ Seen, Given string }

func (e *RolledBackError) Error() string {
	return fmt.Sprintf("tlog: the log went back: it had %s, and now %s: an old file was served, or the log was put back", e.Seen, e.Given)
}

// Is reports whether target is [ErrRolledBack].
func (e *RolledBackError) Is(target error) bool { return target == ErrRolledBack }

// A ForkError: the log has signed two checkpoints of which a log may sign one. Both are
// in it, to be kept and shown to others.
type ForkError struct {
	Why string
	// Proved says that the two notes prove it by themselves: they have one size and two
	// roots, or two sets hold in one period. Else the proof between them, which the log
	// made, does not hold.
	Proved bool
	// Seen and Given are the signed checkpoints.
	Seen, Given []byte
}

func (e *ForkError) Error() string {
	return "tlog: the log shows two trees: " + e.Why + "; keep both checkpoints and show them to the log's witnesses and to others"
}

// Is reports whether target is [ErrFork].
func (e *ForkError) Is(target error) bool { return target == ErrFork }

// advance is the memory after a checkpoint that a policy takes, with the active set that
// came with it.
func (m Memory) advance(w *Witnessed, active Placed, begin, now time.Time, proof func() ([]Hash, error)) (Memory, error) {
	fork := func(proved bool, format string, args ...any) error {
		return &ForkError{fmt.Sprintf(format, args...), proved, m.Note, w.Note}
	}
	seen := &m.Checkpoint
	if len(m.Note) > 0 {
		switch {
		case seen.Origin != w.Origin:
			return m, fmt.Errorf("%w: %s, and now %s", ErrOrigin, seen.Origin, w.Origin)
		case now.Add(Skew).Before(m.Time):
			return m, fmt.Errorf("%w: it says %s, and they %s", ErrClock, now.UTC().Format(time.RFC3339), m.Time.Format(time.RFC3339))
		case w.Size < seen.Size:
			return m, &RolledBackError{fmt.Sprintf("%d entries", seen.Size), fmt.Sprint(w.Size)}
		case w.Size == seen.Size && w.Root != seen.Root:
			return m, fork(true, "two roots of size %d", w.Size)
		case w.Size > seen.Size:
			hashes, err := proof()
			if err != nil {
				return m, fmt.Errorf("%w: %w", ErrGap, err)
			}
			if len(hashes) == 0 && seen.Size > 0 {
				return m, fmt.Errorf("%w: from %d entries to %d", ErrGap, seen.Size, w.Size)
			}
			if err := Continues(seen.Size, seen.Root, w.Size, w.Root, hashes); err != nil {
				return m, fork(false, "%v", err)
			}
		}
		switch {
		case begin.Before(m.Begin):
			return m, &RolledBackError{"what holds from " + m.Begin.Format(time.RFC3339), "from " + begin.Format(time.RFC3339)}
		case begin.Equal(m.Begin) && active.Leaf != m.Active:
			return m, fork(true, "two sets of entries hold in the period from %s", begin.Format(time.RFC3339))
		}
	}
	next := Memory{Checkpoint: w.Checkpoint, Note: w.Note, Time: m.Time, Begin: begin, Active: active.Leaf}
	if w.Time.After(next.Time) {
		next.Time = w.Time
	}
	return next, nil
}

const memoryMagic = "starling log memory v1\n"

// MaxMemory bounds an encoded memory, in bytes.
const MaxMemory = MaxNote + 1<<10

// code reads and writes opaque magic[23]; opaque note<0..2^24-1>; uint64 time, begin;
// opaque active[32]. A time that is none is 0.
func (m *Memory) code(c *wire.Coder) {
	c.Const(memoryMagic, "no memory of a log of version 1")
	c.Vec24(&m.Note, 0, "note")
	for _, t := range []*time.Time{&m.Time, &m.Begin} {
		at := *t
		if at.IsZero() {
			at = time.Unix(0, 0)
		}
		c.Seconds(&at, "time")
		if !c.Writing() && at.Unix() != 0 {
			*t = at
		}
	}
	c.Fixed(m.Active[:], "active set")
}

// Append appends the encoding, and the SHA-256 of it.
func (m *Memory) Append(dst []byte) []byte {
	return wire.AppendSum(wire.MustAppend(dst, m.code), len(dst))
}

// ReadMemory reads exactly one memory. It fails with [ErrMemory].
func ReadMemory(file []byte) (m Memory, err error) {
	content, ok := wire.CutSum(file)
	if !ok || len(file) > MaxMemory {
		return m, fmt.Errorf("%w: wrong checksum", ErrMemory)
	}
	if err := wire.Read(append([]byte(nil), content...), ErrMemory, m.code); err != nil {
		return Memory{}, err
	}
	if len(m.Note) == 0 {
		return m, nil
	}
	c, err := TextOf(m.Note)
	if err != nil {
		return Memory{}, fmt.Errorf("%w: %w", ErrMemory, err)
	}
	m.Checkpoint = *c
	return m, nil
}
