package postgres

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/starling-agg/starling/internal/pgdb"
)

const (
	// firstSlices is how many of the oldest free slices each claim looks at. Where none of
	// them can be claimed, since their tasks are held, it goes on behind those that were
	// found so before.
	firstSlices = 256
	// pastMargin is how many numbers of slices before the first that can be claimed are
	// looked at nevertheless: those of transactions that were under way.
	pastMargin = 4096
	// pastTime is how long a handle leaves slices out that it found held.
	pastTime = time.Minute
)

// past is what a handle knows of free slices that cannot be claimed, so that a claim does not
// read all that waits for tasks that are held. It is right for those holds that it was found
// with, and counts only while [Store.Holds] reads the same. The zero value is ready.
type past struct {
	mu     sync.Mutex
	now    [sha256.Size]byte // the holds that were read last
	holds  [sha256.Size]byte // those that after was found with
	except [sha256.Size]byte // and what a claim was to leave
	after  int64             // all free slices up to here are of such tasks; 0: nobody has looked
	until  time.Time
}

// next is the number behind which a claim looks that leaves something, and whether there is
// anything. It runs in a view.
func (p *past) next(tx *pgdb.Tx, now time.Time, leaves *without) (after int64, found bool, err error) {
	except := leaves.sum()
	p.mu.Lock()
	if after = p.after; p.holds != p.now || p.except != except || !now.Before(p.until) || p.until.Sub(now) > pastTime {
		after = 0
	}
	p.mu.Unlock()
	var first int64
	if found, err = tx.One("claimable-after", leaves.between([]any{after}), &first); err == nil && !found {
		_, err = tx.One("newest-slice", nil, &first)
	}
	if err != nil {
		return 0, false, err
	}
	begun := after > 0
	after = max(after, first-1-pastMargin, 0)
	holds, err := holdsNow(tx)
	if err != nil {
		return 0, false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !begun {
		p.until = now.Add(pastTime)
	}
	p.after, p.holds, p.except = after, holds, except
	return after, found, nil
}

// read takes note of the holds that there are.
func (p *past) read(holds [sha256.Size]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = holds
}

// forget has the next claim look at all.
func (p *past) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after = 0
}

// holdsNow are the tasks that are held, and since when.
func holdsNow(tx *pgdb.Tx) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	err = tx.Each("holds-of-tasks", nil, func(r pgdb.Row) error { return addHold(h, r, nil) })
	return [sha256.Size]byte(h.Sum(nil)), err
}
