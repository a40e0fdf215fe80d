package logged

import (
	"fmt"
	"slices"
	"time"

	"github.com/starling-agg/starling/anonymity/tlog"
)

// Watched is what a whole log holds.
type Watched struct {
	// Entries counts them by kind, and Withdrawn those of them that hold no more.
	Entries map[tlog.Kind]int
	Total   int64
	// Live are the places of those that hold at the time of looking.
	Live []int64
	// Faults are what an honest log would not have done; a log with one is not to be
	// trusted by anybody.
	Faults []string
}

// Watch reads all entries of a log, holds each to a checkpoint that a policy takes, judges
// it as the log should have, and holds each active set to what was in the log by then: one
// for each period, in their order, with all that held in it and nothing that was
// withdrawn before. files gets the log's tiles.
//
// It fails where the log cannot be read, or shows entries that are not under the
// checkpoint; what else is wrong stands in Faults.
func (j Judge) Watch(c *tlog.Checkpoint, files func(path string) ([]byte, error), now time.Time) (*Watched, error) {
	w := &watch{j: j, Watched: Watched{Entries: make(map[tlog.Kind]int), Total: c.Size, Faults: []string{}}}
	tree := tlog.NewTree(c, files)
	for _, tile := range tlog.EntryTiles(0, c.Size) {
		b, err := files(tile.Path())
		if err != nil {
			return nil, err
		}
		entries, err := tile.ReadTiled(b)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			at := w.register.Size()
			leaf, err := tree.Leaf(at)
			if err != nil {
				return nil, err
			}
			if leaf != tlog.LeafHash(e) {
				return nil, fmt.Errorf("%w: entry %d is not the one under the checkpoint", tlog.ErrProof, at)
			}
			if err := w.next(at, leaf, e); err != nil {
				return nil, err
			}
		}
	}
	w.Live = w.register.Live(now, now.Add(time.Second))
	return &w.Watched, nil
}

// A watch is in the middle of a log.
type watch struct {
	Watched
	j        Judge
	register tlog.Register
	last     time.Time // the end of the last period
}

func (w *watch) fault(at int64, format string, args ...any) {
	w.Faults = append(w.Faults, fmt.Sprintf("entry %d: ", at)+fmt.Sprintf(format, args...))
}

// next looks at the next entry.
func (w *watch) next(at int64, leaf tlog.Hash, b []byte) error {
	var claim tlog.Claim
	e, err := tlog.ReadEntry(b)
	switch {
	case err != nil:
		w.fault(at, "%v", err)
	case e.Kind == tlog.KindActive:
		w.active(at, e)
	default:
		if claim, err = w.j.Claim(e); err != nil {
			w.fault(at, "%v", err)
			claim = tlog.Claim{}
		}
	}
	w.Entries[e.Kind]++
	if err := w.register.Add(leaf, claim); err != nil {
		w.fault(at, "%v", err)
		return w.register.Add(leaf, tlog.Claim{}) // it has its place all the same
	}
	return nil
}

// active holds an active set to what was in the log by then.
func (w *watch) active(at int64, e tlog.Entry) {
	a, err := tlog.ReadActive(e)
	if err != nil {
		w.fault(at, "%v", err)
		return
	}
	if a.Begin.Before(w.last) {
		w.fault(at, "a second set of entries holds at %s: two devices may have been given two bundles", a.Begin.Format(time.RFC3339))
	}
	w.last = a.End
	for _, i := range w.register.Live(a.Begin, a.End) {
		if !slices.Contains(a.Entries, i) {
			w.fault(at, "it leaves out entry %d, which holds: devices were kept from it", i)
		}
	}
	// How long ahead the log hands entries out is its own choice.
	live := w.register.Live(a.Begin, a.End.Add(90*24*time.Hour))
	for _, i := range a.Entries {
		if !slices.Contains(live, i) {
			w.fault(at, "it has entry %d, which does not hold", i)
		}
	}
}
