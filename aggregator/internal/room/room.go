// Package room says when an aggregator has to stop taking things in, long before its disk
// is full: below the room that is to be kept free it takes no uploads, which nobody else
// would hold; below half of that, no jobs and collections, which go on by themselves
// later; below a quarter the store begins no transaction. All of it ends by itself once
// there is room.
package room

import (
	"errors"
	"fmt"

	"github.com/starling-agg/starling/internal/disk"
)

// Errors to branch on.
var (
	// ErrDisk: the disk is nearly full.
	ErrDisk = errors.New("the disk is nearly full")
	// ErrBacklog: too many acknowledged reports wait.
	ErrBacklog = errors.New("too many acknowledged reports wait to be verified")
)

// A Room is what an aggregator may fill. Its fields do not change.
type Room struct {
	FS disk.FS
	// Free bytes are to be left on the disk; 0: no bound.
	Free int64
	// Backlog is how many acknowledged reports may wait; 0: no bound.
	Backlog uint64
}

// Take says whether an upload may be taken while waiting reports wait: nil, or why not.
func (r *Room) Take(waiting uint64) error {
	if r.Backlog > 0 && waiting >= r.Backlog {
		return fmt.Errorf("%w: %d, and no more than %d may (max_backlog)", ErrBacklog, waiting, r.Backlog)
	}
	return r.least(r.Free)
}

// Work says whether a job or a collection may be begun.
func (r *Room) Work() error { return r.least(r.Free / 2) }

// Floor is how many bytes have to be free for a transaction to begin.
func (r *Room) Floor() int64 { return r.Free / 4 }

func (r *Room) least(bytes int64) error {
	if bytes <= 0 {
		return nil
	}
	if free, known := disk.Free(r.FS); known && free < bytes {
		return fmt.Errorf("%w: %d MiB are free, of %d MiB that have to be (min_free)", ErrDisk, free>>20, bytes>>20)
	}
	return nil
}
