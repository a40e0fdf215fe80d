package tlog

import (
	"errors"
	"fmt"
	"slices"
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
	// Rungs are trees that Checkpoint continues, their sizes rising.
	Rungs []Rung
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
// came with it. Left is the checkpoint that was remembered, where the tree continues one
// before it only.
func (m Memory) advance(w *Witnessed, active Placed, begin, now time.Time, steps []Step, further func(old int64, c *Checkpoint) ([]Hash, error)) (next Memory, left []byte, err error) {
	fork := func(proved bool, format string, args ...any) error {
		return &ForkError{fmt.Sprintf(format, args...), proved, m.Note, w.Note}
	}
	seen := &m.Checkpoint
	var from Rung // that the tree continues
	if len(m.Note) > 0 {
		switch {
		case seen.Origin != w.Origin:
			return m, nil, fmt.Errorf("%w: %s, and now %s", ErrOrigin, seen.Origin, w.Origin)
		case now.Add(Skew).Before(m.Time):
			return m, nil, fmt.Errorf("%w: it says %s, and they %s", ErrClock, now.UTC().Format(time.RFC3339), m.Time.Format(time.RFC3339))
		case w.Size < seen.Size:
			return m, nil, &RolledBackError{fmt.Sprintf("%d entries", seen.Size), fmt.Sprint(w.Size)}
		case w.Size == seen.Size && w.Root != seen.Root:
			return m, nil, fork(true, "two roots of size %d", w.Size)
		case w.Size > seen.Size:
			from = Rung{Size: seen.Size, Root: seen.Root}
			var hashes []Hash
			if i := slices.IndexFunc(steps, func(s Step) bool { return s.Size == seen.Size }); i >= 0 {
				hashes = steps[i].Proof
			} else if further != nil {
				if hashes, err = further(seen.Size, &w.Checkpoint); err != nil {
					return m, nil, fmt.Errorf("%w: %w", ErrGap, err)
				}
			} else if r, proof := m.fallback(steps, now); r != nil {
				from, hashes, left = *r, proof, m.Note
			}
			if len(hashes) == 0 && seen.Size > 0 {
				return m, nil, fmt.Errorf("%w: from %d entries to %d", ErrGap, seen.Size, w.Size)
			}
			if err := Continues(from.Size, from.Root, w.Size, w.Root, hashes); err != nil {
				return m, nil, fork(false, "%v", err)
			}
		}
		switch {
		case begin.Before(m.Begin):
			return m, nil, &RolledBackError{"what holds from " + m.Begin.Format(time.RFC3339), "from " + begin.Format(time.RFC3339)}
		case begin.Equal(m.Begin) && active.Leaf != m.Active:
			return m, nil, fork(true, "two sets of entries hold in the period from %s", begin.Format(time.RFC3339))
		}
	}
	next = Memory{Checkpoint: w.Checkpoint, Note: w.Note, Time: m.Time, Begin: begin, Active: active.Leaf}
	if left != nil { // what lies behind the rung is in no tree that is followed
		next.Rungs = slices.DeleteFunc(slices.Clone(m.Rungs), func(r Rung) bool { return r.Size > from.Size })
	} else {
		next.Rungs = m.climb(steps, w)
	}
	if w.Time.After(next.Time) {
		next.Time = w.Time
	}
	return next, left, nil
}

const memoryMagic = "starling log memory v2\n"

// MaxMemory bounds an encoded memory, in bytes.
const MaxMemory = MaxNote + 1<<10 + MaxSteps*(8+32+8)

// code reads and writes opaque magic[23]; opaque note<0..2^24-1>; uint64 time, begin;
// opaque active[32]; {int64 size; opaque root[32]; uint64 since} rungs<0..2^24-1>. A time
// that is none is 0.
func (m *Memory) code(c *wire.Coder) {
	c.Const(memoryMagic, "no memory of a log of version 2")
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
	c.Nested24("rungs", func() {
		wire.Items(c, &m.Rungs, func(i int, r *Rung) {
			c.Check(i < MaxSteps, "too many rungs")
			c.Int64(&r.Size, "size")
			c.Check(r.Size > 0 && r.Size <= MaxSize && (i == 0 || m.Rungs[i-1].Size < r.Size), "sizes do not rise")
			c.Fixed(r.Root[:], "root")
			c.Seconds(&r.Since, "since")
		})
	})
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
