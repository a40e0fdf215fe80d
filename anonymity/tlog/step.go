package tlog

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"

	merkle "golang.org/x/mod/sumdb/tlog"
)

// A Rung is a tree that the one that is remembered is proved to continue. A device has
// those whose sizes bundles went on from when it followed the log, so that after a long
// absence, when the log has not kept the size that it saw last, it goes on from one that
// the log has kept.
type Rung struct {
	Size int64
	Root Hash
	// Since is a time from which on the device has seen all that it has seen and that is not
	// proved to be in that tree.
	Since time.Time
}

// Recent is how many of the last sizes a log keeps one and all to continue from, of the
// [MaxSteps] that it keeps together.
const Recent = 96

// Thin leaves of items of rising times those that are to be kept: all if they are
// [MaxSteps] or fewer, else the first, the last [Recent], and of those between fewer the
// older they are. A device that looks for an item of an age finds one that is older by an
// eighth of that age, at most, for five years of one item an hour. It changes what it is
// given.
func Thin[T any](all []T, at func(T) time.Time) []T {
	for len(all) > MaxSteps {
		now := at(all[len(all)-1])
		worst, least := 1, float64(0)
		for i := 1; i < len(all)-Recent; i++ {
			// The gap as it would be without it, in parts of its age.
			gap := float64(at(all[i+1]).Sub(at(all[i-1])))
			if age := float64(now.Sub(at(all[i]))) + float64(time.Second); i == 1 || gap/age < least {
				worst, least = i, gap/age
			}
		}
		all = slices.Delete(all, worst, worst+1)
	}
	return all
}

// continued is the root of the tree of an earlier size that a proof shows a tree to
// continue (RFC 9162, section 2.1.4.2, which compares what this returns). It says nothing
// of sizes that are a power of two: there the proof leaves out that root. It fails with
// [ErrProof].
func continued(old, size int64, root Hash, proof []Hash) (Hash, error) {
	bad := fmt.Errorf("%w: the tree of size %d continues none of size %d by it", ErrProof, size, old)
	if old <= 0 || old >= size || bits.OnesCount64(uint64(old)) == 1 || len(proof) == 0 {
		return Hash{}, bad
	}
	from, to := old-1, size-1
	for from&1 == 1 {
		from, to = from>>1, to>>1
	}
	before, after := proof[0], proof[0]
	for _, h := range proof[1:] {
		if to == 0 {
			return Hash{}, bad
		}
		if from&1 == 1 || from == to {
			before, after = merkle.NodeHash(h, before), merkle.NodeHash(h, after)
			for from&1 == 0 && from != 0 {
				from, to = from>>1, to>>1
			}
		} else {
			after = merkle.NodeHash(after, h)
		}
		from, to = from>>1, to>>1
	}
	if to != 0 || after != root || merkle.CheckTree(proof, size, root, old, before) != nil {
		return Hash{}, bad
	}
	return before, nil
}

// fallback is the largest rung from which a bundle has a step, for a device that was away
// for so long that the log has not kept the size that it saw last. Entries that the
// device saw behind the rung are not proved to be in the log: they may be no more than
// the last of what it saw, for a quarter as long as it was away, and it was away for
// [MaxAge] at least. A log that keeps sizes as [Thin] has one for each.
func (m *Memory) fallback(steps []Step, now time.Time) (r *Rung, proof []Hash) {
	away := now.Sub(m.Time)
	if away < MaxAge {
		return nil, nil
	}
	for i := range m.Rungs {
		x := &m.Rungs[len(m.Rungs)-1-i]
		if m.Time.Sub(x.Since) > away/4 {
			return nil, nil
		}
		if at, ok := slices.BinarySearchFunc(steps, x.Size, func(s Step, size int64) int { return cmp.Compare(s.Size, size) }); ok {
			return x, steps[at].Proof
		}
	}
	return nil, nil
}

// climb are the rungs below a checkpoint that continues the one remembered: those before,
// that one, and the sizes between them from which the bundle goes on.
func (m *Memory) climb(steps []Step, c *Witnessed) []Rung {
	rungs, since := slices.Clone(m.Rungs), m.Time
	switch {
	case len(m.Note) == 0:
		since = c.Time
	case m.Checkpoint.Size == c.Size:
		return rungs
	case m.Checkpoint.Size > 0:
		rungs = append(rungs, Rung{m.Checkpoint.Size, m.Checkpoint.Root, since})
	}
	for _, s := range steps {
		if s.Size <= m.Checkpoint.Size || s.Size >= c.Size {
			continue
		}
		if root, err := continued(s.Size, c.Size, c.Root, s.Proof); err == nil { // or it is of no use
			rungs = append(rungs, Rung{s.Size, root, since})
		}
	}
	if len(rungs) > MaxSteps { // first what the log has not kept itself
		rungs = slices.DeleteFunc(rungs, func(r Rung) bool {
			_, ok := slices.BinarySearchFunc(steps, r.Size, func(s Step, size int64) int { return cmp.Compare(s.Size, size) })
			return !ok && r.Size != m.Checkpoint.Size
		})
	}
	return Thin(rungs, func(r Rung) time.Time { return r.Since })
}
